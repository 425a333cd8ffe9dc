"""Hypotheses of a report: profiles that say the same of a kernel are one."""

from test_bottlenecks import of

from kernels.analysis.findings_cause import causes
from kernels.analysis.findings_one import Kind, Timed
from kernels.workload import Workload


def timed(rows, kernel="mine"):
    workload = Workload(operation="gelu", dtype="float32", sizes={"rows": rows, "cols": 64})
    return Timed(workload, kernel, 1.0, link=f"/{kernel}/{rows}")


def test_workloads_that_share_a_cause_are_one_hypothesis():
    profiled = [(timed(8), of(dram=0.93)), (timed(16), of(dram=0.9)), (timed(8, "other"), of(dram=0.85))]
    mine, other = causes(profiled)
    assert mine.kind == Kind.CAUSE
    assert mine.sentence == f"mine on {timed(8).workload.label}, and 1 more workload: DRAM-bound: 93% of peak."
    assert mine.arithmetic[1] == f"{timed(16).workload.label}: DRAM-bound: 90% of peak"
    assert [one.link for one in mine.of] == ["/mine/8", "/mine/16"]
    assert other.sentence.startswith("other on")


def test_a_profile_without_a_cause_is_no_hypothesis():
    assert list(causes([(timed(8), of())])) == []
