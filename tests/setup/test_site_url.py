"""SITE_URL alone decides on TLS, cookies, hosts and origins; with it `manage.py check --deploy` has nothing to say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEY = "of-64-characters-as-the-docs-say-0123456789-abcdefghijklmnopqrst"
HOSTS = ["ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS"]
TLS = ["SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS"]
ASKED = [*HOSTS, *TLS]


def python(*words, **env):
    own = {"SECRET_KEY": KEY, "SITE_URL": "", "ALLOWED_HOSTS": "", "CSRF_TRUSTED_ORIGINS": ""}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=os.environ | own | env, capture_output=True, text=True, timeout=120
    )


def settings_with(**env):
    code = f"import json; from django.conf import settings; print(json.dumps([getattr(settings, n) for n in {ASKED}]))"
    done = python("-c", code, **env)
    assert done.returncode == 0, done.stderr
    return dict(zip(ASKED, json.loads(done.stdout), strict=True))


def test_check_deploy_is_clean_behind_tls():
    done = python("manage.py", "check", "--deploy", "--fail-level", "WARNING", SITE_URL="https://bench.example.org")
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_check_deploy_says_what_is_open_without_tls():
    done = python("manage.py", "check", "--deploy", "--fail-level", "WARNING")
    assert done.returncode
    assert {"security.W004", "security.W008", "security.W012", "security.W016"} <= {
        word.strip("():") for word in done.stderr.split()
    }


def test_an_https_address_closes_cookies_and_hosts():
    found = settings_with(SITE_URL="https://bench.example.org:8443/")
    assert found["ALLOWED_HOSTS"] == ["bench.example.org", "localhost", "127.0.0.1", "[::1]"]
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://bench.example.org:8443"]
    assert found["SECURE_SSL_REDIRECT"] and found["SESSION_COOKIE_SECURE"] and found["CSRF_COOKIE_SECURE"]
    assert found["SECURE_HSTS_SECONDS"] == 365 * 24 * 3600


def test_without_an_address_make_up_stays_as_open_as_it_was():
    found = settings_with()
    assert found["ALLOWED_HOSTS"] == ["*"] and found["CSRF_TRUSTED_ORIGINS"] == []
    assert not any(found[name] for name in TLS)


def test_hosts_can_still_be_named_one_by_one():
    found = settings_with(SITE_URL="https://bench.example.org", ALLOWED_HOSTS="a.example.org,b.example.org")
    assert found["ALLOWED_HOSTS"] == ["a.example.org", "b.example.org"]


@pytest.mark.parametrize("wrong", ("bench.example.org", "https://", "https://bench.example.org/site", "ftp://x"))
def test_an_address_that_is_none_is_refused_with_a_sentence(wrong):
    done = python("manage.py", "check", SITE_URL=wrong)
    assert done.returncode
    assert "SITE_URL must be an address such as https://bench.example.org, not" in done.stderr
