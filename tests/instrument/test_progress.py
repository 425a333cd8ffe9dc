"""Live progress: what it says of the rounds so far."""

from kernels.parent.progress import MOST_ROUNDS, Progress
from kernels.workload import Workload

WORKLOAD = Workload(operation="softmax", sizes={"rows": 8, "cols": 8})


def test_it_tells_the_ratios_of_the_newest_rounds_of_this_workload():
    told = []
    progress = Progress(told.append, 2)
    blocks = {"sdpa": [], "mine": [], "gone": [[9.0]]}
    for number in range(MOST_ROUNDS + 5):
        blocks["sdpa"].append([10.0, 12.0, 11.0])
        blocks["mine"].append([5.5, 5.5, 50.0 if number % 2 else 5.5])
        progress.saw("sdpa", blocks)
    progress.step(WORKLOAD, "mine", "round 1")
    assert told[-1]["so_far"] == {"gone": [1.2222], "mine": [2.0] * MOST_ROUNDS}
    assert told[-1]["rounds"] == MOST_ROUNDS + 5
    progress.position = 1
    progress.step(WORKLOAD, "mine", "compile")
    assert told[-1]["so_far"] == {}, "of another workload"
