"""The form of a new run, and what it says of itself before Run is pressed."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kernels.catalog import operations
from kernels.workload import Workload
from runs.estimates import estimate as estimate_run
from runs.forms import ANY, NewRunForm, may_be_empty
from runs.models import Gpu, Run
from runs.views import number

DEFAULT_CONFIG = "smoke"


def new_run(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        form = NewRunForm(initial=initial(request))
        return _page(request, form, estimate=_estimate(form))
    form = NewRunForm(request.POST)
    if form.is_valid():
        return redirect(submit(form, request))
    return _page(request, form, status=422)


def _page(request: HttpRequest, form: NewRunForm, status: int = 200, **more: Any) -> HttpResponse:
    context = {
        "page": "runs",
        "form": form,
        "operations": [{"name": op.name, "title": op.title} for op in operations().values()],
    }
    return render(request, "new.html", context | more, status=status)


def submit(form: NewRunForm, request: HttpRequest) -> Run:
    chosen = form.cleaned_data
    any_of = chosen["device"].removeprefix(ANY) if chosen["device"].startswith(ANY) else ""
    return Run.objects.submit(
        form.spec,
        gpu=None if any_of else get_object_or_404(Gpu, pk=chosen["device"]),
        device_name=any_of,
        user=request.user,  # type: ignore[arg-type]
        title=chosen["title"].strip(),
        note=chosen["note"].strip(),
    )


def initial(request: HttpRequest) -> dict[str, Any]:
    """What a fresh form holds: an earlier run's values (?again=), or a config by name, else the small one."""
    gpu = next((g for g in Gpu.objects.in_order() if g.is_online), Gpu.objects.in_order().first())
    values: dict[str, Any] = {"device": str(gpu.pk) if gpu else "", "what": "config", "dtype": ["float16"]}
    values["operation"] = request.GET.get("operation", "")
    again = number(request.GET.get("again"))
    if again is not None and (run := Run.objects.filter(pk=again).first()):
        return values | from_run(run)
    name = request.GET.get("config") or DEFAULT_CONFIG
    form = NewRunForm(initial=values)
    config = form.configs.get(name) or next(iter(form.configs.values()), None)
    if config:
        values |= {"config": config.name, "kernels": config.spec.kernels, "protocol": config.spec.protocol.name}
    return values


def from_run(run: Run) -> dict[str, Any]:
    spec = run.spec
    values: dict[str, Any] = {
        "title": run.title,
        "note": run.note,
        "kernels": spec.kernels,
        "operation": spec.operation,
    }
    values |= {"protocol": spec.protocol.name, "mode": spec.protocol.mode if spec.protocol.mode != "auto" else ""}
    form = NewRunForm(initial=values)
    if device := _device_of(run, form):
        values["device"] = device
    if spec.name in form.configs:
        return values | {"what": "config", "config": spec.name}
    values |= {"what": "workload", "dtype": list(dict.fromkeys(w.dtype for w in spec.workloads))}
    for name in form.sizes:
        found = list(dict.fromkeys(w.sizes[name] for w in spec.workloads))
        if may_be_empty(form.sizes[name]) and all(_goes_without_saying(name, w) for w in spec.workloads):
            values[name] = ""
        elif all(isinstance(value, bool) for value in found):
            values[name] = "both" if len(found) > 1 else "yes" if found == [True] else "no"
        else:
            values[name] = ", ".join(map(str, found))
    return values


def _device_of(run: Run, form: NewRunForm) -> str:
    """The device choice that was made for a run: any of a name, or one; by its name if it was measured elsewhere."""
    if any(gpu.name == run.device_name for gpu in form.gpus):
        wanted = f"{ANY}{run.device_name}"
        alone = next(str(gpu.pk) for gpu in form.gpus if gpu.name == run.device_name)
        return wanted if form.offers("device", wanted) else alone
    return str(run.gpu_id or "")


def _goes_without_saying(name: str, workload: Workload) -> bool:
    """Whether a size has the value that it gets if it is left out."""
    sizes = {other: value for other, value in workload.sizes.items() if other != name}
    return workload == Workload(operation=workload.operation, dtype=workload.dtype, sizes=sizes)


def _estimate(form: NewRunForm) -> Any:
    """For a fresh form: as if it were sent as it stands."""
    bound = NewRunForm(form.initial)
    return estimate_run(bound.spec, bound.chosen_gpu()) if bound.is_valid() else None


def estimate(request: HttpRequest) -> HttpResponse:
    """How much work is chosen so far, asked as the form changes; with the kernels anew if another device or config was.

    Ticks are drawn anew only then: an answer must not undo what was ticked while it was on its way.
    """
    data = request.GET.copy()
    form = NewRunForm(data)
    if request.GET.get("changed") == "config" and str(data.get("config")) in form.configs:
        data.setlist("kernels", form.configs[str(data["config"])].spec.kernels)
        form = NewRunForm(data)
    found = estimate_run(form.spec, form.chosen_gpu()) if form.is_valid() else None
    problem = "" if found else next((str(e[0]) for e in form.errors.values() if e), "")
    context = {"form": form, "estimate": found, "problem": problem, "kernels_too": "changed" in request.GET}
    return render(request, "_estimate.html", context)
