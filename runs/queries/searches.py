"""The search of a run, from its rows."""

from __future__ import annotations

from typing import Any

from kernels.contract.search import Finalist, Search
from kernels.contract.search import Trial as Tried
from runs.models import Run

STATES: dict[str, Any] = {
    Run.State.DONE: "done", Run.State.FAILED: "failed", Run.State.CANCELLED: "interrupted", Run.State.LOST: "failed",
}  # fmt: skip


def search_of(run: Run) -> Search:
    """As `python -m kernels tune` would have written it."""
    spec, trials = run.spec, list(run.trials.all())
    assert run.plan is not None
    search = Search(
        operation=spec.operation,
        kernel=spec.baseline,
        plan=run.plan,
        protocol=spec.protocol,
        space=space_of(run),
        keys=[one.key for one in spec.workloads],
        workloads=spec.workloads,
        environment=run.environment.body if run.environment else {},
        fingerprint=run.environment.fingerprint if run.environment else "",
        began_at=run.started_at or run.created_at,
        state=STATES.get(run.state, "running"),
        trials=[Tried.model_validate(one.body) for one in trials],
        finalists=[Finalist.model_validate(one.confirmed) for one in trials if one.confirmed],
    )
    winner = search.winner if search.state == "done" else None
    return search.model_copy(update={"best": winner.settings if winner else None})


def space_of(run: Run) -> dict[str, Any]:
    """The space of its kernel: as the run's device declares it now, else the values that were tried."""
    known = run.gpu.kernels(run.spec.operation) if run.gpu else []
    if declared := next((k.get("space") for k in known if k["name"] == run.spec.baseline), None):
        return {name: tuple(values) for name, values in declared.items()}
    tried: dict[str, dict[Any, None]] = {}
    for one in run.trials.all():
        for name, value in one.body["settings"].items():
            tried.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in tried.items()}
