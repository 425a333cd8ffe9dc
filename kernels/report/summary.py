"""The verdict of a run in sentences: what is said first of a table, and what else one should know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.analysis.statistics import FASTER, MARGIN, SAME, SLOWER, UNDECIDED, UNPAIRED, suite
from kernels.report.tables import FAILURES, listed

WORDS = (FASTER, SLOWER, SAME, UNDECIDED)
HOPELESS = 0.5
"""A margin in which every kernel that anybody would compare lies."""
NAMED = 2
"""More kernels than so many are counted there and not named."""
VERBS = {"out of memory": "ran out of memory", "timed out": "timed out", "crashed": "crashed", "failed": "failed"}
"""The statuses that something did; the others are what something is."""


def answer(table: list[dict[str, Any]], operation: str) -> dict[str, Any]:
    """The verdict of a run, for people: {"strong", "rest": [sentences], "tone": faster, slower or same}."""
    compared = list(dict.fromkeys(r["kernel"] for r in table if r["speedup"] is not None))
    sentences: list[str] = []
    strong, tone = "", "same"
    if compared:
        best = max(compared, key=lambda kernel: _standing(table, kernel))
        strong, rest, tone = _about(table, best)
        sentences += [rest] if rest else []
        others = [k for k in compared if k != best and any(_is(r, k, "FASTER") for r in table)]
        if len(compared) > 1 and any(row["verdict"] in WORDS for row in table):
            also = "are" if len(others) > 1 else "is"
            faster = f"{listed(others)} {also} faster somewhere, too."
            sentences.append(faster if others else "No other kernel is faster anywhere.")
    elif any(row["p50_ms"] is not None for row in table):
        strong = "Measured without a comparison"
    elif checked := [row["correct"] for row in table if row["mode"] == "verify" and row["correct"] is not None]:
        strong = f"{sum(checked)} of {len(checked)} outputs checked are correct"
    elif table:
        strong = "Nothing could be measured"
    sentences += _faults(table)
    sentences += _loaded(table)
    sentences += _what_ran(table, operation)
    return {"strong": strong, "rest": sentences, "tone": tone}


def _is(row: dict[str, Any], kernel: str, word: str) -> bool:
    return row["kernel"] == kernel and row["verdict"] == word


def _standing(table: list[dict[str, Any]], kernel: str) -> tuple[int, float]:
    """Workloads won, then the geometric mean."""
    won = sum(_is(row, kernel, "FASTER") for row in table)
    return won, suite([r["speedup"] for r in table if r["kernel"] == kernel])["geomean"] or 0.0


def leading(counts: Mapping[str, int]) -> str:
    """What is said first of a kernel that has so many of each word: faster or slower if there is a difference anywhere,
    whichever is more frequent; then same, then undecided; else nothing."""
    if counts["faster"] or counts["slower"]:
        return "faster" if counts["faster"] >= counts["slower"] else "slower"
    return next((w for w in ("same", "undecided") if counts[w]), "")


def _about(table: list[dict[str, Any]], kernel: str) -> tuple[str, str, str]:
    """(strong part, rest, tone) of what is said of the kernel that stands best."""
    mine = [row for row in table if row["kernel"] == kernel]
    baseline, of = mine[0]["baseline"], len(mine)
    counts = {w: sum(row["verdict"] == w.upper() for row in mine) for w in ("faster", "slower", "same", "undecided")}
    said = suite([row["speedup"] for row in mine])
    mean = ""
    if said["n"] > 1:
        left_out = f", {said['left_out']} left out" if said["left_out"] else ""
        mean = f"Geometric mean {said['geomean']:.2f}x over {said['n']}{left_out}."
    elif said["n"] == 1:
        row = next(r for r in mine if r["speedup"] is not None)
        mean = f"{row['speedup']:.3f}x, interval {row['speedup_low']:.3f} to {row['speedup_high']:.3f}."
    said_first = leading(counts)
    if said_first == "undecided" and said["n"] > 1:
        mean = ""  # of noise
    if not said_first:
        unpaired = any(row["verdict"] == UNPAIRED for row in mine)
        why = (
            "The kernels ran one after the other, so drift may be all there is."
            if unpaired
            else "It needs more rounds."
        )
        strong = f"{kernel} was compared with {baseline} on {of} workload{'s' * (of != 1)}, without a verdict"
        return strong, f"{mean} {why}".strip(), "same"
    others = [f"{w} on {counts[w]}" for w in counts if counts[w] and w != said_first]
    word = {"same": f"as fast as {baseline}", "undecided": f"neither clearly faster nor slower than {baseline}"}.get(
        said_first, f"{said_first} than {baseline}"
    )
    where = f" on {counts[said_first]} of {of} workloads" if of > 1 else ""
    strong = f"{kernel} is {word}{where}"
    rest = " ".join(filter(None, [f"It is {', '.join(others)}." if others else "", mean, _noise(mine, said_first)]))
    return strong, rest, said_first if said_first in ("faster", "slower") else "same"


def _noise(mine: list[dict[str, Any]], said_first: str) -> str:
    """Why nothing could be decided, where the baseline itself was unsteady."""
    margin, who = max(row["margin"] for row in mine), mine[0]["baseline"]
    if said_first != "undecided" or margin <= 1.01 * MARGIN:
        return ""
    if margin > HOPELESS:
        return (
            f"{who} differed from itself by more than {HOPELESS / 2:.0%}: the device was too busy to compare anything."
        )
    return f"{who} differed from itself by up to {margin / 2:.0%}, so less than {margin:.0%} says nothing."


def _faults(table: list[dict[str, Any]]) -> list[str]:
    """What is not ok, and whether what was timed is right."""
    found = []
    for status in FAILURES:
        kernels = list(dict.fromkeys(row["kernel"] for row in table if row["status"] == status))
        if kernels:
            count = sum(row["status"] == status for row in table)
            verb = VERBS.get(status) or f"{'are' if count != 1 else 'is'} {status}"
            found.append(f"{count} result{'s' * (count != 1)} {verb} ({', '.join(kernels)}).")
    timed = [row for row in table if row["p50_ms"] is not None]
    if timed and all(row["correct"] for row in timed):
        found.append("Every timed output is correct.")
    return found


def _loaded(table: list[dict[str, Any]]) -> list[str]:
    """That these are times of a rested device, where another holds under continuous work."""
    factors: dict[str, float] = {}
    for row in table:
        if row["under_load"] is not None:
            factors[row["kernel"]] = max(row["under_load"], factors.get(row["kernel"], 1.0))
    if not factors:
        return []
    most = max(factors.values()) - 1
    who = listed(list(factors)) if len(factors) <= NAMED else f"{len(factors)} kernels"
    return [
        f"Without rests {who} take{'s' * (len(factors) == 1)} up to {most:.0%} longer, as when a clock falls "
        "under continuous work; the mode sustained compares kernels so."
    ]


def _what_ran(table: list[dict[str, Any]], operation: str) -> list[str]:
    """ "sdpa ran cuDNN": the backend behind the baseline, by the names of the kernels that ran."""
    from kernels.catalog import UnknownName, get_operation

    try:
        describe = get_operation(operation).describe_ran
    except UnknownName:
        return []
    ran = list(dict.fromkeys(describe(row["ran"]) for row in table if row["kernel"] == row["baseline"] and row["ran"]))
    ran = [name for name in ran if name]
    return [f"{table[0]['baseline']} ran {' and '.join(ran)}."] if ran else []
