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
    from kernels.inprocess.triton_interpreter import mend_bfloat16

    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may write between the answers
    mend_bfloat16()
    for line in sys.stdin:
        try:
            answer = run_case(**json.loads(line))
        except Exception:
            answer = {"raised": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


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
