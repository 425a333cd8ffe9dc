"""The first page: what the devices are doing, in a sentence and in cards, and what ran last."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.models import Run

PAGE = reverse("overview")


def headline(client):
    return client.get(PAGE).context["headline"]


def test_without_devices_it_says_how_one_gets_here(owner):
    page = owner.get(PAGE).content.decode()
    assert headline(owner) == "No device has reported yet"
    assert "make agent" in page


def test_the_headline_is_the_answer(owner, gpu, make_gpu, make_run):
    assert headline(owner) == "1 device, all idle"
    other = make_gpu("GPU-2", host="gpu-2")
    assert headline(owner) == "2 devices, all idle"
    make_run(state="running", sent_at=timezone.now())
    assert headline(owner) == "2 devices, 1 running"
    other.seen_at = None
    other.save()
    assert headline(owner) == "2 devices, 1 running, 1 silent"
    Run.objects.update(state="done")
    assert headline(owner) == "2 devices, nothing is running, 1 silent"


def test_a_card_says_what_its_device_does(owner, make_gpu, make_run, silent):
    busy = make_gpu("GPU-2", host="gpu-2", driver="580.1")
    run = make_run(gpu=busy, state="running", sent_at=timezone.now(), total=8, done=3)
    make_run(title="waiting")
    page = owner.get(PAGE).content.decode()
    assert f'<a href="/runs/{run.pk}/">run {run.pk}</a> · 3 of 8 workloads' in page
    assert "gpu-2 / 0 · driver 580.1" in page
    assert "silent since" in page
    assert "1 run waiting" in page


def test_polling_gets_the_part_that_changes(owner, gpu):
    part = owner.get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div id="overview"')
    assert "<html" not in part
    assert part.strip() in owner.get(PAGE).content.decode()


@pytest.mark.parametrize("gpus, runs", [(1, 1), (8, 40)])
def test_it_takes_the_same_queries_for_any_number_of_devices_and_runs(
    owner, make_gpu, make_run, gpus, runs, django_assert_max_num_queries
):
    made = [make_gpu(f"GPU-{n}", host=f"gpu-{n}") for n in range(100, 100 + gpus)]
    for number in range(runs):
        make_run(gpu=made[number % gpus], title=f"run {number}")
    for device in made:
        make_run(gpu=device, state="running", sent_at=timezone.now())
    with django_assert_max_num_queries(6):  # session, user, running, devices, latest, waiting
        answer = owner.get(PAGE)
    assert len(answer.context["runs"]) == min(12, runs + gpus)
    with CaptureQueriesContext(connection) as seen:
        owner.get(PAGE, headers={"HX-Request": "true"})
    assert len(seen) <= 6
