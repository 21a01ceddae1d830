"""Values of a case that can't all be true: figures in different units, counts that don't add up, two sizes of one pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmqsim.validate.cases import Case
from llmqsim.validate.figures import LATENCIES

FAR = 3.0
"""factor by which E2E may differ from TTFT + (tokens - 1) x TPOT: means over requests differ, units by a thousand"""
COUNT_SHARE, POOL_SHARE = 0.02, 0.1


def of_case(case: Case) -> list[str]:
    """Contradictions in config and workload, each naming its key."""
    return [
        f"{case.place}: {case.id}: {fault}"
        for fault in (*_stages(case.workload), *_pool(case.config), *_gpus(case.config))
    ]


def of_entry(case: Case, entry: Mapping[str, Any]) -> str | None:
    """The first contradiction among an entry's figures, naming its key; None without one."""
    said = next(_figures(entry, _output(case.workload, entry)), None)
    return None if said is None else f"{case.place}: {case.id}: measured: {said}"


def _figures(entry: Mapping[str, Any], output: float | None) -> Iterator[str]:
    for metric in LATENCIES:
        in_ms, in_s = _mean(entry, f"{metric}_ms"), _mean(entry, f"{metric}_s")
        if in_ms is not None and in_s is not None and abs(in_ms - 1e3 * in_s) > 0.05 * in_ms:
            yield f"{metric}_ms: {in_ms:g} ms and {metric}_s {in_s:g} s contradict each other"
        for stat, value in (
            (entry.get(f"{metric}_ms") or {}).items() if isinstance(entry.get(f"{metric}_ms"), Mapping) else ()
        ):
            if _number(value) and value < 0:
                yield f"{metric}_ms.{stat}: must not be negative (got {value:g})"
    ttft, tpot, e2e = (_mean(entry, f"{metric}_ms") for metric in ("ttft", "tpot", "e2e"))
    if ttft is not None and e2e is not None and ttft > 1.01 * e2e:
        yield f"ttft_ms: its mean, {ttft:g}, is above that of e2e_ms, {e2e:g}: are they in the same unit?"
    if ttft and tpot and e2e and output is not None and output >= 2:  # 0: not measured
        told = ttft + (output - 1) * tpot
        if not told / FAR < e2e < told * FAR:
            yield f"e2e_ms: {e2e:g} is far from ttft + (tokens - 1) x tpot, {told:g} ms: are they in the same unit?"


def _mean(entry: Mapping[str, Any], key: str) -> float | None:
    stats = entry.get(key)
    value = stats.get("mean") if isinstance(stats, Mapping) else None
    return float(value) if _number(value) else None


def _output(workload: Mapping[str, Any], entry: Mapping[str, Any]) -> float | None:
    spec = workload.get("output_tokens")
    exact = entry.get("osl") or (spec.get("exact") if isinstance(spec, Mapping) else spec)
    return float(exact) if _number(exact) else None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _stages(workload: Mapping[str, Any]) -> Iterator[str]:
    arrival = workload.get("arrival")
    stages = arrival.get("stages") if isinstance(arrival, Mapping) else None
    for i, stage in enumerate(stages if isinstance(stages, list) else ()):
        values = [stage.get(key) if isinstance(stage, Mapping) else None for key in ("n", "rate_per_s", "duration_s")]
        if all(_number(value) for value in values):
            n, rate, duration = values
            if abs(n - rate * duration) > max(2, COUNT_SHARE * n):
                yield f"workload.arrival.stages[{i}].n: {n:g} contradicts rate x duration, {rate * duration:g}"


def _pool(config: Mapping[str, Any]) -> Iterator[str]:
    blocks, tokens, size = config.get("kv_blocks"), config.get("kv_tokens"), config.get("block_size", 16)
    if all(_number(value) for value in (blocks, tokens, size)) and abs(blocks * size - tokens) > POOL_SHARE * tokens:
        yield f"config.kv_tokens: {tokens:g} contradicts kv_blocks x block_size, {blocks * size:g}"


def _gpus(config: Mapping[str, Any]) -> Iterator[str]:
    gpus, sizes = config.get("n_gpus"), [config.get(key) for key in ("tp", "pp", "dp")]
    product = 1
    for size in sizes:
        product *= int(size) if _number(size) and size >= 1 else 1
    if _number(gpus) and gpus >= 1 and gpus % product:
        yield f"config.n_gpus: {gpus:g} contradicts tp x pp x dp, {product}"
