"""Devices of this host, without torch: CUDA GPUs through NVML, and the CPU."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernels.host.environment import cpu_name
from kernels.host.scratch import shared_folder

WAITS = "waits"
"""First word of the message while another process holds the device."""
PID_DIGITS = 20


class NoSuchDevice(LookupError):
    """This host does not have the device. The message lists the devices."""


@dataclass(frozen=True)
class Device:
    """One GPU or CPU. `index` is NVML's; `uuid` stays the same across reboots and renumbering."""

    kind: str
    """"cuda" or "cpu"."""
    uuid: str
    name: str
    index: int = 0
    capability: float | None = None
    memory_bytes: int | None = None
    driver: str = ""
    max_sm_mhz: int | None = None

    @property
    def label(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else "cpu"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The pynvml module, initialised; None where there is no NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def devices() -> list[Device]:
    """CUDA GPUs first, then the CPU."""
    return [*_gpus(), _cpu()]


def _gpus() -> list[Device]:
    with nvml() as lib:
        if lib is None:
            return []
        driver = lib.nvmlSystemGetDriverVersion()
        found = []
        for index in range(lib.nvmlDeviceGetCount()):
            handle = lib.nvmlDeviceGetHandleByIndex(index)
            major, minor = lib.nvmlDeviceGetCudaComputeCapability(handle)
            found.append(
                Device(
                    kind="cuda",
                    uuid=lib.nvmlDeviceGetUUID(handle),
                    name=lib.nvmlDeviceGetName(handle),
                    index=index,
                    capability=float(f"{major}.{minor}"),
                    memory_bytes=lib.nvmlDeviceGetMemoryInfo(handle).total,
                    driver=driver,
                    max_sm_mhz=_quietly(lib.nvmlDeviceGetMaxClockInfo, handle, lib.NVML_CLOCK_SM),
                )
            )
        return found


def _quietly(query: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return query(*arguments)
    except Exception:
        return None


def _cpu() -> Device:
    """The CPU's id is derived from host name and machine id: clones of one image differ by host name."""
    identity = platform.node()
    with contextlib.suppress(OSError):
        identity += Path("/etc/machine-id").read_text().strip()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Device("cpu", f"CPU-{hashlib.sha256(identity.encode()).hexdigest()[:16]}", cpu_name(), memory_bytes=memory)


def find_device(wanted: str | None) -> Device:
    """A device by "cuda", "cuda:1", "cpu" or UUID. Without a name: the first GPU, else the CPU."""
    known = devices()
    if not wanted:
        return known[0]
    for device in known:
        if wanted in (device.uuid, device.label) or (wanted == device.kind):
            return device
    names = ", ".join(d.label for d in known)
    raise NoSuchDevice(f"there is no device '{wanted}' on this host; there are: {names}")


def print_changes() -> Callable[[str], None]:
    """An `on_wait` for a terminal: prints the sentence to standard error each time it changes."""
    said = ""

    def say(sentence: str) -> None:
        nonlocal said
        if sentence != said:
            said = sentence
            print(sentence, file=sys.stderr, flush=True)

    return say


def _holder(descriptor: int) -> str:
    """The process in a lock file. Any user may write there, so only a number is shown."""
    written = os.pread(descriptor, PID_DIGITS, 0).strip()
    return f"process {int(written)}" if written.isdigit() else "another process"


@contextlib.contextmanager
def locked(
    device: Device,
    should_stop: Callable[[], bool] = lambda: False,
    on_wait: Callable[[str], None] = lambda sentence: None,
) -> Iterator[None]:
    """Device lock: one measurement at a time on this host. Raises InterruptedError if should_stop while waiting.

    on_wait: called repeatedly with a sentence (prefix WAITS) while another process holds the lock.
    """
    path = Path(shared_folder()) / f"benchsite-{device.uuid}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IMODE(0o666))
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if should_stop():
                    raise InterruptedError("stopped while waiting for the device") from None
                on_wait(f"{WAITS}: {_holder(descriptor)} is measuring on this device")
                time.sleep(0.2)
        os.pwrite(descriptor, f"{os.getpid():<{PID_DIGITS}}".encode(), 0)
        yield
    finally:
        os.close(descriptor)
