"""The rules of a search, on an objective that is known: samplers, gates, finalists, bounds, resumption."""

import random
import sys

import pytest
from tuning import CONFIG, SPACE, Scripted, search, timed

from kernels.contract.arm_result import Ratio, Status
from kernels.contract.events import Confirmed, Tried
from kernels.contract.search import Finalist, NotATable, Pair, Table, read_table, winners_curse
from kernels.parent.child_process import Cancelled
from kernels.protocol import EFFORTS, Protocol
from kernels.report.searches import answer
from kernels.settings import spelled
from kernels.tune_plan import SAMPLERS, TunePlan
from kernels.tuning import gates, tuner
from kernels.tuning.evolution import Evolution, Known
from kernels.tuning.instrument import quick, thorough
from kernels.tuning.samplers import CannotTune, sampler_of
from kernels.tuning.tuner import Tuner, finalists, now

BEST = {"rows": 8, "warps": 4}
LABEL = {one.key: one.label for one in CONFIG.workloads}
FIRST, SECOND = LABEL


def hill(settings, confirming=False):
    """A hill whose top is BEST; warps=16 does not compile."""
    if settings["warps"] == 16:
        return Status.FAILED, "out of shared memory"
    steps = sum(abs(SPACE[name].index(settings[name]) - SPACE[name].index(BEST[name])) for name in SPACE)
    return 1.3 - 0.08 * steps


def run(speedup=hill, given=None, **plan):
    """(the search when it ended, the instrument, the events)"""
    instrument, events = Scripted(speedup), []
    found = Tuner(given or search(**plan), instrument, events.append).run()
    return found, instrument, events


# --- samplers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_tries_the_whole_space_once_and_then_ends(sampler):
    found, _, _ = run(sampler=sampler, trials=500)
    assert len(found.trials) == 30
    assert len({spelled(trial.settings) for trial in found.trials}) == 30
    assert found.best == BEST


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler_asks_for_the_same_with_the_same_seed(sampler):
    first, second, other = (
        [trial.settings for trial in run(sampler=sampler, trials=12, seed=seed)[0].trials] for seed in (3, 3, 4)
    )
    assert first == second != other


def test_evolution_finds_the_top_sooner_than_chance_does():
    def trials_needed(sampler, seed):
        trials = run(sampler=sampler, trials=30, seed=seed, together=1, population=5)[0].trials
        return next(trial.number for trial in trials if trial.settings == BEST)

    evolved, drawn = (sum(trials_needed(name, seed) for seed in range(25)) / 25 for name in ("evolution", "random"))
    assert evolved < 0.8 * drawn, (evolved, drawn)


def test_what_is_pruned_has_no_children_and_what_passes_goes_before_what_is_only_fast():
    loop = Evolution(SPACE, seed=0, population=2, elites=2)
    loop.tell(Known(1, {"rows": 1, "warps": 1}, None, False))
    assert loop.elites == []
    loop.tell(Known(2, {"rows": 2, "warps": 1}, 1.5, False))
    loop.tell(Known(3, {"rows": 4, "warps": 1}, 1.1, True))
    loop.tell(Known(4, {"rows": 8, "warps": 1}, 1.2, True))
    assert [one.number for one in loop.elites] == [4, 3]
    loop.tell(Known(5, {"rows": 32, "warps": 1}, 1.05, False))
    origins = [loop.ask().origin for _ in range(10)]
    assert all(origin in ("mutated from 4", "mutated from 3") or "crossed from" in origin for origin in origins)


def test_a_mutation_changes_one_or_two_settings_to_other_values_of_the_space():
    loop = Evolution(SPACE | {"tma": (False, True)}, seed=1, population=1, elites=1)
    parent = {"rows": 8, "warps": 4, "tma": True}
    loop.tell(Known(1, parent, 1.2, True))
    for _ in range(15):
        child = loop.ask().settings
        changed = [name for name in parent if child[name] is not parent[name] and child[name] != parent[name]]
        assert 1 <= len(changed) <= 2 and all(child[name] in loop.space[name] for name in child)


def test_what_was_known_before_is_not_asked_for_again():
    for name in SAMPLERS:
        sampler = sampler_of(TunePlan(sampler=name), SPACE)
        told = [{"rows": rows, "warps": warps} for rows in SPACE["rows"] for warps in (1, 2, 4, 8)]
        for number, settings in enumerate(told, 1):
            sampler.tell(Known(number, settings, None if number % 3 == 0 else random.Random(number).random(), False))
        left = []
        while asked := sampler.ask():
            left.append(asked.settings)
        assert sorted(one["rows"] for one in left) == sorted(SPACE["rows"]), name
        assert {one["warps"] for one in left} == {16}, name


def test_without_optuna_evolution_works_and_the_others_say_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "kernels.tuning.optuna_study", raising=False)
    assert sampler_of(TunePlan(sampler="evolution"), SPACE).ask()
    with pytest.raises(CannotTune, match="the sampler tpe needs the package optuna: pip install optuna"):
        sampler_of(TunePlan(), SPACE)


# --- gates ------------------------------------------------------------------------------------------------------------


def gate(*results, confirmed=True, **plan):
    return gates.why_fails(results, TunePlan(**plan), LABEL, confirmed)


def test_better_on_two_workloads_passes_and_on_one_does_not():
    assert gate(timed(FIRST, 1.1), timed(SECOND, 1.1)) == ""
    assert gate(timed(FIRST, 1.1), timed(SECOND, 1.02)) == "1.03x on 1 of the 2 workloads that it needs"
    assert gate(timed(FIRST, 1.1), timed(SECOND, 1.02), shapes=1) == ""
    assert gate(timed(FIRST, 1.1)) == "", "of one workload all are one"


def test_confirmed_is_the_low_end_and_screened_the_estimate():
    both = [timed(FIRST, 1.035), timed(SECOND, 1.035)]
    assert gate(*both) == "1.03x on 0 of the 2 workloads that it needs"
    assert gate(*both, confirmed=False) == ""


def test_a_p50_or_a_p90_that_is_worse_anywhere_fails():
    assert gate(timed(FIRST, 1.3), timed(SECOND, 0.97), shapes=1) == f"p50 may be worse on {LABEL[SECOND]}"
    slow = [timed(FIRST, 1.3), timed(SECOND, 0.97)]
    assert gate(*slow, shapes=1, confirmed=False) == f"p50 is worse on {LABEL[SECOND]}"
    assert gate(timed(FIRST, 1.3), timed(SECOND, 1.3, p90_worse=True)) == f"p90 is worse on {LABEL[SECOND]}"


def test_what_is_wrong_or_unchecked_or_failed_fails_first():
    wrong = timed(FIRST, 1.3, status=Status.INCORRECT, why="largest error 3", correct=False)
    assert gate(timed(SECOND, 1.3), wrong) == f"incorrect on {LABEL[FIRST]}: largest error 3"
    assert "not known to be correct" in gate(timed(FIRST, 1.3, correct=None), timed(SECOND, 1.3))


def test_a_noisy_baseline_confirms_nothing_and_a_wide_margin_asks_for_more():
    noisy = [timed(FIRST, 2.0, margin=0.2), timed(SECOND, 2.0)]
    assert f"A/A was too noisy on {LABEL[FIRST]} (margin 20%)" in gate(*noisy)
    assert gate(*noisy, confirmed=False) == "", "screening promises, no more"
    wide = [timed(FIRST, 1.05, margin=0.04), timed(SECOND, 1.05, margin=0.04)]
    assert gate(*wide) == "1.03x on 0 of the 2 workloads that it needs"


def test_intervals_of_finalists_hold_for_all_of_them_at_once():
    one = [timed(FIRST, 1.05), timed(SECOND, 1.05)]
    wider = gates.for_all(one, 5)
    assert wider[0].ratio.low < one[0].ratio.low and wider[0].ratio.high > one[0].ratio.high
    assert wider[0].ratio.ratio == one[0].ratio.ratio


# --- the search -------------------------------------------------------------------------------------------------------


def test_what_does_not_compile_or_is_wrong_is_pruned_with_its_reason():
    def speedup(settings, confirming):
        return (Status.INCORRECT, "largest error 3") if settings["rows"] == 1 else hill(settings)

    found, instrument, _ = run(speedup, sampler="random", trials=30)
    assert {trial.pruned for trial in found.pruned} == {
        f"failed on {LABEL[FIRST]}: out of shared memory",
        f"incorrect on {LABEL[FIRST]}: largest error 3",
    }
    assert len(found.pruned) == 10 and all(trial.score is None for trial in found.pruned)
    confirmed = [one for kind, settings, _ in instrument.asked for one in settings if kind == "confirm"]
    assert all(one["warps"] != 16 and one["rows"] != 1 for one in confirmed)


def test_finalists_are_measured_again_together_and_in_more_processes():
    found, instrument, events = run(sampler="random", trials=20, together=4, finalists=3, processes=6)
    kinds = [kind for kind, _, _ in instrument.asked]
    assert kinds == ["screen"] * 5 + ["confirm"]
    assert len(instrument.asked[-1][1]) == 3 and instrument.asked[-1][2].processes == 6
    assert all(plan.processes == 1 and plan.max_rounds == 20 for _, _, plan in instrument.asked[:-1])
    assert [type(event) for event in events] == [Tried] * 20 + [Confirmed] * 3
    assert found.winner.settings == found.best and found.state == "done"


def test_where_a_kernel_refuses_most_settings_more_are_tried_at_once():
    def speedup(settings, confirming):
        return hill(settings) if settings["rows"] == 8 else (Status.UNSUPPORTED, "too many elements a thread")

    found, instrument, _ = run(speedup, sampler="random", trials=30, together=2)
    asked = [len(settings) for kind, settings, _ in instrument.asked if kind == "screen"]
    assert asked[0] == 2 and 4 <= max(asked) <= 8 and len(asked) < 15, "15 processes at two settings each"
    assert sum(asked) == len(found.trials) == 30 and found.best == BEST
    usual = [len(settings) for kind, settings, _ in run(trials=30, together=2)[1].asked if kind == "screen"]
    assert set(usual) == {2}, "what does not compile takes its time"


def test_the_winners_curse_is_measured():
    """Every setting is really 1.05; screening adds luck. The promise of the best is too high, and the search says so."""
    luck = random.Random(5)

    def speedup(settings, confirming):
        return 1.05 if confirming else 1.05 + luck.gauss(0, 0.05)

    found, _, _ = run(speedup, sampler="random", trials=24)
    curse = winners_curse(found.pairs)
    assert curse.ratio < 0.97 and curse.high < 1
    assert len(found.pairs) == 6 and all(pair.confirmed.ratio == 1.05 for pair in found.pairs)
    honest = [Pair(number=1, key=FIRST, promised=Ratio(1.1, 1.09, 1.11), confirmed=Ratio(1.1, 1.09, 1.11))]
    assert winners_curse(honest).low < 1 < winners_curse(honest).high
    assert winners_curse([]) is None


def test_what_was_promised_and_not_confirmed_is_not_the_best():
    found, _, _ = run(lambda settings, confirming: 1.0 if confirming else 1.2, sampler="random", trials=8)
    assert (found.best, found.winner) == (None, None)
    assert {one.fails for one in found.finalists} == {"1.03x on 0 of the 2 workloads that it needs"}


def test_the_winner_has_the_highest_low_end_and_at_least_is_the_smallest():
    def finalist(number, *ratios):
        results = [
            timed(key, ratio[0]).model_copy(update={"ratio": Ratio(*ratio)})
            for key, ratio in zip(LABEL, ratios, strict=True)
        ]
        return Finalist(
            number=number, settings={"warps": number}, results=results, score=gates.score(results), at=now()
        )

    lucky = finalist(1, (1.12, 1.04, 1.21), (1.11, 1.05, 1.19))
    sure = finalist(2, (1.11, 1.105, 1.115), (1.105, 1.10, 1.11))
    found = search().model_copy(update={"state": "done", "finalists": [lucky, sure]})
    assert lucky.score > sure.score and lucky.low < sure.low
    assert found.winner == sure
    assert "at least 1.100 on each of 2 workloads" in answer(found)
    said = answer(found.model_copy(update={"finalists": [lucky]}))
    assert "at least 1.040 on each of 2 workloads" in said, "not that of the lowest estimate"


def test_without_a_faster_trial_nothing_is_confirmed():
    found, instrument, _ = run(lambda settings, confirming: 0.9, sampler="random", trials=8)
    assert (found.finalists, found.best, found.state) == ([], None, "done")
    assert {kind for kind, _, _ in instrument.asked} == {"screen"}


def test_settings_that_fit_no_more_than_a_part_of_the_workloads_say_what_to_do():
    found, _, _ = run(lambda settings, confirming: (Status.UNSUPPORTED, "too many rows"), sampler="random", trials=4)
    said = "No tried setting was correct on all 2 workloads (4 tried). The default settings stay. "
    assert answer(found) == said + "Search each workload on its own."
    found, _, _ = run(lambda settings, confirming: 0.9, sampler="random", trials=4)
    assert answer(found) == "No tried setting was faster than the default settings (4 tried). They stay."


def test_those_that_pass_every_gate_are_finalists_before_faster_ones():
    def speedup(settings, confirming):
        return 1.02 if settings["rows"] == 1 else 1.2 if settings["rows"] == 2 else 0.5

    found, _, _ = run(speedup, sampler="random", trials=30, finalists=6)
    assert [one.settings["rows"] for one in finalists(found)] == [2] * 5 + [1]


def test_an_interrupted_search_goes_on_where_it_was():
    told = []

    def speedup(settings, confirming):
        told.append(spelled(settings))
        return hill(settings)

    instrument, stop = Scripted(speedup), lambda: len(told) >= 16
    first = Tuner(search(sampler="evolution", trials=20, together=4), instrument, lambda event: None, should_stop=stop)
    with pytest.raises(Cancelled):
        first.run()
    assert (first.search.state, len(first.search.trials), first.search.best) == ("interrupted", 8, None)

    again, _, events = run(given=first.search)
    assert (again.state, len(again.trials)) == ("done", 20)
    assert again.trials[:8] == first.search.trials
    assert [trial.number for trial in again.trials] == list(range(1, 21))
    assert len({spelled(trial.settings) for trial in again.trials}) == 20
    assert sum(isinstance(event, Tried) for event in events) == 12, "what was tried is not tried again"

    third, instrument, events = run(given=again.model_copy(update={"state": "interrupted"}))
    assert (instrument.asked, events, third.best) == ([], [], again.best)


def test_minutes_end_the_screening_and_leave_time_for_the_finalists(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock[0])

    def speedup(settings, confirming):
        clock[0] += 0 if confirming else 5.0  # two workloads and one trial at a time: 10 s
        return hill(settings)

    found, instrument, _ = run(speedup, sampler="random", trials=1000, together=1, minutes=2)
    assert len(found.trials) == 7, "72 s are for screening"
    assert instrument.asked[-1][0] == "confirm" and found.state == "done"


def test_when_the_minutes_are_over_nothing_is_confirmed_and_what_was_tried_stays(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock[0])

    class Slow(Scripted):
        def measure(self, settings, plan, should_stop, live):
            clock[0] += 3600 if plan.processes > 1 else 1
            if should_stop():
                raise Cancelled
            return super().measure(settings, plan, should_stop, live)

    found = Tuner(search(sampler="random", trials=4, minutes=2), Slow(hill), lambda event: None).run()
    assert (len(found.trials), found.finalists, found.best) == (4, [], None)


def test_settings_of_an_earlier_table_are_tried_first():
    events = []
    found = Tuner(search(sampler="tpe", trials=4), Scripted(hill), events.append, first=[BEST]).run()
    assert found.trials[0].settings == BEST and found.trials[0].origin == "from the table"
    assert sum(trial.settings == BEST for trial in found.trials) == 1


def test_screening_takes_no_more_than_quick_and_no_more_than_the_config():
    assert quick(Protocol()).max_rounds == EFFORTS["quick"]["max_rounds"]
    assert quick(Protocol(min_rounds=5, max_rounds=6)).max_rounds == 6
    assert quick(Protocol(processes=5)).processes == 1
    assert thorough(Protocol(max_rounds=77), 4) == Protocol(max_rounds=77, processes=4, compile_limit_s=60.0)


def test_the_table_keeps_each_search_once_and_reads_what_it_wrote():
    table, first, second = Table(operation="softmax", kernel="scripted"), search(), search(seed=1)
    second = second.model_copy(update={"keys": second.keys[:1], "workloads": second.workloads[:1]})
    table = table.with_search(first).with_search(second)
    done = run(given=first, trials=8)[0]
    table = table.with_search(done)
    assert [one.state for one in table.searches] == ["done", "running"]
    assert read_table(table.as_json()) == table
    for text, why in (("{", "not JSON"), ('{"format": "x"}', "not valid")):
        with pytest.raises(NotATable, match=why):
            read_table(text)
