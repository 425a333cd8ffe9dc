"""What can be done: submit a kernel or a config, tune, cancel, import. Each as its form does it."""

from __future__ import annotations

import io
import json
from typing import Any

from django.forms import Form
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from ninja import Path
from pydantic import ValidationError

from kernels.catalog import PROBLEM, UnknownName, operations
from kernels.foreign.claimed import NotReadable
from kernels.formats.adding import read
from kernels.git_source import GitSource
from kernels.submission import Unreadable
from runs.access import person
from runs.api import bodies, schemas
from runs.api.access import WRITING
from runs.api.answers import once
from runs.api.problems import Problem
from runs.api.routes import ROUTER, answers
from runs.forms import NewRunForm
from runs.models import Config, Run, Submission
from runs.models.person import owns
from runs.pipeline.importer import import_claims
from runs.protocol_fields import protocol_choice
from runs.submission_form import as_sentence
from runs.submitting import NotSubmitted, config_for, device_for, start_run
from runs.tune_form import TuneForm
from runs.views import new, runs
from runs.views.imports import MOST_ROWS
from runs.views.run import get_run

__all__ = ["ROUTER"]

FIELDS = {"device": "gpu", "yaml": "config", "__all__": "config"}
"""Fields of the pages' forms that have other names here."""


def done(schema: Any) -> dict[Any, Any]:
    return answers(schema, 400, 403, 409, 413) | {201: schema}


@ROUTER.post("/submissions", response=done(schemas.Submitted), tags=["kernels"], **WRITING)
def submit(request: HttpRequest, sent: bodies.SubmissionIn) -> HttpResponse:
    """Stores a kernel and, with a gpu, queues its run."""
    return once(request, request.user, lambda: _submitted(request, sent))


def _submitted(request: HttpRequest, sent: bodies.SubmissionIn) -> tuple[int, Any]:
    parent = None
    if sent.parent:
        parent = Submission.objects.filter(sha256__startswith=sent.parent.rpartition("@")[2]).first()
        if parent is None:
            raise Problem(422, "Wrong field", f"There is no submission {sent.parent[:80]}.", field="parent")
    try:
        gpu = device_for(sent.gpu) if sent.gpu else None
        user, run = person(request), None
        told: dict[str, Any] = {"user": user, "message": sent.message.strip(), "parent": parent}
        if not sent.git and not sent.files:
            raise Problem(422, "No kernel", "Send files, or git.", field="files")
        if sent.git:
            one, new_one = Submission.objects.store_git(_source(sent), sent.git.operation, **told)
        else:
            one, new_one = Submission.objects.store_read(read(sent.files), **told)
        if gpu is not None:
            run = start_run(
                one, gpu, config_for(one, sent.config, sent.effort, sweep=sent.sweep), user=user, note=sent.note
            )
    except NotSubmitted as error:
        raise Problem(422, "Not submitted", str(error), field=FIELDS.get(error.field, error.field)) from None
    except (Unreadable, UnknownName) as error:
        raise Problem(422, "No kernel", as_sentence(error), field="git" if sent.git else "files") from None
    body = {
        "submission": one.version, "kernel": one.kernel, "operation": one.operation, "new": new_one,
        "url": request.build_absolute_uri(one.get_absolute_url()), "run": _line(request, run) if run else None,
    }  # fmt: skip
    return (201 if new_one or run else 200), body


def _source(sent: bodies.SubmissionIn) -> GitSource:
    """Where the files of a submission lie."""
    assert sent.git is not None
    if sent.files:
        raise Problem(422, "Wrong field", "Send files or git, not both.", field="git")
    if sent.git.operation == PROBLEM:
        why = (
            "A kernel with its own problem cannot be submitted from a repository. The name of its workload comes from "
            "the problem's files, and the site does not read repositories. Send the files."
        )
        raise Problem(422, "Wrong field", why, field="git.operation")
    if sent.git.operation not in operations():
        listed = ", ".join(operations())
        raise Problem(422, "Wrong field", f"There is no such operation; there are {listed}.", field="git.operation")
    try:
        return GitSource.model_validate(sent.git.model_dump(exclude={"operation"}))
    except ValidationError as error:
        first = error.errors()[0]
        why = as_sentence(first["ctx"]["error"])
        raise Problem(422, "Wrong field", why, field=f"git.{first['loc'][0]}") from None


def _line(request: HttpRequest, run: Run) -> dict[str, Any]:
    return runs.records(request, Run.objects.for_list().filter(pk=run.pk))[0]


@ROUTER.post("/runs", response=done(schemas.RunLine), tags=["runs"], **WRITING)
def start(request: HttpRequest, sent: bodies.RunIn) -> HttpResponse:
    """Queues a run of a config."""
    return once(request, request.user, lambda: _started(request, sent))


def _started(request: HttpRequest, sent: bodies.RunIn) -> tuple[int, Any]:
    try:
        gpu = device_for(sent.gpu)
    except NotSubmitted as error:
        raise Problem(422, "Not submitted", str(error), field="gpu") from None
    values = QueryDict(mutable=True)
    for name, value in {"device": str(gpu.pk), "title": sent.title, "note": sent.note, **_config(sent)}.items():
        values.setlist(name, value if isinstance(value, list) else [value])
    form = NewRunForm(values)
    if not form.is_valid():
        raise _wrong(form)
    return 201, _line(request, new.submit(form, request))


@ROUTER.post("/searches", response=done(schemas.RunLine), tags=["runs"], **WRITING)
def search(request: HttpRequest, sent: bodies.SearchIn) -> HttpResponse:
    """Queues a search for the best settings of a kernel that declares a space."""
    return once(request, request.user, lambda: _searched(request, sent))


def _searched(request: HttpRequest, sent: bodies.SearchIn) -> tuple[int, Any]:
    try:
        gpu = device_for(sent.gpu)
    except NotSubmitted as error:
        raise Problem(422, "Not submitted", str(error), field="gpu") from None
    form = TuneForm(sent.model_dump(exclude={"gpu"}) | {"device": str(gpu.pk)})
    if not form.is_valid():
        raise _wrong(form)
    run = Run.objects.submit(form.spec, gpu=form.gpu, user=person(request), tune=form.plan)
    return 201, _line(request, run)


def _wrong(form: Form) -> Problem:
    """The first fault of a page's form."""
    name, said = next((name, str(said[0])) for name, said in form.errors.items() if said)
    field = FIELDS.get(name, name)
    return Problem(422, "Not submitted", f"{field}: {said.removeprefix('Line 1: ')}", field=field)


def _config(sent: bodies.RunIn) -> dict[str, Any]:
    """Values of the form for a config. Raises Problem."""
    whole = sent.config
    if isinstance(whole, str):
        stored = Config.objects.filter(name=whole).first()
        if stored is None:
            raise Problem(422, "Not submitted", f"There is no config {whole[:80]!r}; see /api/configs.", field="config")
        spec = stored.spec
        if spec.operation:
            kernels = sent.kernels or spec.kernels
            how = {"protocol": protocol_choice(spec.protocol), "effort": sent.effort}
            return {"what": "config", "operation": spec.operation, "config": whole, "kernels": kernels, **how}
        whole = stored.body
    if sent.kernels or sent.effort:
        said = (
            "`kernels` and `effort` cannot be used with a complete config or with a config of several operations. "
            "Write them in the config."
        )
        raise Problem(422, "Not submitted", said, field="kernels" if sent.kernels else "effort")
    return {"what": "yaml", "protocol": "paired", "yaml": json.dumps(whole)}


@ROUTER.post("/runs/{id:pk}/cancel", response=done(schemas.Cancelled), tags=["runs"], **WRITING)
def cancel(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """Stops a run."""

    def cancelled() -> tuple[int, Any]:
        run = get_run(pk)
        if not owns(request.user, run):
            raise Problem(403, "Not your run", "Only the person who launched a run, or an admin, can cancel it.")
        said = run.cancel(person(request))
        return 200, _line(request, run) | {"said": said}

    return once(request, request.user, cancelled)


@ROUTER.post("/imports", response=done(schemas.Imported), tags=["results"], **WRITING)
def add_claims(request: HttpRequest, sent: bodies.ImportIn) -> HttpResponse:
    """Imports results of others, as claims."""
    return once(request, request.user, lambda: _imported(request, sent))


def _imported(request: HttpRequest, sent: bodies.ImportIn) -> tuple[int, Any]:
    try:
        outcome = import_claims(
            io.StringIO(sent.text, newline=""), sent.name, about=sent.about, user=request.user, most=MOST_ROWS
        )
    except NotReadable as error:
        raise Problem(422, "Not readable", str(error), field="text") from None
    target = outcome.imported or outcome.before
    body = {
        "imported": outcome.imported.pk if outcome.imported else None, "said": outcome.sentence, "rows": outcome.rows,
        "taken": outcome.taken, "known": outcome.known, "refused": outcome.refused,
        "refusals": [{"where": where, "why": why} for where, why in outcome.refusals],
        "url": request.build_absolute_uri(reverse("import", args=[target.pk])) if target else None,
    }  # fmt: skip
    return (201 if outcome.imported else 200), body
