"""A real server that gets webhooks."""

import ipaddress
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


@pytest.fixture
def receiver(settings):
    """A real server on this machine; `status` is what it answers, `got` what it got."""
    settings.WEBHOOK_NETWORKS = LOOPBACK

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.got.append((self.path, dict(self.headers), body))
            time.sleep(self.server.delay_s)
            self.send_response(self.server.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.status, server.delay_s = [], 204, 0.0
    server.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
