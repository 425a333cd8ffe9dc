"""What a reference cannot decide itself: its exact answers if results on the way are nudged a little.

A reference that picks, compares or rounds to few values decides. Where two values are nearly the same, rounding decides, in the
reference as in a kernel. Such places are those whose answer changes under nudges, which need no knowledge of the operation.
A nudge multiplies results that a narrower dtype must round by 1 + d, and in a second answer by 1 - d: one of both crosses a
tie. What is not rounded, such as inputs times 16, is not nudged: there the reference decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernels.child.widening import Way

SUMS = {
    "matmul", "rmatmul", "mm", "bmm", "mv", "dot", "linear", "addmm", "baddbmm", "einsum", "sum", "mean", "cumsum", "conv1d",
    "conv2d", "conv3d", "scaled_dot_product_attention",
}  # fmt: skip
"""Functions whose results are rounded on the way: of a sum near 0 the error is large."""
ROUNDED = SUMS | {
    "mul", "rmul", "imul", "multiply", "div", "rdiv", "idiv", "divide", "truediv", "rtruediv", "itruediv", "true_divide", "add",
    "radd", "iadd", "sub", "rsub", "isub", "addcmul", "addcdiv", "lerp", "reciprocal", "sqrt", "rsqrt", "pow", "rpow", "square",
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logsumexp", "sin", "cos", "tanh", "erf", "sigmoid", "softmax",
    "log_softmax", "softplus", "silu", "gelu", "mish", "elu", "norm", "vector_norm", "var", "std", "normalize", "prod", "cumprod",
    "layer_norm", "rms_norm", "group_norm", "batch_norm",
}  # fmt: skip
"""Functions whose results are rounded. Their names are without underscores at the ends."""
SMALLEST = 2.0**-19
"""Largest relative change of the smallest nudges: 16 units of float32, more than a few steps in float32 round."""
SMALLEST_ANSWERS = 8
"""So many that no tie is missed: of two, one in 30 lies on one side of a tie with the other, as nudges may cancel."""
GROWS, ENOUGH, LARGEST = 2, 0.6, 2.0**-4
"""Larger nudges begin with a rounding of the narrowest dtype that the reference names or gets, and grow until they change this
share of the elements that the reference as it is written has wrong."""
LARGER = (2, 2, 2, 2, 4, 4, 8, 8)
"""Sizes of the nudges that say which answers are plausible, in units of those that changed enough: a pair of answers each."""
ANSWERS = SMALLEST_ANSWERS + 2 * len(LARGER)
MOST_BYTES, MOST_S = 2**30, 10.0
"""Of the answers of an output of whole numbers; and for all answers of a reference, after which there are no more: a run compares
hundreds of outputs."""
JUMP = 2.0**-16
"""An answer in floating-point numbers jumps if nudges move it by more than this share of the largest: a smooth function is moved
less."""
MOVED = 4 * SMALLEST
"""Relative: nudges also move the two ends of a jump."""
SEED = 20


class Nudge:
    """Changes results in place, by up to `size`, relative; but not those of a function that `narrow` holds all. The same seed and
    the other sign give the opposite nudge."""

    def __init__(self, size: float, seed: int, narrow: torch.dtype) -> None:
        self.size, self.seed, self.narrow = size, seed, narrow
        self.generators: dict[torch.device, torch.Generator] = {}

    @torch.no_grad()
    def __call__(self, name: str, result: torch.Tensor) -> None:
        result = result.detach()
        if (name := name.strip("_")) not in ROUNDED or not result.numel() or self._holds(result):
            return
        if result.device not in self.generators:
            self.generators[result.device] = torch.Generator(result.device).manual_seed(self.seed)
        generator = self.generators[result.device]
        kind: dict[str, Any] = {"dtype": result.dtype, "device": result.device}
        change = torch.rand(result.shape, generator=generator, **kind).mul_(2).sub_(1).mul_(self.size)
        unit = result.abs()
        if name in SUMS:
            size = torch.where(torch.isfinite(result), result, 0).square().mean().sqrt()
            unit = torch.where(result == 0, unit, torch.maximum(unit, size))  # an exact 0 is a sum of zeros
        result += torch.where(torch.isfinite(result), change * unit, 0)

    def _holds(self, result: torch.Tensor) -> bool:
        return bool(((result.to(self.narrow) == result) | ~torch.isfinite(result)).all())


class Nudges:
    """Nudged answers of one reference."""

    def __init__(self, way: Way, call: Callable[..., Any], outputs_of: Callable[[Any], Sequence[torch.Tensor]]) -> None:
        self.way, self.call, self.outputs_of = way, call, outputs_of
        self.decides: bool | None = None
        """Whether the reference decides. None: not known yet."""
        self.size = SMALLEST
        """The largest rounding of the dtypes that it names or gets."""
        self.left_s = MOST_S

    def answers(
        self, tensors: Sequence[torch.Tensor], plain: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """For each output its answers, (answers, *shape). Empty if the reference decides nothing, or cannot be called so.

        Of whole numbers and truth values: SMALLEST_ANSWERS under the smallest nudges, then those under larger ones, or none
        where the reference as it is written is right. Of floating-point numbers: the smallest and the largest value under the
        smallest nudges. Of each output no answers, if there is no time for them. plain, exact: the outputs for these
        tensors, as it is written and exact.
        """
        if self.decides is False:
            return []
        if ANSWERS * sum(one.nbytes for one in exact) > MOST_BYTES:
            return []
        if self.left_s <= 0 and self.decides:
            return _unknown(exact)
        begin = time.monotonic()
        self.until, self.pairs = begin + self.left_s, 0
        try:
            return self._answers(tensors, plain, exact)
        except TimeoutError:
            return _unknown(exact) if self.decides else []
        except Exception:  # code may refuse numbers that are not quite its own
            return []
        finally:
            if tensors and tensors[0].is_cuda:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # other processes need the memory
            self.left_s -= time.monotonic() - begin

    def _answers(
        self, tensors: Sequence[torch.Tensor], plain: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        few: list[Sequence[torch.Tensor]] = []
        while len(few) < SMALLEST_ANSWERS:
            few += self._pair(tensors, SMALLEST)
            if not self.decides:
                return []
        if any([one.shape for one in answer] != [one.shape for one in exact] for answer in few):
            return []
        counted = [
            number
            for number, one in enumerate(plain)
            if not one.is_floating_point() and ANSWERS * one.nbytes <= MOST_BYTES
        ]
        wrong = {number: mask for number in counted if (mask := plain[number] != exact[number]).any()}
        more = self._larger(tensors, exact, wrong) if wrong else []
        return [self._stacked(number, one, few, more if number in wrong else []) for number, one in enumerate(plain)]

    def _stacked(self, number: int, plain: torch.Tensor, few: Sequence[Any], more: Sequence[Any]) -> torch.Tensor:
        small = torch.stack([one[number] for one in few])
        if plain.is_floating_point():
            return torch.stack([small.amin(0), small.amax(0)])
        if ANSWERS * plain.nbytes > MOST_BYTES:
            return small[:0]
        return torch.cat([small, torch.stack([one[number] for one in more])]) if more else small

    def _larger(
        self, tensors: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], wrong: dict[int, torch.Tensor]
    ) -> list[Sequence[torch.Tensor]]:
        """Answers under nudges that explain what the reference as it is written has wrong; none if no nudges do."""
        size = self.size
        try:
            while size <= LARGEST:
                one, other = self._pair(tensors, size)
                changed = {n: (one[n] != exact[n]) | (other[n] != exact[n]) for n in wrong}
                if all((changed[n] & mask).sum() >= ENOUGH * mask.sum() for n, mask in wrong.items()):
                    pairs = [self._pair(tensors, size * times) for times in LARGER]
                    return [answer for pair in pairs for answer in pair]
                size *= GROWS
        except TimeoutError:
            pass
        return []

    def _pair(self, tensors: Sequence[torch.Tensor], size: float) -> list[Sequence[torch.Tensor]]:
        """Two answers. Raises TimeoutError if there is no more time."""
        if time.monotonic() > self.until:
            raise TimeoutError("nudged answers take too long")
        self.pairs += 1
        narrow = torch.bfloat16 if size > SMALLEST else torch.float32
        found: list[Sequence[torch.Tensor]] = []
        for signed in (size, -size):
            out, met = self.way.nudged(self.call, tensors, Nudge(signed, SEED + self.pairs, narrow))
            self.decides = bool(self.decides) or met.decides
            self.size = max([self.size, *(torch.finfo(one).eps / 4 for one in met.narrow)])
            found.append([one.detach() for one in self.outputs_of(out)])
        return found


def nudged_piece(answers: torch.Tensor) -> torch.Tensor | None:
    """The answers of a whole output as those of its only piece. None: of floating-point numbers there are none."""
    return None if answers.is_floating_point() and not len(answers) else answers[:, None]


def _unknown(exact: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """No answers for any output."""
    return [one[None][:0] for one in exact]


def error_of(values: torch.Tensor, right: torch.Tensor, nudged: torch.Tensor | None) -> torch.Tensor:
    """Signed error; where nudges let the answer jump, the distance to the range of the nudged answers. All have right's dtype."""
    if nudged is None or not right.is_floating_point():
        return values - right
    low, high = _range(right, nudged)
    return values - torch.minimum(torch.maximum(values, low), high)


def _range(right: torch.Tensor, nudged: torch.Tensor) -> Iterator[torch.Tensor]:
    """The smallest and the largest answer where they jump; else the correct value twice."""
    low, high = nudged.to(right.dtype)
    low, high = torch.minimum(low, right), torch.maximum(high, right)
    finite = torch.isfinite(low) & torch.isfinite(high)
    largest = torch.where(torch.isfinite(right), right, 0).abs().max()
    jumps = finite & (high - low > JUMP * largest)
    moved = MOVED * torch.maximum(low.abs(), high.abs())
    yield torch.where(jumps, low - moved, right)
    yield torch.where(jumps, high + moved, right)
