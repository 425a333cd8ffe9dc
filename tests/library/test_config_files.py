"""Configs as YAML: what a file may say, and what an error in it says."""

import json
import re

import pytest

from kernels.catalog import UnknownName, kernels, operations
from kernels.config_files import (
    EVERY_KERNEL_BYTES,
    ConfigError,
    as_yaml,
    check_kernels,
    configs,
    load_config,
    read_config,
)
from kernels.workload import Config, RunSpec

GEMM = "operation: gemm\nkernels: [eager]\nworkloads:\n"
SHAPE = {"batch": 1, "heads": 8, "seq_len": 64, "head_dim": 64}


def test_every_config_of_ours_is_valid_and_its_kernels_exist():
    found = configs()
    assert {"smoke", "canonical", "canonical-s512"} <= {made.name for made in found}
    for made in found:
        check_kernels(made)
        assert made.title
        assert made.source or made.name.startswith("smoke"), "whose sizes are these?"


def test_the_canonical_config_has_the_six_short_shapes_and_two_long_ones():
    labels = [w.label.removeprefix("attention fp16 ") for w in load_config("canonical").workloads]
    assert len(labels) == 8
    assert labels[-1] == "B=16 H=96 S=4096 D=128"
    short = load_config("canonical-s512").workloads
    assert [w.key for w in short] == [w.key for w in load_config("canonical").workloads[:6]]


@pytest.mark.parametrize(
    "content, what",
    [
        (b"a: [", "mine.yaml: line 1: not YAML: "),
        (b"\xff\xfe\x00", "mine.yaml is not YAML: "),
        (b"", "mine.yaml: not a mapping"),
        (b"- sdpa", "mine.yaml: not a mapping"),
        (b"operation: attention", "mine.yaml: line 1: kernels: Field required"),
        (b"!!python/object/apply:os.system ['true']", "mine.yaml: line 1: not YAML: "),
    ],
)
def test_a_file_that_is_no_config_is_said_so(tmp_path, content, what):
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_config(str(tmp_path / "mine.yaml"))
    assert str(error.value).startswith(what)


def test_a_file_has_the_name_of_its_config_unless_it_says_another(tmp_path):
    text = "operation: attention\nkernels: [eager]\nworkloads: [{batch: 1, heads: 1, seq_len: 1, head_dim: 16}]\n"
    (tmp_path / "run-12.yaml").write_text(text)
    assert load_config(str(tmp_path / "run-12.yaml")).name == "run-12"
    (tmp_path / "run-12.yaml").write_text("name: mine\n" + text)
    assert load_config(str(tmp_path / "run-12.yaml")).name == "mine"


@pytest.mark.parametrize("name", ("nothing", "/etc", "../../etc/passwd", "nothing.yaml", ""))
def test_a_config_that_does_not_exist_is_answered_with_those_that_do(name):
    with pytest.raises(ConfigError, match=r"there is no config '.*'; there are: canonical, .*smoke"):
        load_config(name)


def test_a_kernel_that_no_file_declares_is_refused():
    with pytest.raises(UnknownName, match="there is no kernel 'attention/sorted'"):
        check_kernels(Config(name="one", operation="attention", kernels=["sorted"], workloads=[SHAPE]))


def test_a_kernel_path_without_a_folder_of_the_operation_is_named(tmp_path, monkeypatch):
    (tmp_path / "sorted.py").write_text("")
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    said = f"KERNEL_PATH names {tmp_path}, which has no folder attention"
    with pytest.raises(UnknownName, match=re.escape(said)):
        check_kernels(Config(name="one", operation="attention", kernels=["sorted"], workloads=[SHAPE]))


def test_a_file_whose_name_cannot_be_that_of_a_config_is_told_so(tmp_path):
    (tmp_path / "My-config.yaml").write_text("operation: swish\nkernels: [eager]\nworkloads: [{rows: 8, cols: 8}]\n")
    with pytest.raises(ConfigError, match="its file is named My-config; a config's name has small letters"):
        load_config(str(tmp_path / "My-config.yaml"))


# --- several operations -----------------------------------------------------------------------------------------------

BOTH = """
title: Both
protocol: {min_rounds: 8}
operations:
  layer_norm:
    kernels: [compiled]
    workloads:
      - {rows: [16, 32], cols: 64}
  gemm:
    kernels: [compiled, eager]
    baseline: eager
    workloads:
      - {m: 64, n: 64, k: [64, 128, 256]}
      - {m: 32, n: 32, k: 32, dtype: float32}
"""


def test_a_config_of_several_operations_is_one_list_of_kernels_and_one_of_workloads():
    made = read_config(BOTH, "both")
    assert made.kernels == ["layer_norm/eager", "layer_norm/compiled", "gemm/eager", "gemm/compiled"]
    assert (made.operation, made.baseline, made.operations) == ("", "", ["layer_norm", "gemm"])
    assert [w.operation for w in made.workloads] == ["layer_norm"] * 2 + ["gemm"] * 4
    assert made.kernels_of("gemm") == ["eager", "compiled"] and made.baseline_of("layer_norm") == "eager"
    assert Config(**made.model_dump(mode="json")) == made, "the stored form is read again"
    spec = RunSpec.of(made, "GPU-1")
    assert RunSpec(**spec.model_dump(mode="json")).kernels_of("layer_norm") == ["eager", "compiled"]
    check_kernels(made)


@pytest.mark.parametrize("made", [*configs(), read_config(BOTH, "both")], ids=lambda made: made.name)
def test_a_config_as_text_is_read_as_the_same_config(made):
    assert read_config(as_yaml(made), made.name) == made


def test_one_operation_of_several_is_a_config_of_its_own():
    part = read_config(BOTH, "both").part("gemm")
    assert (part.operation, part.kernels, part.baseline) == ("gemm", ["eager", "compiled"], "eager")
    assert Config(**part.model_dump()) == part and len(part.workloads) == 4


@pytest.mark.parametrize(
    "text, what",
    [
        ("a: [1,\nb: 2", "line 2: not YAML: "),
        (GEMM + "- {m: [1, 2], n: 1, k: 1}\n- {m: 0, n: 1, k: 1}", "line 5: workloads.2.m: "),
        (BOTH.replace("m: 32", "m: 0"), "line 14: workloads.5.m: "),
        (BOTH.replace("rows: [16, 32]", "rows: [16, -1]"), "line 8: workloads.1.rows: "),
        (BOTH + "kernels: [eager]", "line 2: kernels stands beside operations: "),
        (BOTH.replace("gemm", "gem"), "line 2: there is no operation 'gem'"),
        (BOTH.replace("baseline:", "base:"), "line 2: gemm has kernels, a baseline and workloads, not: base"),
        (BOTH.replace("min_rounds: 8", "min_rounds: 0"), "line 3: protocol.min_rounds: "),
        ("operations: [gemm]", "line 1: operations is a mapping: "),
        ("[" * 3000, "lists and mappings are nested too deeply"),
        ("a: 2020-13-45", "not YAML: month must be"),
        (r'operation: "\ud83c"', "not YAML: unpaired surrogate"),
        ("1: 2", "not a mapping of name"),
        ("operations: {gemm: {kernels: [[a]], workloads: [{m: 1, n: 1, k: 1}]}}", "line 1: a kernel of gemm is a name, not: "),
        ("operations: {gemm: {kernels: [a], baseline: [b], workloads: []}}", "line 1: a kernel of gemm is a name, not: ['b']"),
        (f"title: {'x' * 201}\n" + GEMM + "- {m: 1, n: 1, k: 1}", "line 1: title: String should have at most 200"),
        ("operations: {gemm: {kernels: eager, workloads: []}}", "line 1: gemm needs a list of kernels and"),
        ("operations: {gemm: {kernels: [eager], workloads: []}}", "line 1: workloads: "),
        ("kernels: [eager]\nworkloads: [{operation: gemm, m: 1, n: 1, k: 1}]", "line 1: without an operation, kernels are"),
        ("kernels: [gemm/eager, x/y]\nworkloads: [{operation: gemm, m: 1, n: 1, k: 1}]", "line 1: there are kernels of x, but"),
    ],
)  # fmt: skip
def test_an_error_says_the_line(text, what):
    with pytest.raises(ConfigError) as error:
        read_config(text, "mine")
    assert str(error.value).startswith(what)


def test_a_character_may_be_written_as_json_does():
    title = "mine 🚀"
    escaped = json.dumps(title)
    assert escaped.isascii()
    assert read_config(f"title: {escaped}\n" + GEMM + "- {m: 1, n: 1, k: 1}", "mine").title == title


def test_every_kernel_is_checked_on_the_smallest_workload_of_each_config_that_is_small_enough():
    made = load_config("every-kernel")
    assert made.protocol.verify_only and set(made.kernels) == {info.full_name for info in kernels()}
    check_kernels(made)
    assert made.operations == sorted(operations())
    for part in (config.part(operation) for config in configs() for operation in config.operations):
        smallest = min(part.workloads, key=lambda w: w.problem.tensor_bytes)
        small = smallest.problem.tensor_bytes <= EVERY_KERNEL_BYTES
        assert (smallest.key in {w.key for w in made.workloads}) == small, part.name


def test_a_kernel_of_the_wrong_operation_is_refused():
    with pytest.raises(UnknownName, match="there is no kernel 'layer_norm/triton-gemm'"):
        check_kernels(read_config(BOTH.replace("kernels: [compiled]", "kernels: [triton-gemm]"), "both"))
