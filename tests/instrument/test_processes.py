import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from kernels.analysis.processes import (
    MEASURED,
    ProcessSpread,
    Z,
    pooled,
    rounds_for_many,
    spread_between,
    spread_of,
    t_quantile,
    with_process,
)
from kernels.analysis.statistics import change, for_many, margin_from, word
from kernels.contract.arm_result import Ratio
from kernels.contract.export import read_export
from kernels.parent.reading import Reading, joined, of_one_baseline
from kernels.parent.results import reading_fields, speedup

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = json.loads((ROOT / "docs/measurements/evidence-h200-2026-11-21.json").read_text())
H100 = "NVIDIA H100 80GB HBM3"
ON_H100 = [
    json.loads(path.read_text()) for path in sorted((ROOT / "docs/measurements").glob("evidence-h100-of-two-*.json"))
]
HELD_OUT = [
    json.loads(path.read_text()) for path in sorted((ROOT / "docs/measurements").glob("evidence-h100-held-out-*.json"))
]
"""Two other H100s; their intervals have the H100's spread in them."""
OTHER = json.loads((ROOT / "docs/measurements/evidence-of-another-h200-2026-11-23.json").read_text())
SPREAD = ProcessSpread(0.001, 9, "a test")
XEON = "Intel(R) Xeon(R) Processor"
ON_CPU = json.loads((ROOT / "docs/measurements/evidence-cpu-xeon-2026-11-25.json").read_text())
"""Its intervals have the spread of an H100's single calls in them."""


def by_workload(evidence=EVIDENCE):
    """(mode, ratios of the processes, with intervals from rounds alone) of each workload of an evidence file."""
    keys = dict.fromkeys(key for process in evidence["pairs"] for key in process["workloads"])
    for key in keys:
        rows = [process["workloads"][key] for process in evidence["pairs"] if key in process["workloads"]]
        other = "eager" if evidence is ON_CPU else "triton-flash"
        told = [Ratio(*(r["speedup"][other][k] for k in ("ratio", "low", "high"))) for r in rows]
        mode = rows[0]["mode"]
        device = H100 if any(evidence is one for one in [*HELD_OUT, ON_CPU]) else "NVIDIA H200"
        its_mode = "cold" if evidence is ON_CPU else mode
        yield mode, told if evidence is EVIDENCE else [of_rounds(ratio, device, its_mode) for ratio in told]


def of_rounds(ratio, device, mode):
    """Without the spread of a device, which the interval has in it."""
    process = Z * MEASURED[device, mode].sd
    low, high = (
        math.sqrt(max(0.0, math.log(a / b) ** 2 - process**2))
        for a, b in ((ratio.ratio, ratio.low), (ratio.high, ratio.ratio))
    )
    return Ratio(ratio.ratio, ratio.ratio * math.exp(-low), ratio.ratio * math.exp(high))


@pytest.mark.parametrize("mode", ["graph", "cold"])
@pytest.mark.parametrize("device, evidence", [("NVIDIA H200", EVIDENCE), (H100, ON_H100[-1])])
def test_the_assumed_spread_is_the_largest_of_the_committed_evidence(device, evidence, mode):
    assert evidence["environment"]["device"] == device
    largest = max(spread_between(ratios) for its_mode, ratios in by_workload(evidence) if its_mode == mode)
    assert MEASURED[device, mode].sd == math.ceil(largest * 1e4) / 1e4


@pytest.mark.parametrize(
    "device, files, least, within",
    [
        ("NVIDIA H200", [EVIDENCE], 400, 0.98),
        (H100, ON_H100[:2], 40, 1.0),
        (H100, ON_H100[2:], 210, 1.0),
        (H100, HELD_OUT, 1002, 0.98),
    ],
    ids=["the H200 it was fitted to", "other H100s", "the H100 it was fitted to", "two more H100s"],
)
def test_two_processes_of_one_kernel_agree_as_often_as_the_interval_says(device, files, least, within):
    contained = total = without = 0
    for mode, ratios in [one for file in files for one in by_workload(file)]:
        whole = [pooled([ratio], spread_of(device, mode)).ratio for ratio in ratios]
        for a in range(len(ratios)):
            for b in range(a):
                total += 1
                contained += change(whole[a], whole[b])[1] <= 1 <= change(whole[a], whole[b])[2]
                without += change(ratios[a], ratios[b])[1] <= 1 <= change(ratios[a], ratios[b])[2]
    assert total >= least
    assert contained / total >= within
    assert without < contained, "intervals of rounds alone miss some"


def test_on_two_more_h100s_no_word_is_false_and_their_own_spread_is_known():
    processes = [process["workloads"] for file in HELD_OUT for process in file["pairs"]]
    rows = [row for process in processes for row in process.values()]
    words = [word(row["aa"][1], row["aa"][2], margin_from(row["aa"]), row["rounds"]) for row in rows]
    assert len(rows) == 216 and not {"FASTER", "SLOWER"} & set(words)
    assert sum(not row["aa"][1] <= 1 <= row["aa"][2] for row in rows) == 1
    counts = [0, 0, 0]
    for mode, ratios in [one for file in HELD_OUT for one in by_workload(file)]:
        whole = [[pooled([r], spread_of(device, mode)).ratio for r in ratios] for device in (H100, "NVIDIA H200")]
        pairs = [(a, b) for a in range(len(ratios)) for b in range(a)]
        inside = [sum(c[1] <= 1 <= c[2] for c in (change(w[a], w[b]) for a, b in pairs)) for w in whole]
        counts = [sum(one) for one in zip(counts, (len(pairs), *inside), strict=True)]
    assert counts == [1002, 998, 940]


def test_the_spread_of_an_h200_is_too_small_for_an_h100():
    contained = total = 0
    for mode, ratios in by_workload(ON_H100[-1]):
        whole = [pooled([ratio], spread_of("NVIDIA H200", mode)).ratio for ratio in ratios]
        pairs = [change(whole[a], whole[b]) for a in range(len(whole)) for b in range(a)]
        total, contained = total + len(pairs), contained + sum(low <= 1 <= high for _, low, high in pairs)
    assert (contained, total) == (191, 210)


def test_two_processes_on_another_card_agree_within_the_spread_fitted_to_the_first():
    rows = [process["workloads"] for process in OTHER["pairs"]]
    assert len(rows) == 2 and OTHER["uuid"].startswith("GPU-")
    for key, first in rows[0].items():
        spread = spread_of("NVIDIA H200", first["mode"])
        told = (row[key]["speedup"]["triton-flash"] for row in rows)
        one, two = (pooled([Ratio(*(r[k] for k in ("ratio", "low", "high")))], spread).ratio for r in told)
        assert change(one, two)[1] <= 1 <= change(one, two)[2], first["label"]


@pytest.mark.parametrize("freedom", [4, 9, 13, 40])
@pytest.mark.parametrize("p", [0.9, 0.975, 0.995])
def test_quantiles_of_t_are_those_of_scipy(p, freedom):
    assert t_quantile(p, freedom) == pytest.approx(scipy.stats.t.ppf(p, freedom), rel=0.005)


def test_one_process_adds_its_spread_in_quadrature():
    whole = pooled([Ratio(2.0, 2.0 * math.exp(-0.003), 2.0 * math.exp(0.004))], SPREAD)
    assert whole.ratio.ratio == 2
    assert math.log(2 / whole.ratio.low) == pytest.approx(math.hypot(0.003, Z * 0.001))
    assert math.log(whole.ratio.high / 2) == pytest.approx(math.hypot(0.004, Z * 0.001))
    assert whole.process_half_width == pytest.approx(Z * 0.001)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("true_sd", [0.0, 0.001])
def test_several_processes_cover_the_truth_as_often_as_they_say(count, true_sd):
    rng, hits, tries, of_rounds = np.random.default_rng(count), 0, 2000, 0.0005
    for _ in range(tries):
        logs = rng.normal(0, math.hypot(true_sd, of_rounds), count)
        each = [Ratio(math.exp(y), math.exp(y - Z * of_rounds), math.exp(y + Z * of_rounds)) for y in logs]
        whole = pooled(each, SPREAD).ratio
        hits += whole.low <= 1 <= whole.high
    assert hits / tries > 0.98


def families_with_a_miss(rounds, processes=5, comparisons=84, families=300):
    """The share of families of comparisons with at least one interval that misses. Each workload has a spread of its own, as
    uncertain as the assumed one is: 6 degrees of freedom (Smyth's model)."""
    spread, rng = ProcessSpread(0.0019, 6, ""), np.random.default_rng(7)
    sds = spread.sd * np.sqrt(spread.freedom / rng.chisquare(spread.freedom, (families, comparisons)))
    missed = np.zeros(families, dtype=bool)
    tiny = 1e-6  # what the rounds add
    for family, comparison in np.ndindex(sds.shape):
        logs = rng.normal(0, sds[family, comparison], processes)
        whole = pooled([Ratio(math.exp(y), math.exp(y - tiny), math.exp(y + tiny)) for y in logs], spread).ratio
        wide = for_many(whole, comparisons, rounds)
        missed[family] |= not wide.low <= 1 <= wide.high
    return missed.mean()


def test_many_comparisons_of_several_processes_miss_as_seldom_as_they_say():
    """With the degrees of freedom of hundreds of rounds, 84 intervals missed in 7% of families instead of 1%."""
    assert rounds_for_many(400, 1) == 400 and rounds_for_many(8, 5) == 8
    assert families_with_a_miss(rounds_for_many(400, 5)) < 0.025
    assert families_with_a_miss(400) > 0.04


def test_more_processes_make_the_interval_narrower_and_a_spread_that_is_seen_makes_it_wider():
    def of(*percent):
        return pooled([Ratio(1 + x / 100, 1 + x / 100 - 0.001, 1 + x / 100 + 0.001) for x in percent], SPREAD)

    def half(whole):
        return math.log(whole.ratio.high / whole.ratio.low)

    assert half(of(0.05, -0.05, 0.05, -0.05, 0)) < half(of(0.05, -0.05)) < half(of(0.0))
    assert half(of(1, -1, 1, -1, 0)) > 3 * half(of(0.05, -0.05, 0.05, -0.05, 0))
    assert of(1, -1, 1, -1, 0).process_half_width > of(1, -1, 1, -1, 0).rounds_half_width


def test_what_was_not_measured_is_assumed_from_the_largest_elsewhere_and_says_so():
    elsewhere = spread_of("NVIDIA L4", "graph")
    assert elsewhere.sd == MEASURED[H100, "graph"].sd
    assert elsewhere.source.startswith("not measured on this device and mode, so that of an NVIDIA H100")
    assert spread_of("", "sustained").sd == max(spread.sd for (_, mode), spread in MEASURED.items() if mode != "cpu")


def test_a_cpus_spread_is_a_cpus_and_a_gpus_is_a_gpus():
    cpu = MEASURED[XEON, "cpu"].sd
    assert spread_of("AMD EPYC 7B13", "cpu").sd == spread_of("AMD EPYC 7B13", "batch").sd == cpu
    assert spread_of(XEON, "batch").source.endswith("an Intel Xeon with two cores: 2 workloads in 11 processes")
    for gpu in ("NVIDIA H200", "NVIDIA L4", "Tesla T4"):
        assert spread_of(gpu, "batch").sd == spread_of(gpu, "warm").sd == MEASURED[H100, "cold"].sd < cpu / 5


def test_a_cpus_spread_is_the_largest_of_its_committed_evidence():
    assert ON_CPU["environment"]["device"] == XEON and len(ON_CPU["pairs"]) == 11
    rows = list(by_workload(ON_CPU))
    assert MEASURED[XEON, "cpu"].sd == math.ceil(max(spread_between(ratios) for _, ratios in rows) * 1e4) / 1e4
    contained = total = without = 0
    for mode, ratios in rows:
        whole = [pooled([ratio], spread_of(XEON, mode)).ratio for ratio in ratios]
        pairs = [(a, b) for a in range(len(ratios)) for b in range(a)]
        total += len(pairs)
        contained += sum(low <= 1 <= high for _, low, high in (change(whole[a], whole[b]) for a, b in pairs))
        without += sum(low <= 1 <= high for _, low, high in (change(ratios[a], ratios[b]) for a, b in pairs))
    assert (total, contained, without) == (110, 110, 92)


def reading(factor, rounds=20, seed=0):
    rng = np.random.default_rng(seed)

    def blocks(ns):
        return [[float(ns * math.exp(x))] * 2 for x in rng.normal(0, 1e-4, rounds)]

    arms = {"sdpa": blocks(1000), "mine": blocks(1000 / factor), "sdpa (A/A)": blocks(1000)}
    return Reading("cold", arms, orders=[list(arms)] * rounds, rounds_s=1.0, sets=4)


def test_readings_of_several_processes_are_one_with_a_ratio_of_each():
    each = [reading(factor, seed=seed) for seed, factor in enumerate((1.10, 1.102, 1.098))]
    whole = joined(each)
    assert len(whole.blocks["mine"]) == 60 and len(whole.orders) == 60 and whole.rounds_s == 3
    fields = speedup(whole, "sdpa", "mine", "NVIDIA H200")
    assert fields["speedup"] == pytest.approx(1.1, rel=1e-3)
    assert [ratio.ratio for ratio in fields["by_process"]] == pytest.approx([1.10, 1.102, 1.098], rel=1e-3)
    assert reading_fields(whole, "sdpa", "NVIDIA H200")["protocol"]["processes"] == 3
    assert joined(each[:1]) is each[0]
    assert speedup(each[0], "sdpa", "mine", "NVIDIA H200")["by_process"] is None


def test_a_process_in_which_the_baseline_failed_is_left_out():
    whole, without = reading(1.1), reading(1.1)
    del without.blocks["sdpa"], without.blocks["sdpa (A/A)"]
    assert of_one_baseline([whole, without, whole], "sdpa") == [whole, whole]
    assert of_one_baseline([without, whole], "sdpa") == [without, whole], "another arm takes its place"
    assert speedup(joined(of_one_baseline([whole, without], "sdpa")), "sdpa", "mine", "")["speedup"] > 1.09


def test_a_noisy_process_widens_the_margin_of_all():
    noisy = reading(1.1)
    noisy.blocks["sdpa (A/A)"] = [[tick * 1.03 for tick in block] for block in noisy.blocks["sdpa (A/A)"]]
    assert reading_fields(reading(1.1, seed=1), "sdpa", "")["margin"] == 0.01
    assert reading_fields(joined([reading(1.1, seed=1), noisy]), "sdpa", "")["margin"] > 0.05


def test_an_older_export_gets_the_process_once():
    export = read_export((ROOT / "docs/measurements/canonical-h200-2026-11-22.json").read_bytes())
    device = export.environment["device"]
    before = next(arm for arm in export.measurements[0].results if arm.kernel == "triton-flash")
    again = with_process(export.measurements[0], device)
    after = next(arm for arm in again.results if arm.kernel == "triton-flash")
    assert before.process_half_width is None
    assert after.speedup == before.speedup and after.speedup_low < before.speedup_low
    assert after.process_half_width == pytest.approx(Z * 0.0015)
    assert again.protocol.process_sd == 0.0015
    assert with_process(again, device) is again
    assert statistics.fmean([after.speedup_low, after.speedup_high]) == pytest.approx(before.speedup, rel=1e-3)
