"""A whole site as `make up` starts it, and a real Chromium to use it with."""

import contextlib
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without what is around its pages: it takes half of the CPU time."""
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
START_LIMIT_S = 90


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser():
    if CHROMIUM is None:
        if "browser" in os.environ.get("BENCHSITE_REQUIRE", ""):
            pytest.fail("chromium is required here and is not installed")
        pytest.skip("no chromium on the PATH: apt-get install chromium-headless-shell")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=15_000)  # on a busy machine
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def is_fault(message) -> bool:
    """Errors on the console, but for htmx telling that a request was dropped because the page was left."""
    return message.type == "error" and not message.text.startswith(("htmx:sendAbort", "htmx:afterRequest"))


class LiveSite:
    """`manage.py up` with a folder, a port and an .env of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "up.log"
        inherited = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")}
        self.env = inherited | {
            "BENCHSITE_VAR": str(folder / "var"),
            "BENCHSITE_ENV": str(folder / "env"),
            "OMP_NUM_THREADS": "1",  # beside other tests, threads that wait for each other take a hundred times as long
            "TMPDIR": str(folder),
            "PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
        }
        self.process = self._start()
        self.password = re.search(r"password: (\S+)", self.log.read_text()).group(1)

    def _start(self) -> subprocess.Popen:
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while "Benchsite is at" not in self.log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"the site did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)
        return process

    def change(self, statement: str) -> None:
        """Of the database, beside the site."""
        with contextlib.closing(sqlite3.connect(f"{self.env['BENCHSITE_VAR']}/db.sqlite3", timeout=20)) as database:
            database.execute(statement)
            database.commit()

    def stop(self) -> int:
        """As Ctrl-C does; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


@pytest.fixture(scope="package")
def live_site(tmp_path_factory):
    """One for all these tests: no file may leave it other than it found it, but for runs, links and sessions."""
    site = LiveSite(tmp_path_factory.mktemp("up"))
    yield site
    if site.process.poll() is None:
        site.stop()


@pytest.fixture
def open_page(browser, live_site):
    """Opens pages as a person who has logged in; fails the test on a script error or a refused resource."""
    contexts = []

    def opener(**options):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True, **options)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("console", lambda message: page.faults.append(message.text) if is_fault(message) else None)
        page.goto(f"{live_site.url}/")
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", live_site.password)
        page.click("main button")
        contexts.append((context, page))
        return page

    yield opener
    for context, page in contexts:
        context.close()
        assert page.faults == []


@pytest.fixture
def token(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/tokens/")
    page.get_by_label("What it is for").fill("terminal")
    page.get_by_label("Rights").select_option("write")
    page.get_by_role("button", name="Create", exact=True).click()
    return page.get_by_label("The new token").input_value()


@pytest.fixture
def client(live_site, tmp_path):
    """client.py as it is downloaded, in a home of its own without this repository."""
    path = tmp_path / "client.py"
    path.write_bytes(urllib.request.urlopen(f"{live_site.url}/client.py", timeout=30).read())
    environment = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}

    def call(*arguments, given="", **more):
        return subprocess.run(
            [sys.executable, "-I", str(path), *map(str, arguments)],
            env=environment | more, input=given, capture_output=True, text=True, timeout=380, cwd=tmp_path, check=False,
        )  # fmt: skip

    call.folder, call.environment = tmp_path, environment
    return call
