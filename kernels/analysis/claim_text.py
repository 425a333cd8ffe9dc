"""Reads a claim that somebody pasted, such as "SDPA, B=16 H=96 S=4096 D=128 fp16 on H100: 12.27 ms, 1,075 TFLOPS"."""

from __future__ import annotations

import re

from kernels.analysis.peaks import PEAKS
from kernels.catalog import operations
from kernels.dtypes import EVERY

OPERATIONS = {
    "nsa": r"\bnsa\b|native sparse",
    "attention": r"attention|sdpa|\bmha\b|\bgqa\b|flash",
    "gemm": r"gemm|matmul|matrix product|\bmm\b",
    "layer_norm": r"layer[ _-]?norm",
    "rms_norm": r"rms[ _-]?norm",
    "cross_entropy": r"cross[ _-]?entropy",
    "mse_loss": r"\bmse\b|mean squared error",
    "gelu": r"\bgelu\b",
    "swish": r"\b(swish|silu)\b",
    "softmax": r"softmax",
}
SIZES = {
    "batch": ("b", "batch", "batch_size"),
    "heads": ("h", "heads", "num_heads", "nheads"),
    "kv_heads": ("hkv", "kv_heads", "num_kv_heads"),
    "seq_len": ("s", "sl", "seq", "seq_len", "seqlen", "n_ctx", "sequence_length"),
    "kv_len": ("skv", "kv_len", "kv_seq_len"),
    "head_dim": ("d", "hd", "dim", "head_dim", "headdim"),
    "groups": ("g", "groups"),
    "block_size": ("block_size",),
    "selected_blocks": ("selected_blocks",),
    "scale": ("scale",),
    "window": ("window", "window_size", "sliding_window"),
    "m": ("m",),
    "n": ("n",),
    "k": ("k",),
    "rows": ("rows",),
    "cols": ("cols", "columns"),
    "vocab": ("vocab", "vocabulary", "vocab_size"),
}
BY_SIZES = {"nsa": {"selected_blocks"}, "attention": {"seq_len", "heads"}, "gemm": {"m", "k"}}
"""Sizes that tell the operation, where its name is missing."""
SIDES = {"gemm": ("m", "n", "k"), "cross_entropy": ("rows", "vocab")} | dict.fromkeys(
    ("layer_norm", "rms_norm", "softmax", "gelu", "swish", "mse_loss"), ("rows", "cols")
)
"""Meaning of "8192 x 8192 x 8192" """
NUMBER = r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
MS = {"s": 1e3, "sec": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ns": 1e-6}
TERA = {"g": 1e-3, "t": 1.0, "p": 1e3}
DTYPE_WORDS = {"half": "float16"} | {row.short: name for name, row in EVERY.items()} | {name: name for name in EVERY}
SHORT_GPUS = {"H100": "H100 SXM", "H200": "H200 SXM", "A100": "A100 SXM 80GB", "4090": "RTX 4090", "5090": "RTX 5090"}


def read(text: str) -> dict[str, str]:
    """What a text names, by form field: operation, sizes, causal, dtype, gpu, ms, tflops. What it does not is missing."""
    found = _sizes(text)
    operation = next((name for name, words in OPERATIONS.items() if re.search(words, text, re.IGNORECASE)), "")
    operation = operation or next((name for name, sizes in BY_SIZES.items() if sizes & found.keys()), "")
    if operation:
        found["operation"] = operation
    if sides := re.search(rf"{NUMBER}((?:\s*[x*\u00d7]\s*{NUMBER})+)", text):
        numbers = [_plain(n) for n in re.findall(NUMBER, sides.group())]
        if len(numbers) == len(SIDES.get(operation, ())):
            found = dict(zip(SIDES[operation], numbers, strict=True)) | found
    if operation == "gemm" and (
        cube := re.search(rf"{NUMBER}\s*\^\s*3\b|m\s*=\s*n\s*=\s*k\s*=\s*{NUMBER}", text, re.IGNORECASE)
    ):
        found = dict.fromkeys(SIDES["gemm"], _plain(cube[1] or cube[2])) | found
    if re.search(r"causal", text, re.IGNORECASE):
        denied = r"(non|not|no)[- ]?causal|causal\W{1,3}(no|false|0)\b"
        found["causal"] = "no" if re.search(denied, text, re.IGNORECASE) else "yes"
    words = "|".join(sorted(DTYPE_WORDS, key=len, reverse=True))
    if dtype := re.search(rf"\b({words})\b", text, re.IGNORECASE):
        found["dtype"] = DTYPE_WORDS[dtype.group().lower()]
        if operation and found["dtype"] not in operations()[operation].dtypes:
            found["dtype"] = EVERY[found["dtype"]].stored  # tf32 is a way to compute float32 there
    if gpu := _gpu(text):
        found["gpu"] = gpu
    return found | _rates(text)


def _plain(number: str) -> str:
    return number.replace(",", "")


def _sizes(text: str) -> dict[str, str]:
    """NAME=NUMBER or NAME: NUMBER, by the usual names."""
    known = {short: name for name, shorts in SIZES.items() for short in shorts}
    pairs = re.findall(rf"\b([a-z_]+)[\"']?\s*[=:]\s*{NUMBER}", text, re.IGNORECASE)
    return {known[name.lower()]: _plain(number) for name, number in pairs if name.lower() in known}


def _gpu(text: str) -> str:
    """The model whose longest name is in the text."""
    return _named(text)[1]


def short_gpu(text: str) -> str:
    """The name in a text of which several models have a part: "H100"; empty if the text says which model it is."""
    name, model = _named(text)
    return name if model.startswith(f"{name} ") and SHORT_GPUS.get(name) == model else ""


def _named(text: str) -> tuple[str, str]:
    """(the longest name in the text in capitals, its model)."""
    words = " ".join(text.replace("-", " ").split()).upper()
    names = {name.upper(): peak.model for peak in PEAKS for name in (*peak.names, peak.model)}
    names |= {short.upper(): model for short, model in SHORT_GPUS.items()}
    here = [name for name in names if re.search(rf"\b{re.escape(name)}\b", words)]
    longest = max(here, key=len, default="")
    return longest, names.get(longest, "")


def _rates(text: str) -> dict[str, str]:
    """{"ms", "tflops"} as far as they are named."""
    found = {}
    if time := re.search(rf"{NUMBER}\s*(ms|us|µs|μs|ns|sec|s)\b", text):
        found["ms"] = f"{float(_plain(time.group(1))) * MS[time.group(2)]:.15g}"
    if rate := re.search(rf"{NUMBER}\s*([gtp])flop(?:/?s|s/s)?", text, re.IGNORECASE):
        found["tflops"] = f"{float(_plain(rate.group(1))) * TERA[rate.group(2).lower()]:.15g}"
    return found
