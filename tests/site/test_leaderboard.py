"""The leaderboard: who is best on each shape and GPU model, what is confirmed, its history, its files, and the button."""

import csv
import html
import io
import json
import re
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace

import altair as alt
import pytest
from cast import thorough
from django.apps import apps
from django.db import connection
from django.utils import timezone
from many import many

from kernels.protocol import EFFORTS
from runs.confirming import confirm_leaders
from runs.models import Gpu, Kernel, Measurement, Newest, Result, Run
from runs.pipeline.contended import note_apart
from runs.queries import coverage, leaders
from runs.queries.leader_rows import FIELDS
from runs.views.leaderboard import View, halves


def noted(run):
    """What storing it would note: tests change runs after that."""
    Newest.objects.filter(result__measurement__run=run).delete()
    for one in Measurement.objects.filter(run=run).select_related("run"):
        Newest.objects.note([one])
    return run


def places():
    return leaders.board().places


def page_of(client, query=""):
    answer = client.get(f"/leaderboard/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


# --- what is newest ---------------------------------------------------------------------------------------------------


def test_each_kernel_has_one_row_for_each_terms(measured):
    first = noted(measured(count=2))
    count = Newest.objects.count()
    assert count == Result.objects.filter(measurement__run=first).exclude(status="unsupported").count()
    second = noted(measured(count=2))
    assert Newest.objects.count() == count
    assert set(Newest.objects.values_list("result__measurement__run", flat=True)) == {second.pk}
    noted(measured(count=2, driver="999"))
    assert Newest.objects.count() == 2 * count, "another driver hides nothing"


def test_confirmed_results_are_not_hidden_by_later_ones(measured):
    first = thorough(measured(count=1))
    second = noted(measured(count=1))
    runs = set(Newest.objects.values_list("result__measurement__run", flat=True))
    assert runs == {first.pk, second.pk}


def test_contended_results_hide_no_others(measured):
    first, second = noted(measured(count=1)), noted(measured(count=1))
    newest = Newest.objects.values_list("result__measurement__run", flat=True)
    assert set(newest.all()) == {second.pk}
    Run.objects.filter(pk=second.pk).update(contended=True)
    note_apart(second)
    assert set(newest.all()) == {first.pk, second.pk}, "it turned out to be contended after it was noted"
    (place,) = places()
    assert place.rumour.point.run == first.pk
    third = noted(measured(count=1))
    assert set(newest.all()) == {second.pk, third.pk}


def test_the_migration_notes_contended_results_apart(measured):
    first, second = noted(measured(count=1)), measured(count=1)
    noted(second)
    Run.objects.filter(pk=second.pk).update(contended=True)
    import_module("runs.migrations.0183_contended_results_apart").fill(apps, connection.schema_editor())
    found = set(Newest.objects.values_list("terms", "result", "workload", "confirmed"))
    note_apart(second)
    assert set(Newest.objects.values_list("result__measurement__run", flat=True)) == {first.pk, second.pk}
    assert found == set(Newest.objects.values_list("terms", "result", "workload", "confirmed"))


@pytest.mark.parametrize("wrong", ["contended", "margin"])
def test_the_migration_takes_back_what_a_busy_device_confirmed(measured, wrong):
    run = thorough(measured(count=1))
    assert Result.objects.filter(confirmed=True).exists() and Newest.objects.filter(confirmed=True).exists()
    if wrong == "contended":
        Run.objects.filter(pk=run.pk).update(contended=True)
    else:
        run.measurements.update(margin=0.06)
    import_module("runs.migrations.0183_contended_results_apart").fill(apps, connection.schema_editor())
    assert not Result.objects.filter(confirmed=True).exists() and not Newest.objects.filter(confirmed=True).exists()
    assert Newest.objects.exists()


def test_what_is_stored_is_noted(demo):
    tried = Result.objects.filter(measurement__run=demo).exclude(status="unsupported")
    assert Newest.objects.count() == tried.count()


# --- who is best ------------------------------------------------------------------------------------------------------


def test_without_a_thorough_run_nothing_leads(owner, measured):
    noted(measured(count=1))
    (place,) = places()
    assert place.record is None
    assert (place.rumour.point.kernel, place.rumour.is_confirmed) == ("triton-flash", False)
    page = page_of(owner)
    assert "No record is confirmed yet on 1 attention workload on NVIDIA H200 (gpu-1)" in page
    assert "triton-flash is ahead, unconfirmed, on 1 of 1 workload." in page
    cell = page.split('class="cell dashed', 1)[1].split("</form>")[0]
    assert "<b>" not in cell and ">Confirm</button>" in cell


def test_a_thorough_run_makes_a_record(owner, measured):
    run = thorough(measured(count=2))
    first, second = places()
    assert first.rumour is None and first.record.point.run == run.pk and first.record.is_confirmed
    assert first.record.point.kernel == second.record.point.kernel == "triton-flash"
    page = page_of(owner)
    assert "triton-flash leads on 2 of 2 attention workloads on NVIDIA H200 (gpu-1)" in page
    assert page.count('class="cell sure') == 2 and "Confirm</button>" not in page
    assert "on gpu-1" in page


def test_the_interval_is_that_of_all_comparisons(owner, measured):
    thorough(measured(count=1))
    alone = places()[0].record.best.ratio
    thorough(measured(count=8))
    assert re.search(r"Each interval holds for all \d+ comparisons of the board at once", page_of(owner))
    together = places()[0].record.best.ratio
    assert together.ratio == alone.ratio and together.low < alone.low and together.high > alone.high


def test_nobody_beats_the_baseline(owner, measured):
    run = measured(count=1)
    Result.objects.filter(measurement__run=run).exclude(kernel__name="sdpa").update(
        speedup=0.5, speedup_low=0.49, speedup_high=0.51
    )
    thorough(run)
    (place,) = places()
    assert place.record.best is None and place.record.point.kernel == "sdpa"
    assert "No kernel is confirmed faster than sdpa on 1 attention workload on" in page_of(owner)
    assert "baseline, unbeaten" in page_of(owner)
    Run.objects.filter(pk=run.pk).update(contended=True)
    assert places()[0].record is None and "unbeaten" not in page_of(owner), "others used the device"


@pytest.mark.parametrize("change", ["contended", "incorrect", "undecided"])
def test_what_does_not_count_does_not_lead(owner, measured, change):
    run = thorough(measured(count=1))
    mine = Result.objects.filter(measurement__run=run, kernel__name="triton-flash")
    if change == "contended":
        Run.objects.filter(pk=run.pk).update(contended=True)
    elif change == "incorrect":
        mine.update(status="incorrect")
    else:
        mine.update(speedup=1.02, speedup_low=1.005, speedup_high=1.03)
    (place,) = places()
    assert place.shown.point.kernel == "sdpa" and place.shown.best is None
    if change == "incorrect":
        assert place.record and place.shown.undecided == 0
    else:
        every = len(place.shown.compared)
        assert place.record is None and place.shown.undecided == (every if change == "contended" else 1), (
            "a baseline beside what is undecided is not confirmed, and contended results decide nothing"
        )
        said = f"{every} are" if change == "contended" else "1 is"
        page = page_of(owner)
        assert f"No kernel is confirmed faster than sdpa; {said} undecided.</p>" in page
        assert "unbeaten" not in page


def test_where_nothing_is_decided_the_cell_does_not_name_the_baseline(owner, measured):
    run = measured(count=1)
    run.measurements.update(margin=0.09)
    noted(run)
    page = page_of(owner)
    cell = page.split('class="cell dashed', 1)[1].split("</form>")[0]
    assert "<span>undecided</span>" in cell and "triton-flash (margin 9%) and 6 more" in cell
    assert "sdpa<" not in cell and "baseline" not in cell and "<b>" not in cell
    assert (
        'aria-label="Measure 7 kernels again, beside sdpa, on ' in cell and ">Measure 7 kernels again</button>" in cell
    )
    assert "Undecided here</h2>" in page and "Best result here" not in page
    (link,) = re.findall(r'href="(\?cell=[^"]+)"><span>undecided', page)
    assert owner.get(f"/leaderboard/{html.unescape(link)}").context["chosen"].cell == places()[0].cell


def test_kernels_that_are_not_told_apart_are_named_beside_the_record(owner, measured):
    run = thorough(measured(count=1))
    rows = Result.objects.filter(measurement__run=run)
    for kernel, factor in (("triton-flash", 3.016), ("sdpa-flash", 3.013)):
        rows.filter(kernel__name=kernel).update(speedup=factor, speedup_low=factor * 0.998, speedup_high=factor * 1.002)
    (place,) = places()
    assert [one.point.kernel for one in place.record.not_apart] == ["sdpa-flash"]
    assert "Tied with it: sdpa-flash 3.01x" in page_of(owner)
    twice(run, 2.5)
    assert places()[0].record.not_apart == [] and "Tied with" not in page_of(owner)


def tied(run, **kernels):
    """Makes kernels of a run so many times as fast as the baseline: (factor, share of it on each side)."""
    for kernel, (factor, side) in kernels.items():
        Result.objects.filter(measurement__run=run, kernel__name=kernel.replace("_", "-")).update(
            speedup=factor, speedup_low=factor * (1 - side), speedup_high=factor * (1 + side)
        )
    return run


def test_a_confirmed_record_is_tied_with_confirmed_results_only(owner, measured):
    thorough(tied(measured(count=1), triton_flash=(3.03, 0.006), sdpa_flash=(2.5, 0.001)))
    noted(tied(measured(count=1), triton_flash=(2.9, 0.006), sdpa_flash=(3.013, 0.0005)))
    (place,) = places()
    assert (place.record.point.kernel, place.record.is_confirmed, place.record.not_apart) == ("triton-flash", True, [])
    assert "Tied with" not in page_of(owner)


def test_of_kernels_that_are_not_told_apart_the_same_one_is_named_on_all_pages(owner, measured):
    """The winner changed with the number of comparisons, which widen intervals."""
    one = thorough(tied(measured(count=1), triton_flash=(3.03, 0.006), sdpa_flash=(3.013, 0.0005)))
    (place,) = places()
    assert place.record.best.ratio.low < place.record.not_apart[0].ratio.low == place.record.low
    assert (place.record.point.kernel, [o.point.kernel for o in place.record.not_apart]) == (
        "triton-flash",
        ["sdpa-flash"],
    )
    page = page_of(owner)
    cell = page.split('class="cell sure', 1)[1].split("</a>")[0]
    assert re.search(r">triton-flash</b>.*>3\.03x ±[\d.]+%, or sdpa-flash</span>", cell)
    assert "<h1>triton-flash is ahead on 1 of 1 attention workload on NVIDIA H200 (gpu-1).</h1>" in page
    assert '<p class="lede">It is tied with sdpa-flash.</p>' in page
    (row,) = owner.get("/leaderboard.json").json()["leaderboard"]
    assert (row["kernel"], row["not_apart"], row["speedup"], row["state"]) == (
        "triton-flash",
        "sdpa-flash",
        3.03,
        "confirmed",
    )
    tiers = owner.get("/tiers/").content.decode()
    assert re.search(r">triton-flash</a>\s+<b>3\.03x</b>.*tied with sdpa-flash\)", tiers)
    Run.objects.filter(pk=one.pk).delete()
    thorough(tied(measured(count=8), triton_flash=(3.03, 0.006), sdpa_flash=(3.013, 0.0005)))
    assert {place.record.point.kernel for place in places()} == {"triton-flash"}
    assert "On 8 of these it is tied with sdpa-flash." in page_of(owner)


def test_of_equal_estimates_the_narrowest_interval_is_named(owner, measured):
    kernels = {"triton_flash": (3.0, 0.002), "sdpa_flash": (3.0, 0.001), "compiled": (3.0, 0.003)}
    noted(tied(measured(count=1), **kernels))
    (place,) = places()
    assert [one.point.kernel for one in place.rumour.ahead] == ["sdpa-flash", "triton-flash", "compiled"]
    page = page_of(owner)
    assert "sdpa-flash is ahead, unconfirmed, on 1 of 1 workload; it is tied with compiled and triton-flash." in page
    assert ", or 2 more</span>" in page.split('class="cell dashed', 1)[1].split("</form>")[0]


@pytest.mark.parametrize("confirmed", [True, False])
def test_of_equals_none_is_said_to_lead(owner, measured, confirmed):
    run = measured(count=2)
    first, second = run.measurements.order_by("pk")
    for one, kernel in ((first, "triton-flash"), (second, "compiled")):
        one.results.exclude(kernel__name="sdpa").update(speedup=0.5, speedup_low=0.499, speedup_high=0.501)
        one.results.filter(kernel__name=kernel).update(speedup=2.0, speedup_low=1.99, speedup_high=2.01)
    (thorough if confirmed else noted)(run)
    said = (
        "compiled and triton-flash each lead on 1 of 2 attention workloads on NVIDIA H200 (gpu-1)"
        if confirmed
        else "compiled and triton-flash are each ahead, unconfirmed, on 1 of 2 workloads."
    )
    assert said in page_of(owner)


def test_a_small_run_of_another_device_is_not_the_headline(owner, measured, make_gpu):
    thorough(measured(count=2))
    thorough(measured(count=1, on=make_gpu("CPU-1", "cpu", "AMD EPYC", "web-1"), device="AMD EPYC"))
    assert leaders.board().gpus == ["NVIDIA H200", "AMD EPYC"]
    assert "triton-flash leads on 2 of 2 attention workloads on NVIDIA H200 (gpu-1)" in page_of(owner)


def test_an_operation_has_only_columns_with_a_result(owner, measured, make_gpu):
    run = thorough(measured(count=2))
    work = run.measurements.order_by("pk").last().workload
    type(work).objects.filter(pk=work.pk).update(operation="own-nsa", dtype="bfloat16", label="own-nsa bf16 B=1 S=8192")
    page = owner.get("/leaderboard/")
    groups = {group.work: group for group in page.context["view"].every_group}
    assert groups["attention"].shown_columns == [("NVIDIA H200", "float16")]
    assert groups["own-nsa"].shown_columns == [("NVIDIA H200", "bfloat16")]
    assert 'class="cell none' not in page.content.decode()


def test_what_the_boards_own_interval_leaves_undecided_is_undecided(owner, measured):
    """0.9905 to 1.0095 is SAME by itself; the interval for all comparisons of the board is wider."""
    run = measured(count=1)
    others = Result.objects.filter(measurement__run=run).exclude(kernel__name="sdpa")
    others.update(speedup=0.5, speedup_low=0.49, speedup_high=0.51)
    others.filter(kernel__name="triton-flash").update(speedup=1.0, speedup_low=0.9905, speedup_high=1.0095)
    thorough(run)
    (place,) = places()
    assert place.record is None and place.rumour.undecided == 1
    page = page_of(owner)
    assert "No kernel is confirmed faster than sdpa; 1 is undecided.</p>" in page
    assert "this is confirmed" not in page
    owner.post("/leaderboard/confirm/", {"cell": place.cell})
    assert len(Run.objects.latest("pk").spec.kernels) > 3, "measured again with all that were compared"


def test_a_slower_contended_result_decides_nothing(measured):
    first, second = thorough(measured(count=1)), measured(count=1)
    Result.objects.filter(measurement__run=first).exclude(kernel__name="sdpa").delete()
    Result.objects.filter(measurement__run=second).exclude(kernel__name__in=("sdpa", "triton-flash")).delete()
    Result.objects.filter(measurement__run=second, kernel__name="triton-flash").update(
        speedup=0.5, speedup_low=0.49, speedup_high=0.51, confirmed=True
    )
    Run.objects.filter(pk=second.pk).update(contended=True)
    noted(second)
    (place,) = places()
    assert place.record is None and place.rumour.undecided == 1


def test_a_faster_one_that_is_not_confirmed_stands_beside_the_record(owner, measured):
    first = thorough(measured(count=1))
    later = noted(measured(count=1, edit={"triton-flash": 1.2}))
    (place,) = places()
    assert (place.record.point.run, place.rumour.point.run) == (first.pk, later.pk)
    page = page_of(owner)
    assert "Higher but unconfirmed: triton-flash" in page and "Confirm</button>" in page
    noted(measured(count=1, edit={"triton-flash": 1.001}))
    assert "Unconfirmed, with a higher low end: triton-flash" in page_of(owner), "their intervals meet"
    slower = noted(measured(count=1, edit={"triton-flash": 0.9}))
    assert slower and places()[0].rumour is None, "what is not higher says nothing"


def test_a_new_driver_keeps_the_record_until_a_thorough_run(measured):
    first = thorough(measured(count=1))
    noted(measured(count=1, driver="999"))
    assert places()[0].record.point.run == first.pk
    second = thorough(measured(count=1, driver="999"))
    assert places()[0].record.point.run == second.pk


def test_two_models_are_two_columns(owner, measured, make_gpu):
    thorough(measured(count=1))
    other = make_gpu("GPU-2", name="NVIDIA H100", host="gpu-7")
    thorough(measured(count=1, on=other, device="NVIDIA H100"))
    page = page_of(owner)
    assert "H200 · fp16 <small>gpu-1</small>" in page and "H100 · fp16 <small>gpu-7</small>" in page
    only = page_of(owner, "?gpu=NVIDIA H100")
    assert only.count('class="cell sure') == 1 and "(gpu-7)" in only
    none = page_of(owner, "?gpu=NVIDIA H100&show=unconfirmed")
    assert "<h1>No result matches these filters.</h1>" in none and "Nothing has been compared" not in none


def test_what_was_not_measured_can_be_where_such_a_card_answers(owner, measured, make_gpu):
    thorough(measured(count=2))
    other = make_gpu("GPU-2", name="NVIDIA H100", host="gpu-7", seen_at=timezone.now())
    thorough(measured(count=1, on=other, device="NVIDIA H100"))
    (link,) = re.findall(
        r'not measured <a href="([^"]+)" aria-label="Measure B=[^"]+ in float16 on NVIDIA H100">', page_of(owner)
    )
    form = owner.get(html.unescape(link)).context["form"]
    assert (form["what"].value(), form["device"].value()) == ("workload", str(other.pk))
    Gpu.objects.update(seen_at=timezone.now() - timedelta(days=1))
    assert "not measured</span>" in page_of(owner)


def twice(run, factor, kernel="sdpa-flash"):
    """Makes a kernel of a run so many times as fast as the baseline, give or take 0.9%."""
    Result.objects.filter(measurement__run=run, kernel__name=kernel).update(
        speedup=factor, speedup_low=factor * 0.991, speedup_high=factor * 1.009
    )
    return run


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_faster_kernel_of_another_card_is_named(owner, measured, make_gpu, is_confirmed):
    other = make_gpu("GPU-2", host="gpu-2")
    first = twice(measured(count=1, on=other), 1.716)
    if is_confirmed:
        thorough(first)
    else:
        noted(first)
    thorough(measured(count=1))
    (place,) = places()
    assert (place.shown.point.kernel, place.rumour) == ("triton-flash", None)
    assert (place.elsewhere.point.run, place.elsewhere.point.kernel) == (first.pk, "sdpa-flash")
    page = " ".join(page_of(owner).split())
    unconfirmed = "" if is_confirmed else ", unconfirmed"
    assert re.search(rf'role="cell">sdpa-flash 1\.72x ±[\d.]+% on another card{unconfirmed}</small>', page)
    assert re.search(rf"Faster on another card: sdpa-flash 1\.72x ±[\d.]+% on gpu-2 in <a [^>]*>run {first.pk}<", page)
    assert "A cell compares kernels on one card, the one measured last, with the same versions." in page


@pytest.mark.parametrize("lead", [1.487, 1.495])
def test_of_another_card_only_what_is_wholly_above_is_named(owner, measured, make_gpu, lead):
    """At 1.495 its low end is above that of the cell, and the intervals meet: so wide an interval decides nothing."""
    run = twice(measured(count=1, on=make_gpu("GPU-2", host="gpu-2")), lead)
    Result.objects.filter(measurement__run=run, kernel__name="triton-flash").delete()
    noted(run)
    thorough(measured(count=1))
    assert places()[0].elsewhere is None and "on another card</small>" not in page_of(owner)


def test_another_card_is_told_by_its_newest_result(measured, make_gpu):
    other = make_gpu("GPU-2", host="gpu-2")
    noted(twice(measured(count=1, on=other), 1.9))
    noted(measured(count=1, on=other, driver="999"))
    thorough(measured(count=1))
    assert places()[0].elsewhere is None, "with its newest driver it is not faster"


def test_a_demo_run_is_no_other_card(measured, demo):
    noted(twice(demo, 1.9))
    thorough(measured(count=1))
    assert [place.elsewhere for place in places() if place.record] == [None]


def test_a_faster_result_that_stands_in_the_cell_is_not_said_twice(measured, make_gpu):
    thorough(measured(count=1))
    later = noted(twice(measured(count=1, on=make_gpu("GPU-2", host="gpu-2")), 1.9))
    (place,) = places()
    assert place.rumour.point.run == later.pk and place.elsewhere is None


def test_only_a_confirmed_result_is_called_the_record(owner, measured):
    noted(measured(count=1))
    assert "Best result here, unconfirmed</h2>" in page_of(owner) and "The record here" not in page_of(owner)
    thorough(measured(count=1))
    assert "The record here</h2>" in page_of(owner)


@pytest.mark.parametrize(
    "shape, lines",
    [
        (
            "B=1 H=64 G=4 S=8192 D=128 16 blocks of 64 causal",
            ("B=1 H=64 G=4", "S=8192, D=128, 16 blocks of 64, causal"),
        ),
        ("B=1 S=8192 16 blocks of 64 causal", ("B=1 S=8192 16 blocks of 64", "causal")),
        ("B=4 H=16 S=512 D=64 causal", ("B=4 H=16 S=512", "D=64, causal")),
        ("M=4 N=8 K=16", ("M=4 N=8 K=16", "")),
        ("1024 x 4096 tanh", ("1024 x 4096 tanh", "")),
    ],
)
def test_a_long_shape_has_two_lines_and_phrases_stay_whole(shape, lines):
    assert halves(shape) == lines


@pytest.mark.parametrize(
    "shapes, columns, said",
    [
        (22, 5, "22 shapes are not shown, and 2 of 5 columns. Filter above, or download csv."),
        (1, 3, "1 shape is not shown. Filter above, or download csv."),
        (0, 4, "1 of 4 columns is not shown. Filter above, or download csv."),
        (0, 3, ""),
    ],
)
def test_what_has_no_room_is_counted(monkeypatch, shapes, columns, said):
    monkeypatch.setattr(View, "hidden", shapes)
    monkeypatch.setattr(View, "columns", list(range(columns)))
    monkeypatch.setattr(View, "shown_columns", list(range(min(3, columns))))
    assert View(leaders.Board(), {}).what_is_hidden == said


def test_the_same_kernel_on_another_card_is_no_news(measured, make_gpu):
    noted(measured(count=1, on=make_gpu("GPU-2", host="gpu-2"), edit={"triton-flash": 1.2}))
    thorough(measured(count=1))
    (place,) = places()
    assert place.record.point.kernel == "triton-flash" and place.elsewhere is None


# --- its history, and how often ---------------------------------------------------------------------------------------


def test_the_history_has_each_record_once(measured):
    runs = [thorough(measured(count=1, edit={"triton-flash": factor})) for factor in (0.9, 1.0, 0.95, 1.1)]
    steps = leaders.steps(places()[0])
    assert [step.point.run for step in steps] == [runs[0].pk, runs[1].pk, runs[3].pk]
    lows = [step.ratio.low for step in steps]
    assert lows == sorted(lows)


def test_a_record_that_was_measured_elsewhere_says_what_differs(owner, measured, make_gpu):
    thorough(measured(count=1, edit={"triton-flash": 0.9}, on=make_gpu("GPU-2", host="gpu-2"), harness="4"))
    run = thorough(measured(count=1))
    again = thorough(measured(count=1, edit={"triton-flash": 1.1}))
    page = page_of(owner)
    assert f">{run.pk}</a> <small>other host and harness</small></td>" in page
    assert f">{again.pk}</a></td>" in page


def test_how_often_a_kernel_is_how_fast(measured):
    run = thorough(measured(count=4))
    factors = {}
    for number, one in enumerate(run.measurements.all()):
        mine = one.results.filter(kernel__name="triton-flash")
        factors[number] = 0.5 + number / 2
        mine.update(speedup=factors[number], speedup_low=factors[number] * 0.99, speedup_high=factors[number] * 1.01)
    curve = next(one for one in coverage.curves(places(), "sdpa") if one.kernel == "triton-flash")
    assert [round(ratio, 6) for ratio in curve.ratios] == [0.5, 1.0, 1.5, 2.0]
    assert [curve.share(p) for p in (0.4, 1.0, 1.2, 3.0)] == [1.0, 0.75, 0.5, 0.0]
    Result.objects.filter(measurement=run.measurements.first(), kernel__name="triton-flash").update(status="incorrect")
    curve = next(one for one in coverage.curves(places(), "sdpa") if one.kernel == "triton-flash")
    assert curve.places == 4 and len(curve.ratios) == 3 and curve.share(0.4) == 0.75, "what is wrong is not fast"


@pytest.mark.parametrize("noise", ["contended", "margin"])
def test_noise_is_left_out_of_the_curves_and_counted(owner, measured, noise):
    run = measured(count=2)
    if noise == "margin":
        Measurement.objects.filter(pk=run.measurements.last().pk).update(margin=0.06)
    else:
        run.measurements.first().delete()
        Run.objects.filter(pk=run.pk).update(contended=True)
    thorough(run)
    thorough(measured(count=1))
    for over in ("sdpa", "sdpa-flash"):
        assert {(len(one.ratios), one.places) for one in coverage.curves(places(), over)} == {(1, 1)}
    assert coverage.left_out(places()) == 1
    assert "On 1 of these workloads results are left out: they are contended, or their margin is above 5%." in page_of(
        owner
    )
    Measurement.objects.update(margin=0.06)
    page = " ".join(page_of(owner).split())
    assert coverage.curves(places(), "sdpa") == []
    assert "the results of all 2 workloads are contended, or their margin is above 5%." in page
    assert "estimates without intervals" not in page, "there is no curve"


def test_faster_and_same_are_counted_apart_and_faster_ones_come_first(owner, measured):
    run = measured(count=2)
    for one in run.measurements.all():
        one.results.exclude(kernel__name="sdpa").update(speedup=0.5, speedup_low=0.499, speedup_high=0.501)
        one.results.filter(kernel__name="sdpa-cudnn").update(speedup=1.0, speedup_low=0.999, speedup_high=1.001)
    first = run.measurements.order_by("pk").first()
    first.results.filter(kernel__name="triton-flash").update(speedup=1.6, speedup_low=1.59, speedup_high=1.61)
    thorough(run)
    found = {one.kernel: one for one in coverage.curves(places(), "sdpa")}
    assert list(found)[:2] == ["triton-flash", "sdpa-cudnn"], "what is the same is not ahead of what is faster"
    counts = {name: (len(one.ratios), one.faster, one.same, one.reached) for name, one in found.items()}
    assert counts["triton-flash"] == (2, 1, 0, [1, 0]) and counts["sdpa-cudnn"] == (2, 0, 2, [0, 0])
    over = {one.kernel: one for one in coverage.curves(places(), "sdpa-cudnn")}
    assert (over["triton-flash"].faster, over["triton-flash"].same) == (1, None), "nothing says that it is the same"
    assert (over["sdpa"].faster, over["sdpa"].same) == (0, 2)
    page = page_of(owner)
    assert "<th>measured</th><th>faster</th><th>same</th>" in page and "p = 1" not in page
    assert re.search(r">sdpa-cudnn</a></td><td>2 of 2</td><td>0</td><td>2</td><td>0</td><td>0</td>", page)


def test_over_another_kernel_the_ratios_are_of_one_measurement(measured):
    thorough(measured(count=2))
    over_sdpa = {one.kernel: one for one in coverage.curves(places(), "sdpa")}
    over_flash = {one.kernel: one for one in coverage.curves(places(), "sdpa-flash")}
    assert "sdpa-flash" not in over_flash and over_flash["sdpa"].places == 2
    assert sorted(1 / ratio for ratio in over_sdpa["sdpa-flash"].ratios) == pytest.approx(over_flash["sdpa"].ratios)


@pytest.mark.parametrize("name", ["record", "fast"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_charts(owner, measured, name, theme):
    thorough(measured(count=3))
    spec = owner.get(f"/leaderboard/charts/{name}.json?theme={theme}").json()
    alt.Chart.from_dict(spec)  # validates
    assert spec["$schema"].endswith(".json") and "legend" not in json.dumps(spec["layer"])
    assert owner.get(f"/leaderboard/charts/{name}.svg?theme={theme}").content.startswith(b"<svg")
    png = owner.get(f"/leaderboard/charts/{name}.png?theme={theme}")
    assert png.content.startswith(b"\x89PNG") and f"leaderboard-{name}.png" in png["Content-Disposition"]
    assert owner.get(f"/leaderboard/charts/{name}.json?theme=odd").status_code == 404
    page = page_of(owner)
    assert f'data-chart="/leaderboard/charts/{name}.json?cell=' in page and 'alt="' in page
    assert f'<a href="/leaderboard/charts/{name}.png?cell=' in page


def test_of_two_workloads_there_is_a_table_and_no_curve(owner, measured):
    thorough(measured(count=2))
    page = page_of(owner)
    assert "charts/fast.json" not in page and "on how many workloads</summary>" in page


def test_a_column_names_the_hosts_of_its_own_operation():
    """The hosts of another operation on such a card measured none of this one."""
    there = [("attention", "NVIDIA H200", ""), ("softmax", "NVIDIA H200", "gpu-1"), ("attention", "NVIDIA L4", "gpu-2")]
    places = [SimpleNamespace(work=work, gpu=gpu, shown=SimpleNamespace(host=host)) for work, gpu, host in there]
    view = SimpleNamespace(places=places)
    assert [View.hosts(view, work, "NVIDIA H200") for work in ("attention", "softmax")] == [["demo"], ["gpu-1"]]


def test_the_history_is_of_the_chosen_device(owner, measured):
    thorough(measured(count=1))
    address = re.search(r'<a href="([^"]*)">history</a>', page_of(owner))[1]
    assert "device=NVIDIA" in address and owner.get(address).status_code == 200


def test_no_chart_of_nothing(owner, demo):
    assert owner.get("/leaderboard/charts/zork.json").status_code == 404
    assert owner.get("/leaderboard/charts/record.json").status_code == 404, "nothing is confirmed"


# --- page, files, button ----------------------------------------------------------------------------------------------


def test_an_empty_site(owner):
    page = page_of(owner)
    assert "Nothing has been compared with a baseline yet" in page and "Start a run." in page


def test_files_have_what_the_page_has(owner, measured):
    thorough(measured(count=2))
    noted(measured(count=1, edit={"triton-flash": 1.2}))
    rows = owner.get("/leaderboard.json").json()["leaderboard"]
    table = list(csv.DictReader(io.StringIO(owner.get("/leaderboard.csv").content.decode())))
    assert list(table[0]) == list(FIELDS) == list(rows[0]) and len(table) == len(rows) == 3
    assert [row["state"] for row in rows] == ["confirmed", "unconfirmed", "confirmed"]
    assert rows[0]["host"] == "gpu-1" and rows[0]["speedup_low"] < rows[0]["speedup"] < rows[0]["speedup_high"]
    of_runs = dict(Run.objects.values_list("pk", "environment__body__commit"))
    assert [row["commit"] for row in rows] == [of_runs[row["run"]] for row in rows] and all(of_runs.values())
    assert owner.get("/leaderboard.json?show=unconfirmed").json()["leaderboard"] == []


def test_files_name_no_kernel_where_nothing_is_decided(owner, measured):
    """They named the baseline as the leader, "unconfirmed", where the page says "undecided"."""
    run = measured(count=1)
    Result.objects.filter(measurement__run=run).exclude(kernel__name__in=("sdpa", "triton-flash", "compiled")).delete()
    run.measurements.update(margin=0.09)
    noted(run)
    (row,) = owner.get("/leaderboard.json").json()["leaderboard"]
    assert (row["state"], row["kernel"], row["undecided"], row["commit"]) == (
        "undecided",
        "",
        "triton-flash compiled",
        "",
    )
    assert {row[name] for name in ("speedup", "p50_ms", "limit_share", "run", "result", "sha256")} == {None}
    assert row["baseline"] == "sdpa" and row["limit_ms"]
    (line,) = csv.DictReader(io.StringIO(owner.get("/leaderboard.csv").content.decode()))
    assert (line["state"], line["kernel"], line["undecided"]) == ("undecided", "", "triton-flash compiled")


def test_confirm_queues_a_thorough_run_on_that_card(owner, measured, gpu):
    noted(measured(count=1))
    cell = places()[0].cell
    answer = owner.post("/leaderboard/confirm/", {"cell": cell})
    first, second = Run.objects.filter(state="queued").order_by("pk")
    assert answer.url == first.get_absolute_url()
    for run in (first, second):
        assert (run.gpu, run.user) == (gpu, owner.user)
        assert run.spec.protocol.processes == EFFORTS["thorough"]["processes"] == 5
        assert run.spec.kernels == ["sdpa", "triton-flash"] and len(run.spec.workloads) == 1
        assert run.spec.workloads[0].key == places()[0].workload.key
    assert not first.spec.protocol.isolated and second.spec.protocol.isolated
    owner.post("/leaderboard/confirm/", {"cell": cell})
    assert Run.objects.latest("pk") == second, "once is enough"


def test_confirm_an_unbeaten_baseline_with_all_that_were_compared(owner, measured):
    run = measured(count=1)
    others = Result.objects.filter(measurement__run=run).exclude(kernel__name="sdpa")
    others.update(speedup=0.5, speedup_low=0.49, speedup_high=0.51)
    noted(run)
    owner.post("/leaderboard/confirm/", {"cell": places()[0].cell})
    assert len(Run.objects.latest("pk").spec.kernels) > 3


def test_where_no_such_card_answers_there_is_no_button(owner, measured, gpu):
    noted(measured(count=1))
    gpu.seen_at = timezone.now() - timedelta(hours=1)
    gpu.save()
    assert "Confirm</button>" not in page_of(owner)
    before = Run.objects.count()
    page = owner.post("/leaderboard/confirm/", {"cell": places()[0].cell}, follow=True).content.decode()
    assert "No NVIDIA H200 is online. Nothing was queued." in page and Run.objects.count() == before
    assert owner.post("/leaderboard/confirm/", {"cell": "zork"}).status_code == 404


def test_a_submitted_kernel_is_confirmed_isolated_where_submissions_run(owner, measured, gpu):
    noted(measured(count=1))
    name = "triton-flash@" + "0" * 12
    Kernel.objects.filter(name="triton-flash").update(name=name)
    Gpu.objects.filter(pk=gpu.pk).update(no_submissions="its agent is not root")
    cell, before = places()[0].cell, Run.objects.count()
    page = owner.post("/leaderboard/confirm/", {"cell": cell}, follow=True).content.decode()
    assert "does not take submitted kernels: its agent is not root." in page and Run.objects.count() == before
    Gpu.objects.filter(pk=gpu.pk).update(no_submissions="")
    owner.post("/leaderboard/confirm/", {"cell": cell})
    run = Run.objects.latest("pk")
    assert run.spec.protocol.isolated and run.spec.protocol.processes == 5 and name in run.spec.kernels


def ended(run):
    return Run.objects.filter(pk=run.pk).update(state="failed")


def test_the_site_confirms_what_leads_on_idle_devices_and_tries_once(measured, demo, gpu, settings):
    noted(measured(count=2))
    assert confirm_leaders() == [], "only if it is asked to"
    settings.CONFIRM_LEADERS = True
    (run,) = confirm_leaders()
    assert (run.gpu, run.user, run.spec.protocol.processes) == (gpu, None, 5)
    assert confirm_leaders() == [], "the device is busy"
    asked = [run]
    while started := ended(asked[-1]) and confirm_leaders():
        asked += started
    assert len(asked) == 4, "two places, each in five processes and in five isolated ones"
    assert len({one.title for one in asked}) == 4, "what failed is not tried again"
    noted(measured(count=1, edit={"triton-flash": 1.2}))
    (third,) = confirm_leaders()
    assert third.title == run.title, "a newer result is another one"
    Run.objects.filter(pk=third.pk).update(state="failed")
    noted(measured(count=1, edit={"triton-flash": 1.3}))
    Gpu.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert confirm_leaders() == [], "nobody answers"


def test_no_more_than_twelve_queries(owner, demo, measured, django_assert_max_num_queries):
    thorough(measured(count=8))
    with django_assert_max_num_queries(12):
        page_of(owner)


def test_a_thousand_results_on_one_page(owner, demo, django_assert_max_num_queries):
    many(demo, 40)
    for one in Measurement.objects.select_related("run"):
        Newest.objects.note([one])
    assert Newest.objects.count() > 1000
    with django_assert_max_num_queries(12):
        page = page_of(owner)
    assert "shapes are not shown. Filter above, or download csv." in page and len(page) < 150_000
    assert len(owner.get("/leaderboard.json").json()["leaderboard"]) > 200


def test_the_migration_notes_what_is_stored(demo):
    before = set(Newest.objects.values_list("terms", "result", "workload", "confirmed"))
    Newest.objects.all().delete()
    import_module("runs.migrations.0031_the_newest_results").fill(apps, connection.schema_editor())
    assert set(Newest.objects.values_list("terms", "result", "workload", "confirmed")) == before
