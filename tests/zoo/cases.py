"""The cases of the zoo, as their files say: tests/zoo/WHAT IS ATTACKED/attention/NAME.py.

Each file says what its kernel must be called, by device: MUST_BE = {"cpu": (status, reason, another reason, ...)}; the
status "ok" means: no advantage; "incorrect|crashed" means: one of these; "suspect|no advantage": either. PROTOCOL: it is
measured beside the baseline only, with these settings. RUNS: so often. LIMIT: why it gets through; its test documents
that. ISOLATED: what it must be called in a process of its own, by device; those in tests/zoo/isolated attack that only.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path

from kernels.contract.arm_result import Verdict

ZOO = Path(__file__).parent
ATTACKED = ("time", "output", "baseline", "judge", "process", "host", "honest")
FOLDERS = ":".join(str(ZOO / name) for name in ATTACKED)
"""For KERNEL_PATH."""
ALL_FOLDERS = f"{FOLDERS}:{ZOO / 'isolated'}"
"""The same with the cases that attack isolation."""
NO_ADVANTAGE = "no advantage"
"""Of a cheat that needs a core of its own: where the machine is busy it wins nothing, and nothing shows."""
NO_EFFECT = "no effect"
CALLED_WITHOUT_EFFECT = {
    "cpu": ("ok", "incorrect", "suspect", "failed"),
    "cuda": ("ok", "incorrect", "suspect", "failed", "unsupported"),
}
"""What a case without effect may be called; it has no advantage. On a GPU some cannot be captured as a graph."""
DEADLY = ("crashed", "timed out", "failed", "unsupported")


@dataclass
class Case:
    """One kernel of the zoo."""

    name: str
    attacked: str
    must_be: dict = field(default_factory=dict)
    protocol: dict | None = None
    limit: str = ""
    runs: int = 1
    isolated: dict = field(default_factory=dict)

    def is_called(self, device: str, row: dict) -> bool:
        """Whether a row of the result is what it must be: no cheat has a speedup above 1."""
        status, *reasons = self.must_be[device]
        if NO_ADVANTAGE in status and row["status"] == "ok" and row["speedup_low"] <= 1.05:
            return True
        if status == "ok":
            return row["status"] == "ok" and (self.attacked == "honest" or row["speedup_low"] <= 1.05)
        refused = row["status"] in status.split("|") and row["speedup"] is None
        return refused and any(why in row["why"] for why in reasons)

    def is_called_isolated(self, device: str, row: dict) -> bool:
        """The same in a process of its own."""
        status, *reasons = self.isolated[device]
        if status == NO_EFFECT:
            is_told = row["speedup"] is not None or row["verdict"] == Verdict.TOO_SHORT
            of_status = row["status"] in CALLED_WITHOUT_EFFECT[device] and (row["status"] != "ok" or is_told)
            return of_status and row["verdict"] != Verdict.FASTER
        return (row["status"], row["speedup"]) == (status, None) and any(why in row["why"] for why in reasons)


def _of(path: Path) -> Case:
    known = {}
    for node in ast.parse(path.read_text()).body:
        name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
        if name in ("MUST_BE", "PROTOCOL", "LIMIT", "RUNS", "ISOLATED"):
            known[name.lower()] = ast.literal_eval(node.value)
    return Case(path.stem.replace("_", "-"), path.parents[1].name, **known)


CASES = {case.name: case for case in (_of(p) for a in ATTACKED for p in sorted((ZOO / a / "attention").glob("*.py")))}
ALL_CASES = [*CASES.values(), *map(_of, sorted((ZOO / "isolated" / "attention").glob("*.py")))]


def on(device: str, limits: bool = False) -> list[Case]:
    """The cases for a device, without known limits or only those."""
    return [case for case in CASES.values() if device in case.must_be and bool(case.limit) == limits]


def isolated(device: str) -> list[Case]:
    """The cases that are measured in processes of their own."""
    return [case for case in ALL_CASES if device in case.isolated]


def together(device: str) -> dict[str, list[Case]]:
    """The cases that are measured in the same rounds, by a word for them."""
    others = [case for case in on(device) if case.protocol is None]
    found = {"honest": [], "deadly": [], "cheats": []}
    for case in others:
        deadly = case.must_be[device][0] in DEADLY or case.name == "forges-answers"
        found["honest" if case.attacked == "honest" else "deadly" if deadly else "cheats"].append(case)
    return found


def alone(device: str) -> list[Case]:
    """The cases that are measured beside the baseline only."""
    return [case for case in on(device) if case.protocol is not None]
