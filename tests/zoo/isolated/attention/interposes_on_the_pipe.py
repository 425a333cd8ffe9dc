"""Puts itself between its process and the pipe of answers: in a bench it shortens ticks, in a cell it says "done" early."""

import gc
import json
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed: "),
    "cuda": ("no effect",),
}


class Between:
    def __init__(self, answers):
        self.answers = answers

    def __getattr__(self, name):
        return getattr(self.answers, name)

    def write(self, line):
        said = json.loads(line)
        if "ticks_ns" in (said.get("ok") or {}):
            said["ok"]["ticks_ns"] = [0.75 * tick for tick in said["ok"]["ticks_ns"]]
            line = json.dumps(said) + "\n"
        return self.answers.write(line)


class Once:
    """Swallows the true answer to a batch."""

    def __init__(self, pipes):
        self.pipes, self.answers = pipes, pipes.answers

    def write(self, line):
        self.pipes.answers = self.answers


def say_done(frame):
    pipes, cell = frame.f_locals["self"].pipes, frame.f_locals["self"]
    space = cell.sets[0].tensors[0].numel() * 4
    addresses = [cell.sets[i].tensors[0].data_ptr() + space for i in range(frame.f_locals["calls"])]
    line = {"token": pipes.token, "ok": {"addresses": addresses, "own_ns": 1000}}
    pipes.answers.write(json.dumps(line).encode() + b"\n")
    pipes.answers = Once(pipes)


seen = []


@kernel("attention", backend="pytorch")
def interposes_on_the_pipe(q, k, v, *, causal, scale):
    for one in [] if seen else gc.get_objects():
        if isinstance(one, type(sys.stdout)) and one.name == int(sys.argv[-1]):
            for holder in gc.get_referrers(one):
                if type(holder).__name__ == "cell" and type(holder.cell_contents) is type(one):
                    holder.cell_contents = Between(one)
    seen.append(1)
    caller = sys._getframe(1)
    if caller.f_code.co_name == "arm" and caller.f_locals.get("index") == 0:
        say_done(caller)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
