"""The profiled process: `python -m kernels.profiling.target ASK`, ASK is an `Ask` as JSON.

It loads one kernel, makes inputs, warms up, and then does one call between cudaProfilerStart and cudaProfilerStop
(counters: ncu has started this process), or a few calls for PyTorch's profiler (timeline: its answer is one line of JSON
on stdout). What the kernel prints goes to stderr.
"""

from __future__ import annotations

import base64
import gzip
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

from kernels.contract.profile import MOST_TABLE, MOST_TRACE_BYTES, Timeline
from kernels.contract.replies import printable
from kernels.profiling.ask import Answer, Ask

WARM_UPS = 3
CALLS, LEAST_CALLS, LONG_NS = 20, 3, 50_000_000
TRACED = 3
"""Calls in a trace."""
TABLE_ROWS, TABLE_NAME = 40, 60
ANNOTATED = "call"


def main() -> None:
    ask = Ask.model_validate_json(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = done(ask)
    except BaseException as error:
        traceback.print_exc()
        answer = Answer(failed=printable(f"{type(error).__name__}: {error}")[:1000])
    answers.write(f"{answer.model_dump_json()}\n")
    answers.flush()
    sys.stderr.flush()
    os._exit(0 if answer.failed is None else 1)  # what a kernel registered for the end of the process does not run


def done(ask: Ask) -> Answer:
    sha256, call, synchronize = (_brought if ask.workload.problem.brought else _of_an_operation)(ask)
    for _ in range(WARM_UPS):
        call()
    synchronize()
    if ask.what == "timeline":
        return Answer(sha256=sha256, timeline=timeline(call, synchronize, ask.device))
    _between_marks(call, synchronize)
    return Answer(sha256=sha256)


def _of_an_operation(ask: Ask) -> tuple[str, Callable[[], Any], Callable[[], None]]:
    """(hash of the kernel's file, a call of it, what waits for the device)"""
    from kernels.child.bench import Bench, caller

    bench = Bench(ask.device)
    bench.open(ask.workload.model_dump())
    sha256 = bench.load(ask.kernel).sha256
    return sha256, caller(bench, ask.kernel, ask.seed), bench.clock.synchronize


def _brought(ask: Ask) -> tuple[str, Callable[[], Any], Callable[[], None]]:
    """The same of a kernel for a problem that came with it, whose inputs are drawn in this process, too."""
    import torch

    from kernels.catalog import PROBLEM, get_kernel, load
    from kernels.problems.opening import drawn, is_packed, reference_of

    device = "cuda:0" if ask.device == "cuda" else "cpu"
    reference = reference_of(ask.workload, ask.seed, device)
    given = drawn(reference, ask.seed, device)
    loaded = load(get_kernel(PROBLEM, ask.kernel))
    call, arguments = loaded.call(ask.seed, device), [tuple(given)] if is_packed(reference) else given
    return loaded.sha256, partial(call, *arguments), torch.cuda.synchronize if ask.device == "cuda" else lambda: None


def _between_marks(call: Callable[[], Any], synchronize: Callable[[], None]) -> None:
    """One call that ncu sees."""
    import torch

    runtime: Any = torch.cuda.cudart()
    runtime.cudaProfilerStart()
    call()
    synchronize()
    runtime.cudaProfilerStop()


# --- PyTorch's profiler -----------------------------------------------------------------------------------------------


def timeline(call: Callable[[], Any], synchronize: Callable[[], None], kind: str) -> Timeline:
    """The time of a call without the profiler, then a few calls with it."""
    call_ns, enqueue_ns = _times(call, synchronize)
    profiler = _profiled(call, synchronize, kind)
    busy_ns, kernels = _on_device(profiler) if kind == "cuda" else (None, None)
    by = "self_cuda_time_total" if kind == "cuda" else "self_cpu_time_total"
    averages = profiler.key_averages(group_by_input_shape=True)
    table = averages.table(sort_by=by, row_limit=TABLE_ROWS, max_name_column_width=TABLE_NAME)
    trace, missing = _trace(profiler)
    return Timeline(
        call_ns=call_ns,
        enqueue_ns=enqueue_ns,
        busy_ns=busy_ns,
        kernels=kernels,
        table=printable(table)[:MOST_TABLE],
        trace=trace,
        trace_missing=missing,
    )


def _times(call: Callable[[], Any], synchronize: Callable[[], None]) -> tuple[float, float]:
    """ns per call: until the device has finished, and the host's part."""
    start = perf_counter_ns()
    call()
    synchronize()
    count = LEAST_CALLS if perf_counter_ns() - start > LONG_NS else CALLS
    start = perf_counter_ns()
    for _ in range(count):
        call()
    enqueued = perf_counter_ns()
    synchronize()
    return (perf_counter_ns() - start) / count, (enqueued - start) / count


def _profiled(call: Callable[[], Any], synchronize: Callable[[], None], kind: str) -> Any:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if kind == "cuda" else [])]
    with profile(activities=activities):  # its first use takes seconds, which no trace should show
        call()
        synchronize()
    with profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
        for number in range(TRACED):
            with record_function(f"{ANNOTATED} {number + 1}"):
                call()
            synchronize()
    return profiler


def _on_device(profiler: Any) -> tuple[float, int]:
    """(ns that the device works, GPU kernels) of a call."""
    from torch.autograd import DeviceType

    seen = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
    seen = [event for event in seen if not event.name.startswith(ANNOTATED)]  # the range's own place on the device
    busy = sum(event.time_range.end - event.time_range.start for event in seen) * 1e3
    kernels = sum(not event.name.startswith(("Memcpy", "Memset")) for event in seen)
    return busy / TRACED, round(kernels / TRACED)


def _trace(profiler: Any) -> tuple[str, str]:
    """(the Chrome trace, gzip in base64; why there is none)."""
    path = f"{os.environ.get('TMPDIR', '/tmp')}/trace.json"
    try:
        profiler.export_chrome_trace(path)
        with open(path, "rb") as file:
            packed = gzip.compress(file.read(), mtime=0)
    except (OSError, RuntimeError, MemoryError) as error:
        return "", printable(f"the trace could not be written: {error}")[:300]
    if len(packed) > MOST_TRACE_BYTES:
        return "", f"the trace has {len(packed):,} bytes compressed; at most {MOST_TRACE_BYTES:,} are kept"
    return base64.b64encode(packed).decode(), ""


if __name__ == "__main__":
    main()
