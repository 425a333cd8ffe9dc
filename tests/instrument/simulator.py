"""A bench that answers as kernels/child/bench.py does, on a GPU that is only arithmetic.

Time passes only in it: a measurement of minutes takes milliseconds. Its GPU has what makes real ones hard to measure: drift,
noise with a memory, a clock that hops between steps, launch gaps, a host that stalls, graphs with a bias of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.contract.replies import Captured, Fault, Nothing, Prepared, Reply, TimedBlock
from kernels.parent.child_process import CommandFailed


@dataclass
class SimulatedKernel:
    """How one kernel behaves. Times in ns."""

    true_ns: float
    enqueue_ns: float = 3_000
    """Host time to launch one call."""
    stalls: dict[int, float] = field(default_factory=dict)
    """Number of a block of this kernel -> host time to launch one call of it."""
    synchronises: bool = False
    capturable: bool = True


class SimulatedBench:
    """`call` takes what Child.call takes. `log` keeps (what was asked, arguments, reply) of every call; `spots` those of blocks
    whose inputs come last, with their `keep`."""

    def __init__(
        self,
        kernels: dict[str, SimulatedKernel],
        seed: int = 0,
        *,
        drift_per_s: float = 0.0,
        noise: float = 0.001,
        hop: float = 0.0,
        capture_bias: float = 0.0,
        sets: int = 128,
        covered: bool = True,
    ) -> None:
        self.kernels, self.rng = kernels, np.random.default_rng(seed)
        self.drift_per_s, self.noise, self.hop, self.capture_bias = drift_per_s, noise, hop, capture_bias
        self.most_sets, self.covered, self.sets = sets, covered, 0
        self.now_ns = 0.0
        self.slow_noise, self.hopped = 0.0, False
        self.bias: dict[str, float] = {}
        self.blocks_of = dict.fromkeys(kernels, 0)
        self.log: list[tuple[str, dict[str, Any], Reply]] = []
        self.spots: list[tuple[str, dict[str, Any], Reply]] = []
        self.was_spot = False

    # --- what the parent sees -------------------------------------------------------------------------------------

    @property
    def time(self) -> SimpleNamespace:
        """In place of the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.now_ns / 1e9)

    def call(self, do: str, limit_s: float = 120.0, **arguments: Any) -> Reply:
        reply = getattr(self, f"_{do}")(**arguments)
        is_spot = arguments.get("at_once", False) or (do == "keep" and self.was_spot)
        self.was_spot = is_spot
        (self.spots if is_spot else self.log).append((do, arguments, reply))
        return reply

    def asked(self, do: str) -> list[dict[str, Any]]:
        return [arguments for what, arguments, _ in self.log if what == do]

    def kept_of_spots(self) -> list[dict[str, Any]]:
        return [arguments for what, arguments, _ in self.spots if what == "keep"]

    # --- commands -------------------------------------------------------------------------------------------------

    def _prepare(self, seeds: list[int], sets: int) -> Prepared:
        self.sets = min(self.most_sets, sets or len(seeds) - 1)
        return Prepared(sets=self.sets, covered=self.covered or sets == 1, input_bytes=2**20)

    def _keep(self, arm: str, position: int, seed: int) -> Nothing:
        return Nothing()

    def _release(self) -> Nothing:
        self.bias.clear()
        return Nothing()

    def _capture(self, arm: str, graph: str = "") -> Captured:
        if not self.kernels[arm].capturable:
            raise CommandFailed(Fault(kind="raised", message="operation not permitted when stream is capturing"))
        self.bias[graph or arm] = 1 + self.capture_bias * self.rng.standard_normal()
        self.now_ns += 1e6
        return Captured(nodes=self.sets)

    def _drop_graphs(self) -> Nothing:
        self.bias.clear()
        return Nothing()

    def _block(
        self,
        arm: str,
        calls: int,
        gate_ns: int = 0,
        flush: bool = False,
        rest_ns: int = 0,
        untimed: bool = True,
        at_once: bool = False,
        seeds: list[int] | None = None,
        early: bool = False,
        odd: tuple[int, str] | None = None,
    ) -> TimedBlock:
        self.now_ns += rest_ns
        self.blocks_of[arm] -= at_once  # stalls are of other blocks
        return self._timed(arm, calls, 1, self.kernels[arm].true_ns, gate_ns)

    def _replay(
        self,
        arm: str,
        replays: int,
        gate_ns: int = 0,
        flush: bool = False,
        graph: str = "",
        rest_ns: int = 0,
        at_once: bool = False,
        seeds: list[int] | None = None,
        early: bool = False,
        odd: tuple[int, str] | None = None,
    ) -> TimedBlock:
        self.now_ns += rest_ns
        return self._timed(arm, replays, self.sets, self.kernels[arm].true_ns * self.bias[graph or arm], gate_ns)

    def _e2e(
        self, arm: str, calls: int, rest_ns: int = 0, untimed: bool = True, seeds: list[int] | None = None
    ) -> TimedBlock:
        self.now_ns += rest_ns
        kernel = self.kernels[arm]
        reply = self._timed(arm, calls, 1, kernel.true_ns, 0)
        return reply.model_copy(update={"ticks_ns": [tick + kernel.enqueue_ns for tick in reply.ticks_ns]})

    def _sustained(
        self, arm: str, calls: int, lead: int, chunks: int, seed: int, graph: str = "", seeds: list[int] | None = None
    ) -> TimedBlock:
        each_ns = self.kernels[arm].true_ns * self.bias.get(graph or arm, 1.0)
        reply = self._timed(arm, lead + chunks, calls, each_ns, 0)
        return reply.model_copy(update={"ticks_ns": reply.ticks_ns[lead:]})

    # --- the GPU --------------------------------------------------------------------------------------------------

    def _timed(self, arm: str, launches: int, nodes: int, true_ns: float, gate_ns: int) -> dict[str, Any]:
        """One untimed launch, then `launches` timed ones of `nodes` calls each."""
        kernel = self.kernels[arm]
        self.blocks_of[arm] += 1
        one_launch_ns = kernel.stalls.get(self.blocks_of[arm], kernel.enqueue_ns)
        self.now_ns += nodes * true_ns
        factors = self._weather(launches, nodes * true_ns)
        ticks = nodes * true_ns * factors * np.exp(self.noise * self.rng.standard_normal(launches))
        enqueue = launches * one_launch_ns
        if kernel.synchronises:
            enqueue += gate_ns + float(ticks.sum())
        if not gate_ns or enqueue > gate_ns:  # the device waits for the host
            ticks = np.maximum(ticks, one_launch_ns)
        self.now_ns += gate_ns + float(ticks.sum()) + 50_000
        gated = gate_ns == 0 or enqueue <= gate_ns
        return TimedBlock(
            ticks_ns=(ticks / nodes).tolist(), enqueue_ns=int(enqueue), gate_ns=float(gate_ns), gated=gated
        )

    def _weather(self, count: int, each_ns: float) -> np.ndarray:
        """How much slower than its best the GPU is, launch after launch."""
        if self.rng.random() < 0.1:
            self.hopped = not self.hopped
        self.slow_noise = 0.95 * self.slow_noise + self.noise * self.rng.standard_normal()
        seconds = (self.now_ns + each_ns * np.arange(count)) / 1e9
        return (1 + self.drift_per_s * seconds) * np.exp(self.slow_noise) * (1 + self.hop * self.hopped)
