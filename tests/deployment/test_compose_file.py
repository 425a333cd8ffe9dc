"""docker-compose.yml and the Dockerfile name only what exists, hide what is secret, and run nothing as root."""

import importlib.util
import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from compose import ROOT, check_words, read, stages, variables, words
from django.core.management import get_commands

from benchsite.secret_files import SECRETS
from runs.hosting import health

SITE = {"SITE_URL": "https://bench.example.org"}
SERVICES = read(**SITE)["services"]
OURS = [name for name, one in SERVICES.items() if "build" in one]
OF_IMAGES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE"}
SOURCES = "".join(p.read_text() for room in ("benchsite", "runs", "kernels") for p in (ROOT / room).rglob("*.py"))
FRONT = (ROOT / "deploy/Caddyfile").read_text()


def last(stage, instruction):
    """The last such instruction of a stage, or of the stage that it is made from."""
    own = [rest for name, rest in stages()[stage] if name == instruction]
    base = stages()[stage][0][1]
    return own[-1] if own else last(base, instruction) if base in stages() else ""


def command_of(service):
    one = SERVICES[service]
    return words(one["command"]) if "command" in one else json.loads(last(one["build"]["target"], "CMD"))


def test_the_parts_of_a_site_are_there():
    assert set(SERVICES) == {
        "setup", "front", "web", "recorder", "worker", "beat", "redis", "postgres", "agent",
    }  # fmt: skip


@pytest.mark.parametrize("service", OURS)
def test_every_command_exists_in_the_project(service):
    assert SERVICES[service]["build"]["target"] in stages()
    match command_of(service):
        case ["python", "manage.py", name]:
            assert get_commands().get(name) == "runs"
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module), module
        case ["celery", "-q", "-A", app, kind, *_]:
            assert importlib.util.find_spec(app) and kind in ("worker", "beat")
        case ["caddy", "run", "--config", path, "--adapter", "caddyfile"]:
            assert f"deploy/Caddyfile {path}" in [rest for name, rest in stages()["front"] if name == "COPY"]
        case other:
            pytest.fail(f"nobody knows the command {other}")


def test_what_is_copied_into_images_is_in_the_repository_and_nothing_secret_is():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for one in stages().values():
        for name, rest in one:
            if name == "COPY":
                for source in rest.split()[:-1]:
                    assert any(path == source or path.startswith(f"{source}/") for path in tracked), source
                    assert source not in (".", "secrets", "var", ".env")


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_read_by_somebody(service):
    for name in SERVICES[service].get("environment", {}):
        of_a_file = name.removesuffix("_FILE")
        known = of_a_file in SECRETS if name.endswith("_FILE") else f'"{name}"' in SOURCES or f"{{${name}" in FRONT
        assert known, name


def test_every_variable_to_choose_is_in_the_docs():
    docs = (ROOT / "docs/deployment.md").read_text()
    assert [name for name in variables() if f"`{name}`" not in docs] == []
    assert [name for name, default in variables().items() if default is None] == ["SITE_URL"]


def test_it_needs_an_address():
    with pytest.raises(KeyError, match=r"SITE_URL: write SITE_URL=https://\.\.\. into \.env"):
        read()


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "setup"])
def test_every_part_has_a_health_check_and_starts_again(service):
    one = SERVICES[service]
    assert one["restart"] == "unless-stopped"
    match check_words(one):
        case ["python", "-m", "runs.hosting.health", part]:
            assert part == service and part in health.PARTS
        case ["wget", *_, address]:
            assert address.endswith("/healthz/web") and "/healthz/*" in FRONT and "HEALTH_PORT:8081" in FRONT
        case ["sh", "-c", text]:
            assert re.search(r"redis-cli -e ping|pg_isready -U benchsite -d benchsite", text)


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_runs_as_root_or_can_become_root(service):
    one = SERVICES[service]
    user = one.get("user") or last(one["build"]["target"], "USER")
    assert user not in ("", "root", "0")
    assert one["cap_drop"] == ["ALL"] and one["security_opt"] == ["no-new-privileges:true"]


def test_secrets_are_files_that_are_made_and_never_values(tmp_path):
    whole = read(**SITE)
    subprocess.run([ROOT / "deploy/secrets.sh", tmp_path / "secrets"], check=True, capture_output=True)
    assert {Path(one["file"]).name for one in whole["secrets"].values()} == set(os.listdir(tmp_path / "secrets"))
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if value.startswith("/run/secrets/"):
                assert variable.endswith("_FILE") and value.split("/")[-1] in service["secrets"]
            assert not re.search(r"PASSWORD$|SECRET_KEY$|TOKEN$", variable), f"{name}: {variable} is not a file"
            assert not re.search(r"//[^/@]*:[^/@]+@", value), f"{name}: {variable} has a password"
        assert set(service.get("secrets", [])) <= set(whole["secrets"])


def test_secrets_are_made_once_in_a_folder_that_only_its_owner_enters(tmp_path):
    make = [ROOT / "deploy/secrets.sh", tmp_path / "secrets"]
    subprocess.run(make, check=True, capture_output=True)
    before = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    again = subprocess.run(make, check=True, capture_output=True, text=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == before and not again.stdout
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in before.values()) and len(set(before.values())) == 4
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_kernels_reach_the_broker_and_nothing_else():
    at = {name: set(one["networks"]) for name, one in SERVICES.items()}
    reached = {name for name in at if at[name] & at["agent"]} - {"agent"}
    assert reached == {"redis"}
    assert {name for name in at if at[name] & at["front"]} - {"front"} == {"web"}
    assert {name for name, one in SERVICES.items() if "ports" in one} == {"front", "redis"}
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["redis"]["ports"])


def test_the_agent_gets_gpus_and_keeps_its_journal():
    agent = SERVICES["agent"]
    assert agent["profiles"] == ["agent"]
    devices = agent["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert agent["volumes"] == ["agent:/app/var"] and "agent" in read(**SITE)["volumes"]


def test_the_broker_keeps_an_append_only_file_and_evicts_nothing():
    config = dict(
        line.split(None, 1) for line in (ROOT / "deploy/redis.conf").read_text().splitlines() if line[0] != "#"
    )
    assert config["appendonly"] == "yes" and config["maxmemory-policy"] == "noeviction" and config["save"] == '""'
    source = read(**SITE)["configs"][SERVICES["redis"]["configs"][0]["source"]]["file"]
    assert (ROOT / source).read_text().startswith("# The broker")


def test_logs_of_containers_are_capped():
    assert all(one["logging"]["options"] == {"max-size": "20m", "max-file": "5"} for one in SERVICES.values())


def test_only_what_can_wait_gives_way_on_a_busy_processor():
    """Nice counts within a container only: between containers it is their shares of the processor."""
    shares = {name: one["cpu_shares"] for name, one in SERVICES.items() if "cpu_shares" in one}
    assert shares == {"worker": 102} and "-Q site" in SERVICES["worker"]["command"]
