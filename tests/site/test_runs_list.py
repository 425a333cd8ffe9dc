"""The list of runs: newest first, filtered by its address, in pages, as files; and as cheap for fifty as for one."""

import csv
import io
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.models import Run
from runs.templatetags.figures import ago, grouped, state_tag
from runs.views.runs import FIELDS, PER_PAGE

LIST = reverse("runs")


def titles(client, **asked):
    return [run.title for run, _ in client.get(LIST, asked).context["runs"]]


@pytest.fixture
def many(make_run):
    """Rows like those of one run, as many as wanted."""

    def make(count, **fields):
        row = make_run(title="run 0")
        row_fields = {f.name: getattr(row, f.name) for f in Run._meta.concrete_fields if f.name != "id"}
        Run.objects.bulk_create(Run(**row_fields | {"title": f"run {number}"} | fields) for number in range(1, count))

    return make


def test_the_newest_comes_first_with_what_matters(owner, make_run, silent):
    make_run(title="older", state=Run.State.DONE, done=1, started_at=timezone.now() - timedelta(seconds=90),
             finished_at=timezone.now())  # fmt: skip
    make_run(title="newer", gpu=None, device_name="NVIDIA B200", user=None)
    page = owner.get(LIST).content.decode()
    assert page.index(">newer<") < page.index(">older<")
    assert "2 runs" in page
    for text in ("NVIDIA H200", "NVIDIA B200", "olga", "1 of 1", "0 of 1", "1 min 30 s"):
        assert text in page, text


def test_an_empty_list_says_how_to_begin(owner):
    page = owner.get(LIST).content.decode()
    assert "0 runs" in page
    assert f'No runs yet. <a href="{reverse("new_run")}">Start one.</a>' in page


def test_a_search_without_a_hit_offers_to_clear_the_filters(owner, make_run):
    make_run()
    for asked in ({"q": "not there"}, {"state": "lost"}):
        page = owner.get(LIST, asked).content.decode()
        assert f'No run matches. <a href="{LIST}">Clear the filters.</a>' in page
        assert "Start one" not in page


def test_the_search_says_what_it_reads_and_leads_to_the_results(owner, make_run):
    make_run()
    page = owner.get(LIST, {"q": "sdpa-flash & more"}).content.decode()
    assert 'placeholder="title, config or note"' in page
    assert f'href="{reverse("results")}?q=sdpa-flash%20%26%20more"' in page
    assert "search the results for" not in owner.get(LIST, {"state": "lost"}).content.decode()


def test_a_phone_hides_only_an_empty_result(owner, measured, make_run):
    make_run(title="waits")
    measured()
    page = owner.get(LIST).content.decode()
    cells = dict(zip(titles(owner), re.findall(r'<td class="text result( nothing)?"', page), strict=True))
    assert list(cells.values()) == ["", " nothing"] and cells["waits"] == " nothing"


def test_filters_left_empty_are_none(owner):
    assert "Start one" in owner.get(LIST, {"q": "", "state": "", "page": "1"}).content.decode()


def test_the_address_filters(owner, member, make_run, silent):
    make_run(title="done here", state="done", note="for the Berlin workshop")
    make_run(title="queued there", gpu=silent)
    make_run(title="failed by mats", state="failed", user=member.user)
    assert titles(owner) == ["failed by mats", "queued there", "done here"]
    assert titles(owner, state="done") == ["done here"]
    assert titles(owner, state="nonsense") == titles(owner, device="nonsense") == []
    assert titles(owner, device=silent.pk) == ["queued there"]
    assert titles(owner, by="me") == ["queued there", "done here"]
    assert titles(member, by="me") == ["failed by mats"]
    assert titles(owner, q="THERE") == ["queued there"]
    assert titles(owner, q="berlin") == ["done here"]
    assert titles(owner, q="typed") == titles(owner), "the config's name, too"
    assert titles(owner, q="done", state="failed") == []


@pytest.mark.parametrize("device", ("²", "x", "-1", "9" * 30, "1; drop table", "\x00"))
def test_of_a_device_that_is_none_there_is_no_run(owner, make_run, device):
    make_run(title="mine")
    assert titles(owner, device=device) == []


def test_a_search_is_plain_text(owner, make_run):
    make_run(title="100% of_it")
    make_run(title="100 percent of it")
    assert titles(owner, q="100%") == ["100% of_it"]
    assert titles(owner, q="of_it") == ["100% of_it"]
    assert titles(owner, q="a" * 60_000) == []
    assert titles(owner, q="\x00") == ["100 percent of it", "100% of_it"]


def test_a_thousand_runs_come_in_pages(owner, many):
    many(1000)
    first, last = owner.get(LIST), owner.get(LIST, {"page": 20})
    assert len(first.context["runs"]) == len(last.context["runs"]) == PER_PAGE == 50
    assert first.context["runs"][0][0].title == "run 999"
    assert last.context["runs"][-1][0].title == "run 0"
    assert "<h1>1,000 runs</h1>" in first.content.decode()
    assert "page 1 of 20" in first.content.decode()
    assert (b">newer<" in first.content, b">older<" in first.content) == (False, True)
    assert (b">newer<" in last.content, b">older<" in last.content) == (True, False)
    assert (b">first<" in first.content, b'href="?page=20">last<' in first.content) == (False, True)
    assert (b'href="?page=1">first<' in last.content, b">last<" in last.content) == (True, False)
    assert owner.get(LIST, {"page": 99}).context["pages"].number == 20
    assert owner.get(LIST, {"page": "x"}).context["pages"].number == 1


def test_pages_and_files_keep_what_was_asked(owner, many):
    many(120)
    page = owner.get(LIST, {"q": "run & co"[:3], "state": "queued", "page": 2}).content.decode()
    assert 'href="?q=run&amp;state=queued&amp;page=3"' in page
    assert 'href="?q=run&amp;state=queued&amp;page=1">first<' in page
    assert f'href="{reverse("runs_csv")}?q=run&amp;state=queued"' in page


def test_a_page_of_fifty_takes_as_many_queries_as_a_page_of_one(owner, many, django_assert_max_num_queries):
    def queries():
        with CaptureQueriesContext(connection) as seen:
            assert owner.get(LIST).status_code == 200
        return len(seen)

    many(1)
    one = queries()
    many(PER_PAGE, done=1)
    with django_assert_max_num_queries(8):  # session, user, count, page, their results and tags, devices, all tags
        owner.get(LIST)
    assert queries() - one <= 1


def test_what_is_listed_is_not_loaded_with_its_config_and_log(owner, make_run):
    make_run(log="x" * 100_000)
    with CaptureQueriesContext(connection) as seen:
        owner.get(LIST)
    (rows,) = [q["sql"] for q in seen if '"runs_run"."title"' in q["sql"]]
    assert '"runs_run"."log"' not in rows
    assert '"runs_run"."config"' not in rows


def test_csv_and_json_have_a_row_for_each_run_that_was_asked_for(owner, make_run, silent):
    make_run(title='a "quoted", title', state="done", done=1, started_at=timezone.now(), finished_at=timezone.now())
    make_run(title="another", gpu=silent, user=None)
    answer = owner.get(reverse("runs_csv"))
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert (answer["Content-Type"], answer["Content-Disposition"]) == (
        "text/csv; charset=utf-8",
        'attachment; filename="runs.csv"',
    )
    assert tuple(rows[0]) == FIELDS
    assert [row["title"] for row in rows] == ["another", 'a "quoted", title']
    listed = owner.get(reverse("runs_json")).json()["runs"]
    assert [{key: str(value) for key, value in row.items()} for row in listed] == rows
    assert (listed[1]["device"], listed[1]["by"], listed[1]["measured"]) == ("NVIDIA H200", "olga", 1)
    only = owner.get(reverse("runs_json"), {"state": "done"}).json()["runs"]
    assert [row["title"] for row in only] == ['a "quoted", title']


def test_files_take_as_many_queries_for_many_runs_as_for_one(owner, many, django_assert_max_num_queries):
    many(200, done=1)
    for name in ("runs_csv", "runs_json"):
        with django_assert_max_num_queries(5):  # session, user, runs, their results and tags
            owner.get(reverse(name))


def test_a_title_is_text_and_not_html(owner, make_run):
    make_run(title="<script>alert(1)</script> & more")
    page = owner.get(LIST).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert "<script>alert" not in page
    searched = owner.get(LIST, {"q": '"><script>alert(2)</script>'}).content.decode()
    assert "<script>alert" not in searched


def test_the_state_and_the_result_stand_before_what_a_phone_hides(owner, make_run):
    make_run()
    page = owner.get(LIST).content.decode()
    heads = re.findall(r"<th([^>]*)>([^<]+)</th>", page.split("<thead>")[1])
    assert [text for _, text in heads] == [
        "run", "title", "state", "result", "workloads", "device", "took", "by", "created",
    ]  # fmt: skip
    assert [text for attributes, text in heads if "less" in attributes] == ["device", "took", "by"]


def test_a_time_says_when_exactly_and_in_which_zone(owner, make_run):
    at = timezone.now() - timedelta(hours=8, minutes=31)
    make_run(created_at=at)
    assert f'title="{at:%Y-%m-%d %H:%M:%S} UTC">8 h ago</time>' in owner.get(LIST).content.decode()


@pytest.mark.parametrize(
    "text, passed",
    [
        ("just now", {"seconds": 4}), ("59 s ago", {"seconds": 59}), ("1 min ago", {"seconds": 61}),
        ("59 min ago", {"minutes": 59, "seconds": 50}), ("1 h ago", {"minutes": 119}), ("23 h ago", {"hours": 23.9}),
        ("1 d ago", {"hours": 25}), ("6 d ago", {"days": 6.9}),
    ],
)  # fmt: skip
def test_how_long_ago_is_said_in_one_unit(text, passed):
    assert ago(timezone.now() - timedelta(**passed)) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (999.4, "999"),
        (999.6, "1,000"),
        (2730, "2,730"),
        (10_540, "10,500"),
        (-4321, "-4,320"),
        (0.0282, "0.0282"),
        (0, "0"),
    ],
)
def test_thousands_are_separated_from_a_thousand_on(value, text):
    assert grouped(value) == text


def test_cancelled_is_no_failure(owner, make_run):
    styles = {state: state_tag(state).split('"dot ')[1].split('"')[0] for state in Run.State.values}
    assert styles["failed"] == styles["lost"] == "off"
    assert styles["cancelled"] not in ("off", "on", "busy")


@pytest.mark.parametrize("title", ["=1+1", "+1", "-1+1", "@sum(A1)", "\t=1"])
def test_a_spreadsheet_computes_no_title(owner, make_run, title):
    make_run(title=title)
    make_run(title="a - b = c")
    rows = list(csv.DictReader(io.StringIO(owner.get(reverse("runs_csv")).content.decode())))
    assert [row["title"] for row in rows] == ["a - b = c", f"'{title}"]
