"""The first lines of the leaderboard: who leads, and who is tied with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernels.report.cells import listed

if TYPE_CHECKING:
    from runs.queries.leaders import Record
    from runs.views.leaderboard import View

MOST_NAMED = 3
"""Kernels that are named; if there are more, only their number."""


def headline(view: View) -> dict[str, str]:
    """On the operation with most records and the GPU model with most results: {"tone", "strong", "rest"}."""
    if not view.places:
        said = (
            "No result matches these filters" if view.board.places else "Nothing has been compared with a baseline yet"
        )
        return {"tone": "same", "strong": said, "rest": ""}
    gpu, _ = view.columns[0]
    every = [place for place in view.places if place.gpu == gpu]
    sure = [place for place in view.places if place.record]
    there = [place for place in sure if place.gpu == gpu] or every
    work, _ = Counter(place.work for place in there).most_common(1)[0]
    newest = next(place for place in there if place.work == work)
    mine = [place for place in every if place.work == work]
    hosts = f" ({', '.join(view.hosts(work, newest.gpu))})" if newest.shown.host else ""
    on = f"{len(mine)} {work} workload{'s' * (len(mine) > 1)} on {newest.gpu}{hosts}"
    won = [place.record for place in mine if place.record and place.record.best]
    unbeaten = sum(1 for place in mine if place.record and not place.record.best)
    ahead = [place.rumour for place in mine if place.rumour and place.rumour.best]
    base, rest, tone = newest.shown.base.kernel, [], "same"
    if won:
        lead, ties = _lead(won)
        strong, tone = f"{lead} {on}", "faster"
        rest += [f"{ties[0].upper()}{ties[1:]}."] if ties else []
        rest += [f"On {unbeaten} of them no kernel beats {base}."] if unbeaten else []
    elif unbeaten:
        strong = f"No kernel is confirmed faster than {base} on {on}"
        rest += [f"On {unbeaten} of them {base} is confirmed as the best."] if unbeaten < len(mine) else []
    else:
        strong = f"No record is confirmed yet on {on}"
    if ahead and not won:
        lead, ties = _lead(ahead, ", unconfirmed,")
        rest.append(f"{lead} {len(mine)} workload{'s' * (len(mine) > 1)}{'; ' * bool(ties)}{ties}.")
    waiting = sum(1 for place in view.places if place.rumour)
    if waiting and (won or unbeaten):
        rest.append(f"{waiting} unconfirmed result{'s wait' if waiting > 1 else ' waits'} for confirmation.")
    return {"tone": tone, "strong": strong, "rest": " ".join(rest)}


def _lead(records: Sequence[Record], kind: str = "") -> tuple[str, str]:
    """("triton-flash leads on 2 of", "on 1 of these it is tied with compiled"): the kernels that are ahead most often,
    and their ties; empty if there is none. Who is tied, or unconfirmed, does not lead."""
    counts = Counter(record.point.kernel for record in records)
    most = max(counts.values())
    names = sorted(name for name, count in counts.items() if count == most)
    tied = [record for record in records if record.point.kernel in names and record.not_apart]
    if kind or tied:
        does = f"{'is' if len(names) == 1 else 'are each'} ahead{kind}"
    else:
        does = "leads" if len(names) == 1 else "each lead"
    return f"{_named(names)} {does} on {most} of", _ties(names, most, tied)


def _ties(names: Sequence[str], most: int, tied: Sequence[Record]) -> str:
    """A clause; empty if there is none."""
    if not tied:
        return ""
    if len(names) > 1:
        return f"on {len(tied)} of these workloads another kernel is tied with the named one"
    others = sorted({other.point.kernel for record in tied for other in record.not_apart})
    return f"{f'on {len(tied)} of these ' if most > 1 else ''}it is tied with {_named(others)}"


def _named(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} kernels"
