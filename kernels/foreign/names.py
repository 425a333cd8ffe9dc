"""What other tools call operations, sizes and what surrounds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from kernels.analysis import claim_text
from kernels.analysis.peaks import Peak, peak_of
from kernels.catalog import operations
from kernels.operations.rows import Rows

OPERATIONS = {
    "nsa": r"nsa|nativesparseattention",
    "attention": r"attention|mha|gqa|sdpa|flashattention|fa[123]?|scaleddotproductattention",
    "gemm": r"gemm|matmul|mm",
    "layer_norm": r"layernorm",
    "rms_norm": r"rmsnorm",
    "gelu": r"gelu",
    "swish": r"swish|silu",
    "softmax": r"softmax",
    "cross_entropy": r"crossentropy(?:loss)?",
    "mse_loss": r"mse(?:loss)?",
}
IMPLEMENTATION = re.compile(r"sdpa|flash_?attention|fa_?[123]?|scaled_dot_product_attention")
"""Names of kernels that tell their operation, too."""
SIZES = {short: name for name, shorts in claim_text.SIZES.items() for short in shorts} | {
    "tensor_dimension": "dim", "hidden": "dim", "hidden_size": "dim", "dhead": "head_dim", "d_head": "head_dim",
    "dim_head": "head_dim", "n_heads": "heads", "vocab_size": "vocab", "t": "seq_len", "v": "vocab", "is_causal": "causal",
    "heads_kv": "kv_heads", "h_kv": "kv_heads", "n_heads_kv": "kv_heads", "seqlen_kv": "kv_len", "seq_len_kv": "kv_len",
    "n_ctx_kv": "kv_len", "n_ctx": "seq_len", "n_rows": "rows", "n_cols": "cols", "dim": "dim",
}  # fmt: skip
"""Name of a column -> size; an operation's own names of its sizes are known, too."""
KERNEL = ("implementation", "impl", "kernel_name", "kernel", "provider")
OPERATION = ("operation", "op", "op_name")
DTYPE = ("dtype", "precision", "data_type")
GPU = ("gpu", "gpu_model", "gpu_name", "device", "device_name", "hardware")
TEXTS = ("config", "shape", "workload", "label", "case", "name", "test", "x_val", "problem")
METHOD = ("method", "timing_method", "timer", "tool")
STATUS = ("status", "error", "error_msg")
BASELINE = re.compile(r"(?:py)?torch|.*\bsdpa|eager|aten|baseline|reference", re.IGNORECASE)
"""Names of kernels that others are compared with, where a table does not say it."""
SHAPE = re.compile(r"[(\[]\s*[\w ]+(?:,\s*[\w ]+)*,?\s*[)\]]")
""" "(Batch, Heads, SeqLen, Dhead)", or "(4, 16, 512, 64)" """


def plain(name: str) -> str:
    """In lower case, with one _ for everything else: "SeqLen " -> "seqlen"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@lru_cache(4096)
def size_of(name: str) -> str:
    """The size that a column's name stands for; empty: none."""
    own = {size for operation in operations().values() for size in operation.model_fields} - {"dtype"}
    key = plain(name)
    return SIZES.get(key) or (key if key in own else "")


@lru_cache(4096)
def operation_of(text: str) -> str:
    """The operation that a word names; empty: none that is known here."""
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    if plain(text) in operations():
        return plain(text)
    return next((name for name, words in OPERATIONS.items() if re.fullmatch(words, word)), "")


@lru_cache(4096)
def described(text: str) -> Mapping[str, str]:
    """What words say of a workload and its GPU: operation, sizes, causal, dtype, gpu, kernel. No figures."""
    found = claim_text.read(text[:2000])
    for name in ("ms", "tflops"):
        found.pop(name, None)
    if "operation" not in found and (known := next(filter(None, map(operation_of, re.findall(r"[\w-]+", text))), "")):
        found["operation"] = known
    if kernel := re.search(r"\bkernel\s*[=:]\s*([^\s,;]+)", text):
        found["kernel"] = kernel.group(1)
    operation = operations().get(found.get("operation", ""))
    sides = re.search(r"\b(\d+)\s*x\s*(\d+)\b", text)
    if operation and issubclass(operation, Rows) and sides:  # "65536 x 4096"
        found = {"rows": sides.group(1), operation.across: sides.group(2)} | found
    return found


@lru_cache(1024)
def model_of(gpu: str) -> Peak | None:
    """The GPU model that a name stands for; "H100" alone is the SXM form. None: unknown."""
    return peak_of(gpu) or peak_of(claim_text.read(gpu).get("gpu", ""))
