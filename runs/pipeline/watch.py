"""The watch: looks for changes in the lines of a run that has ended. It may look twice: the same changes are stored once."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.db import transaction
from django.utils import timezone

from kernels.analysis.changes import RULE, Test
from runs.models import Change, Kernel, Run, Workload
from runs.models.run import FINAL
from runs.pipeline.noticing import notice
from runs.queries import history, point_rows
from runs.queries.line_rows import touched
from runs.queries.lines import Line, lines

AT_ONCE, LONGEST_S = 20, 5.0
"""Most runs that are looked at in one tick, and the seconds after which no other is begun."""
log = logging.getLogger(__name__)

Place = tuple[int, int, str, int]
"""Of lines: kernel, workload, mode, card."""


def watch() -> int:
    """Looks at ended runs that nobody has looked at, oldest first, for a few seconds. Returns their number.

    A line is read with all its points, so of several runs that are points of it the first one's look is enough.
    """
    seen: set[Place] = set()
    runs = Run.objects.filter(looked_at=None, state__in=FINAL).select_related("gpu").order_by("pk")[:AT_ONCE]
    begun, count = time.monotonic(), 0
    for run in runs:
        count += 1
        try:
            look(run, seen)
            notice(run)
        except Exception:  # of one run's data: the others, and the reaper, go on
            log.exception("the watch cannot look at run %s", run.pk)
            Run.objects.filter(pk=run.pk).update(looked_at=timezone.now())
        if time.monotonic() - begun > LONGEST_S:
            break
    return count


def look(run: Run, seen: set[Place] | None = None) -> None:
    """Stores the changes of every line that this run is a point of. seen: where lines have been looked at; it adds to them."""
    seen = set() if seen is None else seen
    if run.gpu and not run.demo:
        for kernel, workload, mode in touched(run):
            if (place := (kernel.pk, workload.pk, mode, run.gpu.pk)) not in seen:
                for line in lines_of(kernel, workload, mode, run.gpu.pk):
                    store(kernel, line)
                seen.add(place)
    # Not if it was withdrawn or restored meanwhile: then what was read is not what is there now.
    Run.objects.filter(pk=run.pk, withdrawn_at=run.withdrawn_at).update(looked_at=timezone.now())


def lines_of(kernel: Kernel, workload: Workload, mode: str, gpu: int) -> list[Line]:
    """The lines of a kernel on a workload and a card."""
    rows = point_rows.tried(kernel, key=workload.key).filter(measurement__mode=mode, measurement__run__gpu=gpu)
    levels = Change.objects.filter(kernel=kernel, workload=workload, gpu=gpu, mode=mode)
    begun = levels.exclude(acknowledged_at=None).values_list("run", flat=True)
    return lines(history.grouped(point_rows.points(rows, history.MOST_RESULTS)), list(begun))


@transaction.atomic
def store(kernel: Kernel, line: Line) -> None:
    """Replaces the line's changes by those that are found now. What somebody has acknowledged stays."""
    if line.gpu is None:
        return
    where: dict[str, Any] = {"kernel": kernel, "workload": line.workload, "gpu": line.gpu, "mode": line.mode}
    runs = [point.run for point in line.points]
    kept = [runs[test.index] for test in line.found]
    stale = Change.objects.filter(**where, run__in=runs[line.first :], acknowledged_at=None).exclude(run__in=kept)
    stale.delete()
    for test in line.found:
        Change.objects.update_or_create(**where, run_id=runs[test.index], defaults=_fields(line, test))


def _fields(line: Line, test: Test) -> dict[str, Any]:
    return {
        "before_id": line.points[test.index - 1].run,
        "at": line.at(test.index),
        "verdict": test.verdict,
        "ratio": test.ratio,
        "low": test.low,
        "high": test.high,
        "t": test.t,
        "runs_before": test.before,
        "runs_after": test.after,
        "level_before_ms": test.level_before,
        "level_after_ms": test.level_after,
        "facts": [list(fact) for fact in line.facts(test.index)],
        "rule": RULE.as_dict(),
    }
