"""Searches for settings as an agent reports them, with figures that are known."""

import math

from kernels.contract.events import Confirmed, Finished, Line, Started, Tried
from kernels.contract.search import Finalist, Trial
from kernels.settings import all_of
from kernels.tune_plan import TunePlan
from kernels.workload import Config
from runs.models import Run
from runs.pipeline import recorder

SPACE = {"rows": (1, 2, 4, 8, 16, 32, 64), "warps": (1, 2, 4, 8, 16)}
CONFIG = Config(
    name="layer-norm",
    title="Tune triton-layer-norm on layer-norm",
    operation="layer_norm",
    kernels=["triton-layer-norm"],
    baseline="triton-layer-norm",
    workloads=[{"rows": 16384, "cols": 4096, "dtype": "bfloat16"}, {"rows": 4096, "cols": 1024, "dtype": "bfloat16"}],
)
AT = "2026-11-23T12:00:00+00:00"
ENVIRONMENT = {
    "device": "NVIDIA H200", "capability": "9.0", "driver": "580.159.04", "torch": "2.11.0", "triton": "3.6.0",
    "harness": "6", "commit": "abc",
}  # fmt: skip
TOO_LARGE = "256 elements a thread; this kernel does 2 to 128"


def on(key, ratio, side, processes=1):
    ends = (ratio, ratio * (1 - side), ratio * (1 + side))
    times = {"p50_ms": 0.1 / ratio, "p90_ms": 0.11 / ratio, "own_p50_ms": 0.1, "own_p90_ms": 0.11}
    return {"key": key, "status": "ok", "correct": True, "ratio": ends, "rounds": 20, "processes": processes} | times


def trials(count):
    """Every fourth is pruned; the others make a hill, with luck."""
    keys, found = [one.key for one in CONFIG.workloads], []
    for number, settings in enumerate(all_of(SPACE)[:count], 1):
        made = {"number": number, "settings": settings, "origin": "tpe", "at": AT, "took_s": 4.0}
        if number % 4 == 0:
            results = [{"key": key, "status": "unsupported", "why": TOO_LARGE} for key in keys]
            label = CONFIG.workloads[0].label
            found.append(Trial(**made, results=results, pruned=f"unsupported on {label}: {TOO_LARGE}"))
            continue
        score = 1 + 0.1 * math.sin(number / 5) + 0.01 * (number % 3)
        fails = "" if score >= 1.03 else "1.03x on 0 of the 2 workloads that it needs"
        results = [on(key, score * factor, 0.02) for key, factor in zip(keys, (1.01, 0.99), strict=True)]
        found.append(Trial(**made, results=results, score=score, fails=fails))
    return found


def finalists(found, passes=True):
    best = sorted((one for one in found if one.score and one.score > 1), key=lambda one: -one.score)[:3]
    for place, trial in enumerate(best):
        ratio = trial.score * (0.98 if passes else 0.92)
        results = [on(one.key, ratio, 0.006, processes=5) for one in trial.results]
        fails = "" if passes and place == 0 else "1.03x on 1 of the 2 workloads that it needs"
        yield Finalist(number=trial.number, settings=trial.settings, results=results, score=ratio, fails=fails, at=AT)


def searched(gpu, user=None, count=24, ends="done", passes=True, **plan):
    """A run that an agent has reported: through the recorder."""
    run = Run.objects.submit(CONFIG, gpu=gpu, user=user, tune=TunePlan(**{"trials": count} | plan), wake=False)
    Run.objects.filter(pk=run.pk).update(attempt=1, sent_at=run.created_at)
    found = trials(count)
    events = [Started(environment=ENVIRONMENT, fingerprint="f"), *(Tried(trial=one) for one in found)]
    if ends:
        events += [Confirmed(finalist=one) for one in finalists(found, passes)] if ends == "done" else []
        events.append(Finished(state=ends))
    report(run, events)
    run.refresh_from_db()
    return Run.objects.get(pk=run.pk)


def report(run, events, first=1):
    lines = [Line(run=run.pk, attempt=1, seq=seq, at=AT, event=event) for seq, event in enumerate(events, first)]
    recorder.record([[run.pk, 1, line.seq, line.model_dump_json(by_alias=True)] for line in lines])
