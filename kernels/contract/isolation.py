"""What the processes of an isolated measurement reply, and what its event says of them. Times are in ns, unless a name
says otherwise."""

from __future__ import annotations

from kernels.contract.arm_result import Model, Ratio
from kernels.contract.arm_result import Text as Checked
from kernels.contract.replies import Nothing, OutputReading, Reply, Text

# --- a cell: everything is a claim of a process that is not trusted ---------------------------------------------------


class Output(Reply):
    """Where an output lies in the memory of a cell."""

    address: int
    shape: list[int]
    strides: list[int]
    """In elements."""
    dtype: str
    device: str


class Called(Reply):
    """Some calls, with all of their outputs alive."""

    outputs: list[list[Output]]
    wrong_kind: Text = ""
    """Why a call returned no tensors."""


class Armed(Reply):
    """A batch is prepared; the cell waits for the word to go."""

    addresses: list[int] = []
    """Of all outputs, if a captured graph has fixed them."""


class Batch(Reply):
    """A batch is done: all of its outputs are alive."""

    addresses: list[int]
    own_ns: int
    """By the cell's own clock."""


class Segments(Reply):
    """Device memory of a cell: (start, handle in hex) of each allocation that holds outputs."""

    segments: list[tuple[int, str]]


CELL_REPLIES: dict[str, type[Reply]] = {
    "open": Nothing,
    "run": Called,
    "capture": Nothing,
    "arm": Armed,
    "segments": Segments,
    "forget": Nothing,
}

# --- the trusted process ----------------------------------------------------------------------------------------------


class Opened(Reply):
    """The sizes of a workload's input sets."""

    set_bytes: int
    output_bytes: int
    free_bytes: int
    """Of the device."""


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
    "judge": Judged,
    "pace": Paced,
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


class Isolation(Model):
    """How an isolated measurement was kept apart. False: the host did not allow it."""

    own_user: bool = False
    no_network: bool = False
    own_pids: bool = False
    read_only: bool = False
    missing: list[Checked] = []
    graphs: bool = False
    """Batches are captured CUDA graphs."""
    host_us: float | None = None
    """Median length of an empty batch. Since harness 6 it is subtracted from every batch."""
    host_spread_us: float | None = None
    """Its interquartile range."""
    beside: Ratio | None = None
    """The baseline's time beside the other kernels, over its time before they had a process."""
    seed: int | None = None
    """Of all values and choices: drawn in secret by the parent."""
    batches: dict[str, Batches] = {}
    """By kernel."""
