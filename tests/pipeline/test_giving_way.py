"""The worker of charts and other work that can wait leaves the processor to the recorder."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchsite import celery, priority
from benchsite.priority import GIVES_WAY
from benchsite.queues import RECORD_QUEUE, SITE_QUEUE

ASKS = """
import os
from benchsite.priority import AUTOGROUP, give_way

def autogroup():
    # Linux may have none (no file), and a session may be in none (an empty file)
    return (AUTOGROUP.read_text().split() or ["none"])[-1] if AUTOGROUP.exists() else "none"

nice, before = os.nice(0), autogroup()
give_way()
print(os.nice(0) - nice, before, autogroup())
"""


@pytest.mark.parametrize(("queue", "calls"), [(SITE_QUEUE, 1), (RECORD_QUEUE, 0)])
def test_only_the_worker_of_what_can_wait_gives_way(queue, calls, monkeypatch):
    called = []
    monkeypatch.setattr(priority, "give_way", lambda: called.append(1))
    queues = SimpleNamespace(consume_from={queue: object()})
    celery.give_way(instance=SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    assert len(called) == calls


@pytest.mark.parametrize("leads", [True, False])
def test_a_process_gives_way_and_its_session_where_it_leads_one(leads):
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, start_new_session=leads)
    assert done.returncode == 0, done.stderr
    nice, before, after = done.stdout.split()
    assert nice == str(GIVES_WAY)
    assert after == (str(GIVES_WAY) if leads and before != "none" else before)
