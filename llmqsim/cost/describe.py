"""The cost of a step in words: every operator with its formula and numbers, for `llmqsim explain`."""

from __future__ import annotations

from llmqsim.cost.host import mixed_step_s, step_base_s
from llmqsim.cost.layer import Layer
from llmqsim.options import HostCost

DECODE_REQUESTS, DECODE_CONTEXT = 32, 1000
PREFILL_TOKENS = 2048


def describe(layer: Layer, host: HostCost) -> tuple[str, ...]:
    """Lines about a decode step (32 requests of 1,000 tokens) and a prefill step (2,048 tokens, no prefix).

    Times are those of the physical forms, without padding to CUDA-graph sizes.
    """
    return (*_decode_step(layer, host), *_prefill_step(layer, host))


def _decode_step(layer: Layer, host: HostCost) -> tuple[str, ...]:
    batch, context = DECODE_REQUESTS, DECODE_CONTEXT
    kernels, model = layer.kernels, layer.model
    work = kernels.decode.work(batch, context, layer.heads, layer.kv_heads, model.head_dim, kernels.kv_bytes)
    attention = float(layer.decode_seconds(batch, context))
    parts = _linear_parts(layer, batch)
    text = kernels.decode.roofline.formula(*work)
    parts.append((attention, _line("decode attention", model.layers, attention, text)))
    parts.append(_head_part(layer, batch))
    fixed = step_base_s(host, layer.tensor_parallel_size)
    per_request = host.per_running_s * batch
    text = f"{fixed * 1e3:.2f} ms + {batch} requests x {host.per_running_s * 1e6:.2f} us"
    parts.append((fixed + per_request, _line("host", 1, fixed + per_request, text)))
    total = sum(seconds for seconds, _ in parts)
    return (f"decode step, {batch} requests of {context:,} tokens: {total * 1e3:.2f} ms", *(line for _, line in parts))


def _prefill_step(layer: Layer, host: HostCost) -> tuple[str, ...]:
    tokens = PREFILL_TOKENS
    kernels, model = layer.kernels, layer.model
    flops, rows, _ = kernels.prefill.work(tokens, 0, layer.heads, layer.kv_heads, model.head_dim, kernels.kv_bytes)
    attention = float(layer.prefill_seconds(tokens, 0)) + layer.prefill_launch_seconds()
    parts = _linear_parts(layer, tokens)
    text = kernels.prefill.roofline.formula(float(flops), float(rows))
    parts.append((attention, _line("prefill attention", model.layers, attention, text)))
    parts.append(_head_part(layer, 1))
    fixed, mixed = step_base_s(host, layer.tensor_parallel_size), mixed_step_s(host, model.layers)
    text = f"{fixed * 1e3:.2f} ms + {mixed * 1e3:.2f} ms for the chunk + {host.per_running_s * 1e6:.2f} us a request"
    total_host = fixed + mixed + host.per_running_s
    parts.append((total_host, _line("host", 1, total_host, text)))
    total = sum(seconds for seconds, _ in parts)
    return (f"prefill step, one chunk of {tokens:,} tokens: {total * 1e3:.2f} ms", *(line for _, line in parts))


def _linear_parts(layer: Layer, tokens: int) -> list[tuple[float, str]]:
    """(seconds, line) of each linear operator, the sustained-load factor included."""
    factor = float(layer.derate(tokens))
    parts = []
    for op in layer.linear_ops():
        seconds = op.calls * float(op.seconds(tokens)) * factor
        suffix = f", x {factor:.3f} under sustained load" if factor > 1 else ""
        parts.append((seconds, _line(op.name, op.calls, seconds, op.formula(tokens) + suffix)))
    return parts


def _head_part(layer: Layer, rows: int) -> tuple[float, str]:
    seconds = float(layer.head_seconds(rows))
    text = f"[{rows} x {layer.model.hidden}] x [{layer.model.hidden} x {layer.vocab}]"
    return seconds, _line("LM head and sampler", 1, seconds, text)


def _line(name: str, calls: int, seconds: float, formula: str) -> str:
    return f"  {name:36s} {calls:4d} x {seconds / calls * 1e6:8.1f} us = {seconds * 1e3:7.3f} ms   {formula}"
