"""The guard: what the kernels of a process share must stay as it was before any kernel's file was loaded.

Used in the measuring child, between commands, never in a timed region. A kernel may do anything during its own call;
what it leaves behind would be measured as another kernel's time. After every command: settings, the functions of the
instrument and of PyTorch's surface, and what the other kernels call. Between the arms (`watched`): every function of
PyTorch, Triton, pydantic and others, and the registrations of operators.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, ClassVar

from kernels.child import clock, process_state, settings, tasks
from kernels.child.functions import Owner, Snapshot, exchanged, far, modules, near
from kernels.child.reach import Reach

PATIENCE_S = {"thread": 10.0, "process": 30.0}
"""Time for pool threads, compiler threads and compiler helpers to become idle. torch.compile starts worker processes
after the first call."""


class Guard:
    """The state of the process before any kernel's file was loaded."""

    ignored: ClassVar[frozenset[str]] = frozenset()
    """Names of settings that are not compared."""

    def __init__(self, kind: str, the_clock: clock.Clock) -> None:
        settings.settle(kind)
        self.settings = tuple(
            (name, settings.read_one(read), read, write)
            for name, read, write in settings.settings(kind)
            if name not in self.ignored
        )
        self.restored_silently = tuple(
            (settings.read_one(read), read, write) for _, read, write in settings.restored_silently()
        )
        self.counters = process_state.mapped(process_state.COUNTER)
        self.must_replace = False
        """State changed that cannot be restored: replace this process."""
        the_runtime = getattr(the_clock, "runtime", the_clock)
        self.instances: tuple[Owner, ...] = (("the clock", the_clock), ("the runtime", the_runtime))
        self.near = Snapshot(near(*self.instances))
        self.far: Snapshot | None = None
        self.registrations: dict[str, str] = {}
        self.modules: dict[str, Any] = {}
        self.calls: dict[str, Any] = {}
        self.reached: dict[str, Reach] = {}
        """Arm -> what its calls depend on."""
        self.owners = dict.fromkeys(tasks.loads(), "")
        self.waiting = tasks.waiting_threads()

    def know(self, arm: str, call: Any) -> None:
        """From now on other arms may not change what this arm's calls depend on."""
        self.calls[arm], self.reached[arm] = call, Reach(call)

    def changes(self, arm: str = "") -> list[str]:
        """Differences, as "number of threads: 1 instead of 2". Restores them. arm: which ran; it may change itself."""
        found = self.settings_changes() + self.near.changes()
        self.must_replace |= self.near.stuck
        its_own = getattr(self.calls.get(arm), "__globals__", None)
        writes = self.reached[arm].writes if arm in self.reached else set()
        for other, reach in self.reached.items():
            if other != arm:
                found += reach.changes(its_own, writes)
        if arm in self.calls:
            self.reached[arm] = Reach(self.calls[arm])
        return list(dict.fromkeys(found))

    def begin(self) -> None:
        """Takes the state before any kernel's file is loaded. The process may wait for a run until then."""
        if self.far is None:
            self.near.add(near(*self.instances))
            self.far, self.registrations = Snapshot(far()), settings.registrations()
            self.modules = modules()

    def watched(self) -> list[str]:
        """Differences in every function of the packages that calls reach, and in registrations. Takes 20 to 100 ms."""
        if self.far is None:
            return []
        now, found = settings.registrations(), self.far.changes()
        changed = sorted(
            name for name in now.keys() & self.registrations.keys() if now[name] != self.registrations[name]
        )
        found += [f"registrations of {name}: changed" for name in changed]
        found += exchanged(self.modules)
        if (mapped := process_state.mapped(process_state.COUNTER)) > self.counters:
            found.append(f"counters that may interrupt: {mapped} are mapped instead of {self.counters}")
            self.must_replace = True
        self.must_replace |= self.far.stuck
        if changed:
            self.must_replace, self.registrations = True, now
        self.far.add(far())
        return found

    def seal(self) -> tuple[Any, ...]:
        """What identifies this guard's own state. Whoever keeps it notices a guard that was emptied."""
        return (
            id(self.settings),
            id(self.restored_silently),
            id(self.near),
            id(self.instances),
            len(self.settings),
            *(id(method) for method in (type(self).changes, type(self).watched, type(self).settings_changes)),
            frozenset(vars(self)),
        )

    def settings_changes(self) -> list[str]:
        """The differences of settings alone."""
        found = []
        for name, before, read, write in self.settings:
            if (now := settings.read_one(read)) != before:
                found.append(f"{name}: {settings.difference(now, before)}")
                with contextlib.suppress(RuntimeError):
                    write(before)
                self.must_replace |= settings.read_one(read) != before
        for before, read, write in self.restored_silently:
            if settings.read_one(read) != before:
                write(before)
        return found

    # --- a quiet process ------------------------------------------------------------------------------------------

    def claim(self, arm: str) -> None:
        """Attributes threads that are new since the last claim to this arm."""
        for task in tasks.threads():
            self.owners.setdefault(("thread", task), arm)

    def claim_processes(self, arm: str) -> None:
        """The same for processes; it takes a few milliseconds."""
        for key in tasks.loads():
            self.owners.setdefault(key, arm)

    def leaves_threads(self) -> bool:
        """Whether Python threads are there that were not when this was last asked."""
        before, self.waiting = self.waiting, tasks.waiting_threads()
        return bool(self.waiting - before)

    def busy(self, arm: str) -> list[tuple[str, str]]:
        """[(arm that started it, what)] of threads and processes that work while no kernel is called."""
        begin = time.monotonic()
        while True:
            before = tasks.loads()
            time.sleep(tasks.WINDOW_S)
            after = {key: now for key, now in tasks.loads().items() if key in before}
            found = [key for key, now in after.items() if tasks.is_busy(before[key], now)]
            waited = time.monotonic() - begin
            if not found or waited > max(PATIENCE_S[what] for what, _ in found):
                break
            time.sleep(tasks.WINDOW_S)
        return [(self.owners.setdefault(key, arm), f"a {key[0]}") for key in found]
