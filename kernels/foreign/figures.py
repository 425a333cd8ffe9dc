"""Names and units of figures: which column holds a time, a rate or a factor, and of which kernel."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from kernels.foreign.claimed import Refused

MS = {"s": 1e3, "sec": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
LARGEST = 1e15
LONGEST = 100
"""Most characters of a number, and of a kernel's name in a heading."""
TIME = r"latency|time(?:/call)?|duration|elapsed|runtime"
STATISTICS = {
    "p50_ms": "p50|median", "mean_ms": "mean|avg|average", "min_ms": "min", "max_ms": "max",
    "std_ms": "std(?: ?dev)?", "p90_ms": "p90", "p95_ms": "p95", "p99_ms": "p99",
}  # fmt: skip
RATES = {
    "tflops": r"(?P<tera>[gtp])flops?(?:/s|ps| s)?",
    "gb_per_s": r"(?:(?:memory )?(?:bandwidth|throughput) )?(?:gbps|gb/s|gb s|gb per s)|(?:memory )?bandwidth|throughput",
    "speedup": r"speedup",
    "speedup_low": r"speedup low",
    "speedup_high": r"speedup high",
    "slowdown": r"slowdown(?: factor)?",
    "calls_per_s": r"inference speed|calls per s",
    "correct": r"accuracy|correct(?:ness)?|passed",
}
NOT_OF_A_CALL = re.compile(r"(^|[ -])(compile|compilation|compiling|build|wall|cuda|first|total|warmup|took|per head)$")
"""Words before a time that make it another one: the time to compile, or of a whole run."""
ORDER = (*STATISTICS, "ms", *RATES)


class Column(NamedTuple):
    """What a column holds."""

    figure: str
    label: str
    """The kernel that it belongs to, in a table with several kernels a row; empty: the row's."""
    factor: float
    """Its values times this are in ms, TFLOP/s or GB/s."""


def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    unit = r"(?: (?P<unit>s|sec|ms|us|ns))?"
    made = []
    for name, words in STATISTICS.items():
        made.append((name, rf"(?:(?:{TIME}) )?(?:{words})(?: (?:{TIME}))?{unit}"))
    made.append(("ms", rf"(?:(?:cuda )?time/call|{TIME}){unit}"))
    made += list(RATES.items())
    alone = [(name, re.compile(pattern)) for name, pattern in made] + [("ms", re.compile("(?P<unit>ms|us)"))]
    return alone + [(name, re.compile(rf"(?P<label>.+?)[ -](?:{pattern})")) for name, pattern in made]


PATTERNS = _patterns()


def column(header: str) -> Column | None:
    """What a heading such as "time_ms", "SDPA p50 (ms)" or "flash_v3-tflops" stands for. None: no figure."""
    if len(header) > 2 * LONGEST:
        return None
    plain = _plain(header)
    for name, pattern in PATTERNS:
        if (found := pattern.fullmatch(plain)) is None:
            continue
        parts = found.groupdict()
        label = parts.get("label") or ""
        if NOT_OF_A_CALL.search(label):
            return None
        unit = parts.get("unit")
        factor = MS[unit] if unit else {"g": 1e-3, "p": 1e3}.get(parts.get("tera") or "", 1.0)
        return Column(name, header.strip()[: len(label)].strip(" -_"), factor)
    return None


def _plain(header: str) -> str:
    """In lower case, one blank for blanks, underscores and brackets; as long before a label's end as the heading was."""
    text = header.strip().lower().replace("µ", "u").replace("\u03bc", "u")
    text = re.sub(r"tflop/s|tflop_s", "tflops", text).replace("gflop/s", "gflops")
    return re.sub(r"[\s_()\[\]]+", " ", text).strip()


PLAIN_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[-+]?\d{1,3})?", re.IGNORECASE | re.ASCII)
INTERVAL = re.compile(r"\s*\((?:±[^)]*|[\d.,]+ to [\d.,]+)\)$")
"""What follows a number: "(±3.4%)", "(211 to 213)"."""
EMPTY = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "n/a", "na", "none", "null"}
TIMED = re.compile(r"(.+?)\s*(ms|us|µs|\u03bcs|ns|s)")


def number(value: object, name: str = "the value") -> float | None:
    """A number above 0 of a cell: 0.045, "1,075", "**0.006x**", "0.012 (±3.4%)", "212 (211 to 213)". None: the cell is empty.

    A time with its unit, such as "15.4 µs", is in ms. Raises Refused.
    """
    if value is None or isinstance(value, bool):
        return None
    factor = 1.0
    if isinstance(value, str):
        text = INTERVAL.sub("", value.strip().strip("*`~ ")).rstrip("x\N{MULTIPLICATION SIGN}%").strip()
        if text.lower() in EMPTY:
            return None
        if timed := TIMED.fullmatch(text):
            text, unit = timed.groups()
            factor = MS[unit.replace("µ", "u").replace("\u03bc", "u")]
        if len(text) > LONGEST or not re.search(r"[0-9]", text) or not PLAIN_NUMBER.fullmatch(text):
            raise Refused(f"{name} is not a number: {value[:40]!r}")
        value = float(text.replace(",", ""))
    if not isinstance(value, int | float):
        raise Refused(f"{name} is not a number: {str(value)[:40]!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused(f"{name} is {value}")
    if not 0 < value < LARGEST or not 0 < value * factor < LARGEST:
        shown = f"{value:g}" if abs(value) < LARGEST else "too large"
        raise Refused(f"{name} is {shown}; a number above 0 and below 10^15 is needed")
    return float(value) * factor


def truth(value: object) -> bool | None:
    """Whether a cell says yes or no; None: neither."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "1.0", "true", "yes", "pass", "passed", "ok", "correct"):
        return True
    return False if word in ("0", "0.0", "false", "no", "fail", "failed", "incorrect") else None
