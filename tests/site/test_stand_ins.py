"""A kernel that stood in for the baseline is not called the baseline, and a kernel without a history says what it has."""

from cast import NO_SPEEDUP
from django.urls import reverse

from runs.models import Result

FLASH = ("attention", "triton-flash")


def page_of(client, name, *args):
    return client.get(reverse(name, args=args)).content.decode()


def test_without_a_history_the_page_says_which_runs_there_are(owner, demo):
    key = demo.measurements.first().workload.key
    page = page_of(owner, "kernel_workload", *FLASH, key)
    said = "No history yet: this site has only demo, contended, noisy or failed runs of triton-flash on attention fp16"
    assert f"<h1>{said}" in page


def stood_in(run, kernel):
    """Makes a kernel the baseline of a run, in place of sdpa, which failed there."""
    results = Result.objects.filter(measurement__run=run)
    results.filter(kernel__name="sdpa").update(status="incorrect", p50_ms=None, **NO_SPEEDUP)
    results.filter(kernel__name=kernel).update(**NO_SPEEDUP)
    run.measurements.update(baseline=kernel)
    return run


def test_a_stand_in_is_not_called_the_baseline(owner, measured):
    run = stood_in(measured(count=1), "triton-flash")
    page = page_of(owner, "kernel", *FLASH)
    assert "other kernels are compared with it" not in page
    assert f"It was the baseline of run {run.pk}. The baseline of attention is sdpa." in page


def test_a_stand_in_shows_its_other_results(owner, measured):
    first = measured(count=1)
    run = stood_in(measured(count=1), "triton-flash")
    answer = owner.get(reverse("kernel", args=FLASH))
    page = answer.content.decode()
    assert [row["series"].newest.run for row in answer.context["rows"]] == [run.pk, first.pk]
    assert '<strong class="faster">triton-flash is faster than sdpa</strong>' in page
    assert f"It was the baseline of run {run.pk}. The baseline of attention is sdpa." in page
