"""A session in the caller's process: the engine drives the caller's callables like a measuring child."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernels.catalog import LoadedKernel
from kernels.child.bench import Bench
from kernels.child.guard import Guard
from kernels.child.settings import OF_PLACES, OF_THREADS
from kernels.contract.arm_result import Status
from kernels.contract.events import HostLoad
from kernels.contract.replies import Fault
from kernels.host.device import Device, NoSuchDevice, find_device, locked, nvml, print_changes
from kernels.host.environment import cpu_name
from kernels.host.telemetry import Telemetry
from kernels.inprocess.adhoc import Adhoc, Kernel, Source, Tensors, as_outputs, copies, exact_way, like, peak_dtype
from kernels.inprocess.judged import BASELINE, Judged
from kernels.parent.arm import Arm
from kernels.parent.checking import Check
from kernels.parent.child_process import CommandFailed
from kernels.parent.engine import Engine, Timed
from kernels.parent.seeds import Draws
from kernels.protocol import Protocol


class PermissiveGuard(Guard):
    """The guard in the caller's process: other threads and processes belong to the caller."""

    ignored = frozenset({OF_THREADS, *OF_PLACES})

    def busy(self, arm: str) -> list[tuple[str, str]]:
        return []

    def claim(self, arm: str) -> None:
        pass

    def claim_processes(self, arm: str) -> None:
        pass

    def leaves_threads(self) -> bool:
        return False


class InProcess(Bench):
    """Bench over the caller's callables, and its session. Exceptions of callables propagate."""

    replaceable = False

    def __init__(self, device: torch.device, callables: Mapping[str, Kernel]) -> None:
        super().__init__(device.type)
        self.device = str(device)
        self.callables: dict[str, Kernel] = {}
        self.guard = self.arms.guard = PermissiveGuard(self.kind, self.clock)
        for arm, call in callables.items():
            self.use(arm, call)
        self.changed: dict[str, str] = {}
        """Arm -> global state that it changed."""
        self.running, self.is_aside = "", False
        self.guard.begin()
        for arm, call in callables.items():
            self.guard.know(arm, call)

    def use(self, arm: str, call: Kernel) -> None:
        """Makes this the arm's callable."""
        self.callables[arm] = call
        self.arms.loaded[f"{Adhoc.name}/{arm}"] = LoadedKernel(call, "", "")

    def put_back(self, arm: str) -> None:
        """Restores global state. A change is attributed to this arm, if one is given."""
        if (changes := self.guard.changes(arm)) and arm:
            self.changed.setdefault(arm, "; ".join(changes))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Restores settings around untimed code. The running arm changed what differs before; what differs after is not
        attributed."""
        if self.is_aside:
            yield
            return
        self.is_aside = True
        if (changes := self.guard.settings_changes()) and self.running:
            self.changed.setdefault(self.running, "; ".join(changes))
        try:
            yield
        finally:
            self.guard.settings_changes()
            self.is_aside = False

    def _be_alone(self) -> None:
        """Nothing: the callables are the caller's own, and settings are compared while values are drawn."""

    def _renew(self, seeds: Sequence[int]) -> None:
        with self.aside():
            super()._renew(seeds)

    # --- the session ----------------------------------------------------------------------------------------------

    def call(self, do: str, limit_s: float = 0.0, **arguments: Any) -> Any:
        """Exceptions of callables propagate, except from a capture: a callable that cannot be captured is no error."""
        self.running = arguments.get("arm", "")
        try:
            return getattr(self, do)(**arguments)
        except Exception as error:
            if do != "capture":
                raise
            self.put_back("")  # a failed capture may leave its stream the current one
            raise CommandFailed(Fault(kind="raised", message=f"{type(error).__name__}: {error}")) from error
        finally:
            if (changes := self.sets.changes()) and self.running:
                self.changed.setdefault(self.running, "; ".join(changes))
            self.put_back(self.running)

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> Any:
        return self.call(do, limit_s, arm=arm.name, **arguments)

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        raise error

    def replace(self) -> None:
        raise RuntimeError("measure() cannot restart the process")

    def why_suspect(self, arm: str) -> str:
        return f"changed global state: {self.changed[arm]}" if arm in self.changed else ""

    def first(self, arm: str, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """Outputs of the first call of an arm. Raises TypeError if they cannot be measured."""
        outs = as_outputs(arm, self.callables[arm](*tensors))
        self.clock.synchronize()
        return outs


# --- one call of measure() --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(device: torch.device) -> Iterator[Telemetry]:
    """Locks the device against other measurements on this host; disables gradients.

    No telemetry thread runs, unlike in a run: it would take time from the callables.
    """
    known = listed(device)
    here: AbstractContextManager[Any] = contextlib.nullcontext()
    if device.type == "cuda":
        here = torch.cuda.device(device)
    with locked(known, on_wait=print_changes()), nvml() as lib, here, torch.no_grad():
        yield Telemetry(lib, known)


def listed(device: torch.device) -> Device:
    if device.type == "cpu":
        return find_device("cpu")
    properties = torch.cuda.get_device_properties(device)
    uuid = f"GPU-{properties.uuid}"
    with contextlib.suppress(NoSuchDevice):
        return find_device(uuid)
    return Device("unlisted", uuid, properties.name)  # without NVML: a lock, but no telemetry


def problem_of(bench: InProcess, source: Source, reference: Kernel | None, flops: float, traffic: int) -> Adhoc:
    """The problem, after the first call of every callable. The baseline replaces the reference only if there is
    none."""
    outs = {arm: bench.call("first", arm=arm, tensors=source.draw(source.seed)) for arm in bench.callables}
    arm = BASELINE if BASELINE in outs else next(iter(outs))
    truth, right, exact, tensors = bench.callables[arm], outs[arm], None, source.draw(source.seed)
    whose = BASELINE if arm == BASELINE else ""
    if reference is not None:
        with bench.aside():
            right = as_outputs("the reference", reference(*copies(tensors)))
            exact = exact_way(reference, tensors, right)
        whose, truth = "reference", reference
        if exact.dtype != torch.float64:
            source.notes.append(f"the reference does not support float64; computed in {exact.dtype}")
    peak = peak_dtype([*tensors, *right])
    return Adhoc(
        dtype=peak or "float16",
        bounded=peak is not None and (exact is not None or peak != "float32"),
        source=source,
        truth=truth,
        whose=whose,
        exact=exact,
        outputs=like(right),
        terms=max(max(tensor.shape, default=1) for tensor in tensors),
        aside=bench.aside,
        work=flops,
        traffic=traffic,
    )


class Comparison:
    """One call of measure(): the engine on the caller's callables."""

    def __init__(self, bench: InProcess, problem: Adhoc, plan: Protocol, telemetry: Telemetry) -> None:
        self.bench, self.problem, self.plan, self.telemetry = bench, problem, plan, telemetry
        bench.problem = bench.arms.problem = problem
        self.arms = {name: Arm(name) for name in bench.callables}
        self.notes = list(problem.source.notes)
        self.timed: Timed | None = None

    def measure(self) -> None:
        rng = Draws(f"measure/{self.problem.source.seed}")
        engine = Engine(
            session=self.bench,
            open=lambda afresh: None,
            problem=self.problem,
            arms=list(self.arms.values()),
            baseline=BASELINE,
            plan=self.plan,
            judge=Judged(self.problem, BASELINE in self.arms),
            checks=[Check(rng.of_inputs()) for _ in range(self.plan.verify_seeds)],
            rng=rng,
            cuda=self.bench.kind == "cuda",
            telemetry=self.telemetry,
        )
        engine.verify()
        self.bench.call("forget_references")
        if engine.alive:
            (self.timed,) = engine.time()
        self.notes += engine.notes
        if others := self.telemetry.others():
            self.notes.append(f"contended: {len(others)} other processes are on this GPU")
        if self.load and self.load.is_busy:
            self.notes.append(f"contended: other processes used {self.load.foreign:.0%} of the CPU time")

    @property
    def load(self) -> HostLoad | None:
        """What others took of the CPU that was measured; None on a GPU, or unknown."""
        host = self.timed.reading.host if self.timed and self.timed.reading else None
        return HostLoad.model_validate(host) if host and self.bench.kind == "cpu" else None

    @property
    def is_busy(self) -> bool | None:
        return self.load.is_busy if self.load else None

    @property
    def against(self) -> str:
        """The arm that others are compared with: the baseline, or the first timed one."""
        assert self.timed is not None
        return BASELINE if BASELINE in self.timed.group.arms else self.timed.group.arms[0]

    @property
    def device_name(self) -> str:
        return torch.cuda.get_device_name(self.bench.device) if self.bench.kind == "cuda" else cpu_name()

    def is_ok(self, name: str) -> bool:
        return self.arms[name].status == Status.OK
