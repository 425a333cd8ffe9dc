"""What a child prints: its beginning and its end."""

from __future__ import annotations

import threading
from collections import deque

from kernels.contract.replies import printable

LOG_BYTES, HEAD_BYTES = 64 * 1024, 16 * 1024
"""Bytes of a process's output kept: of its end, and of its beginning."""


def head_and_tail(text: str, most: int) -> str:
    """A text that may be too long: its first quarter of `most` characters and its last three, and what lies between."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most - most // 4) :]
    return f"{head}\n[{len(text) - most} characters between are not shown]\n{tail}"


class Log:
    """The head and the tail of the child's output, and its total size."""

    def __init__(self) -> None:
        self.head = b""
        self.chunks: deque[bytes] = deque()
        self.kept = self.total = 0
        self.lock = threading.Lock()

    def add(self, chunk: bytes) -> None:
        with self.lock:
            self.total += len(chunk)
            self.head += chunk[: HEAD_BYTES - len(self.head)]
            self.chunks.append(chunk[-LOG_BYTES:])
            self.kept += len(self.chunks[-1])
            while self.kept - len(self.chunks[0]) > LOG_BYTES:
                self.kept -= len(self.chunks.popleft())

    def whole(self) -> str:
        """All of it; of a long one its head and its tail."""
        tail = self.tail()
        if self.total <= LOG_BYTES:
            return tail
        with self.lock:
            return printable(self.head.decode("utf-8", "replace")) + "\n" + tail

    def tail(self, size: int = LOG_BYTES) -> str:
        with self.lock:
            text = printable(b"".join(self.chunks)[-size:].decode("utf-8", "replace"))
        dropped = self.total - len(text.encode())
        return (f"[{dropped} bytes before this are not shown]\n" if dropped > 1024 else "") + text
