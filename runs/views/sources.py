"""Line diffs of sources."""

from __future__ import annotations

import difflib
from typing import Any


def diff(old: str, new: str) -> dict[str, Any]:
    """{"lines": [(style, text), ...], "added", "removed"}; styles are add, del and none."""
    drawn = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm=""))
    lines = [("add" if line[0] == "+" else "del" if line[0] == "-" else "", line) for line in drawn[2:]]
    added, removed = (sum(style == wanted for style, _ in lines) for wanted in ("add", "del"))
    return {"lines": lines, "added": added, "removed": removed}
