"""Pages of kernels: all of them, each with where it stands, and its history on one workload, series by series."""

import csv
import io
import json
import re

import pytest
from cast import load, shortened, signed_in
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from many import many

from kernels.catalog import declared
from runs.models import Gpu, Kernel, Newest, Result, Run, Submission
from runs.queries import history, measurements, point_rows, tallies
from runs.views import history as history_page
from runs.views import kernels as kernels_page

FLASH = ["attention", "triton-flash"]


def page_of(client, name, *args, **asked):
    answer = client.get(reverse(name, args=args), asked)
    assert answer.status_code == 200
    return answer.getvalue().decode() if answer.streaming else answer.content.decode()


def series_of(name="triton-flash", key="", **more):
    kernel = Kernel.objects.get(operation="attention", name=name)
    environments = {pk: one for known in history.devices(kernel).values() for pk, one in known.items()}
    return history.series(kernel, environments, key)


# --- what belongs together --------------------------------------------------------------------------------------------


def test_runs_of_the_same_terms_are_one_series_newest_first(measured):
    runs = [measured(count=1), measured(count=1, edit={"triton-flash": 1.3}), measured(count=1)]
    (one,) = series_of()
    assert [point.run for point in one.points] == [run.pk for run in reversed(runs)]
    first, second, _ = (ratio.ratio for _, ratio in one.drawn)
    assert second == pytest.approx(1.3 * first)


@pytest.mark.parametrize(
    "what", ("driver", "card", "baseline source", "baseline", "mode", "rest", "pairs", "a demo"), ids=str
)
def test_what_decides_the_ratio_begins_a_new_series(measured, make_gpu, what):
    """Whatever decides which ratio is measured begins a new series."""
    before = measured(count=1)
    after = measured(count=1, **({"driver": "599.1"} if what == "driver" else {}))
    m = after.measurements.get()
    if what == "card":
        Run.objects.filter(pk=after.pk).update(gpu=make_gpu("GPU-2", host="gpu-2"))
    elif what == "a demo":
        Run.objects.filter(pk=after.pk).update(gpu=None, demo="measured elsewhere")
    elif what == "baseline source":
        base = m.results.get(kernel__name="sdpa")
        base.version = base.kernel.versions.create(sha256="f" * 64)
        base.save()
    elif what != "driver":
        changed = {
            "baseline": {"baseline": "eager"},
            "mode": {"mode": "sustained"},
            "rest": {"protocol": m.protocol | {"rest": 0.0}},
            "pairs": {"protocol": m.protocol | {"paired": False}},
        }[what]
        type(m).objects.filter(pk=m.pk).update(**changed)
    found = series_of()
    assert [[point.run for point in one.points] for one in found] == [[after.pk], [before.pk]]
    assert [one.number for one in found] == [1, 2]
    assert found[0].facts != found[1].facts, "the page says what is other"


def test_two_samples_are_never_one_series(exported, db):
    for name in ("one.json", "two.json"):
        load(shortened(exported, 1), name)
    assert [len(one.points) for one in series_of()] == [1, 1]


def test_what_a_device_cannot_run_and_checks_without_times_are_no_history(measured):
    first, second = measured(count=1), measured(count=1)
    Result.objects.filter(measurement__run=first).update(status="unsupported")
    second.measurements.update(mode="verify")
    assert series_of() == []
    found = [m for run in (first, second) for m in measurements.of_run(run)]
    assert len(found) == 2
    assert not any(point_rows.tells(m, arm) for m in found for arm in m.results)


def test_what_is_wrong_or_not_paired_is_listed_and_not_drawn(measured):
    first, second, third = (measured(count=1) for _ in range(3))
    Result.objects.filter(measurement__run=first).update(status="incorrect")
    Result.objects.filter(measurement__run=second).update(paired=False)
    (one,) = series_of()
    assert len(one.points) == 3
    assert [point.run for point, _ in one.drawn] == [third.pk]


SUBMITTED = """from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def mine(q, k, v, *, causal, scale):
    "In one line."
"""

# --- the pages --------------------------------------------------------------------------------------------------------


def test_all_kernels_are_listed_measured_or_not_the_baseline_first(owner, gpu, measured):
    run = measured(count=1)
    Kernel.objects.create(operation="attention", name="forgotten", backend="cuda")
    page = page_of(owner, "kernels")
    names = [part.split("<", 1)[0] for part in page.split('/">')[1:]]
    assert names.index("sdpa") < names.index("compiled") < names.index("triton-flash") < names.index("triton-gemm")
    assert f'<a href="/runs/{run.pk}/">{run.pk}</a>' in page
    assert page.count("Not available on any device now") == 1
    rows = {(row["operation"], row["name"]): row for row in json.loads(page_of(owner, "kernels_json"))["kernels"]}
    assert rows["attention", "triton-flash"]["results"] == 1 and rows["attention", "triton-flash"]["last_run"] == run.pk
    assert rows["gemm", "triton-gemm"] | {"doc": ""} == {
        "operation": "gemm", "name": "triton-gemm", "backend": "triton", "doc": "", "results": 0, "versions": 0,
        "last_run": None, "last_measured": None, "limits": "fp16, bf16; batch 1", "here": "",
        "checked": "not tested here yet", "other_work": "", "environment": "",
    }  # fmt: skip
    assert len(list(csv.DictReader(io.StringIO(page_of(owner, "kernels_csv"))))) == len(rows)


def test_a_kernel_says_what_it_takes_where_it_runs_and_whether_it_is_correct(owner, make_gpu, measured):
    measured(count=1)
    make_gpu("CPU-1", "cpu", "AMD EPYC", "web-1")
    rows = {(row["operation"], row["name"]): row for row in json.loads(page_of(owner, "kernels_json"))["kernels"]}
    flash = rows["attention", "triton-flash"]
    assert (flash["checked"], flash["here"]) == ("correct", "on 1 of 2 devices: needs a CUDA device")
    assert rows["attention", "gluon-flash"]["limits"] == "fp16, bf16; head_dim 32, 64, 80, 96, 128, 192, 256"
    assert rows["nsa", "sdpa"]["other_work"] == "attends to every key, whatever block_indices select"
    assert rows["nsa", "tilelang-cutedsl"]["environment"] == "TILELANG_USE_GEMM_V1=1"
    assert rows["attention", "sdpa"]["here"] == "" and rows["gemm", "eager"]["checked"] == "not tested here yet"
    page = page_of(owner, "kernels")
    assert "On 1 of 2 devices: needs a CUDA device" in page and "Takes fp16, bf16; head_dim 64, 128." in page


def test_what_no_device_has_now_still_says_what_it_is(owner, measured):
    measured(count=1)
    Gpu.objects.update(catalogue=[])
    rows = {(row["operation"], row["name"]): row for row in json.loads(page_of(owner, "kernels_json"))["kernels"]}
    flash = rows["attention", "triton-flash"]
    assert flash["doc"].startswith("Flash attention") and flash["here"] == "not available on any device now"
    page = page_of(owner, "kernels")
    assert "No device has any of them now." in page and "Not available" not in page, "once, not in every row"


def test_a_submission_is_available_wherever_submissions_run(owner, measured):
    measured(count=1)
    one, _ = Submission.objects.store({"a.py": SUBMITTED})
    Kernel.objects.filter(name="triton-flash").update(name=one.kernel)
    rows = {(row["operation"], row["name"]): row for row in json.loads(page_of(owner, "kernels_json"))["kernels"]}
    assert (rows["attention", one.kernel]["doc"], rows["attention", one.kernel]["here"]) == ("In one line.", "")


def test_the_last_check_is_the_worst_of_the_last_run(owner, measured):
    def checked():
        rows = json.loads(page_of(owner, "kernels_json"))["kernels"]
        return next(row["checked"] for row in rows if (row["operation"], row["name"]) == ("attention", "triton-flash"))

    first = measured(count=2)
    wrong = Result.objects.filter(measurement=first.measurements.first(), kernel__name="triton-flash")
    for status in ("incorrect", "suspect"):
        wrong.update(status=status, speedup=None, speedup_low=None, speedup_high=None)
        assert checked() == status, "its result with the highest number is correct"
    wrong.update(status="ok", correctness={"correct": None})
    assert checked() == "unknown"
    wrong.update(status="incorrect")
    measured(count=1)
    assert checked() == "correct", "an earlier run does not count"


def test_each_reason_why_a_kernel_cannot_run_is_said(owner, make_gpu):
    make_gpu("CPU-1", "cpu", "AMD EPYC", "web-1")
    make_gpu("GPU-2", name="NVIDIA A100", host="gpu-2", capability=8.0, catalogue=declared("cuda", 8.0))
    make_gpu("GPU-3", name="NVIDIA A100", host="gpu-3", capability=8.0, catalogue=declared("cuda", 8.0))
    rows = {(row["operation"], row["name"]): row for row in json.loads(page_of(owner, "kernels_json"))["kernels"]}
    said = rows["attention", "gluon-flash"]["here"]
    assert said.startswith("on 0 of 3 devices: ") and said.count("needs a CUDA device") == 1
    assert len(said.split("; ")) == 2 and "8.0" in said


def test_without_devices_it_says_how_one_gets_here(owner):
    assert "Start an agent: <code>make agent</code>" in page_of(owner, "kernels")


def test_a_kernel_stands_by_its_newest_result_on_each_workload(owner, measured):
    measured()
    newest = measured(edit={"triton-flash": 1.3})
    page = page_of(owner, "kernel", *FLASH)
    assert '<strong class="faster">triton-flash is faster than sdpa on 2 of 2 workloads</strong>' in page
    assert page.count("<polyline") == 2 and page.count('class="edited"') == 2
    for result in Result.objects.filter(measurement__run=newest, kernel__name="triton-flash"):
        assert f"<b>{result.speedup:.3f}x</b>" in page
    assert "1 line added, 0 removed since" in page
    assert '<span class="add">+# now 1.3' in page


def test_a_wrong_result_is_the_newest_too(owner, measured):
    measured(count=1)
    Result.objects.filter(measurement__run=measured(count=1), kernel__name="triton-flash").update(
        status="incorrect", why="largest <error> 3"
    )
    page = page_of(owner, "kernel", *FLASH)
    assert '<strong class="same">Incorrect</strong>.' in page
    assert "largest &lt;error&gt; 3" in page


def test_the_baseline_is_called_one(owner, measured):
    measured(count=1)
    page = page_of(owner, "kernel", "attention", "sdpa")
    assert "The baseline: other kernels are compared with it" in page
    assert "speedup" not in page.split("<table")[1]


def test_a_kernel_that_no_run_has_measured_says_so(owner, gpu):
    page = page_of(owner, "kernel", "gemm", "triton-gemm")
    assert "Not measured yet" in page
    (address,) = re.findall(r'href="([^"]+)">Start one', page)
    form = owner.get(address.replace("&amp;", "&")).context["form"]
    assert {k["name"] for k in form.catalogue if k["ticked"]} >= {"eager", "triton-gemm"}


def test_a_kernel_that_no_device_could_run_says_why(owner, measured):
    run = measured(count=1)
    of = Result.objects.filter(measurement__run=run, kernel__name="triton-flash")
    of.update(status="unsupported", why="only on the moon", version=None)
    page = page_of(owner, "kernel", *FLASH)
    assert f"Not measured yet</strong>. Run {run.pk} failed: only on the moon." in page
    assert "Sources" not in page


def test_results_without_a_source_are_no_new_source(owner, measured):
    """As of a file that could not be read any more."""
    measured(count=1), measured(count=1)
    Result.objects.filter(measurement__run=Run.objects.latest("pk"), kernel__name="triton-flash").update(
        status="failed", why="cannot be read", version=None
    )
    key = Run.objects.latest("pk").measurements.get().workload.key
    assert ">new</small>" not in page_of(owner, "kernel_workload", *FLASH, key)
    Result.objects.filter(kernel__name="triton-flash").update(version=None)
    assert "Failed</strong>" in page_of(owner, "kernel", *FLASH)


def test_what_devices_say_of_a_kernel_stands_on_its_page(owner, make_gpu):
    broken = {
        "operation": "gemm",
        "name": "broken",
        "backend": "unknown",
        "doc": "",
        "why_not": "broken.py cannot be read",
    }
    make_gpu(catalogue=[broken])
    assert "not on NVIDIA H200: broken.py cannot be read" in page_of(owner, "kernel", "gemm", "broken")
    assert "broken.py cannot be read" in page_of(owner, "kernels")


def test_a_kernel_that_is_not_there_any_more_keeps_its_page(owner, measured, gpu):
    measured(count=1)
    gpu.catalogue = []
    gpu.save()
    assert "not available on any device now" in page_of(owner, "kernel", *FLASH)


def test_each_device_has_a_tab(owner, measured, make_gpu):
    measured(count=1)
    other = make_gpu("GPU-2", host="gpu-2", name="NVIDIA L4")
    there = measured(count=1, on=other, device="NVIDIA L4")
    page = page_of(owner, "kernel", *FLASH)
    assert "<h1>triton-flash on NVIDIA L4</h1>" in page and '<a href="?device=NVIDIA%20H200">' in page
    assert "triton-flash on NVIDIA H200" in page_of(owner, "kernel", *FLASH, device="NVIDIA H200")
    table = json.loads(page_of(owner, "kernel_json", *FLASH, device="NVIDIA L4"))["results"]
    assert [row["run"] for row in table] == [there.pk]


def test_a_history_says_what_was_other_in_each_series(owner, measured):
    before, middle = measured(count=1), measured(count=1, edit={"triton-flash": 1.3})
    after = measured(count=1, driver="599.1")
    key = after.measurements.get().workload.key
    page = page_of(owner, "kernel_workload", *FLASH, key)
    assert "3 results on NVIDIA H200, in 2 series that cannot be compared with each other." in page
    newest, older = page.split('scope="rowgroup">')[1:]
    assert 'class="other"' not in newest and "driver <b>599.1</b>" in newest
    assert '<span class="other">driver <b>580' in older
    assert reverse("compare", args=[before.pk, middle.pk]) in older and "/compare/" not in newest
    assert older.count(">new</small>") == 1
    assert f'href="{reverse("tier_workload", args=[key, "graph"])}?device=' in page
    with io.StringIO(page_of(owner, "kernel_workload_csv", *FLASH, key)) as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["series"]) for row in rows] == [
        (str(after.pk), "1"), (str(middle.pk), "2"), (str(before.pk), "2"),
    ]  # fmt: skip
    assert list(rows[0]) == list(history.FIELDS)


def test_a_history_that_is_too_long_for_the_page_says_so_and_is_whole_in_the_files(owner, measured, monkeypatch):
    runs = [measured(count=1) for _ in range(4)]
    key = runs[0].measurements.get().workload.key
    monkeypatch.setattr(history_page, "MOST_ROWS_SHOWN", 2)
    page = page_of(owner, "kernel_workload", *FLASH, key)
    assert "4 results on NVIDIA H200. The newest 2 are listed; csv and json have all." in page
    monkeypatch.setattr(history, "MOST_RESULTS", 3)
    monkeypatch.setattr(kernels_page, "MOST_RESULTS", 3)
    page = page_of(owner, "kernel_workload", *FLASH, key)
    assert "The newest 3 results on NVIDIA H200. 2 of them are listed; csv and json have all." in page
    assert "Newest result on each workload, of the newest 3 results" in page_of(owner, "kernel", *FLASH)
    for name in ("kernel_json", "kernel_workload_json"):
        table = json.loads(page_of(owner, name, *FLASH, *([key] if "workload" in name else [])))["results"]
        assert [row["run"] for row in table] == [run.pk for run in reversed(runs)]


def test_every_offered_comparison_can_be_made(owner, measured):
    measured(count=1), measured(count=1)
    key = Run.objects.latest("pk").measurements.get().workload.key
    address = reverse("compare", args=Run.objects.order_by("pk").values_list("pk", flat=True))
    assert address in page_of(owner, "kernel_workload", *FLASH, key)
    assert "They cannot be compared" not in owner.get(address).content.decode()


def test_a_result_leads_to_its_history(owner, measured):
    run = measured(count=1)
    result = run.measurements.get().results.get(kernel__name="triton-flash")
    address = reverse("kernel_workload", args=[*FLASH, result.measurement.workload.key]) + "?device=NVIDIA%20H200"
    assert f'<a href="{address}">history</a>' in page_of(owner, "result", run.pk, result.pk)
    assert owner.get(address).status_code == 200
    Result.objects.filter(pk=result.pk).update(status="unsupported")
    assert ">history</a>" not in page_of(owner, "result", run.pk, result.pk)


def test_what_is_not_there_is_named(owner, measured, gpu):
    measured(count=1)
    for address, sentence in {
        "/kernels/attention/nothing/": "There is no kernel attention/nothing.",
        "/kernels/nothing/sdpa/": "There is no kernel nothing/sdpa.",
        "/kernels/attention/a%00b/": "There is no kernel attention/a",
        f"/kernels/attention/{'x' * 3000}/": "There is no kernel attention/xxx",
        "/kernels/gemm/triton-gemm/on/0000/": "There is no result of triton-gemm on a workload 0000.",
        "/kernels/attention/triton-flash/on/0000/": "There is no result of triton-flash on a workload 0000 on NVIDIA H200.",
        "/kernels/attention/triton-flash/?device=nonsense": "There is no result of triton-flash on nonsense.",
        "/kernels/attention/triton-flash.csv?device=nonsense": "There is no result of triton-flash on nonsense.",
    }.items():
        answer = owner.get(address)
        assert answer.status_code == 404
        assert sentence in answer.content.decode()


def test_a_name_that_no_catalogue_would_take_today_still_has_a_page(owner, measured):
    measured(count=1)
    Kernel.objects.filter(name="triton-flash").update(name="a/b c")
    assert "a/b c on NVIDIA H200" in page_of(owner, "kernel", "attention", "a/b c")
    assert owner.get(reverse("kernels")).status_code == 200


def test_a_long_history_costs_no_more_queries(owner, measured):
    def queries(name, *args):
        with CaptureQueriesContext(connection) as captured:
            page_of(owner, name, *args)
        return len(captured)

    key = measured().measurements.first().workload.key
    pages = (("kernels",), ("kernel", *FLASH), ("kernel_workload", *FLASH, key))
    page_of(owner, "kernels")  # the first one counts what there is
    few = [queries(*page) for page in pages]
    for number in range(5):
        measured(edit={"triton-flash": 1 + number / 10}, driver=f"59{number}")
    assert [queries(*page) for page in pages] == few
    assert max(few) <= 12


def test_of_many_workloads_those_measured_last_are_listed_unless_all_are_asked_for(owner, demo, monkeypatch):
    monkeypatch.setattr(kernels_page, "MOST_ROWS", 3)
    page = f"/kernels/attention/sdpa-flash/?device={Run.objects.get().environment.body['device']}"
    few, every = owner.get(page), owner.get(f"{page}&all=1")
    assert (len(few.context["rows"]), len(every.context["rows"])) == (3, 8)
    assert "The 3 workloads measured last, of 8." in few.content.decode() and b"Show all" not in every.content
    labels = [row["series"].workload.label for row in every.context["rows"]]
    assert [row["series"].workload.label for row in few.context["rows"]] == [
        label for label in labels if label in {row["series"].workload.label for row in few.context["rows"]}
    ]


def test_a_device_on_which_the_baseline_only_failed_is_offered(owner, measured, make_gpu):
    measured(1)
    other = measured(1, on=make_gpu("GPU-5", name="NVIDIA L4", host="gpu-5"), device="NVIDIA L4")
    failed = Result.objects.get(measurement__run=other, kernel__name="sdpa")
    Result.objects.filter(pk=failed.pk).update(status="incorrect", p50_ms=None)
    Newest.objects.filter(result=failed).delete()
    assert owner.get("/kernels/attention/sdpa/").context["devices"] == ["NVIDIA L4", "NVIDIA H200"]


# --- of many results ----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(demo):
    """6,400 results of 100 runs."""
    many(demo, 100)
    return signed_in("ora")


def test_the_newest_of_a_kernel_are_found_along_its_index(crowd):
    """Otherwise the database reads every run of the device: at a million results that takes a second."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL chooses its plan by the number of rows")
    kernel = Kernel.objects.get(operation="attention", name="sdpa")
    for environments in history.devices(kernel).values():
        rows = point_rows.tried(kernel, environments=environments).order_by("-pk").values("pk")[:1000]
        plan = rows.explain()
        assert "COVERING INDEX results_by_kernel" in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan


def test_the_file_of_a_kernel_has_the_rows_of_its_page_and_is_sent_as_it_is_read(crowd):
    answer = crowd.get(reverse("kernel_csv", args=FLASH))
    assert answer.streaming
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    table = json.loads(page_of(crowd, "kernel_json", *FLASH))["results"]
    there = [tuple(str(row[name]) for name in ("workload_key", "run", "series")) for row in table]
    assert sorted((row["workload_key"], row["run"], row["series"]) for row in rows) == sorted(there)
    assert len(rows) > 700


def test_results_are_counted_once_and_only_new_ones_again(demo, exported, monkeypatch):
    monkeypatch.setattr(tallies, "RECENT", 10)
    tallies.tallies()
    load(exported, "more")
    with CaptureQueriesContext(connection) as ran:
        now = tallies.tallies()
    counted = [one["sql"] for one in ran if "GROUP BY" in one["sql"]]
    upto = min(int(re.search(r'"id" > (\d+)', sql)[1]) for sql in counted)
    assert upto == max(Result.objects.filter(measurement__run=demo).values_list("pk", flat=True)) - 10
    flash = Kernel.objects.get(operation="attention", name="sdpa-flash")
    Result.objects.filter(pk__lte=now[flash.pk].last, kernel=flash).delete()
    assert flash.pk not in tallies.tallies(), "what was deleted is not counted from memory"
    now = tallies.tallies()
    cache.clear()
    assert now == tallies.tallies() and sum(one.results for one in now.values()) == Result.objects.count()


def test_a_contended_run_does_not_head_a_kernels_page(owner, measured):
    """Three contended results gave "is faster on 3 of 3 workloads"."""
    run = measured()
    address = "/kernels/attention/triton-flash/"
    assert "triton-flash is faster than sdpa" in owner.get(address).content.decode()
    Run.objects.filter(pk=run.pk).update(contended=True)
    page = owner.get(address).content.decode()
    assert "is faster than sdpa" not in page
    assert "triton-flash was compared with sdpa on 2 workloads, without a verdict" in page and "Contended on 2" in page
