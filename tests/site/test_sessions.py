"""Sessions: runs of one effort with their notes; what became of each kernel from its first result there to its last."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from runs.models import Measurement, Note, Result, Run, Session, Workload
from runs.queries.progress import progress
from runs.queries.session_report import session_report
from runs.views.compare import by_kernel


@pytest.fixture
def session(owner):
    return Session.objects.create(title="Beat cuDNN", objective="10% on two shapes.", user=owner.user)


@pytest.fixture
def ran(measured, session):
    """Stores an export as a run of the session."""

    def make(**asked):
        run = measured(**asked)
        Run.objects.filter(pk=run.pk).update(session=session)
        return run

    return make


def page_of(client, session):
    answer = client.get(session.get_absolute_url())
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_long_title_of_a_run_breaks_in_the_timeline(owner, ran, session, settings):
    Run.objects.filter(pk=ran().pk).update(title="x" * 200)
    assert re.search(r'<span class="title"><a [^>]*>run \d+</a> x{200}</span>', page_of(owner, session))
    css = (settings.BASE_DIR / "static" / "site.css").read_text()
    assert ".timeline .ran .title { min-width: 0; overflow-wrap: anywhere; }" in css


def rows_of(session, kernel="triton-flash"):
    return [row for row in progress(session)[0] if row.kernel == kernel]


# --- what became of kernels -------------------------------------------------------------------------------------------


def test_the_last_result_of_a_kernel_is_held_against_its_first(ran, session):
    ran(count=1)
    ran(count=1, edit={"triton-flash": 1.02})
    last = ran(count=1, edit={"triton-flash": 1.2})
    (row,) = rows_of(session)
    assert row.change == pytest.approx(1.2)
    assert (row.verdict, row.same_source) == ("FASTER", False)
    (same,) = rows_of(session, "sdpa-flash")
    assert (same.verdict, same.same_source) == ("SAME", True)
    page = progress(session)[1][row.workload_key, "graph", "triton-flash"]
    assert page.startswith(f"/runs/{last.pk}/results/")


def test_a_kernel_that_ran_in_some_runs_only_has_first_and_last_of_its_own(ran, session):
    ran(count=1)
    ran(count=1, edit={"triton-flash": 1.2})
    Result.objects.filter(measurement__run=ran(count=1), kernel__name="triton-flash").delete()
    assert rows_of(session)[0].change == pytest.approx(1.2)


def test_what_was_measured_once_is_held_against_nothing(ran, session):
    ran(count=2)
    assert progress(session) == ([], {})


def test_after_another_driver_only_what_came_then_counts(ran, session):
    ran(count=1, edit={"triton-flash": 2.0})
    ran(count=1, driver="599.1")
    ran(count=1, driver="599.1", edit={"triton-flash": 1.1})
    (row,) = rows_of(session)
    assert row.change == pytest.approx(1.1)


def test_a_session_without_repeats_says_how_its_kernels_stand(owner, ran, session):
    """The headline of one report, 133 to 837 times slower, could not appear: nothing was measured twice."""
    run = ran(count=1)
    kernels = Result.objects.filter(measurement__run=run)
    kernels.exclude(kernel__name__in=("sdpa", "eager")).delete()
    kernels.filter(kernel__name="eager").update(
        speedup=1 / 837, speedup_low=1 / 840, speedup_high=1 / 834, rounds=5, left_after_round=5
    )
    page = " ".join(owner.get(session.get_absolute_url()).content.decode().split())
    assert '<strong class="slower">eager is slower than sdpa</strong>. 0.00119x (0.00' in page
    assert f"Figures of run {run.pk}. No kernel was measured twice under the same conditions yet." in page
    md = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert "**eager is slower than sdpa.** 0.00119x" in md


def test_a_last_run_without_a_verdict_does_not_hide_the_one_before(owner, ran, session):
    run = ran(count=1)
    last = ran(count=1, driver="599.1")
    Result.objects.filter(measurement__run=last).update(paired=False)
    page = owner.get(session.get_absolute_url()).content.decode()
    assert f"Figures of run {run.pk}. No kernel was measured twice under the same conditions yet." in page


def contended(run):
    Run.objects.filter(pk=run.pk).update(contended=True)
    return run


def test_a_contended_run_is_no_end(owner, ran, session):
    first = ran(count=1)
    contended(ran(count=1, edit={"triton-flash": 1.2}))
    assert rows_of(session) == [] and "faster than before" not in page_of(owner, session)
    assert f"Figures of run {first.pk}." in page_of(owner, session)
    ran(count=1, edit={"triton-flash": 1.1})
    contended(ran(count=1, edit={"triton-flash": 1.3}))
    assert rows_of(session)[0].change == pytest.approx(1.1)


def test_where_every_run_is_contended_the_headline_says_so(owner, ran, session):
    contended(ran(count=1))
    report = session_report(session)
    assert report.headline.tone == "same"
    assert report.headline.rest[-1] == "The run is contended: other processes used the device."


def test_a_kernel_that_is_wrong_in_a_contended_run_is_said_to_be(ran, session):
    ran(count=1)
    last = contended(ran(count=1, edit={"triton-flash": 1.5}))
    Result.objects.filter(measurement__run=last, kernel__name="triton-flash").update(status="incorrect")
    assert [row.verdict for row in rows_of(session)] == ["incorrect"]


def test_a_kernel_that_is_wrong_now_is_said_to_be(ran, session):
    ran(count=1)
    last = ran(count=1, edit={"triton-flash": 1.5})
    Result.objects.filter(measurement__run=last, kernel__name="triton-flash").update(status="incorrect")
    (row,) = rows_of(session)
    assert (row.verdict, row.change) == ("incorrect", None)


def test_a_run_whose_baseline_failed_hides_no_progress(ran, session):
    ran(count=1)
    ran(count=1, edit={"triton-flash": 1.2})
    last = ran(count=1)
    Result.objects.filter(measurement__run=last, kernel__name="sdpa").update(status="out of memory", p50_ms=None)
    last.measurements.update(baseline="eager")
    assert rows_of(session)[0].change == pytest.approx(1.2)


def test_groups_of_a_run_are_compared_each_by_itself(ran, session):
    for factor in (1.0, 1.3):
        run = ran(count=1, edit={"triton-flash": factor} if factor > 1 else None)
        m = run.measurements.get()
        own = Measurement.objects.create(
            run=run, workload=m.workload, mode=m.mode, group="own", baseline="sdpa", protocol=m.protocol
        )
        m.results.filter(kernel__name="triton-flash").update(measurement=own)
        base = m.results.get(kernel__name="sdpa")
        base.pk, base.measurement = None, own
        base.save()
    assert rows_of(session)[0].change == pytest.approx(1.3)
    assert rows_of(session, "sdpa-flash")[0].verdict == "SAME"


def test_a_session_outlives_an_operation(owner, ran, session):
    ran(count=1)
    ran(count=1, edit={"triton-flash": 1.2})
    Workload.objects.update(operation="gone")
    assert "faster than before" in page_of(owner, session)


def test_runs_of_others_are_not_in_it(measured, ran, session):
    ran(count=1)
    measured(count=1, edit={"triton-flash": 1.5})
    assert progress(session) == ([], {})


def test_a_report_takes_few_queries(owner, ran, session, django_assert_max_num_queries):
    for _ in range(4):
        ran()
    with django_assert_max_num_queries(14):
        page_of(owner, session)


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_says_what_was_wanted_what_came_of_it_and_what_was_done(owner, ran, session):
    Note.objects.create(session=session, phase="Baselines", created_at=timezone.now() - timedelta(days=400))
    runs = [ran(count=2), ran(count=2, edit={"triton-flash": 1.2})]
    owner.post(session.get_absolute_url(), {"phase": "", "text": "Larger tiles did it.\n<b>Really.</b>"})
    page = page_of(owner, session)
    assert "10% on two shapes." in page
    assert "triton-flash is faster than before on 2 of 2 workloads" in page
    places = [page.index(f'<a href="{run.get_absolute_url()}">run {run.pk}</a>') for run in runs]
    order = [page.index("<h3>Baselines</h3>"), *places, page.index("Larger tiles did it.<br>")]
    assert order == sorted(order)
    assert "&lt;b&gt;Really." in page
    assert "<b>2</b> runs" in page


def test_a_report_as_markdown_and_json(owner, ran, session):
    runs = [ran(count=1), ran(count=1, edit={"triton-flash": 1.2})]
    owner.post(session.get_absolute_url(), {"phase": "Tuning", "text": "Larger\ntiles."})
    text = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert text.startswith("# Beat cuDNN\n\n10% on two shapes.\n\n**triton-flash is faster than before.**")
    assert f"[run {runs[1].pk}](http://testserver{runs[1].get_absolute_url()})" in text
    assert "\n### Tuning\n" in text and ": Larger tiles.\n" in text
    data = json.loads(owner.get(reverse("session_json", args=[session.pk])).content)
    assert [entry.get("run") for entry in data["timeline"]] == [runs[0].pk, runs[1].pk, None]
    assert data["timeline"][2]["phase"] == "Tuning"
    (row,) = [row for row in data["progress"] if row["kernel"] == "triton-flash"]
    assert row["change"] == pytest.approx(1.2)


def test_a_title_of_two_lines_is_one_heading(owner, session):
    Session.objects.update(title="Beat\r\n# cuDNN", objective="")
    assert owner.get(reverse("session_md", args=[session.pk])).content.decode() == "# Beat # cuDNN\n"


def test_a_persons_text_is_no_html_in_the_report(owner, ran, session):
    """The page escapes it; a viewer of Markdown would run it."""
    script = "<script>alert(1)</script>"
    run = ran(count=1)
    Run.objects.filter(pk=run.pk).update(title=script)
    Session.objects.update(title=script, objective=f"*fast* {script}")
    owner.post(session.get_absolute_url(), {"phase": script, "text": f"`code` {script}"})
    text = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert text.count("\\<script") == text.count("<script") == 5
    assert "*fast*" in text and "`code`" in text


def test_an_empty_session_has_a_page_and_files(owner, session):
    assert "Nothing yet." in page_of(owner, session)
    assert (
        owner.get(reverse("session_md", args=[session.pk])).content.decode() == "# Beat cuDNN\n\n10% on two shapes.\n"
    )
    assert json.loads(owner.get(reverse("session_json", args=[session.pk])).content)["timeline"] == []


def test_kernels_of_several_operations_are_not_taken_for_each_other(ran, session):
    """Each operation has a kernel called eager."""
    ran(count=1)
    ran(count=1, edit={"eager": 1.3})
    (row,) = rows_of(session, "eager")
    found = by_kernel([row, replace(row, workload="gemm fp16 M=1 N=1 K=1")], {})["edited"]
    assert [(group["operation"], group["kernel"]) for group in found] == [("attention", "eager"), ("gemm", "eager")]


# --- how it is filled -------------------------------------------------------------------------------------------------


def test_a_session_is_begun_changed_ended_and_gone_on_with(owner):
    owner.post(reverse("new_session"), {"title": "Beat cuDNN", "objective": ""})
    session = Session.objects.get()
    assert session.user == owner.user
    owner.post(reverse("edit_session", args=[session.pk]), {"title": "Beat it", "objective": "By 10%."})
    session.refresh_from_db()
    assert (session.title, session.objective, session.user) == ("Beat it", "By 10%.", owner.user)
    assert "New run in session" in page_of(owner, session)
    owner.post(reverse("end_session", args=[session.pk]))
    session.refresh_from_db()
    assert session.ended_at
    assert "New run in session" not in page_of(owner, session)
    owner.post(reverse("end_session", args=[session.pk]))
    session.refresh_from_db()
    assert session.ended_at is None
    assert "Beat it" in owner.get(reverse("sessions")).content.decode()


def test_what_is_missing_is_said_and_nothing_typed_is_lost(owner, session):
    answer = owner.post(reverse("new_session"), {"title": "", "objective": "typed text"})
    assert "see the marked field." in answer.content.decode()
    assert "typed text</textarea>" in answer.content.decode()
    answer = owner.post(session.get_absolute_url(), {"phase": "", "text": " "})
    assert answer.status_code == 422
    assert "Write something, or name a phase." in answer.content.decode()
    long = owner.post(session.get_absolute_url(), {"phase": "x" * 101, "text": "kept text"})
    assert "kept text</textarea>" in long.content.decode()
    assert not Note.objects.exists()


def test_a_run_joins_from_the_form_and_is_taken_along_when_it_is_run_again(owner, chosen, session):
    page = owner.get(reverse("new_run"), {"session": session.pk}).content.decode()
    assert f'<option value="{session.pk}" selected>Beat cuDNN</option>' in page
    owner.post(reverse("new_run"), chosen | {"session": str(session.pk)})
    run = Run.objects.get()
    assert run.session == session
    assert f'href="{session.get_absolute_url()}">Beat cuDNN</a>' in owner.get(run.get_absolute_url()).content.decode()
    again = owner.get(reverse("new_run"), {"again": run.pk}).content.decode()
    assert f'<option value="{session.pk}" selected>Beat cuDNN</option>' in again


def test_without_an_open_session_the_form_does_not_speak_of_them(owner, chosen, session):
    Session.objects.update(ended_at=timezone.now())
    assert 'name="session"' not in owner.get(reverse("new_run")).content.decode()
    answer = owner.post(reverse("new_run"), chosen | {"session": str(session.pk)})
    assert answer.status_code == 422, "one that has ended takes no more runs from the form"
    owner.post(reverse("new_run"), chosen)
    assert Run.objects.get().session is None


def test_a_run_of_an_ended_session_can_be_run_again(owner, chosen, session):
    other = Session.objects.create(title="Still open")
    owner.post(reverse("new_run"), chosen | {"session": str(session.pk)})
    Session.objects.filter(pk=session.pk).update(ended_at=timezone.now())
    page = owner.get(reverse("new_run"), {"again": Run.objects.get().pk}).content.decode()
    assert "not one of the available choices" not in page
    assert f'<option value="{other.pk}">' in page
    for asked in ("x", str(session.pk), "9" * 30):
        page = owner.get(reverse("new_run"), {"session": asked}).content.decode()
        assert "not one of the available choices" not in page, asked


def test_a_session_that_ended_meanwhile_is_said_at_its_field(owner, chosen, session):
    Session.objects.update(ended_at=timezone.now())
    page = owner.post(reverse("new_run"), chosen | {"session": str(session.pk)}).content.decode()
    assert "is not one of the available choices" in page


def test_a_run_that_leaves_another_session_is_said_to(owner, session, make_run):
    run, other = make_run(), Session.objects.create(title="Another")
    Run.objects.filter(pk=run.pk).update(session=other)
    page = owner.post(reverse("add_to_session", args=[session.pk]), {"run": str(run.pk)}, follow=True).content.decode()
    assert "It was in &quot;Another&quot; before." in page


def test_runs_are_added_and_taken_out_by_hand(owner, session, make_run):
    run = make_run()
    owner.post(reverse("add_to_session", args=[session.pk]), {"run": f" {run.pk} "})
    run.refresh_from_db()
    assert run.session == session
    owner.post(reverse("remove_from_session", args=[session.pk, run.pk]))
    run.refresh_from_db()
    assert run.session is None
    for asked, said in (("999", "There is no run 999."), ("x", "There is no run x."), ("", "Which run?")):
        page = owner.post(reverse("add_to_session", args=[session.pk]), {"run": asked}, follow=True).content.decode()
        assert said in page


def test_a_shared_run_does_not_name_its_session(stranger, owner, session, demo):
    Run.objects.update(session=session)
    owner.post(reverse("share_run", args=[demo.pk]))
    demo.refresh_from_db()
    page = stranger.get(demo.shares.get().get_absolute_url()).content.decode()
    assert "Beat cuDNN" not in page
    assert stranger.get(session.get_absolute_url()).status_code == 302
