"""The gate's two sides: runs of the site, and runs that are files."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404

from kernels.analysis.processes import export_with_process
from kernels.contract.export import NotAnExport, export_of
from kernels.report import gate
from kernels.report.comparison import Results
from runs.api.bodies import FileIn, GateIn
from runs.api.problems import Problem
from runs.models import Run
from runs.queries import measurements
from runs.views.compare import OFFERED, alike, alike_export, results_of
from runs.views.run import get_run

NOTHING_EARLIER = "The site has no earlier run of these workloads on this card with these versions."


@dataclass(frozen=True)
class Side:
    """One run of a gate."""

    name: str
    results: Results
    run: Run | None
    """None: a file."""
    earlier: QuerySet[Run]
    """The comparable runs of the site, newest first; of a run, only those before it."""

    @classmethod
    def of(cls, asked: int | FileIn) -> Side:
        """Raises Http404, and Problem for what is not an exported run."""
        if isinstance(asked, FileIn):
            try:
                export = export_with_process(export_of(asked.export))
            except NotAnExport as error:
                raise Problem(422, "Not a run", f"{asked.name}: {error}.", field="export") from None
            return cls(asked.name, export, None, alike_export(export))
        try:
            return cls.of_run(get_run(asked))
        except Http404:
            raise Http404(f"There is no run {asked}.") from None

    @classmethod
    def of_run(cls, run: Run) -> Side:
        results = results_of(run, measurements.of_run(run))
        return cls(f"run {run.pk}", results, run, alike(run).filter(pk__lt=run.pk))

    @property
    def best(self) -> list[Side]:
        """Earlier runs of the site. Where no other has a kernel, the contended ones say why nothing can be told of it."""
        quiet, busy = (self.earlier.filter(withdrawn_at=None, contended=is_busy)[:OFFERED] for is_busy in (False, True))
        return [Side.of_run(run) for run in (*quiet, *busy)]


def report(now: Side, sent: GateIn) -> gate.Report:
    """Raises as Side.of."""
    if isinstance(sent.against, str):
        sides, of_others = now.best, True
        if not sides:
            is_active = now.run is not None and now.run.is_active
            why = f"{now.name.capitalize()} has not ended." if is_active else NOTHING_EARLIER
            return gate.Report([], sent.max_regression, why)
    else:
        files = [one for one in sent.against if isinstance(one, FileIn)]
        numbers = dict.fromkeys(one for one in sent.against if isinstance(one, int))
        sides, of_others = [*map(Side.of, numbers), *map(Side.of, files)], False
    earlier = [(side.name, side.results) for side in sides]
    return gate.gate(now.results, earlier, sent.max_regression, sent.kernels, of_others)
