"""A kernel of a .cu file as a callable: kernel(*tensors, out=..., **options). Used where torch is.

What a call needs is prepared once for each signature (shapes, strides, dtypes, options): the machine code, grid and block,
and the arguments in memory. After that a call writes the pointers and launches on PyTorch's current stream. It allocates
nothing but the scratch memory that a declaration may ask for, from PyTorch's allocator: it can be captured in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.nvrtc import compiler
from kernels.nvrtc.arguments import MAP, POINTER, Packed, checks, kind_of
from kernels.nvrtc.declaration import OUT, SCRATCH, Launch
from kernels.nvrtc.driver import Cuda
from kernels.nvrtc.expressions import BadExpression, Expression, Tensor, Typed
from kernels.nvrtc.tensor_maps import Box, Refused, TensorMap
from kernels.settings import Settings

CPP = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "int32": "int",
    "int64": "long long",
    "int8": "signed char",
    "uint8": "unsigned char",
}
"""PyTorch's dtype -> its C++ type: what T is."""
MOST_THREADS = 1024

Dims = tuple[int, int, int]


@dataclass(frozen=True)
class Launched:
    """One launch of a kernel, for the result's page."""

    name: str
    compiled: compiler.Compiled
    grid: Dims
    block: Dims
    dynamic_shared_bytes: int


_noted: list[Launched] | None = None


@contextmanager
def launched() -> Iterator[list[Launched]]:
    """The launches of .cu kernels inside the block."""
    global _noted
    _noted, before = [], _noted
    try:
        yield _noted
    finally:
        _noted = before


@dataclass(frozen=True)
class KernelText:
    """A kernel of a .cu file, as written."""

    source: str
    path: Path
    launch: Launch
    tensors: Mapping[str, tuple[str, ...]]
    """Name of each tensor -> its sizes, as the operation declares them."""
    unsupported: type[Exception]
    """Raised where the kernel cannot run on this device."""
    on_request: Mapping[str, Any] = field(default_factory=dict)
    """Options that a call may leave out -> their values then."""

    @property
    def name(self) -> str:
        return self.launch.entry

    def values(
        self, tensors: tuple[torch.Tensor, ...], options: dict[str, Any], sms: int, settings: Settings | None = None
    ) -> dict[str, Any]:
        """What expressions may name: sizes, tensors, options, built-in names, macros. settings: of some macros, in place of the
        values that the declaration gives them."""
        set_to = {name.upper(): value for name, value in (settings or {}).items()}
        found: dict[str, Any] = {"sms": sms, "itemsize": tensors[0].element_size()}
        for (name, sizes), tensor in zip(self.tensors.items(), tensors, strict=True):
            if len(sizes) != tensor.dim():
                raise ValueError(f"{name} has {tensor.dim()} dimensions; it must have {len(sizes)}: {', '.join(sizes)}")
            found |= zip(sizes, tensor.shape, strict=True)
            found[name] = Tensor(tuple(tensor.shape), tensor.stride())
        found |= {**self.on_request, **options}
        with self.at(self.launch.launch_line):
            for name, macro in self.launch.defines.items():
                if macro is not None:
                    found[name] = set_to[name] if name in set_to else macro.value(found)
        return found

    def arguments(self, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """(kind, value) of each argument of the kernel. Of a pointer, the number of its tensor; of a tensor map also its box."""
        found: list[tuple[str, Any]] = []
        for one in self.launch.arguments:
            if isinstance(one, TensorMap):
                with self.at(self.launch.line):
                    found.append((MAP, (self._place(one.tensor), one.box(values))))
            elif (place := self._place(one.text)) is not None:
                found.append((POINTER, place))
            else:
                found.append(self._number(one, values))
        return found

    def _place(self, name: str) -> int | None:
        """The number of a tensor: outputs come after inputs, and scratch memory is the last, -1. None: it is no tensor."""
        names = list(self.tensors)
        if name in names:
            return names.index(name)
        if output := OUT.fullmatch(name):
            return len(names) + int(output[1] or 0)
        return -1 if name == SCRATCH and self.launch.scratch else None

    def _number(self, one: Expression, values: Mapping[str, Any]) -> tuple[str, Any]:
        with self.at(self.launch.line):
            value = one.value(values)
            try:
                return kind_of(value)
            except ValueError as error:
                raise BadExpression(f"`{one.text}`: {error}") from None

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Errors of expressions name the file and this line."""
        try:
            yield
        except BadExpression as error:
            raise BadExpression(f"{self.path.name}, line {line}: {error}") from None

    def compiled_from(self, values: Mapping[str, Any], dtype: torch.dtype) -> compiler.Source:
        """The source for these values and this dtype, with checks of its arguments."""
        launch, kind = self.launch, CPP[str(dtype).removeprefix("torch.")]
        with self.at(launch.line):
            template = [kind if one is None else _literal(one.text, one.value(values)) for one in launch.template]
        entry = f"{launch.entry}<{', '.join(template)}>" if template else launch.entry
        kinds = [kind for kind, _ in self.arguments(values)]
        passed = [(kind, one.text) for kind, one in zip(kinds, launch.arguments, strict=True)]
        defines = {
            name: kind if one is None else _literal(one.text, values[name]) for name, one in launch.defines.items()
        }
        return compiler.Source(
            text=self.source + checks(entry, passed, launch.line, self.path.name),
            name=self.path.name,
            entry=entry,
            defines=tuple(sorted(defines.items())),
            options=launch.options,
        )

    def scratch(self, values: Mapping[str, Any]) -> int | None:
        """Bytes of scratch memory of a launch; None: the declaration has none. Raises BadExpression where that is impossible."""
        if (asked := self.launch.scratch) is None:
            return None
        with self.at(self.launch.launch_line):
            found = asked.value(values)
            if type(found) is not int or found < 0:
                raise BadExpression(f"scratch=`{asked.text}` is {found}; it must be a number of bytes")
        return found

    def shape(self, values: Mapping[str, Any]) -> tuple[Dims, Dims, int]:
        """(grid, block, bytes of dynamic shared memory). Raises BadExpression where they are impossible."""
        with self.at(self.launch.launch_line):
            return self._shape(values)

    def _shape(self, values: Mapping[str, Any]) -> tuple[Dims, Dims, int]:
        grid, block = (_dims(one, values) for one in (self.launch.grid, self.launch.block))
        if block[0] * block[1] * block[2] > MOST_THREADS:
            raise BadExpression(
                f"`{self.launch.block.text}` is {_by(block)} threads; a block has at most {MOST_THREADS}"
            )
        shared = self.launch.shared.value(values)
        if not isinstance(shared, int) or shared < 0:
            raise BadExpression(f"shared=`{self.launch.shared.text}` is {shared}; it must be a number of bytes")
        return grid, block, shared


def _dims(one: Expression, values: Mapping[str, Any]) -> Dims:
    found = one.value(values)
    each = tuple(n.value if isinstance(n, Typed) else n for n in (found if type(found) is tuple else (found,)))
    if len(each) > 3 or not all(isinstance(n, int) and n > 0 for n in each):
        raise BadExpression(f"`{one.text}` is {found}; it must be one to three numbers above 0")
    first, second, third = (*each, 1, 1)[:3]
    return first, second, third


def _by(dims: Dims) -> str:
    return " x ".join(map(str, dims))


def _literal(text: str, value: Any) -> str:
    """The value of an expression as a C++ literal."""
    if isinstance(value, Typed):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}f"
    raise BadExpression(f"`{text}` is {value}; it must be a number")


class CudaKernel:
    """A kernel of a .cu file on the current device."""

    def __init__(self, text: KernelText, cuda: Any = None) -> None:
        """cuda: the devices; a test without a GPU gives its own."""
        self.text, self._cuda = text, cuda or Cuda()
        self._prepared: dict[Any, Prepared] = {}
        self._functions: dict[compiler.Source, tuple[compiler.Compiled, Any]] = {}

    def __call__(self, *tensors: torch.Tensor, out: Any, settings: Settings | None = None, **options: Any) -> None:
        """Writes into `out`: a tensor, or a tuple of them. settings: see kernels/settings.py."""
        chosen = tuple(settings.items()) if settings else ()
        signature = (
            *[(one.shape, one.stride(), one.dtype) for one in tensors],
            tensors[0].device,
            chosen,
            *options.items(),
        )
        prepared = self._prepared.get(signature)
        every = (*tensors, *out) if type(out) is tuple else (*tensors, out)
        if prepared is None:
            prepared = self._prepared[signature] = self._prepare(tensors, every, options, settings)
        prepared.launch(every)

    def _prepare(
        self,
        tensors: tuple[torch.Tensor, ...],
        every: tuple[torch.Tensor, ...],
        options: dict[str, Any],
        settings: Settings | None,
    ) -> Prepared:
        """every: inputs, then outputs."""
        if len(tensors) != len(self.text.tensors):
            raise TypeError(f"{self.text.name} takes {len(self.text.tensors)} tensors: {', '.join(self.text.tensors)}")
        if why := self._cuda.why_not(tensors[0]):
            raise self.text.unsupported(why)
        device = self._cuda.device(tensors[0])
        values = self.text.values(tensors, options, device.multiprocessors, settings)
        source = self.text.compiled_from(values, tensors[0].dtype)
        grid, block, shared = self.text.shape(values)
        packed = Packed(self.text.arguments(values), partial(_mapped, self._cuda, self.text.unsupported))
        if packed.maps and not device.has_tensor_maps:
            raise self.text.unsupported("tensor maps need a device of compute capability 9.0")
        with self.text.at(self.text.launch.line):
            packed.point(every)  # an impossible map is refused before anything is compiled
        if source not in self._functions:
            made = compiler.compiled(source, device.architecture)
            self._functions[source] = made, self._cuda.load(made)
        made, function = self._functions[source]
        if (needed := made.static_shared_bytes + shared) > device.shared_bytes:
            raise self.text.unsupported(
                f"needs {needed:,} bytes of shared memory for a block; this device has {device.shared_bytes:,}"
            )
        function.allow_shared(shared)
        facts = Launched(source.entry, made, grid, block, shared)
        run = function.launcher(grid, block, shared, packed.address)
        room = _room(self.text.scratch(values), tensors[0].device)
        return Prepared(facts, packed, run, self._cuda.current_stream(), tensors[0].device.index or 0, room)


def _mapped(cuda: Cuda, unsupported: type[Exception], tensor: torch.Tensor, box: Box) -> bytes:
    try:
        return cuda.tensor_map(tensor, box)
    except Refused as error:
        raise unsupported(f"`{box.text}`: {error}") from None


def _room(nbytes: int | None, device: torch.device) -> Callable[[], torch.Tensor] | None:
    """Gives new scratch memory for each launch; None: the kernel takes none."""
    if nbytes is None:
        return None
    new: Callable[[], torch.Tensor] = partial(torch.empty, nbytes, dtype=torch.uint8, device=device)
    if nbytes:
        return new
    nothing = new()
    return lambda: nothing


class Prepared:
    """A launch of one signature."""

    __slots__ = ("_device", "_packed", "_room", "_run", "_stream", "facts")

    def __init__(
        self, facts: Launched, packed: Packed, run: Callable[[int], None], stream: Callable[[int], int], device: int,
        room: Callable[[], torch.Tensor] | None = None,
    ) -> None:  # fmt: skip
        """run: launches on a stream. stream: gives the current one of a device. room: scratch memory for one launch."""
        self.facts, self._packed, self._run, self._stream, self._device = facts, packed, run, stream, device
        self._room = room

    def launch(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Launches on the current stream. tensors: inputs, then outputs."""
        if self._room:
            tensors = (*tensors, self._room())  # kept until the launch is on its stream
        self._packed.point(tensors)
        if _noted is not None:
            _noted.append(self.facts)
        self._run(self._stream(self._device))
