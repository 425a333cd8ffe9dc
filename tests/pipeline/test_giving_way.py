"""The worker of charts and other work that can wait leaves the processor to the recorder."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchsite import celery, priority
from benchsite.priority import AUTOGROUP, GIVES_WAY
from benchsite.queues import RECORD_QUEUE, SITE_QUEUE

ASKS = """
import os
from benchsite.priority import AUTOGROUP, give_way
give_way()
print(os.nice(0), AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else "")
"""


@pytest.mark.parametrize(("queue", "calls"), [(SITE_QUEUE, 1), (RECORD_QUEUE, 0)])
def test_only_the_worker_of_what_can_wait_gives_way(queue, calls, monkeypatch):
    called = []
    monkeypatch.setattr(priority, "give_way", lambda: called.append(1))
    queues = SimpleNamespace(consume_from={queue: object()})
    celery.give_way(instance=SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    assert len(called) == calls


def test_a_process_gives_way_and_its_session_where_it_leads_one():
    before = AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else ""
    for own, session in ((True, str(GIVES_WAY) if before else ""), (False, before)):
        done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, start_new_session=own)
        assert done.stdout.split(" ") == [str(GIVES_WAY), f"{session}\n"], done.stderr
