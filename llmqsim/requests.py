"""RequestTable: every request of a run as one row of one int64 array; every column declared once, here.

A request *is* its row index everywhere. `COLUMNS` allocates the array, names the columns of the data frame, checks
what the workload built and prints the documentation page, so that none of them can drift apart.
"""

# Part of machine code: kernels address the request table by these numbers.
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from llmqsim.errors import InvariantError
from llmqsim.packed import PIECE_ROWS, Memory, Packed

UNSET = -1
"""A mark that was not written: it never happened in this run."""


class Outcome(IntEnum):
    """What became of a request."""

    UNFINISHED = 0
    COMPLETED = 1
    REJECTED = 2
    TIMED_OUT = 3
    """the client gave up before the last token reached it"""


class Reason(IntEnum):
    """Why a request was rejected (NONE for all others)."""

    NONE = 0
    EXCEEDS_MAX_MODEL_LEN = 1
    EXCEEDS_KV_POOL = 2
    EXCEEDS_TOKEN_BUDGET = 3
    RATE_LIMITED = 4
    QUEUE_FULL = 5
    WOULD_MISS_DEADLINE = 6


@dataclass(frozen=True)
class Column:
    """One column: its unit, who writes it, the value it starts with, and what it means."""

    name: str
    unit: str
    writer: str
    start: int
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("arrival_ns", "ns", "workload", 0, "when the client sends the request; never, where the run ended before"),
    Column("intended_ns", "ns", "workload", 0, "when it was due: before arrival where a cap in the client held it"),
    Column("prompt_tokens", "tokens", "workload", 1, "tokens that the server is asked to read"),
    Column("output_tokens", "tokens", "workload", 1, "tokens that the answer will have; no policy may see it"),
    Column(
        "max_tokens",
        "tokens",
        "workload",
        1,
        "most tokens that client and max_model_len allow; the end is foreseen if reached",
    ),
    Column("class_id", "index", "workload", 0, "traffic class"),
    Column("tenant_id", "index", "workload", 0, "whom it belongs to"),
    Column("priority", "rank", "workload", 0, "lower is more urgent, for orderings that look at it"),
    Column("think_ns", "ns", "workload", 0, "how long its client thinks after the answer, in a closed loop"),
    Column("predicted_tokens", "tokens", "workload", UNSET, "output tokens that the predictor expects, for policies"),
    Column(
        "deadline_ns", "ns", "workload", UNSET, "due so long after arrival: the TTFT target, or else the E2E target"
    ),
    Column("client", "index", "cluster", UNSET, "client of the closed loop that sent it"),
    Column("retries", "count", "cluster", 0, "times its client sent it again after a refusal or a time-out"),
    Column("replica", "index", "cluster", UNSET, "replica that served it"),
    Column("first_scheduled_ns", "ns", "engine", UNSET, "when a step that holds it was first formed"),
    Column("first_token_ns", "ns", "engine", UNSET, "when the client sees the first token"),
    Column("finish_ns", "ns", "engine", UNSET, "when the client sees the last token"),
    Column("gave_up_ns", "ns", "cluster", UNSET, "when its client gave up"),
    Column("generated_tokens", "tokens", "engine", 0, "tokens delivered so far"),
    Column("cached_tokens", "tokens", "engine", 0, "tokens that were not computed for it because their KV was cached"),
    Column("preemptions", "count", "engine", 0, "times it lost its KV blocks"),
    Column("max_itl_ns", "ns", "engine", UNSET, "longest gap between two successive tokens"),
    Column("wait_router_ns", "ns", "cluster", 0, "waited at the router until a replica had a place (late binding)"),
    Column("wait_step_ns", "ns", "engine", 0, "waited for the next step to be formed, before the scheduler looked"),
    Column("wait_slots_ns", "ns", "engine", 0, "waited because max_num_seqs requests were running"),
    Column("wait_kv_ns", "ns", "engine", 0, "waited because too few KV blocks were free"),
    Column("wait_token_budget_ns", "ns", "engine", 0, "waited because the step's token budget was spent"),
    Column("wait_preempted_ns", "ns", "engine", 0, "waited to resume after a preemption"),
    Column("outcome", "code", "cluster", Outcome.UNFINISHED, "0 unfinished, 1 completed, 2 rejected, 3 timed out"),
    Column("reason", "code", "cluster", Reason.NONE, "why it was rejected, see Reason"),
)

HANDOFF_COLUMNS: tuple[Column, ...] = (
    Column("prefill_replica", "index", "cluster", UNSET, "replica that computed its prompt for another one"),
    Column("prefilled_ns", "ns", "cluster", UNSET, "when its prompt was computed there"),
    Column("decode_joined_ns", "ns", "cluster", UNSET, "when it joined the queue of the replica that decodes"),
    Column("transfer_start_ns", "ns", "cluster", UNSET, "when the first of its KV was asked for, or sent"),
    Column("transfer_end_ns", "ns", "cluster", UNSET, "when the last of its KV had arrived"),
    Column("resumed_ns", "ns", "engine", UNSET, "when a step with it was first formed at the replica that decodes"),
    Column("transfer_blocks", "blocks", "cluster", 0, "KV blocks that were sent for it"),
    Column("transfer_bytes", "bytes", "cluster", 0, "bytes of them, all GPUs of a replica together"),
    Column("handoff", "code", "cluster", 0, "see Handoff"),
)
"""marks of a request's way from a prefill replica to a decode replica; only runs with such pools have them"""


class Handoff(IntEnum):
    """What became of a request's hand-off."""

    NONE = 0
    """it was served in one place"""
    PENDING = 1
    """its prompt is being computed, or its KV is to be sent"""
    DONE = 2
    """its KV has arrived"""
    ENDED = 3
    """it ended with its first token, so there was nothing to hand over"""
    EXPIRED = 4
    """its KV was dropped before anyone fetched it, and computed again where it decodes"""


INDEX: dict[str, int] = {column.name: i for i, column in enumerate(COLUMNS)}
HANDOFF_INDEX: dict[str, int] = {column.name: i for i, column in enumerate(HANDOFF_COLUMNS)}
GIVEN: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.writer == "workload")
NEAR_ARRIVAL: dict[int, int] = {
    INDEX[name]: INDEX["arrival_ns"] for name in ("intended_ns", "first_scheduled_ns", "first_token_ns", "finish_ns")
}
"""columns that are packed as their distance from the arrival"""
WAITS: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.name.startswith("wait_"))


@dataclass(frozen=True)
class PrefixTable:
    """Hashes of the leading KV blocks that a prompt may share with others, as compressed rows.

    Row i has hashes[offsets[i] : offsets[i + 1]], one a full block from the start; offsets int64[rows + 1], hashes
    int64[blocks], positive. Equal hashes mean equal content up to and with that block.
    """

    offsets: np.ndarray
    hashes: np.ndarray
    warm: bool = False
    """are all of them cached before the first request arrives (as far as the pool holds them)?"""

    def row(self, row: int) -> list[int]:
        """Hashes of one row."""
        return self.hashes[self.offsets[row] : self.offsets[row + 1]].tolist()


@dataclass(frozen=True)
class Targets:
    """What a class is promised, ns; None: no such target."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None


class HandoffTable:
    """The marks of HANDOFF_COLUMNS, one row each, int64[columns, requests]; `table.prefilled_ns` etc. are views."""

    def __init__(self, rows: int):
        self.data = np.empty((len(HANDOFF_COLUMNS), rows), dtype=np.int64)
        for i, column in enumerate(HANDOFF_COLUMNS):
            self.data[i] = column.start

    def __getattr__(self, name: str) -> np.ndarray:
        if name in HANDOFF_INDEX:
            return self.data[HANDOFF_INDEX[name]]
        raise AttributeError(name)


class RequestTable:
    """All requests of a run: `data` is int64[columns, rows]; `table.arrival_ns` etc. are views of its rows.

    A long table that is `streamed` has memory only for the rows in progress: `open_rows` gives rows their start values,
    `pack` keeps those that are over in few bytes (packed.py). Once all are packed there is no `data`, and
    `table.arrival_ns` etc. are made when they are read.
    """

    def __init__(
        self,
        rows: int,
        classes: tuple[str, ...] = ("all",),
        tenants: tuple[str, ...] = ("all",),
        streamed: bool = False,
        given: Collection[str] = (),
    ):
        self._rows, self._opened = rows, 0
        self._memory = Memory(len(COLUMNS), rows) if streamed and rows > PIECE_ROWS else None
        self._packed = Packed(len(COLUMNS), NEAR_ARRIVAL) if self._memory else None
        self.data = self._memory.data if self._memory else np.zeros((len(COLUMNS), rows), dtype=np.int64)
        for i, column in enumerate(COLUMNS):
            if column.writer == "workload" and column.start and column.name not in given:
                self.data[i] = column.start
        if not self.streamed:
            self.open_rows(rows)
        self.classes = classes
        self.tenants = tenants
        self.prefixes: PrefixTable | None = None
        """None: nobody shares a prefix"""
        self.targets: tuple[Targets, ...] = (Targets(),) * len(classes)
        """of each class"""
        self.draws: np.ndarray | None = None
        """numbers in [0, 1) that routing may use, float64[rows, draws]; None: nobody asked for any"""
        self.re_estimate = 0.0
        """a request that outlives its prediction is expected to make so many times as many tokens; 0: no correction"""
        self.handoffs: HandoffTable | None = None
        """None: no run has split prefill and decode over these requests"""

    def __len__(self) -> int:
        return self._rows

    @property
    def streamed(self) -> bool:
        """Are rows opened and packed as the run goes?"""
        return self._packed is not None

    def open_rows(self, end: int) -> None:
        """Give the marks of rows up to `end` their start values; what the workload writes is there from the beginning."""
        for i, column in enumerate(COLUMNS):
            if column.start and column.writer != "workload":
                self.data[i, self._opened : end] = column.start
        self._opened = max(self._opened, end)

    def pack_finished(self) -> None:
        """Pack the opened rows up to the first that is unfinished, in a streamed table."""
        first = self._packed.rows
        unfinished = self.outcome_of(first, self._opened) == Outcome.UNFINISHED
        self.pack(first + int(unfinished.argmax()) if unfinished.any() else self._opened)

    def outcome_of(self, first: int, end: int) -> np.ndarray:
        """Outcomes of rows first:end, int64[end - first], that are not packed yet."""
        return self.data[INDEX["outcome"], first:end]

    def pack(self, end: int) -> None:
        """Pack a streamed table up to row `end`. Those rows must not be touched any more."""
        while (first := self._packed.rows) < end:
            until = min(first + PIECE_ROWS, end)
            self._packed.add(self.data[:, first:until])
            self._memory.give_back(first, until)

    def close(self) -> None:
        """The run is over: pack what is left of a streamed table."""
        if self._packed is not None:
            self.open_rows(self._rows)
            self.pack(self._rows)
            del self.data, self._memory

    def unpack(self) -> None:
        """Bring every row of a streamed table back, and open them all: the run starts again."""
        if self._packed is not None:
            packed, self._packed = self._packed, Packed(len(COLUMNS), NEAR_ARRIVAL)
            for i in range(len(COLUMNS)):
                self.data[i, : packed.rows] = packed.column(i)
            self.open_rows(self._rows)

    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name, views of `data`; and `due_at_end`: 1 where the deadline is that of the last token."""
        ends = np.array([targets.ttft_ns is None for targets in self.targets], dtype=np.int64)
        return {**dict(zip(INDEX, self.data, strict=True)), "due_at_end": ends[self.class_id]}

    def __getattr__(self, name: str) -> np.ndarray:
        if name in INDEX:
            closed = "data" not in self.__dict__
            return self._packed.column(INDEX[name]) if closed else self.data[INDEX[name]]
        raise AttributeError(name)

    @classmethod
    def from_columns(
        cls,
        classes: tuple[str, ...] = ("all",),
        tenants: tuple[str, ...] = ("all",),
        streamed: bool = False,
        **given: np.ndarray | int,
    ) -> RequestTable:
        """Build a table from its given columns (int arrays of equal length, or a number for all rows); marks keep their
        start values.

        A request is due when it arrives unless `intended_ns` says otherwise; UNSET arrivals are for the run to set.
        Raises InvariantError when a column is unknown, ragged, unsorted in time, or has impossible lengths: the
        workload must have refused such rows with a message that names their place.
        """
        unknown = set(given) - set(GIVEN)
        if unknown:
            raise InvariantError(f"not given columns: {sorted(unknown)}")
        given = {"intended_ns": given["arrival_ns"], **given}
        table = cls(len(given["arrival_ns"]), classes, tenants, streamed, given)
        for name, values in given.items():
            if np.ndim(values) or values:  # zeros that nobody wrote take no memory
                table.data[INDEX[name]] = values
        known = table.arrival_ns
        if (known == UNSET).any():
            known = known[known != UNSET]
        if len(known) and (np.any(known[1:] < known[:-1]) or known[0] < 0):
            raise InvariantError("arrivals must be sorted and not negative")
        for name in ("prompt_tokens", "output_tokens", "max_tokens"):
            if np.any(table.data[INDEX[name]] < 1):
                raise InvariantError(f"{name} must be at least 1")
        if np.any(table.output_tokens > table.max_tokens):
            raise InvariantError("output_tokens must not exceed max_tokens")
        return table
