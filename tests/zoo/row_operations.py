"""The zoo's kernels of the operations that memory limits, right and wrong: what test_numerics*.py share."""

from kernels.operations.cross_entropy import CrossEntropy
from kernels.operations.gelu import Gelu
from kernels.operations.mse_loss import MSELoss
from kernels.operations.rms_norm import RMSNorm
from kernels.operations.softmax import Softmax
from kernels.operations.swish import Swish

RIGHT_GELUS = ("eager", "functional", "by-erfc", "in-float64", "in-blocks", "of-a-rounded-distribution")
WRONG_GELUS = (
    "the-other-formula", "of-the-sigmoid", "in-half", "by-a-quotient", "cut-off-at-3", "tail-not-written",
    "last-row-skipped", "one-percent-off",
)  # fmt: skip
ROW_OPERATIONS = {
    "softmax": (
        Softmax(rows=64, cols=4096),
        ("eager", "functional", "online", "in-base-2", "summed-in-turn", "through-the-logarithm"),
        (
            "without-maximum", "tail-not-summed", "padding-summed", "summed-in-half", "rescaling-skipped",
            "maximum-of-all-rows", "last-row-skipped", "maximum-of-an-eighth", "maximum-where-fixed-places-are-large",
            "maximum-where-the-last-column-is-large", "maximum-without-the-last-column",
            "maximum-without-the-ends-of-tiles",
        ),
    ),
    "rms_norm": (
        RMSNorm(rows=64, cols=4096),
        ("eager", "functional", "in-two-levels", "summed-in-turn", "rounded-twice", "divided"),
        (
            "without-eps", "eps-of-layer-norm", "eps-outside-the-root", "mean-subtracted", "one-column-less",
            "last-column-left-out", "summed-in-half", "last-row-skipped",
        ),
    ),
    "cross_entropy": (
        CrossEntropy(rows=64, vocab=1000),
        ("eager", "functional", "online", "summed-in-turn", "last-row-first", "of-the-log-softmax"),
        (
            "without-maximum", "tail-not-summed", "padding-summed", "losses-in-half", "summed-in-half", "one-row-less",
            "last-row-skipped", "class-0-ignored", "class-2-ignored", "rescaling-skipped",
        ),
    ),
    "gelu": (Gelu(rows=64, cols=1000), RIGHT_GELUS, WRONG_GELUS),
    "gelu, tanh": (Gelu(rows=64, cols=1000, approximate="tanh"), RIGHT_GELUS, WRONG_GELUS),
    "swish": (
        Swish(rows=64, cols=1000),
        ("eager", "functional", "by-tanh", "in-base-2", "rounded-twice", "in-blocks"),
        (
            "hard-swish", "of-gelu", "without-the-product", "by-a-quotient", "in-half-by-tanh", "cut-off-at-minus-4",
            "tail-not-written", "last-row-skipped", "base-2-without-its-factor",
        ),
    ),
    "mse_loss": (
        MSELoss(rows=64, cols=1000),
        ("eager", "functional", "in-two-levels", "blocks-in-turn", "mean-of-means", "columns-first"),
        (
            "multiplied-out", "squares-cut-off", "summed-in-half", "one-element-less", "mean-over-rows",
            "last-row-skipped", "last-columns-skipped", "absolute",
        ),
    ),
}  # fmt: skip
"""Operations that memory limits: (problem, right kernels, wrong kernels), in every dtype."""
