"""What a batching policy works with: the view of a replica, and the step being formed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmqsim.engine import ahead, rules, swap
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.queue import WaitingQueue
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.errors import InvariantError

if TYPE_CHECKING:
    from llmqsim.engine.reference import ReferenceReplica

NO_BUDGET = rules.NO_LIMIT
"""tokens of a step that nothing but slots and memory limits"""


class StepDraft:
    """The step being formed: the verbs of policies.protocol.StepDraft, and the accounting behind them."""

    def __init__(self, replica: ReferenceReplica):
        self._replica = replica
        self.budget = replica.options.max_num_batched_tokens if replica.batching.has_token_budget else NO_BUDGET
        self.plan = StepPlan(replica.longest_tokens)
        self.preempted = False
        self.exhausted = False
        self.swaps_ahead = replica.order.policy.swaps_ahead
        self._went_out = False
        self.loads = False
        """has anyone taken blocks for KV that is to come?"""
        self.blocked_by = rules.WAIT_STEP
        self.retry_ns: int | None = None

    def grow(self, request: Sequence, at_most: int | None = None, spare_blocks: int = 0) -> bool:
        """Give a running request its next tokens; preempt while the pool is short of their blocks."""
        replica = self._replica
        if request.stage is not Stage.RUNNING or (replica.one_token_at_a_time and request.awaited_tokens):
            return False
        if self.swaps_ahead and self._place() != rules.ADMITTED:
            return False
        want = rules.want_tokens(
            request.known_tokens,
            request.computed_tokens,
            request.prompt_tokens,
            request.max_tokens,
            self._limit(at_most),
        )
        if want == 0:
            return False
        need = rules.new_blocks(request.computed_tokens, want, request.kv_blocks, replica.options.block_size)
        while replica.pool.free_blocks < spare_blocks or not replica.pool.take(request, need):
            victim = replica.victim()
            if self.swaps_ahead and victim is request:
                return False  # it keeps what it has, and may be copied while others run
            self.preempt(victim)
            if victim is request:
                self.exhausted = True
                return False
        self._grant(request, want)
        return True

    def admit(
        self,
        request: Sequence,
        at_most: int | None = None,
        hold_tokens: int = 0,
        padding_tokens: int = 0,
        watermark: bool = True,
    ) -> bool:
        """Let a waiting request enter with its first tokens, or note what keeps it out."""
        replica = self._replica
        options, pool = replica.options, replica.pool
        refused_by = self._place()
        if refused_by != rules.ADMITTED:
            return self._refuse(refused_by)
        if replica.waits_for_token and request.awaited_tokens:  # preempted while its token was under way
            return self._refuse(rules.WAIT_STEP)
        if request.handoff is not None:
            return self._load(request, hold_tokens, watermark)
        hit_tokens, hit_free = pool.hit_tokens(request)
        missing = request.known_tokens - hit_tokens
        want = rules.first_tokens(missing, self.budget, self._limit(at_most), options.enable_chunked_prefill)
        if want == 0:
            return self._refuse(rules.WAIT_TOKEN_BUDGET)
        hold = max(hit_tokens + want, hold_tokens)
        must_fit = max(hold, request.known_tokens) if options.scheduler_reserve_full_isl else hold
        hit_blocks = hit_tokens // options.block_size
        above = replica.watermark_blocks if watermark and replica.running else 0
        if not rules.has_memory(must_fit, hit_blocks, hit_free, options.block_size, pool.free_blocks, above):
            return self._refuse(rules.WAIT_KV)
        replica.enter(request)
        request.padding_tokens = padding_tokens
        self._take_hits(request)
        if not pool.take(request, rules.blocks_for(hold, options.block_size) - hit_blocks):
            raise InvariantError(f"{replica}: admitted without room for what it holds: {request}")
        self._grant(request, want)
        return True

    def displace(self, request: Sequence) -> bool:
        """Preempt running requests that rank behind a waiting one, the last first, until it can enter.

        False, and nobody is touched, where that would not be enough. Who has made no token since it last entered stays,
        unless the ordering swaps ahead: then the first of the list has its token in every step.
        """
        replica = self._replica
        options = replica.options
        behind = [s for s in replica.order.behind(request, self.swaps_ahead) if s.row not in self.plan.rows]
        tokens = request.known_tokens if options.scheduler_reserve_full_isl else min(request.known_tokens, self.budget)
        need = rules.blocks_for(tokens, options.block_size) + replica.watermark_blocks
        taken = 0 if self.swaps_ahead else len(replica.running)
        slots, free = options.max_num_seqs - taken, replica.pool.free_blocks
        chosen: list[Sequence] = []
        while (slots < 1 or free < need) and len(chosen) < len(behind):
            victim = behind[len(chosen)]
            chosen.append(victim)
            slots, free = slots + 1, free + victim.kv_blocks
        if not chosen or slots < 1 or free < need or self.budget == 0:
            return False
        for victim in chosen:
            self._release(victim, last=False)
        return True

    def bring_in(self) -> None:
        """Let requests whose KV has arrived run on, in order, as slots and token budget allow."""
        replica = self._replica
        for request in replica.incoming.loaded:
            if rules.has_place(len(replica.running), replica.options.max_num_seqs, self.budget) != rules.ADMITTED:
                break
            replica.incoming.enter(request)
            self.grow(request)

    def _load(self, request: Sequence, hold_tokens: int, watermark: bool) -> bool:
        """Take the blocks of a prompt whose KV comes from elsewhere; it enters when that has arrived (engine/incoming.py).

        The blocks of all its known tokens are held, so that nobody who has arrived can want for memory.
        """
        replica = self._replica
        pool, size = replica.pool, replica.options.block_size
        hit_tokens, hit_free = pool.hit_tokens(request)
        hit_blocks = hit_tokens // size
        need = rules.blocks_for(max(hold_tokens, request.known_tokens), size)
        refused_by = replica.incoming.refused_by(request, need, (hit_blocks, hit_free), watermark)
        if refused_by != rules.ADMITTED:
            return self._refuse(refused_by)
        replica.incoming.take(request)
        self.plan.loaded_tokens += pool.take_hits(request)[1]
        if not pool.take(request, need - hit_blocks):
            raise InvariantError(f"{replica}: no room for KV that is to come: {request}")
        request.handoff.skip(hit_blocks)
        self.loads = True
        return True

    def preempt(self, victim: Sequence, last: bool = False) -> None:
        """Take a running request's blocks away. last: it waits at the end of the queue, its KV not kept cached."""
        self._release(victim, last)
        self.preempted = True

    def _release(self, victim: Sequence, last: bool) -> None:
        self.budget += self.plan.take_back(victim)
        self._replica.pool.forget(victim, victim.hit_tokens if last else victim.computed_tokens)
        self.plan.copied_blocks += self._replica.preempt(victim, last)
        self._went_out = True

    @property
    def is_full(self) -> bool:
        """Has the step no slot or no token left?"""
        return self._place() != rules.ADMITTED

    @property
    def holds_new(self) -> bool:
        """Is the host's memory too full for new requests to enter beside others?"""
        return ahead.holds_new(self._replica) and bool(self._replica.running or self._replica.swapped)

    def copy_ahead(self) -> None:
        """Choose the copies that go on while the step runs."""
        if self.plan.rows:
            ahead.copy(self._replica, self.plan, self._went_out)

    def _place(self) -> int:
        """Is there a slot and a token for one more?"""
        taken = len(self.plan.rows if self.swaps_ahead else self._replica.running)
        return rules.has_place(taken, self._replica.options.max_num_seqs, self.budget)

    def swap_in(self, request: Sequence) -> bool:
        """Bring a swapped request's blocks back, if a slot, its blocks and one more are free; `grow` it afterwards."""
        replica = self._replica
        if self._place() != rules.ADMITTED:
            return False
        blocks = swap.back(replica, request)
        self.plan.copied_blocks += blocks
        return blocks > 0

    def carry_on(self, saved: float) -> None:
        """The scheduler is not called for this step: it does without so large a share of the host's time a step."""
        self.plan.saved_ns = round(self._replica.host_step_ns * saved)

    @property
    def prefills(self) -> bool:
        """Does the step hold prompt tokens?"""
        return bool(self.plan.chunks)

    def idle(self, request: Sequence) -> None:
        """Compute a row for nobody: a static batch keeps the slot of a request that has ended."""
        self.plan.put_idle(request)

    def hold_back(self, reason: str, until_ns: int | None = None) -> None:
        """Say why the policy itself lets nobody enter ("slots", "kv", "token_budget"), and when to ask it again."""
        self.blocked_by = rules.REASONS[reason]
        self.retry_ns = until_ns

    def _limit(self, at_most: int | None) -> int:
        threshold = self._replica.options.long_prefill_token_threshold
        limit = min(self.budget, threshold) if threshold else self.budget
        return limit if at_most is None else min(limit, at_most)

    def _refuse(self, reason: int) -> bool:
        self.blocked_by = reason
        return False

    def _take_hits(self, request: Sequence) -> None:
        hits, loaded = self._replica.pool.take_hits(request)
        request.computed_tokens = request.hit_tokens = hits
        request.cached_tokens += max(0, hits - request.high_water_tokens)
        self.plan.cached_tokens += hits
        self.plan.loaded_tokens += loaded

    def _grant(self, request: Sequence, tokens: int) -> None:
        self.budget -= tokens
        self.exhausted = self.budget == 0
        self.plan.put(request, tokens, rules.is_decode(request.computed_tokens, tokens))
        self._replica.pool.computed(request)


@dataclass(frozen=True)
class View:
    """What a batching policy sees of a replica: policies.protocol.ReplicaView."""

    now_ns: int
    running: tuple[Sequence, ...]
    ended: tuple[Sequence, ...]
    swapped: tuple[Sequence, ...]
    state: object
    left: int
    _replica: ReferenceReplica
    _draft: StepDraft

    @property
    def ranks(self) -> bool:
        """Does the ordering preempt?"""
        return self._replica.order.policy.preempts

    @property
    def swaps_ahead(self) -> bool:
        """Does the ordering swap ahead of need?"""
        return self._draft.swaps_ahead

    def ranked(self) -> Iterable[Sequence]:
        """Everybody who is here, in one list by the ordering's keys of now."""
        return self._replica.order.ranked()

    def waiting(self) -> WaitingQueue:
        """The waiting queue, in the ordering policy's order; who has his KV from elsewhere enters before it."""
        self._draft.bring_in()
        return self._replica.queue

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds now, cached ones included."""
        return self._replica.pool.free_blocks

    @property
    def usable_blocks(self) -> int:
        """KV blocks that requests can hold together."""
        return self._replica.pool.usable_blocks

    @property
    def token_budget(self) -> int:
        """Tokens of a step."""
        return self._replica.options.max_num_batched_tokens

    @property
    def max_num_seqs(self) -> int:
        """Slots."""
        return self._replica.options.max_num_seqs

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest sequence."""
        return self._replica.longest_tokens

    @property
    def watermark_blocks(self) -> int:
        """Blocks that stay free when somebody enters beside others."""
        return self._replica.watermark_blocks

    @property
    def chunked_prefill(self) -> bool:
        """May a prompt be split over several steps?"""
        return self._replica.options.enable_chunked_prefill

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._replica.options.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return rules.blocks_for(tokens, self._replica.options.block_size)

    def hit_tokens(self, request: Sequence) -> int:
        """Leading tokens of a waiting request that are cached now."""
        return self._replica.pool.hit_tokens(request)[0]
