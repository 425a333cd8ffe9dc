"""A process of an isolated measurement. Arguments: cell or trusted, kind of device, the pipes of commands and of answers."""

from __future__ import annotations

import importlib
import sys

from kernels.host import starting


def main() -> None:
    name = sys.argv[1]
    with starting.imports():
        worker = getattr(importlib.import_module(f"kernels.isolated.{name}"), name.capitalize())
        from kernels.isolated import serving
    serving.main(worker)


if __name__ == "__main__":
    main()
