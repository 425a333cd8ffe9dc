"""The benchmark library: what is measured (operations, kernels) and how (the instrument). It never imports Django.

`from kernels import measure` is for callables; only this import needs torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.inprocess.api import Measured, measure

__all__ = ["HARNESS_VERSION", "Measured", "measure"]

HARNESS_VERSION = "6"
"""Part of every fingerprint: increase it if a change to the instrument can change a number."""

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in ("Measured", "measure"):
            raise AttributeError(f"module 'kernels' has no attribute '{name}'")
        from kernels.inprocess import api

        return getattr(api, name)
