"""What a device was measured to reach at most: rates, not samples."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Ceilings(BaseModel):
    """Medians of one calibration."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    copy_gb_per_s: float
    """Bytes read and bytes written together."""
    read_gb_per_s: float
    matmul_tflops: dict[str, float] = {}
    """By dtype."""
    empty_us: dict[str, float] = {}
    """An empty kernel's time, by mode."""
    n: int | None = None
    """Calls of each."""

    @property
    def bandwidth_gb_per_s(self) -> float:
        """The better of copying and reading."""
        return max(self.copy_gb_per_s, self.read_gb_per_s)
