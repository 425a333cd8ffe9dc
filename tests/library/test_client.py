"""The client alone: where it looks for a token, and that it gives it to nobody else."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kernels.cli import client


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
    assert "name that site with --site" in capsys.readouterr().err
    assert [path for path, _ in server.seen] == ["/api/runs?limit=20"]


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
    ],
)
def test_a_strange_answer_is_a_sentence(home, server, answer, status, capsys):
    client.keep(server.url, "bench_mine")
    server.answers["/api/runs"] = answer
    assert client.main(["runs", "list"]) == status
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said


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
