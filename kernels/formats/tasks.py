"""The task.yml of a GPU MODE problem: its files, benchmarks and tests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from kernels.formats.cases import SEED, Cases, cases
from kernels.submission import Unreadable

MOST = 100_000
"""Characters of a task.yml."""
Sizes = dict[str, Any]


@dataclass(frozen=True)
class Task:
    sources: set[str]
    """Names of its files."""
    size: Sizes
    """The last benchmark."""
    benchmarks: Cases
    tests: Cases
    """Those that are no benchmark, too."""


@dataclass(frozen=True)
class Listed:
    """What a task.yml lists, as it says it. Not every test needs to be a size."""

    sources: list[str]
    """Paths of its files, from its folder."""
    tests: list[Any]
    benchmarks: list[Any]


def listed_in(text: str, name: str) -> Listed:
    """Raises Unreadable. name: of the file, for the message."""
    if len(text) > MOST:
        raise Unreadable(f"{name} has {len(text):,} characters; the limit is {MOST:,}")
    try:
        said = yaml.safe_load(text)
        sources = [str(one["source"]) for one in said.get("files") or []]
        return Listed(sources, [*(said.get("tests") or [])], [*(said.get("benchmarks") or [])])
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise Unreadable(f"{name} cannot be read: it needs benchmarks, each with its sizes, and files") from None


def task_in(text: str, name: str) -> Task:
    """Raises Unreadable. name: of the file, for the message."""
    said = listed_in(text, name)
    benchmarks = said.benchmarks or said.tests or [{}]
    if not _is_plain(last := benchmarks[-1]):
        raise Unreadable(f"the last benchmark in {name} must give a number or a text for each size")
    sources = {PurePosixPath(one).name for one in said.sources}
    return Task(sources, dict(last), _cases("benchmark", benchmarks), _cases("test", said.tests, benchmarks))


def _is_plain(size: Any) -> bool:
    """Whether it gives a number or a text for each size."""
    return (
        isinstance(size, dict)
        and bool(size)
        and all(
            isinstance(key, str)
            and key.isidentifier()
            and isinstance(value, int | float | bool | str)
            and not (isinstance(value, float) and not math.isfinite(value))
            for key, value in size.items()
        )
    )


def _cases(what: str, found: list[Any], known: list[Any] | None = None) -> Cases:
    """The different ones among them: seeds are drawn for every call. known: leave these out."""
    different = list(_different(found, [_essence(one) for one in known or [] if _is_plain(one)]))
    odd = [f"{what} {number}" for number, one in enumerate(found, 1) if not _is_plain(one)]
    made = cases((one, one) for one in different)
    return Cases(made.chosen, [*odd, *made.left_out])


def _different(found: list[Any], seen: list[Sizes]) -> Iterator[Sizes]:
    for one in found:
        if _is_plain(one) and (essence := _essence(one)) not in seen:
            seen.append(essence)
            yield dict(one)


def _essence(size: Sizes) -> Sizes:
    return {name: value for name, value in size.items() if name != SEED}
