"""Secret links: who has one sees one run, or the status page, and nothing else; the status page itself."""

import re
from datetime import timedelta

import pytest
from cast import signed_in
from django.contrib.sessions.models import Session as DatabaseSession
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.access import COOKIE, MOST_LINKS, OF_A_RUN
from runs.models import Run, Share
from runs.tasks import purge_logins


@pytest.fixture
def shared(owner, demo):
    """The address of the demo, as its link says it."""
    owner.post(reverse("share_run", args=[demo.pk]))
    return Share.objects.get().get_absolute_url()


def addresses_of(run):
    result = run.measurements.first().results.get(kernel__name="triton-flash")
    more = {"chart_json": ["speedup"], "chart_svg": ["speedup"]}
    more |= {name: [result.pk] for name in ("result", "result_csv", "result_json")}
    more |= {name: [result.pk, "samples"] for name in ("result_chart_json", "result_chart_svg")}
    return {name: reverse(name, args=[run.pk, *more.get(name, [])]) for name in OF_A_RUN}


def links_of(page):
    return {
        link for link in re.findall(r'(?:href|action|hx-get|src)="([^"#?]+)', page) if not link.startswith("/static/")
    }


# --- a run ------------------------------------------------------------------------------------------------------------


def test_the_team_makes_a_link_gives_it_away_and_ends_it(owner, stranger, demo):
    page = owner.get(demo.get_absolute_url()).content.decode()
    assert f'action="{reverse("share_run", args=[demo.pk])}"' in page
    assert "Anyone with this link" not in page
    page = owner.post(reverse("share_run", args=[demo.pk]), follow=True).content.decode()
    link = re.search(r'value="http://testserver([^"]+)" data-link', page)[1]
    assert "Anyone with this link can see this run with its results, sources and logs without an account" in page
    answer = stranger.get(link)
    assert (answer.status_code, answer.headers["X-Robots-Tag"]) == (200, "noindex")
    owner.post(reverse("unshare_run", args=[demo.pk]))
    for address in (link, demo.get_absolute_url()):
        assert stranger.get(address).status_code == 302, "a link that was ended opens nothing, to nobody"


def test_asking_twice_gives_the_same_link(owner, demo):
    links = set()
    for _ in range(2):
        owner.post(reverse("share_run", args=[demo.pk]))
        links.add(Share.objects.get().get_absolute_url())
    assert len(links) == 1


def test_a_link_opens_every_page_of_its_run_and_remembers_it(stranger, demo, shared):
    for name, address in addresses_of(demo).items():
        assert stranger.get(address).status_code == 302, name
    assert stranger.get(shared).status_code == 200
    for name, address in addresses_of(demo).items():
        assert stranger.get(address).status_code == 200, name


def test_files_open_by_the_link_alone_for_programs_without_cookies(demo, shared):
    token = shared.split("=")[1]
    for name, address in addresses_of(demo).items():
        assert Client().get(address, {"share": token}).status_code == 200, name


def test_every_click_on_a_shared_page_does_something(stranger, demo, shared):
    """No link of a shared run or result leads to the login, but the one that says so."""
    page = stranger.get(shared).content.decode()
    result = stranger.get(addresses_of(demo)["result"]).content.decode()
    for address in sorted(links_of(page) | links_of(result)):
        answer = stranger.get(address)
        home = address in ("/", reverse("login"))
        assert answer.status_code == (200 if address == reverse("login") else 302 if home else 200), address
    assert "shared by link" in page
    assert 'method="post"' not in page


def test_a_link_opens_nothing_else(stranger, demo, shared, measured, gpu):
    other = measured(count=1)
    stranger.get(shared)
    token = shared.split("=")[1]
    for name, args in (
        ("run", [other.pk]), ("run_json", [other.pk]), ("overview", []), ("runs", []), ("status", []), ("gpu", [gpu.pk]),
        ("compare", [demo.pk, other.pk]), ("kernels", []), ("tiers", []), ("new_run", []),
    ):  # fmt: skip
        assert stranger.get(reverse(name, args=args), {"share": token}).status_code == 302, name


def test_a_link_changes_nothing(stranger, owner, make_run):
    run = make_run()
    owner.post(reverse("share_run", args=[run.pk]))
    link = Share.objects.get().get_absolute_url()
    assert "Cancel</button>" not in stranger.get(link).content.decode()
    for name in ("cancel_run", "share_run", "unshare_run"):
        assert stranger.post(reverse(name, args=[run.pk])).status_code == 302
    assert stranger.post(link).status_code == 302
    assert Share.objects.exists()
    run.refresh_from_db()
    assert (run.state, run.cancel_requested) == (Run.State.QUEUED, False)


@pytest.mark.parametrize("token", ["", "x", "%00", "A" * 32, "A" * 10_000, "\N{SNOWMAN}" * 32])
def test_a_guess_opens_nothing(stranger, shared, demo, token):
    assert stranger.get(demo.get_absolute_url(), {"share": token}).status_code == 302


def kept_by(visitor):
    """The links in a visitor's cookie, newest first."""
    request = HttpRequest()
    request.COOKIES = {COOKIE: visitor.cookies[COOKIE].value}
    return request.get_signed_cookie(COOKIE, salt=COOKIE).split(".")


def test_a_visitor_keeps_the_newest_links_only(stranger, owner, make_run):
    for _ in range(52):
        Share.objects.create(run=make_run())
    for share in Share.objects.all():
        assert stranger.get(share.get_absolute_url()).status_code == 200
    assert len(kept_by(stranger)) == MOST_LINKS
    assert len(stranger.cookies[COOKIE].value) < 4000, "browsers keep no longer cookie"


def test_visits_leave_no_row_in_the_database(stranger, shared):
    before = DatabaseSession.objects.count()
    for visitor in (stranger, Client(), Client(), stranger):
        assert visitor.get(shared).status_code == 200
    assert DatabaseSession.objects.count() == before


def test_a_cookie_that_was_changed_opens_nothing(stranger, demo, shared):
    stranger.get(shared)
    stranger.cookies[COOKIE] = stranger.cookies[COOKIE].value + "x"
    assert stranger.get(demo.get_absolute_url()).status_code == 302


def test_expired_logins_are_deleted(owner):
    DatabaseSession.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    kept = signed_in("kept").session.session_key
    assert DatabaseSession.objects.count() == 2
    purge_logins()
    assert [row.session_key for row in DatabaseSession.objects.all()] == [kept]


def test_only_what_opens_a_page_is_remembered(stranger, demo, shared):
    stranger.get(shared)
    for junk in ("x" * 3000, "\x00", "A" * 32):
        assert stranger.get(demo.get_absolute_url(), {"share": junk}).status_code == 200
    assert kept_by(stranger) == [shared.split("=")[1]]


@pytest.mark.parametrize("number", [10**18 - 1, 2**63, 10**25, 10**30])
def test_no_number_is_too_large_for_an_address(owner, stranger, number):
    """SQLite and PostgreSQL have no columns for them: an error, not a page, if a query got one."""
    pages = (f"/runs/{number}/", f"/runs/{number}.json", f"/runs/{number}/live/")
    for page in pages:
        assert stranger.get(page, {"share": "A" * 32}).status_code in (302, 404)
    for end in (".csv", ".json", "/"):
        assert owner.get(f"/runs/{number}/results/1{end}").status_code == 404
        assert owner.get(f"/runs/1/results/{number}{end}").status_code == 404
    for page in ("sessions/{}/", "gpus/{}/", "compare/1...{}/", "compare/{}...1/", "tiers/scales/{}/", "runs/{}.md"):
        assert owner.get("/" + page.format(number)).status_code == 404
    for action in ("share", "unshare", "cancel"):
        assert owner.post(f"/runs/{number}/{action}/").status_code == 404


def test_a_poll_after_the_end_of_a_link_leads_to_the_login(owner, stranger, demo, shared):
    """And does not draw the login page into the place of what was polled."""
    stranger.get(shared)
    owner.post(reverse("unshare_run", args=[demo.pk]))
    answer = stranger.get(reverse("run_live", args=[demo.pk]), headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Refresh"], answer.content) == (204, "true", b"")


def test_who_is_logged_out_while_filling_in_the_form_keeps_what_is_typed(stranger):
    answer = stranger.get(reverse("estimate"), headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers.get("HX-Refresh")) == (204, None)


def test_who_is_logged_in_sees_a_shared_run_as_ever(member, shared):
    page = member.get(shared).content.decode()
    assert "Run again" in page
    assert "shared by link" not in page
    assert "Stop sharing" in page


def test_tokens_cannot_be_guessed(shared, owner, make_run):
    owner.post(reverse("share_run", args=[make_run().pk]))
    tokens = list(Share.objects.values_list("token", flat=True))
    assert len(set(tokens)) == 2
    assert all(len(token) == 32 for token in tokens)


# --- the status page --------------------------------------------------------------------------------------------------


def test_the_status_page_has_devices_newest_runs_and_tiers(owner, demo, measured, gpu, silent):
    older, newer = measured(count=1), measured(count=1)
    page = owner.get(reverse("status")).content.decode()
    assert "2 devices: 1 idle, 1 silent" in page
    assert f'href="{newer.get_absolute_url()}"' in page
    assert f'href="{older.get_absolute_url()}"' not in page, "of a config and a device only the newest"
    assert f'href="{demo.get_absolute_url()}"' in page
    assert "Kernels reach a tier on 3 of 8 workloads</strong> on NVIDIA H200." in page
    assert "faster, 1.485x (1.4" in " ".join(page.split())


def test_a_site_without_anything_has_a_status(owner):
    page = owner.get(reverse("status")).content.decode()
    assert "No device has reported yet" in page
    assert "No run has finished yet." in page


def test_the_status_page_is_shared_by_a_link_of_its_own(owner, stranger, demo, gpu):
    page = owner.post(reverse("share_status"), follow=True).content.decode()
    link = re.search(r'value="http://testserver([^"]+)" data-link', page)[1]
    page = stranger.get(link).content.decode()
    assert "1 device, idle" in page
    assert stranger.get(reverse("status"), headers={"HX-Request": "true"}).status_code == 200, "as it is polled"
    assert links_of(page) == {"/", reverse("login"), reverse("status")}
    for name, args in (("overview", []), ("run", [demo.pk])):
        assert stranger.get(reverse(name, args=args)).status_code == 302
    owner.post(reverse("unshare_status"))
    assert stranger.get(link).status_code == 302


def test_a_poll_of_the_status_page_is_a_fragment(owner, demo):
    page = owner.get(reverse("status"), headers={"HX-Request": "true"}).content.decode()
    assert page.count('<div id="status"') == 1
    assert "<html" not in page
