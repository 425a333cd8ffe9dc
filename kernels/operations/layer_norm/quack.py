"""QuACK's LayerNorm."""

from kernels.catalog import Unsupported, cuda, kernel


@kernel("layer_norm", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x, weight, bias, *, eps):
    """quack.rmsnorm.layernorm_fwd, in the CuTe DSL; it takes weight and bias in float32 only, so both are converted."""
    if x.shape[1] * x.element_size() % 4:
        raise Unsupported("QuACK copies at least 4 bytes at a time: in 16 bits it does even numbers of columns")
    from quack.rmsnorm import layernorm_fwd

    return layernorm_fwd(x, weight.float(), bias.float(), eps)
