"""What the processes of an isolated measurement reply, and what its event says of them. Times are in ns, unless a name
says otherwise."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kernels.contract.arm_result import Model, Ratio
from kernels.contract.arm_result import Text as Checked
from kernels.contract.replies import Nothing, OutputReading, Reply, Text

# --- a cell: everything is a claim of a process that is not trusted ---------------------------------------------------


MOST_CALLS = 4096
"""Calls of a batch."""
MOST_OUTPUTS, MOST_DIMENSIONS, MOST_SEGMENTS = 64, 16, 4096
Address = Annotated[int, Field(ge=0, lt=2**63)]
Extent = Annotated[int, Field(ge=0, lt=2**48)]
Addresses = Annotated[list[Address], Field(max_length=MOST_CALLS * MOST_OUTPUTS)]
Word = Annotated[str, Field(max_length=32, pattern="^[a-z0-9_]*$")]


class Output(Reply):
    """Where an output lies in the memory of a cell."""

    address: Address
    shape: Annotated[list[Extent], Field(max_length=MOST_DIMENSIONS)]
    strides: Annotated[list[Extent], Field(max_length=MOST_DIMENSIONS)]
    """In elements."""
    dtype: Word
    device: Word

    @model_validator(mode="after")
    def has_a_stride_for_each_size(self) -> Self:
        if len(self.shape) != len(self.strides):
            raise ValueError("shape and strides differ in length")
        return self


class Called(Reply):
    """Some calls, with all of their outputs alive."""

    outputs: Annotated[list[Annotated[list[Output], Field(max_length=MOST_OUTPUTS)]], Field(max_length=MOST_CALLS)]
    wrong_kind: Text = ""
    """Why a call returned no tensors."""


class Armed(Reply):
    """A batch is prepared; the cell waits for the word to go."""

    addresses: Addresses = []
    """Of all outputs, if a captured graph has fixed them."""


class Batch(Reply):
    """A batch is done: all of its outputs are alive."""

    addresses: Addresses
    own_ns: Annotated[int, Field(ge=0, lt=2**62)]
    """By the cell's own clock."""


class Segments(Reply):
    """Device memory of a cell: (start, handle in hex) of each allocation that holds outputs."""

    segments: Annotated[
        list[tuple[Address, Annotated[str, Field(pattern="^[0-9a-f]{128}$")]]], Field(max_length=MOST_SEGMENTS)
    ]


CELL_REPLIES: dict[str, type[Reply]] = {
    "open": Nothing,
    "run": Called,
    "capture": Nothing,
    "arm": Armed,
    "segments": Segments,
    "forget": Nothing,
}

# --- the process of a problem that came with its kernels: claims, as those of a cell --------------------------------


MOST_ARGUMENTS = 64
Kind = Annotated[str, Field(max_length=32, pattern="^[a-z][a-z0-9_]*$")]
Shape = Annotated[list[Extent], Field(max_length=MOST_DIMENSIONS)]


class Array(Reply):
    """Shape and dtype of a tensor."""

    shape: Shape
    dtype: Kind


class Argument(Reply):
    """One argument of a call: a tensor, whose values change, or a value that stays."""

    array: Array | None = None
    value: bool | int | float | Annotated[str, Field(max_length=1000)] | None = None


class Part(Reply):
    """One of several calls: the tests of a problem are called one after the other."""

    name: Text
    arguments: int
    outputs: int


class Described(Reply):
    """What its kernels are called with, and what they return."""

    arguments: Annotated[list[Argument], Field(max_length=MOST_ARGUMENTS)]
    packed: bool = False
    """Whether they are the parts of one tuple, which is the only argument."""
    outputs: Annotated[list[Array], Field(min_length=1, max_length=MOST_OUTPUTS)]
    parts: Annotated[list[Part], Field(max_length=MOST_OUTPUTS)] = []
    """Empty: all of it is one call."""
    has_check: bool = False
    """Whether the problem has a check of its own that can be called."""
    why_no_check: Text = ""
    """Why it cannot, if its format has one."""
    why_inexact: Text = ""
    """Why the reference has no exact answer; empty: it has one."""


class Expected(Reply):
    """The outputs of the reference for one input set, and the same in a higher precision; nothing if it has none."""

    plain: Annotated[list[Output], Field(max_length=MOST_OUTPUTS)]
    exact: Annotated[list[Output], Field(max_length=MOST_OUTPUTS)]
    nudged: Annotated[list[Output], Field(max_length=MOST_OUTPUTS)] = []
    """Exact answers for nudged inputs, (answers, *shape) of each output; nothing if none are needed."""


class Refused(Reply):
    """What the problem's own check says against outputs."""

    why: Text = ""
    """Empty: nothing."""


PROBLEM_REPLIES: dict[str, type[Reply]] = {
    "describe": Described,
    "map": Nothing,
    "draw": Nothing,
    "expect": Expected,
    "check": Refused,
    "segments": Segments,
}

# --- the trusted process ----------------------------------------------------------------------------------------------


class Opened(Reply):
    """The sizes of a workload's input sets."""

    set_bytes: int
    output_bytes: int
    answer_bytes: int = 0
    """Of the memory in which a problem that came with its kernels sees outputs."""
    free_bytes: int
    """Of the device."""
    few: bool = False
    """Whether an output of a problem that came with its kernels has few elements: it is judged by several seeds."""


class Attached(Reply):
    """Memory for the input sets of a cell."""

    handle: str = ""
    """In hex; empty on a CPU."""


class Taken(Reply):
    """Outputs were copied out of a cell's memory."""

    refused: Text = ""
    """Why they could not be."""


class Judged(Reply):
    """Outputs compared with the reference, and the inputs with what they were."""

    readings: list[OutputReading]
    inputs_changed: bool


class Paced(Reply):
    """Time of a fixed piece of work on the device."""

    ns: float


TRUSTED_REPLIES: dict[str, type[Reply]] = {
    "open": Opened,
    "attach": Attached,
    "detach": Nothing,
    "write": Nothing,
    "reach": Taken,
    "take": Taken,
    "show": Taken,
    "judge": Judged,
    "pace": Paced,
    "expect": Taken,
    "pool": Nothing,
    "forget": Nothing,
}

# --- the event --------------------------------------------------------------------------------------------------------


class Batches(Model):
    """The batches of one kernel."""

    calls: int
    ms: float
    """Median length."""
    delay_us: float
    """Median time from the end of a batch until all of the cell's processes were stopped (CPU), or until outputs were
    copied (GPU): the most that work after the answer could win."""
    own_clock: float | None = None
    """Median of the cell's own time of a batch over the parent's. It is shown, and not used."""
    checked: int = 0
    """Outputs of timed calls that were compared with the reference."""
    retaken: int | None = None
    """Batches of rounds that took longer than usual and were taken once more. None in events of earlier versions."""


class Isolation(Model):
    """How an isolated measurement was kept apart. False: the host did not allow it."""

    own_user: bool = False
    no_network: bool = False
    own_pids: bool = False
    read_only: bool = False
    user_namespace: bool | None = None
    """This and what follows: None in events of earlier versions."""
    own_proc: bool | None = None
    hidden: bool | None = None
    limited_scratch: bool | None = None
    limited_memory: bool | None = None
    missing: list[Checked] = []
    on_cpu: bool = False
    """False in events of earlier versions."""
    graphs: bool = False
    """Batches are captured CUDA graphs."""
    host_us: float | None = None
    """Median length of an empty batch."""
    host_spread_us: float | None = None
    """Its interquartile range."""
    host_subtracted: bool = False
    """Whether `host_us` was subtracted from every batch. False in events of earlier versions."""
    beside: Ratio | None = None
    """The baseline's time beside the other kernels, over its time before they had a process."""
    seed: int | None = None
    """Of all values and choices: drawn in secret by the parent."""
    batches: dict[str, Batches] = {}
    """By kernel."""
