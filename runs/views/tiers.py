"""Tiers: the standing on each workload, the ladder of one workload, and the scales."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from kernels.analysis.processes import THOROUGH
from kernels.catalog import operations
from runs.charts import strip
from runs.models import TierScale
from runs.models.tier_scale import Tier, parse
from runs.queries import history, ladder
from runs.queries.ladder import Ladder
from runs.queries.points import Point
from runs.templatetags.figures import us
from runs.views.downloads import csv_file

EXAMPLE = "Good, B, 2\nVery Good, B+, 3\nExcellent, A, 5"


@dataclass
class Standing:
    """Ladders on devices of one name, on one scale."""

    scale: TierScale
    scales: list[TierScale]
    device: str
    """The chosen device name."""
    devices: list[str]
    ladders: list[Ladder] = field(default_factory=list)

    @classmethod
    def of(cls, request: HttpRequest, key: str = "") -> Standing:
        scales = list(TierScale.objects.all())
        asked = request.GET.get("scale", "")
        scale = next((one for one in scales if str(one.pk) == asked), None) if asked else next(iter(scales), None)
        if scale is None:
            raise Http404("there is no such tier scale" if asked else "there is no tier scale")
        places = history.devices()
        device = request.GET.get("device") or next(iter(places), "")
        if device not in ("", *places):
            raise Http404(f"there is no result on {device}")
        ladders = ladder.ladders(places[device], scale, key) if places else []
        return cls(scale, scales, device, list(places), ladders)

    @property
    def context(self) -> dict[str, Any]:
        return {
            "page": "tiers",
            "scale": self.scale,
            "scales": self.scales,
            "device": self.device,
            "devices": self.devices,
        }

    @property
    def groups(self) -> dict[str, list[Ladder]]:
        """Ladders by operation title."""
        known = operations()
        groups: dict[str, list[Ladder]] = {}
        for one in self.ladders:
            name = one.series.workload.operation
            groups.setdefault(known[name].title if name in known else name, []).append(one)
        return groups

    def headline(self) -> dict[str, str]:
        """Headline of all ladders: {"tone", "strong", "rest"}."""
        if not any(one.kernels for one in self.ladders):
            return {"tone": "same", "strong": "No kernel was compared with a baseline yet", "rest": ""}
        bests = [(one, *one.best) for one in self.ladders if one.best]
        rest = "No kernel is confirmed faster than its baseline."
        if bests:
            one, point, ratio = max(bests, key=lambda item: item[2].low)
            figures = f"{ratio.ratio:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"
            rest = f"Best: {figures}, {point.kernel} on {one.series.workload.label}.{unconfirmed(point)}"
        count = len(self.ladders)
        of = f"{count} workloads" if count > 1 else "1 workload"
        reached = [step.tier for one in self.ladders if (step := one.reached)]
        if not reached:
            return {
                "tone": "same",
                "strong": f"No kernel reaches a tier on {'any of ' * (count > 1)}{of}",
                "rest": rest,
            }
        highest = max(reached, key=lambda tier: tier.factor)
        strong = f"Kernels reach a tier on {len(reached)} of {of}"
        return {"tone": "faster", "strong": strong, "rest": f"Highest tier: {highest.label}. {rest}"}


def tiers(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    more = {"headline": standing.headline(), "groups": standing.groups, "ladders": standing.ladders}
    return render(request, "tiers.html", standing.context | more)


def tiers_csv(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    table = ladder.rows(standing.ladders, standing.device)
    return csv_file(table, ladder.FIELDS, "tiers.csv")


def tiers_json(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    return JsonResponse({"scale": standing.scale.name, "tiers": ladder.rows(standing.ladders, standing.device)})


# --- one workload -----------------------------------------------------------------------------------------------------


def _one(request: HttpRequest, key: str, mode: str) -> tuple[Standing, Ladder]:
    standing = Standing.of(request, key)
    for one in standing.ladders:
        if one.mode == mode:
            return standing, one
    raise Http404(f"no baseline was measured on a workload {key} in mode {mode} on {standing.device}")


def workload(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    standing, one = _one(request, key, mode)
    modes = [other.mode for other in standing.ladders]
    more = {"ladder": one, "modes": modes, "drawn": strip.drawn(one), "headline": ladder_headline(one)}
    return render(request, "tier_workload.html", standing.context | more)


def workload_csv(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    standing, one = _one(request, key, mode)
    return csv_file(ladder.rows([one], standing.device), ladder.FIELDS, f"tiers-{key}-{mode}.csv")


def workload_json(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    standing, one = _one(request, key, mode)
    return JsonResponse({"scale": standing.scale.name, "tiers": ladder.rows([one], standing.device)})


def ladder_headline(one: Ladder) -> dict[str, str]:
    """Headline of one ladder: {"tone", "strong", "rest"}: tier reached, next tier, tiers beyond the hardware limit."""
    if one.reached:
        tone, strong = "faster", f"{one.reached.tier.label} is reached"
    else:
        tone, strong = "same", "No tier is reached yet"
    rest = [_best(one)]
    if one.next:
        target = f"{us(one.next.target_ms)} us"
        after = "next" if one.reached else "first"
        rest.append(f"The {after} is {one.next.tier.label} at {one.next.tier.factor:g}x: {target}.")
        if one.best and one.best[1].ratio >= one.next.tier.factor:
            rest.append("The best kernel is fast enough, but its interval does not confirm it.")
    if one.beyond:
        rest.append(_beyond(one))
    return {"tone": tone, "strong": strong, "rest": " ".join(rest)}


def _best(one: Ladder) -> str:
    over = one.base.kernel
    if not one.kernels:
        return f"No kernel was compared with {over}."
    if one.best is None:
        return f"No kernel is confirmed faster than {over}."
    point, ratio = one.best
    figures = f"{ratio.ratio:.3f}x the speed of {over} ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{point.kernel} is best: {figures}.{unconfirmed(point)}"


def unconfirmed(point: Point) -> str:
    """A sentence after a space on what is missing to confirm a result; empty if nothing is."""
    if point.is_confirmed:
        return ""
    return f" Unconfirmed: measured in {point.processes or 1} process{'es' * ((point.processes or 1) > 1)}, not in {THOROUGH}."


def _beyond(one: Ladder) -> str:
    names = [step.tier.label for step in one.beyond]
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    limit = us(one.base.limit_ms)
    return f"{which} would need less than the {limit} us that the hardware allows: not offered."


# --- scales -----------------------------------------------------------------------------------------------------------


class ScaleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a scale, one tier a line."""

    tiers = forms.CharField(
        label="Tiers",
        widget=forms.Textarea(attrs={"rows": 8, "placeholder": EXAMPLE, "spellcheck": "false"}),
        max_length=4000,
        help_text="One tier a line: name, grade, factor over the baseline. The grade is optional: Good,, 2",
    )

    class Meta:
        model = TierScale
        fields = ("name",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        if self.instance.pk:
            self.fields["tiers"].initial = self.instance.text

    def clean_tiers(self) -> list[Tier]:
        return parse(self.cleaned_data["tiers"])

    def save(self, commit: bool = True) -> TierScale:
        self.instance.body = [list(tier) for tier in self.cleaned_data["tiers"]]
        return super().save(commit)


def scale(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates or edits a scale."""
    known = get_object_or_404(TierScale, pk=pk) if pk is not None else None
    form = ScaleForm(request.POST or None, instance=known)
    if request.method == "POST" and form.is_valid():
        saved = form.save()
        messages.success(request, f"The scale {saved.name} is saved.")
        return redirect(f"{reverse('tiers')}?scale={saved.pk}")
    may_go = known is not None and TierScale.objects.count() > 1
    return render(request, "tier_scale.html", {"page": "tiers", "form": form, "scale": known, "may_go": may_go})


@require_POST
def delete_scale(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a scale, except the last one: the tiers page needs one."""
    known = get_object_or_404(TierScale, pk=pk)
    if TierScale.objects.exclude(pk=pk).exists():
        known.delete()
        messages.success(request, f"The scale {known.name} is deleted.")
    else:
        messages.error(request, f"{known.name} is the only scale and cannot be deleted.")
    return redirect("tiers")
