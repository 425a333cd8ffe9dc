"""The web server: half-sent requests hold connections, never a thread, and not for ever."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

from runs.hosting import addresses, web

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The web server as `make up` starts it; without static files every page is an error, but it is an answer."""
    (one,) = addresses.listening("127.0.0.1", 0)
    port, env = (
        one.getsockname()[1],
        os.environ | {"PYTHONPATH": str(ROOT), "BENCHSITE_VAR": str(tmp_path_factory.mktemp("var"))},
    )
    command = [sys.executable, "-m", "runs.hosting.web", str(one.fileno())]
    with subprocess.Popen(command, env=env, pass_fds=[one.fileno()], stderr=subprocess.DEVNULL) as process:
        one.close()
        deadline = time.monotonic() + 30
        while not addresses.page_answers("127.0.0.1", port):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield port
        process.send_signal(signal.SIGTERM)


HALVES = {
    "headers": b"GET / HTTP/1.1\r\nHost: x\r\nX-Half",
    "a body": b"POST /accounts/login/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nusername=",
    "nothing": b"",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_pages_answer_while_two_hundred_requests_are_half_sent(server, half):
    held = []
    try:
        for _ in range(200):
            held.append(socket.create_connection(("127.0.0.1", server), timeout=5))
            held[-1].sendall(half)
        begin = time.monotonic()
        for _ in range(8):
            assert addresses.page_answers("127.0.0.1", server)
        assert time.monotonic() - begin < 5
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * web.MOST_HEADER_BYTES + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", b"413"),
    ],
    ids=["headers", "body"],
)
def test_too_much_is_refused_before_it_is_read(server, request_, status):
    with socket.create_connection(("127.0.0.1", server), timeout=10) as client:
        client.sendall(request_)
        assert client.recv(64).split()[1] == status


def test_a_request_that_drips_is_closed_after_its_time(monkeypatch):
    """Each byte is activity: only the time of the whole request ends it."""
    monkeypatch.setattr(web, "REQUEST_S", 1.0)
    monkeypatch.setattr(web, "LOOK_EVERY_S", 0)

    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    (one,) = addresses.listening("127.0.0.1", 0)
    thread = threading.Thread(target=web.serve, args=(application, [one]), daemon=True)
    thread.start()
    quick = HTTPConnection(*one.getsockname(), timeout=10)
    with socket.create_connection(one.getsockname()) as slow:
        slow.settimeout(0.05)
        begin, answer, used = time.monotonic(), None, []
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        while answer is None and time.monotonic() - begin < 20:
            quick.request("GET", "/")
            assert quick.getresponse().read() == b"ok"
            used.append(quick.sock)
            try:
                slow.sendall(b"x")
                answer = slow.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                answer = b""
        assert answer == b""
        assert 1.0 <= time.monotonic() - begin < 10
    assert len(set(used)) == 1, "a connection that is used again and again stays"
    quick.close()
