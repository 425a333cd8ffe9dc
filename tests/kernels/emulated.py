"""Kernels in CUDA C++ on a GPU that is emulated: their own C++, with stand-ins for the instructions (emulated_gpu.h)."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from kernels.catalog import get_kernel, load
from kernels.child import outputs

GPU = Path(__file__).parent / "emulated_gpu.h"
INSTRUCTIONS = re.compile(r"// --- instructions ---.*// --- kernel ---", re.DOTALL)
DYNAMIC = re.compile(r"extern __shared__ [^;]*\bmemory\[\];")
"""The emulated GPU has it."""
SMS = 132


class Emulated:
    """emulated(problem, kernel, inputs, change, settings): what a kernel writes; change: (text, instead) in its source; launches:
    how often it is launched."""

    def __init__(self, folder, sms=SMS):
        self.folder, self.sms = folder, sms
        self._program = cache(self._compile)

    def _compile(self, operation, kernel, entry, defines, change):
        text = load(get_kernel(operation, kernel)).call.text.source
        body = re.sub(r"#include <cuda_.*>", "", INSTRUCTIONS.sub("", text))
        if change:
            assert change[0] in body
            body = body.replace(*change)
        body = DYNAMIC.sub("", body).replace("__shared__", "static")  # of all threads of a block
        macros = "".join(f"#define {name} {value}\n" for name, value in defines)
        source = self.folder / f"{len(list(self.folder.iterdir()))}.cpp"
        source.write_text(
            f'#include "{GPU}"\n{macros}{body}\nint main(int, char** a) {{ auto* kernel = &{entry}; launch(kernel, a + 1); }}\n'
        )
        made = source.with_suffix("")
        command = ["g++", "-std=c++17", "-O1", "-w", "-o", made, source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[:3000]
        return made

    def __call__(self, problem, kernel, inputs, change=None, settings=None, launches=1):
        import torch

        text = load(get_kernel(problem.name, kernel)).call.text
        values = text.values(inputs.tensors, inputs.options, self.sms, settings)
        grid, block, shared = text.shape(values)
        ((shape, dtype),) = outputs.likes(problem, inputs)
        out = torch.full(shape, float("nan"), dtype=dtype)
        files = []
        scratch = torch.full((text.scratch(values) or 0,), 0xFF, dtype=torch.uint8)
        for number, tensor in enumerate((*inputs.tensors, out, scratch)):
            files.append(self.folder / f"{number}.bin")
            files[-1].write_bytes(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        said = [files[value] if kind == "pointer" else value for kind, value in text.arguments(values)]
        source = text.compiled_from(values, inputs.tensors[0].dtype)
        made = self._program(problem.name, kernel, source.entry, source.defines, change)
        cluster = dict(source.defines).get("CLUSTER", "1")
        environment = os.environ | {"DYNAMIC_BYTES": str(shared), "CLUSTER": cluster, "LAUNCHES": str(launches)}
        subprocess.run([made, *map(str, (*grid, *block, *said))], env=environment, check=True, timeout=300)
        return torch.frombuffer(bytearray(files[-2].read_bytes()), dtype=dtype).reshape(shape)
