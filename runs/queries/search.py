"""What somebody asks of the results, as terms: from words such as `sdpa-flash H200 S=4096 seq_len>=2048 by:ada`.

A term of the same kind widens (two kernels: either), terms of different kinds narrow. What is not understood is kept, to be
said: no result matches it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, partial
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils import timezone

from kernels.catalog import operations
from kernels.dtypes import DTYPE_SHORT
from runs.models import Run
from runs.queries.vocabulary import (
    MODES,
    QUALITIES,
    SHORT,
    STATES,
    STATUSES,
    VERDICTS,
    Vocabulary,
    alike,
    kinds,
    sizes,
)

LONGEST = 500
"""Longest text that is read, in characters; and most pieces of it."""
MOST_PIECES = 30
PIECE = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
SPACED = re.compile(r'("[^"]*"?)|\s*(>=|<=|!=|=|<|>)\s*|(?<=\w):\s+')
"""What is left as it is, and signs with spaces around them."""
SIZE = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(>=|<=|!=|=|<|>)(.+)")
NUMBER = re.compile(r"(\d{1,15})([kKmM]?)")
DECIMAL = re.compile(r"\d{0,15}\.\d{1,15}")
TIMES = {"": 1, "k": 1024, "m": 1024**2}
SHAPE = re.compile(r"\d{1,15}(?:[x\N{MULTIPLICATION SIGN}]\d{1,15}){1,2}")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
DAYS = re.compile(r"(\d{1,4})d")
YES, NO = ("yes", "true", "1"), ("no", "false", "0")
SIGNS = {">=": "\N{GREATER-THAN OR EQUAL TO}", "<=": "\N{LESS-THAN OR EQUAL TO}", "!=": "\N{NOT EQUAL TO}"}
NO_RUN = 0
"""Number that no run has."""
SHOWN = 3
"""Names of one term that are written out."""


class Size(NamedTuple):
    """A condition on a size of a workload."""

    fields: frozenset[str]
    sign: str
    value: int | float | bool | str


class Figure(NamedTuple):
    """A condition on what was measured."""

    column: str
    sign: str
    value: float
    """In the column's unit."""


FIGURES = {
    "speedup": ("speedup", "speedup", {"x": 1.0}),
    "p50": ("p50_ms", "p50", {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}),
    "tflops": ("tflops", "TFLOP/s", {"": 1.0}),
    "gb_per_s": ("gb_per_s", "GB/s", {"": 1.0}),
    "light": ("limit_share", "share of the speed of light", {"%": 0.01}),
}
"""Name -> column, what it is called, its units. A number without a unit has the first one."""
MEASURED = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([a-zµ%]*)")


class Term(NamedTuple):
    """One thing that was understood."""

    kind: str
    """kernel, operation, backend, dtype, gpu, host, person, tag, label, run, size, figure, shape, mode, verdict, state, quality,
    since or until."""
    value: Any
    said: str
    """In words: "kernel sdpa-flash"."""
    typed: str = ""
    """As it stands in the search field, or in the address as `name=value`."""


class NotUnderstood(ValueError):
    """The message says why, as a phrase; it is empty where nothing has this name."""


@dataclass
class Search:
    """Everything that was asked."""

    text: str = ""
    """The search field."""
    terms: list[Term] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)
    """(what was typed, why it is not understood)."""

    def values(self, kind: str) -> list[Any]:
        if kind == "run" and self.unknown:
            return [NO_RUN]
        return [term.value for term in self.terms if term.kind == kind]

    def names(self, kind: str) -> list[str]:
        """All names of a kind whose values are lists of names."""
        return [name for value in self.values(kind) for name in value]

    @property
    def problem(self) -> str:
        """What was not understood, a sentence for names and one for the rest; empty if all was."""
        nobody = " or ".join(_quoted(typed) for typed, why in self.unknown if not why)
        wrong = ", ".join(f"{_quoted(typed)} ({why})" for typed, why in self.unknown if why)
        said = [f"No kernel, GPU or person is named {nobody}."] if nobody else []
        return " ".join([*said, f"Invalid search terms: {wrong}."] if wrong else said)


def search(asked: Mapping[str, Iterable[str]], person: str = "") -> tuple[Search, Vocabulary]:
    """Reads `q` and the filters of an address. asked: name -> values. person: who asks, for `by:me`."""
    known = Vocabulary.read()
    reader = Reader(known, person)
    found = Search(text=_joined(_clean(" ".join(asked.get("q", ())))))
    for piece in PIECE.findall(found.text)[:MOST_PIECES]:
        _add(found, piece, reader.piece, piece)
    for name in KEYS:
        for text in asked.get(name, ()):
            if value := _clean(text):
                _add(found, f"{name}={value}", partial(KEYS[name], reader), value)
    return found, known


def _quoted(text: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"


def _clean(text: str) -> str:
    return text.replace("\x00", "").strip()[:LONGEST]


def _joined(text: str) -> str:
    """ "S >= 2048" as one piece."""
    return SPACED.sub(lambda sign: sign.group(1) or sign.group(2) or ":", text)


def _add(found: Search, typed: str, read: Callable[[str], list[Term]], text: str) -> None:
    try:
        found.terms += [term._replace(typed=typed) for term in read(text)]
    except NotUnderstood as why:
        found.unknown.append((typed[:60], str(why)))


class Reader:
    """Makes terms from pieces of text."""

    def __init__(self, known: Vocabulary, person: str) -> None:
        self.known, self.person = known, person

    def piece(self, piece: str) -> list[Term]:
        """One piece of the search field: `kernel:sdpa`, `S>=2048`, or a word."""
        if size := SIZE.fullmatch(piece):
            return self.size(*size.groups())
        key, colon, value = piece.partition(":")
        if colon and (reader := KEYS.get(key.lower())):
            return reader(self, value.strip('"'))
        if colon and key.lower() in sizes():
            return self.size(key, "=", value)
        return self.word(piece.strip('"'))

    def word(self, word: str) -> list[Term]:
        """A word without a name: the first kind that knows it."""
        if word.isdecimal():
            raise NotUnderstood("write the name of the size before the number, such as S=4096")
        for reader in (self.dtype, self.causal, self.shape, self.day, self.state, self.full_name):
            try:
                return reader(word)
            except NotUnderstood:
                continue
        if word.lower() == "me" and self.person:
            return self.person_named("me")
        known = self.known
        for kind, names, within in (
            ("operation", known.operations, False), ("kernel", known.kernels, False),
            ("backend", known.backends, False), ("gpu", known.gpus, True), ("host", known.hosts, False),
            ("person", known.people, False), ("tag", known.tags, False), ("kernel", known.kernels, True),
        ):  # fmt: skip
            if len(word) > 1 and (found := alike(names, word, within)):
                return [_named(kind, found)]
        if len(word) > 1 and Run.objects.filter(in_label(word)).exists():
            return self.label(word)
        raise NotUnderstood("")

    # --- what has names ---

    def _one_of(self, kind: str, names: list[str], text: str) -> list[Term]:
        if found := [name for part in text.split(",") for name in alike(names, part.strip()) if part.strip()]:
            return [_named(kind, found)]
        raise NotUnderstood(f"no {WORDS.get(kind, kind)} has this name")

    def operation(self, text: str) -> list[Term]:
        return self._one_of("operation", self.known.operations, text)

    def kernel(self, text: str) -> list[Term]:
        operation, slash, name = text.partition("/")
        above = self.operation(operation) if slash else []
        return [*above, *self._one_of("kernel", self.known.kernels, name if slash else text)]

    def full_name(self, text: str) -> list[Term]:
        if "/" not in text:
            raise NotUnderstood("")
        return self.kernel(text)

    def backend(self, text: str) -> list[Term]:
        return self._one_of("backend", self.known.backends, text)

    def gpu(self, text: str) -> list[Term]:
        return self._one_of("gpu", self.known.gpus, text)

    def host(self, text: str) -> list[Term]:
        return self._one_of("host", self.known.hosts, text)

    def person_named(self, text: str) -> list[Term]:
        mine = text.lower() == "me" and self.person
        return self._one_of("person", self.known.people, mine or text)

    def tag(self, text: str) -> list[Term]:
        return self._one_of("tag", self.known.tags, text)

    def dtype(self, text: str) -> list[Term]:
        named = {short: name for name, short in DTYPE_SHORT.items()} | {name: name for name in DTYPE_SHORT}
        if unknown := [part for part in text.lower().split(",") if part.strip() not in named]:
            raise NotUnderstood(f"no dtype is called {unknown[0][:20]}")
        found = [named[part.strip()] for part in text.lower().split(",")]
        return [Term("dtype", found, f"dtype {_listed([DTYPE_SHORT[name] for name in found])}")]

    def state(self, text: str) -> list[Term]:
        """A verdict or status of a result, a state of its run, or a quality such as confirmed."""
        word = text.lower()
        if word in VERDICTS or word in STATUSES:
            return [Term("verdict", VERDICTS.get(word) or STATUSES[word], word)]
        if word in STATES:
            return [Term("state", word, f"run {word}")]
        if word in QUALITIES:
            return [Term("quality", word, word)]
        raise NotUnderstood("this state is not known")

    def mode(self, text: str) -> list[Term]:
        if text.lower() not in MODES:
            raise NotUnderstood(f"modes are {', '.join(MODES)}")
        return [Term("mode", text.lower(), f"mode {text.lower()}")]

    # --- free text, numbers, dates ---

    def label(self, text: str) -> list[Term]:
        return [
            Term(
                "label", text, f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK} in the run's title"
            )
        ]

    def run(self, text: str) -> list[Term]:
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise NotUnderstood("write the number of a run")
        return [Term("run", int(text), f"run {int(text)}")]

    def size(self, name: str, sign: str, text: str) -> list[Term]:
        """A size of workloads, or what was measured; other names may have `=`, too."""
        fields = sizes().get(name.lower())
        if fields is None and name.lower() in FIGURES:
            return [_figure(name.lower(), sign, text.lower())]
        if fields is None:
            if sign == "=" and (reader := KEYS.get(name.lower())):
                return reader(self, text.strip('"'))
            raise NotUnderstood(
                f"{name[:20]} is no size and no figure; sizes are {short_sizes()}; figures are {', '.join(FIGURES)}"
            )
        value = _size_value(kinds(fields), sign, text.lower())
        shown = ("no", "yes")[value] if isinstance(value, bool) else value
        return [Term("size", Size(fields, sign, value), f"{name} {SIGNS.get(sign, sign)} {shown}")]

    def causal(self, text: str) -> list[Term]:
        if text.lower() not in ("causal", "full"):
            raise NotUnderstood("")
        is_causal = text.lower() == "causal"
        return [Term("size", Size(frozenset({"causal"}), "=", is_causal), "causal" if is_causal else "not causal")]

    def shape(self, text: str) -> list[Term]:
        """Sizes as labels have them: 16384x4096; or conditions on sizes, separated by spaces."""
        if SHAPE.fullmatch(text.replace(" ", "").lower()):
            label = " x ".join(re.findall(r"\d+", text))
            return [Term("shape", label, f"shape {label}")]
        pieces = [SIZE.fullmatch(piece) for piece in _joined(text).split()]
        if not pieces or None in pieces:
            raise NotUnderstood("write a shape such as S=4096 D=128 or 16384x4096")
        return [term for piece in pieces if piece for term in self.size(*piece.groups())]

    def day(self, text: str) -> list[Term]:
        if not DATE.fullmatch(text):
            raise NotUnderstood("")
        day = _date(text)
        return [Term("since", day, f"on {day}"), Term("until", day, "")]

    def since(self, text: str) -> list[Term]:
        if days := DAYS.fullmatch(text):
            day = timezone.localdate() - timedelta(days=int(days.group(1)))
        else:
            day = _date(text)
        return [Term("since", day, f"since {day}")]

    def until(self, text: str) -> list[Term]:
        day = _date(text)
        return [Term("until", day, f"until {day}")]


Read = Callable[[Reader, str], list[Term]]
WORDS = {"gpu": "GPU"}
KEYS: dict[str, Read] = {
    "operation": Reader.operation, "op": Reader.operation, "kernel": Reader.kernel, "backend": Reader.backend,
    "shape": Reader.shape, "dtype": Reader.dtype, "gpu": Reader.gpu, "device": Reader.gpu, "host": Reader.host,
    "state": Reader.state, "status": Reader.state, "verdict": Reader.state, "mode": Reader.mode,
    "person": Reader.person_named, "by": Reader.person_named, "label": Reader.label, "title": Reader.label,
    "tag": Reader.tag, "run": Reader.run, "on": Reader.day, "since": Reader.since, "until": Reader.until,
}  # fmt: skip
"""Names of filters, in the search field (`kernel:sdpa`) and in addresses (`?kernel=sdpa`)."""


def _size_value(takes: tuple[frozenset[type], frozenset[str]], sign: str, text: str) -> int | float | bool | str:
    """What a size is compared with, as the size is stored. takes: its types of number, and its words."""
    numbers, words = takes
    if bool in numbers and text in (*YES, *NO):
        return text in YES
    if number := NUMBER.fullmatch(text):
        return int(number.group(1)) * TIMES[number.group(2)]
    if float in numbers and DECIMAL.fullmatch(text):
        return float(text)
    if sign in ("=", "!=") and text in words:
        return text
    if words:
        raise NotUnderstood(f"use {' or '.join(sorted(words))}")
    raise NotUnderstood("use yes or no" if numbers == {bool} else "use a number for this size")


def _figure(name: str, sign: str, text: str) -> Term:
    column, called, units = FIGURES[name]
    first, number = next(iter(units)), MEASURED.fullmatch(text)
    if sign in ("=", "!="):
        raise NotUnderstood(f"compare {name} by >=, <=, > or <")
    if number is None or (number[2] or first) not in units:
        raise NotUnderstood(f"write a number such as {name}{sign}1.5{first}")
    unit = number[2] or first
    return Term(
        "figure",
        Figure(column, sign, float(number[1]) * units[unit]),
        f"{called} {SIGNS.get(sign, sign)} {number[1]}{unit}",
    )


def _named(kind: str, names: list[str]) -> Term:
    return Term(kind, names, f"{WORDS.get(kind, kind)} {_listed(names)}")


def _listed(names: list[str]) -> str:
    if len(names) > SHOWN + 1:
        return f"{', '.join(names[:SHOWN])} or {len(names) - SHOWN} more"
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@cache
def short_sizes() -> str:
    """The sizes that have a short name, as a person writes them: "B, H, KV, S, D"."""
    titles = [info.title or "" for one in operations().values() for info in one.model_fields.values()]
    return ", ".join(dict.fromkeys(short.group(1) for title in titles if (short := SHORT.search(title))))


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise NotUnderstood("write a date such as 2026-11-30") from None


def in_label(text: str) -> Q:
    """Runs that have a text in their title, or in the name of their config."""
    return Q(title__icontains=text) | Q(config_name__icontains=text)
