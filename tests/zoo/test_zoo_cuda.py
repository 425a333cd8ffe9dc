"""Kernels that cheat with streams, events and device memory: each is caught, for its own reason; honest ones pass.

Needs no site: python -m pytest --noconftest -c /dev/null --rootdir . tests/zoo/test_zoo_cuda.py
"""

import pytest
from measuring import caught, measure

from kernels.host.device import NoSuchDevice, find_device

try:
    find_device("cuda")
    NO_DEVICE = ""
except NoSuchDevice as error:
    NO_DEVICE = str(error)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.thorough("the zoo's cheats with a GPU"),
    pytest.mark.skipif(bool(NO_DEVICE), reason=NO_DEVICE),
]

SIZES = {"batch": 4, "heads": 16, "seq_len": 2048, "head_dim": 64, "dtype": "float16"}
HONEST = (
    "eager", "sdpa-math", "sdpa-flash", "workspace", "says-a-line", "compiles-late", "in-any-order", "strided",
    "in-inference-mode", "side-stream-joined", "starts-a-helper",
)  # fmt: skip
LATE = "the output changed after the call returned"
CHANGED = "changed global state: "

CHEATS = {
    "side-stream": ("incorrect", LATE),
    "side-stream-unordered": ("incorrect", ""),
    "side-stream-when-timed": ("incorrect", "correct when checked alone, wrong when timed: the output changed after"),
    "finished-by-a-thread": ("incorrect", LATE, "were never written"),  # so late that nothing is there yet
    "lazy": ("incorrect", "not a torch.Tensor"),
    "cached-by-pointer": ("incorrect", "largest error"),
    "cached-by-id": ("incorrect", "correct when checked alone, wrong when timed"),
    "cached-by-content": ("suspect", "the kernel caches results"),
    "cached-by-version": ("suspect", "the kernel caches results"),
    "cached-at-eighth-sight": ("suspect", "the kernel caches results"),
    "returned-again": ("incorrect", "calls share one output"),
    "never-written": ("incorrect", "elements of the output were never written"),
    "half-written": ("incorrect", "elements of the output were never written"),
    "changes-its-input": ("incorrect", "the kernel changed its inputs"),
    "one-buffer": ("incorrect", "calls share one output"),
    "cheaper-later": ("incorrect", "correct when checked alone, wrong when timed"),
    "knows-the-check": ("incorrect", "correct when checked alone, wrong when timed"),
    "patches-the-event": ("suspect", CHANGED + "torch.cuda.Event.elapsed_time: replaced"),
    "patches-synchronize": ("suspect", CHANGED + "torch.cuda.synchronize: replaced"),
    "patches-the-baseline": ("suspect", CHANGED + "torch.nn.functional.scaled_dot_product_attention: replaced"),
    "changes-the-stream": ("suspect", CHANGED + "current stream"),
    "changes-a-backend-flag": ("suspect", CHANGED),
    "changes-determinism": ("suspect", CHANGED + "deterministic mode"),
    "busy-thread": ("suspect", "left a thread busy"),
    "leaks-device-memory": ("suspect", "memory leak: every call keeps"),
}


@pytest.fixture(scope="module")
def cheats():
    return measure("cuda", "eager", *CHEATS, sizes=SIZES, mode="cold")


@pytest.mark.parametrize("kernel", CHEATS)
def test_cheats(cheats, kernel):
    assert caught(cheats[kernel], *CHEATS[kernel])


def test_the_honest_are_measured_beside_them(cheats):
    assert {cheats[name]["status"] for name in ("sdpa", "eager")} == {"ok"}
    assert cheats["eager"]["speedup"] is not None


def test_work_in_pauses_is_no_work_on_the_inputs_of_the_call():
    """Apart from the others, whose process its thread would share. Before a block there is a rest to work in."""
    found = measure("cuda", "eager", "works-in-pauses", sizes=SIZES, mode="cold")
    assert caught(found["works-in-pauses"], "incorrect", "correct when checked alone, wrong when timed: largest error")
    assert found["eager"]["status"] == "ok"


@pytest.mark.parametrize("mode", ["cold", "graph"])
def test_honest(mode):
    found = measure("cuda", *HONEST, sizes=SIZES, mode=mode)
    assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


def test_honest_and_small():
    """Calls of a few microseconds, where the host takes longer than the device."""
    small = SIZES | {"batch": 1, "heads": 1, "seq_len": 128}
    for mode in ("cold", "graph"):
        found = measure("cuda", "eager", "sdpa-flash", "strided", "side-stream-joined", sizes=small, mode=mode)
        assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


def test_compilers_are_honest():
    """They begin processes and threads of their own."""
    found = measure("cuda", "compiled", "triton-flash", sizes=SIZES)
    assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


@pytest.mark.parametrize("mode", ["warm", "e2e", "sustained"])
def test_modes_on_request(mode):
    found = measure("cuda", "sdpa-flash", sizes=SIZES, mode=mode)
    assert {name: (row["status"], row["mode"]) for name, row in found.items()} == {
        "sdpa": ("ok", mode),
        "sdpa-flash": ("ok", mode),
    }
    low, high = (found["sdpa-flash"][f"speedup_{end}"] for end in ("low", "high"))
    assert 0.2 < low < high < 1.1, "FlashAttention 2 is not faster than the default by this much"


def test_a_time_above_a_ceiling_is_believed_if_a_second_process_agrees():
    """As on a device whose matrix product was measured while it was slowed down."""
    found = measure("cuda", "sdpa-flash", sizes=SIZES, ceilings={"matmul_tflops": {"float16": 1.0}}, max_rounds=20)
    assert {row["status"] for row in found.values()} == {"ok"}
    for name in found:
        assert any(f"{name}: " in note and "a second process agrees" in note for note in found[name]["notes"])
