"""A database to which every migration has been applied, as a file to copy. It is made once for this code, not by each process."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def database(folder):
    """The path of the file in this folder. What was made of other code is removed."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / f"{code()}.sqlite3"
        if not path.exists():
            for stale in folder.glob("*.sqlite3*"):
                stale.unlink()
            making = folder / "making.sqlite3"
            own = {"DATABASE_URL": f"sqlite:///{making}"}
            line = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
            subprocess.run(line, cwd=ROOT, env=os.environ | own, check=True)
            making.rename(path)
    return path


def code():
    """A hash of all that a migration may import, and of the packages' versions."""
    files = [path for room in ("benchsite", "kernels", "runs") for path in sorted((ROOT / room).rglob("*.py"))]
    found = hashlib.sha256(sys.version.encode())
    for path in (*files, ROOT / "requirements.lock"):
        found.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
    return found.hexdigest()[:16]
