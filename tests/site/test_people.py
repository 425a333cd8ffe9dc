"""Admins add, shut out and let in people and give them roles, without /admin/; each person chooses time zone and theme."""

import re
import threading
import zoneinfo
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from cast import signed_in
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.models import ApiToken, Audit, Person, Role, Run
from runs.models.person import role_of
from runs.templatetags.figures import ago
from runs.views import people
from runs.views.result import deleted


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    cache.clear()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def text(answer):
    return answer.content.decode()


def login(name, password):
    client = Client()
    return client, client.post(reverse("login"), {"username": name, "password": password})


def shown_password(page):
    return re.search(r'data-link readonly value="([^"]+)"', page)[1]


def test_an_admin_adds_somebody_whose_password_is_shown_once(admin):
    answer = admin.post(reverse("people"), {"username": "nina", "role": "viewer"})
    assert "no-store" in answer["Cache-Control"]
    password = shown_password(text(answer))
    assert password not in text(admin.get(reverse("people")))
    client, logged_in = login("nina", password)
    assert logged_in.status_code == 302 and client.get(reverse("runs")).status_code == 200
    assert role_of(User.objects.get(username="nina")) == Role.VIEWER


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"username": "ADA"}, "There is an account with this name already: choose another name."),
        ({"username": ""}, "This field is required."),
        ({"username": "a b<script>"}, "Enter a valid username"),
        ({"role": "king"}, "not one of the available choices"),
    ],
)
def test_a_wrong_form_adds_nobody(admin, wrong, said):
    answer = admin.post(reverse("people"), {"username": "nina", "role": "viewer"} | wrong)
    assert answer.status_code == 422 and said in text(answer)
    assert User.objects.count() == 1


def test_a_role_holds_at_once(admin, member, gpu):
    assert member.get(reverse("new_run")).status_code == 200
    admin.post(reverse("person_role", args=[member.user.pk]), {"role": "viewer"})
    assert member.get(reverse("new_run")).status_code == 403
    admin.post(reverse("person_role", args=[member.user.pk]), {"role": "admin"})
    assert member.get(reverse("people")).status_code == 200
    assert admin.post(reverse("person_role", args=[member.user.pk]), {"role": "king"}, follow=True).status_code == 200
    assert Person.objects.get(user=member.user).role == "admin"


def test_who_is_shut_out_is_out_with_tokens_and_links_remain(admin, member, make_run):
    run = make_run(user=member.user)
    _, token = ApiToken.objects.make(member.user, "t", writes=True, days=1)
    admin.post(reverse("person_state", args=[member.user.pk]))
    assert member.get(reverse("runs")).status_code == 302, "the login that there was ends, too"
    assert Client().get("/api/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert "disabled</small>" in text(admin.get(reverse("people")))
    assert Run.objects.get(pk=run.pk).user == member.user
    admin.post(reverse("person_state", args=[member.user.pk]))
    assert Client().get("/api/me", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    kinds = [one.kind for one in Audit.objects.filter(name="ada").order_by("pk")]
    assert kinds == ["person disabled", "person enabled"]


def test_a_new_password_replaces_the_old_one_and_ends_logins(admin):
    User.objects.create_user("nina", password="a long secret")
    client, _ = login("nina", "a long secret")
    answer = admin.post(reverse("person_reset", args=[User.objects.get(username="nina").pk]))
    assert client.get(reverse("runs")).status_code == 302
    assert login("nina", "a long secret")[1].status_code == 200
    assert login("nina", shown_password(text(answer)))[1].status_code == 302
    assert Audit.objects.get(kind=Audit.Kind.RESET).what == "nina"


def test_only_a_superuser_gives_a_superuser_a_new_password(admin):
    boss = User.objects.create_superuser("boss", password="a long secret")
    page = text(admin.post(reverse("person_reset", args=[boss.pk]), follow=True))
    assert "boss is a superuser: only a superuser gives it a new password" in page
    client, answer = login("boss", "a long secret")
    assert answer.status_code == 302
    answer = client.post(reverse("person_reset", args=[boss.pk]))
    assert login("boss", shown_password(text(answer)))[1].status_code == 302


def test_a_name_that_is_taken_at_the_same_moment_is_told(admin, monkeypatch):
    User.objects.create_user("nina", password="a long secret")
    monkeypatch.setattr("runs.views.people.AddForm.clean_username", lambda form: form.cleaned_data["username"])
    answer = admin.post(reverse("people"), {"username": "nina", "role": "viewer"})
    assert answer.status_code == 422 and "There is an account with this name already" in text(answer)


def test_the_only_admin_stays_one(admin):
    for name, sent in (("person_role", {"role": "viewer"}), ("person_state", {})):
        page = text(admin.post(reverse(name, args=[admin.user.pk]), sent, follow=True))
        assert "ada is the only admin: make somebody else an admin first." in page
    other = signed_in("otto", Role.ADMIN)
    admin.post(reverse("person_role", args=[admin.user.pk]), {"role": "viewer"})
    assert other.get(reverse("people")).status_code == 200 and admin.get(reverse("people")).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_two_admins_cannot_take_their_roles_from_each_other_at_once(admin, monkeypatch):
    other, both, counted = signed_in("otto", Role.ADMIN), threading.Barrier(2, timeout=1), people._admins

    def slowly():
        found = counted()
        with suppress(threading.BrokenBarrierError):
            both.wait()
        return found

    def take_from(one, another):
        answers.append(one.post(reverse("person_role", args=[another.user.pk]), {"role": "viewer"}).status_code)
        connection.close()

    answers = []
    monkeypatch.setattr(people, "_admins", slowly)
    threads = [threading.Thread(target=take_from, args=pair) for pair in ((admin, other), (other, admin))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted() == 1
    assert sorted(answers) == [302, 403] or answers == [302, 302], "no error, as of a deadlock"


def test_a_superuser_that_is_disabled_is_listed_as_an_admin_and_may_lose_the_role(admin):
    boss = User.objects.create_superuser("boss")
    Person.objects.filter(user=boss).update(role=Role.ENGINEER)
    admin.post(reverse("person_state", args=[boss.pk]))
    row = next(row for row in admin.get(reverse("people")).context["rows"] if row["one"] == boss)
    assert row["role"] == Role.ADMIN
    admin.post(reverse("person_role", args=[boss.pk]), {"role": "engineer"})
    admin.post(reverse("person_state", args=[boss.pk]))
    assert role_of(User.objects.get(pk=boss.pk)) == Role.ENGINEER


def test_an_account_without_a_row_of_its_own_gets_a_role(admin):
    """As accounts of an old backup may be."""
    nina = User.objects.create(username="nina")
    Person.objects.filter(user=nina).delete()
    assert admin.get(reverse("people")).status_code == 200
    admin.post(reverse("person_role", args=[nina.pk]), {"role": "engineer"})
    assert role_of(User.objects.get(pk=nina.pk)) == Role.ENGINEER


def test_a_superuser_that_is_no_admin_any_more_is_no_superuser(admin):
    boss = User.objects.create_superuser("boss")
    admin.post(reverse("person_role", args=[boss.pk]), {"role": "engineer"})
    boss = User.objects.get(pk=boss.pk)
    assert (boss.is_superuser, boss.is_staff, role_of(boss)) == (False, False, Role.ENGINEER)


def test_a_thousand_people_are_a_few_queries(admin, django_assert_max_num_queries):
    for number in range(60):
        User.objects.create(username=f"person-{number}")
    with django_assert_max_num_queries(12):
        assert "61 people have an account" in text(admin.get(reverse("people")))


def test_all_people_are_listed_page_by_page(admin, monkeypatch):
    monkeypatch.setattr(people, "PER_PAGE", 2)
    for number in range(4):
        User.objects.create(username=f"person-{number}")
    pages = [text(admin.get(reverse("people"), {"page": page})) for page in (1, 2, 3)]
    assert all("<h1>5 people have an account</h1>" in page for page in pages)
    assert [page.count("New password for") for page in pages] == [2, 2, 1] and "page 2 of 3" in pages[1]


# --- settings -----------------------------------------------------------------------------------------------------------


def test_times_are_those_of_the_persons_place(member, owner, admin):
    Audit.objects.note(admin.user, Audit.Kind.LAUNCHED, "run 1")
    Audit.objects.update(at=datetime(2026, 11, 23, 18, 0, tzinfo=UTC))
    assert "2026-11-23 18:00 UTC" in text(admin.get(reverse("audit")))
    assert admin.post(reverse("settings"), {"time_zone": "Asia/Tokyo", "theme": ""}).status_code == 302
    assert "2026-11-24 03:00 JST" in text(admin.get(reverse("audit")))
    Person.objects.filter(user=owner.user).update(role=Role.ADMIN)
    assert "2026-11-23 18:00 UTC" in text(owner.get(reverse("audit"))), "nobody else's"


def test_a_day_is_that_of_the_persons_place():
    when = datetime(2025, 11, 23, 18, tzinfo=UTC)
    with timezone.override("Asia/Tokyo"):
        assert ago(when) == "2025-11-24" and "on 2025-11-24" in deleted(when)


def test_a_theme_is_the_persons_own(member, owner):
    assert "data-theme" not in text(member.get(reverse("runs")))
    member.post(reverse("settings"), {"time_zone": "", "theme": "dark"})
    assert '<html lang="en" data-theme="dark">' in text(member.get(reverse("runs")))
    assert "data-theme" not in text(owner.get(reverse("runs")))
    member.post(reverse("settings"), {"time_zone": "", "theme": ""})
    assert "data-theme" not in text(member.get(reverse("runs")))


@pytest.mark.parametrize("wrong", [{"time_zone": "Mars/Olympus"}, {"theme": "purple"}])
def test_a_wrong_setting_is_refused(member, wrong):
    assert member.post(reverse("settings"), {"time_zone": "", "theme": ""} | wrong).status_code == 422
    person = Person.objects.get(user=member.user)
    assert (person.time_zone, person.theme) == ("", "")


@pytest.mark.parametrize("gone", ["Mars/Olympus", "../Mars", "Asia"])
def test_a_place_that_is_gone_breaks_no_page(member, gone):
    Person.objects.filter(user=member.user).update(time_zone=gone)
    assert member.get(reverse("runs")).status_code == 200


@pytest.mark.parametrize("zone", ["", "Asia/Tokyo"])
def test_a_page_does_not_list_all_places(member, monkeypatch, zone):
    """It reads hundreds of files: 10 ms of each request."""
    Person.objects.filter(user=member.user).update(time_zone=zone)
    listed = []
    monkeypatch.setattr(zoneinfo, "available_timezones", lambda: listed.append(1) or {"Asia/Tokyo"})
    assert member.get(reverse("runs")).status_code == 200
    assert not listed
