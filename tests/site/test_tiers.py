"""Tiers: which step of a scale the best kernel has reached on each workload, what the device does not allow, the scales."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from cast import load, thorough
from django.conf import settings
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from selection import LOOKS, telling

from runs.charts import ladder_charts
from runs.models import Measurement, Newest, Notice, Pin, Result, Run, Target, Tier, TierScale
from runs.models.notice import Event
from runs.models.tier_scale import parse
from runs.pipeline import noticing
from runs.queries import history, ladder
from runs.queries.ladder import BEYOND, NEXT, OPEN, REACHED
from runs.queries.targets import Progress, drift
from runs.views import tiers
from runs.views.tier_scales import ScaleForm

FIVE = ["Good", "Very Good", "Excellent", "Outstanding", "Breakthrough"]


@pytest.fixture
def scale(db):
    return TierScale.objects.get(name="Five tiers")


def note_again():
    """What storing would note now: tests change runs after that."""
    Newest.objects.all().delete()
    for one in Measurement.objects.select_related("run").order_by("run", "pk"):
        Newest.objects.note([one])


def ladders_of(scale, key=""):
    note_again()
    environments = {pk: one for known in history.devices().values() for pk, one in known.items()}
    return ladder.ladders(environments, scale, key)


def states(one):
    return [step.state for step in one.steps]


def faster(run, factor, kernel="triton-flash"):
    """Makes a kernel of a stored run so many times as fast as its baseline, give or take 0.5%."""
    found = Result.objects.filter(measurement__run=run, kernel__name=kernel)
    found.update(speedup=factor, speedup_low=factor * 0.995, speedup_high=factor * 1.005)


# --- a ladder ---------------------------------------------------------------------------------------------------------


def test_an_operation_can_be_chosen(owner, demo, scale, monkeypatch):
    """Beyond the first workloads nothing could be seen."""
    note_again()
    of_all = tiers.Standing.matrix

    def of_two(standing):
        (rows,) = of_all(standing).values()
        return {"Attention": rows[:3], "LayerNorm": rows[3:6]}

    monkeypatch.setattr(tiers.Standing, "matrix", of_two)
    monkeypatch.setattr(tiers, "MOST_ROWS", 3)
    page = owner.get(reverse("tiers"), {"device": "NVIDIA H200"}).content.decode()
    tabs = re.findall(r'<a href="(\?[^"]*operation=[^"]*)"[^>]*>([^<]*)</a>', page)
    assert [title for _, title in tabs] == ["Attention", "LayerNorm"]
    assert "3 more workloads are not shown: choose an operation above" in page
    for address, title in tabs:
        only = owner.get(reverse("tiers") + address.replace("&amp;", "&")).content.decode()
        assert f'aria-current="true">{title}</a>' in only and "not shown" not in only


def test_a_site_begins_with_the_five_tiers(scale):
    assert [tier.name for tier in scale.tiers] == FIVE
    assert [tier.factor for tier in scale.tiers] == [2, 3, 5, 13, 64]
    assert parse(scale.text) == scale.tiers
    odd = TierScale(name="odd", body=[["a", "", 2.1234567], ["b", "", 1234.5678]])
    assert parse(odd.text) == odd.tiers, "saved again it is the same"


def test_targets_are_the_baselines_time_over_the_factor_and_end_at_the_speed_of_light(demo, scale):
    """The demo: triton-flash is 1.485x over sdpa at 9.92 us, and the device needs 0.595 us."""
    first = ladders_of(scale)[0]
    best, ratio = first.best
    assert (best.kernel, round(ratio.ratio, 3)) == ("triton-flash", 1.485)
    assert [round(1e3 * step.target_ms, 2) for step in first.steps] == [4.96, 3.31, 1.98, 0.76, 0.16]
    assert states(first) == [NEXT, OPEN, OPEN, OPEN, BEYOND]
    assert first.reached is None
    assert first.next.tier.name == "Good"


def test_where_the_device_allows_no_tier_none_is_next(demo, scale):
    """cuDNN's attention at 20 ms is within 1.7x of the speed of light: 5x faster, as people once wanted it, cannot be."""
    longest = ladders_of(scale)[-1]
    assert longest.most == pytest.approx(1.605, abs=0.001)
    assert states(longest) == 5 * [BEYOND]
    assert longest.next is None


def test_a_tier_is_reached_where_the_low_end_of_the_interval_is(measured, scale):
    run = measured(count=1)
    for factor, expected in (
        (3.1, [REACHED, REACHED, NEXT]),
        (3.018, [REACHED, NEXT, OPEN]),
        (2.0, [NEXT, OPEN, OPEN]),
    ):
        faster(run, factor)
        (one,) = ladders_of(scale)
        assert states(one)[:3] == expected, factor


def test_only_the_newest_result_of_a_kernel_counts(measured, scale):
    faster(measured(count=1), 3.1)
    assert ladders_of(scale)[0].reached.tier.name == "Very Good"
    measured(count=1)
    assert ladders_of(scale)[0].reached is None


def test_a_kernel_that_was_not_measured_again_keeps_its_place(measured, scale):
    faster(measured(count=1), 3.1)
    Result.objects.filter(measurement__run=measured(count=1), kernel__name="triton-flash").delete()
    assert ladders_of(scale)[0].reached.tier.name == "Very Good"


def test_what_was_measured_in_another_environment_stands_on_no_ladder_with_it(measured, scale):
    faster(measured(count=1), 3.1)
    now = measured(count=1, driver="599.1")
    Result.objects.filter(measurement__run=now, kernel__name="triton-flash").delete()
    (one,) = ladders_of(scale)
    assert one.reached is None
    assert one.elsewhere == 1
    assert "triton-flash" not in [point.kernel for point, _ in one.kernels]


@pytest.mark.parametrize("status", ["incorrect", "suspect", "impossible"])
def test_what_is_not_right_reaches_nothing(measured, scale, status):
    run = measured(count=1)
    faster(run, 5.5)
    Result.objects.filter(measurement__run=run, kernel__name="triton-flash").update(status=status)
    (one,) = ladders_of(scale)
    assert one.reached is None
    assert [point.kernel for point in one.failed] == ["triton-flash"]


def test_a_stand_in_is_no_baseline_of_a_ladder(measured, scale):
    """Where sdpa failed, eager stood in for it, over which 8x is nothing."""
    measured(count=1)
    later = measured(count=1)
    Result.objects.filter(measurement__run=later, kernel__name="sdpa").update(status="out of memory", p50_ms=None)
    later.measurements.update(baseline="eager")
    faster(later, 8.0)
    (one,) = ladders_of(scale)
    assert (one.base.kernel, one.reached) == ("sdpa", None)
    assert one.best[1].ratio == pytest.approx(1.485, abs=0.001), "from the run before"


def test_a_run_whose_baseline_failed_takes_nobody_from_the_ladder(measured, scale):
    faster(measured(count=1), 3.1)
    later = measured(count=1)
    Result.objects.filter(measurement__run=later, kernel__name="sdpa").update(status="incorrect", p50_ms=None)
    Result.objects.filter(measurement__run=later).exclude(kernel__name="sdpa").delete()
    (one,) = ladders_of(scale)
    assert one.reached.tier.name == "Very Good"


def test_another_card_takes_nobody_from_the_ladder(measured, make_gpu, scale):
    faster(measured(count=1), 3.1)
    elsewhere = measured(count=1, on=make_gpu("GPU-2", host="gpu-2"))
    Result.objects.filter(measurement__run=elsewhere, kernel__name="sdpa").delete()
    (one,) = ladders_of(scale)
    assert one.reached.tier.name == "Very Good"


def test_a_demo_that_came_later_does_not_hide_what_was_measured_here(measured, exported, scale):
    faster(measured(count=1), 3.1)
    load(exported, "h200.json")
    assert ladders_of(scale)[0].reached.tier.name == "Very Good"


def test_the_surest_kernel_reaches_the_tier_not_the_one_with_the_highest_estimate(measured, scale):
    run = measured(count=1)
    faster(run, 2.1)
    Result.objects.filter(measurement__run=run, kernel__name="compiled").update(
        speedup=2.2, speedup_low=1.76, speedup_high=2.64
    )
    (one,) = ladders_of(scale)
    assert (one.reached.tier.name, one.best_for(2.0)[0].kernel) == ("Good", "triton-flash")
    assert (one.best[0].kernel, [point.kernel for point, _ in one.not_apart]) == ("triton-flash", ["compiled"])
    rows = ladder.rows([one], "NVIDIA H200")
    assert [(row["best"], row["speedup"]) for row in rows[:2]] == [("triton-flash", 2.1)] * 2
    assert one.missing_ms(one.next) == pytest.approx(one.base_ms / 2.1 - one.base_ms / 3)


@pytest.mark.parametrize("why", [{"margin": 0.06}, {"rounds": 7}, {"paired": False}], ids=str)
def test_what_is_not_called_faster_reaches_nothing(measured, scale, why):
    run = measured(count=1)
    faster(run, 5.5)
    if "margin" in why:
        run.measurements.update(**why)
    else:
        Result.objects.filter(measurement__run=run).update(**why, samples_ns=None)
    (one,) = ladders_of(scale)
    assert (one.reached, one.best) == (None, None)


def test_a_tier_stands_for_all_comparisons_of_the_page(measured, scale):
    """The chance that one of all intervals misses is 1%, not the chance of each."""
    run = measured(count=8)
    faster(run, 2.014)
    found = ladders_of(scale)
    assert {one.comparisons for one in found} == {sum(len(one.kernels) for one in found)}
    assert found[0].comparisons > 50
    assert [one.reached for one in found] == [None] * 8, "2.014 - 0.5% is above 2, and is not for so many"
    few = ladders_of(scale, found[0].series.workload.key)
    assert few[0].kernels == found[0].kernels, "the page of one workload says the same"
    Result.objects.exclude(kernel__name__in=("sdpa", "triton-flash")).delete()
    Result.objects.exclude(measurement=run.measurements.first()).delete()
    (alone,) = ladders_of(scale)
    assert (alone.comparisons, alone.reached.tier.name) == (1, "Good")


def test_a_false_win_gets_no_grade(measured, scale, owner):
    """A busy host: 7.728x, with A/A from 0.874 to 2.620."""
    run = measured(count=1)
    faster(run, 7.728)
    run.measurements.update(margin=3.24, aa=[1.5, 0.874, 2.62])
    page = page_of(owner, "tiers")
    assert "No kernel is confirmed faster than its baseline." in page
    assert "7.728" not in page and "Excellent (A)</span>" not in page
    for row in json.loads(page_of(owner, "tiers_json"))["tiers"]:
        assert (row["best"], row["speedup"]) == ("", None), "not the baseline either: nothing is decided"


def test_a_kernel_that_is_the_same_is_not_the_best(measured, scale, owner):
    run = measured(count=1)
    Result.objects.filter(measurement__run=run).update(speedup_low=0.999, speedup=1.0, speedup_high=1.001)
    Result.objects.filter(measurement__run=run, kernel__name="sdpa").update(
        speedup=None, speedup_low=None, speedup_high=None
    )
    assert ladders_of(scale)[0].best is None
    assert "sdpa, the baseline" in " ".join(page_of(owner, "tiers").split())


def test_a_contended_run_reaches_nothing(measured, scale):
    run = measured(count=1)
    faster(run, 5.5)
    Run.objects.filter(pk=run.pk).update(contended=True)
    assert ladders_of(scale)[0].reached is None


def contended(run):
    Run.objects.filter(pk=run.pk).update(contended=True)
    return run


def test_a_later_contended_or_unconfirmed_result_hides_no_confirmed_one(owner, measured, scale):
    first = thorough(measured(count=1))
    faster(first, 3.1)
    for later in (contended(measured(count=1)), measured(count=1)):
        faster(later, 1.2)
        (one,) = ladders_of(scale)
        assert (one.best[0].run, one.confirmed.tier.name) == (first.pk, "Very Good")
    assert [point.run for point, _ in one.kernels if point.kernel == "triton-flash"] == [first.pk, later.pk], (
        "beside it"
    )
    Result.objects.filter(measurement__run=later, kernel__name="triton-flash").update(status="incorrect")
    (one,) = ladders_of(scale)
    assert one.confirmed.tier.name == "Very Good" and [point.run for point in one.failed] == [later.pk]


def test_a_later_contended_result_hides_no_unconfirmed_one(measured, scale):
    faster(measured(count=1), 3.1)
    contended(measured(count=1))
    assert ladders_of(scale)[0].reached.tier.name == "Very Good"


def test_a_faster_unconfirmed_result_leaves_tier_and_target_confirmed(measured, scale):
    first, later = thorough(measured(count=1)), measured(count=1, edit={"triton-flash": 2.0})
    faster(first, 2.2)
    faster(later, 3.1)
    repeated = measured(count=1)
    faster(repeated, 5.5)
    (one,) = ladders_of(scale)
    assert one.best[0].run == first.pk, "the same source again, in one process: it is shown and does not count"
    assert (repeated.pk, 5.5) in [(point.run, ratio.ratio) for point, ratio in one.kernels]
    repeated.delete()
    (one,) = ladders_of(scale)
    good, very_good = ladder.rows([one], "NVIDIA H200")[:2]
    assert (good["run"], good["confirmed"], good["speedup"]) == (first.pk, True, 2.2)
    assert (very_good["run"], very_good["confirmed"], very_good["state"]) == (later.pk, False, REACHED)
    aim = Progress(Target(factor=2.0), one)
    assert (aim.state, aim.is_confirmed, aim.point.run) == ("reached", True, first.pk)


def test_the_baselines_time_is_of_an_uncontended_run_if_there_is_one(owner, measured, scale):
    first, later = measured(count=1), contended(measured(count=1, driver="599.1"))
    Result.objects.filter(measurement__run=later, kernel__name="sdpa").update(p50_ms=0.0198)
    (one,) = ladders_of(scale)
    assert (one.base.run, one.base.contended) == (first.pk, False)
    contended(first)
    (one,) = ladders_of(scale)
    assert one.base.contended and ladder.rows([one], "")[0]["baseline_contended"]
    assert "baseline contended</small>" in page_of(owner, "tiers")
    page = page_of(owner, "tier_workload", one.series.workload.key, "graph")
    assert 'baseline</span> <small class="warn">contended</small>' in page


def test_what_is_missing_is_of_paired_speedups_not_of_times_of_two_runs(measured, scale):
    """The baseline was measured again, 15% slower: the best kernel's time is this baseline's over its speedup."""
    measured(count=1)
    Result.objects.filter(measurement__run=measured(count=1)).exclude(kernel__name="sdpa").delete()
    newest = Result.objects.order_by("-pk").first()
    Result.objects.filter(pk=newest.pk).update(p50_ms=1.15 * newest.p50_ms)
    (one,) = ladders_of(scale)
    needed = one.base_ms / one.best[1].ratio - one.base_ms / 2
    assert one.missing_ms(one.next) == pytest.approx(needed)
    assert Progress(Target(factor=2.0), one).missing_ms == pytest.approx(needed)


def test_groups_of_a_run_stand_on_one_ladder(measured, scale):
    """A kernel that cannot be captured has a process of its own, with the baseline in it."""
    run = measured(count=1)
    m = run.measurements.get()
    other = Measurement.objects.create(run=run, workload=m.workload, mode=m.mode, group="own", baseline="sdpa")
    Measurement.objects.filter(pk=other.pk).update(protocol=m.protocol)
    faster(run, 3.1)
    m.results.filter(kernel__name="triton-flash").update(measurement=other)
    base = m.results.get(kernel__name="sdpa")
    base.pk, base.measurement = None, other
    base.save()
    (one,) = ladders_of(scale)
    assert (one.reached.tier.name, one.elsewhere) == ("Very Good", 0)


def test_a_baseline_without_a_time_has_no_ladder(measured, scale):
    run = measured(count=1)
    Result.objects.filter(measurement__run=run, kernel__name="sdpa").update(status="incorrect", p50_ms=None)
    assert ladders_of(scale) == []


def test_inputs_in_the_cache_have_another_speed_of_light(measured, scale):
    measured(count=1).measurements.update(mode="warm")
    (one,) = ladders_of(scale)
    assert one.most is None
    assert BEYOND not in states(one)


# --- pages ------------------------------------------------------------------------------------------------------------


def page_of(client, name, *args, **asked):
    """On the scale of factors, if no other is asked for."""
    note_again()
    if "scale" not in asked and not name.endswith("scale"):
        asked["scale"] = TierScale.objects.get(name="Five tiers", replaced_by=None).pk
    answer = client.get(reverse(name, args=args), asked)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_says_how_far_it_is(owner, demo, measured, scale):
    page = page_of(owner, "tiers")
    assert "<h1>No kernel reaches a tier on any of 8 workloads.</h1>" in page
    assert "Largest speedup: 1.485x (1.475 to 1.494), triton-flash on attention fp16 B=1 H=8 S=512 D=64." in page
    assert page.count('<td class="step beyond">') == 23 and page.count('<td class="step next">') == 7
    assert '<td class="step next"><span class="less">1.72 µs to go</span><small>4.96 µs</small></td>' in page
    faster(measured(), 3.1)
    page = page_of(owner, "tiers")
    assert "No confirmed result reaches a tier on any of 8 workloads" in page
    assert "Unconfirmed results reach a tier on 2." in page
    assert "<h1>Highest tier, unconfirmed: Very Good (B+), by triton-flash on attention fp16 B=" in page
    assert (page.count('<td class="step reached">'), page.count('<td class="step loose">')) == (0, 4)
    assert "△ reached, unconfirmed" in page_of(
        owner, "tier_workload", ladders_of(scale)[0].series.workload.key, "graph"
    )
    Result.objects.filter(measurement__run__demo="", kernel__name="triton-flash").first().measurement.results.update(
        confirmed=True
    )
    page = page_of(owner, "tiers")
    assert "Confirmed results reach a tier on 1 of 8 workloads" in page
    assert "<h1>Highest tier: Very Good (B+), by triton-flash on attention fp16 B=1 H=8 S=512 D=64.</h1>" in page
    assert "Unconfirmed results reach a tier on 1 more. Largest speedup: 3.100x (" in page
    assert (page.count('<td class="step reached">'), page.count('<td class="step loose">')) == (2, 2)


def test_the_highest_tier_and_the_largest_speedup_each_name_their_kernel(owner, measured, scale):
    """33x on one workload is not what reaches the highest share of the way on another."""
    run = thorough(measured(count=2))
    first, second = run.measurements.order_by("pk")
    for one, kernel, factor, limit_ms in ((first, "triton-flash", 9.0, 0.001), (second, "compiled", 33.217, 1e-9)):
        one.results.update(limit_ms=limit_ms)
        one.results.exclude(kernel__name="sdpa").update(speedup=0.5, speedup_low=0.499, speedup_high=0.501)
        one.results.filter(kernel__name=kernel).update(
            speedup=factor, speedup_low=factor * 0.995, speedup_high=factor * 1.005
        )
    note_again()
    page = owner.get(reverse("tiers")).content.decode()
    assert f"<h1>Highest tier: Nine tenths (A+), by triton-flash on {first.workload.label}.</h1>" in page
    assert "Confirmed results reach a tier on 2 of 2 workloads." in page
    largest = page.split("Largest speedup: ")[1]
    assert largest.startswith("33.2x (3") and f"), compiled on {second.workload.label}." in largest


def test_a_higher_tier_of_an_unconfirmed_result_is_named_as_such(owner, measured, scale):
    run = measured(count=2)
    first, second = run.measurements.order_by("pk")
    for one, factor in ((first, 2.2), (second, 5.5)):
        found = one.results.filter(kernel__name="triton-flash")
        found.update(speedup=factor, speedup_low=factor * 0.995, speedup_high=factor * 1.005)
    first.results.update(confirmed=True)
    page = page_of(owner, "tiers")
    assert f"<h1>Highest tier: Good (B), by triton-flash on {first.workload.label}.</h1>" in page
    assert f"Higher but unconfirmed: Excellent (A), by triton-flash on {second.workload.label}." in page


def test_a_milestone_that_only_the_estimate_reaches(owner, measured, scale):
    run = measured(count=1)
    faster(run, 2.005)
    page = page_of(owner, "tiers")
    label = run.measurements.get().workload.label
    assert f"Nearest tier: Good (B) on {label}, undecided: triton-flash's interval includes it." in html.unescape(page)
    assert '<span class="less">undecided</span><small>4.96 µs</small>' in page


def test_a_phone_shows_one_quantity_in_all_cells(owner, demo, scale):
    """The time of the tier: no rule hides it, and what is missing is hidden."""
    style = (settings.BASE_DIR / "static" / "site.css").read_text()
    hiding = [rule.split("{")[0] for rule in style.split("}") if "display: none" in rule]
    assert any(".tiers .less" in rule for rule in hiding)
    assert not [rule for rule in hiding if re.search(r"\.tiers td\S* small", rule)]
    for cell in re.findall(r'<td class="step (?:next|beyond|reached|loose)">(.*?)</td>', page_of(owner, "tiers")):
        shown = re.sub(r'<span class="less">.*?</span>', "", cell)
        assert len(re.findall(r"[µm]s", shown)) == 1, cell


def test_the_columns_beside_the_tiers_may_wrap(owner, demo, scale):
    """At 1,440 px the table was wider than its panel: the last column, the speed of light, was out of sight."""
    style = (settings.BASE_DIR / "static" / "site.css").read_text()
    assert ".tiers :is(th, td):is(.less, .best), .tiers th.step { white-space: normal; }" in style
    assert '<td class="text best">' in page_of(owner, "tiers")


def test_a_scale_of_shares_says_that_it_is_logarithmic(owner, demo, scale):
    note_again()
    said = "Tiers divide the way to the speed of light on a log scale. Halfway to 16.7x is √16.7 = 4.08x."
    page = owner.get(reverse("tiers")).content.decode()
    assert said in page and '50%<span class="less"> of the way</span>' in page
    one = ladders_of(TierScale.objects.get(kind="light"))[0]
    assert said in owner.get(reverse("tier_workload", args=[one.series.workload.key, "graph"])).content.decode()
    assert "log scale" not in page_of(owner, "tiers"), "a scale of factors"


def test_what_is_undecided_is_not_called_the_best(owner, measured, scale):
    measured(count=1).measurements.update(margin=0.051)
    page = page_of(owner, "tiers")
    assert "No kernel is confirmed faster than its baseline." in page
    assert "1.485" not in page.split("</table>")[0]


def test_a_result_of_one_process_is_unconfirmed_and_one_of_five_is_not(owner, measured, scale):
    run = measured(count=1)
    faster(run, 3.1)
    page = page_of(owner, "tiers")
    assert "Unconfirmed: measured in 1 process, not in 5." in page
    assert "<small>unconfirmed</small>" in page
    result = Result.objects.get(measurement__run=run, kernel__name="triton-flash")
    path = reverse("result", args=[run.pk, result.pk])
    assert f"again={run.pk}&amp;effort=thorough" in owner.get(path).content.decode()
    form = owner.get(reverse("new_run"), {"again": run.pk, "effort": "thorough"}).content.decode()
    assert '<option value="thorough" selected>' in form
    (measurement,) = run.measurements.all()
    measurement.protocol["processes"] = 5
    measurement.save()
    assert "Unconfirmed: no isolated measurement agrees with it yet." in page_of(owner, "tiers")
    page = owner.get(path).content.decode()
    assert "Unconfirmed: no isolated measurement agrees with it yet." in page
    assert f"again={run.pk}&amp;effort=thorough&amp;protocol=isolated" in page
    form = owner.get(reverse("new_run"), {"again": run.pk, "effort": "thorough", "protocol": "isolated"})
    assert '<option value="isolated" selected>' in form.content.decode()
    page = owner.get(reverse("result", args=[contended(run).pk, result.pk])).content.decode()
    assert "Unconfirmed: other processes used the device during this run." in page and "no isolated" not in page
    Run.objects.filter(pk=run.pk).update(contended=False)
    Result.objects.filter(pk=result.pk).update(confirmed=True)
    page = page_of(owner, "tiers")
    assert "Confirmed results reach a tier on 1 of 1 workload" in page and "Unconfirmed" not in page
    assert "<small>unconfirmed</small>" not in page and '<td class="step loose">' not in page
    assert "nconfirmed" not in owner.get(path).content.decode()


def test_the_page_says_for_how_many_comparisons_it_stands(owner, demo, scale):
    page = " ".join(page_of(owner, "tiers").split())
    assert "52 comparisons are on this page." in page
    key = ladders_of(scale)[0].series.workload.key
    assert "hold for all 52 comparisons of this device" in " ".join(
        page_of(owner, "tier_workload", key, "graph").split()
    )


@pytest.mark.parametrize("is_contended", [False, True])
def test_the_word_beside_an_interval_is_what_this_interval_says(owner, measured, scale, is_contended):
    """By itself 1.0105 to 1.0145 is FASTER; the interval for all comparisons is wider."""
    run = measured(count=1)
    Result.objects.filter(measurement__run=run, kernel__name="triton-flash").update(
        speedup=1.0125, speedup_low=1.0105, speedup_high=1.0145
    )
    if is_contended:
        contended(faster_alone(run))
    (one,) = ladders_of(scale)
    row = (
        page_of(owner, "tier_workload", one.series.workload.key, "graph")
        .split(">triton-flash</a>")[1]
        .split("</tr>")[0]
    )
    assert "<b>" not in row and ("▲" in row) == ("contended" in row) == is_contended
    assert ("undecided" in row) == (not is_contended)


def test_the_chart_calls_undecided_what_the_table_calls_undecided(measured, scale):
    """It called such a result unconfirmed: elsewhere this is a faster one of one process."""
    run = measured(count=1)
    faster(run, 3.1)
    faster(run, 1.012, "compiled")
    (one,) = ladders_of(scale)
    said = {row["name"]: row["said"] for row in ladder_charts.rows_of(one)}
    assert (said["compiled"], said["triton-flash"]) == ("1.01x, undecided", "3.10x, the best so far, unconfirmed")
    thorough(run)
    (one,) = ladders_of(scale)
    said = {row["name"]: row["said"] for row in ladder_charts.rows_of(one)}
    assert (said["compiled"], said["triton-flash"]) == ("1.01x, undecided", "3.10x, the best so far")


@pytest.mark.parametrize(
    "name, lines",
    [
        ("triton-flash", "triton-flash"),
        ("triton-flash-decode", "triton-flash-\ndecode"),
        ("Nine tenths (A+)", "Nine tenths\n(A+)"),
        ("triton-flash@0123456789ab", "triton-flash@\n0123456789ab"),
        ("abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmn\nopqrstuvwxyz0…"),
    ],
)
def test_a_long_name_has_two_lines_on_a_narrow_page(name, lines):
    found = ladder_charts._names([{"name": name, "x": 5.0}], narrow=True)
    assert found == {1 + lines.count("\n"): [{"name": lines, "x": 0.0}]}


def faster_alone(run):
    faster(run, 3.1)
    return run


def test_a_ladder_has_kernels_and_tiers_in_one_order(owner, demo, scale):
    first = ladders_of(scale)[0]
    page = page_of(owner, "tier_workload", first.series.workload.key, "graph")
    places = [page.index(f">{name}<") for name in ("sdpa-math", "compiled", "sdpa", "triton-flash", "Good (B)")]
    assert places == sorted(places)
    assert page.index("speed of light<") < page.index("Breakthrough (A++)</b>")
    assert "<h1>Tier B is 1.72 µs away. This device cannot reach tier A++.</h1>" in page
    assert "Good (B) is at 4.96 µs, 2x the speed of sdpa. The speed of light is 0.595 µs (16.7x)." in page
    assert page.count('<td class="text"><b>') == 5


def test_tables_have_twins(owner, demo, scale):
    table = list(csv.DictReader(io.StringIO(page_of(owner, "tiers_csv"))))
    assert len(table) == 8 * 5
    assert (table[0]["tier"], table[0]["state"], table[0]["best"]) == ("Good", "next", "triton-flash")
    data = json.loads(page_of(owner, "tiers_json"))
    assert data["scale"] == "Five tiers"
    assert len(data["tiers"]) == 40
    key = table[0]["workload_key"]
    one = list(csv.DictReader(io.StringIO(page_of(owner, "tier_workload_csv", key, "graph"))))
    assert one == table[:5]
    assert json.loads(page_of(owner, "tier_workload_json", key, "graph"))["tiers"] == data["tiers"][:5]


def test_a_site_without_results_says_so(owner, scale):
    assert "Nothing has been measured yet" in page_of(owner, "tiers")


def test_what_there_is_not_is_not_found(owner, demo, scale):
    for asked in ({"scale": "99"}, {"scale": "x"}, {"device": "NVIDIA B200"}):
        assert owner.get(reverse("tiers"), asked).status_code == 404, asked
    for place in (("0" * 16, "graph"), (demo.measurements.first().workload.key, "warm")):
        assert owner.get(reverse("tier_workload", args=place)).status_code == 404


def test_the_tabs_of_a_workload_name_only_devices_that_have_it(owner, measured, make_gpu, scale):
    first = measured(count=2)
    short, long = (one.workload for one in first.measurements.order_by("pk"))
    other = measured(count=1, on=make_gpu("GPU-2", name="NVIDIA L4", host="gpu-2"), device="NVIDIA L4")
    note_again()
    assert [one.workload for one in other.measurements.all()] == [short]
    page = owner.get(reverse("tier_workload", args=[long.key, "graph"]))
    assert page.status_code == 200 and page.context["device"] == "NVIDIA H200", "though another device ran last"
    assert page.context["devices"] == ["NVIDIA H200"] and "NVIDIA L4" not in page.content.decode()
    both = owner.get(reverse("tier_workload", args=[short.key, "graph"]))
    assert both.context["devices"] == ["NVIDIA L4", "NVIDIA H200"], "the latest measured first"
    for device in both.context["devices"]:
        assert owner.get(reverse("tier_workload", args=[short.key, "graph"]), {"device": device}).status_code == 200


def test_where_a_workload_was_not_measured_the_page_says_where_it_was(owner, measured, make_gpu, scale):
    first = measured(count=2)
    measured(count=1, on=make_gpu("GPU-2", name="NVIDIA L4", host="gpu-2"), device="NVIDIA L4")
    note_again()
    work = first.measurements.order_by("pk").last().workload
    answer = owner.get(reverse("tier_workload", args=[work.key, "graph"]), {"device": "NVIDIA L4"})
    page = answer.content.decode()
    assert answer.status_code == 404
    assert f"<h1>{work.label} was not measured on NVIDIA L4 in mode graph.</h1>" in page
    assert f'<a href="/tiers/{work.key}/graph/?device=NVIDIA%20H200">NVIDIA H200, mode graph</a>' in page
    assert '<a href="/tiers/">Tiers</a>' in page
    none = owner.get(reverse("tier_workload", args=["0" * 16, "graph"]))
    assert none.status_code == 404 and '<a href="/tiers/">Tiers</a>' in none.content.decode()
    assert (
        owner.get(reverse("tier_workload_json", args=[work.key, "graph"]), {"device": "NVIDIA L4"}).status_code == 404
    )


def test_the_link_of_a_target_names_its_device(owner, measured, make_gpu, scale):
    run = measured(count=1)
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now())
    run.refresh_from_db()
    one = run.measurements.first()
    Target.objects.create(workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=1.4)
    noticing.notice(run)
    measured(count=1, on=make_gpu("GPU-2", name="NVIDIA L4", host="gpu-2"), device="NVIDIA L4")
    path = Notice.objects.get(event=Event.TARGET).path
    page = owner.get(path)
    assert page.status_code == 200 and page.context["device"] == "NVIDIA H200"


def test_a_stand_in_makes_no_tab(owner, measured, make_gpu, scale):
    run = measured(count=1)
    other = measured(count=1, on=make_gpu("GPU-2", name="NVIDIA L4", host="gpu-2"), device="NVIDIA L4")
    other.measurements.update(baseline="eager")
    Result.objects.filter(measurement__run=other, kernel__name="sdpa").update(status="incorrect", p50_ms=None)
    note_again()
    page = owner.get(reverse("tier_workload", args=[run.measurements.get().workload.key, "graph"]))
    assert page.context["devices"] == ["NVIDIA H200"]


def test_the_device_with_most_results_comes_first(owner, measured, make_gpu, scale):
    measured(count=2)
    measured(count=1, on=make_gpu("CPU-1", "cpu", "AMD EPYC", "web-1"), device="AMD EPYC")
    note_again()
    page = owner.get(reverse("tiers"))
    assert page.context["devices"] == ["NVIDIA H200", "AMD EPYC"], "not the one that ran last"
    assert page.context["device"] == "NVIDIA H200"


def test_where_nothing_is_decided_the_baseline_is_not_the_best(owner, measured, scale):
    """triton-nsa was 34x, with an A/A margin of 9%."""
    run = measured(count=1)
    faster(run, 34.0)
    run.measurements.update(margin=0.09)
    page = page_of(owner, "tiers")
    cell = page.split("<tbody>")[1].split('<td class="text best">')[1].split("</td>")[0]
    assert "undecided" in cell and "triton-flash (margin 9%) and 6 more" in cell
    assert "the baseline" not in cell and "<b>" not in cell
    assert "to go</span>" not in page, "an estimate reaches the tiers"
    assert "undecided: triton-flash (margin 9%) and 6 more; an estimate reaches it" in page
    one = page_of(owner, "tier_workload", run.measurements.get().workload.key, "graph")
    assert "Undecided: triton-flash (margin 9%) and 6 more." in one and "Tier B is undecided" in one
    (first, *_) = json.loads(page_of(owner, "tiers_json"))["tiers"]
    assert first["best"] == "" and first["undecided"].split()[0] == "triton-flash" and first["best_p50_ms"] is None


def test_where_only_the_baseline_was_measured_the_cell_says_so(owner, measured, scale):
    run = measured(count=1)
    Result.objects.filter(measurement__run=run).exclude(kernel__name="sdpa").delete()
    assert "only sdpa was measured" in page_of(owner, "tiers")
    again = measured(count=1)
    Result.objects.filter(measurement__run=again).exclude(kernel__name="sdpa").update(status="incorrect")
    page = page_of(owner, "tiers")
    assert "none compared with sdpa" in page and "only sdpa was measured" not in page


def set_apart(run, **speedups):
    """Of these kernels the speedups, give or take 0.2%; all others are slower than the baseline."""
    rows = Result.objects.filter(measurement__run=run)
    rows.exclude(kernel__name="sdpa").update(speedup=0.5, speedup_low=0.499, speedup_high=0.501)
    for name, factor in speedups.items():
        rows.filter(kernel__name=name.replace("_", "-")).update(
            speedup=factor, speedup_low=factor * 0.998, speedup_high=factor * 1.002
        )


def test_only_a_kernel_that_is_above_all_others_is_called_best(owner, measured, scale):
    run = thorough(measured(count=1))
    key = run.measurements.get().workload.key
    set_apart(run, triton_flash=3.016, sdpa_flash=3.013)
    page = page_of(owner, "tier_workload", key, "graph")
    assert re.search(
        r"triton-flash 3\.016x \([\d.]+ to [\d.]+\) and sdpa-flash 3\.013x \([\d.]+ to [\d.]+\) are tied "
        r"and ahead of sdpa\.",
        page,
    )
    assert "is best" not in page and "(tied with sdpa-flash)</small>" in page_of(owner, "tiers")
    set_apart(run, triton_flash=3.2, sdpa_flash=3.013)
    page = page_of(owner, "tier_workload", key, "graph")
    assert "triton-flash is best: 3.200x (" in page and "tied with" not in page_of(owner, "tiers")


def test_beside_an_undecided_kernel_that_may_be_faster_none_is_best(owner, measured, scale):
    run = thorough(measured(count=1))
    set_apart(run, triton_flash=1.05)
    Result.objects.filter(measurement__run=run, kernel__name="sdpa-flash").update(
        speedup=1.1, speedup_low=0.9, speedup_high=1.3, confirmed=False
    )
    page = page_of(owner, "tier_workload", run.measurements.get().workload.key, "graph")
    assert "is ahead of sdpa. Undecided, and perhaps faster: sdpa-flash." in page and "is best" not in page


def test_it_takes_as_many_queries_with_many_runs_as_with_few(owner, measured, scale, django_assert_max_num_queries):
    for _ in range(3):
        run = thorough(measured())
    one = run.measurements.first()
    Target.objects.create(workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=1.4)
    key = ladders_of(scale)[0].series.workload.key
    for name, args in (("tiers", ()), ("tier_workload", (key, "graph"))):
        with django_assert_max_num_queries(12):
            assert owner.get(reverse(name, args=args)).status_code == 200


# --- scales -----------------------------------------------------------------------------------------------------------


def test_lines_are_tiers_the_lowest_first():
    assert parse("Fast, A, 3x\n\nWell, , 1.5\n") == [Tier("Well", "", 1.5), Tier("Fast", "A", 3.0)]
    assert Tier("Well", "", 1.5).label == "Well"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "A scale needs at least one tier."),
        ("Good, 2", "Line 1: name, grade and factor, separated by commas, such as: Good, B, 2"),
        ("Good, B, 2\nBad, C, fast", "Line 2: a factor is a number above 1, at most 10,000, not 'fast'."),
        ("Good, B, 1", "a number above 1"),
        ("Good, B, nan", "a number above 1"),
        ("Good, B, inf", "a number above 1"),
        (", B, 2", "a name has 1 to 40 characters"),
        ("Good\x00, B, 2", "a name has 1 to 40 characters"),
        ("Good, outstanding, 2", "a grade has at most 6 characters"),
        ("Good, B, 2\nGood, A, 3", "Two tiers have the name Good."),
        ("Good, B, 2\nBetter, A, 2", "Two tiers have the factor 2."),
        ("\n".join(f"T{n}, , {n}" for n in range(2, 23)), "At most 20 tiers, not 21."),
    ],
)
def test_a_line_that_is_no_tier_gets_a_sentence(text, said):
    with pytest.raises(ValidationError) as error:
        parse(text)
    assert said in " ".join(error.value.messages)


def test_a_scale_is_made_changed_and_deleted(owner, demo, scale):
    answer = owner.post(reverse("new_tier_scale"), {"name": "Small steps", "tiers": "A little, , 1.05\nMore, B, 1.4"})
    made = TierScale.objects.get(name="Small steps")
    assert answer.headers["location"] == f"{reverse('tiers')}?scale={made.pk}"
    page = page_of(owner, "tiers", scale=made.pk)
    assert "Unconfirmed results reach a tier on 5" in page
    assert f"?device=NVIDIA%20H200&amp;scale={scale.pk}" in page, "the way to the other scale"
    owner.post(reverse("delete_tier_scale", args=[made.pk]))
    assert not TierScale.objects.filter(name="Small steps").exists()


def test_a_scale_is_edited_again_and_again(scale):
    first = newest = scale
    for number in range(3):
        newest = newest.next_version(first.name, [["A little", "", 1.2 + number]], None)
    assert (newest.version, [one.version for one in newest.older]) == (4, [3, 2, 1])
    assert list(TierScale.objects.current().filter(name=first.name)) == [newest]


def test_two_people_edit_a_scale_at_once_and_nothing_typed_is_lost(owner, scale, monkeypatch):
    address = reverse("tier_scale", args=[scale.pk])
    owner.post(address, {"name": scale.name, "tiers": "First, , 1.2"})
    late = owner.post(address, {"name": scale.name, "tiers": "Late, , 1.3"}).content.decode()
    assert "Somebody saved version 2 meanwhile." in late and "Late, , 1.3" in late
    now = TierScale.objects.current().get(name=scale.name)
    assert now.tiers == [Tier("First", "", 1.2)] and f'action="{reverse("tier_scale", args=[now.pk])}"' in late
    monkeypatch.setattr(TierScale, "newest", property(lambda one: one))  # the other request commits after both looks
    monkeypatch.setattr(ScaleForm, "clean_name", lambda form: form.cleaned_data["name"])
    raced = owner.post(address, {"name": scale.name, "tiers": "Raced, , 1.4"}).content.decode()
    assert "Somebody saved a scale with this name at the same moment." in raced and "Raced, , 1.4" in raced
    assert TierScale.objects.current().get(name=scale.name) == now


def test_an_edit_makes_a_new_version_and_the_old_one_keeps_its_verdicts(owner, demo, scale):
    made = TierScale.objects.create(name="Small steps", body=[["A little", "", 1.05], ["More", "B", 1.4]])
    before = page_of(owner, "tiers", scale=made.pk)
    answer = owner.post(reverse("tier_scale", args=[made.pk]), {"name": "Small steps", "tiers": "A little, , 1.2"})
    now = TierScale.objects.current().get(name="Small steps")
    assert answer.headers["location"] == f"{reverse('tiers')}?scale={now.pk}"
    assert (now.version, now.tiers, now.created_by) == (2, [Tier("A little", "", 1.2)], owner.user)
    made.refresh_from_db()
    assert made.replaced_by == now and made.tiers == [Tier("A little", "", 1.05), Tier("More", "B", 1.4)]
    page = page_of(owner, "tiers", scale=made.pk)
    assert "Unconfirmed results reach a tier on 5" in before and "Unconfirmed results reach a tier on 5" in page
    assert "version 1" in page and "A newer version has replaced this scale" in page
    assert "Unconfirmed results reach a tier on 2" in page_of(owner, "tiers", scale=now.pk)
    form = owner.get(reverse("tier_scale", args=[now.pk])).content.decode()
    assert f'<a href="/tiers/?scale={made.pk}">version 1</a>' in form
    assert owner.get(reverse("tier_scale", args=[made.pk])).status_code == 404, "an old version is not edited"
    owner.post(reverse("tier_scale", args=[now.pk]), {"name": "Small steps", "tiers": "A little, , 1.2"})
    assert TierScale.objects.filter(name="Small steps").count() == 2, "nothing has changed"
    owner.post(reverse("delete_tier_scale", args=[now.pk]))
    assert not TierScale.objects.filter(name="Small steps").exists()


def test_what_is_wrong_is_said_and_nothing_typed_is_lost(owner, scale):
    page = owner.post(reverse("new_tier_scale"), {"name": scale.name, "tiers": "Good, B"}).content.decode()
    assert "Not saved yet: see the marked fields." in page
    assert "There is a scale with this name already." in page
    assert "Line 1: name, grade and factor" in page
    assert "Good, B</textarea>" in page
    assert TierScale.objects.count() == 2


def test_the_last_scale_stays(owner, scale):
    TierScale.objects.exclude(pk=scale.pk).delete()
    assert "Delete" not in page_of(owner, "tier_scale", scale.pk)
    answer = owner.post(reverse("delete_tier_scale", args=[scale.pk]), follow=True)
    assert "is the only scale and cannot be deleted" in answer.content.decode()
    assert TierScale.objects.exists()


def test_strangers_see_no_tiers(stranger, scale):
    for name, args in (("tiers", []), ("tiers_csv", []), ("new_tier_scale", []), ("tier_scale", [scale.pk])):
        assert stranger.get(reverse(name, args=args)).status_code == 302
    stranger.post(reverse("new_tier_scale"), {"name": "x", "tiers": "a, b, 2"})
    assert TierScale.objects.count() == 2


# --- the scale that a device allows -----------------------------------------------------------------------------------


def test_the_first_scale_is_one_that_every_device_allows(owner, demo, scale):
    note_again()
    page = owner.get(reverse("tiers")).content.decode()
    assert "<h1>Highest tier, unconfirmed: A tenth (D), by triton-flash on attention" in page
    assert "cannot reach" not in page and 'class="step beyond"' not in page
    way = TierScale.objects.get(name="Way to the speed of light")
    for one in ladders_of(way):
        factors = [step.tier.factor for step in one.steps]
        assert factors == sorted(factors) and factors[0] > 1 and factors[-1] < one.most
        half = next(step for step in one.steps if step.tier.name == "Half")
        assert half.tier.factor**2 == pytest.approx(one.most)


def test_a_share_of_the_way_is_no_tier_where_the_way_is_unknown(measured):
    measured(count=1).measurements.update(mode="warm")
    (one,) = ladders_of(TierScale.objects.get(kind="light"))
    assert one.steps == []


def test_what_the_device_does_not_allow_comes_after_the_headline(owner, demo, scale):
    page = page_of(owner, "tiers")
    said = "The H200 cannot reach Breakthrough. It cannot reach Good to Outstanding on 1 to 6 of 8 workloads."
    assert f'<p class="lede">{said} Largest speedup: ' in page
    assert "Nearest tier: Good (B) on attention fp16 B=1 H=8 S=512 D=64, 1.72 µs to go." in page


@pytest.mark.parametrize(
    "text, said", [("Half, B, 1.5", "a share is a number between 0 and 1, not"), ("Half", "Half, B, 0.5")]
)
def test_a_share_is_between_none_and_all_of_the_way(owner, scale, text, said):
    page = owner.post(reverse("new_tier_scale"), {"name": "x", "kind": "light", "tiers": text}).content.decode()
    assert said in page and not TierScale.objects.filter(name="x").exists()
    owner.post(reverse("new_tier_scale"), {"name": "x", "kind": "light", "tiers": "Half, B, 0.5"})
    assert TierScale.objects.get(name="x").kind == "light"


# --- a target, and a pinned baseline ----------------------------------------------------------------------------------


@pytest.fixture
def there(measured, scale):
    """The address of a workload's tiers."""
    thorough(measured(count=1))
    return ladders_of(scale)[0].series.workload.key, "graph"


def decide(client, what, there, scale, **sent):
    where = f"{reverse(what, args=there)}?device=NVIDIA%20H200&scale={scale.pk}"
    return client.post(where, sent, follow=True).content.decode()


def test_a_target_is_not_for_a_day_that_is_over(owner, there, scale):
    page = decide(owner, "set_target", there, scale, tier="0", owner=owner.user.username, due="2020-01-01")
    assert "Choose today or a later day." in page and not Target.objects.exists()


def test_a_target_is_chosen_changed_and_removed(owner, there, scale):
    due = timezone.localdate() + timedelta(days=40)
    page = decide(owner, "set_target", there, scale, tier="0", owner=owner.user.username, due=f"{due}")
    target = Target.objects.get()
    assert (target.factor, target.owner, target.due) == (2.0, owner.user, due)
    assert target.tier == "Good (B) of Five tiers v1", "an edit of the scale does not move it"
    assert "The target of 4.96 µs is 1.72 µs away." in page and f"until {date_format(due, 'j F Y')}" in page
    matrix = page_of(owner, "tiers")
    assert 'target 2.00x<span class="less">, 1.72 µs to go · olga, ' + date_format(due, "j M") + "</span>" in matrix
    decide(owner, "set_target", there, scale, tier="own", factor="1.4", owner=owner.user.username)
    assert Target.objects.get().factor == 1.4 and Target.objects.get().due is None
    assert "The target is reached." in page_of(owner, "tier_workload", *there)
    decide(owner, "set_target", there, scale, remove="1")
    assert not Target.objects.exists()


def test_the_form_offers_the_next_tier_that_is_not_reached(owner, there, scale):
    def offered():
        return re.findall(r'<option value="([^"]+)" selected>', page_of(owner, "tier_workload", *there))

    assert offered() == ["0"]
    faster(Run.objects.get(), 2.1)
    note_again()
    assert offered() == ["1"]
    faster(Run.objects.get(), 16.0)
    note_again()
    assert offered() == ["own"], "the last tier is beyond the speed of light"


def test_a_factor_that_is_typed_is_the_target_whatever_tier_the_list_shows(owner, there, scale):
    decide(owner, "set_target", there, scale, tier="0", factor="1.4", owner="olga")
    target = Target.objects.get()
    assert (target.factor, target.tier) == (1.4, "")


@pytest.mark.parametrize(
    "sent, said",
    [
        ({"tier": "0", "factor": "40"}, "The hardware limit is 16.7x: no kernel can reach more."),
        ({"tier": "own", "factor": "40"}, "The hardware limit is 16.7x: no kernel can reach more."),
        ({"tier": "own", "factor": ""}, "A factor is a number above 1"),
        ({"tier": "own", "factor": "nan"}, "The target was not saved."),
        ({"tier": "4"}, "Select a valid choice"),
        ({}, "This field is required."),
        ({"tier": "0", "owner": "nobody"}, "There is no user nobody."),
    ],
)
def test_what_is_no_target_gets_a_sentence(owner, there, scale, sent, said):
    page = decide(owner, "set_target", there, scale, **{"owner": "olga"} | sent)
    assert said in page and not Target.objects.exists()


def test_a_baseline_is_pinned_and_its_target_counts_from_there(owner, there, scale, measured):
    decide(owner, "set_target", there, scale, tier="own", factor="1.4", owner=owner.user.username)
    page = decide(owner, "pin_baseline", there, scale)
    pin = Pin.objects.get()
    assert (pin.kernel, pin.by, Target.objects.get().pin) == ("sdpa", owner.user, pin)
    assert "sdpa is pinned at 9.92 µs." in page and "No later run can be compared with it." in page
    assert ">Unpin<" in page and ">Pin sdpa at " not in page, "the same time is pinned already"
    run = thorough(measured(count=1))
    base = Result.objects.filter(measurement__run=run, kernel__name="sdpa")
    figures = {"p50_ms": pin.p50_ms, "p50_low_ms": pin.p50_low_ms, "p50_high_ms": pin.p50_high_ms}
    base.update(**{name: 1.05 * value for name, value in figures.items()})
    page = page_of(owner, "tier_workload", *there)
    assert ">Pin sdpa at " in page
    assert "Since it was pinned: +5.0% time" in page and "baseline drifted" in page_of(owner, "tiers")
    assert "The target is not reached" in page or "away." in page or "The target is reached" in page
    aim = Progress(Target.objects.select_related("pin").get(), ladders_of(scale)[0])
    assert aim.goal_ms == pytest.approx(pin.p50_ms / 1.4), "not from the slower baseline of today"
    assert "drift" not in decide(owner, "pin_baseline", there, scale, remove="1").split("Pinned baseline")[1]
    assert Target.objects.get().pin is None


@pytest.mark.parametrize("why", ["noisy", "contended"])
def test_a_time_that_says_nothing_is_not_pinned(owner, there, scale, why):
    page = page_of(owner, "tier_workload", *there)
    assert re.search(r">Pin sdpa at 9\.92\d* µs \(9\.9\d+ to 9\.9\d+\)</button>", page)
    run = Run.objects.get()
    if why == "noisy":
        run.measurements.update(margin=0.84)
        said = "the A/A margin of the newest run is 84.0%, above 5%"
    else:
        contended(run)
        said = "other processes used the device in the newest run"
    page = " ".join(page_of(owner, "tier_workload", *there).split())
    assert "Pin sdpa" not in page and f"This time cannot be pinned: {said}. Measure the baseline again first." in page
    assert re.search(r"sdpa took 9\.92\d* µs \(9\.9\d+ to 9\.9\d+\)\. This", page)
    assert f"Not pinned: {said}. Measure the baseline again first." in decide(owner, "pin_baseline", there, scale)
    assert not Pin.objects.exists()


@pytest.mark.parametrize(
    "times, margin, certain", [(1.009, 0.01, False), (1.03, 0.01, True), (1.03, 0.04, False), (0.95, 0.01, True)]
)
def test_drift_is_what_intervals_and_margins_do_not_explain(there, scale, times, margin, certain):
    one = ladders_of(scale)[0]
    ms = one.base_ms
    pin = Pin(
        kernel="sdpa", p50_ms=ms / times, p50_low_ms=0.999 * ms / times, p50_high_ms=1.001 * ms / times, margin=margin
    )
    found = drift(pin, replace(one.base, p50_low_ms=0.999 * ms, p50_high_ms=1.001 * ms, margin=0.01))
    assert found.ratio == pytest.approx(times) and found.is_certain == certain
    assert found.low < found.ratio < found.high


@pytest.mark.parametrize("why", ["another baseline", "contended", "noisy", "no interval"])
def test_what_cannot_be_held_against_a_pin(there, scale, why):
    base = ladders_of(scale)[0].base
    pin = Pin(kernel="eager" if why == "another baseline" else "sdpa", p50_ms=1, p50_low_ms=1, p50_high_ms=1)
    changed = {"contended": {"contended": True}, "noisy": {"margin": 0.06}, "no interval": {"p50_low_ms": None}}
    assert drift(pin, replace(base, **changed.get(why, {}))) is None


@pytest.mark.parametrize("other", ["card", "driver", "harness"])
def test_only_what_is_comparable_is_held_against_a_pin(owner, there, scale, measured, make_gpu, other):
    decide(owner, "set_target", there, scale, tier="own", factor="1.4", owner=owner.user.username)
    decide(owner, "pin_baseline", there, scale)
    pin = Pin.objects.get()
    run = (
        thorough(measured(count=1, on=make_gpu("GPU-2")))
        if other == "card"
        else thorough(measured(count=1, **{other: "9"}))
    )
    times = {name: 1.2 * getattr(pin, name) for name in ("p50_ms", "p50_low_ms", "p50_high_ms")}
    Result.objects.filter(measurement__run=run, kernel__name="sdpa").update(**times)
    page = page_of(owner, "tier_workload", *there)
    assert "No later run can be compared with it." in page and "drifted" not in page_of(owner, "tiers")
    aim = Progress(Target.objects.select_related("pin").get(), ladders_of(scale)[0])
    assert (aim.ladder.base.run, aim.goal_ms) == (run.pk, pytest.approx(aim.ladder.base_ms / 1.4))


def test_a_later_comparable_run_counts_though_the_newest_is_of_another_card(owner, there, scale, measured, make_gpu):
    decide(owner, "pin_baseline", there, scale)
    pin, run = Pin.objects.get(), thorough(measured(count=1))
    times = {name: 1.05 * getattr(pin, name) for name in ("p50_ms", "p50_low_ms", "p50_high_ms")}
    Result.objects.filter(measurement__run=run, kernel__name="sdpa").update(**times)
    thorough(measured(count=1, on=make_gpu("GPU-2")))
    assert "Since it was pinned: +5.0% time" in page_of(owner, "tier_workload", *there)


def test_the_next_pin_takes_the_place_of_the_last(owner, there, scale):
    decide(owner, "pin_baseline", there, scale)
    decide(owner, "pin_baseline", there, scale)
    assert Pin.objects.count() == 1


# --- charts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    telling(
        [("light", False), ("dark", True), ("light", True), ("dark", False)],
        ("light", False),
        ("dark", True),
        why=LOOKS,
    ),
)
def test_the_ladder_is_drawn_with_all_its_rows(owner, demo, scale, look):
    theme, narrow = look
    one = ladders_of(scale)[0]
    address = reverse("ladder_chart_json", args=[one.series.workload.key, "graph"])
    asked = {"theme": theme, "scale": scale.pk} | ({"narrow": ""} if narrow else {})
    spec = owner.get(address, asked).json()
    rows = [row for data in spec["datasets"].values() for row in data]
    names = {row["name"] for row in rows if row.get("style")}
    assert {"sdpa", "triton-flash", "sdpa-math"} <= {name.rstrip("…") for name in names}
    assert spec["width"] == (326 if narrow else 1130)
    assert all(0 <= row["x"] <= spec["width"] for row in rows)
    light = next(row for row in rows if str(row.get("text")).startswith("speed of light"))
    beyond = [row["x"] for row in rows if row.get("style") == "beyond" and row["x"]]
    assert min(beyond) > light["x"], "beyond the line"
    assert owner.get(address.replace(".json", ".svg"), asked).content.startswith(b"<svg")
    assert owner.get(address.replace(".json", ".png"), asked).content.startswith(b"\x89PNG")
    assert owner.get(address, asked | {"theme": "odd"}).status_code == 404


def test_the_climb_and_the_progress(owner, measured, scale):
    for factor in (0.9, 1.0, 1.5):
        thorough(measured(count=2, edit={"triton-flash": factor}))
    one = ladders_of(scale)[0]
    assert one.reached.tier.name == "Good"
    climb = owner.get(reverse("climb_chart_json", args=[one.series.workload.key, "graph"]), {"scale": scale.pk}).json()
    texts = [row["text"] for data in climb["datasets"].values() for row in data if "text" in row]
    assert texts[:2] == ["Good (B)", "Good (B)"] or "Good (B)" in texts
    for name, where in (("climb_chart_png", [one.series.workload.key, "graph"]), ("tiers_progress_png", [])):
        assert owner.get(reverse(name, args=where), {"scale": scale.pk}).content.startswith(b"\x89PNG")
    progress = owner.get(reverse("tiers_progress_json"), {"scale": scale.pk}).json()
    texts = {row["text"] for data in progress["datasets"].values() for row in data if "text" in row}
    assert texts == {"Good (B): 2 of 2"}
    page = page_of(owner, "tiers")
    assert 'data-chart="/tiers/charts/progress.json?device=NVIDIA%20H200&amp;scale=' in page


def test_a_tier_is_also_reached_by_the_holder_measured_again(owner, measured, scale):
    thorough(measured(count=1, edit={"triton-flash": 0.7}))
    assert owner.get(reverse("tiers_progress_json"), {"scale": scale.pk}).status_code == 404
    again = thorough(measured(count=1, edit={"triton-flash": 0.7}))
    mine = Result.objects.filter(measurement__run=again, kernel__name="triton-flash")
    mine.update(speedup=2.1, speedup_low=2.0, speedup_high=2.2)
    assert owner.get(reverse("tiers_progress_json"), {"scale": scale.pk}).status_code == 200


def test_no_chart_of_nothing(owner, demo, scale):
    note_again()
    assert "progress.json" not in owner.get(reverse("tiers")).content.decode(), "a tier is reached, by a demo run"
    assert owner.get(reverse("tiers_progress_json")).status_code == 404
    key = demo.measurements.first().workload.key
    assert owner.get(reverse("climb_chart_json", args=[key, "graph"])).status_code == 404
