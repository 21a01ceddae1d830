"""The reference engine: one replica as a SimPy process that forms, runs and commits one step after the other.

This is the specification. It is written to be read; it runs any policy; nothing in it is fast. Read `run` first, then
`draft.py` (the verbs that a batching policy uses), then `_commit`.

`in_flight` is how many steps may be formed and not yet committed. With 1, a step is formed when the one before it
ends. With 2 (vLLM's asynchronous scheduling) it is formed when the one before it *starts*: a request that arrives
during step n joins n + 2, blocks freed by n serve n + 2, and an end that nobody could foresee wastes one row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from llmqsim import clock
from llmqsim.engine import rules, swap
from llmqsim.engine.book import Book
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.draft import StepDraft, View
from llmqsim.engine.handoff import Handoff
from llmqsim.engine.incoming import Incoming, arriving
from llmqsim.engine.order import Order
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.price import duration_ns
from llmqsim.engine.queue import WaitingQueue
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.errors import InvariantError
from llmqsim.kv.transfer import HostPool
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.requests import RequestTable
from llmqsim.units import to_ns


class ReferenceReplica:
    """One replica: `submit` gives it a request, `on_finish(row)` is called at the end of the step that ends one.

    `abort` takes a request back.
    """

    one_token_at_a_time = False
    """must a request's token be known before its next one is computed? engine/pipeline.py"""
    waits_for_token = False
    """must a preempted request's token be known before it enters again?"""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        table: RequestTable,
        servers: Deployment,
        gaps: GapHistogram,
        step_log: list | None = None,
    ):
        self.env = env
        self.index = index
        self.options = servers.options
        self.batching = servers.batching
        self.preemption = servers.preemption
        self.order = Order(self, servers.ordering)
        self.queue = WaitingQueue(self.order)
        self.pool = servers.pool(table)
        self.host_pool = HostPool(servers.swap_blocks)
        self.watermark_blocks = servers.watermark_blocks
        self.longest_tokens = servers.options.max_model_len or rules.NO_LIMIT
        self.running: list[Sequence] = []
        self.swapped: list[Sequence] = []
        self.incoming = Incoming(self)
        self.on_load: Callable[[Sequence], None] = lambda sequence: None
        """called when the KV of a request may begin to come; cluster/handoff.py"""
        self.on_finish: Callable[[int], None] = lambda row: None
        self._ended: list[Sequence] = []
        self._left = 0
        self._state = servers.batching.start()
        self._book = Book(index, table, servers.cost.params, to_ns(servers.host.request_after_s), step_log)
        self.table = table
        self._output_tokens = table.output_tokens.tolist()
        self._cost = servers.cost
        self._cold_steps = servers.cold_steps
        self._cold_step_ns = to_ns(servers.host.cold_step_s)
        self.host_step_ns = to_ns(servers.host.per_step_s)
        self._link = servers.link
        self._gaps = gaps
        self._steps: deque[StepPlan] = deque()
        self._wake: clock.Wake | None = None
        self._retry_ns: int | None = None
        env.process(self.run())

    def __repr__(self) -> str:
        return f"replica {self.index} at {self.env.now} ns"

    # What the cluster sees.

    @property
    def usage(self) -> ReplicaUsage:
        """What it did so far."""
        return self._book.usage

    @property
    def waiting(self) -> int:
        """Requests that wait here: new and preempted ones, those in the host's memory, those whose KV is to come."""
        return len(self.queue) + len(self.swapped) + len(self.incoming)

    def submit(self, row: int, handoff: Handoff | None = None) -> Sequence:
        """A request arrives. It can enter the next step that is formed. handoff : its KV comes from elsewhere."""
        self.settle()
        self.usage.requests += 1
        sequence = self._sequence(row) if handoff is None else arriving(self.table, row, handoff)
        self.queue.join(sequence, self.env.now)
        self.usage.waiting_peak = max(self.usage.waiting_peak, self.waiting)
        self.rouse()
        return sequence

    def rouse(self) -> None:
        """Something has changed: if nothing is under way, try to form a step at this instant."""
        if self._wake is not None:
            self._wake.fire(clock.FORM + self.index)

    def report(self) -> tuple[int, int, int]:
        """What the router hears of it: requests waiting, requests running, KV blocks held."""
        return len(self.queue) + len(self.swapped), len(self.running), self.pool.held_blocks

    def abort(self, row: int) -> None:
        """The client has given up: the request leaves at once with its blocks; its rows under way are wasted.

        Raises InvariantError when it is not here.
        """
        self.settle()
        sequence = next((s for s in self._present() if s.row == row), None)
        if sequence is None:
            raise InvariantError(f"{self}: request {row} is not here, so it can't be aborted")
        if sequence.stage is Stage.WAITING:
            self.queue.abandon(sequence, self.env.now)
        computed = max(sequence.high_water_tokens, sequence.computed_tokens)
        self.usage.aborted_tokens += computed - sequence.cached_tokens
        self._leave(sequence, Stage.ABORTED)
        if not self.running:
            self._end_batch()

    def close(self) -> None:
        """The run is over: write the marks of requests that are still here."""
        self.settle()
        if self._steps:
            self.usage.cut_ns = self.env.now - self._steps[0].start_ns
        waiting = self.queue.close(self.env.now)
        for sequence in self.swapped:
            self.queue.settle(sequence, self.env.now)
        for sequence in [*self.running, *self.swapped, *self.incoming, *waiting]:
            self._book.marks(sequence)

    # The three phases.

    def run(self):
        """SimPy process: form as far ahead as in_flight allows, wait for the oldest step to end, commit it; repeat."""
        while True:
            self._form_ahead()
            if not self._steps:
                yield from self._idle()
                continue
            step = self._steps[0]
            yield clock.At(self.env, step.end_ns, clock.COMMIT)
            self._commit(step)
            self._start_next()
            yield clock.At(self.env, self.env.now, clock.FORM + self.index)

    def _start_next(self) -> None:
        """The step that was formed ahead begins when the one before it ends."""
        if self._steps:
            self._start(self._steps[0])

    def _start(self, step: StepPlan) -> None:
        step.start(self.env.now)
        self.incoming.begin(step)

    def _idle(self):
        """Wait for a request, or for the time at which the batching policy wants to be asked again."""
        self._wake = clock.Wake(self.env)
        self._ask_again(self._wake)
        yield self._wake
        self._wake = None

    def _form_ahead(self) -> None:
        while len(self._steps) < self.options.in_flight:
            step = self._form()
            if step is None:
                break
            if not self._steps:
                self._start(step)
            self._steps.append(step)
        self._check_progress()

    def _check_progress(self) -> None:
        """Requests are here, nothing is under way, and nobody has said when to ask again: that would be for ever."""
        if not self._steps and self._retry_ns is None and self._present() and not self._expects():
            raise InvariantError(
                f"{self}: {len(self.running)} running, {len(self.swapped)} swapped, {len(self.queue)} waiting, "
                f"{self.pool.free_blocks} blocks free, and no step can be formed; first: {self._present()[0]}"
            )

    def _present(self) -> list[Sequence]:
        return [*self.running, *self.swapped, *self.incoming, *self.queue]

    def _expects(self) -> bool:
        """Will something from outside change what can be formed?"""
        return self.incoming.loading

    def _ask_again(self, wake: clock.Wake) -> None:
        """A policy that lets nobody enter for now has said when to ask it again."""
        if self._retry_ns is not None:
            order = clock.FORM + self.index
            later = clock.At(self.env, self._retry_ns, order)
            later.callbacks.append(lambda _: wake.fire(order))

    def _form(self) -> StepPlan | None:
        """Decide the next step's batch; None when nobody can have a token."""
        self.settle()
        self.queue.look(self.env.now)
        self.order.look()
        draft = self._draft()
        while not draft.plan.rows and (draft.loads or draft.preempted and not self._steps):
            draft = self._draft()  # who asked for memory gave way himself; the others can go on with it
        self.queue.blocked(rules.WAIT_KV if draft.preempted else draft.blocked_by)
        usage, plan = self.usage, draft.plan
        plan.waiting, plan.kv_blocks = self.waiting, self.pool.held_blocks
        running = len(plan.rows if draft.swaps_ahead else self.running)
        usage.running_peak = max(usage.running_peak, running)
        usage.waiting_peak = max(usage.waiting_peak, plan.waiting)
        usage.kv_blocks_peak = max(usage.kv_blocks_peak, plan.kv_blocks)
        if not plan.rows:
            self.incoming.begin()
            return None
        self.incoming.carried_by(plan)
        plan.running = running + len(self._ended)
        plan.duration_ns = self._duration_ns(plan)
        self.order.ran(plan)
        return plan

    def _duration_ns(self, plan: StepPlan) -> int:
        """How long the step takes; a server that has just started takes longer over its first mixed steps."""
        options = self.options
        duration = duration_ns(plan, self._cost, self._link, options.block_size, self.pool.repeated_blocks)
        if plan.chunks and self._cold_steps:
            self._cold_steps -= 1
            duration += self._cold_step_ns
        return max(1, duration - plan.saved_ns)

    def _draft(self) -> StepDraft:
        draft = StepDraft(self)
        now, running, swapped = self.env.now, tuple(self.running), tuple(self.swapped)
        view = View(now, running, tuple(self._ended), swapped, self._state, self._left, self, draft)
        self.batching.form(view, draft)
        if not draft.plan.rows:
            draft.bring_in()
        self._retry_ns = draft.retry_ns
        return draft

    def _commit(self, step: StepPlan) -> None:
        """A step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
        self.settle()
        self._steps.popleft()
        now = self.env.now
        gaps: dict[tuple[int, int], int] = {}
        for sequence, _, samples in step.rows.values():
            sequence.awaited_tokens -= samples
            if not samples or sequence.stage is Stage.ABORTED:
                continue
            if sequence.stage is Stage.FINISHED:
                self.usage.wasted_rows += 1
                continue
            if sequence.generated_tokens:
                gap = now - sequence.last_token_ns
                key = (sequence.class_id, gap)
                gaps[key] = gaps.get(key, 0) + 1
                sequence.max_itl_ns = max(sequence.max_itl_ns, gap)
            else:
                sequence.first_token_ns = now
            sequence.last_token_ns = now
            sequence.generated_tokens += 1
            if sequence.generated_tokens == self._output_tokens[sequence.row]:
                self._finish(sequence)
        if self._ended and not self.running:
            self._end_batch()
        for (class_id, gap), weight in gaps.items():
            self._gaps.add(class_id, gap, weight)
        self._book.step(step)

    # Verbs behind the verbs.

    def enter(self, sequence: Sequence) -> None:
        """From the waiting queue into the running list."""
        self.queue.leave(sequence, self.env.now, entered=True)
        sequence.entered_with = sequence.known_tokens
        if sequence.first_scheduled_ns < 0:
            sequence.first_scheduled_ns = self.env.now
        sequence.stage = Stage.RUNNING
        self.running.append(sequence)

    def victim(self) -> Sequence:
        """Who gives way when memory is short: the last in the order where that reaches into the running ones."""
        if self.order.policy.preempts:
            return max(self.running, key=self.order.rank)
        return self.preemption.victim(self.running)

    def preempt(self, victim: Sequence, last: bool) -> int:
        """Take a victim's blocks: swapped to the host if the policy says so and the host has room, else to be computed
        again. It keeps its tokens. Returns the blocks to copy.
        """
        self.running.remove(victim)
        victim.preemptions += 1
        self.usage.preemptions += 1
        if self.preemption.swaps and self.preemption.to_host(victim) and (blocks := swap.out(self, victim)) is not None:
            return blocks
        self.pool.release(victim)
        victim.high_water_tokens = max(victim.high_water_tokens, victim.computed_tokens)
        victim.computed_tokens = victim.hit_tokens = 0
        self.queue.rejoin(victim, self.env.now, last)
        return 0

    def _finish(self, sequence: Sequence) -> None:
        if sequence.stage is Stage.WAITING:  # preempted after its last token went under way
            self.queue.leave(sequence, self.env.now)
        self._leave(sequence, Stage.FINISHED)
        self.on_finish(sequence.row)

    def _sequence(self, row: int) -> Sequence:
        return Sequence(self.table, row)

    def _leave(self, sequence: Sequence, stage: Stage) -> None:
        """It does not wait any more; take it from where else it is, and its blocks unless a batch keeps them."""
        ran = sequence.stage is Stage.RUNNING
        if ran:
            self.running.remove(sequence)
        elif sequence.stage is Stage.SWAPPED:
            self.swapped.remove(sequence)
            self.host_pool.release(sequence.swapped_blocks)
            self.queue.settle(sequence, self.env.now)
        on_its_way = sequence.stage is Stage.LOADING
        if sequence.stage is Stage.LOADED:
            self.incoming.remove(sequence)
        sequence.stage = stage
        self._left += 1
        self._book.marks(sequence)
        if ran and self.batching.keeps_slots:
            self._ended.append(sequence)
        elif not on_its_way:  # else its blocks are written to; engine/incoming.py
            self.pool.release(sequence)

    def _end_batch(self) -> None:
        """All members of a static batch have ended: their slots and blocks are free."""
        for sequence in self._ended:
            self.pool.release(sequence)
        self._ended.clear()

    def settle(self) -> None:
        """Bring the integrals up to date, before anything changes."""
        self._book.tally(self.env.now, len(self.running), self.waiting, self.pool.held_blocks, bool(self._steps))
