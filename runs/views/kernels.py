"""Kernels: the list with each kernel's standing, and a kernel's history on one workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from kernels import catalog
from kernels.analysis.standing import standing_of
from kernels.catalog import operations
from kernels.contract.arm_result import Status, assignments
from kernels.dtypes import DTYPE_SHORT
from kernels.needs import as_text
from kernels.report.cells import listed
from kernels.report.summary import headline, sentence
from kernels.submission import is_submitted
from runs.charts.sparkline import sparkline
from runs.models import Environment, Gpu, Kernel, Run, Submission
from runs.queries import changed, history, measurements, point_rows, tallies
from runs.queries.history import Series
from runs.queries.points import Point
from runs.views.downloads import csv_file
from runs.views.sources import diff

MOST_RESULTS = 1000
"""Number of newest results read for the page of all workloads."""
MOST_ROWS = 60
"""Number of workloads listed, unless all are asked for."""
MOST_NAMED = 5
"""Runs that are named in a sentence: the newest."""
LATELY = timedelta(days=30)
"""A regression that is younger is named."""
VERSIONS = 12
"""Number of newest sources listed."""
COLUMNS = (
    "operation", "name", "backend", "doc", "limits", "other_work", "environment", "here", "checked", "results", "versions",
    "last_run", "last_measured",
)  # fmt: skip
NOT_TESTED = "not tested here yet"
NOWHERE = "not available on any device now"


# --- all of them ------------------------------------------------------------------------------------------------------


def _known() -> list[dict[str, Any]]:
    """Kernels that were measured or that a device reports; baselines first within their operation."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    whys: dict[tuple[str, str], list[str]] = {}
    for gpu in Gpu.objects.in_order().only("catalogue"):
        for kernel in gpu.catalogue:
            place = (kernel["operation"], kernel["name"])
            row = rows.setdefault(
                place, _row(*place, kernel["backend"], kernel.get("doc") or kernel.get("why_not", ""))
            )
            row["limits"] = row["limits"] or limits_of(kernel)
            row["other_work"] = row["other_work"] or kernel.get("other_work", "")
            row["environment"] = row["environment"] or assignments(kernel.get("environment", {}))
            whys.setdefault(place, []).append(kernel["why_not"])
    for known, counted in _counted():
        place = (known.operation, known.name)
        rows[place] = rows.get(place, _row(*place, known.backend, "")) | counted
    baselines = {name: operation.baseline for name, operation in operations().items()}
    docs = {(one.operation, one.name): one.doc for one in catalog.kernels()}
    if any(is_submitted(name) for _, name in rows):
        docs |= {
            (one.operation, one.kernel): one.doc
            for one in Submission.objects.only("operation", "name", "sha256", "doc")
        }
    for place, row in rows.items():
        row["doc"] = row["doc"] or docs.get(place, "")
        is_nowhere = place not in whys and not is_submitted(row["name"])  # a submission travels to any device
        row["here"] = NOWHERE if is_nowhere else _here(whys.get(place, []))
        row["baseline"] = row["name"] == baselines.get(row["operation"])
    return sorted(rows.values(), key=lambda row: (row["operation"], not row["baseline"], row["name"]))


def _row(operation: str, name: str, backend: str, doc: str) -> dict[str, Any]:
    nothing = {"results": 0, "versions": 0, "last_run": None, "last_measured": None}
    unknown = {"limits": "", "other_work": "", "environment": "", "here": "", "checked": NOT_TESTED}
    return {"operation": operation, "name": name, "backend": backend, "doc": doc} | unknown | nothing


def limits_of(kernel: dict[str, Any]) -> str:
    """What a kernel is limited to: "fp16, bf16; head_dim 64, 128". Empty: to nothing."""
    dtypes = ", ".join(DTYPE_SHORT.get(dtype, dtype) for dtype in kernel.get("dtypes", ()))
    sizes = (f"{size} {as_text(allowed)}" for size, allowed in kernel.get("limits", {}).items())
    return "; ".join(filter(None, [dtypes, *sizes]))


def _here(whys: list[str]) -> str:
    """Where a kernel can run, and every reason why not elsewhere; empty if on every device. whys: why not, of each device
    that has it."""
    unable = [why for why in whys if why]
    if not unable:
        return ""
    where = f"on {len(whys) - len(unable)} of {len(whys)} devices: " if len(whys) > 1 else ""
    return where + "; ".join(dict.fromkeys(unable))


def _counted() -> Iterator[tuple[Kernel, dict[str, Any]]]:
    """Counts and dates of each measured kernel."""
    found = tallies.tallies()
    runs = Run.objects.filter(measurements__results__in=[tally.last for tally in found.values()])
    last = {pk: more for pk, *more in runs.values_list("measurements__results", "pk", "created_at")}
    checked = tallies.last_checks([tally.judged for tally in found.values()])
    for kernel in Kernel.objects.annotate(sources=Count("versions")):
        if tally := found.get(kernel.pk):
            run, at = last[tally.last]
            counts = {"results": tally.results, "versions": kernel.sources, "last_run": run, "last_measured": at}
            yield kernel, counts | {"checked": checked.get(tally.judged, NOT_TESTED)}
        else:
            yield kernel, {}


def kernels(request: HttpRequest) -> HttpResponse:
    known = _known()
    groups: dict[str, list[dict[str, Any]]] = {}
    titles = {name: operation.title for name, operation in operations().items()}
    for row in known:
        groups.setdefault(titles.get(row["operation"], row["operation"]), []).append(row)
    nowhere = bool(known) and all(row["here"] == NOWHERE or is_submitted(row["name"]) for row in known)
    context = {"page": "kernels", "groups": groups, "count": len(known), "nowhere": nowhere}
    return render(request, "kernels.html", context)


def _table() -> list[dict[str, Any]]:
    table = [{column: row[column] for column in COLUMNS} for row in _known()]
    for row in table:
        row["last_measured"] = row["last_measured"] and row["last_measured"].isoformat()
    return table


def kernels_csv(request: HttpRequest) -> HttpResponse:
    return csv_file(_table(), COLUMNS, "kernels.csv")


def kernels_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"kernels": _table()})


# --- one of them ------------------------------------------------------------------------------------------------------


@dataclass
class Subject:
    """One kernel on devices of one name, on one workload or all."""

    kernel: Kernel
    said: dict[str, dict[str, Any]]
    """Device name -> what the device reports about it."""
    devices: list[str]
    """Names of devices with its results, latest first."""
    device: str = ""
    """The chosen device name."""
    environments: dict[int, Environment] = field(default_factory=dict)
    """Those of the chosen device with results."""
    series: list[Series] = field(default_factory=list)
    cut: int = 0
    """Number of newest results read, if there may be more; else 0."""

    @classmethod
    def of(cls, request: HttpRequest, operation: str, name: str, key: str = "", most: int | None = None) -> Subject:
        kernel = Kernel.objects.filter(operation=operation, name=name.replace("\x00", "")).first()
        gpus = {gpu.pk: gpu for gpu in Gpu.objects.in_order()}
        said = {gpu.name: k for gpu in gpus.values() for k in gpu.kernels(operation) if k["name"] == name}
        if kernel is None and not said:
            raise Http404(f"there is no kernel {operation}/{name}")
        if kernel is None:
            kernel = Kernel(operation=operation, name=name, backend=next(iter(said.values()))["backend"])
        places = history.devices(kernel) if kernel.pk else {}
        device = request.GET.get("device") or next(iter(places), "")
        if device not in ("", *places):
            raise Http404(f"there is no result of {name} on {device}")
        environments = places.get(device, {})
        series = history.series(kernel, environments, key, most, gpus) if places else []
        if key and not series:
            raise Http404(f"there is no result of {name} on a workload {key}{f' on {device}' if device else ''}")
        read = sum(len(one.points) for one in series)
        return cls(kernel, said, list(places), device, environments, series, read if read == most else 0)

    @property
    def newest(self) -> list[Series]:
        """The newest series of each workload. Where the kernel was only a stand-in for the baseline there, also the newest one
        in which it was compared."""
        found: list[Series] = []
        wanted: set[int] = set()
        for one in self.series:
            stood_in = one.newest.kernel == one.newest.baseline and not self.is_baseline
            if one.number == 1 or (one.terms.workload in wanted and not stood_in):
                found.append(one)
                wanted.discard(one.terms.workload)
                if one.number == 1 and stood_in:
                    wanted.add(one.terms.workload)
        return found

    @property
    def is_baseline(self) -> bool:
        """Whether it is the baseline of its operation, as far as that is known."""
        known = operations().get(self.kernel.operation)
        return known is None or known.baseline == self.kernel.name

    @property
    def stood_in(self) -> str:
        """The runs whose baseline it was though another kernel is the operation's, as sentences; empty if there is none."""
        points = (point for one in self.series for point in one.points)
        runs = sorted({point.run for point in points if point.kernel == point.baseline})
        if self.is_baseline or not runs:
            return ""
        which = f"run {runs[0]}" if len(runs) == 1 else f"runs {listed([str(run) for run in runs[-MOST_NAMED:]])}"
        more = f" and of {len(runs) - MOST_NAMED} earlier ones" if len(runs) > MOST_NAMED else ""
        base = operations()[self.kernel.operation].baseline
        return f"It was the baseline of {which}{more}. The baseline of {self.kernel.operation} is {base}."

    @property
    def context(self) -> dict[str, Any]:
        return {
            "page": "kernels",
            "kernel": self.kernel,
            "doc": next((k["doc"] for k in self.said.values() if k.get("doc")), ""),
            "why_not": {device: k["why_not"] for device, k in self.said.items() if k.get("why_not")},
            "is_there": bool(self.said),
            "is_tunable": any(k.get("space") and not k.get("why_not") for k in self.said.values()),
            "submission": Submission.objects.named(self.kernel.operation, self.kernel.name),
            "devices": self.devices,
            "device": self.device,
            "cut": self.cut,
        }

    def headline(self) -> dict[str, str]:
        """Its standing, from its newest result on each workload: {"tone", "strong", "rest"}."""
        points = [one.newest for one in self.newest]
        if not points:
            return {"tone": "same", "strong": "Not measured yet", "rest": self._why_unsupported()}
        told = [point for point in points if point.kernel != point.baseline]
        compared = [point.compared._replace(is_contended=point.contended) for point in told]
        if not compared and self.stood_in:
            return {"tone": "same", "strong": "Not compared with a baseline yet", "rest": self.stood_in}
        if not compared:
            return {"tone": "same", "strong": "The baseline: other kernels are compared with it", "rest": ""}
        standing = standing_of(compared)
        if not standing.was_compared:
            return {"tone": "same", "strong": self._failed(points), "rest": self.stood_in}
        strong, tone = headline(standing)
        rest = [sentence(standing.rest)]
        series = [one for one in self.newest if one.newest.kernel != one.newest.baseline]
        if not history.are_alike(series):
            rest = ["The results are of several cards, versions or baselines: they have no common mean."]
        return {"tone": tone, "strong": strong, "rest": " ".join(filter(None, [*rest, self.stood_in]))}

    def _failed(self, points: list[Point]) -> str:
        """What became of a kernel that has no speedup anywhere."""
        statuses = Counter(point.status for point in points if point.status != Status.OK)
        if not statuses:
            return "Measured without a comparison"
        status, count = statuses.most_common(1)[0]
        return status.capitalize() + (f" on {count} of {len(points)} workloads" if len(points) > 1 else "")

    def _why_unsupported(self) -> str:
        """Why the last run could not measure it."""
        last = measurements.last_unsupported(self.kernel) if self.kernel.pk else None
        return "Run {} failed: {}.".format(*last) if last else ""


def kernel(request: HttpRequest, operation: str, name: str) -> HttpResponse:
    subject = Subject.of(request, operation, name, most=MOST_RESULTS)
    counts = Counter(one.terms.workload for one in subject.series for _ in one.points)
    shown = subject.newest if "all" in request.GET else latest(subject.newest)
    rows = [{"series": one, "line": sparkline(one.drawn), "all": counts[one.terms.workload]} for one in shown]
    compared = any(one.newest.verdict != "baseline" for one in subject.newest)
    more = {"headline": subject.headline(), "rows": rows, "compared": compared, "versions": versions(subject.kernel)}
    more |= {"slower": changed.slower_workloads(subject.kernel, timezone.now() - LATELY, subject.device)}
    return render(request, "kernel.html", subject.context | more | {"of": len(subject.newest)})


def latest(series: list[Series]) -> list[Series]:
    """Those measured last, if there are many; in the same order."""
    last = sorted(series, key=lambda one: -one.newest.run)[:MOST_ROWS]
    kept = {id(one) for one in last}
    return [one for one in series if id(one) in kept]


def versions(kernel: Kernel) -> list[dict[str, Any]]:
    """Its measured sources, newest first, each with its changes since the one before."""
    if kernel.pk is None:
        return []
    known = (
        kernel.versions.annotate(first=point_rows.first_measured())
        .filter(first__isnull=False)
        .order_by("-first", "-pk")
    )
    newest = list(known[: VERSIONS + 1])
    listed = [
        {"version": now, "before": was, "diff": diff(was.source, now.source) if was else None}
        for now, was in zip(newest, [*newest[1:], None], strict=False)
    ]
    return listed[:VERSIONS]
