"""What a newcomer may run into at `make up`: each fault is one sentence that says what to do."""

import os
import shutil
import stat

import pytest

from runs.hosting import checks, setup


def test_a_full_disk_says_how_much_is_free(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=7 * 2**20))
    with pytest.raises(checks.SetupError, match="has 7 MiB free; 500 MiB are needed"):
        checks.check_disk(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(checks.SetupError, match=r"cannot write in .*file/var.*BENCHSITE_VAR"):
        checks.check_disk(tmp_path / "file" / "var")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hush@127.0.0.1:1/0", "no broker answers at REDIS_URL=redis://127.0.0.1:1/0"),
        ("redis://127.0.0.1:port/0", "is not an address"),
    ],
)
def test_a_wrong_redis_url_is_said_without_its_password(url, said):
    with pytest.raises(checks.SetupError, match=said) as fault:
        checks.check_broker(url)
    assert "hush" not in str(fault.value)


def test_a_missing_compiler_is_a_note_and_no_fault(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C compiler (gcc)" in checks.check_compiler()


def test_the_secrets_are_for_their_owner_alone_and_stay(tmp_path, monkeypatch):
    path = tmp_path / "a folder" / "env"
    monkeypatch.setattr(setup, "ENV_FILE", path)
    monkeypatch.delenv("SECRET_KEY", raising=False)
    setup.write_env_file()
    first = path.read_text()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    setup.write_env_file()
    assert path.read_text() == first
    setup.remember("BROKER_PORT", "1234")
    setup.remember("BROKER_PORT", "4321")
    assert setup.env_value("BROKER_PORT") == "4321"
    assert path.read_text().startswith(first)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_what_an_earlier_version_made_readable_for_others_is_private_after_the_next_start(tmp_path):
    broker = tmp_path / "broker"
    broker.mkdir(mode=0o755)
    files = [tmp_path / "db.sqlite3", tmp_path / "db.sqlite3-wal", tmp_path / "beat"]
    for file in files:
        file.write_text("")
        file.chmod(0o644)
    setup.keep_private(tmp_path)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(broker.stat().st_mode) == 0o700
