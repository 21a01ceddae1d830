"""Random clients in front of the random clusters of cases.py: closed loops, caps on requests in flight, time-outs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from llmqsim.clients import Clients, Loop
from llmqsim.cluster.cluster import Cluster
from llmqsim.requests import INDEX, UNSET, Outcome, RequestTable
from tests.laws.cases import GRID_NS, Case, cases


@dataclass(frozen=True)
class ClientCase:
    """A case and who sends its requests. The last `closed` of them belong to a closed loop."""

    case: Case
    closed: int
    clients: int
    think_ns: tuple[int, ...]
    ramp_up_ns: int
    cap: int | None
    turnaround_ns: int
    timeout_ns: int | None

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The closed loop, if there is one."""
        rows = len(self.case.requests)
        if not self.closed:
            return ()
        return (Loop(np.arange(rows - self.closed, rows), self.clients, self.ramp_up_ns),)

    def run(self) -> Cluster:
        """Simulate to the end."""
        table = self.case.table()
        loop = np.arange(len(table))[len(table) - self.closed :]
        for name in ("arrival_ns", "intended_ns"):
            table.data[INDEX[name], loop] = UNSET
        table.data[INDEX["think_ns"]] = self.think_ns
        behave = Clients(self.loops, self.cap, self.turnaround_ns, self.timeout_ns)
        return self.case.run(table, behave)

    def end_ns(self, table: RequestTable) -> np.ndarray:
        """When each client was done with its request: answered, given up, or refused at once. int64[rows]."""
        end = np.where(table.finish_ns != UNSET, table.finish_ns, table.gave_up_ns)
        return np.where(table.outcome == Outcome.REJECTED, table.arrival_ns, end)


@st.composite
def client_cases(draw) -> ClientCase:
    """Times on the grid of the case more often than not, so that ends, time-outs and sendings coincide."""
    case = draw(cases(max_requests=18))
    rows = len(case.requests)
    grid = draw(st.sampled_from([GRID_NS, GRID_NS, 1_234_567]))
    times = st.sampled_from([0, 0, grid, 3 * grid])
    return ClientCase(
        case,
        closed=draw(st.sampled_from([0, rows // 2, rows])),
        clients=draw(st.integers(1, 5)),
        think_ns=tuple(draw(times) for _ in range(rows)),
        ramp_up_ns=draw(times),
        cap=draw(st.sampled_from([None, 1, 2, 4])),
        turnaround_ns=draw(times),
        timeout_ns=draw(st.sampled_from([None, grid, 4 * grid, 20 * grid])),
    )
