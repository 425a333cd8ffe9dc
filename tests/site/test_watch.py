"""The watch: which changes are stored when runs end, and what becomes of those that somebody has acknowledged."""

from datetime import timedelta

import pytest
from daily import BEGIN, fill, look_at_all, repeated, step
from django.urls import reverse
from django.utils import timezone

from runs.models import Change, Kernel, Run
from runs.pipeline import watch as watching
from runs.pipeline.watch import lines_of, look, watch
from runs.queries import lines as reading

real = watching.touched
TORCH = {"torch": "2.11.0"}


def line_of(gpu, kernel="sdpa-flash"):
    run = Run.objects.filter(gpu=gpu, measurements__results__kernel__name=kernel).latest("pk")
    found = Kernel.objects.get(name=kernel)
    (line,) = lines_of(found, run.measurements.get().workload, "graph", gpu.pk)
    return line


def stored():
    return [(one.kernel.name, one.run_id, one.verdict) for one in Change.objects.order_by("pk")]


def test_a_change_is_stored_with_its_figures_and_what_else_changed(gpu):
    runs = fill(gpu, step(environment=TORCH))
    look_at_all()
    change = Change.objects.get()
    assert (change.kernel.name, change.run, change.before) == ("sdpa-flash", runs[24], runs[23])
    assert (change.verdict, change.runs_before, change.runs_after) == ("regression", 24, 12)
    assert change.low < 1.041 < change.high and change.t > 7
    assert change.level_before_ms == pytest.approx(0.01872, rel=0.003)
    assert change.facts == [["torch", "2.10.0", "2.11.0"]]
    assert change.rule["t"] == 7 and change.at == runs[24].started_at


def test_a_run_that_is_looked_at_twice_stores_one_change(gpu):
    runs = fill(gpu, step(environment=TORCH))
    look_at_all()
    look(runs[-1]), look(runs[24])
    assert stored() == [("sdpa-flash", runs[24].pk, "regression")]


def test_each_ended_run_is_looked_at_once_and_an_unfinished_one_not_yet(gpu, make_run):
    fill(gpu, repeated(3))
    make_run()
    assert (watch(), watch()) == (3, 0)
    assert Run.objects.filter(looked_at=None).count() == 1


def test_the_page_of_a_kernel_says_that_it_got_slower(gpu, owner):
    fill(gpu, step(20, 10, 1.04), begin=timezone.now() - timedelta(days=29))
    look_at_all()
    address = reverse("kernel", args=["attention", "sdpa-flash"])
    said = "It got slower on 1 workload</strong> in the last 30 days"
    assert said in owner.get(address).content.decode()
    Change.objects.update(acknowledged_at=timezone.now())
    assert "It got slower" not in owner.get(address).content.decode()


def test_a_run_that_is_restored_while_the_watch_looks_is_looked_at_again(gpu, monkeypatch):
    runs = fill(gpu, repeated(3))
    look_at_all()
    Run.objects.filter(pk=runs[-1].pk).update(looked_at=None, withdrawn_at=timezone.now())

    def restored_meanwhile(*place):
        Run.objects.filter(pk=runs[-1].pk).update(looked_at=None, withdrawn_at=None)
        return lines_of(*place)

    monkeypatch.setattr(watching, "lines_of", restored_meanwhile)
    monkeypatch.setattr(watching, "touched", lambda run: real(run) or real(runs[0]))
    assert watch() == 1
    assert Run.objects.get(pk=runs[-1].pk).looked_at is None
    assert watch() == 1
    assert Run.objects.get(pk=runs[-1].pk).looked_at is not None


def test_a_line_of_many_ended_runs_is_read_once(gpu, monkeypatch):
    read = []
    monkeypatch.setattr(watching, "lines_of", lambda *place: read.append(place) or lines_of(*place))
    runs = fill(gpu, step(8, 8, 1.2))
    assert watch() == len(runs)
    assert len(read) == len(set(read)) == 2, "the kernel's and the baseline's"
    assert stored() == [("sdpa-flash", runs[8].pk, "regression")]


def test_an_acknowledged_change_is_kept_and_begins_a_level(gpu, owner):
    days = step(environment=TORCH)
    runs = fill(gpu, days)
    look_at_all()
    Change.objects.update(acknowledged_at=timezone.now(), acknowledged_by=owner.user, note="known")
    fill(gpu, repeated(20, time=0.01949, environment=TORCH), begin=BEGIN + timedelta(days=len(days)), seed=9)
    look_at_all()
    change = Change.objects.get()
    assert (change.run, change.note, change.acknowledged_by) == (runs[24], "known", owner.user)
    line = line_of(gpu)
    assert line.begun == [24]
    assert all(mark.test.before <= 24 for mark in line.marks)


def test_an_acknowledged_change_stays_where_the_rule_no_longer_finds_it(gpu):
    runs = fill(gpu, repeated(40))
    where = {"kernel": Kernel.objects.get(name="sdpa-flash"), "workload": runs[0].measurements.get().workload}
    figures = {"ratio": 1.1, "low": 1.05, "high": 1.15, "t": 8, "runs_before": 12, "runs_after": 12}
    levels = {"level_before_ms": 1, "level_after_ms": 1.1, "mode": "graph", "gpu": gpu, "verdict": "regression"}
    kept = Change.objects.create(
        **where, **figures, **levels, run=runs[20], before=runs[19], at=BEGIN, acknowledged_at=timezone.now()
    )
    Change.objects.create(**where, **figures, **levels, run=runs[25], before=runs[24], at=BEGIN)
    look(runs[-1])
    assert [one.pk for one in Change.objects.all()] == [kept.pk], "the one that nobody acknowledged is gone"


def test_a_change_moves_with_what_later_runs_show(gpu):
    """Eight runs after: found. Then it turns out to have been a bad week, which is then two changes."""
    fill(gpu, step(24, 8))
    look_at_all()
    assert [verdict for *_, verdict in stored()] == ["regression"]
    fill(gpu, repeated(12), begin=BEGIN + timedelta(days=32), seed=5)
    look_at_all()
    assert [verdict for *_, verdict in stored()] == ["regression", "improvement"]


@pytest.mark.parametrize(
    "ignored",
    [
        {"more": {"contended": True}},
        {"more": {"demo": "measured elsewhere"}},
        {"result": {"status": "incorrect"}},
        {"margin": 0.2},
        {"result": {"p50_ms": None, "p50_low_ms": None, "p50_high_ms": None}},
    ],
    ids=["contended", "demo", "incorrect", "noisy", "without times"],
)
def test_what_is_no_measurement_of_this_card_is_no_point(gpu, ignored):
    fill(gpu, [*repeated(24), *repeated(12, time=0.03, **ignored)])
    look_at_all()
    assert stored() == []
    assert len(line_of(gpu).points) == 24


def test_another_card_is_another_line(gpu, make_gpu):
    other = make_gpu("GPU-2", host="gpu-2")
    fill(gpu, repeated(24))
    fill(other, repeated(12, time=0.03), begin=BEGIN + timedelta(days=24))
    look_at_all()
    assert stored() == [] and len(line_of(other).points) == 12


def test_a_changed_source_is_a_mark_and_named(gpu):
    fill(gpu, step(source="b"))
    (mark,) = line_of(gpu).marks
    assert mark.facts == (("source", "a000000", "b000000"),) and mark.test.verdict == "regression"


def test_a_mark_without_a_change_is_tested_too(gpu):
    fill(gpu, [*repeated(24), *repeated(12, environment=TORCH)])
    (mark,) = line_of(gpu).marks
    assert mark.test.verdict == "no change" and mark.test.low < 1 < mark.test.high
    assert not stored()


def test_two_differences_at_once_are_both_named(gpu):
    fill(gpu, step(environment=TORCH, source="b"))
    look_at_all()
    assert [name for name, *_ in Change.objects.get().facts] == ["torch", "source"]


def test_an_upgrade_that_slows_the_baseline_is_its_change(gpu):
    fill(gpu, [*repeated(24), *repeated(12, base=0.0170, environment=TORCH)])
    look_at_all()
    assert [(name, verdict) for name, _, verdict in stored()] == [("sdpa", "regression")]
    assert Change.objects.get().facts == [["torch", "2.10.0", "2.11.0"]]


def test_runs_are_in_the_order_of_their_time(gpu):
    """Those of an earlier month that came later are before."""
    fill(gpu, repeated(12, time=0.0195), begin=BEGIN + timedelta(days=40))
    look_at_all()
    fill(gpu, repeated(24), begin=BEGIN)
    look_at_all()
    line = line_of(gpu)
    assert [line.at(n) for n in range(36)] == sorted(line.at(n) for n in range(36))
    assert [verdict for *_, verdict in stored()] == ["regression"]


def test_a_change_that_falls_out_of_sight_is_kept(gpu, monkeypatch):
    """A line reads its newest runs. What is at their edge has too few runs before it to be found again."""
    fill(gpu, [*repeated(10), *repeated(30, time=0.0195)])
    look_at_all()
    was = stored()
    assert len(was) == 1
    monkeypatch.setattr(reading, "MOST", 34)
    look(Run.objects.latest("pk"))
    assert stored() == was


def test_a_run_that_cannot_be_looked_at_does_not_stop_the_others(gpu, monkeypatch):
    runs = fill(gpu, repeated(3))

    def broken(kernel, workload, mode, gpu, real=lines_of):
        if Run.objects.filter(looked_at=None).first() == runs[0]:
            raise ValueError("damaged")
        return real(kernel, workload, mode, gpu)

    monkeypatch.setattr(watching, "lines_of", broken)
    assert watch() == 3
    assert not Run.objects.filter(looked_at=None).exists()


def test_a_long_backlog_is_looked_at_tick_by_tick(gpu, monkeypatch):
    fill(gpu, repeated(5))
    monkeypatch.setattr(watching, "LONGEST_S", 0.0)
    assert [watch() for _ in range(6)] == [1, 1, 1, 1, 1, 0]


def test_isolated_times_are_another_line(gpu):
    runs = fill(gpu, step())
    for run in runs[24:]:
        run.measurements.update(isolated=True)
    kernel = Kernel.objects.get(name="sdpa-flash")
    found = lines_of(kernel, runs[0].measurements.get().workload, "graph", gpu.pk)
    assert sorted(len(line.points) for line in found) == [12, 24]
