"""What each role may do at each address: a table of what needs more than to be logged in."""

import json
import re

import pytest
from cast import signed_in
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from selection import telling
from test_access import POSTED, WALLS, addresses  # noqa: F401  (a fixture)

from runs.api.site import api
from runs.models import ApiToken, Audit, Person, Role, Run, Share
from runs.models.person import may, role_of

ADMINS = {"people", "person_role", "person_state", "person_reset", "audit"}
OF_THEIR_RUN = {"cancel_run", "withdraw_run", "restore_run"}
"""For who launched it, and admins. The runs here are of nobody."""
FORMS = {
    "new_run",
    "tune",
    "estimate",
    "submit",
    "new_session",
    "edit_session",
    "new_status",
    "edit_status",
    "new_tier_scale",
    "name_run",
}
QUESTIONS = {
    "compare_with",
    "compare_many",
    "judge",
    "tokens",
    "revoke_token",
    "settings",
    "choose_mail",
    "delete_webhook",
}
"""What a viewer may post: nothing of it changes what others see."""
ROLES = list(Role)
NUMBERS = ("pk", "before", "after", "result")
"""Parameters of the API's paths that are numbers."""


def least(name, method):
    """The role that an address needs."""
    if name in ADMINS or (name in OF_THEIR_RUN and method == "post"):
        return Role.ADMIN
    if name in FORMS or (method == "post" and name not in QUESTIONS):
        return Role.ENGINEER
    return Role.VIEWER


@pytest.mark.parametrize(
    "role", telling(ROLES, Role.VIEWER, why="every address as engineer and admin: `make test` has viewers")
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_each_role_at_each_address(role, method, gpu, configs, addresses):  # noqa: F811
    person = signed_in("petra", role)
    wrong = {}
    for name, address in addresses.items():
        if name in WALLS:
            continue
        status = getattr(person, method)(address).status_code
        allowed = ROLES.index(role) >= ROLES.index(least(name, method))
        if not allowed:
            fine = status == 403
        elif method == "get":
            fine = status == (405 if name in POSTED else 200)
        else:
            fine = status < 500 and status != 403
        if not fine:
            wrong[name] = status
    assert wrong == {}


def test_a_stranger_posts_nothing(stranger, addresses):  # noqa: F811
    before = Audit.objects.count()
    for name, address in addresses.items():
        if name not in WALLS:
            assert stranger.post(address).url.startswith(reverse("login")), name
    assert Audit.objects.count() == before


# --- the API ------------------------------------------------------------------------------------------------------------


def operations():
    """(method, path) of everything in the API's document, with something in the place of its parameters."""
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method in methods:
            yield method, re.sub(r"\{(\w+)\}", lambda found: "1" if found[1] in NUMBERS else "x", path)


def called(method, path, token=""):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if method == "get":
        return Client().get(path, headers=headers)
    return Client().post(path, json.dumps({}), content_type="application/json", headers=headers)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_at_each_route_of_the_api(role, gpu):
    person = signed_in("petra", role)
    _, reads = ApiToken.objects.make(person.user, "r", writes=False, days=1)
    _, writes = ApiToken.objects.make(person.user, "w", writes=True, days=1)
    routes = list(operations())
    assert {method for method, _ in routes} >= {"get", "post"}
    for method, path in routes:
        assert called(method, path).status_code == 401, path
        changes = method == "post" and "/gate" not in path
        needed = Role.ADMIN if path in ("/api/audit", "/api/people") else Role.ENGINEER if changes else Role.VIEWER
        allowed = may(person.user, needed)
        assert (called(method, path, writes).status_code == 403) == (not allowed), path
        if changes:
            assert called(method, path, reads).status_code == 403, path


def test_a_token_has_the_role_that_its_person_has_now(gpu, make_run):
    person = signed_in("petra")
    run = make_run(user=person.user)
    _, token = ApiToken.objects.make(person.user, "w", writes=True, days=1)
    Person.objects.filter(user=person.user).update(role=Role.VIEWER)
    answer = called("post", f"/api/runs/{run.pk}/cancel", token)
    assert answer.status_code == 403 and "viewer" in answer.content.decode()
    Person.objects.filter(user=person.user).update(role=Role.ENGINEER)
    assert called("post", f"/api/runs/{run.pk}/cancel", token).status_code == 200


def test_who_launched_a_run_cancels_it_by_the_api_or_an_admin(gpu, make_run, owner, member, admin):
    for person, status in ((member, 403), (owner, 200), (admin, 200)):
        run = make_run()
        _, token = ApiToken.objects.make(person.user, "w", writes=True, days=1)
        assert called("post", f"/api/runs/{run.pk}/cancel", token).status_code == status
        run.refresh_from_db()
        assert (run.state == Run.State.CANCELLED) == (status == 200)


def test_a_viewer_makes_tokens_that_read(viewer):
    form = {"name": "x", "days": "7", "rights": "write"}
    assert viewer.post(reverse("tokens"), form).status_code == 422
    assert viewer.post(reverse("tokens"), form | {"rights": "read"}).status_code == 200
    assert not ApiToken.objects.get().writes


# --- own runs -----------------------------------------------------------------------------------------------------------


def test_only_the_submitter_or_an_admin_cancels(owner, member, viewer, admin, make_run):
    run = make_run()
    cancel = reverse("cancel_run", args=[run.pk])
    for person in (member, viewer):
        answer = person.post(cancel)
        assert answer.status_code == 403
        assert "Cancel</button>" not in person.get(run.get_absolute_url()).content.decode()
    assert (
        f"Only the person who launched run {run.pk}, or an admin, can cancel it."
        in member.post(cancel).content.decode()
    )
    assert "Cancel</button>" in owner.get(run.get_absolute_url()).content.decode()
    assert owner.post(cancel).status_code == 302
    run.refresh_from_db()
    assert run.state == Run.State.CANCELLED
    other = make_run()
    assert admin.post(reverse("cancel_run", args=[other.pk])).status_code == 302
    assert [(one.name, one.what) for one in Audit.objects.filter(kind=Audit.Kind.CANCELLED)] == [
        ("ada", f"run {other.pk}: A run"), ("olga", f"run {run.pk}: A run"),
    ]  # fmt: skip


def test_only_the_submitter_or_an_admin_withdraws_and_restores(owner, member, admin, measured):
    run = measured(count=1)
    Run.objects.filter(pk=run.pk).update(user=owner.user)
    withdraw, restore = (reverse(name, args=[run.pk]) for name in ("withdraw_run", "restore_run"))
    assert member.post(withdraw, {"why": "wrong clock"}).status_code == 403
    assert "Withdraw this run" not in member.get(run.get_absolute_url()).content.decode()
    assert "Withdraw this run" in owner.get(run.get_absolute_url()).content.decode()
    assert owner.post(withdraw, {"why": "wrong clock"}).status_code == 302
    assert member.post(restore).status_code == 403
    assert Run.objects.get(pk=run.pk).withdrawn_at
    assert admin.post(restore).status_code == 302
    assert not Run.objects.get(pk=run.pk).withdrawn_at


def test_a_run_of_nobody_is_of_admins(member, admin, make_run):
    run = make_run(user=None)
    assert member.post(reverse("cancel_run", args=[run.pk])).status_code == 403
    assert admin.post(reverse("cancel_run", args=[run.pk])).status_code == 302


def test_a_viewer_sees_no_form_that_would_be_refused(viewer, demo, gpu):
    page = viewer.get(demo.get_absolute_url()).content.decode()
    assert 'class="viewer"' in page and ">New run</a>" not in page
    assert "Your role is viewer" in viewer.get(reverse("new_run")).content.decode()


def test_superusers_are_admins_and_closed_accounts_are_nothing(db):
    boss = User.objects.create_superuser("boss")
    assert role_of(boss) == Role.ADMIN and boss.person.role == Role.ADMIN
    boss.is_active = False
    assert role_of(boss) is None and not may(boss, Role.VIEWER)


# --- the audit log ------------------------------------------------------------------------------------------------------


def test_the_log_has_what_was_done_and_by_whom(owner, member, admin, make_run, demo, gpu):
    run = make_run()
    owner.post(reverse("share_run", args=[demo.pk]))
    member.post(reverse("end_link", args=[Share.objects.get().pk]))
    owner.post(reverse("tokens"), {"name": "laptop", "days": "7", "rights": "write"})
    owner.post(reverse("revoke_token", args=[ApiToken.objects.get().pk]))
    owner.post(reverse("imports"), {"text": "workload,kernel,p50_ms\ngemm fp16 M=8 N=16 K=32,a,1\n", "about": ""})
    admin.post(reverse("person_role", args=[member.user.pk]), {"role": "viewer"})
    logged = [(one.name, one.kind) for one in Audit.objects.order_by("pk")]
    assert logged == [
        ("olga", "launched"), ("olga", "shared"), ("mats", "revoked"), ("olga", "token made"), ("olga", "revoked"),
        ("olga", "imported"), ("ada", "role changed"),
    ]  # fmt: skip
    lines = admin.get("/api/audit").json()["lines"]
    assert [(one["who"], one["kind"]) for one in reversed(lines)] == logged
    assert admin.get("/api/audit", {"kind": "shared"}).json()["lines"][0]["url"].endswith(demo.get_absolute_url())
    assert admin.get("/api/audit", {"kind": "nosuch"}).status_code == 422
    page = admin.get(reverse("audit")).content.decode()
    assert f'<a href="{run.get_absolute_url()}">run {run.pk}: A run</a>' in page
    assert "mats: engineer to viewer" in page and f"the link to run {demo.pk}" in page
    narrowed = admin.get(reverse("audit"), {"kind": "revoked", "who": "mats"}).content.decode()
    assert narrowed.count('data-label="by"') == 1


def test_the_log_goes_on_page_by_page(admin, django_assert_max_num_queries):
    for number in range(150):
        Audit.objects.note(admin.user, Audit.Kind.LAUNCHED, f"run {number}")
    with django_assert_max_num_queries(12):
        first = admin.get(reverse("audit")).content.decode()
    assert first.count('data-label="by"') == 100
    oldest = Audit.objects.order_by("-pk")[99].pk
    second = admin.get(reverse("audit"), {"before": oldest}).content.decode()
    assert second.count('data-label="by"') == 50


def test_a_name_stays_in_the_log_when_the_account_goes(admin, member):
    Audit.objects.note(member.user, Audit.Kind.LAUNCHED, "run 1")
    member.user.delete()
    assert "mats" in admin.get(reverse("audit")).content.decode()
