"""A sparkline in a table row: the speedup of each run with its interval, oldest first, on its own scale."""

from __future__ import annotations

from typing import Any

from runs.charts.forest import EDGE, WIDTH, Scale
from runs.queries.points import Point
from runs.queries.ratio import Ratio

HEIGHT = 36
MOST_POINTS = 30
"""Number of newest runs drawn."""


def sparkline(series: list[tuple[Point, Ratio]]) -> dict[str, Any] | None:
    """Positions of the line, of each run's interval, and of 1 if it is in range; None without a speedup.

    A run is marked if its source differs from the run before.
    """
    drawn = series[-MOST_POINTS:]
    if not drawn:
        return None
    scale = Scale.around(ratio for _, ratio in drawn)
    step = (WIDTH - 2 * EDGE) / max(1, len(drawn) - 1)
    first = EDGE if len(drawn) > 1 else WIDTH / 2

    def y(ratio: float) -> float:
        return round(HEIGHT - EDGE - scale.share(ratio) * (HEIGHT - 2 * EDGE), 1)

    earlier = [None, *(point.version for point, _ in drawn)]
    runs = [
        {
            "x": round(first + number * step, 1),
            "y": y(ratio.ratio),
            "low": y(ratio.low),
            "high": y(ratio.high),
            "edited": None not in (point.version, earlier[number]) and point.version != earlier[number],
        }
        for number, (point, ratio) in enumerate(drawn)
    ]
    return {
        "runs": runs,
        "line": " ".join(f"{run['x']},{run['y']}" for run in runs),
        "one": y(1.0) if scale.low < 1 < scale.high else None,
        "width": WIDTH,
        "height": HEIGHT,
    }
