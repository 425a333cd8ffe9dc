"""From a stored submission to a run: the form and the command line make the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kernels.catalog import PROBLEM
from kernels.config_files import ConfigError
from kernels.formats.bringing import cases_of, dtype_of
from kernels.protocol import EFFORTS, Protocol
from kernels.sweep import with_sizes
from kernels.workload import Config as ConfigSpec
from kernels.workload import Workload, sentence
from runs.models import Config, Gpu, Run, Submission

if TYPE_CHECKING:
    from django.contrib.auth.models import User

QUICKEST = "quick"
"""The effort of a run that says nothing else."""
MOST_WORKLOADS = 200
"""Of one run of a submission."""


class NotSubmitted(ValueError):
    """A run that cannot be. The message is a sentence; `field` names what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def smallest_config(operation: str) -> Config | None:
    """The config of an operation with the least work."""

    def work(config: Config) -> int:
        return sum(workload.problem.flops() for workload in config.spec.workloads)

    return min((c for c in Config.objects.filter(body__operation=operation)), key=work, default=None)


def config_for(
    submission: Submission,
    name: str = "",
    effort: str = "",
    beside: list[str] | None = None,
    sweep: Sequence[str] = (),
) -> ConfigSpec:
    """The submission beside its operation's baseline, on the workloads of a config (default: the smallest), isolated.

    beside: names of kernels that are measured in the same rounds. sweep: sizes instead of the config's, such as
    "rows=1024,4096". Raises NotSubmitted.
    """
    if submission.operation == PROBLEM:
        if sweep:
            raise NotSubmitted("sweep", f"{submission.name} is measured on its own problem: name no sizes.")
        return _on_its_problem(submission, name, effort, beside or [])
    stored = Config.objects.filter(name=name).first() if name else smallest_config(submission.operation)
    if stored is None:
        raise NotSubmitted(
            "config", f"There is no config {name!r}." if name else "There is no config of its operation."
        )
    spec = stored.spec
    if submission.operation not in spec.operations:
        of = ", ".join(spec.operations)
        raise NotSubmitted(
            "config",
            f"The config {spec.name} measures {of}; the kernel {submission.name} computes {submission.operation}.",
        )
    part = spec.part(submission.operation)
    kernels = [part.baseline, *(beside or []), submission.kernel]
    values = part.model_dump() | {"kernels": kernels, "protocol": _isolated(part.protocol, effort), "title": ""}
    try:
        made = ConfigSpec(**values | with_sizes(spec.name, part.workloads, sweep))
    except (ConfigError, ValidationError) as error:
        why = sentence(error) if isinstance(error, ValidationError) else str(error)
        raise NotSubmitted("sweep", f"{why[:1].upper()}{why[1:]}.") from None
    if len(made.workloads) > MOST_WORKLOADS:
        which = "These sizes make" if sweep else f"The config {spec.name} has"
        much = f"{which} {len(made.workloads)} workloads; choose {'fewer' if sweep else 'a smaller one'}."
        raise NotSubmitted("sweep" if sweep else "config", much)
    return made


def _isolated(protocol: Protocol, effort: str) -> Protocol:
    """A protocol with an effort (default: the quickest). Raises NotSubmitted."""
    if effort and effort not in EFFORTS:
        raise NotSubmitted("effort", f"There is no effort {effort!r}; there are {', '.join(EFFORTS)}.")
    how: dict[str, Any] = protocol.model_dump() | EFFORTS.get(effort or QUICKEST, {})
    return Protocol(**how | {"name": "paired", "mode": "auto", "isolated": True})


def _on_its_problem(submission: Submission, name: str, effort: str, beside: list[str]) -> ConfigSpec:
    """The submission beside the reference of its problem. Raises NotSubmitted."""
    if name:
        raise NotSubmitted("config", f"{submission.name} is measured on its own problem: choose no config.")
    problem = Submission.objects.named(PROBLEM, submission.problem)
    if problem is None:
        raise NotSubmitted("device", f"Its problem {submission.problem} is not stored here: submit both files.")
    dtype = dtype_of(problem.files)
    workloads = [
        Workload(operation=PROBLEM, dtype=dtype, sizes={PROBLEM: problem.kernel, "case": case})
        for case in cases_of(problem.files)
    ]
    return ConfigSpec(
        name=PROBLEM,
        operation=PROBLEM,
        baseline=problem.kernel,
        kernels=[problem.kernel, *beside, submission.kernel],
        protocol=_isolated(Protocol(), effort),
        workloads=workloads,
        title=problem.kernel,
    )


def device_for(wanted: str) -> Gpu:
    """A device by its row, its UUID, or a part of its name, such as h200; one that answers first. Raises NotSubmitted."""
    known = list(Gpu.objects.in_order())
    exact = [gpu for gpu in known if wanted in (str(gpu.pk), gpu.uuid)]
    found = exact or [gpu for gpu in known if wanted.lower() in gpu.name.lower() or wanted.lower() == gpu.kind]
    if not found:
        names = ", ".join(sorted({gpu.name for gpu in known})) or "none: no agent has reported"
        raise NotSubmitted("device", f"There is no device {wanted!r}; there are: {names}.")
    return min(found, key=lambda gpu: (bool(gpu.why_no_submissions), not gpu.is_online))


def start_run(submission: Submission, gpu: Gpu, config: ConfigSpec, *, user: User | None = None, note: str = "") -> Run:
    """Queues a run of the submission. Raises NotSubmitted."""
    if why := gpu.why_no_submissions:
        raise NotSubmitted("device", f"{gpu.name} does not take submitted kernels: {why}.")
    return Run.objects.submit(
        config, gpu=gpu, user=user, title=f"{submission.kernel} on {config.title or config.name}"[:200], note=note
    )
