"""The form of a new run: what it offers, what it refuses and where it says so, what it makes; and that it forgets nothing."""

import platform
import re

import pytest
from cast import load
from django.utils import timezone
from form import ESTIMATE, PAGE, again, asked, field_of, refused, submitted

from kernels.catalog import operations
from kernels.host.device import Device
from kernels.workload import Config as ConfigSpec
from runs.form_fields import NumbersField, size_field
from runs.forms import MAX_WORKLOADS, NewRunForm
from runs.management.commands import up
from runs.models import Run, Session

# --- what it makes ----------------------------------------------------------------------------------------------------


def test_a_config_becomes_a_run(owner, chosen, gpu, configs):
    run = submitted(owner, chosen)
    assert (run.state, run.user, run.gpu, run.device_name) == ("queued", owner.user, gpu, "")
    assert (run.title, run.note, run.config_name, run.total) == ("My title", "my note", "canonical-s512", 6)
    assert run.spec.workloads == configs["canonical-s512"].spec.workloads
    assert run.spec.kernels == ["sdpa", "eager"]


def test_an_operation_that_does_not_exist_is_refused(owner, typed):
    form, page = refused(owner, typed | {"operation": "<nosuch>"})
    assert form.non_field_errors() == ["There is no operation <nosuch>."]
    assert "There is no operation &lt;nosuch&gt;." in page


def test_a_workload_of_ones_own_multiplies(owner, typed):
    run = submitted(owner, typed | {"causal": "both", "dtype": ["float16", "bfloat16"], "seq_len": "128 256,512"})
    assert run.total == len(run.spec.workloads) == 2 * 2 * 2 * 3
    assert {w.sizes["seq_len"] for w in run.spec.workloads} == {128, 256, 512}
    assert all(w.sizes["kv_heads"] == 8 for w in run.spec.workloads)
    assert (run.config_name, run.spec.protocol.name) == ("typed", "paired")


def test_a_title_is_made_where_none_is_given(owner, typed):
    assert submitted(owner, typed | {"title": "  "}).title == "2 workloads"
    assert submitted(owner, typed | {"title": "", "batch": "4"}).title == "attention fp16 B=4 H=8 S=512 D=64"


def test_a_mode_may_be_asked_for_and_comes_back_with_run_again(owner, chosen, configs):
    asked = submitted(owner, chosen | {"config": "smoke", "mode": "sustained"})
    assert asked.spec.protocol == configs["smoke"].spec.protocol.model_copy(update={"mode": "sustained"})
    form = owner.get(PAGE, {"again": asked.pk}).context["form"]
    assert form["mode"].value() == "sustained"
    assert submitted(owner, chosen | {"config": "smoke", "mode": ""}).spec.protocol.mode == "auto"


def test_the_protocol_of_a_config_stays_but_for_its_name(owner, chosen, configs):
    run = submitted(owner, chosen | {"config": "smoke", "protocol": "fixed"})
    assert run.spec.protocol == configs["smoke"].spec.protocol.model_copy(update={"name": "fixed"})


def test_the_baseline_is_measured_though_it_was_not_ticked(owner, typed):
    assert submitted(owner, typed | {"kernels": ["eager"]}).spec.kernels == ["sdpa", "eager"]
    assert submitted(owner, typed | {"kernels": ["sdpa"]}).spec.kernels == ["sdpa"]
    assert submitted(owner, typed | {"kernels": []}).spec.kernels == ["sdpa"], "its box is disabled and sends nothing"


def test_kernels_come_in_the_order_of_the_list_whatever_was_ticked_first(owner, typed):
    one = submitted(owner, typed | {"kernels": ["sdpa-math", "eager", "sdpa"]}).spec.kernels
    other = submitted(owner, typed | {"kernels": ["eager", "sdpa", "sdpa-math"]}).spec.kernels
    assert one == other
    assert one[0] == "sdpa"


def test_each_operation_has_its_own_sizes_configs_and_kernels(owner, gpu, configs):
    for operation, title in (("attention", "Attention, forward"), ("gemm", "Matrix product (GEMM)")):
        answer = owner.get(PAGE, {"operation": operation})
        form = answer.context["form"]
        assert f'aria-current="page">{title}</button>' in answer.content.decode()
        assert {name for name, _ in form.fields["config"].choices} == {
            name for name, config in configs.items() if config.spec.operation == operation
        }
        assert {kernel["operation"] for kernel in form.catalogue} == {operation}
    assert list(form.sizes) == ["m", "n", "k", "batch", "trans_a", "trans_b"]
    sent = {"operation": "gemm", "device": gpu.pk, "what": "workload", "m": "64, 128", "n": "64", "k": "32",
            "batch": "", "trans_a": "no", "trans_b": "no", "dtype": ["float32"], "kernels": ["eager"],
            "protocol": "paired"}  # fmt: skip
    run = submitted(owner, sent)
    assert [w.label for w in run.spec.workloads] == ["gemm fp32 M=64 N=64 K=32", "gemm fp32 M=128 N=64 K=32"]
    run = submitted(owner, sent | {"m": "64", "batch": "1, 8", "trans_b": "both"})
    assert [w.label.removeprefix("gemm fp32 ") for w in run.spec.workloads] == [
        "M=64 N=64 K=32", "M=64 N=64 K=32 B.T", "B=8 M=64 N=64 K=32", "B=8 M=64 N=64 K=32 B.T",
    ]  # fmt: skip


# --- devices ----------------------------------------------------------------------------------------------------------


def devices(client, **asked):
    return dict(client.get(PAGE, asked).context["form"].fields["device"].choices)


def test_one_device_of_a_name_is_offered_as_itself(owner, gpu, cpu, silent, configs):
    silent.name = "NVIDIA L4"
    silent.save()
    assert devices(owner) == {
        str(gpu.pk): f"NVIDIA H200 · gpu-1 / 0 · {gpu.state}",
        str(silent.pk): f"NVIDIA L4 · gpu-9 / 0 · {silent.state}",
        str(cpu.pk): f"AMD EPYC · web-1 · {cpu.state}",
        "every": "every model: NVIDIA H200, AMD EPYC",
    }


def test_several_devices_of_a_name_are_also_offered_as_any_of_them(owner, typed, gpu, make_gpu):
    make_gpu("GPU-2", host="gpu-2")
    assert devices(owner)["any:NVIDIA H200"] == "any NVIDIA H200"
    run = submitted(owner, typed | {"device": "any:NVIDIA H200"})
    assert (run.gpu, run.device_name) == (None, "NVIDIA H200")


def test_a_fresh_form_has_the_first_device_that_is_online(owner, silent, cpu, configs):
    assert owner.get(PAGE).context["form"]["device"].value() == str(cpu.pk)


def test_without_devices_it_says_how_one_gets_here(owner, configs):
    page = owner.get(PAGE).content.decode()
    assert "No device has reported yet" in page
    assert "Kernels appear here when a device has reported." in page


def test_a_page_without_devices_asks_until_one_has_reported(owner, make_gpu, configs):
    assert 'hx-trigger="every 2s"' in owner.get(PAGE).content.decode()
    sent = {"operation": "attention", "what": "config", "config": "smoke", "changed": "devices"}
    assert owner.get(ESTIMATE, sent).status_code == 204
    first = make_gpu()
    arrived = owner.get(ESTIMATE, sent)
    assert arrived.context["form"]["device"].value() == str(first.pk)
    assert "every 2s" not in (page := arrived.content.decode())
    assert "NVIDIA H200" in page
    ticked = {kernel["name"] for kernel in arrived.context["form"].catalogue if kernel["ticked"]}
    assert ticked == set(configs["smoke"].spec.kernels)


def test_up_makes_a_device_whose_kernels_are_known_at_once(owner, configs):
    up.Command().first_run(Device("cpu", "CPU-1", "AMD EPYC"))
    form = owner.get(PAGE).context["form"]
    assert {k["name"] for k in form.catalogue if k["ticked"]} >= {"sdpa", "sdpa-math"}
    (label,) = devices(owner).values()
    assert label == f"AMD EPYC · {platform.node()} · silent"


def test_what_a_device_cannot_run_is_listed_with_the_reason(owner, cpu, configs):
    form = owner.get(PAGE).context["form"]
    why = {kernel["name"]: kernel["why_not"] for kernel in form.catalogue}
    assert (why["sdpa"], why["triton-flash"]) == ("", "needs a CUDA device")
    assert form.catalogue[0]["name"] == "sdpa"
    assert "needs a CUDA device" in owner.get(PAGE).content.decode()


def test_kernels_of_another_device_are_listed_as_missing_here(owner, gpu, make_gpu, configs):
    extra = {"operation": "attention", "name": "mine", "backend": "cuda", "doc": "Mine.", "why_not": ""}
    make_gpu("GPU-2", host="gpu-2", catalogue=[*gpu.catalogue, extra])
    why = {kernel["name"]: kernel["why_not"] for kernel in owner.get(PAGE).context["form"].catalogue}
    assert why["mine"] == "this device does not have it"


# --- what it refuses, and where it says so ----------------------------------------------------------------------------

WRONG = {
    "no device": ({"device": ""}, "device", "Choose a device."),
    "a device that is gone": ({"device": "999"}, "device", "Select a valid choice."),
    "any of a name that one has": ({"device": "any:NVIDIA H200"}, "device", "Select a valid choice."),
    "words for a number": ({"batch": "four"}, "batch", "“four”: use whole numbers, separated by commas."),
    "a fraction": ({"batch": "1.5"}, "batch", "“1.5”: use whole numbers"),
    "a negative number": ({"seq_len": "512, -1"}, "seq_len", "Use numbers from 1 to 1,048,576."),
    "only a minus": ({"seq_len": "512, -"}, "seq_len", "“512, -”: use whole numbers"),
    "a superscript": ({"heads": "²"}, "heads", "“²”: use whole numbers"),
    "zero": ({"heads": "0"}, "heads", "Use numbers from 1 to 1,024."),
    "too large a batch": ({"batch": "65537"}, "batch", "Use numbers from 1 to 65,536."),
    "a scale of zero": ({"scale": "0.0"}, "scale", "“0.0”: use numbers above 0, such as 0.125, separated by commas."),
    "words for a scale": ({"scale": "half"}, "scale", "“half”: use numbers above 0, such as 0.125"),
    "too large a scale": ({"scale": "0.5, 101"}, "scale", "less than or equal to 100."),
    "too large a window": ({"window": "1048577"}, "window", "Use numbers from 0 to 1,048,576."),
    "too large a number": ({"seq_len": "1048577"}, "seq_len", "Use numbers from 1 to 1,048,576."),
    "a number of 5,000 digits": ({"seq_len": "9" * 5000}, "seq_len", "Use numbers from 1 to 1,048,576."),
    "larger than this size may be": ({"head_dim": "64, 1025"}, "head_dim", "Use numbers from 1 to 1,024."),
    "a size that is missing": ({"seq_len": " , "}, "seq_len", "Enter one or more numbers."),
    "heads that do not divide": ({"kv_heads": "3"}, "kv_heads", "Heads (8) must be a multiple of KV heads (3)."),
    "no dtype": ({"dtype": []}, "dtype", "Tick at least one dtype."),
    "an unknown dtype": ({"dtype": ["float8"]}, "dtype", "Select a valid choice. float8"),
    "an unknown mask": ({"causal": "perhaps"}, "causal", "Select a valid choice. perhaps"),
    "an unknown kernel": ({"kernels": ["sdpa", "nobody"]}, "kernels", "Select a valid choice. nobody"),
    "an unknown mode": ({"mode": "lukewarm"}, "mode", "Select a valid choice. lukewarm"),
    "an unknown protocol": ({"protocol": "hasty"}, "protocol", "Select a valid choice. hasty"),
    "an unknown config": ({"what": "config", "config": "nobody"}, "config", "Select a valid choice. nobody"),
    "no config": ({"what": "config", "config": ""}, "config", "Choose a config."),
    "a config of another operation": ({"what": "config", "config": "gemm"}, "config", "Select a valid choice. gemm"),
    "too long a title": ({"title": "x" * 201}, "title", "at most 200 characters"),
    "too long a note": ({"note": "x" * 5001}, "note", "at most 5000 characters"),
    "warm-up of another protocol": ({"warmup": "10"}, "warmup", "Only the protocol “fixed” uses this field"),
    "an L2 of another protocol": ({"protocol": "isolated", "flush_l2": "on"}, "flush_l2", "Only the protocol “fixed”"),
    "no timed call": ({"protocol": "fixed", "iters": "0"}, "iters", "Use a number from 1 to 100,000."),
    "too many warm-up calls": ({"protocol": "fixed", "warmup": "1000000"}, "warmup", "from 0 to 100,000."),
    "too many checks": ({"verify_seeds": "11"}, "verify_seeds", "Use a number from 1 to 10."),
    "a seed in words": ({"seed": "many"}, "seed", "Use a whole number."),
    "too large a seed": ({"seed": str(2**63)}, "seed", "Use a number from 0"),
    "a NUL in the title": ({"title": "a\x00b"}, "title", "Null characters are not allowed."),
}  # fmt: skip


def test_the_details_of_a_protocol_reach_the_run(owner, typed, chosen):
    asked_for = {"warmup": "10", "iters": "20", "flush_l2": "on", "verify_seeds": "2", "seed": str(2**63 - 1)}
    for sent in (typed, chosen):
        protocol = submitted(owner, sent | {"protocol": "fixed"} | asked_for).spec.protocol
        assert (protocol.name, protocol.warmup, protocol.iters, protocol.flush_l2) == ("fixed", 10, 20, True)
        assert (protocol.verify_seeds, protocol.seed) == (2, 2**63 - 1)


def test_a_seed_is_not_repeated_by_itself(owner, typed):
    run = submitted(owner, typed | {"seed": "7"})
    assert (run.spec.protocol.seed, again(owner, run)["seed"]) == (7, "")


def test_the_details_are_open_only_where_one_is_given(owner, typed):
    details = r'<details class="field"{}>\s*<summary>Warm-up, calls, L2, checks, seed</summary>'
    page = owner.get(PAGE).content.decode()
    assert re.search(details.format(""), page)
    _, page = refused(owner, typed | {"iters": "7"})
    assert re.search(details.format(" open"), page)


def test_a_window_and_a_scale_multiply_like_other_sizes_and_come_back(owner, typed):
    run = submitted(owner, typed | {"batch": "1", "window": "0, 100", "scale": "0.125, 0.5"})
    assert {(w.problem.window, w.problem.scale) for w in run.spec.workloads} == {
        (0, 0.125), (100, 0.125), (0, 0.5), (100, 0.5),
    }  # fmt: skip
    assert any("window" not in w.sizes and "scale" not in w.sizes for w in run.spec.workloads)
    sent = again(owner, run)
    assert (sent["window"], sent["scale"]) == ("0, 100", "0.125, 0.5")


@pytest.mark.parametrize("change, field, message", WRONG.values(), ids=WRONG.keys())
def test_a_fault_is_said_at_its_field_and_what_was_typed_stays(owner, typed, change, field, message):
    sent = typed | change
    form, page = refused(owner, sent)
    assert list(form.errors) == [field]
    (said,) = form.errors[field]
    assert message in said
    assert "\n" not in said
    assert said[0].isupper() or said[0] == "“"
    shown = field_of(page, field)
    assert "bad" in shown
    assert 'class="errorlist"' in shown
    assert "Not started yet: see the marked field." in page
    for name in ("batch", "heads", "seq_len", "head_dim", "title"):
        assert f'name="{name}" value="{sent[name].replace(chr(0), "")}"' in page.replace("\x00", ""), name
    assert sent["note"] in page
    ticked = set(re.findall(r'name="kernels" value="([^"]+)" checked', page))
    assert ticked - {"sdpa"} == set(sent["kernels"]) - {"sdpa", "nobody"}


def test_every_fault_is_said_at_once(owner, typed):
    form, page = refused(owner, typed | {"batch": "x", "heads": "", "dtype": [], "kernels": ["nobody"]})
    assert set(form.errors) == {"batch", "heads", "dtype", "kernels"}
    assert "see the marked fields." in page


@pytest.mark.parametrize("many", [601, 1000])
def test_too_many_workloads_are_counted_and_refused(owner, typed, many):
    numbers = ",".join(map(str, range(1, many + 1)))
    form, page = refused(owner, typed | {"batch": "1", "seq_len": numbers})
    assert form.non_field_errors() == [f"These sizes make {many:,} workloads; the limit is {MAX_WORKLOADS}."]
    assert f"Not started yet: These sizes make {many:,} workloads" in page
    five_lists = dict.fromkeys(("batch", "heads", "seq_len", "head_dim"), numbers)
    form, _ = refused(owner, typed | five_lists)
    assert f"{many**4:,} workloads" in form.non_field_errors()[0], "counted without making them"


LARGE = {"batch": "64", "heads": "128", "seq_len": "65536", "head_dim": "128"}


def test_what_cannot_fit_the_device_is_refused_with_both_figures(owner, typed, gpu):
    gpu.memory_bytes = 139 * 2**30
    gpu.save()
    form, page = refused(owner, typed | LARGE)
    said = "Attention fp16 B=64 H=128 S=65536 D=128 needs 512 GiB for inputs and outputs, this device has 139 GiB."
    assert form.non_field_errors() == [said]
    assert f"Not started yet: {said}" in page
    form, _ = refused(owner, typed | LARGE | {"batch": "1, 32, 64"})
    assert form.non_field_errors() == [f"{said} 2 of 3 workloads do not fit."]
    assert submitted(owner, typed | LARGE | {"batch": "16"}).total == 1, "128 GiB of 139"


def test_what_cannot_fit_is_said_before_run_is_pressed(owner, typed, gpu):
    gpu.memory_bytes = 23 * 2**30
    gpu.save()
    said = asked(owner, typed | LARGE)
    assert "needs 512 GiB for inputs and outputs, this device has 23 GiB." in said
    assert "<strong>" not in said, "no estimate of what cannot run"


def test_a_config_that_cannot_fit_is_refused_too(owner, chosen, gpu):
    gpu.memory_bytes = 2**20
    gpu.save()
    form, _ = refused(owner, chosen)
    assert "for inputs and outputs, this device has 1 MiB." in form.non_field_errors()[0]


def test_a_device_of_unknown_memory_takes_everything(owner, typed, gpu):
    assert gpu.memory_bytes is None
    assert submitted(owner, typed | LARGE).total == 1


def test_as_many_as_allowed_are_a_run(owner, typed):
    numbers = ",".join(map(str, range(1, MAX_WORKLOADS + 1)))
    assert submitted(owner, typed | {"batch": "1", "seq_len": numbers}).total == MAX_WORKLOADS


def test_what_was_typed_comes_back_as_text_and_not_as_html(owner, typed):
    evil = '"><script>alert(1)</script>'
    _, page = refused(owner, typed | {"batch": evil, "title": evil, "note": evil, "kernels": [evil], "config": evil,
                                      "device": evil, "dtype": [evil], "causal": evil})  # fmt: skip
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "text, numbers",
    [("", []), ("  ", []), ("7", [7]), ("1,2,3", [1, 2, 3]), ("1 2  3", [1, 2, 3]), (" 4 , 5,", [4, 5]), ("٣", [3]),
     (None, []), ("1048576", [1048576]), ("007", [7])],
)  # fmt: skip
def test_numbers_as_people_write_them(text, numbers):
    assert NumbersField().to_python(text) == numbers


# --- again ------------------------------------------------------------------------------------------------------------


def repeated(client, run):
    """The run that pressing Run on that form makes."""
    return submitted(client, again(client, run))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"batch": "1, 2, 4", "causal": "both"},
        {"dtype": ["bfloat16", "float32"], "causal": "yes"},
        {"heads": "8, 16"},
        {"heads": "8, 16", "kv_heads": "1, 2"},
        {"kv_heads": "8"},
        {"protocol": "fixed"},
        {"protocol": "fixed", "warmup": "10", "iters": "20", "flush_l2": "on", "verify_seeds": "2"},
        {"protocol": "isolated", "verify_seeds": "9"},
        {"what": "config", "config": "canonical", "kernels": ["sdpa", "sdpa-math"]},
        {"title": "", "note": ""},
    ],
    ids=str,
)
def test_a_run_again_asks_for_the_same(owner, typed, change):
    run = submitted(owner, typed | change)
    same = repeated(owner, run)
    assert same.pk != run.pk
    assert same.config == run.config
    assert (same.title, same.note, same.gpu, same.device_name) == (run.title, run.note, run.gpu, run.device_name)


def test_a_run_of_another_operation_again(owner, gpu, configs):
    run = submitted(owner, {"operation": "layer_norm", "device": gpu.pk, "what": "workload", "rows": "64", "cols": "8, 9",
                            "dtype": ["float32"], "kernels": ["eager"], "protocol": "paired"})  # fmt: skip
    assert repeated(owner, run).config == run.config


@pytest.mark.parametrize("asked_for, measured", [("tanh", ["tanh"]), ("all", ["none", "tanh"])])
def test_a_size_may_be_a_word_or_all_of_them(owner, gpu, configs, asked_for, measured):
    sent = {"operation": "gelu", "device": gpu.pk, "what": "workload", "rows": "64", "cols": "8",
            "approximate": asked_for, "dtype": ["float32"], "kernels": ["functional"], "protocol": "paired"}  # fmt: skip
    run = submitted(owner, sent)
    assert [w.sizes["approximate"] for w in run.spec.workloads] == measured
    assert again(owner, run)["approximate"] == asked_for
    assert repeated(owner, run).config == run.config


def test_any_of_a_name_again_is_any_of_it_even_after_one_took_it(owner, typed, gpu, make_gpu):
    second = make_gpu("GPU-2", host="gpu-2")
    run = submitted(owner, typed | {"device": "any:NVIDIA H200"})
    Run.objects.filter(pk=run.pk).update(gpu=second, sent_at=timezone.now())
    assert again(owner, run)["device"] == "any:NVIDIA H200"
    gpu.delete()
    assert again(owner, run)["device"] == str(second.pk), "the only one left"


def test_a_demo_again_is_for_a_device_of_the_same_name(owner, exported, gpu, cpu, configs):
    demo = load(exported, "x.json")
    assert again(owner, demo)["device"] == str(gpu.pk)
    form = again(owner, demo)
    assert (form["what"], form["config"]) == ("config", "canonical")


def test_a_run_again_whose_config_is_gone_measures_the_same_workloads(owner, gpu, typed):
    """They need be no product of sizes, which is all that typed ones can be."""
    pairs = [
        {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64},
        {"batch": 4, "heads": 2, "seq_len": 64, "head_dim": 128},
    ]
    body = {"name": "mine", "operation": "attention", "kernels": ["sdpa", "eager"], "workloads": pairs}
    run = Run.objects.submit(ConfigSpec(**body), gpu=gpu, user=None)
    form = again(owner, run)
    assert (form["what"], form["config"]) == ("config", "mine")
    assert "as in run" in owner.get(PAGE, {"again": run.pk}).content.decode()
    answer = owner.post(PAGE, form | {"again": run.pk})
    repeated = Run.objects.latest("pk")
    assert answer.status_code == 302 and repeated.pk != run.pk
    assert repeated.spec.workloads == run.spec.workloads
    _, page = refused(owner, form)
    assert "mine" in page, "without the run it is not offered"


def test_a_run_of_a_device_that_is_not_here_again_has_none_and_says_so(owner, exported, cpu, configs):
    demo = load(exported, "x.json")
    answer = owner.get(PAGE, {"again": demo.pk})
    shown = field_of(answer.content.decode(), "device")
    assert answer.context["form"]["device"].value() == ""
    assert re.findall(r"<option[^>]* selected>([^<]+)", shown) == ["Choose a device"]
    assert "There is no NVIDIA H200 here. Choose a device." in shown
    assert "bad" in shown
    _, page = refused(owner, again(owner, demo) | {"again": demo.pk})
    assert "There is no NVIDIA H200 here. Choose a device." in page, "and goes on saying so"


def test_a_device_that_is_gone_is_not_shown_as_another(owner, typed):
    _, page = refused(owner, typed | {"device": "999"})
    assert re.findall(r"<option[^>]* selected>([^<]+)", field_of(page, "device")) == ["Choose a device"]


@pytest.mark.parametrize("number", ("999", "x", "-1", "²", "9" * 30, "", "\x00"))
def test_again_of_nothing_is_a_fresh_form(owner, gpu, configs, number):
    form = owner.get(PAGE, {"again": number}).context["form"]
    assert (form["what"].value(), form["config"].value()) == ("config", "smoke")


def test_a_config_may_be_named_in_the_address(owner, gpu, configs):
    form = owner.get(PAGE, {"config": "canonical-s512"}).context["form"]
    assert form["config"].value() == "canonical-s512"
    assert form["kernels"].value() == configs["canonical-s512"].spec.kernels
    assert owner.get(PAGE, {"config": "nobody"}).context["form"]["config"].value() is not None


def test_a_workload_may_be_named_in_the_address(owner, make_gpu, measured):
    other = make_gpu("GPU-9", name="NVIDIA H100", seen_at=timezone.now())
    workload = measured(count=1).measurements.first().workload
    form = owner.get(PAGE, {"workload": workload.key, "dtype": "bfloat16", "gpu": "NVIDIA H100"}).context["form"]
    assert (form["what"].value(), form["device"].value(), form["dtype"].value()) == (
        "workload",
        str(other.pk),
        ["bfloat16"],
    )
    assert form["head_dim"].value() == str(workload.sizes["head_dim"])
    for query in ({"workload": "nobody"}, {"workload": "\x00"}, {"workload": workload.key, "dtype": "tf32"}):
        answer = owner.get(PAGE, query)
        assert answer.status_code == 200 and answer.context["form"]["what"].value() == "config"


@pytest.mark.parametrize("count", (1, 30))
def test_the_form_takes_as_many_queries_for_many_devices_as_for_one(
    owner, make_gpu, make_run, configs, count, django_assert_max_num_queries
):
    for number in range(count):
        make_gpu(f"GPU-many-{number}", host=f"gpu-{number}", name=f"GPU {number % 5}")
    again = make_run(session=Session.objects.create(title="Mine"))
    of_a_session = {"config": "canonical-s512", "session": again.session_id}
    for address in ({}, {"operation": "gemm"}, of_a_session, {"again": again.pk}):
        with django_assert_max_num_queries(8):  # session, user, the run; devices, configs, sessions; pace, ceilings
            assert owner.get(PAGE, address).status_code == 200
    with django_assert_max_num_queries(8):
        assert owner.post(PAGE, {"tab": "gemm"}).status_code == 200


def test_a_form_alone_is_not_valid(db):
    form = NewRunForm({})
    assert not form.is_valid()
    assert {"device", "what", "kernels", "protocol"} <= set(form.errors)


def test_a_size_may_be_as_large_as_its_operation_says():
    field = size_field(operations()["softmax"].model_fields["rows"])
    assert field.clean("16777216") == [16_777_216]
