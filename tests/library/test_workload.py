"""Workloads and configs: one key for one question, lists that multiply, errors that say where and what."""

import pytest
from pydantic import ValidationError

from kernels.protocol import Protocol
from kernels.workload import MAX_WORKLOADS, Config, RunSpec, Workload, multiply, sentence

SIZES = {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64}


def workload(**sizes):
    dtype = sizes.pop("dtype", "float16")
    return Workload(operation="attention", dtype=dtype, sizes=SIZES | sizes)


def config(**values):
    return Config(**{"name": "x", "operation": "attention", "kernels": ["eager"], "workloads": [SIZES]} | values)


# --- one key for one question -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        {"kv_heads": 8},
        {"kv_heads": None},
        {"kv_heads": ""},
        {"causal": False},
        {"batch": "1"},
        {"batch": 1.0},
        {"dtype": "float16"},
        {"window": 0},
        {"window": None},
        {"window": 512},
        {"window": 4096},
        {"kv_len": 0},
        {"kv_len": ""},
        {"kv_len": 512},
        {"scale": 0.125},
        {"scale": 0},
        {"scale": ""},
    ],
    ids=str,
)
def test_two_spellings_of_a_workload_have_one_key(same):
    assert workload(**same).key == workload().key
    assert workload(**same) == workload()


def test_the_order_of_sizes_does_not_matter():
    backwards = Workload(operation="attention", sizes=dict(reversed(SIZES.items())))
    assert backwards.key == workload().key


@pytest.mark.parametrize(
    "other",
    [
        {"kv_heads": 2},
        {"causal": True},
        {"batch": 2},
        {"dtype": "float32"},
        {"window": 511},
        {"scale": 0.5},
        {"kv_len": 513},
    ],
    ids=str,
)
def test_another_question_has_another_key(other):
    assert workload(**other).key != workload().key


def test_a_key_stays_the_same_from_release_to_release():
    """Results are found by it: if this changes, every workload measured so far is another one."""
    assert workload().key == "a42766ea05fd16c9"
    assert workload(kv_heads=2, causal=True, head_dim=80, dtype="bfloat16").key == "fb1f2d2144cd71f3"
    gemm = Workload(operation="gemm", sizes={"m": 1, "n": 2, "k": 3})
    assert gemm.key == "fcf7fa8a31dfb098"
    assert gemm.key == Workload(operation="gemm", dtype="float16", sizes={"k": 3, "m": 1, "n": 2}).key


def test_a_label_says_what_people_say():
    assert workload().label == "attention fp16 B=1 H=8 S=512 D=64"
    assert workload(kv_heads=2, causal=True, dtype="bfloat16").label == "attention bf16 B=1 H=8 Hkv=2 S=512 D=64 causal"
    assert workload(causal=True, window=128, scale=1 / 12).label == (
        "attention fp16 B=1 H=8 S=512 D=64 causal window=128 scale=0.0833333"
    )


def test_sizes_are_complete_once_a_workload_is_made():
    assert workload().sizes == SIZES | {"kv_heads": 8, "causal": False}
    assert Workload(**workload().model_dump()) == workload()


# --- lists multiply ---------------------------------------------------------------------------------------------------


def test_lists_multiply():
    assert multiply({"batch": [1, 4], "heads": 8}) == [{"batch": 1, "heads": 8}, {"batch": 4, "heads": 8}]
    made = config(workloads=[SIZES | {"batch": [1, 4], "causal": [False, True], "dtype": ["float16", "bfloat16"]}])
    assert len(made.workloads) == 8
    assert {(w.dtype, w.sizes["batch"], w.sizes["causal"]) for w in made.workloads} == {
        (dtype, batch, causal) for dtype in ("float16", "bfloat16") for batch in (1, 4) for causal in (False, True)
    }


def test_a_workload_asked_for_twice_is_measured_once():
    made = config(workloads=[SIZES, SIZES | {"kv_heads": 8}, SIZES | {"batch": [1, 2]}])
    assert [w.sizes["batch"] for w in made.workloads] == [1, 2]


def test_too_many_workloads_are_refused_before_they_are_made():
    many = list(range(1, 1001))
    with pytest.raises(ValidationError) as error:
        config(workloads=[SIZES | {"batch": many, "seq_len": many, "head_dim": many}])
    assert sentence(error.value) == "these sizes make 1000000000 workloads; the limit is 2000"
    assert MAX_WORKLOADS == 2000


def test_the_baseline_is_always_measured_and_first():
    assert config(kernels=["eager"]).kernels == ["sdpa", "eager"]
    assert config(kernels=["eager", "sdpa", "eager"]).kernels == ["sdpa", "eager"]
    assert config(kernels=["sdpa-math"], baseline="eager").kernels == ["eager", "sdpa-math"]


# --- errors say where and what ----------------------------------------------------------------------------------------

WRONG = {
    "a size below its least": (
        {"workloads": [SIZES | {"batch": 0}]},
        "workloads.0.batch: ",
        "greater than or equal to 1",
    ),
    "a size that is no number": ({"workloads": [SIZES | {"batch": "x"}]}, "workloads.0.batch: ", "valid integer"),
    "a size that is missing": ({"workloads": [{"batch": 1}]}, "workloads.0.heads: ", "required"),
    "a size that does not exist": (
        {"workloads": [SIZES | {"size": 3}]},
        "workloads.0.size: ",
        "there is no such field",
    ),
    "the second workload": ({"workloads": [SIZES, SIZES | {"heads": 0}]}, "workloads.1.heads: ", "greater than"),
    "sizes that do not go together": (
        {"workloads": [SIZES | {"kv_heads": 3}]},
        "workloads.0: ",
        "heads (8) must be a multiple of KV heads (3)",
    ),
    "a dtype that does not exist": ({"workloads": [SIZES | {"dtype": "fp8"}]}, "workloads.0.dtype: ", "'bfloat16'"),
    "a dtype among the sizes": (
        {"workloads": [{"operation": "attention", "sizes": SIZES | {"dtype": "float16"}}]},
        "workloads.0: ",
        "write dtype next to sizes, not inside",
    ),
    "no workloads": ({"workloads": []}, "workloads: ", "at least 1"),
    "no list of workloads": ({"workloads": 3}, "workloads: ", "valid list"),
    "a workload that is none": ({"workloads": [3]}, "workloads.0: ", "valid dictionary"),
    "no kernels": ({"kernels": []}, "kernels: ", "at least 1"),
    "an operation that does not exist": ({"operation": "sort"}, "workloads.0: ", "there is no operation 'sort'; there"),
    "workloads of another operation": (
        {"workloads": [{"operation": "gemm", "sizes": {"m": 1, "n": 1, "k": 1}}]},
        "",
        "all workloads of a config are of one operation (attention), not: gemm fp16 M=1 N=1 K=1",
    ),
    "a mode that does not exist": ({"protocol": {"mode": "tepid"}}, "protocol.mode: ", "'cold'"),
    "rounds that cannot be": (
        {"protocol": {"max_rounds": 3}},
        "protocol: ",
        "max_rounds (3) is below min_rounds (20)",
    ),
    "a key that does not exist": ({"kernel": ["sdpa"]}, "kernel: ", "there is no such field"),
    "a name with a blank": ({"name": "my config"}, "name: ", "pattern"),
}


@pytest.mark.parametrize("values, where, what", WRONG.values(), ids=WRONG.keys())
def test_an_error_says_where_and_what_in_one_line(values, where, what):
    with pytest.raises(ValidationError) as error:
        config(**values)
    said = sentence(error.value)
    assert said.startswith(where)
    assert what in said
    assert "\n" not in said
    assert "pydantic" not in said


# --- what an agent gets -----------------------------------------------------------------------------------------------


def test_a_run_survives_the_way_to_its_agent():
    spec = RunSpec.of(config(), "GPU-1", run=7, attempt=2, done=["a"])
    assert RunSpec(**spec.model_dump(mode="json")) == spec
    assert (spec.kernels, spec.baseline, spec.device) == (["sdpa", "eager"], "sdpa", "GPU-1")


def test_the_protocol_of_a_config_that_says_nothing_is_the_one_in_the_docs():
    plan = config().protocol
    assert plan == Protocol()
    assert (plan.name, plan.mode, plan.seed) == ("paired", "auto", None)
    assert (plan.min_rounds, plan.max_rounds, plan.look_every, plan.precision) == (20, 120, 10, 0.003)
    assert (plan.warmup, plan.iters, plan.flush_l2) == (200, 500, False)
