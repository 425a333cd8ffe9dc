"""A row of a file as claims: names, units, sizes, one claim for each kernel of the row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from kernels.catalog import operations
from kernels.dtypes import DTYPES
from kernels.foreign import names
from kernels.foreign.claimed import LONGEST_NAME, Claimed, Record, Refused
from kernels.foreign.figures import STATISTICS, column, number, truth
from kernels.operations.rows import FOLDED, Rows
from kernels.workload import Workload, sentence

LEFT_OUT = ("average", "hashes")
"""First cells of rows that are no results: TritonBench's averages, and hashes of its sources."""
DTYPE = "float16"
"""Where neither the row nor the words about the file name one."""
DEEPEST = 4
NAMELESS = re.compile(r"[(\[]?\s*\d+(?:\.\d+)?(?:\s*,\s*\d+(?:\.\d+)?)*,?\s*[)\]]?")
""" "1024", "(4, 48, 1024)" """
BARE = re.compile("|".join(STATISTICS.values()), re.IGNORECASE)
"""Names that say which statistic it is, and not of what."""
NO_TIME = re.compile(
    r"mhz|clock|freq|power|watt|joule|energy|temp|memory|bytes|util|telemetry|error|accuracy|flops|bandwidth|gbp?s"
)
"""Words in the name of an object whose statistics are no times."""
SHORT_DTYPES = {info.short: name for name, info in DTYPES.items()} | {"half": "float16", "float": "float32"}


@dataclass
class _Row:
    """A row, sorted by what its names mean."""

    sizes: dict[str, str | int | float | bool] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    """By the first of the names of kernels/foreign/names.py: implementation, operation, dtype, gpu, ..."""
    said: dict[str, str] = field(default_factory=dict)
    """What its texts describe."""
    nameless: str = ""
    """The heading of a column whose numbers may be sizes, without names."""
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Label of a kernel, or nothing -> figure -> (value, factor)."""


def claims(record: Record, about: Mapping[str, str]) -> Iterator[Claimed | tuple[str, Refused]]:
    """The claims of a row, and what of it is none. A row of averages gives nothing.

    about: what holds for every row, where a row says nothing else, as kernels/foreign/names.py describes it.
    """
    if _is_left_out(record):
        return
    try:
        row = _sorted(record.values)
        kernels = _kernels(row, about)
    except Refused as why:
        yield record.where, why
        return
    for kernel, baseline, figures in kernels:
        where = record.where if len(kernels) == 1 else f"{record.where}, {kernel}"
        try:
            yield _claim(where, row, about, kernel, baseline, figures)
        except Refused as why:
            yield where, why


def _is_left_out(record: Record) -> bool:
    first = next(iter(record.values.values()), None)
    return isinstance(first, str) and first.strip().lower() in LEFT_OUT


# --- what its names mean ----------------------------------------------------------------------------------------------


def _sorted(values: Mapping[str, Any]) -> _Row:
    row = _Row()
    if values.get("kind") == "measured" and isinstance(values.get("results"), list):
        raise Refused("it is an event of a run, without its GPU: import the file that the run wrote with --json")
    for name, value, inside in _flat(values, DEEPEST):
        if value is None or value == "" or (BARE.fullmatch(name) and NO_TIME.search(inside)):
            continue
        key = names.plain(name)
        group = next((kind for kind in _GROUPS if key in kind), None)
        if group is names.TEXTS or (names.SHAPE.fullmatch(name) and isinstance(value, str)):
            row.sizes |= _tuple(name, value)
            row.nameless = row.nameless or (name if NAMELESS.fullmatch(str(value).strip()) and not row.sizes else "")
            row.said |= names.described(str(value)) if isinstance(value, str) else {}
        elif size := names.size_of(name):
            row.sizes[size] = value
        elif group:
            row.words.setdefault(f"{group[0]}:{key}", _word(key, value))
        elif found := column(name):
            row.figures.setdefault(found.label, {}).setdefault(found.figure, (value, found.factor))
    return row


_GROUPS = (names.TEXTS, names.KERNEL, names.OPERATION, names.DTYPE, names.GPU, names.METHOD, names.STATUS,
           ("backend",), ("baseline",))  # fmt: skip


def _flat(values: Mapping[str, Any], deep: int, inside: str = "") -> Iterator[tuple[str, Any, str]]:
    """Names and values, those of inner objects among them, with the names of the objects that they are in."""
    for name, value in values.items():
        if isinstance(value, dict):
            if deep:
                yield from _flat(value, deep - 1, f"{inside} {name}".lower())
        elif not isinstance(value, list):
            yield str(name), value, inside


def _tuple(name: str, value: Any) -> dict[str, str]:
    """Sizes of "(Batch, Heads, SeqLen, Dhead)" and "(4, 16, 512, 64)"."""
    if not isinstance(value, str) or not names.SHAPE.fullmatch(name) or not names.SHAPE.fullmatch(value):
        return {}
    heads, cells = ([part.strip() for part in text.strip("()[] ").split(",")] for text in (name, value))
    known = [names.size_of(head) for head in heads]
    return {size: cell for size, cell in zip(known, cells, strict=False) if size and cell.isdecimal()}


def _word(key: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise Refused(f"{key} is not text")
    text = "".join(sign if sign.isprintable() else " " for sign in str(value)).strip()
    if len(text) > LONGEST_NAME and key not in names.STATUS:
        raise Refused(f"{key} is longer than {LONGEST_NAME} characters")
    return text


def _first(row: _Row, group: tuple[str, ...]) -> str:
    """The word of a group; its first names count more."""
    return next((row.words[key] for name in group if (key := f"{group[0]}:{name}") in row.words), "")


# --- its kernels ------------------------------------------------------------------------------------------------------

Kernels = list[tuple[str, str, dict[str, Any]]]
"""(kernel, the baseline that its speedup is over, figures)"""


def _kernels(row: _Row, about: Mapping[str, str]) -> Kernels:
    status = _first(row, names.STATUS)
    if status and status.lower() not in ("ok", "success", "passed", "done"):
        raise Refused(f"its status is {status[:LONGEST_NAME]}")
    kernel = _first(row, names.KERNEL)
    is_operation = names.operation_of(kernel) and not names.IMPLEMENTATION.fullmatch(names.plain(kernel))
    if is_operation and row.words.get("backend:backend"):
        kernel = row.words["backend:backend"]  # {"kernel": "gemm", "backend": "cuda"}
    labelled = {label: figures for label, figures in row.figures.items() if label}
    of_row = {name: value for label, figures in row.figures.items() if not label for name, value in figures.items()}
    if kernel or not labelled or not any(_is_timed(figures) for figures in labelled.values()):
        # A label such as "CUDA" in "CUDA time" is then no kernel.
        return [(kernel or about.get("kernel", ""), row.words.get("baseline:baseline", ""), of_row)]
    labelled = {label: figures for label, figures in labelled.items() if _is_timed(figures)}
    base = _baseline(labelled)
    others = [label for label in labelled if label != base]
    if len(others) == 1:
        labelled[others[0]] = of_row | labelled[others[0]]
    return [(label, base if label != base else "", figures) for label, figures in labelled.items()]


def _is_timed(figures: Mapping[str, Any]) -> bool:
    return any(name.endswith("ms") or name == "tflops" for name in figures)


def _baseline(labelled: Mapping[str, Mapping[str, Any]]) -> str:
    """The one kernel without a speedup where the others have one; else the first that is called like a baseline."""
    without = [label for label, figures in labelled.items() if "speedup" not in figures]
    if len(without) == 1 and len(labelled) > 1:
        return without[0]
    return next((label for label in labelled if names.BASELINE.fullmatch(label)), "")


# --- the claim --------------------------------------------------------------------------------------------------------


def _claim(
    where: str, row: _Row, about: Mapping[str, str], kernel: str, baseline: str, values: Mapping[str, Any]
) -> Claimed:
    if not kernel:
        raise Refused("it names no kernel")
    figures = {name: read * factor for name, (value, factor) in values.items()
               if name != "correct" and (read := number(value, name)) is not None}  # fmt: skip
    if not any(name in figures for name in ("p50_ms", "ms", "mean_ms", "tflops")):
        raise Refused("it has no time of a call (median, mean, or plain) and no TFLOP/s")
    workload, assumed = _workload(row, about)
    try:
        return Claimed(
            where=where,
            workload=workload,
            kernel=_word("kernel", kernel),
            backend=row.words.get("backend:backend", ""),
            baseline=baseline,
            gpu=_first(row, names.GPU) or row.said.get("gpu", "") or about.get("gpu", ""),
            method=_first(row, names.METHOD),
            figures=figures,
            correct=truth(values["correct"][0]) if "correct" in values else None,
            assumed=tuple(assumed),
        )
    except ValidationError as error:
        raise Refused(sentence(error)) from None


def _workload(row: _Row, about: Mapping[str, str]) -> tuple[Workload, list[str]]:
    """The workload, and what was assumed of it."""
    named = _first(row, names.OPERATION) or row.words.get(f"{names.KERNEL[0]}:kernel", "")
    operation = names.operation_of(named) if named else ""
    if _first(row, names.OPERATION) and not operation:
        raise Refused(f"the operation {named!r} is not known here")
    operation = operation or row.said.get("operation", "") or about.get("operation", "") or _by_sizes(row)
    if not operation:
        raise Refused(f"it names no operation{_nameless(row)}")
    sizes: dict[str, Any] = {**about, **row.sizes, **row.said}  # "n" beside "M=8 N=8 K=8" counts calls
    said = _first(row, names.DTYPE).lower().removeprefix("torch.")
    dtype = SHORT_DTYPES.get(said, said) or row.said.get("dtype", "") or about.get("dtype", "")
    assumed = [] if dtype else [f"{DTYPES[DTYPE].short}: the row names no dtype"]
    given = _sizes_of(operation, sizes, _nameless(row))
    return _made(operation, dtype or DTYPE, json.dumps(given, sort_keys=True)), assumed


def _by_sizes(row: _Row) -> str:
    """The operation, of a row that does not name it, by its sizes."""
    there = row.sizes.keys() | row.said.keys()
    if there >= {"seq_len", "heads"}:
        return "attention"
    return "gemm" if there >= {"m", "n", "k"} else ""


def _sizes_of(operation: str, sizes: Mapping[str, Any], nameless: str = "") -> dict[str, Any]:
    """The sizes of an operation by its own names, as numbers. nameless: ends the reason if one is missing."""
    model = operations()[operation]
    rename, known = {"dim": "head_dim"}, set(model.model_fields) - {"dtype"}
    needed = {name for name, info in model.model_fields.items() if info.is_required() and not _may_be_empty(info)}
    if issubclass(model, Rows):
        rename = {"m": "rows", "n": model.across, "cols": model.across, "vocab": model.across}
        if {"batch", "seq_len"} <= sizes.keys() and sizes.keys() & {"dim", "head_dim"}:  # a batch of sequences
            rename, known = {"head_dim": "dim"}, known - {"rows", model.across} | set(FOLDED)
            needed = set(FOLDED)
    fields = model.model_fields
    named = sorted(sizes.items(), key=lambda item: item[0] not in rename)  # its own names count more
    given = {(size := rename.get(name, name)): _size(name, value, fields.get(size))
             for name, value in named if rename.get(name, name) in known}  # fmt: skip
    if missing := [name for name in (*model.model_fields, *FOLDED) if name in needed - given.keys()]:
        raise Refused(f"it does not say {', '.join(dict.fromkeys(missing))} of {operation}{nameless}")
    return given


def _nameless(row: _Row) -> str:
    """What to change, where numbers have no names."""
    return (
        f"; {row.nameless} has numbers without names: head it with those of its sizes, as (M, N, K)"
        if row.nameless
        else ""
    )


def _may_be_empty(info: FieldInfo) -> bool:
    return isinstance(info.json_schema_extra, dict) and bool(info.json_schema_extra.get("may_be_empty"))


def _size(name: str, value: Any, info: FieldInfo | None) -> int | float | bool | str:
    """A size as its operation has it: a whole number, unless it is another kind."""
    if info and info.annotation is bool:
        return bool(truth(value))
    if info and info.annotation is float:
        return number(value, name) or 0.0
    if info and info.annotation is not int:
        return str(value)
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Refused(f"{name} is not a whole number: {str(value)[:40]!r}")


@lru_cache(4096)
def _made(operation: str, dtype: str, sizes: str) -> Workload:
    """The workload, once for many rows. Raises Refused."""
    try:
        return Workload(operation=operation, dtype=dtype, sizes=json.loads(sizes))
    except ValidationError as error:
        raise Refused(sentence(error)) from None
