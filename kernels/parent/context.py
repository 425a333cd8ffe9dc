"""What all workloads of a run share, once its process is up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.host.device import Device
from kernels.host.telemetry import Telemetry
from kernels.parent.arm import Arm
from kernels.parent.progress import Progress
from kernels.parent.session import ChildSession
from kernels.workload import Ceilings, RunSpec


@dataclass(frozen=True)
class RunContext:
    spec: RunSpec
    device: Device
    environment: dict[str, Any]
    ceilings: Ceilings | None
    """Ceilings that no time should exceed; None if unknown."""
    session: ChildSession
    telemetry: Telemetry
    progress: Progress
    on_tests: dict[str, Arm] = field(default_factory=dict)
    """How each kernel did on the tests that came with its problem."""
    on_edges: dict[tuple[str, str, str], Arm] = field(default_factory=dict)
    """Key of a small workload of an odd size, kernel, environment variables -> how it did there: workloads of one config share
    many of them."""

    @property
    def is_cuda(self) -> bool:
        return self.device.kind == "cuda"

    @property
    def l2_bytes(self) -> int:
        return self.environment.get("l2_bytes", 0)
