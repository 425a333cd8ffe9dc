"""A real git repository, and a real server of it: git's own `http-backend` on a port of this machine."""

import os
import subprocess
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PERSON = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
PERSON |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"}


def git(folder, *arguments):
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | PERSON, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Repository:
    """A repository with a work tree."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        git(folder, "init", "-q", "-b", "main")

    def commit(self, files=None, links=None) -> str:
        """Writes files (name -> text or bytes) and links (name -> target); returns the commit."""
        for name, content in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        for name, target in (links or {}).items():
            (self.folder / name).symlink_to(target)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "a change")
        return git(self.folder, "rev-parse", "HEAD")


@contextmanager
def serving(root: Path, port: int = 0, dumb: bool = False):
    """Serves the repositories below a folder over http; yields the server, whose `url` is its address and `asked` what it
    was asked for. dumb: as files, without git's own protocol."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self):
            self.server.asked.append(self.path)
            if self.server.held.wait(0) is False and self.server.holds:
                self.server.held.wait(60)
            if self.server.moved:
                self.send_response(302)
                self.send_header("Location", self.server.moved + self.path)
                self.end_headers()
            elif dumb:
                self._file()
            else:
                self._backend()

        do_POST = do_GET

        def _file(self):
            path = root / self.path.partition("?")[0].lstrip("/")
            self.send_response(200 if path.is_file() else 404)
            self.end_headers()
            if path.is_file():
                self.wfile.write(path.read_bytes())

        def _backend(self):
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = {
                "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
                "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_LENGTH": str(len(body)), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            }  # fmt: skip
            done = subprocess.run(["git", "http-backend"], input=body, env=os.environ | said, capture_output=True)
            head, _, answer = done.stdout.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
            self.send_response(int(lines.pop("Status", "200").split()[0]))
            for name, value in lines.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # git has gone
                self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.asked, server.moved, server.holds, server.held = [], "", False, threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.held.set()
        server.shutdown()
        server.server_close()
