"""The queue: which run a device takes next, and when a waiting run is expected to start. Dispatcher and pages use one order.

Order: priority; then the person with the least device time in the last day; then the time at which a run would be done if
it had started when it was submitted. So of one person's runs a short one goes before a long one, but not before one that has
waited longer than the difference.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from pydantic import ValidationError

from runs.models import Gpu, Run
from runs.queries.estimates import estimate

log = logging.getLogger(__name__)

FAIRNESS_WINDOW = timedelta(hours=24)
MOST_WAITING = 500
"""Runs that are ordered; those beyond wait for others to end."""
UNKNOWN_S = 60.0
"""Device time of a run without an estimate."""
STEP_S = 15.0
"""Runs whose estimates are about the same keep their order: an estimate changes a little with each run that has ended."""
Used = dict[int | None, float]
"""Seconds of device time, by the number of a person."""


Wish = tuple[int | None, str]
"""The device that a run asks for, or the name of any."""


@dataclass(frozen=True)
class Forecast:
    """Of a waiting run."""

    place: int
    """1: no other run starts before it on a device that may take it."""
    starts_at: datetime | None
    """None: no device that may take it answers and takes runs."""


def waiting() -> list[Run]:
    """The waiting runs, as far as the order needs them."""
    runs = Run.objects.waiting().order_by("-priority", "pk")
    return list(runs.only("pk", "priority", "user", "created_at", "expected_s", "gpu", "device_name")[:MOST_WAITING])


def estimate_new() -> None:
    """Stores the estimate of runs that were submitted since."""
    for run in Run.objects.waiting().filter(expected_s=None).select_related("gpu")[:MOST_WAITING]:
        Run.objects.filter(pk=run.pk).update(expected_s=_expected_s(run))


def _expected_s(run: Run) -> float:
    if run.plan:
        return 60 * run.plan.minutes if run.plan.minutes else UNKNOWN_S * run.plan.trials / run.plan.together
    if run.profile_of_id:
        return UNKNOWN_S
    gpu = run.gpu or Gpu.objects.in_order().filter(name=run.device_name).first()
    try:
        return estimate(run.spec, gpu).seconds
    except ValidationError:  # written by an earlier version of the site; it fails when it is sent
        return UNKNOWN_S
    except Exception:  # a fault of the estimate is no reason for all runs to wait
        log.exception("no estimate of run %s", run.pk)
        return UNKNOWN_S


def device_seconds_lately() -> Used:
    """Seconds of device time per person in the last day, of runs in progress too."""
    now = timezone.now()
    runs = Run.objects.filter(started_at__gte=now - FAIRNESS_WINDOW).annotate(until=Coalesce("finished_at", now))
    runs = runs.filter(until__gt=F("started_at"))
    sums = runs.values("user").annotate(spent=Sum(F("until") - F("started_at")))
    return {row["user"]: row["spent"].total_seconds() for row in sums if row["spent"]}


def next_of(runs: Iterable[Run], gpu: Gpu, used: Used) -> Run | None:
    """The run that goes next on a device."""
    return min((run for run in runs if may_take(gpu, run)), key=lambda run: _order(run, used), default=None)


def may_take(gpu: Gpu, run: Run) -> bool:
    return run.gpu_id == gpu.pk or (run.gpu_id is None and run.device_name == gpu.name)


def _wish(run: Run) -> Wish:
    return run.gpu_id, run.device_name if run.gpu_id is None else ""


def _order(run: Run, used: Used) -> tuple[int, float, datetime, int]:
    done_at = run.created_at + timedelta(seconds=STEP_S * round((run.expected_s or 0.0) / STEP_S))
    return -run.priority, used.get(run.user_id, 0.0), done_at, run.pk


def _lines(runs: Iterable[Run]) -> dict[tuple[Wish, int | None], list[Run]]:
    """The runs of each wish and person, the next one last: however much device time people use, these keep their order."""
    lines: dict[tuple[Wish, int | None], list[Run]] = {}
    for run in sorted(runs, key=lambda run: _order(run, {}), reverse=True):
        lines.setdefault((_wish(run), run.user_id), []).append(run)
    return lines


def forecasts(upto: Run | None = None) -> dict[int, Forecast]:
    """The number of a waiting run -> when it is expected to start; stops at one run. What devices do is played forward by
    the estimates."""
    runs, used, now = waiting(), device_seconds_lately(), timezone.now()
    gpus = {gpu.pk: gpu for gpu in Gpu.objects.taking_runs().only("pk", "name")}
    lines = _lines(runs)
    devices = {wish: {pk for pk, gpu in gpus.items() if may_take(gpu, line[-1])} for (wish, _), line in lines.items()}
    left_s: dict[int | None, float] = {}
    for there in Run.objects.sent().only("gpu", "user", "started_at", "sent_at", "expected_s"):
        left_s[there.gpu_id] = _left_s(there, now)
        used[there.user_id] = used.get(there.user_id, 0.0) + left_s[there.gpu_id]
    free = [(left_s.get(pk, 0.0), pk) for pk in gpus]
    heapq.heapify(free)
    found: dict[int, Forecast] = {}
    started: Counter[Wish] = Counter()
    while free:
        at_s, pk = heapq.heappop(free)
        if (run := next_of((line[-1] for line in lines.values() if line), gpus[pk], used)) is None:
            continue
        lines[_wish(run), run.user_id].pop()
        mine = devices[_wish(run)]
        before = sum(count for wish, count in started.items() if devices[wish] & mine)
        found[run.pk] = Forecast(before + 1, now + timedelta(seconds=at_s))
        if upto and run.pk == upto.pk:
            return found
        started[_wish(run)] += 1
        used[run.user_id] = used.get(run.user_id, 0.0) + (run.expected_s or UNKNOWN_S)
        heapq.heappush(free, (at_s + (run.expected_s or UNKNOWN_S), pk))
    for run in sorted(
        (run for run in runs if run.pk not in found), key=lambda run: _order(run, used)
    ):  # no device takes them
        started[_wish(run)] += 1
        found[run.pk] = Forecast(started[_wish(run)], None)
    return found


def forecast(run: Run) -> Forecast | None:
    """Of one run; None if it does not wait."""
    if run.state != Run.State.QUEUED or run.sent_at:
        return None
    return forecasts(run).get(run.pk)


def _left_s(run: Run, now: datetime) -> float:
    """Seconds until a run at work is expected to end."""
    since = run.started_at or run.sent_at or now
    return max(0.0, (run.expected_s or UNKNOWN_S) - (now - since).total_seconds())


def queue_of(gpu: Gpu) -> list[tuple[Run, Forecast]]:
    """The waiting runs that a device may take, as they are expected to start."""
    mine = Run.objects.for_list().waiting().filter(Q(gpu=gpu) | Q(gpu=None, device_name=gpu.name))
    runs = list(mine.order_by("-priority", "pk")[:MOST_WAITING])
    found = forecasts() if runs else {}
    known = [(run, found[run.pk]) for run in runs if run.pk in found]
    last = timezone.now() + timedelta(days=10_000)
    return sorted(known, key=lambda pair: (pair[1].starts_at or last, pair[1].place))
