from kernels.catalog import kernel

BACKEND = "pytorch"


@kernel("softmax", backend=BACKEND)
def not_a_literal(x):
    return x.softmax(-1)
