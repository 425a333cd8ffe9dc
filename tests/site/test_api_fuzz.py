"""The API is asked what its own document allows and forbids, of rows that exist: no fault, and each answer as declared."""

import json
import logging
import os
import random

import pytest
import schemathesis
from cast import load
from django.db import transaction
from django.test.client import ClientHandler
from everything import SOURCE, named, operations
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.pytest.lazy import get_all_tests

from runs.api import access
from runs.api.problems import KIND
from runs.api.site import api
from runs.models import ApiToken, Person, Role

HOSTILE = (
    "", "0", "-1", "1", "9" * 30, "1e999", "nan", "\x00", "\ud7ff", "é" * 300, "a" * 5000, "' OR 1=1 --", "../../etc/passwd",
    "%00", "[]", "{}", "null", "true", "S>=", "kernel:", "sort=-", "1_2_3_4", "nan_1_2_3", "inf_0_0_0", "2026-13-45", "99999d",
    "p50_ms,nosuch", "🚀", "-speedup", "sdpa", "attention", "swish@0123456789", "all", "me",
)  # fmt: skip
VALUES = (
    *HOSTILE, 0, -1, 10**30, 1.5, True, None, [], ["x"], [[]], {}, {"a": "b"}, {"a.py": SOURCE}, {"workloads": [{}]},
    {"a.py": "-" * 20_000 + "1"},
)  # fmt: skip
ASKED = {
    "kernel": "sdpa", "operation": "attention", "dtype": "float16", "device": "NVIDIA H200", "gpu": "NVIDIA H200",
    "columns": "p50_ms,speedup", "sort": "-speedup", "kernels": ["sdpa-math"], "effort": "quick",
}  # fmt: skip
"""Values that find something."""
SENT = {
    "SubmissionIn": {"files": {"mine.py": SOURCE}, "gpu": "epyc", "effort": "quick"},
    "RunIn": {"config": "smoke", "gpu": "epyc"},
    "SearchIn": {"kernel": "layer_norm/triton-layer-norm", "config": "layer-norm", "gpu": "H200", "trials": 12},
    "ImportIn": {"text": "kernel,ms\nv1,0.5\n", "about": "attention fp16 B=4 H=16 S=512 D=64 on NVIDIA L4"},
    "GitIn": {"url": "https://example.org/x.git", "commit": "a" * 40, "operation": "attention", "kernel": "mine"},
    "GateIn": {"max_regression": 0.02},
}
"""Bodies that are accepted."""
CONFIG = {
    "analysis": {"constants": {"enabled": False}},  # those of the modules that happen to be loaded
    "checks": {
        "ignored_auth": {"enabled": False},  # it asks three times; test_api_document.py asks without a token
        "positive_data_acceptance": {"expected-statuses": ["2xx", 403, 404, 409, 422]},
    },
    "generation": {"with-security-parameters": False},
    "phases": {"coverage": {"unexpected-methods": ["DELETE"]}},
}
"""The document cannot say which rows there are, nor which texts name something: 404 and 422 are answers to what it allows."""
THOROUGH = pytest.mark.thorough("requests made from the API's document: `make test` reads at each of its addresses")


def with_examples(document, rows, hostile):
    """The document with values that find rows of this site, and so many hostile ones for each field."""
    drawn, known = random.Random(14), {**ASKED, "run": rows["pk"], "against": [rows["pk"]]}
    document = json.loads(json.dumps(document))

    def some(values):
        return drawn.sample(values, min(hostile, len(values)))

    for _, address, one in operations(document):
        found = named(address, rows)
        for parameter in one.get("parameters", ()):
            name, is_path = parameter["name"], parameter["in"] == "path"
            values = [found[name]] if is_path else [known.get(name, "")]
            values += [rows["waiting"]] if name == "pk" and "/runs/" in address else []
            kind = parameter["schema"]["type"]
            values += some(HOSTILE[is_path:]) if kind in ("string", "array") else []
            values = [[value] if value else [] for value in values] if kind == "array" else values
            parameter["examples"] = {str(number): {"value": value} for number, value in enumerate(values)}
    for name, sent in SENT.items():
        body = document["components"]["schemas"][name]
        body["example"] = {field: known[field] for field in body.get("required", ()) if field in known} | sent
        for field, schema in body["properties"].items():
            good = body["example"].get(field, known.get(field))
            schema["examples"] = [good, *some(VALUES)]
    whole = rows["config"]
    document["components"]["schemas"]["RunIn"]["properties"]["config"]["examples"] += [
        whole | {field: value} for field in whole for value in some(VALUES)
    ]
    return document


HANDLER = ClientHandler()


def application(environ, start_response):
    """The site, which keeps the test's connection to the database."""
    answer = HANDLER(environ)
    start_response(f"{answer.status_code} {answer.reason_phrase}", list(answer.items()))
    return answer


def often_a_row(context, values):
    """Three of four drawn addresses name a row that is there."""
    asked = context.operation.path_parameters
    found = {name: asked.get(name).definition["examples"]["0"]["value"] for name in values or ()}
    return st.sampled_from([values, found, found, found])


@pytest.fixture
def ask(owner, monkeypatch, caplog):
    """Sends a case with a token that writes; what it changes is undone."""
    headers = {"Authorization": f"Bearer {ApiToken.objects.make(owner.user, 'fuzz', writes=True, days=7)[1]}"}
    caplog.set_level(logging.ERROR)
    for rate in (access.READS, access.WRITES):
        monkeypatch.setattr(rate, "most", 10**9)

    def send(case):
        with transaction.atomic():
            try:
                answer = case.call_and_validate(headers=headers)
            finally:
                transaction.set_rollback(True)
        assert answer.status_code not in (401, 429)
        assert answer.status_code < 400 or answer.headers["content-type"] == [KIND]

    return send


ALL = "FUZZ" in os.environ
"""`make fuzz`: every hostile value of every field."""


@pytest.mark.timeout(7200 if ALL else 600)  # thousands of requests, on two cores that other tests share
@pytest.mark.parametrize(
    ("role", "examples", "hostile"),
    [
        pytest.param(Role.ENGINEER, 12, 10, marks=THOROUGH),
        pytest.param(Role.ADMIN, 6, 4, marks=THOROUGH),
        *([(role, 50, len(VALUES)) for role in (Role.ENGINEER, Role.ADMIN)] if ALL else []),
    ],
)
def test_every_operation_answers_as_its_document_says(
    role, examples, hostile, ask, owner, stored, make_run, exported, configs, subtests
):
    Person.objects.filter(user=owner.user).update(role=role)
    rows = stored | {"after": load(exported, "again").pk, "waiting": make_run().pk, "config": configs["smoke"].body}
    document = with_examples(api.get_openapi_schema(), rows, hostile)
    asked = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(CONFIG))
    asked.app = application
    asked.hook("flatmap_path_parameters")(often_a_row)
    steady = settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck]
    )
    for made in get_all_tests(schema=asked, test_func=ask, settings=steady, given_kwargs={}):
        operation, test = made.ok()
        with subtests.test(operation.label):
            test()
