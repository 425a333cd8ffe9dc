"""What a list says of a run: how the kernel that ranks first stands, and how many results failed."""

import csv
import io

import pytest
from cast import load, shortened
from django.urls import reverse

from kernels.contract.arm_result import Verdict
from runs.charts.run_charts import leader_of, rows_of
from runs.models import Measurement, Result, Run, Session
from runs.queries.outcomes import with_outcomes

LIST = reverse("runs")


def of(run):
    ((_, outcome),) = with_outcomes([Run.objects.get(pk=run.pk)])
    return outcome


def results(run, kernel=None):
    found = Result.objects.filter(measurement__run=run)
    return found.filter(kernel__name=kernel) if kernel else found


WIDTH = {"FASTER": 0.004, "SLOWER": 0.004, "SAME": 0.004, "UNDECIDED": 0.5}
RATIO = {"FASTER": 1.12, "SLOWER": 0.9, "SAME": 1.0, "UNDECIDED": 1.0}


def judge(run, *verdicts, kernel="triton-flash", speedup=None, alone=True):
    """Gives the workloads of a run figures with these verdicts for a kernel, and every other kernel none."""
    if alone:
        others = results(run).exclude(kernel__name="sdpa")
        others.update(status="unsupported", speedup=None, speedup_low=None, speedup_high=None)
    for result, verdict in zip(results(run, kernel).order_by("pk"), verdicts, strict=True):
        ratio, width = speedup or RATIO[verdict], 1 + WIDTH[verdict]
        figures = {"speedup": ratio, "speedup_low": ratio / width, "speedup_high": ratio * width}
        Result.objects.filter(pk=result.pk).update(status="ok", rounds=40, left_after_round=None, **figures)


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


def test_the_first_kernel_stands_in_every_list(owner, run):
    judge(run, "FASTER", "FASTER", "SAME")
    said = "▲ triton-flash faster on 2, same on 1, 1.078x over 3 (1.076 to 1.081), least 1.000x"
    assert cell(owner, LIST) == said
    Run.objects.filter(pk=run.pk).update(demo="")
    first = owner.get(reverse("overview")).content.decode().split('<span class="r">')[1].split('<span class="w">')[0]
    assert " ".join(strip(first).split()) == said


def test_it_is_the_one_with_the_best_mean(run):
    judge(run, "FASTER", "SAME", "SAME", speedup=None)
    judge(run, "FASTER", "FASTER", "FASTER", kernel="sdpa-flash", speedup=1.02, alone=False)
    assert of(run).first.kernel == "triton-flash", "1.12x once is more than 1.02x three times"
    judge(run, "FASTER", "FASTER", "FASTER", kernel="sdpa-flash", speedup=1.1, alone=False)
    assert of(run).first.kernel == "sdpa-flash"


def test_the_mean_is_over_what_both_passed_and_says_what_it_leaves_out(run):
    judge(run, "FASTER", "FASTER", "SAME")
    for result, factor in zip(results(run, "triton-flash").order_by("pk"), (2.0, 8.0, 1.0), strict=True):
        figures = {"speedup": factor, "speedup_low": factor / 1.004, "speedup_high": factor * 1.004}
        Result.objects.filter(pk=result.pk).update(**figures)
    last = results(run, "triton-flash").order_by("pk").last()
    Result.objects.filter(pk=last.pk).update(speedup=None, speedup_low=None, speedup_high=None, status="timed out")
    outcome = of(run)
    assert outcome.first.mean.ratio == pytest.approx(4.0)
    assert outcome.sentence == "faster on 2, 4.00x over 2 (3.99 to 4.01), least 2.00x; 1 left out: timed out"
    assert outcome.faults == {"timed out": 1}


def test_a_mean_is_not_of_noise(run):
    """0.482 and 7.728 gave 1.93x, and 3.922 lifted another above 1."""
    judge(run, "SLOWER", "FASTER", "SLOWER")
    middle = run.measurements.order_by("pk")[1]
    Result.objects.filter(measurement=middle, kernel__name="triton-flash").update(
        speedup=7.728, speedup_low=1.2, speedup_high=50.0
    )
    run.measurements.filter(pk=middle.pk).update(margin=3.24)
    assert of(run).word == "slower"
    assert of(run).sentence == "slower on 2, 0.900x over 2 (0.897 to 0.903), least 0.900x; 1 left out: too noisy"


@pytest.mark.parametrize(
    "verdicts, said",
    [
        (["SLOWER"] * 3, "▼ triton-flash slower on 3, 0.900x over 3 (0.898 to 0.902), least 0.900x"),
        (["SAME"] * 3, "= triton-flash same on 3, 1.000x over 3 (0.998 to 1.002), least 1.000x"),
        (["FASTER", "FASTER", "SLOWER"], "± triton-flash faster on 2, slower on 1, 1.041x over 3"),
        (["FASTER", "SLOWER", "SLOWER"], "± triton-flash faster on 1, slower on 2, 0.968x over 3"),
    ],
)
def test_its_sign_and_words_are_those_of_its_verdicts(owner, run, verdicts, said):
    judge(run, *verdicts)
    assert cell(owner).startswith(said)


def test_where_no_kernel_has_a_verdict_the_largest_speedup_is_shown_without_one(owner, run):
    """In the list and in the charts: not the kernel that happens to stand first."""
    judge(run, "UNDECIDED", "UNDECIDED", "UNDECIDED", kernel="eager", speedup=4.23)
    judge(run, "UNDECIDED", "UNDECIDED", "UNDECIDED", kernel="triton-flash", speedup=34.46, alone=False)
    run.measurements.update(margin=3.0)
    assert {one.kernel for one in (of(run).first,)} == {"triton-flash"} and of(run).word == ""
    assert leader_of(rows_of(run)) == "triton-flash"
    judge(run, "UNDECIDED", "UNDECIDED", "UNDECIDED", kernel="eager", speedup=50.0, alone=False)
    assert of(run).first.kernel == leader_of(rows_of(run)) == "eager"
    assert cell(owner).startswith("eager too noisy on 3")


def test_what_was_not_paired_has_no_figures(owner, run):
    judge(run, "FASTER", "FASTER", "FASTER")
    results(run, "triton-flash").update(paired=False)
    assert cell(owner) == "triton-flash not paired on 3"


def test_calls_that_were_too_short_for_isolation_are_called_so(owner, run):
    """In the list as on the page of the run: a result that could not be compared does not merely lack a speedup."""
    judge(run, "FASTER", "FASTER", "SAME")
    short = results(run, "triton-flash").order_by("pk").first()
    Measurement.objects.filter(pk=short.measurement_id).update(isolated=True)
    why = f"{Verdict.TOO_SHORT}: calls must take at least 90 us"
    Result.objects.filter(pk=short.pk).update(why=why, speedup=None, speedup_low=None, speedup_high=None)
    assert of(run).first.left_out == {"too short to tell apart here": 1}
    page = owner.get(run.get_absolute_url()).context["sections"][0].headline
    assert "1 left out: too short to tell apart here" in " ".join(page.rest) and "without a speedup" not in " ".join(
        page.rest
    )
    assert of(run).sentence in owner.get(reverse("runs_json")).json()["runs"][0]["outcome"]


def test_of_a_single_workload_no_count_is_said(owner, exported):
    single = load(shortened(exported, 1), "one.json")
    judge(single, "FASTER", speedup=1.3)
    assert cell(owner) == "▲ triton-flash faster, 1.300x (1.295 to 1.305)"


def test_a_contended_run_says_so_and_has_no_colour(owner, run):
    judge(run, "FASTER", "FASTER", "FASTER")
    assert of(run).style == "faster"
    Run.objects.filter(pk=run.pk).update(contended=True)
    assert of(run).style == "same"
    assert cell(owner).endswith(" contended")


def test_a_baseline_that_is_not_ok_takes_the_ratios_with_it(run):
    judge(run, "FASTER", "FASTER", "FASTER")
    results(run, "sdpa").update(status="suspect")
    assert of(run).first is None


def test_failures_stand_beside_it_and_alone(owner, run):
    judge(run, "FASTER", "FASTER", "FASTER", speedup=2.0)
    results(run, "sdpa-flash").update(status="incorrect")
    assert cell(owner) == "▲ triton-flash faster on 3, 2.000x over 3 (1.995 to 2.005), least 2.000x 3 incorrect"
    results(run).update(status="crashed", speedup=None, speedup_low=None, speedup_high=None)
    assert cell(owner) == f"{results(run).count()} crashed"


def test_a_run_without_a_comparison_has_none(owner, make_run, run):
    judge(run, "SAME", "SAME", "SAME")
    results(run, "triton-flash").update(status="unsupported", speedup=None, speedup_low=None, speedup_high=None)
    assert cell(owner) == "\N{EN DASH}"
    make_run(title="not measured yet")
    assert cell(owner) == "\N{EN DASH}"


def test_csv_and_json_have_it_too(owner, run, make_run):
    judge(run, "FASTER", "FASTER", "FASTER", speedup=1.25)
    results(run, "sdpa-flash").update(status="incorrect")
    make_run(title="not measured yet")
    names = ("kernel", "speedup", "least", "faster", "slower", "compared", "outcome", "contended", "faulty")
    waiting, measured = owner.get(reverse("runs_json")).json()["runs"]
    said = "faster on 3, 1.250x over 3 (1.247 to 1.253), least 1.250x"
    assert [measured[name] for name in names] == ["triton-flash", 1.25, 1.25, 3, 0, 3, said, False, 3]
    assert measured["speedup_low"] < 1.25 < measured["speedup_high"]
    assert [waiting[name] for name in names] == ["", "", "", "", "", "", "", False, 0]
    rows = list(csv.DictReader(io.StringIO(owner.get(reverse("runs_csv")).content.decode())))
    assert [rows[1][name] for name in names] == ["triton-flash", "1.25", "1.25", "3", "0", "3", said, "False", "3"]


def test_any_number_of_runs_takes_one_query(exported, db, django_assert_num_queries):
    runs = [load(shortened(exported, 1), f"{number}.json") for number in range(4)]
    with django_assert_num_queries(1):
        assert len({outcome.first.kernel for _, outcome in with_outcomes(runs)}) == 1
    with django_assert_num_queries(0):
        assert with_outcomes([]) == []


def test_page_list_kernel_session_and_files_say_the_same_sentence(owner, demo):
    """Of the demo run, whose margins are small."""
    said = "faster on 6, slower on 2, 1.116x over 8 (1.114 to 1.118), least 0.817x"
    assert of(demo).sentence == said
    headline = owner.get(demo.get_absolute_url()).context["sections"][0].headline
    assert headline.strong == "triton-flash is faster than sdpa on 6, slower on 2 of 8 workloads"
    assert headline.rest[0] == "Geometric mean 1.116x over 8 workloads (1.114 to 1.118), least 0.817x."
    assert headline.rest[1] == "sdpa-cudnn is faster than triton-flash on 2 of 8 workloads."
    assert headline.rest[2].startswith(
        "triton-flash is the best of 7 kernels on the 6 workloads that all of them passed: 1.213x, at least 1.21"
    )
    kernel = owner.get(reverse("kernel", args=["attention", "triton-flash"])).context["headline"]
    assert (kernel["strong"], kernel["rest"]) == (headline.strong, headline.rest[0])
    session = Session.objects.create(title="a session")
    Run.objects.filter(pk=demo.pk).update(session=session)
    assert owner.get(session.get_absolute_url()).context["report"].headline.rest[0] == headline.rest[0]
    assert said in owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert owner.get(reverse("runs_json")).json()["runs"][0]["outcome"] == said
    assert said in " ".join(owner.get(reverse("runs")).content.decode().split())


@pytest.mark.parametrize(
    "correctness, is_checked",
    [({"correct": True}, 1), ({"correct": False}, 0), ({"correct": None}, 0), ({}, 0), (None, 0)],
)
def test_the_database_follows_what_was_checked(run, correctness, is_checked):
    judge(run, "FASTER", "FASTER", "FASTER")
    assert set(results(run, "triton-flash").values_list("is_checked", flat=True)) == {1}
    results(run, "triton-flash").update(correctness=correctness)
    assert set(results(run, "triton-flash").values_list("is_checked", flat=True)) == {is_checked}
    assert of(run).word == ("faster" if is_checked else "")


def test_other_work_is_not_what_a_run_found(owner, run):
    """The list named sdpa, "not the same work", 41 times as fast, where the run's page has a chart of another kernel."""
    judge(run, *["UNDECIDED"] * 3)
    Measurement.objects.filter(run=run).update(margin=0.3)
    of_run = Result.objects.filter(measurement__run=run, kernel__name="eager")
    of_run.update(
        status="ok", speedup=41.0, speedup_low=40.0, speedup_high=42.0, rounds=40, other_work="counts all keys"
    )
    assert of(run).first.kernel == "triton-flash"
