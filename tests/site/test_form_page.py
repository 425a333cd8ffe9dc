"""The page of a new run: what it ticks, fills in, carries along and points at."""

import re

import pytest
from cast import SIZES, load
from form import ESTIMATE, PAGE, asked, field_of, refused, submitted

from kernels.workload import Config as ConfigSpec
from runs.models import Config, Run


def boxes(page):
    """Kernel -> the attributes of its box that matter: {"checked", "disabled"}."""
    found = re.findall(r'<input type="checkbox" name="kernels" value="([^"]+)"([^>]*)>', page)
    return {name: set(re.findall(r"\b(checked|disabled)\b", rest)) for name, rest in found}


def page_of(client, **asked):
    return client.get(PAGE, asked).content.decode()


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_the_box_of_the_baseline_is_ticked_and_fixed(owner, gpu, configs):
    drawn = boxes(page_of(owner))
    assert drawn["sdpa"] == {"checked", "disabled"}
    assert drawn["eager"] == {"checked"}
    assert drawn["sdpa-flash"] == set()


def test_what_the_device_cannot_run_is_neither_ticked_nor_counted(owner, cpu, configs):
    answer = owner.get(PAGE)
    assert boxes(answer.content.decode())["triton-flash"] == {"disabled"}
    assert (answer.context["estimate"].results, answer.context["estimate"].unsupported) == (6, 0)


def test_run_again_keeps_what_cannot_run_here_and_says_so(owner, cpu, gpu, make_run, configs):
    run = make_run(configs["smoke"].spec, gpu=cpu)
    page = page_of(owner, again=run.pk)
    assert boxes(page)["triton-flash"] == {"checked"}
    assert boxes(page)["sdpa-cudnn"] == {"disabled"}, "was not in that run"
    assert f'needs a CUDA device; ticked as in run {run.pk}: its results will say "unsupported"' in page
    assert '1 kernel cannot run on this device: its results will say "unsupported".' in page


def test_another_device_takes_ticks_away_and_gives_them_back(owner, typed, gpu, cpu):
    sent = typed | {"kernels": ["triton-flash", "eager"], "device": str(cpu.pk)}
    there = asked(owner, sent, changed="device")
    assert boxes(there)["triton-flash"] == {"disabled"}
    assert '<input type="hidden" name="wanted" value="triton-flash">' in there
    assert "<strong>4 results</strong> on 2 workloads" in there
    back = asked(
        owner, sent | {"kernels": ["eager"], "wanted": "triton-flash", "device": str(gpu.pk)}, changed="device"
    )
    assert boxes(back)["triton-flash"] == boxes(back)["eager"] == {"checked"}
    assert "<strong>6 results</strong>" in back


def test_ticks_of_a_page_without_scripts_are_taken_as_they_come(owner, typed, cpu):
    run = submitted(owner, typed | {"kernels": ["triton-flash"], "device": str(cpu.pk)})
    assert run.spec.kernels == ["sdpa", "triton-flash"], "listed as unsupported, not lost"


# --- what a config holds ----------------------------------------------------------------------------------------------


def test_the_chosen_config_lists_its_workloads(owner, gpu, configs):
    page = page_of(owner)
    assert "2 workloads:" in page
    assert "<li>fp16 B=1 H=4 S=128 D=64</li><li>fp16 B=1 H=4 S=128 D=64 causal</li>" in page


def test_of_many_workloads_the_first_are_listed(owner, gpu, db):
    sizes = [SIZES | {"seq_len": 64 * number} for number in range(1, 13)]
    many = ConfigSpec(name="many", operation="attention", kernels=["sdpa"], workloads=sizes)
    Config.objects.create(name="many", body=many.model_dump(mode="json"))
    page = page_of(owner, config="many")
    assert "12 workloads:" in page
    assert page.count("<li>fp16") == 8
    assert "<li>and 4 more</li>" in page


def test_a_workload_of_ones_own_starts_from_the_first_of_the_config(owner, gpu, configs):
    form = owner.get(PAGE, {"config": "canonical-s512"}).context["form"]
    assert {name: form[name].value() for name in [*form.sizes, "dtype"]} == {
        "batch": "1", "heads": "8", "kv_heads": "", "seq_len": "512", "head_dim": "64", "causal": "no",
        "scale": "", "window": "", "kv_len": "",
        "dtype": ["float16"],
    }  # fmt: skip
    norm = owner.get(PAGE, {"operation": "layer_norm"}).context["form"]
    assert (norm["cols"].value(), norm["dtype"].value()) == ("512", ["float32"])


def test_sizes_follow_the_config_until_somebody_types_some(owner, chosen, configs):
    filled = chosen | {"batch": "1", "heads": "4", "seq_len": "128", "head_dim": "64"}
    followed = asked(owner, filled, changed="config")
    assert 'id="sizes"' in followed
    assert 'name="seq_len" value="512"' in followed
    assert 'id="sizes"' not in asked(owner, filled | {"seq_len": "130"}, changed="config")
    assert 'id="sizes"' not in asked(owner, filled)


# --- another operation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ("gemm", "layer_norm", "attention"))
def test_each_operation_starts_with_its_smallest_config(owner, gpu, configs, operation):
    form = owner.get(PAGE, {"operation": operation}).context["form"]
    assert form["config"].value().startswith("smoke")


def test_a_tab_carries_along_what_fits(owner, typed, cpu, configs):
    sent = typed | {"device": str(cpu.pk), "protocol": "fixed", "mode": "warm", "what": "config", "tab": "gemm"}
    answer = owner.post(PAGE, sent)
    form, page = answer.context["form"], answer.content.decode()
    assert (answer.status_code, Run.objects.count()) == (200, 0)
    kept = {name: form[name].value() for name in ("device", "protocol", "mode", "what", "title", "note")}
    assert kept == {name: sent[name] for name in kept}
    assert (form.operation_name, form["config"].value()) == ("gemm", "smoke-gemm")
    assert form["m"].value() == "128"
    assert 'class="errorlist"' not in page
    assert answer.context["estimate"].results == 1


def test_a_tab_keeps_dtypes_that_were_chosen(owner, typed, configs):
    form = owner.post(PAGE, typed | {"dtype": ["bfloat16"], "tab": "layer_norm"}).context["form"]
    assert (form["what"].value(), form["dtype"].value()) == ("workload", ["bfloat16"])


def test_an_unknown_tab_is_the_usual_operation(owner, typed, configs):
    assert owner.post(PAGE, typed | {"tab": "nobody"}).context["form"].operation_name == "attention"


# --- a refusal points at its field ------------------------------------------------------------------------------------

FOCUS = {
    "device": {"device": "", "batch": "x"},
    "batch": {"batch": "x", "heads": ""},
    "dtype": {"dtype": []},
    "kernels": {"kernels": ["nobody"], "title": "x" * 201},
    "title": {"title": "x" * 201},
    "note": {"note": "x" * 5001},
}


@pytest.mark.parametrize("field, change", FOCUS.items(), ids=FOCUS.keys())
def test_the_first_marked_field_has_the_focus(owner, typed, field, change):
    _, page = refused(owner, typed | change)
    assert page.count("autofocus") == 1
    assert "autofocus" in field_of(page, field)


def test_where_no_field_is_marked_the_notice_has_the_focus(owner, typed):
    _, page = refused(owner, typed | {"seq_len": ",".join(map(str, range(1, 700)))})
    assert page.count("autofocus") == 1
    assert '<p class="notice bad" role="alert" tabindex="-1" autofocus>' in page


def test_a_fault_in_the_half_that_is_not_shown_is_none(owner, chosen):
    assert submitted(owner, chosen | {"batch": "x", "dtype": ["float8"]}).config_name == "canonical-s512"


def test_the_name_of_a_run_is_its_title_here_too(owner, gpu, configs):
    assert re.search(r"<label[^>]*>Title</label>", page_of(owner))


def test_the_estimate_stands_beside_the_button(owner, gpu, configs):
    page = page_of(owner)
    assert re.search(r'type="submit">Run</button><p class="estimate" id="estimate"', page)


def test_a_form_repeating_a_run_stays_one_while_it_is_edited(owner, chosen, exported, gpu, cpu, configs):
    demo = load(exported, "x.json")
    sent = chosen | {"again": demo.pk, "device": str(cpu.pk), "kernels": ["sdpa", "triton-flash"]}
    assert "ticked as in run" in asked(owner, sent, changed="device")
    _, page = refused(owner, sent | {"title": "x" * 201})
    assert boxes(page)["triton-flash"] == {"checked"}
    assert owner.get(ESTIMATE, sent | {"again": "²"}).status_code == 200
