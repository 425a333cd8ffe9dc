"""Compiles Triton kernels for a GPU that is not there: what a launch asks for is recorded, on tensors without memory."""

from contextlib import ExitStack
from typing import Any
from unittest import mock

HOPPER = 90
ALIGNED = 16
"""Triton compiles for arguments that are multiples of this: addresses and sizes."""
NAMES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8e4nv",
    "int32": "i32",
    "int64": "i64",
}


class Recorder:
    """Stands for a kernel: `kernel[grid](...)` records the arguments."""

    def __init__(self, function):
        self.function, self.launches = function, []

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append((args, options))


def compiled(module, call) -> list[Any]:
    """What `call()` launches of a module's Triton functions, compiled for sm_90: Triton's compiled kernels, with their `asm`."""
    from triton.runtime.jit import JITFunction

    functions = {name: value for name, value in vars(module).items() if isinstance(value, JITFunction)}
    recorders = {name: Recorder(function) for name, function in functions.items()}
    with ExitStack() as stack:
        for name, recorder in recorders.items():
            stack.enter_context(mock.patch.object(module, name, recorder))
        call()
    return [
        _compile(recorder.function, args, options)
        for recorder in recorders.values()
        for args, options in recorder.launches
    ]


def _compile(function, args, options):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    settings = {name: options.pop(name) for name in ("num_warps", "num_stages") if name in options}
    given = dict(zip(function.arg_names, args, strict=False)) | options
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(function.params):
        value = given[parameter.name]
        if parameter.is_constexpr or (value is None) or (type(value) is int and value == 1):
            signature[parameter.name], constants[(position,)] = "constexpr", value
            continue
        if isinstance(value, tuple):
            kinds = [("constexpr", False) if one == 1 else _kind(one) for one in value]
            signature[parameter.name] = tuple(kind for kind, _ in kinds)
            constants |= {(position, number): one for number, one in enumerate(value) if one == 1}
            attributes |= {
                (position, number): [["tt.divisibility", ALIGNED]]
                for number, (_, aligned) in enumerate(kinds)
                if aligned
            }
            continue
        signature[parameter.name], aligned = _kind(value)
        if aligned and not parameter.do_not_specialize:
            attributes[(position,)] = [["tt.divisibility", ALIGNED]]
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", HOPPER, 32), options=settings)


def _kind(value):
    """Triton's name of an argument's type, and whether it is taken as a multiple of ALIGNED."""
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    if isinstance(value, torch.Tensor):
        return f"*{NAMES[str(value.dtype).removeprefix('torch.')]}", True
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{NAMES[str(value.base.dtype).removeprefix('torch.')]}{list(value.block_shape)}>", False
    if isinstance(value, float):
        return "fp32", False
    return "i64" if value >= 2**31 else "i32", value % ALIGNED == 0
