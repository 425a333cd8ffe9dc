"""The command loop that cells and the trusted process share: JSON lines in, `Answer` lines out."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kernels.child.__main__ import fault, limit_myself
from kernels.contract.replies import Answer


class Pipes:
    """Commands from the parent, and answers to it."""

    def __init__(self, commands_fd: int, answers_fd: int) -> None:
        self.commands, self.answers = os.fdopen(commands_fd, "rb"), os.fdopen(answers_fd, "wb", 0)
        self.token = ""
        """Of the command that is answered."""

    def answer(self, **message: Any) -> None:
        line = Answer(token=self.token, **message).model_dump_json(exclude_unset=True)
        self.answers.write(line.encode() + b"\n")

    def serve(self, worker: Any) -> None:
        """Executes commands as methods of the worker until the pipe closes."""
        while line := self.commands.readline():
            command = json.loads(line)
            self.token = command["token"]
            try:
                reply = getattr(worker, command["do"])(**command["with"])
            except Exception as error:
                self.answer(error=fault(error, must_replace=False))
            else:
                if reply is not None:  # else it has answered
                    self.answer(ok=reply.model_dump())


def main(make: Callable[[str, Pipes], Any]) -> None:
    """Starts a worker for a kind of device and serves it. Arguments: see __main__.py."""
    kind, pipes = sys.argv[2], Pipes(int(sys.argv[3]), int(sys.argv[4]))
    faulthandler.enable()
    limit_myself(kind)
    try:
        worker = make(kind, pipes)
        pipes.answer(ready={})
    except BaseException as error:
        traceback.print_exc()
        pipes.answer(failed=f"{type(error).__name__}: {error}")
        return
    pipes.serve(worker)
