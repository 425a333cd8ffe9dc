"""The watchdog names what hangs, and nothing else."""

import time
from types import SimpleNamespace

import pytest
from celery.signals import task_postrun
from redis.exceptions import RedisError

from kernels.host.device import find_device
from runs import tasks
from runs.hosting import watchdog as module
from runs.hosting.watchdog import Watchdog


class Site:
    """A clock, and the signs of life of each part."""

    def __init__(self, monkeypatch):
        self.now, self.dead, self.asked = 0.0, set(), []
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "page_answers", lambda host, port: "web" not in self.dead)
        self.dog = Watchdog("redis://127.0.0.1:1", [find_device("cpu")], ("127.0.0.1", 1))
        for one in self.dog.watched.values():
            one.since = 0.0
        self.dog._asked = self.dog._looked = 0.0
        self.dog.keys = self.dog.app = self
        self.redis = self

    def ping(self):
        if "broker" in self.dead:
            raise RedisError("it hangs")

    def send_task(self, task, args, queue, **options):
        self.asked.append((task, queue))

    def pulse_of(self, name):
        part = "agent-cpu" if name.startswith("agent:") else name
        return None if part in self.dead or (part == "beat" and "worker" in self.dead) else self.now

    def wait(self, seconds, every=5.0):
        """What the watchdog starts again within these seconds."""
        restarted = []
        end = self.now + seconds
        while self.now < end:
            self.now += every
            restarted += [name for name, why in self.dog.look()]
        return restarted


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


def test_it_lets_a_site_that_works_alone(site):
    assert site.wait(1000) == []
    assert set(site.asked) == {("pulse", "record"), ("pulse", "site")}
    assert len(site.asked) == 200, "each queue every 10 s"


@pytest.mark.parametrize(
    ("part", "after"),
    [("recorder", 60), ("worker", 120), ("beat", 180), ("web", 120), ("broker", 30), ("agent-cpu", 60)],
)
def test_it_starts_again_what_hangs_and_only_that(site, part, after):
    site.wait(100)
    site.dead.add(part)
    assert site.wait(after - 5) == []
    assert site.wait(10) == [part]
    assert site.wait(after - 10) == [], "it has time to start"
    site.dead.clear()
    assert site.wait(500) == []


def test_nobody_is_blamed_for_a_broker_that_is_away(site):
    """Nothing can be heard of the others then; afterwards they have their whole time."""
    site.dead.add("broker")
    assert set(site.wait(200)) == {"broker"}
    site.dead = {"recorder"}
    assert site.wait(55) == []


def test_nobody_is_blamed_after_the_host_slept(site):
    site.wait(100)
    site.now += 3600
    assert [name for name, why in site.dog.look()] == []


def test_on_a_gpu_host_it_looks_after_agents_alone():
    dog = Watchdog("redis://127.0.0.1:1", [find_device("cpu")], None, site=False)
    assert set(dog.watched) == {"agent-cpu"}


def test_a_part_with_a_long_queue_shows_life_with_each_task(monkeypatch):
    """What the watchdog sends would wait, and expire."""
    shown = []
    monkeypatch.setattr(tasks.BrokerKeys, "pulse", lambda keys, name: shown.append(name))
    for name in ("record", "hello", "draw_charts", "pulse"):
        monkeypatch.setattr(tasks, "_shown_at", -10.0)
        task_postrun.send(sender=None, task=SimpleNamespace(name=name))
    assert shown == ["recorder", "recorder", "worker"]
    monkeypatch.setattr(tasks, "_shown_at", time.monotonic())
    task_postrun.send(sender=None, task=SimpleNamespace(name="record"))
    assert len(shown) == 3, "once a second is enough"
