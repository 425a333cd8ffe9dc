"""A person pastes a kernel, sees its lines counted, drops a second file, and reads what the kernel is worth."""

import re

import pytest
from playwright.sync_api import expect

MINE = """from kernels.catalog import kernel

@kernel("gemm", backend="pytorch")
def browsed(a, b):
    return a @ b
"""


def fill(page, live_site):
    page.goto(f"{live_site.url}/submit/")
    page.locator("textarea[name=source]").fill(MINE)
    page.locator("input[name=filename]").fill("browsed.py")


def test_lines_are_numbered_as_they_are_typed(open_page, live_site):
    page = open_page()
    fill(page, live_site)
    assert page.locator(".numbered .numbers").inner_text().split() == ["1", "2", "3", "4", "5", "6"]
    page.locator("textarea[name=source]").fill("one\n" * 3)
    assert page.locator(".numbered .numbers").inner_text().split() == ["1", "2", "3", "4"]


def test_the_example_of_sizes_follows_the_declared_operation(open_page, live_site):
    page = open_page()
    fill(page, live_site)
    expect(page.locator("[data-example]")).to_have_text(re.compile(r"^m=\d+,\d+ n="))
    page.locator("textarea[name=source]").fill(MINE.replace('"gemm"', '"softmax"'))
    expect(page.locator("[data-example]")).to_have_text(re.compile(r"^rows="))
    page.get_by_text("From a git repository instead").click()
    page.locator("input[name=git_url]").fill("https://example.org/kernels")
    page.locator("select[name=git_operation]").select_option("attention")
    expect(page.locator("[data-example]")).to_have_text(re.compile(r"^batch="))


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_of_submissions_is_wider_than_the_screen(open_page, live_site, width):
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    for address in ("submit/", "submissions/"):
        page.goto(f"{live_site.url}/{address}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


TOO_WIDE = """[...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => !one.closest(".scroll, pre, svg, nav, details:not([open])"))
  .map((one) => `${one.tagName}.${one.className} ${one.innerText}`.slice(0, 80))"""
LONG = "softmax_of_rows_times_columns_with_a_long_name"
PAIR = {
    "reference.py": "import torch\n\n\ndef generate_input(rows, seed):\n    torch.manual_seed(seed)\n"
    "    return torch.randn(rows, rows)\n\n\ndef ref_kernel(data):\n    return data.softmax(-1)\n",
    "task.yml": "benchmarks:\n  - {rows: 32, seed: 1}\n  - {rows: 64, seed: 1}\n",
    f"{LONG}.py": f"#!POPCORN leaderboard {LONG}\ndef custom_kernel(data):\n    return data.softmax(1)\n",
}


@pytest.mark.thorough("a run of a problem in a browser: `make test` has its pages, and a measured problem")
def test_pages_of_a_problem_with_long_names_fit_a_phone(open_page, live_site):
    page = open_page()
    page.wait_for_function("fetch('/gpus/').then((r) => r.text()).then((t) => /idle|busy/.test(t))", timeout=60_000)
    page.goto(f"{live_site.url}/submit/")
    page.locator("#dropped").set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": text.encode()} for name, text in PAIR.items()]
    )
    if page.locator("select[name=device] option").count() == 1:
        pytest.skip(f"this machine takes no submitted kernels: {page.locator('form.submission').inner_text()}")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    run = page.url
    expect(page.locator("p.lede", has_text="The verdict appears")).to_have_count(0, timeout=360_000)
    assert page.locator("table.cells tbody th a").all_inner_texts() == ["rows=32", "rows=64"]
    addresses = [
        run,
        page.locator("table.cells tbody td a").first.get_attribute("href"),
        "/leaderboard/?operation=problem",
    ]
    addresses += ["/", "/submissions/", page.locator(".facts a[href^='/submissions/']").get_attribute("href")]
    page.set_viewport_size({"width": 390, "height": 844})
    for address in addresses:
        page.goto(address if address.startswith("http") else f"{live_site.url}{address}")
        assert page.evaluate(TOO_WIDE) == [], address
    page.goto(run)
    figure = page.locator("table.cells tbody td.k").first.bounding_box()
    assert figure["x"] + figure["width"] <= 390, "its speedup is on the screen"


def test_a_kernel_is_pasted_measured_and_forked(open_page, live_site):
    page = open_page()
    page.wait_for_function("fetch('/gpus/').then((r) => r.text()).then((t) => /idle|busy/.test(t))", timeout=60_000)
    fill(page, live_site)
    page.locator("#dropped").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"two lines\n"}]
    )
    page.get_by_label("What it changes").fill("plain product")
    if page.locator("select[name=device] option").count() == 1:
        pytest.skip(f"this machine takes no submitted kernels: {page.locator('form.submission').inner_text()}")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator("p.lede", has_text="The verdict appears")).to_have_count(0, timeout=360_000)
    page.goto(f"{live_site.url}/submissions/")
    page.locator("td a", has_text="browsed@").click()
    main = page.locator("main")
    expect(main).to_contain_text("plain product")
    expect(main).to_contain_text("notes.txt")
    expect(main.locator("table.results")).to_contain_text("correct")
    page.get_by_role("link", name="Fork").click()
    assert page.locator("textarea[name=source]").first.input_value() == MINE
    assert page.locator("input[name=filename]").nth(1).input_value() == "notes.txt"
