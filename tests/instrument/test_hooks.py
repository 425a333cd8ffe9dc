"""What a kernel leaves to run by itself does not run between the writing of inputs and its calls."""

import gc
import sys

import pytest

from kernels.child.bench import Bench

SIZES = {"rows": 8, "cols": 8}


@pytest.fixture
def bench():
    bench = Bench("cpu")
    bench.open({"operation": "layer_norm", "dtype": "float32", "sizes": SIZES})
    bench.load("eager")
    bench.prepare(list(range(9)), sets=8)
    return bench


def told_of(kind, bench, when):
    """The arm leaves a hook in its untimed call. Whenever it runs, it notes what the instrument does."""
    eager, told = bench.arms.call("eager"), []
    bench.arms.kernel("eager")

    def hook(*_):
        told.append(when["now"])

    def leaves_a_hook(x, *rest, **options):
        when["now"] = "call"
        if kind == "collector":
            gc.callbacks[:] = [hook]
        elif kind == "profile":
            sys.setprofile(hook)
        else:
            sys.settrace(hook)
        return eager(x, *rest, **options)

    bench.arms.calls["eager"] = leaves_a_hook
    return told


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", ["collector", "profile", "trace"])
def test_no_hook_runs_between_the_writing_of_inputs_and_the_calls(bench, monkeypatch, kind, at_once):
    when = {"now": ""}
    told, write, garbage = told_of(kind, bench, when), bench.sets.write, []
    before = gc.isenabled(), gc.callbacks[:], gc.get_threshold(), sys.getprofile(), sys.gettrace()

    def written(indices):
        when["now"] = "written"
        write(indices)
        garbage.extend([] for _ in range(2 * gc.get_threshold()[0]))  # else no collection is due

    monkeypatch.setattr(bench.sets, "write", written)
    bench.block("eager", calls=8, seeds=range(20, 28), at_once=at_once)
    assert garbage and "written" not in told
    assert (gc.isenabled(), gc.callbacks[:], gc.get_threshold(), sys.getprofile(), sys.gettrace()) == before


def test_nor_before_calls_that_run_back_to_back(bench, monkeypatch):
    write, seen, mine = bench.sets.write, [], [lambda *_: None]
    before = gc.callbacks[:]

    def written(indices):
        write(indices)
        seen.append((gc.isenabled(), gc.callbacks[:]))

    monkeypatch.setattr(bench.sets, "write", written)
    gc.callbacks[:] = mine
    try:
        bench.sustained("eager", calls=8, lead=1, chunks=2, seed=3, seeds=range(20, 28))
        assert seen == [(False, [])] and gc.callbacks == mine and gc.isenabled()
    finally:
        gc.callbacks[:] = before


def test_what_a_call_raises_leaves_no_collector_off(bench):
    def raises(*_, **__):
        raise ValueError("mine")

    bench.arms.calls["eager"] = raises
    with pytest.raises(ValueError, match="mine"):
        bench.block("eager", calls=8, seeds=range(20, 28))
    assert gc.isenabled()


def test_an_input_that_was_made_to_require_gradients_fails_nobody_and_is_named(bench):
    """The next kernel failed: its inputs could not be written."""
    eager = bench.arms.call("eager")

    def wants_gradients(x, *rest, **options):
        x.requires_grad_(True)
        return eager(x.detach(), *rest, **options)

    bench.arms.calls["eager"] = wants_gradients
    bench.block("eager", calls=8, seeds=range(20, 28))
    bench.keep("eager", position=3, seed=29)
    assert bench.sets.changes() == ["input 1: gradient True instead of False"]
    bench.arms.calls["eager"] = eager
    bench.block("eager", calls=8, seeds=range(30, 38))
    bench.keep("eager", position=3, seed=39)
    assert bench.sets.changes() == []
