"""The page of one result: what it is, what speaks for and against it, whether it is right, the source that was measured."""

import csv
import html
import io
import re

import pytest
from cast import load, shortened
from django.urls import reverse

from kernels.contract.arm_result import Correctness, CrossCheck, Spread
from kernels.contract.events import ProtocolFacts, TelemetrySummary
from runs.models import Measurement, Result, Run
from runs.queries import measurements
from runs.templatetags.figures import grouped
from runs.views import correctness
from runs.views.result import energy
from runs.views.result_protocol import protocol_of, telemetry_of


def page_of(client, result):
    answer = client.get(reverse("result", args=[result.measurement.run_id, result.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def text_of(page):
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def measured_of(result, **changes):
    """The measurement of a result as pages have it, with other facts."""
    _, measured, _ = measurements.of_result(result.measurement.run_id, result.pk)
    return measured.model_copy(update=changes)


def change(result, **fields):
    Result.objects.filter(pk=result.pk).update(**fields)


@pytest.fixture
def results(demo):
    """Of the first workload, by kernel."""
    found = Result.objects.filter(measurement=demo.measurements.first()).select_related("kernel", "measurement")
    return {result.kernel.name: result for result in found}


def test_a_compared_kernel_has_its_word_interval_and_statistics(owner, results):
    result = results["sdpa-flash"]
    page = page_of(owner, result)
    assert f"<h1>sdpa-flash on {result.measurement.workload.label}</h1>" in page
    said = f"{result.speedup:.3f}x the speed of sdpa, interval {result.speedup_low:.3f} to"
    assert said in re.sub("<[^>]*>", "", page)
    assert f"mode graph, n = {result.n} in {result.rounds} rounds" in page
    for heading in ("p50", "mean", "std", "p99", "IQR / median", "outliers"):
        assert f"<th>{heading}</th>" in page
    assert "Speed of light" in page
    assert "flash_fwd" in page, "what one call ran"
    assert "<dt>relative Frobenius error</dt><dd>2.7e-4; eager PyTorch 5.5e-4</dd>" in page
    assert "inputs unchanged; a new output for each call; complete when the call returns" in page


@pytest.mark.parametrize(
    "size, said",
    [
        (None, "over 100 rounds."),
        (95.0, "over 100 rounds."),
        (23.6, "over 100 correlated rounds, which count as 24 independent rounds."),
    ],
)
def test_correlated_rounds_are_said_to_be(owner, results, size, said):
    change(results["triton-flash"], effective_sample_size=size)
    assert said in text_of(page_of(owner, results["triton-flash"]))


@pytest.mark.parametrize("rounds, said", [(7, "range"), (8, "interval")])
def test_the_ends_of_a_p50_from_few_rounds_are_no_interval(owner, results, rounds, said):
    change(results["sdpa"], rounds=rounds)
    assert f"p50 {said} mean" in text_of(page_of(owner, results["sdpa"]))


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
        status="crashed", why="timing: killed by <SIGSEGV>", log="last <line>", n=None, speedup=None,
        correctness=None, ran=[], version=None,
    )  # fmt: skip
    page = page_of(owner, result)
    assert "timing: killed by &lt;SIGSEGV&gt;" in page
    assert "last &lt;line&gt;" in page
    for missing in ("Time per call", "<h2>Correctness</h2>", "Source as measured", "What one call ran"):
        assert missing not in page


def test_every_result_of_the_sample_has_a_page(owner, demo):
    for result in Result.objects.filter(measurement__run=demo):
        page_of(owner, result)


def test_a_result_is_found_in_its_own_run_only(owner, demo, make_run, results):
    other = make_run()
    assert owner.get(reverse("result", args=[other.pk, results["eager"].pk])).status_code == 404
    assert owner.get(reverse("result", args=[demo.pk, 10**9])).status_code == 404


def test_it_takes_five_queries(owner, results, django_assert_max_num_queries):
    with django_assert_max_num_queries(5):  # session, user, the result with its kin, the baseline's, the others' names
        page_of(owner, results["sdpa-flash"])


# --- how its samples are spread ---------------------------------------------------------------------------------------


def test_the_samples_are_drawn_with_scripts_and_without(owner, results):
    result = results["triton-flash"]
    page = page_of(owner, result)
    for name in ("samples", "rounds"):
        svg = reverse("result_chart_svg", args=[result.measurement.run_id, result.pk, name])
        assert f'data-chart="{svg.removesuffix("svg")}json" data-narrow' in page
        assert f'<img src="{svg}?theme=light"' in page
        for asked in ("theme=dark", "theme=dark&amp;narrow", "theme=light&amp;narrow"):
            assert f'srcset="{svg}?{asked}"' in page
            assert owner.get(html.unescape(f"{svg}?{asked}")).status_code == 200
    assert "vendor/vega.js" in page
    assert "Samples of sdpa, median 9.92 µs and triton-flash, median 6.70 µs" in page
    assert "Thin lines: one for each sample." in page


def test_under_the_picture_stands_what_it_does_not_show(owner, results):
    spread = [10_000.0, 10_100.0, 9_900.0, 10_200.0, 9_800.0]
    change(results["triton-flash"], samples_ns=[spread] * 99 + [[10_000.0, 10_100.0, 9_900.0, 10_200.0, 5e6]])
    page = page_of(owner, results["triton-flash"])
    assert "300 of 500 samples of triton-flash, evenly spaced by rank, and every sample of the other." in page
    assert "1 sample of triton-flash lies beyond the axis, up to 5,000 us." in page


def test_without_samples_there_is_no_picture(owner, results):
    change(results["triton-flash"], samples_ns=None)
    page = page_of(owner, results["triton-flash"])
    assert "data-chart" not in page
    assert "csv of all samples" not in page
    assert "Time per call" in page


# --- what else was seen -----------------------------------------------------------------------------------------------

COLD = {"n": 200, "p50_ms": 0.0123, "p90_ms": 0.0145, "p95_ms": 0.0155, "p99_ms": 0.0191}
CLOCK = {"median": 1980, "min": 1905, "max": 1980, "n": 120}
CHECK = {
    "event_ns": 9_870.0,
    "span_ns": 9_110.0,
    "wall_ns": 10_400.0,
    "calls": 28846,
    "joules": 0.00312,
    "agrees": True,
}


@pytest.fixture
def unseen(results):
    """The same, of an agent without single calls, clocks, a cross-check and inputs other than N(0, 1)."""
    for result in results.values():
        known = {
            key: value for key, value in (result.correctness or {}).items() if key not in ("distributions", "edges")
        }
        change(result, cold=None, sm_mhz=None, crosscheck=None, correctness=known)
    return results


def test_what_was_not_seen_is_not_mentioned(owner, unseen):
    page = page_of(owner, unseen["triton-flash"])
    for missing in (
        "cold inputs",
        "SM clock in front",
        "Cross-check in a separate process",
        "repeated because",
        ">inputs</th>",
        ">size</th>",
    ):
        assert missing not in page, missing


def test_single_calls_on_cold_inputs_stand_beside_the_baselines_with_n(owner, unseen):
    change(unseen["triton-flash"], cold=COLD)
    text = text_of(page_of(owner, unseen["triton-flash"]))
    assert (
        "Single calls on cold inputs, microseconds kernel p50 p90 p95 p99 n triton-flash 12.3 14.5 15.5 19.1 200"
        in text
    )
    assert "The samples above are graph replays, which hide the spread of single launches." in text
    assert "cold inputs" not in page_of(owner, unseen["sdpa"])
    change(unseen["sdpa"], cold=COLD | {"p50_ms": 0.0111, "n": 100})
    text = text_of(page_of(owner, unseen["triton-flash"]))
    assert "n sdpa 11.1 14.5 15.5 19.1 100 triton-flash 12.3" in text


def test_clocks_that_differ_are_a_warning(owner, results):
    change(results["sdpa"], sm_mhz=CLOCK)
    change(results["triton-flash"], sm_mhz=CLOCK | {"median": 1935, "n": 60})
    text = text_of(page_of(owner, results["triton-flash"]))
    assert "median min max n sdpa 1,980 1,905 1,980 120 triton-flash 1,935 1,905 1,980 60" in text
    clocks = "The SM clock was 1,935 MHz for triton-flash and 1,980 MHz for sdpa, 2.3% apart"
    assert results["triton-flash"].speedup > 1 and f"{clocks}: at equal clocks the difference might be larger." in text
    figures = {name: getattr(results["triton-flash"], name) for name in ("speedup", "speedup_low", "speedup_high")}
    change(results["triton-flash"], speedup=0.8, speedup_low=0.79, speedup_high=0.81)
    text = text_of(page_of(owner, results["triton-flash"]))
    assert f"{clocks}: it may explain part of the difference." in text, "it is slower at the lower clock"
    change(results["triton-flash"], **figures)
    assert "The SM clock was" not in text_of(page_of(owner, results["sdpa"])), "the baseline is compared with nothing"
    for alike in (1942, 1980, 2019):
        change(results["triton-flash"], sm_mhz=CLOCK | {"median": alike})
        assert "The SM clock was" not in page_of(owner, results["triton-flash"]), alike
    change(results["triton-flash"], sm_mhz=CLOCK | {"median": 2025})
    assert "2.3% apart" in page_of(owner, results["triton-flash"])


def test_the_cross_check_stands_beside_the_baselines(owner, results):
    change(results["sdpa"], crosscheck=CHECK)
    change(results["triton-flash"], crosscheck=CHECK | {"event_ns": 6_700.0, "joules": 0.0000021, "agrees": None})
    text = text_of(page_of(owner, results["triton-flash"]))
    assert "Cross-check in a separate process, per call sdpa triton-flash" in text
    assert "event time, µs 9.87 6.70" in text
    assert "profiler's kernel span, µs 9.11 9.11" in text
    assert "event and span agree yes not known" in text
    assert "back to back, µs 10.4 10.4 calls in its batch 28,846 28,846" in text
    assert "board energy 3.12 mJ 2.10 µJ" in text
    assert "differ by more than the limit" not in text


def test_a_cross_check_that_disagrees_is_a_warning(owner, unseen):
    change(unseen["triton-flash"], crosscheck=CHECK | {"event_ns": 40_000.0, "span_ns": 20_000.0, "agrees": False})
    text = text_of(page_of(owner, unseen["triton-flash"]))
    assert "event time 40.0 µs and profiler span 20.0 µs differ by more than the limit" in text
    assert "event and span agree no" in text


def test_a_time_that_holds_only_after_a_rest_says_so(owner, results):
    result = results["triton-flash"]
    change(result, p50_ms=20.0, crosscheck=CHECK | {"wall_ns": 23.8e6, "host_bound": False})
    Measurement.objects.filter(pk=result.measurement_id).update(mode="cold")
    assert "Back to back, a call takes 19% longer, probably because the clock falls under continuous load" in text_of(
        page_of(owner, result)
    )
    for mode, wall_ns in (("cold", 20.9e6), ("sustained", 23.8e6)):
        change(result, crosscheck=CHECK | {"wall_ns": wall_ns, "host_bound": False})
        Measurement.objects.filter(pk=result.measurement_id).update(mode=mode)
        assert "Back to back" not in text_of(page_of(owner, result))


def test_a_cross_check_shows_what_it_has(owner, unseen):
    nothing = dict.fromkeys(("event_ns", "span_ns", "wall_ns", "calls", "joules", "agrees"))
    change(unseen["triton-flash"], crosscheck=nothing | {"wall_ns": 10_400.0, "calls": 7})
    text = text_of(page_of(owner, unseen["triton-flash"]))
    assert "per call triton-flash event and span agree not known back to back, µs 10.4 calls in its batch 7" in text
    for missing in ("event time, us", "kernel span, us", "energy"):
        assert missing not in text


@pytest.mark.parametrize(
    "joules, said",
    [(12.34, "12.3 J"), (1.0, "1.00 J"), (0.5, "500 mJ"), (0.0012, "1.20 mJ"), (3.4e-5, "34.0 µJ"), (None, "")],
)
def test_energy_has_the_unit_that_suits_it(joules, said):
    assert energy(joules) == said


# --- how it was measured ----------------------------------------------------------------------------------------------


def test_how_it_was_measured_is_told(owner, results):
    measurement = results["triton-flash"].measurement
    measurement.protocol["repeated"] = 3
    measurement.telemetry["throttled"] = ["SwThermalSlowdown"]
    measurement.margin = 0.023
    measurement.notes = ["precision not reached: half-width 0.92%; goal 0.50%"]
    measurement.save()
    text = text_of(page_of(owner, results["triton-flash"]))
    for said in (
        "rounds 100; 3 more were repeated because of thermal slow-down",
        "inputs 128 sets of inputs L2 evicted before calls yes, by reading memory",
        "A/A 0.998, interval 0.994 to 1.000: sdpa against itself",
        "margin FASTER and SLOWER need a difference above 2.3%, SAME is within 1%",
        "SM clock 1,980 MHz, from 345 to 1,980 power 127 W, from 79 to 171 temperature 37 °C, from 35 to 41",
        "throttled by thermal slow-down by the driver readings 1,913",
        "precision not reached: half-width 0.92%; goal 0.50%",
        "A/A of sdpa was noisy here: FASTER and SLOWER need a difference above 2.3%, SAME is within 1%.",
        "The GPU was throttled during this measurement: thermal slow-down by the driver.",
    ):
        assert said in text, said


def test_what_is_not_known_of_the_measurement_is_left_out(results):
    measured = measured_of(results["triton-flash"], protocol=ProtocolFacts(), aa=None, took_s=None, margin=0.01)
    assert protocol_of(measured) == [("margin", "FASTER and SLOWER need a difference above 1.0%, SAME is within 1%")]
    assert telemetry_of(TelemetrySummary()) == telemetry_of(TelemetrySummary(samples=0)) == []
    steady = Spread(median=1980, min=1980, max=1980)
    assert telemetry_of(TelemetrySummary(samples=5, sm_mhz=steady)) == [
        ("SM clock", "1,980 MHz, steady"), ("readings", "5"),
    ]  # fmt: skip
    how = ProtocolFacts(paired=False, sets=1, covered=True, flushed=True, rounds=500, repeated=0)
    assert protocol_of(measured.model_copy(update={"protocol": how}))[:4] == [
        ("protocol", "fixed, one kernel after the other"), ("rounds", "500"), ("inputs", "1 set of inputs"),
        ("L2 evicted before calls", "yes, by reading memory"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "mode, rest, said",
    [
        ("cold", 1.0, "before each block, the block's length, at most 250 ms"),
        ("graph", 0.5, "before each block, 0.5 times the block's length, at most 250 ms"),
        ("cold", 0.0, "none (back to back)"),
        ("sustained", 0.0, None),
        ("cpu", 0.0, None),
    ],
)
def test_a_result_says_how_the_device_rested(results, mode, rest, said):
    how = ProtocolFacts(paired=True, rest=rest)
    assert dict(protocol_of(measured_of(results["triton-flash"], mode=mode, protocol=how))).get("rests") == said


def test_a_quiet_measurement_raises_no_doubt(owner, demo):
    quiet = next(m for m in demo.measurements.all() if m.margin == 0.01 and not m.telemetry.get("throttled"))
    for result in quiet.results.all():
        assert "Caveats" not in page_of(owner, result)
    Run.objects.filter(pk=demo.pk).update(contended=True)
    assert "Another process was on the GPU during this run." in page_of(owner, quiet.results.first())


def test_a_kernel_that_left_says_when(owner, results):
    assert "Its measurement stopped after round 5, because it was far slower." in page_of(owner, results["eager"])
    assert "left after round" not in page_of(owner, results["triton-flash"])


def test_other_inputs_and_edges_have_tables_of_their_own(owner, results):
    result = results["triton-flash"]
    more = {
        "distributions": {"x30": "wrong: 14 times too far", "outliers": "not judged: <too large>", "normal": "right"},
        "edges": {"S=63": "right", "S=1000": "incorrect: NaN", "S=1": "unsupported: needs 16 rows"},
    }
    change(result, correctness=result.correctness | more)
    page = page_of(owner, result)
    text = text_of(page)
    assert "inputs answer normal right outliers not judged: <too large> x30 wrong: 14 times too far" in text
    assert "size answer S=1 unsupported: needs 16 rows S=63 right S=1000 incorrect: NaN" in text
    assert re.findall(r'wide warn">([^<]*)<', page) == ["wrong: 14 times too far", "incorrect: NaN"]
    assert "<dt>distributions</dt>" not in page
    assert "<dt>edges</dt>" not in page
    assert "<dt>relative Frobenius error</dt>" in page


def test_a_systematic_error_and_the_kind_of_products_are_said(owner, results):
    result = results["triton-flash"]
    for slope, its_error, said in (
        (-3.2e-5, 9e-6, "0.0032% too small, standard error 0.00090%"),
        (5e-7, 8.7e-7, "none seen, standard error 0.000087%"),
        (0.0, 0.0, "none seen, standard error 0%"),
        (0.011, 1e-3, "1.1% too large, standard error 0.10%"),
    ):
        change(
            result,
            correctness=result.correctness | {"slope": slope, "slope_error": its_error, "precision": "as float32"},
        )
        text = text_of(page_of(owner, result))
        assert f"systematic error {said}" in text
    assert "products as float32" in text


# --- the same in other forms ------------------------------------------------------------------------------------------


def test_csv_has_every_raw_sample(owner, results):
    result = results["triton-flash"]
    change(result, samples_ns=[[10.5, 11.0], [12.25]])
    answer = owner.get(reverse("result_csv", args=[result.measurement.run_id, result.pk]))
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    name = f"run-{result.measurement.run_id}-result-{result.pk}.csv"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    assert answer.content.decode() == "round,position,ns\n1,1,10.5\n1,2,11.0\n2,1,12.25\n"
    assert answer.request["PATH_INFO"] in page_of(owner, result)


def test_csv_and_statistics_are_of_the_same_samples(owner, results):
    result = results["sdpa-flash"]
    answer = owner.get(reverse("result_csv", args=[result.measurement.run_id, result.pk]))
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert len(rows) == result.n
    assert len({row["round"] for row in rows}) == result.rounds
    assert max(float(row["ns"]) for row in rows) == pytest.approx(1e6 * result.max_ms, abs=0.1)


def test_csv_of_what_was_not_timed_has_no_rows(owner, results):
    change(results["eager"], samples_ns=None)
    answer = owner.get(reverse("result_csv", args=[results["eager"].measurement.run_id, results["eager"].pk]))
    assert answer.content.decode() == "round,position,ns\n"


def test_json_has_everything_of_this_result_and_its_measurement(owner, exported, db):
    run = load(shortened(exported, 1), "x.json")
    (theirs,) = shortened(exported, 1)["measurements"]
    result = Result.objects.get(measurement__run=run, kernel__name="triton-flash")
    change(result, cold=COLD, sm_mhz=CLOCK, crosscheck=CHECK)
    data = owner.get(reverse("result_json", args=[run.pk, result.pk])).json()
    assert (data["run"], data["fingerprint"]) == (run.pk, exported["fingerprint"])
    wanted = next(r for r in theirs["results"] if r["kernel"] == "triton-flash")
    check = CrossCheck.model_validate(CHECK).model_dump()
    assert data["result"] == wanted | {"cold": COLD, "sm_mhz": CLOCK, "crosscheck": check, "verdict": "FASTER"}
    own = {name: value for name, value in theirs.items() if name not in ("results", "kind")}
    assert {name: data["measurement"][name] for name in own} == own
    assert "results" not in data["measurement"]


def test_a_result_without_times_has_its_json_all_the_same(owner, results):
    result = results["eager"]
    change(result, status="crashed", n=None, samples_ns=None, speedup=None)
    address = reverse("result_json", args=[result.measurement.run_id, result.pk])
    assert f'href="{address}"' in page_of(owner, result)
    assert owner.get(address).json()["result"]["status"] == "crashed"


@pytest.mark.parametrize("kind", ("csv", "json"))
def test_files_are_found_in_their_own_run_only(owner, make_run, results, kind):
    assert owner.get(reverse(f"result_{kind}", args=[make_run().pk, results["eager"].pk])).status_code == 404


def test_what_was_found_wrong_stands_apart_from_what_was_found_good():
    wrong = Correctness(correct=False, why="the kernel changed its inputs", inputs_changed=True, late=False)
    assert dict(correctness.facts(wrong)) == {
        "correct": "no", "why not": "the kernel changed its inputs", "passed": "complete when the call returns",
        "not passed": "the kernel changed its inputs",
    }  # fmt: skip
    assert correctness.facts(None) == []


def test_the_other_kernels_of_the_workload_are_a_click_away(owner, results):
    page = page_of(owner, results["sdpa-flash"])
    for name, other in results.items():
        if name != "sdpa-flash":
            assert f'href="/runs/{other.measurement.run_id}/results/{other.pk}/">{name}</a>' in page


def test_only_what_a_device_of_this_site_measured_can_be_confirmed(owner, results, gpu):
    one = next(one for one in results.values() if "Unconfirmed: " in text_of(page_of(owner, one)))
    assert "Confirm it" not in page_of(owner, one), "a demo run: the form would offer no device"
    Run.objects.filter(pk=one.measurement.run_id).update(demo="", gpu=gpu)
    assert "Confirm it" in page_of(owner, type(one).objects.get(pk=one.pk))


def test_confirm_measures_this_kernel_on_this_workload_and_its_baseline(owner, results, gpu):
    """It repeated the whole run: every kernel on every workload."""
    one = next(one for one in results.values() if "Unconfirmed: " in text_of(page_of(owner, one)))
    Run.objects.filter(pk=one.measurement.run_id).update(demo="", gpu=gpu)
    run = Run.objects.get(pk=one.measurement.run_id)
    assert len(run.spec.workloads) > 1 and len(run.spec.kernels) > 2
    page = page_of(owner, type(one).objects.get(pk=one.pk))
    address = html.unescape(re.search(r'href="([^"]*)">Confirm it', page)[1])
    form = owner.get(address).context["form"]
    assert form["title"].value() == f"Confirm {one.kernel.name} on {one.measurement.workload.label}"
    assert form["kernels"].value() == [run.spec.baseline, one.kernel.name] and form["what"].value() == "workload"
    assert form["effort"].value() == "thorough"
    workload = one.measurement.workload
    assert form["dtype"].value() == [workload.dtype] and form["seq_len"].value() == str(workload.sizes["seq_len"])
    whole = owner.get(f"{reverse('new_run')}?again={run.pk}&kernel=nosuch&workload={workload.key}").context["form"]
    assert whole["kernels"].value() == run.spec.kernels


def test_a_ratio_of_a_busy_device_is_not_bold(owner, results):
    def verdict():
        said = page_of(owner, one)
        return said[said.index('<p class="verdict">') :].split("</p>")[0]

    one = next(one for one in results.values() if "Unconfirmed: " in text_of(page_of(owner, one)))
    assert "<strong" in verdict()
    Run.objects.filter(pk=one.measurement.run_id).update(contended=True)
    assert "x the speed of" in verdict() and "<strong" not in verdict()


def test_a_margin_so_wide_that_nothing_is_the_same_says_so(owner, results):
    measurement = results["sdpa-flash"].measurement
    measurement.margin = 2.26
    measurement.save()
    text = text_of(page_of(owner, results["sdpa-flash"]))
    assert "Undecided: the margin is above 100%." in text
    assert "margin above 100%: undecided above 5%" in text
    assert "undecided" in text and "faster" not in text.split("Time per call")[0].lower()


def test_the_registers_that_triton_reports_are_shown(owner, demo):
    flash = Result.objects.filter(kernel__name="triton-flash", n__isnull=False).first()
    assert "Registers per thread" not in page_of(owner, flash)
    Result.objects.filter(pk=flash.pk).update(registers=220)
    assert "Registers per thread: 220." in page_of(owner, flash)


def test_what_a_launch_takes_is_shown_and_what_the_compiler_said(owner, demo):
    flash = Result.objects.filter(kernel__name="triton-flash", n__isnull=False).first()
    taken = {"local_bytes": 0, "static_shared_bytes": 16, "dynamic_shared_bytes": 56_832, "occupancy": 0.125}
    Result.objects.filter(pk=flash.pk).update(registers=220, grid="64 x 2 x 1", block="256 x 1 x 1", **taken)
    page = text_of(page_of(owner, flash))
    assert "Local memory per thread: none, no spills." in page
    assert "Shared memory per block: 16 bytes static, 56,832 dynamic." in page
    assert "Grid 64 x 2 x 1, block 256 x 1 x 1. Theoretical occupancy: 12.5%." in page
    Result.objects.filter(pk=flash.pk).update(local_bytes=1200, log="mine.cu(9): warning #177-D")
    page = text_of(page_of(owner, flash))
    assert "Local memory per thread: 1,200 bytes (spilled registers)." in page
    assert "mine.cu(9): warning #177-D" in page


def test_settings_are_shown_with_where_they_come_from(owner, demo):
    flash = Result.objects.filter(kernel__name="triton-flash", n__isnull=False).first()
    assert "It ran with" not in page_of(owner, flash)
    here = {"settings": "rows=2+warps=4", "tuned": "tuned for NVIDIA H200 on 2026-11-20 with Triton 3.6.0"}
    Result.objects.filter(pk=flash.pk).update(**here)
    page = page_of(owner, flash)
    assert "It ran with <code>rows=2+warps=4</code>, tuned for NVIDIA H200 on 2026-11-20 with Triton 3.6.0." in page
    elsewhere = "tuned for NVIDIA H100 on 2026-11-20, not for this card (NVIDIA H200)"
    Result.objects.filter(pk=flash.pk).update(tuned=elsewhere)
    assert f'<span class="warn">{elsewhere}</span>' in page_of(owner, flash)


# --- what a rate and a memory count -----------------------------------------------------------------------------------


def arms_on(run, **sizes):
    found = Result.objects.filter(measurement__run=run, kernel__name="sdpa").select_related("measurement__workload")
    return next(r for r in found if sizes.items() <= r.measurement.workload.sizes.items())


def test_a_causal_rate_says_that_only_unmasked_work_is_counted(owner, demo):
    result = arms_on(demo, causal=True, batch=8)
    page = text_of(page_of(owner, result))
    factor = 2 * 512 / 513
    assert (
        f"{grouped(result.tflops)} TFLOP/s of unmasked work (dense-equivalent {grouped(result.tflops * factor)})"
        in page
    )
    whole = arms_on(demo, causal=False, seq_len=4096)
    assert "unmasked" not in text_of(page_of(owner, whole))
    table = text_of(owner.get(reverse("run", args=[demo.pk])).content.decode())
    assert f"{grouped(result.tflops)} dense {grouped(result.tflops * factor)}" in table


def test_memory_says_what_it_counts(owner, demo):
    """A report gives 6.00 GB for this workload: inputs, too."""
    result = arms_on(demo, seq_len=4096, head_dim=128)
    Result.objects.filter(pk=result.pk).update(peak_memory_bytes=3 * 2**29)
    assert (
        "Memory: inputs 4.5 GiB, output 1.5 GiB. Peak during a call: 1.5 GiB above the inputs (output and "
        "workspace), 6 GiB in all."
    ) in text_of(page_of(owner, result))
    Result.objects.filter(pk=result.pk).update(peak_memory_bytes=None)
    assert "Memory: inputs 4.5 GiB, output 1.5 GiB. " in text_of(page_of(owner, result))
