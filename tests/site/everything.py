"""One row at least of everything that the API reads, and which of them its addresses name."""

import pytest
from cast import load
from searching import searched

from kernels.contract.profile import Profile, Timeline
from runs.models import Gpu, Import, KernelProfile, MailChoice, Notice, Session, Share, StatusPage, Submission, Webhook
from runs.models.notice import Event, Kind

SOURCE = """from kernels.catalog import kernel

@kernel("swish", backend="pytorch")
def mine(x):
    return x * x.sigmoid()
"""
PROFILE = Profile(key="k", kernel="sdpa", timeline=Timeline(call_ns=2.0, enqueue_ns=1.0))
NUMBERED = {"/devices/": "device", "/sessions/": "session", "/imports/": "import", "/search": "search"}
"""Addresses whose number is not that of the run."""


@pytest.fixture
def stored(exported, cpu, gpu, configs, owner):
    """Something of everything."""
    Gpu.objects.filter(pk=cpu.pk).update(no_submissions="")
    run = load(exported, "api")
    one, _ = Submission.objects.store({"mine.py": SOURCE})
    measurement = run.measurements.first()
    result = measurement.results.first()
    KernelProfile.objects.create(run=run, result=result, body=PROFILE.model_dump(mode="json"), table="aten::mm")
    session = Session.objects.create(title="Faster than SDPA", objective="1.10x", user=owner.user)
    imported = Import.objects.create(
        name="theirs.csv", format="rows", rows=3, refused=1, refusals=[["row 2", "no time"]]
    )
    Notice.objects.give(Event.RUN, "1", "Run 1 is done.", run.get_absolute_url(), run, {"state": "done"})
    Webhook.make(owner.user, "https://hooks.example.org/x", [Kind.RECORD])
    MailChoice.objects.create(user=owner.user, kinds=[Kind.RUN])
    Share.objects.all().make(owner.user, page=StatusPage.objects.create(title="Wall", body=[["devices", "*"]]))
    Share.objects.all().make(owner.user, run=run)
    known = {"pk": run.pk, "before": run.pk, "after": run.pk, "operation": "attention", "name": "sdpa"}
    known |= {"key": measurement.workload.key, "mode": measurement.mode, "result": result.pk}
    known |= {"session": session.pk, "import": imported.pk, "search": searched(gpu, owner.user).pk}
    return known | {"version": one.version, "device": cpu.pk}


def named(address, known):
    """The rows that an address of the document names: parameter -> value."""
    for place, name in NUMBERED.items():
        known = known | ({"pk": known[name]} if place in address else {})
    return known | ({"name": "smoke"} if "/configs/" in address else {})


def filled(address, known):
    return address.format(**named(address, known))


def operations(document):
    for address, methods in document["paths"].items():
        for method, one in methods.items():
            yield method, address, one
