"""Rules that tie several keys together. Each names both keys and what would be right.

They read the merged tree, not the checked spec, so that they speak up in the same go as faults of single values.
What needs presets or defaults (does the model fit, is the default budget enough) is checked when a run is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llmqsim.scenario.source import Node

Finding = tuple[str, str]
"""dotted key, sentence"""
Check = Callable[["Tree"], Iterator[Finding]]


class Tree:
    """What was written, by dotted key."""

    def __init__(self, root: Node):
        self.root = root

    def node(self, key: str) -> Node | None:
        """The node at a dotted key, or None."""
        node: Node | None = self.root
        for part in key.split("."):
            node = node.value.get(part) if node is not None and node.is_mapping else None
        return node

    def get(self, key: str) -> Any:
        """The plain value at a dotted key, or None."""
        node = self.node(key)
        return None if node is None else node.plain()

    def whole(self, key: str) -> int | None:
        """The value, if it is a whole number."""
        value = self.get(key)
        return value if type(value) is int else None

    def __contains__(self, key: str) -> bool:
        return self.node(key) is not None

    def at(self, key: str) -> str:
        """The key with its place, for the other half of a contradiction."""
        node = self.node(key)
        return f"{key} ({node.place})" if node else key


def traffic_ends(tree: Tree) -> Iterator[Finding]:
    """Arrivals that nothing ends would never stop."""
    if "workload" not in tree or "workload.trace" in tree:
        return
    if tree.get("workload.arrivals.process") == "burst" and "workload.requests" not in tree:
        yield "workload.requests", "missing; a burst comes at time zero, so only a number of requests can end it"
    elif "workload.requests" not in tree and "workload.duration" not in tree:
        yield "workload.requests", "missing; give workload.requests, workload.duration or both, or replay a trace"


def traffic_is_whole(tree: Tree) -> Iterator[Finding]:
    """A trace brings arrivals and lengths; without one both are needed."""
    if "workload" not in tree:
        return
    for part, advice in (
        ("arrivals", "say when requests come, such as {process: poisson, rate: 5 req/s}"),
        ("lengths", "say how long requests are, such as {prompt: 1000, output: 250} or azure-conversation"),
    ):
        key = f"workload.{part}"
        if "workload.trace" in tree and key in tree:
            advice = "set one of them to null" + ("; trace.rate_scale changes the load" if part == "arrivals" else "")
            yield key, f"contradicts {tree.at('workload.trace')}, which brings its own {part}; {advice}"
        elif "workload.trace" not in tree and key not in tree:
            yield key, f"missing; {advice}, or replay a trace"


def gamma_has_one_shape(tree: Tree) -> Iterator[Finding]:
    """cv and burstiness are two spellings of one number."""
    if tree.get("workload.arrivals.process") != "gamma":
        return
    given = [k for k in ("workload.arrivals.cv", "workload.arrivals.burstiness") if k in tree]
    if len(given) == 2:
        yield given[1], f"contradicts {tree.at(given[0])}; give one of them (burstiness = 1 / cv²)"
    if not given:
        yield "workload.arrivals.cv", "missing; gamma arrivals need cv or burstiness (burstiness = 1 / cv²)"


def length_bounds(tree: Tree) -> Iterator[Finding]:
    """min <= max."""
    for part in ("prompt", "output"):
        key = f"workload.lengths.{part}"
        low, high = tree.whole(f"{key}.min"), tree.whole(f"{key}.max")
        if low is not None and high is not None and low > high:
            yield f"{key}.max", f"is below {tree.at(f'{key}.min')} (got {high}, min {low}); swap them"


def token_budget(tree: Tree) -> Iterator[Finding]:
    """vLLM refuses a token budget that can't serve its own slots, or one unchunked prompt."""
    key = "engine.max_num_batched_tokens"
    budget = tree.whole(key)
    if budget is None:
        return
    seqs, length = tree.whole("engine.max_num_seqs"), tree.whole("engine.max_model_len")
    if seqs is not None and budget < seqs:
        yield (
            key,
            (
                f"is below {tree.at('engine.max_num_seqs')} (got {budget} and {seqs}), which vLLM refuses; "
                f"give at least {seqs} tokens, or at most {budget} seqs"
            ),
        )
    if tree.get("engine.enable_chunked_prefill") is False and length is not None and budget < length:
        yield (
            key,
            (
                f"is below {tree.at('engine.max_model_len')} (got {budget} and {length}) while "
                f"{tree.at('engine.enable_chunked_prefill')} is false, which vLLM refuses; "
                f"give at least {length} tokens or chunk prefills"
            ),
        )


def one_pool_size(tree: Tree) -> Iterator[Finding]:
    """Blocks and bytes are two spellings of the KV pool; bytes mean nothing without a model."""
    blocks, size = "engine.num_gpu_blocks_override", "engine.kv_cache_memory_bytes"
    if blocks in tree and size in tree:
        yield blocks, f"contradicts {tree.at(size)}; give the KV pool in blocks or in bytes"
    if size in tree and "model" not in tree:
        yield size, "needs a model, which says how many bytes a token takes; give model, or num_gpu_blocks_override"


def one_pipelining(tree: Tree) -> Iterator[Finding]:
    """async_scheduling and in_flight are two spellings of one option."""
    spelt, steps = tree.get("engine.async_scheduling"), tree.whole("engine.in_flight")
    if isinstance(spelt, bool) and steps in (1, 2) and steps != (2 if spelt else 1):
        yield (
            "engine.in_flight",
            (
                f"contradicts {tree.at('engine.async_scheduling')} (got {steps} and {str(spelt).lower()}); "
                f"give one of them (true is 2, false is 1)"
            ),
        )


def eager_has_no_graphs(tree: Tree) -> Iterator[Finding]:
    """Eager mode captures nothing."""
    if tree.get("engine.enforce_eager") is True and tree.get("engine.cudagraph_capture_sizes"):
        yield (
            "engine.cudagraph_capture_sizes",
            (f"contradicts {tree.at('engine.enforce_eager')}, which captures no graphs; set one of them to null"),
        )


def calibrated_cost_needs_hardware(tree: Tree) -> Iterator[Finding]:
    """Only a cost model of one's own can do without model and GPU."""
    cost = tree.get("cost.model") if "cost" in tree else None
    if cost not in (None, "calibrated"):
        return
    for key, example in (("model", "llama-3.1-8b"), ("gpu", "a100-sxm-80gb")):
        if key not in tree:
            yield key, f"missing; the calibrated cost model needs one, such as {example} (or give cost.model: constant)"


def affine_cost_costs(tree: Tree) -> Iterator[Finding]:
    """An affine cost whose terms are all absent would make every step free."""
    if tree.get("cost.model") == "affine" and set(tree.get("cost")) == {"model"}:
        yield "cost", "has no term, so steps would take no time; give base, per_token or another term"


def slo_has_a_target(tree: Tree) -> Iterator[Finding]:
    """An attainment of nothing is nothing."""
    if "slo" in tree and tree.root.value["slo"].is_mapping and not {"ttft", "tpot", "e2e"} & set(tree.get("slo")):
        yield "slo", "has no latency target; give at least one of ttft, tpot, e2e"


def bare_targets(tree: Tree) -> Iterator[Finding]:
    """Benchmarks write SLOs in bare milliseconds; read as seconds, such a target would always be met."""
    for key in ("slo.ttft", "slo.tpot", "slo.e2e"):
        bare = tree.whole(key)
        if bare is not None and bare >= 10:
            yield key, f"has no unit (got {bare}); write '{bare} ms' or '{bare} s'"


ALL: tuple[Check, ...] = (
    traffic_ends,
    traffic_is_whole,
    gamma_has_one_shape,
    length_bounds,
    token_budget,
    one_pool_size,
    one_pipelining,
    eager_has_no_graphs,
    calibrated_cost_needs_hardware,
    affine_cost_costs,
    slo_has_a_target,
    bare_targets,
)


def findings(root: Node) -> list[Finding]:
    """Everything that the keys of a merged tree say against each other."""
    tree = Tree(root)
    return [finding for check in ALL for finding in check(tree)]
