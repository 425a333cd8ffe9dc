"""QuACK's LayerNorm."""

from kernels.catalog import cuda, kernel


@kernel("layer_norm", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x, weight, bias, *, eps):
    """quack.rmsnorm.layernorm_fwd, in the CuTe DSL; it takes weight and bias in float32 only, so both are converted."""
    from quack.rmsnorm import layernorm_fwd

    return layernorm_fwd(x, weight.float(), bias.float(), eps)
