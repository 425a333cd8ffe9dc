"""Graphs of isolated batches: which cells capture anew, several at once. Parent side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kernels.parent.cell_process import Cell, Suspect, first_to_answer
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import AA, kernel_of

if TYPE_CHECKING:
    from kernels.parent.isolated_session import IsolatedSession

FAILURES = (CommandFailed, ChildDied, ChildTimedOut)


class Capturing:
    """Lets the cells of a session capture their batches."""

    def __init__(self, session: IsolatedSession) -> None:
        self.session = session
        self.together: Callable[[], Mapping[str, int]] = dict
        """Arms that take turns in rounds now, with the calls of their batches."""
        self.failed_too: list[tuple[str, Exception]] = []
        """Cells that failed in the same captures as the one whose error was raised."""

    def before(self, slot: str, calls: int, limit_s: float) -> None:
        """Before a batch: captures it as a graph, if that is due; and those of other arms of these rounds that are due,
        meanwhile. Raises the error of the first that failed; the session's turn is then that arm's."""
        session = self.session
        wanted = {name: planned for name, planned in self.together().items() if name in session.slots} | {slot: calls}
        due = {name: planned for name, planned in wanted.items() if session.slots[name].must_capture(planned)}
        if slot in due:
            with session.during("captures"):
                self._all(due, limit_s)
            session.turn = slot
        session.slots[slot].replayed += 1

    def _all(self, due: Mapping[str, int], limit_s: float) -> None:
        session = self.session
        for name in due:  # what is open here would stay allocated there
            session.trusted.call("reach", limit_s, cell=name, segments=[])
        failed = captured_at_once({name: session.slots[name].cell for name in due}, due, limit_s)
        for name in [name for name in due if name not in failed]:
            try:
                session.reach(name)
                session.slots[name].captured, session.slots[name].replayed = due[name], 0
            except FAILURES as error:
                failed[name] = error
        if not failed and len(due) > 1:
            failed |= self._who_works_on(due)
        if failed:
            (session.turn, first), *self.failed_too = failed.items()
            raise first

    def _who_works_on(self, due: Mapping[str, int]) -> dict[str, Exception]:
        """All cells are stopped: if the device works on, ends one after the other, the baseline's last, until it is idle. The
        last one that was ended is to blame. If the device is busy all the same, no kernel is: as if the baseline had failed."""
        session = self.session
        if not (why := self._why_busy()):
            return {}
        of_baseline = {kernel_of(name) for name in self.together() if name.endswith(AA)}
        for name in sorted(due, key=lambda name: kernel_of(name) in of_baseline):
            session.stop(name)
            if not self._why_busy():
                return {name: why}
        return {next(iter(of_baseline), name): why}

    def _why_busy(self) -> Suspect | None:
        try:
            self.session.idleness.must_be()
        except Suspect as error:
            return error
        return None


def captured_at_once(cells: Mapping[str, Cell], calls: Mapping[str, int], limit_s: float) -> dict[str, Exception]:
    """Lets several cells capture their batches at once: this is work of the host, and each has a processor. Each is stopped when
    it has answered. Returns the errors of those that failed."""
    failed: dict[str, Exception] = {}
    waiting: dict[str, Cell] = {}
    for name, cell in cells.items():
        try:
            cell.ask("capture", limit_s, calls=calls[name])
            waiting[name] = cell
        except FAILURES as error:
            failed[name] = error
    while waiting:
        name = first_to_answer(waiting, limit_s)
        try:
            waiting.pop(name).told("capture", limit_s)
        except FAILURES as error:
            failed[name] = error
    return failed
