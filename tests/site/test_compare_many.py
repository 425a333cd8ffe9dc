"""Several runs side by side."""

import re
from dataclasses import replace
from types import SimpleNamespace

import altair as alt
import pytest
from django.urls import reverse

from kernels.report import tables
from runs.charts import side_by_side
from runs.models import Result, Run
from runs.queries import measurements
from runs.views.compare import _diffs


def page_of(client, *runs):
    answer = client.get(reverse("compare_many"), {"runs": ",".join(str(run.pk) for run in runs)})
    assert answer.status_code == 200
    return answer.content.decode()


def rows_of(page, kernel):
    return group_of(page, kernel).split("<tr")[1:]


def group_of(page, kernel):
    return page.split(f">{kernel}</a></th>", 1)[1].split("</tbody>", 1)[0]


def test_as_data_it_says_what_the_page_says(owner, measured):
    runs = [measured(), measured(edit={"triton-flash": 1.3}), measured(edit={"triton-flash": 0.8})]
    asked = ",".join(str(run.pk) for run in runs)
    said = owner.get("/compare.json", {"runs": asked}).json()
    assert [one["run"] for one in said["runs"]] == [run.pk for run in runs] and said["runs"][0]["baseline"] == "sdpa"
    one = next(kernel for kernel in said["kernels"] if kernel["kernel"] == "triton-flash")
    assert len(one["rows"]) == 2 and len(one["standings"]) == 3
    for row in one["rows"]:
        first, second, third = row["results"]
        assert first["change"] is None and first["verdict"] in ("FASTER", "SLOWER", "SAME", "UNDECIDED")
        assert (second["change_verdict"], third["change_verdict"]) == ("FASTER", "SLOWER")
        assert second["change_low"] < second["change"] < second["change_high"]
    assert owner.get("/api/compare", {"runs": asked}).json() == said
    for wrong, why in (("", "Name runs"), ("x", "is not the number"), ("999999", "There is no run 999999")):
        assert why in owner.get("/compare.json", {"runs": wrong}).json()["problem"]
        assert why in owner.get("/api/compare", {"runs": wrong}).json()["detail"]


def test_three_runs_of_one_card_have_words_against_the_first(owner, measured):
    runs = [measured(), measured(edit={"triton-flash": 1.3}), measured(edit={"triton-flash": 0.8})]
    page = page_of(owner, *runs)
    assert "<h1>3 runs side by side</h1>" in page
    rows = rows_of(page, "triton-flash")
    assert len(rows) == 2
    for row in rows:
        first, second, third = row.split("<td")[1:]
        assert "moved" not in first and "faster 1.300x" in second and "slower 0.800x" in third
        for run, cell in zip(runs, (first, second, third), strict=True):
            assert f"/runs/{run.pk}/results/" in cell
    assert "same 1.000x" in rows_of(page, "sdpa-cudnn")[0]


def test_cards_stand_side_by_side_without_a_word(owner, measured, make_gpu):
    runs = [measured(), measured(on=make_gpu("GPU-2", host="gpu-2"), device="NVIDIA L4"), measured(driver="600.1")]
    page = page_of(owner, *runs)
    assert "this page does not compare them" in page and "NVIDIA L4" in page and "driver 600.1" in page
    assert 'class="moved' not in page
    assert not any("faster" in row for row in rows_of(page, "triton-flash"))
    assert page.count(" is not compared with run ") == 2
    assert rows_of(page, "triton-flash")[0].count("1.48x<small>±0.5%</small>") == 3


def test_what_most_runs_share_comes_first(owner, measured):
    """The first run has a workload and kernels that no other has."""
    wide, *narrow = measured(count=3), measured(count=1, driver="600.1"), measured(count=1, driver="601.1")
    Result.objects.filter(measurement__run__in=narrow).exclude(kernel__name__in=("sdpa", "triton-flash")).delete()
    page = page_of(owner, wide, *narrow)
    names = re.findall(r'scope="rowgroup"><a[^>]*>([^<]+)</a>', page)
    assert names[0] == "triton-flash" and len(names) > 2
    counts = [row.count("/results/") for row in rows_of(page, "triton-flash")]
    assert counts == sorted(counts, reverse=True) == [3, 1, 1]


def test_two_runs_that_can_be_compared_have_a_page_of_their_own(owner, measured):
    first, second = measured(), measured()
    answer = owner.get(reverse("compare_many"), {"runs": f"{first.pk},{second.pk}"})
    assert answer.headers["location"] == reverse("compare", args=[first.pk, second.pk])
    link = f'href="{reverse("compare_many")}?runs={first.pk},{second.pk},"'
    assert link in owner.get(answer.headers["location"]).content.decode()


@pytest.mark.parametrize(
    "asked, said",
    [
        ("<script>", "“&lt;script&gt;” is not the number of a run."),
        ("1, x", "“x” is not the number of a run."),
        ("998,999", "There is no run 998, 999."),
        (",".join(map(str, range(900, 920))), "At most 8 runs fit side by side"),
        ("9" * 40, "There is no run"),
    ],
)
def test_what_is_wrong_is_one_sentence(owner, asked, said):
    page = owner.get(reverse("compare_many"), {"runs": asked}).content.decode()
    assert page.count('role="alert"') == 1 and said in page and "<script>" not in page.split("<main")[1]


def test_without_a_run_it_offers_the_newest_and_is_no_alert(owner, measured, make_run):
    first, second = measured(), measured(driver="600.1")
    waiting = make_run(title="waits")
    page = owner.get(reverse("compare_many")).content.decode()
    assert 'role="alert"' not in page and "Choose two or more runs" in page
    offered = re.findall(r'<input type="checkbox" name="runs" value="(\d+)"', page)
    assert offered == [str(second.pk), str(first.pk)] and str(waiting.pk) not in offered
    assert f'<a href="{first.get_absolute_url()}">' in page
    one = page_of(owner, first)
    assert re.findall(r'name="runs" value="(\d+)" checked', one) == [str(first.pk)]
    both = owner.get(f"{reverse('compare_many')}?runs={first.pk}&runs={second.pk}").content.decode()
    assert "<h1>2 runs side by side</h1>" in both and 'type="checkbox"' not in both.split("<main")[1]


def test_heads_say_what_differs(owner, measured):
    runs = [measured(harness="5", uuid="GPU-11111111-aaaa"), measured(harness="6", uuid="GPU-22222222-bbbb")]
    page = page_of(owner, *runs)
    heads = page.split("<thead>")[1].split("</thead>")[0]
    assert "harness 5, card GPU-11111111<" in heads and "harness 6, card GPU-22222222<" in heads
    assert "triton" not in heads, "what is the same is not told"


def test_the_best_kernel_comes_first_with_its_marks_in_the_table_and_the_charts(owner, on_two_cards):
    Result.objects.filter(measurement__run__in=on_two_cards).exclude(
        kernel__name__in=("sdpa", "eager", "triton-flash")
    ).delete()
    page = page_of(owner, *on_two_cards)
    names = re.findall(r'scope="rowgroup"><a[^>]*>([^<]+)</a>', page)
    assert names == ["triton-flash", "eager"]
    stands = group_of(page, "triton-flash").split("<tr")[0]
    assert stands.count('class="tag faster"') == stands.count('class="tag slower"') == 1
    assert "▲</i> faster on 2" in stands and "▼</i> slower on 2" in stands
    answer = owner.get(reverse("compare_many"), {"runs": ",".join(str(run.pk) for run in on_two_cards)})
    speedup, latency, *_ = answer.context["pictures"]
    assert list(dict.fromkeys(line.kernel for line in speedup.lines)) == names
    assert list(dict.fromkeys(line.kernel for line in latency.lines)) == ["sdpa", *names]


def test_a_run_that_was_not_cross_checked_says_so(owner, on_two_cards):
    Run.objects.filter(pk=on_two_cards[0].pk).update(state="cancelled")
    page = page_of(owner, *on_two_cards)
    assert "cancelled, not cross-checked" in page and 'class="tag faster"' not in page


def test_many_runs_take_as_many_queries_as_three(owner, measured, django_assert_max_num_queries):
    runs = [measured(count=1) for _ in range(8)]
    with django_assert_max_num_queries(6):
        page_of(owner, *runs)


def test_a_stranger_sees_nothing(stranger, measured):
    assert stranger.get(reverse("compare_many"), {"runs": measured().pk}).status_code == 302


def test_kernels_of_one_name_in_two_operations_have_titles_of_their_own(db):
    def row(operation):
        hashes = {"sha256_before": f"{operation} 1", "sha256_after": f"{operation} 2"}
        return SimpleNamespace(workload=f"{operation} fp16 8 x 8", kernel="eager", same_source=False, **hashes)

    assert [one["kernel"] for one in _diffs([row("softmax"), row("gelu")])] == ["softmax/eager", "gelu/eager"]
    assert [one["kernel"] for one in _diffs([row("softmax")])] == ["eager"]


# --- charts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_two_cards(measured, make_gpu):
    return [measured(), measured(on=make_gpu("GPU-2", host="gpu-2"), device="NVIDIA L4", edit={"triton-flash": 0.5})]


def marks_of(spec):
    return [row for rows in spec["datasets"].values() for row in rows if "value" in row]


def test_each_kernels_speedup_stands_side_by_side_on_each_card_without_a_word(owner, on_two_cards):
    page = page_of(owner, *on_two_cards)
    asked = {"runs": ",".join(str(run.pk) for run in on_two_cards), "operation": "attention"}
    spec = owner.get(reverse("compare_chart_json", args=["speedup"]), asked).json()
    alt.Chart.from_dict(spec)  # validates
    marks = marks_of(spec)
    assert {mark["run"] for mark in marks} == {
        f"run {run.pk}: {device}" for run, device in zip(on_two_cards, ("NVIDIA H200", "NVIDIA L4"), strict=True)
    }
    mine = [mark for mark in marks if mark["kernel"] == "triton-flash"]
    assert len(mine) == 4 and mine[1]["value"] == pytest.approx(mine[0]["value"] / 2)
    assert all(mark["low"] <= mark["value"] <= mark["high"] for mark in marks)
    assert "sdpa" not in {mark["kernel"] for mark in marks}, "the baseline has no speedup over itself"
    assert not {"FASTER", "SLOWER", "faster", "slower"} & set(str(spec).replace("'", " ").split())
    table = page.split('aria-label="Speedup over the baseline of each run"')[1].split("</table>")[0]
    assert table.count("<tr>") == 1 + len(marks) / 2


@pytest.mark.parametrize("name", ["speedup", "latency", "throughput"])
@pytest.mark.parametrize("more", [{}, {"theme": "dark", "narrow": ""}])
def test_a_chart_is_as_large_as_its_page_reserves_and_comes_as_svg_and_png(owner, on_two_cards, name, more):
    asked = {"runs": ",".join(str(run.pk) for run in on_two_cards), "operation": "attention"} | more
    svg, png = (owner.get(reverse(f"compare_chart_{kind}", args=[name]), asked) for kind in ("svg", "png"))
    (reserved,) = [one for one in owner.get(reverse("compare_many"), asked).context["pictures"] if one.name == name]
    width = side_by_side.WIDTHS["narrow" in more]
    assert f'width="{width}" height="{reserved.heights["narrow" in more]}"' in svg.content.decode()
    assert png.content.startswith(b"\x89PNG") and f"{name}-attention.png" in png.headers["Content-Disposition"]


def test_of_many_workloads_some_are_drawn_for_every_kernel_and_the_table_has_all(owner, on_two_cards, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_LINES", 8)
    answer = owner.get(reverse("compare_many"), {"runs": ",".join(str(run.pk) for run in on_two_cards)})
    one = answer.context["pictures"][0]
    assert len(one.drawn) == 1 < len(one.workloads) and "1 of 2 workloads are drawn" in answer.content.decode()
    assert {line.kernel for line in one.shown} == {line.kernel for line in one.lines}


def picture(*marks, kernel="triton-flash"):
    """Of workloads w0, w1, ...: in how many of three runs each was measured."""
    mark = side_by_side.Mark(1.1, 1.0, 1.2)
    lines = [side_by_side.Line(kernel, f"w{n}", [mark] * some + [None] * (3 - some)) for n, some in enumerate(marks)]
    return side_by_side.Picture("speedup", "attention", "Speedup", lines, 3)


def test_workloads_of_most_runs_are_drawn_first(monkeypatch):
    """Else a chart of several runs may have marks of one of them only."""
    monkeypatch.setattr(side_by_side, "MOST_LINES", 3)
    assert picture(1, 1, 3, 1, 1, 2).drawn == ["w0", "w2", "w5"]
    assert picture(1, 1, 1, 1, 1).drawn == ["w0", "w2", "w4"]
    assert picture(3, 3).drawn == ["w0", "w1"]


def test_a_workload_measured_in_two_modes_is_two_workloads_of_the_chart(demo):
    row = next(row for row in tables.rows(measurements.of_run(demo)) if row.kernel == "triton-flash")
    speedup, *_ = side_by_side.pictures([[replace(row, mode=mode)] for mode in ("graph", "cold")])
    assert [line.workload.split()[-1] for line in speedup.lines] == ["graph", "cold"]
    assert len(speedup.drawn) == 2


@pytest.mark.parametrize("asked", [{}, {"operation": "gemm"}, {"operation": "attention", "theme": "pink"}])
def test_there_is_no_chart_of_nothing(owner, demo, asked):
    assert owner.get(reverse("compare_chart_svg", args=["speedup"]), {"runs": demo.pk} | asked).status_code == 404
    assert owner.get(reverse("compare_chart_svg", args=["nosuch"]), {"runs": demo.pk} | asked).status_code == 404
