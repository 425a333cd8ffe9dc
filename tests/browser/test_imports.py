"""A report of somebody else in a real browser: pasted, judged, found out; names with HTML in them do nothing."""

import json

import pytest
from playwright.sync_api import expect
from selection import JOURNEYS

pytestmark = pytest.mark.thorough(JOURNEYS)
SCRIPT = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
ROWS = [
    {"operation": "attention", "B": 8, "H": 16, "S": 512, "D": 64, "gpu": "NVIDIA L4", "kernel": kernel, "p50_ms": ms}
    for kernel, ms in (("sdpa", 0.136), ("v3", 113.798))
] + [{"operation": "gemm", "m": 64, "n": 64, "k": 64, "kernel": SCRIPT[:99], "method": SCRIPT[:99], "p50_ms": 1.0}]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paste_see_what_it_says_and_that_it_is_a_claim(open_page, live_site, scheme):
    page = open_page(color_scheme=scheme)
    page.goto(f"{live_site.url}/runs/")
    page.get_by_role("link", name="import results of others").click()
    rows = [row | {"seed": scheme, "backend": scheme} for row in ROWS]
    page.get_by_label("Or paste its text").fill(json.dumps([*rows, {"nothing": 1}]))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".notice")).to_have_text("3 of 4 rows imported, 1 not.")
    expect(page.locator(".findings")).to_contain_text("v3 (p50) is 837 times slower than sdpa")
    expect(page.locator(".refusals")).to_contain_text("row 4:")
    page.locator(".findings summary").first.click()
    page.locator(".findings details a").first.click()
    expect(page.locator("tr:target")).to_have_count(1)
    assert page.title() == "pasted text · Benchsite"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("button", name="Delete this import").click()
    expect(page.locator("h1")).to_have_text("Import results of others")
