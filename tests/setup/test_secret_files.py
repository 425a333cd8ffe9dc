"""Secrets come from files, as Docker and systemd hand them over, and never show in an error."""

import pytest

from benchsite.secret_files import UnreadableSecret, into_environment, with_password


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "password").write_text("p@ss/word\n")
    return str(tmp_path / "password")


def test_a_secret_comes_from_its_file(secret):
    environ = {"SECRET_KEY_FILE": secret}
    into_environment(environ)
    assert environ["SECRET_KEY"] == "p@ss/word"


def test_a_password_is_joined_to_its_addresses(secret):
    environ = {
        "BROKER_PASSWORD_FILE": secret,
        "DATABASE_PASSWORD_FILE": secret,
        "REDIS_URL": "redis://redis:6379/0",
        "BROKER": "rediss://:own@broker:6379/0",
        "DATABASE_URL": "postgres://benchsite@postgres:5432/benchsite",
    }
    into_environment(environ)
    assert environ["REDIS_URL"] == "redis://:p%40ss%2Fword@redis:6379/0"
    assert environ["BROKER"] == "rediss://:own@broker:6379/0", "an address keeps the password that it has"
    assert environ["DATABASE_URL"] == "postgres://benchsite:p%40ss%2Fword@postgres:5432/benchsite"


def test_a_password_that_is_no_file_is_the_embedded_brokers_and_joins_nothing():
    environ = {"BROKER_PASSWORD": "embedded", "REDIS_URL": "redis://elsewhere:6379/0"}
    into_environment(environ)
    assert environ["REDIS_URL"] == "redis://elsewhere:6379/0"


@pytest.mark.parametrize("user", ("", "nina@", "nina:@"))
def test_users_of_an_address_stay(user):
    name = user.strip(":@")
    assert with_password(f"redis://{user}host:1/0", "x") == f"redis://{name}:x@host:1/0"


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UnreadableSecret, match=r"SECRET_KEY_FILE: .*/none cannot be read: No such file"):
        into_environment({"SECRET_KEY_FILE": str(tmp_path / "none")})
    with pytest.raises(UnreadableSecret, match=r"SECRET_KEY_FILE: .*/empty is empty"):
        into_environment({"SECRET_KEY_FILE": str(tmp_path / "empty")})
