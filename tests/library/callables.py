"""What tests of measure() share: callables, a quick protocol, and this process with one thread and a lock of its own."""

import tempfile

import pytest

torch = pytest.importorskip("torch")

from kernels import measure  # noqa: E402
from kernels.analysis.statistics import WIDEST_MARGIN  # noqa: E402
from kernels.workload import Protocol  # noqa: E402

QUICK = Protocol(min_rounds=8, max_rounds=8, warmup_s=0.02, block_ms=1.0, verify_seeds=2)
ROWS, COLS = 128, 256


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The problems are small: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_lock(monkeypatch, tmp_path):
    """Another measurement on this machine does not hold these up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def softmax(x):
    return torch.softmax(x, -1)


def four_times(x):
    for _ in range(3):
        softmax(x)
    return softmax(x)


def half_written(x):
    out = torch.empty_like(x)
    out[: ROWS // 2] = softmax(x)[: ROWS // 2]
    return out


def inputs(seed):
    return (torch.randn(ROWS, COLS),)


def quick(candidates, baseline=None, inputs=inputs, **how):
    return measure(candidates, baseline, inputs=inputs, **{"protocol": QUICK} | how)


def when_quiet(*args, **how):
    """Measured once more if the machine was so busy that nothing is decided."""
    for _ in range(2):
        found = quick(*args, **how)
        every = found.values() if isinstance(found, dict) else [found]
        if all(is_quiet(one) and not is_interrupted(one) for one in every):
            break
    return found


def is_quiet(found):
    """Whether the machine was quiet enough for a word, and so for a ratio that can be relied on."""
    return found.margin <= WIDEST_MARGIN


def word_is(found, word):
    """Its word; on a machine that stays busy it is UNDECIDED, with the reason."""
    if is_interrupted(found):
        return True
    if is_quiet(found):
        assert found.word == word, str(found)
        return True
    assert found.word == "UNDECIDED" and any(said in found.why for said in ("A/A from ", "the margin is ")), str(found)
    return True


def has_no_speedup(found, word):
    assert (found.word, found.speedup, found.low, found.high) == (word, None, None, None), str(found)
    return True


def is_compared(found):
    """Whether it has a speedup; or, on a busy machine, whether the word UNDECIDED says why it has none."""
    assert found.speedup or is_interrupted(found), str(found)
    return True


def has_an_interval(found):
    """Whether its interval holds its speedup; or, on a busy machine, whether the word UNDECIDED says why it has none."""
    return is_interrupted(found) or found.low <= found.speedup <= found.high


def is_interrupted(found):
    """Whether it is UNDECIDED because others interrupted its calls so often that they look as if they worked for each other."""
    return (found.word, found.speedup) == (
        "UNDECIDED",
        None,
    ) and "or other processes interrupted the calls" in found.why
