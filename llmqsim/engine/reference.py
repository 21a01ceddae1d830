"""The reference engine: one replica as a SimPy process that forms, runs and commits one step after the other.

This is the specification. It is written to be read; it runs any policy; nothing in it is fast. Read `run` first, then
`StepDraft` (the verbs that a batching policy uses), then `_commit`.

`in_flight` is how many steps may be formed and not yet committed. With 1, a step is formed when the one before it
ends. With 2 (vLLM's asynchronous scheduling) it is formed when the one before it *starts*: a request that arrives
during step n joins n + 2, blocks freed by n serve n + 2, and an end that nobody could foresee wastes one row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import simpy

from llmqsim import clock
from llmqsim.cost import kernels
from llmqsim.cost.lower import StepCost
from llmqsim.engine import rules
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.queue import WaitingQueue
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.errors import InvariantError
from llmqsim.kv.pool import KvPool
from llmqsim.options import EngineOptions
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.requests import INDEX, Outcome, RequestTable


class StepDraft:
    """The step being formed: the verbs of policies.protocol.StepDraft, and the accounting behind them."""

    def __init__(self, replica: ReferenceReplica):
        self._replica = replica
        self._budget = replica.options.max_num_batched_tokens
        self.plan = StepPlan()
        self.preempted = False
        self.exhausted = False
        self.blocked_by = rules.WAIT_STEP

    def grow(self, request: Sequence) -> bool:
        """Give a running request its next tokens; preempt while the pool is short of their blocks."""
        if request.stage is not Stage.RUNNING:
            return False
        replica = self._replica
        want = rules.want_tokens(
            request.known_tokens, request.computed_tokens, request.prompt_tokens, request.max_tokens, self._budget
        )
        if want == 0:
            return False
        need = rules.new_blocks(request.computed_tokens, want, request.kv_blocks, replica.options.block_size)
        while not replica.pool.take(need):
            victim = replica.preemption.victim(replica.running)
            self._budget += self.plan.take_back(victim)
            replica.preempt(victim)
            self.preempted = True
            if victim is request:
                self.exhausted = True
                return False
        self._grant(request, want, need)
        return True

    def admit(self, request: Sequence) -> bool:
        """Let a waiting request enter with its first tokens, or note what keeps it out."""
        replica = self._replica
        options = replica.options
        refused_by = rules.admission(
            len(replica.running),
            options.max_num_seqs,
            self._budget,
            request.known_tokens,
            options.enable_chunked_prefill,
            options.scheduler_reserve_full_isl,
            options.block_size,
            replica.pool.free_blocks,
        )
        if refused_by != rules.ADMITTED:
            self.blocked_by = refused_by
            return False
        want = min(request.known_tokens, self._budget)
        need = rules.blocks_for(want, options.block_size)
        if not replica.pool.take(need):
            raise InvariantError(f"{replica}: admitted without room for its first chunk: {request}")
        replica.enter(request)
        self._grant(request, want, need)
        return True

    def _grant(self, request: Sequence, tokens: int, blocks: int) -> None:
        request.kv_blocks += blocks
        self._budget -= tokens
        self.exhausted = self._budget == 0
        self.plan.put(request, tokens, rules.is_decode(request.computed_tokens, tokens))


@dataclass(frozen=True)
class View:
    """What a batching policy sees of a replica: policies.protocol.ReplicaView."""

    running: tuple[Sequence, ...]
    queue: WaitingQueue

    def waiting(self) -> WaitingQueue:
        """The waiting queue, in the ordering policy's order."""
        return self.queue


class ReferenceReplica:
    """One replica: `submit` gives it a request, `on_finish(row)` is called at the end of the step that ends one."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        table: RequestTable,
        options: EngineOptions,
        cost: StepCost,
        blocks: int | None,
        policies: tuple,
        gaps: GapHistogram,
        after_ns: int,
        step_log: list | None = None,
    ):
        self.env = env
        self.index = index
        self.options = options
        self.batching, ordering, self.preemption = policies
        self.pool = KvPool(blocks)
        self.running: list[Sequence] = []
        self.usage = ReplicaUsage()
        self.on_finish: Callable[[int], None] = lambda row: None
        self._table = table
        self._output_tokens = table.output_tokens.tolist()
        self._queue = WaitingQueue(ordering)
        self._cost = cost
        self._gaps = gaps
        self._after_ns = after_ns
        self._steps: deque[StepPlan] = deque()
        self._usage_ns = 0
        self._wake: clock.Wake | None = None
        self._step_log = step_log
        env.process(self.run())

    def __repr__(self) -> str:
        return f"replica {self.index} at {self.env.now} ns"

    # What the cluster sees.

    def submit(self, row: int) -> None:
        """A request arrives. It can enter the next step that is formed."""
        self._tally()
        self.usage.requests += 1
        self._queue.join(Sequence(self._table, row), self.env.now)
        self.usage.waiting_peak = max(self.usage.waiting_peak, len(self._queue))
        if self._wake is not None:
            self._wake.fire(clock.FORM + self.index)

    def close(self) -> None:
        """The run is over: write the marks of requests that are still here."""
        self._tally()
        for sequence in [*self.running, *self._queue.close(self.env.now)]:
            self._write_marks(sequence)

    # The three phases.

    def run(self):
        """SimPy process: form as far ahead as in_flight allows, wait for the oldest step to end, commit it; repeat."""
        while True:
            self._form_ahead()
            if not self._steps:
                self._wake = clock.Wake(self.env)
                yield self._wake
                self._wake = None
                continue
            step = self._steps[0]
            yield clock.At(self.env, step.end_ns, clock.COMMIT)
            self._commit(step)
            if self._steps:
                self._steps[0].start(self.env.now)
            yield clock.At(self.env, self.env.now, clock.FORM + self.index)

    def _form_ahead(self) -> None:
        while len(self._steps) < self.options.in_flight:
            step = self._form()
            if step is None:
                break
            if not self._steps:
                step.start(self.env.now)
            self._steps.append(step)
        if not self._steps and (self.running or len(self._queue)):
            raise InvariantError(
                f"{self}: {len(self.running)} running, {len(self._queue)} waiting, {self.pool.free_blocks} blocks "
                f"free, and no step can be formed; first: {next(iter([*self.running, *self._queue]))}"
            )

    def _form(self) -> StepPlan | None:
        """Decide the next step's batch; None when nobody can have a token."""
        self._tally()
        self._queue.look(self.env.now)
        draft = StepDraft(self)
        self.batching.form(View(tuple(self.running), self._queue), draft)
        self._queue.blocked(rules.WAIT_KV if draft.preempted else draft.blocked_by)
        usage, plan = self.usage, draft.plan
        usage.running_peak = max(usage.running_peak, len(self.running))
        usage.kv_blocks_peak = max(usage.kv_blocks_peak, self.pool.held_blocks)
        if not plan.rows:
            return None
        plan.running = len(self.running)
        self._price(plan)
        return plan

    def _price(self, plan: StepPlan) -> None:
        """How long the step takes, and whether it leaves what the cost model was measured on."""
        costs, params = self._cost.costs, self._cost.params
        attention = 0.0
        for query_tokens, kv_tokens in plan.chunks.values():
            attention += kernels.prefill_attention_ns(costs, params, query_tokens, kv_tokens)
        plan.duration_ns = kernels.step_ns(
            costs,
            params,
            plan.decode_requests,
            plan.decode_kv_tokens,
            plan.prefill_tokens,
            len(plan.chunks),
            attention,
            plan.sampled_rows,
            plan.running,
        )

    def _commit(self, step: StepPlan) -> None:
        """A step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
        self._tally()
        self._steps.popleft()
        now = self.env.now
        gaps: dict[tuple[int, int], int] = {}
        for sequence, _, samples in step.rows.values():
            if not samples:
                continue
            if sequence.stage is Stage.FINISHED:
                self.usage.wasted_rows += 1
                continue
            if sequence.generated_tokens:
                gap = now - sequence.last_token_ns
                key = (sequence.class_id, gap)
                gaps[key] = gaps.get(key, 0) + 1
                if gap > sequence.max_itl_ns:
                    sequence.max_itl_ns = gap
            else:
                sequence.first_token_ns = now
            sequence.last_token_ns = now
            sequence.generated_tokens += 1
            if sequence.generated_tokens == self._output_tokens[sequence.row]:
                self._finish(sequence)
        for (class_id, gap), weight in gaps.items():
            self._gaps.add(class_id, gap, weight)
        self._log(step)

    # Verbs behind the verbs.

    def enter(self, sequence: Sequence) -> None:
        """From the waiting queue into the running list."""
        self._queue.leave(sequence, self.env.now)
        if sequence.first_scheduled_ns < 0:
            sequence.first_scheduled_ns = self.env.now
        sequence.stage = Stage.RUNNING
        self.running.append(sequence)

    def preempt(self, victim: Sequence) -> None:
        """Preemption by recompute: the victim loses all its blocks, keeps its tokens and waits again."""
        self.running.remove(victim)
        self.pool.release(victim.kv_blocks)
        victim.kv_blocks = 0
        victim.high_water_tokens = max(victim.high_water_tokens, victim.computed_tokens)
        victim.computed_tokens = 0
        victim.preemptions += 1
        self.usage.preemptions += 1
        self._queue.rejoin(victim, self.env.now)

    def _finish(self, sequence: Sequence) -> None:
        if sequence.stage is Stage.RUNNING:
            self.running.remove(sequence)
        else:  # preempted after its last token went under way
            self._queue.leave(sequence, self.env.now)
        sequence.stage = Stage.FINISHED
        self.pool.release(sequence.kv_blocks)
        sequence.kv_blocks = 0
        self._write_marks(sequence)
        self.on_finish(sequence.row)

    # Bookkeeping.

    def _tally(self) -> None:
        """Add the time since the last change to the integrals."""
        now, usage = self.env.now, self.usage
        elapsed = now - self._usage_ns
        if elapsed:
            usage.running_ns += elapsed * len(self.running)
            usage.waiting_ns += elapsed * len(self._queue)
            usage.kv_block_ns += elapsed * self.pool.held_blocks
            if self._steps:
                usage.busy_ns += elapsed
            self._usage_ns = now

    def _log(self, step: StepPlan) -> None:
        usage = self.usage
        tokens = step.decode_requests + step.prefill_tokens
        usage.steps += 1
        usage.tokens += tokens
        usage.recomputed_tokens += step.recomputed_tokens
        usage.padded_tokens += kernels.padded_tokens(self._cost.params, tokens) - tokens
        usage.end_ns = step.end_ns
        left = kernels.outside_box(
            self._cost.params,
            step.decode_requests,
            step.decode_kv_tokens,
            step.prefill_tokens,
            max((kv_tokens for _, kv_tokens in step.chunks.values()), default=0),
        )
        if left:
            for bit, axis in enumerate(kernels.AXES):
                if left >> bit & 1:
                    usage.outside[axis] = usage.outside.get(axis, 0) + 1
        if self._step_log is not None:
            self._step_log.append(
                (
                    self.index,
                    step.start_ns,
                    step.end_ns,
                    step.decode_requests,
                    step.prefill_tokens,
                    step.running,
                    len(self._queue),
                    self.pool.held_blocks,
                )
            )

    def _write_marks(self, sequence: Sequence) -> None:
        """Write what became of a request into its row. Client-side times include the streaming delay."""
        finished = sequence.stage is Stage.FINISHED
        after = self._after_ns
        step, slots, kv, budget = sequence.wait_ns
        marks = {
            "first_scheduled_ns": sequence.first_scheduled_ns,
            "first_token_ns": sequence.first_token_ns + after if sequence.first_token_ns >= 0 else -1,
            "finish_ns": sequence.last_token_ns + after if finished else -1,
            "generated_tokens": sequence.generated_tokens,
            "preemptions": sequence.preemptions,
            "max_itl_ns": sequence.max_itl_ns,
            "wait_step_ns": step,
            "wait_slots_ns": slots,
            "wait_kv_ns": kv,
            "wait_token_budget_ns": budget,
            "wait_preempted_ns": sequence.wait_preempted_ns,
            "outcome": Outcome.COMPLETED if finished else Outcome.UNFINISHED,
        }
        for name, value in marks.items():
            self._table.data[INDEX[name], sequence.row] = value
