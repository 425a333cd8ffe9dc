"""A GPU host with a credential of its own: its agent works with it, and reaches nothing of another host."""

import io
import os
import signal
import subprocess

import pytest
from django.core.management import CommandError, call_command
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from benchsite.queues import device_queue, unacked_key
from runs.hosts import tell_broker
from runs.models import Host

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]


def add(*arguments):
    """What `manage.py add_host` prints."""
    out = io.StringIO()
    call_command("add_host", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def address_in(said):
    return said.split("BROKER=")[1].strip()


@pytest.fixture
def address(site):
    Host.objects.all().delete()
    return address_in(add("gpu-3", site.device.uuid))


@pytest.fixture
def agent(site, address):
    """The agent of the host, with its own credential in the place of the site's."""
    shell, before = site.shells["agent-cpu"], site.process("agent-cpu")
    shell.kill()
    shell.wait(10)
    os.kill(before, signal.SIGTERM)
    site.eventually(lambda: not site.is_alive(before), 20, "the agent has ended")
    part = site.parts["agent-cpu"]
    env = site.env | part.env | {"BROKER": address, "DATABASE_URL": site.NOBODY, "BROKER_PASSWORD": ""}
    env.pop("REDIS_URL")
    with open(site.folder / "agent-cpu.log", "ab") as log:
        process = subprocess.Popen(part.command, env=env, stdout=log, stderr=log, process_group=site.leash.pid)
    yield process
    process.terminate()
    process.wait(20)


@pytest.mark.thorough("real agents: `make test` has what a credential may touch")
def test_an_agent_with_its_own_credential_measures_and_stops_when_it_is_revoked(site, agent):
    run = site.wait(site.submit("eager"), "done")
    assert run.measurements.count() == 1
    cancelled = site.submit("eager", lengths=(32, 64), protocol=site.SLOW)
    site.wait(cancelled, "running")
    cancelled.cancel()
    site.wait(cancelled, "cancelled")
    site.eventually(lambda: not site.gpu().active_attempts, 30, "nothing is left to tell")
    seen = site.gpu().seen_at
    add("gpu-3", "--revoke")
    site.eventually(lambda: not site.gpu().is_online, 60, "the site does not hear it")
    assert site.gpu().seen_at >= seen


def test_a_credential_reaches_the_queues_of_its_devices_and_no_others(site, address):
    own, other = site.device.uuid, "GPU-of-another"
    with Redis.from_url(address) as host, Redis.from_url(site.url) as broker:
        assert host.ping() and host.llen(device_queue(own)) == 0
        host.lpush("record", "{}")
        broker.lrem("record", 1, "{}")
        broker.lpush(device_queue(other), "secret")
        forbidden = [
            lambda: host.brpop(device_queue(other), timeout=1),
            lambda: host.lpush(device_queue(other), "forged"),
            lambda: host.hset(unacked_key(other), "a", "b"),
            lambda: host.get(f"benchsite:reply:{other}"),
            lambda: host.rpop("record"),
            lambda: host.lpush("site", "{}"),
            lambda: host.set("benchsite:cancel:1:1", 1),
            lambda: host.set("benchsite:confirmed:1:1", 1),
            lambda: host.keys("*"),
            lambda: host.flushall(),
            lambda: host.config_get("*"),
            lambda: host.acl_users(),
            lambda: host.client_list(),
            lambda: host.register_script("return redis.call('get', KEYS[1])")(keys=[f"benchsite:reply:{other}"]),
            lambda: host.publish("any", "thing"),
            lambda: host.execute_command("PSUBSCRIBE", "*"),
        ]
        for attempt in forbidden:
            with pytest.raises(NoPermissionError):
                attempt()
        assert broker.lrange(device_queue(other), 0, -1) == [b"secret"]
        broker.delete(device_queue(other))


def test_a_broker_that_forgot_its_users_is_told_again(site, address):
    with Redis.from_url(site.url) as broker:
        broker.acl_deluser("host-gpu-3")
    tell_broker()
    with Redis.from_url(address) as host:
        assert host.ping()


def test_a_new_password_ends_the_old_one_and_revoking_ends_both(site, address):
    newer = address_in(add("gpu-3", site.device.uuid))
    with Redis.from_url(address) as host, pytest.raises(AuthenticationError):
        host.ping()
    with Redis.from_url(newer) as host:
        assert host.ping()
        add("gpu-3", "--revoke")
    with Redis.from_url(newer) as host, pytest.raises(AuthenticationError):
        host.ping()
    assert "gpu-3  revoked" in add()
    assert newer.split(":")[2].split("@")[0] not in str(Host.objects.values())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["gpu-3"], "Name its devices"),
        (["gpu 3", "GPU-1"], "Give the host a name of letters"),
        (["gpu-3", "GPU-1 ~*"], "Give the id of each device"),
        (["gpu-4", "--revoke"], "There is no host gpu-4: add_host without arguments lists the hosts."),
    ],
)
def test_what_is_wrong_is_said(site, arguments, said):
    with pytest.raises(CommandError, match=said):
        add(*arguments)


def test_a_host_elsewhere_needs_another_address_than_this_machine(site, settings):
    assert "127.0.0.1 is this machine: replace it" in add("gpu-6", "GPU-6")
    settings.REDIS_URL = "redis://bench.example.org:1/0"
    assert "is this machine" not in add("gpu-6", "GPU-6")


def test_without_a_broker_the_host_is_stored_and_told_later(site, settings):
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    said = add("gpu-5", "GPU-5")
    assert "The broker does not answer" in said and "within 15 s" in said
    settings.REDIS_URL = there
    tell_broker()
    with Redis.from_url(address_in(said.replace("127.0.0.1:1", f"127.0.0.1:{site.port}"))) as host:
        assert host.ping()
