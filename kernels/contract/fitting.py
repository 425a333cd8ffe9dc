"""Makes an event fit the size that the site stores. What is left out is said in its place.

The agent fits each event before its journal has it: an event that the site must refuse would cost all its results.
"""

from __future__ import annotations

from typing import Any

from kernels.contract.arm_result import ArmResult, Status
from kernels.contract.events import Event, Examined, Finished, Measured

MAX_EVENT_BYTES = 16 * 2**20
"""Of an event as JSON, with its line. The recorder refuses a longer one."""
LINE_BYTES = 4096
"""More than a line needs beside its event."""
MOST_TEXT = 2**20
"""Characters kept of a source or a log."""


def fitted(event: Event, most: int = MAX_EVENT_BYTES - LINE_BYTES) -> Event:
    """The event in at most `most` bytes of JSON: first without long texts, then without samples, at last without the
    largest results, which then say so. A profile goes without its trace."""
    if size(event) <= most:
        return event
    if isinstance(event, Finished):
        return event.model_copy(update={"log": event.log[-MOST_TEXT:], "message": cut(event.message, MOST_TEXT)})
    if isinstance(event, Examined):
        return _without_trace(event)
    if not isinstance(event, Measured):
        return event
    each = min(MOST_TEXT, most // 8 // max(1, len(event.results)))
    event = event.model_copy(update={"results": [_short(arm, each) for arm in event.results]})
    if size(event) > most:
        arms = [arm.model_copy(update={"samples_ns": None}) for arm in event.results]
        notes = [*event.notes, "its samples are not kept: they are too large"]
        event = event.model_copy(update={"results": arms, "aa_samples_ns": None, "notes": notes})
    kept = {arm.kernel for arm in event.results}
    while size(event) > most and kept:
        largest = max((arm for arm in event.results if arm.kernel in kept), key=size)
        kept.remove(largest.kernel)
        arms = [_left_out(arm) if arm is largest else arm for arm in event.results]
        event = event.model_copy(update={"results": arms})
    return event


def _without_trace(event: Examined) -> Examined:
    if event.profile.timeline is None:
        return event
    changes = {"trace": "", "trace_missing": "the trace is not kept: it is too large"}
    timeline = event.profile.timeline.model_copy(update=changes)
    return event.model_copy(update={"profile": event.profile.model_copy(update={"timeline": timeline})})


def size(event: Any) -> int:
    """Bytes of a model as JSON."""
    return len(event.model_dump_json(by_alias=True).encode())


def cut(text: str, most: int) -> str:
    """The first characters of a text that is too long, and how many there were."""
    return text if len(text) <= most else f"{text[:most]}\n[... the first {most} of {len(text)} characters]"


def _short(arm: ArmResult, most: int) -> ArmResult:
    return arm.model_copy(update={"source": cut(arm.source, most), "log": arm.log[-most:], "why": cut(arm.why, most)})


def _left_out(arm: ArmResult) -> ArmResult:
    why = f"its result has {size(arm)} bytes, too many to store"
    return ArmResult(kernel=arm.kernel, status=Status.FAILED, why=why, sha256=arm.sha256)
