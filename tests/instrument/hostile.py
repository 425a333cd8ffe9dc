"""What a hostile kernel tries from behind the airlock. It runs as a program there: python hostile.py TARGETS, as JSON.

It prints one JSON object: what it tried -> what came of it. Needs only the standard library.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys

MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2
NEW_USERS_AND_MOUNTS = 0x10020000
libc = ctypes.CDLL(None, use_errno=True)


def refused(step):
    """The error, or what the step returned."""
    try:
        return step()
    except OSError as error:
        return f"refused: {type(error).__name__}"


def reads(path):
    with open(path, "rb") as file:
        return file.read(10_000).decode("utf-8", "replace")


def writes(path):
    with open(path, "ab") as file:
        file.write(b"forged")
    return "wrote"


def connects(address, family=socket.AF_INET):
    with socket.socket(family) as one:
        one.settimeout(2)
        one.connect(address)
        return "connected"


def environments():
    """What the environments and command lines of all processes say that it can read."""
    found = []
    for entry in os.listdir("/proc"):
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                if entry.isdecimal():
                    found.append(reads(f"/proc/{entry}/{name}"))
    return "\n".join(found)


def unmasks(path):
    """Takes away what lies over a path, in a user namespace of its own if need be."""
    said = []
    for flags in (0, NEW_USERS_AND_MOUNTS):
        if flags and libc.unshare(flags):
            said.append("refused: unshare")
            break
        folder = path
        while folder != "/":
            libc.umount2(folder.encode(), MNT_DETACH)
            libc.mount(b"none", folder.encode(), None, MS_REMOUNT | MS_BIND, None)
            folder = os.path.dirname(folder)
        libc.mount(b"none", b"/", None, MS_REMOUNT | MS_BIND, None)
        said.append(refused(lambda: reads(path)))
    return said


def forks():
    """As many processes as there may be."""
    children = []
    try:
        for _ in range(20_000):
            if not (pid := os.fork()):
                signal.pause()
            children.append(pid)
    except OSError:
        return len(children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return len(children)


def fills(folder):
    """Bytes that it can write into a folder."""
    total = 0
    with contextlib.suppress(OSError):
        for number in range(100):
            with open(f"{folder}/fill{number}", "wb", 0) as file:
                for _ in range(128):
                    total += file.write(b"\0" * 2**23)
    for name in os.listdir(folder):
        if name.startswith("fill"):
            os.unlink(f"{folder}/{name}")
    return total


def opens():
    found = []
    with contextlib.suppress(OSError):
        while len(found) < 100_000:
            found.append(os.open("/dev/null", os.O_RDONLY))
    for fd in found:
        os.close(fd)
    return len(found)


def main(targets):
    parent = os.getppid()
    said = {
        "uid": os.getuid(),
        "rights": [line for line in reads("/proc/self/status").splitlines() if line.startswith(("CapEff", "CapBnd"))],
        "environment": dict(os.environ),
        "files": sorted(os.listdir("/proc/self/fd")),
        "read": {path: refused(lambda p=path: reads(p)) for path in targets["secrets"]},
        "write": {path: refused(lambda p=path: writes(p)) for path in targets["files"]},
        "list": {path: refused(lambda p=path: os.listdir(p)) for path in targets["folders"]},
        "tcp": refused(lambda: connects(("127.0.0.1", targets["port"]))),
        "socket": refused(lambda: connects(targets["socket"], socket.AF_UNIX)),
        "abstract": refused(lambda: connects("\0" + targets["abstract"], socket.AF_UNIX)),
        "environments": environments(),
        "parent": {name: refused(lambda n=name: reads(f"/proc/{parent}/{n}")) for name in ("environ", "cmdline", "maps")},
        "kill": refused(lambda: os.kill(targets["pid"], signal.SIGUSR1)),
        "trace": libc.ptrace(16, targets["pid"], 0, 0),
        "core pattern": refused(lambda: writes("/proc/sys/kernel/core_pattern")),
        "raise a limit": refused(
            lambda: subprocess.run(
                [sys.executable, "-c", "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (10**5, 10**5))"],
                capture_output=True,
            ).returncode
        ),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "opens": opens(),
        "scratch": refused(lambda: fills(".")),
        "unmask": unmasks(targets["secrets"][0]),
    }  # fmt: skip
    if targets["fork"]:
        said["forks"] = forks()
    print(json.dumps(said))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
