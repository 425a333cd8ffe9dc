"""Tests have settings, a folder and a database of their own: a site that runs on this machine is not touched."""

import contextlib
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter

import django
import migrated
import pytest
from selection import PATIENCE, function_of, slow_tests

gc.disable()  # until the tests begin: it would take 5 of the 13 s in which they are collected

VAR = tempfile.mkdtemp(prefix="benchsite-tests-")
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "benchsite.settings",
    "BENCHSITE_VAR": VAR,
    "BENCHSITE_ENV": f"{VAR}/env",
    "SECRET_KEY": "only-for-tests",
    "DATABASE_URL": os.environ.get("TEST_DATABASE_URL") or f"sqlite:///{VAR}/site.sqlite3",
    "REDIS_URL": "redis://127.0.0.1:1/0",  # no broker answers there: a test that needs one starts its own
    "BENCHSITE_CPU_CACHE_MIB": "32",  # a host may have 480: half of the time of `make test` would be reading them
    "OMP_NUM_THREADS": "1",  # beside other tests, threads that wait for each other take a hundred times as long
}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
django.setup()

from django.db import connection  # noqa: E402  (needs the settings above)


def pytest_report_header():
    return f"database: {connection.vendor}"


@pytest.fixture(scope="session")
def django_db_keepdb(request, django_db_modify_db_settings):
    """The test database begins as a copy of the migrated one, where that is a file; what is missing in it is migrated."""
    name = connection.settings_dict["TEST"].get("NAME")
    if connection.vendor != "sqlite" or not name:
        return False
    shutil.copyfile(migrated.database(request.config.cache.mkdir("migrated")), name)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """The garbage collector does not look through what has been collected, and looks as often as in the web server."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure(config):
    shutil.rmtree(VAR, ignore_errors=True)
    if not hasattr(config, "workerinput"):
        tell_what_was_left(config)


# --- in which order, and beside whom ----------------------------------------------------------------------------------


def tests_of(folder, names):
    return tuple(f"tests/{folder}/test_{name}.py" for name in names.split())


MEASURED = "measure measure_outputs measure_without_reference formats tuning interrupted gate_snippet"
BROUGHT = "brought_gpu_mode brought_flashinfer brought_problems"
ROOMS = {
    "measurements": (
        *tests_of("library", MEASURED),
        *tests_of("instrument", f"template bench environments children hostile_answers workload_run {BROUGHT}"),
    ),
    "the zoo": tests_of("zoo", "zoo zoo_isolated numerics zoo_of_nsa"),
    "a site in a browser": tests_of(
        "browser",
        "main_job form navigation links submit client gate_snippets imports leaderboard results tables phones accessibility",
    ),
    "a site's processes": tests_of("pipeline", "recovery a_run cancel submitted from_git hosts"),
}
"""All begin first. Two measurements at once have a core each; more would disturb each other, and be taken again. The files of
the last two share a site, and wait longer than they work."""
AHEAD = {file: -5 for room in ("measurements", "the zoo") for file in ROOMS[room]}
"""The niceness of measurements: beside another test they have most of a core, and that one still goes on."""
OTHERS = ("postgres/test_on_postgres", "instrument/test_verify", "library/test_cli")
FIRST = (*(file for files in ROOMS.values() for file in files), *(f"tests/{name}.py" for name in OTHERS))


def file_of(nodeid):
    return nodeid.split("::", 1)[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_slow(items)
    place = {file: number for number, file in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(file_of(item.nodeid), len(FIRST)))
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE * limit.args[0]), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class Rooms(LoadFileScheduling):
        """A file at a time, but a room as one."""

        def _split_scope(self, nodeid):
            file = file_of(nodeid)
            return next((room for room, files in ROOMS.items() if file in files), file)

    return Rooms(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A measurement and the processes that it starts go before other tests, where this user may do that."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, AHEAD.get(file_of(item.nodeid), 0))


# --- what `make test` leaves to `make test-all` -----------------------------------------------------------------------

LEFT = pytest.StashKey[Counter]()
SLOW = "slow (tests/slow.txt); what another line says that `make test` has may be among them"


def mark_slow(items):
    """Where `thorough` has thinned the parameters of a test, the others stay."""
    thinned = {function_of(item.nodeid) for item in items if item.get_closest_marker("thorough")}
    slow = slow_tests().keys() - thinned
    for item in items:
        if function_of(item.nodeid) in slow and not item.get_closest_marker("journey"):
            item.add_marker("slow")


def pytest_configure(config):
    config.stash[LEFT] = Counter()


def pytest_deselected(items):
    for item in items:
        if marker := item.get_closest_marker("thorough"):
            item.config.stash[LEFT][marker.args[0]] += 1
        elif item.get_closest_marker("slow"):
            item.config.stash[LEFT][SLOW] += 1


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = dict(session.config.stash[LEFT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Each process has left the same tests."""
    node.config.stash[LEFT] |= Counter(getattr(node, "workeroutput", {}).get("left", {}))


def tell_what_was_left(config):
    left = config.stash.get(LEFT, Counter())
    if left:
        print(f"\n{left.total()} tests are left to make test-all:")
        for why, count in left.most_common():
            print(f"  {count:4} {why}")
