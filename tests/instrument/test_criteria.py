"""Success criteria from intervals written by hand: noise never makes one hold."""

from dataclasses import replace

import pytest

from kernels.analysis.criteria import Criterion, Seen, Word, evaluate, p90_reach
from kernels.contract.arm_result import ColdCalls, Ratio, Status, Verdict
from kernels.contract.profile import Figures
from kernels.report.criteria_words import answered, asked

FAST = Seen(
    "a", "attention fp16 B=1 H=8 S=512 D=64", "v3", Verdict.FASTER, Ratio(1.2, 1.19, 1.21), rounds=40, is_confirmed=True,
    is_checked=True, p90=(0.90, 0.95), base_p90=(1.0, 1.05),
)  # fmt: skip
TEN = Criterion("v3", 1.10)


def on(place, low, high, **more):
    verdict = Verdict.FASTER if low > 1.01 else Verdict.SLOWER if high < 0.99 else Verdict.UNDECIDED
    label = f"attention fp16 B={place} H=8 S=512 D=64"
    ratio = Ratio((low * high) ** 0.5, low, high)
    return replace(FAST, **{"place": f"{place}", "label": label, "verdict": verdict, "ratio": ratio} | more)


@pytest.mark.parametrize(
    "seen, word",
    [
        ([on(1, 1.15, 1.2)], Word.HOLDS),
        ([on(1, 1.05, 1.2)], Word.UNKNOWN),
        ([on(1, 1.02, 1.05)], Word.FAILS),
        ([on(1, 1.15, 1.2, margin=0.08)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, is_contended=True)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, is_claimed=True)], Word.UNKNOWN),
        ([on(1, 0.001, 0.002, is_claimed=True)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, verdict=Verdict.UNPAIRED)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, verdict=Verdict.NEEDS_MORE)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, verdict=Verdict.UNKNOWN)], Word.UNKNOWN),
        ([on(1, 1.15, 1.2, verdict=Status.INCORRECT, ratio=None)], Word.FAILS),
        ([], Word.UNKNOWN),
    ],
)
def test_a_speedup_holds_only_by_its_whole_interval(seen, word):
    assert evaluate(TEN, seen).word == word


def test_a_margin_that_aa_widened_is_added_to_what_is_wanted():
    """The baseline differed from itself by 4%: 1.11x may be 1.07x."""
    assert evaluate(TEN, [on(1, 1.11, 1.12)]).word == Word.HOLDS
    assert evaluate(TEN, [on(1, 1.11, 1.12, margin=0.04)]).word == Word.UNKNOWN
    assert evaluate(TEN, [on(1, 1.08, 1.09, margin=0.04)]).word == Word.UNKNOWN
    assert evaluate(TEN, [on(1, 1.04, 1.05, margin=0.04)]).word == Word.FAILS


def test_intervals_hold_for_all_comparisons_at_once():
    """One barely held comparison among many kernels may hold by chance."""
    barely = on(1, 1.1001, 1.11, rounds=10)
    assert evaluate(Criterion("", 1.10), [barely]).word == Word.HOLDS
    others = [replace(on(1, 0.5, 0.6), kernel=f"k{number}") for number in range(30)]
    assert evaluate(Criterion("", 1.10), [barely, *others]).word == Word.UNKNOWN


def test_on_at_least_so_many_workloads():
    two = [on(1, 1.2, 1.3), on(2, 1.2, 1.3), on(3, 0.5, 0.6)]
    assert evaluate(replace(TEN, at_least=2), two).word == Word.HOLDS
    assert evaluate(TEN, two).word == Word.FAILS
    assert evaluate(replace(TEN, at_least=3), two).word == Word.FAILS
    assert evaluate(replace(TEN, at_least=3), [*two, on(4, 1.0, 1.3)]).word == Word.UNKNOWN
    assert evaluate(replace(TEN, at_least=4), two).word == Word.UNKNOWN, "a fourth one may still be measured"
    baseline_only = replace(FAST, place="9", kernel="sdpa", is_baseline=True, ratio=None, verdict=Verdict.BASELINE)
    answer = evaluate(TEN, [on(1, 1.2, 1.3), baseline_only])
    assert (answer.word, answer.why) == (Word.UNKNOWN, "not measured on 1 of 2 workloads")


def test_a_workload_counts_once_for_each_mode_in_which_it_was_measured():
    cold = [on(1, 1.2, 1.3, mode="cold"), on(2, 1.2, 1.3, mode="cold")]
    assert answered(evaluate(TEN, cold)).startswith("v3 on 2 of 2 workloads,")
    other = on(3, 1.2, 1.3, mode="sustained")
    assert answered(evaluate(TEN, [*cold, other])).startswith("v3 on 3 of 3 workloads,"), "each in one mode"
    slow = on(2, 0.7, 0.8, mode="sustained")
    answer = evaluate(TEN, [*cold, slow])
    assert (answer.word, answer.of, answer.why) == (Word.FAILS, 3, f"0.748x (0.693 to 0.808) on {slow.label} sustained")
    assert [place.seen.label for place in answer.places][1:] == [f"{slow.label} cold", f"{slow.label} sustained"]
    enough = evaluate(replace(TEN, at_least=2), [*cold, slow])
    assert answered(enough).startswith("v3 on 2 of 3 workloads and modes, at least")
    few = evaluate(replace(TEN, at_least=4), [*cold, slow])
    assert few.why == "only 3 such workloads and modes measured"
    baseline = replace(slow, kernel="sdpa", is_baseline=True, ratio=None, verdict=Verdict.BASELINE)
    assert evaluate(TEN, [*cold, baseline]).why == "not measured on 1 of 3 workloads and modes"


def test_a_claim_has_no_mode_and_is_no_further_workload():
    claimed = on(1, 1.2, 1.2, is_claimed=True, kernel="v4")
    measured = on(1, 1.2, 1.3, mode="cold")
    assert (evaluate(TEN, [measured, claimed]).word, evaluate(TEN, [measured, claimed]).of) == (Word.HOLDS, 1)
    answer = evaluate(TEN, [measured, on(2, 1.2, 1.2, is_claimed=True)])
    assert (answer.of, answer.why.partition(",")[0]) == (2, "only claimed (1.2x)")


def test_only_the_workloads_that_are_meant():
    seen = [on(1, 1.2, 1.3), on(8, 0.5, 0.6)]
    assert evaluate(replace(TEN, workloads="B=1 S=512"), seen).word == Word.HOLDS
    assert evaluate(replace(TEN, workloads="B=1, B=8"), seen).word == Word.FAILS
    assert evaluate(replace(TEN, workloads="B=16"), seen).why == "nothing was measured on such a workload"
    assert evaluate(replace(TEN, workloads="B=1 S=51"), seen).of == 0, "whole words"


def test_the_p90_is_compared_by_the_percentiles_around_it():
    wanted = Criterion("v3", p90=True)
    assert evaluate(wanted, [FAST]).word == Word.HOLDS
    assert evaluate(wanted, [replace(FAST, p90=(0.98, 1.2))]).word == Word.UNKNOWN
    assert evaluate(wanted, [replace(FAST, p90=(1.2, 1.3))]).word == Word.FAILS
    assert evaluate(wanted, [replace(FAST, p90=None)]).why.startswith("too few single calls")
    assert evaluate(wanted, [replace(FAST, is_contended=True)]).word == Word.UNKNOWN
    claimed = replace(FAST, is_claimed=True)
    assert evaluate(wanted, [claimed]).why == "only claimed, not measured here", "a speedup is no answer to this"
    assert "only claimed (" in evaluate(TEN, [claimed]).why


def test_few_calls_say_little_about_a_p90():
    def calls(n):
        return ColdCalls(n=n, p50_ms=1.0, p90_ms=1.2, p95_ms=1.3, p99_ms=1.5)

    assert p90_reach(calls(1000)) == (1.0, 1.3)
    assert p90_reach(calls(100)) == (1.0, 1.5)
    assert p90_reach(calls(50)) is None


def test_everything_must_be_correct():
    wanted = Criterion("v3", correct=True)
    good = [on(1, 1.2, 1.3), on(2, 0.5, 0.6)]
    assert evaluate(wanted, good).word == Word.HOLDS
    answer = evaluate(wanted, [*good, on(3, 1, 1, verdict=Status.INCORRECT, ratio=None)])
    assert (answer.word, answer.why) == (Word.FAILS, "v3 is incorrect on attention fp16 B=3 H=8 S=512 D=64")
    assert evaluate(wanted, [*good, on(3, 1.2, 1.3, is_checked=False)]).word == Word.UNKNOWN
    assert (
        evaluate(replace(wanted, speedup=1.1, at_least=1), [*good, on(3, 1, 1, verdict=Status.SUSPECT)]).word
        == Word.FAILS
    )


def test_claims_say_nothing_of_correctness():
    claimed = replace(on(2, 1.2, 1.2), is_claimed=True, is_checked=False)
    answer = evaluate(Criterion("v3", correct=True), [on(1, 1.2, 1.3), claimed])
    assert [(place.word, place.why) for place in answer.places] == [
        (Word.HOLDS, ""),
        (Word.UNKNOWN, "only claimed, not measured here"),
    ]


def test_every_workload_means_those_of_the_kernels_operation():
    other = replace(FAST, place="g", label="gemm fp16 m=64 n=64 k=64", kernel="triton-gemm")
    answer = evaluate(Criterion("v3", 1.10), [on(1, 1.2, 1.3), on(2, 1.2, 1.3), other])
    assert (answer.word, answer.of) == (Word.HOLDS, 2)
    assert evaluate(Criterion("", 1.10), [on(1, 1.2, 1.3), replace(other, ratio=None, verdict=Verdict.NONE)]).of == 2


def test_any_kernel_may_fulfil_it_and_the_confirmed_one_is_named():
    mine = [
        on(1, 1.2, 1.3, is_confirmed=False),
        replace(on(1, 1.2, 1.3), kernel="v4"),
        replace(on(1, 0.5, 0.6), kernel="v5"),
    ]
    answer = evaluate(Criterion("", 1.10), mine)
    assert (answer.word, answer.kernel, answer.is_confirmed) == (Word.HOLDS, "v4", True)


def test_what_is_not_confirmed_is_said_to_be_so():
    answer = evaluate(TEN, [on(1, 1.2, 1.3, is_confirmed=False)])
    assert not answer.is_confirmed
    assert answered(answer).endswith(
        "Unconfirmed: a record needs five processes and an isolated measurement that agree."
    )
    assert "Unconfirmed" not in answered(evaluate(TEN, [on(1, 1.2, 1.3)]))
    assert "Unconfirmed" not in answered(evaluate(Criterion("v3", correct=True), [on(1, 1.2, 1.3, is_confirmed=False)]))


def test_what_nothing_measures_cannot_be_told():
    answer = evaluate(Criterion(), [FAST])
    assert (answer.word, answered(answer)) == (Word.UNKNOWN, "The site cannot evaluate it from measurements.")


COUNTED = Criterion("v3", sm_busy=0.7, no_spills=True)
GOOD = Figures(
    sm_busy=0.81, shared_wavefronts=100.0, bank_conflicts=2.0, load_sectors=100.0, store_sectors=10.0, local_sectors=0.0
)  # fmt: skip


@pytest.mark.parametrize(
    ("counters", "word", "why"),
    [
        ({}, Word.HOLDS, ""),
        ({"sm_busy": 0.69}, Word.FAILS, "SM busy 69%, wanted at least 70%"),
        ({"bank_conflicts": 20.0}, Word.FAILS, "bank conflicts 20%, wanted at most 5%"),
        ({"local_sectors": 11.0}, Word.FAILS, "spills"),
        ({"sm_busy": None}, Word.UNKNOWN, "its profile has no counter of SM busy"),
        (None, Word.UNKNOWN, "it has no profile"),
    ],
)
def test_a_profile_answers_what_counters_can(counters, word, why):
    """The site could not evaluate it, although it had the profile."""
    seen = on(1, 0.5, 0.6, is_contended=True, counters=None if counters is None else GOOD.model_copy(update=counters))
    answer = evaluate(COUNTED, [seen])
    assert answer.word == word and why in answer.why
    assert evaluate(COUNTED, [replace(seen, is_claimed=True)]).why == "only claimed, not measured here"
    if word == Word.HOLDS:
        assert answered(answer) == "v3: its profile shows it on 1 of 1 workload." and answer.is_confirmed


def test_counters_in_words_and_beside_a_speedup():
    assert asked(COUNTED) == "v3: SM busy ≥ 70%, no bank conflicts above 5%, no spills on every workload"
    both = replace(COUNTED, speedup=1.1)
    assert evaluate(both, [on(1, 1.2, 1.3, counters=GOOD)]).word == Word.HOLDS
    assert evaluate(both, [on(1, 1.0, 1.05, counters=GOOD)]).word == Word.FAILS
    assert evaluate(both, [on(1, 1.2, 1.3)]).word == Word.UNKNOWN


def test_a_criterion_in_words():
    assert asked(Criterion("v3", 1.1, 2, "S=512", p90=True, correct=True)) == (
        "v3: speedup ≥ 1.10, p90 not worse than the baseline's on at least 2 workloads (S=512), all correct"
    )
    assert asked(Criterion("", correct=True)) == "one kernel: all correct"
    assert asked(Criterion()) == ""
    claims = [on(1, 0.002, 0.002, is_claimed=True), on(2, 0.008, 0.008, is_claimed=True)]
    assert answered(evaluate(TEN, claims)) == "Only claimed (0.002x to 0.008x), not measured here."
