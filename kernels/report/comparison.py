"""What changed between two runs: each kernel's speedup over its baseline, after over before.

A run is as `--json` and the site export it. No sample of one run meets a sample of the other: each speedup is of pairs in
one process, and the two are held against each other, with the intervals of both (statistics.change).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernels.analysis.statistics import (
    CERTAIN_ROUNDS,
    FASTER,
    MARGIN,
    MIN_ROUNDS,
    SAME,
    SLOWER,
    UNDECIDED,
    change,
    geometric_mean,
    word,
)
from kernels.contract.environment import KEYED
from kernels.report import tables
from kernels.report.summary import VERBS, leading
from kernels.report.tables import FAILURES, listed, markdown, microseconds, text
from kernels.workload import Workload

COLUMNS = (
    "workload", "mode", "kernel", "verdict", "change", "change_low", "change_high", "margin", "speedup_before",
    "speedup_after", "p50_before_ms", "p50_after_ms", "same_source", "why", "baseline", "sha256_before", "sha256_after",
    "workload_key",
)  # fmt: skip
NOT_COMPARED, NEW, GONE, BASELINE = "not compared", "new", "gone", "baseline"
WORDS = (FASTER, SLOWER, SAME, UNDECIDED)
FEW = 2.0
"""The range of five normal values holds their mean in 94% of all cases; Student's interval of 99% is 1.8 times as wide."""
HOW = {"paired": "in pairs", "rest": "rests"}
"""What of a protocol decides which ratio is measured."""


def why_not(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Why no figure of two runs can be held against each other, as a sentence; empty if they can be."""
    was, now = before.get("environment") or {}, after.get("environment") or {}
    if not was or not now:
        return f"The run {'before' if not was else 'after'} has measured nothing."
    differ = [
        f"{key} {was.get(key) or 'none'} before, {now.get(key) or 'none'} after"
        for key in KEYED
        if str(was.get(key, "")) != str(now.get(key, ""))
    ]
    if differ:
        return f"They were not measured on the same: {'; '.join(differ)}."
    if not was.get("uuid") or not now.get("uuid"):
        return "It is not known whether both were measured on the same card, and cards of one model differ."
    if was["uuid"] != now["uuid"]:
        return f"They were measured on two cards, {was['uuid']} and {now['uuid']}, and cards of one model differ."
    if not {m["key"] for m in before["measurements"]} & {m["key"] for m in after["measurements"]}:
        return "They have no workload in common."
    return ""


def rows(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per workload and kernel of either run, those of `after` first. Keys are COLUMNS, `status_before` and `strayed`;
    what is not known is None.

    change is above 1 where the kernel is faster than it was. margin: the wider of both runs'; where a kernel moved whose source
    is the same, twice as far as it did, for the whole workload.
    """
    earlier = {_place(m): m for m in before["measurements"]}
    found: list[dict[str, Any]] = []
    for m in after["measurements"]:
        found += _of_one(earlier.pop(_place(m), None), m, before["measurements"])
    _guard(found)
    told = {(row["workload_key"], row["kernel"]) for row in found}
    for m in earlier.values():
        left = [result for result in m["results"] if (m["key"], result["kernel"]) not in told]
        found += [_row(m, result, None, m, None) for result in left]
    return found


def _guard(table: list[dict[str, Any]]) -> None:
    """Judges a workload again where a kernel has moved that nobody changed: between two runs it is what A/A is within one."""
    margins: dict[tuple[str, str], float] = {}
    for row in table:
        row["strayed"] = bool(row["same_source"]) and row["verdict"] in (FASTER, SLOWER)
        if row["strayed"]:
            place, far = (row["workload_key"], row["mode"]), max(row["change"], 1 / row["change"]) - 1
            margins[place] = max(2 * far, margins.get(place, 0.0))
    for row in table:
        margin = margins.get((row["workload_key"], row["mode"]), 0.0)
        if row["verdict"] in WORDS and margin > row["margin"]:
            row["margin"] = margin
            row["verdict"] = word(row["change_low"], row["change_high"], margin, MIN_ROUNDS)


def _place(m: dict[str, Any]) -> tuple[str, str, str]:
    return m["key"], m["mode"], m.get("group", "main")


def _of_one(
    earlier: dict[str, Any] | None, m: dict[str, Any], before: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    modes = sorted({other["mode"] for other in before if other["key"] == m["key"]} - {m["mode"]})
    was = {result["kernel"]: result for result in (earlier or {}).get("results", [])}
    for result in m["results"]:
        row = _row(m, was.pop(result["kernel"], None), result, earlier, m)
        if row["verdict"] == NEW and modes:
            row |= {"verdict": NOT_COMPARED, "why": f"mode {listed(modes)} before, {m['mode']} after"}
        yield row
    for result in was.values():
        yield _row(m, result, None, earlier, m)


def _row(
    at: dict[str, Any],
    was: dict[str, Any] | None,
    now: dict[str, Any] | None,
    earlier: dict[str, Any] | None,
    later: dict[str, Any] | None,
) -> dict[str, Any]:
    known = now or was or {}
    hashes = [(result or {}).get("sha256") or None for result in (was, now)]
    verdict, why = _standing(known["kernel"], was, now, earlier, later)
    moved: tuple[float, float, float] | tuple[None, None, None] = (None, None, None)
    margin = None
    if not verdict:
        assert was and now and earlier and later
        margin = max(earlier.get("margin") or MARGIN, later.get("margin") or MARGIN)
        moved = change(_ratio(was), _ratio(now))
        verdict = word(moved[1], moved[2], margin, min(was["speedup"]["rounds"], now["speedup"]["rounds"]))
    return {
        "workload": at.get("label") or Workload(**at["workload"]).label,
        "workload_key": at["key"],
        "mode": at["mode"],
        "kernel": known["kernel"],
        "verdict": verdict,
        "why": why,
        "change": moved[0],
        "change_low": moved[1],
        "change_high": moved[2],
        "margin": margin,
        "speedup_before": ((was or {}).get("speedup") or {}).get("ratio"),
        "speedup_after": ((now or {}).get("speedup") or {}).get("ratio"),
        "status_before": (was or {}).get("status"),
        "p50_before_ms": ((was or {}).get("stats") or {}).get("p50"),
        "p50_after_ms": ((now or {}).get("stats") or {}).get("p50"),
        "same_source": hashes[0] == hashes[1] if all(hashes) else None,
        "sha256_before": hashes[0],
        "sha256_after": hashes[1],
        "baseline": at["baseline"],
    }


def _ratio(result: dict[str, Any]) -> tuple[float, float, float]:
    """Its speedup with its interval, which of few rounds is their range and holds too little: then it counts twice as wide."""
    found = result["speedup"]
    wider = 1.0 if found["rounds"] >= CERTAIN_ROUNDS else FEW
    low, high = (found["ratio"] * (found[end] / found["ratio"]) ** wider for end in ("low", "high"))
    return found["ratio"], low, high


def _standing(
    kernel: str,
    was: dict[str, Any] | None,
    now: dict[str, Any] | None,
    earlier: dict[str, Any] | None,
    later: dict[str, Any] | None,
) -> tuple[str, str]:
    """(verdict, why) of a kernel that cannot be held against what it was; an empty verdict if it can."""
    if now is None:
        return GONE, ""
    if now["status"] != "ok":
        return now["status"], now.get("why", "")
    if was is None:
        return NEW, ""
    if was["status"] != "ok":
        return now["status"], f"{was['status']} before"
    assert earlier and later
    if earlier["baseline"] != later["baseline"]:
        return NOT_COMPARED, f"over {earlier['baseline']} before, over {later['baseline']} after"
    if kernel == later["baseline"]:
        return BASELINE, ""
    for key, what in HOW.items():
        old, new = (how.get("protocol", {}).get(key) for how in (earlier, later))
        if old != new:
            return NOT_COMPARED, f"another protocol: {what} {old} before, {new} after"
    if _baseline_hash(earlier) != _baseline_hash(later):
        return NOT_COMPARED, f"the source of {later['baseline']}, over which it is measured, is another"
    if not was.get("speedup") or not now.get("speedup"):
        return NOT_COMPARED, f"without a speedup {'before' if not was.get('speedup') else 'after'}"
    if not now["speedup"].get("paired", True):
        return NOT_COMPARED, "not measured in pairs: drift may be all there is"
    return "", ""


def _baseline_hash(m: dict[str, Any]) -> str:
    return next((result.get("sha256", "") for result in m["results"] if result["kernel"] == m["baseline"]), "")


# --- in sentences -----------------------------------------------------------------------------------------------------


def answer(table: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said first of two runs: {"strong", "rest": [sentences], "tone": faster, slower or same}.

    Kernels whose source is the same in both are a control: nothing should have become of them.
    """
    compared = [row for row in table if row["change"] is not None]
    edited = list(dict.fromkeys(row["kernel"] for row in compared if not row["same_source"]))
    control = [row for row in compared if row["same_source"]]
    sentences: list[str] = []
    strong, tone = "", "same"
    if edited:
        best = max(edited, key=lambda kernel: sum(r["kernel"] == kernel and r["verdict"] == FASTER for r in compared))
        strong, first, tone = _about(compared, best)
        sentences += [first] if first else []
        for kernel in [other for other in edited if other != best]:
            also, more, _ = _about(compared, kernel)
            sentences.append(f"{also}. {more}".strip())
    elif control:
        strong = "No source of a kernel that was compared has changed"
    else:
        strong = "Nothing here can be compared"
    sentences += (_of_the_control(control) if compared else []) + _of_statuses(table)
    return {"strong": strong, "rest": sentences, "tone": tone}


def _about(compared: list[dict[str, Any]], kernel: str) -> tuple[str, str, str]:
    mine = [row for row in compared if row["kernel"] == kernel]
    counts = {w.lower(): sum(row["verdict"] == w for row in mine) for w in WORDS}
    first, of = leading(counts), len(mine)
    if not first:
        return f"{kernel} needs more rounds to be compared with what it was", "", "same"
    phrase = {"same": "as fast as it was", "undecided": "neither clearly faster nor slower than it was"}.get(
        first, f"{first} than it was"
    )
    where = f" on {counts[first]} of {of} workloads" if of > 1 else ""
    others = [f"{w} on {counts[w]}" for w in counts if counts[w] and w != first]
    if of == 1:
        row = mine[0]
        mean = f"{row['change']:.3f}x, interval {row['change_low']:.3f} to {row['change_high']:.3f}."
    else:
        mean = f"Geometric mean of the changes {geometric_mean([row['change'] for row in mine]):.3f}x."
    rest = " ".join(filter(None, [f"It is {', '.join(others)}." if others else "", mean]))
    return f"{kernel} is {phrase}{where}", rest, first if first in ("faster", "slower") else "same"


def _of_the_control(control: list[dict[str, Any]]) -> list[str]:
    """What became of kernels that nobody changed."""
    if not control:
        return [
            "No other kernel whose source is the same was compared, so nothing tells how far two runs differ by themselves."
        ]
    strayed = [row for row in control if row["strayed"]]
    counts = [(word, sum(row["verdict"] == word for row in control)) for word in (SAME, UNDECIDED)]
    phrases = {SAME: "the same", UNDECIDED: "undecided"}
    found = listed([f"{count} {'is' if count == 1 else 'are'} {phrases[word]}" for word, count in counts if count])
    count = len(control)
    said = f"Of {count} result{'s' * (count != 1)} of kernels whose source is the same{', ' * bool(found)}{found}"
    if not strayed:
        return [f"{said}; none is faster or slower."]
    kernels = listed(list(dict.fromkeys(row["kernel"] for row in strayed)))
    workloads, widest = {row["workload"] for row in strayed}, max(row["margin"] for row in strayed)
    where = f"on {len(workloads)} workload{'s' * (len(workloads) != 1)}"
    return [f"{said}, but {kernels} moved {where}, where less than {widest:.0%} says nothing now."]


def broken(row: dict[str, Any]) -> bool:
    """Whether a result is not ok, which before was ok or not there."""
    return row["verdict"] in FAILURES and row["verdict"] != row["status_before"]


def _of_statuses(table: list[dict[str, Any]]) -> list[str]:
    found = []
    for status in FAILURES:
        for new in (False, True):
            rows = [r for r in table if r["verdict"] == status and broken(r) and (r["status_before"] is None) == new]
            if rows:
                count = len(rows)
                verb = VERBS.get(status) or f"{'are' if count > 1 else 'is'} {status}"
                who = listed(list(dict.fromkeys(row["kernel"] for row in rows)))
                found.append(f"{count} {'new ' * new}result{'s' * (count > 1)} {verb}{' now' * (not new)} ({who}).")
    return found


def worse(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that a change should not have: slower than before, or not ok any more."""
    return [row for row in table if row["verdict"] == SLOWER or broken(row)]


# --- in other forms ---------------------------------------------------------------------------------------------------


def as_csv(table: list[dict[str, Any]]) -> str:
    return tables.as_csv(table, COLUMNS)


def _lines(table: list[dict[str, Any]]) -> list[list[str]]:
    headings = [
        "workload",
        "kernel",
        "verdict",
        "change (interval)",
        "margin",
        "speedup before",
        "after",
        "p50 us before",
        "after",
    ]
    return [headings, *(_cells(row) for row in table)]


def _cells(row: dict[str, Any]) -> list[str]:
    moved = ""
    if row["change"] is not None:
        moved = f"{row['change']:.3f}x ({row['change_low']:.3f} to {row['change_high']:.3f})"
    speedups = ["" if row[key] is None else f"{row[key]:.3f}x" for key in ("speedup_before", "speedup_after")]
    times = [microseconds(row[key]) for key in ("p50_before_ms", "p50_after_ms")]
    margin = "" if row["margin"] is None else f"{row['margin']:.1%}"
    return [row["workload"], row["kernel"], row["verdict"], moved, margin, *speedups, *times]


def as_markdown(table: list[dict[str, Any]], heading: str = "") -> str:
    return markdown(_lines(table), heading)


def as_text(table: list[dict[str, Any]]) -> str:
    return text(_lines(table), [row["why"] for row in table])
