"""What tests of the site are made of: people, catalogues, configs, exports."""

from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client

from kernels.contract.export import Export
from kernels.workload import Config
from runs.models import Measurement, Newest, Person, Result, Role, Run
from runs.pipeline import importer

SIZES = {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64}
NO_SPEEDUP = dict.fromkeys(("speedup", "speedup_low", "speedup_high"))


def signed_in(name, role=Role.ENGINEER):
    client = Client()
    client.user = User.objects.create(username=name)
    Person.objects.filter(user=client.user).update(role=role)
    client.user = User.objects.get(pk=client.user.pk)
    client.force_login(client.user)
    return client


def spec(*kernel_names, workloads=1, **more):
    """A config of so many workloads, or of these."""
    count = workloads if isinstance(workloads, int) else 0
    sizes = [SIZES | {"seq_len": 64 * number} for number in range(1, count + 1)] or workloads
    values = {"name": "typed", "operation": "attention", "kernels": ["sdpa", *kernel_names], "workloads": sizes}
    return Config(**values | more)


def shortened(data, count):
    """The same export with only its first workloads."""
    config = data["config"] | {"workloads": data["config"]["workloads"][:count]}
    return data | {"config": config, "measurements": data["measurements"][:count]}


def load(data, source):
    """An export, as the dict that its file holds, as a run of this site."""
    return importer.load(Export.model_validate(data), source)


def thorough(run, at=None, agreed=True):
    """Makes a stored run one of five processes, at this time. agreed: isolated measurements have confirmed it."""
    for one in run.measurements.all():
        one.protocol["processes"] = 5
        one.save(update_fields=["protocol"])
    rows = Result.objects.filter(measurement__run=run, status="ok")
    (rows if agreed else rows.filter(kernel__name=F("measurement__baseline"))).update(confirmed=True)
    if at:
        Run.objects.filter(pk=run.pk).update(started_at=at, created_at=at, finished_at=at)
    Newest.objects.filter(result__measurement__run=run).delete()
    for one in Measurement.objects.filter(run=run).select_related("run"):
        Newest.objects.note([one])
    return run
