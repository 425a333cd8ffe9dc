"""The columns and the order of a run's table and files, as the address asks for them."""

import csv
import io
import json
import re

import pytest
from django.urls import reverse
from shown import all_figures

from kernels.report import measures, tables
from kernels.report.cells import three_digits
from runs.models import Result
from runs.queries import measurements


def page_of(client, run, query=""):
    answer = client.get(f"{run.get_absolute_url()}{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def headings(page):
    head = page.split('<table class="results">')[1].split("</thead>")[0]
    return [" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in head.split("<th")[2:]]


def texts(row):
    return [re.sub("<[^>]+>", "", cell.partition(">")[2]).strip() for cell in row.split("<td")[1:]]


def groups(page):
    """The kernels of each workload, in the order of the page."""
    bodies = page.split('<table class="results">')[1].split("</table>")[0].split("<tbody>")[1:]
    return [re.findall(r'/results/\d+/">([^<]+)<', body) for body in bodies]


USUAL = [
    "kernel", "verdict", "speedup and interval", "base → new µs", "interval of p50", "p90 µs", "correct, error", "TFLOP/s",
    "of speed of light", "n", "rounds",
]  # fmt: skip


def cells(heads):
    return [re.sub(r"^.*?>\s*", "", head) for head in heads]


def test_the_usual_columns(owner, demo):
    assert cells(headings(page_of(owner, demo))) == cells(USUAL)


def test_columns_of_the_address_are_shown_with_units(owner, demo):
    page = page_of(owner, demo, "?columns=mean_ms,slowdown&columns=p99_ms,queries_per_s,input_bytes")
    assert cells(headings(page)) == ["kernel", "verdict", "slowdown", "mean µs", "p99 µs", "queries/s", "inputs bytes"]
    result = Result.objects.filter(kernel__name="triton-flash").order_by("pk").first()
    row = all_figures(page).split(f"/results/{result.pk}/", 1)[1].split("</tr>", 1)[0]
    slowdown, mean, p99, queries, inputs = texts(row)[-5:]
    assert slowdown.startswith(f"{1 / result.speedup:.3f} ")
    assert mean == three_digits(result.mean_ms * 1e3)
    assert p99 == three_digits(result.cold["p99_ms"] * 1e3)
    assert float(queries.split()[0].replace(",", "")) == pytest.approx(4096 / result.p50_ms * 1e3, rel=1e-3)
    assert inputs == "1,572,864"
    assert re.search(r'title="over \d+ replays of \d+ calls each"', row)


def test_a_missing_figure_says_why(owner, demo):
    page = page_of(owner, demo, "?columns=p99_ms,registers")
    assert re.search(r'title="p99 needs 100 samples; there are \d+">\N{EN DASH}', page)
    assert 'title="not measured here, or not kept">\N{EN DASH}' in page


def test_a_result_without_a_time_says_why_across_its_cells(owner, demo):
    Result.objects.filter(kernel__name="eager").update(status="crashed", why="It crashed.", p50_ms=None, n=None)
    for query, span in (("", 4), ("?columns=p50_ms,mean_ms", 2), ("?columns=mean_ms,n,rounds", 3), ("?columns=n", 1)):
        assert f'<td colspan="{span}" class="text why">It crashed.</td>' in page_of(owner, demo, query), query


def test_every_measure_at_once(owner, demo, django_assert_max_num_queries):
    with django_assert_max_num_queries(12):
        page = (
            page_of(owner, demo, "?columns=all&sort=per_head_ms")
            .split('<table class="results">')[1]
            .split("</table>")[0]
        )
    widths = [int(width) for width in re.findall(r'<th colspan="(\d+)" class="text" scope="rowgroup"', page)]
    rows = [row.split("</tr>")[0] for row in page.split("<tr>") if "/results/" in row]
    rows = [row for row in rows if "colspan" not in row]
    assert len(rows) > 50 and {row.count("<td") for row in rows} == set(widths) and len(set(widths)) == 1


def test_results_of_each_workload_are_sorted(owner, demo):
    plain = groups(page_of(owner, demo))
    page = page_of(owner, demo, "?sort=-tflops")
    assert 'aria-sort="descending"' in page and page.count("aria-sort") == 1
    for measured, kernels, before in zip(measurements.of_run(demo), groups(page), plain, strict=True):
        assert sorted(kernels) == sorted(before)
        rates = [measured.arm(name).tflops for name in kernels if measured.arm(name).status == "ok"]
        assert rates == sorted(rates, reverse=True)
        valid = [measured.arm(name).status == "ok" for name in kernels]
        assert valid == sorted(valid, reverse=True), "what is not ok comes last"
    assert groups(page) != plain
    assert f'href="/runs/{demo.pk}/?sort=tflops#all-attention"' in page, "the other way round"
    assert 'aria-sort="ascending"' in page_of(owner, demo, "?sort=p50_ms")


def test_a_link_of_a_heading_keeps_the_columns_and_so_do_files_and_the_form(owner, demo):
    page = page_of(owner, demo, "?columns=mean_ms,n&sort=mean_ms")
    assert f'href="/runs/{demo.pk}/?columns=mean_ms,n&amp;sort=-mean_ms#all-attention"' in page
    assert f'href="/runs/{demo.pk}.csv?columns=mean_ms,n&amp;sort=mean_ms"' in page
    assert '<input type="hidden" name="sort" value="mean_ms">' in page
    shown = re.findall(r'name="columns" value="(\w+)" checked', page)
    assert shown == ["mean_ms", "n"]
    assert page.count('name="columns"') == len(measures.MEASURES)


def test_a_live_page_keeps_its_columns(owner, make_run):
    run = make_run(state="running")
    assert "&amp;columns=mean_ms&amp;sort=n" in page_of(owner, run, "?columns=mean_ms&sort=n")


@pytest.mark.parametrize("asked", ["foo", "mean_ms,foo", "<script>", "p50_ms;drop"])
def test_a_column_that_does_not_exist_gives_one_sentence_and_the_usual_ones(owner, demo, asked):
    page = page_of(owner, demo, f"?columns={asked}")
    assert (
        page.count('role="alert"') == 1 and "There is no column " in page and "<script>" not in page.split("<main")[1]
    )
    assert cells(headings(page)) == cells(USUAL)
    for kind in ("csv", "json", "jsonl", "md"):
        answer = owner.get(reverse(f"run_{kind}", args=[demo.pk]), {"columns": asked})
        assert answer.status_code == 400
        assert (
            answer.content.decode().startswith("There is no column ")
            and "There are: speedup, " in answer.content.decode()
        )


def test_an_order_that_does_not_exist_gives_one_sentence(owner, demo):
    page = page_of(owner, demo, "?sort=-foo")
    assert page.count('role="alert"') == 1 and "Results cannot be sorted by &#x27;foo&#x27;" in page
    assert groups(page) == groups(page_of(owner, demo))


def test_csv_has_the_columns_that_are_asked_for(owner, demo):
    answer = owner.get(reverse("run_csv", args=[demo.pk]), {"columns": "p50_ms,queries_per_s", "sort": "p50_ms"})
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert list(rows[0])[len(measures.NAMED) :] == [
        "p50_ms", "p50_low_ms", "p50_high_ms", "queries_per_s", "queries_per_s_low", "queries_per_s_high", "gpu",
    ]  # fmt: skip
    assert len(rows) == 64
    first = [float(row["p50_ms"]) for row in rows[:8]]
    assert first == sorted(first)


def test_json_and_md_have_them_too(owner, demo):
    data = owner.get(reverse("run_json", args=[demo.pk]), {"columns": "mean_ms"}).json()
    assert set(data["table"][0]) == {*measures.NAMED, "mean_ms"} and len(data["measurements"]) == 8
    text = owner.get(reverse("run_md", args=[demo.pk]), {"columns": "mean_ms,slowdown"}).content.decode()
    assert "| workload | kernel | verdict | slowdown, x | mean, us |" in text


def lines_of(answer):
    assert answer.streaming and answer["Content-Type"] == "application/jsonl"
    return [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]


def test_jsonl_has_one_result_a_line(owner, demo):
    address = reverse("run_jsonl", args=[demo.pk])
    answer = owner.get(address)
    assert answer["Content-Disposition"] == f'attachment; filename="run-{demo.pk}.jsonl"'
    lines = lines_of(answer)
    whole = json.loads(json.dumps(tables.as_records(tables.rows(measurements.of_run(demo)))))
    assert lines == [row | {"gpu": "NVIDIA H200"} for row in whole] and len(lines) == 64
    chosen = lines_of(owner.get(address, {"columns": "mean_ms"}))
    assert set(chosen[0]) == {*measures.NAMED, "mean_ms", "gpu"}


def test_rows_as_others_write_them(owner, demo):
    ok = [arm for m in measurements.of_run(demo) for arm in m.results if arm.status == "ok" and arm.p50_ms]
    for name, time in (("nested", "latency_ms"), ("flat", "time_ms")):
        rows = owner.get(reverse("run_json", args=[demo.pk]), {"format": name}).json()
        assert [row["implementation"] for row in rows] == [arm.kernel for arm in ok]
        assert all(row[time] > 0 for row in rows)
        assert lines_of(owner.get(reverse("run_jsonl", args=[demo.pk]), {"format": name})) == rows
    assert rows[0]["batch_size"] == 1
    for kind in ("json", "jsonl"):
        answer = owner.get(reverse(f"run_{kind}", args=[demo.pk]), {"format": "xml"})
        assert (answer.status_code, answer.content.decode()) == (
            400, "There is no format 'xml'. There are: nested, flat.",
        )  # fmt: skip
