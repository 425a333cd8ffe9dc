"""The reader of .cu files: what they declare, and how to load a kernel from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels.kernel_files import Declared, Function, literal
from kernels.nvrtc import toolchain
from kernels.nvrtc.declaration import BUILT_IN, OUT, BadDeclaration, CudaKernelText, declared
from kernels.nvrtc.tensor_maps import TensorMap
from kernels.settings import ARGUMENT, why_no_space

NAME = re.compile(r"[A-Za-z_]\w*")


def _check_space(one: CudaKernelText, space: Any) -> None:
    """Raises if a setting stands for no macro, or has values that no macro can have."""
    if why := why_no_space(space):
        raise BadDeclaration(f"line {one.line}: {why}")
    for name, values in space.items():
        if name.upper() not in one.launch.defines:
            raise BadDeclaration(
                f"line {one.line}: space has `{name}`, so @launch needs a macro {name.upper()} in its defines: its own choice"
            )
        if words := [value for value in values if isinstance(value, str)]:
            raise BadDeclaration(f"line {one.line}: {name} in space is a macro: `{words[0]}` is no number")


def _check_maps(one: CudaKernelText, tensors: Mapping[str, tuple[str, ...]]) -> None:
    """Raises if a tensor map is of no tensor, or its box of another number of dimensions. Those of outputs are not known."""
    for each in one.launch.arguments:
        if not isinstance(each, TensorMap) or OUT.fullmatch(each.tensor):
            continue
        if (sizes := tensors.get(each.tensor)) is None:
            raise BadDeclaration(
                f"line {one.launch.line}: `{each.text}`: {each.tensor} is no tensor; there are {', '.join(tensors)} and out"
            )
        if len(sizes) != len(each.sizes):
            raise BadDeclaration(
                f"line {one.launch.line}: `{each.text}`: the box has {len(each.sizes)} and {each.tensor} has {len(sizes)} "
                f"dimensions: {', '.join(sizes)}"
            )


class CudaFiles:
    """CUDA C++: kernels are declared in comments (kernels/nvrtc/declaration.py)."""

    def __init__(
        self, calls: Mapping[str, Function], operation: Callable[[str], Any], unsupported: type[Exception]
    ) -> None:
        """calls: what arguments of @kernel may call, among them `cuda`. operation: finds an operation by its name.
        unsupported: what a kernel raises that cannot run on this device."""
        self.calls, self.operation, self.unsupported = calls, operation, unsupported

    def why_not(self) -> str:
        """Why no .cu file can be compiled on this host; empty if they can."""
        return toolchain.why_not()

    def declared(self, source: bytes, path: Path) -> Iterator[Declared]:
        found = list(declared(source.decode()))
        for one in found:
            arguments = tuple(self._literal("the operation", node, one) for node in one.arguments)
            options = {k.arg: self._literal(k.arg, k.value, one) for k in one.keywords if k.arg}
            options = {"backend": "cuda", "needs": self.calls["cuda"]()} | options
            if len(found) > 1 and "name" not in options:
                raise BadDeclaration(
                    f'line {one.line}: the file declares {len(found)} kernels: give each @kernel a name="..."'
                )
            if getattr(options["needs"], "device", "cuda") != "cuda":
                raise BadDeclaration(f"line {one.line}: needs must be cuda(...)")
            self._check_names(one, *arguments[:1])
            takes = {name for name, _ in one.uses}
            if space := options.get("space"):
                _check_space(one, space)
                takes.add(ARGUMENT)
            yield Declared(path.stem, arguments, options, one.doc, tuple(sorted(takes)))

    def _literal(self, name: str, node: Any, one: CudaKernelText) -> Any:
        try:
            return literal(name, node, self.calls)
        except ValueError:
            raise BadDeclaration(f"line {one.line}: {name} must be a literal: the file is read, not run") from None

    def _check_names(self, one: CudaKernelText, operation: str = "") -> None:
        """Raises if an expression names what the operation does not have."""
        problem = self.operation(operation)
        if not problem.tensors:
            raise BadDeclaration(f"line {one.line}: {operation} does not name its tensors, so no .cu file can")
        _check_maps(one, problem.tensors)
        sizes = {size for each in problem.tensors.values() for size in each if NAME.fullmatch(size)}
        known = {*problem.tensors, *sizes, *problem.options, *BUILT_IN}
        for name, line in one.uses:
            if name not in known and not OUT.fullmatch(name):
                raise BadDeclaration(
                    f"line {line}: {operation} has no `{name}`; there are the tensors {', '.join(problem.tensors)} and out, "
                    f"the sizes {', '.join(sorted(sizes))}"
                    + (f", the options {', '.join(problem.options)}" if problem.options else "")
                    + f", and {', '.join(sorted(BUILT_IN))}"
                )

    def load(self, source: bytes, path: Path, full_name: str) -> Function | None:
        """The kernel, not yet compiled: its first call does that."""
        from kernels.nvrtc.kernel import CudaKernel, KernelText  # needs torch

        operation, _, name = full_name.partition("/")
        for said, one in zip(self.declared(source, path), declared(source.decode()), strict=True):
            if (said.options.get("name") or path.stem.replace("_", "-")) == name:
                of = self.operation(operation)
                return CudaKernel(
                    KernelText(source.decode(), path, one.launch, of.tensors, self.unsupported, of.on_request)
                )
        return None
