"""Wrong passwords are few in ten minutes; who knows the right one, and everybody else, is not kept out."""

import time

import pytest
from django import conf
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from runs import logins

SECRET = "a long secret"
AS_CONFIGURED = conf.settings.CACHES["default"]
"""Before a fixture gives each test a cache of its own."""


@pytest.fixture(autouse=True)
def nobody_yet(db, settings):
    cache.clear()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.create_user("nina", password=SECRET)
    User.objects.create_superuser("otto", password=SECRET)
    yield
    cache.clear()


def post(name, password, address="10.0.0.1", to=None):
    data = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post(to or reverse("login"), data)


WRONG = 10
"""Wrong passwords for one name that are too many."""


def test_after_ten_wrong_passwords_even_the_right_one_waits(monkeypatch):
    for _ in range(WRONG - 1):
        assert "Wrong username or password." in post("nina", "a guess").content.decode()
    assert post("nina", "a guess").status_code == 429
    hashed = []
    monkeypatch.setattr(logins.Accounts, "authenticate", lambda *asked, **more: hashed.append(asked))
    answer = post("Nina", SECRET)
    assert answer.status_code == 429
    assert "Too many wrong passwords. Wait 10 minutes, then try again." in answer.content.decode()
    assert not hashed, "no password is computed any more"


def test_who_waits_is_not_forgotten_among_a_thousand_others(settings, tmp_path):
    """As Django's cache does: when it is full it forgets any third of its entries."""
    settings.CACHES = {"default": AS_CONFIGURED | {"LOCATION": tmp_path}}
    for _ in range(WRONG):
        post("nina", "a guess")
    for number in range(1000):
        cache.set(f"other-{number}", 1, 600)
    assert post("nina", SECRET).status_code == 429


def test_others_and_other_addresses_log_in_meanwhile():
    for _ in range(WRONG):
        post("nina", "a guess")
    assert post("otto", SECRET).status_code == 302
    assert post("nina", SECRET, "10.0.0.2").status_code == 302


def test_ten_minutes_later_the_right_password_is_right_again(monkeypatch):
    for _ in range(WRONG):
        post("nina", "a guess")
    assert post("nina", SECRET).status_code == 429
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert post("nina", SECRET).status_code == 302


def test_a_closed_account_does_not_log_in_and_is_logged_out():
    client = Client()
    client.force_login(User.objects.get(username="nina"))
    assert client.get(reverse("runs")).status_code == 200
    User.objects.filter(username="nina").update(is_active=False)
    assert client.get(reverse("runs")).status_code == 302
    assert "Wrong username or password." in post("nina", SECRET).content.decode()


def test_an_address_has_a_limit_for_all_names_together():
    for number in range(logins.MOST_OF_AN_ADDRESS):
        post(f"name {number}", "a guess")
    assert "Too many wrong passwords." in post("nina", SECRET).content.decode()


def test_the_right_password_begins_the_count_anew():
    for _ in range(3):
        for _ in range(WRONG - 1):
            post("nina", "a guess")
        assert post("nina", SECRET).status_code == 302


def test_the_admin_has_no_login_of_its_own():
    answer = post("otto", SECRET, to=reverse("admin:login") + "?next=/admin/")
    assert (answer.status_code, answer.url) == (302, f"{reverse('login')}?next=/admin/")
    client = Client()
    client.post(answer.url, {"username": "otto", "password": SECRET, "next": "/admin/"})
    assert client.get("/admin/").status_code == 200
