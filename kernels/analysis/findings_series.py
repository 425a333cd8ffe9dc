"""Findings of several times: against the baseline, factor by factor, and from size to size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kernels.analysis.claims import AGREES, rounding
from kernels.analysis.findings_one import Finding, Kind, Timed, is_low, share_of_light
from kernels.analysis.scaling import three_digits

SLOW = 10.0
"""A kernel that is so many times slower on every workload is far slower."""
GROWN = 4.0
"""Least growth of the work that tells anything about scaling."""
FULLY = 0.9
"""A time grows with the work if it grows by the growth of the work to this power, or more."""
BARELY = 0.6
"""With this power, or less, it is latency-bound at its small end."""

IsBaseline = Callable[[Timed], bool]
"""Whether a time is of what the others are compared with. A name alone does not say it: two operations share names."""
Pair = tuple[Timed, Timed]
"""(a kernel's time, the baseline's on the same workload)"""


def pairs(every: Sequence[Timed], is_baseline: IsBaseline) -> list[Pair]:
    """Each time with the baseline's: same workload, GPU, method and measurement."""

    def place(one: Timed) -> Any:
        return one.where, one.workload.key, one.measurement

    base = {place(one): one for one in every if is_baseline(one) and one.ms}
    found = ((one, base.get(place(one))) for one in every if not is_baseline(one) and one.ms)
    return [(one, other) for one, other in found if other]


def _ratio(pair: Pair) -> float:
    """How many times slower the kernel is."""
    one, base = pair
    assert one.ms and base.ms
    return one.ms / base.ms


def _by_kernel(every: Sequence[Pair]) -> Iterator[list[Pair]]:
    """The pairs of each kernel, GPU and method, in the order of their work."""

    def key(pair: Pair) -> Any:
        return pair[0].where, pair[0].kernel, pair[1].kernel

    for _, group in groupby(sorted(every, key=key), key):
        yield sorted(group, key=lambda pair: pair[0].workload.problem.flops())


# --- against the baseline ---------------------------------------------------------------------------------------------


def factors(every: Sequence[Timed], is_baseline: IsBaseline) -> Iterator[Finding]:
    """Claimed speedups and slowdowns that do not follow from the times beside them."""
    for group in _by_kernel(pairs(every, is_baseline)):
        wrong = [(pair, said) for pair in group if (said := _wrong_factor(pair)) is not None]
        if not wrong:
            continue
        one, base = wrong[0][0]
        reported = listed([f"{factor:.4g}" for _, factor in wrong])
        real = listed([f"{_ratio(pair):.0f}" if _ratio(pair) >= SLOW else f"{_ratio(pair):.3g}" for pair, _ in wrong])
        by = f" ({one.method})" if one.method else ""
        yield Finding(
            Kind.FACTORS,
            f"{one.kernel}{by} is reported as {reported} times slower than {base.kernel}; its own times give {real}.",
            tuple(
                f"{pair[0].workload.label}: {pair[0].ms:.4g} ms / {pair[1].ms:.4g} ms = {_ratio(pair):.4g}, not {factor:.4g}"
                for pair, factor in wrong
            ),
            tuple(one for pair, _ in wrong for one in pair),
        )


def _wrong_factor(pair: Pair) -> float | None:
    """The claimed slowdown, if the times contradict it beyond what the digits allow. None: they do not."""
    one, base = pair
    assert one.ms and base.ms
    exact = rounding(one.ms) + rounding(base.ms)
    if one.slowdown and abs(_ratio(pair) / one.slowdown - 1) > max(AGREES, exact + rounding(one.slowdown)):
        return one.slowdown
    if one.speedup and abs(1 / (_ratio(pair) * one.speedup) - 1) > max(AGREES, exact + rounding(one.speedup)):
        return 1 / one.speedup
    return None


def slow(every: Sequence[Timed], is_baseline: IsBaseline) -> Iterator[Finding]:
    """Kernels that are many times slower than the baseline everywhere, and how far from the limit they are."""
    for group in _by_kernel(pairs(every, is_baseline)):
        one, base = group[0]
        ratios = sorted(map(_ratio, group))
        low = [pair[0] for pair in group if is_low(pair[0])]
        by = f" ({one.method})" if one.method else ""
        if ratios[0] >= SLOW:
            where = f"on all {len(group)} workloads" if len(group) > 1 else f"on {one.workload.label}"
            limit = f" and reaches {_shares(low)} of the speed of light" if len(low) == len(group) else ""
            yield Finding(
                Kind.SLOW,
                f"{one.kernel}{by} is {_span(ratios, '{:.0f}')} times slower than {base.kernel} {where}{limit}.",
                tuple(
                    f"{a.workload.label}: {a.ms:.4g} ms / {b.ms:.4g} ms = {_ratio((a, b)):.4g}{_of_light(a)}"
                    for a, b in group
                ),
                tuple(result for pair in group for result in pair),
            )
        elif low:
            yield Finding(
                Kind.LOW,
                f"{one.kernel}{by} reaches {_shares(low)} of the speed of light on {len(low)} of {len(group)} workloads.",
                tuple(f"{a.workload.label}: {a.ms:.4g} ms{_of_light(a)}" for a in low),
                tuple(low),
            )


def _of_light(one: Timed) -> str:
    share = share_of_light(one)
    return f"; {share:.2%} of the speed of light" if share is not None else ""


def _shares(of: Sequence[Timed]) -> str:
    return _span(sorted(share_of_light(one) or 0.0 for one in of), "{:.1%}")


def _span(values: Sequence[float], form: str) -> str:
    """ "133 to 837"; one number if both ends read the same."""
    first, last = form.format(values[0]), form.format(values[-1])
    return first if first == last else f"{first} to {last}"


def listed(texts: Sequence[str], most: int = 6) -> str:
    """ "172, 523, 816": at most so many."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


# --- from size to size ------------------------------------------------------------------------------------------------

COUNTS = ("batch", "heads", "kv_heads", "rows")
"""Sizes that count independent parts."""


class Series(NamedTuple):
    """A kernel from its least work to its most, where only the count of independent parts differs."""

    small: Timed
    large: Timed

    @property
    def work(self) -> float:
        return _work(self.large) / _work(self.small)

    @property
    def time(self) -> float:
        assert self.small.ms and self.large.ms
        return self.large.ms / self.small.ms

    @property
    def grown(self) -> str:
        """ "15.3x"; of measured times with its uncertainty: "15.3x +-0.8%"."""
        side = math.expm1(math.hypot(self.small.spread, self.large.spread))
        return f"{three_digits(self.time)}x \N{PLUS-MINUS SIGN}{side:.1%}" if side else f"{self.time:.3g}x"

    @property
    def way(self) -> str:
        """ "16x, from attention ... to attention ..."."""
        return f"{self.work:.4g}x, from {self.small.workload.label} to {self.large.workload.label}"

    @property
    def ends(self) -> tuple[Any, str, str]:
        """Series of two kernels are compared if this is equal."""
        return self.small.where, self.small.workload.key, self.large.workload.key

    @property
    def arithmetic(self) -> tuple[str, str]:
        small, large = self.small, self.large
        return (
            f"{small.workload.label} to {large.workload.label}: work {_work(large):.4g} / {_work(small):.4g} FLOP = "
            f"{self.work:.4g}",
            f"time {large.ms:.4g} ms / {small.ms:.4g} ms = {self.time:.3g}",
        )


def series(every: Sequence[Timed]) -> list[Series]:
    """Of each kernel, dtype and fixed sizes, those whose work grows enough; the most work first."""

    def key(one: Timed) -> Any:
        fixed = {name: value for name, value in one.workload.sizes.items() if name not in COUNTS}
        return one.where, one.kernel, str({"dtype": one.workload.dtype} | fixed)

    groups = (sorted(group, key=_work) for _, group in groupby(sorted((x for x in every if x.ms), key=key), key))
    found = (Series(group[0], group[-1]) for group in groups)
    return sorted((one for one in found if one.work >= GROWN), key=lambda one: -_work(one.large))


def scaling(every: Sequence[Timed], is_baseline: IsBaseline) -> Iterator[Finding]:
    """How times grow with batch, heads or rows, of each kernel and method in its series with the most work. Kernels that are
    latency-bound between the same two workloads are one finding."""
    found = series(every)
    base = {one.ends: one for one in found if is_baseline(one.small)}
    kinds: dict[Any, list[Series]] = {}
    for one in found:
        if kind := _kind(one, is_baseline(one.small)):
            kinds.setdefault((kind, one.small.where, one.small.kernel), []).append(one)
    bound: dict[Any, list[list[Series]]] = {}
    for (kind, *_), alike in kinds.items():
        if kind == Kind.LATENCY:
            bound.setdefault(alike[0].ends, []).append(alike)
        else:
            yield _grows(alike, base.get(alike[0].ends))
    yield from map(_latency_bound, bound.values())


def _grows(alike: list[Series], other: Series | None) -> Finding:
    """A kernel whose time grows with the work far from the limit. other: the baseline's series of the same ends."""
    first = alike[0]
    than = f"; that of {other.small.kernel} grows {other.grown}" if other else ""
    share = _shares(sorted(first, key=lambda one: share_of_light(one) or 0.0))
    return Finding(
        Kind.GROWS,
        f"{_named(first)}: the time grows {first.grown} while the work grows {first.way}{than}. It reaches {share} of the "
        "speed of light.",
        *_evidence(alike),
    )


def _latency_bound(kernels: list[list[Series]]) -> Finding:
    """Kernels whose times hardly grow between the same two workloads."""
    firsts = [alike[0] for alike in kernels]
    first = min(firsts, key=lambda one: one.time)
    last = max(firsts, key=lambda one: one.time)
    if len(firsts) == 1:
        said = f"{_named(first)}: the time grows {first.grown}"
    else:
        grown = (
            first.grown
            if first.grown == last.grown
            else f"{first.grown} ({first.small.kernel}) to {last.grown} ({last.small.kernel})"
        )
        said = f"{listed([_named(one) for one in firsts])}: the time grows {grown}"
    every = [_evidence(alike, with_rate=True) for alike in kernels]
    return Finding(
        Kind.LATENCY,
        f"{said} while the work grows {first.way}; small sizes are launch-bound or do not fill the GPU.",
        tuple(line for lines, _ in every for line in lines),
        tuple(result for _, results in every for result in results),
    )


def _named(one: Series) -> str:
    return f"{one.small.kernel} ({one.small.method})" if one.small.method else one.small.kernel


def _evidence(alike: list[Series], with_rate: bool = False) -> tuple[tuple[str, ...], tuple[Timed, ...]]:
    """(arithmetic, results) of a kernel's series. with_rate: also the time of its small end at the rate of the large one."""
    lines = [line for one in alike for line in one.arithmetic]
    if with_rate:
        first = alike[0]
        assert first.large.ms
        lines.append(
            f"at the rate of the large end the small one takes {first.large.ms:.4g} ms / {first.work:.4g} "
            f"= {first.large.ms / first.work:.3g} ms, not {first.small.ms:.4g} ms"
        )
    return tuple(lines), tuple(result for one in alike for result in one)


def _kind(one: Series, is_baseline: bool) -> Kind | None:
    if one.time >= one.work**FULLY and is_low(one.small) and is_low(one.large) and not is_baseline:
        return Kind.GROWS
    return Kind.LATENCY if one.time <= one.work**BARELY else None


def _work(one: Timed) -> int:
    return one.workload.problem.flops()
