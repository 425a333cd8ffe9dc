"""Makes .venv with the pinned packages: `make install`, and with --dev the tools of `make test` and `make lint`.

A host that has its own torch, as GPU hosts do, keeps it: .venv gets a .pth file that names the folders it is in, after
.venv's own, and neither torch nor Triton is installed. Any other host gets the torch of requirements-torch.lock, and
Triton where that torch did not bring one; with --dev also NVRTC of requirements-cuda.lock, which compiles .cu files.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
MADE_BY = VENV / ".made-by"  # the Python that made .venv: its torch is the host's
DONE, DONE_DEV = VENV / ".installed", VENV / ".installed-dev"  # what make looks at
TRITON = "triton==3.9.0"
LEAST_PYTHON, LEAST_TORCH, LEAST_TRITON = (3, 11), (2, 11), (3, 6)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dev", action="store_true", help="the tools for test and lint, too")
    dev = options.parse_args().dev
    become_the_python_that_made_venv()
    check_python()
    host = host_torch()
    for stamp in (DONE, DONE_DEV):
        stamp.unlink(missing_ok=True)
    make_venv()
    pth = Path(output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))")) / "host-torch.pth"
    pth.unlink(missing_ok=True)  # pip should see .venv alone
    locks = ["requirements.lock"]
    if dev:
        locks.append("requirements-dev.lock")
    if not host:
        locks.append("requirements-torch.lock")
    if dev and not host:
        locks.append("requirements-cuda.lock")  # beside a host's torch it could be another version than its own
    print(f"Installing {', '.join(locks)} into .venv: a minute or two the first time", flush=True)
    pip(*[word for lock in locks for word in ("-r", str(ROOT / lock))])
    if host:
        pth.write_text("\n".join(host) + "\n")
    elif importable("triton") is None:
        pip(TRITON)
    write_bytecode()
    done = f"Ready: Python {output('-V').split()[-1]} in .venv; {which_torch(host)}\n"
    DONE.write_text(done)
    if dev:
        DONE_DEV.write_text(done)


def fail(sentence: str) -> NoReturn:
    sys.exit(f"install: {sentence}")


def become_the_python_that_made_venv() -> None:
    """Whatever python3 means in this shell (it may be .venv's own), .venv stays with the one that made it."""
    if not (MADE_BY.exists() and importable("pip")):
        if Path(sys.prefix).resolve() == VENV:
            fail(".venv is broken and its own Python cannot repair it: run `deactivate` and try again")
        return
    maker = MADE_BY.read_text().strip()
    if os.path.exists(maker) and maker != sys.executable:
        os.execv(maker, [maker, *sys.argv])


def check_python() -> None:
    if sys.version_info < LEAST_PYTHON:
        fail(
            f"Benchsite needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}; "
            "install one and name it: make install PYTHON=python3.12"
        )
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        fail(f"{sys.executable} cannot make virtual environments; as root: apt-get install python3-venv")


def host_torch() -> list[str]:
    """The folders that this Python finds torch, Triton and what they need in; empty when it has no torch."""
    if importlib.util.find_spec("torch") is None:
        return []
    try:
        import torch
    except Exception as error:
        fail(f"the torch of {sys.executable} cannot be imported ({error}); repair it, or choose another PYTHON=")
    check_version("torch", str(torch.__version__), LEAST_TORCH)
    found = [str(torch.__file__)]
    if importlib.util.find_spec("triton"):
        import triton

        check_version("triton", str(triton.__version__), LEAST_TRITON)
        found.append(str(triton.__file__))
    packages = [str(Path(path).resolve().parent.parent) for path in found]
    packages += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return list(dict.fromkeys(packages))


def check_version(package: str, version: str, least: tuple[int, int]) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < least:
        fail(
            f"{sys.executable} has {package} {version}, and Benchsite needs {least[0]}.{least[1]} or newer; "
            "upgrade it, or choose another Python with PYTHON= (one without torch gets its own)"
        )


def make_venv() -> None:
    if importable("pip"):
        return
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode:
        fail(f"{sys.executable} could not make {VENV}; its message is above (as root: apt-get install python3-venv)")
    MADE_BY.write_text(sys.executable + "\n")


def pip(*arguments: str) -> None:
    # Everything is pinned, so constraints that an image sets for its own packages are not for .venv.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    # Without --no-compile a fresh install takes a third longer, for files that are mostly never imported.
    options = ["--disable-pip-version-check", "--quiet", "--no-compile"]
    command = [str(PYTHON), "-m", "pip", "install", *options, *arguments]
    if subprocess.run(command, env=environment).returncode:
        fail("pip could not install everything; its message is above, and `make install` goes on from there")


def write_bytecode() -> None:
    """Of what the processes of a site import, which pip was told to leave. A measuring process writes none, so it would compile
    PyTorch's source each time that one starts; nor does anybody where PYTHONDONTWRITEBYTECODE is set, as in many containers."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"SECRET_KEY": "only-to-import", "DJANGO_SETTINGS_MODULE": "benchsite.settings"}
    for code in (
        "import torch._inductor.compile_fx",
        "import triton",
        "import django; django.setup(); import benchsite.urls",
        "import compileall; compileall.compile_dir('kernels', quiet=2)",
    ):
        subprocess.run(
            [str(PYTHON), "-c", code], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def importable(package: str) -> str | None:
    """The version of a package as .venv's Python imports it; None when it does not."""
    try:
        return output("-c", f"import {package}; print({package}.__version__)")
    except (OSError, subprocess.CalledProcessError):
        return None


def which_torch(host: list[str]) -> str:
    torch, triton = importable("torch"), importable("triton")
    if torch is None:
        fail(
            "torch was installed, but .venv/bin/python cannot import it; `.venv/bin/python -c 'import torch'` says why"
        )
    return f"torch {torch} and {f'Triton {triton}' if triton else 'no Triton'}, " + (
        f"this host's own in {host[0]}" if host else "installed there"
    )


def output(*arguments: str) -> str:
    done = subprocess.run([str(PYTHON), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return done.stdout.decode().strip()


if __name__ == "__main__":
    main()
