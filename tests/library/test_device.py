"""One measurement at a time on a device, whoever asks; who waits says for whom."""

import os
import subprocess
import sys
import tempfile
import time

import pytest

from kernels.host.device import WAITS, find_device, locked, print_changes

HOLDER = """
import sys, time
from kernels.host.device import find_device, locked
with locked(find_device("cpu")):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


def test_who_waits_hears_which_process_holds_the_device(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "1.5"], stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert holder.stdout.readline() == b"held\n"
    begin = time.monotonic()
    with locked(find_device("cpu"), on_wait=print_changes()):
        waited = time.monotonic() - begin
    holder.wait()
    assert waited > 0.5
    assert capsys.readouterr().err == f"waits: process {holder.pid} is measuring on this device\n"


@pytest.mark.parametrize("written", [b"\x1b]0;gotcha\x07", b"-7", b"<b>1</b>", b"", b"12 34", "\u0661".encode()])
def test_what_another_user_wrote_into_the_lock_is_not_repeated(tmp_path, monkeypatch, written):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device, heard = find_device("cpu"), []
    with locked(device):
        (path,) = tmp_path.iterdir()
        path.write_bytes(written)
        with pytest.raises(InterruptedError), locked(device, lambda: bool(heard), heard.append):
            pass
    assert heard == [f"{WAITS}: another process is measuring on this device"]
