"""A replica that computes prompts for others: it samples one token of each, then lends the blocks until they are read.

Everything else is what every replica does; vLLM sends such requests with max_tokens 1.
"""

from __future__ import annotations

from collections.abc import Callable

from llmqsim.engine.handoff import FROM_DECODE, FROM_PREFILL, HandoffTerms
from llmqsim.engine.pipeline import PipelinedReplica
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.engine.sequence import Sequence, Stage


class Prefilling:
    """What sets a prefill replica apart. Mixed in before a replica.

    on_prefilled(sequence) : a prompt is computed and its blocks are lent, until `give_back`. A request that ends with
    its first token is finished here, like any other. on_chunk(sequence, tokens, start_ns) : a step that began at
    start_ns has computed a prompt up to `tokens`.
    """

    waits_for_token = True

    def __init__(self, env, index, table, servers, gaps, step_log, terms: HandoffTerms):
        super().__init__(env, index, table, servers, gaps, step_log)
        self.on_prefilled: Callable[[Sequence], None] = lambda sequence: None
        self.on_chunk: Callable[[Sequence, int, int], None] = lambda sequence, tokens, start_ns: None
        self._terms = terms
        self._lent: dict[int, Sequence] = {}
        self._answer_tokens = self._output_tokens
        self._output_tokens = [1] * len(table)
        self._ends: dict[int, dict[int, int]] = {}

    def give_back(self, row: int, wasted: bool = False) -> None:
        """The blocks of a computed prompt have been read, or will not be. wasted : its client has given up."""
        self.settle()
        sequence = self._lent.pop(row)
        if wasted:
            self.usage.aborted_tokens += sequence.prompt_tokens - sequence.cached_tokens
        self.pool.release(sequence)
        self.rouse()

    def _sequence(self, row: int) -> Sequence:
        sequence = Sequence(self.table, row)
        sequence.max_tokens = 1
        return sequence

    def _expects(self) -> bool:
        return bool(self._lent) or super()._expects()

    def _form(self) -> StepPlan | None:
        """Note how far each prompt will have come when this step ends; a later one may be formed before."""
        plan = super()._form()
        if plan is not None:
            self._ends[id(plan)] = {row: sequence.computed_tokens for row, (sequence, *_) in plan.rows.items()}
        return plan

    def _commit(self, step: StepPlan) -> None:
        ends = self._ends.pop(id(step))
        for row, (sequence, tokens, samples) in step.rows.items():
            if samples and sequence.stage is Stage.WAITING:  # its KV went while its token was under way: once more
                sequence.known_tokens -= 1
                sequence.awaited_tokens -= 1
                step.rows[row] = sequence, tokens, False
        super()._commit(step)
        for row, (sequence, *_) in step.rows.items():
            if sequence.stage is Stage.RUNNING or sequence.stage is Stage.LENT:
                self.on_chunk(sequence, ends[row], step.start_ns)
        for sequence, *_ in step.rows.values():
            if sequence.stage is Stage.LENT:
                self.on_prefilled(sequence)

    def _finish(self, sequence: Sequence) -> None:
        if self._terms.first_token != FROM_DECODE and self._answer_tokens[sequence.row] == 1:
            super()._finish(sequence)
            return
        if self._terms.first_token != FROM_PREFILL:
            sequence.first_token_ns, sequence.generated_tokens = -1, 0
        else:
            sequence.first_after_ns = self._book.after_ns
        self.running.remove(sequence)
        sequence.stage = Stage.LENT
        self._left += 1
        self._book.marks(sequence)
        self._lent[sequence.row] = sequence


class PrefillReplica(Prefilling, ReferenceReplica):
    """The reference replica as a prefill replica."""


class PipelinedPrefillReplica(Prefilling, PipelinedReplica):
    """The same with its layers over pipeline stages."""
