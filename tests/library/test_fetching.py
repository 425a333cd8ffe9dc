"""A submission that lies in a git repository: which addresses an agent takes, and what it takes from them."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from git_server import Repository, git, serving
from pydantic import ValidationError

from kernels.git_source import SOURCES_VARIABLE, GitSource
from kernels.submission import MAX_BYTES, Submission, version_of
from kernels.workload import Config, RunSpec
from runs.agent import fetching
from runs.agent.fetching import NotFetched, fetch
from runs.agent.submitted import submitted

KERNEL = """from kernels.catalog import kernel

@kernel("swish", backend="pytorch")
def mine(x):
    return x * x.sigmoid()
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "team" / "kernels")


@pytest.fixture
def server(tmp_path, monkeypatch):
    with serving(tmp_path) as made:
        monkeypatch.setenv(SOURCES_VARIABLE, f"{made.url}/team/ file://{tmp_path}/team")
        yield made


def source(server, commit, folder="", url="/team/kernels/.git", kernel="mine"):
    return GitSource(url=server.url + url, commit=commit, folder=folder, kernel=kernel)


def refused(wanted, why):
    with pytest.raises(NotFetched, match=why) as found:
        fetch(wanted)
    said = str(found.value)
    assert said.endswith(".") and "\n" not in said and len(said) < 400
    return said


# --- what may be asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["git@host:team/kernels.git", "ftp://host/x", "/srv/git", "--upload-pack=touch", "https://a:b@host/x", "https:///x",
     "https://host/a b", "https://host/x\n", "ext::sh -c touch", "file:///srv/git/../secret", "https://host/%2e%2e/x", "",
     "https://host/$(id)", "https://host/" + "x" * 600],
)  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValidationError, match="the address must"):
        GitSource(url=url, commit=COMMIT, kernel="mine")


@pytest.mark.parametrize("commit", ["main", "0123456", COMMIT.upper(), COMMIT + "0", "--all", COMMIT + "\n"])
def test_a_commit_is_all_of_its_digits(commit):
    with pytest.raises(ValidationError, match="all 40 hexadecimal digits"):
        GitSource(url="https://host/x", commit=commit, kernel="mine")


@pytest.mark.parametrize("folder", ["/etc", "../x", "a/../b", ".git", "a//b", "-x", "a b", ":(glob)**"])
def test_a_folder_lies_in_the_repository(folder):
    with pytest.raises(ValidationError, match="the folder must be a path"):
        GitSource(url="https://host/x", commit=COMMIT, folder=folder, kernel="mine")


@pytest.mark.parametrize(
    ("taken", "url", "takes"),
    [
        ("", "https://git.example.org/team/x", False),
        ("https://git.example.org/team", "https://git.example.org/team/x.git", True),
        ("https://git.example.org/team", "https://git.example.org/teams/x.git", False),
        ("https://git.example.org", "https://git.example.org.evil.org/x", False),
        ("https://git.example.org/", "http://git.example.org/x", False),
        ("https://", "https://anywhere.org/x", True),
        ("https", "https://anywhere.org/x", False),
        ("file:///srv/git/ ssh://git@host/", "ssh://git@host/x", True),
        ("file:///srv/git/", "file:///srv/gitlab/x", False),
    ],
)
def test_the_owner_of_a_host_names_what_it_takes(monkeypatch, taken, url, takes):
    monkeypatch.setenv(SOURCES_VARIABLE, taken)
    why = GitSource(url=url, commit=COMMIT, kernel="mine").why_not_from_here()
    assert (why == "") == takes
    assert takes or (why.startswith("This host takes no submissions from ") and SOURCES_VARIABLE in why)


def test_files_come_with_a_submission_or_from_a_repository():
    git_source = GitSource(url="https://host/x", commit=COMMIT, kernel="mine")
    with pytest.raises(ValidationError, match="not both"):
        Submission(operation="swish", files={"mine.py": KERNEL}, git=git_source)
    with pytest.raises(ValidationError, match="there is no file"):
        Submission(operation="swish")
    one = Submission(operation="swish", git=git_source)
    other = Submission(operation="swish", git=git_source.model_copy(update={"folder": "other"}))
    assert one.version != other.version and len(one.version) == 10


def test_an_agent_that_does_not_know_repositories_is_sent_the_field_only_if_it_says_something():
    def sent(one, kernel):
        config = Config(name="t", operation="swish", kernels=["eager", kernel], protocol={"isolated": True},
                        workloads=[{"rows": 8, "cols": 8}])  # fmt: skip
        return RunSpec.of(config, "CPU-1", submissions=[one]).as_message()

    plain = Submission(operation="swish", files={"mine.py": KERNEL})
    assert "git" not in sent(plain, f"mine@{plain.version}")["submissions"][0]
    there = Submission(operation="swish", git=GitSource(url="https://host/x", commit=COMMIT, kernel="mine"))
    message = sent(there, f"mine@{there.version}")
    assert RunSpec(**message).submissions == [there] and message["submissions"][0]["git"]["commit"] == COMMIT


# --- what is fetched --------------------------------------------------------------------------------------------------


def test_the_files_of_a_commit_are_fetched_not_those_of_a_later_one(repository, server):
    first = repository.commit({"mine.py": KERNEL, "notes/read.md": "old\n", ".gitignore": "x\n"})
    repository.commit({"mine.py": "x = 1\n"})
    assert fetch(source(server, first)) == {"mine.py": KERNEL, "notes/read.md": "old\n"}
    assert any("git-upload-pack" in path for path in server.asked)


def test_a_folder_of_a_large_repository(repository, server):
    commit = repository.commit({"a/b/mine.py": KERNEL, "large.bin": os.urandom(3 * MAX_BYTES), "a/other.py": "x"})
    assert fetch(source(server, commit, "a/b")) == {"mine.py": KERNEL}
    refused(source(server, commit), "name the folder of the kernel")
    refused(source(server, commit, "no/such"), "cannot be fetched")


def test_a_repository_on_a_disk_of_the_host(repository, server, tmp_path):
    commit = repository.commit({"mine.py": KERNEL})
    there = GitSource(url=f"file://{tmp_path}/team/kernels", commit=commit, kernel="mine")
    assert fetch(there) == {"mine.py": KERNEL}
    with serving(tmp_path) as other:
        refused(source(other, commit), "This host takes no submissions from")
        assert not other.asked, "nobody is called"


def test_nothing_of_a_repository_is_executed(repository, server, tmp_path, monkeypatch):
    """Neither hooks nor filters nor settings of the user who runs the agent."""
    left = tmp_path / "left"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[core]\n\tfsmonitor = "touch {left}"\n[url "ext::touch {left} "]\n\tinsteadOf = http\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home))
    files = {
        "mine.py": KERNEL,
        ".gitattributes": "*.py filter=evil\n",
        "hooks/post-checkout": f"#!/bin/sh\ntouch {left}\n",
    }
    commit = repository.commit(files)
    assert fetch(source(server, commit)) == {name: text for name, text in files.items() if name[0] != "."}
    assert not left.exists()


def test_submodules_are_left_out(repository, server, tmp_path):
    other = Repository(tmp_path / "team" / "other")
    other.commit({"secret.py": "x"})
    git(repository.folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.folder), "sub")
    commit = repository.commit({"mine.py": KERNEL})
    assert fetch(source(server, commit)) == {"mine.py": KERNEL}
    assert not [path for path in server.asked if "other" in path]


def test_a_link_is_not_followed(repository, server):
    commit = repository.commit({"mine.py": KERNEL}, links={"passwords.py": "/etc/passwd"})
    refused(source(server, commit), "passwords.py is a link, which is not followed")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"mine.py": KERNEL, "odd name.py": "x"}, "the file name 'odd name.py' is not valid"),
        ({"mine.py": KERNEL, "picture.png": b"\x89PNG\xff\xfe"}, "picture.png is not text in UTF-8"),
        ({f"file{number}.py": "x" for number in range(60)}, "more than 50 files"),
        ({"large.py": "x" * (MAX_BYTES + 1)}, "1,000,000 bytes"),
        ({".hidden": "x"}, "there is no file"),
    ],
    ids=["name", "binary", "many", "large", "none"],
)
def test_what_is_no_submission_is_said(repository, server, files, why):
    refused(source(server, repository.commit(files)), why)


def test_a_commit_or_a_repository_that_is_not_there(repository, server):
    repository.commit({"mine.py": KERNEL})
    assert "at 0123456789ab cannot be fetched" in refused(source(server, COMMIT), "not our ref|not found|could not")
    refused(source(server, COMMIT, url="/team/none.git"), "cannot be fetched: .*not found")


def test_a_server_without_gits_protocol_is_refused_with_a_sentence(repository, tmp_path, monkeypatch):
    commit = repository.commit({"mine.py": KERNEL})
    git(repository.folder, "update-server-info")
    with serving(tmp_path, dumb=True) as made:
        monkeypatch.setenv(SOURCES_VARIABLE, f"{made.url}/")
        refused(source(made, commit), "cannot be fetched")


def test_a_redirect_is_not_followed(repository, server, tmp_path):
    commit = repository.commit({"mine.py": KERNEL})
    with serving(tmp_path) as elsewhere:
        server.moved = elsewhere.url
        refused(source(server, commit), "cannot be fetched")
        assert not elsewhere.asked


def test_a_repository_that_is_too_large_ends_early_and_leaves_nothing(repository, server, monkeypatch, tmp_path):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(fetching, "MOST_BYTES", 2**20)
    commit = repository.commit({"mine.py": KERNEL, "large.bin": os.urandom(8 * 2**20)})
    refused(source(server, commit), "cannot be fetched")
    assert not list((tmp_path / "scratch").iterdir())


def test_a_server_that_does_not_answer_holds_nobody(repository, server, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_LIMIT_S", 2.0)
    commit = repository.commit({"mine.py": KERNEL})
    server.holds = True
    began = time.monotonic()
    refused(source(server, commit), "git took more than 2 s")
    assert time.monotonic() - began < 10


# --- what becomes of them ---------------------------------------------------------------------------------------------


def as_submission(server, commit, kernel="mine", operation="swish"):
    return Submission(operation=operation, git=source(server, commit, kernel=kernel))


def test_fetched_files_lie_where_measuring_processes_find_them_and_their_hash_is_told(repository, server):
    from kernels import catalog

    one = as_submission(server, repository.commit({"mine.py": KERNEL, "by.py": "x = 1\n"}))
    name = f"mine@{one.version}"
    with submitted([one]) as told:
        info = catalog.get_kernel("swish", name)
        assert Path(info.path).read_text() == KERNEL and (Path(info.path).parent / "by.py").exists()
        assert told == {name: version_of({"mine.py": KERNEL, "by.py": "x = 1\n"})}
    assert not Path(info.path).exists()


@pytest.mark.parametrize(
    ("kernel", "operation", "why"),
    [
        ("other", "swish", "declare swish/mine, not swish/other. Use that name."),
        ("mine", "gelu", "declare swish/mine, not gelu/mine. Use that name."),
    ],
)
def test_files_of_another_kernel_than_the_named_one_are_refused(repository, server, kernel, operation, why):
    one = as_submission(server, repository.commit({"mine.py": KERNEL}), kernel, operation)
    with pytest.raises(NotFetched, match=why), submitted([one]):
        pass


def test_files_without_a_kernel_are_refused_with_the_reason(repository, server):
    one = as_submission(server, repository.commit({"mine.py": "x = 1\n"}))
    with pytest.raises(NotFetched, match="are not a kernel: no file declares a kernel"), submitted([one]):
        pass
