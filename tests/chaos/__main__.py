"""`make chaos`: runs on four hosts while everything breaks; each must end, once, and truthfully.

python -m tests.chaos [--runs 200] [--seconds 480] [--seed N]. Needs root and PostgreSQL. The last line is
`chaos: runs=200 lost=0 twice=0 stuck=0 faults=N`; the exit status is 0 if the three are zero and nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

import django

from tests.chaos.fleet import DAY_S, Fleet, eventually, fleet

FAULTS_SHARE = 0.7
"""Share of the time in which things break; the rest is for what they left."""
QUIET_S = 90.0
"""Time for the last runs, after the last fault, at least."""
PAUSE_S = (0.5, 3.5)
WAITING = 3
"""Runs of a device that wait or run at once. Those of one that is down are in nobody's way."""
CANCELLED_SHARE = 0.05
START_LIMIT_S, REQUEST_LIMIT_S = 180.0, 20.0
KERNELS = ["eager", "functional"]
CLOCKS = {"host-2": DAY_S, "host-3": -DAY_S}


class Chaos:
    """Submits runs, breaks things, and waits for the ends."""

    def __init__(self, fleet: Fleet, runs: int, seconds: float, rng: random.Random) -> None:
        self.fleet, self.runs, self.rng = fleet, runs, rng
        self.began = time.monotonic()
        self.calm, self.end = self.began + FAULTS_SHARE * seconds, self.began + seconds
        self.faults: Counter[str] = Counter()
        self.pks: dict[int, int] = {}
        self.cancelled: set[int] = set()

    # --- the people ---------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """The answer as JSON; None if there was none, or an error of the server. A client's error raises."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.fleet.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=REQUEST_LIMIT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (409, 429):
                raise SystemExit(f"chaos: {method} {path}: {error.code} {error.read()[:500]!r}") from None
        except (OSError, ValueError):
            pass
        return None

    def submit_all(self) -> None:
        """To any device that has fewer than WAITING, each until the site has answered."""
        number = 0
        while number < self.runs and time.monotonic() < self.end:
            active = self.active()
            if not (free := [uuid for uuid in self.uuids if active[uuid] < WAITING]):
                time.sleep(0.5)
                continue
            config = {
                "name": "chaos", "operation": "softmax", "kernels": KERNELS,
                "protocol": {"warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "verify_seeds": 1, "block_ms": 0.5},
                "workloads": [{"rows": 64, "cols": 256, "dtype": "float32"}],
            }  # fmt: skip
            body = {"config": config, "gpu": self.rng.choice(free), "title": f"chaos {number}"}
            if answer := self.request("POST", "/api/runs", body, key=f"chaos-{number}"):
                self.pks[number] = answer["id"]
                if self.rng.random() < CANCELLED_SHARE:
                    threading.Thread(target=self.cancel, args=(number,), daemon=True).start()
                number += 1
            else:
                time.sleep(0.5)

    def cancel(self, number: int) -> None:
        time.sleep(self.rng.uniform(0, 20))
        self.cancelled.add(number)
        self.request("POST", f"/api/runs/{self.pks[number]}/cancel", {})

    # --- what breaks --------------------------------------------------------------------------------------------------

    def break_things(self, faults: list[Any], again: list[Any]) -> None:
        """Each of some faults, in any order; then some of them again and again, as long as things may break."""
        while True:
            for fault in self.rng.sample(faults, len(faults)):
                if time.monotonic() > self.calm:
                    return
                try:
                    said = fault(self.fleet, self.rng)
                except Exception as error:
                    said = f"{fault.__name__} could not be done now ({type(error).__name__})"
                else:
                    self.faults[fault.__name__] += 1
                print(f"{time.monotonic() - self.began:6.1f} s  {len(self.pks):3} runs  {said}", flush=True)
                time.sleep(self.rng.uniform(*PAUSE_S))
            faults = again

    def run(self, token: str, uuids: list[str]) -> None:
        from tests.chaos import faults

        self.token, self.uuids = token, uuids
        again = [fault for fault in faults.ONCE if fault not in faults.LONG]
        lanes = [(faults.ONCE, again), (faults.OFTEN, faults.OFTEN)]
        threads = [threading.Thread(target=self.break_things, args=lane, daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        self.submit_all()
        for thread in threads:
            thread.join(max(0.0, self.calm - time.monotonic()) + 60)
        end = max(self.end, time.monotonic() + QUIET_S)
        while time.monotonic() < end and self.active().total():
            time.sleep(1)

    def active(self) -> Counter[str]:
        """The id of a device -> how many of its runs have not ended; WAITING of each if the database does not answer."""
        from django.db import connection

        from runs.models import Run

        try:
            return Counter(Run.objects.active().values_list("gpu__uuid", flat=True))
        except Exception:
            connection.close()
            return Counter(dict.fromkeys(self.uuids, WAITING))


def keep(fleet: Fleet, over: threading.Event) -> None:
    """Starts again what has ended, as systemd does."""
    while not over.wait(1):
        fleet.keep()
        with contextlib.suppress(Exception):
            fleet.postgres.start_if_ended()


def prepare(fleet: Fleet) -> tuple[str, list[str]]:
    """(a token that may submit, the ids of the devices) of a site that answers, with all of its hosts."""
    from django.contrib.auth.models import User

    from runs.models import ApiToken, Gpu

    def all_there() -> bool:
        with contextlib.suppress(Exception):
            urllib.request.urlopen(fleet.url + "/healthz/web", timeout=5).close()
            return Gpu.objects.online().count() == len(fleet.tops)
        return False

    eventually(all_there, START_LIMIT_S, "the site and its hosts")
    user = User.objects.create_superuser("chaos")
    return ApiToken.objects.make(user, "chaos", writes=True, days=1)[1], [gpu.uuid for gpu in Gpu.objects.all()]


def missing() -> str:
    """What this machine lacks."""
    if os.geteuid() != 0:
        return "it needs root: hosts have names and disks of their own"
    if shutil.which("unshare") is None:
        return "it needs unshare (util-linux)"
    return ""


def print_logs(fleet: Fleet) -> None:
    for log in fleet.folder.glob("*.log"):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked = parser.parse_args()
    if why := missing():
        print(f"chaos: {why}", file=sys.stderr)
        return 2
    print(f"seed {asked.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started ends, disks go
    with fleet() as here:
        os.environ |= here.environment("host-0") | {"DATABASE_URL": here.postgres.url, "SECRET_KEY": here.mark}
        os.environ.pop("CHAOS")  # this process is none of the fleet
        django.setup()
        from tests.chaos import audit

        here.define(CLOCKS)
        over = threading.Event()
        keeper = threading.Thread(target=keep, args=(here, over), daemon=True)
        keeper.start()
        try:
            token, uuids = prepare(here)
            chaos = Chaos(here, asked.runs, asked.seconds, random.Random(asked.seed))
            chaos.run(token, uuids)
            here.postgres.start_if_ended()
            submitted = len(chaos.pks)
            found = audit.of_runs(chaos.pks, chaos.cancelled, set(KERNELS))
        except TimeoutError as error:
            print_logs(here)
            print(f"chaos: {error}", file=sys.stderr)
            return 1
        finally:
            over.set()
            keeper.join(60)
            left = here.end()
        found.said += left + audit.of_hosts(here)
        if not found.holds:
            print_logs(here)
    print(f"ends: {dict(found.ends)}; faults: {dict(chaos.faults)}")
    if submitted < asked.runs:
        found.said.append(f"only {submitted} of {asked.runs} runs were submitted in {asked.seconds:g} s")
    print(*found.said, sep="\n")
    print(
        f"chaos: runs={submitted} lost={found.lost} twice={found.twice} stuck={found.stuck} faults={chaos.faults.total()}"
    )
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
