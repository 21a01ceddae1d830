"""Result: everything a run says, frozen. Metrics are computed from it on demand; nothing here knows the engine."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from llmqsim.caveats import Caveat, Idle
from llmqsim.errors import UserError
from llmqsim.metrics import latency, slo, summary, warmup
from llmqsim.metrics.distribution import NS_PER_S
from llmqsim.records import GapHistogram, LinkUsage, ReplicaUsage, StepLog
from llmqsim.requests import COLUMNS, HANDOFF_COLUMNS, UNSET, Handoff, HandoffTable, Outcome, Reason, RequestTable

if TYPE_CHECKING:
    import pandas as pd


class NoRequests:
    """What stands for the request table where only the figures were kept. Whatever is asked of it, UserError says so."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __len__(self) -> int:
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError("this result holds its summary only (keep='summary'); run with keep='requests' to see requests")


@dataclass(frozen=True)
class Result:
    """One simulated run.

    scenario : the resolved scenario as plain data (SI units). engine : which engine ran. end_ns : when the run ended.
    kv : the pool of one replica (blocks, block_size, tokens, bytes_per_token, guaranteed_concurrency, source, items),
    or None. slo : ttft_s, tpot_s, e2e_s, attainment, counted_from, those that are set; class_slo : the same by class,
    for classes with their own. warmup : what to leave out: None, "auto", {"requests": n} or {"time": s}. envelope : where the cost
    model comes from and how far it was measured. notes : sentences for the reader. caveats : what makes the figures err.
    step_log : every step, if asked for.
    pools : each pool (name, role, replicas, gpus, first_replica, kv), in the order of replicas; empty without pools, as
    links is.
    """

    scenario: dict[str, Any]
    seed: int
    replication: int
    engine: str
    version: str
    table: RequestTable | NoRequests
    gaps: GapHistogram
    usage: tuple[ReplicaUsage, ...]
    end_ns: int
    kv: dict[str, Any] | None = None
    slo: dict[str, Any] = field(default_factory=dict)
    class_slo: dict[str, dict[str, Any]] = field(default_factory=dict)
    warmup: Any = None
    envelope: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    no_effect: tuple[Idle, ...] = ()
    """keys that were written and change nothing in this run, and why"""
    step_log: StepLog | None = None
    told: dict[str, Any] | None = None
    """the figures, where they are all that was kept"""
    pools: tuple[dict[str, Any], ...] = ()
    links: tuple[LinkUsage, ...] = ()
    late_alone: np.ndarray | None = None
    """bool[rows]: whose client would give up even where it has a server of its own; None where no client gives up"""

    @cached_property
    def arrived(self) -> np.ndarray:
        """Mask of the requests that arrived before the run ended, bool[rows]. Counts are over these."""
        table = self.table
        counts = table.arrival_ns <= self.end_ns
        if (self.scenario.get("run") or {}).get("until") is None:  # a last request that is refused doesn't keep the clock going
            counts |= table.outcome != Outcome.UNFINISHED
        return (table.arrival_ns != UNSET) & counts

    @cached_property
    def due(self) -> np.ndarray:
        """Mask of the requests that were due before the run ended, bool[rows]: also those that a cap held back."""
        return self.arrived | ((self.table.intended_ns != UNSET) & (self.table.intended_ns <= self.end_ns))

    @cached_property
    def cut(self) -> warmup.Cut | None:
        """The warm-up that is left out of the figures; None where nothing was asked for."""
        return warmup.cut(self.table, self.arrived, self.warmup)

    @cached_property
    def measured(self) -> np.ndarray:
        """Mask of the requests that arrived, less the warm-up, bool[rows]: what latencies, rates, shares are over."""
        return self.arrived if self.cut is None else self.arrived & ~self.cut.rows

    @cached_property
    def promised(self) -> np.ndarray:
        """Mask of the requests that were due, less the warm-up, bool[rows]: whom an SLO is about."""
        return self.due if self.cut is None else self.due & ~self.cut.rows

    @cached_property
    def promise(self) -> slo.Promise:
        """The latency targets of each request."""
        return slo.Promise(self.slo, self.class_slo)

    def summary(self) -> dict[str, Any]:
        """Every figure of the report, as plain data in a fixed order; None where there is none. See docs/metrics.md."""
        return summary.summarise(self) if self.told is None else deepcopy(self.told)

    def without_requests(self) -> Result:
        """The same with its figures alone, made now: it takes no memory for requests, and can't show them."""
        return replace(self, told=self.summary(), table=NoRequests())

    @cached_property
    def plot(self) -> Any:
        """What can be drawn of this run: `result.plot.queue()`, `.latency(metric="e2e")` ..., each returns matplotlib axes."""
        return import_module("llmqsim.report.plots").Plots(self)  # report/ lies above; it is looked up when asked for

    def _repr_html_(self) -> str:
        """The run in short, for a notebook."""
        return import_module("llmqsim.report.notebook").of_result(self)

    def to_frame(self) -> pd.DataFrame:
        """One row a request: times in seconds, NaN for what never happened, outcome and reason as words.

        Columns: docs/metrics.md, "The table of requests".
        """
        import pandas as pd

        frame = pd.DataFrame({name: values for name, values in self._columns()})
        frame.index.name = "request"
        return frame

    def _columns(self):
        table = self.table
        for column in COLUMNS:
            values = getattr(table, column.name)
            if column.unit == "ns":
                yield column.name.removesuffix("_ns") + "_s", np.where(values == UNSET, np.nan, values / NS_PER_S)
            elif column.name == "class_id":
                yield "class", np.array(table.classes, dtype=object)[values]
            elif column.name == "tenant_id":
                yield "tenant", np.array(table.tenants, dtype=object)[values]
            elif column.name in ("outcome", "reason"):
                codes = Outcome if column.name == "outcome" else Reason
                yield column.name, np.array([code.name.lower() for code in codes], dtype=object)[values]
            else:
                yield column.name, values.copy()
        if table.handoffs is not None:
            yield from self._handoff_columns(table.handoffs)
        done = latency.completed(table)
        for metric in ("ttft", "tpot", "ntpot", "e2e"):
            has = done & (table.generated_tokens >= 2) if metric == "tpot" else done
            values = np.full(len(table), np.nan)
            values[has] = latency.per_request_ns(table, metric, has) / NS_PER_S
            yield f"{metric}_s", values

    def _handoff_columns(self, marks: HandoffTable):
        for column in HANDOFF_COLUMNS:
            values = getattr(marks, column.name)
            if column.unit == "ns":
                yield column.name.removesuffix("_ns") + "_s", np.where(values == UNSET, np.nan, values / NS_PER_S)
            elif column.name == "handoff":
                yield column.name, np.array([code.name.lower() for code in Handoff], dtype=object)[values]
            else:
                yield column.name, values.copy()

    def groups(self, by: str) -> dict[str, np.ndarray]:
        """Masks of the measured requests by "class", "tenant" or "replica", bool[rows] each.

        Raises ValueError for another key.
        """
        return {name: self.measured & part for name, part in self._parts(by).items()}

    def _parts(self, by: str) -> dict[str, np.ndarray]:
        if by == "class":
            keys, names = self.table.class_id, dict(enumerate(self.table.classes))
        elif by == "tenant":
            keys, names = self.table.tenant_id, dict(enumerate(self.table.tenants))
        elif by == "replica":
            keys, names = self.table.replica, {i: str(i) for i in range(len(self.usage))}
        else:
            raise ValueError(f"by: unknown grouping (got '{by}'); known: class, tenant, replica")
        return {name: keys == key for key, name in names.items()}

    def _described(self, metric: str, by: str) -> pd.DataFrame:
        import pandas as pd

        rows = latency.by_group(self.table, metric, self.groups(by))
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index.name, frame.columns.name = by, f"{metric}_s"
        return frame

    def ttft(self, by: str = "class") -> pd.DataFrame:
        """Time to first token, seconds: mean, p50 ... n for each class, tenant or replica."""
        return self._described("ttft", by)

    def tpot(self, by: str = "class") -> pd.DataFrame:
        """Time per output token after the first, seconds: mean, p50 ... n for each class, tenant or replica."""
        return self._described("tpot", by)

    def e2e(self, by: str = "class") -> pd.DataFrame:
        """Arrival to last token, seconds: mean, p50 ... n for each class, tenant or replica."""
        return self._described("e2e", by)

    def attainment(self, by: str = "class") -> pd.DataFrame:
        """Arrivals, those that met their SLO, and the share that did (docs/metrics.md; NaN without one), for each part."""
        import pandas as pd

        rows = {}
        for name, part in self._parts(by).items():
            seen = slo.stand_all(self, self.promised & part)
            arrived = int((self.measured & part).sum())
            rows[name] = {"arrived": arrived, "met": int(seen.met.sum()), "attainment": seen.share}
        frame = pd.DataFrame.from_dict(rows, orient="index").astype({"attainment": float})
        frame.index.name = by
        return frame
