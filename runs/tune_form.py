"""The form of a search for a kernel's best settings."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import F

from kernels.tune_plan import SAMPLERS, TunePlan
from kernels.workload import Config as ConfigSpec
from runs.models import Config, Gpu

MOST_WORKLOADS = 12
"""Of one search: each trial measures them all."""
WORDS = {
    "tpe": "TPE: tries what resembles the best so far",
    "random": "random",
    "nsga2": "NSGA-II: a genetic algorithm",
    "evolution": "evolution: mutates the elites that pass every gate",
}


class TuneForm(forms.Form):
    """A device, a kernel that declares a space, a config of its operation, and the bounds."""

    device = forms.ChoiceField(label="Device")
    kernel = forms.ChoiceField(
        label="Kernel", help_text="Kernels that declare settings, each with the number of its settings."
    )
    config = forms.ChoiceField(
        label="Config", help_text=f"Each trial measures all its workloads; at most {MOST_WORKLOADS}."
    )
    sampler = forms.ChoiceField(label="Sampler", choices=[(name, WORDS[name]) for name in SAMPLERS])
    trials = forms.IntegerField(label="Trials, at most", min_value=1, max_value=1000, initial=24)
    minutes = forms.IntegerField(
        label="Minutes, at most",
        min_value=1,
        max_value=24 * 60,
        initial=20,
        help_text="The last part is for the finalists, which new processes measure again.",
    )
    finalists = forms.IntegerField(label="Finalists", min_value=1, max_value=16, initial=3)
    processes = forms.IntegerField(label="Processes that confirm", min_value=2, max_value=20, initial=5)
    seed = forms.IntegerField(label="Seed of the sampler", min_value=0, max_value=2**31 - 1, initial=0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gpus = list(Gpu.objects.in_order())
        self.tunable = self._tunable()
        operations = {key.split("/", 1)[0] for key in self.tunable}
        rows = Config.objects.values_list("name", "title", F("body__operation"))
        self.configs = {name: operation for name, _, operation in rows if operation in operations}
        titles = {name: title for name, title, _ in rows}
        self._choice("device").choices = [(str(gpu.pk), f"{gpu.name} · {gpu.place} · {gpu.state}") for gpu in self.gpus]
        self._choice("kernel").choices = [(key, f"{key} · {count:,}") for key, count in sorted(self.tunable.items())]
        self._choice("config").choices = [
            (operation, [(name, f"{name} · {titles[name]}") for name, of in self.configs.items() if of == operation])
            for operation in sorted(operations)
            if operation in self.configs.values()
        ]

    def _choice(self, name: str) -> forms.ChoiceField:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        return field

    def _tunable(self) -> dict[str, int]:
        """operation/name of each kernel with a space that a device can run -> the number of its settings."""
        found: dict[str, int] = {}
        for gpu in self.gpus:
            for kernel in gpu.catalogue:
                if kernel.get("space") and not kernel["why_not"]:
                    count = 1
                    for values in kernel["space"].values():
                        count *= len(values)
                    found[f"{kernel['operation']}/{kernel['name']}"] = count
        return found

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        operation, name = cleaned["kernel"].split("/", 1)
        if self.configs[cleaned["config"]] != operation:
            self.add_error(
                "config", f"This config is for {self.configs[cleaned['config']]}; choose one for {operation}."
            )
        gpu = next(one for one in self.gpus if str(one.pk) == cleaned["device"])
        known = next((k for k in gpu.kernels(operation) if k["name"] == name), None)
        if known is None or known["why_not"]:
            why = known["why_not"] if known else "it does not have the kernel"
            self.add_error("device", f"{gpu.name} cannot run {name}: {why}.")
        if not self.errors:
            self._make(gpu, operation, name, cleaned)
        return cleaned

    def _make(self, gpu: Gpu, operation: str, name: str, cleaned: dict[str, Any]) -> None:
        spec = Config.objects.get(name=cleaned["config"]).spec
        dtypes = next(k["dtypes"] for k in gpu.kernels(operation) if k["name"] == name)
        workloads = [one for one in spec.workloads if not dtypes or one.dtype in dtypes]
        if not workloads:
            self.add_error("config", f"{name} supports none of this config's dtypes.")
            return
        if len(workloads) > MOST_WORKLOADS:
            self.add_error("config", f"It has {len(workloads)} workloads; at most {MOST_WORKLOADS} are tuned together.")
            return
        protocol = spec.protocol.model_copy(update={"name": "paired", "isolated": False, "verify_only": False})
        self.gpu = gpu
        self.spec = ConfigSpec(
            name=spec.name,
            title=f"Tune {name} on {spec.name}",
            operation=operation,
            kernels=[name],
            baseline=name,
            protocol=protocol,
            workloads=workloads,
        )
        bounds = {one: cleaned[one] for one in ("sampler", "trials", "minutes", "finalists", "processes", "seed")}
        self.plan = TunePlan(**bounds)
