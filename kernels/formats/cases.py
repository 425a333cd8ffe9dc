"""Cases of a problem: the sizes that its own files measure it with, each with a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MOST = 12
"""Cases of a problem that become workloads, and tests of it that are checked: the last ones."""
MOST_NAMED = 6
"""Cases that are left out and named."""
LONGEST = 100
SEED = "seed"


@dataclass(frozen=True)
class Cases:
    """The chosen cases by name, and the names of the others."""

    chosen: dict[str, Any]
    left_out: list[str]

    @property
    def missing(self) -> str:
        """Which cases were left out, in words; empty if none were."""
        if not self.left_out:
            return ""
        named, more = self.left_out[:MOST_NAMED], len(self.left_out) - MOST_NAMED
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def cases(found: Iterable[tuple[Mapping[str, Any], Any]]) -> Cases:
    """Names pairs of (sizes, case) by the sizes. The same sizes again are another case: `n=8 (2)`."""
    named: dict[str, Any] = {}
    for sizes, case in found:
        name = unique = name_of(sizes)
        number = 1
        while unique in named:
            number += 1
            unique = f"{name} ({number})"
        named[unique] = case
    names = list(named)
    return Cases({name: named[name] for name in names[-MOST:]}, names[:-MOST])


def name_of(sizes: Mapping[str, Any]) -> str:
    """ "m=64 n=32": of the characters that a workload's size may have. Seeds are drawn for every call."""
    said = " ".join(f"{name}={value}" for name, value in sizes.items() if name != SEED or len(sizes) == 1)
    return re.sub(r"[^A-Za-z0-9_=.,:+ -]", "_", said)[:LONGEST].strip() or "_"
