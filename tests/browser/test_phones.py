"""Second lines of the leaderboard, and the names of workloads among the tiers, in a real browser."""

import pytest

LONGEST = "fp16 B=1 H=64 Hkv=4 S=8192 Skv=16384 D=128 causal window=4096"
ELSEWHERE = """() => {
  const line = document.querySelector('.matrix .line:has(.cell .to)'), copy = document.createElement('div');
  copy.className = 'line';
  copy.innerHTML = '<span></span><small class="l">sdpa-flash 1.72x on another card</small>';
  line.after(copy);
  const left = (of) => {
    const range = document.createRange();
    range.selectNodeContents(of);
    return range.getBoundingClientRect().left;
  };
  return left(copy.querySelector('.l')) - left(line.querySelector('.cell:not(.away) .to > .l'));
}"""
NAMES = """(name) => [...document.querySelectorAll('.tiers tbody td:first-child > a')].map((link) => {
  link.textContent = name;
  const height = parseFloat(getComputedStyle(link).lineHeight) || 1.5 * parseFloat(getComputedStyle(link).fontSize);
  return Math.round(link.parentElement.getBoundingClientRect().height / height - 0.4);
})"""


def on_a_phone(open_page, address):
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(address)
    return page


@pytest.mark.parametrize("width", [1440, 390])
def test_a_faster_result_elsewhere_is_as_far_in_as_the_text_of_a_cell(open_page, live_site, width):
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{live_site.url}/leaderboard/?gpu=NVIDIA+H200")
    assert abs(page.evaluate(ELSEWHERE)) < 1


def test_on_a_phone_a_long_workload_takes_three_lines_at_most_and_all_tiers_are_in_sight(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/tiers/?device=NVIDIA+H200")
    lines = page.evaluate(NAMES, LONGEST)
    assert len(lines) == 8 and max(lines) <= 3
    box = page.locator(".tiers tbody td.step").evaluate_all(
        "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
    )
    assert box <= 390


def test_on_a_phone_a_row_of_the_tiers_names_its_best_kernel(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/tiers/?device=NVIDIA+H200")
    best = page.locator(".tiers tbody td.best").first
    assert best.is_visible() and "triton-flash 1." in best.inner_text().replace("\n", " ")
    box = best.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_on_a_phone_an_environment_variable_widens_no_column(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/runs/1/?figures=1")
    cell = page.locator("[id^=all-] table.results tbody tr:not(.group) td:first-child").first
    cell.evaluate(
        "e => e.insertAdjacentHTML('beforeend', '<small class=\"quiet with\">with TILELANG_USE_GEMM_V1=1</small>')"
    )
    assert cell.bounding_box()["width"] < 150


def test_on_a_phone_an_environment_variable_leaves_the_speedups_in_sight(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/runs/1/")
    page.locator(".cells tbody th").first.evaluate(
        "e => e.insertAdjacentHTML('beforeend', '<small>in a process with TILELANG_USE_GEMM_V1=1</small>')"
    )
    right = page.locator(".cells td.k.on").evaluate_all(
        "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
    )
    assert right <= 390


def test_the_values_of_how_a_workload_was_measured_have_room(open_page, live_site):
    page = open_page()
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{live_site.url}/runs/1/")
    page.locator(".cells td a").first.click()
    values = page.locator(".looks.measured > .pairs:first-child dd")
    values.first.wait_for()
    assert min(values.evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")) > 250


def test_on_a_phone_workloads_without_a_time_leave_the_speedups_in_sight(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/runs/1/")
    widths = page.evaluate("""() => {
      const table = document.querySelector('table.cells');
      for (const cell of table.querySelectorAll('tbody td:nth-child(2)')) {
        cell.className = 'no-time';
        cell.textContent = 'not measured';
      }
      return [table.parentElement.scrollWidth, table.parentElement.clientWidth];
    }""")
    assert widths[0] <= widths[1]


def test_on_a_phone_a_kernel_is_described_under_its_name(open_page, live_site):
    page = on_a_phone(open_page, f"{live_site.url}/kernels/")
    boxes = page.locator(".kernel-list td.why").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert len(boxes) > 20 and max(boxes) <= 390
