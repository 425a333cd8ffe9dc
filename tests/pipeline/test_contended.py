"""A contended run is measured again, once, when the foreign process has left the GPU. No processes."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from kernels.workload import Config
from runs.models import Gpu, Run
from runs.pipeline import recorder
from runs.pipeline.contended import repeat_contended

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(30)]
CONFIG = Config(
    name="test",
    operation="attention",
    kernels=["sdpa"],
    workloads=[{"batch": 1, "heads": 2, "seq_len": [16, 32], "head_dim": 64}],
)


@pytest.fixture
def gpu():
    return Gpu.objects.create(uuid="GPU-1", kind="cuda", name="NVIDIA H200", seen_at=timezone.now(), foreign=0)


@pytest.fixture
def contended(gpu):
    return ended(gpu)


def ended(gpu, ago_s=60, **more):
    run = Run.objects.submit(CONFIG, gpu=gpu, title="Mine")
    then = timezone.now() - timedelta(seconds=ago_s)
    fields = {"state": "done", "contended": True, "sent_at": then, "started_at": then, "finished_at": then}
    Run.objects.filter(pk=run.pk).update(**fields | more)
    run.refresh_from_db()
    return run


def hello(**said):
    device = {"uuid": "GPU-1", "kind": "cuda", "name": "NVIDIA H200", "index": 0}
    recorder.hello({"device": device, "host": "gpu-3", "catalogue": [], "held": [], "at": time.time()} | said)


def test_it_is_measured_again_when_the_process_has_gone(gpu, contended):
    hello(foreign=1)
    assert repeat_contended() == []
    hello(foreign=0)
    (again,) = repeat_contended()
    assert (again.repeats, again.gpu, again.title, again.spec) == (contended, gpu, "Mine", contended.spec)
    assert again.note == f"Another process was on the GPU in run {contended.pk}. This run measures the same again."
    assert repeat_contended() == []


def test_a_repetition_that_is_contended_too_is_not_repeated(gpu, contended):
    (again,) = repeat_contended()
    Run.objects.filter(pk=again.pk).update(state="done", contended=True, finished_at=timezone.now())
    assert repeat_contended() == []


def test_nothing_is_repeated_while_the_device_is_busy_or_paused_or_silent_or_unknown(gpu, contended, django_user_model):
    waiting = Run.objects.submit(CONFIG, gpu=gpu)
    assert repeat_contended() == []
    waiting.cancel()
    for hindrance in (
        {"paused_at": timezone.now()},
        {"seen_at": timezone.now() - timedelta(hours=1)},
        {"foreign": None},
    ):
        before = {name: getattr(gpu, name) for name in hindrance}
        Gpu.objects.update(**hindrance)
        assert repeat_contended() == [], hindrance
        Gpu.objects.update(**before)
    assert len(repeat_contended()) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"contended": False}, {"state": "failed"}, {"demo": "of a report"}, {"withdrawn_at": timezone.now()},
        {"finished_at": timezone.now() - timedelta(days=2)},
    ],
    ids=["quiet", "failed", "demo", "withdrawn", "old"],
)  # fmt: skip
def test_only_a_contended_result_of_the_last_day_that_stands_is_repeated(gpu, more):
    ended(gpu, **more)
    assert repeat_contended() == []


def test_one_at_a_time_for_each_device_the_oldest_first(gpu):
    first, second = ended(gpu), ended(gpu)
    (again,) = repeat_contended()
    assert again.repeats == first
    again.advance(Run.State.DONE)
    assert [run.repeats for run in repeat_contended()] == [second]


def test_a_contended_repetition_by_schedule_is_measured_again(gpu):
    daily = ended(gpu, contended=False)
    ended(gpu, repeats=daily)
    assert len(repeat_contended()) == 1


def test_what_the_agent_says_with_a_run_in_progress_does_not_count(gpu):
    hello(foreign=2)
    run = Run.objects.submit(CONFIG, gpu=gpu)
    hello(foreign=None, held=[[run.pk, run.attempt]])
    gpu.refresh_from_db()
    assert gpu.foreign == 2
    hello(foreign=None)
    gpu.refresh_from_db()
    assert gpu.foreign is None, "an agent of the version before"


def test_a_run_that_this_version_cannot_read_holds_up_nothing(gpu):
    unread, second = ended(gpu), ended(gpu)
    Run.objects.filter(pk=unread.pk).update(config={"name": "old", "operation": "attention"})
    assert [run.repeats for run in repeat_contended()] == [second]
