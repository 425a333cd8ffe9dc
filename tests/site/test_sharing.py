"""Secret links: who has one sees one run, and nothing else, until it ends; what is live is listed with its use."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from cast import signed_in
from django.contrib.sessions.models import Session as DatabaseSession
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kernels.contract.profile import Profile, Timeline
from runs.access import COOKIE, MOST_LINKS, OF_A_RUN
from runs.models import KernelProfile, Run, Share
from runs.tasks import purge_logins

PROFILE = Profile(key="k", kernel="triton-flash", timeline=Timeline(call_ns=2.0, enqueue_ns=1.0))


@pytest.fixture
def shared(owner, demo):
    """The address of the demo, as its link says it. One of its results was profiled."""
    result = demo.measurements.first().results.get(kernel__name="triton-flash")
    KernelProfile.objects.create(
        run=demo, result=result, body=PROFILE.model_dump(mode="json"), table="aten::mm", trace=b"gzip"
    )
    owner.post(reverse("share_run", args=[demo.pk]))
    return Share.objects.get().get_absolute_url()


def addresses_of(run):
    result = run.measurements.first().results.get(kernel__name="triton-flash")
    more = {f"chart_{kind}": ["speedup"] for kind in ("json", "svg", "png")}
    more |= {name: [result.pk] for name in ("result", "result_csv", "result_json")}
    more |= {f"result_profile_{kind}": [result.pk] for kind in ("json", "txt", "trace")}
    more |= {name: [result.pk, "samples"] for name in ("result_chart_json", "result_chart_svg", "result_chart_png")}
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
        answer = stranger.get(address)
        assert answer.status_code == 410, "a link that was ended opens nothing, to nobody"
        assert f"This link was ended on {timezone.now():%Y-%m-%d}." in answer.content.decode()
        assert answer.headers["X-Robots-Tag"] == "noindex"
    assert Client().get(demo.get_absolute_url()).status_code == 302, "who never had a link is sent to the login"


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


def test_a_poll_after_the_end_of_a_link_loads_the_page_anew(owner, stranger, demo, shared):
    """And does not draw a sentence or a login into the place of what was polled."""
    stranger.get(shared)
    owner.post(reverse("unshare_run", args=[demo.pk]))
    answer = stranger.get(reverse("run_live", args=[demo.pk]), headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Refresh"]) == (410, "true")


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


# --- all of them ------------------------------------------------------------------------------------------------------


def test_live_links_are_listed_with_their_use_and_ended_there(owner, stranger, demo, shared):
    page = owner.get(reverse("links")).content.decode()
    assert "1 link can be opened without an account" in page
    assert f">run {demo.pk}</a>" in page and "0 times" in page and "never" in page
    stranger.get(shared)
    stranger.get(demo.get_absolute_url())
    stranger.get(shared)
    page = owner.get(reverse("links")).content.decode()
    assert "2 times" in page, "what is followed from there is not another opening"
    assert "just now" in page.split("2 times")[1]
    answer = owner.post(reverse("end_link", args=[Share.objects.get().pk]), follow=True).content.decode()
    assert f"The link to run {demo.pk} has ended." in answer and "No page can be opened without an account" in answer
    assert stranger.get(shared).status_code == 410
    ended = Share.objects.get()
    assert ended.ended_by == owner.user


def test_a_link_that_expired_says_so(stranger, demo):
    share = Share.objects.create(run=demo, expires_at=timezone.now() - timedelta(days=1))
    answer = stranger.get(share.get_absolute_url())
    assert answer.status_code == 410
    assert f"This link expired on {share.expires_at:%Y-%m-%d}." in answer.content.decode()


def test_the_day_of_an_end_is_that_of_the_persons_place(owner, demo):
    share = Share.objects.create(run=demo, expires_at=datetime(2026, 11, 23, 18, tzinfo=UTC))
    with timezone.override("Asia/Tokyo"):
        assert share.why_closed == "This link expired on 2026-11-24."
        share.ended_at = datetime(2026, 11, 22, 18, tzinfo=UTC)
        assert share.why_closed == "This link was ended on 2026-11-23."


def test_all_links_are_listed_page_by_page(owner, make_run, monkeypatch):
    monkeypatch.setattr("runs.views.share.PER_PAGE", 2)
    for _ in range(3):
        Share.objects.create(run=make_run(), user=owner.user)
    pages = [owner.get(reverse("links"), {"page": page}).content.decode() for page in (1, 2)]
    assert all("3 links can be opened" in page for page in pages)
    assert [page.count("End the link to") for page in pages] == [2, 1]


def test_after_the_end_of_a_link_another_is_made(owner, stranger, demo, shared):
    owner.post(reverse("unshare_run", args=[demo.pk]))
    owner.post(reverse("share_run", args=[demo.pk]))
    assert stranger.get(shared).status_code == 410
    other = Share.objects.live().get().get_absolute_url()
    assert other != shared and stranger.get(other).status_code == 200


def test_a_list_of_links_is_no_more_than_a_few_queries(owner, make_run, django_assert_max_num_queries):
    for _ in range(30):
        Share.objects.create(run=make_run(), user=owner.user)
    with django_assert_max_num_queries(12):
        assert "30 links" in owner.get(reverse("links")).content.decode()
