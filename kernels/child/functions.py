"""Functions that the instrument and the kernels call: which ones there are in modules and classes, and what code they run."""

from __future__ import annotations

import builtins
import contextlib
import sys
import types
from collections.abc import Iterable, Iterator, Set
from functools import partial
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch

INSTRUMENT = "kernels"
"""Its modules: a kernel that replaces one of their functions or constants could write its own result."""
APART = ("kernels.report", "kernels.cli", "kernels.tuning", "kernels.foreign", "kernels.inprocess")
"""Modules of it that no measuring process needs."""
FAR = ("torch", "triton", "pydantic", "json", "functools", "contextlib", "threading", "ctypes", "secrets", "hashlib")
"""Packages whose functions the baseline's and the instrument's calls reach."""
NOT_CALLED = (
    "torch.distributed", "torch.testing", "torch.onnx", "torch.ao", "torch.quantization", "torch.export", "torch._export",
    "torch.fx", "torch.package", "torch.jit", "torch.optim", "torch.distributions", "torch.nn.quantized", "torch.compiler",
    "torch._dynamo.variables", "torch._inductor.fx_passes", "torch._inductor.codegen", "torch._inductor.kernel",
    "torch._inductor.template", "torch._functorch._aot_autograd", "torch._refs", "torch._meta_registrations",
    "torch.utils.data", "torch._higher_order_ops", "torch.sparse", "torch.masked", "torch.nested", "torch._prims",
    "triton.compiler.code_generator", "triton.experimental", "triton.tools", "pydantic._internal._generate_schema",
)  # fmt: skip
"""Modules of these packages that no timed call reaches: compilers, exporters, optimizers."""
LENT = (
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.nn.modules.module.Module.__init__",
    "torch.nn.modules.module.Module.__setstate__",
    "sys.excepthook",
    "sys.unraisablehook",
    "threading.excepthook",
    "warnings.showwarning",
    "inspect.getfile",
)
"""Functions that torch.compile wraps when it is first used, that TileLang's parser replaces (`inspect.getfile`), or that programs
may set, and that no timed call reaches."""
GENERATED = ("__compiled_fn_", "__resume_at_")
"""Begin the names of functions that torch.compile leaves in the globals of what it compiles, and drops by itself."""
LIBRARIES = (*FAR, "numpy", "builtins", "kernels")
KINDS = (types.MemberDescriptorType, types.GetSetDescriptorType, property, classmethod, staticmethod)
PLAIN = (int, float, bool, str, bytes, tuple, type(None), torch.dtype)
Owner = tuple[str, Any]
CODE, DEFAULTS, NAMED = attrgetter("__code__"), attrgetter("__defaults__"), attrgetter("__kwdefaults__")


def is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, KINDS)


def near(*instances: Owner) -> Iterator[Owner]:
    """The modules, classes and instances that are compared after every command."""
    import json
    import time

    yield "builtins", builtins
    yield "time", time
    yield "torch", torch
    yield "torch.nn.functional", torch.nn.functional
    yield "torch.Tensor", torch.Tensor
    yield "torch._C.TensorBase", torch._C.TensorBase
    yield "torch.cuda", torch.cuda
    yield "torch.cuda.Event", torch.cuda.Event
    yield "torch.cuda.Stream", torch.cuda.Stream
    yield "torch.cuda.CUDAGraph", torch.cuda.CUDAGraph
    yield "json", json
    for module in protected_modules():
        yield module.__name__, module
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                yield cls.__name__, cls
    yield from instances


def far() -> Iterator[Owner]:
    """All loaded modules of FAR with their classes, and what the instrument's modules name: compared between the arms."""
    seen: set[int] = set()
    for value in [value for module in protected_modules() for value in list(vars(module).values())]:
        if isinstance(value, types.ModuleType | type) and not _is_of_instrument(value):
            yield getattr(value, "__qualname__", value.__name__), value
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] not in FAR or name.startswith(NOT_CALLED):
            continue
        yield name, module
        for value in list(vars(module).values()):
            if type(value) is type and id(value) not in seen and _is_far(str(value.__module__)):
                seen.add(id(value))
                yield f"{value.__module__}.{value.__qualname__}", value


def _is_far(module: str) -> bool:
    return module.partition(".")[0] in FAR and not module.startswith(NOT_CALLED)


def protected_modules() -> list[types.ModuleType]:
    """The loaded modules of the instrument. Before any kernel's file is loaded, all of its modules are."""
    found = [module for name, module in sys.modules.items() if name.partition(".")[0] == INSTRUMENT]
    return [module for module in found if module and not module.__name__.startswith(APART)]


def modules() -> dict[str, types.ModuleType]:
    """What an import in a function gets: the loaded modules of FAR, of the instrument, and those that it names."""
    known = {name for name in sys.modules if name.partition(".")[0] in (INSTRUMENT, *FAR)}
    known |= {value.__name__ for _, value in far() if isinstance(value, types.ModuleType)}
    return {name: sys.modules[name] for name in known if sys.modules.get(name) is not None}


def exchanged(before: dict[str, types.ModuleType]) -> list[str]:
    """Names of modules that an import no longer gets. Puts them back."""
    found = [name for name, module in before.items() if sys.modules.get(name) is not module]
    sys.modules.update((name, before[name]) for name in found)
    return [f"module {name}: replaced" for name in found]


def _is_of_instrument(owner: Any) -> bool:
    name = owner.__name__ if isinstance(owner, types.ModuleType) else getattr(owner, "__module__", "")
    return str(name).partition(".")[0] == INSTRUMENT and isinstance(owner, types.ModuleType | type)


def _inherited(owner: Any) -> set[str]:
    """Inherited names: setting one on the object itself replaces the function."""
    if isinstance(owner, types.ModuleType):
        return set(vars(builtins)) if _is_of_instrument(owner) else set()
    bases = owner.__mro__[1:] if isinstance(owner, type) else type(owner).__mro__
    return {name for base in bases for name in vars(base)}


def _python_functions(value: Any) -> Iterator[types.FunctionType]:
    inner = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
    for one in inner:
        while isinstance(one, partial):
            one = one.func
        if isinstance(one, types.FunctionType):
            yield one


class _One:
    """The functions of one module, class or instance; of the instrument's, also the constants and the modules."""

    __slots__ = ("bases", "filled", "label", "names", "owner", "read", "size", "values")

    def __init__(self, label: str, owner: Any) -> None:
        self.label, self.owner = label, owner
        now, whole = vars(owner), _is_of_instrument(owner)
        self.names = [
            name for name, value in list(now.items()) if is_function(value) or (whole and _fixed(name, value))
        ]
        self.values = [now[name] for name in self.names]
        self._let_go(set())
        self.filled = [(name, value, _items(value)) for name, value in now.items() if whole and _is_table(name, value)]
        self.size, self.bases = len(now), getattr(owner, "__bases__", None)

    def _let_go(self, gone: Set[str]) -> None:
        """Forgets names."""
        kept = [pair for pair in zip(self.names, self.values, strict=True) if pair[0] not in gone]
        self.names, self.values = [name for name, _ in kept], [value for _, value in kept]
        self.read = itemgetter(*self.names, *self.names[:1]) if self.names else lambda _: ()
        """The values now, and the first of them again: one name alone would give its value instead of a tuple."""

    def is_same(self) -> bool:
        now = vars(self.owner)
        try:
            values = self.read(now)
        except KeyError:
            return False
        return (
            len(now) == self.size
            and getattr(self.owner, "__bases__", None) == self.bases
            and all(map(is_, values, self.values))
            and all(now.get(name) is table and _items(table) == before for name, table, before in self.filled)
        )

    def changes(self) -> Iterator[str]:
        """Names of what was replaced. Puts it back."""
        now = vars(self.owner)
        self._let_go({name for name in self.names if name.startswith(GENERATED) and name not in now})
        for number, (name, before) in enumerate(zip(self.names, self.values, strict=True)):
            if now.get(name) is before:
                continue
            if f"{self.label}.{name}" in LENT:
                self.values[number] = now.get(name)
                continue
            yield name
            _set(self.owner, name, before)
        for name, table, items in self.filled:
            if now.get(name) is not table or _items(table) != items:
                yield name
                table.clear()
                table.update(items)
                _set(self.owner, name, table)
        if getattr(self.owner, "__bases__", None) != self.bases:
            yield "__bases__"
            _set(self.owner, "__bases__", self.bases)
        if len(vars(self.owner)) > self.size:
            known = set(self.names)
            for name in [n for n in _inherited(self.owner) & now.keys() - known if is_function(now[n])]:
                yield name
                delattr(self.owner, name)
        self.size = len(vars(self.owner))


def _fixed(name: str, value: Any) -> bool:
    """Whether an attribute of the instrument stays as it is: a constant, or a module that its code names."""
    return isinstance(value, (types.ModuleType, *PLAIN)) and not name.startswith("__")


def _is_table(name: str, value: Any) -> bool:
    return type(value) in (dict, set) and name.isupper()


def _items(table: Any) -> list[Any]:
    return list(table.items() if isinstance(table, dict) else table)


def _set(owner: Any, name: str, value: Any) -> None:
    with contextlib.suppress(AttributeError, TypeError):
        setattr(owner, name, value)


class Snapshot:
    """The functions of these owners, and the code and default arguments of those that are written in Python."""

    def __init__(self, owners: Iterable[Owner]) -> None:
        self._known: set[int] = set()
        self._all: tuple[_One, ...] = ()
        self._functions: tuple[tuple[str, types.FunctionType], ...] = ()
        self._only: tuple[types.FunctionType, ...] = ()
        self._codes: tuple[types.CodeType, ...] = ()
        self._defaults: tuple[Any, ...] = ()
        self._named: list[Any] = []
        self.stuck = False
        """Whether something could not be put back."""
        self.add(owners)

    def add(self, owners: Iterable[Owner]) -> None:
        """Takes those that are new, as they are now."""
        ones: list[_One] = []
        for label, owner in owners:
            if id(owner) not in self._known:
                self._known.add(id(owner))
                ones.append(_One(label, owner))
        functions = [
            (f"{one.label}.{name}", function)
            for one in ones
            for name, value in zip(one.names, one.values, strict=True)
            for function in _python_functions(value)
        ]
        only = [function for _, function in functions]
        self._all = (*self._all, *ones)
        self._functions, self._only = (*self._functions, *functions), (*self._only, *only)
        self._codes = (*self._codes, *map(CODE, only))
        self._defaults = (*self._defaults, *map(DEFAULTS, only))
        self._named += [dict(named) if named else named for named in map(NAMED, only)]

    def changes(self) -> list[str]:
        """What differs, as "time.sleep: replaced". Puts it back."""
        changed = [one for one in self._all if not one.is_same()]
        found = [f"{one.label}.{name}: replaced" for one in changed for name in one.changes()]
        self.stuck |= bool(found) and not all(one.is_same() for one in changed)
        only = self._only
        if (
            all(map(is_, map(CODE, only), self._codes))
            and all(map(is_, map(DEFAULTS, only), self._defaults))
            and list(map(NAMED, only)) == self._named
        ):
            return found
        befores = zip(self._functions, self._codes, self._defaults, self._named, strict=True)
        for (label, function), code, defaults, named in befores:
            if (function.__code__, function.__defaults__, function.__kwdefaults__) != (code, defaults, named):
                found.append(f"{label}: rewritten")
            function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named and dict(named)
        return list(dict.fromkeys(found))

    def __len__(self) -> int:
        return len(self._all)
