"""A search for settings, in words: the table of the terminal, and the sentences of the site."""

from __future__ import annotations

from collections import Counter

from kernels.contract.arm_result import Ratio
from kernels.contract.search import Search, Trial, winners_curse
from kernels.settings import spelled

CURSE = (
    "The best of many trials is partly luck (the winner's curse): what screening promised is compared with what new "
    "processes confirmed."
)
MOST_PRUNED = 12
"""Reasons listed in a terminal."""


def figure(ratio: Ratio | None) -> str:
    """ "1.083 (1.071 to 1.094)" """
    return f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})" if ratio else ""


def answer(search: Search) -> str:
    """What the search found, as a sentence."""
    if (winner := search.winner) and search.state == "done":
        ratios = [one.ratio for one in winner.results if one.ratio]
        least = min(one.low for one in ratios)
        where = f"at least {least:.3f} on each of {len(ratios)} workloads" if len(ratios) > 1 else figure(ratios[0])
        processes = max(one.processes for one in winner.results)
        return f"{spelled(winner.settings)}: speedup over the default settings {where}, confirmed in {processes} processes."
    if search.state == "running":
        return f"{len(search.trials)} of {search.plan.trials} trials so far."
    if search.state != "done":
        return f"Ended early, after {len(search.trials)} of {search.plan.trials} trials: nothing is confirmed."
    if len(search.label) > 1 and len(search.pruned) == len(search.trials):
        many = f"No tried setting was correct on all {len(search.label)} workloads ({len(search.trials)} tried)."
        return f"{many} The default settings stay. Search each workload on its own."
    if not search.finalists:
        return f"No tried setting was faster than the default settings ({len(search.trials)} tried). They stay."
    return (
        f"None of {len(search.finalists)} finalists passed every check when measured again. The default settings stay."
    )


def curse(search: Search) -> str:
    """Promised against confirmed, as a sentence; empty without finalists."""
    if (found := winners_curse(search.pairs)) is None:
        return ""
    decided = "promised too much" if found.high < 1 else "promised too little" if found.low > 1 else ""
    said = f"Screening {decided}" if decided else "It is undecided whether screening promised too much"
    return f"{said}: confirmed / promised is {figure(found)} over {len(search.pairs)} figures."


def line(trial: Trial, of: int) -> str:
    """One trial as a line of progress."""
    if trial.pruned:
        said = f"pruned: {trial.pruned}"
    else:
        said = f"{trial.score:.3f}x in screening" + (f"; {trial.fails}" if trial.fails else "; passes")
    return f"trial {trial.number} of {of}: {spelled(trial.settings)} ({trial.origin}): {said}"


def as_text(search: Search) -> str:
    lines = [f"{search.operation}/{search.kernel}: {answer(search)}"]
    table = [["trial", "settings", "workload", "promised", "confirmed", ""]]
    promised = {(trial.number, one.key): one.ratio for trial in search.trials for one in trial.results}
    for finalist in search.finalists:
        for one in finalist.results:
            before = figure(promised.get((finalist.number, one.key)))
            now = figure(one.ratio) or f"{one.status}: {one.why}"
            said = finalist.fails if one is finalist.results[0] else ""
            table.append(
                [str(finalist.number), spelled(finalist.settings), search.label[one.key], before, now, said or ""]
            )
    if len(table) > 1:
        lines += ["", *_aligned(table), "", curse(search)]
    if pruned := search.pruned:
        lines += ["", f"{len(pruned)} of {len(search.trials)} trials were pruned:"]
        reasons = Counter(trial.pruned for trial in pruned).most_common()
        lines += [f"  {count:3} {why}" for why, count in reasons[:MOST_PRUNED]]
        if len(reasons) > MOST_PRUNED:
            lines.append(f"      and {len(reasons) - MOST_PRUNED} other reasons, in the file")
    return "\n".join(lines)


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
