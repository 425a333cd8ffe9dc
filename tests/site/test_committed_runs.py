"""Every committed measurement of a run, as a run of this site: its pages answer, and what they say follows from its raw samples.

Figures and words are computed here in another way than in the product: by numpy, from the file's samples.
"""

import csv
import html
import io
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kernels.contract.export import NotAnExport, read_export
from runs.pipeline.importer import load

FOLDER = Path(__file__).parents[2] / "docs" / "measurements"


def is_of_a_run(path):
    """Whether a file is an export: others are data of studies."""
    with path.open() as file:
        return re.match(r'\{\s*"format": ?"benchsite-run/', file.read(100)) is not None


FILES = [path.name for path in sorted(FOLDER.glob("*.json")) if is_of_a_run(path)]
WITH_HEADLINES = (
    "canonical-h200-of-four-2026-11-28.json",
    "decode-h200-2026-11-24.json",
    "rms-norm-h100-2026-11-27.json",
)
WIDEST, SAME = 0.05, 0.01
WORDS = ("FASTER", "SLOWER", "SAME", "UNDECIDED")
HEADLINE = re.compile(
    r"(?:^|: |\. )([\w.+~=-]+) is faster than ([\w-]+)(?: on (\d+))?(?:, slower on (\d+))?(?: of (\d+) workloads)? ?\."
)
MEAN = re.compile(r"Geometric mean ([\d.]+)x over (\d+) workloads \(([\d.]+) to ([\d.]+)\), least ([\d.]+)x")


def test_there_are_committed_runs():
    assert len(FILES) > 90


@pytest.fixture(params=FILES)
def committed(request, owner):
    """(its name, the file's own data, the text of the run's page, the rows of its csv)"""
    raw = (FOLDER / request.param).read_bytes()
    try:
        export = read_export(raw)
    except NotAnExport as error:
        pytest.fail(f"{request.param} begins like a run, and is none: {error}")
    run = load(export, request.param)
    page = owner.get(f"/runs/{run.pk}/")
    assert page.status_code == 200
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.content.decode())))
    rows = list(csv.DictReader(io.StringIO(b"".join(owner.get(f"/runs/{run.pk}.csv")).decode())))
    return request.param, json.loads(raw), re.sub(r" ([.,])", r"\1", text), rows


def test_what_a_committed_run_says_follows_from_its_samples(committed):
    name, data, text, rows = committed
    timed = {
        (m["key"], m["mode"], m.get("group", ""), r["kernel"]): (m, r)
        for m in data["measurements"]
        for r in m["results"]
    }
    assert len(rows) == sum(len(m["results"]) for m in data["measurements"])
    for row in rows:
        found = [pair for (key, mode, _, kernel), pair in timed.items()
                 if (key, mode, kernel) == (row["workload_key"], row["mode"], row["kernel"])]  # fmt: skip
        assert any(says_what_was_measured(row, measured, result) for measured, result in found), row
    assert has_right_headline(text, rows) or name not in WITH_HEADLINES


def says_what_was_measured(row, measured, result):
    """Whether the row's time is the median of the samples, its ratio near theirs, and its word that of its interval."""
    if row["status"] != "ok" or not row["p50_ms"]:
        return row["verdict"] not in WORDS
    samples = result.get("samples_ns")
    if samples and not np.isclose(float(row["p50_ms"]) * 1e6, np.median(np.concatenate(samples)), rtol=1e-4, atol=0.06):
        return False
    if row["speedup"] and samples and result.get("paired", True) and not result.get("by_process"):
        base = next(r for r in measured["results"] if r["kernel"] == measured["baseline"])
        logs = [np.log(np.median(b) / np.median(a)) for a, b in zip(samples, base["samples_ns"], strict=False)]
        if abs(np.log(float(row["speedup"])) - np.median(logs)) > 0.01 + np.std(logs):
            return False
    if row["verdict"] in WORDS:
        return row["verdict"] == word(*(float(row[name]) for name in ("speedup_low", "speedup_high", "margin")))
    return row["verdict"] not in ("FASTER", "SLOWER", "SAME")


def word(low, high, margin):
    if margin > WIDEST:
        return "UNDECIDED"
    if low > 1 + margin:
        return "FASTER"
    if 1 / high > 1 + margin:
        return "SLOWER"
    return "SAME" if 1 / low <= 1 + SAME and high <= 1 + SAME else "UNDECIDED"


def has_right_headline(text, rows):
    """Counts anew what the page's first sentences count. Only of runs with one operation, one mode a workload and no noise:
    False for others, and where no kernel is faster than the baseline."""
    places = {(row["workload_key"], row["mode"]) for row in rows}
    one = len({row["workload"].split()[0] for row in rows}) == 1 and len(places) == len({key for key, _ in places})
    steady = all(float(row["margin"] or 0) <= WIDEST and row["contended"] == "False" for row in rows)
    baselines = {row["baseline"] for row in rows}
    said = next((found for found in HEADLINE.finditer(text) if found[2] in baselines), None)
    if not (one and steady and said):
        return False
    kernel, baseline, on, slower, of = said.groups()
    mine = [row for row in rows if row["kernel"] == kernel and row["speedup"]]
    count = defaultdict(int)
    for row in mine:
        count[row["verdict"]] += 1
    assert {row["baseline"] for row in mine} == {baseline}
    assert count["FASTER"] == int(on or of or len(mine)) and count["SLOWER"] == int(slower or 0), (
        said.group(),
        dict(count),
    )
    if of:
        assert len(mine) == int(of)
    if mean := MEAN.search(text[said.end() :]):
        shown, over, low, high, least = map(float, mean.groups())
        digit = 10.0 ** -len(mean[1].partition(".")[2])  # the last one that is shown
        ratios = np.array([float(row["speedup"]) for row in mine])
        assert len(mine) == over and low <= shown <= high
        assert np.isclose(np.exp(np.log(ratios).mean()), shown, rtol=0, atol=0.51 * digit)
        assert np.isclose(ratios.min(), least, rtol=0.005)
    return True
