"""What one kernel's calls depend on: the functions and constants that its code names."""

from __future__ import annotations

import contextlib
import dis
import types
from collections.abc import Iterator, Set
from functools import lru_cache, partial
from typing import Any

from kernels.child.functions import LIBRARIES, PLAIN, is_function

Place = tuple[int, str]
"""(identity of globals or of a cell, name)"""
CONTENTS = "cell_contents"


class Reach:
    """The functions and constants that a callable's code names, in its own module and in others, and their code. What its code
    itself writes, such as a counter of calls, is no constant."""

    def __init__(self, call: Any) -> None:
        self.found: list[tuple[Any, str, Any]] = []
        self.writes: set[Place] = set()
        self._seen: set[int] = set()
        self._follow(call)
        self.found = [one for one in self.found if (id(one[0]), one[1]) not in self.writes]

    def _follow(self, value: Any) -> None:
        """Follows a function, and what it wraps, closes over and names."""
        while isinstance(value, partial):
            value = value.func
        function = getattr(value, "__func__", value)
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        if not isinstance(function, types.FunctionType):
            for name in ("__call__", "forward"):
                if isinstance(own := getattr(type(value), name, None), types.FunctionType):
                    self._follow(own)
            return
        if _is_of_library(function.__module__):
            return
        self.found.append((function, "__code__", function.__code__))
        names, written = set(_names(function.__code__)), _written(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if ("DEREF", name) in written:
                self.writes.add((id(cell), CONTENTS))
            with contextlib.suppress(ValueError):  # empty
                self._note(cell, CONTENTS, cell.cell_contents)
        self.writes |= {(id(function.__globals__), name) for what, name in written if what == "GLOBAL"}
        for name in names & function.__globals__.keys():
            here = function.__globals__[name]
            self._note(function.__globals__, name, here)
            if isinstance(here, types.ModuleType) and not _is_of_library(here.__name__):
                self.writes |= {(id(vars(here)), attribute) for what, attribute in written if what == "ATTR"}
                for attribute in names & vars(here).keys():
                    self._note(vars(here), attribute, vars(here)[attribute])
        if wrapped := getattr(function, "__wrapped__", None):
            self._follow(wrapped)

    def _note(self, owner: Any, name: str, value: Any) -> None:
        if is_function(value) or isinstance(value, (types.ModuleType, *PLAIN)):
            self.found.append((owner, name, value))
            if is_function(value):
                self._follow(value)

    def changes(self, apart_from: Any = None, writes: Set[Place] = frozenset()) -> list[str]:
        """Names of what differs. Puts it back. apart_from: globals which belong to the kernel that ran: only functions count
        there that its code does not write. writes: what its code writes; elsewhere it may make what was None before."""
        found = []
        for number, (owner, name, before) in enumerate(self.found):
            try:
                now = owner.get(name) if isinstance(owner, dict) else getattr(owner, name)
            except ValueError:
                now = None
            if now is before or (isinstance(before, PLAIN) and now == before):
                continue
            plain, written = isinstance(before, PLAIN), (id(owner), name) in writes
            if (owner is apart_from and (plain or written)) or (before is None and written):
                self.found[number] = (owner, name, now)
                continue
            found.append(f"{_label(owner, name)}: replaced")
            if isinstance(owner, dict):
                owner[name] = before
            else:
                setattr(owner, name, before)
        return found


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


@lru_cache(maxsize=4096)
def _written(code: types.CodeType) -> frozenset[tuple[str, str]]:
    """What a function's code assigns: ("GLOBAL", "DEREF" or "ATTR", name), of globals, of variables around it, and of
    attributes. Where it names `setattr` or `globals`, each of its texts may be such a name."""
    found = {
        (one.opname.partition("_")[2], str(one.argval))
        for one in dis.get_instructions(code)
        if one.opname.startswith(("STORE_", "DELETE_")) and one.opname.endswith(("_GLOBAL", "_DEREF", "_ATTR"))
    }
    by_name = {"ATTR": "setattr", "GLOBAL": "globals"}
    texts = [
        one
        for const in code.co_consts
        for one in (const if isinstance(const, tuple) else (const,))
        if isinstance(one, str)
    ]
    found |= {(what, text) for what, function in by_name.items() if function in code.co_names for text in texts}
    return frozenset(found.union(*(_written(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))))


def _label(owner: Any, name: str) -> str:
    """Of a function, a name in a module's globals, or a cell."""
    if isinstance(owner, dict):
        return f"{str(owner.get('__name__', '')).rpartition('.')[2]}.{name}"
    if isinstance(owner, types.FunctionType):
        return f"{owner.__module__.rpartition('.')[2]}.{owner.__qualname__}"
    return "what it closes over"


def _is_of_library(module: str | None) -> bool:
    name = module or ""
    return name.partition(".")[0] in LIBRARIES and not name.startswith("kernels.operations")
