"""Fetches the files of a submission from a git repository: one commit, nothing executed, nothing checked out.

No hooks, filters, links, submodules or credentials: objects are fetched into an empty repository and read from there.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

from kernels.contract.replies import printable
from kernels.git_source import GitSource
from kernels.host import processes
from kernels.host.scratch import Scratch
from kernels.submission import FILE_NAME, MAX_BYTES, MAX_FILES

FETCH_LIMIT_S, READ_LIMIT_S = 60.0, 20.0
MOST_BYTES = 64 * 2**20
"""Of the commit's files as git packs them."""
MOST_MEMORY = 2 * 2**30
MOST_TREE_BYTES = 8 * 2**20
OPTIONS = (
    "-c", "core.hooksPath=/dev/null", "-c", "fetch.fsckObjects=true", "-c", "credential.helper=", "-c", "gc.auto=0",
    "-c", "http.followRedirects=false", "-c", "submodule.recurse=false", "-c", "core.symlinks=false",
)  # fmt: skip
FILE, LINK, SUBMODULE = "100", "120000", "160000"
"""How modes of tree entries begin."""


class NotFetched(ValueError):
    """Why the files could not be fetched, as a sentence."""


def fetch(source: GitSource) -> dict[str, str]:
    """The files of the folder at the commit: name -> text. Raises NotFetched."""
    if why := source.why_not_from_here():
        raise NotFetched(why)
    scratch = Scratch()
    try:
        git = _Git(source, scratch.path)
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
                "--no-auto-gc", source.url, source.commit, limit_s=FETCH_LIMIT_S)  # fmt: skip
        return {name: git.text(name, sha) for name, sha in git.listed().items()}
    finally:
        scratch.remove()


class _Git:
    """Runs git in an empty repository, without this user's settings and with limits."""

    def __init__(self, source: GitSource, home: str) -> None:
        self.source, self.home = source, home
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LC_ALL": "C", "GIT_DIR": f"{home}/repository",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes",
            "GIT_ALLOW_PROTOCOL": source.url.partition("://")[0], "GIT_NO_LAZY_FETCH": "1",
        }  # fmt: skip
        for name in ("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def run(self, *arguments: str, limit_s: float = READ_LIMIT_S, most: int = MOST_TREE_BYTES) -> bytes:
        """The output of a command, at most so many bytes of it. Raises NotFetched."""
        out, err = Path(self.home, "out"), Path(self.home, "err")
        try:
            with open(out, "wb") as to, open(err, "wb") as errors:
                process = subprocess.Popen(
                    ["git", *OPTIONS, *arguments], env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL,
                    stdout=to, stderr=errors, start_new_session=True, preexec_fn=_limit,
                )  # fmt: skip
                try:
                    status = process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    raise self._failed(f"git took more than {limit_s:g} s") from None
                finally:
                    processes.end_group(process.pid)
                    process.wait()
        except FileNotFoundError:
            raise self._failed("git is not installed on this host") from None
        if status:
            raise self._failed(_reason(err, status))
        if out.stat().st_size > most:
            raise self._failed("it has too many files: name the folder of the kernel")
        return out.read_bytes()

    def listed(self) -> dict[str, str]:
        """The files of the folder: name -> object. Hidden files and submodules are left out."""
        where = f"{self.source.commit}:{self.source.folder}"
        found: dict[str, str] = {}
        total = 0
        for entry in self.run("ls-tree", "-r", "-l", "-z", "--full-tree", where).split(b"\0")[:-1]:
            head, _, raw = entry.partition(b"\t")
            mode, _, sha, size = head.decode().split()
            name = raw.decode("utf-8", "replace")
            if mode == SUBMODULE or any(part.startswith(".") for part in name.split("/")):
                continue
            if not mode.startswith(FILE):
                raise self._failed(f"{printable(name)[:100]} is a link, which is not followed")
            if not FILE_NAME.fullmatch(name):
                raise self._failed(f"the file name {name[:100]!r} is not valid: use letters, digits and ._-")
            found[name], total = sha, total + int(size)
            if len(found) > MAX_FILES or total > MAX_BYTES:
                limits = f"{MAX_FILES} files and {MAX_BYTES:,} bytes"
                raise self._failed(f"it has more than {limits}: name the folder of the kernel")
        if not found:
            raise self._failed("there is no file")
        return found

    def text(self, name: str, sha: str) -> str:
        try:
            return self.run("cat-file", "blob", sha, most=MAX_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise self._failed(f"{name} is not text in UTF-8") from None

    def _failed(self, why: str) -> NotFetched:
        place = f"{self.source.folder} of " if self.source.folder else ""
        return NotFetched(
            f"{place}{self.source.url} at {self.source.commit[:12]} cannot be fetched: {why.rstrip('.')}."
        )


def _limit() -> None:
    """In git's process: what it may write, take and leave."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(FETCH_LIMIT_S), int(FETCH_LIMIT_S)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reason(err: Path, status: int) -> str:
    """What git said last, in short."""
    said = printable(err.read_bytes()[-4000:].decode("utf-8", "replace"))
    lines = [line for line in said.splitlines() if line.startswith(("fatal: ", "error: ", "remote: "))]
    if "File too large" in said or "SIGXFSZ" in said or "signal 25" in said:
        return f"its files are larger than {MOST_BYTES // 2**20} MiB"
    return lines[-1].partition(": ")[2][:200] if lines else f"git ended with status {status}"
