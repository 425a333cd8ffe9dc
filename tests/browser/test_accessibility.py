"""axe-core finds nothing serious or critical on any page, light or dark."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from selection import JOURNEYS

pytestmark = pytest.mark.thorough(JOURNEYS)
PAGES = (
    "", "runs/", "runs/new/", "runs/tune/", "runs/1/", "results/",
    "leaderboard/?gpu=NVIDIA+H200", "kernels/", "kernels/attention/sdpa/",
    "kernels/attention/triton-flash/", "submit/", "submissions/", "changes/", "tiers/?device=NVIDIA+H200", "tiers/scales/new/",
    "sessions/", "sessions/1/", "sessions/1/report/", "status/", "status/new/", "links/",
    "judge/", "people/", "audit/", "settings/", "import/", "gpus/", "tokens/", "api/",
    "accounts/password_change/", "no-such-page/",
)  # fmt: skip
FOUND = {
    "results of a run": ("runs/1/", r"/runs/1/results/\d+/"),
    "a kernel on a workload": ("kernels/attention/triton-flash/", r"/kernels/attention/triton-flash/on/\w+/"),
    "tiers of a workload": ("tiers/?device=NVIDIA+H200", r"/tiers/\w+/\w+/"),
    "an import": ("import/", r"/import/\d+/"),
}
"""Pages of which another page has the address."""


def serious(page):
    """What axe finds, each as one line."""
    violations = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes'][:4]]}"
        for one in violations
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_status_page_has_no_serious_fault(open_page, live_site, theme):
    page = open_page()
    page.goto(f"{live_site.url}/status/new/")
    page.get_by_label("Title").fill(f"A {theme} wall")
    for part in ("every workload", "every open session"):
        page.get_by_label(part).check()
    page.get_by_role("button", name="Create link").click()
    page.goto(f"{page.locator('[data-link]').first.input_value()}?theme={theme}")
    assert serious(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault(open_page, live_site, scheme):
    page = open_page(color_scheme=scheme)
    addresses = {address: f"{live_site.url}/{address}" for address in PAGES}
    for name, (start, pattern) in FOUND.items():
        page.goto(f"{live_site.url}/{start}")
        links = page.eval_on_selector_all("a[href]", "links => links.map((link) => link.getAttribute('href'))")
        found = [link for link in links if re.match(pattern, link)]
        assert found, f"no link to {name}"
        addresses[name] = f"{live_site.url}{found[0]}"
    faults = {}
    for name, address in addresses.items():
        page.goto(address)
        if what := serious(page):
            faults[name] = what
    page.faults.clear()  # the console reports the status 404 of the last page
    assert not faults, "\n".join(f"{name}: {what}" for name, what in faults.items())
