"""The history of a kernel on one workload: its sentence, its chart, its marks and its differences."""

import csv
import io
import json
import re
from datetime import timedelta

import pytest
import vl_convert
from daily import BEGIN, Day, fill, look_at_all, repeated, step
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from selection import telling

from runs.models import Change, Run
from runs.queries import history, point_rows

TORCH = {"torch": "2.11.0"}


def args_of(runs, kernel="sdpa-flash"):
    return ["attention", kernel, runs[0].measurements.get().workload.key]


def page_of(client, runs, kernel="sdpa-flash", **asked):
    answer = client.get(reverse("kernel_workload", args=args_of(runs, kernel)), asked)
    assert answer.status_code == 200
    return answer.content.decode()


def h1(page):
    return page.split("<h1>")[1].split("</h1>")[0]


@pytest.mark.parametrize(
    ("what", "cause", "certainty"),
    [
        ({"environment": TORCH}, ", when torch went from 2.10.0 to 2.11.0", "Its source was the same on both sides."),
        ({"source": "b"}, ", when its source changed", "Card, driver and versions were the same on both sides."),
        ({}, "", "No other recorded fact changed at that run."),
        (
            {"environment": TORCH, "source": "b"},
            ", when torch went from 2.10.0 to 2.11.0 and its source changed",
            "Two things changed at once, so the cause is unknown.",
        ),
    ],
    ids=["torch", "source", "nothing", "two"],
)
def test_a_regression_is_one_sentence_with_its_cause(owner, gpu, what, cause, certainty):
    page = page_of(owner, fill(gpu, step(after=30, **what)))
    (ratio,) = [part for part in h1(page).split() if part.endswith("%")]
    assert h1(page) == f"sdpa-flash got {ratio} slower on 17 August{cause}"
    assert 4.0 <= float(ratio.rstrip("%")) <= 4.2
    assert certainty in page and "and stayed there: " in page
    assert "The baseline sdpa did not change there: " in page
    assert f"time<b>+{ratio}, +" in page.replace("time <b>", "time<b>"), "never without its interval"


NEWER = TORCH | {"driver": "999"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            [*repeated(22), *repeated(2, environment=NEWER)],
            {"environment": NEWER, "source": "b"},
            "Card, driver and versions were the same in the last run before it and the first one after. "
            "Between other runs of the two sides, torch and driver changed.",
        ),
        (
            [*repeated(22), *repeated(2, source="b")],
            {"environment": TORCH, "source": "b"},
            "Its source was the same in the last run before it and the first one after. "
            "Between other runs of the two sides, its source changed.",
        ),
        (
            [*repeated(22), *repeated(2, source="c")],
            {"source": "b"},
            "Card, driver and versions were the same on both sides. "
            "Between other runs of the two sides, its source changed.",
        ),
        (
            [*repeated(22, environment=TORCH), *repeated(2)],
            {},
            "No other recorded fact changed at that run. Between other runs of the two sides, torch changed.",
        ),
        (
            [*repeated(10), *repeated(24, environment=NEWER)],
            {"environment": NEWER, "source": "b"},
            "Card, driver and versions were the same on both sides.</",
        ),
    ],
    ids=["versions", "source", "source twice", "nothing at it", "before the runs that were compared"],
)
def test_what_was_the_same_on_both_sides_is_so_in_all_of_their_runs(owner, gpu, before, after, said):
    page = page_of(owner, fill(gpu, [*before, *repeated(14, time=0.01872 * 1.06, **after)]))
    assert said in " ".join(page.split())


def test_a_faster_kernel_takes_less_time(owner, gpu):
    page = page_of(owner, fill(gpu, step(ratio=0.8, source="b")))
    assert "sdpa-flash takes " in h1(page) and " less time since 17 August, when its source changed" in h1(page)


def test_too_few_runs_since_are_not_said_to_have_stayed(owner, gpu):
    page = page_of(owner, fill(gpu, step(after=10, environment=TORCH)))
    assert "It is too early to tell whether it stayed there: 10 of 16 runs." in page


def test_no_change_is_said_only_if_it_is_certain(owner, gpu):
    runs = fill(gpu, repeated(40))
    page = page_of(owner, runs)
    assert h1(page) == "sdpa-flash has not changed since 24 July"
    assert "newest 12 against the first 24 of 40" in page
    wild = fill(gpu, repeated(40), kernel="wild", spread=0.2)
    assert h1(page_of(owner, wild, "wild")) == "It is unknown whether wild has changed since 24 July"


def test_a_slow_drift_is_not_called_unchanged(owner, gpu):
    days = [Day(time=0.01872 * (1 + 0.0006 * number)) for number in range(45)]
    assert "did not change" not in h1(page_of(owner, fill(gpu, days)))


def test_a_young_line_says_how_many_runs_it_needs(owner, gpu):
    assert h1(page_of(owner, fill(gpu, repeated(5)))) == "Too few runs to tell: 5 of 16"


def test_without_a_run_of_its_own_there_is_no_chart(owner, gpu):
    runs = fill(gpu, repeated(2, more={"contended": True}))
    page = page_of(owner, runs)
    assert h1(page).startswith(
        "No history yet: this site has only demo, contended, noisy or failed runs of sdpa-flash on"
    )
    assert "data-chart" not in page and '<details class="panel" id="runs" open>' in page
    assert owner.get(reverse("history_chart_svg", args=args_of(runs))).status_code == 404


def test_marks_are_numbered_by_date_and_each_is_tested(owner, gpu):
    days = [*repeated(20), *repeated(20, environment={"driver": "590"}), *repeated(5, source="b", environment=TORCH)]
    runs = fill(gpu, days)
    page = page_of(owner, runs)
    table = page.split('class="results marks"')[1]
    assert table.index("18 ") and table.count("no change") == 1
    assert "5 of 8 runs" in table and "insufficient data" in table
    rows = json.loads(owner.get(reverse("kernel_marks_json", args=args_of(runs))).content)["marks"]
    assert [(row["number"], row["verdict"], row["run"]) for row in rows] == [
        (2, "insufficient data", runs[40].pk), (1, "no change", runs[20].pk),
    ]  # fmt: skip
    text = owner.get(reverse("kernel_marks_csv", args=args_of(runs))).content.decode()
    first = next(csv.DictReader(io.StringIO(text)))
    assert first["facts"] == "torch 2.10.0 to 2.11.0; driver 590 to 580.126; source a000000 to b000000"


def test_the_differences_of_a_change_are_shown(owner, gpu):
    page = page_of(owner, fill(gpu, step(environment=TORCH, source="b")))
    assert '<span class="del">- torch    2.10.0' in page and '<span class="add">+ torch    2.11.0' in page
    assert '<span class="add">+    return q @ k @ v  # b' in page


def test_each_card_has_its_line_the_newest_first(owner, gpu, make_gpu):
    fill(gpu, repeated(3))
    other = make_gpu("GPU-2", host="gpu-2")
    runs = fill(other, repeated(4), begin=BEGIN + timedelta(days=9))
    answer = owner.get(reverse("kernel_workload", args=args_of(runs)))
    assert [(line.gpu, len(line.points)) for line in answer.context["lines"]] == [(other, 4), (gpu, 3)]
    assert answer.context["line"].gpu == other
    key = answer.context["lines"][1].key
    assert owner.get(reverse("kernel_workload", args=args_of(runs)), {"line": key}).context["line"].gpu == gpu
    assert owner.get(reverse("kernel_workload", args=args_of(runs)), {"line": "x"}).status_code == 404


UUID = {"uuid": "GPU-8d1b8a3c-0000-1111-2222-333344445555"}


def test_a_card_that_is_no_device_of_the_site_is_known_by_its_uuid(owner, gpu):
    runs = fill(gpu, [Day(5.0, environment=UUID)])
    Run.objects.update(gpu=None)
    (line,) = owner.get(reverse("kernel_workload", args=args_of(runs))).context["lines"]
    assert line.gpu is None
    page = page_of(owner, runs)
    assert "GPU-8d1b8a3c" in page and "GPU-8d1b8a3c-" not in page and "unknown" not in page.split("<main")[1]
    tiers = owner.get(reverse("tier_workload", args=[args_of(runs)[2], "graph"])).content.decode()
    assert re.search(r"card\W.{0,60}GPU-8d1b8a3c<", tiers, re.S)
    known = history.grouped(point_rows.points(point_rows.newest()))
    assert {one.facts["card"] for one in known} == {"GPU-8d1b8a3c"}
    assert (history.card_of(None, {}), history.card_of(gpu, UUID)) == ("unknown", gpu.place)


def test_an_acknowledged_change_begins_a_level(owner, gpu):
    runs = fill(gpu, step(after=20, environment=TORCH))
    look_at_all()
    change = Change.objects.get()
    assert "Acknowledge with a note" in page_of(owner, runs)
    owner.post(reverse("acknowledge", args=[change.pk]), {"note": "<b>known</b>"})
    page = page_of(owner, runs)
    assert h1(page) == "sdpa-flash has not changed since 17 August"
    assert "&lt;b&gt;known&lt;/b&gt;" in page and "Acknowledge with a note" not in page


@pytest.mark.parametrize("kernel", telling(["sdpa-flash", "sdpa"], "sdpa-flash", why="charts of the baseline"))
@pytest.mark.parametrize("days", [repeated(1), step(environment=TORCH), [Day(source=f"s{n}") for n in range(30)]])
def test_the_chart_is_drawn(owner, gpu, days, kernel, capfd):
    runs = fill(gpu, days)
    for asked in ({}, {"narrow": ""}, {"theme": "dark"}):
        svg = owner.get(reverse("history_chart_svg", args=args_of(runs, kernel)), asked).content.decode()
        assert svg.startswith("<svg") and "against itself (A/A)" in svg
        assert ("the baseline, p50" in svg) == (kernel == "sdpa-flash")
        assert "NaN" not in svg
    png = reverse("history_chart_png", args=args_of(runs, kernel))
    assert owner.get(png).content[:4] == b"\x89PNG" and f'<a href="{png}' in page_of(owner, runs, kernel)
    spec = owner.get(reverse("history_chart_json", args=args_of(runs, kernel))).content.decode()
    assert len(json.loads(spec)["vconcat"]) == (3 if kernel == "sdpa-flash" else 2)
    capfd.readouterr()
    vl_convert.vegalite_to_vega(spec, show_warnings=True)
    assert "WARN" not in "".join(capfd.readouterr()), "a browser's console has it, too"


def test_an_outlier_does_not_flatten_the_chart(owner, gpu):
    days = repeated(40)
    days[20].time = 0.1
    spec = json.loads(owner.get(reverse("history_chart_json", args=args_of(fill(gpu, days)))).content)
    points = [one for rows in spec["datasets"].values() for one in rows if one.get("edge") == "up"]
    assert len(points) == 1 and points[0]["us"] > 90 > 21 > points[0]["y"]


def test_a_page_takes_at_most_12_queries(owner, gpu):
    days = [*step(40, 20, environment=TORCH, source="b"), *repeated(20, time=0.03, source="c")]
    runs = fill(gpu, days)
    look_at_all()
    Change.objects.filter(run=runs[40]).update(acknowledged_at=timezone.now(), acknowledged_by=owner.user, note="x")
    address = reverse("kernel_workload", args=args_of(runs))
    with CaptureQueriesContext(connection) as captured:
        assert owner.get(address).status_code == 200
    assert len(captured) <= 12, [one["sql"][-130:] for one in captured]
