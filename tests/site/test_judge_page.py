"""Judge a claim: the text is read, the verdict comes with its arithmetic, the address holds the claim, nothing is lost."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from cast import load
from django.urls import reverse
from django.utils import timezone

from kernels.analysis import claim_text
from kernels.analysis.claim_text import read
from kernels.catalog import PROBLEM, operations
from runs.models import Calibration
from runs.views.judge import EXAMPLES

JUDGE = reverse("judge")
CLAIM = {
    "operation": "attention", "batch": "16", "heads": "96", "seq_len": "4096", "head_dim": "128", "dtype": "float16",
    "gpu": "H100 SXM", "ms": "12.27",
}  # fmt: skip
PRODUCT = {"operation": "gemm", "m": "8192", "n": "8192", "k": "8192", "dtype": "bfloat16", "gpu": "H200 SXM"}


def shown(client, query, status=200):
    answer = client.get(JUDGE, query)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


# --- reading a text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, fields",
    [
        (
            EXAMPLES[0],
            {
                "operation": "attention", "batch": "16", "heads": "96", "seq_len": "4096", "head_dim": "128",
                "dtype": "float16", "gpu": "H100 SXM", "ms": "12.27", "tflops": "1075",
            },
        ),
        (
            "B=16, H=96, SL=4096, HD=128. Time: 12.27 ms per iteration, TFLOPS: 1,075 (H100)",
            {"operation": "attention", "batch": "16", "heads": "96", "seq_len": "4096", "head_dim": "128", "ms": "12.27",
             "gpu": "H100 SXM"},
        ),
        (
            EXAMPLES[2],
            {"operation": "gemm", "m": "8192", "n": "8192", "k": "8192", "dtype": "bfloat16", "gpu": "RTX 5090",
             "tflops": "240"},
        ),
        (
            "layer norm, 16384 x 4096 fp32 on NVIDIA A100-SXM4-80GB takes 350 us",
            {"operation": "layer_norm", "rows": "16384", "cols": "4096", "dtype": "float32", "gpu": "A100 SXM 80GB",
             "ms": "0.35"},
        ),
        (
            "[nsa] cuda {batch:2, heads:16, seq_len:512, dim:64, is_causal: true} (0.543 ms, 45.23 TFLOPS) NVIDIA H100 PCIe",
            {"operation": "nsa", "batch": "2", "heads": "16", "seq_len": "512", "head_dim": "64", "causal": "yes",
             "gpu": "H100 PCIe", "ms": "0.543", "tflops": "45.23"},
        ),
        ("non-causal sdpa 900 GFLOP/s", {"operation": "attention", "causal": "no", "tflops": "0.9"}),
        ("it was fast", {}),
    ],
)  # fmt: skip
def test_a_text_is_read_as_far_as_it_says_something(text, fields):
    assert read(text) == fields


def test_a_pasted_claim_becomes_an_address_that_holds_it(owner):
    answer = owner.get(JUDGE, {"claim": EXAMPLES[0]})
    assert answer.status_code == 302
    query = {name: values[0] for name, values in parse_qs(urlsplit(answer.url).query).items()}
    assert query == CLAIM | {"tflops": "1075"}
    page = owner.get(answer.url).content.decode()
    assert (
        "12.27 ms would be 1075 TFLOP/s; H100 SXM cannot exceed 1071 TFLOP/s (132 SMs x 4096 FLOP/clk x 1.98 GHz)."
        in page
    )


def test_a_pasted_claim_of_sparse_attention_is_not_consistent_with_its_sizes(owner):
    answer = owner.get(JUDGE, {"claim": EXAMPLES[3]})
    assert answer.status_code == 302
    page = owner.get(answer.url).content.decode()
    assert "not consistent with its sizes</span> 45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP" in page
    assert "this workload has 755.9 MFLOP (2.147 GFLOP with masked work)" in page


def test_a_text_that_is_not_understood_stays_and_what_was_read_is_in_the_fields(owner):
    text = "SDPA B=16 H=96 takes 7.37 ms & <b>"
    page = shown(owner, {"claim": text}, 422)
    assert "SDPA B=16 H=96 takes 7.37 ms &amp; &lt;b&gt;</textarea>" in page
    for name, value in (("batch", "16"), ("heads", "96"), ("ms", "7.37")):
        assert re.search(rf'<input type="text" name="{name}" value="{value}"', page), name
    assert (
        "The text is incomplete. The fields below show what was understood. Not judged yet: see the marked fields."
        in page
    )
    assert "Choose a GPU." in page and "Enter a number." in page


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_an_empty_page_asks_and_gives_examples(owner):
    page = shown(owner, {})
    assert "<h1>Judge a claim</h1>" in page
    assert page.count('<a href="?claim=') == len(EXAMPLES)
    assert "errorlist" not in page
    assert 'aria-current="page">Judge</a>' in page


@pytest.mark.parametrize(
    "more, word, why",
    [
        ({}, "impossible", "12.27 ms would be 1075 TFLOP/s; H100 SXM cannot exceed 1071"),
        ({"head_dim": "64", "ms": "7.37"}, "above everything measured",
         "895.1 TFLOP/s is above everything measured on an H100 SXM so far: 797.5 TFLOP/s"),
        ({"causal": "yes"}, "plausible", "50.2% of the speed of light (6.164 ms)"),
        ({"batch": "2", "heads": "16", "seq_len": "512", "head_dim": "64", "causal": "yes", "gpu": "NVIDIA H100 PCIe",
          "ms": "0.543", "tflops": "45.23"}, "not consistent with its sizes",
         "45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP"),
    ],
)  # fmt: skip
def test_the_claims_of_reports_get_their_verdicts(owner, more, word, why):
    page = shown(owner, CLAIM | more)
    assert f"{word}</span> {why}" in page
    assert "The arithmetic, step by step" in page


def test_the_arithmetic_and_the_link_are_on_the_page(owner):
    page = shown(owner, CLAIM | {"causal": "yes"})
    assert "4 x (S (S + 1) / 2) x D x B x H = 4 x (4096 x 4097 / 2) x 128 x 16 x 96" in page
    assert '<td class="text">rate, unmasked work</td><td><b>537.8 TFLOP/s</b></td>' in page
    assert '<td class="text">rate, dense-equivalent</td><td><b>1075 TFLOP/s</b></td>' in page
    link = re.search(r'readonly value="([^"]+)"', page).group(1).replace("&amp;", "&")
    assert link.startswith("http://testserver/judge/?operation=attention&")
    assert owner.get(link).context["found"].word == "plausible"


def test_a_size_that_is_a_word_is_judged_too(owner):
    claim = {"operation": "gelu", "rows": "16384", "cols": "4096", "dtype": "bfloat16", "gpu": "H200 SXM", "ms": "1"}
    assert owner.get(JUDGE, claim | {"approximate": "tanh"}).context["found"].word
    assert "16384 x 4096 tanh" in shown(owner, claim | {"approximate": "tanh"})
    assert "Select a valid choice" in shown(owner, claim | {"approximate": "erf"}, status=422)


def test_json_says_the_same(owner):
    data = owner.get(reverse("judge_json"), CLAIM).json()
    assert (data["verdict"], data["gpu"], data["ms"], data["tflops"]) == ("impossible", "H100 SXM", 12.27, None)
    assert {"what": "rate", "arithmetic": "13.19 TFLOP / 12.27 ms", "result": "1075 TFLOP/s", "source": ""} in data[
        "steps"
    ]
    wrong = owner.get(reverse("judge_json"), CLAIM | {"heads": "x"})
    assert (wrong.status_code, wrong.json()["errors"]) == (422, {"heads": ["“x”: use a whole number."]})
    models = {gpu["model"]: gpu for gpu in owner.get(reverse("judge_json")).json()["gpus"]}
    assert models["H100 SXM"]["reached_tflops"]["float16"] == 797.5


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, said",
    [
        ({"batch": "0"}, "greater than or equal to 1"),
        ({"batch": "16.5"}, "“16.5”: use a whole number."),
        ({"batch": ""}, "Enter a number."),
        ({"scale": "half"}, "“half”: use a number, such as 0.125."),
        ({"scale": "101"}, "less than or equal to 100"),
        ({"window": "1.5"}, "“1.5”: use a whole number."),
        ({"batch": "9" * 30}, "at most 20 characters"),
        ({"kv_heads": "7"}, "must be a multiple of KV heads (7)"),
        ({"ms": "fast"}, "“fast”: use a number, such as 12.27."),
        ({"ms": "nan"}, "Use a number above 0."),
        ({"ms": "-1"}, "Use a number above 0."),
        ({"ms": "1e400"}, "Use a number above 0."),
        ({"ms": ""}, "Enter a time, a rate, or both."),
        ({"gpu": ""}, "Choose a GPU."),
        ({"gpu": "Abacus"}, "Abacus is not one of the available choices"),
        ({"dtype": "float8"}, "float8 is not one of the available choices"),
        ({"tflops": "\x00"}, "Null characters are not allowed."),
    ],
)
def test_a_fault_is_a_sentence_at_its_field_and_nothing_is_lost(owner, more, said):
    page = shown(owner, CLAIM | {"seq_len": "4,096"} | more, 422)
    assert said in page
    assert "Not judged yet: see the marked field" in page
    assert 'name="seq_len" value="4,096"' in page, "what was typed stays"
    assert "The arithmetic" not in page


def test_an_unknown_operation_is_the_default_one(owner):
    assert "<h1>Judge a claim</h1>" in shown(owner, {"operation": "magic"})


def test_another_operation_keeps_the_gpu(owner):
    page = shown(owner, {"operation": "gemm", "gpu": "NVIDIA H200", "dtype": "bfloat16"})
    assert '<option value="H200 SXM" selected>' in page
    assert 'name="m"' in page and 'name="seq_len"' not in page


# --- what this site has measured --------------------------------------------------------------------------------------


def test_a_result_of_this_site_counts_if_it_is_ok_and_uncontended(owner, exported, gpu):
    """The sample ran on an H200; its fastest attention is 667 TFLOP/s."""
    run = load(exported, "x.json")
    best = run.measurements.first().results.exclude(tflops=None).first()
    best.__class__.objects.filter(pk=best.pk).update(tflops=815.0)
    query = PRODUCT | {"dtype": "float16", "tflops": "812"}
    page = shown(owner, query)
    assert "plausible</span>" in page
    assert f'<a href="{reverse("result", args=[run.pk, best.pk])}">' in page
    assert f"run {run.pk} of this site" in page
    run.__class__.objects.filter(pk=run.pk).update(contended=True)
    assert "812 TFLOP/s is above everything measured on an H200 SXM so far: 806.8 TFLOP/s" in shown(owner, query)
    run.__class__.objects.filter(pk=run.pk).update(contended=False)
    best.measurement.__class__.objects.filter(pk=best.measurement_id).update(margin=0.4)
    assert "above everything measured</span>" in shown(owner, query)


def test_quiet_ceilings_of_this_site_count(owner, gpu):
    ceilings = {"copy_gb_per_s": 4250.0, "read_gb_per_s": 4500.0, "matmul_tflops": {"bfloat16": 830.0},
                "intervals": {"bfloat16": [820.0, 835.0]}}  # fmt: skip
    row = Calibration.objects.create(gpu=gpu, ceilings=ceilings, measured_at=timezone.now())
    query = PRODUCT | {"tflops": "825"}
    assert "plausible</span>" in shown(owner, query)
    row.refused = "the device was busy"
    row.save()
    assert "above everything measured</span>" in shown(owner, query)


def test_a_verdict_takes_few_queries(owner, exported, gpu, django_assert_max_num_queries):
    load(exported, "x.json")
    with django_assert_max_num_queries(7):  # session, user, environments, the fastest, devices, ceilings, environments
        shown(owner, PRODUCT | {"tflops": "700"})


@pytest.mark.parametrize(
    ("text", "operation", "sizes"),
    [
        ("softmax rows=8192 cols=4096 fp16 on H100: 0.05 ms", "softmax", {"rows": "8192", "cols": "4096"}),
        ("RMSNorm 8192 x 4096 on H100: 0.05 ms", "rms_norm", {"rows": "8192", "cols": "4096"}),
        ("cross entropy, 4096 x 32000 on H200: 1 ms", "cross_entropy", {"rows": "4096", "vocab": "32000"}),
        ("SiLU of rows=8192 cols=4096: 0.05 ms", "swish", {"rows": "8192", "cols": "4096"}),
        ("92 TFLOP/s for a 4096^3 fp16 GEMM on H100", "gemm", {"m": "4096", "n": "4096", "k": "4096"}),
        ("matmul M=N=K=8192 bf16: 1 ms", "gemm", {"m": "8192", "n": "8192", "k": "8192"}),
        ("rows=8192 cols=4096: 0.05 ms", None, {"rows": "8192"}),
    ],
)
def test_a_text_is_about_the_operation_that_it_names(text, operation, sizes):
    found = claim_text.read(text)
    assert found.get("operation") == operation and sizes.items() <= found.items()


def test_every_operation_of_the_form_can_be_named():
    assert set(claim_text.OPERATIONS) == {name for name in operations() if name != PROBLEM}


def test_a_text_that_says_nothing_is_told_so(owner):
    page = owner.get("/judge/", {"claim": "hello world"}).content.decode()
    assert "The text names no operation, size, GPU, time or rate that was understood." in page


@pytest.mark.parametrize(
    "named, note", [("H100", "“H100” is read as H100 SXM."), ("H100 PCIe", ""), ("H100 80GB HBM3", ""), ("5090", "")]
)
def test_a_name_that_several_models_have_a_part_of_is_said_to_be_read_as_one(owner, named, note):
    claim = f"SDPA on {named}, B=16 H=16 S=4096 D=128 fp16: 12.27 ms"
    page = owner.get(JUDGE, {"claim": claim}, follow=True).content.decode()
    assert (note in page) if note else "is read as" not in page


def test_no_other_name_is_said_to_be_read_as_a_model(owner):
    page = shown(owner, CLAIM | {"said": "A100"})
    assert "is read as" not in page
