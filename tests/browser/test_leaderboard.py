"""The leaderboard in a real browser: a cell is chosen, its charts are drawn, and a phone shows one column."""

import pytest
from playwright.sync_api import expect
from selection import JOURNEYS

pytestmark = pytest.mark.thorough(JOURNEYS)
BOARD = "leaderboard/?gpu=NVIDIA+H200"
"""Of the demo run's device: other tests measure on the CPU."""


def test_choose_a_cell_and_see_its_charts(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/{BOARD}")
    expect(page.locator("h1")).to_contain_text("on NVIDIA H200")
    cells = page.locator(".cell .to")
    cells.nth(3).click()
    expect(page.locator(".cell[aria-current]")).to_have_count(1)
    expect(page.locator("figure.chart svg[role=img]").first).to_be_visible(timeout=15_000)
    page.locator("details.twin summary").last.click()
    expect(page.locator("details.twin[open] table")).to_contain_text("of")
    page.get_by_role("link", name="unconfirmed", exact=True).click()
    expect(page.locator(".cell.sure")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_one_column(open_page, live_site, scheme):
    page = open_page(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_site.url}/{BOARD}")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    lines = page.locator(".matrix .line:has(.cell)").count()
    assert page.locator(".matrix .cell:visible").count() == lines
    assert page.locator(".matrix .cell:visible").first.bounding_box()["width"] > 180
