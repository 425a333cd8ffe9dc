"""/healthz says which part is down, to everybody and without secrets; /metrics counts, for who may watch."""

import json
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from redis.exceptions import ConnectionError as NoBroker

from runs.broker import BrokerKeys
from runs.models import Gpu, RejectedEvent, Run
from runs.pipeline import recorder
from runs.queries import health

TOKEN = "a-token-of-the-tests"
ELSEWHERE = "203.0.113.7"


class Memory:
    """A broker that answers."""

    def __init__(self):
        self.values = {f"benchsite:pulse:{name}": "1" for name in health.WORKERS}

    def ping(self):
        return True

    def get(self, key):
        return self.values.get(key)

    def set(self, key, value, ex=None):
        self.values[key] = value

    def incrby(self, key, more):
        self.values[key] = int(self.values.get(key, 0)) + more

    def llen(self, key):
        return 3 if key == "record" else 0


@pytest.fixture
def broker(monkeypatch):
    memory = Memory()
    monkeypatch.setattr(BrokerKeys, "__init__", lambda keys, url: setattr(keys, "redis", memory))
    return memory


@pytest.fixture
def well(broker, db):
    """A site whose parts all answer, with one device."""
    return Gpu.objects.create(uuid="GPU-secret", kind="cuda", name="NVIDIA H200", host="node-9", seen_at=timezone.now())


def asked(path="/healthz", client=None, **headers):
    response = (client or Client(REMOTE_ADDR=ELSEWHERE)).get(path, **headers)
    return response.status_code, response.json()


def test_a_site_that_is_well_says_so_to_anybody(well):
    status, said = asked()
    assert status == 200
    assert said == {"status": "up", "parts": dict.fromkeys([*health.SITE, f"agent-{well.pk}"], "up")}


def test_no_secret_is_said_to_strangers(well):
    Gpu.objects.update(seen_at=None)
    text = json.dumps(asked())
    assert not any(secret in text for secret in ("node-9", "H200", "GPU-secret", "redis://", "127.0.0.1"))


def test_who_has_the_token_reads_names(well, settings):
    settings.METRICS_TOKEN = TOKEN
    _, said = asked(HTTP_AUTHORIZATION=f"Bearer {TOKEN}")
    assert said["parts"][f"agent-{well.pk}"] == "up (NVIDIA H200 (node-9 / 0))"
    _, said = asked(HTTP_AUTHORIZATION="Bearer another", client=Client(REMOTE_ADDR="127.0.0.1"))
    assert said["parts"][f"agent-{well.pk}"] == "up"


@pytest.mark.parametrize("part", health.WORKERS)
def test_a_part_that_shows_no_life_is_named(well, broker, part):
    del broker.values[f"benchsite:pulse:{part}"]
    status, said = asked()
    down = {name: state for name, state in said["parts"].items() if state != "up"}
    assert status == 503 and said["status"] == "down"
    assert list(down) == [part] and down[part].startswith("down: not heard for ")
    assert asked(f"/healthz/{part}") == (503, {"status": "down", "parts": down})
    assert asked("/healthz/web")[0] == 200, "a balancer must not take the web server away for another part"


def test_a_dead_broker_is_named_and_nothing_is_guessed_behind_it(well, broker, monkeypatch):
    def refuse():
        raise NoBroker("redis://:secret@broker refused")

    monkeypatch.setattr(broker, "ping", refuse)
    status, said = asked()
    assert status == 503 and said["parts"]["broker"] == "down: it does not answer"
    assert {said["parts"][one] for one in health.WORKERS} == {"unknown: the broker does not answer"}
    assert said["parts"]["database"] == "up" and "secret" not in json.dumps(said)


def test_a_dead_database_is_named_even_to_who_is_logged_in(well, owner, monkeypatch):
    def refuse(*_, **__):
        raise OperationalError("could not connect to postgres://benchsite:secret@db")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", refuse)
        patch.setattr(connection, "close", lambda: None)  # it is the transaction of this test
        status, said = asked(client=owner)
    assert status == 503 and said["parts"]["database"] == "down: it does not answer"
    assert said["parts"]["agents"] == "unknown: the database does not answer"
    assert said["parts"]["broker"] == "up" and "secret" not in json.dumps(said)


def test_a_silent_agent_is_down_and_one_that_was_taken_away_is_gone(well):
    name = f"agent-{well.pk}"
    Gpu.objects.update(seen_at=timezone.now() - timedelta(minutes=5))
    assert asked() == (
        503,
        {"status": "down", "parts": dict.fromkeys(health.SITE, "up") | {name: "down: silent for 5 min"}},
    )
    assert asked(f"/healthz/{name}")[0] == asked("/healthz/agents")[0] == 503
    Gpu.objects.update(seen_at=timezone.now() - timedelta(days=30))
    assert asked(f"/healthz/{name}") == (200, {"status": "up", "parts": {name: "gone: silent for 30 days"}})


@pytest.mark.parametrize("part", ("nothing", "agent-999999", "agent-x"))
def test_there_is_no_health_of_what_there_is_not(well, part):
    assert Client().get(f"/healthz/{part}").status_code == 404


# --- metrics ----------------------------------------------------------------------------------------------------------


def scraped(**headers):
    response = Client(REMOTE_ADDR="127.0.0.1").get("/metrics", **headers)
    assert response.status_code == 200
    families = text_string_to_metric_families(response.content.decode())
    return {
        (sample.name, *dict(sorted(sample.labels.items())).values()): sample.value
        for one in families
        for sample in one.samples
    }


def test_metrics_are_for_this_host_or_for_the_token(well, settings):
    assert Client(REMOTE_ADDR=ELSEWHERE).get("/metrics").status_code == 403
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 200
    settings.METRICS_TOKEN = TOKEN
    right = {"HTTP_AUTHORIZATION": f"Bearer {TOKEN}"}
    assert Client(REMOTE_ADDR=ELSEWHERE).get("/metrics", **right).status_code == 200
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 403


def test_metrics_count_runs_queues_devices_and_parts(well, broker):
    for state in ("queued", "queued", "done"):
        Run.objects.create(title="x", config={}, state=state, gpu=well)
    Run.objects.create(title="x", config={}, state="queued", device_name="NVIDIA B200")
    Gpu.objects.update(seen_at=timezone.now() - timedelta(seconds=90))
    del broker.values["benchsite:pulse:worker"]
    found = scraped()
    assert [found["benchsite_runs", state] for state in ("queued", "running", "done")] == [3, 0, 1]
    assert found["benchsite_queue_depth", "GPU-secret"] == 2
    assert found["benchsite_queue_depth", "any NVIDIA B200"] == 1
    assert found["benchsite_broker_queue_depth", "record"] == 3
    assert found["benchsite_device_seen_age_seconds", "GPU-secret", "node-9", "NVIDIA H200"] == pytest.approx(
        90, abs=20
    )
    assert found["benchsite_up", "recorder"] == 1
    assert found["benchsite_up", "worker"] == found["benchsite_up", f"agent-{well.pk}"] == 0


def test_metrics_count_what_the_recorder_stores_and_rejects(well, broker, django_capture_on_commit_callbacks):
    run = Run.objects.create(title="x", config={}, state="running", gpu=well, attempt=7)
    with django_capture_on_commit_callbacks(execute=True):
        recorder.record([[run.pk, 7, 1, "{}"], [run.pk, 6, 1, "{}"]])
    assert RejectedEvent.objects.count() == 2
    found = scraped()
    assert found["benchsite_events_rejected_total",] == 2
    assert found["benchsite_events_recorded_total",] == 0


def test_metrics_time_each_page_by_its_name(well, owner):
    before = scraped().get(("benchsite_request_seconds_count", "runs", "2xx"), 0)
    owner.get("/runs/")
    owner.get("/no/such/page")
    found = scraped()
    assert found["benchsite_request_seconds_count", "runs", "2xx"] == before + 1
    assert found["benchsite_request_seconds_count", "other", "4xx"] >= 1


def test_a_scrape_says_what_is_down_when_the_database_is(well, monkeypatch):
    monkeypatch.setattr(health, "_database", lambda: health.NO_ANSWER)
    found = scraped()
    assert found["benchsite_up", "database"] == 0
    assert not any(name[0] == "benchsite_runs" for name in found)
