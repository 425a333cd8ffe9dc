"""The recorder: stores the agents' events. The only writer of results.

An event is stored completely or not at all. The first one wins; a repeated one changes nothing. An event before its
predecessor waits until the agent sends both. An event that cannot be stored is kept as rejected and still confirmed;
otherwise its agent would resend it forever.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from pydantic import ValidationError
from pydantic_core import from_json
from redis.exceptions import RedisError

from benchsite.queues import WHEN_IDLE
from kernels.contract.events import (
    Calibrated,
    Confirmed,
    CrossChecked,
    Ending,
    Examined,
    Finished,
    Line,
    Measured,
    SentLine,
    Started,
    Tried,
)
from kernels.contract.fitting import MAX_EVENT_BYTES
from kernels.contract.upgrade import upgrade
from kernels.host.logs import about
from kernels.workload import sentence
from runs.broker import BrokerKeys
from runs.messages import ask_dispatch, send
from runs.models import Calibration, Environment, Gpu, RejectedEvent, Result, Run, Trial
from runs.models.run import FINAL, State
from runs.pipeline.confirmed import settle
from runs.pipeline.contended import note_apart
from runs.pipeline.store import json_of, store_measured, store_profiles

log = logging.getLogger(__name__)
KEPT_OF_REJECTED = 64 * 1024
HELLO_OLD_S = 15.0
ENDINGS = {Ending.DONE: State.DONE, Ending.FAILED: State.FAILED, Ending.CANCELLED: State.CANCELLED}


class Rejected(Exception):
    """The event cannot be stored. The message says why."""


def record(lines: Sequence[Any]) -> dict[tuple[int, int], int]:
    """Stores lines in the order of their numbers. Returns what is confirmed: (run, attempt) -> seq.

    lines: SentLines as lists; or events as dicts, from an agent of the previous version.
    """
    confirmed: dict[tuple[int, int], int] = {}
    counts: Counter[str] = Counter()
    with transaction.atomic():
        for (run, attempt), some in groupby(
            sorted(map(_sent, lines), key=lambda line: line[:3]), lambda line: line[:2]
        ):
            with about(run=run, attempt=attempt):
                confirmed[run, attempt] = take(list(some), counts)
    _confirm(confirmed, counts)
    return confirmed


def _sent(line: Any) -> SentLine:
    """A received line as a SentLine. Missing numbers become 0, which is no run."""
    if isinstance(line, list | tuple) and len(line) == len(SentLine._fields):
        run, attempt, seq, body = line
    else:
        run, attempt, seq = (line.get(name) if isinstance(line, dict) else 0 for name in ("run", "attempt", "seq"))
        body = json.dumps(line, default=str)
    if not all(isinstance(number, int) for number in (run, attempt, seq)):
        run = attempt = seq = 0
    return SentLine(run, attempt, seq, str(body))


def take(lines: list[SentLine], counts: Counter[str]) -> int:
    """Stores the events of an attempt that come next: together, or if one cannot be stored, each alone. Returns the highest
    number confirmed. lines: in order."""
    run_id, attempt = lines[0][:2]
    if (run := _locked(run_id)) is None:
        return _reject_all(lines, "there is no such run", counts)
    if attempt != run.attempt:
        return _reject_all(lines, f"attempt {attempt} of this run was superseded by attempt {run.attempt}", counts)
    if not (fresh := _following(run.seq, lines)):
        return run.seq
    try:
        _apply_all(run, fresh)
        counts["recorded"] += len(fresh)
    except (OperationalError, InterfaceError):  # the database is busy or gone: the agent resends
        raise
    except Exception as error:
        if len(fresh) == 1:
            _reject(fresh[0], _reason(error), counts)
        else:
            _take_each(fresh, counts)
    Run.objects.filter(pk=run_id).update(seq=fresh[-1].seq, progress_at=timezone.now())
    return fresh[-1].seq


def _take_each(lines: list[SentLine], counts: Counter[str]) -> None:
    """One of them cannot be stored: it alone is rejected."""
    for line in lines:
        try:
            _apply_all(_locked(line.run), [line])
            counts["recorded"] += 1
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            _reject(line, _reason(error), counts)


def _locked(run: int) -> Run | None:
    return Run.objects.select_for_update(of=("self",)).only("attempt", "seq").filter(pk=run).first()


def _following(seq: int, lines: list[SentLine]) -> list[SentLine]:
    """Those that come next after a number: no duplicates, and none whose predecessor is missing."""
    found: list[SentLine] = []
    for line in lines:
        if line.seq == seq + 1:
            found.append(line)
            seq += 1
    return found


def read_line(sent: SentLine) -> Line:
    """Parses a line of this version or the previous one. Raises Rejected."""
    if len(sent.body) > MAX_EVENT_BYTES:
        raise Rejected(f"it has {len(sent.body)} bytes; at most {MAX_EVENT_BYTES} are stored")
    try:
        line = Line.model_validate(upgrade(from_json(sent.body)))
    except ValidationError as error:
        raise Rejected(sentence(error)) from None
    if (line.run, line.attempt, line.seq) != sent[:3]:
        raise Rejected(
            f"it is event {line.seq} of run {line.run}, attempt {line.attempt}, but the message names another event"
        )
    return line


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _reject_all(lines: list[SentLine], reason: str, counts: Counter[str]) -> int:
    for line in lines:
        _reject(line, reason, counts)
    return lines[-1].seq


def _reject(line: SentLine, reason: str, counts: Counter[str]) -> None:
    body = line.body.replace("\\u0000", "�").replace("\x00", "�")[:KEPT_OF_REJECTED]
    numbers = dict(zip(("run", "attempt", "seq"), line[:3], strict=True))
    fitting = {name: number for name, number in numbers.items() if abs(number) < 2**31}
    RejectedEvent.objects.create(reason=reason.replace("\x00", "�")[:300], body=body, **fitting)
    counts["rejected"] += 1
    log.warning("rejected event %s of run %s attempt %s: %s", line.seq, line.run, line.attempt, reason)


def _apply_all(run: Run | None, lines: list[SentLine]) -> None:
    """All of these events of a run, or none. Results that follow each other are stored together."""
    with transaction.atomic():
        for results, some in groupby(map(read_line, lines), lambda line: isinstance(line.event, Measured)):
            if results:
                _measured(_current(run), [line.event for line in some if isinstance(line.event, Measured)])
            else:
                for line in some:
                    _apply(_current(run), line)


def _current(run: Run | None) -> Run:
    """A run as the events before have left it."""
    assert run is not None, "there is no such run"
    found = Run.objects.select_related("environment", "gpu").defer("config", "log", "gpu__catalogue", "gpu__sandbox")
    return found.get(pk=run.pk)


def _apply(run: Run, line: Line) -> None:
    match line.event:
        case Started() as event:
            _started(run, event, site_time(run, line.at))
        case Calibrated() as event:
            _calibrated(run, event, site_time(run, line.at))
        case CrossChecked() as event:
            _crosschecked(run, event)
        case Tried() as event:
            _tried(run, event)
        case Confirmed() as event:
            _confirmed_again(run, event)
        case Examined() as event:
            _examined(run, event)
        case Finished() as event:
            _finished(run, event, site_time(run, line.at))


def site_time(run: Run, at: datetime) -> datetime:
    """An agent's time on the site's clock: never before the run was sent or began, never in the future."""
    at -= timedelta(seconds=run.gpu.clock_error_s if run.gpu else 0.0)
    return min(timezone.now(), max(at, run.started_at or run.sent_at or at))


def _started(run: Run, event: Started, at: datetime) -> None:
    changes: dict[str, Any] = {
        "environment": Environment.of(event.environment, event.fingerprint),
        "preflight": event.preflight.model_dump(mode="json"),
        "attempts_without_progress": run.attempts_without_progress + 1,
    }
    if event.preflight.others:
        changes["contended"] = True
    if run.started_at is None:
        changes["started_at"] = at
    run.advance(State.RUNNING, **changes)
    log.info("running")


def _calibrated(run: Run, event: Calibrated, at: datetime) -> None:
    """Stores ceilings. If they are refused, older ones stay, and the next run measures them again."""
    known: dict[str, Any] = {"gpu": run.gpu, "driver": event.driver}
    fresh = {"environment": run.environment, "run": run, "measured_at": at, "refused": "", "refused_at": None}
    if event.ceilings is not None:
        found = fresh | {"ceilings": event.ceilings.model_dump(mode="json")}
        Calibration.objects.update_or_create(**known, defaults=found)
        return
    refused = {"refused": event.refused, "refused_at": at}
    Calibration.objects.update_or_create(**known, defaults=refused, create_defaults=fresh | refused | {"ceilings": {}})


def _measured(run: Run, events: list[Measured]) -> None:
    if new := store_measured(run, events):
        done = run.measurements.values("workload").distinct().count()
        keys = {(row.workload.key, row.mode, row.group) for row in new}
        contended = any(event.is_contended and (event.key, event.mode, event.group) in keys for event in events)
        changes = {"contended": True} if contended else {}
        Run.objects.filter(pk=run.pk).update(done=done, attempts_without_progress=0, **changes)
        if contended:
            note_apart(run)
            settle(run.measurements.select_related("run__environment", "workload"))


def _crosschecked(run: Run, event: CrossChecked) -> None:
    results = Result.objects.filter(measurement__run=run)
    for seen in event.seen:
        one = results.filter(measurement__workload__key=seen.key, kernel__name=seen.kernel)
        one.update(ran=json_of(seen.ran), crosscheck=json_of(seen.check))
    Run.objects.filter(pk=run.pk).update(timing=event.timing)


def _tried(run: Run, event: Tried) -> None:
    """Stores a trial of a search, once."""
    body = event.trial.model_dump(mode="json")
    Trial.objects.get_or_create(run=run, number=event.trial.number, defaults={"body": body})
    Run.objects.filter(pk=run.pk).update(done=run.trials.count(), attempts_without_progress=0)


def _confirmed_again(run: Run, event: Confirmed) -> None:
    run.trials.filter(number=event.finalist.number).update(confirmed=event.finalist.model_dump(mode="json"))


def _examined(run: Run, event: Examined) -> None:
    """Stores a profile; once, however often it is sent. Raises Rejected if there is no result that it is of."""
    if store_profiles(run, [event.profile]):
        raise Rejected(f"there is no result of {event.profile.kernel} on this workload that it could be a profile of")
    if run.profile_of_id:
        Run.objects.filter(pk=run.pk).update(done=1, attempts_without_progress=0)


def _finished(run: Run, event: Finished, at: datetime) -> None:
    state, message = ENDINGS[event.state], event.message
    if state == State.DONE and (lost := _what_was_lost(run)):
        state, message = State.FAILED if run.done < run.total else state, lost
    run.advance(state, message=message, at=at, log=event.log)
    log.info("%s", state)
    ask_dispatch()
    transaction.on_commit(lambda: send("draw_charts", run.pk, priority=WHEN_IDLE))


def _what_was_lost(run: Run) -> str:
    """A sentence on the events of this attempt that could not be stored; empty if all were."""
    rejected = RejectedEvent.objects.filter(run=run.pk, attempt=run.attempt)
    if not (first := rejected.order_by("pk").first()):
        return ""
    count = rejected.count()
    return f"{count} event{'s' * (count > 1)} could not be stored; the first: {first.reason}"


def _confirm(confirmed: dict[tuple[int, int], int], counts: Counter[str]) -> None:
    """After commit: confirms to agents, who resend if that is lost; counts, for /metrics."""

    def tell() -> None:
        try:
            keys = BrokerKeys(settings.REDIS_URL)
            for (run, attempt), seq in confirmed.items():
                keys.confirm(run, attempt, seq)
            for name, more in counts.items():
                keys.count(name, more)
        except RedisError as error:
            log.warning("could not confirm events: %s", error)

    transaction.on_commit(tell)


# --- hello ------------------------------------------------------------------------------------------------------------


def hello(said: dict[str, Any]) -> dict[str, Any]:
    """Handles an agent's hello: updates its device, resumes runs that it does not hold, answers with attempts to
    stop."""
    from runs.pipeline.reaper import resume_denied

    age_s = _age_s(said)
    if age_s > HELLO_OLD_S:  # it waited in the queue: what it says of runs is old
        return {}
    device = said["device"]
    fields = {name: device.get(name) for name in ("kind", "name", "index", "capability", "memory_bytes", "max_sm_mhz")}
    fields |= {"driver": device.get("driver") or "", "host": said.get("host") or ""}
    fields |= {"active_attempts": said.get("held") or [], "no_submissions": said.get("no_submissions")}
    fields |= {"sandbox": said.get("sandbox"), "no_counters": said.get("no_counters")}
    if said.get("foreign") is not None or not fields["active_attempts"]:
        fields["foreign"] = said.get("foreign")
    if "at" in said:
        fields["clock_ahead_s"] = round(said["at"] + age_s - time.time(), 1)
    with transaction.atomic():
        gpu, new = _said_of(device["uuid"], fields | {"catalogue": said["catalogue"]})
        resume_denied(gpu)
        reply = {"superseded": superseded(gpu), "confirmed": _confirmed(gpu)}
    try:
        BrokerKeys(settings.REDIS_URL).reply(gpu.uuid, reply)
    except RedisError as error:
        log.warning("could not answer the hello of %s: %s", gpu, error)
    if new or not Run.objects.sent().filter(gpu=gpu).exists():
        ask_dispatch()
    return reply


def _said_of(uuid: str, fields: dict[str, Any]) -> tuple[Gpu, bool]:
    """The device with these fields, and whether it is new. Only what changed is written: a catalogue is large."""
    gpu, new = Gpu.objects.select_for_update().get_or_create(uuid=uuid, defaults=fields | {"seen_at": timezone.now()})
    if not new:
        changed = {name: value for name, value in fields.items() if getattr(gpu, name) != value}
        changed["seen_at"] = timezone.now()
        for name, value in changed.items():
            setattr(gpu, name, value)
        gpu.save(update_fields=list(changed))
    return gpu, new


def _age_s(said: dict[str, Any]) -> float:
    """Seconds since the hello was sent, by the broker's clock; 0 for an agent of the previous version."""
    sent = said.get("sent")
    return max(0.0, BrokerKeys(settings.REDIS_URL).now() - sent) if sent else 0.0


def superseded(gpu: Gpu) -> list[list[int]]:
    """Superseded attempts among those that the agent holds."""
    runs = Run.objects.in_bulk([run for run, _ in gpu.active_attempts])

    def over(run_id: int, attempt: int) -> bool:
        run = runs.get(run_id)
        return run is None or run.attempt != attempt or run.state in FINAL

    return [[run, attempt] for run, attempt in gpu.active_attempts if over(run, attempt)]


def _confirmed(gpu: Gpu) -> list[list[int]]:
    """[run, attempt, seq] of the agent's attempts: confirms what is stored, even if the broker lost it."""
    runs = Run.objects.in_bulk([run for run, _ in gpu.active_attempts])
    return [[r, a, runs[r].seq] for r, a in gpu.active_attempts if r in runs and runs[r].attempt == a]
