"""Judge a claim: is a time or rate that somebody reports possible on a GPU, and has anybody reached as much?"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from kernels.analysis import claim_text
from kernels.analysis.claims import Claim, Judgement
from kernels.analysis.claims import judge as judge_claim
from kernels.analysis.peaks import PEAKS, Peak, peak_of
from kernels.catalog import operations
from kernels.dtypes import DTYPE_SHORT
from kernels.workload import Workload, sentence
from runs.form_fields import DECIMAL, words_of
from runs.queries.reached import reached_here

DEFAULT_OPERATION = "attention"
MOST_DIGITS = 20
"""Longest number: Python refuses to parse thousands of digits."""
EXAMPLES = (
    "SDPA on H100 SXM, B=16 H=96 S=4096 D=128 fp16: 12.27 ms, 1,075 TFLOPS",
    "SDPA on H100 SXM, B=16 H=96 S=4096 D=64 fp16: 7.37 ms",
    "matmul 8192 x 8192 x 8192 bf16 on RTX 5090: 240 TFLOP/s",
    "NSA on H100 PCIe, B=2 H=16 G=1 S=512 D=64 block_size=32 selected_blocks=8 causal fp16: 0.543 ms, 45.23 TFLOPS",
)
SHARED = ("dtype", "gpu", "ms", "tflops")
"""Fields of every operation."""


def size_field(info: FieldInfo) -> forms.Field:
    """A field for one size of an operation: a number, or no and yes, or a word."""
    if words := words_of(info):
        return forms.ChoiceField(label=info.title, choices=[(word, word) for word in words], required=False)
    if info.annotation is bool:
        return forms.ChoiceField(label=info.title, choices=[("no", "no"), ("yes", "yes")], required=False)
    mode = "decimal" if info.annotation is float else "numeric"
    widget = forms.TextInput(attrs={"inputmode": mode, "autocomplete": "off", "class": "short"})
    text = info.description or ""
    return forms.CharField(label=info.title, required=False, max_length=MOST_DIGITS, help_text=text, widget=widget)


def amount(label: str, unit: str) -> forms.CharField:
    widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off", "class": "short"})
    return forms.CharField(label=f"{label} ({unit})", required=False, max_length=MOST_DIGITS, widget=widget)


class ClaimForm(forms.Form):
    """A claim; its sizes depend on the operation. `claim` is set if it is valid."""

    claim: Claim
    dtype = forms.ChoiceField(label="Dtype", choices=list(DTYPE_SHORT.items()), initial="float16")
    gpu = forms.ChoiceField(
        label="GPU",
        choices=[("", "Choose a GPU"), *((peak.model, peak.model) for peak in PEAKS)],
        error_messages={"required": "Choose a GPU."},
    )
    ms = amount("Time of one call", "ms")
    tflops = amount("Rate", "TFLOP/s")

    def __init__(self, operation: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chosen_operation = operations().get(operation) or operations()[DEFAULT_OPERATION]
        self.sizes = {name: info for name, info in self.chosen_operation.model_fields.items() if name != "dtype"}
        dtype = self.fields["dtype"]
        assert isinstance(dtype, forms.ChoiceField)
        dtype.choices = [(name, DTYPE_SHORT[name]) for name in self.chosen_operation.dtypes]
        self.fields |= {name: size_field(info) for name, info in self.sizes.items()}

    @property
    def operation_name(self) -> str:
        return self.chosen_operation.name

    def size_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.sizes]

    def _amount(self, name: str) -> float | None:
        text = self.cleaned_data[name].strip().replace(",", "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise forms.ValidationError(f"“{text}”: use a number, such as 12.27.") from None
        if not 0 < value < 1e15:
            raise forms.ValidationError("Use a number above 0.")
        return value

    def clean_ms(self) -> float | None:
        return self._amount("ms")

    def clean_tflops(self) -> float | None:
        return self._amount("tflops")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and cleaned["ms"] is None and cleaned["tflops"] is None:
            self.add_error("ms", "Enter a time, a rate, or both.")
        sizes = self._checked_sizes(cleaned)
        if not self.errors:
            self._make_claim(cleaned, sizes)
        return cleaned

    def _checked_sizes(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """The sizes as numbers; each fault is at its field."""
        sizes: dict[str, Any] = {}
        for name, info in self.sizes.items():
            text = (cleaned.get(name) or "").strip().replace(",", "")
            extra = info.json_schema_extra
            may_be_empty = isinstance(extra, dict) and extra.get("may_be_empty")
            if info.annotation is bool:
                sizes[name] = text == "yes"
            elif words_of(info):
                sizes |= {name: text} if text else {}
            elif text.isascii() and text.isdecimal():
                sizes[name] = int(text)
            elif info.annotation is float and DECIMAL.fullmatch(text):
                sizes[name] = float(text)
            elif text:
                kind = "number, such as 0.125" if info.annotation is float else "whole number"
                self.add_error(name, f"“{text}”: use a {kind}.")
            elif not may_be_empty and name not in self.errors:
                self.add_error(name, "Enter a number.")
        return sizes

    def _make_claim(self, cleaned: dict[str, Any], sizes: dict[str, Any]) -> None:
        try:
            workload = Workload(operation=self.operation_name, dtype=cleaned["dtype"], sizes=sizes)
        except ValidationError as error:
            said = sentence(error).rpartition(": ")[2]
            where = next((name for name, info in self.sizes.items() if info.title and f"{info.title} (" in said), None)
            where = next((name for name in self.sizes if name in error.errors()[0]["loc"]), where)
            self.add_error(where, f"{said[:1].upper()}{said[1:]}.")
            return
        peak = peak_of(cleaned["gpu"])
        assert peak is not None
        self.claim = Claim(workload, peak, cleaned["ms"], cleaned["tflops"])

    @property
    def query(self) -> str:
        """The claim as a query string: its link."""
        given = {name: str(self.data.get(name, "")).strip() for name in (*self.sizes, *SHARED)}
        return urlencode({"operation": self.operation_name} | {name: text for name, text in given.items() if text})


def form_of(query: QueryDict) -> ClaimForm:
    """The form with what a query string says; without a claim in it, empty."""
    data = query.copy()
    if (gpu := peak_of(data.get("gpu", ""))) is not None:
        data["gpu"] = gpu.model  # a driver's name is understood, too
    data.setdefault("dtype", "float16")
    operation = data.get("operation", "")
    form = ClaimForm(operation, data)
    if any(data.get(name) for name in ("claim", "ms", "tflops", *form.sizes)):
        return form
    return ClaimForm(operation, initial={name: data.get(name, "") for name in SHARED})


def judgement_of(form: ClaimForm) -> Judgement:
    claim = form.claim
    return judge_claim(claim, *reached_here(claim.peak, claim.workload.dtype))


def judge(request: HttpRequest) -> HttpResponse:
    """The page. A pasted claim is read into the fields; a claim that is understood has its own address."""
    query, pasted = request.GET.copy(), request.GET.get("claim", "").strip()
    understood = claim_text.read(pasted) if pasted else {}
    for name, value in understood.items():
        query[name] = value
    form = form_of(query)
    valid = form.is_bound and form.is_valid()
    if pasted and valid:
        said = {"said": short} if (short := claim_text.short_gpu(pasted)) else {}
        return redirect(f"{reverse('judge')}?{form.query}{'&' if said else ''}{urlencode(said)}")
    found = judgement_of(form) if valid else None
    context = {
        "page": "judge",
        "form": form,
        "pasted": pasted,
        "understood": understood,
        "found": found,
        "said": said_gpu(request.GET, form) if found else "",
        "bars": bars(found) if found else [],
        "link": request.build_absolute_uri(f"{reverse('judge')}?{form.query}") if found else "",
        "tabs": [(op.name, op.title, tab(form, op.name)) for op in operations().values()],
        "examples": [(text, urlencode({"claim": text})) for text in EXAMPLES],
    }
    return render(request, "judge.html", context, status=422 if form.errors else 200)


def said_gpu(query: QueryDict, form: ClaimForm) -> str:
    """The name that a pasted claim had for its GPU, where it does not say which model: "H100"."""
    said = query.get("said", "")
    return said if claim_text.SHORT_GPUS.get(said) == form.claim.peak.model else ""


def tab(form: ClaimForm, operation: str) -> str:
    """The query string of another operation's form: the GPU and the dtype stay."""
    kept = {name: form[name].value() or "" for name in ("dtype", "gpu")}
    return urlencode({"operation": operation} | {name: value for name, value in kept.items() if value})


def bars(found: Judgement) -> list[dict[str, Any]]:
    """The claim and its limits as bars: {"name", "shown", "percent" of the longest, "kind"}."""
    longest = max(rate for _, rate in found.bars)
    kinds = {"this claim": "claim", "speed of light": "light"}
    return [
        {"name": name, "shown": f"{rate:.4g}", "percent": round(100 * rate / longest, 2), "kind": kinds.get(name, "")}
        for name, rate in found.bars
    ]


def limits_of(peak: Peak) -> dict[str, Any]:
    """A model's limits by dtype: speed of light, datasheet, and the highest rate of the table."""
    reached = {dtype: peak.reached_tflops(dtype) for dtype in DTYPE_SHORT}
    return {
        "model": peak.model,
        "gb_per_s": peak.gb_per_s,
        "max_sm_mhz": peak.max_mhz,
        "clock_source": peak.clock_source,
        "light_tflops": {dtype: peak.light(dtype).tflops for dtype in DTYPE_SHORT},
        "datasheet_tflops": {dtype: peak.tflops(dtype) for dtype in DTYPE_SHORT},
        "reached_tflops": {dtype: found.rate if found else None for dtype, found in reached.items()},
        "reached_source": {dtype: found.source if found else "" for dtype, found in reached.items()},
    }


def judge_json(request: HttpRequest) -> JsonResponse:
    """The same as JSON; faults by field, status 422. Without a claim: the limits of every model."""
    form = form_of(request.GET)
    if not form.is_bound:
        return JsonResponse({"gpus": [limits_of(peak) for peak in PEAKS]})
    if not form.is_valid():
        faults = form.errors.get_json_data()
        said = {name: [fault["message"] for fault in found] for name, found in faults.items()}
        return JsonResponse({"errors": said}, status=422)
    claim, found = form.claim, judgement_of(form)
    data = {
        "workload": claim.workload.model_dump(),
        "gpu": claim.peak.model,
        "ms": claim.ms,
        "tflops": claim.tflops,
        "verdict": found.word,
        "why": found.why,
        "notes": found.notes,
        "steps": [
            {"what": step.what, "arithmetic": step.arithmetic, "result": step.result, "source": step.source}
            for step in found.steps
        ],
    }
    return JsonResponse(data)
