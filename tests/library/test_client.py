"""The client alone: where it looks for a token, and that it gives it to nobody else."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kernels.cli import client
from runs.api.bodies import GitIn


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("BENCHSITE_TOKEN", "BENCHSITE_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def server():
    """A site that answers each path with (status, headers, body), and remembers what it was sent."""
    answers, seen = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            status, headers, body = answers.get(self.path.partition("?")[0], (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *arguments):
            pass

    one = HTTPServer(("127.0.0.1", 0), Handler)
    one.answers, one.seen, one.url = answers, seen, f"http://127.0.0.1:{one.server_port}"
    threading.Thread(target=one.serve_forever, daemon=True).start()
    yield one
    one.shutdown()
    one.server_close()


def test_a_redirect_is_not_followed_with_the_token(home, server, monkeypatch, capsys):
    monkeypatch.setenv("BENCHSITE_TOKEN", "bench_secret")
    server.answers["/api/runs"] = (302, {"Location": f"{server.url}/elsewhere"}, b"")
    assert client.main(["runs", "list", "--site", server.url]) == client.REFUSED
    assert "Name that site with --site" in capsys.readouterr().err
    assert [path for path, _ in server.seen] == ["/api/runs?limit=20"]


def rounds(state="running", done=0, at=range(60)):
    place = 1 if state == "queued" else None
    return [{"state": state, "place": place, "done": done, "total": 2, "progress": f"w mine round {n}"} for n in at]


@pytest.mark.parametrize("is_live", [False, True])
def test_progress_is_one_line_on_a_terminal_and_few_lines_in_a_log(monkeypatch, capsys, is_live):
    seconds = iter(range(1000))
    monkeypatch.setattr(client.time, "monotonic", lambda: next(seconds) / 4)
    monkeypatch.setattr(client.sys.stdout, "isatty", lambda: is_live, raising=False)
    line = client.ProgressLine()
    for run in [*rounds("queued", at=[0]), *rounds(), *rounds(done=1), *rounds("done", 2, at=[0])]:
        line.show(run)
    line.end()
    said = capsys.readouterr().out
    assert "queued, number 1 in the queue, 0 of 2" in said and "running, 1 of 2  w mine round 0" in said
    if is_live:
        assert said.count("\n") == 1 and said.count("\r\033[K") == 122
    else:
        assert said.splitlines()[-1].startswith("done, 2 of 2") and 6 <= len(said.splitlines()) <= 12, said


def test_what_a_log_left_out_is_said_later_although_nothing_is_new(monkeypatch, capsys):
    """A long step after a quick one: the log would name the quick one until the long one ends."""
    seconds = iter(range(1000))
    monkeypatch.setattr(client.time, "monotonic", lambda: next(seconds))
    line = client.ProgressLine()
    for run in [*rounds(at=[0]), *[rounds(at=[1])[0]] * 12]:
        line.show(run)
    assert [said.split()[-1] for said in capsys.readouterr().out.splitlines()] == ["0", "1"]


def test_a_token_is_given_to_the_site_that_it_is_of(home, server):
    client.keep("http://other.example", "bench_other")
    assert client.main(["runs", "list", "--site", server.url]) == client.NO_TOKEN
    assert server.seen == []
    client.keep(server.url, "bench_mine")
    server.answers["/api/runs"] = (200, {}, json.dumps({"runs": []}).encode())
    assert client.main(["runs", "list"]) == client.OK
    assert server.seen == [("/api/runs?limit=20", "Bearer bench_mine")]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((200, {}, b"<html>"), client.UNREACHABLE),
        ((500, {}, b"oops"), client.REFUSED),
        ((401, {}, b'{"title": "The token is not valid", "detail": "x"}'), client.NO_TOKEN),
        ((403, {}, b"[]"), client.NO_TOKEN),
        ((403, {}, b'{"title": "Not your run", "detail": "x"}'), client.REFUSED),
    ],
)
def test_a_strange_answer_is_a_sentence(home, server, answer, status, capsys):
    client.keep(server.url, "bench_mine")
    server.answers["/api/runs"] = answer
    assert client.main(["runs", "list"]) == status
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said


def test_a_submission_that_would_lose_a_file_or_measure_nothing_is_refused(home, server, tmp_path, capsys):
    """Two files of one name left one; --wait without a device waited for nothing and said that all is right."""
    client.keep(server.url, "bench_mine")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.py").write_text("x = 1")
    assert client.main(["submit", str(tmp_path / "a/k.py"), str(tmp_path / "b/k.py")]) == client.REFUSED
    assert "two files are named k.py" in capsys.readouterr().err
    assert client.main(["submit", str(tmp_path / "a/k.py"), "--wait"]) == client.REFUSED
    assert "--wait waits for a run: name its device with --gpu" in capsys.readouterr().err
    assert server.seen == []


def test_messages_begin_with_what_was_typed():
    assert client.name_of("/x/kernels/__main__.py") == "python -m kernels"
    assert client.name_of("/home/me/client.py") == "client.py"


def test_a_gate_ends_with_the_status_that_the_site_says_and_writes_its_files(home, server, tmp_path, capsys):
    client.keep(server.url, "bench_mine")
    for status in (0, 1, 2):
        said = {"status": status, "text": "table", "url": "link", "markdown": "**m**", "junit": "<x/>"}
        server.answers["/api/gate"] = (200, {}, json.dumps(said).encode())
        files = ["--md", str(tmp_path / "g.md"), "--junit", str(tmp_path / "g.xml")]
        assert client.main(["gate", "7", "--against", "best", "--max-regression", "2%", *files]) == status
        assert capsys.readouterr().out == "table\nlink\n"
        assert ((tmp_path / "g.md").read_text(), (tmp_path / "g.xml").read_text()) == ("**m**", "<x/>")
    assert client.main(["gate", "x", "--against", "best", "--max-regression", "2%"]) == client.REFUSED


def test_a_write_to_a_site_that_is_away_is_sent_again_with_the_same_key(home, monkeypatch):
    keys, answers = [], iter([client.Failed("away", client.UNREACHABLE), ({"id": 1}, "")])

    def ask(self, path, body=None, etag="", key=""):
        keys.append(key)
        if isinstance(one := next(answers), client.Failed):
            raise one
        return one

    monkeypatch.setattr(client.Site, "ask", ask)
    monkeypatch.setattr(client.time, "sleep", lambda seconds: None)
    assert client.Site("http://x", "t").patiently("/api/runs", {})[0] == {"id": 1}
    assert len(keys) == 2 and keys[0] and keys[0] == keys[1]


COMMIT = "0123456789" * 4
IN_GIT = ["--git", "https://git.example/k", "--commit", COMMIT, "--operation", "swish", "--kernel", "mine"]


def test_a_kernel_in_git_is_named_and_not_read(home, monkeypatch, capsys):
    asked = []
    monkeypatch.setenv("BENCHSITE_TOKEN", "bench_mine")

    def ask(site, path, body=None, etag="", key=""):
        asked.append((path, body))
        return {"kernel": "mine@1", "new": True, "url": "u", "run": None}, ""

    monkeypatch.setattr(client.Site, "ask", ask)
    assert client.main(["submit", *IN_GIT, "--folder", "fast", "--site", "http://127.0.0.1:9"]) == client.OK
    told = {"url": "https://git.example/k", "folder": "fast", "commit": COMMIT, "operation": "swish", "kernel": "mine"}
    assert asked == [("/api/submissions", {"git": told})]
    GitIn.model_validate(told)


@pytest.mark.parametrize(
    "argv, why",
    [
        ([], "which kernel? Give its file, or --git URL"),
        (IN_GIT[:4], "--git also needs --operation, --kernel"),
        (["mine.py", *IN_GIT], "give files or --git, not both"),
    ],
)
def test_what_is_missing_to_submit_is_said_before_anything_is_sent(home, argv, why, capsys):
    assert client.main(["submit", *argv]) == client.REFUSED
    assert why in capsys.readouterr().err


def test_a_file_of_tensors_is_sent_as_text(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"\xff\x00\x01")
    (tmp_path / "b.py").write_text("# one\n")
    assert client.read_files([tmp_path / "a.safetensors", tmp_path / "b.py"]) == {
        "a.safetensors": "/wAB",
        "b.py": "# one\n",
    }


def test_a_damaged_token_file_is_no_token(home):
    (home / "benchsite").mkdir()
    for text in ("{", "[]", '{"tokens": 3}'):
        (home / "benchsite" / "tokens.json").write_text(text)
        assert client.main(["runs", "list", "--site", "http://127.0.0.1:9"]) == client.NO_TOKEN


def test_the_client_needs_the_standard_library_only():
    import ast
    import sys
    from pathlib import Path

    tree = ast.parse(Path(client.__file__).read_text())
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


# --- until it is decided ----------------------------------------------------------------------------------------------


class Scripted:
    """A site whose gate cannot tell at first, and that measures at once."""

    def __init__(self, gates, sha="a", state="done", final=True):
        self.gates, self.sha, self.state, self.final = iter(gates), sha, state, final
        self.queued, self.gated, self.cancelled = [], [], []

    def __call__(self, site, path, body=None, etag="", key=""):
        if path == "/api/gate":
            self.gated.append((body["run"], body["against"]))
            return next(self.gates), ""
        if path == "/api/runs":
            self.queued.append((body["config"]["protocol"]["processes"], body["gpu"], body["title"]))
            return {"id": 100 + len(self.queued)}, ""
        number = int(path.split("/")[3])
        if path.endswith("/cancel"):
            self.cancelled.append(number)
            return {"said": "cancelled"}, ""
        if path.endswith("/progress"):
            sha = self.sha if number > 100 else "a"
            row = {"kernel": "mine", "workload_key": "k", "sha256": sha}
            return {
                "id": number, "state": self.state, "final": self.final or number < 100, "message": "", "place": None,
                "done": 1, "total": 1, "progress": "", "results": [row],
            }, ""  # fmt: skip
        return {
            "title": f"run {number}",
            "config": {"protocol": {"processes": 1}},
            "environment": {"uuid": "GPU-1"},
        }, ""


def said(status, processes=None):
    row = {"against": "run 7", "processes": processes}
    words = {"text": f"table {status}", "url": "link", "sentence": "The gate cannot tell.", "markdown": "", "junit": ""}
    return {"status": status, "rows": [row]} | words


def gated(home, monkeypatch, site, *more):
    client.keep("http://x", "bench_mine")
    monkeypatch.setattr(client.Site, "ask", site)
    monkeypatch.setattr(client.time, "sleep", lambda seconds: None)
    return client.main(["gate", "9", "--against", "7", "--max-regression", "2%", "--until-decided", *more])


def test_a_gate_that_cannot_tell_measures_both_runs_again_until_it_can(home, monkeypatch, capsys):
    scripted = Scripted([said(2, 3), said(2, 2), said(1)])
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "5") == 1
    assert [(processes, gpu) for processes, gpu, _ in scripted.queued] == [
        (3, "GPU-1"),
        (3, "GPU-1"),
        (4, "GPU-1"),
        (4, "GPU-1"),
    ]
    assert scripted.gated == [(9, [7]), (102, [101]), (104, [103])]
    assert "The gate cannot tell. Measuring with 3 processes." in capsys.readouterr().out


def test_what_more_processes_do_not_decide_is_not_measured_again(home, monkeypatch, capsys):
    scripted = Scripted([said(2)])
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "5") == 2
    assert scripted.queued == [] and "The number of processes is not the reason." in capsys.readouterr().out
    scripted = Scripted([said(2, 90), said(2, 90)])
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "5") == 2
    assert [processes for processes, _, _ in scripted.queued] == [20, 20]
    assert "More processes would not help." in capsys.readouterr().out


def test_another_source_decides_nothing(home, monkeypatch, capsys):
    """The kernel of a host's folder may have been edited since: its run of today says nothing of the earlier one."""
    scripted = Scripted([said(2, 3)], sha="b")
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "5") == 2
    assert "the source of mine is no longer what run 7 measured" in capsys.readouterr().err


def test_a_run_that_ends_badly_and_a_time_that_is_up_are_said(home, monkeypatch, capsys):
    scripted = Scripted([said(2, 3)], state="failed")
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "5") == 2
    assert "which measures run 7 again, ended as failed" in capsys.readouterr().err
    scripted = Scripted([said(2, 3)], final=False)
    assert gated(home, monkeypatch, lambda *a, **k: scripted(*a, **k), "0.001") == 2
    assert scripted.cancelled == [101, 102] and "The time is up" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gated(home, monkeypatch, scripted, "-1")


def test_a_reader_that_has_seen_enough_gets_no_traceback():
    """`runs list | head` ended with one. The status is not 0, which would say that a gate holds."""
    code = "from kernels.cli.client import carry_out\nimport sys\n"
    code += "sys.exit(carry_out(lambda _: print('\\n'.join('run ' * 9 for _ in range(99_999))) or 0, None))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(20) == client.CLOSED == 141
