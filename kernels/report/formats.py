"""Results as rows that other benchmarks write: `?format=` of a run's .json and .jsonl.

A row stands for a result of the operation's work that is ok and timed. `mode` and `environment` tell results of one kernel and
workload apart. What was not measured is null: no figure here is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernels.contract.events import Measured
from kernels.report.tables import Row, rows


def _renamed(measured: Measured, names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in measured.workload.sizes.items()}


def _nested(row: Row, measured: Measured, backend: str, environment: dict[str, Any]) -> dict[str, Any]:
    """Sizes in an object of their own; latency is the p50. Attention is `mha`, and the backend tilelang-cutedsl `cutedsl`."""
    capability = environment.get("capability")
    return {
        "kernel": "mha" if row.operation == "attention" else row.operation,
        "backend": backend.removeprefix("tilelang-"),
        "implementation": row.kernel,
        "arch": f"sm_{round(float(capability) * 10)}" if capability else None,
        "gpu_model": environment.get("device"),
        "compute_capability": str(capability) if capability else None,
        "problem_size": _renamed(measured, {"head_dim": "dim", "causal": "is_causal"}),
        "dtype": measured.workload.dtype,
        "latency_ms": row.p50_ms,
        "tflops": row.tflops,
        "compilation_time": row.compile_s,
        "mode": row.mode,
        "environment": row.environment,
    }


def _sizes(measured: Measured) -> dict[str, Any]:
    """Sizes with the names of `flat`. Rows are tokens: as one sequence of them, where the operation is on rows."""
    names = {"batch": "batch_size", "seq_len": "sequence_length", "dim": "tensor_dimension", "rows": "sequence_length"}
    across = getattr(measured.workload.problem, "across", "")
    alone = {"batch_size": 1} if across else {}
    return alone | _renamed(measured, names | ({across: "tensor_dimension"} if across else {}))


def _flat(row: Row, measured: Measured, backend: str, environment: dict[str, Any]) -> dict[str, Any]:
    """One level; the time is the mean, and rates are of it. memory_mb is the peak of a call with its inputs. gpu_efficiency is
    the GPU's utilisation in percent; null where it was not measured."""
    peak = row.peak_memory_bytes
    return {
        "operation": row.operation,
        "implementation": row.kernel,
        "backend": backend,
        **_sizes(measured),
        "dtype": measured.workload.dtype,
        "time_ms": row.mean_ms,
        "memory_mb": (peak + (row.input_bytes or 0)) / 1e6 if peak is not None else None,
        "inference_speed": 1e3 / row.mean_ms if row.mean_ms else None,
        "gpu_efficiency": 100 * row.gpu_busy if row.gpu_busy is not None else None,
        "throughput_gbps": row.gb_per_s and row.gb_per_s * (row.p50_ms or 0.0) / (row.mean_ms or 1.0),
        "mode": row.mode,
        "environment": row.environment,
    }


FORMATS: dict[str, Callable[[Row, Measured, str, dict[str, Any]], dict[str, Any]]] = {"nested": _nested, "flat": _flat}


def records(name: str, measurements: Iterable[Measured], environment: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a run in a format. Raises KeyError for an unknown one."""
    make = FORMATS[name]
    for measured in measurements:
        for arm, row in zip(measured.results, rows([measured]), strict=True):
            if row.status == "ok" and row.p50_ms is not None and not row.other_work:
                yield make(row, measured, arm.backend, environment)
