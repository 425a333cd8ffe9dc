"""python -m kernels run --dry-run: what a run would measure."""

import re

import pytest

from kernels.cli.dry import plan
from kernels.cli.main import main
from kernels.config_files import load_config
from kernels.host.device import Device
from kernels.parent.duration import guess
from kernels.protocol import Protocol
from kernels.workload import Config, Workload

H200 = Device("cuda", "GPU-1", "NVIDIA H200", capability=9.0, memory_bytes=139 * 2**30)


def test_a_dry_run_measures_nothing_and_says_what_it_would_do(capsys, tmp_path):
    written = tmp_path / "out.json"
    assert main(["run", "smoke", "--device", "cpu", "--dry-run", "--json", str(written)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:4] == [
        "attention: sdpa, sdpa-math, eager",
        "  attention fp16 B=1 H=4 S=128 D=64         256 KiB",
        "  attention fp16 B=1 H=4 S=128 D=64 causal  256 KiB",
    ]
    assert "attention/triton-flash cannot run here: needs a CUDA device" in said
    assert said[-1] == "2 workloads, 6 results, under a minute by an estimate for a small device. Nothing was measured."
    assert not written.exists()


def test_the_whole_grid_of_the_guide_can_be_planned_on_a_gpu(capsys):
    assert main(["run", "comprehensive", "--device", "cpu", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  ") for line in said) == 245
    config = Config(name="a", operation="softmax", kernels=["triton-softmax"], workloads=[{"rows": 64, "cols": 64}])
    said = plan(config, H200)
    assert said[0] == "softmax: functional, triton-softmax"
    assert said[-1] == "1 workload, 2 results, under a minute by an estimate from the datasheet. Nothing was measured."


def test_an_h200_is_not_planned_like_a_small_card():
    """`canonical` took 434 s on one; 16 to 62 min were said."""
    said = plan(load_config("canonical"), H200)[-1]
    low, high = map(int, re.search(r"(\d+) to (\d+) min by", said).groups())
    assert low < 434 / 60 < high + 1 < 30


@pytest.mark.parametrize("processes", [1, 5])
def test_what_is_only_checked_needs_one_process(processes):
    checks = load_config("canonical").model_copy(update={"protocol": Protocol(verify_only=True, processes=processes)})
    assert plan(checks, H200)[-1] == plan(checks.model_copy(update={"protocol": Protocol(verify_only=True)}), H200)[-1]


def test_workloads_that_do_not_fit_are_named_with_both_figures():
    sizes = [{"rows": 2**20, "cols": 64}, {"rows": 2**20, "cols": 2**17}]
    said = plan(Config(name="a", operation="gelu", kernels=["functional"], workloads=sizes), H200)
    assert (
        "1048576 x 131072 needs 512 GiB for inputs and outputs, this device has 139 GiB. 1 of 2 workloads" in said[-2]
    )


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_run_that_only_checks_takes_no_time_for_rounds(kind):
    workload = Workload(operation="softmax", dtype="float32", sizes={"rows": 64, "cols": 64})
    whole, checks = (guess(workload, ["eager"], Protocol(verify_only=only), kind, {})[1] for only in (False, True))
    assert checks < 0.7 * whole
