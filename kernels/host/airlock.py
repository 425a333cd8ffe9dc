"""The airlock: takes from its process what a foreign kernel does not need. It runs trusted code only.

`python -m kernels.host.airlock SPEC`, SPEC is a `Spec` as JSON, then becomes another program. A process that a template forks
(kernels/child/template.py) passes through it and goes on. With root it takes everything;
another user takes what a user namespace allows. What the host does not allow is left out, and the `Facts` say so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable

from pydantic import BaseModel

from kernels.host import limits, rights, view
from kernels.host.system import NEW_IPC, NEW_NETWORK, NEW_PIDS, NEW_USERS, libc, unshare

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38


class Spec(BaseModel):
    """What to take away, and what to run."""

    command: list[str]
    """The program to become, its interpreter first. A forked process becomes none; it must be able to read the interpreter."""
    scratch: str
    """The only folder that stays writable."""
    readable: list[str] = []
    """Files and folders that the command must be able to read."""
    hidden: list[str] = []
    """Files and folders that it must not see, beside those that view.py hides of every host."""
    uid: int | None = None
    """The user to become; None: stay the same one."""
    facts_fd: int
    """Where the facts are written, as one line of JSON."""
    own_pids: bool = True
    """False: stay among the host's processes, if CUDA memory cannot be shared otherwise."""
    kind: str = "cpu"
    """Of its device."""
    groups: list[str] = []
    """Control groups to join."""


class Facts(BaseModel):
    """What was taken away."""

    pid: int = 0
    """Of the command, as the host counts."""
    own_user: bool = False
    user_namespace: bool = False
    """It is the agent's user without any right over what that user has outside."""
    no_network: bool = False
    own_pids: bool = False
    """What it starts ends with it, and it can send no other process a signal."""
    own_proc: bool = False
    """It sees no other process."""
    read_only: bool = False
    """It can write into its scratch folder only."""
    hidden: bool = False
    """Files that it does not need are not there: home folders, settings, database, journals."""
    limited_scratch: bool = False
    limited_memory: bool = False
    """All of its processes together have a limit of memory that the kernel keeps."""
    missing: list[str] = []
    """What the host did not allow, with the reason."""


def main() -> None:
    spec = Spec.model_validate_json(sys.argv[1])
    pass_through(spec)
    os.execv(spec.command[0], spec.command)


def pass_through(spec: Spec) -> None:
    """Takes away what can be taken, and writes the facts. Returns in the process that is left, which may be another one. The
    calling process has one thread."""
    facts = Facts()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)  # the command's user must be able to enter the folders that are made here
    facts.limited_memory = _try(facts, "a limit of memory for all processes", lambda: limits.join(spec.groups))
    limits.of_each_process(spec.kind)
    if not rights.may_mount() and _try(facts, "a user namespace", _enter_user_namespace):
        facts.user_namespace = True
    facts.no_network = _try(facts, "no network", lambda: unshare(NEW_NETWORK))
    _try(facts, "own shared memory", lambda: unshare(NEW_IPC))
    facts.read_only = facts.hidden = _try(facts, "read-only files", lambda: _close_files(spec))
    if facts.read_only:
        facts.limited_scratch = _try(
            facts, "a limit of the scratch folder", lambda: view.limit_scratch(spec.scratch, spec.uid)
        )
        if not facts.limited_scratch:
            _try(facts, "a scratch folder", lambda: view.open_scratch(spec.scratch))
    facts.own_pids = spec.own_pids and _try(facts, "own process ids", lambda: unshare(NEW_PIDS))
    if facts.own_pids and (pid := os.fork()):
        _wait_for(pid)
    facts.pid = int(os.readlink("/proc/self"))
    if facts.own_pids and facts.read_only:
        facts.own_proc = _try(facts, "own /proc", view.new_proc)
    if facts.read_only and not facts.own_proc:
        _try(facts, "a writable /proc", view.open_proc)  # CUDA writes there
    _change_user(spec, facts)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has cleared it
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # and this: the trusted process reads its outputs
    os.write(spec.facts_fd, facts.model_dump_json().encode() + b"\n")
    os.close(spec.facts_fd)
    os.chdir(spec.scratch)


def _enter_user_namespace() -> None:
    """The same user, with all rights over the other namespaces that are made now, and none outside."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == rights.ROOT:
        raise OSError(errno.EPERM, "root without capabilities cannot create one")
    unshare(NEW_USERS)
    rights.name_myself(uid, gid)


def _close_files(spec: Spec) -> None:
    view.close([*spec.readable, *spec.command[:1]], spec.hidden, spec.scratch)


def _change_user(spec: Spec, facts: Facts) -> None:
    """Becomes the user of the spec; who cannot gives up all rights of this one."""
    if spec.uid is None:
        facts.missing.append("own user: only root may change users")
    else:
        uid = spec.uid
        folders = [] if facts.read_only else [*spec.readable, spec.scratch]
        facts.own_user = _try(facts, "own user", lambda: rights.become(uid, folders))
    if not facts.own_user:
        _try(facts, "no rights", rights.give_up)


def _try(facts: Facts, what: str, step: Callable[[], None]) -> bool:
    try:
        step()
        return True
    except OSError as error:
        facts.missing.append(f"{what}: {error.strerror}")
        return False


def _wait_for(pid: int) -> None:
    """Ends as the command ends. The kernel ends everything that the command has started."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
