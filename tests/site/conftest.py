"""A fixed cast (owner, member of the team, stranger), devices with their catalogues, and runs with real results."""

import copy
import uuid
from datetime import timedelta

import pytest
from cast import load, shortened, signed_in, spec
from django.test import Client
from django.utils import timezone
from everything import stored  # noqa: F401  (a fixture of all tests here)
from receiving import receiver  # noqa: F401
from shown import shown

from kernels import needs
from kernels.analysis.processes import with_process
from kernels.catalog import declared
from kernels.contract.environment import fingerprint
from kernels.contract.export import read_export
from runs.models import Config, Gpu, Role, Run
from runs.pipeline import importer


@pytest.fixture(autouse=True)
def own_cache(settings):
    """What is counted in a test, such as requests, is of this test and process alone."""
    name = f"test-{uuid.uuid4()}"
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": name}}


@pytest.fixture(autouse=True)
def plain_static_files(settings):
    """Addresses without hashes: nothing has been collected."""
    settings.STATIC_ROOT.mkdir(exist_ok=True)
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }


@pytest.fixture(autouse=True)
def pages_as_shown(monkeypatch):
    """Tests read a page without the white space that no browser shows: templates have one element a line."""
    request = Client.request

    def read(self, **environ):
        response = request(self, **environ)
        if not response.streaming and response.headers.get("Content-Type", "").startswith("text/html"):
            response.content = shown(response.content.decode()).encode()
        return response

    monkeypatch.setattr(Client, "request", read)


@pytest.fixture
def owner(db):
    """A client of the person whose runs they are."""
    return signed_in("olga")


@pytest.fixture
def member(db):
    """A client of somebody else of the team."""
    return signed_in("mats")


@pytest.fixture
def viewer(db):
    """A client of somebody who reads only."""
    return signed_in("vera", Role.VIEWER)


@pytest.fixture
def admin(db):
    """A client of an admin."""
    return signed_in("ada", Role.ADMIN)


@pytest.fixture
def stranger(db):
    """A client that is not logged in."""
    return Client()


HOST_TRITON = "3.6.0"
"""Of the hosts that report devices here, whatever is installed where the tests run: their kernels depend on it."""


@pytest.fixture
def make_gpu(db, monkeypatch):
    monkeypatch.setattr(needs, "_version", lambda package: HOST_TRITON if package == "triton" else None)
    monkeypatch.setattr(needs, "_is_installed", lambda package: True)

    def make(uuid="GPU-1", kind="cuda", name="NVIDIA H200", host="gpu-1", **more):
        capability = {"cuda": 9.0, "cpu": None}[kind]
        fields = {"capability": capability, "catalogue": declared(kind, capability), "seen_at": timezone.now()}
        return Gpu.objects.create(uuid=uuid, kind=kind, name=name, host=host, **fields | more)

    return make


@pytest.fixture
def gpu(make_gpu):
    return make_gpu()


@pytest.fixture
def cpu(make_gpu):
    return make_gpu("CPU-1", "cpu", "AMD EPYC", "web-1")


@pytest.fixture
def silent(make_gpu):
    """A device whose agent has not been heard for an hour."""
    return make_gpu("GPU-9", host="gpu-9", seen_at=timezone.now() - timedelta(hours=1))


@pytest.fixture
def configs(db):
    """The configs in kernels/configs/, as they are read at start."""
    Config.objects.read_files()
    return {config.name: config for config in Config.objects.all()}


@pytest.fixture
def typed(gpu, configs):
    """What a browser sends for a workload of one's own."""
    return {
        "operation": "attention", "device": str(gpu.pk), "what": "workload", "batch": "1, 4", "heads": "8",
        "kv_heads": "", "seq_len": "512", "head_dim": "64", "dtype": ["float16"], "causal": "no",
        "scale": "", "window": "", "kv_len": "",
        "kernels": ["sdpa", "eager"], "protocol": "paired", "title": "My title", "note": "my note", "config": "smoke",
    }  # fmt: skip


@pytest.fixture
def chosen(typed):
    """What a browser sends for a config."""
    return typed | {
        "what": "config",
        "config": "canonical-s512",
        "batch": "",
        "heads": "",
        "seq_len": "",
        "head_dim": "",
    }


@pytest.fixture
def make_run(owner, gpu):
    """A run as the form submits it, then moved on by hand."""

    def make(config=None, gpu=gpu, user=owner.user, title="A run", device_name="", note="", **state):
        run = Run.objects.submit(
            config or spec("eager"), gpu=gpu, user=user, title=title, device_name=device_name, note=note, wake=False
        )
        Run.objects.filter(pk=run.pk).update(**state)
        run.refresh_from_db()
        return run

    return make


@pytest.fixture(scope="session")
def exported():
    """A run of 8 workloads and 8 kernels as it was measured on an H200, as this version exports it."""
    export = read_export(next(importer.folder().glob("h200-*.json")).read_bytes())
    measurements = [with_process(measured, export.environment["device"]) for measured in export.measurements]
    return export.model_copy(update={"measurements": measurements}).model_dump(mode="json", by_alias=True)


@pytest.fixture
def demo(exported, db):
    return load(exported, "h200.json")


@pytest.fixture
def no_results(make_run):
    """A run that failed before anything was measured."""
    return make_run(state=Run.State.FAILED, message="The GPU fell off the bus.")


@pytest.fixture
def measured(exported, gpu):
    """Stores an export as a run of this site's device. edit: kernel -> how many times as fast it has become, by new lines."""

    def make(count=2, edit=None, on=gpu, **environment):
        data = copy.deepcopy(shortened(exported, count))
        data["environment"] |= environment
        data["fingerprint"] = fingerprint(data["environment"])
        for m in data["measurements"]:
            for result in m["results"]:
                if factor := (edit or {}).get(result["kernel"]):
                    result["sha256"] = f"{result['kernel']} times {factor}"
                    result["source"] = result["source"].replace("import torch\n", f"import torch\n# now {factor}\n", 1)
                    result |= {name: factor * result[name] for name in ("speedup", "speedup_low", "speedup_high")}
        run = load(data, "x.json")
        Run.objects.filter(pk=run.pk).update(demo="", gpu=on)
        run.refresh_from_db()
        return run

    return make
