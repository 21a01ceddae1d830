"""The pool of a hybrid model on one GPU: its layout, its pages, and what fits into them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmqsim.hardware.model import Model
from llmqsim.kv.hybrid import CHUNKED, STATE, WINDOW, Kind, Layout, Manager
from llmqsim.kv.kinds import Release, kinds, manager, model_layout
from llmqsim.options import EngineOptions

GIB = 1024**3
CHUNKED_TOLD = (
    "taken as on for chunked attention; releases keep it off there, and every layer counts in full, unless "
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1 is set (from memory)"
)


@dataclass(frozen=True)
class Aside:
    """Memory for states that a run, which counts tokens alone, takes from the pool."""

    bytes: int
    formula: str


@dataclass(frozen=True)
class HybridPool:
    """Pages of a pool with layers of several kinds. in_flight_tokens : what the start-up lines count beside a window."""

    layout: Layout
    rule: Manager
    kinds: tuple[Kind, ...]
    pages: int
    """the null page included, as logged"""
    in_flight_tokens: int

    def need(self, tokens: int) -> int:
        """Pages of one request of so many tokens, by the start-up count."""
        return self.layout.startup_pages(tokens, self.in_flight_tokens, self.rule.state_mode)

    def concurrency(self, tokens: int) -> float:
        """Requests of so many tokens that fit at once, by the start-up count."""
        if self.rule.pool_per_window:
            return self.pages * self.layout.page_bytes / self._bytes(tokens)
        return self.pages / self.need(tokens)

    def _bytes(self, tokens: int) -> int:
        """Bytes of a request where every window has a pool of its own size."""
        return sum(
            one.layers * (one.state_bytes + one.token_bytes * (min(tokens, one.window) if one.window else tokens))
            for one in self.kinds
        )

    def held(self, tokens: int, chunk: int = 1) -> int:
        """Pages that a running request of so many tokens holds."""
        return self.layout.held_pages(tokens, chunk, self.rule.state_mode)

    def longest(self) -> int:
        """Longest request that fits alone."""
        return self.layout.longest(self.pages, self.in_flight_tokens, self.rule.state_mode)

    def token_line(self, max_model_len: int) -> int:
        """The figure of the line "GPU KV cache size", whose meaning differs between releases."""
        if self.rule.tokens_by_concurrency:
            return int(self.concurrency(max_model_len) * max_model_len)
        return self.pages // len(self.layout.groups) * self.layout.block_tokens

    def formula(self, tokens: int) -> str:
        """The start-up count with its numbers filled in."""
        return f"{self.pages:,} pages / {self.need(tokens):,} a request = {self.concurrency(tokens):.2f} requests"

    def states_aside(self, slots: int) -> Aside | None:
        """What a run sets aside: states for every slot, at most half of the pool; None without states."""
        each = sum(one.layers * one.state_bytes for one in self.kinds if one.kind == STATE)
        if not each:
            return None
        fixed = sum(g.kind.kind == STATE for g in self.layout.groups)
        pages = fixed * (1 + (self.rule.state_mode == "align")) * self.layout.page_bytes
        pool = self.pages * self.layout.page_bytes
        count = max(1, min(slots, pool // (2 * pages)))
        limit = "engine.max_num_seqs" if count == slots else "half of the pool"
        text = f"a run counts tokens: states of {count:,} requests ({limit}) x {pages / GIB:.3f} GiB are set aside"
        return Aside(count * pages, text)


def hybrid_pool(
    model: Model | None,
    tp: int,
    options: EngineOptions,
    release: str,
    pool_bytes: int | None,
    blocks: int,
    *,
    drafted: int = 0,
    draft_layers: int = 0,
    state_mode: str = "",
) -> HybridPool | None:
    """The pool as the engine lays it out; None where all layers keep every token alike.

    pool_bytes : of one GPU; None where the server logged how many blocks (pages) there are. drafted : speculative tokens
    of a step; draft_layers : full layers that draft them; state_mode : "" for the release's own.
    """
    if model is None:
        return None
    width, stages = model.kv_dtype_bytes(options.kv_cache_dtype), options.pipeline_parallel_size
    its = kinds(model, tp, width, stages=stages, drafted=drafted, draft_layers=draft_layers)
    if not any(one.kind in (WINDOW, CHUNKED, STATE) for one in its):
        return None
    rule = manager(
        Release.of(release),
        batches=options.in_flight if options.pipeline_parallel_size == 1 else options.pipeline_parallel_size,
        prefix_caching=options.enable_prefix_caching,
        offloading=options.kv_offloading_bytes > 0,
        state_mode=state_mode,
    )
    if rule.hybrid and not rule.why and any(one.kind == CHUNKED for one in its):
        rule = replace(rule, why=CHUNKED_TOLD)
    made = model_layout(its, rule, options.block_size, drafted)
    pages = blocks if pool_bytes is None else made.pages(pool_bytes)
    return HybridPool(made, rule, its, pages, options.max_num_batched_tokens * rule.in_flight_batches)
