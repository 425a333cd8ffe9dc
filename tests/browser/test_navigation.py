"""Every page of the header can be reached at every width."""

PHONE = 390
REACHED = """(links) => links.filter((link) => {
  const box = link.getBoundingClientRect();
  const corners = [[box.left + 1, box.top + 1], [box.right - 1, box.bottom - 1]];
  return box.width && corners.every(([x, y]) => link.contains(document.elementFromPoint(x, y)));
}).map((link) => link.textContent)"""
"""Names of the links of which nothing is cut off or covered."""


def test_every_link_of_the_header_is_reached_at_every_width(open_page, live_site):
    page = open_page()
    page.goto(f"{live_site.url}/changes/")
    links = page.locator("header nav a")
    names = links.all_text_contents()
    assert len(names) >= 12
    for width in (PHONE, 560, 561, 700, 900, 1000, 1200, 1420, 1421, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 844})
        if width <= 560 and not page.get_by_label("Menu").is_checked():
            assert links.evaluate_all(REACHED) == []
            page.locator("label", has_text="Menu").click()
        assert links.evaluate_all(REACHED) == names, width
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.get_by_role("link", name="GPUs", exact=True).click()
    page.wait_for_url("**/gpus/")
    page.get_by_label("Menu").focus()
    page.keyboard.press("Space")
    assert links.evaluate_all(REACHED) == names, "with the keyboard alone"
