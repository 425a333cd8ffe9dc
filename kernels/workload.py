"""What to measure: Workload, Config and RunSpec. Results: kernels/contract/events.py.

The site, the agent and the instrument validate with the same models.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kernels.catalog import UnknownName, get_kernel, get_operation, kernels
from kernels.dtypes import DTYPE_SHORT
from kernels.operations.base import Operation

CONFIGS_DIR = Path(__file__).parent / "configs"
MAX_WORKLOADS = 500


class Workload(BaseModel):
    """An operation with a dtype and sizes. Canonical: one workload has one key, however it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    dtype: str = "float16"
    sizes: dict[str, Any]

    @model_validator(mode="after")
    def make_canonical(self) -> Workload:
        if "dtype" in self.sizes:
            raise ValueError("dtype stands beside sizes, not among them")
        try:
            problem = get_operation(self.operation)(dtype=self.dtype, **self.sizes)
        except UnknownName as error:
            raise ValueError(str(error)) from None
        self.__dict__["sizes"] = problem.model_dump(exclude={"dtype"})
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
        factor = problem.dense_flops() / problem.flops() if problem else 1.0
        return factor if factor > 1 else None

    @cached_property
    def label(self) -> str:
        return f"{self.operation} {DTYPE_SHORT[self.dtype]} {self.problem.label()}"


class Protocol(BaseModel):
    """How to measure. Times are in seconds or as named.

    paired: every arm in every round, in a balanced random order, compared within rounds (the default).
    fixed: W warm-up calls, then N timed calls of one kernel after the other, no pairing: what older suites did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["paired", "fixed"] = "paired"
    mode: Literal["auto", "cold", "graph", "warm", "sustained", "e2e"] = "auto"
    """auto: graph below 50 us, else cold. sustained: back to back for at least 1 s. e2e: host time, dispatch included.
    On a CPU the mode is always cpu."""
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Of all random numbers. None: drawn in secret, and recorded with the measurement; given here, it repeats that."""
    min_rounds: int = Field(20, ge=1, le=1000)
    max_rounds: int = Field(120, ge=1, le=1000)
    look_every: int = Field(10, ge=1, le=1000)
    precision: float = Field(0.003, gt=0, le=1)
    """Stop when the half-width of every speedup's interval is at most this."""
    budget_s: float = Field(60.0, gt=0, le=3600)
    """Time limit of the rounds of one workload, per pair."""
    processes: int = Field(1, ge=1, le=20)
    """Fresh processes that measure each workload, one after the other. With one, every interval includes the spread
    between processes that was measured before (kernels/analysis/processes.py); with several, also what they show."""
    warmup_s: float = Field(0.5, ge=0, le=60)
    block_ms: float = Field(2.0, gt=0, le=1000)
    """Approximate length of a block (4 to 50 calls)."""
    rest: float = Field(1.0, ge=0, le=10)
    """Rest before each block, as a multiple of the block's length. 0: back to back; a GPU at its power limit then
    changes its clock, and an arm's time depends on what ran before it."""
    verify_only: bool = False
    """Check correctness only; time nothing."""
    isolated: bool = False
    """Each kernel in a process of its own, which sees neither clock nor reference: docs/instrument.md#isolated."""
    verify_seeds: int = Field(6, ge=1, le=10)
    """Number of correctness checks, each on fresh inputs: N(0, 1), then the operation's other distributions, then
    again."""
    compile_limit_s: float = Field(300.0, gt=0, le=3600)
    warmup: int = Field(200, ge=0, le=100_000)
    """fixed: untimed calls."""
    iters: int = Field(500, ge=1, le=100_000)
    """fixed: timed calls."""
    flush_l2: bool = False
    """fixed: evict L2 before every call, by reading twice its size."""

    @model_validator(mode="after")
    def rounds_are_ordered(self) -> Protocol:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"max_rounds ({self.max_rounds}) is below min_rounds ({self.min_rounds})")
        return self

    @model_validator(mode="after")
    def isolated_measures_batches(self) -> Protocol:
        if self.isolated and (self.name != "paired" or self.mode != "auto"):
            raise ValueError("isolated measures batches in pairs: it has no other protocol or mode")
        return self


NORMAL: dict[str, Any] = {
    name: Protocol.model_fields[name].default
    for name in ("min_rounds", "max_rounds", "precision", "budget_s", "warmup_s", "processes")
}
EFFORTS: dict[str, dict[str, Any]] = {
    "quick": NORMAL | {"min_rounds": 10, "max_rounds": 20, "precision": 0.01, "budget_s": 3.0, "warmup_s": 0.2},
    "normal": NORMAL,
    "thorough": NORMAL | {"processes": 5},
}
"""Named settings of the protocol `paired`. quick: a few seconds a workload, wide intervals. thorough: five processes,
whose results count as confirmed."""


class Config(BaseModel):
    """A named list of workloads, kernels and a protocol: a YAML file in kernels/configs/, or a form's choices."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)
    title: str = ""
    operation: str
    kernels: list[str] = Field(min_length=1)
    baseline: str = ""
    """Empty: the operation's baseline."""
    protocol: Protocol = Protocol()
    workloads: list[Workload] = Field(min_length=1, max_length=MAX_WORKLOADS)

    @model_validator(mode="before")
    @classmethod
    def expand(cls, values: Any) -> Any:
        """Expands short workloads: sizes without `operation`, and lists, of which every combination is a workload
        (`batch: [1, 4]`)."""
        if not isinstance(values, dict) or not isinstance(values.get("workloads"), list):
            return values
        expanded: list[Any] = []
        for item in values["workloads"]:
            if isinstance(item, dict) and "sizes" not in item:
                if (count := math.prod(len(v) for v in item.values() if isinstance(v, list))) > MAX_WORKLOADS:
                    raise ValueError(f"these sizes make {count} workloads; the limit is {MAX_WORKLOADS}")
                expanded += [_as_workload(values.get("operation"), sizes) for sizes in multiply(item)]
            else:
                expanded.append(item)
        return values | {"workloads": expanded}

    @field_validator("workloads")
    @classmethod
    def without_repeats(cls, workloads: list[Workload]) -> list[Workload]:
        return list({w.key: w for w in workloads}.values())

    @model_validator(mode="after")
    def baseline_is_measured(self) -> Config:
        if stray := [w.label for w in self.workloads if w.operation != self.operation]:
            raise ValueError(f"all workloads of a config are of one operation ({self.operation}), not: {stray[0]}")
        self.baseline = self.baseline or get_operation(self.operation).baseline
        self.kernels = list(dict.fromkeys([self.baseline, *self.kernels]))
        return self


def _as_workload(operation: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    sizes = dict(sizes)
    return {"operation": operation, "dtype": sizes.pop("dtype", "float16"), "sizes": sizes}


def multiply(sizes: dict[str, Any]) -> list[dict[str, Any]]:
    """{"batch": [1, 4], "heads": 8} -> [{"batch": 1, "heads": 8}, {"batch": 4, "heads": 8}]"""
    choices = [value if isinstance(value, list) else [value] for value in sizes.values()]
    return [dict(zip(sizes, combination, strict=True)) for combination in itertools.product(*choices)]


class ConfigError(ValueError):
    """A config is not usable. The message says where and why."""


@lru_cache(maxsize=128)
def _yaml(text: str) -> Any:
    """The values of a file, parsed once for each content."""
    return yaml.safe_load(text)


def load_config(name_or_path: str) -> Config:
    """A config by name (kernels/configs/NAME.yaml) or by path."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = CONFIGS_DIR / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in CONFIGS_DIR.glob("*.yaml")))
        raise ConfigError(f"there is no config '{name_or_path}'; there are: {known}; or give the path of a .yaml file")
    try:
        values = _yaml(path.read_text())
        if not isinstance(values, dict):
            raise ConfigError(f"{path.name} is not a mapping of name, operation, kernels, workloads")
        return Config(**{"name": path.stem} | values)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not YAML: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{path.name}: {sentence(error)}") from None


def configs() -> list[Config]:
    return [load_config(path.stem) for path in sorted(CONFIGS_DIR.glob("*.yaml"))]


def sentence(error: ValidationError) -> str:
    """The first validation error, as "where: what"."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
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


class SourceFile(BaseModel):
    """A kernel's file that is sent with a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the kernel's folder."""
    text: str


class RunSpec(BaseModel):
    """One run for one device, as the agent receives it.

    In a run of several operations `operation` is empty: each workload names its own, and kernels are written
    operation/name. Not in use yet; nor is `sources`.
    """

    model_config = ConfigDict(extra="forbid")

    run: int = 0
    attempt: int = 1
    device: str
    """UUID of the GPU, or of the CPU."""
    operation: str
    kernels: list[str]
    baseline: str
    protocol: Protocol
    workloads: list[Workload]
    done: list[str] = []
    """Keys of workloads that earlier attempts have measured."""
    fingerprint: str = ""
    """Fingerprint of the earlier attempt: a resumed run must find the same environment. Empty: any."""
    ceilings: Ceilings | None = None
    """Ceilings of the device. None: calibrate first."""
    sources: dict[str, list[SourceFile]] = {}
    """operation/name -> files of a kernel that the agent does not have."""

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


def check_kernels(config: Config) -> None:
    """Raises UnknownName if no file declares a kernel of the config."""
    known = {info.name for info in kernels(config.operation)}
    for name in config.kernels:
        if name not in known:
            get_kernel(config.operation, name)
