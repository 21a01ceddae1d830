"""Book: what one replica writes down as it goes: usage integrals, the optional step log, the marks of requests."""

from __future__ import annotations

from llmqsim.cost import kernels
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.records import ReplicaUsage
from llmqsim.requests import INDEX, Outcome, RequestTable


class Book:
    """Nothing here decides anything. after_ns : from the engine to the client, added to client-side times."""

    def __init__(self, index: int, table: RequestTable, cost_params, after_ns: int, step_log: list | None):
        self.usage = ReplicaUsage()
        self._index = index
        self._table = table
        self._params = cost_params
        self.after_ns = after_ns
        self._step_log = step_log
        self._since_ns = 0

    def tally(self, now_ns: int, running: int, waiting: int, blocks: int, busy: bool) -> None:
        """Add the time since the last call to the integrals; the counts are those that held until now."""
        elapsed = now_ns - self._since_ns
        if elapsed:
            usage = self.usage
            usage.running_ns += elapsed * running
            usage.waiting_ns += elapsed * waiting
            usage.kv_block_ns += elapsed * blocks
            if busy:
                usage.busy_ns += elapsed
            self._since_ns = now_ns

    def step(self, step: StepPlan) -> None:
        """A step has ended."""
        usage = self.usage
        tokens = step.decode_requests + step.prefill_tokens + step.idle_rows
        in_batch = tokens + step.padding_tokens
        usage.steps += 1
        usage.tokens += tokens
        usage.wasted_rows += step.idle_rows
        usage.recomputed_tokens += step.recomputed_tokens
        usage.cached_tokens += step.cached_tokens
        usage.loaded_tokens += step.loaded_tokens
        padded = kernels.padded_tokens(self._params, in_batch, len(step.chunks))
        usage.padded_tokens += step.padding_tokens + padded - in_batch
        usage.end_ns = step.end_ns
        left = kernels.outside_box(
            self._params,
            step.decode_requests + step.idle_rows,
            step.decode_kv_tokens + step.idle_kv_tokens,
            step.prefill_tokens + step.padding_tokens,
            max((kv_tokens for _, kv_tokens in step.chunks.values()), default=0),
        )
        if left:
            for bit, axis in enumerate(kernels.AXES):
                if left >> bit & 1:
                    usage.outside[axis] = usage.outside.get(axis, 0) + 1
        if self._step_log is not None:
            counts = (step.decode_requests, step.prefill_tokens, step.running, step.waiting, step.kv_blocks)
            self._step_log.append((self._index, step.start_ns, step.end_ns, *counts))

    def marks(self, sequence: Sequence) -> None:
        """Write what became of a request into its row."""
        if sequence.told_elsewhere:
            return
        finished = sequence.stage is Stage.FINISHED
        outcome = {Stage.FINISHED: Outcome.COMPLETED, Stage.ABORTED: Outcome.TIMED_OUT}
        after = self.after_ns
        first_after = after if sequence.first_after_ns < 0 else sequence.first_after_ns
        step, slots, kv, budget = sequence.wait_ns
        marks = {
            "first_scheduled_ns": sequence.first_scheduled_ns,
            "first_token_ns": sequence.first_token_ns + first_after if sequence.first_token_ns >= 0 else -1,
            "finish_ns": sequence.last_token_ns + after if finished else -1,
            "generated_tokens": sequence.generated_tokens,
            "cached_tokens": sequence.cached_tokens,
            "preemptions": sequence.preemptions,
            "max_itl_ns": sequence.max_itl_ns,
            "wait_step_ns": step,
            "wait_slots_ns": slots,
            "wait_kv_ns": kv,
            "wait_token_budget_ns": budget,
            "wait_preempted_ns": sequence.wait_preempted_ns,
            "outcome": outcome.get(sequence.stage, Outcome.UNFINISHED),
        }
        for name, value in marks.items():
            self._table.data[INDEX[name], sequence.row] = value
