"""What Triton reports of the kernels that a call launched. No GPU: the launches are told to Triton's own hook."""

from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed here")

from triton.compiler import CompiledKernel  # noqa: E402  (skipped above where it is missing)
from triton.compiler.compiler import LazyDict  # noqa: E402

from kernels.child.launches import facts, launched, of_triton  # noqa: E402


def compiled(function, n_regs, n_spills=0, shared=0, num_warps=4):
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.module, kernel.function, kernel.n_regs, kernel.n_spills = None, function, n_regs, n_spills
    kernel.metadata, kernel.name, kernel.src = SimpleNamespace(shared=shared, num_warps=num_warps), "k", None
    kernel._init_handles = lambda: None
    return kernel


def launch(kernel):
    triton.knobs.runtime.launch_enter_hook(LazyDict({"name": "k", "function": kernel.function, "stream": 0}))


def test_the_launched_kernel_with_the_most_registers_counts():
    main, small, other = compiled(11, 168, 4, shared=65_536, num_warps=8), compiled(12, 32), compiled(13, 255)
    with launched() as grids:
        main.launch_metadata((64, 2), 0)
        launch(main)
        launch(small)
    launch(other)
    assert grids == {11: (64, 2, 1), 12: ()}
    assert facts(of_triton(grids), "9.0") == {
        "registers": 168,
        "local_bytes": 16,
        "static_shared_bytes": 0,
        "dynamic_shared_bytes": 65_536,
        "grid": "64 x 2 x 1",
        "block": "256 x 1 x 1",
        "occupancy": 8 / 64,
        "log": "",
    }, "not of a kernel that was launched later"


def test_a_grid_that_triton_does_not_tell_is_unknown():
    kernel = compiled(15, 40)
    with launched() as grids:
        launch(kernel)
    assert facts(of_triton(grids), "9.0")["grid"] == ""


def test_a_call_without_a_triton_kernel_has_no_registers():
    with launched() as grids:
        pass
    assert facts(of_triton(grids), "9.0") == {}


def test_the_hook_is_gone_after_a_call_that_raised():
    before, method = list(triton.knobs.runtime.launch_enter_hook.calls), CompiledKernel.launch_metadata
    with pytest.raises(RuntimeError), launched():
        raise RuntimeError
    assert triton.knobs.runtime.launch_enter_hook.calls == before
    assert CompiledKernel.launch_metadata is method


def test_a_kernel_is_not_blamed_for_a_launch_that_cannot_be_noted():
    def fails(*arguments):
        raise RuntimeError("the kernel's own launch_metadata")

    metadata = LazyDict({"name": "k", "function": 14, "stream": 0})
    metadata.add(fails, ())
    with launched() as grids:
        triton.knobs.runtime.launch_enter_hook(metadata)
        triton.knobs.runtime.launch_enter_hook(None)
    assert grids == {14: ()}
