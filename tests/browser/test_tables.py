"""The head of each column stands above its cells, on the pages with the most tables."""

import pytest
from selection import WIDE_PAGES, telling

ADDRESSES = ("sessions/1/", "sessions/1/report/", "import/1/", "tiers/?device=NVIDIA+H200", "people/", "links/")
ASIDE = """() => [...document.querySelectorAll('table')].flatMap((table) => {
  const row = table.tBodies[0]?.rows[0], head = table.tHead?.rows[table.tHead.rows.length - 1];
  if (!row || !head || row.cells.length !== head.cells.length || !head.offsetWidth) return [];
  return [...head.cells].filter((cell, place) => {
    const above = cell.getBoundingClientRect(), below = row.cells[place].getBoundingClientRect();
    return Math.abs(above.left - below.left) > 2 || Math.abs(above.right - below.right) > 2;
  }).map((cell) => cell.innerText);
})"""


@pytest.mark.parametrize("width", telling([1440, 390], 390, why=WIDE_PAGES))
def test_the_head_of_each_column_stands_above_its_cells(open_page, live_site, width):
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    aside, tables = {}, 0
    for address in ADDRESSES:
        page.goto(f"{live_site.url}/{address}")
        tables += page.locator("table").count()
        if found := page.evaluate(ASIDE):
            aside[address] = found
    assert tables > 5
    assert aside == {}
