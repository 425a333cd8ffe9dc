"""What a list says of a run: its best candidate, how often it is faster, and how many results failed."""

import csv
import io

import pytest
from cast import load, shortened
from django.urls import reverse

from runs.models import Result, Run
from runs.queries.outcomes import with_outcomes
from runs.templatetags.figures import verdict_tag

LIST = reverse("runs")


def of(run):
    ((_, outcome),) = with_outcomes([Run.objects.get(pk=run.pk)])
    return outcome


def results(run, kernel=None):
    found = Result.objects.filter(measurement__run=run)
    return found.filter(kernel__name=kernel) if kernel else found


def judge(run, *verdicts, kernel="triton-flash", speedup=1.0):
    """Gives the workloads of a run these verdicts for a kernel, and every other kernel none."""
    results(run).exclude(verdict="baseline").update(verdict="unsupported", status="unsupported", speedup=None)
    for result, verdict in zip(results(run, kernel), verdicts, strict=True):
        Result.objects.filter(pk=result.pk).update(verdict=verdict, status="ok", speedup=speedup)


def cell(client, address=LIST):
    """The text of the result cell of the first run of a page."""
    html = client.get(address).content.decode().split('<td class="text result')[1].split("</td>")[0]
    return " ".join(strip(html.partition(">")[2]).split())


def strip(html):
    from django.utils.html import strip_tags

    return strip_tags(html)


@pytest.fixture
def run(exported, db):
    return load(shortened(exported, 3), "short.json")


def test_the_best_candidate_stands_in_every_list(owner, run):
    judge(run, "FASTER", "FASTER", "SAME", speedup=1.12)
    for address in (LIST, reverse("overview")):
        assert cell(owner, address) == "▲ triton-flash 1.12x faster on 2 of 3"


def test_it_is_the_one_that_is_faster_most_often_then_the_one_with_the_highest_mean(run):
    judge(run, "FASTER", "SAME", "SAME", speedup=1.5)
    results(run, "sdpa-flash").update(verdict="FASTER", status="ok", speedup=1.1)
    assert of(run).best == "sdpa-flash"
    results(run, "sdpa-flash").update(verdict="SAME", speedup=1.001)
    results(run, "triton-flash").update(verdict="SAME", speedup=1.002)
    assert of(run).best == "triton-flash"


def test_the_speedup_is_the_geometric_mean_over_what_was_compared(run):
    judge(run, "FASTER", "FASTER", "timed out")
    first, second, third = results(run, "triton-flash")
    Result.objects.filter(pk=first.pk).update(speedup=2.0)
    Result.objects.filter(pk=second.pk).update(speedup=8.0)
    Result.objects.filter(pk=third.pk).update(speedup=None, status="timed out")
    found = of(run)
    assert found.speedup == pytest.approx(4.0)
    assert (found.faster, found.compared, found.of, found.faults) == (2, 2, 3, {"timed out": 1})


@pytest.mark.parametrize(
    "verdicts, said",
    [
        (["SLOWER"] * 3, "▼ triton-flash 1.00x slower on 3 of 3"),
        (["SAME", "SAME", "UNDECIDED"], "= triton-flash 1.00x as fast as sdpa"),
        (["UNDECIDED"] * 3, "? triton-flash undecided"),
        (["unpaired"] * 3, "triton-flash 1.00x no verdict"),
        (["FASTER", "FASTER", "SLOWER"], "▲ triton-flash 1.00x faster on 2 of 3, slower on 1"),
        (["FASTER", "SLOWER", "SLOWER"], "▼ triton-flash 1.00x slower on 2 of 3, faster on 1"),
    ],
)
def test_its_sign_and_words_are_those_of_its_verdicts(owner, run, verdicts, said):
    judge(run, *verdicts)
    assert cell(owner) == said
    tag = verdict_tag(results(run, "triton-flash")[1])
    assert (of(run).mark, of(run).style) == (tag["mark"], tag["style"])


def test_of_a_single_workload_no_count_is_said(owner, exported):
    single = load(shortened(exported, 1), "one.json")
    judge(single, "FASTER", speedup=1.3)
    assert cell(owner) == "▲ triton-flash 1.30x faster"


def test_failures_stand_beside_it_and_alone(owner, run):
    judge(run, "FASTER", "FASTER", "FASTER", speedup=2.0)
    results(run, "sdpa-flash").update(verdict="incorrect", status="incorrect")
    assert cell(owner) == "▲ triton-flash 2.00x faster on 3 of 3 3 incorrect"
    results(run).update(verdict="crashed", status="crashed", speedup=None)
    assert cell(owner) == f"{results(run).count()} crashed"


def test_a_run_without_a_comparison_has_none(owner, make_run, run):
    results(run).exclude(verdict="baseline").update(verdict="unsupported", status="unsupported", speedup=None)
    assert cell(owner) == "\N{EN DASH}"
    make_run(title="not measured yet")
    assert cell(owner) == "\N{EN DASH}"


def test_csv_and_json_have_it_too(owner, run, make_run):
    judge(run, "FASTER", "FASTER", "SAME", speedup=1.25)
    results(run, "sdpa-flash").update(verdict="incorrect", status="incorrect")
    make_run(title="not measured yet")
    names = ("best", "speedup", "faster", "compared", "faulty")
    waiting, measured = owner.get(reverse("runs_json")).json()["runs"]
    assert [measured[name] for name in names] == ["triton-flash", 1.25, 2, 3, 3]
    assert [waiting[name] for name in names] == ["", "", "", "", 0]
    rows = list(csv.DictReader(io.StringIO(owner.get(reverse("runs_csv")).content.decode())))
    assert [rows[1][name] for name in names] == ["triton-flash", "1.25", "2", "3", "3"]


def test_any_number_of_runs_takes_one_query(exported, db, django_assert_num_queries):
    runs = [load(shortened(exported, 1), f"{number}.json") for number in range(4)]
    with django_assert_num_queries(1):
        assert len({outcome.best for _, outcome in with_outcomes(runs)}) == 1
    with django_assert_num_queries(0):
        assert with_outcomes([]) == []


def test_it_agrees_with_the_page_of_the_run(owner, demo):
    strong = owner.get(demo.get_absolute_url()).context["headline"].strong
    found = of(demo)
    assert f"{found.best} is {found.leading} than {found.baseline} on {found.faster} of {found.of} workloads" in strong
