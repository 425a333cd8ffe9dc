"""What Triton reports of the kernels that a call launched. No GPU: the launches are told to Triton's own hook."""

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed here")

from triton.compiler import CompiledKernel  # noqa: E402  (skipped above where it is missing)
from triton.compiler.compiler import LazyDict  # noqa: E402

from kernels.child.launches import facts, launched  # noqa: E402


def compiled(function, n_regs, n_spills=0):
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.module, kernel.function, kernel.n_regs, kernel.n_spills = None, function, n_regs, n_spills
    return kernel


def launch(kernel):
    triton.knobs.runtime.launch_enter_hook(LazyDict({"name": "k", "function": kernel.function, "stream": 0}))


def test_the_launched_kernel_with_the_most_registers_counts():
    main, small, other = compiled(11, 168, 4), compiled(12, 32), compiled(13, 255)
    with launched() as handles:
        launch(main)
        launch(small)
    launch(other)
    assert facts(handles) == {"registers": 168, "spills": 4}, "not of a kernel that was launched later"


def test_a_call_without_a_triton_kernel_has_no_registers():
    with launched() as handles:
        pass
    assert facts(handles) == {}


def test_the_hook_is_gone_after_a_call_that_raised():
    before = list(triton.knobs.runtime.launch_enter_hook.calls)
    with pytest.raises(RuntimeError), launched():
        raise RuntimeError
    assert triton.knobs.runtime.launch_enter_hook.calls == before


def test_a_kernel_is_not_blamed_for_a_launch_that_cannot_be_noted():
    def fails(*arguments):
        raise RuntimeError("the kernel's own launch_metadata")

    metadata = LazyDict({"name": "k", "function": 14, "stream": 0})
    metadata.add(fails, ())
    with launched() as handles:
        triton.knobs.runtime.launch_enter_hook(metadata)
        triton.knobs.runtime.launch_enter_hook(None)
    assert handles == {14}
