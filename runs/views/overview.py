"""The first page: what changed this week, how far the targets are, what the devices do, what ran last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from kernels.analysis.changes import Change as Verdict
from kernels.contract.arm_result import Verdict as Word
from kernels.report import change_words as words
from runs.charts import run_charts, week_charts
from runs.models import Change, Gpu, Run, Target
from runs.queries import point_rows, week
from runs.queries.live import shown_of
from runs.queries.outcomes import with_outcomes
from runs.queries.targets import REACHED
from runs.queries.week import Broken, Day
from runs.templatetags.figures import percent
from runs.views.gpus import headline

RECENT = 8
MOST_ROWS = 12
"""Rows of the chart of a run that has ended; the page of the run has those of longer ones."""
MOST_SHOWN, MOST_RECORDS = 4, 3
"""Changes and records that have a chart here; the others are behind a link."""
NUMBERS = ("None", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


@dataclass
class Device:
    """A device with what it does."""

    gpu: Gpu
    run: Run | None
    queued: int
    day: Day

    @property
    def warmth(self) -> str:
        """Temperature and power during what was measured last: "51 °C, 412 W"; empty if it is unknown."""
        known = getattr(self.gpu, "telemetry", None) or {}
        figures = (("temperature_c", "\N{DEGREE SIGN}C"), ("power_w", "W"))
        said = [f"{known[name]['median']:.0f} {unit}" for name, unit in figures if known.get(name)]
        return ", ".join(said)

    @property
    def busy(self) -> str:
        return percent(self.day.share)

    @property
    def label(self) -> str:
        return week_charts.label_of_day(self.day)


@dataclass
class Now:
    """What changes from second to second: polled."""

    at: datetime
    gpus: list[Gpu]
    active: list[Run]
    latest: list[Any]
    days: dict[int, Day]

    @classmethod
    def read(cls) -> Now:
        at, gpus = timezone.now(), week.devices()
        runs = list(week.active_and_newest(RECENT))
        active = [run for run in runs if run.is_active]
        sent = {run.gpu_id for run in active if run.sent_at}
        for gpu in gpus:
            gpu.at_work = int(gpu.pk in sent)  # type: ignore[attr-defined]
        latest = with_outcomes(runs[:RECENT])
        return cls(at, gpus, active, latest, week.days(at))

    @property
    def running(self) -> list[Run]:
        return [run for run in self.active if run.sent_at]

    @property
    def waiting(self) -> int:
        return len(self.active) - len(self.running)

    @cached_property
    def devices(self) -> list[Device]:
        runs = {run.gpu_id: run for run in self.running}
        queues: dict[int, int] = {}
        for run in self.active:
            if run.gpu_id and not run.sent_at:
                queues[run.gpu_id] = queues.get(run.gpu_id, 0) + 1
        empty = week.day(week.midnight(self.at), self.at, ())
        return [Device(gpu, runs.get(gpu.pk), queues.get(gpu.pk, 0), self.days.get(gpu.pk, empty)) for gpu in self.gpus]

    @cached_property
    def live(self) -> list[dict[str, Any]]:
        compared = {run.pk: outcome.first is not None for run, outcome in self.latest}
        return [live(run, compared.get(run.pk, True)) for run in self.running]

    @property
    def ended(self) -> dict[str, Any] | None:
        """The newest run that has ended, shown while nothing runs; None if only demo runs have."""
        for run, outcome in self.latest:
            if not run.is_active and not run.demo:
                height = chart_height(run, MOST_ROWS) if outcome.first else 0
                return {"run": run, "outcome": outcome, "height": height}
        return None

    @property
    def swapped(self) -> str:
        """What a poll replaces."""
        return ",".join(("#running", "#runs", *(f"#device-{gpu.pk}" for gpu in self.gpus)))

    @property
    def is_new(self) -> bool:
        """Nobody has run anything here yet."""
        is_unused = not self.active and all(run.demo for run, _ in self.latest)
        return is_unused and not Run.objects.filter(demo="").exists()


def live(run: Run, is_compared: bool) -> dict[str, Any]:
    """A run in progress: what its agent says, and about how many seconds are left. No query: there may be many. is_compared:
    a kernel has a speedup so far."""
    whole = run.elapsed_s / run.done * run.total if run.elapsed_s and run.done else None
    left = whole - (run.elapsed_s or 0) if whole else None
    return {
        "run": run,
        "state": shown_of(run),
        "left": left,
        "height": is_compared * chart_height(run, run_charts.MOST_ROWS),
    }


def chart_height(run: Run, most: int) -> int:
    """Of the chart of its speedups (px); 0 if it has none, or more than `most` rows."""
    single = run.operation  # type: ignore[attr-defined]
    has_chart = bool(run.done and single and not run.tune and run.total <= most)
    return run_charts.TOP + run_charts.ROW * run.done + run_charts.BOTTOM if has_chart else 0


@dataclass
class Story:
    """What the page says in its first lines."""

    strong: str
    rest: list[str] = field(default_factory=list)


def count(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def _share(number: int, total: int, things: str) -> str:
    """ "Two of five devices are" """
    return f"{count(number)} of {count(total).lower()} {things} {'are' if number > 1 else 'is'}"


def story(changes: list[Change], records: Sequence[Broken], standings: Any, now: Now) -> Story:
    slower = {(row.kernel_id) for row in changes if row.verdict == Verdict.REGRESSION}
    faster = {(row.kernel_id) for row in changes if row.verdict == Verdict.IMPROVEMENT} - slower
    names = {row.kernel_id: row.kernel.name for row in changes}
    found = " and ".join(
        _moved([names[one] for one in who], how) for who, how in ((slower, "slower"), (faster, "faster")) if who
    )
    said = [f"Found this week: {found}" if found else "No change was found this week"]
    fell = sum(one.before is not None for one in records)
    if fell:
        said.append(f"{count(fell)} record{'s were' if fell > 1 else ' was'} broken")
    if first := len(records) - fell:
        said.append(f"{count(first)} workload{'s have their' if first > 1 else ' has its'} first record")
    return Story(". ".join(said), [*_targets(standings), *_up(now)])


def _moved(names: list[str], how: str) -> str:
    return f"{names[0] if len(names) == 1 else f'{count(len(names)).lower()} kernels'} got {how}"


def _targets(standings: Any) -> list[str]:
    total, reached = len(standings.progress), standings.reached
    if not total:
        return []
    loose = sum(one.state == REACHED and not one.is_confirmed for one in standings.progress)
    if total == 1:
        one = f"The target is {'' if reached else 'not '}reached{', unconfirmed' * loose}."
    else:
        some = f", {count(loose).lower()} unconfirmed" if loose else ""
        one = f"{_share(reached, total, 'targets')} reached{some}."
    drifted = len(standings.drifted)
    more = f"{count(drifted)} pinned baseline{'s have' if drifted > 1 else ' has'} drifted." if drifted else ""
    return [one, *([more] if more else [])]


def _up(now: Now) -> list[str]:
    up, total = sum(gpu.is_online for gpu in now.gpus), len(now.gpus)
    said = headline(now.gpus) if total < 2 else f"{_share(up, total, 'devices')} up"
    waiting = f"{now.waiting} run{'s' * (now.waiting > 1)} waiting" if now.waiting else ""
    return [f"{said}{'; ' if waiting else ''}{waiting}."]


def between(low: float, high: float) -> str:
    """An interval beside "6.1% slower": 5.8 to 6.5%."""
    ends = sorted((low, high), key=lambda end: abs(end - 1))
    return f"{words.percent(ends[0], sign=False).rstrip('%')} to {words.percent(ends[1], sign=False)}"


def row(change: Change) -> dict[str, Any]:
    """A change as the page shows it."""
    at, now = timezone.localtime(change.at), timezone.localtime()
    why = words.cause(change.facts)
    when = words.day(at, now)
    return {
        "change": change,
        "effect": words.percent(change.ratio, sign=False),
        "reach": between(change.low, change.high),
        "word": "slower" if change.ratio > 1 else "less time",
        "style": words.STYLES[Verdict(change.verdict)],
        "cause": f"It changed on {when}, {why}." if why else f"It changed on {when}. No other recorded fact changed.",
        "label": f"p50 of {change.kernel.name}: {words.level(change.level_before_ms)} µs until {when}, "
        f"{words.level(change.level_after_ms)} µs since",
    }


def overview(request: HttpRequest) -> HttpResponse:
    now = Now.read()
    context: dict[str, Any] = {
        "page": "overview",
        "now": now,
        "sizes": {name: week_charts.size(name) for name in week_charts.HEIGHTS},
    }
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "_overview_now.html", context)
    if now.is_new:
        return render(request, "overview_new.html", context | sample())
    since = now.at - week.PERIOD
    changes = week.changes(since)
    targets = list(Target.objects.select_related("workload", "owner", "pin__run__environment")[: week.MOST_TARGETS])
    read = week.read(since, targets, now.gpus)
    context |= {
        "story": story(changes, read.records, read.standings, now),
        "changes": [row(change) for change in changes[:MOST_SHOWN]],
        "more_changes": max(0, len(changes) - MOST_SHOWN),
        "records": read.records[:MOST_RECORDS],
        "more_records": max(0, len(read.records) - MOST_RECORDS),
        "standings": read.standings,
        "sizes": {name: week_charts.size(name) for name in week_charts.HEIGHTS},
    }
    return render(request, "overview.html", context)


# --- a site on which nothing has run ------------------------------------------------------------------------------------


def sample() -> dict[str, Any]:
    """The run that came with the site, told with its own figures; empty if there is none."""
    run = Run.objects.exclude(demo="").filter(done__gt=0).order_by("pk").first()
    if run is None:
        return {"sample": None}
    told = [one for one in point_rows.run_results([run.pk]) if one.speedup and one.speedup_low and one.speedup_high]
    ((_, outcome),) = with_outcomes([run])
    mine = [one for one in told if outcome.first and one.kernel == outcome.first.kernel]
    by_word = {
        word: sorted((one for one in mine if one.compared.verdict == word), key=lambda one: one.speedup or 0)
        for word in (Word.FASTER, Word.SLOWER, Word.SAME, Word.UNDECIDED)
    }
    return {
        "unconfirmed": bool(mine) and point_rows.is_unconfirmed(run.pk, mine[0].kernel),
        "sizes_of": run_charts.sizes_of(run_charts.rows_of(run)),
        "sample": run,
        "outcome": outcome,
        "best": max(by_word[Word.FASTER], key=lambda one: one.speedup_low or 0, default=None),
        "worst": by_word[Word.SLOWER][0] if by_word[Word.SLOWER] else None,
        "open": next(iter(by_word[Word.UNDECIDED] or by_word[Word.SAME]), None),
    }
