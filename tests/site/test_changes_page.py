"""Changes of all kernels: the order, the filters, what they answer, and their acknowledgement."""

import csv
import io
import json
from datetime import timedelta

import pytest
from daily import fill, look_at_all, repeated, step
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.models import Change

TORCH = {"torch": "2.11.0"}
SMALL = {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64, "causal": False}
QUERIES = 12


def ago(days):
    return timezone.now() - timedelta(days=days)


def page_of(client, **asked):
    answer = client.get(reverse("changes"), asked)
    assert answer.status_code == 200
    return answer.content.decode()


def h1(page):
    return page.split("<h1", 1)[1].split(">", 1)[1].split("</h1>")[0]


def rows_of(client, **asked):
    return json.loads(client.get(reverse("changes_json"), asked).content)["changes"]


def test_newest_first_and_regressions_first_within_a_day(owner, gpu):
    fill(gpu, step(ratio=0.9), "faster", ago(36))
    fill(gpu, step(ratio=1.1), "slower", ago(36))
    fill(gpu, step(ratio=0.9), "newer", ago(30))
    look_at_all()
    assert [row["kernel"] for row in rows_of(owner)] == ["newer", "slower", "faster"]
    page = page_of(owner)
    assert h1(page) == "1 regression and 2 improvements in the last 30 days"
    assert page.index(">newer<") < page.index(">slower<")


def test_a_change_stands_with_its_interval_and_its_differences(owner, gpu):
    fill(gpu, step(environment=TORCH, source="b"), begin=ago(36))
    look_at_all()
    page = page_of(owner)
    change = Change.objects.get()
    assert f"+{100 * (change.ratio - 1):.1f}%</b> <small" in page
    assert "torch 2.10.0 → 2.11.0, source a000000 → b000000." in page
    assert "So the cause is unknown." in page
    assert '<span class="add">+ torch    2.11.0' in page and '<span class="add">+    return q @ k @ v  # b' in page


def test_filters_and_files(owner, gpu, make_gpu):
    other = make_gpu("GPU-2", host="gpu-2", name="NVIDIA L4")
    fill(gpu, step(), "here", ago(36))
    fill(other, step(), "there", ago(36))
    fill(gpu, step(), "long ago", ago(100))
    look_at_all()
    assert [row["kernel"] for row in rows_of(owner, device="NVIDIA L4")] == ["there"]
    assert [row["kernel"] for row in rows_of(owner, kernel="here")] == ["here"]
    assert {row["kernel"] for row in rows_of(owner, period="all")} == {"here", "there", "long ago"}
    assert {row["kernel"] for row in rows_of(owner)} == {"here", "there"}
    assert len(rows_of(owner, operation="attention", period="all")) == 3
    assert len(rows_of(owner, kernel="nonsense", operation="x", device="y", period="z")) == 2
    page = page_of(owner, kernel="nonsense", period="z")
    assert "There is no kernel “nonsense”. There is no period “z”. These filters are ignored." in page
    assert "There is no" not in page_of(owner, kernel="here")
    text = owner.get(reverse("changes_csv"), {"kernel": "here"}).content.decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["kernel"], row["verdict"], row["card"]) == ("here", "regression", "GPU-1")


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (repeated(40), "sdpa-flash did not get slower in the last 30 days: 1 workload, 0 regressions"),
        (step(24, 16, 0.9), "sdpa-flash did not get slower in the last 30 days: 1 workload, 0 regressions"),
        (repeated(5), "It is unknown whether sdpa-flash got slower in the last 30 days: 1 workload with too few or too noisy "
                      "runs"),
        (step(28, 12), "sdpa-flash got slower in the last 30 days on 1 of 1 workload"),
    ],
    ids=["steady", "faster", "young", "slower"],
)  # fmt: skip
def test_a_chosen_kernel_and_period_get_one_sentence(owner, gpu, days, said):
    fill(gpu, days, begin=ago(len(days)))
    look_at_all()
    assert h1(page_of(owner, kernel="sdpa-flash")) == said


def test_noise_is_never_did_not(owner, gpu):
    fill(gpu, repeated(40), begin=ago(40), spread=0.2)
    assert h1(page_of(owner, kernel="sdpa-flash")).startswith("It is unknown whether sdpa-flash got slower")


def test_where_some_can_tell_it_says_how_many(owner, gpu):
    fill(gpu, repeated(40), begin=ago(40))
    fill(gpu, repeated(5), begin=ago(5), sizes=SMALL)
    said = "No regression of sdpa-flash was found in the last 30 days, but there are enough runs to tell on only 1 of 2 lines"
    assert h1(page_of(owner, kernel="sdpa-flash")) == said


def test_what_was_not_measured_in_the_period_is_said_so(owner, gpu):
    fill(gpu, repeated(40), begin=ago(200))
    page = page_of(owner, kernel="sdpa-flash")
    assert h1(page) == "sdpa-flash has no result in the last 30 days that can be compared" and "enough runs" not in page


def test_an_empty_site_says_how_changes_get_here(owner):
    page = page_of(owner)
    assert h1(page) == "No change was found in the last 30 days"
    assert "A daily run reaches that after 16 days. Choose a" in page


def test_a_person_acknowledges_with_a_note_once(owner, member, gpu):
    fill(gpu, step(), begin=ago(36))
    look_at_all()
    change = Change.objects.get()
    address = reverse("acknowledge", args=[change.pk])
    page = member.post(address, {"note": " ", "next": reverse("changes")}, follow=True).content.decode()
    assert "Explain the change in a note" in page
    page = member.post(address, {"note": "new torch", "next": reverse("changes")}, follow=True).content.decode()
    assert "Acknowledged by <b>mats</b>" in page and "new torch" in page
    page = owner.post(address, {"note": "me too", "next": "https://elsewhere.example/"}, follow=True)
    assert "It was acknowledged already." in page.content.decode() and page.redirect_chain[0][0].startswith("/kernels/")
    change.refresh_from_db()
    assert (change.note, change.acknowledged_by) == ("new torch", member.user)


def test_a_stranger_sees_and_acknowledges_nothing(stranger, owner, gpu):
    fill(gpu, step(), begin=ago(36))
    look_at_all()
    change = Change.objects.get()
    assert stranger.get(reverse("changes")).status_code == 302
    assert stranger.post(reverse("acknowledge", args=[change.pk]), {"note": "x"}).status_code == 302
    change.refresh_from_db()
    assert change.acknowledged_at is None
    assert owner.get(reverse("acknowledge", args=[change.pk])).status_code == 405


def test_the_page_takes_at_most_12_queries(owner, gpu):
    for number in range(4):
        fill(gpu, step(environment=TORCH, source="b"), f"k{number}", ago(36))
    look_at_all()
    Change.objects.filter(kernel__name="k1").update(acknowledged_at=timezone.now(), acknowledged_by=owner.user)
    for asked in ({}, {"kernel": "k1"}):
        with CaptureQueriesContext(connection) as captured:
            page_of(owner, **asked)
        assert len(captured) <= QUERIES, [one["sql"][-130:] for one in captured]
