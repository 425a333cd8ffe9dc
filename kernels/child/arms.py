"""The arms of a measuring child: the kernels it has loaded, as they run on the current workload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch

from kernels.catalog import LoadedKernel, get_kernel, load
from kernels.child import clock, into, launches, outputs
from kernels.child.environment import card
from kernels.child.guard import Guard
from kernels.contract.replies import Compiled, Loaded
from kernels.operations.base import Inputs, Like, Operation
from kernels.settings import Settings, settled, spelled
from kernels.workload import Workload


class Arms:
    """Kernels stay loaded from workload to workload; their settings belong to one."""

    def __init__(self, kind: str, guard: Guard) -> None:
        self.kind, self.guard = kind, guard
        self.loaded: dict[str, LoadedKernel] = {}
        self.forget()

    def forget(self) -> None:
        """Forgets the workload."""
        self.likes: tuple[Like, ...] = ()
        self.calls: dict[str, Callable[..., Any]] = {}
        """Each arm with its settings for the current workload."""

    def open(self, workload: Workload) -> Operation:
        """Makes a workload the current one; returns its problem."""
        self.workload = workload
        self.problem: Operation = workload.problem
        return self.problem

    def kernel(self, arm: str) -> LoadedKernel:
        """A kernel of the current operation; its file is loaded when it is first asked for."""
        name = f"{self.problem.name}/{arm}"
        if name not in self.loaded:
            self.guard.begin()
            kernel = load(get_kernel(self.problem.name, arm), self.loaded.values())
            self.guard.know(arm, kernel.call)
            if into.wants_out(kernel.call):
                kernel.call = into.returning(kernel.call, self._new_output)
            self.loaded[name] = kernel
        return self.loaded[name]

    def _new_output(self, *tensors: torch.Tensor) -> Any:
        """What a kernel of the current workload writes into: a new tensor, or a tuple of them."""
        self.likes = self.likes or outputs.likes(self.problem, Inputs(tensors, {}))
        return outputs.new(self.likes, tensors[0].device)

    def call(self, arm: str) -> Callable[..., Any]:
        """An arm as it runs on the current workload."""
        if arm not in self.calls:
            kernel = self.kernel(arm)
            self.calls[arm] = settled(kernel.call, self._settings(kernel)[0])
        return self.calls[arm]

    def _settings(self, kernel: LoadedKernel) -> tuple[Settings | None, str]:
        """(its settings for the current workload on this card, where they come from)."""
        if not kernel.decides.space:
            return None, ""
        return kernel.decides.chosen(self.workload.key, *card(self.kind))

    def run(self, arm: str, inputs: Inputs) -> Any:
        """One call."""
        return self.call(arm)(*inputs.tensors, **inputs.options)

    def load(self, arm: str) -> Loaded:
        """Loads a kernel's file."""
        kernel = self.kernel(arm)
        self.guard.claim_processes(arm)
        settings, tuned = self._settings(kernel)
        return Loaded(sha256=kernel.sha256, source=kernel.source, settings=spelled(settings or {}), tuned=tuned)

    def compile(self, arm: str, inputs: Inputs, the_clock: clock.Clock) -> Compiled:
        """See Bench.compile."""
        the_clock.synchronize()
        start = perf_counter_ns()
        self.run(arm, inputs)
        the_clock.synchronize()
        compile_s = (perf_counter_ns() - start) / 1e9
        self.guard.claim_processes(arm)
        return Compiled(compile_s=compile_s, **launches.second_call(partial(self.run, arm, inputs), the_clock))
