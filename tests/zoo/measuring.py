"""Runs kernels of the zoo beside the baseline: what test_zoo.py and test_zoo_cuda.py share. Needs the library only."""

import os
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path
from unittest import mock

from cases import FOLDERS

from kernels.contract.events import CrossChecked, Measured
from kernels.host.device import find_device
from kernels.parent.supervisor import Supervisor
from kernels.report.tables import rows
from kernels.workload import Config, RunSpec

SIZES = {
    "cpu": {"batch": 1, "heads": 2, "seq_len": 256, "head_dim": 64, "dtype": "float32"},
    "cuda": {"batch": 4, "heads": 16, "seq_len": 2048, "head_dim": 64, "dtype": "float16"},
}
RESULTS = Path("/tmp") / f"benchsite-zoo-{os.getuid()}.results"
"""What a case leaves for its next run."""
QUICK = {"warmup_s": 0.02, "min_rounds": 5, "max_rounds": 5, "verify_seeds": 1, "block_ms": 0.5}


@cache
def scratch():
    """A folder of this process alone: one device's lock holds up no other tests, one template forks for all measurements."""
    return tempfile.mkdtemp()


def measure(device, *kernels, sizes, environment=None, ceilings=None, **protocol):
    """{kernel: row} of one run of these kernels beside sdpa; a row has the correctness facts too, as "facts", and the
    notes of its measurement."""
    measured, folder = [], scratch()
    settings = {"KERNEL_PATH": FOLDERS, "TMPDIR": folder, "OMP_NUM_THREADS": "1"} | (environment or {})
    config = Config(
        name="zoo", operation="attention", kernels=["sdpa", *kernels], protocol=QUICK | protocol, workloads=[sizes]
    )

    def emit(event):
        if isinstance(event, Measured):
            measured.append(event)

    found = find_device(device)
    without = mock.patch(
        "kernels.parent.supervisor.crosscheck", lambda *of: CrossChecked(seen=[])
    )  # it decides nothing
    with mock.patch.dict(os.environ, settings), mock.patch.object(tempfile, "tempdir", folder), without:
        Supervisor(RunSpec.of(config, found.uuid, ceilings=ceilings), found, emit).run()
    more = {
        arm.kernel: {"facts": arm.correctness, "notes": m.notes, "isolation": m.isolation}
        for m in measured
        for arm in m.results
    }
    return {row.kernel: asdict(row) | more[row.kernel] | {"row": row} for row in rows(measured)}


def measure_alone(case, device):
    """The row of a case beside the baseline only, of its last run."""
    if case.runs > 1:  # otherwise RESULTS may be in use by another process's case
        RESULTS.unlink(missing_ok=True)
    for _ in range(case.runs):
        found = measure(device, case.name, sizes=SIZES[device.partition(":")[0]], **(case.protocol or {}))
    return found[case.name]
