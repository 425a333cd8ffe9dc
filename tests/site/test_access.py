"""Who may see and do what: the team everything, a stranger nothing but the login; and nothing is changed by a GET."""

import re
from urllib.parse import quote

import pytest
from cast import signed_in, thorough
from daily import fill, look_at_all, repeated, step
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver, reverse
from django.utils import timezone

from kernels.contract.profile import Profile, Timeline
from runs.api.access import READS
from runs.api.files import FILE
from runs.models import ApiToken, Change, Import, KernelProfile, Run, Session, Share, StatusPage, Submission, TierScale
from runs.models.status_page import EVERY, KINDS

KERNEL = """from kernels.catalog import kernel

@kernel("swish", backend="pytorch")
def mine(x):
    return x * x.sigmoid()
"""
POSTED = (
    "acknowledge", "add_tag", "add_to_session", "cancel_run", "choose_mail", "confirm_record", "delete_import",
    "delete_tier_scale", "delete_webhook", "end_link", "end_schedule", "end_session", "end_status",
    "measure_submission", "pause_gpu", "person_reset", "person_role", "person_state", "pin_baseline", "profile_result",
    "recalibrate",
    "remove_from_session", "remove_tag", "repeat_run", "restore_run", "resume_gpu", "revoke_token", "set_target",
    "share_run", "share_session", "test_webhook", "unshare_run", "unshare_session", "withdraw_run",
)  # fmt: skip
PROFILE = Profile(key="k", kernel="sdpa", timeline=Timeline(call_ns=2.0, enqueue_ns=1.0))
EVERYTHING = [[kind, EVERY] for kind in KINDS]
WALLS = ("wall", "wall_frame", "wall_svg", "wall_json")
"""A status page, for whoever has its link."""
API = {"api_nowhere", "client"}
"""Without a session: tests/site/test_api.py."""


@pytest.fixture
def addresses(demo, gpu, measured):
    """Every page of the site, by its name in runs/urls.py."""
    result = demo.measurements.first().results.first()
    submission, _ = Submission.objects.store({"mine.py": KERNEL})
    reported = Session.objects.create(title="A reported effort")
    Run.objects.filter(pk=demo.pk).update(session=reported)
    KernelProfile.objects.create(
        run=demo, result=result, body=PROFILE.model_dump(mode="json"), table="aten::mm", trace=b"gzip"
    )
    (own,) = fill(gpu, repeated(1))
    run = thorough(measured(count=1))
    fill(gpu, step(9, 9, 1.06), "compiled")
    look_at_all()
    wall = Share.objects.all().make(
        signed_in("walter").user, page=StatusPage.objects.create(title="W", body=EVERYTHING)
    )
    mine = {
        **{name: [] for name in ("overview", "runs", "runs_csv", "runs_json", "new_run", "estimate", "tune")},
        **{name: [demo.pk] for name in ("run", "run_live", "run_csv", "run_json", "run_jsonl", "run_md", "run_yaml")},
        **{name: [demo.pk, demo.pk] for name in ("compare", "compare_csv", "compare_json", "compare_md")},
        "compare_with": [demo.pk],
        **{
            name: []
            for name in ("compare_many", "submit", "submissions", "tokens", "notices", "choose_mail", "api_docs")
        },
        **{name: [0] for name in ("test_webhook", "delete_webhook")},
        **{name: [submission.version] for name in ("submission", "measure_submission")},
        **{name: [] for name in ("results", "results_csv", "results_json", "results_jsonl")},
        **{name: [] for name in ("leaderboard", "leaderboard_csv", "leaderboard_json", "confirm_record")},
        "leaderboard_chart_json": ["fast"],
        "leaderboard_chart_svg": ["fast"],
        "leaderboard_chart_png": ["fast"],
        **{name: [demo.pk] for name in ("cancel_run", "repeat_run")},
        **{name: [] for name in ("changes", "changes_csv", "changes_json")},
        **{name: [1] for name in ("acknowledge", "end_schedule")},
        **{f"trend_{kind}": [Change.objects.get().pk] for kind in ("json", "svg", "png")},
        **{f"record_steps_{kind}": [run.measurements.get().workload.key] for kind in ("json", "svg", "png")},
        **{f"gpu_day_{kind}": [gpu.pk] for kind in ("json", "svg", "png")},
        **{
            name: ["attention", "sdpa-flash", own.measurements.get().workload.key]
            for name in (
                "kernel_marks_csv",
                "kernel_marks_json",
                "history_chart_json",
                "history_chart_svg",
                "history_chart_png",
            )
        },
        "chart_json": [demo.pk, "speedup"],
        "chart_svg": [demo.pk, "latency"],
        "chart_png": [demo.pk, "latency"],
        **{name: [demo.pk, result.pk] for name in ("result", "result_csv", "result_json", "profile_result")},
        **{f"result_profile_{kind}": [demo.pk, result.pk] for kind in ("json", "txt", "trace")},
        "result_chart_json": [demo.pk, result.pk, "samples"],
        "result_chart_svg": [demo.pk, result.pk, "rounds"],
        "result_chart_png": [demo.pk, result.pk, "rounds"],
        **{name: [] for name in ("kernels", "kernels_csv", "kernels_json")},
        **{name: ["attention", "sdpa"] for name in ("kernel", "kernel_csv", "kernel_json")},
        **{
            f"kernel_workload{kind}": ["attention", "sdpa", result.measurement.workload.key]
            for kind in ("", "_csv", "_json")
        },
        **{name: [] for name in ("tiers", "tiers_csv", "tiers_json", "new_tier_scale")},
        **{
            f"tier_workload{kind}": [result.measurement.workload.key, result.measurement.mode]
            for kind in ("", "_csv", "_json")
        },
        **{f"tiers_progress_{kind}": [] for kind in ("json", "svg", "png")},
        **{
            name: [result.measurement.workload.key, result.measurement.mode]
            for name in (
                "set_target",
                "pin_baseline",
                "ladder_chart_json",
                "ladder_chart_svg",
                "ladder_chart_png",
                "climb_chart_json",
                "climb_chart_svg",
                "climb_chart_png",
            )
        },
        **{name: [TierScale.objects.first().pk] for name in ("tier_scale", "delete_tier_scale")},
        **{name: [demo.pk] for name in ("share_run", "unshare_run")},
        **{name: [] for name in ("status", "new_status", "links")},
        **{name: [wall.page_id] for name in ("edit_status", "end_status")},
        "end_link": [wall.pk],
        **{name: [wall.token] for name in WALLS},
        **{name: [] for name in ("sessions", "new_session")},
        **{
            name: [Session.objects.create(title="An effort").pk]
            for name in ("session", "session_json", "session_md", "edit_session", "end_session", "add_to_session")
        },
        **{name: [reported.pk] for name in ("session_report", "session_html", "share_session", "unshare_session")},
        **{name: [reported.pk, "factors"] for name in ("session_chart_json", "session_chart_svg", "session_chart_png")},
        **{name: [demo.pk] for name in ("withdraw_run", "restore_run", "name_run", "add_tag", "remove_tag")},
        "remove_from_session": [Session.objects.first().pk, demo.pk],
        **{name: [] for name in ("glossary", "gpus", "gpus_csv", "gpus_json", "judge", "judge_json")},
        **{name: [gpu.pk] for name in ("gpu", "gpu_json", "recalibrate", "pause_gpu", "resume_gpu")},
        **{name: [] for name in ("imports", "people", "audit", "settings")},
        **{name: [wall.user_id] for name in ("person_role", "person_state", "person_reset")},
        "revoke_token": [0],
        **{
            name: [Import.objects.get_or_create(name="rows.csv", format="csv")[0].pk]
            for name in ("import", "import_csv", "import_json", "delete_import")
        },
    }
    charts = {
        f"compare_chart_{kind}": f"/compare/charts/speedup.{kind}?runs={demo.pk}&operation=attention"
        for kind in ("json", "svg", "png")
    }
    charts["compare_many_json"] = f"{reverse('compare_many_json')}?runs={demo.pk}"
    return {name: reverse(name, args=args) for name, args in mine.items()} | charts


def test_a_token_opens_every_file_and_no_page(addresses, viewer):
    """What pages show as charts and tables was closed to tokens."""
    _, token = ApiToken.objects.make(viewer.user, "r", writes=False, days=1)
    program = Client(headers={"Authorization": f"Bearer {token}"})
    files = {name for name, address in addresses.items() if FILE.search(address.partition("?")[0])}
    assert {"chart_json", "history_chart_png", "compare_many_json", "session_md", "run_yaml", "gpus_csv"} <= files
    for name, address in addresses.items():
        if name in WALLS:
            continue
        answer = program.get(address)
        if name not in files:
            assert answer.status_code == 405 or answer.url.startswith(reverse("login")), name
            continue
        assert answer.status_code == 200, name
        if name in ("run_json", "runs_csv", "chart_json"):
            other = program.get(address).content
            assert other == answer.content, name
            assert program.get(address, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304, name
        assert Client().get(address).url.startswith(reverse("login")), name
    posted = program.post(addresses["run_json"])
    assert posted.status_code != 200 and not Client().get(addresses["run_json"]).content


def test_a_token_for_a_file_is_checked_as_for_the_api(addresses, owner, monkeypatch):
    kept, token = ApiToken.objects.make(owner.user, "r", writes=False, days=1)
    program = Client(headers={"Authorization": f"Bearer {token}"})
    monkeypatch.setattr(READS, "most", 2)
    assert [program.get(addresses["runs_csv"]).status_code for _ in range(3)] == [200, 200, 429]
    assert int(program.get(addresses["runs_csv"]).headers["Retry-After"]) >= 1
    ApiToken.objects.filter(pk=kept.pk).update(expires_at=timezone.now())
    refused = program.get(addresses["runs_csv"])
    assert refused.status_code == 401 and "expired or revoked" in refused.json()["detail"]


def test_every_address_is_tried_here(addresses):
    ours = {key for key in get_resolver().reverse_dict if isinstance(key, str)}
    accounts = {"login", "logout", "password_change", "password_change_done"}
    for_machines = {"healthz", "healthz_part", "metrics"}  # test_monitoring says who may read what there
    assert ours - set(addresses) == accounts | for_machines | API


def test_pages_of_the_account_are_in_the_looks_of_the_site_and_have_titles(owner, stranger):
    titles = {"login": "Log in", "password_change": "Change password", "password_change_done": "Password changed"}
    for name, title in titles.items():
        page = (stranger if name == "login" else owner).get(reverse(name)).content.decode()
        assert f"<title>{title} · Benchsite</title>" in page
        assert 'class="brand"' in page
    assert stranger.get("/accounts/password_reset/").status_code == 404


def test_password_rules_are_a_list_that_the_field_names(owner):
    page = owner.get(reverse("password_change")).content.decode()
    rules = page.split('<div class="rules" id="id_new_password1_helptext">')[1].split("</div>")[0]
    assert rules.count("<li>") >= 2
    assert 'aria-describedby="id_new_password1_helptext"' in page
    wrong = owner.post(reverse("password_change"), {"old_password": "x", "new_password1": "a", "new_password2": "b"})
    assert wrong.content.count(b'class="errorlist"') >= 2


def test_every_page_offers_the_password_form_and_to_log_out_in_words(owner, gpu):
    for name in ("overview", "runs", "gpus", "password_change"):
        menu = owner.get(reverse(name)).content.decode().split('<details class="who">')[1].split("</details>")[0]
        assert "olga</summary>" in menu
        assert f'<a href="{reverse("password_change")}">Change password</a>' in menu
        assert f'<form action="{reverse("logout")}" method="post">' in menu


def test_a_stranger_is_sent_to_the_login_and_back(stranger, addresses):
    for name, address in addresses.items():
        if name in WALLS:
            continue
        for answer in (stranger.get(address), stranger.post(address)):
            assert answer.status_code == 302, name
            assert answer.url == f"{reverse('login')}?next={quote(address)}", name


def test_the_stranger_changed_nothing(stranger, make_run, gpu):
    run = make_run()
    stranger.post(reverse("cancel_run", args=[run.pk]))
    stranger.post(reverse("new_run"), {"device": gpu.pk})
    gpu.calibrations.create(ceilings={}, measured_at=timezone.now())
    stranger.post(reverse("recalibrate", args=[gpu.pk]))
    assert gpu.calibrations.exists()
    run.refresh_from_db()
    assert (run.state, Run.objects.count()) == ("queued", 1)


def test_logging_in_leads_back_to_the_page(stranger, demo):
    User.objects.create_user("nina", password="a long secret")
    page = reverse("run", args=[demo.pk])
    wrong = stranger.post(f"{reverse('login')}?next={page}", {"username": "nina", "password": "a guess", "next": page})
    assert b"Wrong username or password" in wrong.content
    right = stranger.post(reverse("login"), {"username": "nina", "password": "a long secret", "next": page})
    assert right.url == page
    away = stranger.post(reverse("login"), {"username": "nina", "password": "a long secret", "next": "//evil.example"})
    assert away.url == reverse("overview")


def test_a_post_without_its_token_is_refused(owner, make_run, gpu):
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(owner.user)
    run = make_run()
    measured = gpu.calibrations.create(ceilings={}, measured_at=timezone.now())
    again = reverse("recalibrate", args=[gpu.pk])
    for address in (reverse("cancel_run", args=[run.pk]), reverse("new_run"), reverse("logout"), again):
        assert careful.post(address).status_code == 403, address
    run.refresh_from_db()
    assert (run.state, Run.objects.count()) == ("queued", 1)
    assert gpu.calibrations.get() == measured


def test_a_cancel_is_a_post(owner, make_run):
    run = make_run()
    assert owner.get(reverse("cancel_run", args=[run.pk])).status_code == 405
    run.refresh_from_db()
    assert run.state == "queued"


def test_pages_may_run_no_script_but_the_sites_own_and_stand_in_no_frame(owner, addresses):
    answer = owner.get(addresses["run"])
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "script-src" not in policy, "only what default-src allows: no inline scripts, no eval"
    assert "frame-ancestors 'none'" in policy
    assert (answer["X-Frame-Options"], answer["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert b"<script>" not in answer.content
    assert b" onclick=" not in answer.content


@pytest.mark.parametrize(
    "address",
    [
        "/runs/999/", "/runs/999/live/", "/runs/999.csv", "/runs/999.json", "/runs/999.md", "/runs/999.yaml",
        "/runs/999/charts/speedup.svg", "/runs/999/results/1/", "/runs/99999999999999999999999/", "/runs/x/", "/no/",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_a_404_with_a_way_on(owner, address):
    answer = owner.get(address)
    assert answer.status_code == 404
    assert re.search(
        rb"<h1>There is (no run \d+|no result 1 in run 999|nothing at this address)\.</h1>", answer.content
    )
    assert b"Resolver404" not in answer.content
    assert b"matches the given query" not in answer.content
    assert reverse("runs").encode() in answer.content


def test_a_404_says_what_is_not_there(owner, demo, gpu):
    sentences = {
        "/runs/999/": "There is no run 999.",
        "/gpus/999/": "There is no device 999.",
        f"/runs/{demo.pk}/results/999999/": f"There is no result 999999 in run {demo.pk}.",
        "/no/such/page/": "There is nothing at this address.",
    }
    for path, sentence in sentences.items():
        assert f"<h1>{sentence}</h1>" in owner.get(path).content.decode(), path
    (wrong_chart,) = re.findall(rb"<h1>(.+)</h1>", owner.get(f"/runs/{demo.pk}/charts/nonsense.svg").content)
    assert wrong_chart.startswith(b"There is no chart")


def test_cancelling_what_does_not_exist_is_a_404(owner):
    assert owner.post("/runs/999/cancel/").status_code == 404
