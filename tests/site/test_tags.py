"""Tags of runs: added, removed, found again in the list of runs, in the search over results, in files."""

import json

import pytest
from django.urls import reverse

from runs.models import Run, Tag
from runs.views.tags import MOST


def text(answer):
    return answer.content.decode()


def results(client, asked):
    return json.loads(client.get(reverse("results_json"), asked).getvalue())["results"]


def add(client, run, tag):
    return client.post(reverse("add_tag", args=[run.pk]), {"tag": tag}, follow=True)


def test_a_tag_is_added_shown_and_removed(owner, member, demo):
    page = text(add(owner, demo, " Nightly  H200 "))
    assert f'<a href="{reverse("runs")}?tag=nightly-h200">nightly-h200</a>' in page
    assert "nightly-h200" in text(member.get(demo.get_absolute_url())), "of the team, not of a person"
    page = text(member.post(reverse("remove_tag", args=[demo.pk]), {"tag": "nightly-h200"}, follow=True))
    assert "nightly-h200" not in page
    assert not Tag.objects.exists(), "it goes with the last run that has it"


@pytest.mark.parametrize("wrong", ["", "   ", "a:b", "<b>", "x" * 41, "-x", "é", "a\x00b"])
def test_what_is_no_tag_is_refused_with_a_sentence(owner, demo, wrong):
    page = text(add(owner, demo, wrong))
    assert "Write a tag of letters and digits, with . _ + - between them: at most 40 characters." in page
    assert not Tag.objects.exists()


def test_a_run_has_so_many_tags_at_most(owner, demo):
    for number in range(MOST + 1):
        page = text(add(owner, demo, f"tag-{number}"))
    assert f"This run has {MOST} tags, the most that fit: remove one first." in page
    assert demo.tags.count() == MOST
    add(owner, demo, "tag-0")
    assert Tag.objects.count() == MOST


def test_runs_are_filtered_by_a_tag(owner, make_run, demo):
    tagged, other = make_run(title="The tagged one"), make_run(title="The other one")
    add(owner, tagged, "baseline")
    page = text(owner.get(reverse("runs"), {"tag": "Baseline"}))
    assert "The tagged one" in page and "The other one" not in page
    assert '<a class="badge" href="/runs/?tag=baseline">baseline</a>' in page
    assert "No run matches." in text(owner.get(reverse("runs"), {"tag": "nothing"}))
    (row,) = owner.get(reverse("runs_json"), {"tag": "baseline"}).json()["runs"]
    assert (row["id"], row["tags"]) == (tagged.pk, "baseline")
    assert other.pk not in [row["id"] for row in owner.get(reverse("runs_json"), {"tag": "baseline"}).json()["runs"]]


@pytest.mark.parametrize("asked", [{"q": "tag:before"}, {"q": "before"}, {"tag": "before"}, {"q": "tag=before"}])
def test_results_are_searched_by_a_tag(owner, measured, asked):
    one, other = measured(count=1), measured(count=1)
    add(owner, one, "before")
    page = text(owner.get(reverse("results"), asked))
    assert "tag before" in page, "it says what it understood"
    rows = results(owner, asked)
    assert {row["run"] for row in rows} == {one.pk}
    assert other.pk in {row["run"] for row in results(owner, {})}


def test_two_tags_widen_and_an_unknown_one_is_said(owner, measured):
    one, other = measured(count=1), measured(count=1)
    add(owner, one, "before")
    add(owner, other, "after")
    rows = results(owner, {"q": "tag:before,after"})
    assert {row["run"] for row in rows} == {one.pk, other.pk}
    assert "no tag has this name" in text(owner.get(reverse("results"), {"q": "tag:nowhere"}))


def test_a_visitor_sees_no_tags(stranger, owner, demo):
    add(owner, demo, "secret-plan")
    owner.post(reverse("share_run", args=[demo.pk]))
    page = text(stranger.get(demo.shares.get().get_absolute_url()))
    assert "secret-plan" not in page and "add a tag" not in page


def test_a_list_of_tagged_runs_is_a_few_queries(owner, make_run, django_assert_max_num_queries):
    tags = [Tag.objects.create(name=f"t{number}") for number in range(5)]
    for _ in range(20):
        make_run().tags.set(tags)
    with django_assert_max_num_queries(12):
        assert text(owner.get(reverse("runs"))).count('class="badge" href="/runs/?tag=') == 100
    with django_assert_max_num_queries(12):
        owner.get(Run.objects.first().get_absolute_url())
    with django_assert_max_num_queries(12):
        owner.get(reverse("results"), {"tag": "t1"})
