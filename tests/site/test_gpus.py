"""Devices: a table of all, and each with what it reaches, against its datasheet and with earlier drivers."""

import csv
import html
import io
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from redis.exceptions import RedisError

from kernels import HARNESS_VERSION
from kernels.analysis.peaks import peak_of
from kernels.contract.events import Calibrated
from kernels.workload import Ceilings
from runs import messages
from runs.models import Calibration, Environment, Run
from runs.pipeline.recorder import _calibrated
from runs.views.gpus import FIELDS, ceilings_of

LIST = reverse("gpus")
CEILINGS = {
    "copy_gb_per_s": 4250.0,
    "read_gb_per_s": 4400.0,
    "matmul_tflops": {"float32": 51.0, "bfloat16": 793.0, "float16": 761.0},
    "empty_us": {"e2e": 13.2, "cold": 3.4, "graph": 0.9},
    "intervals": {
        "copy_gb_per_s": [4240.0, 4262.0], "read_gb_per_s": [4380.0, 4410.0], "float32": [50.9, 51.1],
        "bfloat16": [785.0, 797.0], "float16": [757.0, 764.0], "e2e": [13.0, 14.0], "cold": [3.3, 3.5], "graph": [0.8, 1.0],
    },
    "n": 20,
}  # fmt: skip
OF_A_CPU = {"copy_gb_per_s": 38.2, "matmul_tflops": {"float32": 1.31}, "empty_us": {"cpu": 0.2}, "n": 20}


def calibrate(gpu, driver=None, ceilings=CEILINGS, run=None, days=0):
    at = timezone.now() - timedelta(days=days)
    driver = gpu.driver if driver is None else driver
    return Calibration.objects.create(gpu=gpu, driver=driver, ceilings=ceilings, run=run, measured_at=at)


def address(gpu, name="gpu"):
    return reverse(name, args=[gpu.pk])


def page_of(client, gpu):
    return client.get(address(gpu)).content.decode()


@pytest.fixture
def h200(make_gpu):
    return make_gpu("GPU-2", host="gpu-2", index=3, driver="580.1", memory_bytes=140 * 2**30)


# --- all devices ------------------------------------------------------------------------------------------------------


def test_without_devices_the_page_says_how_to_add_one(owner):
    answer = owner.get(LIST)
    assert answer.context["headline"] == "No device has reported yet"
    assert "BROKER=redis://:PASSWORD@SITE:PORT/0 make agent" in answer.content.decode()
    assert b"<table" not in answer.content


def test_every_device_has_a_row_with_what_it_reaches(owner, h200, cpu, silent, make_run):
    calibrate(h200)
    calibrate(cpu, ceilings=OF_A_CPU)
    make_run(gpu=h200)  # and with it comes the device gpu-1
    answer = owner.get(LIST)
    page = answer.content.decode()
    assert answer.context["headline"] == "4 devices: 3 idle, 1 silent"
    for text in ("gpu-2 / 3", "580.1", "9.0", "140", "4,250", "761", "793", "38.2", "1.31", f'href="{address(h200)}"'):
        assert text in page, text
    assert f'<a href="{reverse("runs")}?device={h200.pk}">1</a>' in page
    assert page.index("gpu-2 / 3") < page.index("gpu-9 / 0") < page.index("web-1")


def test_the_headline_counts_by_state(owner, make_gpu):
    def headline():
        return owner.get(LIST).context["headline"]

    make_gpu("GPU-2")
    assert headline() == "1 device, idle"
    make_gpu("GPU-3")
    assert headline() == "2 devices, all idle"
    make_gpu("GPU-4", active_attempts=[[1, 1]])
    make_gpu("GPU-5", seen_at=None)
    assert headline() == "4 devices: 2 idle, 1 busy, 1 silent"
    assert b"never" in owner.get(LIST).content


def test_figures_of_another_driver_are_not_shown_as_the_present_ones(owner, h200):
    calibrate(h200, driver="570.1")
    (row,) = owner.get(reverse("gpus_json")).json()["gpus"]
    assert (row["copy_gb_per_s"], row["fp16_tflops"]) == (None, None)


def test_csv_and_json_have_a_row_for_each_device(owner, h200, cpu):
    calibrate(h200)
    answer = owner.get(reverse("gpus_csv"))
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert (answer["Content-Type"], answer["Content-Disposition"]) == (
        "text/csv; charset=utf-8",
        'attachment; filename="gpus.csv"',
    )
    assert tuple(rows[0]) == FIELDS
    listed = owner.get(reverse("gpus_json")).json()["gpus"]
    assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in listed] == rows
    assert (listed[0]["state"], listed[0]["copy_gb_per_s"], listed[0]["bf16_tflops"]) == ("idle", 4250.0, 793.0)
    assert listed[1]["kind"] == "cpu"


def test_what_a_cpu_computes_is_shown_too(owner, cpu):
    calibrate(cpu, ceilings=OF_A_CPU)
    (row,) = owner.get(reverse("gpus_json")).json()["gpus"]
    assert (row["fp16_tflops"], row["bf16_tflops"], row["fp32_tflops"]) == (None, None, 1.31)


def test_a_device_is_idle_busy_or_silent_on_every_page(owner, h200, gpu, make_run):
    gpu.delete()

    def states():
        pages = [owner.get(path).content.decode() for path in (reverse("overview"), LIST, address(h200))]
        said = [re.findall(r"</span>(idle|busy|silent|online|offline)</span>", page) for page in pages]
        return said, h200.__class__.objects.get(pk=h200.pk).state

    assert states() == ([["idle"]] * 3, "idle")
    run = make_run(gpu=h200, state="running", sent_at=timezone.now())
    assert states()[0] == [["busy"]] * 3, "though its agent has not said so yet"
    h200.active_attempts = [[run.pk, 1]]
    h200.save()
    assert states() == ([["busy"]] * 3, "busy")
    h200.seen_at = timezone.now() - timedelta(hours=1)
    h200.save()
    assert states() == ([["silent"]] * 3, "silent")


def test_a_device_that_works_while_the_recorder_hangs_is_not_called_silent(owner, h200, gpu, make_run, monkeypatch):
    """Its agent still reaches the broker: the page names the recorder."""
    gpu.delete()
    h200.seen_at = timezone.now() - timedelta(minutes=2)
    h200.save()
    monkeypatch.setattr("runs.models.gpu.agent_pulses", lambda uuid: uuid == h200.uuid)
    run = make_run(gpu=h200, state="running", sent_at=timezone.now())
    for path in (reverse("overview"), LIST, address(h200), run.get_absolute_url()):
        page = owner.get(path).content.decode()
        assert "silent" not in page.casefold(), path
        assert "unheard" in page or path == run.get_absolute_url()
        assert "recorder" in page or path == LIST
    assert owner.get(LIST).context["headline"] == "1 device, unheard"


def test_pages_do_not_ask_a_broker_that_does_not_answer_for_each_device(monkeypatch):
    asked = []

    def pulse_of(keys, name):
        asked.append(name)
        raise RedisError

    monkeypatch.setattr(messages, "_failed_at", -messages.NOT_AGAIN_S)
    monkeypatch.setattr(messages.BrokerKeys, "pulse_of", pulse_of)
    assert not any(messages.agent_pulses(uuid) for uuid in ("GPU-1", "GPU-2", "GPU-3"))
    assert asked == ["agent:GPU-1"]


def test_a_device_whose_clock_is_wrong_says_so(owner, h200):
    assert "its clock is" not in page_of(owner, h200)
    h200.clock_ahead_s = 86_400.0
    h200.save()
    assert "its clock is <b>86400 s</b> ahead" in page_of(owner, h200)


def test_files_without_devices_have_no_rows(owner):
    assert owner.get(reverse("gpus_csv")).content.decode().splitlines() == [",".join(FIELDS)]
    assert owner.get(reverse("gpus_json")).json() == {"gpus": []}


@pytest.mark.parametrize("count", (1, 40))
def test_it_takes_the_same_queries_for_any_number_of_devices(
    owner, make_gpu, make_run, count, django_assert_max_num_queries
):
    for number in range(count):
        gpu = make_gpu(f"GPU-{100 + number}", host=f"gpu-{number}", driver="580.1")
        calibrate(gpu, run=make_run(gpu=gpu))
        calibrate(gpu, driver="570.1")
    for name in ("gpus", "gpus_csv", "gpus_json"):
        with django_assert_max_num_queries(4):  # session, user, devices, calibrations
            owner.get(reverse(name))


def test_the_list_does_not_load_catalogues(owner, h200):
    with CaptureQueriesContext(connection) as seen:
        owner.get(LIST)
    assert not any('"catalogue"' in query["sql"] for query in seen)


# --- ceilings ---------------------------------------------------------------------------------------------------------


def test_ceilings_stand_beside_the_datasheet_in_a_fixed_order():
    rows = ceilings_of(CEILINGS, peak_of("NVIDIA H200"))
    assert [(c.what, c.unit, c.measured, c.datasheet) for c in rows] == [
        ("device copy", "GB/s", 4250.0, 4800),
        ("device read", "GB/s", 4400.0, 4800),
        ("matmul fp16", "TFLOP/s", 761.0, 989.4),
        ("matmul bf16", "TFLOP/s", 793.0, 989.4),
        ("matmul fp32", "TFLOP/s", 51.0, 67),
        ("empty kernel, cold", "us", 3.4, None),
        ("empty kernel, graph", "us", 0.9, None),
        ("empty kernel, e2e", "us", 13.2, None),
    ]
    assert [(c.what, c.light) for c in rows[1:5]] == [
        ("device read", 4800),
        ("matmul fp16", pytest.approx(1070.5, abs=0.1)),
        ("matmul bf16", pytest.approx(1070.5, abs=0.1)),
        ("matmul fp32", pytest.approx(356.8, abs=0.1)),
    ]
    assert rows[0].share == pytest.approx(4250 / 4800)
    assert rows[2].share == pytest.approx(761 / 1070.53, rel=1e-4)
    assert (rows[0].interval, rows[-1].interval) == ([4240.0, 4262.0], [13.0, 14.0])
    assert rows[-1].share is None


def test_any_figure_may_be_missing():
    peak = peak_of("NVIDIA H200")
    assert ceilings_of({}, peak) == []
    assert ceilings_of({"copy_gb_per_s": None, "matmul_tflops": None, "empty_us": {}, "n": 20}, peak) == []
    assert [c.what for c in ceilings_of(OF_A_CPU)] == ["device copy", "matmul fp32", "empty kernel, cpu"]


def test_a_dtype_that_no_datasheet_names_has_no_share():
    (row,) = ceilings_of({"matmul_tflops": {"float8": 1500.0}}, peak_of("NVIDIA H200"))
    assert (row.what, row.share) == ("matmul float8", None)


# --- one device -------------------------------------------------------------------------------------------------------


def test_a_device_says_what_it_reaches_and_what_it_does(owner, h200, make_run):
    done = make_run(gpu=h200, title="calibrating", state="done")
    run = make_run(gpu=h200, title="now", state="running", sent_at=timezone.now(), total=8, done=3)
    calibrate(h200, run=done)
    page = page_of(owner, h200)
    assert (
        "<strong>Reaches 4,400 GB/s (read) and 793 TFLOP/s (bf16)</strong>, 92% and 74% of the speed of light." in page
    )
    assert f'<a href="/runs/{run.pk}/">Run {run.pk}</a> is running on this device: 3 of 8 workloads measured.' in page
    assert f'by <a href="/runs/{done.pk}/">run {done.pk}</a> with driver 580.1, medians of 20 calls' in page
    assert "datasheet: H200 SXM" in page
    assert "None: all" in page, "an H200 runs every kernel of its catalogue"
    assert "with each driver" not in page
    assert f'<form class="again" method="post" action="{address(h200, "recalibrate")}">' in page


def test_a_new_device_waits_for_its_first_run(owner, h200, make_run):
    page = page_of(owner, h200)
    assert "Its ceilings are not measured yet." in page
    assert "Idle now." in page
    assert "The first run on this device measures them." in page
    assert address(h200, "recalibrate") not in page
    make_run(gpu=h200)
    assert "Not measured with driver 580.1 yet. The next run on this device measures them." in page_of(owner, h200)


def test_a_device_without_a_datasheet_shows_no_share(owner, cpu):
    calibrate(cpu, ceilings=OF_A_CPU)
    page = page_of(owner, cpu)
    assert "<strong>Reaches 38.2 GB/s (copy) and 1.31 TFLOP/s (fp32)</strong>." in page
    assert "no datasheet is known for this device" in page
    assert "<th>share</th>" not in page
    assert "needs a CUDA device" in page
    assert "triton-flash" in page


def test_a_calibration_without_figures_or_run_is_shown_all_the_same(owner, h200):
    calibrate(h200, ceilings={})
    page = page_of(owner, h200)
    assert "Its ceilings are not measured yet." in page
    assert "The next run on this device measures them." in page


def test_earlier_drivers_are_kept_as_history(owner, h200):
    calibrate(h200, driver="550.1", ceilings={"copy_gb_per_s": 4100.0}, days=300)
    assert "with each driver" in page_of(owner, h200), "though the present driver is not measured"
    calibrate(h200, driver="570.1", ceilings=CEILINGS | {"read_gb_per_s": None}, days=70)
    calibrate(h200)
    answer = owner.get(address(h200))
    history = answer.context["history"]
    assert history["columns"][:3] == [("device copy", "GB/s"), ("device read", "GB/s"), ("matmul fp16", "TFLOP/s")]
    assert [(c.driver, *values[:3]) for c, values in history["rows"]] == [
        ("580.1", 4250.0, 4400.0, 761.0),
        ("570.1", 4250.0, None, 761.0),
        ("550.1", 4100.0, None, None),
    ]
    assert answer.content.count(b">current<") == 1


def test_a_silent_device_says_since_when(owner, silent, make_gpu):
    assert f"{silent.seen_at:%Y-%m-%d %H:%M} UTC</time>." in page_of(owner, silent).split("Silent since <time")[1]
    assert "Never seen." in page_of(owner, make_gpu("GPU-7", seen_at=None, catalogue=[]))


def test_only_its_own_last_runs_are_listed(owner, h200, gpu, make_run):
    for number in range(12):
        make_run(gpu=h200, title=f"run {number}")
    make_run(gpu=gpu, title="elsewhere")
    answer = owner.get(address(h200))
    assert [run.title for run, _ in answer.context["runs"]] == [f"run {number}" for number in range(11, 1, -1)]
    assert f'<a href="{reverse("runs")}?device={h200.pk}">all runs</a>' in answer.content.decode()


def test_what_an_agent_says_is_text_and_not_html(owner, make_gpu):
    bad = "<script>alert(1)</script>"
    entry = {"operation": bad, "name": bad, "backend": "", "doc": "", "why_not": bad}
    gpu = make_gpu("GPU-8", name=bad, host=bad, driver=bad, catalogue=[entry])
    calibrate(gpu, ceilings={"matmul_tflops": {bad: 1.0}, "empty_us": {bad: 1.0}})
    for page in (page_of(owner, gpu), *(owner.get(list_).content.decode() for list_ in (LIST, reverse("kernels")))):
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_the_json_of_a_device_has_everything_measured_of_it(owner, h200, make_run):
    run = make_run(gpu=h200, state="running", sent_at=timezone.now())
    calibrate(h200, run=run)
    calibrate(h200, driver="570.1", days=70)
    data = owner.get(address(h200, "gpu_json")).json()
    listed = {row["id"]: row for row in owner.get(reverse("gpus_json")).json()["gpus"]}
    assert {name: data[name] for name in FIELDS} == listed[h200.pk]
    assert data["run"] == run.pk
    assert data["datasheet"]["tflops"] == {
        "float16": 989.4, "bfloat16": 989.4, "float32": 67, "tf32": 495, "float8_e4m3fn": 1979,
    }  # fmt: skip
    assert [(c["driver"], c["run"], c["ceilings"]) for c in data["calibrations"]] == [
        ("580.1", run.pk, CEILINGS),
        ("570.1", None, CEILINGS),
    ]
    assert data["cannot_run"] == []


def test_the_json_of_a_cpu_names_what_it_cannot_run(owner, cpu):
    data = owner.get(address(cpu, "gpu_json")).json()
    assert (data["datasheet"], data["run"], data["calibrations"]) == (None, None, [])
    assert {"operation": "attention", "name": "triton-flash", "why_not": "needs a CUDA device"} in data["cannot_run"]


def test_a_page_of_many_runs_and_drivers_takes_few_queries(owner, h200, make_run, django_assert_max_num_queries):
    for number in range(12):
        calibrate(h200, driver=f"{number}", run=make_run(gpu=h200), days=number)
    Run.objects.update(done=1)
    # session, user, device, calibrations, present run, last runs, their results; the queue: its runs, the order of all
    # waiting ones, device time, devices, runs in progress
    with django_assert_max_num_queries(12):
        owner.get(address(h200))
    with django_assert_max_num_queries(5):
        owner.get(address(h200, "gpu_json"))


# --- measuring again --------------------------------------------------------------------------------------------------


def test_measuring_again_concerns_the_present_driver_only(owner, h200, gpu):
    measured = calibrate(h200)
    calibrate(h200, driver="570.1")
    calibrate(gpu)
    assert not any(c.again for c in Calibration.objects.all())
    answer = owner.post(address(h200, "recalibrate"), follow=True)
    assert answer.redirect_chain == [(address(h200), 302)]
    assert "The next run on this device measures its ceilings." in answer.content.decode()
    assert h200.ceilings is None
    assert [c.pk for c in Calibration.objects.all() if c.again] == [measured.pk]


def test_until_they_are_measured_again_the_figures_stand(owner, h200, make_run):
    calibrate(h200, days=1)
    owner.post(address(h200, "recalibrate"))
    page = page_of(owner, h200)
    assert "Reaches 4,400 GB/s" in page
    assert "The next run on this device measures them again." in page
    assert address(h200, "recalibrate") not in page
    assert owner.get(address(h200, "gpu_json")).json()["copy_gb_per_s"] == 4250.0
    assert [c["again"] for c in owner.get(address(h200, "gpu_json")).json()["calibrations"]] == [True]

    _calibrated(make_run(gpu=h200), Calibrated(driver="580.1", ceilings=CEILINGS | {"n": 21}), timezone.now())
    assert h200.ceilings == CEILINGS | {"n": 21}
    assert "will be measured again" not in page_of(owner, h200)


REFUSED = "the device was busy: A/A of the device copy gives a margin of 38.0%, above 5%"


def test_what_a_busy_device_refused_is_measured_again_by_the_next_run(owner, h200, make_run):
    """Nothing on the page is a ceiling, and the next run takes it without being asked."""
    run = make_run(gpu=h200)
    _calibrated(run, Calibrated(driver="580.1", refused=REFUSED), timezone.now())
    page = page_of(owner, h200)
    assert "Its ceilings are not measured yet." in page
    assert f": {REFUSED}." in page
    assert "The next run on this device measures them." in page
    assert run.run_spec().ceilings is None
    assert owner.get(address(h200, "gpu_json")).json()["calibrations"][0]["refused"] == REFUSED

    _calibrated(run, Calibrated(driver="580.1", ceilings=CEILINGS), timezone.now())
    page = page_of(owner, h200)
    assert "Reaches 4,400 GB/s" in page
    assert "Refused" not in page
    assert run.run_spec().ceilings == Ceilings(**CEILINGS)


def test_ceilings_that_became_doubtful_stay_on_the_page_and_are_held_against_nobody(owner, h200, make_run):
    run = make_run(gpu=h200)
    _calibrated(run, Calibrated(driver="580.1", ceilings=CEILINGS), timezone.now())
    _calibrated(run, Calibrated(driver="580.1", refused=REFUSED), timezone.now())
    page = page_of(owner, h200)
    assert "Reaches 4,400 GB/s" in page
    assert f": {REFUSED}." in page
    assert "The next run on this device measures them again." in page
    assert run.run_spec().ceilings is None


def test_ceilings_without_an_interval_are_measured_again(owner, h200, make_run):
    """A harness before this one took them, perhaps from a busy device: 3.02 GB/s once stood beside 55.9."""
    calibrate(h200, ceilings={**CEILINGS, "intervals": {}})
    assert make_run(gpu=h200).run_spec().ceilings is None
    assert "They have no interval." in page_of(owner, h200)


def test_a_ceiling_has_its_interval_and_date(owner, h200):
    calibrate(h200)
    page = page_of(owner, h200)
    assert '<b>761</b></td><td class="text"><small>757 to 764</small>' in page
    assert '<b>4,250</b></td><td class="text"><small>4,240 to 4,262</small>' in page
    assert f"{timezone.now():%Y-%m-%d}" in page.split("Measured")[1].split("</p>")[0]


def test_the_light_is_at_the_clock_that_the_driver_reports(owner, make_gpu):
    gpu = make_gpu("GPU-3", host="gpu-3", driver="580.1", max_sm_mhz=1755.0)
    calibrate(gpu)
    page = page_of(owner, gpu)
    assert "Speed of light at 1755 MHz (its driver): fp16, bf16, tf32 132 SMs x 4096 FLOP/clk x 1.755 GHz" in page
    data = owner.get(address(gpu, "gpu_json")).json()["datasheet"]
    assert (data["max_sm_mhz"], data["light_tflops"]["float16"]) == (1755.0, pytest.approx(948.9, abs=0.1))


def test_what_another_harness_measured_is_measured_again(owner, h200):
    """A result is compared with ceilings that were measured as it was."""
    for harness, kept in (("1", None), (HARNESS_VERSION, CEILINGS)):
        Calibration.objects.all().delete()
        measured = calibrate(h200)
        measured.environment = Environment.of({"harness": harness}, "f" * 12)
        measured.save()
        assert h200.ceilings == kept
        assert ("measures them again" in page_of(owner, h200)) == (kept is None)


def test_the_next_run_is_sent_without_ceilings(owner, h200, make_run):
    calibrate(h200)
    run = make_run(gpu=h200)
    assert run.run_spec().ceilings == Ceilings(**CEILINGS)
    owner.post(address(h200, "recalibrate"))
    assert Run.objects.get(pk=run.pk).run_spec().ceilings is None


def test_measuring_again_is_a_post(owner, h200):
    calibrate(h200)
    assert owner.get(address(h200, "recalibrate")).status_code == 405
    assert h200.ceilings == CEILINGS


@pytest.mark.parametrize("path", ("/gpus/999/", "/gpus/999.json", "/gpus/99999999999999999999999/"))
def test_a_device_that_does_not_exist_is_a_404(owner, path):
    assert owner.get(path).status_code == 404


def test_measuring_again_what_does_not_exist_is_a_404(owner):
    assert owner.post("/gpus/999/recalibrate/").status_code == 404


# --- the sandbox of its host ------------------------------------------------------------------------------------------

HELD = {
    "own_user": True, "no_network": True, "own_pids": True, "own_proc": True, "read_only": True, "hidden": True,
    "limited_scratch": True, "limited_memory": True, "user_namespace": False, "missing": [], "trusted": False,
}  # fmt: skip


def sandbox_on(owner, gpu, **said):
    gpu.no_submissions, gpu.sandbox = said.pop("refuses", ""), HELD | said
    gpu.save()
    page = owner.get(reverse("gpu", args=[gpu.pk])).content.decode()
    return " ".join(re.sub("<[^>]+>", " ", page[page.index("sandbox-title") :]).split())


def test_a_devices_page_says_what_its_host_takes_from_a_kernel(owner, gpu):
    page = sandbox_on(owner, gpu)
    assert "Submitted kernels run here, each in a process of its own." in page
    assert "a user of its own yes" in page and "no:" not in page.split("Kernels that cannot run")[0]


def test_what_a_host_does_not_allow_is_said_with_the_reason(owner, gpu):
    page = sandbox_on(
        owner,
        gpu,
        own_user=False,
        user_namespace=True,
        limited_memory=False,
        missing=["a limit of memory: <not> permitted"],
    )
    assert (
        "a user of its own no: it runs as the agent's user in a user namespace, without rights outside it"
        in html.unescape(page)
    )
    assert "memory of all its processes has a limit no: this host does not allow it" in page
    assert "a limit of memory: &lt;not&gt; permitted" in page


def test_a_page_says_that_an_owner_trusts_kernels_or_that_none_run(owner, gpu):
    assert "the host's owner trusts them" in html.unescape(sandbox_on(owner, gpu, own_user=False, trusted=True))
    assert "No submitted kernel runs here: it has no user" in sandbox_on(owner, gpu, refuses="it has no user")


@pytest.mark.parametrize("said", [None, {"own_user": "?"}, ["no"], {"from_next_year": True}])
def test_a_device_without_a_known_sandbox_has_a_page(owner, gpu, said):
    gpu.sandbox = said
    gpu.save()
    assert "sandbox-title" not in owner.get(reverse("gpu", args=[gpu.pk])).content.decode()
