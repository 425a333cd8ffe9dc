"""From a result to a run that profiles its kernel, on the device that measured it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from kernels.contract.arm_result import Status
from kernels.protocol import Protocol
from kernels.submission import is_submitted
from kernels.workload import Config
from runs.models import Gpu, Run
from runs.queries.measurements import StoredArm, StoredMeasured

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PROFILING = "profile"
"""Name of the config of a run that profiles."""
PYTHON = ".venv/bin/python"
"""The interpreter that `make install` creates in the checkout."""


class NotProfiled(ValueError):
    """A run that cannot be. The message is a sentence."""


def why_not(run: Run, measured: StoredMeasured, result: StoredArm) -> str:
    """Why a result's kernel cannot be profiled from here, as a sentence; empty if it can."""
    gpu = run.gpu
    if run.demo or gpu is None:
        return f"No device of this site measured it. Profile it on its host: {_command(run, measured, result)}"
    if result.status != Status.OK:
        return "Only results with the status ok can be profiled."
    if measured.workload.known_problem is None:
        return "This version of the site does not know its workload."
    if gpu.no_counters is None:
        return f"The agent of {gpu.name} does not support profiling. Update the repository on its host."
    if not gpu.is_online:
        return f"{gpu.name} on {gpu.host} does not answer."
    if is_submitted(result.kernel) and gpu.why_no_submissions:
        return f"{gpu.name} does not take submitted kernels: {gpu.why_no_submissions}."
    return ""


def _command(run: Run, measured: StoredMeasured, result: StoredArm) -> str:
    """What profiles a result without the site. The config is a file of the run's page."""
    device = "cpu" if measured.mode == "cpu" else "cuda:0"
    keys = [workload.key for workload in run.spec.workloads]
    number = f" --workload {keys.index(measured.key) + 1}" if measured.key in keys else ""
    return f"{PYTHON} -m kernels profile {result.kernel} --config run-{run.pk}.yaml{number} --device {device}"


def profile(run: Run, measured: StoredMeasured, result: StoredArm, user: User | None) -> tuple[Run, bool]:
    """(the run that profiles a result, whether this call queued it). Raises NotProfiled."""
    if why := why_not(run, measured, result):
        raise NotProfiled(why)
    assert run.gpu is not None
    config = config_of(measured, result)
    with transaction.atomic():
        Gpu.objects.select_for_update().get(pk=run.gpu.pk)  # two clicks queue one run
        if active := Run.objects.active().filter(profile_of=result.pk).first():
            return active, False
        return Run.objects.submit(config, gpu=run.gpu, user=user, profile_of=result.pk), True


def config_of(measured: StoredMeasured, result: StoredArm) -> Config:
    """The kernel on its workload. A kernel that was measured isolated is profiled isolated."""
    workload = measured.workload
    return Config(
        name=PROFILING,
        title=f"Profile of {result.kernel} on {workload.label}",
        operation=workload.operation,
        kernels=[result.kernel],
        baseline=measured.baseline,
        workloads=[workload],
        protocol=Protocol(isolated=measured.isolated or is_submitted(result.kernel)),
    )
