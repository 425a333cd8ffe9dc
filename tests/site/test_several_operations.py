"""A run of several operations: sections on its page, a line in lists, its charts and files. Of real results."""

import csv
import io
import json

import pytest
from cast import load
from django.conf import settings
from django.urls import reverse

from kernels.config_files import read_config
from kernels.contract.export import read_export
from runs.charts.run_stored import names_of
from runs.forms import MAX_WORKLOADS
from runs.models import Run, Session
from runs.queries.estimates import estimate
from runs.queries.outcomes import with_outcomes

MEASUREMENTS = settings.BASE_DIR / "docs" / "measurements"


def exported(name):
    """A committed export in today's form, as a dict."""
    return json.loads(read_export((MEASUREMENTS / f"{name}-h200-2026-11-22.json").read_bytes()).as_json([]))


def as_one(norm, gemm):
    """The config of a run of both."""
    named = [f"{part['config']['operation']}/{name}" for part in (norm, gemm) for name in part["config"]["kernels"]]
    workloads = norm["config"]["workloads"] + gemm["config"]["workloads"]
    more = {"name": "both", "operation": "", "baseline": "", "kernels": named, "workloads": workloads}
    return norm["config"] | more


@pytest.fixture
def several(db):
    """LayerNorm and GEMM, measured on an H200, as one run."""
    norm, gemm = exported("layer-norm"), exported("gemm")
    measured = norm["measurements"] + gemm["measurements"]
    return load(norm | {"title": "Both", "config": as_one(norm, gemm), "measurements": measured}, "both.json")


def test_charts_are_found_if_the_run_ended_after_its_first_operation(owner, db):
    norm, gemm = exported("layer-norm"), exported("gemm")
    run = load(norm | {"title": "Cut off", "config": as_one(norm, gemm)}, "cut.json")
    (part,) = owner.get(run.get_absolute_url()).context["sections"]
    assert part.charts == ("speedup__layer_norm", "latency__layer_norm") and set(part.charts) <= set(names_of(run))


def test_its_page_has_a_section_for_each_operation(owner, several):
    answer = owner.get(several.get_absolute_url())
    norm, gemm = answer.context["sections"]
    assert [part.unit for part in (norm, gemm)] == ["GB/s", "TFLOP/s"]
    assert norm.headline.strong == "triton-layer-norm is faster than eager on 3 of 3 workloads"
    assert gemm.headline.strong == "triton-gemm is slower than eager on 2 of 4 workloads"
    page = answer.content.decode()
    for title in ("LayerNorm, forward:", "Matrix product (GEMM):", '<h2 class="part" id="gemm">'):
        assert title in page
    for operation, workloads in {"layer_norm": 3, "gemm": 4}.items():
        table = page.split(f'id="table-{operation}"')[1].split("</table>")[0]
        assert table.count('scope="row"') == workloads
        figures = page.split(f'id="all-{operation}"')[1].split("</table>")[0]
        assert figures.count('<tr class="group">') == workloads


@pytest.mark.parametrize("name", ["speedup__gemm", "latency__layer_norm-narrow"])
def test_each_operation_has_its_charts(owner, several, name):
    chart = owner.get(reverse("chart_json", args=[several.pk, name])).json()
    operation = name.removesuffix("-narrow").split("__")[1]
    rows = [row for part in chart["datasets"].values() for row in part if "workload" in row]
    assert rows and all(row["workload"].startswith(f"{operation} ") for row in rows)
    assert owner.get(reverse("chart_svg", args=[several.pk, "speedup"])).status_code == 404


def test_lists_name_the_operation_of_the_kernel_that_they_show(owner, several):
    outcome = with_outcomes([several])[0][1]
    assert (outcome.operation, outcome.first.kernel, outcome.others) == ("layer_norm", "triton-layer-norm", 1)
    page = owner.get(reverse("runs") + "?demo=all").content.decode()
    assert "layer_norm/triton-layer-norm" in page and "; and 1 more operation" in page


def test_the_headline_of_a_session_says_that_there_are_more_operations(owner, several):
    session = Session.objects.create(title="Both")
    Run.objects.filter(pk=several.pk).update(session=session)
    said = owner.get(session.get_absolute_url()).context["report"].headline
    assert said.strong == "layer_norm: triton-layer-norm is faster than eager on 3 of 3 workloads"
    assert said.rest[1].startswith(f"Figures of run {several.pk}, which measured 1 more operation. ")
    text = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    timeline = text.split("## Timeline")[1]
    assert "layer\\_norm/triton-layer-norm" in timeline and "; and 1 more operation" in timeline


def test_its_files_hold_both(owner, several):
    table = list(csv.DictReader(io.StringIO(owner.get(reverse("run_csv", args=[several.pk])).content.decode())))
    assert {row["workload"].split()[0] for row in table} == {"layer_norm", "gemm"}
    text = owner.get(reverse("run_md", args=[several.pk])).content.decode()
    assert text.count("| workload |") == 2 and "\nlayer_norm: " in text and "\ngemm: " in text
    again = read_export(owner.get(reverse("run_json", args=[several.pk])).content)
    assert again.config.operations == ["layer_norm", "gemm"] and len(again.measurements) == 7


def test_a_device_without_a_kernel_measures_the_others(several, cpu):
    found = estimate(several.spec, cpu)
    assert (found.results, found.unsupported, found.workloads) == (2 * 7, 2, 7)


YAML = """
protocol: {min_rounds: 9}
operations:
  layer_norm: {kernels: [compiled], workloads: [{rows: [8, 16], cols: 8}]}
  gemm: {kernels: [compiled], workloads: [{m: 8, n: 8, k: 8}]}
"""


def sent(gpu, text, **more):
    return {"operation": "attention", "device": str(gpu.pk), "what": "yaml", "yaml": text, "protocol": "paired"} | more


def test_a_config_can_be_pasted(owner, gpu, configs):
    answer = owner.post(reverse("new_run"), sent(gpu, f"name: canonical\n{YAML}", title="Pasted"))
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.get()
    assert run.config_name == "typed", "not the newest run of the config with that name"
    assert (run.title, run.spec.operations, run.spec.protocol.min_rounds) == ("Pasted", ["layer_norm", "gemm"], 9)
    assert run.spec.kernels == ["layer_norm/eager", "layer_norm/compiled", "gemm/eager", "gemm/compiled"]
    form = owner.get(f"{reverse('new_run')}?again={run.pk}").context["form"]
    assert form["what"].value() == "yaml"
    assert read_config(form["yaml"].value(), "typed").workloads == run.spec.workloads


@pytest.mark.parametrize(
    "text, said",
    [
        (YAML.replace("cols: 8", "cols: 0"), "Line 4: workloads.0.cols: "),
        (YAML + "}", "Line 6: not YAML: "),
        ("[" * 3000, "Lists and mappings are nested too deeply."),
        ("", "Paste a config, or choose one to start from."),
        (YAML.replace("[compiled]", "[nothing]"), "No device has a kernel layer_norm/nothing."),
        (f"operation: gemm\nkernels: [eager]\nworkloads: [{{m: {list(range(1, MAX_WORKLOADS + 2))}, n: 1, k: 1}}]",
         f"These sizes make {MAX_WORKLOADS + 1} workloads; the limit is {MAX_WORKLOADS}."),
    ],
)  # fmt: skip
def test_bad_yaml_is_said_with_its_line_and_nothing_is_lost(owner, gpu, configs, text, said):
    answer = owner.post(reverse("new_run"), sent(gpu, text))
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in page
    assert text.strip().splitlines()[:1] == [] or text.strip().splitlines()[0] in page
    assert not Run.objects.exists()


def test_a_config_is_the_text_to_start_from(owner, gpu, configs):
    page = owner.get(reverse("estimate"), sent(gpu, "", start="smoke-gemm") | {"changed": "start"}).content.decode()
    assert "operation: gemm" in page and "workloads:" in page


def test_columns_of_the_address_are_those_of_every_table(owner, several):
    usual = owner.get(several.get_absolute_url()).context["sections"]
    assert [[one.key for one in part.columns.measures if "_per_s" in one.key or "flops" in one.key] for part in usual] == [
        ["gb_per_s"], ["tflops"],
    ]  # fmt: skip
    page = owner.get(several.get_absolute_url(), {"columns": "gb_per_s,tflops,queries", "sort": "-gb_per_s"})
    for part in page.context["sections"]:
        assert [one.key for one in part.columns.measures] == ["tflops", "gb_per_s", "queries"]
        for _, pairs in part.results:
            rates = [row.gb_per_s for arm, row in pairs if row.status == "ok"]
            assert rates == sorted(rates, reverse=True)
            assert all(arm.kernel == row.kernel for arm, row in pairs)
    text = page.content.decode()
    assert text.count("the operation gemm does not say what a query is") > 1
    assert owner.get(several.get_absolute_url(), {"columns": "foo"}).content.decode().count('role="alert"') == 1
