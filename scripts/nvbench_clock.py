"""The same calls by NVBench, NVIDIA's own benchmark library: the package cuda-bench."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda.bench as nvbench
import torch

WANTED = {
    "NVBench, isolated": ("nv/cold/time/gpu/median", "nv/cold/time/gpu/mean"),
    "NVBench, batches": ("nv/batch/time/gpu/median", "nv/batch/time/gpu/mean"),
}
"""Isolated: each call behind its write flush of L2 and its blocking kernel. Batches: back to back on one buffer."""


def readings(calls: dict[str, Callable[[int], Any]], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Mode -> name -> one number for each repetition, in ns; the median where NVBench gives one, else the mean."""
    names = list(calls)

    def timed(state: Any) -> None:
        call = calls[names[state.get_int64("case")]]
        stream = torch.cuda.ExternalStream(state.get_stream().addressof())

        def launch(launched: Any) -> None:
            with torch.cuda.stream(stream):
                call(0)

        state.exec(launch, batched=True)

    benchmark = nvbench.register(timed).set_name("clocks")
    benchmark.add_int64_axis("case", list(range(len(names))))
    benchmark.add_int64_axis("repetition", list(range(repeats)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["clocks", "--json", str(file), "--timeout", "1", "--quiet"])
        found = json.loads(file.read_text())
    return _read(found, names)


def _read(found: dict[str, Any], names: list[str]) -> dict[str, dict[str, list[float]]]:
    read: dict[str, dict[str, list[float]]] = {}
    for state in found["benchmarks"][0]["states"]:
        axes = {axis["name"]: axis["value"] for axis in state["axis_values"]}
        said = {summary["tag"]: _value(summary) for summary in state["summaries"] or []}
        for mode, tags in WANTED.items():
            seconds = next((said[tag] for tag in tags if said.get(tag) is not None), None)
            if seconds is not None:
                read.setdefault(mode, {}).setdefault(names[int(axes["case"])], []).append(seconds * 1e9)
    return read


def _value(summary: dict[str, Any]) -> float | None:
    return next((float(d["value"]) for d in summary["data"] if d["name"] == "value" and d["type"] == "float64"), None)
