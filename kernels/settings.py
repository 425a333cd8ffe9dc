"""Settings of a kernel that can be tuned: its space, names of variants, and the table of the best that lies beside it.

A kernel declares `space={"rows": (1, 2, 4), "warps": (4, 8)}` and takes an argument `settings`: None, or a value for each
name. `name~rows=2+warps=4` is the kernel with these settings, `name~own` the kernel with its own choice. Without either
it gets the settings of its table, where that has some for the workload and the card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

Value = bool | int | str
Settings = dict[str, Value]
Space = Mapping[str, tuple[Value, ...]]
VARIANT = "~"
"""Stands between the name of a kernel and its settings; no file can declare a name with it."""
OWN = "own"
"""Instead of settings: the kernel's own choice, whatever its table says."""
ARGUMENT = "settings"
"""The argument by which a kernel gets them."""
FORMAT: Literal["benchsite-tuned/1"] = "benchsite-tuned/1"
NAME, WORD = re.compile(r"[a-z][a-z0-9_]{0,39}"), re.compile(r"[A-Za-z0-9_.-]{1,40}")
MOST_NAMES, MOST_VALUES = 12, 64


def why_no_space(space: Any) -> str:
    """Why this cannot be a kernel's space, as a sentence; empty if it can."""
    if not isinstance(space, dict) or not all(isinstance(name, str) and NAME.fullmatch(name) for name in space):
        return f"space is {space!r}; it must map names to values, such as {{'warps': (4, 8)}}"
    for name, values in space.items():
        if not isinstance(values, tuple | list) or not 1 <= len(values) <= MOST_VALUES:
            return f"the values of {name} in space must be 1 to {MOST_VALUES}, in a tuple"
        if len({_spelled(value) for value in values}) < len(values):
            return f"{name} in space has a value twice"
        if strange := [one for one in values if type(one) not in (bool, int, str) or not WORD.fullmatch(_spelled(one))]:
            return f"{strange[0]!r} in space is not a valid value: use whole numbers, True, False and words"
    return "" if len(space) <= MOST_NAMES else f"space has {len(space)} names; at most {MOST_NAMES}"


def size_of(space: Space) -> int:
    """Number of different settings."""
    count = 1
    for values in space.values():
        count *= len(values)
    return count


def all_of(space: Space) -> list[Settings]:
    return [dict(zip(space, values, strict=True)) for values in product(*space.values())]


# --- names ------------------------------------------------------------------------------------------------------------


def _spelled(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spelled(settings: Settings) -> str:
    """ "rows=2+warps=4" """
    return "+".join(f"{name}={_spelled(value)}" for name, value in settings.items())


def variant(kernel: str, settings: Settings | None) -> str:
    """The name of a kernel with these settings; None: with its own choice."""
    return f"{kernel}{VARIANT}{OWN if settings is None else spelled(settings)}"


def settings_in(text: str, space: Space) -> Settings | None:
    """What follows a kernel's name: its settings, in the order of its space; None is its own choice. Raises ValueError."""
    if text == OWN:
        return None
    said = dict(part.split("=", 1) for part in text.split("+") if "=" in part)
    if not space or said.keys() != space.keys():
        has = ", ".join(space) or "none"
        raise ValueError(f"'{text}' does not give each of its settings; it has {has}")
    found: Settings = {}
    for name, values in space.items():
        known = {_spelled(value): value for value in values}
        if said[name] not in known:
            raise ValueError(f"{name}={said[name]} is not in its space: {', '.join(known)}")
        found[name] = known[said[name]]
    return found


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """The best settings of one search, for its workloads and its card."""

    device: str
    """Name of the card."""
    capability: float | None
    measured_on: str
    """The day."""
    triton: str
    keys: tuple[str, ...]
    """Keys of the workloads."""
    settings: Settings

    def note(self, device: str) -> str:
        """Where these settings come from, as a phrase."""
        elsewhere = "" if device == self.device else f", not for this card ({device})"
        version = f" with Triton {self.triton}" if self.triton else ""
        return f"tuned for {self.device} on {self.measured_on}{version}{elsewhere}"

    def line(self) -> str:
        return f"{self.device}, {self.measured_on}: {spelled(self.settings)} for {' '.join(self.keys)}"


def table_path(file: Path, kernel: str) -> Path:
    """Where the table of a kernel lies: beside its file."""
    return file.with_name(f"{kernel}.tuned.json")


def read_table(file: Path, kernel: str, space: Space) -> list[Tuned]:
    """The best settings of each search in the table of a kernel, the newest last; none without one. Raises ValueError."""
    if not space or not (path := table_path(file, kernel)).is_file():
        return []
    try:
        table = json.loads(path.read_text())
        if table.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return [_tuned(search, space) for search in table["searches"] if search.get("best")]
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the table {path.name} cannot be read: {error!r}") from None


def _tuned(search: dict[str, Any], space: Space) -> Tuned:
    environment = search["environment"]
    settings = settings_in(spelled(search["best"]), space)
    assert settings is not None
    return Tuned(
        device=environment["device"],
        capability=float(environment["capability"]) if environment.get("capability") else None,
        measured_on=str(search["began_at"])[:10],
        triton=environment.get("triton") or "",
        keys=tuple(search["keys"]),
        settings=settings,
    )


def choose(table: Sequence[Tuned], key: str, device: str, capability: float | None) -> Tuned | None:
    """The newest settings for a workload: of this card, else of another card of the same compute capability."""
    mine = [one for one in table if key in one.keys]
    here = [one for one in mine if one.device == device]
    alike = [one for one in mine if capability is not None and one.capability == capability]
    return next(reversed(here or alike), None)


def with_table(source: bytes, table: Sequence[Tuned]) -> bytes:
    """A kernel's source with what its table makes of it: with other settings it is another source."""
    return source + "".join(f"# tuned: {one.line()}\n" for one in table).encode()


@dataclass(frozen=True)
class Decides:
    """What decides the settings of a kernel."""

    said: str = ""
    """Settings in its name; empty: the table decides, then the kernel itself."""
    space: Space = field(default_factory=dict)
    whole_table: Sequence[Tuned] = ()

    def chosen(self, key: str, device: str, capability: float | None) -> tuple[Settings | None, str]:
        """(settings for a workload on a card, where they come from); None: the kernel's own choice."""
        if self.said:
            return settings_in(self.said, self.space), ""
        found = choose(self.whole_table, key, device, capability)
        return (found.settings, found.note(device)) if found else (None, "")


def settled(call: Callable[..., Any], settings: Settings | None) -> Callable[..., Any]:
    """A kernel with these settings; None: with its own choice."""
    return call if settings is None else partial(call, **{ARGUMENT: settings})
