"""The form of a new run in a real browser: what only a browser knows, such as focus, sizes, colours and tabs."""

import re

import pytest
from playwright.sync_api import expect

EDGES = """() => [...document.querySelectorAll("main select, main textarea, main input[type=text]")]
  .filter((field) => field.offsetParent)
  .flatMap((field) => [getComputedStyle(field).borderTopColor, getComputedStyle(field.closest(".panel")).backgroundColor])"""
BOXES = """() => [...document.querySelectorAll("main input[type=checkbox], main input[type=radio]")]
  .filter((box) => box.offsetParent)
  .map((box) => `${box.getBoundingClientRect().width} x ${box.getBoundingClientRect().height}`)"""


def open_form(open_page, live_site, own=False, **options):
    page = open_page(**options)
    page.goto(f"{live_site.url}/runs/new/")
    if own:
        page.get_by_label("Custom workload").check()
    return page


def press_run(page):
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("[role=alert]")).to_be_visible()
    page.faults.clear()  # the console reports the status 422 of a refused form


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ("light", "dark"))
def test_the_edges_of_fields_can_be_seen(open_page, live_site, theme):
    colours = open_form(open_page, live_site, own=True, color_scheme=theme).evaluate(EDGES)
    pairs = list(zip(colours[::2], colours[1::2], strict=True))
    assert len(pairs) > 5
    assert min(contrast(*pair) for pair in pairs) >= 3


@pytest.mark.parametrize("width, least_px", [(1440, 15), (390, 16)])
def test_boxes_are_of_one_size_and_text_is_not_too_small_for_a_phone(open_page, live_site, width, least_px):
    page = open_form(open_page, live_site, own=True)
    page.set_viewport_size({"width": width, "height": 900})
    assert len(set(page.evaluate(BOXES))) == 1
    sizes = page.locator("main select:visible, main textarea:visible, main input[type=text]:visible").evaluate_all(
        "(fields) => fields.map((field) => parseFloat(getComputedStyle(field).fontSize))"
    )
    assert min(sizes) >= least_px


@pytest.mark.parametrize("width", (1440, 390))
def test_a_fault_moves_no_other_field_of_its_row_and_has_the_focus(open_page, live_site, width):
    page = open_form(open_page, live_site, own=True)
    page.set_viewport_size({"width": width, "height": 900})
    fields = page.locator(".sizes input, .sizes select")
    places = "(fields) => fields.map((field) => [field.getBoundingClientRect().x, field.getBoundingClientRect().width])"
    before = fields.evaluate_all(places)
    page.fill("[name=kv_heads]", "3")
    press_run(page)
    expect(page.locator("[name=kv_heads]")).to_be_focused()
    expect(page.locator(".field.bad")).to_contain_text("must be a multiple of KV heads")
    assert fields.evaluate_all(places) == before


def test_where_no_field_is_at_fault_the_notice_has_the_focus(open_page, live_site):
    page = open_form(open_page, live_site, own=True)
    page.fill("[name=seq_len]", ",".join(map(str, range(1, 700))))
    press_run(page)
    expect(page.locator("[role=alert]")).to_be_focused()


@pytest.mark.parametrize("scripts", (True, False), ids=("scripts", "no scripts"))
def test_a_tab_takes_along_what_was_typed(open_page, live_site, scripts):
    page = open_form(open_page, live_site, java_script_enabled=scripts)
    page.fill("[name=title]", "a title that stays")
    page.fill("[name=note]", "n" * 5000)
    page.select_option("[name=protocol]", "fixed")
    page.get_by_role("button", name="Matrix product (GEMM)").click()
    expect(page.get_by_role("button", name="Matrix product (GEMM)")).to_have_attribute("aria-current", "page")
    expect(page.locator("[name=title]")).to_have_value("a title that stays")
    expect(page.locator("[name=note]")).to_have_value("n" * 5000)
    expect(page.locator("[name=protocol]")).to_have_value("fixed")
    expect(page.locator("[name=config]")).to_have_value("smoke-gemm")
    expect(page.locator("#contents")).to_contain_text("M=128 N=128 K=128")
    expect(page.locator("#estimate")).to_contain_text("1 result on 1 workload, ")


@pytest.mark.parametrize("scripts", (True, False), ids=("scripts", "no scripts"))
def test_enter_presses_run_and_no_tab(open_page, live_site, scripts):
    page = open_form(open_page, live_site, own=True, java_script_enabled=scripts)
    page.fill("[name=seq_len]", "many")
    page.press("[name=title]", "Enter")
    expect(page.locator("[role=alert]")).to_contain_text("Not started yet")
    page.faults.clear()


def test_the_page_follows_the_config(open_page, live_site):
    page = open_form(open_page, live_site)
    expect(page.locator("#contents")).to_contain_text("2 workloads:")
    page.select_option("[name=config]", "canonical-s512")
    expect(page.locator("#contents")).to_contain_text("6 workloads, from ")
    expect(page.locator("#contents li")).to_have_count(6)
    expect(page.locator("#estimate")).to_contain_text(re.compile(r"results\s+on 6 workloads,\s+.*\s(min|h|minute)"))
    page.get_by_label("Custom workload").check()
    expect(page.locator("[name=seq_len]")).to_have_value("512")


def test_a_config_chosen_while_the_first_reply_is_on_its_way_is_shown(open_page, live_site):
    """The select's "input" took the place of its "change" among the requests that wait: the old workloads stayed."""
    page, held = open_page(), []
    page.route("**/new/estimate/**", lambda route: route.continue_() if held else held.append(route))
    page.goto(f"{live_site.url}/runs/new/")
    page.wait_for_timeout(300)
    page.select_option("[name=config]", "canonical-s512")
    page.wait_for_timeout(800)
    held[0].continue_()
    expect(page.locator("#contents")).to_contain_text("6 workloads, from ")


def test_kernels_appear_once_their_device_reports(open_page, live_site):
    """The agent says hello every five seconds: between two of them its device has no kernels."""
    page = open_page()
    none = page.get_by_text("Kernels appear here when a device has reported")
    for _ in range(10):
        live_site.change("UPDATE runs_gpu SET catalogue = '[]'")
        page.goto(f"{live_site.url}/runs/new/")
        if none.count():
            break
    expect(none).to_be_visible()
    page.get_by_label("Custom workload").check()
    page.fill("[name=seq_len]", "77")
    expect(page.locator("[name=kernels][value=sdpa-math]")).to_be_checked(timeout=30_000)
    expect(none).to_have_count(0)
    expect(page.locator("[name=seq_len]")).to_have_value("77")
    expect(page.locator("#estimate")).to_contain_text("results on 1 workload, ")


def test_what_is_typed_as_title_and_note_is_not_sent_for_an_estimate(open_page, live_site):
    page = open_form(open_page, live_site)
    page.fill("[name=note]", "n" * 5000)
    with page.expect_request(re.compile("/estimate/")) as asked:
        page.fill("[name=title]", "secret")
    assert not re.search("secret|nnn|csrf", asked.value.url)
    expect(page.locator("#estimate")).to_contain_text("6 results on 2 workloads, ")
