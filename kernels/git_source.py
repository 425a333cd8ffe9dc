"""Where the files of a submission lie in a git repository: an address, a commit and a folder. Nothing is fetched here."""

from __future__ import annotations

import hashlib
import json
import os
import re
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

SOURCES_VARIABLE = "GIT_SOURCES"
"""Names the addresses that an agent fetches from: beginnings such as https://git.example.org/team/, with spaces between."""
SCHEMES = ("https", "ssh", "file", "http")
ADDRESS = re.compile(r"[a-z]+://[A-Za-z0-9@._~:/%+\-\[\]]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*){0,9}")
KERNEL = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
LONGEST = 500


class GitSource(BaseModel):
    """One kernel in a repository that the agent can reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    commit: str
    """All 40 digits: a branch would mean other files tomorrow."""
    folder: str = ""
    """Of the kernel's files; empty: the whole repository."""
    kernel: str
    """Its name, as its file declares it."""

    @field_validator("url")
    @classmethod
    def is_an_address(cls, url: str) -> str:
        parts = urlsplit(url) if len(url) <= LONGEST and ADDRESS.fullmatch(url) else None
        if parts is None or parts.scheme not in SCHEMES or not (parts.hostname or parts.scheme == "file"):
            raise ValueError(f"the address must begin with {', '.join(f'{one}://' for one in SCHEMES)}")
        if parts.password is not None or ":" in parts.netloc.rpartition("@")[0]:
            raise ValueError("the address must not contain a password: everybody here sees it")
        if ".." in unquote(parts.path).split("/"):
            raise ValueError("the address must not contain ..")
        return url

    @field_validator("commit")
    @classmethod
    def is_a_whole_commit(cls, commit: str) -> str:
        if not COMMIT.fullmatch(commit):
            raise ValueError("the commit must have all 40 hexadecimal digits: `git rev-parse HEAD` prints them")
        return commit

    @field_validator("folder")
    @classmethod
    def is_a_folder(cls, folder: str) -> str:
        if folder and (not FOLDER.fullmatch(folder) or len(folder) > LONGEST):
            raise ValueError("the folder must be a path such as kernels/gemm, of letters, digits and ._-")
        return folder

    @field_validator("kernel")
    @classmethod
    def is_a_name(cls, kernel: str) -> str:
        if not KERNEL.fullmatch(kernel):
            raise ValueError("the kernel's name must be of small letters, digits and -, as its file declares it")
        return kernel

    @property
    def sha256(self) -> str:
        """Of where the files lie. A commit names its contents."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    def why_not_from_here(self) -> str:
        """Why this host does not fetch it, as a sentence; empty if it does."""
        taken = os.environ.get(SOURCES_VARIABLE, "").split()
        if not taken:
            return f"This host takes no submissions from git repositories: {SOURCES_VARIABLE} is not set on it."
        if any(_begins(self.url, one) for one in taken):
            return ""
        return f"This host takes no submissions from {self.url}: {SOURCES_VARIABLE} on it names {', '.join(taken)}."


def _begins(url: str, beginning: str) -> bool:
    """Whether an address begins so, up to the end of a part: https://host/team is not the beginning of https://host/teams."""
    whole = beginning if beginning.endswith("/") else f"{beginning}/"
    return "://" in beginning and f"{url}/".startswith(whole)
