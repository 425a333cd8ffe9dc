"""How much a run is and how long it takes, said before Run is pressed: from earlier measurements, else from its work."""

import re

import pytest
from cast import load, spec
from django.utils import timezone
from form import PAGE, asked

from kernels.catalog import operations
from kernels.parent.duration import guess, span
from kernels.protocol import EFFORTS, Protocol
from kernels.workload import Config as ConfigSpec
from kernels.workload import Workload
from runs.models import Calibration, Run
from runs.queries.estimates import estimate

QUIET_CPU = {"copy_gb_per_s": 30.0, "matmul_tflops": {"float32": 0.1}}
H200 = {"copy_gb_per_s": 4210.0, "matmul_tflops": {"float16": 768.0, "bfloat16": 781.0, "float32": 51.2}}


@pytest.fixture
def calibrated():
    """A device with measured ceilings."""

    def calibrate(gpu, ceilings):
        Calibration.objects.create(gpu=gpu, driver=gpu.driver, ceilings=ceilings, measured_at=timezone.now())
        return gpu

    return calibrate


def low_and_high(found):
    rest = found.seconds - found.guessed_s
    return rest + found.guessed_s / 2, rest + found.guessed_s * 2


def test_a_fresh_page_says_how_much_it_is(owner, gpu, configs):
    found = owner.get(PAGE).context["estimate"]
    kernels = len(configs["smoke"].spec.kernels)
    assert (found.workloads, found.results, found.unsupported) == (2, 2 * kernels, 0)
    assert found.source == "an estimate: no similar measurement on this device yet"


def test_it_says_how_much_is_chosen_and_how_long_it_takes(owner, typed):
    said = asked(owner, typed | {"batch": "1, 2, 4"})
    assert "<strong>6 results</strong> on 3 workloads, <strong>under a minute</strong>; an estimate" in said
    one = asked(owner, typed | {"batch": "1", "kernels": ["sdpa"]})
    assert "<strong>1 result</strong> on 1 workload, <strong>" in one


def test_what_cannot_run_there_is_counted_apart(owner, typed, cpu):
    said = asked(owner, typed | {"device": cpu.pk, "kernels": ["sdpa", "triton-flash", "sdpa-cudnn"]})
    assert "<strong>2 results</strong>" in said
    assert '2 kernels cannot run on this device: their results will say "unsupported".' in said


@pytest.mark.parametrize("dtype", operations()["gemm"].dtypes)
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_every_dtype_is_estimated(kind, dtype):
    """An estimate that failed would keep every run of its device in the queue."""
    workload = Workload(operation="gemm", dtype=dtype, sizes={"m": 512, "n": 512, "k": 512, "trans_b": True})
    timed, seconds = guess(workload, ["eager"], Protocol(), kind, H200 if kind == "cuda" else QUIET_CPU)
    assert timed and 0.1 < seconds < 200


def test_graphs_and_rests_take_their_time(gpu, calibrated):
    """A graph is captured anew in each of at least forty rounds; a GPU rests as long as it works."""
    calibrated(gpu, H200)
    large = {"batch": 16, "heads": 16, "seq_len": 2048, "head_dim": 128}

    def seconds(sizes, **protocol):
        plan = {"min_rounds": 20} | protocol
        return estimate(spec(workloads=[sizes], protocol=plan), gpu).guessed_s

    assert seconds(large, mode="graph") > 1.5 * seconds(large, mode="cold")
    assert seconds(large, mode="auto") == seconds(large, mode="cold")
    small = large | {"batch": 1, "seq_len": 128}
    assert seconds(small, mode="auto") == seconds(small, mode="graph") > seconds(small, mode="cold")
    assert seconds(large, mode="cold", rest=0) < seconds(large, mode="cold") < seconds(large, mode="cold", rest=2)


@pytest.mark.parametrize("isolated", [False, True])
def test_rounds_that_a_word_needs_count_also_above_the_budget(isolated):
    """A call takes about 0.3 s, and a round at least 1 s: eight of them take more than the budget of 3 s."""
    workload = Workload(operation="gemm", dtype="float32", sizes={"m": 2048, "n": 2048, "k": 2048})
    one_round, brief = (
        guess(workload, ["eager", "compiled"], Protocol(budget_s=budget_s, isolated=isolated), "cpu", QUIET_CPU)[1]
        for budget_s in (0.001, 3.0)
    )
    assert brief > one_round + 3.5


def test_a_fault_stands_where_the_estimate_would_be(owner, typed):
    assert "Batch (B): “x”: use whole numbers" in asked(owner, typed | {"batch": "x"})
    assert "Sequence length (S): enter one or more numbers." in asked(owner, typed | {"seq_len": ""})
    assert "These sizes make" in asked(owner, typed | {"seq_len": ",".join(map(str, range(1, 999)))})
    assert "Device: choose a device." in asked(owner, {})


def test_without_a_kernel_it_says_that_only_the_baseline_is_measured(owner, chosen):
    said = "Only the baseline is measured."
    assert said not in asked(owner, chosen | {"kernels": ["sdpa", "eager"]})
    assert said in asked(owner, chosen | {"kernels": ["sdpa"]})
    assert said in asked(owner, chosen | {"kernels": []})


def test_ticks_are_drawn_anew_only_when_the_device_or_the_config_changed(owner, chosen, configs):
    assert 'id="kernels"' not in asked(owner, chosen)
    by_device = asked(owner, chosen, changed="device")
    assert set(re.findall(r'value="([^"]+)" checked', by_device)) == {"sdpa", "eager"}
    by_config = asked(owner, chosen, changed="config")
    assert set(re.findall(r'value="([^"]+)" checked', by_config)) == set(configs["canonical-s512"].spec.kernels)
    assert "and 2 more" not in by_config
    assert "<li>fp16 B=8 H=16 S=512 D=64 causal</li>" in by_config


def test_what_was_measured_here_before_makes_a_better_estimate(exported, gpu, make_run):
    run = load(exported, "x.json")
    config = ConfigSpec(**exported["config"])
    assert estimate(config, gpu).known == 0, "measured elsewhere"
    Run.objects.filter(pk=run.pk).update(gpu=gpu)
    found = estimate(config, gpu)
    took = sum(m["took_s"] for m in exported["measurements"])
    assert (found.known, found.source) == (8, "from earlier measurements on this device")
    assert took < found.seconds < 2 * took
    quick = config.model_copy(update={"protocol": Protocol(**EFFORTS["quick"])})
    assert estimate(quick, gpu).known == 0, "measured with another effort"
    more = config.model_copy(update={"workloads": [*config.workloads, *spec().workloads]})
    assert estimate(more, gpu).source == "8 of 9 workloads were measured here before"
    fewer = config.model_copy(update={"kernels": config.kernels[:2]})
    assert estimate(fewer, gpu).seconds < 0.5 * found.seconds


def test_an_estimate_takes_two_queries_for_any_number_of_workloads(exported, gpu, django_assert_max_num_queries):
    load(exported, "x.json")
    with django_assert_max_num_queries(2):
        estimate(spec("eager", workloads=100), gpu)


# --- a guess from the work --------------------------------------------------------------------------------------------


def test_a_guess_grows_with_the_work(cpu, calibrated):
    calibrated(cpu, QUIET_CPU)
    small, large = (
        estimate(spec("eager", workloads=[{"batch": 1, "heads": 8, "head_dim": 64, "seq_len": s}]), cpu)
        for s in (128, 1024)
    )
    assert large.guessed_s > 20 * small.guessed_s
    assert estimate(spec(workloads=3), cpu).guessed_s > 2 * estimate(spec(workloads=1), cpu).guessed_s


@pytest.mark.parametrize("seq_len, heads, took_s", [(128, 4, 2.7), (512, 8, 53.9)])
def test_a_guess_holds_on_a_cpu(cpu, calibrated, configs, seq_len, heads, took_s):
    """Measured on two quiet cores: smoke with three kernels, canonical-s512 with four."""
    calibrated(cpu, QUIET_CPU)
    plan = configs["smoke" if seq_len == 128 else "canonical-s512"].spec.protocol
    names = ["sdpa-math", "eager"] + ["sdpa-efficient"] * (seq_len == 512)
    sizes = [{"batch": 1, "heads": heads, "seq_len": seq_len, "head_dim": 64}]
    found = estimate(spec(*names, workloads=sizes, protocol=plan), cpu)
    low, high = low_and_high(found)
    assert low < took_s + found.seconds - found.guessed_s < high


def test_a_guess_holds_on_an_h200(exported, gpu, calibrated):
    calibrated(gpu, H200)
    low, high = low_and_high(estimate(ConfigSpec(**exported["config"]), gpu))
    assert low < sum(m["took_s"] for m in exported["measurements"]) < high


def test_without_ceilings_a_device_is_taken_for_a_small_one(cpu, gpu, calibrated):
    before = estimate(spec("eager", workloads=4), cpu).seconds
    assert before > estimate(spec("eager", workloads=4), calibrated(cpu, QUIET_CPU)).seconds
    calibrated(gpu, {"empty_us": {"cold": 2.0}})
    assert estimate(spec("eager"), gpu).seconds > 0, "ceilings that say nothing of products and copies"


def test_what_cannot_be_checked_in_time_is_not_taken_for_a_week(cpu):
    """A first call has 300 s, a check has 120 s, whatever the work."""
    sizes = [{"batch": 64, "heads": 96, "seq_len": 65536, "head_dim": 128}]
    found = estimate(spec("eager", workloads=sizes), cpu)
    assert (found.guessed_s, found.stopped) == (2 * 300, 1)
    fewer = estimate(spec("eager", workloads=[sizes[0] | {"seq_len": 512}]), cpu)
    assert 2 * 120 < fewer.guessed_s < 2 * 300
    assert fewer.stopped == 1


def test_a_run_that_is_250_times_larger_gets_another_estimate(gpu, calibrated):
    calibrated(gpu, H200)
    sizes = {"batch": 16, "heads": 96, "head_dim": 128}
    found = {s: estimate(spec("eager", workloads=[sizes | {"seq_len": s}]), gpu) for s in (4096, 16384, 65536)}
    assert found[4096].guessed_s < found[16384].guessed_s < found[65536].guessed_s
    assert [found[s].stopped for s in found] == [0, 0, 0]
    small = estimate(spec("eager", workloads=[sizes | {"seq_len": 256}]), gpu)
    assert small.guessed_s < 0.2 * found[4096].guessed_s


def test_a_workload_that_will_not_be_timed_is_said_before_run_is_pressed(owner, typed, gpu):
    said = asked(owner, typed | {"batch": "1, 16", "heads": "96", "seq_len": "65536", "head_dim": "128"})
    assert "On 1 workload a check needs longer than its limit of 2 min: nothing would be timed there." in said
    assert "nothing would be timed" not in asked(owner, typed)


def test_the_protocol_counts(gpu):
    long = estimate(spec("eager", protocol={"mode": "sustained"}), gpu).guessed_s
    assert long > 30 > estimate(spec("eager"), gpu).guessed_s
    few, many = (estimate(spec("eager", protocol={"name": "fixed", "iters": n}), gpu).guessed_s for n in (500, 100_000))
    assert many > few


def test_an_estimate_without_a_device_is_for_a_small_cpu(db):
    assert estimate(spec("eager"), None).seconds > 3


@pytest.mark.parametrize(
    "low_s, high_s, said",
    [
        (1, 20, "under a minute"),
        (10, 70, "up to 2 min"),
        (60, 240, "1 to 4 min"),
        (2400, 9600, "40 min to 3 h"),
        (7200, 28800, "2 to 8 h"),
    ],
)
def test_a_guess_is_said_without_seconds(low_s, high_s, said):
    assert span(low_s, high_s) == said


def test_a_known_time_is_said_as_one(owner, exported, gpu, configs):
    run = load(exported, "x.json")
    Run.objects.filter(pk=run.pk).update(gpu=gpu)
    page = owner.get(PAGE, {"again": run.pk}).content.decode()
    said = page[page.index('id="estimate"') :]
    assert re.search(r"on 8 workloads, about <strong>\d+ (s|min[^<]*)</strong>; from earlier", said)
