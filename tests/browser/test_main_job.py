"""The main job in a real browser: from the form to the verdict, with scripts and without."""

import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from selection import JOURNEYS, WIDE_PAGES, telling

RUN_LIMIT_MS = 200_000


def submit_a_typed_run(page, live_site, title):
    page.goto(f"{live_site.url}/runs/new/")
    page.get_by_label("Custom workload").check()
    for name, value in {"batch": "1", "heads": "2", "seq_len": "32, 48", "head_dim": "64"}.items():
        page.fill(f"[name={name}]", value)
    for box in page.locator("[name=kernels]:enabled").all():
        box.set_checked(box.get_attribute("value") == "sdpa-math")
    page.select_option("[name=effort]", "quick")
    page.fill("[name=title]", title)


@pytest.mark.journey
def test_log_in_fill_in_run_watch_and_take_the_csv_home(open_page, live_site):
    page = open_page()
    submit_a_typed_run(page, live_site, "from the browser")
    expect(page.locator("#estimate")).to_contain_text("4 results on 2 workloads, ")
    expect(page.locator("[name=kernels][value=triton-flash]")).to_be_disabled()
    expect(page.locator(".kernel", has=page.locator("[value=triton-flash]"))).to_contain_text("needs a CUDA device")
    page.get_by_role("button", name="Run", exact=True).click()

    expect(page).to_have_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator("h1")).to_have_text("from the browser")
    expect(page.locator("table.cells tbody tr")).to_have_count(2)
    expect(page.locator("#progress[data-poll]")).to_have_count(0, timeout=RUN_LIMIT_MS)
    expect(page.locator("#progress")).to_contain_text("All results are final.")

    expect(page.locator("h1")).to_contain_text("sdpa-math")
    page.get_by_text("All figures").click()
    expect(page.locator("table.results")).to_be_visible()
    expect(page.locator("table.results tr.group")).to_have_count(2)
    rows = page.locator("table.results tbody tr:not(.notes)", has_text="sdpa-math")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("to")
    expect(page.locator("figure.chart svg")).to_have_count(2, timeout=15_000)
    for chart in page.locator("figure.chart svg").all():
        assert chart.locator("path, text").count() > 10, "the chart is drawn"

    with page.expect_download() as download:
        page.get_by_role("link", name="csv", exact=True).click()
    table = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [(row["kernel"], row["status"]) for row in table] == [
        ("sdpa", "ok"), ("sdpa-math", "ok"),
    ] * 2  # fmt: skip
    shown = rows.first.locator("td", has_text="→").inner_text().split("→")[1]  # after the baseline's
    assert float(shown.replace(",", "")) == pytest.approx(1e3 * float(table[1]["p50_ms"]), rel=0.01)


@pytest.mark.thorough(JOURNEYS)
def test_the_same_pages_work_without_scripts(open_page, live_site):
    page = open_page(java_script_enabled=False)
    submit_a_typed_run(page, live_site, "without scripts")
    page.get_by_role("button", name="Run", exact=True).click()
    for _ in range(400):
        if page.locator("table.results tr.group").count() == 2 and not page.locator("#progress.panel").count():
            break
        page.wait_for_timeout(500)
        page.reload()
    expect(page.locator("h1")).to_contain_text("sdpa-math")
    images = page.locator("figure.chart img")
    expect(images).to_have_count(2)
    answer = page.request.get(live_site.url + images.first.get_attribute("src"))
    assert answer.ok and answer.text().startswith("<svg")
    with page.expect_download() as download:
        page.get_by_role("link", name="csv", exact=True).click()
    assert "sdpa-math" in Path(download.value.path()).read_text()
    exported = page.request.get(page.url.rstrip("/") + ".json").json()
    assert exported["format"] == "benchsite-run/2"
    assert all(
        result["samples_ns"] for m in exported["measurements"] for result in m["results"] if result["status"] == "ok"
    )


@pytest.mark.thorough(JOURNEYS)
def test_a_run_is_repeated_and_compared_with_the_one_before(open_page, live_site):
    """The way from a changed kernel to a link; here nothing was changed."""
    page = open_page()
    submit_a_typed_run(page, live_site, "before and after")
    page.fill("[name=seq_len]", "32")
    for again in (False, True):
        if again:
            page.get_by_role("link", name="Run again").click()
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page).to_have_url(re.compile(r"/runs/\d+/$"))
        expect(page.locator("#progress[data-poll]")).to_have_count(0, timeout=RUN_LIMIT_MS)
    after = re.search(r"/runs/(\d+)/", page.url)[1]
    page.get_by_role("link", name="Compare").click()
    expect(page).to_have_url(re.compile(rf"/compare/\d+\.\.\.{after}/$"))
    expect(page.locator(".verdict")).to_contain_text("No kernel source changed")
    expect(page.locator("table.changes tbody tr", has_text="B=1 H=2 S=32 D=64")).to_have_count(2)
    expect(page.locator("svg.forest circle")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="md").click()
    assert f"to run {after}](http" in Path(download.value.path()).read_text()
    page.get_by_role("link", name="Swap").click()
    expect(page).to_have_url(re.compile(rf"/compare/{after}\.\.\.\d+/$"))


def test_bad_input_is_said_at_its_field_and_nothing_typed_is_lost(open_page, live_site):
    page = open_page()
    submit_a_typed_run(page, live_site, "a title that stays")
    page.fill("[name=heads]", "3")
    page.fill("[name=kv_heads]", "2")
    page.fill("[name=seq_len]", "many")
    page.fill("[name=note]", "a note that stays")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("[role=alert]")).to_contain_text("Not started yet")
    expect(page.locator(".field", has=page.locator("[name=seq_len]"))).to_contain_text("“many”: use whole numbers")
    page.faults.clear()  # the console reports the status 422 of a refused form
    page.fill("[name=seq_len]", "32")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".field", has=page.locator("[name=kv_heads]"))).to_contain_text(
        "must be a multiple of KV heads"
    )
    for name, value in {
        "heads": "3",
        "kv_heads": "2",
        "title": "a title that stays",
        "note": "a note that stays",
    }.items():
        expect(page.locator(f"[name={name}]")).to_have_value(value)
    page.faults.clear()


def test_a_run_can_be_cancelled_from_its_page(open_page, live_site):
    page = open_page()
    submit_a_typed_run(page, live_site, "to be cancelled")
    page.fill("[name=seq_len]", "1024, 1025, 1026, 1027, 1028, 1029")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#progress")).to_contain_text("Running", timeout=30_000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#progress")).to_contain_text("Cancelled", timeout=15_000)


def test_a_newcomer_sees_a_real_gpu_run_marked_as_a_demo(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/runs/")
    demo = page.locator("tr", has_text="NVIDIA H200").first
    expect(demo).to_contain_text("demo")
    demo.get_by_role("link").first.click()
    expect(page.locator(".facts")).to_contain_text("measured on NVIDIA H200 on 20")
    expect(page.locator("figure.chart svg")).to_have_count(3, timeout=30_000)


def test_polling_leaves_focus_and_charts_where_they_are(open_page, live_site):
    page = open_page()
    page.set_viewport_size({"width": 700, "height": 900})
    page.goto(live_site.url)
    expect(page.locator("figure[data-chart*='day.json'] svg").first).to_be_visible(timeout=20_000)
    page.locator("figure[data-chart*='day.json']").first.evaluate("figure => figure.dataset.kept = 'yes'")
    link = page.locator("#runs a").first
    link.evaluate("link => link.focus({preventScroll: true})")
    for part in ("running", "runs"):
        page.locator(f"#{part}").evaluate("part => part.dataset.old = 'yes'")
    expect(page.locator("[data-old]")).to_have_count(0, timeout=20_000)
    expect(link).to_be_focused()
    expect(page.locator("[data-kept] svg")).to_be_visible()


def test_on_a_phone_state_and_result_are_in_sight_and_one_can_log_out(open_page, live_site):
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{live_site.url}/runs/")
    for cell in ("td .state", "td.result .tag"):
        box = page.locator("tr", has_text="NVIDIA H200").first.locator(cell).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator("details.who summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")


PAGES = ("/", "/runs/", "/gpus/", "/gpus/1/", "/runs/new/", "/runs/1/", "/runs/1/results/1/", "/compare/1...1/")


@pytest.mark.parametrize("width", telling([1440, 390], 390, why=WIDE_PAGES))
def test_no_page_scrolls_sideways(open_page, live_site, width):
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    for path in PAGES:
        page.goto(live_site.url + path)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_api_of_tables_is_closed_to_strangers(browser, live_site):
    context = browser.new_context()
    answer = context.request.get(f"{live_site.url}/runs/1.json", max_redirects=0)
    assert answer.status == 302 and "/accounts/login/" in answer.headers["location"]
    context.close()


def test_list_of_runs_has_its_twins(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/runs/?q=sample-that-is-not-there")
    expect(page.locator("h1")).to_have_text("0 runs")
    listed = json.loads(page.request.get(f"{live_site.url}/runs.json").text())["runs"]
    page.goto(f"{live_site.url}/runs/")
    expect(page.locator("h1")).to_contain_text(str(len(listed)))
