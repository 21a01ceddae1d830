"""Orderings by the service that a request or its tenant has had: multi-level feedback, fair shares, guarded rankings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmqsim.policies import rules
from llmqsim.policies.order_view import OrderView
from llmqsim.policies.protocol import Ordering, RequestView
from llmqsim.registry import bound, param, register


@dataclass
class _Guard:
    """Ranks of vllm-ltr on one replica."""

    last_ran: dict[int, int] = field(default_factory=dict)
    """row -> step in which it last ran, or joined"""
    promoted: dict[int, int] = field(default_factory=dict)
    """row -> steps that it may still run ahead of all"""
    look_at: int = 0
    """nobody can starve before this step"""


@register("ordering", "learned_rank")
@dataclass(frozen=True)
class LearnedRank(Ordering):
    """vllm-ltr: by predicted length at arrival, all in one list, with a guard against starving.

    Who has not run for `starvation` steps goes ahead of all until it has run `period` steps. The published benchmarks
    use 200 and 10 (Fu et al. 2024; docs/engine_semantics.md). preempt : false leaves running requests alone.

    Once more requests wait than run, the guard gives everybody `period` steps in turn, and each turn moves somebody's KV
    out and in. Published with swap (preemption: swap_newest). Where KV is recomputed a turn of 10 steps costs a whole
    prefill, that work keeps the queue long, and it does not recover: preempt: false or a longer period is then better.
    """

    starvation: int = param(200, least=1)
    period: int = param(10, least=1)
    preempt: bool = True

    needs = ("predicted_tokens",)
    reviews = True
    preempted_go_first = False

    @property
    def preempts(self) -> bool:
        """As the parameter says."""
        return self.preempt

    def start(self) -> _Guard:
        """Nobody has been seen."""
        return _Guard()

    def joined(self, request: RequestView, view: OrderView) -> None:
        """It has not run since now; a preempted one since it last did."""
        view.state.last_ran.setdefault(request.row, view.steps)

    def review(self, view: OrderView) -> bool:
        """Promote who has starved. Each look finds out before which step nobody else can."""
        guard: _Guard = view.state
        if view.steps < guard.look_at:
            return False
        here = [r.row for r in (*view.running, *view.swapped, *view.waiting()) if r.row not in guard.promoted]
        starved = [row for row in here if view.steps - guard.last_ran[row] >= self.starvation]
        guard.promoted.update(dict.fromkeys(starved, self.period))
        others = [guard.last_ran[row] for row in here if row not in guard.promoted]
        guard.look_at = min(others, default=view.steps) + self.starvation
        return bool(starved)

    def ran(self, view: OrderView, rows, duration_ns: int) -> None:
        """Note the step; a promoted one has used up one of its runs."""
        guard: _Guard = view.state
        for request, _, _ in rows:
            guard.last_ran[request.row] = view.steps
            if request.row in guard.promoted:
                guard.promoted[request.row] -= 1
                if guard.promoted[request.row] == 0:
                    del guard.promoted[request.row]

    def key_at(self, request: RequestView, view: OrderView) -> tuple[bool, int, int]:
        """(not promoted, rank, arrival)."""
        return request.row not in view.state.promoted, request.predicted_tokens, request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[bool, int, int]:
        """Behind all of its rank."""
        return True, request.predicted_tokens, now_ns


@dataclass
class _Levels:
    """Queues of skip-join MLFQ on one replica."""

    level: dict[int, int] = field(default_factory=dict)
    attained_ns: dict[int, int] = field(default_factory=dict)
    """row -> time that it was in steps since it came to its level"""
    place: dict[int, int] = field(default_factory=dict)
    """row -> its place in its level, smaller first"""
    stepped_ns: dict[int, int] = field(default_factory=dict)
    """row -> when it was last in a step, or joined"""
    tail: int = 0
    head: int = 0
    look_ns: int = 0
    """nobody can starve before"""


@register("ordering", "mlfq")
@dataclass(frozen=True)
class Mlfq(Ordering):
    """FastServe's skip-join multi-level feedback queue: no lengths are known, who has had much service waits.

    Level p has a quantum of quantum_s x 2^p. A new request joins the first level whose quantum covers the prefill of its
    prompt alone. The best level runs first; a request goes to the end of the next level once its time in steps exceeds
    the quantum (the last level has none), and to the front of level 0 when it was in no step for `starvation_s`.
    Preempts at every step. Source: FastServe (Wu et al. 2023; docs/engine_semantics.md).

    proactive : false: whoever gives way loses its memory and goes where engine.preemption says; where that is
    recomputing, so much is computed again under load that the service collapses. true, as published: who gives its slot
    away keeps its KV on the GPU while there is room; while a step runs, the last of the order are copied to the host until
    as many blocks are free as a step has slots, or else the first come back, as long as so many stay free. New requests
    wait while less than a tenth of the host's memory is free. Needs engine.preemption swap_newest (presets up to vllm-0.6, with engine.batching:
    continuous); only the reference engine has it.
    """

    quantum_s: float = param(0.010, above=0, most=1e6)
    levels: int = param(10, least=1, most=60)
    starvation_s: float = param(3.0, above=0, most=1e9)
    proactive: bool = False
    costs: Any = bound()

    reviews = True
    preempts = True
    preempted_go_first = False

    def start(self) -> _Levels:
        """Empty."""
        return _Levels()

    def joined(self, request: RequestView, view: OrderView) -> None:
        """Skip the levels that its prefill would run through at once."""
        its: _Levels = view.state
        if request.row in its.level:
            return
        prefill_ns = self.costs.prefill_ns(request.prompt_tokens)
        its.level[request.row] = rules.first_level(prefill_ns, self.first_quantum_ns, self.levels)
        its.attained_ns[request.row] = 0
        its.stepped_ns[request.row] = view.now_ns
        self._to_tail(its, request.row)

    def review(self, view: OrderView) -> bool:
        """Who has starved goes to the front of level 0."""
        its: _Levels = view.state
        if view.now_ns < its.look_ns:
            return False
        limit_ns = self.starvation_ns
        here = [r.row for r in (*view.running, *view.swapped, *view.waiting())]
        starved = [row for row in here if view.now_ns - its.stepped_ns[row] >= limit_ns]
        for row in starved:
            its.head -= 1
            its.level[row], its.attained_ns[row], its.place[row] = 0, 0, its.head
            its.stepped_ns[row] = view.now_ns
        its.look_ns = min((its.stepped_ns[row] for row in here), default=view.now_ns) + limit_ns
        return bool(starved)

    def ran(self, view: OrderView, rows, duration_ns: int) -> None:
        """Count the step; whoever has used up its quantum goes down."""
        its: _Levels = view.state
        for request, _, _ in rows:
            row = request.row
            its.stepped_ns[row] = view.now_ns
            its.attained_ns[row] += duration_ns
            quantum_ns = rules.quantum_ns(self.first_quantum_ns, its.level[row])
            if its.level[row] < self.levels - 1 and its.attained_ns[row] > quantum_ns:
                its.level[row] += 1
                its.attained_ns[row] = 0
                self._to_tail(its, row)

    def key_at(self, request: RequestView, view: OrderView) -> tuple[int, int]:
        """(level, place in it)."""
        return view.state.level[request.row], view.state.place[request.row]

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind all levels."""
        return self.levels, now_ns

    @property
    def swaps_ahead(self) -> bool:
        """As the parameter says."""
        return self.proactive

    @property
    def first_quantum_ns(self) -> int:
        """Of level 0."""
        return round(self.quantum_s * 1e9)

    @property
    def starvation_ns(self) -> int:
        """Who was in no step for so long has starved."""
        return round(self.starvation_s * 1e9)

    @staticmethod
    def _to_tail(its: _Levels, row: int) -> None:
        its.tail += 1
        its.place[row] = its.tail


@dataclass
class _Counters:
    """Service of tenants on one replica."""

    served: dict[int, int] = field(default_factory=dict)
    """tenant -> weighted tokens"""
    queued: dict[int, int] = field(default_factory=dict)
    """tenant -> its requests in the queue"""
    changed: bool = False


@register("ordering", "vtc")
@dataclass(frozen=True)
class Vtc(Ordering):
    """Virtual token counter: the backlogged tenant that was served least goes first; its own requests as they came.

    A tenant's counter grows by prompt_weight a prompt token when a request is admitted, and by output_weight a token that
    it makes. A tenant that had nobody waiting is lifted to the least counter of those that have. Preempted requests go
    first and are not charged for what they compute again. Source: Sheng et al. 2024 (docs/engine_semantics.md).
    """

    prompt_weight: int = param(1, least=0)
    output_weight: int = param(2, least=0)

    reviews = True

    def start(self) -> _Counters:
        """Nobody was served."""
        return _Counters()

    def joined(self, request: RequestView, view: OrderView) -> None:
        """The lift: who was away has saved up nothing."""
        its, tenant = view.state, request.tenant_id
        own = its.served.get(tenant, 0)
        if not its.queued.get(tenant):
            least = min((its.served.get(other, 0) for other, n in its.queued.items() if n), default=own)
            its.served[tenant] = max(own, least)
        its.queued[tenant] = its.queued.get(tenant, 0) + 1

    def left(self, request: RequestView, view: OrderView, entered: bool) -> bool:
        """Its prompt is charged at once, so that the next in line may be of another tenant."""
        its, tenant = view.state, request.tenant_id
        its.queued[tenant] -= 1
        if entered and not request.preemptions:
            its.served[tenant] += self.prompt_weight * request.prompt_tokens
            return True
        return False

    def review(self, view: OrderView) -> bool:
        """Tokens were made since the last look."""
        changed, view.state.changed = view.state.changed, False
        return changed

    def ran(self, view: OrderView, rows, duration_ns: int) -> None:
        """Charge the tokens that the step makes."""
        its: _Counters = view.state
        for request, _, samples in rows:
            if samples:
                its.served[request.tenant_id] += self.output_weight
                its.changed = True

    def key_at(self, request: RequestView, view: OrderView) -> tuple[int, int, int]:
        """(not late, counter of its tenant, arrival)."""
        return 0, view.state.served[request.tenant_id], request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int, int]:
        """Behind everybody."""
        return 1, 0, now_ns
