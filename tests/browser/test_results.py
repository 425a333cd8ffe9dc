"""All results in a real browser: from the search field of any page to the rows, on a wide screen and on a phone."""

import pytest
from playwright.sync_api import expect
from selection import JOURNEYS

pytestmark = pytest.mark.thorough(JOURNEYS)


def width(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_search_from_anywhere_see_what_was_understood_and_take_a_term_away(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/gpus/")
    page.get_by_role("searchbox", name="Search all results").fill("sdpa-flash S=512 causal H200 zork")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("No result matches")
    expect(page.locator(".search .notice")).to_have_text(
        "No kernel, GPU or person is named \N{LEFT DOUBLE QUOTATION MARK}zork\N{RIGHT DOUBLE QUOTATION MARK}."
    )
    page.locator(".search [name=q]").fill("sdpa-flash S=512 causal H200")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("3 results")
    expect(page.locator(".chip")).to_have_count(4)
    page.locator(".chip", has_text="causal").click()
    expect(page.locator("h1")).to_have_text("6 results")
    expect(page.locator(".search [name=q]")).to_have_value("sdpa-flash S=512 H200")
    with page.expect_navigation():
        page.get_by_role("link", name="TFLOP/s").click()
    rates = [float(text.split()[0]) for text in page.locator("tbody td:nth-child(7)").all_inner_texts()]
    assert rates == sorted(rates, reverse=True) and len(rates) == 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_but_the_table_is_wider_than_a_phone(open_page, live_site, scheme):
    page = open_page(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    for query in ("", "?q=sdpa-flash+S%3D512&dtype=fp16&columns=all", "?q=zork+" + "x" * 300):
        page.goto(f"{live_site.url}/results/{query}")
        assert width(page) <= 0, query
    assert page.locator(".find.twice").is_hidden()


def test_the_address_of_a_search_has_no_empty_parameters(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/results/")
    page.locator(".search [name=q]").fill("faster")
    page.get_by_text("Filters", exact=True).click()
    page.locator(".search [name=dtype]").select_option("fp16")
    page.get_by_role("button", name="Show").first.click()
    expect(page).to_have_url(f"{live_site.url}/results/?q=faster&dtype=fp16")
