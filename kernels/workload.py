"""What to measure: Workload, Config and RunSpec. How: kernels/protocol.py. Results: kernels/contract/events.py.

The site, the agent and the instrument validate with the same models.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kernels.catalog import PROBLEM, UnknownName, get_operation
from kernels.dtypes import DTYPE_SHORT
from kernels.operations.base import Operation
from kernels.protocol import Protocol
from kernels.submission import Submission, is_submitted
from kernels.tune_plan import TunePlan

MAX_WORKLOADS = 2_000


class Workload(BaseModel):
    """An operation with a dtype and sizes. Canonical: one workload has one key, however it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    dtype: str = "float16"
    sizes: dict[str, Any]

    @model_validator(mode="after")
    def make_canonical(self) -> Workload:
        if "dtype" in self.sizes:
            raise ValueError("write dtype next to sizes, not inside sizes")
        try:
            problem = get_operation(self.operation)(dtype=self.dtype, **self.sizes)
        except UnknownName as error:
            raise ValueError(str(error)) from None
        self.__dict__["sizes"] = problem.sizes()
        self.__dict__["problem"] = problem  # the cached property
        return self

    @cached_property
    def problem(self) -> Operation:
        return get_operation(self.operation)(dtype=self.dtype, **self.sizes)

    @cached_property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the canonical form."""
        canonical = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def brief_sizes(self) -> dict[str, Any]:
        """Sizes without those that equal their default."""
        return {name: value for name, value in self.sizes.items() if not self._goes_without_saying(name)}

    def _goes_without_saying(self, name: str) -> bool:
        sizes = {other: value for other, value in self.sizes.items() if other != name}
        try:
            return self == Workload(operation=self.operation, dtype=self.dtype, sizes=sizes)
        except ValidationError:
            return False

    @property
    def known_problem(self) -> Operation | None:
        """The problem; None if its operation, or such sizes of it, no longer exist: stored results outlive them."""
        try:
            return self.problem
        except (UnknownName, ValidationError):
            return None

    @property
    def dense_factor(self) -> float | None:
        """Work with masked elements counted, over the unmasked work; None if nothing is masked, or it is unknown."""
        problem = self.known_problem
        factor = problem.dense_flops() / problem.flops() if problem and problem.flops() else 1.0
        return factor if factor > 1 else None

    @cached_property
    def label(self) -> str:
        return f"{self.operation} {DTYPE_SHORT[self.dtype]} {self.problem.label()}"


class Choice(BaseModel):
    """Kernels and the workloads that they are measured on.

    Of one operation: `operation` names it. Of several: it is empty, each workload names its own, and kernels are written
    operation/name.
    """

    operation: str = ""
    kernels: list[str]
    baseline: str = ""
    workloads: list[Workload]

    @property
    def operations(self) -> list[str]:
        """Names of the operations, in the order of their workloads."""
        return [self.operation] if self.operation else list(dict.fromkeys(w.operation for w in self.workloads))

    def kernels_of(self, operation: str) -> list[str]:
        """Names of an operation's kernels, its baseline first."""
        if self.operation:
            return self.kernels if operation == self.operation else []
        split = (name.split("/", 1) for name in self.kernels)
        return [name for of, name in split if of == operation]

    def baseline_of(self, operation: str) -> str:
        """The kernel that the others of an operation are compared with."""
        return self.baseline if self.operation else self.kernels_of(operation)[0]


class Config(Choice):
    """A named list of workloads, kernels and a protocol: a YAML file in kernels/configs/, or a form's choices.

    A file of several operations has `operations: {gelu: {kernels: [...], workloads: [...]}, ...}`.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)
    title: str = Field("", max_length=200)
    source: str = ""
    """Where the sizes come from."""
    kernels: list[str] = Field(min_length=1)
    protocol: Protocol = Protocol()
    workloads: list[Workload] = Field(min_length=1, max_length=MAX_WORKLOADS)

    @model_validator(mode="before")
    @classmethod
    def expand(cls, values: Any) -> Any:
        """Writes several operations as one list of kernels and one of workloads. Expands short workloads: sizes without
        `operation`, and lists, of which every combination is a workload (`batch: [1, 4]`)."""
        if not isinstance(values, dict):
            return values
        if "operations" in values:
            values = _of_several(values)
        if not isinstance(values.get("workloads"), list):
            return values
        return values | {"workloads": _expanded(values.get("operation"), values["workloads"])}

    @field_validator("workloads")
    @classmethod
    def without_repeats(cls, workloads: list[Workload]) -> list[Workload]:
        return list({w.key: w for w in workloads}.values())

    @model_validator(mode="after")
    def submitted_kernels_are_isolated(self) -> Config:
        if not self.protocol.isolated and (found := [name for name in self.kernels if is_submitted(name)]):
            raise ValueError(f"the submitted kernel {found[0]} is measured isolated only: choose the protocol isolated")
        return self

    @model_validator(mode="after")
    def baseline_is_measured(self) -> Config:
        if not self.operation:
            return self._with_baselines()
        if stray := [w.label for w in self.workloads if w.operation != self.operation]:
            raise ValueError(f"all workloads of a config are of one operation ({self.operation}), not: {stray[0]}")
        if self.operation == PROBLEM and len({w.sizes[PROBLEM] for w in self.workloads}) > 1:
            raise ValueError("a problem that came with its kernels has a config of its own")
        usual = get_operation(self.operation).baseline or self.workloads[0].sizes[PROBLEM]
        self.baseline = self.baseline or usual
        self.kernels = list(dict.fromkeys([self.baseline, *self.kernels]))
        return self

    def _with_baselines(self) -> Config:
        """Of several operations: each has its kernels, the operation's own baseline among them, and workloads."""
        if self.baseline:
            raise ValueError("a config of several operations has a baseline for each of them")
        if unclear := [name for name in self.kernels if "/" not in name]:
            raise ValueError(f"without an operation, kernels are written operation/name, not: {unclear[0]}")
        named = dict.fromkeys(name.split("/", 1)[0] for name in self.kernels)
        if idle := [name for name in named if name not in self.operations]:
            raise ValueError(f"there are kernels of {idle[0]}, but no workload")
        if empty := [name for name in self.operations if name not in named]:
            raise ValueError(f"there are workloads of {empty[0]}, but no kernel")
        self.kernels = list(dict.fromkeys(self.kernels))
        return self

    def part(self, operation: str) -> Config:
        """The config of one operation alone."""
        mine = {"operation": operation, "kernels": self.kernels_of(operation), "baseline": self.baseline_of(operation)}
        return self.model_copy(update=mine | {"workloads": [w for w in self.workloads if w.operation == operation]})


def _of_several(values: dict[str, Any]) -> dict[str, Any]:
    """The file's form of several operations as one list of kernels and one of workloads."""
    parts = values["operations"]
    rest = {name: value for name, value in values.items() if name != "operations"}
    if beside := [name for name in ("operation", "kernels", "baseline", "workloads") if rest.get(name)]:
        raise ValueError(f"{beside[0]} stands beside operations: write it for each of them")
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise ValueError("operations is a mapping: gelu: {kernels: [...], workloads: [...]}")
    named: list[str] = []
    workloads: list[Any] = []
    for operation, part in parts.items():
        if more := part.keys() - {"kernels", "baseline", "workloads"}:
            raise ValueError(f"{operation} has kernels, a baseline and workloads, not: {sorted(more)[0]}")
        if not isinstance(part.get("kernels"), list) or not isinstance(part.get("workloads"), list):
            raise ValueError(f"{operation} needs a list of kernels and a list of workloads")
        if strange := [name for name in (*part["kernels"], part.get("baseline") or "") if not isinstance(name, str)]:
            raise ValueError(f"a kernel of {operation} is a name, not: {strange[0]!r:.40}")
        if operation == PROBLEM:
            raise ValueError("a problem that came with its kernels has a config of its own")
        try:
            baseline = get_operation(operation).baseline
        except UnknownName as error:
            raise ValueError(str(error)) from None
        names = dict.fromkeys([part.get("baseline") or baseline, *part["kernels"]])
        named += [f"{operation}/{name}" for name in names]
        workloads += _expanded(operation, part["workloads"])
    return rest | {"kernels": named, "workloads": workloads}


def _expanded(operation: Any, workloads: list[Any]) -> list[Any]:
    """Every combination of the lists in short workloads; others as they are."""
    expanded: list[Any] = []
    for item in workloads:
        if isinstance(item, dict) and "sizes" not in item:
            if (count := math.prod(len(v) for v in item.values() if isinstance(v, list))) > MAX_WORKLOADS:
                raise ValueError(f"these sizes make {count} workloads; the limit is {MAX_WORKLOADS}")
            expanded += [_as_workload(item.get("operation") or operation, sizes) for sizes in multiply(item)]
        else:
            expanded.append({"operation": operation} | item if operation and isinstance(item, dict) else item)
    return expanded


def _as_workload(operation: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    sizes = {name: value for name, value in sizes.items() if name != "operation"}
    return {"operation": operation, "dtype": sizes.pop("dtype", "float16"), "sizes": sizes}


def multiply(sizes: dict[str, Any]) -> list[dict[str, Any]]:
    """{"batch": [1, 4], "heads": 8} -> [{"batch": 1, "heads": 8}, {"batch": 4, "heads": 8}]"""
    choices = [value if isinstance(value, list) else [value] for value in sizes.values()]
    return [dict(zip(sizes, combination, strict=True)) for combination in itertools.product(*choices)]


def sentence(error: ValidationError) -> str:
    """The first validation error, as "where: what"."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no such field"
    what = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    return f"{where}: {what}" if where else what


class Ceilings(BaseModel):
    """Measured ceilings of a device, as rates: medians of one calibration on a quiet device."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    copy_gb_per_s: float
    """Counts bytes read and bytes written."""
    read_gb_per_s: float
    matmul_tflops: dict[str, float] = {}
    """By dtype."""
    empty_us: dict[str, float] = {}
    """An empty kernel's time, by mode."""
    intervals: dict[str, tuple[float, float]] = {}
    """99% interval of each figure: by its field (copy_gb_per_s, read_gb_per_s), dtype or mode. Empty in calibrations of
    harness 5 and before."""
    n: int | None = None
    """Timed copies."""

    @property
    def bandwidth_gb_per_s(self) -> float:
        """The higher rate: copy or read."""
        return max(self.copy_gb_per_s, self.read_gb_per_s)


class RunSpec(Choice):
    """One run for one device, as the agent receives it."""

    model_config = ConfigDict(extra="forbid")

    run: int = 0
    attempt: int = 1
    device: str
    """UUID of the GPU, or of the CPU."""
    protocol: Protocol
    done: list[str] = []
    """Keys of workloads that earlier attempts have measured."""
    fingerprint: str = ""
    """Fingerprint of the earlier attempt: a resumed run must find the same environment. Empty: any."""
    ceilings: Ceilings | None = None
    """Ceilings of the device. None: calibrate first."""
    submissions: list[Submission] = []
    """The submitted kernels among `kernels`."""
    tune: TunePlan | None = None
    """Search the best settings of its only kernel, instead of measuring it."""
    tried: list[dict[str, Any]] = []
    """Trials of earlier attempts: kernels/contract/search.py."""

    @model_validator(mode="after")
    def one_kernel_is_tuned(self) -> RunSpec:
        if self.tune and (self.protocol.isolated or self.protocol.name != "paired" or self.protocol.verify_only):
            raise ValueError("a search measures in pairs, and not isolated")
        return self

    profile: str = ""
    """A kernel that is only profiled: nothing is measured. Empty: all are measured."""

    @model_validator(mode="after")
    def submissions_are_isolated(self) -> RunSpec:
        if self.submissions and not self.protocol.isolated:
            raise ValueError("a submitted kernel is measured isolated only")
        return self

    def as_message(self) -> dict[str, Any]:
        """As JSON for an agent. A field that an earlier agent does not know is sent only if it says something: such an
        agent refuses a run with a field that it does not know."""
        silent = {name for name in ("submissions", "profile", "tune", "tried") if not getattr(self, name)}
        said = self.model_dump(mode="json", exclude=silent)
        for one in said.get("submissions", []):
            if one["git"] is None:
                del one["git"]
        return said

    @classmethod
    def of(cls, config: Config, device: str, **more: Any) -> RunSpec:
        return cls(
            device=device,
            operation=config.operation,
            kernels=config.kernels,
            baseline=config.baseline,
            protocol=config.protocol,
            workloads=config.workloads,
            **more,
        )
