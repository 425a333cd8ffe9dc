"""A kernel's results from run to run, as series of comparable results.

A series ends where workload, card, environment, mode, protocol, baseline or its source changes; series are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from kernels.contract.environment import KEYED
from kernels.report.cells import listed
from kernels.report.comparison import COMPARABILITY_KEYS
from runs.models import Environment, Gpu, Kernel, Workload
from runs.queries import point_rows
from runs.queries.points import Point
from runs.queries.ratio import Ratio

MOST_RESULTS = 2000
"""Number of newest results read for a page."""
FIELDS = (
    "workload", "workload_key", "mode", "kernel", "series", "run", "result", "measured_at", "status", "verdict", "speedup",
    "speedup_low", "speedup_high", "margin", "rounds", "p50_ms", "p50_low_ms", "p50_high_ms", "baseline",
    "baseline_p50_ms", "sha256", "baseline_sha256", "card", *KEYED, "fingerprint", "processes", "confirmed",
    "isolated", "contended", "demo",
)  # fmt: skip
NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "triton": "Triton"}


class Terms(NamedTuple):
    """What must agree within a series."""

    workload: int
    mode: str
    group: str
    baseline: str
    baseline_sha256: str
    card: str
    fingerprint: str
    how: tuple[Any, ...]


@dataclass
class Series:
    """Results on one workload with the same terms, newest first."""

    terms: Terms
    workload: Workload
    environment: dict[str, Any]
    gpu: Gpu | None
    points: list[Point] = field(default_factory=list)
    number: int = 1
    """1 for the newest series on its workload."""

    @property
    def newest(self) -> Point:
        return self.points[0]

    @property
    def drawn(self) -> list[tuple[Point, Ratio]]:
        """Points with a speedup, oldest first."""
        return [(point, ratio) for point in reversed(self.points) if (ratio := point.ratio) is not None]

    @property
    def facts(self) -> dict[str, str]:
        """The terms in words, without workload and device name."""
        known = {NAMES.get(key, key): str(self.environment.get(key) or "") for key in KEYED if key != "device"}
        how = dict(zip(COMPARABILITY_KEYS, self.terms.how, strict=True))
        known |= {"mode": self.terms.mode, "in pairs": "no" if how["paired"] is False else ""}
        known["rests"] = "" if how["rest"] is None else f"{how['rest']:g}"
        over = f"{self.terms.baseline} {self.terms.baseline_sha256[:7]}".strip()
        return {"card": card_of(self.gpu, self.environment)} | known | {"over": over}


def card_of(gpu: Gpu | None, environment: Mapping[str, Any]) -> str:
    """A card in words: where it is; of a card that is no device of this site, "GPU-" and the first 8 digits of its uuid."""
    return gpu.place if gpu else str(environment.get("uuid") or "unknown")[:12]


def devices(kernel: Kernel | None = None) -> dict[str, dict[int, Environment]]:
    """Device names with results (of the kernel, or all), latest first, with their environments."""
    last = point_rows.last_runs(kernel)
    known = Environment.objects.in_bulk(last)
    names: dict[str, dict[int, Environment]] = {}
    for pk in sorted(last, key=lambda pk: -last[pk]):
        names.setdefault(known[pk].body.get("device") or "", {})[pk] = known[pk]
    return names


def series(
    kernel: Kernel,
    environments: Mapping[int, Environment],
    key: str = "",
    most: int | None = None,
    gpus: Mapping[int, Gpu] | None = None,
) -> list[Series]:
    """Series of a kernel in these environments, by workload from small to large; newest first within a workload.

    most: number of newest results read. gpus: all of them, if they are read already.
    """
    found = point_rows.tried(kernel, environments=environments, key=key)
    return grouped(point_rows.points(found, most, are_few=bool(key)), environments, gpus)


def every(kernel: Kernel, environments: Mapping[int, Environment], key: str = "") -> Iterator[dict[str, Any]]:
    """The rows of all its results there, read workload by workload: as many as there are, in little memory."""
    if kernel.pk is None:
        return
    keys = [key] if key else [workload.key for workload in sorted(point_rows.workloads_of(kernel), key=_work)]
    for one in keys:
        yield from rows(series(kernel, environments, one), kernel.name)


def page(
    kernel: Kernel, environments: Mapping[int, Environment], key: str, before: int | None, count: int
) -> list[dict[str, Any]]:
    """The rows of `count` results, those that were stored last before a row id. They have no number of a series."""
    if kernel.pk is None:
        return []
    found = point_rows.tried(kernel, environments=environments, key=key)
    if before is not None:
        found = found.filter(pk__lt=before)
    made = rows(grouped(point_rows.points(found, count, are_few=bool(key)), environments), kernel.name)
    return sorted(({n: v for n, v in row.items() if n != "series"} for row in made), key=lambda row: -row["result"])


def grouped(
    points: Sequence[Point],
    known: Mapping[int, Environment] | None = None,
    gpus: Mapping[int, Gpu] | None = None,
) -> list[Series]:
    """Groups results into series, in their order. known, gpus: environments and GPUs, if they are read already."""
    if known is None:
        known = Environment.objects.in_bulk({point.environment for point in points})
    if gpus is None:
        gpus = Gpu.objects.defer("catalogue").in_bulk({point.gpu for point in points if point.gpu})
    workloads = Workload.objects.in_bulk({point.workload for point in points})
    made: dict[Terms, Series] = {}
    for point in points:
        environment, gpu = known[point.environment], gpus.get(point.gpu or 0)
        terms = _terms(point, environment.fingerprint, gpu)
        one = made.setdefault(terms, Series(terms, workloads[point.workload], environment.body, gpu))
        one.points.append(point)
    return _numbered(sorted(made.values(), key=_size))


def _terms(point: Point, fingerprint: str, gpu: Gpu | None) -> Terms:
    """The terms of a result. The card of a demo run is unknown: each demo run is its own series."""
    card = gpu.uuid if gpu and not point.demo else f"of run {point.run}"
    sha256 = point.base_sha256 or ""
    return Terms(point.workload, point.mode, point.group, point.baseline, sha256, card, fingerprint, point.how)


def what_differs(one: Series, other: Series) -> list[str]:
    """With what two series were not measured alike: "host" or "card", "driver", "harness", ...; nothing: on one card with the
    same versions."""
    hosts = {series.gpu.host if series.gpu else "" for series in (one, other)}
    found = [] if one.terms.card == other.terms.card else ["card"] if len(hosts) == 1 else ["host"]
    bodies = one.environment, other.environment
    return found + [
        NAMES.get(key, key)
        for key in KEYED
        if key != "device" and len({str(body.get(key) or "") for body in bodies}) > 1
    ]


def are_alike(series: Iterable[Series]) -> bool:
    """Whether results on several workloads are of one card, with the same versions, protocol and baseline. Others have no common
    mean."""
    return len({one.terms._replace(workload=0, mode="", group="") for one in series}) < 2


def differences(series: Sequence[Series]) -> list[str]:
    """Of each, what differs from the one before it: "host and driver"; empty: both were measured alike."""
    return ["" for _ in series[:1]] + [listed(what_differs(*pair)) for pair in pairwise(series)]


def _size(one: Series) -> tuple[Any, ...]:
    """Sort key: by workload; newest first within one."""
    return *_work(one.workload), -one.newest.run


def _work(workload: Workload) -> tuple[Any, ...]:
    """Sort key: dtype and sizes."""
    sizes = [(str(type(value)), value) for value in workload.sizes.values() if isinstance(value, int | float)]
    return workload.dtype, sizes, workload.label


def _numbered(series: list[Series]) -> list[Series]:
    counts: dict[int, int] = {}
    for one in series:
        counts[one.terms.workload] = one.number = counts.get(one.terms.workload, 0) + 1
    return series


def rows(series: Iterable[Series], kernel: str) -> list[dict[str, Any]]:
    """One row of FIELDS per result. None: unknown."""
    return [_row(one, point) | {"kernel": kernel} for one in series for point in one.points]


def _row(one: Series, point: Point) -> dict[str, Any]:
    return {
        "workload": one.workload.label,
        "workload_key": one.workload.key,
        "mode": point.mode,
        "series": one.number,
        "run": point.run,
        "result": point.pk,
        "measured_at": (point.started_at or point.created_at).isoformat(),
        "status": point.status,
        "verdict": point.verdict,
        "speedup": point.speedup,
        "speedup_low": point.speedup_low,
        "speedup_high": point.speedup_high,
        "margin": point.margin,
        "rounds": point.rounds,
        "p50_ms": point.p50_ms,
        "p50_low_ms": point.p50_low_ms,
        "p50_high_ms": point.p50_high_ms,
        "baseline": point.baseline,
        "baseline_p50_ms": point.base_p50_ms,
        "sha256": point.sha256,
        "baseline_sha256": point.base_sha256,
        "card": one.gpu.uuid if one.gpu else None,
        **{key: one.environment.get(key) for key in KEYED},
        "fingerprint": one.terms.fingerprint,
        "processes": point.processes or 1,
        "confirmed": bool(point.is_confirmed),
        "isolated": bool(point.isolated),
        "contended": bool(point.contended),
        "demo": bool(point.demo),
    }
