"""The gate: what holds, fails and cannot be told, and what is said of it."""

import math
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from test_comparison import MEASURED, measurement, result, run

from kernels.analysis.gate import Gate, limit_of, processes_needed, whole, word_of
from kernels.cli import client
from kernels.cli.choice import exported
from kernels.cli.main import main
from kernels.contract.arm_result import Ratio
from kernels.contract.export import export_of
from kernels.protocol import MOST_PROCESSES, Protocol
from kernels.report.comparison import RunResults
from kernels.report.gate import Line, Report, as_junit, as_markdown, as_text, gate


def judged(was, now, most=0.02, **more):
    """The gate of a kernel with a new source, and of a control that did not move."""

    def of(speedup, sha):
        return run(measurement(result("mine", speedup, sha, **more), result("control", 1.1, "c")))

    return gate(of(now, "b"), [("before", of(was, "a"))], most, ["mine"])


# --- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "margin", "word"),
    [
        ((1.00, 0.99, 1.01), 0.01, Gate.HOLDS),
        ((1.30, 1.29, 1.31), 0.01, Gate.HOLDS),
        ((0.985, 0.9805, 0.99), 0.01, Gate.HOLDS),  # slower, by less than is allowed
        ((0.97, 0.965, 0.975), 0.01, Gate.FAILS),
        ((0.97, 0.95, 0.99), 0.01, Gate.UNKNOWN),
        ((1.00, 0.97, 1.03), 0.01, Gate.UNKNOWN),
        ((0.97, 0.965, 0.975), 0.04, Gate.UNKNOWN),  # A/A moved more than that
        ((0.90, 0.89, 0.91), 0.04, Gate.FAILS),
        ((1.00, 0.99, 1.01), 0.04, Gate.UNKNOWN),
        ((0.50, 0.49, 0.51), 0.06, Gate.UNKNOWN),  # too noisy for anything
    ],
)
def test_a_change_holds_fails_or_cannot_be_told(change, margin, word):
    assert word_of(Ratio(*change), margin, 0.02) == word


def test_the_limit_is_of_the_time():
    assert limit_of(0.02) == pytest.approx(1 / 1.02)


def test_one_that_fails_fails_all_and_nothing_holds_without_a_result():
    assert whole([Gate.HOLDS, Gate.UNKNOWN, Gate.FAILS]) == Gate.FAILS
    assert whole([Gate.HOLDS, Gate.UNKNOWN]) == whole([]) == Gate.UNKNOWN
    assert whole([Gate.HOLDS]) == Gate.HOLDS


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 5)])
def test_with_the_advised_processes_the_interval_no_longer_contains_the_limit(before, after):
    half, ratio = 0.03, 0.965
    change = Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half))
    needed = processes_needed(change, 0.02, before, after)
    of_one = half / math.sqrt(1 / before + 1 / after)

    def width(processes):
        return of_one * math.sqrt(2 / processes)

    far = math.log(limit_of(0.02) / ratio)
    assert width(needed) <= far and (needed == max(before, after) + 1 or width(needed - 1) > far)
    assert processes_needed(Ratio(1 / 1.02, 0.9, 1.1), 0.02, 1, 1) is None
    assert processes_needed(Ratio(0.981, 0.9, 1.1), 0.02, 1, 1) is None


# --- of runs ----------------------------------------------------------------------------------------------------------


def test_a_kernel_that_is_as_fast_holds_and_one_that_is_slower_fails():
    holds, fails = judged(1.2, 1.21), judged(1.2, 1.1)
    assert (holds.status, fails.status) == (0, 1)
    assert holds.sentence == "The gate holds: no kernel is slower by more than 2% (1 result)."
    assert fails.sentence == "The gate fails on 1 of 1 results: mine."
    assert fails.lines[0].why == "slower by 9.09%, at least 8.78%"


def test_an_interval_over_the_limit_cannot_be_told_and_says_how_many_processes():
    report = judged(1.2, 1.2 / 1.0215)
    needed = report.lines[0].processes
    assert report.status == 2 and needed == 4
    assert report.sentence == "The gate cannot tell on 1 of 1 results: mine. Measure both runs with 4 processes."
    assert "about 4 processes of each run would decide" in report.lines[0].why


@pytest.mark.parametrize("kernels", [[], ["mine"]])
def test_a_kernel_that_works_again_passes(kernels):
    before = run(measurement(result("mine", status="crashed")))
    found = gate(run(measurement(result("mine", 0.5, "b"))), [("before", before)], 0.02, kernels)
    assert (found.word, [line.why for line in found.lines]) == (Gate.HOLDS, ["ok; crashed before"])
    assert found.sentence == "The gate holds: mine was not ok before.", "nothing was compared"


@pytest.mark.parametrize("status", ["incorrect", "suspect", "crashed", "out of memory"])
def test_a_result_that_is_not_ok_fails_and_one_that_is_wrong_even_if_it_was_so_before(status):
    now, good = (run(measurement(result("mine", *of, sha="b", status=word), result("control", 1.1, "c")))
                 for of, word in (((), status), ((1.2,), "ok")))  # fmt: skip
    broken, still, mended = (gate(a, [("before", b)], 0.02) for a, b in ((now, good), (now, now), (good, now)))
    assert broken.status == 1 and broken.lines[0].why.startswith(status)
    assert still.status == (1 if status in ("incorrect", "suspect") else 0)
    assert mended.status == 0 and [line.kernel for line in mended.lines] == ["mine", "control"]


def test_what_was_not_measured_again_is_not_told_and_what_is_new_is_let_through():
    both, one = measurement(result("mine", 1.2), result("other", 1.1)), measurement(result("other", 1.1))
    gone, new = gate(run(one), [("before", run(both))], 0.02), gate(run(both), [("before", run(one))], 0.02)
    assert gone.status == 2 and "it was not measured again" in [line.why for line in gone.lines]
    assert new.status == 0 and [(line.kernel, line.why) for line in new.lines] == [("other", ""), ("mine", "new")]
    assert new.sentence.endswith("slower by more than 2% (2 results; no earlier run measured mine).")
    nothing = gate(run(both), [("before", run(both))], 0.02, ["nosuch"])
    assert nothing.status == 2 and "nosuch" in nothing.sentence


def test_among_runs_of_others_only_the_kernels_of_this_run_are_judged():
    """With `--against best` any other submission of the same config made the gate say "it was not measured again"."""
    mine, others = run(measurement(result("mine", 1.2))), run(measurement(result("other", 1.1)))
    earlier = [("run 1", others), ("run 2", run(measurement(result("third", 0.9))))]
    assert gate(mine, earlier, 0.02).status == 2
    report = gate(mine, earlier, 0.02, of_others=True)
    assert (report.status, report.sentence) == (0, "The gate holds: no earlier run measured mine.")
    assert gate(mine, earlier, 0.02, ["mine"], of_others=True).status == 0
    control = result("control", 1.1, "c")
    now, before = (run(measurement(result("mine", *of), control)) for of in ((1.2, "b"), (1.4,)))
    slower = gate(now, [*earlier, ("run 3", before)], 0.02, of_others=True)
    assert slower.status == 1
    assert [(line.kernel, line.against) for line in slower.lines] == [("mine", "run 3"), ("control", "run 3")]
    assert gate(mine, [], 0.02, of_others=True).status == 2, "nothing was measured with these versions"


def test_a_fork_is_compared_although_its_parent_was_measured_beside_it():
    """The gate held: it called both versions new, and an earlier run had measured the parent."""
    control = result("control", 1.1, "c")
    before = run(measurement(result("mine@aaaaaaaaaa", 1.4, "a"), control))
    beside = measurement(result("mine@aaaaaaaaaa", 1.4, "a"), result("mine@bbbbbbbbbb", 1.2, "b"), control)
    for of_others in (False, True):
        report = gate(run(beside), [("run 6", before)], 0.02, of_others=of_others)
        assert report.status == 1 and report.sentence == "The gate fails on 1 of 3 results: mine."
        assert {line.kernel: line.word.value for line in report.lines} == {
            "mine": "fails", "mine@aaaaaaaaaa": "holds", "control": "holds",
        }  # fmt: skip


def versions(**speedups):
    """A run of versions of one kernel, beside a control: A=1.2, B=1.5. A name that ends with x is incorrect."""
    arms = [
        result(f"mine@{name[0].lower() * 10}", *(() if name.endswith("x") else (ratio,)), sha=name[0].lower(),
               status="incorrect" if name.endswith("x") else "ok")
        for name, ratio in speedups.items()
    ]  # fmt: skip
    return run(measurement(*arms, result("control", 1.1, "c")))


def test_a_fork_of_a_fork_is_compared_with_its_parent():
    first, second, third = versions(A=1.2), versions(A=1.2, B=1.5), versions(B=1.5, C=1.3)
    for earlier in ([("run 6", second), ("run 5", first)], [("run 6", second)]):
        for of_others in (False, True):
            report = gate(third, earlier, 0.02, of_others=of_others)
            assert report.status == 1, report.sentence
            words = {line.kernel: (line.word.value, line.against) for line in report.lines}
            assert words["mine"] == ("fails", "run 6") and words["mine@bbbbbbbbbb"] == ("holds", "run 6")


def test_a_fork_that_failed_fails_again_when_it_is_measured_again():
    first, failed = versions(A=1.2), versions(A=1.2, B=1.0)
    assert gate(failed, [("run 5", first)], 0.02).status == 1
    for of_others in (False, True):
        again = gate(failed, [("run 7", failed), ("run 5", first)], 0.02, of_others=of_others)
        assert again.status == 1 and again.lines[0].kernel == "mine"
        assert {line.word.value for line in again.lines[1:]} == {"holds"}


def test_a_version_that_failed_on_one_workload_leaves_its_control_a_control():
    """It was judged on that workload, so it was compared with the best of all versions everywhere."""
    other = result("control", 1.1, "c")

    def of(second):
        first = measurement(result("mine@aaaaaaaaaa", 1.2, "a"), result("mine@bbbbbbbbbb", 1.5, "b"), other)
        return RunResults(run(first).environment, [first, second], False)

    small = [result("mine@aaaaaaaaaa", 1.2, "a"), result("mine@bbbbbbbbbb", sha="b", status="crashed"), other]
    again = of(measurement(*small, seq_len=64))
    report = gate(again, [("run 7", again)], 0.02)
    fails = [(line.kernel, line.why) for line in report.lines if line.word == Gate.FAILS]
    assert fails == [("mine", "crashed")], "on the workload where its other version was ok"
    assert {line.kernel for line in report.lines} == {"mine", "mine@aaaaaaaaaa", "control"}


def test_runs_that_cannot_be_compared_do_not_say_what_is_new():
    other = RunResults(versions().environment | {"torch": "2.12"}, versions(B=1.5).measurements, False)
    report = gate(versions(A=1.2, B=1.0), [("run 4", other), ("run 5", versions(A=1.2))], 0.02)
    assert report.status == 1 and report.lines[0].kernel == "mine"


@pytest.mark.parametrize("order", [1, -1])
def test_a_submission_with_the_name_of_a_kernel_of_the_catalogue_stands_beside_it(order):
    """Its failure disappeared behind the result of its namesake."""
    mine = result("flash@bbbbbbbbbb", sha="b", status="incorrect")
    arms = [result("flash", 1.2, "f"), mine][::order]
    before = run(measurement(result("flash", 1.2, "f"), result("control", 1.1, "c")))
    report = gate(run(measurement(*arms, result("control", 1.1, "c"))), [("run 5", before)], 0.02, of_others=True)
    assert report.status == 1 and report.lines[0].kernel == "flash@bbbbbbbbbb"
    assert [line.word.value for line in report.lines if line.kernel == "flash"] == ["holds"]


def test_a_quiet_run_in_which_a_kernel_failed_counts_more_than_a_busy_one():
    now = run(measurement(result("mine", 1.2)))
    quiet = run(measurement(result("mine", status="crashed")))
    busy = RunResults(now.environment, now.measurements, True)
    report = gate(now, [("run 6", quiet), ("run 5", busy)], 0.02, of_others=True)
    assert (report.status, report.sentence) == (0, "The gate holds: mine was not ok before.")


def test_an_earlier_run_of_a_busy_device_lets_nothing_through():
    """It was left out, so its kernels were called new."""
    mine = run(measurement(result("mine", 1.2)))
    busy = RunResults(mine.environment, mine.measurements, True)
    report = gate(mine, [("run 6", busy)], 0.02, of_others=True)
    assert report.status == 2 and "other processes used the device during the run before" in report.lines[0].why
    quiet = gate(mine, [("run 6", busy), ("run 5", mine)], 0.02, of_others=True)
    assert quiet.status == 0 and quiet.lines[0].against == "run 5"


def test_no_more_processes_are_advised_than_a_run_may_have():
    found = {processes_needed(Ratio(r, r * 0.97, r * 1.03), 0.02, 1, 1) for r in (0.976, 0.972, 0.968, 0.95)}
    assert client.MOST_PROCESSES == MOST_PROCESSES
    assert max(one for one in found if one) <= 20 and None in found
    assert Protocol(processes=MOST_PROCESSES).processes == 20


def test_runs_that_cannot_be_compared_are_not_told():
    other = run(measurement(result("mine", 1.2)), torch="2.12")
    report = gate(run(measurement(result("mine", 1.2))), [("before", other)], 0.02)
    assert report.status == 2 and "torch" in report.sentence


def test_of_several_runs_the_best_counts():
    def of(speedup):
        return run(measurement(result("mine", speedup), result("control", 1.1, "c")))

    earlier = [("slow", of(1.0)), ("best", of(1.3)), ("middle", of(1.2))]
    report = gate(run(measurement(result("mine", 1.21, "b"), result("control", 1.1, "c"))), earlier, 0.02, ["mine"])
    assert report.status == 1 and report.lines[0].against == "best"


def test_a_submission_is_held_against_the_earlier_one_of_its_name():
    before = run(measurement(result("mine@0123456789", 1.2, "a"), result("control", 1.1, "c")))
    after = run(measurement(result("mine@9876543210", 1.1, "b"), result("control", 1.1, "c")))
    for kernels in ([], ["mine"], ["mine@9876543210"]):
        report = gate(after, [("before", before)], 0.02, kernels)
        assert report.status == 1 and report.lines[0].kernel == "mine"
    two = run(measurement(result("mine@9876543210", 1.1, "b"), result("mine@0123456789", 1.2, "a")))
    both = gate(two, [("before", two)], 0.02)
    assert {line.kernel for line in both.lines} == {"mine@9876543210", "mine"}, "the last one is judged"


def test_an_unchanged_kernel_that_moved_leaves_nothing_certain():
    before = run(measurement(result("mine", 1.2), result("control", 1.1, "c")))
    after = run(measurement(result("mine", 1.2, "b"), result("control", 1.06, "c")))
    report = gate(after, [("before", before)], 0.02, ["mine"])
    assert report.status == 2 and "moved as much" in report.lines[0].why


def test_too_few_rounds_are_not_told_whatever_their_interval_is():
    for now in (1.0, 1.2):
        report = judged(1.2, now, rounds=5)
        assert report.status == 2 and report.lines[0].why.startswith("needs more rounds: ")


def test_a_contended_run_is_not_told_but_a_wrong_result_fails():
    quiet = run(measurement(result("mine", 1.2), result("control", 1.1, "c")))
    for now, status in ((result("mine", 0.9, "b"), 2), (result("mine", status="incorrect", sha="b"), 1)):
        after = run(measurement(now, result("control", 1.1, "c")))
        busy = RunResults(after.environment, after.measurements, contended=True)
        report = gate(busy, [("before", quiet)], 0.02, ["mine"])
        assert report.status == status
        assert status == 1 or "other processes used the device during the run after" in report.lines[0].why


# --- in words and files -----------------------------------------------------------------------------------------------


def test_markdown_says_the_word_first_and_bolds_nothing_undecided():
    assert as_markdown(judged(1.2, 1.1)).startswith("**The gate fails on 1 of 1 results: mine.**\n\n| workload |")
    assert as_markdown(judged(1.2, 1.2 / 1.0215)).startswith("The gate cannot tell")
    assert "0.917x (0.914 to 0.919)" in as_markdown(judged(1.2, 1.1))


def test_junit_has_a_case_for_each_result():
    suite = ElementTree.fromstring(as_junit(judged(1.2, 1.1)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert suite.find("testcase/failure").get("message").startswith("slower by 9.09%")
    unknown = ElementTree.fromstring(as_junit(judged(1.2, 1.2 / 1.0215)))
    assert (unknown.get("errors"), unknown.find("testcase/error").get("type")) == ("1", "cannot tell")
    empty = ElementTree.fromstring(as_junit(gate(run(), [], 0.02)))
    assert (empty.get("tests"), empty.get("errors")) == ("1", "1")
    bad = run(measurement(result("mine", sha="b", status="incorrect", why="a \x1b < & \ufffe b")))
    said = ElementTree.fromstring(as_junit(gate(bad, [("before", bad)], 0.02)))
    assert said.find("testcase/failure").get("message") == "incorrect: a ? < & ? b"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def export():
    return exported(next(iter(sorted(MEASURED.glob("h200-*.json")))))


def slower(arm):
    if arm.kernel != "triton-flash" or arm.speedup is None:
        return arm
    moved = {name: getattr(arm, name) * 0.8 for name in ("speedup", "speedup_low", "speedup_high")}
    return arm.model_copy(update=moved | {"sha256": "edited"})


def test_the_command_judges_exports_and_writes_both_files(tmp_path, export, capsys):
    edited = [m.model_copy(update={"results": [slower(arm) for arm in m.results]}) for m in export.measurements]
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(export.as_json([]))
    after.write_text(export.model_copy(update={"measurements": edited}).as_json([]))
    files = ["--md", str(tmp_path / "g.md"), "--junit", str(tmp_path / "g.xml"), "--kernel", "triton-flash"]
    assert main(["gate", str(after), "--against", str(before), "--max-regression", "2%", *files]) == 1
    assert "The gate fails on" in capsys.readouterr().out
    assert (tmp_path / "g.md").read_text().startswith("**The gate fails on")
    assert ElementTree.parse(tmp_path / "g.xml").getroot().get("failures") != "0"
    assert main(["gate", str(before), "--against", str(before), "--max-regression", "2%", "--kernel", "nosuch"]) == 2
    assert main(["gate", str(after), "--against", str(before), "--max-regression", "2%", "--until-decided", "5"]) == 2
    assert "give the numbers of runs" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["0", "2", "-1%", "x", "nan", "100%"])
def test_a_share_that_is_none_is_refused(share, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["gate", "a.json", "--against", "b.json", f"--max-regression={share}"])
    assert ended.value.code == 2 and "is not a share such as 2%" in capsys.readouterr().err


@pytest.fixture
def site(monkeypatch):
    """What the site's gate was asked."""
    asked = []
    answer = {"status": 1, "text": "table", "url": "", "markdown": "", "junit": ""}
    monkeypatch.setattr(client, "site_of", lambda arguments: SimpleNamespace(patiently=answers))

    def answers(path, body):
        asked.append((path, body["run"], body["against"]))
        return answer, ""

    return asked


def test_numbers_files_and_best_go_to_the_site(tmp_path, monkeypatch, export, site, capsys):
    """`gate FILE --against best` was refused: a build that measures on its own runner had nothing to compare with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "after.json").write_text(export.as_json([]))
    for given in (["12", "7"], ["12", "best"], ["after.json", "best"], ["12", "after.json"]):
        assert main(["gate", given[0], "--against", given[1], "--max-regression", "2%"]) == 1
    assert [(path, isinstance(run, dict) or run, against == "best") for path, run, against in site] == [
        ("/api/gate", 12, False), ("/api/gate", 12, True), ("/api/gate", True, True), ("/api/gate", 12, False),
    ]  # fmt: skip
    sent = site[2][1]
    assert sent["name"] == "after.json" and export_of(sent["export"]).measurements
    arms = [arm for measured in sent["export"]["measurements"] for arm in measured["results"]]
    assert arms and not any({"samples_ns", "source"} & arm.keys() for arm in arms) and "table" not in sent["export"]
    assert capsys.readouterr().out == "table\n" * 4


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "is neither the number of a run nor a file"), ("[]", "is not an exported run"), ("{", "is not an exported run"),
     ('{"measurements": [1]}', "is not an exported run")],
)  # fmt: skip
def test_a_file_that_is_no_run_is_said_before_it_is_sent(tmp_path, site, content, why, capsys):
    if content is not None:
        (tmp_path / "r1.json").write_text(content)
    assert main(["gate", "1", "--against", str(tmp_path / "r1.json"), "--max-regression", "2%"]) == 2
    assert why in capsys.readouterr().err and not site
    assert main(["gate", "1", "--against", "best", "2", "--max-regression", "2%"]) == 2
    assert "best stands alone" in capsys.readouterr().err


def test_an_interval_does_not_seem_to_end_at_the_limit():
    """0.976 and 0.984 were both 0.98, beside a limit of 0.980x: one could not be told, the other held."""
    lines = [
        Line("fp16", "cold", "mine", word, "", Ratio(1.0, low, 1.02), 0.01, "before")
        for word, low in ((Gate.UNKNOWN, 0.976), (Gate.HOLDS, 0.984))
    ]
    said = as_text(Report(lines, 0.02))
    assert "1.000x (0.976 to 1.020)" in said and "1.000x (0.984 to 1.020)" in said


def test_a_kernel_that_is_incorrect_names_only_an_earlier_run_that_measured_it():
    now = run(measurement(result("mine", sha="b", status="incorrect")))
    other, earlier = run(measurement(result("others", 1.1))), run(measurement(result("mine", 1.1)))
    (line,) = [one for one in gate(now, [("run 12", other)], 0.02, ["mine"]).lines if one.kernel == "mine"]
    assert (line.word, line.against) == (Gate.FAILS, "")
    for runs in ([("run 12", other), ("run 11", earlier)], [("run 11", earlier), ("run 12", other)]):
        (line,) = [one for one in gate(now, runs, 0.02, ["mine"]).lines if one.kernel == "mine"]
        assert (line.word, line.against) == (Gate.FAILS, "run 11")
