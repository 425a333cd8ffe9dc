"""What the system keeps of a process: who changes it is seen before another kernel pays for it."""

import ctypes
import mmap
import os
import resource
import signal
import struct

import pytest

from kernels.child import guard, process_state
from kernels.child.clock import CpuClock

PERF_EVENT_OPEN = 298
"""On x86."""
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype, LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long],
)


@pytest.fixture
def watching():
    return guard.Guard("cpu", CpuClock())


def lower(name, soft):
    number = getattr(resource, name)
    resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))


PUT_BACK = {
    "limits of the process: RLIMIT_AS 1099511627776 instead of ": lambda: lower("RLIMIT_AS", 2**40),
    "limits of the process: RLIMIT_NOFILE 3 instead of ": lambda: lower("RLIMIT_NOFILE", 3),
    "limits of the process: RLIMIT_STACK 65536 instead of ": lambda: lower("RLIMIT_STACK", 2**16),
    "permission to be read: 0 instead of 1": lambda: LIBC.prctl(4, 0, 0, 0, 0),
    "blocked signals: SIGTERM instead of none": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
}


@pytest.mark.parametrize("said", PUT_BACK)
def test_what_others_would_pay_for_is_seen_and_put_back(watching, said):
    PUT_BACK[said]()
    (found,) = watching.changes()
    assert found.startswith(said)
    assert watching.changes() == []
    assert not watching.must_replace


def in_a_fork(do):
    """The lines that `do` returns in a fork of this process."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, "\n".join(do()).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as file:
        return file.read().splitlines()


def after(change):
    """Names of what `change` leaves otherwise."""

    def do():
        settings = [(name, read(), read) for name, read, _ in process_state.settings()]
        change()
        return [name for name, before, read in settings if read() != before]

    return in_a_fork(do)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (os.setsid, ["session and process group"]),
        (lambda: os.setpgid(0, 0), ["session and process group"]),
        (lambda: os.umask(0o777), ["users, groups and rights"]),
        (lambda: LIBC.prctl(38, 1, 0, 0, 0), ["users, groups and rights"]),
    ],
)
def test_what_cannot_be_put_back_is_seen(change, names):
    assert after(change) == names


@pytest.mark.skipif(os.getuid() != 0, reason="only root may")
@pytest.mark.parametrize("change", [lambda: os.setuid(65534), lambda: os.setgid(65534), lambda: os.setgroups([1])])
def test_another_user_or_group_is_seen(change):
    assert "users, groups and rights" in after(change)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may")
def test_another_root_directory_is_seen(tmp_path):
    assert "root directory" in after(lambda: os.chroot(tmp_path))


def test_a_limit_that_is_raised_takes_nothing_from_others(watching):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    lower_now = guard.Guard("cpu", CpuClock())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert lower_now.changes() == [] == watching.changes()


def counter():
    """A descriptor of perf_event_open: the processor's time, 20 us apart, off."""
    asked = bytearray(struct.pack("IIQQ", 1, 112, 0, 20_000).ljust(128, b"\0"))
    struct.pack_into("Q", asked, 40, 1)
    found = LIBC.syscall(PERF_EVENT_OPEN, (ctypes.c_char * 128).from_buffer(asked), 0, -1, -1, 0)
    return found if found >= 0 else pytest.skip("no counters here")


def test_a_counter_that_may_interrupt_is_seen(watching):
    number = counter()
    try:
        assert watching.changes() == ["counters that may interrupt: 1 instead of 0"]
        assert watching.must_replace
    finally:
        os.close(number)


def test_a_counter_that_is_only_mapped_is_seen_between_the_arms(watching):
    """It goes on when its descriptor is closed."""
    watching.begin()
    number = counter()
    pages = LIBC.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, number, 0)
    os.close(number)
    try:
        assert watching.changes() == []
        assert watching.watched() == ["counters that may interrupt: 1 are mapped instead of 0"]
        assert watching.must_replace
    finally:
        LIBC.munmap(ctypes.c_void_p(pages), mmap.PAGESIZE)
