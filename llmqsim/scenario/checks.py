"""Rules that tie several keys together. Each names both keys and what would be right.

They read the merged tree, not the checked spec, so that they speak up in the same go as faults of single values.
What needs presets or defaults (does the model fit, is the default budget enough) is checked when a run is built.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmqsim.scenario import traffic_checks
from llmqsim.scenario.source import Node
from llmqsim.scenario.targets import SLO_KEYS
from llmqsim.scenario.tree import Check, Finding, Tree


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
    if tree.get("cost.model") == "stations" and not {"prefill", "prefill_per_token"} & set(tree.get("cost")):
        yield "cost.prefill", "missing; without prefill or prefill_per_token the station would take no time"


def slo_has_a_target(tree: Tree) -> Iterator[Finding]:
    """An attainment of nothing is nothing."""
    for key in tree.slos():
        if not set(SLO_KEYS) & set(tree.get(key)):
            yield key, "has no latency target; give at least one of ttft, tpot, e2e, or a percentile such as ttft_p99"


def bare_targets(tree: Tree) -> Iterator[Finding]:
    """Benchmarks write SLOs in bare milliseconds; read as seconds, such a target would always be met."""
    for slo in tree.slos():
        for key in (f"{slo}.{name}" for name in SLO_KEYS):
            bare = tree.whole(key)
            if bare is not None and bare >= 10:
                yield key, f"has no unit (got {bare}); write '{bare} ms' or '{bare} s'"


def stations_are_no_engine(tree: Tree) -> Iterator[Finding]:
    """A prefill station and a delay have no batches, slots or KV blocks."""
    if tree.get("cost.model") == "stations":
        for name in tree.names("engine"):
            yield f"engine.{name}", f"means nothing to {tree.at('cost.model')} stations, which are no engine; remove it"


def parts_of_pools(tree: Tree) -> Iterator[Finding]:
    """Placement and hand-off say nothing without pools; replicas that are no engine hand nothing over."""
    if "pools" in tree:
        for name in tree.names("pools"):
            if "." in name:
                yield "pools", f"names must hold no point (got {name!r}); write {name.replace('.', '_')}"
            if tree.get(f"pools.{name}.cost.model") == "stations":
                yield f"pools.{name}.cost.model", "stations are no engine, so they form no pool; take constant or affine"
        if not tree.names("pools"):
            yield "pools", "holds no pool; give at least one, or leave it out"
        return
    for key in ("placement", "handoff"):
        if key in tree:
            yield key, "means nothing without pools; give pools, or leave it out"


SERVERS: tuple[Check, ...] = (
    token_budget,
    one_pool_size,
    one_pipelining,
    eager_has_no_graphs,
    calibrated_cost_needs_hardware,
    affine_cost_costs,
    stations_are_no_engine,
)
"""about keys that each pool has for itself"""
OTHERS: tuple[Check, ...] = (*traffic_checks.ALL, slo_has_a_target, bare_targets, parts_of_pools)


def findings(root: Node) -> list[Finding]:
    """Everything that the keys of a merged tree say against each other."""
    tree = Tree(root)
    found = [finding for check in OTHERS for finding in check(tree)]
    pools = tree.names("pools")
    if not pools:
        return found + [finding for check in SERVERS for finding in check(tree)]
    for name in pools:
        its = tree.pool(name)
        told = [finding for check in SERVERS for finding in check(its)]
        found += [(tree.pool_key(name, key), sentence) for key, sentence in told]
    return list(dict.fromkeys(found))
