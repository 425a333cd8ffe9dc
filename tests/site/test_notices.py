"""Notices: what happens is told once, to who asked, signed, and tried again; and the page where people ask."""

import hmac
import json
import re
import time
from datetime import timedelta
from hashlib import sha256
from itertools import pairwise

import pytest
from cast import signed_in, thorough
from daily import fill, look_at_all, step
from django.core import mail
from django.urls import reverse
from django.utils import timezone

from runs.models import Delivery, MailChoice, Notice, Run, Target, Webhook
from runs.models.notice import BACKOFF, MOST_WEBHOOKS, Event, Kind
from runs.pipeline import delivering, noticing
from runs.pipeline.delivering import deliver, signed
from runs.pipeline.keeping import KEEP_NOTICES_DAYS, prune
from runs.pipeline.watch import watch
from runs.queries import week

PAGE = reverse("notices")
ALL = list(Kind.values)


@pytest.fixture
def sends_mail(settings):
    settings.SENDS_MAIL, settings.SITE_URL = True, "https://bench.example.org"


def hook(client, url="http://127.0.0.1:9/", kinds=ALL):
    return Webhook.make(client.user, url, kinds)[0]


def ended(run, user=None, ago_s=5):
    """The run has just ended, and nobody has looked at it."""
    Run.objects.filter(pk=run.pk).update(
        finished_at=timezone.now() - timedelta(seconds=ago_s), looked_at=None, user=user, demo=""
    )
    run.refresh_from_db()
    return run


def told(event):
    return list(Notice.objects.filter(event=event).values_list("sentence", flat=True))


# --- what happened ----------------------------------------------------------------------------------------------------


def test_the_end_of_a_run_is_told_once(measured, owner):
    run = ended(measured(count=1))
    hook(owner)
    watch(), noticing.notice(run), noticing.notice(run)
    assert told(Event.RUN) == [f"Run {run.pk} ({run.title or run.config_name} on NVIDIA H200) ended: done."]
    assert Delivery.objects.count() == 1 and Notice.objects.get().path == reverse("run", args=[run.pk])


@pytest.mark.parametrize("why", ["demo", "old", "unfinished"])
def test_of_some_runs_nobody_is_told(measured, make_run, why):
    run = make_run() if why == "unfinished" else ended(measured(count=1), ago_s=3600 * 48 if why == "old" else 5)
    if why == "demo":
        Run.objects.filter(pk=run.pk).update(demo="from elsewhere")
    watch()
    assert not Notice.objects.exists()


def test_a_regression_is_told_by_the_run_that_makes_it_certain(gpu):
    runs = fill(gpu, step())
    Run.objects.exclude(pk=runs[-1].pk).update(finished_at=timezone.now() - timedelta(days=3))
    ended(runs[-1])
    look_at_all()
    (sentence,) = told(Event.REGRESSION)
    assert re.fullmatch(
        rf"sdpa-flash on attention .*, NVIDIA H200, is slower by 4\.\d% \(\d\.\d% to \d\.\d%\) since run {runs[24].pk}\.",
        sentence,
    )
    notice = Notice.objects.get(event=Event.REGRESSION)
    assert (
        notice.facts["since_run"] == runs[24].pk and notice.facts["low"] < notice.facts["ratio"] < notice.facts["high"]
    )
    noticing.notice(runs[-1])
    assert len(told(Event.REGRESSION)) == 1


def test_a_record_that_was_measured_elsewhere_is_told_with_what_differs(measured, make_gpu):
    there = make_gpu("GPU-2", host="gpu-2")
    thorough(measured(count=1, edit={"triton-flash": 0.9}, on=there, driver="470.1", harness="4"))
    run = ended(thorough(measured(count=1)))
    watch()
    (sentence,) = told(Event.RECORD)
    earlier = "The earlier record is 1.34x (1.33 to 1.34) by triton-flash. Its host, driver and harness differed."
    assert sentence.endswith(earlier) and ", before" not in sentence
    (one,) = week.records(run.measurements.values_list("workload", flat=True))
    assert "1.34x (1.33 to 1.34) by triton-flash; 1.48x" in one.label
    assert one.label.endswith("by triton-flash, other host, driver and harness")
    before = Notice.objects.get(event=Event.RECORD).facts["before"]
    assert (before["kernel"], before["differ"], before["run"] < run.pk) == (
        "triton-flash",
        "host, driver and harness",
        True,
    )
    assert 1.33 < before["low"] < before["speedup"] < before["high"] < 1.35


def test_a_broken_record_is_told_and_a_lower_result_is_none(measured):
    thorough(measured(count=1, edit={"triton-flash": 0.9}))
    run = ended(thorough(measured(count=1)))
    watch()
    (sentence,) = told(Event.RECORD)
    assert sentence.startswith("triton-flash has the record on attention")
    assert sentence.endswith(", before 1.34x (1.33 to 1.34) by triton-flash.")
    assert "1.48x (1.4" in sentence
    lower = ended(thorough(measured(count=1, edit={"triton-flash": 0.95})))
    watch()
    assert len(told(Event.RECORD)) == 1 and told(Event.RUN)[0].startswith(f"Run {run.pk}") and lower.pk


def test_a_first_record_and_a_tie_break_none(measured):
    ended(thorough(measured(count=1)))
    ended(thorough(measured(count=1)))
    ended(thorough(measured(count=1, edit={"triton-flash": 1.004})))
    assert watch() == 3 and told(Event.RECORD) == []
    ended(thorough(measured(count=1, edit={"triton-flash": 1.2})))
    watch()
    assert len(told(Event.RECORD)) == 1


def test_a_target_is_told_when_it_is_reached_and_once(measured):
    run = ended(thorough(measured(count=1)))
    one = run.measurements.first()
    target = Target.objects.create(workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=40.0)
    noticing.notice(run)
    assert told(Event.TARGET) == []
    target.factor = 1.4
    target.save()
    for again in (run, run, ended(thorough(measured(count=1)))):
        noticing.notice(again)
    (sentence,) = told(Event.TARGET)
    assert sentence.startswith("The target of 1.4x on attention") and "is reached: triton-flash, 1.48x (1.4" in sentence


def test_a_target_that_an_unconfirmed_result_reaches_is_called_so(measured):
    run = ended(measured(count=1))
    one = run.measurements.first()
    Target.objects.create(workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=1.4)
    noticing.notice(run)
    (sentence,) = told(Event.TARGET)
    assert "is reached, unconfirmed: triton-flash, 1.48x" in sentence


def test_what_fails_for_one_run_does_not_stop_the_watch(measured, monkeypatch, caplog):
    bad, good = ended(measured(count=1)), ended(measured(count=1))

    def records(run, real=noticing._records):
        if run.pk == bad.pk:
            raise ValueError("odd data")
        return real(run)

    monkeypatch.setattr(noticing, "_records", records)
    assert watch() == 2 and watch() == 0
    assert any(f"({good.title or good.config_name}" in sentence for sentence in told(Event.RUN))


# --- to whom ----------------------------------------------------------------------------------------------------------


def test_only_who_asked_is_told(measured, owner, member):
    mine, every = hook(owner, kinds=["run"]), hook(member, kinds=["any_run"])
    hook(owner, kinds=["record"]), hook(member, kinds=["run"])
    run = ended(measured(count=1), user=owner.user)
    noticing.notice(run)
    notice = Notice.objects.get(event=Event.RUN)
    assert {one.webhook for one in notice.deliveries.all()} == {mine, every}


def test_mail_goes_to_who_has_chosen_and_has_an_address(measured, owner, member, sends_mail):
    for client, kinds in ((owner, ["any_run"]), (member, ["any_run"])):
        MailChoice.objects.create(user=client.user, kinds=kinds)
    owner.user.email = "olga@example.org"
    owner.user.save()
    run = ended(measured(count=1))
    noticing.notice(run)
    deliver()
    (one,) = mail.outbox
    assert one.to == ["olga@example.org"] and one.subject.startswith(f"[Benchsite] Run {run.pk} (")
    assert f"https://bench.example.org/runs/{run.pk}/" in one.body and "\n" not in one.subject
    assert Delivery.objects.get().state == "delivered"


def test_nobody_who_left_is_told(measured, owner):
    hook(owner)
    owner.user.is_active = False
    owner.user.save()
    noticing.notice(ended(measured(count=1)))
    assert not Delivery.objects.exists()


def test_what_waits_for_somebody_who_left_is_not_sent(owner, receiver, sends_mail):
    owner.user.email = "ada@example.org"
    owner.user.is_active = False
    owner.user.save()
    notice = Notice.objects.create(event=Event.RUN, key="1", sentence="Run 1 ended.", path="/runs/1/")
    Delivery.objects.create(notice=notice, webhook=hook(owner, receiver.url))
    Delivery.objects.create(notice=notice, user=owner.user)
    deliver()
    assert not receiver.got and not mail.outbox
    assert {one.answer for one in Delivery.objects.all()} == {"its account is disabled"}


def test_a_notice_without_its_deliveries_is_not_stored(owner, monkeypatch):
    """Else nobody is ever told of it."""
    monkeypatch.setattr(Notice, "address", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Notice.objects.give(Event.RUN, "1", "Run 1 ended.", "/runs/1/", None, {})
    assert not Notice.objects.exists()


def test_mail_that_cannot_be_sent_is_tried_again(measured, owner, settings, sends_mail):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    MailChoice.objects.create(user=owner.user, kinds=["any_run"])
    owner.user.email = "olga@example.org"
    owner.user.save()
    noticing.notice(ended(measured(count=1)))
    deliver()
    one = Delivery.objects.get()
    assert (one.state, one.attempts, one.answer.split(":")[0]) == ("waiting", 1, "ConnectionRefusedError")


# --- on the way -------------------------------------------------------------------------------------------------------


def delivery_to(client, url, **more):
    webhook, secret = Webhook.make(client.user, url, ALL)
    notice = Notice.objects.create(
        event="run.ended", key=str(webhook.pk), sentence="It ended.", path="/runs/1/", **more
    )
    return Delivery.objects.create(notice=notice, webhook=webhook), secret


def test_a_webhook_gets_a_signed_body_that_its_secret_verifies(owner, receiver, settings):
    settings.SITE_URL = "https://bench.example.org"
    one, secret = delivery_to(owner, receiver.url, facts={"state": "done"})
    assert deliver() == 1 and deliver() == 0
    ((path, headers, body),) = receiver.got
    said = json.loads(body)
    assert path == "/hook?x=1" and said["event"] == headers["Benchsite-Event"] == "run.ended"
    assert (said["url"], said["data"]) == ("https://bench.example.org/runs/1/", {"state": "done"})
    signature = hmac.new(secret.encode(), headers["Benchsite-Timestamp"].encode() + b"." + body, sha256).hexdigest()
    assert headers["Benchsite-Signature"] == f"v1={signature}"
    assert abs(int(headers["Benchsite-Timestamp"]) - time.time()) < 60
    one.refresh_from_db()
    assert (one.state, one.attempts, one.answer) == ("delivered", 1, "204") and one.ended_at


def test_signatures_differ_by_body_secret_and_time(monkeypatch):
    made = [signed("a", b"x"), signed("b", b"x"), signed("a", b"y")]
    monkeypatch.setattr(delivering.time, "time", lambda: 1.0)
    assert len({one["Benchsite-Signature"] for one in [*made, signed("a", b"x")]}) == 4


def test_what_fails_is_tried_again_later_and_later_and_then_no_more(owner, receiver):
    receiver.status = 500
    one, _ = delivery_to(owner, receiver.url)
    waits = []
    for _ in range(20):
        Delivery.objects.update(next_at=timezone.now())
        if not deliver():
            break
        one.refresh_from_db()
        waits.append(one.next_at - timezone.now())
    assert len(receiver.got) == len(BACKOFF) + 1 and (one.state, one.answer) == ("failed", "500")
    assert all(later > earlier * 2 for earlier, later in pairwise(waits[: len(BACKOFF)]))
    receiver.status = 200
    assert deliver() == 0


def test_a_redirect_is_not_followed(owner, receiver):
    receiver.status = 302
    delivery_to(owner, receiver.url)
    deliver()
    assert len(receiver.got) == 1 and Delivery.objects.get().state == "waiting"


def test_an_address_that_is_gone_is_told_nothing_more(owner, receiver):
    receiver.status = 410
    one, _ = delivery_to(owner, receiver.url)
    deliver()
    one.refresh_from_db()
    assert one.state == "failed" and Webhook.objects.get().stopped == "it answered 410 Gone"


def test_a_slow_address_holds_the_worker_for_seconds_only(owner, receiver, monkeypatch):
    monkeypatch.setattr(delivering, "LIMIT_S", 0.5)
    receiver.delay_s = 3.0
    for _ in range(4):
        delivery_to(owner, receiver.url)
    began = time.monotonic()
    deliver()
    assert time.monotonic() - began < 2.5
    assert set(Delivery.objects.values_list("state", "answer")) == {("waiting", delivering.NO_ANSWER)}


def test_one_attempt_is_made_by_one_process(owner, receiver):
    one, _ = delivery_to(owner, receiver.url)
    other = Delivery.objects.get(pk=one.pk)
    assert one.claim(timezone.now()) and not other.claim(timezone.now())
    assert deliver() == 0


def test_old_notices_are_forgotten(owner):
    one, _ = delivery_to(owner, "https://example.org/")
    Notice.objects.update(at=timezone.now() - timedelta(days=KEEP_NOTICES_DAYS + 1))
    assert prune()["notices"] == 2 and not Delivery.objects.filter(pk=one.pk).exists()


# --- the page ---------------------------------------------------------------------------------------------------------


def page_of(client):
    answer = client.get(PAGE)
    assert answer.status_code == 200
    return " ".join(re.sub("<[^>]+>", " ", answer.content.decode().partition("<main")[2]).split())


def test_a_webhook_is_made_its_secret_shown_once_and_it_is_deleted(owner, receiver):
    assert "there is no webhook" in page_of(owner)
    answer = owner.post(PAGE, {"url": receiver.url, "kinds": ["run", "record"]})
    webhook = Webhook.objects.get()
    assert webhook.secret in answer.content.decode() and answer["Cache-Control"].startswith("max-age=0")
    page = page_of(owner)
    assert webhook.secret not in owner.get(PAGE).content.decode()
    assert "1 webhook gets notices" in page and "a run of mine ended, a record was broken" in page
    assert webhook.secret not in json.dumps(list(Webhook.objects.values()), default=str), "the database cannot sign"
    owner.post(reverse("delete_webhook", args=[webhook.pk]))
    assert not Webhook.objects.exists()


def test_a_test_is_sent_and_its_answer_listed(owner, receiver):
    webhook = hook(owner, receiver.url)
    Webhook.objects.update(stopped="it answered 410 Gone")
    assert "stopped: it answered 410 Gone" in page_of(owner)
    owner.post(reverse("test_webhook", args=[webhook.pk]))
    deliver()
    assert json.loads(receiver.got[0][2])["event"] == "test"
    assert owner.get(Notice.objects.get().path).status_code == 200, "the list links to it"
    assert "This is a test." in page_of(owner) and "delivered 1 204" in page_of(owner)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (
            "http://127.0.0.1/",
            "127.0.0.1 is not a public address. Write a public one, or add its network to WEBHOOK_NETWORKS.",
        ),
        ("ftp://example.org/", "Write an address that begins with https:// or http://."),
        ("https://no-such-host.invalid/", "The host name could not be resolved. Check the spelling."),
    ],
)
def test_an_address_that_cannot_be_called_is_refused_in_the_form(owner, url, why):
    answer = owner.post(PAGE, {"url": url, "kinds": ["run"]})
    assert answer.status_code == 422 and why in answer.content.decode() and not Webhook.objects.exists()


def test_a_webhook_without_events_and_one_too_many_are_refused(owner, receiver):
    assert owner.post(PAGE, {"url": receiver.url}).status_code == 422
    for _ in range(MOST_WEBHOOKS):
        hook(owner)
    assert "delete one first" in owner.post(PAGE, {"url": receiver.url, "kinds": ["run"]}).content.decode()
    assert Webhook.objects.count() == MOST_WEBHOOKS


def test_mail_is_chosen(owner, sends_mail):
    answer = owner.post(reverse("choose_mail"), {"email": "olga@example.org", "kinds": ["run", "target"]}, follow=True)
    assert "Mail goes to olga@example.org" in " ".join(re.sub("<[^>]+>", " ", answer.content.decode()).split())
    assert MailChoice.objects.get().kinds == ["run", "target"]
    owner.post(reverse("choose_mail"), {"email": "olga@example.org"})
    assert "You get no mail" in page_of(owner)


def test_mail_without_an_address_is_refused_and_a_site_without_a_server_says_so(owner):
    answer = owner.post(reverse("choose_mail"), {"email": "", "kinds": ["run"]})
    assert answer.status_code == 422 and "Enter the address to which the mail is sent." in answer.content.decode()
    assert "This site sends no mail" in page_of(owner)


def test_nobody_sees_or_touches_the_webhooks_of_another(owner, receiver):
    webhook = hook(owner, receiver.url)
    delivery_to(owner, receiver.url)
    other = signed_in("mia")
    assert receiver.url not in other.get(PAGE).content.decode() and "It ended." not in page_of(other)
    for name in ("delete_webhook", "test_webhook"):
        assert other.post(reverse(name, args=[webhook.pk])).status_code == 404
    assert Webhook.objects.filter(pk=webhook.pk).exists()


def test_the_page_asks_the_database_little(owner, receiver, django_assert_max_num_queries):
    for _ in range(20):
        delivery_to(owner, receiver.url)
    with django_assert_max_num_queries(12):
        owner.get(PAGE)
