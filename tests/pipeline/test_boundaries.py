"""What may import what: seen from a fresh Python, in sys.modules. No processes of the site."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(60)
WALK = """
import importlib, pkgutil, sys
def walk(package, skip):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not skip(module.name) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
SITE = "import django; django.setup();"


def imported(code, **env):
    """The top-level names that are in sys.modules after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"],
        env=os.environ | env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_benchmark_library_never_imports_django():
    """Every module of it, kernels but for those of other devices too."""
    code = WALK + "walk('kernels', lambda name: name.count('.') > 2 or name == 'kernels.tuning.optuna_study')"
    found = imported(code + "\nfrom kernels.catalog import get_kernel, load\nload(get_kernel('attention', 'eager'))")
    assert {"kernels", "torch"} <= found
    assert not {"django", "celery", "redis", "runs", "benchsite"} & found


def test_optuna_comes_only_when_a_search_asks_for_it_and_brings_neither_django_nor_torch():
    """Where redis is installed, Optuna imports it for storages that are not used here."""
    assert "optuna" not in imported("import kernels.cli.main, kernels.tuning.of_spec, runs.agent.execution")
    found = imported("import kernels.tuning.optuna_study")
    assert "optuna" in found
    assert not {"django", "celery", "runs", "benchsite", "torch"} & found


def test_recorder_worker_and_beat_start_without_pages_and_charts():
    """Celery's check of all addresses would import them: each of the three would take twice as long to start."""
    code = (
        "import benchsite.celery as site\nsite.app.loader.import_default_modules()\nassert 'record' in site.app.tasks"
    )
    found = imported(f"{code}\nassert 'runs.urls' not in sys.modules", SECRET_KEY="only-to-import")
    assert "django" in found
    assert not {"altair", "pandas", "ninja"} & found


def test_operations_and_the_catalogue_are_read_without_torch():
    found = imported("from kernels.catalog import operations, kernels\nassert operations() and kernels()")
    assert "kernels" in found
    assert not {"torch", "triton"} & found


def test_the_parent_of_a_measurement_never_imports_torch():
    assert not {"torch", "triton"} & imported(
        "import kernels.parent.supervisor, kernels.report, kernels.parent.child_process"
    )


def test_no_module_of_the_site_imports_torch():
    """Every one, but the agent's own: CUDA does not survive a fork."""
    found = imported(WALK + SITE + "walk('runs', lambda name: name.startswith('runs.agent')); import benchsite.urls")
    assert {"runs", "django"} <= found
    assert not {"torch", "triton"} & found


def test_the_celery_workers_of_the_site_do_not_import_torch():
    found = imported(
        "from benchsite.celery import app; app.loader.import_default_modules(); assert 'record' in app.tasks"
    )
    assert {"celery", "django"} <= found
    assert not {"torch", "triton"} & found


AGENT = {"BROKER": "redis://127.0.0.1:1/0", "DEVICE": "cpu"}


def test_the_agent_needs_neither_django_nor_torch(tmp_path):
    """Its host may not have them: as here, where to import them fails. (Kombu looks for Django by itself.)"""
    absent = ("django", "environ", "torch", "triton")
    code = f"sys.modules |= dict.fromkeys({absent})\nimport runs.agent.worker, runs.agent.__main__"
    found = imported(code, BENCHSITE_VAR=str(tmp_path), **AGENT)
    assert {"celery", "kernels"} <= found
    assert "psycopg" not in found


def test_the_agent_asks_for_a_broker_in_a_sentence(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "REDIS_URL"} | {"BENCHSITE_VAR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import runs.agent.worker"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode != 0
    assert "set BROKER" in done.stderr
    assert "Traceback" not in done.stderr


def test_only_one_file_of_the_site_reads_results_from_rows():
    """What pages, charts, exports and commands show comes from runs/queries/measurements.py, points of many runs from
    point_rows.py, and what stands beside a line of them from line_rows.py. The recorder writes. A search finds row ids, in
    results.py and words.py, and of records in week.py; newest.py keeps those of the newest, and confirmed.py which are
    confirmed; their results are read there, too. tallies.py counts them. keeping.py deletes raw samples."""
    rows = re.compile(r"^from runs\.models(\.measurement)? import .*\b(Result|Measurement)\b", re.MULTILINE)
    readers = {str(path.relative_to(ROOT)) for path in ROOT.glob("runs/**/*.py") if rows.search(path.read_text())}
    assert readers == {
        "runs/queries/measurements.py",
        "runs/queries/line_rows.py",
        "runs/queries/point_rows.py",
        "runs/queries/results.py",
        "runs/queries/tallies.py",
        "runs/queries/week.py",
        "runs/queries/words.py",
        "runs/pipeline/confirmed.py",
        "runs/pipeline/keeping.py",
        "runs/pipeline/store.py",
        "runs/pipeline/recorder.py",
        "runs/models/__init__.py",
        "runs/models/newest.py",
        "runs/admin.py",
    }
