#!/usr/bin/env python3
"""Submits kernels to a Benchsite, and shows its runs. One file, Python 3.10 or newer, nothing to install.

    curl -O https://SITE/client.py
    python3 client.py login --site https://SITE
    python3 client.py submit my_kernel.py --gpu h200 --config canonical --wait
    python3 client.py submit --git https://git.example.org/kernels --commit SHA --operation attention --kernel mine
    python3 client.py runs list
    python3 client.py gate 12 --against best --max-regression 2% --until-decided 20
    python3 client.py gate after.json --against best --max-regression 2%

In a clone of Benchsite, `python -m kernels` in the place of `client.py` is the same.

The token comes from BENCHSITE_TOKEN, else from ~/.config/benchsite/tokens.json, where `login` keeps it. The site comes
from --site, else from BENCHSITE_SITE, else from the last login.

Exit status: 0 done (submit --wait: every result is correct; gate: it holds); 1 a result is not ok, or the run did not
end well (gate: it fails); 2 what was asked for cannot be done, the message says what to change (gate: it cannot tell);
3 the site cannot be reached; 4 no valid token; 130 interrupted (a run goes on);
141 nobody reads its output any more.
"""

from __future__ import annotations

import argparse
import base64
import getpass
import json
import math
import os
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNDECIDED = 2
"""Status of a gate that cannot tell."""
MOST_PROCESSES, MOST_MINUTES = 20, 1440
OK, NOT_OK, REFUSED, UNREACHABLE, NO_TOKEN, INTERRUPTED, CLOSED = 0, 1, 2, 3, 4, 130, 141
COMMANDS = ("submit", "runs", "login")
BEST = "best"
ONLY_OF_A_SITE = "--until-decided measures runs of a site again: give the numbers of runs"
NOT_JUDGED = ("source", "samples_ns")
"""Of a result: large, and without meaning for a gate."""
POLL_S, LIMIT_S = 0.7, 30.0
SELDOM_S = 10.0
"""Between lines of progress in a log."""
READS, WRITES = 5, 3
"""Times that a site is asked which is away for a moment."""
GOOD = ("ok", "unsupported")


class Failed(Exception):
    """Ends the command with a message and an exit status."""

    def __init__(self, message: str, status: int = REFUSED) -> None:
        super().__init__(message)
        self.status = status


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is sent to the site that was named, to no other."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        raise Failed(f"{req.full_url} redirects to {newurl}. Name that site with --site.", REFUSED)


class Site:
    """The API of one site."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address.rstrip("/"), token
        self.open = urllib.request.build_opener(NoRedirect).open

    def ask(self, path: str, body: Any = None, etag: str = "", key: str = "") -> tuple[Any, str]:
        """(answer, its ETag); the answer is None if nothing has changed. Raises Failed."""
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if key:
            headers["Idempotency-Key"] = key
        if etag:
            headers["If-None-Match"] = etag
        request = urllib.request.Request(f"{self.address}{path}", data, headers)
        try:
            with self.open(request, timeout=LIMIT_S) as answer:
                return json.load(answer), answer.headers.get("ETag", "")
        except urllib.error.HTTPError as error:
            if error.code == 304:
                return None, etag
            why = said(error)
            of_token = error.code in (401, 403) and not why.startswith("Not your run")
            raise Failed(why, NO_TOKEN if of_token else REFUSED) from None
        except ValueError:
            raise Failed(f"{self.address} is not a Benchsite site. Check the address.", UNREACHABLE) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Failed(f"{self.address} cannot be reached: {reason}", UNREACHABLE) from None

    def patiently(self, path: str, body: Any = None, etag: str = "") -> tuple[Any, str]:
        """As `ask`, but a site that is away for a moment is asked again. A write has a key, so that it is done once."""
        key = str(uuid.uuid4()) if body is not None else ""
        tries = WRITES if key else READS
        for number in range(tries):
            try:
                return self.ask(path, body, etag, key)
            except Failed as error:
                if error.status != UNREACHABLE or number == tries - 1:
                    raise
                time.sleep(2**number)
        return None, etag


def said(error: urllib.error.HTTPError) -> str:
    """The reason in an answer of application/problem+json."""
    try:
        body = json.load(error)
        return f"{body['title']}: {body['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"the site answered {error.code} {error.reason}"


# --- where the token is -----------------------------------------------------------------------------------------------


def token_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "benchsite" / "tokens.json"


def kept() -> dict[str, Any]:
    """{"site": the last one, "tokens": {site: token}}"""
    try:
        found = json.loads(token_file().read_text())
        return {"site": str(found.get("site", "")), "tokens": dict(found.get("tokens", {}))}
    except (OSError, ValueError, AttributeError, TypeError):
        return {"site": "", "tokens": {}}


def keep(site: str, token: str) -> None:
    """Stores a token so that only this user can read it."""
    path, all_of_them = token_file(), kept()
    all_of_them["site"] = site
    all_of_them["tokens"][site] = token
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(all_of_them, file)
    os.replace(fresh, path)


def address_of(arguments: argparse.Namespace) -> str:
    address = (arguments.site or os.environ.get("BENCHSITE_SITE") or kept()["site"]).rstrip("/")
    if not address:
        raise Failed("no site is given: use --site https://... or set BENCHSITE_SITE")
    if "://" not in address:
        address = f"https://{address}"
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed(f"{address} is not the address of a site, such as https://bench.example.org")
    return address


def site_of(arguments: argparse.Namespace) -> Site:
    address = address_of(arguments)
    token = os.environ.get("BENCHSITE_TOKEN") or kept()["tokens"].get(address)
    if not token:
        raise Failed(
            f"there is no token for {address}: make one at {address}/tokens/, then `login --site {address}`", NO_TOKEN
        )
    return Site(address, token.strip())


# --- commands ---------------------------------------------------------------------------------------------------------


def login(arguments: argparse.Namespace) -> int:
    address = address_of(arguments)
    if address.startswith("http://") and urllib.parse.urlsplit(address).hostname not in (
        "localhost",
        "127.0.0.1",
        "::1",
    ):
        print(f"note: {address} is not encrypted. Anyone who can read the traffic can read the token.", file=sys.stderr)
    prompt = f"Token of {address} (made at {address}/tokens/): "
    token = (getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not token:
        raise Failed("no token was given", NO_TOKEN)
    who, _ = Site(address, token).ask("/api/me")
    keep(address, token)
    print(f"{who['user']} at {address}, {'read, submit and cancel' if who['writes'] else 'read only'}, "
          f"until {who['expires_at'][:10]}")  # fmt: skip
    return OK


def submit(arguments: argparse.Namespace) -> int:
    kernel = in_git(arguments) if arguments.git else {"files": read_files(arguments.files)}
    if arguments.wait and not arguments.gpu:
        raise Failed("--wait waits for a run: name its device with --gpu")
    site = site_of(arguments)
    wanted = {name: getattr(arguments, name) for name in ("gpu", "config", "sweep", "effort", "message", "parent")}
    answer, _ = site.patiently("/api/submissions", kernel | {k: v for k, v in wanted.items() if v})
    print(f"{answer['kernel']}  {'stored' if answer['new'] else 'known already'}  {answer['url']}", flush=True)
    run = answer["run"]
    if not run:
        return OK
    print(f"run {run['id']} on {run['device']}", flush=True)
    status = OK
    if arguments.wait:
        status = watch(site, run["id"])
    print(run["url"])
    return status


def read_files(paths: list[Path]) -> dict[str, str]:
    """File name -> text. Raises Failed."""
    if not paths:
        raise Failed("which kernel? Give its file, or --git URL with --commit, --operation and --kernel")
    files: dict[str, str] = {}
    for path in paths:
        if path.name in files:
            raise Failed(f"two files are named {path.name}: the files of a submission have no folders")
        try:
            files[path.name] = tensors_of(path) if path.suffix == ".safetensors" else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"{path} cannot be read: {error}") from None
    return files


def tensors_of(path: Path) -> str:
    """A file of tensors as the site takes it."""
    return base64.b64encode(path.read_bytes()).decode()


def in_git(arguments: argparse.Namespace) -> dict[str, Any]:
    """A kernel in a repository that the agent fetches. Raises Failed."""
    if arguments.files:
        raise Failed("give files or --git, not both")
    needed = {name: getattr(arguments, name) for name in ("commit", "operation", "kernel")}
    if missing := [f"--{name}" for name, value in needed.items() if not value]:
        raise Failed(f"--git also needs {', '.join(missing)}")
    return {"git": {"url": arguments.git, "folder": arguments.folder} | needed}


def watch(site: Site, number: int) -> int:
    """Prints what a run does, then its table."""
    return ended(followed(site, number))


def followed(site: Site, number: int, until: float = math.inf) -> dict[str, Any]:
    """Prints what a run does, until it has ended. Raises TimeoutError at the time `until` of time.monotonic()."""
    etag, line, last = "", ProgressLine(), None
    try:
        while time.monotonic() < until:
            news, etag = site.patiently(f"/api/runs/{number}/progress", etag=etag)
            if last := news or last:
                line.show(last)
                if last["final"]:
                    return dict(last)
            time.sleep(POLL_S)
    finally:
        line.end()
    raise TimeoutError(f"run {number} has not ended in time")


class ProgressLine:
    """How far a run is. On a terminal it is one line, written anew. Elsewhere, as in a log of CI, a line is added when the state,
    the place in the queue or the number of measured workloads changes, and otherwise every SELDOM_S."""

    def __init__(self) -> None:
        self.is_live = sys.stdout.isatty()
        self.shown = ""
        self.step: tuple[Any, ...] = ()
        self.said_at = -math.inf

    def show(self, run: dict[str, Any]) -> None:
        now, step = progress_of(run), (run["state"], run["place"], run["done"])
        if now == self.shown:
            return
        if self.is_live:
            print(f"\r\033[K{now[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        elif step != self.step or time.monotonic() - self.said_at >= SELDOM_S:
            print(now, flush=True)
        else:
            return  # it is due later, unless something else is by then
        self.shown, self.step, self.said_at = now, step, time.monotonic()

    def end(self) -> None:
        if self.is_live and self.shown:
            print(flush=True)


def progress_of(run: dict[str, Any]) -> str:
    place = f", number {run['place']} in the queue" if run["place"] else ""
    return f"{run['state']}{place}, {run['done']} of {run['total']}  {run['progress']}".rstrip()


def ended(run: dict[str, Any]) -> int:
    """Prints the table of a run that has ended. Returns the exit status."""
    if run["text"]:
        print(f"\n{run['text']}\n")
    if run["message"]:
        print(run["message"])
    good = run["state"] == "done" and all(result["status"] in GOOD for result in run["results"])
    return OK if good else NOT_OK


def list_runs(arguments: argparse.Namespace) -> int:
    answer, _ = site_of(arguments).ask(f"/api/runs?limit={arguments.limit}")
    rows = [
        (str(r["id"]), r["state"], f"{r['measured']}/{r['workloads']}", r["device"], r["title"]) for r in answer["runs"]
    ]
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*rows, strict=False)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())
    return OK


def show(arguments: argparse.Namespace) -> int:
    site = site_of(arguments)
    if arguments.wait:
        status = watch(site, arguments.run)
        print(f"{site.address}/runs/{arguments.run}/")
        return status
    run, _ = site.ask(f"/api/runs/{arguments.run}/progress")
    print(f"{run['title']}\n{progress_of(run)} on {run['device']}")
    status = ended(run) if run["final"] else OK
    print(run["url"])
    return status


def cancel(arguments: argparse.Namespace) -> int:
    run, _ = site_of(arguments).patiently(f"/api/runs/{arguments.run}/cancel", {})
    print(run["said"])
    return OK


def compare(arguments: argparse.Namespace) -> int:
    answer, _ = site_of(arguments).ask(f"/api/compare/{arguments.before}...{arguments.after}")
    print(f"{answer['text']}\n{answer['url']}")
    return OK


def gate(arguments: argparse.Namespace) -> int:
    """The site's gate of a run or a file."""
    site, against = site_of(arguments), arguments.against
    if arguments.until_decided and not all(is_number(one) for one in [arguments.run, *against] if one != BEST):
        raise Failed(ONLY_OF_A_SITE)
    body = {"run": side(arguments.run), "against": BEST if against == [BEST] else [side(one) for one in against],
            "max_regression": arguments.max_regression, "kernels": arguments.kernel}  # fmt: skip
    answer, _ = site.patiently("/api/gate", body)
    if arguments.until_decided:
        answer = decided(site, body, answer, time.monotonic() + arguments.until_decided * 60)
    print(f"{answer['text']}\n{answer['url']}".rstrip())
    for path, content in ((arguments.md, answer["markdown"]), (arguments.junit, answer["junit"])):
        if path:
            path.write_text(content, encoding="utf-8")
    return int(answer["status"])


def is_number(given: str) -> bool:
    """Whether it is the number of a run of the site, not a file."""
    return given.isdecimal() and not Path(given).exists()


def needs_site(arguments: argparse.Namespace) -> bool:
    """Whether a gate is about a run of a site, not only about files."""
    given = [arguments.run, *arguments.against]
    return any(is_number(one) or (one == BEST and not Path(one).exists()) for one in given)


def side(given: str) -> int | dict[str, Any]:
    """A run of the site by its number, or an exported run without what the gate does not read. Raises Failed."""
    if is_number(given):
        return int(given)
    if given == BEST and not Path(given).exists():
        raise Failed("best stands alone after --against: it is all earlier runs of the site")
    try:
        export = json.loads(Path(given).read_text(encoding="utf-8"))
        export.pop("table", None)
        for arm in (arm for measured in export.get("measurements", []) for arm in measured["results"]):
            for name in NOT_JUDGED:
                arm.pop(name, None)
    except OSError as error:
        raise Failed(f"{given} is neither the number of a run nor a file: {error.strerror}") from None
    except (ValueError, AttributeError, KeyError, TypeError):
        raise Failed(
            f"{given} is not an exported run: write one with `run --json FILE`, or get the json of a run's page"
        ) from None
    return {"name": Path(given).name, "export": export}


def decided(site: Site, body: dict[str, Any], answer: dict[str, Any], until: float) -> dict[str, Any]:
    """The gate's answer after the run and those that it is compared with are measured again, with as many processes as would
    decide, until it is decided or the time is up. Raises Failed if a kernel's source is no longer what was measured."""
    processes = 0
    while answer["status"] == UNDECIDED:
        needed = max((row["processes"] or 0 for row in answer["rows"]), default=0)
        if not needed or processes == MOST_PROCESSES:
            print("More processes would not help." if needed else "The number of processes is not the reason.")
            return answer
        processes = min(MOST_PROCESSES, max(needed, processes + 1))
        earlier = {int(row["against"].removeprefix("run ")) for row in answer["rows"] if row["against"]}
        print(f"{answer['sentence']} Measuring with {processes} processes.", flush=True)
        again = {number: repeat(site, number, processes) for number in sorted({body["run"], *earlier})}
        try:
            for old, new in again.items():
                same_sources(site, old, followed(site, new, until))
        except TimeoutError:
            for number in again.values():
                site.patiently(f"/api/runs/{number}/cancel", {})
            print("The time is up: what was not measured yet is cancelled.")
            return answer
        body = body | {"run": again[body["run"]], "against": [again[number] for number in sorted(earlier)]}
        answer, _ = site.patiently("/api/gate", body)
    return answer


def repeat(site: Site, number: int, processes: int) -> int:
    """Queues the config of a run again on its device, measured in fresh processes. The number of the new run."""
    run, _ = site.patiently(f"/api/runs/{number}")
    config = run["config"] | {"protocol": run["config"]["protocol"] | {"processes": processes}}
    title = f"{run['title']}, {processes} processes"[:200]
    body = {
        "config": config,
        "gpu": run["environment"]["uuid"],
        "title": title,
        "note": f"For the gate: run {number} again.",
    }
    return int(site.patiently("/api/runs", body)[0]["id"])


def same_sources(site: Site, old: int, run: dict[str, Any]) -> None:
    """Raises Failed if the new run of an old one did not end well, or measured other sources."""
    if run["state"] != "done":
        raise Failed(f"run {run['id']}, which measures run {old} again, ended as {run['state']}: {run['message']}")
    before, _ = site.patiently(f"/api/runs/{old}/progress")
    sources = {(row["workload_key"], row["kernel"]): row["sha256"] for row in before["results"]}
    changed = {
        row["kernel"] for row in run["results"] if sources.get((row["workload_key"], row["kernel"])) != row["sha256"]
    }
    if changed:
        who = ", ".join(sorted(changed))
        raise Failed(
            f"the source of {who} is no longer what run {old} measured: submit both versions, or measure by hand"
        )


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text} is not a number of minutes up to {MOST_MINUTES}")
    return value


def share(text: str) -> float:
    """2% or 0.02"""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share such as 2%")
    return value


def site_option() -> argparse.ArgumentParser:
    option = argparse.ArgumentParser(add_help=False)
    option.add_argument("--site", default="", metavar="URL", help="the Benchsite, such as https://bench.example.org")
    return option


def gate_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("run", metavar="RUN|FILE", help="what to judge: the number of a run of the site, or a file that "
                     "`run --json` wrote")  # fmt: skip
    one.add_argument("--against", nargs="+", required=True, metavar="RUN|FILE", help="earlier runs; with several, each "
                     "kernel is compared with its best result; or `best`: all earlier runs of the site on the same card "
                     "with the same versions and workloads")  # fmt: skip
    one.add_argument(
        "--max-regression", type=share, required=True, metavar="SHARE", help="how much slower is allowed: 2%%"
    )
    one.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this kernel; may be repeated")
    one.add_argument("--until-decided", type=minutes, metavar="MINUTES", help="only for runs of a site: repeat the runs "
                     "with more processes until the gate can decide, for at most MINUTES")  # fmt: skip
    one.add_argument("--md", type=Path, metavar="FILE", help="write the table to FILE, as Markdown")
    one.add_argument("--junit", type=Path, metavar="FILE", help="write it to FILE, as JUnit XML")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=name_of(sys.argv[0]), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(required=True, metavar="submit | runs | gate | login")
    site = site_option()
    entering = commands.add_parser("login", parents=[site], help="store a token for a site")
    entering.set_defaults(do=login)
    sending = commands.add_parser("submit", parents=[site], help="send a kernel, and measure it")
    sending.add_argument("files", nargs="*", type=Path, metavar="FILE", help="the kernel's file, and those it imports")
    sending.add_argument("--git", default="", metavar="URL", help="instead of files: a repository that the agent fetches; with "
                         "--commit, --operation and --kernel")  # fmt: skip
    sending.add_argument("--commit", default="", metavar="SHA", help="all 40 digits")
    sending.add_argument("--folder", default="", help="folder of the kernel's files (default: the whole repository)")
    sending.add_argument("--operation", default="", help="operation of the kernel, such as attention")
    sending.add_argument("--kernel", default="", metavar="NAME", help="name of the kernel, as its file declares it")
    sending.add_argument("--gpu", default="", help="part of the device's name, such as h200; default: do not measure")
    sending.add_argument("--config", default="", help="workloads to measure (default: the operation's smallest config)")
    sending.add_argument("--sweep", action="append", metavar="SIZE=A,B", help="sizes instead of the config's; every combination "
                         "is measured; may be repeated")  # fmt: skip
    sending.add_argument("--effort", default="", help="quick (default), normal or thorough")
    sending.add_argument("--message", "-m", default="", help="what this version changes")
    sending.add_argument("--parent", default="", metavar="VERSION", help="submission that this version is based on")
    sending.add_argument("--wait", action="store_true", help="wait; show progress and table; exit status 1 if not ok")
    sending.set_defaults(do=submit)
    runs = commands.add_parser("runs", help="list, show, cancel and compare runs")
    of_runs = runs.add_subparsers(required=True, metavar="list | show | cancel | compare")
    listing = of_runs.add_parser("list", parents=[site], help="the newest runs")
    listing.add_argument("--limit", type=int, default=20)
    listing.set_defaults(do=list_runs)
    for name, does, what in (("show", show, "state and table of a run"), ("cancel", cancel, "stop a run")):
        one = of_runs.add_parser(name, parents=[site], help=what)
        one.add_argument("run", type=int)
        one.set_defaults(do=does)
        if name == "show":
            one.add_argument("--wait", action="store_true", help="wait until the run has ended")
    both = of_runs.add_parser("compare", parents=[site], help="what changed from one run to another")
    both.add_argument("before", type=int)
    both.add_argument("after", type=int)
    both.set_defaults(do=compare)
    gating = commands.add_parser("gate", parents=[site], help="fail if a run is slower than allowed")
    gate_options(gating)
    gating.set_defaults(do=gate)
    return top


def name_of(program: str) -> str:
    """What somebody types to run this."""
    return "python -m kernels" if Path(program).name == "__main__.py" else Path(program).name


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    return carry_out(arguments.do, arguments)


def closed() -> int:
    """The exit status where nobody reads the output any more, such as `runs list | head`. Nothing more is written there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED


def carry_out(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except Failed as error:
        print(f"{parser().prog}: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return closed()
    except KeyboardInterrupt:
        print("interrupted; a run that was started goes on", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
