"""How times grow with the work, on series written by hand."""

import pytest

from kernels.analysis.scaling import Point, Time, fit, growths, sentence, series

SHORT = {"batch": "B", "heads": "H", "seq_len": "S", "head_dim": "D"}


def time(ms, share=0.001):
    return Time(ms, ms * (1 - share), ms * (1 + share))


def point(sizes, **times):
    batch, heads, seq_len, head_dim = sizes
    named = {"batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim, "causal": False}
    work = 4.0 * batch * heads * seq_len**2 * head_dim
    return Point(named, work, {name: time(ms) for name, ms in times.items()})


L4 = [
    point((1, 8, 512, 64), sdpa=0.045, v3=7.433),
    point((4, 16, 512, 64), sdpa=0.088, v3=56.325),
    point((8, 16, 512, 64), sdpa=0.136, v3=113.798),
]
"""As a report of an L4 gives them: batch and heads grow together."""


def test_a_series_varies_one_size_only_and_takes_the_longest():
    points = [point((1, 8, s, 64), mine=1.0) for s in (512, 1024, 2048, 4096)]
    points += [point((2, 8, s, 64), mine=1.0) for s in (512, 1024)]
    points += [point((1, 8, 512, 128), mine=1.0)]
    (one,) = series(points)
    assert one.varies == ("seq_len",)
    assert [p.sizes["seq_len"] for p in one.points] == [512, 1024, 2048, 4096]
    assert one.fixed == {"batch": 1, "heads": 8, "head_dim": 64, "causal": False}
    assert one.span == 64


def test_a_flag_is_no_size_and_other_flags_make_other_series():
    points = [point((1, 8, s, 64), mine=1.0) for s in (512, 1024)]
    causal = points[0].sizes | {"causal": True, "seq_len": 2048}
    assert series([*points, Point(causal, 1e12, {"mine": time(1.0)})]) == []


def test_two_sizes_together_only_where_no_single_one_varies():
    (one,) = series(L4)
    assert one.varies == ("batch", "heads") and len(one.points) == 3 and one.span == 16


def test_a_size_that_follows_another_is_no_size_of_its_own():
    points = [p._replace(sizes=p.sizes | {"kv_heads": p.sizes["heads"]}) for p in L4]
    (one,) = series(points)
    assert one.varies == ("batch", "heads")
    assert "kv_heads" not in one.fixed


def test_nothing_of_too_few():
    assert series([]) == series(L4[:1]) == series(L4[:2]) == []


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent):
    sizes = [512.0, 1024.0, 2048.0, 4096.0]
    found, uncertain = fit(sizes, [time(1e-3 * (size / 512) ** exponent) for size in sizes])
    assert found == pytest.approx(exponent, abs=1e-9)
    assert 0 < uncertain < 0.002, "the intervals of the times, and no scatter"


def test_scatter_widens_the_interval_and_few_sizes_widen_it_most():
    sizes = [2.0**n for n in range(8)]
    times = [time(size * (1.05 if n % 2 else 1.0)) for n, size in enumerate(sizes)]
    many, few = fit(sizes, times)[1], fit(sizes[:3], times[:3])[1]
    assert 0.01 < many < 0.08 < few
    assert fit(sizes[:2], times[:2])[1] < many, "two sizes have no scatter: only what their intervals say"


def test_the_report_of_the_l4_in_a_sentence():
    (one,) = series(L4)
    found = growths(one)
    assert {g.kernel: round(g.time.ratio, 1) for g in found} == {"sdpa": 3.0, "v3": 15.3}
    assert {g.kernel: g.work for g in found} == {"sdpa": 16.0, "v3": 16.0}
    assert sentence(one, found, "v3", "sdpa", SHORT) == (
        "v3's time grows 15.3x ±0.1% while the work grows 16x, sdpa's 3.02x ±0.1%: latency-bound below B=4 H=16."
    )
    v3 = next(g for g in found if g.kernel == "v3")
    assert v3.exponent == pytest.approx(0.98, abs=0.02), "over the work, because two sizes vary"
    assert v3.flat_below is None and not v3.is_worse


def of(*times, worse=None):
    points = [point((1, 8, 256 * 2**n, 64), mine=ms) for n, ms in enumerate(times)]
    (one,) = series(points)
    return one, growths(one)


@pytest.mark.parametrize(
    "times, said",
    [
        ((0.010, 0.011, 0.016, 0.060), "6.00x ±0.1% while the work grows 64x: latency-bound below S=1024."),
        ((10.0, 11.0, 16.0, 60.0), "6.00x ±0.1% while the work grows 64x: it hardly grows below S=1024."),
        ((0.010, 0.011, 0.012, 0.013), "1.30x ±0.1% while the work grows 64x: latency-bound at every size here."),
        ((0.010, 0.040, 0.160, 0.640), "64.0x ±0.1% while the work grows 64x."),
        ((0.010, 0.050, 0.300, 2.000), "200x ±0.1% while the work grows 64x. The time of mine grows more than the work."),
    ],
)  # fmt: skip
def test_the_words_and_their_rules(times, said):
    one, found = of(*times)
    assert sentence(one, found, "mine", "sdpa", SHORT) == f"mine's time grows {said}"


def test_noise_decides_nothing_about_small_steps():
    points = [point((batch, 8, 512, 64), mine=0.01 * (1.02 if batch % 2 else 1.0)) for batch in range(1, 33)]
    (one,) = series(points)
    assert sentence(one, growths(one), "mine", "sdpa", SHORT).endswith("latency-bound at every size here.")


def test_a_kernel_that_fails_on_most_sizes_has_no_growth():
    points = [point((1, 8, s, 64), mine=1.0, **({"eager": 2.0} if s < 2048 else {})) for s in (512, 1024, 2048)]
    (one,) = series(points)
    assert [g.kernel for g in growths(one)] == ["mine"]
    assert sentence(one, growths(one), "eager", "sdpa", SHORT) == ""
