"""The page of one result: what it is, how its times are spread, whether it is right, and the source that was measured."""

import pytest
from django.urls import reverse

from runs.models import Result


def page_of(client, result):
    answer = client.get(reverse("result", args=[result.measurement.run_id, result.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def results(sample):
    """Of the first workload, by kernel."""
    found = Result.objects.filter(measurement=sample.measurements.first()).select_related("kernel", "measurement")
    return {result.kernel.name: result for result in found}


def test_a_compared_kernel_has_its_word_interval_and_statistics(owner, results):
    result = results["sdpa-flash"]
    page = page_of(owner, result)
    assert f"<h1>sdpa-flash on {result.measurement.workload.label}</h1>" in page
    assert f"{result.speedup:.3f}x</strong> over sdpa, interval {result.speedup_low:.3f} to" in page
    assert f"mode graph, n = {result.n} in {result.rounds} rounds" in page
    for heading in ("p50", "mean", "std", "p99", "IQR / median", "outliers"):
        assert f"<th>{heading}</th>" in page
    assert "Speed of light" in page
    assert "flash_fwd" in page, "what one call ran"
    assert "<dt>yard frobenius</dt>" in page


def test_the_source_is_shown_as_it_was_measured_and_as_text(owner, results):
    result = results["sdpa-flash"]
    page = page_of(owner, result)
    assert f"sha256 {result.version.sha256[:16]}" in page
    assert "def sdpa_flash(q, k, v, *, causal, scale):" in page
    result.version.source = "<script>alert(1)</script>"
    result.version.save()
    assert "<script>alert(1)" not in page_of(owner, result)
    assert "&lt;script&gt;alert(1)" in page_of(owner, result)


def test_the_baseline_is_called_so_and_compared_with_nothing(owner, results):
    page = page_of(owner, results["sdpa"])
    assert "baseline" in page
    assert " over sdpa, interval" not in page


def test_a_result_that_failed_says_why_and_shows_its_log(owner, results):
    result = results["eager"]
    Result.objects.filter(pk=result.pk).update(
        status="crashed", verdict="crashed", why="timing: killed by <SIGSEGV>", log="last <line>", n=None, speedup=None,
        correctness=None, ran=[], version=None,
    )  # fmt: skip
    page = page_of(owner, result)
    assert "timing: killed by &lt;SIGSEGV&gt;" in page
    assert "last &lt;line&gt;" in page
    for missing in ("Time per call", "<h2>Correctness</h2>", "Source as measured", "What one call ran"):
        assert missing not in page


def test_every_result_of_the_sample_has_a_page(owner, sample):
    for result in Result.objects.filter(measurement__run=sample):
        page_of(owner, result)


def test_a_result_is_found_in_its_own_run_only(owner, sample, make_run, results):
    other = make_run()
    assert owner.get(reverse("result", args=[other.pk, results["eager"].pk])).status_code == 404
    assert owner.get(reverse("result", args=[sample.pk, 10**9])).status_code == 404


def test_it_takes_three_queries(owner, results, django_assert_max_num_queries):
    with django_assert_max_num_queries(3):  # session, user, the result with all that belongs to it
        page_of(owner, results["sdpa-flash"])
