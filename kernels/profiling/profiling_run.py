"""A run of the site that profiles one kernel and measures nothing."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from kernels.contract.events import Examined
from kernels.host import telemetry
from kernels.host.device import locked
from kernels.parent.child_process import Cancelled
from kernels.parent.supervisor import Supervisor
from kernels.profiling.examine import LIMIT_S, profiles
from kernels.profiling.process import Launcher
from kernels.workload import Workload


class ProfilingRun(Supervisor):
    """Emits Started, and an Examined for each workload."""

    def run(self) -> None:
        try:
            with ExitStack() as held:
                waiting = partial(self.progress.waiting, self.spec.workloads[0])
                held.enter_context(locked(self.device, self.should_stop, waiting))
                self._started(held.enter_context(telemetry.watching(self.device)))
                self.session.replace()  # its process would hold memory of the device
                self._profile()
        except InterruptedError:
            raise Cancelled from None
        finally:
            self.session.close()

    def _profile(self) -> None:
        launcher = Launcher(self.device, LIMIT_S, self.should_stop, isolated=self.spec.protocol.isolated)
        for one in profiles(launcher, self.spec, lambda _, kernel: kernel == self.spec.profile, self._say):
            if self.should_stop():
                break
            self.emit(Examined(profile=one))
        if self.should_stop():
            raise Cancelled

    def _say(self, workload: Workload, kernel: str) -> None:
        self.progress.step(workload, kernel, "profile")
