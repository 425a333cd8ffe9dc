"""The recorder: writes down what agents report. The only writer of results.

An event is stored whole or not at all; the first one wins; a repeated one changes nothing; one that comes before its
predecessor waits until the agent sends both. What cannot be stored is kept as rejected and confirmed all the same,
otherwise its agent would send it for ever.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from redis.exceptions import RedisError

from kernels.report.tables import verdict
from kernels.workload import Workload as WorkloadSpec
from runs.broker import Notes
from runs.models import (
    Calibration,
    Environment,
    Gpu,
    Kernel,
    KernelVersion,
    Measurement,
    RejectedEvent,
    Result,
    Run,
    Workload,
)
from runs.models.measurement import RATES, STATISTICS
from runs.models.run import FINAL, State
from runs.pipeline.dispatcher import ask_dispatch, send

log = logging.getLogger(__name__)
MAX_EVENT_BYTES = 16 * 2**20
KEPT_OF_REJECTED = 64 * 1024
ENDINGS = {"done": State.DONE, "failed": State.FAILED, "cancelled": State.CANCELLED}
NUL = re.compile(r"(?<!\\)(\\\\)*\\u0000")  # in JSON: the character, not a text that spells it, as a source may


class Rejected(Exception):
    """This event cannot be stored; the message says why."""


def record(events: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Stores events, in the order of their numbers. Returns what is now confirmed: (run, attempt) -> seq."""
    confirmed: dict[tuple[int, int], int] = {}
    with transaction.atomic():
        for event in sorted(events, key=_order):
            identity, seq = take(event)
            confirmed[identity] = max(seq, confirmed.get(identity, 0))
    _confirm(confirmed)
    return confirmed


def _order(event: Any) -> tuple[int, int, int]:
    def number(name: str) -> int:
        value = event.get(name) if isinstance(event, dict) else None
        return value if isinstance(value, int) else 0

    return number("run"), number("attempt"), number("seq")


def take(event: dict[str, Any]) -> tuple[tuple[int, int], int]:
    """Stores one event if it is the next one. Returns ((run, attempt), highest seq confirmed)."""
    run_id, attempt, seq = _order(event)
    run = Run.objects.select_for_update(of=("self",)).filter(pk=run_id).first()
    if run is None:
        return _reject(event, "there is no such run")
    if attempt != run.attempt:
        return _reject(event, f"attempt {attempt} of this run was superseded by attempt {run.attempt}")
    if seq <= run.seq or seq > run.seq + 1:  # seen already, or a predecessor is missing
        return (run_id, attempt), run.seq
    answer = (run_id, attempt), seq
    try:
        with transaction.atomic():
            _check(event)
            _apply(run, event)
    except (OperationalError, InterfaceError):  # the database is busy or gone: the agent sends it again
        raise
    except Exception as error:
        answer = _reject(event, f"{type(error).__name__}: {error}")
    Run.objects.filter(pk=run_id).update(seq=seq, progress_at=timezone.now())
    return answer


def _reject(event: Any, reason: str) -> tuple[tuple[int, int], int]:
    run, attempt, seq = _order(event)
    body = json.dumps(event, default=str).replace("\\u0000", "�")[:KEPT_OF_REJECTED]
    numbers = {"run": run, "attempt": attempt, "seq": seq}
    fitting = {name: number for name, number in numbers.items() if abs(number) < 2**31}
    RejectedEvent.objects.create(reason=reason.replace("\x00", "�")[:300], body=body, **fitting)
    log.warning("rejected event %s of run %s attempt %s: %s", seq, run, attempt, reason)
    return (run, attempt), seq


def _check(event: dict[str, Any]) -> None:
    """What no database should be asked to hold."""
    try:
        text = json.dumps(event, allow_nan=False)
    except ValueError:
        raise Rejected("it has a number that is not finite") from None
    if NUL.search(text):
        raise Rejected("it has a NUL character")
    if len(text) > MAX_EVENT_BYTES:
        raise Rejected(f"it has {len(text)} bytes; at most {MAX_EVENT_BYTES} are stored")


def _apply(run: Run, event: dict[str, Any]) -> None:
    handlers = {
        "started": _started,
        "calibrated": _calibrated,
        "measured": _measured,
        "crosschecked": _crosschecked,
        "finished": _finished,
    }
    handler = handlers.get(event["kind"])
    if handler is None:
        raise Rejected(f"there is no kind of event named {event['kind']!r}")
    handler(run, event["data"], parse_datetime(event.get("at") or "") or timezone.now())


def _started(run: Run, data: dict[str, Any], at: Any) -> None:
    environment = Environment.of(data["environment"], data["fingerprint"])
    changes = {"environment": environment, "preflight": data.get("preflight", {}), "fruitless": run.fruitless + 1}
    if data.get("preflight", {}).get("others"):
        changes["contended"] = True
    if run.started_at is None:
        changes["started_at"] = at
    run.advance(State.RUNNING, **changes)


def _calibrated(run: Run, data: dict[str, Any], at: Any) -> None:
    found = {"ceilings": data["ceilings"], "environment": run.environment, "run": run, "measured_at": at}
    Calibration.objects.update_or_create(gpu=run.gpu, driver=data["driver"], defaults=found)


def _measured(run: Run, data: dict[str, Any], at: Any) -> None:
    workload = Workload.objects.of(WorkloadSpec(**data["workload"]))
    if data["key"] != workload.key:
        raise Rejected(f"its workload has the key {workload.key}, not {data['key']}")
    own = {name: data[name] for name in ("baseline", "margin", "aa", "protocol", "telemetry", "notes", "took_s")}
    own["aa_ticks_ns"] = data.get("aa_ticks_ns")
    measurement, new = Measurement.objects.get_or_create(
        run=run, workload=workload, mode=data["mode"], group=data["group"], defaults=own
    )
    if not new:
        return
    for result in data["results"]:
        store_result(measurement, workload.operation, result, commit=_commit(run))
    measured = run.measurements.values("workload").distinct().count()
    Run.objects.filter(pk=run.pk).update(done=measured, fruitless=0)


def _commit(run: Run) -> str:
    return (run.environment.body.get("commit") or "")[:50] if run.environment else ""


def store_result(measurement: Measurement, operation: str, result: dict[str, Any], commit: str) -> Result:
    kernel, _ = Kernel.objects.get_or_create(
        operation=operation, name=result["kernel"], defaults={"backend": result.get("backend", "")}
    )
    version = None
    if result.get("sha256") and result.get("source"):
        version, _ = KernelVersion.objects.get_or_create(
            kernel=kernel, sha256=result["sha256"], defaults={"source": result["source"], "commit": commit}
        )
    stats, speedup = result.get("stats") or {}, result.get("speedup") or {}
    return Result.objects.create(
        measurement=measurement,
        kernel=kernel,
        version=version,
        status=result["status"],
        verdict=verdict(result, measurement.baseline, measurement.margin),
        why=result.get("why") or "",
        log=result.get("log") or "",
        rounds=result.get("rounds"),
        left_after=result.get("left_after"),
        speedup=speedup.get("ratio"),
        speedup_low=speedup.get("low"),
        speedup_high=speedup.get("high"),
        effective_sample_size=speedup.get("effective_sample_size"),
        paired=speedup.get("paired", True),
        compile_s=result.get("compile_s"),
        peak_memory_bytes=result.get("peak_memory_bytes"),
        correctness=result.get("correctness"),
        ran=result.get("ran") or [],
        ticks_ns=result.get("ticks_ns"),
        cold=result.get("cold"),
        sm_mhz=result.get("sm_mhz"),
        crosscheck=result.get("crosscheck"),
        **{name: stats.get(name) for name in STATISTICS},
        **{name: result[name] for name in RATES if result.get(name) is not None},
    )


def _crosschecked(run: Run, data: dict[str, Any], at: Any) -> None:
    results = Result.objects.filter(measurement__run=run)
    for seen in data["seen"]:
        results.filter(measurement__workload__key=seen["key"], kernel__name=seen["kernel"]).update(
            ran=seen["ran"], crosscheck=seen.get("check")
        )


def _finished(run: Run, data: dict[str, Any], at: Any) -> None:
    state = ENDINGS.get(data["state"])
    if state is None:
        raise Rejected(f"a run cannot end as {data['state']!r}")
    run.advance(state, message=data.get("message") or "", at=at, log=data.get("log") or "")
    transaction.on_commit(lambda: send("draw_charts", run.pk))
    ask_dispatch()


def _confirm(confirmed: dict[tuple[int, int], int]) -> None:
    """After the commit: tells agents what they need not send again. If this is lost, they send it again."""

    def tell() -> None:
        try:
            notes = Notes(settings.REDIS_URL)
            for (run, attempt), seq in confirmed.items():
                notes.confirm(run, attempt, seq)
        except RedisError as error:
            log.warning("could not confirm events: %s", error)

    transaction.on_commit(tell)


# --- hello ------------------------------------------------------------------------------------------------------------


def hello(said: dict[str, Any]) -> dict[str, Any]:
    """An agent's sign of life: updates its device, resumes what it denies, answers what it should stop."""
    from runs.pipeline.reaper import resume_denied

    device = said["device"]
    fields = {name: device.get(name) for name in ("kind", "name", "index", "capability", "memory_bytes")}
    fields |= {"driver": device.get("driver") or "", "host": said.get("host") or "", "held": said.get("held") or []}
    with transaction.atomic():
        gpu, new = Gpu.objects.update_or_create(
            uuid=device["uuid"], defaults=fields | {"catalogue": said["catalogue"], "seen_at": timezone.now()}
        )
        resume_denied(gpu)
        answer = {"superseded": superseded(gpu), "confirmed": _held_seqs(gpu)}
    try:
        Notes(settings.REDIS_URL).reply(gpu.uuid, answer)
    except RedisError as error:
        log.warning("could not answer the hello of %s: %s", gpu, error)
    if new or not Run.objects.sent().filter(gpu=gpu).exists():
        ask_dispatch()
    return answer


def superseded(gpu: Gpu) -> list[list[int]]:
    """Of the attempts that an agent holds, those that should not go on."""
    runs = Run.objects.in_bulk([run for run, _ in gpu.held])

    def over(run_id: int, attempt: int) -> bool:
        run = runs.get(run_id)
        return run is None or run.attempt != attempt or run.state in FINAL

    return [[run, attempt] for run, attempt in gpu.held if over(run, attempt)]


def _held_seqs(gpu: Gpu) -> list[list[int]]:
    """[run, attempt, seq] of what an agent holds: tells it what is stored even if the broker has forgotten."""
    runs = Run.objects.in_bulk([run for run, _ in gpu.held])
    return [[r, a, runs[r].seq] for r, a in gpu.held if r in runs and runs[r].attempt == a]
