"""Reads version 1: journal lines and exported runs."""

from __future__ import annotations

from typing import Any, Literal

MARGIN_1 = 0.01
"""The margin of a version 1 measurement that has none."""
STATISTICS_1 = (
    "mean", "std", "min", "max", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "p50_low", "p50_high",
)  # fmt: skip
"""In milliseconds, without the unit in the name."""
SPEEDUP_1 = {
    "ratio": "speedup",
    "low": "speedup_low",
    "high": "speedup_high",
    "paired": "paired",
    "effective_sample_size": "effective_sample_size",
}
RENAMED_1 = {"ticks_ns": "samples_ns", "left_after": "left_after_round"}
FORMAT_1 = "benchsite-run/1"
FORMAT: Literal["benchsite-run/2"] = "benchsite-run/2"
"""Format of an exported run."""


def upgrade(data: dict[str, Any]) -> dict[str, Any]:
    """A line or an export of any version, in the current format. Current data is returned unchanged."""
    if data.get("format") == FORMAT_1:
        measurements = [measured(event) for event in data.get("measurements", [])]
        return data | {"format": FORMAT, "measurements": measurements}
    if "event" not in data and "kind" in data:
        body = data.get("data") or {}
        event = (measured(body) if data["kind"] == "measured" else body) | {"kind": data["kind"]}
        rest = {name: value for name, value in data.items() if name not in ("kind", "data")}
        return rest | {"version": 2, "event": event}
    return data


def measured(event: dict[str, Any]) -> dict[str, Any]:
    """A measurement of version 1."""
    fields = {name: value for name, value in event.items() if name not in ("aa_ticks_ns", "results", "label")}
    fields["aa_samples_ns"] = event.get("aa_ticks_ns")
    fields["margin"] = event.get("margin") or MARGIN_1
    fields["results"] = [arm_result(result) for result in event.get("results", [])]
    return fields


def arm_result(result: dict[str, Any]) -> dict[str, Any]:
    """A result of version 1."""
    nested = ("stats", "speedup", "cold", "verdict", *RENAMED_1)
    fields = {name: value for name, value in result.items() if name not in nested and value is not None}
    fields |= {new: result[old] for old, new in RENAMED_1.items() if result.get(old) is not None}
    fields |= in_ms(result.get("stats") or {})
    speedup = result.get("speedup") or {}
    fields |= {SPEEDUP_1[old]: value for old, value in speedup.items() if old in SPEEDUP_1}
    if cold := result.get("cold"):
        fields["cold"] = in_ms(cold)
    return fields


def in_ms(figures: dict[str, Any]) -> dict[str, Any]:
    """Renames statistics of version 1: the new names end in their unit."""
    return {f"{name}_ms" if name in STATISTICS_1 else name: value for name, value in figures.items()}
