"""Which files a foreign kernel needs to see on this host, and which it must not."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[1]
CHECKOUT = PRODUCT.parent
LISTS = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
HOMES = ("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CC", "CXX")
SECRET_FILE = re.compile("(SECRET|KEY|PASSWORD|TOKEN|BROKER|URL).*_FILE$")
"""Names of variables that name a file with a secret."""
VAR_VARIABLE, ENV_VARIABLE = "BENCHSITE_VAR", "BENCHSITE_ENV"
"""The site's folder of state, and its file of settings, where they are not in the checkout."""


def readable(*lists: str) -> list[str]:
    """The interpreter, its packages, this product, compilers, the driver's libraries. lists: further variables that hold
    paths, such as those of kernels. Of the checkout only the product: settings and state lie beside it."""
    listed = [path for name in (*LISTS, *lists) for path in os.environ.get(name, "").split(os.pathsep)]
    homes = [os.environ.get(name, "") for name in HOMES]
    own = [sys.executable, sys.prefix, sys.base_prefix, str(PRODUCT)]
    found = [*own, *sys.path, *listed, *homes, *_folders_of_libraries()]
    return [path for path in dict.fromkeys(found) if os.path.isabs(path) and os.path.realpath(path) != str(CHECKOUT)]


def hidden() -> list[str]:
    """The checkout, and wherever the site keeps settings, secrets and state."""
    named = [os.environ.get(name, "") for name in (VAR_VARIABLE, ENV_VARIABLE)]
    secrets = [value for name, value in os.environ.items() if SECRET_FILE.search(name)]
    return [str(CHECKOUT), *(path for path in [*named, *secrets] if os.path.isabs(path))]


def _folders_of_libraries() -> list[str]:
    """Folders of the libraries that this process has loaded: NVML lies beside CUDA."""
    with open("/proc/self/maps") as file:
        paths = [line.split(maxsplit=5)[5].strip() for line in file if ".so" in line and "/" in line]
    return sorted({os.path.dirname(path) for path in paths if os.path.exists(path)})
