"""Form fields for the protocol of a run. What is left empty is as in the config."""

from __future__ import annotations

from typing import Any

from django import forms

from kernels.protocol import EFFORTS, Protocol

ISOLATED = "isolated"
"""The choice of the protocol paired with each kernel in a process of its own."""
OF_FIXED = ("warmup", "iters", "flush_l2")
NUMBERS = ("warmup", "iters", "verify_seeds", "seed")


def protocol_choice(protocol: Protocol) -> str:
    """The choice that means a protocol."""
    return ISOLATED if protocol.isolated else protocol.name


def details_of(protocol: Protocol) -> dict[str, Any]:
    """The values of the fields below that differ from the usual ones. A seed is not repeated by itself."""
    fields = Protocol.model_fields
    names = ["verify_seeds", *(OF_FIXED if protocol.name == "fixed" else ())]
    return {name: value for name in names if (value := getattr(protocol, name)) != fields[name].default}


def _number(label: str, least: int, most: int, **more: Any) -> forms.IntegerField:
    widget = forms.TextInput(attrs={"inputmode": "numeric", "size": 10, "class": "short", **more.pop("attrs", {})})
    return forms.IntegerField(
        label=label,
        min_value=least,
        max_value=most,
        required=False,
        widget=widget,
        error_messages={
            "invalid": "Use a whole number.",
            "min_value": f"Use a number from {least} to {most:,}.",
            "max_value": f"Use a number from {least} to {most:,}.",
        },
        **more,
    )


class ProtocolFields(forms.Form):
    """How to measure."""

    protocol = forms.ChoiceField(
        label="Protocol",
        choices=[
            ("paired", "paired: kernels take turns in rounds, and are compared within rounds"),
            ("isolated", "isolated: paired, each kernel in a process of its own; for untrusted kernels"),
            ("fixed", "fixed: warm-up calls, then timed calls, one kernel after the other"),
        ],
        initial="paired",
    )
    effort = forms.ChoiceField(
        label="Effort",
        choices=[
            ("", "from the config, or normal"),
            ("quick", "quick: a few seconds a workload, wide intervals"),
            ("normal", "normal: until the intervals are narrow"),
            ("thorough", "thorough: five fresh processes, which a confirmed result needs"),
        ],
        required=False,
        help_text="For the protocols “paired” and “isolated”.",
    )
    mode = forms.ChoiceField(
        label="Mode",
        choices=[
            ("", "from the config, or automatic"),
            ("auto", "automatic: graph replay below 50 µs, else cold"),
            ("cold", "cold: inputs not in the cache, launch gap hidden"),
            ("graph", "graph: CUDA-graph replay over rotated inputs"),
            ("warm", "warm: one buffer, always in the cache"),
            ("sustained", "sustained: back to back for at least 1 s in each of 8 rounds"),
            ("e2e", "e2e: host time, dispatch included"),
        ],
        required=False,
        help_text="On a CPU the mode is always cpu. “fixed” sets its own mode; “isolated” measures batches.",
    )
    warmup = _number(
        "Warm-up calls", 0, 100_000, help_text="Untimed. For the protocol “fixed”.", attrs={"placeholder": "200"}
    )
    iters = _number("Timed calls", 1, 100_000, help_text="For the protocol “fixed”.", attrs={"placeholder": "500"})
    flush_l2 = forms.BooleanField(
        label="Evict L2 before every call", required=False, help_text="For the protocol “fixed”."
    )
    verify_seeds = _number(
        "Correctness checks", 1, 10, help_text="Each on fresh inputs, before timing.", attrs={"placeholder": "6"}
    )
    seed = _number(
        "Seed", 0, 2**63 - 1,
        help_text="The same seed repeats inputs and orders. If empty, the run draws a secret seed and records it.",
    )  # fmt: skip

    def detail_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("warmup", "iters", "flush_l2", "verify_seeds", "seed")]

    @property
    def has_details(self) -> bool:
        """Whether one of these fields is filled in or at fault."""
        return any(field.errors or field.value() not in (None, "", False) for field in self.detail_fields())

    def protocol_of(self, config: dict[str, Any]) -> Protocol | None:
        """The protocol of a config, changed by these fields; None if they contradict each other: then one has an error."""
        cleaned = self.cleaned_data
        name, mode = cleaned["protocol"], cleaned["mode"]
        if name == ISOLATED and mode not in ("", "auto"):
            self.add_error("mode", "The protocol isolated supports only the automatic mode.")
            return None
        given = {field: cleaned[field] for field in NUMBERS if cleaned[field] is not None}
        if cleaned["flush_l2"]:
            given["flush_l2"] = True
        if name != "fixed" and (field := next((field for field in OF_FIXED if field in given), None)):
            self.add_error(field, "Only the protocol “fixed” uses this field. Choose it, or leave the field empty.")
            return None
        changes = EFFORTS.get(cleaned["effort"], {}) | given
        if mode:
            changes["mode"] = mode
        if name == ISOLATED:
            changes |= {"name": "paired", "isolated": True, "mode": "auto"}
        else:
            changes |= {"name": name, "isolated": False}
        return Protocol(**config | changes)
