"""One kernel of a foreign format, tried in this process: `python -m kernels.inprocess.attempt FOUND DEVICE FD [time]`.

Writes an Attempt as one line of JSON to the descriptor FD after each step, so that a crash or the time limit shows how far
it came. What the kernel prints goes to the log.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import chain
from pathlib import Path

from kernels.formats.found import Found
from kernels.host import processes
from kernels.needs import how_to_install

NOT_TIMED: dict[str, object] = {"word": "not timed"}


def main() -> None:
    processes.die_with_parent()
    found, device, fd = Found(**json.loads(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    state: dict[str, object] = {"loaded": False, "ran": False, "right": False, "why": ""}

    def say(**more: object) -> None:
        state.update(more)
        os.write(fd, json.dumps(state).encode() + b"\n")

    step = "load"
    try:
        import torch

        from kernels.inprocess.trials import Wrong, trials

        torch.set_grad_enabled(False)
        iterator = trials(found, device)
        first = next(iterator)
        say(loaded=True)
        if device == "cpu" and "triton" in sys.modules:
            from kernels.inprocess.triton_interpreter import mend_bfloat16

            mend_bfloat16()
        step = "run"
        wrong = remark = ""
        for trial in chain([first], iterator):
            try:
                remark = trial() or remark
            except Wrong as error:
                wrong = wrong or str(error)
            if device != "cpu":
                torch.cuda.synchronize()
        say(ran=True, right=not wrong, why=wrong or remark)
        if "time" in sys.argv[4:] and not wrong:
            step = "run while it is timed"
            say(timed=NOT_TIMED | {"why": "it ended its process while it was timed"})
            say(timed=_timed(found, device))
    except BaseException as error:
        why = _sentence(error, step)
        unfit = {"unfit": True} if type(error).__name__ == "Unfit" and "timed" not in state else {}
        say(**({"timed": NOT_TIMED | {"why": why}} if "timed" in state else {"why": why}), **unfit)
        if not isinstance(error, Exception):
            raise


def _timed(found: Found, device: str) -> dict[str, object]:
    """{"word", "why", "speedup", "low", "high", "p50_us", "replaced_us"}: beside what it replaces."""
    from kernels.inprocess.adhoc import UNFILLED
    from kernels.inprocess.pairs import pairs_of, timed

    if device == "cpu" and "triton" in Path(found.path).read_text(errors="replace"):
        return NOT_TIMED | {"why": "Triton's interpreter ran it, not a GPU"}
    if not (pairs := pairs_of(found, device)):
        return NOT_TIMED | {"why": "its files do not say what it replaces"}
    one = timed(pairs[-1], device)
    if one.speedup is None:
        about = [note for note in one.notes if note.endswith(UNFILLED)]
        return NOT_TIMED | {"why": "; ".join([": ".join(filter(None, [one.word, one.why])), *about])}
    return {
        "word": one.word, "why": one.why, "speedup": one.speedup, "low": one.low, "high": one.high, "p50_us": one.p50_us,
        "replaced_us": one.baseline.p50_us if one.baseline else None,
    }  # fmt: skip


def _sentence(error: BaseException, step: str) -> str:
    """What is missing, in a sentence."""
    import torch

    text = " ".join(str(error).split())
    no_gpu = (
        "no nvidia driver", "not compiled with cuda", "0 active drivers", "no cuda gpus", "is_cuda", "nvidia-smi",
        "aten_cuda library",
    )  # fmt: skip
    if not torch.cuda.is_available() and any(sign in text.lower() for sign in no_gpu):
        return "needs a CUDA device"
    if isinstance(error, ModuleNotFoundError):
        command = how_to_install(str(error.name))
        return f"package {str(error.name).partition('.')[0]} is not installed here" + f": {command}" * bool(command)
    if type(error).__name__ in ("Unsupported", "Unreadable"):
        return text
    if type(error).__name__ == "Unfit":
        return f"its problem cannot be used here: {text[:300]}"
    if isinstance(error, (OSError, RuntimeError)) and any(
        word in text for word in ("CUDA_HOME", "nvcc", "Ninja", "ninja")
    ):
        return "needs a CUDA compiler (nvcc) and ninja on this host"
    if isinstance(error, StopIteration):
        return "there is nothing to try in it"
    ends = "it ends its process: " * isinstance(error, SystemExit)
    return f"does not {step}: {ends}{type(error).__name__}: {text[:300]}"


if __name__ == "__main__":
    main()
