"""The form of a new run, checked field by field; keeps everything typed."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from kernels.analysis.memory import why_too_large
from kernels.catalog import operations
from kernels.config_files import ConfigError, read_config
from kernels.dtypes import DTYPE_SHORT
from kernels.submission import is_submitted
from kernels.workload import Config as ConfigSpec
from kernels.workload import Workload, sentence
from runs.form_fields import ALL, may_be_empty, size_field, words_of
from runs.models import Config, Gpu, Run
from runs.offered import Offered
from runs.protocol_fields import ProtocolFields

DEFAULT_OPERATION = "attention"
MAX_WORKLOADS = 600
TYPED = "typed"
"""Name of a config typed into the form."""
ANY = "any:"
"""Prefix of a choice of any device of a name."""
EVERY = "every"
"""The choice of one device of each model that answers."""
SHOWN_WORKLOADS = 8


class NewRunForm(ProtocolFields):
    """Fields of every run; the sizes depend on the operation. again: the run to repeat, if any."""

    field_order = ("operation", "device", "what", "config", "start", "yaml", "dtype", "kernels")
    """Before those of the protocol: the first fault is said in this order."""

    operation = forms.CharField(widget=forms.HiddenInput, required=False)
    device = forms.ChoiceField(label="Device", error_messages={"required": "Choose a device."})
    what = forms.ChoiceField(
        label="What to measure",
        choices=[("config", "A config"), ("workload", "Custom workload"), ("yaml", "YAML")],
        widget=forms.RadioSelect,
        initial="config",
    )
    config = forms.ChoiceField(label="Config", required=False)
    start = forms.ChoiceField(label="Start from", required=False)
    yaml = forms.CharField(
        label="Config as YAML",
        required=False,
        max_length=100_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16, "class": "mono", "spellcheck": "false"}),
        help_text="The run uses this config's kernels and protocol. A config can contain several operations.",
    )
    dtype = forms.MultipleChoiceField(
        label="Dtype", choices=list(DTYPE_SHORT.items()), required=False, widget=forms.CheckboxSelectMultiple
    )
    kernels = forms.MultipleChoiceField(
        label="Kernels to compare",
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    session = forms.ChoiceField(label="Session", required=False, help_text="Group with related runs.")
    title = forms.CharField(label="Title", required=False, max_length=200, help_text="Shown in lists of runs.")
    note = forms.CharField(label="Note", required=False, widget=forms.Textarea(attrs={"rows": 2}), max_length=5000)

    def __init__(self, *args: Any, again: Run | None = None, offered: Offered | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.again = again
        self.offered = offered or Offered()
        wanted = str(self["operation"].value() or "")
        self.chosen_operation = operations().get(wanted) or operations()[DEFAULT_OPERATION]
        self.sizes = {name: info for name, info in self.chosen_operation.model_fields.items() if name != "dtype"}
        self._choice("dtype").choices = [(name, DTYPE_SHORT[name]) for name in self.chosen_operation.dtypes]
        self.fields |= {name: size_field(info) for name, info in self.sizes.items()}
        self.gpus = self.offered.gpus
        self.configs, names = self._configs()
        self._choice("start").choices = [("", "nothing"), *((name, name) for name in names)]
        self._choice("device").choices = self._devices()
        self._choice("config").choices = [
            (c.name, f"{c.name} · {c.title}" if c.title else c.name) for c in self.configs.values()
        ]
        self._choice("session").choices = [("", "none"), *self.offered.sessions.items()]
        self.catalogue = self._catalogue()
        self._choice("kernels").choices = [(k["name"], k["name"]) for k in self.catalogue]

    def _choice(self, name: str) -> forms.ChoiceField:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        return field

    def offers(self, name: str, value: str) -> bool:
        return self._choice(name).valid_value(value)

    def _configs(self) -> tuple[dict[str, Config], list[str]]:
        """The configs of the operation, and that of a run to repeat if it is no longer known; and the names of all."""
        operation = self.chosen_operation.name
        configs, names = self.offered.configs(operation)
        if self.again and self.again.config["name"] not in (TYPED, *names):
            body, title = self.again.config, f"as in run {self.again.pk}"
            if body["operation"] == operation:
                configs[body["name"]] = Config(name=body["name"], title=title, body=body)
        return configs, names

    def _devices(self) -> list[tuple[str, str]]:
        choices = [(str(gpu.pk), f"{gpu.name} · {gpu.place} · {gpu.state}") for gpu in self.gpus]
        names = [gpu.name for gpu in self.gpus]
        several = sorted({name for name in names if names.count(name) > 1})
        choices += [(f"{ANY}{name}", f"any {name}") for name in several]
        models = [gpu.name for gpu in self.models]
        return choices + ([(EVERY, f"every model: {', '.join(models)}")] if len(models) > 1 else [])

    @property
    def models(self) -> list[Gpu]:
        """One device of each model that answers."""
        return list({gpu.name: gpu for gpu in reversed(self.gpus) if gpu.is_online}.values())[::-1]

    def _catalogue(self) -> list[dict[str, Any]]:
        """All kernels of all devices, baseline first, with the reason if the chosen device cannot run them."""
        known: dict[str, dict[str, Any]] = {}
        for gpu in self.gpus:
            for kernel in gpu.kernels(self.chosen_operation.name):
                known.setdefault(kernel["name"], dict(kernel))
        chosen = self.chosen_gpu()
        mine = self._why_not()
        repeated = self.again.spec.kernels_of(self.chosen_operation.name) if self.again else []
        ticked = {*(self["kernels"].value() or []), *self._wanted()}
        for name in filter(is_submitted, (*repeated, *ticked)):
            if one := self.offered.submission(self.chosen_operation.name, name):
                known[name] = one.as_declared()
                mine[name] = chosen.why_no_submissions if chosen else ""
        for name, kernel in known.items():
            kernel["baseline"] = name == self.chosen_operation.baseline
            kernel["why_not"] = mine.get(name, "this device does not have it") if chosen else ""
            kernel["repeated"] = bool(kernel["why_not"]) and name in repeated
            kernel["off"] = bool(kernel["why_not"]) and not kernel["repeated"]
            kernel["wanted"] = name in ticked
            kernel["ticked"] = kernel["baseline"] or (kernel["wanted"] and not kernel["off"])
        return sorted(known.values(), key=lambda k: (not k["baseline"], bool(k["why_not"]), k["name"]))

    def _why_not(self) -> dict[str, str]:
        """The name of a kernel -> why the chosen device cannot run it; of several devices, why none can."""
        found: dict[str, str] = {}
        for gpu in self.chosen_gpus():
            for kernel in gpu.kernels(self.chosen_operation.name):
                found[kernel["name"]] = found.get(kernel["name"], kernel["why_not"]) and kernel["why_not"]
        return found

    def _wanted(self) -> list[str]:
        """Ticked kernels that the chosen device cannot run: another device may."""
        return self.data.getlist("wanted") if isinstance(self.data, QueryDict) else []

    def ticked(self) -> list[str]:
        """The ticked kernels as a browser sends them, and the baseline, whose box is disabled."""
        return [kernel["name"] for kernel in self.catalogue if kernel["ticked"]]

    @property
    def contents(self) -> dict[str, Any]:
        """Contents of the chosen config: {"count", "labels": the first ones, "more", "source": of its sizes}."""
        config = self.configs.get(str(self["config"].value()))
        spec = config.spec if config else None
        workloads = spec.workloads if spec else []
        labels = [w.label.removeprefix(f"{w.operation} ") for w in workloads[:SHOWN_WORKLOADS]]
        more, source = len(workloads) - len(labels), spec.source if spec else ""
        return {"count": len(workloads), "labels": labels, "more": more, "source": source}

    @property
    def device_is_known(self) -> bool:
        return self.offers("device", str(self["device"].value() or ""))

    @property
    def missing_device(self) -> str:
        """Device name of a run to repeat, if no device here has it."""
        name = self.again.device_name if self.again and not self.again.gpu_id else ""
        return "" if any(gpu.name == name for gpu in self.gpus) else name

    def typed_as(self, workloads: list[Workload]) -> dict[str, Any]:
        """Workloads as values of the size and dtype fields."""
        typed: dict[str, Any] = {"dtype": list(dict.fromkeys(w.dtype for w in workloads))}
        for name, info in self.sizes.items():
            values = list(dict.fromkeys(getattr(w.problem, name) for w in workloads))
            if may_be_empty(info) and not any(name in w.brief_sizes for w in workloads):
                typed[name] = ""
            elif all(isinstance(value, bool) for value in values):
                typed[name] = "both" if len(values) > 1 else "yes" if values == [True] else "no"
            elif words_of(info):
                typed[name] = ALL if len(values) > 1 else values[0]
            else:
                typed[name] = ", ".join(map(str, values))
        return typed

    def sizes_of_a_config(self) -> bool:
        """Whether the sizes are empty or still those of a config."""
        now = {name: self[name].value() for name in [*self.sizes, "dtype"]}
        offered = [self.typed_as(config.spec.workloads[:1]) for config in self.configs.values()]
        return now in offered or not any(now[name] for name in self.sizes)

    def problem(self) -> str:
        """The first error, with its field's name."""
        name, said = next(((n, str(e[0])) for n, e in self.errors.items() if e), ("", ""))
        if name not in self.fields:
            return said
        return f"{self.fields[name].label}: {said[:1].lower()}{said[1:]}"

    @property
    def first_fault(self) -> str:
        """The field that gets the focus after an error: the first marked one."""
        if not self.is_bound or self.non_field_errors():
            return ""
        own = ["kernels", *ProtocolFields.base_fields, "session", "title", "note"]
        order = ["device", "what", "config", "yaml", *self.sizes, "dtype", *own]
        return next((name for name in order if name in self.errors), "")

    def point_at_fault(self) -> None:
        """Gives the first marked field the focus; templates do it for fields that they draw themselves."""
        if self.first_fault not in ("", "device", "what", "config", "dtype", "kernels"):
            self.fields[self.first_fault].widget.attrs["autofocus"] = True

    @property
    def has_sessions(self) -> bool:
        return bool(self["session"].errors) or len(list(self._choice("session").choices)) > 1  # type: ignore[arg-type]

    @property
    def operation_name(self) -> str:
        return self.chosen_operation.name

    def size_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.sizes]

    def chosen_gpu(self) -> Gpu | None:
        """The chosen device; on a fresh form the first one."""
        if self["device"].value() is None:
            return self.gpus[0] if self.gpus else None
        chosen = str(self["device"].value())
        if chosen == EVERY:
            return next(iter(self.models), None)
        if chosen.startswith(ANY):
            return next((gpu for gpu in self.gpus if gpu.name == chosen.removeprefix(ANY)), None)
        return next((gpu for gpu in self.gpus if str(gpu.pk) == chosen), None)

    def chosen_gpus(self) -> list[Gpu]:
        """The chosen device, or one of each model."""
        if self["device"].value() == EVERY:
            return self.models
        return [gpu for gpu in [self.chosen_gpu()] if gpu]

    def clean_kernels(self) -> list[str]:
        """The kernels in catalogue order, always with the baseline."""
        ticked = self.cleaned_data["kernels"]
        kernels = [k["name"] for k in self.catalogue if k["name"] in ticked or k["baseline"]]
        if not kernels and self.data.get("what") != "yaml":
            raise forms.ValidationError("Tick at least one kernel.")
        return kernels

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        hidden = {
            "config": ("yaml",),
            "workload": ("config", "yaml"),
            "yaml": ("config", "kernels", *ProtocolFields.base_fields),
        }
        sizes = () if cleaned.get("what") == "workload" else (*self.sizes, "dtype")
        for name in (*hidden.get(cleaned.get("what", ""), ()), *sizes):
            self.errors.pop(name, None)  # of a hidden part of the form
        if cleaned.get("what") == "yaml":
            if not (cleaned.get("yaml", "").strip() or "yaml" in self.errors):
                self.add_error("yaml", "Paste a config, or choose one to start from.")
        elif cleaned.get("what") == "workload":
            for name, info in self.sizes.items():
                if not (cleaned.get(name) or name in self.errors or may_be_empty(info)):
                    self.add_error(name, "Enter one or more numbers.")
            if not (cleaned.get("dtype") or "dtype" in self.errors):
                self.add_error("dtype", "Tick at least one dtype.")
        elif not (cleaned.get("config") or "config" in self.errors):
            self.add_error("config", "Choose a config.")
        if (asked := cleaned.get("operation")) and asked not in operations():
            self.add_error(None, f"There is no operation {asked}.")
        if not self.errors:
            if cleaned["what"] == "yaml":
                self._read_yaml(cleaned["yaml"])
            else:
                self._make_config(cleaned)
        return cleaned

    def _read_yaml(self, text: str) -> None:
        """Takes the text as the config, whole: what the form says of kernels and protocol does not count."""
        try:
            spec = read_config(text, TYPED).model_copy(update={"name": TYPED})  # it is not the config of that name
        except ConfigError as error:
            self.add_error("yaml", _sentence(str(error)))
            return
        for operation in spec.operations:
            known = {kernel["name"] for gpu in self.gpus for kernel in gpu.kernels(operation)}
            known |= {name for name in spec.kernels_of(operation) if self.offered.submission(operation, name)}
            if missing := [name for name in spec.kernels_of(operation) if name not in known]:
                self.add_error("yaml", f"No device has a kernel {operation}/{missing[0]}.")
                return
        self._take(spec)

    def _make_config(self, cleaned: dict[str, Any]) -> None:
        if cleaned["what"] == "config":
            body = dict(self.configs[cleaned["config"]].body)
        else:
            sizes = self._sizes(cleaned)
            if self._too_many(math.prod(len(value) for value in sizes.values())):
                return
            body = {"name": TYPED, "operation": self.chosen_operation.name, "workloads": [sizes]}
        if (protocol := self.protocol_of(body.get("protocol", {}))) is None:
            return
        body |= {"kernels": cleaned["kernels"], "protocol": protocol.model_dump()}
        try:
            spec = ConfigSpec(**body)
        except ValidationError as error:
            self._place(error)
            return
        self._take(spec)

    def _take(self, spec: ConfigSpec) -> None:
        """Accepts a config, if it is not too large. One without a title gets one."""
        if self._too_many(len(spec.workloads)) or self._too_large(spec.workloads):
            return
        if spec.name == TYPED and not spec.title:
            spec.title = spec.workloads[0].label if len(spec.workloads) == 1 else f"{len(spec.workloads)} workloads"
        self.spec = spec

    def _too_many(self, count: int) -> bool:
        if count > MAX_WORKLOADS:
            self.add_error(None, f"These sizes make {count:,} workloads; the limit is {MAX_WORKLOADS}.")
        return count > MAX_WORKLOADS

    def _too_large(self, workloads: list[Workload]) -> bool:
        """Refuses what cannot fit the memory of the chosen device."""
        for gpu in self.chosen_gpus():
            if why := why_too_large(workloads, gpu.memory_bytes):
                where = f"{gpu.name}: " if self["device"].value() == EVERY else ""
                self.add_error(None, f"{where}{why}" if where else f"{why[:1].upper()}{why[1:]}")
                return True
        return False

    def _sizes(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        several = {"no": [False], "yes": [True], "both": [False, True]}
        sizes = {"dtype": cleaned["dtype"]}
        for name in (name for name in self.sizes if cleaned.get(name)):
            value, words = cleaned[name], words_of(self.sizes[name])
            if words:
                sizes[name] = list(words) if value == ALL else [value]
            else:
                sizes[name] = several[value] if isinstance(value, str) else value
        return sizes

    def _place(self, error: ValidationError) -> None:
        """Assigns an error of the library to its field."""
        message = sentence(error)
        message = message.split(": ", 1)[1] if ": " in message else message
        place = next((name for name, info in self.sizes.items() if info.title and f"{info.title} (" in message), None)
        place = next((name for name in self.sizes if name in error.errors()[0]["loc"]), place)
        self.add_error(place, _sentence(message))


def _sentence(text: str) -> str:
    """Text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
