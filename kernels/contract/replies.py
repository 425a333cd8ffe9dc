"""What the measuring process replies to each command: one model each. The bench makes them, the parent reads them.

A line on the pipe is an `Answer`. What does not validate was not written by the bench. Times are in ns, unless a name
says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {13: "\n"}
MOST_CHARACTERS = 16_000


def printable(text: str) -> str:
    """A text without what a terminal or a database would act on: half characters, escapes, NUL."""
    return text.encode("utf-8", "replace").decode().translate(CONTROLS)


def _said(text: Any) -> Any:
    return printable(text[:MOST_CHARACTERS]) if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_said)]
"""What a kernel says may hold anything, and any amount of it."""
OutputReading = dict[str, Any]
"""Errors of one output: see `measure` in kernels/child/reference.py."""


class Reply(BaseModel):
    """Immutable, and nothing but its fields. Errors of outputs may be infinite or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Nothing(Reply):
    """Done; there is nothing to say."""


class Loaded(Reply):
    """A kernel's file, as executed."""

    sha256: str
    source: str
    settings: str = ""
    """"rows=2+warps=4": of a kernel that can be tuned. Empty: its own choice."""
    tuned: str = ""
    """Where they come from, if from its table."""


class Compiled(Reply):
    """The first call of a kernel, and its second one."""

    compile_s: float
    """Time of the first call."""
    peak_memory_bytes: int | None = None
    """Memory of the second call, without its inputs; None on a CPU."""
    registers: int | None = None
    """This and what follows: of the launched kernel with the most registers, of those that Triton or NVRTC compiled."""
    local_bytes: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: str = ""
    block: str = ""
    occupancy: float | None = None
    log: Text = ""
    """What NVRTC said."""


class Verified(Reply):
    """Two calls on fresh inputs. Facts only, no judgement."""

    reading: OutputReading
    inputs_changed: bool
    shared: bool
    """The second call wrote into an output of the first, or returned it again."""
    deterministic: bool | None
    """None: the output is of the wrong kind."""
    busy: list[tuple[str, Text]]
    """(arm, what): threads and processes that work while no kernel is called."""


class Quiet(Reply):
    """Whether anything works on while no kernel is called."""

    busy: list[tuple[str, Text]]
    """(arm that started it, what)."""


class Watched(Reply):
    """What differs from the state before any kernel's file was loaded, in every function that calls may reach."""

    changes: list[Text]
    threads: bool
    """Python threads are there that were not when this was last asked."""
    must_replace: bool = False
    """The process must be replaced."""


class Prepared(Reply):
    """The input sets that timed calls rotate over."""

    sets: int
    covered: bool
    """Together they exceed the cache."""
    input_bytes: int
    """Of one set."""


class TimedBlock(Reply):
    """The raw reading of one block of calls."""

    ticks_ns: list[float]
    """One duration per call; for graphs, a replay's time / its calls."""
    enqueue_ns: int = 0
    """Host time to launch the block."""
    cpu_ns: list[int] = []
    """CPU time of the process in each call; empty on a GPU."""
    between_ns: list[int] = []
    """What passed after the end of each call until the next line that may copy its output, if none was copied; not on a GPU."""
    gate_ns: float = 0.0
    """Measured length of the spin gate; 0 without one."""
    gated: bool = True
    """Every launch was queued before the first one started."""
    sm_mhz: float | None = None
    """SM clock during the gate; None without a long gate."""


class Captured(Reply):
    """A CUDA graph of an arm."""

    nodes: int
    """Calls in the graph."""


class Rechecked(Reply):
    """The outputs kept from timed calls, compared with the reference."""

    readings: list[tuple[str, OutputReading]]
    changed_inputs: list[str]
    """Arms that changed their inputs."""
    grown: dict[str, list[tuple[int, int]]]
    """Arm -> (bytes, calls) of each block: growth of the memory in use."""


class Probed(Reply):
    """Times of single calls on known and on new inputs: see kernels/child/probe.py."""

    seen_ns: list[float]
    new_ns: list[float]
    untouched_ns: list[float]
    written_ns: list[float]
    again_ns: list[float]
    fresh_ns: list[float]
    early_ns: list[float] = []
    late_ns: list[float] = []
    host_bytes: int = 0
    """Of one input set, if it is in the host's memory."""
    busy: list[tuple[str, Text]]
    """As in Verified."""


class Profiled(Reply):
    """Profiler spans and event times of the same calls."""

    kernels: list[tuple[Text, int]]
    """(name, ns) of the kernels of one call, in order; on a CPU, of the operators."""
    spans_ns: list[float]
    """Per call, from the first kernel's start to the last one's end; empty on a CPU."""
    event_ns: list[float]


class CeilingFigure(Reply):
    """Raw samples of one ceiling."""

    name: str
    """copy_gb_per_s, read_gb_per_s, a dtype (a matrix product) or a mode (an empty kernel)."""
    bytes: int | None = None
    """That a call reads and writes."""
    flops: int | None = None
    blocks_ns: list[list[float]]
    """Times of the calls of each block. Blocks 2i and 2i + 1 are of round i."""

    @property
    def is_empty(self) -> bool:
        """Whether it is an empty kernel: without work."""
        return self.bytes is None and self.flops is None


class CeilingSamples(Reply):
    """Raw samples of a device's ceilings: kernels/analysis/ceilings.py makes rates of them."""

    figures: list[CeilingFigure]


REPLIES: dict[str, type[Reply]] = {
    "open": Nothing,
    "load": Loaded,
    "compile": Compiled,
    "verify": Verified,
    "forget_references": Nothing,
    "quiet": Quiet,
    "watch": Watched,
    "prepare": Prepared,
    "keep": Nothing,
    "block": TimedBlock,
    "e2e": TimedBlock,
    "sustained": TimedBlock,
    "replay": TimedBlock,
    "capture": Captured,
    "drop_graphs": Nothing,
    "let_go": Nothing,
    "recheck": Rechecked,
    "probe": Probed,
    "release": Nothing,
    "profile": Profiled,
    "calibrate": CeilingSamples,
}
"""The commands of the bench, and what each replies."""


class Fault(Reply):
    """A command that raised."""

    kind: Literal["raised", "unsupported", "out of memory", "suspect"]
    message: Text
    traceback: Text = ""
    must_replace: bool = False
    """The process must be replaced."""


class Answer(Reply):
    """One line from the measuring process. Exactly one of `ready`, `failed`, `ok` and `error` is set."""

    token: str = ""
    """Of the command that it answers."""
    ready: dict[str, Any] | None = None
    """The environment, once torch and the device are up."""
    failed: Text | None = None
    """Why the process could not start."""
    ok: dict[str, Any] | None = None
    """The reply: the command's model in REPLIES."""
    error: Fault | None = None
