"""Cross-entropy of logits and class indices: the mean over rows of logsumexp(row) - row[target]."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows, total_in_turn

if TYPE_CHECKING:
    import torch

TARGET_BYTES = 8
LOSS_BYTES = 4
CERTAIN = 64.0
"""single: the logit of the right class in all rows but one, whose loss is then 0; the others are 0."""
SINGLE = 20 + 2.0**-6 + 2.0**-9
"""single: the size of the two logits that decide the mean, times a power of 2. float16 holds it to 2^-6, bfloat16 to 1/8."""
MOST_DOUBLED = 10
"""float16 holds numbers up to 65,504."""


@operation("cross_entropy", baseline="functional", title="Cross-entropy, forward")
class CrossEntropy(Rows):
    """logits: (rows, vocab); targets: (rows,), int64, from 0 to vocab - 1; out: (), float32, the mean over all rows.

    No index is ignored, no class has a weight, no label is smoothed.
    """

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"logits": ("rows", "vocab"), "targets": ("rows",)}
    across: ClassVar[str] = "vocab"
    narrowest: ClassVar[int] = 2
    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "x30", "single", "large_mean", "outliers", "near_constant", "tiny",
    )  # fmt: skip
    operators: ClassVar[tuple[str, ...]] = (
        "cross_entropy_loss", "log_softmax", "_log_softmax", "nll_loss", "nll_loss_nd", "nll_loss_forward", "gather",
        "logsumexp", "log", "amax", "sum", "mean", "sub", "exp",
    )  # fmt: skip

    vocab: int = Field(ge=narrowest, le=1_048_576, title="Vocabulary", description="Classes: columns of the logits.")

    def flops(self) -> int:
        """4 per element (maximum, subtraction, exponential, sum): informative only; memory is the limit."""
        return 4 * self.rows * self.vocab

    def flops_formula(self) -> tuple[str, str]:
        return "4 x rows x vocabulary", f"4 x {self.rows} x {self.vocab}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads logits and targets; writes one number."""
        return self.rows * self.vocab * self.element_bytes + self.rows * TARGET_BYTES, LOSS_BYTES

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """The first row's class is the first one, the last row's is the last one. x30: the rows have the first classes, in turn:
        those that programs reserve, such as one for padding, are among them. large_mean: with a negative sign, so that
        a column that is not there, read as 0, would decide its row."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        logits = draw((self.rows, self.vocab), self.dtype, device, generator, distribution)
        if distribution == "large_mean":
            logits.neg_()
        targets = torch.randint(self.vocab, (self.rows,), generator=generator, device=device)
        if distribution == "x30":
            targets = torch.arange(self.rows, device=device) % self.vocab
        targets[0], targets[-1] = 0, self.vocab - 1
        if distribution == "single":
            self._leave_one_row(logits, targets, generator)
        return Inputs((logits, targets), {})

    def _leave_one_row(self, logits: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> None:
        """The loss of one row, drawn by chance, is so large that the mean is about 1 where the dtype can hold it; that of every
        other row is 0."""
        import torch

        row, more = (
            torch.randint(most, (1,), generator=generator, device=logits.device) for most in (self.rows, self.vocab - 1)
        )
        right = targets[row]
        logits.zero_().scatter_(1, targets.unsqueeze(1), CERTAIN)
        large = SINGLE * 2.0 ** min(max(0, (self.rows // 32).bit_length()), MOST_DOUBLED)
        logits[row, right] = -large
        logits[row, (right + 1 + more) % self.vocab] = large

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        import torch

        return (), torch.float32

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks. The yardstick adds the rows' float32 losses term by term."""
        import torch

        logits, targets = inputs.tensors
        exact: list[float] = []
        plain: list[float] = []
        for where in self.chunks():
            exact += _losses(logits[where].double(), targets[where])
            plain += _losses(logits[where].float(), targets[where])
        mean = math.fsum(exact) / self.rows
        of_yardstick = torch.tensor(total_in_turn(plain), dtype=torch.float32) / self.rows
        device = logits.device
        yield Piece(..., torch.tensor(mean, dtype=torch.float64, device=device), of_yardstick.to(device))


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Of each row, in the dtype of the logits."""
    right = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    return (logits.logsumexp(1) - right).tolist()
