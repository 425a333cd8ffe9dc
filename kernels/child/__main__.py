"""The measuring child: the only process that imports torch and kernels. Started by kernels/parent/child_process.py, or forked
by a template (template.py).

It reads commands (JSON lines) from one pipe, runs them on the bench, and answers on another. What kernels print goes to
stdout and stderr, which are the log. "ready" means that torch, triton and the device are initialised, but no kernel's
file is loaded: so it never measures an old version of a file.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import sys
import traceback
from typing import Any

from kernels.child import template
from kernels.contract.replies import Answer, Fault, Reply
from kernels.host import processes

PACKAGE = "kernels.child"
MAX_FILE_BYTES = 4 * 2**30
CPU_MEMORY_SHARE = 0.8
NO_DRIVER = "0 active drivers"
"""What Triton says where it finds no GPU."""
NO_MEMORY = ("out of memory", "defaultcpuallocator: can't allocate")


def limit_myself(kind: str) -> None:
    """Sets limits: dies with its parent, keeps what kernels start below it, no core dumps, bounded files; on a CPU
    bounded memory (CUDA reserves address space)."""
    processes.die_with_parent()
    processes.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    if kind == "cpu":
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        bytes_allowed = int(total * CPU_MEMORY_SHARE)
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_allowed, bytes_allowed))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, end this process first
    except OSError:
        pass


def free_memory(of_gpu: bool) -> str:
    """What is free now, as "3.7 GiB of 10.7 GiB were free": of the GPU, or of what this process may have. Empty if nobody says
    it."""
    import torch

    from kernels.analysis.memory import size

    try:
        if of_gpu:
            free, total = torch.cuda.mem_get_info()
        else:
            total, _ = resource.getrlimit(resource.RLIMIT_DATA)
            with open("/proc/self/status") as file:
                used = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))
            free = max(0, total - used)
            if total == resource.RLIM_INFINITY:
                return ""
    except (RuntimeError, OSError, MemoryError, StopIteration):
        return ""
    return f"{size(free)} of {size(total)} were free"


def with_free_memory(message: str, of_gpu: bool) -> str:
    """A message that memory ran out, with what is free at the end of its first line."""
    first, *others = message.splitlines()
    return "\n".join(["; ".join(filter(None, [first.rstrip(": "), free_memory(of_gpu)])), *others])


def said_by(error: BaseException) -> str:
    """The message of an exception; of one that cannot say it, why not."""
    try:
        return str(error)
    except Exception as why:
        return f"its message cannot be read: its __str__ raised {type(why).__name__}"


def fault(error: BaseException, must_replace: bool) -> Fault:
    """An exception as data for the parent."""
    import torch

    from kernels.catalog import Unsupported
    from kernels.child.captured import CallsOverlap, NotCaptured
    from kernels.child.host_memory import FilledWhenRead
    from kernels.needs import how_to_install
    from kernels.nvrtc.compiler import CompileError

    says = said_by(error)
    if NO_DRIVER in says and not torch.cuda.is_available():
        error = Unsupported("needs a CUDA device: Triton finds none here").with_traceback(error.__traceback__)
        says = said_by(error)
    said, kind = says.lower(), "raised"
    if isinstance(error, Unsupported):
        kind = "unsupported"
    elif isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in said for sign in NO_MEMORY):
        kind = "out of memory"
    elif isinstance(error, (CallsOverlap, FilledWhenRead)):
        kind = "suspect"
    is_sentence = isinstance(error, (CallsOverlap, FilledWhenRead, NotCaptured))
    message = says if is_sentence else f"{type(error).__name__}: {says}"
    if isinstance(error, ModuleNotFoundError) and (command := how_to_install(str(error.name))):
        message += f": {command}"
    if kind == "out of memory" and "is free" not in said:
        of_host = isinstance(error, MemoryError) or "defaultcpuallocator" in said
        message = with_free_memory(message[:1900], torch.cuda.is_initialized() and not of_host)
    text = "".join(traceback.format_exception(error))
    if isinstance(error, CompileError):
        text = error.log  # where in the kernel's source it is, not where in the compiler's caller
    return Fault.model_validate(
        {"kind": kind, "message": message[:2000], "traceback": text[-8000:], "must_replace": must_replace}
    )


def serve(kind: str, commands: Any, answers: Any) -> None:
    bench: Any = None

    token = ""

    def answer(**message: Any) -> None:
        answers.write(Answer(token=token, **message).model_dump_json(exclude_unset=True) + "\n")
        answers.flush()

    try:
        template.import_all()
        import torch

        from kernels.child.bench import Bench
        from kernels.child.environment import environment
        from kernels.child.guard import Guard

        if kind == "cuda":
            torch.ones(1, device="cuda:0").add_(1)
            torch.cuda.synchronize()
        bench = Bench(kind)
        guard, changes_of, watched_of, seal = bench.guard, Guard.changes, Guard.watched, bench.guard.seal()
        answer(ready=environment(kind))
    except BaseException as error:
        traceback.print_exc()  # into the log
        answer(failed=f"{type(error).__name__}: {error}")
        return

    def is_another(now: Guard) -> bool:
        """Whether the guard was exchanged or emptied."""
        return now is not guard or guard.seal() != seal

    for line in commands:
        command = json.loads(line)
        token, do, arguments = command["token"], command["do"], command["with"]
        changes: list[str] = []
        try:
            reply: Reply = getattr(bench, do)(**arguments)
        except Exception as error:
            must_replace = False
            if arm := arguments.get("arm"):
                bench.guard.claim_processes(arm)  # attribute its threads and processes to this arm
                must_replace = bool(changes_of(guard, arm)) | bool(watched_of(guard)) | is_another(bench.guard)
            answer(error=fault(error, must_replace or guard.must_replace))
            continue
        if arguments.get("arm") and do not in ("profile", "watch"):
            changes = [*bench.sets.changes(), *changes_of(guard, arguments["arm"])]
            if is_another(bench.guard):
                changes.append("the guard: emptied")
                guard.must_replace = True
        if changes:
            message = f"changed global state: {'; '.join(changes)}"[:2000]
            answer(error=Fault(kind="suspect", message=message, must_replace=guard.must_replace))
        else:
            answer(ok=reply.model_dump())


def main() -> None:
    faulthandler.enable()  # a crash writes its file and line into the log
    if sys.argv[1] == "template":
        module, sys.argv[1:] = template.become(int(sys.argv[2]))
        if module != PACKAGE:
            importlib.import_module(f"{module}.__main__").main()
            return
    kind, commands_fd, answers_fd = sys.argv[1], *map(int, sys.argv[2:])
    limit_myself(kind)
    if os.getppid() == 1:
        return
    serve(kind, os.fdopen(commands_fd, "r"), os.fdopen(answers_fd, "w"))


if __name__ == "__main__":
    main()
