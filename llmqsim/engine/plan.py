"""StepPlan: one formed step, from the moment its batch is decided until it is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmqsim.engine import rules
from llmqsim.engine.sequence import Sequence


@dataclass(slots=True)
class StepPlan:
    """Who computes how many tokens in one step. Counts follow from `rows`; times in ns."""

    longest_tokens: int
    """of a row: max_model_len"""
    rows: dict[int, tuple[Sequence, int, bool]] = field(default_factory=dict)
    """row -> (sequence, tokens, does it sample an output token?), in the order of granting"""
    chunks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """row -> (query tokens, KV tokens with them) of the rows that are not decodes"""
    decode_requests: int = 0
    decode_kv_tokens: int = 0
    prefill_tokens: int = 0
    sampled_rows: int = 0
    recomputed_tokens: int = 0
    padding_tokens: int = 0
    """prompt tokens that a static batch computes only to make all rows equally long"""
    idle_rows: int = 0
    """decode rows of a static batch whose requests have ended"""
    idle_kv_tokens: int = 0
    cached_tokens: int = 0
    """tokens that newcomers of this step found cached"""
    loaded_tokens: int = 0
    """of these, to be loaded from the host before the step runs"""
    copied_blocks: int = 0
    """KV blocks copied to or from the host before the step runs"""
    ahead_blocks: int = 0
    """KV blocks copied to or from the host while it runs"""
    saved_ns: int = 0
    """host time that a step without a scheduler call does without"""
    loads: list[Sequence] = field(default_factory=list)
    """requests whose KV begins to come from elsewhere when this step starts"""
    running: int = 0
    """requests that hold a slot, once the step is formed; the next two as of then, too"""
    waiting: int = 0
    kv_blocks: int = 0
    duration_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0

    def start(self, now_ns: int) -> None:
        """The GPU takes it up."""
        self.start_ns = now_ns
        self.end_ns = now_ns + self.duration_ns

    def put(self, sequence: Sequence, tokens: int, decode: bool) -> None:
        """Add a row and move the sequence on: its tokens count as computed, a sampled one as known, from now."""
        end = sequence.computed_tokens + tokens
        samples = end == sequence.known_tokens
        self.rows[sequence.row] = (sequence, tokens, samples)
        self.sampled_rows += samples
        if decode:
            self.decode_requests += 1
            self.decode_kv_tokens += self.context(sequence, end)
        else:
            padding = 0 if sequence.computed_tokens else sequence.padding_tokens
            self.chunks[sequence.row] = (tokens + padding, end + padding)
            self.prefill_tokens += tokens
            self.padding_tokens += padding
        if sequence.computed_tokens < sequence.high_water_tokens:
            self.recomputed_tokens += _lost(sequence, tokens)
        sequence.computed_tokens = end
        sequence.known_tokens += samples
        sequence.awaited_tokens += samples

    def context(self, sequence: Sequence, tokens: int) -> int:
        """Tokens that a row reads to make its next one."""
        return rules.padded_context(tokens, sequence.padding_tokens, self.longest_tokens)

    def put_idle(self, sequence: Sequence) -> None:
        """Add a row that is computed for nobody."""
        self.idle_rows += 1
        self.idle_kv_tokens += self.context(sequence, sequence.computed_tokens)

    def take_back(self, sequence: Sequence) -> int:
        """Undo `put` for a row that lost its memory while the step was formed; return its tokens (0: it had none)."""
        if sequence.row not in self.rows:
            return 0
        _, tokens, samples = self.rows.pop(sequence.row)
        self.sampled_rows -= samples
        if sequence.row in self.chunks:
            query_tokens, _ = self.chunks.pop(sequence.row)
            self.prefill_tokens -= tokens
            self.padding_tokens -= query_tokens - tokens
        else:
            self.decode_requests -= 1
            self.decode_kv_tokens -= self.context(sequence, sequence.computed_tokens)
        sequence.known_tokens -= samples
        sequence.awaited_tokens -= samples
        sequence.computed_tokens -= tokens
        self.recomputed_tokens -= _lost(sequence, tokens)
        return tokens


def _lost(sequence: Sequence, tokens: int) -> int:
    """How many of the next tokens had their KV before a preemption took it."""
    return max(0, min(tokens, sequence.high_water_tokens - sequence.computed_tokens))
