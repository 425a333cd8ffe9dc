"""All results: what the search field understands, the table, its order, its pages and its files."""

import csv
import io
import json
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from cast import load, signed_in
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape
from many import many

from kernels.report import measures, tables
from runs.models import Result, Run, Workload
from runs.queries import measurements, results
from runs.queries.results import Key, NoOrder, Order
from runs.queries.search import search
from runs.templatetags.columns import result_cells
from runs.templatetags.figures import DASH, grouped


def page_of(client, query=""):
    answer = client.get(f"/results/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def said(text, **filters):
    found, _ = search({"q": [text]} | {name: [value] for name, value in filters.items()}, "olga")
    return [term.said for term in found.terms if term.said], found.problem


def keys_of(text, sort="", most=10_000):
    found, _ = search({"q": [text]}, "olga")
    return results._keys(found, Order.of(sort), None, most)


def matching(text):
    return {key.pk for key in keys_of(text)}


# --- what is understood -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,expected", [
    ("sdpa-flash", ["kernel sdpa-flash"]),
    ("attention/sdpa-flash", ["kernel sdpa-flash"]),
    ("kernel:sdpa-f", ["kernel sdpa-flash"]),
    ("triton", ["backend triton"]),
    ("H200 fp16", ["GPU NVIDIA H200", "dtype fp16"]),
    ("S=4096 D = 128", ["S = 4096", "D = 128"]),
    ("seq_len >= 2k", ["seq_len ≥ 2048"]),
    ("causal bf16", ["causal", "dtype bf16"]),
    ("16384x4096", ["shape 16384 x 4096"]),
    ("faster by:me", ["faster", "person olga"]),
    ("suspect contended", ["suspect", "contended"]),
    ("2026-11-22", ["on 2026-11-22"]),
    ("since:2026-11-01 until:2026-11-30", ["since 2026-11-01", "until 2026-11-30"]),
    ("run:1 mode:graph", ["run 1", "mode graph"]),
    ('label:"Six canonical"', ["“Six canonical” in the run's title"]),
    ("canonical", ["“canonical” in the run's title"]),
    ("operation=attention", ["operation attention"]),
    ("causal=1", ["causal = yes"]),
    ("scale=0.125", ["scale = 0.125"]),
    ("approximate=Tanh", ["approximate = tanh"]),
    ("speedup >= 1.2", ["speedup \N{GREATER-THAN OR EQUAL TO} 1.2x"]),
    ("p50<100us light>80%", ["p50 < 100us", "share of the speed of light > 80%"]),
    ("tflops>500 gb_per_s<=4000", ["TFLOP/s > 500", "GB/s \N{LESS-THAN OR EQUAL TO} 4000"]),
])  # fmt: skip
def test_it_says_what_it_understood(owner, demo, gpu, text, expected):
    terms, problem = said(text)
    assert (terms[-len(expected):], problem) == (expected, "")  # fmt: skip


@pytest.mark.parametrize("text,why", [
    ("zork", "No kernel, GPU or person is named “zork”."),
    ("4096", "(write the name of the size before the number, such as S=4096)"),
    ("gpu:H900", "(no GPU has this name)"),
    ("Q=3", "(Q is no size and no figure; sizes are B, H, "),
    ("Q=3", "figures are speedup, p50, tflops, gb_per_s, light)"),
    ("speedup=2", "(compare speedup by >=, <=, > or <)"),
    ("speedup>2ms", "(write a number such as speedup>1.5x)"),
    ("p50<fast", "(write a number such as p50<1.5us)"),
    ("since:soon", "(write a date such as 2026-11-30)"),
    ("S>=big", "(use a number for this size)"),
    ("S=abc", "(use a number for this size)"),
    ("S=yes", "(use a number for this size)"),
    ("causal=maybe", "(use yes or no)"),
    ("approximate=erf", "(use none or tanh)"),
    ("state:odd", "(this state is not known)"),
    ("run:x", "(write the number of a run)"),
    ('"', "“"),
    ("<script>alert(1)</script>", "alert(1)"),
])  # fmt: skip
def test_what_it_did_not_understand_is_one_sentence_and_no_result_matches(owner, demo, text, why):
    terms, problem = said(text)
    assert terms == [] and problem.startswith(("Invalid search terms: ", "No kernel, GPU or person is named "))
    assert why in problem and problem.count(". ") == 0
    page = page_of(owner, f"?{urlencode({'q': text})}")
    assert escape(why) in page and "<script>alert" not in page
    assert "<h1>No result matches</h1>" in page and "<table" not in page and "No results yet" not in page


def test_beside_terms_that_are_understood_it_still_matches_nothing(owner, demo):
    assert matching("sdpa-flash") and not matching("sdpa-flash zork") and not matching(f"run:{demo.pk} zork")
    assert keys_of("sdpa-flash zork", sort="-speedup") == []
    terms, problem = said("sdpa-flash zork gpu:H900")
    assert terms == ["kernel sdpa-flash"]
    assert problem == (
        "No kernel, GPU or person is named “zork”. Invalid search terms: “gpu:H900” (no GPU has this name)."
    )


def test_the_search_narrows_to_what_it_says(owner, demo):
    rows = Result.objects.filter(measurement__run=demo)
    assert matching("") == set(rows.values_list("pk", flat=True))
    assert matching("sdpa-flash eager") == set(
        rows.filter(kernel__name__in=["sdpa-flash", "eager"]).values_list("pk", flat=True)
    )
    assert matching("backend:triton") == set(rows.filter(kernel__backend="triton").values_list("pk", flat=True))
    labels = dict(rows.values_list("pk", "measurement__workload__label"))
    assert matching("S=512 D=64 causal") == {pk for pk, label in labels.items() if "S=512 D=64 causal" in label}
    assert matching("S>512") == {pk for pk, label in labels.items() if "S=4096" in label}
    assert matching("S!=512") == matching("S>512")
    assert matching("causal=1") == matching("causal:yes") == matching("causal")
    assert matching("D=64 D=128") == set(labels)
    assert matching("S=512 full") == {pk for pk, label in labels.items() if label.endswith("S=512 D=64")}
    assert matching("bf16") == matching("S=513") == set()
    assert matching("H200 demo") == set(labels)
    ok = rows.filter(status="ok")
    assert matching("speedup>1.2") == set(ok.filter(speedup__gt=1.2).values_list("pk", flat=True)) != set()
    assert matching("p50<10us speedup>=1") == set(
        ok.filter(p50_ms__lt=0.01, speedup__gte=1).values_list("pk", flat=True)
    )
    assert matching("p50<0.01ms") == matching("p50<10") and matching("light>40%") == set(
        ok.filter(limit_share__gt=0.4).values_list("pk", flat=True)
    )
    day = demo.created_at.date()
    assert matching(f"{day}") == matching(f"since:{day} until:{day}") == set(labels)
    assert matching("since:2100-01-01") == matching("until:2000-01-01") == set()

    for state in ("faster", "slower", "baseline"):
        found = results.page(search({"q": [state]})[0], Order(), None, 999)
        assert found and {str(one.arm.verdict).lower() for one in found} == {state}


def test_state_person_host_and_confirmed(owner, measured):
    run = measured(count=1)
    Run.objects.filter(pk=run.pk).update(user=owner.user, contended=True)
    Result.objects.filter(measurement__run=run).update(confirmed=True)
    every = set(Result.objects.values_list("pk", flat=True))
    for text in ("by:olga", "me", "gpu-1", "host:gpu", "contended", "confirmed", "done", f"run:{run.pk}"):
        assert matching(text) == every, text
    for text in ("uncontended", "unconfirmed", "demo", "cancelled", "run:999999"):
        assert matching(text) == set(), text


# --- the table --------------------------------------------------------------------------------------------------------


def test_an_empty_site_says_so(owner):
    page = page_of(owner)
    assert "<h1>No results yet</h1>" in page and "Start a run." in page


def test_words_and_ratios_are_those_of_the_run(owner, demo):
    page, run_page = page_of(owner, "?q=S=512 B=1 full"), owner.get(demo.get_absolute_url()).content.decode()
    all_figures = run_page.split('id="all-attention"')[1]
    rows = [row.split("</tr>")[0] for row in page.split("<tr>")[1:] if "/results/" in row]
    assert len(rows) == 8 and "<h1>8 results</h1>" in page
    for row in rows:
        pk = re.search(r"/results/(\d+)/", row).group(1)
        theirs = all_figures.split(f"/results/{pk}/", 1)[1].split("</tr>", 1)[0]
        tags = [re.search(r'<span class="tag[^>]*>.*?</span>.*?(?=<)', text).group(0) for text in (row, theirs)]
        assert tags[0] == tags[1]
        ratios = [re.findall(r"<b>[\d.]+x</b>|[\d.]+ to [\d.]+", text)[:2] for text in (row, theirs)]
        assert ratios[0] == ratios[1]


def test_an_undecided_ratio_is_not_bold(owner, demo):
    Result.objects.filter(kernel__name="triton-flash").update(speedup=1.2, speedup_low=0.9, speedup_high=1.5)
    page = page_of(owner, "?q=triton-flash undecided")
    assert "1.200x" in page and "<b>1.200x</b>" not in page


def test_a_time_is_bold_only_where_its_verdict_is_decided(owner, demo):
    after = re.compile(r" →</span> (<b>)?[\d,.]+(</b>)?</td>")
    assert all(after.findall(page_of(owner, "?q=triton-flash faster"))[0])
    Result.objects.filter(kernel__name="triton-flash").update(speedup=1.2, speedup_low=0.9, speedup_high=1.5)
    assert set(after.findall(page_of(owner, "?q=triton-flash undecided"))) == {("", "")}
    Result.objects.filter(kernel__name="triton-flash").update(speedup=1.2, speedup_low=1.1, speedup_high=1.3)
    Run.objects.filter(pk=demo.pk).update(contended=True)
    assert not any(bold for found in after.findall(page_of(owner, "?q=triton-flash contended")) for bold in found)


def test_a_very_small_rate_has_no_exponent(owner, demo):
    assert (grouped(7.96e-05), grouped(0.00123), grouped(0)) == ("<0.001", "0.00123", "0")
    style = (settings.BASE_DIR / "static" / "site.css").read_text()
    assert 'class="share"' in page_of(owner) and ".every thead th.share { min-width: 64px; }" in style, "two lines"


def test_no_more_than_twelve_queries(owner, demo, django_assert_max_num_queries):
    for query in ("", "?q=sdpa H200 S>=512 faster by:me nothing&columns=all", "?sort=-tflops&q=H200"):
        with django_assert_max_num_queries(12):
            page_of(owner, query)


@pytest.mark.parametrize("sort", ["", "measured_at", "p50_ms", "-speedup", "slowdown", "-tflops", "registers"])
def test_pages_follow_each_other_without_gap_or_repeat(owner, demo, measured, monkeypatch, sort):
    measured(count=2)
    whole = [key.pk for key in keys_of("", sort)]
    monkeypatch.setattr("runs.views.results.PER_PAGE", 7)
    query, seen = f"?sort={sort}", []
    while query:
        page = page_of(owner, query)
        seen += [int(pk) for pk in re.findall(r'/results/(\d+)/">', page)]
        following = re.search(r'href="([^"]+)" rel="next"', page)
        query = following and following.group(1).replace("&amp;", "&")
    assert seen == whole and len(set(seen)) == len(seen)
    assert sort == "registers" or len(seen) > 40


def test_the_highest_speedup_is_decided_and_stands(owner, demo, measured):
    """The first rows were other work (41x), a withdrawn run and undecided ratios."""
    measured(count=2)
    of_demo = Result.objects.filter(measurement__run=demo)
    other, wide = of_demo.filter(speedup__gt=1).order_by("pk")[:2]
    Result.objects.filter(pk=other.pk).update(
        speedup=41.0, speedup_low=40.0, speedup_high=42.0, other_work="counts all keys"
    )
    Result.objects.filter(pk=wide.pk).update(speedup=34.0, speedup_low=0.9, speedup_high=80.0)
    keys = keys_of("", "-speedup")
    assert keys and keys[0].value < 30 and {other.pk, wide.pk} & {key.pk for key in keys} == set()
    assert keys_of("undecided", "-speedup")[0].pk == wide.pk, "whoever asks for them gets them"
    assert "Only decided results are in this order" in page_of(owner, "?sort=-speedup")
    first = Run.objects.get(pk=keys[0].run)
    Run.objects.filter(pk=first.pk).update(contended=True)
    assert first.pk not in {key.run for key in keys_of("", "-speedup")}
    assert first.pk in {key.run for key in keys_of("contended", "-speedup")}
    assert first.pk in {key.run for key in keys_of("", "-tflops")}
    Run.objects.filter(pk=first.pk).update(withdrawn_at=first.created_at)
    assert first.pk not in {key.run for key in keys_of("", "-tflops")}


def test_the_order_of_a_column_is_right_and_leaves_out_what_has_no_figure(owner, demo):
    Result.objects.filter(kernel__name="eager").update(status="crashed")
    keys = keys_of("", "-speedup")
    values = [key.value for key in keys]
    assert values == sorted(values, reverse=True)
    assert not Result.objects.filter(pk__in=[key.pk for key in keys], kernel__name="eager").exists()
    assert [key.pk for key in keys_of("", "slowdown")] == [key.pk for key in keys]
    assert keys_of("S=512", "p50_ms")[0].value == min(key.value for key in keys_of("S=512", "p50_ms"))
    with pytest.raises(NoOrder, match=r"cannot be sorted by p90\.$"):
        Order.of("p90_ms")
    assert "cannot be sorted by p90." in page_of(owner, "?sort=p90_ms")
    assert page_of(owner, "?sort=zork").count('role="alert"') == 1


def test_links_of_headings_keep_the_search(owner, demo):
    page = page_of(owner, "?q=sdpa&dtype=fp16&columns=mean_ms&sort=mean_ms")
    assert 'href="?q=sdpa&amp;dtype=fp16&amp;columns=mean_ms&amp;sort=-mean_ms"' in page
    assert 'href="/results.csv?q=sdpa&amp;dtype=fp16&amp;columns=mean_ms&amp;sort=mean_ms"' in page
    assert 'href="?q=&amp;dtype=fp16' in page or 'href="?dtype=fp16' in page, "a chip goes alone"


@pytest.mark.parametrize("after", ["x", "1_2_3", "nan_1_2_x", "1_2_3_4_5", "1_99999999999999999999_1_1", "\x00"])
def test_a_place_that_is_none_is_the_beginning(after):
    assert Key.of(after) is None


def test_the_search_field_stands_on_every_page(owner, demo):
    for name in ("overview", "runs", "kernels", "tiers", "gpus", "results"):
        assert 'action="/results/" role="search"' in owner.get(reverse(name)).content.decode()


def test_it_needs_an_account(stranger, demo):
    for path in ("/results/", "/results.csv", "/results.json", "/results.jsonl"):
        assert stranger.get(path).status_code == 302


# --- files ------------------------------------------------------------------------------------------------------------


def whole(answer):
    assert answer.streaming
    return b"".join(answer.streaming_content).decode()


def test_files_have_what_the_page_has(owner, demo, monkeypatch):
    monkeypatch.setattr(results, "AT_ONCE", 5)
    monkeypatch.setattr(results, "FIRST", 3)
    query = "?q=S=512&columns=p50_ms,mean_ms&sort=p50_ms"
    expected = [key.pk for key in keys_of("S=512", "p50_ms")]
    table = list(csv.DictReader(io.StringIO(whole(owner.get(f"/results.csv{query}")))))
    lines = [json.loads(line) for line in whole(owner.get(f"/results.jsonl{query}")).splitlines()]
    rows = json.loads(whole(owner.get(f"/results.json{query}")))["results"]
    assert [int(row["result"]) for row in table] == [row["result"] for row in rows] == expected
    assert lines == rows
    assert list(table[0]) == list(rows[0])
    assert rows[0]["gpu"] == "NVIDIA H200" and rows[0]["demo"] is True
    assert rows[0]["p50_low_ms"] < rows[0]["p50_ms"] and set(measures.NAMED) < set(rows[0])


def test_a_file_of_nothing_has_its_headings(owner, demo):
    assert whole(owner.get("/results.csv?q=bf16")).count("\n") == 1
    assert json.loads(whole(owner.get("/results.json?q=bf16"))) == {"results": []}
    assert whole(owner.get("/results.jsonl?q=bf16")) == ""


@pytest.mark.parametrize("query", ["?q=zork", "?columns=zork", "?sort=zork", "?sort=p90_ms"])
def test_a_file_of_something_else_is_refused(owner, demo, query):
    for kind in ("csv", "json", "jsonl"):
        assert owner.get(f"/results.{kind}{query}").status_code == 400


def test_a_spreadsheet_computes_nothing(owner, demo):
    Run.objects.filter(pk=demo.pk).update(title="=1+1")
    assert ",'=1+1," in whole(owner.get("/results.csv"))


# --- many -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(demo):
    """6,400 results of 100 runs."""
    many(demo, 100)
    return signed_in("ora")


PLANS = ("", "sdpa-flash", "H100 S=4096 D=128", "S=4096 B=16 H=8", "by:ada triton faster", "incorrect")


@pytest.mark.parametrize("text", PLANS)
def test_the_newest_are_found_without_sorting_all(crowd, text):
    """SQLite walks from the newest measurement: nothing but the order within a run is sorted."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL chooses its plan by the number of rows")
    found, _ = search({"q": [text]})
    matching = results._measurements(found)
    rows = matching.order_by("-run", "pk").values("pk")[:51]
    plan = rows.explain()
    assert "COVERING INDEX" in plan and "TEMP B-TREE FOR ORDER BY" not in plan


@pytest.mark.parametrize("sort", ["p50_ms", "-tflops", "-speedup", "-limit_share"])
def test_a_column_is_walked_along_its_index(crowd, sort):
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL chooses its plan by the number of rows")
    with CaptureQueriesContext(connection) as ran:
        keys_of("", sort, 51)
    (query,) = (one["sql"] for one in ran if "LIMIT 51" in one["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query}")
        plan = str(cursor.fetchall())
    assert f"results_by_{Order.of(sort).column}" in plan and "TEMP B-TREE" not in plan


@pytest.mark.parametrize("text", ["sdpa-flash", "S=4096 D=128", "slower H200", "by:ada"])
@pytest.mark.parametrize("few,walk", [(0, 50), (0, 5_000), (3_000, 1)])
def test_however_it_is_sorted_the_order_is_the_same(crowd, monkeypatch, text, few, walk):
    monkeypatch.setattr(results, "FEW", few)
    monkeypatch.setattr(results, "WALK", walk)
    first = keys_of(text, "-tflops", 20)
    found, _ = search({"q": [text]}, "olga")
    then = results._keys(found, Order.of("-tflops"), first[-1], 20)
    monkeypatch.undo()
    assert [*first, *then] == keys_of(text, "-tflops", 40)


def test_everybody_and_every_card_is_there(crowd):
    assert len(keys_of("person:ada", most=9_999)) == 34 * 64
    assert len(keys_of("gpu:H200 host:gpu-2", most=9_999)) == 25 * 64
    assert Workload.objects.count() > 200
    page = page_of(crowd, "?q=L4")
    assert page.count('<td class="text what"><a') == 50 and "The 50 newest results" in page


def test_a_second_person_reads_the_same(member, owner, demo):
    assert page_of(owner).split("<main")[1] == page_of(member).split("<main")[1]


def test_two_demo_runs_at_once(owner, demo, exported):
    again = load(exported, "again.json")
    first = keys_of("")[0]
    assert first.run == again.pk


def test_shares_of_an_older_harness_are_of_todays_speed_of_light(demo):
    """Side by side with a newer run, one GPU had two speeds of light."""
    arms = Result.objects.filter(measurement__run=demo, limit_share__gt=0.3).select_related("measurement__workload")
    bound = [arm for arm in arms if "B=16 H=96 S=4096 D=128" in arm.measurement.workload.label]
    assert bound and {round(arm.limit_ms, 2) for arm in bound} == {12.32}
    assert all(abs(arm.limit_share * arm.p50_ms / arm.limit_ms - 1) < 1e-6 for arm in bound)


# --- both rates on one page -------------------------------------------------------------------------------------------


def rates(demo, unit, **options):
    """The cells of both rates of a result whose headline unit is this one."""
    (measured, *_) = measurements.of_run(demo)
    arm = measured.arm("triton-flash")
    row = replace(tables.row(measured, arm), unit=unit)
    both = [measures.BY_KEY["tflops"], measures.BY_KEY["gb_per_s"]]
    return result_cells(both, arm, row, measured.arm("sdpa"), **options).split("</td>")[:2]


def test_the_second_rate_is_short_where_nobody_asked_for_it(demo):
    tflops, gb = rates(demo, "TFLOP/s", asked=False)
    assert "<small>" not in gb and gb[-1].isdigit(), "no interval"
    tflops, gb = rates(demo, "GB/s", asked=False)
    assert tflops.endswith(f">{DASH}") and gb[-1].isdigit(), "a memory-bound result has no TFLOP/s"
    tflops, _ = rates(demo, "GB/s", asked=False, sort="tflops")
    assert tflops[-1].isdigit(), "rows in the order of a figure show it"
    for unit, number in (("TFLOP/s", 1), ("GB/s", 0)):
        assert "<small>" in rates(demo, unit)[number], "asked for, it is whole"


def test_the_page_of_both_rates_leaves_it_short_unless_columns_are_asked_for(owner, demo, monkeypatch):
    row = tables.row
    units = iter(["TFLOP/s", "GB/s"] * 1000)
    monkeypatch.setattr(tables, "row", lambda *more: replace(row(*more), unit=next(units)))
    short = 'title="its rate is in GB/s"'
    assert short in page_of(owner) and short not in page_of(owner, "?columns=tflops,gb_per_s")
