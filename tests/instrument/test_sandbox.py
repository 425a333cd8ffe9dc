"""What gets through the airlock: as root, as an ordinary user, and as root without any right.

A host without namespaces closes less. Then what is open is named in the facts, and no submitted kernel is loaded there.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from selection import telling

from kernels.host import limits
from kernels.host.airlock import Facts, Spec
from kernels.host.containment import TRUST_VARIABLE, why_refused
from kernels.host.needed import hidden, readable
from kernels.host.view import closed_folders

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SECRET = "redis://:the-password@127.0.0.1:6379/0"
PERSON, CELL = 4242, 1_500_000_777
BECOMES_A_PERSON = """
import json, os, sys
from kernels.host.view import _show_only
from kernels.host.system import *
uid, closed, command = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
unshare(NEW_MOUNTS)
mount("none", "/", None, MS_REC | MS_PRIVATE)
for folder, inside in closed.items():
    _show_only(folder, inside)
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
os.execv(command[0], command)
"""
"""The interpreter of these tests may lie in a folder of root: a person gets a view in which they can enter it."""
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can try this as root and as others"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Secrets of a site as they lie on a host: files, environments, sockets, of the user `uid`."""
    folder = tmp_path_factory.mktemp("site")
    made = {"folder": folder}
    for above in (folder, *folder.parents):
        if not above.stat().st_mode & 1:
            above.chmod(above.stat().st_mode | 0o11)
    listening = socket.create_server(("127.0.0.1", 0))
    here = socket.socket(socket.AF_UNIX)
    here.bind(f"{folder}/broker.sock")
    here.listen()
    os.chmod(f"{folder}/broker.sock", 0o777)
    nameless = socket.socket(socket.AF_UNIX)
    name = f"benchsite-{secrets.token_hex(4)}"
    nameless.bind(f"\0{name}")
    nameless.listen()
    made |= {"port": listening.getsockname()[1], "socket": f"{folder}/broker.sock", "abstract": name}
    yield made
    for one in (listening, here, nameless):
        one.close()


def belongings(site, uid):
    """The state of a site that the user runs, and a process of it with the broker's address in environment and arguments."""
    folder = site["folder"] / str(uid)
    other_run = folder / "tmp" / "benchsite-other"
    for made in (folder / "var" / "agent", other_run):
        made.mkdir(parents=True, exist_ok=True)
    files = [
        folder / ".env",
        folder / "var" / "db.sqlite3",
        folder / "var" / "agent" / "journal.sqlite3",
        other_run / "mine.py",
    ]
    for file in files:
        file.write_text(SECRET)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid)
        path.chmod(0o755 if path.is_dir() else 0o600)
    (other_run / "mine.py").chmod(0o644)  # everybody may read it who knows the folder
    return folder, files


def attempt(site, user, fork=False, program=None):
    """(facts, what the hostile program says, whether a service lives on) behind the airlock, for an agent that is root, a
    person, or root without rights. program: what runs instead."""
    uid = PERSON if user == "a person" else 0
    folder, files = belongings(site, uid)
    scratch = site["folder"] / f"scratch-{secrets.token_hex(4)}"
    scratch.mkdir()
    runs_as = CELL if user == "root" else None
    os.chown(scratch, runs_as or uid, runs_as or uid)
    told = {"BROKER": SECRET, "DATABASE_URL": SECRET}
    service = subprocess.Popen(
        ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sleep", "300"],
        env=told | {"PATH": os.environ["PATH"]},
    )
    groups = limits.new_groups(secrets.token_hex(4)) if user != "a person" else []
    product = [
        str(ROOT / "kernels" / name) for name in ("sitecustomize.py", "host/airlock.py", "operations/attention/x.py")
    ]
    targets = {
        "secrets": [str(path) for path in files], "files": [*map(str, files), *product, "/tmp/left", "/dev/shm/left"],
        "folders": [str(folder), str(site["folder"]), "/root", "/home", "/tmp"], "pid": service.pid, "fork": fork,
        "port": site["port"], "socket": site["socket"], "abstract": site["abstract"],
    }  # fmt: skip
    read, write = os.pipe()
    spec = Spec(
        command=[sys.executable, *(program or [str(HERE / "hostile.py"), json.dumps(targets)])], scratch=str(scratch),
        readable=[*readable(), str(HERE / "hostile.py")], hidden=[*hidden(), str(folder)], uid=runs_as, facts_fd=write,
        groups=groups,
    )  # fmt: skip
    command = [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()]
    if user == "root without rights":
        command = [*WITHOUT_RIGHTS, *command]
    if user == "a person":
        closed = closed_folders([*spec.readable, sys.executable, str(ROOT), str(site["folder"])])
        command = [sys.executable, "-c", BECOMES_A_PERSON, str(PERSON), json.dumps(closed), *command]
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    try:
        done = subprocess.run(
            command, env=clean, cwd="/", pass_fds=[write], capture_output=True, text=True, timeout=120
        )
        alive = service.poll() is None
    finally:
        os.close(write)
        service.kill()
        service.wait()
        limits.remove(groups)
    with os.fdopen(read) as file:
        facts = file.read()
    assert done.returncode == 0, done.stderr
    return Facts.model_validate_json(facts), json.loads(done.stdout), alive


def hostile(site, user, fork=False):
    """The same of the hostile program, which would really do it where nothing holds it: so that is tried first."""
    facts, _, _ = attempt(site, user, program=["-c", "print([])"])
    must_contain(facts)
    return attempt(site, user, fork)


def must_contain(facts):
    if why := why_refused(facts):
        pytest.skip(f"this host cannot contain it, says so, and loads no submitted kernel: {why}")


@pytest.fixture(scope="module", params=["root", "a person"])
def found(request, site):
    os.environ.pop(TRUST_VARIABLE, None)
    facts, said, alive = hostile(site, request.param)
    return request.param, facts, said, alive


def test_no_secret_is_in_anything_that_it_can_read(found):
    _, facts, said, _ = found
    assert facts.own_proc, facts.missing
    assert "the-password" not in json.dumps(said)
    assert set(said["environment"]) <= {"LC_CTYPE", "PATH", "PYTHONPATH", "TMPDIR"}


def test_files_of_the_site_and_of_other_runs_are_not_there(found):
    _, _, said, _ = found
    assert set(said["read"].values()) == {"refused: FileNotFoundError"}
    of_the_site, around, *_ = said["list"].values()
    assert of_the_site == "refused: FileNotFoundError"
    assert len(around) == 1 and around[0].startswith("scratch-")
    of_the_product = ROOT.relative_to("/tmp").parts[:1] if ROOT.is_relative_to("/tmp") else ()
    assert all(path.startswith(("benchsite-", "pytest-", *of_the_product)) for path in said["list"]["/tmp"])


def test_it_writes_nowhere_but_into_its_scratch_folder(found):
    _, _, said, _ = found
    assert said["write"].pop("/dev/shm/left") == "wrote"  # its own, in memory
    assert all(what.startswith("refused: ") for what in said["write"].values()), said["write"]
    assert not Path("/dev/shm/left").exists()
    assert not (ROOT / "kernels" / "sitecustomize.py").exists()


def test_nothing_outside_answers_or_obeys(found):
    _, _, said, alive = found
    assert all(said[way].startswith("refused: ") for way in ("tcp", "socket", "abstract", "kill", "core pattern"))
    assert said["trace"] == -1 and alive
    assert all(value.startswith("refused: ") or value == "" for value in said["parent"].values())


def test_it_has_no_right_and_cannot_take_a_mask_away(found):
    user, facts, said, _ = found
    effective = next(line for line in said["rights"] if line.startswith("CapEff"))
    assert int(effective.split()[1], 16) == 0
    assert said["uid"] == (CELL if user == "root" else PERSON)
    assert facts.own_user == (user == "root") and facts.user_namespace == (user == "a person")
    assert all(what.startswith("refused: ") for what in said["unmask"])


def test_its_pipes_are_all_that_is_open(found):
    _, _, said, _ = found
    assert set(said["files"]) <= {"0", "1", "2", "3"}, "3 lists the folder"


def test_limits_hold(found):
    _, facts, said, _ = found
    assert said["limits"]["RLIMIT_NOFILE"] == [limits.OPEN_FILES] * 2 and said["opens"] < limits.OPEN_FILES
    assert said["limits"]["RLIMIT_NPROC"][1] <= limits.processes()
    assert said["limits"]["RLIMIT_CPU"][1] == 3600 * limits.CPU_HOURS * os.cpu_count()
    assert said["limits"]["RLIMIT_DATA"][1] <= limits.memory_bytes()
    assert said["limits"]["RLIMIT_CORE"] == [0, 0]
    assert said["raise a limit"] != 0
    assert facts.limited_scratch, facts.missing
    assert 0 < said["scratch"] <= limits.scratch_bytes()


@pytest.mark.parametrize("user", telling(["root", "a person"], "root", why="a person has fewer rights than root"))
def test_a_fork_bomb_is_bounded(site, user):
    _, said, _ = hostile(site, user, fork=True)
    assert 10 < said["forks"] <= limits.processes()


def test_root_without_rights_contains_nothing_and_says_so(site):
    program = "import json, resource; print(json.dumps([open('/proc/self/status').read(), resource.getrlimit(7)]))"
    facts, said, _ = attempt(site, "root without rights", program=["-c", program])  # the hostile one would really do it
    assert not (facts.own_user or facts.user_namespace or facts.read_only)
    why = why_refused(facts)
    assert "a user of its own" in why and "root without capabilities" in why
    assert "CapEff:\t0000000000000000" in said[0] and said[1] == [limits.OPEN_FILES] * 2


def test_a_group_of_a_killed_owner_is_removed_and_its_memory_was_limited(tmp_path):
    groups = limits.new_groups("of-a-test")
    if not groups:
        pytest.skip("this host lets nobody make a control group here")
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from kernels.host import limits; limits.join(sys.argv[2:])\n"
        "kept = bytearray(10**8); print('kept', flush=True); kept = None; os.write(1, open('/proc/self/cgroup','rb').read())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), *groups], capture_output=True, text=True)
    assert done.returncode == 0 and "benchsite-cell-" in done.stdout, done.stderr
    memory = [folder for folder in groups if "memory" in folder]
    for folder in memory:
        (Path(folder) / "memory.limit_in_bytes").write_text(str(5 * 10**7))
        done = subprocess.run([sys.executable, "-c", code, str(ROOT), *groups], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL and limits.ran_out_of_memory(groups)
    ended = subprocess.Popen(["true"])
    ended.wait()
    abandoned = [Path(folder).rename(Path(folder).with_name(f"{limits.PREFIX}{ended.pid}-x")) for folder in groups]
    limits.remove(limits.new_groups("again"))
    assert not [folder for folder in abandoned if folder.exists()]
