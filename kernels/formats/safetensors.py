"""Tensors in a safetensors file: 8 bytes with the length of the header, the header as JSON, the values. Read, not loaded.

A submission holds text, so the bytes of such a file come as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

from kernels.submission import Unreadable

SUFFIX = ".safetensors"
LENGTH = 8
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
BYTES = {"bool": 1, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: list[int]
    values: str
    """Its bytes in base64: little-endian, in C order."""


def text_of(data: bytes) -> str:
    """A file as a submission holds it."""
    return base64.b64encode(data).decode()


def tensor_in(text: str, key: str, name: str) -> Tensor:
    """The tensor of this key. Raises Unreadable. name: of the file, for the message."""
    try:
        data = base64.b64decode(text, validate=True)
        start = LENGTH + int.from_bytes(data[:LENGTH], "little")
        header = json.loads(data[LENGTH:start])
        if key not in header:
            raise Unreadable(f"{name} holds no tensor {key[:100]}")
        return _tensor(header[key], data[start:])
    except (binascii.Error, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"{name} cannot be read as safetensors: {type(error).__name__}: {error}") from None


def _tensor(said: dict[str, Any], values: bytes) -> Tensor:
    dtype, shape, (begin, end) = DTYPES[said["dtype"]], [int(size) for size in said["shape"]], said["data_offsets"]
    item = BYTES.get(dtype) or int(dtype.lstrip("uintfloa")) // 8
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(values) or end - begin != item * math.prod(shape):
        raise ValueError(f"its values are not those of {dtype} {shape}")
    return Tensor(dtype, shape, base64.b64encode(values[begin:end]).decode())
