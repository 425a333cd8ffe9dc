"""The people of a load: who poll and read pages, who are slow, and who import."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

PAGES = ("/", "/runs/", "/results/", "/leaderboard/", "/kernels/", "/runs/{run}/")
POLLS_PER_PAGE, POLL_EVERY_S = 4, 2.0
LIMIT_S = 30.0


class Reader(threading.Thread):
    """Watches a run: polls it every two seconds, and opens another page now and then."""

    def __init__(self, url: str, cookie: str, run: int, over: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.url, self.cookie, self.run_pk, self.over, self.rng = url, cookie, run, over, random.Random(seed)
        self.polls_s: list[float] = []
        self.pages_s: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        time.sleep(self.rng.uniform(0, POLL_EVERY_S))
        number = 0
        while not self.over.is_set():
            number += 1
            if number % (POLLS_PER_PAGE + 1):
                self._get(f"/runs/{self.run_pk}/live/", self.polls_s)
            else:
                self._get(self.rng.choice(PAGES).format(run=self.run_pk), self.pages_s)
            self.over.wait(POLL_EVERY_S)

    def _get(self, path: str, times: list[float]) -> None:
        asked = urllib.request.Request(self.url + path, headers={"Cookie": self.cookie})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            if error.code >= 400 and error.code != 429:
                self.errors.append(f"{path}: {error.code}")
        except OSError as error:
            self.errors.append(f"{path}: {error}")
        times.append(time.monotonic() - began)


class Slow(threading.Thread):
    """Sends a request a byte at a time, for ever."""

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port, self.over = port, over

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                    while not self.over.wait(0.5):
                        connection.sendall(b"x")
            except OSError:
                self.over.wait(0.5)


def rows_to_import(path: Path, count: int) -> None:
    """Claims about so many workloads, one a line."""
    with path.open("w") as file:
        for number in range(count):
            row = {
                "operation": "softmax", "rows": 1 + number % 1000, "cols": 1 + number // 1000, "dtype": "float16",
                "kernel": "theirs", "gpu": "NVIDIA L4", "p50_ms": 0.01 + number / 1e6,
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
