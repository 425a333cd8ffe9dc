"""What tests on the simulated bench begin with."""

import pytest
from simulations import BASE

from kernels.analysis.blocks import choose_mode
from kernels.parent import rounds
from kernels.parent.drive import Drive
from kernels.parent.estimate import estimate
from kernels.parent.rounds import Paired
from kernels.protocol import Protocol


@pytest.fixture
def measure(monkeypatch):
    """(reading, bench) of a workload: estimate, mode, rounds; by the simulated clock."""

    def simulate(bench, seed=1, mode="auto", cuda=True, **plan):
        monkeypatch.setattr(rounds, "time", bench.time)
        drive = Drive(bench, list(bench.kernels), BASE, Protocol(mode=mode, **plan), seed)
        estimates = estimate(drive, cuda)
        bench.log.clear()
        return Paired(drive, choose_mode(drive.plan, estimates, cuda), estimates, cuda).measure()

    return simulate
