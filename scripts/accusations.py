"""How often the judge calls honest kernels wrong, and almost right ones right: on this machine's CPU, over seeds and shapes.

    .venv/bin/python -m scripts.accusations --seeds 20 --out docs/measurements/accusations-cpu.json

Kernels are those of tests/zoo/*/numerics.py, and plain PyTorch. A kernel is checked as a run checks it: once with each
distribution of its operation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from kernels.analysis.correctness import judge
from kernels.catalog import get_kernel, load
from kernels.child.reference import Reference, measure
from kernels.operations.attention import Attention
from kernels.operations.base import Operation
from kernels.operations.gemm import Gemm
from kernels.operations.layer_norm import LayerNorm

ZOO = Path(__file__).parent.parent / "tests" / "zoo"
DTYPES = ("float16", "bfloat16", "float32")
SHAPES: tuple[Operation, ...] = (
    Attention(batch=1, heads=4, seq_len=128, head_dim=128),
    Attention(batch=2, heads=4, kv_heads=2, seq_len=256, head_dim=64, causal=True),
    Attention(batch=1, heads=8, seq_len=512, head_dim=64),
    Attention(batch=1, heads=4, seq_len=400, head_dim=80, causal=True),
    LayerNorm(rows=64, cols=1000),
    LayerNorm(rows=64, cols=4096),
    Gemm(m=64, n=64, k=512),
    Gemm(m=64, n=64, k=4096),
)
PLAIN = {"attention": ("eager", "sdpa", "sdpa-math"), "gemm": ("eager",), "layer_norm": ("eager",)}
RIGHT = {
    "attention": ("plain-flash", "folded-scale", "folded-scale-in-base-2", "folded-into-both"),
    "gemm": ("tf32x3",),
    "layer_norm": ("written-out", "rounded-twice", "in-one-pass"),
}
WRONG = {
    "attention": (
        "scale-off-by-a-thousandth", "scale-off-by-three-thousandths", "last-key-dropped", "scores-in-half",
        "rescaling-skipped",
    ),
    "gemm": ("bf16x3",),
    "layer_norm": ("without-eps", "eps-a-tenth", "unbiased-variance", "last-column-left-out"),
}  # fmt: skip


def callables(problem: Operation) -> dict[str, tuple[bool, Any]]:
    """Kernel -> (whether it is right, the function), of those that support the dtype."""
    os.environ["KERNEL_PATH"] = str(ZOO)
    right = PLAIN[problem.name] + RIGHT[problem.name]
    known = {name: get_kernel(problem.name, name) for name in right + WRONG[problem.name]}
    return {
        name: (name in right, load(info).call)
        for name, info in known.items()
        if not info.dtypes or problem.dtype in info.dtypes
    }


def tried(problem: Operation, seeds: int) -> list[dict[str, Any]]:
    """One row for each kernel: of how many seeds it was called wrong, the reasons, its largest slope on N(0, 1)."""
    kernels = callables(problem)
    rows = {
        name: {"dtype": problem.dtype, "operation": problem.name, "sizes": problem.label(), "kernel": name}
        | {"honest": right, "seeds": seeds, "rejected": 0, "slope": 0.0, "why": []}
        for name, (right, _) in kernels.items()
    }
    for seed in range(seeds):
        readings: dict[str, list[dict[str, Any]]] = {name: [] for name in kernels}
        for number, kind in enumerate(problem.distributions):
            inputs = problem.inputs("cpu", 1000 * seed + number, kind)
            reference = Reference(problem, inputs, seed, True, kind)
            for name, (_, call) in kernels.items():
                readings[name].append(measure(call(*inputs.tensors, **inputs.options), reference))
        for name, row in rows.items():
            said = judge(readings[name], problem.dtype)
            row["rejected"] += not said["correct"]
            row["slope"] = max(row["slope"], abs(said.get("slope") or 0.0))
            if said["why"] and len(row["why"]) < 2:
                row["why"].append(said["why"])
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    with torch.no_grad():
        for problem in SHAPES:
            for dtype in DTYPES if problem.name != "gemm" else ("float32",):
                found += tried(problem.model_copy(update={"dtype": dtype}), asked.seeds)
                about = {"torch": torch.__version__, "machine": platform.machine(), "rows": found}
                asked.out.write_text(json.dumps(about, indent=1) + "\n")
                for row in found:
                    if row["sizes"] == problem.label() and row["dtype"] == dtype:
                        print(
                            *(row[key] for key in ("dtype", "sizes", "kernel", "rejected", "slope", "why")), flush=True
                        )


if __name__ == "__main__":
    main()
