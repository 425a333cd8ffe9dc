"""The worker of charts and other work that can wait leaves the processor to the recorder."""

import os
from types import SimpleNamespace

import pytest

from benchsite import celery
from benchsite.queues import GIVES_WAY, RECORD_QUEUE, SITE_QUEUE


@pytest.mark.parametrize(("queue", "wanted"), [(SITE_QUEUE, [GIVES_WAY]), (RECORD_QUEUE, [])])
def test_only_the_worker_of_what_can_wait_gives_way(queue, wanted, monkeypatch):
    nice = []
    monkeypatch.setattr(os, "nice", nice.append)
    queues = SimpleNamespace(consume_from={queue: object()})
    celery.give_way(instance=SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    assert nice == wanted
