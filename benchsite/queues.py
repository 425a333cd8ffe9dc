"""Celery: the transport between site and agents. The database is the queue and the truth.

Messages are acknowledged early: the agent's journal is the guarantee. A late-acknowledged task of a killed worker would
stay unacknowledged until the visibility timeout. Prefetch is off, so that a worker takes the next message at once, even
after the broker was emptied or restarted. Its multiplier is 0 (no limit): with 1, a worker that lost an acknowledgement
with the broker would wait for it forever, and never reconnect.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu.connection import Connection

RECORD_QUEUE = "record"
SITE_QUEUE = "site"
WHEN_IDLE = 9
"""Priority of what waits until nothing else does: charts, which take a second of a run. 0 is the highest."""
REAPER_EVERY_S = 15.0
PURGE_EVERY_S = 3600.0
CONFIRM_EVERY_S = 300.0
PULSE_EVERY_S = 10.0
VISIBILITY_TIMEOUT_S = 24 * 3600
CONNECTION = {"socket_connect_timeout": 2, "socket_timeout": 5, "health_check_interval": 10, "max_retries": 0}
"""Publishers give up at once without a broker, and soon if it hangs: a form must not wait.

Workers and beat still reconnect forever: broker_connection_max_retries.
"""
RECONNECT = {"interval_start": 1, "interval_step": 1, "interval_max": 5}
"""Pauses of workers and beat without a broker, in s. Kombu's own grow to 30 s: devices would be idle long after it is back."""


def device_queue(uuid: str) -> str:
    """The queue of one device. Its agent is the only consumer."""
    return f"device.{uuid}"


def unacked_key(uuid: str) -> str:
    """Where an agent's transport keeps what it has taken: a key of its own, since hosts may not see each other's."""
    return f"unacked.{uuid}"


def of_agent(uuid: str) -> dict[str, str]:
    """Transport options of a device's agent."""
    key = unacked_key(uuid)
    return {"unacked_key": key, "unacked_index_key": f"{key}.index", "unacked_mutex_key": f"{key}.mutex"}


class PromptConnection(Connection):
    """Soon there again after its broker is."""

    def ensure_connection(self, *args: Any, **options: Any) -> Connection:
        return super().ensure_connection(*args, **RECONNECT | options)


class PromptAMQP(AMQP):  # type: ignore[misc]
    """How an app makes its connections."""

    Connection = PromptConnection


def make_app(name: str, broker: str) -> Celery:
    app = Celery(name, broker=broker, amqp=PromptAMQP, set_as_current=False)
    options = {"visibility_timeout": VISIBILITY_TIMEOUT_S}
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=0,
        visibility_timeout=VISIBILITY_TIMEOUT_S,
        broker_transport_options=options | CONNECTION,
        result_backend_transport_options=options,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # else a broker whose disk is full ends all workers, and what agents measure
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=SITE_QUEUE,
        task_routes={"record": {"queue": RECORD_QUEUE}, "hello": {"queue": RECORD_QUEUE}},
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        beat_schedule={
            "reap": {"task": "reap", "schedule": REAPER_EVERY_S, "options": {"expires": REAPER_EVERY_S}},
            "deliver": {"task": "deliver", "schedule": REAPER_EVERY_S, "options": {"expires": REAPER_EVERY_S}},
            **{
                f"pulse_{part}": {
                    "task": "pulse",
                    "schedule": PULSE_EVERY_S,
                    "args": [part],
                    "options": {"queue": queue, "expires": PULSE_EVERY_S},
                }
                for part, queue in (("recorder", RECORD_QUEUE), ("worker", SITE_QUEUE))
            },
            "purge_logins": {"task": "purge_logins", "schedule": PURGE_EVERY_S},
            "prune": {"task": "prune", "schedule": PURGE_EVERY_S},
            "confirm_leaders": {
                "task": "confirm_leaders",
                "schedule": CONFIRM_EVERY_S,
                "options": {"expires": CONFIRM_EVERY_S},
            },
        },
        timezone="UTC",
    )
    return app
