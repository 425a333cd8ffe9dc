"""The rules of a diagnosis, each with figures at which it holds and at which it does not; and the targets."""

from pathlib import Path

import pytest

from kernels.analysis.bottlenecks import MOST_SAID, NO_RULE, RULES, TARGETS, diagnosis, findings, per_call, targets
from kernels.contract.profile import Counters, Launch, Profile, Timeline
from kernels.report.profiles import as_text, lines

QUIET = {"compute": 0.7, "dram": 0.5, "l2": 0.4, "issue": 0.5, "waves": 4.0, "occupancy": 0.9, "occupancy_limit": 1.0}
"""No rule holds of these."""


def of(timeline=None, **figures):
    launch = Launch(name="kernel", duration_ns=10_000, **(QUIET | figures))
    return Profile(key="k", kernel="mine", counters=Counters(launches=[launch]), timeline=timeline)


def busy(share, host=0.1):
    """The timeline of calls that keep the device busy for this share of 100 us."""
    return Timeline(call_ns=100_000, enqueue_ns=host * 100_000, busy_ns=share * 100_000, kernels=3)


def keys(profile):
    return [rule.key for rule, _ in findings(profile)]


CASES = {
    "launch-bound": (of(busy(0.3, host=0.95)), of(busy(0.85, host=0.95)), "the host takes 95 us to launch a call"),
    "idle": (of(busy(0.3)), of(busy(0.85)), "nothing to do for 70% of a call of 3 kernels"),
    "few blocks": (of(waves=0.25), of(waves=1.0), "25% of the places"),
    "spills": (
        of(local_sectors=12, load_sectors=80, store_sectors=8),
        of(local_sectors=1, load_sectors=90, store_sectors=9),
        "12% of the sectors",
    ),
    "DRAM-bound": (of(dram=0.93), of(dram=0.79), "DRAM-bound: 93% of peak"),
    "L2-bound": (of(l2=0.85), of(l2=0.79), "L2-bound: 85% of peak"),
    "tensor-bound": (of(tensor=0.95), of(tensor=0.5), "they work in 95%"),
    "compute-bound": (of(compute=0.86), of(compute=0.86, tensor=0.9), "at 86%"),
    "bank conflicts": (
        of(bank_conflicts=40, shared_wavefronts=100),
        of(bank_conflicts=10, shared_wavefronts=100),
        "they add 40%",
    ),
    "uncoalesced loads": (
        of(used_of_loads=0.125, load_sectors=3200, load_requests=100),
        of(used_of_loads=0.6),
        "12% of the bytes of their sectors are used, 32 sectors a request",
    ),
    "uncoalesced stores": (of(used_of_stores=0.2), of(used_of_stores=None), "uncoalesced stores: 20%"),
    "divergence": (of(active_threads=12.0), of(active_threads=31.0), "executed by 12 of the 32 threads of a warp"),
    "tail": (of(waves=1.06), of(waves=0.9), "1.06 waves, so 47% of the places stay empty"),
    "low occupancy": (
        of(occupancy_limit=0.19, occupancy=0.18, compute=0.3, limited_by="registers", registers=168),
        of(occupancy_limit=0.19, occupancy=0.18, compute=0.9, limited_by="registers", registers=168),
        "at most 19%, limited by registers (168 a thread)",
    ),
    "uneven": (of(occupancy=0.3), of(occupancy=0.6), "30% of the warps that fit"),
    "stalls": (
        of(stalls=[("short_scoreboard", 0.41), ("wait", 0.1)]),
        of(stalls=[("short_scoreboard", 0.41)], dram=0.93),
        "waits on shared memory, or on special functions (41% of a warp's time)",
    ),
    "latency-bound": (of(compute=0.2, dram=0.17, l2=0.1), of(compute=0.65), "no unit is above 20% of its peak"),
}
"""Rule -> where it holds, where it does not, and what it says."""


def test_every_rule_has_a_case_and_a_reason():
    assert [rule.key for rule in RULES] == list(CASES)
    assert all(rule.reason for rule in RULES)


def test_the_documentation_has_every_rule():
    text = (Path(__file__).parents[2] / "docs" / "instrument.md").read_text()
    rows = [line.split("|")[1] for line in text.partition("## Why a kernel is slow")[2].splitlines() if "|" in line]
    listed = [key.strip() for row in rows for key in row.split(",")]
    assert [rule.key for rule in RULES if rule.key not in listed] == []


@pytest.mark.parametrize("key", CASES)
def test_a_rule_holds_where_it_should_and_only_there(key):
    holds, holds_not, said = CASES[key]
    found = dict(zip(keys(holds), [phrase for _, phrase in findings(holds)], strict=True))
    assert said in found[key]
    assert key not in keys(holds_not)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_no_rule_holds_of_what_is_not_known(rule):
    assert rule.key not in keys(Profile(key="k", kernel="mine"))
    assert rule.key not in keys(of())


def test_a_diagnosis_is_one_sentence_with_what_matters_most_first():
    many = of(busy(0.3, host=0.95), waves=0.25, compute=0.1, dram=0.1, l2=0.1, used_of_loads=0.1, used_of_stores=0.1)
    said = diagnosis(many)
    assert said.startswith("Launch-bound outside a graph: the host") and said.endswith(".")
    assert said.count(";") == MOST_SAID - 1
    assert len(findings(many)) > MOST_SAID


def test_without_a_cause_the_nearest_limit_is_said():
    said = diagnosis(of())
    assert said == "No single cause: nearest to its limit is the busiest pipe of the SMs, at 70%."
    assert NO_RULE in said.lower()


def test_what_nobody_looked_at_has_no_diagnosis():
    assert diagnosis(Profile(key="k", kernel="mine")) == ""
    on_a_cpu = Timeline(call_ns=100.0, enqueue_ns=100.0)
    assert diagnosis(Profile(key="k", kernel="mine", timeline=on_a_cpu)) == ""


# --- a call of several GPU kernels ------------------------------------------------------------------------------------


def two():
    long = Launch(
        name="long", duration_ns=300, dram=0.9, registers=30, load_sectors=300, load_requests=100, used_of_loads=1.0,
        dram_bytes=1000, stalls=[("barrier", 0.4)],
    )  # fmt: skip
    short = Launch(
        name="short", duration_ns=100, dram=0.1, registers=168, load_sectors=100, load_requests=100, used_of_loads=0.2,
        dram_bytes=10, stalls=[("barrier", 0.2), ("wait", 0.8)],
    )  # fmt: skip
    return per_call(Counters(launches=[short, long]))


def test_sums_are_sums_and_shares_are_weighted():
    call = two()
    assert (call.duration_ns, call.dram_bytes, call.sectors_per_load) == (400, 1010, 2)
    assert call.dram == pytest.approx(0.7)
    assert call.used_of_loads == pytest.approx(0.8)  # by sectors, not by time
    assert call.registers == 30  # of the longest
    assert call.stalls == [("barrier", pytest.approx(0.35)), ("wait", pytest.approx(0.2))]


def test_a_figure_that_one_kernel_lacks_is_that_of_the_others():
    launches = [Launch(name="one", duration_ns=100, tensor=0.5), Launch(name="other", duration_ns=900)]
    assert per_call(Counters(launches=launches)).tensor == 0.5


def test_a_call_without_kernels_has_no_figures():
    assert per_call(Counters(launches=[])).duration_ns is None


# --- targets ----------------------------------------------------------------------------------------------------------


def test_targets_are_met_not_met_or_unknown():
    met = {
        target.key: is_met
        for target, is_met in targets(of(sm_busy=0.81, used_of_loads=0.79, local_sectors=0, dram=0.5))
    }
    assert met == {
        "sm_busy": True, "dram": False, "occupancy": True, "used_of_loads": False, "conflict_share": None,
        "local_share": None,
    }  # fmt: skip


def test_every_target_is_shown_beside_its_figure():
    full = of(sm_busy=0.9, used_of_loads=0.9, bank_conflicts=0, shared_wavefronts=10, local_sectors=0, load_sectors=10)
    assert {line.title for line in lines(full) if line.target} and len(TARGETS) == sum(
        bool(line.target) for line in lines(full)
    )
    assert "SMs busy" in "\n".join(as_text(full)) and "(target at least 80%: met)" in "\n".join(as_text(full))


def test_why_there_are_no_counters_is_said():
    without = Profile(key="k", kernel="mine", counters_missing="ncu is missing.", timeline=busy(0.95))
    assert as_text(without)[-1] == "  ncu is missing.", "once: it is a sentence of its own"
