"""The template: a process that has imported what a measuring process needs, and has loaded no kernel. It forks one whenever
its parent (kernels/parent/template.py) asks: that takes hundredths of a second, an import of torch takes seconds.

A request is one message, a `Request` with files. The template ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from kernels.host import airlock, processes, starting
from kernels.host.forking import Request

PR_SET_DUMPABLE = 4
NVIDIA = "/dev/nvidiactl"
"""Only a host with the driver of a GPU has it."""
REQUEST_BYTES = 2**20
MOST_FILES = 8
END = 3
"""Where the socket of its end stands among the files of a request."""
LOOK_S = 0.5


def import_all() -> None:
    """What every measuring process imports, but for kernels."""
    with starting.imports():
        import torch  # noqa: F401

        with contextlib.suppress(ImportError):
            import triton  # noqa: F401  (warm: the first Triton kernel should not pay for the import)

            if os.path.exists(NVIDIA):
                _hash_triton()
        with contextlib.suppress(ImportError):
            import tqdm

            tqdm.tqdm.monitor_interval = 0  # else PyTorch's compiler leaves its thread behind
        import kernels.child.bench
        import kernels.child.environment
        import kernels.child.guard  # noqa: F401


def _hash_triton() -> None:
    """Lets Triton hash its own files, which takes 0.3 s: it keeps the hash, and asks for it at each first compilation."""
    with contextlib.suppress(ImportError):
        from triton.runtime.cache import triton_key

        triton_key()


def become(requests: int) -> tuple[str, list[str]]:
    """Serves requests until there are no more. Returns in each process that it forks: (the module that it runs, its
    arguments)."""
    processes.die_with_parent()
    _be_readable(False)  # kernels are processes of the same user
    with contextlib.suppress(Exception):  # each new process tries again, and says why it cannot
        import_all()
    return _Template(socket.socket(fileno=requests)).serve()


def _be_readable(whether: bool) -> None:
    """Whether other processes of this user may read and write this one's memory."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(whether), 0, 0, 0)


class _Template:
    def __init__(self, requests: socket.socket) -> None:
        self.requests, self.pid = requests, os.getpid()
        self.ends: dict[int, socket.socket] = {}
        """The number of each process that runs -> where its end is said."""

    def serve(self) -> tuple[str, list[str]]:
        signal.signal(signal.SIGCHLD, self._say_ends)
        while True:
            request, files, _, _ = socket.recv_fds(self.requests, REQUEST_BYTES, MOST_FILES)
            if not request:
                break
            end = socket.socket(fileno=files.pop(END))
            if self._fork(end):
                return _settle_in(Request.model_validate_json(request), *files)
            for file in files:
                os.close(file)
        while self.ends:  # its parent has another template for new ones
            time.sleep(LOOK_S)
        os._exit(0)

    def _fork(self, end: socket.socket) -> bool:
        """Whether this is the new process."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # none ends before it is known
        try:
            if select.select([end], [], [], 0)[0]:  # nobody waits for it any more
                end.close()
                return False
            if pid := os.fork():
                self.ends[pid] = end
                _say(end, pid)
                return False
        except OSError:
            end.close()
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        processes.die_with_parent()
        if os.getppid() != self.pid:
            os._exit(1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self.requests, end, *self.ends.values()):
            one.close()
        return True

    def _say_ends(self, *_: Any) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                end = self.ends.pop(ended[0])
                _say(end, os.waitstatus_to_exitcode(ended[1]))
                end.close()


def _say(to: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody may listen any more
        to.send(b"%d" % number)


def _settle_in(request: Request, commands: int, answers: int, output: int, *more: int) -> tuple[str, list[str]]:
    """Makes a forked process what one is that was started: its session, folder, environment, output, files; behind an airlock,
    if it is to be. Returns what it runs."""
    environment = request.environment
    os.setsid()
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    _rename_folder(os.environ["TMPDIR"], environment["TMPDIR"])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["TMPDIR"])
    sys.path[0] = environment["TMPDIR"]
    _be_readable(True)
    for file, number in zip(more[bool(request.airlock) :], request.numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    if request.airlock:
        airlock.pass_through(request.airlock.model_copy(update={"facts_fd": more[0]}))
    _forget()
    return request.module, [*request.arguments, str(commands), str(answers)]


def _rename_folder(before: str, now: str) -> None:
    """Changes the folder in the environment that the operating system shows of this process (/proc/PID/environ): by it
    processes that a kernel leaves are found (kernels/host/scratch.py). Both names have one length."""
    if len(os.fsencode(before)) != len(os.fsencode(now)):
        raise ValueError(f"{before} and {now} have different lengths")
    with open("/proc/self/stat") as file:
        start, end = map(int, file.read().rpartition(")")[2].split()[47:49])
    shown = ctypes.string_at(start, end - start)
    ctypes.memmove(start, shown.replace(os.fsencode(before), os.fsencode(now)), end - start)


def _forget() -> None:
    """What imports have taken from the template's environment or from chance, and the threads that a fork ends."""
    import tempfile

    tempfile.tempdir = None
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return
    if "numpy.random" in sys.modules:
        numpy.random.seed()
    some = numpy.ones((256, 256))
    some @ some  # BLAS starts its threads again now, and not in a kernel's call
