"""The size of the processor's cache: what the host is told decides what is read before each block of calls."""

import gc
from types import SimpleNamespace

import pytest
import torch

from kernels.child.clock import CpuClock
from kernels.child.environment import environment
from kernels.contract.environment import KEYED, fingerprint
from kernels.host.cpu_cache import CPU_CACHE_VARIABLE, UNKNOWN_BYTES, cpu_cache_bytes
from kernels.report.comparison import why_not


def test_what_the_host_is_told_counts(monkeypatch):
    monkeypatch.setenv(CPU_CACHE_VARIABLE, "3")
    assert cpu_cache_bytes() == CpuClock().cache_bytes == 3 * 2**20
    assert environment("cpu")["cpu_cache_mib"] == "3"
    monkeypatch.delenv(CPU_CACHE_VARIABLE)
    assert cpu_cache_bytes() >= 2**16 and "cpu_cache_mib" not in environment("cpu")


@pytest.mark.parametrize("told", ["0", "-1", "32M", "1.5", "٣", "many"])
def test_what_is_no_size_is_refused_with_the_name_of_the_variable(monkeypatch, told):
    monkeypatch.setenv(CPU_CACHE_VARIABLE, told)
    with pytest.raises(ValueError, match=f"{CPU_CACHE_VARIABLE} is “{told}”; it must be a number of MiB, at least 1"):
        cpu_cache_bytes()


def test_a_host_that_says_nothing_has_a_size(monkeypatch):
    monkeypatch.delenv(CPU_CACHE_VARIABLE)
    monkeypatch.setattr("builtins.open", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    assert cpu_cache_bytes() == UNKNOWN_BYTES


def test_all_clocks_of_a_process_read_the_same_memory():
    """A call of measure() makes one, and several hundred MiB were kept for each until garbage was collected."""
    gc.collect()
    before = {id(one) for one in gc.get_objects() if type(one) is torch.Tensor}
    clocks = [CpuClock(cache_bytes=5 * 2**20) for _ in range(3)]
    for clock in clocks:
        clock.evict()
    new = [one for one in gc.get_objects() if type(one) is torch.Tensor and id(one) not in before]
    assert [one.nbytes for one in new] == [5 * 2**20]


def test_results_with_another_size_are_not_compared():
    """Where nothing is told, fingerprints are what they were."""
    keyed = dict.fromkeys(KEYED, "same")
    told = keyed | {"cpu_cache_mib": "3"}
    assert fingerprint(keyed) == fingerprint(keyed | {"cpu_cache_mib": ""}) != fingerprint(told)
    said = why_not(SimpleNamespace(environment=keyed), SimpleNamespace(environment=told))
    assert said == "The two runs differ in: cpu_cache_mib none before, 3 after."
