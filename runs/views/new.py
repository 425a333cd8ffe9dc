"""The form of a new run, and its live estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.datastructures import MultiValueDict
from pydantic import ValidationError

from kernels.catalog import PROBLEM, operations
from kernels.config_files import as_yaml
from kernels.workload import Config as ConfigSpec
from kernels.workload import Workload as WorkloadSpec
from runs.forms import ANY, EVERY, TYPED, NewRunForm
from runs.models import Config, Gpu, Run, Session, Workload
from runs.offered import Offered
from runs.protocol_fields import ProtocolFields, details_of, protocol_choice
from runs.queries.estimates import estimate as estimate_run
from runs.views import number

KEPT = ("device", "what", "start", "yaml", *ProtocolFields.base_fields, "session", "title", "note")
"""Fields that are valid for every operation."""


def new_run(request: HttpRequest) -> HttpResponse:
    """Shows or submits the form. A tab of another operation keeps what fits."""
    offered = Offered()
    if request.method != "POST":
        again = _again(request.GET)
        values = initial(request, again, offered)
        return _page(request, NewRunForm(initial=values, again=again, offered=offered))
    if "tab" in request.POST:
        return _page(request, NewRunForm(initial=of_another_operation(request.POST, offered), offered=offered))
    form = NewRunForm(request.POST, again=_again(request.POST), offered=offered)
    if form.is_valid():
        return redirect(submit(form, request))
    form.point_at_fault()
    return _page(request, form, status=422)


def _page(request: HttpRequest, form: NewRunForm, status: int = 200) -> HttpResponse:
    context = {
        "page": "runs",
        "form": form,
        "operations": [{"name": op.name, "title": op.title} for op in operations().values()],
    }
    return render(request, "new.html", context | (_estimate(form) if status == 200 else {}), status=status)


def submit(form: NewRunForm, request: HttpRequest) -> Run:
    """Queues the run; of one on every model, one for each, and returns the first."""
    chosen = form.cleaned_data
    options: dict[str, Any] = {
        "user": request.user,
        "title": chosen["title"].strip(),
        "note": chosen["note"].strip(),
        "session": Session.objects.filter(pk=chosen["session"] or 0).first(),
    }
    if chosen["device"] == EVERY:
        return Run.objects.submit_on_each(form.spec, [gpu.name for gpu in form.models], **options)[0]
    if chosen["device"].startswith(ANY):
        return Run.objects.submit(form.spec, device_name=chosen["device"].removeprefix(ANY), **options)
    return Run.objects.submit(form.spec, gpu=get_object_or_404(Gpu, pk=chosen["device"]), **options)


def _again(sent: QueryDict) -> Run | None:
    """The run to repeat."""
    again = number(sent.get("again"))
    return Run.objects.filter(pk=again).first() if again is not None else None


def initial(request: HttpRequest, again: Run | None, offered: Offered) -> dict[str, Any]:
    """Initial values: from an earlier run (?again=), a named config or a workload (with ?dtype= and ?gpu=), else the smallest
    config; with ?kernel=, ?session= and, for an earlier run, ?effort= and ?protocol=. An earlier run with ?kernel= and
    ?workload=: only that kernel, beside the baseline, on that workload."""
    if again:
        chosen = {"protocol": request.GET["protocol"]} if "protocol" in request.GET else {}
        only = _one_of(again, request.GET.get("kernel", ""), request.GET.get("workload", ""))
        return from_run(again, offered, only) | {"effort": request.GET.get("effort", "")} | chosen
    if spec := _workload(request.GET):
        values = _of_workload(spec, request.GET.get("gpu", ""), offered)
    else:
        values = fresh(offered, request.GET.get("operation", ""), request.GET.get("config", ""))
    if asked := number(request.GET.get("session")):
        values["session"] = str(asked) if str(asked) in offered.sessions else ""
    if ticked := request.GET.getlist("kernel"):
        values["kernels"] = [*values.get("kernels", []), *ticked]
    return values


def _workload(asked: QueryDict) -> WorkloadSpec | None:
    """The workload of a key, in another dtype if one is named. None: there is none, or it cannot be measured."""
    stored = Workload.objects.filter(key=asked.get("workload", "").replace("\x00", "")).first()
    if stored is None:
        return None
    try:
        spec = WorkloadSpec(operation=stored.operation, dtype=asked.get("dtype") or stored.dtype, sizes=stored.sizes)
    except ValidationError:
        return None
    return spec if spec.known_problem and not spec.problem.brought else None


def _of_workload(spec: WorkloadSpec, gpu: str, offered: Offered) -> dict[str, Any]:
    """A workload of one's own with these sizes, on a device of this name, if there is one."""
    values = fresh(offered, spec.operation) | {"what": "workload"}
    device = next((one for one in sorted(offered.gpus, key=lambda one: not one.is_online) if one.name == gpu), None)
    if device:
        values["device"] = str(device.pk)
    return values | NewRunForm(initial=values, offered=offered).typed_as([spec])


def fresh(offered: Offered, operation: str, name: str = "") -> dict[str, Any]:
    """The first online device, a config (default: the smallest), and its first workload as sizes."""
    gpu = next((g for g in offered.gpus if g.is_online), next(iter(offered.gpus), None))
    values: dict[str, Any] = {"device": str(gpu.pk) if gpu else "", "what": "config", "operation": operation}
    form = NewRunForm(initial=values, offered=offered)
    config = form.configs.get(name) or min(form.configs.values(), key=_work, default=None)
    if config is None:
        return values | {"dtype": ["float16"]}
    spec = config.spec
    values |= {
        "config": config.name,
        "kernels": spec.kernels,
        "protocol": protocol_choice(spec.protocol),
    }
    return values | form.typed_as(spec.workloads[:1])


def _work(config: Config) -> int:
    """Sum of the FLOPs of one call per workload."""
    return sum(workload.problem.flops() for workload in config.spec.workloads)


def of_another_operation(sent: QueryDict, offered: Offered) -> dict[str, Any]:
    """A fresh form of the chosen operation, with the earlier choices that fit."""
    values = fresh(offered, sent.get("tab", "")) | {name: sent[name] for name in KEPT if name in sent}
    if values["what"] == "workload" and sent.getlist("dtype"):
        values["dtype"] = sent.getlist("dtype")
    return values


def _one_of(run: Run, kernel: str, workload: str) -> ConfigSpec | None:
    """A kernel of a run beside its baseline, on one of its workloads. None: the run has no such one."""
    one = next((one for one in run.spec.workloads if one.key == workload), None)
    part = run.spec.part(one.operation) if one else None
    if one is None or part is None or kernel not in part.kernels:
        return None
    pair = list(dict.fromkeys([part.baseline, kernel]))
    title = f"Confirm {kernel} on {one.label}"[:200]
    return part.model_copy(update={"name": TYPED, "title": title, "kernels": pair, "workloads": [one]})


def from_run(run: Run, offered: Offered, only: ConfigSpec | None = None) -> dict[str, Any]:
    """Values that repeat a run. only: this of it."""
    spec = only or run.spec
    values: dict[str, Any] = {
        "title": only.title if only else run.title,
        "note": "" if only else run.note,
        "kernels": spec.kernels,
        "operation": spec.operation if spec.operation in operations() else "",
        "session": str(run.session_id) if str(run.session_id) in offered.sessions else "",
    }
    values |= {
        "protocol": protocol_choice(spec.protocol),
        "mode": spec.protocol.mode if spec.protocol.mode != "auto" else "",
    } | details_of(spec.protocol)
    form = NewRunForm(initial=values, again=run, offered=offered)
    values["device"] = _device_of(run, form)
    if spec.operation in ("", PROBLEM) or (only and spec.baseline != form.chosen_operation.baseline):
        return values | {"what": "yaml", "yaml": as_yaml(spec)}
    if spec.name in form.configs:
        return values | {"what": "config", "config": spec.name} | form.typed_as(spec.workloads[:1])
    return values | {"what": "workload"} | form.typed_as(spec.workloads)


def _device_of(run: Run, form: NewRunForm) -> str:
    """Device choice of an earlier run: any of a name, or one; by its name if it was measured elsewhere. Empty if that
    device is not here."""
    if any(gpu.name == run.device_name for gpu in form.gpus):
        wanted = f"{ANY}{run.device_name}"
        alone = next(str(gpu.pk) for gpu in form.gpus if gpu.name == run.device_name)
        return wanted if form.offers("device", wanted) else alone
    return str(run.gpu_id or "")


def _estimate(form: NewRunForm, as_drawn: bool = True) -> dict[str, Any]:
    """{"estimate", "problem"} of a form as a browser sends it, with its boxes as drawn."""
    if as_drawn:
        sent = form.data if isinstance(form.data, QueryDict) else MultiValueDict(_lists(form.initial))
        data = sent.copy()
        data.setlist("kernels", form.ticked())
        form = NewRunForm(data, again=form.again, offered=form.offered)
    gpus: list[Gpu | None] = [*form.chosen_gpus()] or [None]
    estimates = [estimate_run(form.spec, gpu) for gpu in gpus] if form.is_valid() else []
    estimated = max(estimates, key=lambda one: one.seconds, default=None)
    alone = estimated is not None and form.spec.kernels == [form.spec.baseline]
    return {"estimate": estimated, "problem": "" if estimated else form.problem(), "baseline_alone": alone}


def _lists(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: value if isinstance(value, list) else [value] for name, value in values.items()}


def estimate(request: HttpRequest) -> HttpResponse:
    """Estimate fragment, refreshed as the form changes. Ticks are redrawn only if device or config changes (or the
    first devices report), so that a slow reply cannot undo them."""
    data, changed, again = request.GET.copy(), request.GET.get("changed", ""), _again(request.GET)
    offered = Offered()
    form = NewRunForm(data, again=again, offered=offered)
    more = {
        "kernels_too": changed in ("device", "config", "devices"),
        "contents_too": changed == "config",
        "device_too": changed == "devices",
        "yaml_too": changed == "start",
    }
    values: dict[str, Any] = {}
    if changed == "devices":
        if not form.catalogue:
            return HttpResponse(status=204)  # still none: nothing on the page changes
        values = {
            name: chosen for name, chosen in initial(request, again, offered).items() if name in ("device", "kernels")
        }
        values |= {"device": data["device"]} if data.get("device") else {}
    elif changed == "config" and (config := form.configs.get(str(data.get("config")))):
        values = {"kernels": config.spec.kernels, "wanted": []}
        if form.sizes_of_a_config():
            values |= form.typed_as(config.spec.workloads[:1])
            more["sizes_too"] = True
    elif changed == "start" and (start := Config.objects.filter(name=data.get("start", "")).first()):
        values = {"yaml": as_yaml(start.spec)}
    for name, chosen in _lists(values).items():
        data.setlist(name, chosen)
    form = NewRunForm(data, again=again, offered=offered)
    return render(request, "_estimate.html", {"form": form} | more | _estimate(form, as_drawn=bool(changed)))
