"""Runs Triton kernels in Triton's interpreter, on a CPU.

Triton decides whether to interpret when it is first imported, so a kernel under test lives in a child: a test file, run
as a script, that calls `serve(run_case)` and answers one JSON line per case.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHOLE_GRIDS = "whole grids of Triton kernels in the interpreter: `make test` takes a shape or two of each"


class Interpreter:
    """The child that runs kernels."""

    def __init__(self, script):
        environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
        command = [sys.executable, script]
        self.child = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, **case):
        self.child.stdin.write(json.dumps(case) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        assert answer, f"the interpreter ended with status {self.child.wait()}"
        return json.loads(answer)

    def close(self):
        self.child.communicate()


def interpreting(script):
    """Body of a fixture: an Interpreter of a test file, closed at the end."""
    for package in ("torch", "triton", "numpy"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"interpreting a Triton kernel needs the package {package}, which is not installed")
    interpreter = Interpreter(script)
    yield interpreter
    interpreter.close()


# --- in the child -----------------------------------------------------------------------------------------------------


def serve(run_case):
    """Answers cases from standard input, one JSON line each."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may write between the answers
    mend_bfloat16()
    for line in sys.stdin:
        try:
            answer = run_case(**json.loads(line))
        except Exception:
            answer = {"raised": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def mend_bfloat16():
    """Makes the interpreter's bfloat16 that of a GPU.

    The interpreter keeps bfloat16 as the 16-bit integers of its bits. It takes products of those integers in `tl.dot`,
    and it cuts float32 off where a GPU rounds to nearest even. Here products are of the numbers, and PyTorch rounds.
    """
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    their_dot, their_cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def widened(x):
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        if a.dtype.scalar == tl.bfloat16:
            a, b = widened(a), widened(b)
        return their_dot(self, a, b, *rest)

    def cast_impl(self, x, to):
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return their_cast(self, x, to)
        rounded = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16()
        return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

    InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl = create_dot, cast_impl


@contextlib.contextmanager
def replaced(owner, name, value):
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def poisoning(empty, poisoned):
    """torch.empty that leaves NaN in what it hands out, and counts in `poisoned`."""

    def poisoned_empty(*args, **kwargs):
        poisoned.append(1)
        return empty(*args, **kwargs).fill_(float("nan"))

    return poisoned_empty
