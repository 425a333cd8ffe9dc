"""Which results are confirmed: five processes, and an isolated measurement of the same source that does not contradict them."""

from importlib import import_module

import pytest
from cast import NO_SPEEDUP, load, shortened
from django.apps import apps
from django.db import connection

from kernels import HARNESS_VERSION
from kernels.contract.arm_result import Status, Verdict
from kernels.contract.environment import fingerprint
from kernels.contract.export import Export
from kernels.contract.isolation import Isolation
from runs.confirming import NotConfirmed, configs_of, confirm
from runs.models import Environment, Gpu, Kernel, Newest, Result, Run
from runs.pipeline.confirmed import settle
from runs.pipeline.withdrawal import restore, withdraw
from runs.queries import leaders

KERNEL = "triton-flash"


@pytest.fixture
def stored(db, exported, gpu):
    """Makes runs of one workload on the card gpu-1, as the recorder stores them. env: changes of the environment; margin:
    of the measurement; changes: of the kernel's result."""

    def make(isolated=False, processes=5, demo=False, on=gpu, env=None, margin=0.01, contended=False, **changes):
        data = shortened(exported, 1)
        environment = data["environment"] | {"harness": HARNESS_VERSION} | (env or {})
        data |= {"environment": environment, "fingerprint": fingerprint(environment)}
        one = Export.model_validate(data).measurements[0]
        arms = [arm.model_copy(update=changes) if arm.kernel == KERNEL else arm for arm in one.results]
        facts = {"isolated": True, "isolation": Isolation(), "mode": "batch"} if isolated else {}
        protocol = one.protocol.model_copy(update={"processes": processes})
        one = one.model_copy(update=facts | {"results": arms, "protocol": protocol, "margin": margin})
        run = load(data | {"measurements": [one.model_dump(mode="json", by_alias=True)]}, "a test")
        if not demo:
            Run.objects.filter(pk=run.pk).update(demo="", gpu=on, contended=contended)
        return run

    return make


def is_confirmed(run, kernel=KERNEL):
    return Result.objects.get(measurement__run=run, kernel__name=kernel).confirmed


def settled(run):
    """Tests change runs after they were stored: decides again."""
    Newest.objects.filter(result__measurement__run=run).delete()
    rows = list(Run.objects.get(pk=run.pk).measurements.select_related("run__environment", "workload"))
    Newest.objects.note(rows)
    settle(rows)
    return run


def shared(stored, **changes):
    return settled(stored(**changes))


def isolated(stored, **changes):
    return settled(stored(isolated=True, **changes))


def test_five_processes_alone_confirm_the_baseline_only(stored):
    run = shared(stored)
    assert is_confirmed(run, "sdpa") and not is_confirmed(run)
    assert not is_confirmed(shared(stored, processes=4), "sdpa")


@pytest.mark.parametrize("first", ["shared", "isolated"])
def test_an_isolated_measurement_that_agrees_confirms_it_whichever_came_first(stored, first):
    if first == "shared":
        run, second = shared(stored), isolated(stored)
    else:
        second, run = isolated(stored), shared(stored)
    assert is_confirmed(run) and is_confirmed(second)
    rows = dict(Newest.objects.filter(result__measurement__run=run).values_list("result__kernel__name", "confirmed"))
    assert rows[KERNEL] and rows["sdpa"]


@pytest.mark.parametrize(
    "changes",
    [
        {"speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01},
        {"status": Status.SUSPECT, "speedup": None, "speedup_low": None, "speedup_high": None},
        {"status": Status.INCORRECT, "speedup": None, "speedup_low": None, "speedup_high": None},
        {"status": Status.UNSUPPORTED, "speedup": None, "speedup_low": None, "speedup_high": None},
    ],
    ids=["slower", "suspect", "incorrect", "refuses to run isolated"],
)
def test_what_isolation_does_not_find_confirms_nothing(stored, changes):
    run = shared(stored)
    isolated(stored, **changes)
    assert not is_confirmed(run)
    isolated(stored)
    assert is_confirmed(run), "the newest counts"
    isolated(stored, **changes)
    assert not is_confirmed(run)


def test_calls_too_short_for_isolation_are_confirmed_by_five_processes(stored):
    isolated(stored, why=f"{Verdict.TOO_SHORT}: calls must take at least 10 us", **NO_SPEEDUP)
    assert is_confirmed(shared(stored))


def test_an_isolated_result_that_is_too_short_confirms_five_processes_and_is_not_confirmed_itself(stored):
    second = isolated(stored, why=f"{Verdict.TOO_SHORT}: calls must take at least 10 us", **NO_SPEEDUP)
    assert is_confirmed(shared(stored)) and not is_confirmed(second)


@pytest.mark.parametrize("busy", [{"contended": True}, {"margin": 0.051}], ids=["contended", "noisy"])
def test_a_contended_or_noisy_measurement_is_never_confirmed_and_confirms_nothing(stored, busy):
    second = isolated(stored, **busy)
    assert not is_confirmed(second) and not is_confirmed(second, "sdpa"), "it confirms itself"
    assert not is_confirmed(shared(stored)), "it confirms another"
    isolated(stored)
    run = shared(stored, **busy)
    assert not is_confirmed(run) and not is_confirmed(run, "sdpa")


def test_an_opinion_whose_interval_is_too_wide_confirms_nothing_and_is_asked_for_again(owner, stored):
    run = shared(stored)
    isolated(stored, speedup=0.9, speedup_low=0.3, speedup_high=2.7)
    assert not is_confirmed(run)
    (only,) = configs_of(place())
    assert only.protocol.isolated
    isolated(stored, speedup=1.9, speedup_low=1.6, speedup_high=2.2)
    assert is_confirmed(run), "however wide, all of it reaches the claim"


def test_a_run_that_is_contended_at_a_later_workload_loses_what_was_confirmed(stored):
    isolated(stored)
    run = shared(stored)
    assert is_confirmed(run)
    Run.objects.filter(pk=run.pk).update(contended=True)
    settle(run.measurements.select_related("run__environment", "workload"))
    assert not is_confirmed(run) and not is_confirmed(run, "sdpa")


@pytest.mark.parametrize(
    "elsewhere",
    [{"host": "gpu-2"}, {"env": {"driver": "470.1"}}, {"env": {"harness": "4"}}],
    ids=["another card", "another driver", "another harness"],
)
def test_an_opinion_from_elsewhere_confirms_nothing(stored, make_gpu, elsewhere):
    there = {"on": make_gpu("GPU-2", host=elsewhere["host"])} if "host" in elsewhere else elsewhere
    run = shared(stored)
    isolated(stored, **there)
    assert not is_confirmed(run) and not is_confirmed(shared(stored))
    isolated(stored)
    assert is_confirmed(run)


def test_the_migration_takes_back_what_another_card_confirmed(stored, make_gpu):
    there = make_gpu("GPU-2", host="gpu-2")
    run, second = shared(stored), isolated(stored, on=there)
    Result.objects.filter(measurement__run=run).update(confirmed=True)
    here = shared(stored, on=there)
    assert is_confirmed(here) and is_confirmed(second)
    import_module("runs.migrations.0183_contended_results_apart").fill(apps, connection.schema_editor())
    assert not is_confirmed(run) and is_confirmed(run, "sdpa")
    assert is_confirmed(here) and is_confirmed(second)


def test_where_the_card_is_gone_or_has_another_driver_both_are_measured_again(owner, stored, gpu):
    shared(stored)
    Gpu.objects.filter(pk=gpu.pk).update(driver="999.9")
    assert [one.protocol.isolated for one in configs_of(place())] == [False, True]
    Gpu.objects.filter(pk=gpu.pk).update(driver="", seen_at=None)
    assert [one.protocol.isolated for one in configs_of(place())] == [False, True]


def test_an_opinion_is_of_the_same_source_workload_and_card(stored):
    isolated(stored, source="another", sha256="f" * 64)
    assert not is_confirmed(shared(stored))
    isolated(stored, processes=1)
    isolated(stored, demo=True)
    assert not is_confirmed(shared(stored)), "one process, or a demo run"
    there = isolated(stored)
    other = Environment.objects.create(fingerprint="0" * 12, body={"device": "NVIDIA H100"})
    Run.objects.filter(pk=there.pk).update(environment=other)
    assert not is_confirmed(shared(stored))


def test_a_withdrawn_opinion_counts_no_longer(stored):
    run, second = shared(stored), isolated(stored)
    Run.objects.filter(pk=second.pk).update(state="done")
    second.refresh_from_db()
    assert is_confirmed(run)
    assert withdraw(second, "wrong") and not is_confirmed(run)
    assert not Newest.objects.filter(result__measurement__run=second).exists()
    assert restore(second) and is_confirmed(run)


def test_a_contended_opinion_counts_not(stored):
    second = stored(isolated=True)
    Run.objects.filter(pk=second.pk).update(contended=True)
    settled(second)
    assert not is_confirmed(shared(stored))


def test_what_loses_its_confirmation_gives_its_place_to_what_was_confirmed_before(stored):
    agreed = isolated(stored)
    first = shared(stored)
    second = shared(stored)
    newest = Newest.objects.filter(confirmed=True, result__kernel__name=KERNEL, result__measurement__isolated=False)
    assert [row.result.measurement.run for row in newest] == [second]
    Run.objects.filter(pk__in=[agreed.pk, second.pk]).update(state="done")
    withdraw(Run.objects.get(pk=second.pk), "wrong")
    assert [row.result.measurement.run for row in newest.all()] == [first]


# --- the leaderboard --------------------------------------------------------------------------------------------------


def place():
    (found,) = leaders.board().places
    return found


def test_the_board_shows_the_second_opinion_and_the_isolated_result_has_no_place_of_its_own(owner, stored):
    run = shared(stored)
    assert place().record is None or place().record.best is None
    second = isolated(stored)
    assert place().record.point.run == run.pk
    page = owner.get("/leaderboard/").content.decode()
    assert "Second opinion:" in page and f"run {second.pk}</a>" in page


def test_confirming_asks_for_what_is_missing(owner, stored, gpu):
    shared(stored, processes=1)
    both = configs_of(place())
    assert [(one.protocol.isolated, one.protocol.processes) for one in both] == [(False, 5), (True, 5)]
    runs = confirm(place(), owner.user)
    assert [new for _, new in runs] == [True, True] and [new for _, new in confirm(place(), owner.user)] == [False] * 2
    Run.objects.filter(pk__in=[run.pk for run, _ in runs]).delete()
    shared(stored)
    (only,) = configs_of(place())
    assert only.protocol.isolated


def test_what_isolation_contradicts_is_not_measured_again(owner, stored):
    shared(stored)
    second = isolated(stored, speedup=1.0, speedup_low=0.99, speedup_high=1.01)
    with pytest.raises(
        NotConfirmed, match=rf"does not agree: 1.000x \(0.990 to 1.010\) in isolation \(run {second.pk}\)"
    ):
        confirm(place(), owner.user)


def test_what_an_earlier_version_stored_can_still_be_confirmed(owner, stored):
    run, _ = shared(stored), isolated(stored)
    Result.objects.filter(measurement__run=run, kernel__name=KERNEL).update(confirmed=False)
    (only,) = configs_of(place())
    assert only.protocol.isolated
    isolated(stored)
    assert is_confirmed(run)


def test_a_submitted_kernel_leads_by_its_isolated_result(stored):
    name = f"{KERNEL}@" + "0" * 12
    run = stored(isolated=True)
    Kernel.objects.filter(name=KERNEL).update(name=name)
    settled(run)
    assert place().record.point.kernel == name and place().record.is_confirmed
