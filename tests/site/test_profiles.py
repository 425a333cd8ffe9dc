"""Why a kernel is slow, on the site: a button queues a run, its event is stored once, the page says the diagnosis."""

import base64
import gzip
import json

import pytest
from cast import signed_in
from daily import look_at_all
from django.urls import reverse
from test_result_page import page_of, text_of

from kernels.contract.events import Examined, Finished, Line, Started
from kernels.contract.profile import Counters, Launch, Profile, Timeline
from runs.charts.run_stored import draw
from runs.models import Gpu, KernelProfile, RejectedEvent, Result, Role, Run, Session
from runs.pipeline import importer, recorder
from runs.queries.measurements import export_of

TRACE = gzip.compress(json.dumps({"traceEvents": [{"name": "call 1"}]}).encode())
TIMELINE = Timeline(
    call_ns=100_000,
    enqueue_ns=20_000,
    busy_ns=95_000,
    kernels=2,
    table="aten::mm",
    trace=base64.b64encode(TRACE).decode(),
)
LAUNCH = Launch(
    name="flash_fwd", duration_ns=90_000, dram=0.93, compute=0.3, sm_busy=0.95, occupancy=0.4, registers=168, waves=1.06,
    stalls=[("short_scoreboard", 0.41)],
)  # fmt: skip


@pytest.fixture
def result(measured, gpu):
    Gpu.objects.filter(pk=gpu.pk).update(no_counters="")
    rows = Result.objects.filter(measurement=measured(count=1).measurements.get(), kernel__name="sdpa-flash")
    return rows.select_related("kernel", "measurement__run", "measurement__workload").get()


def profile_of(result, **more):
    counters = Counters(tool="2025.3.1.0", launches=[LAUNCH])
    values = {"key": result.measurement.workload.key, "kernel": result.kernel.name, "sha256": result.version.sha256}
    return Profile(**values | {"counters": counters, "timeline": TIMELINE} | more)


def address(result, name="profile_result"):
    return reverse(name, args=[result.measurement.run_id, result.pk])


def queued(client, result):
    answer = client.post(address(result), follow=True)
    assert answer.status_code == 200
    return Run.objects.filter(profile_of=result).order_by("-pk").first(), answer.content.decode()


def sent(run, *events):
    """The run on its device, and what its agent sends: the first of these events has number 1."""
    Run.objects.filter(pk=run.pk, sent_at=None).update(attempt=1, sent_at=run.created_at)
    run.refresh_from_db()
    lines = [
        Line(run=run.pk, attempt=run.attempt, seq=number, at=run.created_at, event=event)
        for number, event in enumerate(events, 1)
    ]
    recorder.record([[line.run, line.attempt, line.seq, line.model_dump_json()] for line in lines])
    run.refresh_from_db()


def profiled(client, result, **more):
    run, _ = queued(client, result)
    started = Started(environment={"device": "a GPU"}, fingerprint="f")
    sent(run, started, Examined(profile=profile_of(result, **more)), Finished(state="done"))
    return run


# --- queueing ---------------------------------------------------------------------------------------------------------


def test_the_button_queues_a_run_of_this_kernel_alone_on_its_device(owner, result, gpu):
    assert "Profile</button>" in page_of(owner, result)
    run, page = queued(owner, result)
    assert f"Queued as run {run.pk}." in page
    assert f"It is being profiled: run {run.pk} , queued." in text_of(page)
    assert (run.gpu, run.total, run.user.username) == (gpu, 1, "olga")
    message = run.run_spec().as_message()
    assert message["profile"] == "sdpa-flash"
    assert [w["sizes"] for w in message["workloads"]] == [result.measurement.workload.as_json()["sizes"]]


def test_a_run_that_measures_says_nothing_of_profiles_to_an_agent_of_an_earlier_version(make_run, gpu):
    assert "profile" not in make_run(gpu=gpu).run_spec().as_message()


def test_two_clicks_queue_one_run(owner, result):
    first, _ = queued(owner, result)
    second, page = queued(owner, result)
    assert first == second
    assert f"Run {first.pk} profiles it already." in page
    assert "Profile</button>" not in page


def test_an_isolated_kernel_is_profiled_isolated(owner, result):
    type(result.measurement).objects.filter(pk=result.measurement_id).update(isolated=True)
    run, _ = queued(owner, result)
    assert run.spec.protocol.isolated


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"no_counters": None}, "does not support profiling. Update the repository on its host."),
        ({"seen_at": None}, "does not answer."),
    ],
)
def test_where_the_device_cannot_the_page_says_why(owner, result, gpu, change, said):
    Gpu.objects.filter(pk=gpu.pk).update(**change)
    page = page_of(owner, result)
    assert "Profile</button>" not in page and said in text_of(page)
    _, page = queued(owner, result)
    assert said in text_of(page)
    assert not Run.objects.filter(profile_of=result).exists()


def test_without_counters_there_is_a_button_and_what_is_missing(owner, result, gpu):
    Gpu.objects.filter(pk=gpu.pk).update(no_counters="ncu is not installed.")
    page = page_of(owner, result)
    assert "Profile</button>" in page
    assert "A profile here has a timeline, but no hardware counters. ncu is not installed." in text_of(page)


def test_what_was_measured_elsewhere_is_profiled_there(owner, demo):
    result = Result.objects.filter(measurement__run=demo, status="ok").select_related("measurement").first()
    page = text_of(page_of(owner, result))
    assert "No device of this site measured it" in page and "Profile</button>" not in page
    command = f"python -m kernels profile {result.kernel.name} --config run-{demo.pk}.yaml --workload 1 --device cuda:0"
    assert command in page


def test_a_result_that_is_not_ok_is_not_profiled(owner, result):
    Result.objects.filter(pk=result.pk).update(status="incorrect", speedup=None, speedup_low=None, speedup_high=None)
    assert 'id="profile"' not in page_of(owner, result)
    owner.post(address(result))
    assert not Run.objects.filter(profile_of=result).exists()


def test_a_viewer_reads_and_queues_nothing(result, owner):
    profiled(owner, result)
    viewer = signed_in("vera", Role.VIEWER)
    page = page_of(viewer, result)
    assert "DRAM-bound" in page and "</button>" not in page.partition('id="profile"')[2].partition("</section>")[0]
    assert viewer.post(address(result)).status_code == 403


# --- storing ----------------------------------------------------------------------------------------------------------


def test_an_event_is_stored_once_and_the_run_is_done(owner, result):
    run = profiled(owner, result)
    assert (run.state, run.done) == ("done", 1)
    stored = KernelProfile.objects.get()
    assert (stored.run, stored.result_id, bytes(stored.trace)) == (run, result.pk, TRACE)
    assert (stored.profile.timeline.trace, stored.profile.timeline.table) == ("", "")
    assert stored.with_table.timeline.table == "aten::mm"
    assert not RejectedEvent.objects.exists()


def test_an_event_that_comes_again_changes_nothing(owner, result):
    run, _ = queued(owner, result)
    sent(run, Examined(profile=profile_of(result)))
    Run.objects.filter(pk=run.pk).update(attempt=2, seq=0)  # its agent died before it could say that it was done
    run.refresh_from_db()
    sent(run, Examined(profile=profile_of(result, counters=None, counters_missing="gone")))
    assert KernelProfile.objects.get().profile.counters is not None


def test_a_profile_of_no_result_is_rejected(owner, result):
    run, _ = queued(owner, result)
    sent(run, Examined(profile=profile_of(result, kernel="another")))
    assert not KernelProfile.objects.exists()
    assert "there is no result of another" in RejectedEvent.objects.get().reason


def test_a_trace_that_is_none_is_left_out(owner, result):
    profiled(owner, result, timeline=TIMELINE.model_copy(update={"trace": "no base64!"}))
    assert KernelProfile.objects.get().trace is None
    assert owner.get(address(result, "result_profile_trace")).status_code == 404


def test_a_profiling_run_counts_as_no_measurement(owner, result):
    run = profiled(owner, result)
    assert not run.measurements.exists()
    page = text_of(owner.get(run.get_absolute_url()).content.decode())
    assert f"This run profiles sdpa-flash on {result.measurement.workload.label} . It measures nothing." in page
    assert "Nothing was measured" not in page


def test_what_follows_a_run_finds_nothing_to_do_after_one_that_profiles(owner, result):
    look_at_all()
    run = profiled(owner, result)
    draws = [draw(run.pk, place) for place in range(8)]
    assert not draws[-1]
    look_at_all()
    run.refresh_from_db()
    assert run.looked_at is not None
    assert not run.charts.exists()
    assert "Profile of sdpa-flash" in owner.get("/runs/").content.decode()
    for kind in ("json", "csv", "md", "jsonl"):
        assert owner.get(reverse(f"run_{kind}", args=[run.pk])).status_code == 200


def test_profiles_travel_with_an_exported_run(owner, result):
    profiled(owner, result)
    export = export_of(Run.objects.get(pk=result.measurement.run_id))
    run = importer.load(export, "again.json")
    again = KernelProfile.objects.get(run=run)
    assert again.result.measurement.run == run
    assert again.profile.counters.launches[0].registers == 168
    assert again.table == "aten::mm"


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_panel_begins_with_the_diagnosis_and_folds_the_caveats(owner, result):
    run = profiled(owner, result)
    page = page_of(owner, result)
    panel = page.partition('id="profile"')[2].partition("</section>")[0]
    said = text_of(panel)
    assert "What limits it Profile again DRAM-bound: 93% of peak; tail: 1.06 waves" in said
    assert "SMs busy 95% met at least 80%" in said
    assert "occupancy achieved 40% not met at least 50%" in said
    assert "a warp waits on shared memory, or on special functions 41% of its time" in said
    assert f"Profiled by run {run.pk}" in said
    folded = panel.partition("<details")[2].partition("</details>")[0]
    assert "<summary>Limits of these figures</summary>" in folded
    assert "its times count nowhere" in folded and "its times count nowhere" not in panel.partition("<details")[0]


def test_a_profile_without_counters_says_what_is_missing(owner, result):
    profiled(owner, result, counters=None, counters_missing="The driver lets only administrators read them.")
    said = text_of(page_of(owner, result))
    assert "No hardware counters: The driver lets only administrators read them." in said
    assert "profiler's table · trace for Perfetto · json" in said


def test_a_profile_of_a_changed_file_says_so(owner, result):
    profiled(owner, result, sha256="another".ljust(64, "0"))
    assert "The kernel's file has changed since this result" in text_of(page_of(owner, result))


def test_a_run_that_brought_nothing_is_named(owner, result):
    run, _ = queued(owner, result)
    sent(run, Finished(state="failed", message="no GPU"))
    assert f"Run {run.pk} produced no profile. Its state is failed." in text_of(page_of(owner, result))


def test_text_of_a_kernel_is_no_markup(owner, result):
    profiled(owner, result, counters=None, counters_missing="<script>alert(1)</script>", timeline=None)
    assert "<script>alert(1)" not in page_of(owner, result)


def test_the_page_of_a_profiled_result_takes_eight_queries_at_most(owner, result, django_assert_max_num_queries):
    profiled(owner, result)
    with django_assert_max_num_queries(8):
        page_of(owner, result)


def test_files_of_a_profile(owner, result):
    profiled(owner, result)
    table = owner.get(address(result, "result_profile_txt"))
    assert (table.content, table["Content-Disposition"].startswith("attachment")) == (b"aten::mm", True)
    trace = owner.get(address(result, "result_profile_trace"))
    assert trace["Content-Type"] == "application/gzip"
    assert json.loads(gzip.decompress(trace.content))["traceEvents"] == [{"name": "call 1"}]
    figures = owner.get(address(result, "result_profile_json")).json()
    assert figures["diagnosis"].startswith("DRAM-bound: 93% of peak")
    assert figures["findings"][0]["rule"] == "DRAM-bound"
    assert figures["profile"]["counters"]["launches"][0]["registers"] == 168


@pytest.mark.parametrize("name", ["result_profile_txt", "result_profile_trace", "result_profile_json"])
def test_what_nobody_profiled_has_no_files(owner, result, name):
    assert owner.get(address(result, name)).status_code == 404


def test_a_shared_run_shows_its_profiles_and_no_button(owner, result, client):
    profiled(owner, result)
    owner.post(reverse("share_run", args=[result.measurement.run_id]))
    token = Run.objects.get(pk=result.measurement.run_id).shares.get().token
    page = client.get(f"{address(result, 'result')}?share={token}").content.decode()
    panel = page.partition('id="profile"')[2].partition("</section>")[0]
    assert (
        "DRAM-bound" in panel
        and "<button" not in panel
        and "/runs/" not in panel.replace(f"/runs/{result.measurement.run_id}/results/", "")
    )
    assert client.get(address(result, "result_profile_trace")).status_code == 200
    assert client.post(address(result)).status_code == 302


# --- the report of a session ------------------------------------------------------------------------------------------


@pytest.fixture
def session(result):
    made = Session.objects.create(title="Why is it slow?")
    Run.objects.filter(pk=result.measurement.run_id).update(session=made)
    return made


HYPOTHESES = (
    "DRAM-bound: 93% of peak.",
    "tail: 1.06 waves, so 47% of the places stay empty.",
)


def test_a_report_quotes_diagnoses_as_hypotheses_with_their_evidence(owner, result, session):
    profiled(owner, result)
    page = owner.get(reverse("session_report", args=[session.pk])).content.decode()
    for said in HYPOTHESES:
        assert f"root-cause hypothesis sdpa-flash on {result.measurement.workload.label}: {said}" in text_of(page)
    assert "the rule DRAM-bound: at least 0.8, because copies of large tensors reach" in text_of(page)
    assert f'href="{address(result, "result")}#profile"' in page


def test_the_files_of_a_report_have_them_too(owner, result, session):
    profiled(owner, result)
    links = f"{address(result, 'result')}#profile"
    markdown = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert "- root-cause hypothesis: sdpa-flash on" in markdown and links in markdown
    found = owner.get(reverse("session_json", args=[session.pk])).json()["findings"]
    causes = [one for one in found if one["kind"] == "root-cause hypothesis"]
    assert [one["results"] for one in causes] == [[links]] * 2
    assert HYPOTHESES[0] in causes[0]["sentence"]


def test_a_report_without_profiles_has_no_hypothesis(owner, result, session):
    assert "root-cause hypothesis" not in owner.get(reverse("session_report", args=[session.pk])).content.decode()


def test_the_newest_profile_of_a_result_counts(owner, result, session):
    profiled(owner, result)
    profiled(owner, result, counters=Counters(launches=[LAUNCH.model_copy(update={"dram": 0.5, "waves": 4.0})]))
    page = text_of(owner.get(reverse("session_report", args=[session.pk])).content.decode())
    assert "DRAM-bound" not in page and "low occupancy" not in page
    assert "root-cause hypothesis" in page
