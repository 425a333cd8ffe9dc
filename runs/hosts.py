"""The users of the broker for GPU hosts: what each may touch, and keeping the broker's list as the database has it.

A broker forgets its users when it starts again, so the reaper tells it again.
"""

from __future__ import annotations

import logging

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from benchsite.queues import RECORD_QUEUE, device_queue, unacked_key
from runs.broker import PREFIX, client
from runs.models import Host

log = logging.getLogger(__name__)
COMMANDS = (
    "+@connection", "-@admin", "-@dangerous", "+multi", "+exec", "+discard", "+time", "+get", "+set", "+exists", "+expire",
    "+lpush", "+rpush", "+brpop", "+rpop", "+llen", "+sadd", "+smembers", "+sismember", "+hset", "+hget", "+hdel", "+zadd",
    "+srem", "+zrem", "+zrange", "+zrangebyscore", "+del", "+pexpire", "+evalsha", "+script|load",
)  # fmt: skip
"""What an agent needs: the queue of its devices, publishing, its keys, and scripts for a lock of its transport. A script may do
what its user may, and no more."""
BINDINGS = "_kombu.binding"
OF_SITE = (
    f"%W~{RECORD_QUEUE}*", f"~{BINDINGS}.{RECORD_QUEUE}", f"~{BINDINGS}_permanent.{RECORD_QUEUE}", f"~{BINDINGS}_deadlines",
)  # fmt: skip
"""Publishing to the recorder. The deadlines are those of queues that expire: the site has none."""
OF_RUNS = (f"%R~{PREFIX}confirmed:*", f"%R~{PREFIX}cancel:*", f"%W~{PREFIX}live:*")


def rules_of(host: Host) -> list[str]:
    """Redis' rules for a host's user."""
    own = [
        rule
        for uuid in host.devices
        for rule in (
            f"~{device_queue(uuid)}*", f"~{BINDINGS}.{device_queue(uuid)}*", f"~{unacked_key(uuid)}*",
            f"~{BINDINGS}_permanent.{device_queue(uuid)}*",
            f"%R~{PREFIX}reply:{uuid}", f"%W~{PREFIX}pulse:agent:{uuid}",
        )
    ]  # fmt: skip
    return ["reset", "on", f"#{host.digest}", *own, *OF_SITE, *OF_RUNS, *COMMANDS]


def tell_broker() -> None:
    """Makes the broker's users those of the database. Raises RedisError."""
    broker = client(settings.REDIS_URL)
    known = set(broker.acl_users())
    for host in Host.objects.all():
        if host.revoked_at is None:
            if host.user not in known or host.digest not in _digests(broker, host.user):
                broker.execute_command("ACL SETUSER", host.user, *rules_of(host))
        elif host.user in known:
            broker.acl_deluser(host.user)  # also ends its connections


def keep_told() -> None:
    """tell_broker for the reaper: a broker that does not answer is told the next time."""
    if not Host.objects.exists():
        return
    try:
        tell_broker()
    except RedisError as error:
        log.warning("the broker was not told of its hosts: %s", error)


def _digests(broker: Redis, user: str) -> list[str]:
    passwords = (broker.acl_getuser(user) or {}).get("passwords")
    return [str(digest) for digest in passwords] if isinstance(passwords, list) else []
