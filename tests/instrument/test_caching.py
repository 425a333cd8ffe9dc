"""Caching of results on a CPU: what is one, and what the processor does by itself. Times are simulated."""

import itertools
from types import SimpleNamespace

import pytest

from kernels.analysis.suspicion import why_knows, why_probed, why_recognises, why_settles
from kernels.child.bench import Bench

CACHES = "the kernel caches results"


def probed_as(kernel, sets, sights=10):
    """What is said of a kernel that is called with small inputs: kernel(key of the values, time between this call and the one
    before, in us) -> its own time, in us. No clock: a busy host changes nothing."""
    bench, seed, gap, took = Bench("cpu"), itertools.count(), [0.0], [0.0]
    bench.open({"operation": "layer_norm", "sizes": {"rows": 8, "cols": 64}, "dtype": "float32"})
    bench.prepare(list(range(8)), 8)

    def called(x, *rest, **options):
        took[0] = kernel(x[0, 0].item(), gap[0])
        gap[0] = 100.0

    def timed(run, indices, gate_ns, flush):
        ticks_ns = []
        for index in indices:
            run(index)
            ticks_ns.append(took[0] * 1e3)
            gap[0] = 1.0
        gap[0] = 100.0
        return SimpleNamespace(ticks_ns=ticks_ns, enqueue_ns=0)

    bench.arms.calls["eager"], bench.clock.block = called, timed
    return why_probed(lambda **asked: bench.probe("eager", **asked), lambda: next(seed), 60e3, sets, sights)


@pytest.mark.parametrize("sets", [1, 128])
def test_what_a_cpu_learns_of_the_branches_of_the_last_values_is_not_caching(sets):
    """As softmax in scalar C was, 1.3 times faster on the values of the call before: three of three runs accused it."""
    before = []

    def learns(key, _):
        took = 45 if before[-1:] == [key] else 60
        before[:] = [key]
        return took

    assert probed_as(learns, sets) == ""


@pytest.mark.parametrize("sets", [1, 128])
def test_a_cache_of_short_calls_is_seen_behind_calls_on_other_values(sets):
    known = set()

    def keeps(key, _):
        took = 20 if key in known else 60
        known.add(key)
        return took

    assert probed_as(keeps, sets).startswith(CACHES)


def test_a_cache_that_begins_in_the_third_call_of_a_block_is_seen_where_blocks_have_one_buffer():
    """Any write or pause ended it, so that no other reading showed it."""
    last = {"key": None, "calls": 0}

    def keeps(key, gap_us):
        follows = gap_us < 20 and key == last["key"]
        last.update(key=key, calls=last["calls"] + 1 if follows else 0)
        return 20 if last["calls"] > 1 else 60

    said = probed_as(keeps, 1, sights=50)
    assert said == f"{CACHES}: 3.0 times faster at the end of a block on one buffer than in its first calls"


def test_the_first_calls_of_a_block_may_be_a_little_slower():
    assert why_settles([], []) == ""
    assert why_settles([41e3] * 7, [35e3] * 7) == "", "branches of 16 rows of 256"
    assert why_settles([3.9e3] * 7, [3.0e3] * 7) == "", "less than 1 us"
    assert why_settles([46e3] * 7, [25e3] * 7).startswith(f"{CACHES}: 1.8 times faster at the end of a block")


def test_the_first_read_of_what_was_written_takes_a_share_of_the_call_at_most():
    """What 480 KiB may take was more than all of the call of a softmax."""
    assert why_recognises([20e3] * 7, [45e3] * 7, host_bytes=480 * 1024).startswith(CACHES)
    assert why_knows([20e3] * 7, [45e3] * 7, host_bytes=480 * 1024).startswith(CACHES)
    assert why_recognises([32e3] * 7, [45e3] * 7, host_bytes=480 * 1024) == ""
