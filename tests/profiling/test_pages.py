"""The pages of ncu: what is read of them, and that damage raises nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import SOFTMAX, STALL, page

from kernels.contract.profile import MOST_LAUNCHES
from kernels.profiling import metrics
from kernels.profiling.page import factor, launches, number

REFUSED = (
    "==PROF== Connected to process 690\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
)


def one(**changes):
    (launch,) = launches(page(("softmax", SOFTMAX | changes)))
    return launch


def test_a_page_gives_the_figures_of_each_kernel():
    found = one()
    assert (found.name, found.grid, found.block) == ("softmax", "16384 x 1 x 1", "1024 x 1 x 1")
    assert found.duration_ns == 200_000
    assert found.compute == pytest.approx(0.765)
    assert found.dram_bytes == 250e6
    assert found.sm_busy == pytest.approx(409_000.5 / 414_000)
    assert (found.occupancy, found.occupancy_limit) == (pytest.approx(0.942), 1)
    assert (found.registers, found.static_shared_bytes, found.dynamic_shared_bytes) == (30, 0, 128)
    assert found.waves == 62.06
    assert found.limited_by == "registers"
    assert found.sectors_per_load == 2
    assert found.used_of_loads == 0.5
    assert found.conflict_share == 0.4
    assert (found.active_threads, found.uniform_branches) == (30.5, pytest.approx(0.9625))
    assert found.local_share == 0


def test_a_name_without_a_value_gives_way_to_the_next_spelling():
    assert one().dram == pytest.approx(0.247)
    assert one(**{"dram__throughput.avg.pct_of_peak_sustained_elapsed": "30"}).dram == pytest.approx(0.3)


def test_what_was_never_done_has_no_share():
    assert one().used_of_stores is None
    assert one().sectors_per_store is None


def test_stalls_are_shares_of_a_warps_time_without_those_that_wait_for_nothing():
    assert one().stalls == [("long_scoreboard", 0.6), ("barrier", 0.2)]


@pytest.mark.parametrize(
    "name",
    [
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
        "smsp__average_warp_latency_issue_stalled_wait.ratio",
        "smsp__average_warps_issue_stalled_wait.ratio",
        "smsp__average_warp_latency_issue_stalled_wait.pct",
    ],
)
def test_a_stall_is_known_under_the_names_of_each_version(name):
    assert metrics.stalls({name: 3.0}) == [("wait", 1.0)]


def test_samples_that_did_not_issue_are_not_counted_twice():
    twice = STALL.format("wait").replace("_per", "_not_issued_per")
    assert metrics.stalls({STALL.format("wait"): 3.0, twice: 3.0}) == [("wait", 1.0)]


@pytest.mark.parametrize(
    ("cell", "unit", "value"),
    [
        ("1,234.5", "", 1234.5),
        ("1.5", "us", 1500),
        ("1.5", "usecond", 1500),
        ("2", "second", 2e9),
        ("3", "Mbyte", 3e6),
        ("48", "Kbyte/block", 48e3),
        ("30", "register/thread", 30),
        ("n/a", "", None),
        ("nan", "", None),
        ("inf", "", None),
        ("1e300", "", None),
        ("", "%", None),
        ("(!) n/a", "%", None),
    ],
)
def test_numbers_come_in_base_units(cell, unit, value):
    assert number(cell, unit) == (value if value is None else pytest.approx(value))


def test_an_unknown_unit_counts_as_it_is():
    assert factor("warp") == factor("%") == factor("") == 1


def test_a_refusal_is_no_page():
    assert launches(REFUSED) == []


def test_several_kernels_keep_their_order():
    found = launches(page(("first", SOFTMAX), ("second", SOFTMAX)))
    assert [one.name for one in found] == ["first", "second"]


def test_an_endless_call_is_cut():
    assert len(launches(page(*[("kernel", SOFTMAX)] * (MOST_LAUNCHES + 5)))) == MOST_LAUNCHES


def test_a_damaged_row_spoils_no_other():
    lines = page(("first", SOFTMAX), ("second", SOFTMAX)).splitlines()
    first = next(number for number, line in enumerate(lines) if '"first"' in line)
    lines[first] = lines[first][: len(lines[first]) // 2]
    assert [one.name for one in launches("\n".join(lines))] == ["second"]


WHOLE = page(("first", SOFTMAX), ("second", SOFTMAX))


@given(st.text(max_size=400))
def test_no_text_raises(text):
    assert launches(text) == []


@given(
    st.integers(0, len(WHOLE)), st.integers(0, 300), st.text(alphabet=st.characters(), max_size=40)
)  # what stands there, and how much of it, is replaced
def test_no_damage_raises(at, length, instead):
    damaged = WHOLE[:at] + instead + WHOLE[at + length :]
    for found in launches(damaged):
        found.model_dump_json()


@given(st.dictionaries(st.sampled_from(sorted(SOFTMAX)), st.text(max_size=12) | st.floats().map(str), max_size=8))
def test_no_value_raises(changes):
    for found in launches(page(("softmax", SOFTMAX | changes))):
        assert found.registers is None or found.registers >= 0
        assert all(0 <= stall.share <= 1 for stall in found.stalls)
