"""The names that a search over results knows: of kernels, operations, backends, GPUs, hosts, people and tags of this site."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import get_args

from django.contrib.auth import get_user_model

from kernels.catalog import operations
from kernels.contract.arm_result import Status, Verdict
from runs.models import Gpu, Kernel, Run, Tag

STATUSES = {str(one): f"{one}" for one in Status}
VERDICTS = {one.lower(): str(one) for one in Verdict if one != Verdict.NONE}
STATES = tuple(str(one) for one in (Run.State.RUNNING, Run.State.DONE, Run.State.CANCELLED, Run.State.LOST))
"""States of a run. One that is queued has no result; "failed" is said of the result."""
QUALITIES = ("confirmed", "unconfirmed", "contended", "uncontended", "demo")
MODES = ("cold", "graph", "warm", "sustained", "e2e", "cpu", "verify")
SHORT = re.compile(r"\(([A-Za-z]+)\)")
"""A short name in the title of a size: "Sequence length (S)"."""
MORE_SHORT = {"hkv": "kv_heads"}


@dataclass
class Vocabulary:
    """Names as the site writes them, sorted."""

    kernels: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """Names of devices, those of demo runs among them."""
    hosts: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)

    @classmethod
    def read(cls) -> Vocabulary:
        """Five queries."""
        kernels = list(Kernel.objects.order_by().values_list("operation", "name", "backend"))
        gpus = list(Gpu.objects.order_by().values_list("name", "host"))
        elsewhere = Run.objects.filter(gpu=None).order_by().values_list("device_name", flat=True).distinct()
        people = get_user_model().objects.order_by().values_list("username", flat=True)
        return cls(
            kernels=_sorted(name for _, name, _ in kernels),
            operations=_sorted([*(operation for operation, *_ in kernels), *operations()]),
            backends=_sorted(backend for *_, backend in kernels),
            gpus=_sorted([*(name for name, _ in gpus), *elsewhere]),
            hosts=_sorted(host for _, host in gpus),
            people=_sorted(people),
            tags=list(Tag.objects.values_list("name", flat=True)),
        )


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name}, key=str.casefold)


def alike(names: Iterable[str], text: str, within: bool = True) -> list[str]:
    """The name that is this text; or else, with `within`, all names that contain it. Case does not matter."""
    known, wanted = list(names), text.casefold()
    exact = [name for name in known if name.casefold() == wanted]
    return exact or [name for name in known if within and wanted in name.casefold()]


@cache
def kinds(fields: frozenset[str]) -> tuple[frozenset[type], frozenset[str]]:
    """(types of number, words) that these fields of operations take: {"approximate"} -> (nothing, {"none", "tanh"})."""
    numbers: set[type] = set()
    words: set[str] = set()
    for operation in operations().values():
        for name in fields & operation.model_fields.keys():
            kind = operation.model_fields[name].annotation
            if isinstance(kind, type):
                numbers.add(kind)
            else:
                words |= {str(word).lower() for word in get_args(kind)}
    return frozenset(numbers), frozenset(words)


@cache
def sizes() -> dict[str, frozenset[str]]:
    """Name or short name of a size, in lower case -> fields of operations: "s" and "seq_len" -> {"seq_len"}."""
    known: dict[str, set[str]] = {name: {field} for name, field in MORE_SHORT.items()}
    for operation in operations().values():
        for name, info in operation.model_fields.items():
            if name != "dtype":
                short = SHORT.search(info.title or "")
                for each in (name, short.group(1) if short else name):
                    known.setdefault(each.lower(), set()).add(name)
    return {name: frozenset(fields) for name, fields in known.items()}
