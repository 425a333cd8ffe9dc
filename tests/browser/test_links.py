"""From "it is faster" to "here is the link": what the team gives away, and what somebody without an account sees of it."""

import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect
from selection import JOURNEYS, WIDE_PAGES, telling

SAMPLE = "/runs/1/"


def give_away(page, live_site, path):
    page.goto(live_site.url + path)
    page.get_by_role("button", name="Share").click()
    field = page.locator("[data-link]")
    field.click()
    assert page.evaluate("document.getSelection().toString() || document.activeElement.value") == field.input_value()
    return field.input_value()


def until(page, expression):
    """Waits until it is true there. The policy of our pages forbids Playwright's own way."""
    deadline = time.monotonic() + 10
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.1)


@pytest.fixture
def visitor(browser):
    """A page of somebody without an account; fails the test on a script error or anything refused."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda answer: faults.append(answer.url) if answer.status >= 300 else None)
    yield page
    context.close()
    assert faults == []


def test_a_run_is_given_away_by_its_link_until_that_is_ended(open_page, live_site, visitor, browser):
    team = open_page()
    link = give_away(team, live_site, SAMPLE)
    visitor.goto(link)
    expect(visitor.locator("h1")).to_have_text("triton-flash is faster than sdpa on 6, slower on 2 of 8 workloads")
    expect(visitor.locator("figure.chart svg")).to_have_count(3, timeout=15_000)
    visitor.locator("table.cells td.faster a").first.click()
    expect(visitor.locator("h1")).to_contain_text("triton-flash on attention")
    expect(visitor.locator("figure.chart svg")).to_have_count(2, timeout=15_000)
    assert visitor.request.get(f"{live_site.url}/runs/1.json").ok
    assert visitor.locator("header a").all_inner_texts() == ["Benchsite", "Log in"]
    team.get_by_role("button", name="Stop sharing").click()
    expect(team.locator("[data-link]")).to_have_count(0)
    later = browser.new_context()
    assert later.request.get(link, max_redirects=0).status == 410
    later.close()


@pytest.mark.thorough("half a minute of a page that goes on by itself")
def test_a_status_page_is_composed_goes_on_by_itself_and_says_when_it_was_ended(open_page, live_site, browser):
    team = open_page()
    team.goto(f"{live_site.url}/status/new/")
    team.get_by_label("Title").fill("The wall")
    team.get_by_label("Show names of people").check()
    team.get_by_role("button", name="Create link").click()
    link = team.locator("[data-link]").first.input_value()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    wall = context.new_page()
    wall.goto(link)
    expect(wall.locator("h1")).to_contain_text("No change found this week")
    assert wall.locator("main a:visible").count() == 0, "nothing here leads to a login"
    assert wall.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 23)", "dark by default"
    assert wall.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") > 20
    wall.locator("#wall").evaluate("part => part.dataset.old = 'yes'")
    expect(wall.locator("#wall[data-old]")).to_have_count(0, timeout=20_000)
    team.goto(f"{live_site.url}/links/")
    team.get_by_role("button", name="End the link to the status page “The wall”").click()
    expect(wall.locator("h1")).to_contain_text("This link was ended on", timeout=20_000)
    context.close()


@pytest.mark.thorough(JOURNEYS)
def test_a_status_page_fits_its_screen_or_turns_its_pages(open_page, live_site, browser):
    team = open_page()
    team.goto(f"{live_site.url}/status/new/")
    team.get_by_label("Title").fill("Long")
    team.get_by_role("button", name="Create link").click()
    link = team.locator("[data-link]").first.input_value()
    context = browser.new_context(viewport={"width": 1920, "height": 1080})
    wall = context.new_page()
    wall.clock.install()
    wall.goto(link)
    height = "document.documentElement.scrollHeight"
    expect(wall.locator(".block").first).to_be_visible()
    assert wall.evaluate(height) <= 1080
    wall.set_viewport_size({"width": 1000, "height": 240})
    until(wall, "document.body.style.getPropertyValue('--fit') < 0.76")
    assert wall.evaluate(height) > 240
    wall.clock.run_for(21_000)
    until(wall, "scrollY > 0")
    wall.mouse.wheel(0, -5000)
    until(wall, "scrollY === 0")
    wall.clock.run_for(41_000)
    assert wall.evaluate("scrollY") == 0, "somebody uses it"
    context.close()
    team.goto(f"{live_site.url}/links/")
    team.get_by_role("button", name="End the link to the status page “Long”").click()


def test_another_site_may_frame_the_frame_and_nothing_else(open_page, live_site, browser, tmp_path):
    team = open_page()
    team.goto(f"{live_site.url}/status/new/")
    team.get_by_label("Title").fill("In a frame")
    team.get_by_role("button", name="Create link").click()
    link = team.locator("[data-link]").first.input_value()
    frames = f'<iframe id="may" src="{link}frame/"></iframe><iframe id="not" src="{link}"></iframe>'
    context = browser.new_context()
    page = context.new_page()
    (tmp_path / "index.html").write_text(frames)
    site = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    Thread(target=site.serve_forever, daemon=True).start()
    page.goto(f"http://127.0.0.1:{site.server_port}/")
    expect(page.frame_locator("#may").locator("h1")).to_contain_text("No change found this week")
    assert page.frame_locator("#not").locator("h1", has_text="No change found this week").count() == 0
    context.close()
    site.shutdown()
    site.server_close()
    team.get_by_role("button", name="End the link to In a frame").click()


def test_from_the_tiers_to_a_ladder(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/tiers/?device=NVIDIA%20H200")
    expect(page.locator("h1")).to_contain_text("Highest tier, unconfirmed: A tenth (D), by triton-flash on attention")
    page.get_by_role("link", name="Five tiers").click()
    expect(page.locator("h1")).to_have_text("No kernel reaches a tier on any of 8 workloads.")
    expect(page.locator(".lede")).to_contain_text("The H200 cannot reach Breakthrough")
    page.locator("table.results td a").first.click()
    expect(page.locator("h1")).to_have_text("Tier B is 1.72 µs away. This device cannot reach tier A++.")
    chart = page.locator("figure[data-chart*='ladder.json'] svg")
    marks = {
        name: chart.get_by_text(name, exact=False).last.bounding_box() for name in ("speed of light", "0.155", "6.68")
    }
    assert marks["6.68"]["x"] < marks["speed of light"]["x"] < marks["0.155"]["x"]


def test_a_target_is_chosen_and_stands_on_the_overview(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/tiers/?device=NVIDIA%20H200")
    page.locator("table.results td a").first.click()
    page.locator("#id_tier").select_option(label="A tenth (D), 1.32x")
    page.get_by_role("button", name="Save target").click()
    expect(page.get_by_role("status")).to_have_text("The target is chosen.")
    expect(page.locator(".reach")).to_be_visible()
    page.get_by_text("Change", exact=True).click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_have_text("The target is removed.")


def test_a_session_is_begun_filled_and_told(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/sessions/")
    page.get_by_role("link", name="New session").click()
    page.locator("[name=title]").fill("Beat cuDNN")
    page.locator("[name=objective]").fill("10% on two shapes.")
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Note").fill("cuDNN is at 67% of the speed of light.")
    page.get_by_label("Phase").fill("Baselines")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".timeline h3")).to_have_text("Baselines")
    page.get_by_label("Add existing run").fill("1")
    page.get_by_role("button", name="Add run").click()
    expect(page.locator(".timeline li.ran")).to_contain_text("Six canonical shapes")
    page.get_by_role("link", name="New run in session").click()
    expect(page.get_by_label("Session")).to_contain_text("Beat cuDNN")
    assert page.get_by_label("Session").locator("option:checked").inner_text() == "Beat cuDNN"


CLAIM = "SDPA, B=16 H=96 S=4096 D=64 fp16 on H100 SXM: 7.37 ms"


def test_a_pasted_claim_is_judged_and_its_link_leads_back(open_page, live_site):
    page = open_page()
    page.goto(live_site.url)
    page.get_by_role("link", name="Judge").click()
    page.get_by_label("A claim, as it was written").fill(CLAIM)
    page.get_by_role("button", name="Judge the text").click()
    expect(page.locator(".verdict")).to_contain_text("895.1 TFLOP/s is above everything measured on an H100 SXM so far")
    claim, measured = (page.locator(".bars .bar").nth(number).bounding_box()["width"] for number in (0, 1))
    assert claim > measured > 0
    assert page.locator("[data-link]").input_value() == page.url
    page.get_by_label("Time of one call (ms)").fill("50.78")
    page.get_by_role("button", name="Judge", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("plausible")


@pytest.mark.parametrize("width", telling([1440, 390], 390, why=WIDE_PAGES))
def test_no_page_scrolls_sideways(open_page, live_site, width):
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    claim = "/judge/?operation=gemm&m=8192&n=8192&k=8192&dtype=bfloat16&gpu=RTX+5090&tflops=240"
    for path in (
        "/tiers/?device=NVIDIA%20H200",
        "/tiers/scales/1/",
        "/status/",
        "/status/new/",
        "/links/",
        "/people/",
        "/audit/",
        "/settings/",
        "/sessions/",
        "/sessions/1/",
        claim,
    ):
        assert page.goto(live_site.url + path).ok, path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
