"""merge: the newest result of each workload, kernel, GPU and fingerprint, and every ratio with its baseline."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from kernels.cli.main import main
from kernels.contract.export import NotAnExport, read_export
from kernels.contract.merged import merge, read_runs

DEMO = Path(__file__).parents[2] / "docs" / "measurements" / "h200-2026-11-22.json"


@pytest.fixture(scope="module")
def run():
    """Two workloads of a run, without samples."""
    whole = read_export(DEMO.read_bytes())
    short = [
        m.model_copy(update={"results": [arm.model_copy(update={"samples_ns": None}) for arm in m.results]})
        for m in whole.measurements[:2]
    ]
    return whole.model_copy(update={"measurements": short})


def later(run, days=1, **changes):
    return run.model_copy(update={"measured_at": run.measured_at + timedelta(days=days)} | changes)


def only(run, *kernels):
    """The same run with these kernels only."""
    kept = [
        m.model_copy(update={"results": [arm for arm in m.results if arm.kernel in kernels]}) for m in run.measurements
    ]
    return run.model_copy(update={"measurements": kept})


def names(run):
    return [[arm.kernel for arm in m.results] for m in run.measurements]


def every(run):
    return [(m.key, arm.kernel) for m in run.measurements for arm in m.results]


def changed(run, status=None, mode=None):
    return run.model_copy(
        update={
            "measurements": [
                m.model_copy(
                    update={
                        "mode": mode or m.mode,
                        "results": [arm.model_copy(update={"status": status or arm.status}) for arm in m.results],
                    }
                )
                for m in run.measurements
            ]
        }
    )


def test_the_newest_wins_whatever_the_order(run):
    newer = later(run)
    for given in ([run, newer], [newer, run]):
        found, dropped = merge(given)
        assert found.runs == [newer]
        assert len(dropped) == len(every(run))
        assert {one.by.measured_at for one in dropped} == {newer.measured_at}


def test_a_file_given_twice_is_there_once(run):
    same = run.model_copy()
    found, dropped = merge([run, same])
    assert len(found.runs) == 1 and len(dropped) == len(every(run))


@pytest.mark.parametrize(
    "other",
    [
        lambda run: later(run, fingerprint="another"),
        lambda run: later(run, environment=run.environment | {"uuid": "GPU-another"}),
    ],
    ids=["another fingerprint", "another card"],
)
def test_other_cards_and_other_versions_stay(run, other):
    found, dropped = merge([run, other(run)])
    assert len(found.runs) == 2 and not dropped


def test_a_baseline_stays_as_long_as_what_was_compared_with_it(run):
    base = run.measurements[0].baseline
    others = [name for name in names(run)[0] if name != base]
    newer = later(only(run, base, others[0]))
    found, dropped = merge([run, newer])
    old, new = found.runs
    assert names(new)[0] == [base, others[0]]
    assert base in names(old)[0] and others[0] not in names(old)[0] and set(others[1:]) < set(names(old)[0])
    assert {one.arm.kernel for one in dropped} == {others[0]}
    for measured in old.measurements:
        assert measured.base is not None, "a ratio would stand without its baseline"


def test_a_workload_that_only_one_run_has_stays(run):
    newer = later(run, measurements=run.measurements[:1])
    old, new = merge([run, newer])[0].runs
    assert [m.key for m in old.measurements] == [run.measurements[1].key]
    assert [m.key for m in new.measurements] == [run.measurements[0].key]


@pytest.mark.parametrize("change", [{"status": "unsupported"}, {"mode": "verify"}], ids=str)
def test_what_was_not_timed_replaces_nothing_that_was(run, change):
    newer = changed(later(run), **change)
    found, _ = merge([run, newer])
    assert found.runs == [run]


def test_the_command_writes_a_file_that_can_be_merged_again(run, tmp_path, capsys):
    first, second, third = (tmp_path / f"{name}.json" for name in "abc")
    first.write_text(run.as_json([]))
    second.write_text(later(run, fingerprint="another").as_json([]))
    third.write_text(later(run, 2).as_json([]))
    out = tmp_path / "out.json"
    assert main(["merge", str(first), str(second), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"out.json: 2 runs with {2 * len(every(run))} results; nothing dropped\n" and said.err == ""
    assert main(["merge", str(out), str(third), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert f"{len(every(run))} older or repeated results dropped" in said.out
    lines = said.err.splitlines()
    assert len(lines) == len(every(run))
    assert lines[0].startswith("dropped: ") and "NVIDIA H200" in lines[0] and "out.json: c.json has that of" in lines[0]
    data = json.loads(out.read_text())
    assert {row["fingerprint"] for row in data["table"]} == {run.fingerprint, "another"}
    assert {row["device"] for row in data["table"]} == {"NVIDIA H200"}
    assert [one.fingerprint for one in read_runs(out.read_bytes())] == ["another", run.fingerprint]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": "else"}',
        '{"format": "benchsite-merged/1"}',
        '{"format": "benchsite-merged/1", "runs": [3]}',
    ],
)
def test_what_is_no_file_of_results_is_refused_and_nothing_is_written(text, tmp_path, capsys):
    file, out = tmp_path / "a.json", tmp_path / "out.json"
    file.write_text(text)
    assert main(["merge", str(file), "-o", str(out)]) == 2
    assert "a.json: " in capsys.readouterr().err and not out.exists()
    with pytest.raises(NotAnExport):
        read_runs(text)


def test_a_missing_file_is_exit_status_2(tmp_path, capsys):
    assert main(["merge", str(tmp_path / "none.json"), "-o", str(tmp_path / "out.json")]) == 2
    assert "none.json" in capsys.readouterr().err
