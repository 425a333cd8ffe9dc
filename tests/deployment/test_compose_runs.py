"""The exact commands of docker-compose.yml, as plain processes against this host's PostgreSQL, Redis and Caddy.

What differs from containers: addresses and folders are this host's (`Deployment.here`), and users are not changed.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, HTTPSHandler, Request, build_opener

import pytest
from compose import ROOT, check_words, read, stages, words
from postgres_server import postgres
from selection import PATIENCE

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.thorough("the commands of docker-compose.yml as processes, from form to result"),
    pytest.mark.timeout(480),
]
OURS = ("web", "recorder", "worker", "beat", "agent")
PARTS = ("redis", "web", "recorder", "worker", "beat", "agent", "front")


def eventually(check, within, what):
    deadline = time.monotonic() + within
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.2)
    return answer


def quiet_ports(count):
    """Free ports below those that the system gives to connections: they are still free when a part starts, a minute later."""
    found = []
    while len(found) < count:
        port = random.randrange(12_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


class Deployment:
    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        names = ("redis", "web", "front", "http", "https", "health")
        self.ports = dict(zip(names, quiet_ports(len(names)), strict=True))
        self.address = f"https://localhost:{self.ports['front']}"
        self.services = read(SITE_URL=self.address)["services"]
        self.processes, self.logs = {}, {}
        for name in ("data", "site", "agent", "tmp"):
            (folder / name).mkdir()
        text = (ROOT / "deploy/redis.conf").read_text()
        (folder / "redis.conf").write_text(self.here(text.replace("port 6379", f"port {self.ports['redis']}")))

    def here(self, text):
        """A text of the file with this host's addresses and folders."""
        for there, here in {
            "/run/secrets": f"{self.folder}/secrets",
            "/etc/redis.conf": f"{self.folder}/redis.conf",
            "dir /data": f"dir {self.folder}/data",
            "redis://redis:6379": f"redis://127.0.0.1:{self.ports['redis']}",
            "@postgres:5432": f"@127.0.0.1:{self.server.port}",
            "0.0.0.0 8000": f"127.0.0.1 {self.ports['web']}",
            "127.0.0.1:8081": f"127.0.0.1:{self.ports['health']}",
            "web:8000": f"127.0.0.1:{self.ports['web']}",
            "redis-cli": f"redis-cli -p {self.ports['redis']}",
            "/etc/caddy/Caddyfile": f"{ROOT}/deploy/Caddyfile",
            "/tmp/beat": f"{self.folder}/beat",
        }.items():
            text = text.replace(there, here)
        return text

    def environment(self, name):
        """What the file gives it, and nothing of this shell's but what a container has, too."""
        given = {key: self.here(value) for key, value in self.services[name].get("environment", {}).items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self.server.programs), os.environ["PATH"]])
        own = {"PATH": path, "HOME": str(self.folder), "OMP_NUM_THREADS": "1", "BENCHSITE_ENV": f"{self.folder}/none"}
        own |= {"TMPDIR": f"{self.folder}/tmp"}  # a container has its own: locks of devices are there
        own |= {"XDG_DATA_HOME": f"{self.folder}/caddy", "PYTHONWARNINGS": "ignore:You're running the worker"}
        own |= {"HTTP_PORT": str(self.ports["http"]), "HTTPS_PORT": str(self.ports["https"])}
        own |= {"HEALTH_PORT": str(self.ports["health"]), "PORT": str(self.ports["web"]), "PGHOST": "127.0.0.1"}
        var = self.folder / ("agent" if name == "agent" else "site")
        return own | {"PGPORT": str(self.server.port), "BENCHSITE_VAR": str(var)} | given

    def command(self, name):
        one = self.services[name]
        given = one.get("command") or json.loads(dict(stages()[one["build"]["target"]])["CMD"])
        return words(self.here(given)) if isinstance(given, str) else [self.here(word) for word in given]

    def to_the_end(self, name, command=None):
        done = subprocess.run(
            command or self.command(name), env=self.environment(name), cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name):
        self.logs[name] = self.folder / f"{name}.log"
        with open(self.logs[name], "ab") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), env=self.environment(name), cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self, name, number=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            process.wait(20 * PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)

    def is_well(self, name):
        """Its health check, as the file has it."""
        command = [self.here(word) for word in check_words(self.services[name])]
        done = subprocess.run(command, env=self.environment(name), cwd=ROOT, capture_output=True)
        return done.returncode == 0

    def lines(self, name):
        return [json.loads(line) for line in self.logs[name].read_text().splitlines()]


class Visitor:
    """A browser of a sort: cookies, TLS of a certificate that nobody knows."""

    def __init__(self, address):
        self.address, self.cookies = address, CookieJar()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.opener = build_opener(HTTPCookieProcessor(self.cookies), HTTPSHandler(context=context))

    def get(self, path, data=None, **headers):
        """(status, text, headers, final address)"""
        body = urlencode(data, doseq=True).encode() if data else None
        headers |= {"Referer": self.address} if data else {}
        try:
            with self.opener.open(Request(self.address + path, body, headers), timeout=30) as found:
                return found.status, found.read().decode(), found.headers, found.url
        except HTTPError as error:
            return error.code, error.read().decode(), error.headers, error.url

    def post(self, path, **data):
        _, page, _, _ = self.get(path)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[1]
        return self.get(path, data | {"csrfmiddlewaretoken": token})


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    for program, package in (("redis-server", "redis-server"), ("caddy", "caddy")):
        if not shutil.which(program):
            if "caddy" in os.environ.get("BENCHSITE_REQUIRE", ""):
                pytest.fail(f"{program} is required here and is not installed")
            pytest.skip(f"no {program} here: apt-get install {package}")
    folder = tmp_path_factory.mktemp("deployment")
    subprocess.run([ROOT / "deploy/secrets.sh", folder / "secrets"], check=True, capture_output=True)
    with postgres(folder / "secrets/database_password") as server:
        address = server.url.replace("postgres://", "postgresql://")
        env = os.environ | {"PGPASSWORD": (folder / "secrets/database_password").read_text()}
        subprocess.run(["psql", "-q", address, "-c", "CREATE DATABASE benchsite"], env=env, check=True)
        one = Deployment(folder, server)
        try:
            yield one
        finally:
            with ExitStack() as last:  # the broker last: workers wait for it
                for name in sorted(one.processes, key=PARTS.index):
                    last.callback(one.stop, name)


@pytest.fixture(scope="module")
def site(deployment):
    """Everything, started in the order of the file; the address, and the first user's password."""
    assert deployment.is_well("postgres")
    said = deployment.to_the_end("setup")
    assert not (deployment.folder / "none").exists(), "it wrote an .env: a container's files are read-only"
    deployment.password = re.search(r"First user: admin, password: (\S+)", said)[1]
    for name in PARTS:
        assert not deployment.is_well(name), f"{name} is well before it has started"
        deployment.start(name)
        if name in ("redis", "web"):
            eventually(lambda part=name: deployment.is_well(part), 60, f"{name} is well")
    for name in PARTS:
        eventually(lambda part=name: deployment.is_well(part), 90, f"{name} is well")
    return deployment


@pytest.fixture(autouse=True)
def logs_of_what_failed(deployment, request):
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        for name, path in deployment.logs.items():
            print(f"--- {name}\n{path.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def visitor(site):
    one = Visitor(site.address)
    status, _, _, url = one.post("/accounts/login/", username="admin", password=site.password)
    assert status == 200 and url == f"{site.address}/"
    return one


def test_the_front_speaks_tls_and_closes_cookies(site, visitor):
    status, _, headers, url = Visitor(f"http://localhost:{site.ports['http']}").get("/")
    assert status == 200 and url.startswith(f"{site.address}/accounts/login/"), "http leads to https"
    assert headers["Strict-Transport-Security"] == "max-age=31536000"
    assert {cookie.name: cookie.secure for cookie in visitor.cookies} == {"csrftoken": True, "sessionid": True}


def test_everybody_may_ask_how_it_is_and_only_the_token_opens_metrics(site):
    stranger = Visitor(site.address)
    status, text, _, _ = stranger.get("/healthz")
    said = json.loads(text)
    assert status == 200 and set(said["parts"].values()) == {"up"} and "agent-1" in said["parts"], text
    assert stranger.get("/metrics")[0] == 403
    token = (site.folder / "secrets/metrics_token").read_text()
    status, text, _, _ = stranger.get("/metrics", Authorization=f"Bearer {token}")
    assert status == 200 and 'benchsite_up{part="recorder"} 1.0' in text


def test_a_run_goes_from_the_form_to_its_result_and_every_log_says_its_number(site, visitor):
    status, page, _, _ = visitor.get("/runs/new/")
    device = re.search(r'name="device"[^>]*value="(\d+)"|<option value="(\d+)"', page)
    chosen = {"device": next(filter(None, device.groups())), "what": "config", "operation": "attention"}
    chosen |= {"config": "smoke", "kernels": ["sdpa", "eager"], "protocol": "fixed", "title": "deployed"}
    status, page, _, url = visitor.post("/runs/new/", **chosen)
    found = re.search(r"/runs/(\d+)/$", url)
    assert status == 200 and found, page[-2000:]
    run = int(found[1])
    rows = lambda: json.loads(visitor.get(f"/runs/{run}.json")[1])  # noqa: E731
    ended = eventually(lambda: (one := rows()).get("state") in ("done", "failed") and one, 400, f"run {run} ends")
    assert ended["state"] == "done", ended
    of_run = {name: [one for one in site.lines(name) if one.get("run") == run] for name in OURS}
    assert of_run["web"][0]["message"] == "submitted" and of_run["web"][0]["request"]
    assert any(one["message"].startswith("sent to") for one in of_run["worker"])
    assert {"running", "done"} <= {one["message"] for one in of_run["recorder"]}
    told = [one["message"] for one in of_run["agent"]]
    assert told[0] == "began" and told[-1] == "ended: done"
    assert any(one.get("child") and one["part"] == "agent-cpu" for one in of_run["agent"]), "the measuring process"


def test_every_line_is_json_and_no_line_has_a_secret(site, visitor):
    secrets = [path.read_text() for path in (site.folder / "secrets").iterdir()]
    for name in (*OURS, "front"):
        assert all(isinstance(line, dict) for line in site.lines(name))
        assert not any(secret in site.logs[name].read_text() for secret in secrets)


def test_no_process_shows_a_secret_to_who_may_list_processes(site):
    secrets = [path.read_bytes() for path in (site.folder / "secrets").iterdir()]
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        assert not any(secret in line for secret in secrets), line


def test_a_backup_is_made_where_the_site_runs(site, tmp_path):
    command = ["python", "manage.py", "backup", str(tmp_path / "backup")]
    assert "MiB" in site.to_the_end("web", command)


def test_the_broker_is_down_and_everything_comes_back(site, visitor):
    """SIGKILL, and its append-only file brings it back; a run is submitted while it is away."""
    site.stop("redis", signal.SIGKILL)
    status, text, _, _ = Visitor(site.address).get("/healthz")
    assert status == 503 and json.loads(text)["parts"]["broker"] == "down: it does not answer"
    assert not site.is_well("redis") and not site.is_well("recorder") and site.is_well("web")
    site.start("redis")
    eventually(lambda: Visitor(site.address).get("/healthz")[0] == 200, 90, "all is well again")
