"""Isolated runs on the site: the choice in the form, what a page says of the processes, and who must choose it."""

import pytest
from cast import load
from django.urls import reverse
from form import ESTIMATE, again, refused, submitted

from kernels.analysis.verdicts import verdict
from kernels.contract.arm_result import NO_SPEEDUP, Verdict
from kernels.contract.export import Export
from kernels.contract.isolation import Batches, Isolation
from kernels.report import tables
from runs.models import Measurement, Run
from runs.queries import measurements
from runs.views.result_protocol import isolation_of

APART = Isolation(
    own_user=True, no_network=True, own_pids=False, read_only=True, missing=["own process ids: Operation not permitted"],
    host_us=90.0, beside=(1.002, 0.998, 1.006), seed=7,
    batches={"eager": Batches(calls=20, ms=20.0, delay_us=800.0, own_clock=0.98, checked=24)},
)  # fmt: skip


@pytest.fixture
def isolated(db, exported):
    """A run whose first measurement was isolated."""
    export = Export.model_validate(exported)
    first = export.measurements[0].model_copy(update={"isolated": True, "isolation": APART, "mode": "batch"})
    return load(export.model_copy(update={"measurements": [first]}).model_dump(mode="json", by_alias=True), "isolated")


def test_the_choice_makes_an_isolated_run_and_is_kept_when_it_is_repeated(owner, chosen):
    run = submitted(owner, chosen | {"config": "smoke", "protocol": "isolated"})
    assert (run.spec.protocol.name, run.spec.protocol.isolated, run.spec.protocol.mode) == ("paired", True, "auto")
    assert again(owner, run)["protocol"] == "isolated"
    assert not submitted(owner, chosen | {"config": "smoke", "protocol": "paired"}).spec.protocol.isolated


def test_isolated_has_no_other_mode(owner, chosen):
    form, _ = refused(owner, chosen | {"config": "smoke", "protocol": "isolated", "mode": "sustained"})
    assert form.errors["mode"] == ["The protocol isolated supports only the automatic mode."]


def test_the_estimate_is_longer_than_that_of_the_shared_process(owner, gpu, chosen, isolated):
    shared, apart = (
        owner.get(ESTIMATE, chosen | {"config": "smoke", "protocol": name}).context["estimate"].seconds
        for name in ("paired", "isolated")
    )
    assert apart > 2 * shared


def test_rows_keep_how_the_processes_were_kept_apart(isolated):
    (stored,) = measurements.of_run(isolated)
    assert (stored.isolated, stored.isolation) == (True, APART)


@pytest.mark.parametrize(("on_cpu", "said"), [(True, "Other processes used"), (False, "process was on the GPU")])
def test_the_page_names_a_gpu_only_where_one_was_measured(owner, isolated, on_cpu, said):
    result = Measurement.objects.get(run=isolated).results.get(kernel__name="eager")
    Run.objects.filter(pk=isolated.pk).update(contended=True)
    facts = APART.model_copy(update={"on_cpu": on_cpu}).model_dump(mode="json")
    Measurement.objects.filter(run=isolated).update(isolation=facts)
    assert said in owner.get(reverse("result", args=[isolated.pk, result.pk])).content.decode()


def test_the_page_says_what_the_host_did_not_allow_and_what_it_means(owner, isolated):
    result = Measurement.objects.get(run=isolated).results.get(kernel__name="eager")
    page = owner.get(reverse("result", args=[isolated.pk, result.pk])).content.decode()
    assert "Measured in a process of its own" in page
    assert "What “a process of its own” means" in page
    assert "sees no other process</dt><dd>no: this host does not allow it" in page
    assert "largest possible gain from work after a batch</dt><dd>4.0% of its time" in page
    assert "1.002 times its time alone" in page
    assert "each kernel in a process of its own" in owner.get(reverse("run", args=[isolated.pk])).content.decode()


@pytest.mark.parametrize("subtracted", [False, True])
def test_the_page_says_subtracted_only_of_what_was(subtracted):
    facts = dict(isolation_of(APART.model_copy(update={"host_subtracted": subtracted}), "eager"))
    assert facts["empty batch"] == "90 µs" + ("; subtracted from every batch" if subtracted else "")


@pytest.mark.parametrize(("retaken", "said"), [(3, "3, longer than usual"), (0, None), (None, None)])
def test_the_page_says_how_many_batches_were_taken_once_more(retaken, said):
    batches = {"eager": APART.batches["eager"].model_copy(update={"retaken": retaken})}
    facts = dict(isolation_of(APART.model_copy(update={"batches": batches}), "eager"))
    assert facts.get("batches measured again") == said


def test_the_calls_of_batches_are_counted(isolated):
    (stored,) = measurements.of_run(isolated)
    calls = {row.kernel: row.calls for row in tables.rows([stored])}
    arm = next(arm for arm in stored.results if arm.kernel == "eager")
    assert calls["eager"] == 20 * arm.n


def test_a_batch_too_short_for_the_clock_has_no_word(isolated):
    (stored,) = measurements.of_run(isolated)
    arm = next(arm for arm in stored.results if arm.kernel == "eager")
    short = arm.model_copy(
        update=NO_SPEEDUP | {"why": f"{Verdict.TOO_SHORT}: the host takes 400 us of a batch of 20 ms"}
    )
    assert verdict(short, stored) == Verdict.TOO_SHORT
    assert verdict(short, stored.model_copy(update={"isolated": False})) != Verdict.TOO_SHORT
