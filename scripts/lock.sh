#!/bin/bash
# Pins the packages of pyproject.toml in requirements*.lock, for Linux and every Python that Benchsite supports.
# Torch has a file of its own, without the CUDA packages and the Triton that a build of it may ask for: scripts/install.py.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "lock: uv is not installed; pip install uv" >&2; exit 1; }

compile() {
    uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" "$@"
}

compile pyproject.toml --extra postgres --excludes <(printf '%s\n' torch triton) -o requirements.lock
compile --group dev -c requirements.lock -o requirements-dev.lock
compile --group cuda -c requirements.lock -o requirements-cuda.lock
compile --group torch -c requirements.lock -o requirements-torch.lock --excludes <(
    printf '%s\n' triton cuda-bindings cuda-toolkit nvidia-{cudnn-cu13,cusparselt-cu13,nccl-cu13,nvshmem-cu13}
)
