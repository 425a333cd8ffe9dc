"""`python -m kernels try FOLDER`: which kernels of a folder load, run and are right here, and why not."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.cli.stop import Stop
from kernels.formats.found import FORMATS, PERF_REPORT, Found
from kernels.formats.recognise import Folder
from kernels.host.device import Device, find_device
from kernels.host.scratch import Scratch
from kernels.parent.child_process import Cancelled, child_environment

NOT_STARTED: dict[str, Any] = {"loaded": False, "ran": False, "right": False, "why": ""}
LOOK_S = 0.25


def do_try(arguments: argparse.Namespace, stop: Stop) -> int:
    """Prints a line for each kernel, and the tally. Returns 0 if all are right."""
    root = arguments.folder.resolve()
    if not root.exists():
        raise FileNotFoundError(f"there is no {root}")
    device = find_device(arguments.device)
    folder = Folder(root)
    tried = []
    jobs = 1 if arguments.time else arguments.jobs  # beside a time, nothing else runs
    with ThreadPoolExecutor(jobs) as pool:
        kernels = list(folder.kernels())
        for found, result in zip(
            kernels,
            pool.map(lambda one: attempt(one, device, arguments.limit, stop, arguments.time), kernels),
            strict=True,
        ):
            tried.append({"kernel": found.as_json() | {"more": {}}} | result)
            print(_line(root, found, result), flush=True)
    if stop():
        raise Cancelled
    print("\n".join(["", *tally(tried, device), *_problems(folder, root)]))
    if arguments.json:
        arguments.json.write_text(json.dumps(tried, indent=1) + "\n")
    if not tried:
        raise FileNotFoundError(f"there is no kernel in {root}; the formats are {', '.join(FORMATS)}")
    return 0 if all(result["right"] for result in tried) else 1


def attempt(found: Found, device: Device, limit_s: float, stop: Stop, time_it: bool = False) -> dict[str, Any]:
    """{"loaded", "ran", "right", "why"} of a kernel, from a process of its own that ends in any case. time_it: also
    "timed", beside what it replaces."""
    if found.why_not or stop():
        return NOT_STARTED | {"why": found.why_not}
    scratch = Scratch()
    read, write = os.pipe()
    name = "cpu" if device.kind == "cpu" else "cuda:0"
    environment = child_environment(device, scratch.path)
    if device.kind == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "kernels.inprocess.attempt", json.dumps(found.as_json()), name, str(write),
             *(["time"] if time_it else [])],
            env=environment, cwd=scratch.path, pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(write)
        try:
            return _heard(process, read, limit_s, stop)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        os.close(read)
        scratch.remove()


def _heard(process: subprocess.Popen[bytes], read: int, limit_s: float, stop: Stop) -> dict[str, Any]:
    """The last line that it wrote; with the reason if it did not come to an end."""
    text, deadline = b"", time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        while True:
            if stop():
                return NOT_STARTED
            if time.monotonic() > deadline:
                return _cut(_last(text), f"did not end within {limit_s:g} s")
            if selector.select(LOOK_S):
                if not (chunk := os.read(read, 65536)):
                    break
                text += chunk
            elif process.poll() is not None:
                break
    status, last = process.wait(), _last(text)
    if status < 0 and not last["why"]:
        return _cut(last, f"ended by {signal.Signals(-status).name}")
    if not last["ran"] and not last["why"]:
        return last | {"why": f"ended with status {status}"}
    return last


def _cut(last: dict[str, Any], why: str) -> dict[str, Any]:
    """What is known of a kernel whose process was ended. What was right before it was timed stays right."""
    if "timed" in last:
        return last | {"timed": {"word": "not timed", "why": why}}
    return last | {"ran": False, "right": False, "why": why}


def _last(text: bytes) -> dict[str, Any]:
    lines = text.splitlines()
    try:
        return NOT_STARTED | (json.loads(lines[-1]) if lines else {})
    except ValueError:  # the kernel wrote there
        return NOT_STARTED | {"why": "code other than the loader wrote the answer"}


def _line(root: Path, found: Found, result: dict[str, Any]) -> str:
    path = Path(found.path)
    shown = path.relative_to(root) if root.is_dir() and path.is_relative_to(root) else path
    word = (
        "right" if result["right"] else "wrong" if result["ran"] else "not judged" if result.get("unfit")
        else "loads only" if result["loaded"] else "not loaded" if result["why"] else "not tried"
    )  # fmt: skip
    what = f"{found.format}{f', {found.operation}' if found.operation else ''}"
    why = f"  {result['why']}" if result["why"] else ""
    return f"{word:<10}  {shown}  ({what}: {found.name}){why}{_timed(result.get('timed'))}"


def _timed(timed: dict[str, Any] | None) -> str:
    """What a kernel's times say, beside what it replaces."""
    if timed is None:
        return ""
    why = f": {timed['why']}" if timed["why"] else ""
    if timed.get("speedup") is None:
        return f"  {timed['word']}{why}"
    return f"  {timed['word']}  {timed['speedup']:.3f}x ({timed['low']:.3f} to {timed['high']:.3f}){why}"


def _is_triton(path: str) -> bool:
    """Whether a file may hold kernels in Triton."""
    try:
        return "triton" in Path(path).read_text(errors="replace")
    except OSError:
        return False


def tally(tried: list[dict[str, Any]], device: Device) -> list[str]:
    """ "N of M load, K run, J right", in all and by format."""

    def line(name: str, part: list[dict[str, Any]]) -> str:
        loaded, ran, right = (sum(bool(result[what]) for result in part) for what in ("loaded", "ran", "right"))
        return f"{name}: {loaded} of {len(part)} load, {ran} run, {right} right"

    lines = [line(f"On {device.name}", tried)]
    formats = Counter(result["kernel"]["format"] for result in tried)
    for name in FORMATS:
        if formats[name] and len(formats) > 1:
            lines.append("  " + line(name, [r for r in tried if r["kernel"]["format"] == name]))
    if device.kind == "cpu" and any(_is_triton(result["kernel"]["path"]) for result in tried):
        lines.append("Triton kernels ran in Triton's interpreter, because this device is a CPU.")
    if formats[PERF_REPORT]:
        lines.append("A perf_report file is right if its other providers agree with its library provider.")
    return lines


def _problems(folder: Folder, root: Path) -> list[str]:
    if not (unused := folder.problems()):
        return []
    return [f"{len(unused)} problem{'s' * (len(unused) > 1)} without a kernel, such as {unused[0].name}"]
