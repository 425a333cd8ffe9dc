"""Two operations for tests: one returns a single number, the other two tensors. Nobody knows them but who imports them."""

from typing import ClassVar

import torch

from kernels.operations.base import Inputs, Operation, Piece, draw

ROWS, COLS, TERMS = 65, 63, 4099


class MeanSquare(Operation):
    """x, y: (terms,); out: (), the mean of the squared differences."""

    name: ClassVar[str] = "mean_square"
    baseline: ClassVar[str] = "planted"
    title: ClassVar[str] = "Mean square"
    terms: int = TERMS

    def inputs(self, device, seed, distribution="normal"):
        generator = torch.Generator(device).manual_seed(seed)
        drawn = (draw((self.terms,), self.dtype, device, generator, distribution) for _ in range(2))
        return Inputs(tuple(drawn), {})

    def output_like(self, inputs):
        return (), inputs.tensors[0].dtype

    def check(self, inputs, seed, thorough):
        x, y = inputs.tensors
        yield Piece(..., (x.double() - y.double()).square().mean(), mean_square(x, y))


class Centred(Operation):
    """x: (rows, cols); out: x less the mean of its row (rows, cols), and the means, in float32 (rows,)."""

    name: ClassVar[str] = "centred"
    baseline: ClassVar[str] = "planted"
    title: ClassVar[str] = "Centred"
    rows: int = ROWS
    cols: int = COLS

    def inputs(self, device, seed, distribution="normal"):
        generator = torch.Generator(device).manual_seed(seed)
        return Inputs((draw((self.rows, self.cols), self.dtype, device, generator, distribution) + 1,), {})

    def output_like(self, inputs):
        x = inputs.tensors[0]
        return ((self.rows, self.cols), x.dtype), ((self.rows,), torch.float32)

    def check(self, inputs, seed, thorough):
        x = inputs.tensors[0]
        means = x.double().mean(-1)
        wide, _ = centred(x)
        yield Piece(..., means, in_turn(x), output=1)
        for first in range(0, self.rows, 20):
            rows = slice(first, first + 20)
            yield Piece(rows, x[rows].double() - means[rows, None], wide[rows])


def mean_square(x, y):
    return (x.float() - y.float()).square().mean().to(x.dtype)


def centred(x):
    means = x.float().mean(-1)
    return (x.float() - means[:, None]).to(x.dtype), means


def in_turn(x):
    """Term after term, as a plain loop does it."""
    sums = torch.zeros(len(x))
    for column in x.float().T:
        sums += column
    return sums / x.shape[1]
