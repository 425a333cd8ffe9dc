"""The arguments of a launch: packed once for a signature, then only the pointers change. No GPU, no torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from kernels.nvrtc.expressions import Typed
from kernels.nvrtc.tensor_maps import Box

POINTER = "pointer"
MAP = "tensor map"
MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""Of a CUtensorMap."""
TYPES: dict[str, Any] = {
    POINTER: ctypes.c_void_p,
    "int": ctypes.c_int32,
    "long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}
"""What a declaration may pass -> its layout. A tensor map is passed as its bytes."""
INT_LIMIT = 2**31
CHECKS = (
    "namespace benchsite {"
    " template <class P> struct Kind {"
    " static constexpr char is = sizeof(P) == 128 && alignof(P) >= 64 ? 't' : '?'; };"
    " template <class P> struct Kind<P&> { static constexpr char is = '?'; };"
    " template <class P> struct Kind<P*> { static constexpr char is = 'p'; };"
    " template <> struct Kind<int> { static constexpr char is = 'i'; };"
    " template <> struct Kind<unsigned> { static constexpr char is = 'i'; };"
    " template <> struct Kind<long> { static constexpr char is = 'l'; };"
    " template <> struct Kind<unsigned long> { static constexpr char is = 'l'; };"
    " template <> struct Kind<long long> { static constexpr char is = 'l'; };"
    " template <> struct Kind<unsigned long long> { static constexpr char is = 'l'; };"
    " template <> struct Kind<float> { static constexpr char is = 'f'; };"
    " template <> struct Kind<double> { static constexpr char is = 'd'; };"
    " template <> struct Kind<bool> { static constexpr char is = 'b'; };"
    " template <class F> struct Takes;"
    " template <class... P> struct Takes<void(P...)> {"
    " static constexpr int count = sizeof...(P);"
    " __host__ __device__ static constexpr bool is(int at, char kind) {"
    " const char kinds[] = {Kind<P>::is..., '?'}; return at < count && kinds[at] == kind; } }; }"
)
"""C++ that knows what a kernel takes: NVRTC checks that it is what the declaration passes."""


def kind_of(value: Any) -> tuple[str, Any]:
    """(kind, value) of a computed argument. Raises ValueError if it does not fit."""
    if isinstance(value, Typed):
        kind, value = value
    elif isinstance(value, bool):
        kind = "bool"
    elif isinstance(value, int):
        kind = "int"
    elif isinstance(value, float):
        kind = "float"
    else:
        raise ValueError(f"{value!r} is not a number")
    if kind == "int" and not -INT_LIMIT <= value < INT_LIMIT:
        raise ValueError(f"{value} does not fit into an int: write long(...)")
    return kind, value


def checks(entry: str, passed: Sequence[tuple[str, str]], line: int, file: str) -> str:
    """C++ to append to a source. passed: (kind, text in the declaration) of each argument; line: of @call."""
    takes = f"benchsite::Takes<decltype({entry})>"
    asserted = [
        f'static_assert({takes}::count == {len(passed)}, "@call passes {len(passed)} arguments, the kernel takes others");'
    ]
    asserted += [
        f"static_assert({takes}::is({at}, '{kind[0]}'), "
        f'"@call passes {text} as {"an" if kind[0] == "i" else "a"} {kind}: argument {at + 1} of the kernel has another type");'
        for at, (kind, text) in enumerate(passed)
    ]
    return f'\n#line {line} "{file}"\n{CHECKS} {" ".join(asserted)}\n'


def map_room() -> Any:
    """Memory for a tensor map, as aligned as the driver wants it."""
    room = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
    return (ctypes.c_char * MAP_BYTES).from_buffer(room, -ctypes.addressof(room) % MAP_ALIGNMENT)


def _slot(kind: str, value: Any) -> Any:
    if kind == MAP:
        return map_room()
    return TYPES[kind](0 if kind == POINTER else value)


class Packed:
    """The arguments of a launch in memory, as the driver reads them."""

    def __init__(self, arguments: Sequence[tuple[str, Any]], encoded: Callable[[Any, Box], bytes]) -> None:
        """arguments: (kind, value) of each. The value of a pointer is the number of a tensor, of those that `point` gets; that of
        a tensor map is (number, box). encoded: gives the bytes of the map of a tensor."""
        self.values = [_slot(kind, value) for kind, value in arguments]
        self._pointers = (ctypes.c_void_p * len(self.values))(*map(ctypes.addressof, self.values))
        self.address = ctypes.addressof(self._pointers)
        self.slots = tuple(
            (slot, value) for slot, (kind, value) in zip(self.values, arguments, strict=True) if kind == POINTER
        )
        self.maps = tuple(
            (slot, *value) for slot, (kind, value) in zip(self.values, arguments, strict=True) if kind == MAP
        )
        self._encoded = encoded

    def point(self, tensors: Sequence[Any]) -> None:
        """Writes the addresses of these tensors, and their maps."""
        for slot, number in self.slots:
            slot.value = tensors[number].data_ptr()
        for slot, number, box in self.maps:
            slot.raw = self._encoded(tensors[number], box)
