"""The first page: what the devices are doing, in a sentence and in cards, and what ran last."""

import re

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


def test_the_headline_is_the_answer_and_that_of_the_list_of_devices(owner, gpu, make_gpu, make_run):
    def both():
        assert headline(owner) == owner.get(reverse("gpus")).context["headline"]
        return headline(owner)

    assert both() == "1 device, idle"
    other = make_gpu("GPU-2", host="gpu-2")
    assert both() == "2 devices, all idle"
    make_run(state="running", sent_at=timezone.now())
    assert both() == "2 devices: 1 idle, 1 busy"
    other.seen_at = None
    other.save()
    assert both() == "2 devices: 1 busy, 1 silent"
    Run.objects.update(state="done")
    assert both() == "2 devices: 1 idle, 1 silent"


def test_a_card_says_what_its_device_does(owner, make_gpu, make_run, silent):
    busy = make_gpu("GPU-2", host="gpu-2", driver="580.1")
    run = make_run(gpu=busy, state="running", sent_at=timezone.now(), total=8, done=3)
    make_run(title="waiting")
    page = owner.get(PAGE).content.decode()
    assert f'href="/runs/{run.pk}/">run {run.pk}</a> · 3 of 8 workloads' in page
    assert "gpu-2 / 0 · driver 580.1" in page
    assert "1 run waiting" in page


def test_a_silent_card_says_so_once_and_since_when_with_the_zone(owner, silent):
    cards = owner.get(PAGE).content.decode().split('class="cards"')[1].split("</section>")[0]
    assert cards.count("silent") == 1
    assert f'title="{silent.seen_at:%Y-%m-%d %H:%M:%S} UTC">{silent.seen_at:%Y-%m-%d %H:%M} UTC</time>' in cards
    assert "idle" not in cards


def test_an_idle_card_says_so_once(owner, gpu):
    cards = owner.get(PAGE).content.decode().split('class="cards"')[1].split("</section>")[0]
    assert cards.count("idle") == 1


def test_polling_gets_the_part_that_changes(owner, gpu):
    part = owner.get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div id="overview"')
    assert "<html" not in part
    assert part.strip() in owner.get(PAGE).content.decode()


def test_what_a_poll_replaces_has_ids_so_that_focus_and_scroll_stay(owner, make_gpu, make_run):
    """htmx focuses again what has an id; the frame that scrolls is not replaced at all."""
    make_run(gpu=make_gpu("GPU-2", host="gpu-2"), state="running", sent_at=timezone.now())
    page = owner.get(PAGE).content.decode()
    replaced = re.search(r'hx-swap="none" hx-select-oob="([^"]+)"', page).group(1).split(",")
    assert replaced == ["#headline", "#cards", "#runs"]
    for name in replaced:
        assert page.count(f'id="{name[1:]}"') == 1, name
    cards = page.split('id="cards"')[1].split("</section>")[0]
    rows = page.split('<tbody id="runs">')[1].split("</tbody>")[0]
    links = re.findall("<a [^>]*>", cards + rows)
    ids = [re.search(r' id="([^"]+)"', link).group(1) for link in links]
    assert len(ids) == len(set(ids)) == 5
    assert "tabindex" not in cards + rows


@pytest.mark.parametrize("gpus, runs", [(1, 1), (8, 40)])
def test_it_takes_the_same_queries_for_any_number_of_devices_and_runs(
    owner, make_gpu, make_run, gpus, runs, django_assert_max_num_queries
):
    made = [make_gpu(f"GPU-{n}", host=f"gpu-{n}") for n in range(100, 100 + gpus)]
    for number in range(runs):
        make_run(gpu=made[number % gpus], title=f"run {number}")
    for device in made:
        make_run(gpu=device, state="running", sent_at=timezone.now())
    Run.objects.update(done=1)
    with django_assert_max_num_queries(7):  # session, user, running, devices, latest, their results, waiting
        answer = owner.get(PAGE)
    assert len(answer.context["runs"]) == min(12, runs + gpus)
    with CaptureQueriesContext(connection) as seen:
        owner.get(PAGE, headers={"HX-Request": "true"})
    assert len(seen) <= 7
