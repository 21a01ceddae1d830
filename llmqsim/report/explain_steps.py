"""Two typical steps taken apart: each operator with its formula, FLOPs, bytes, time and share."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.cost import kernels, mixed
from llmqsim.cost.host import eager_floor_s, large_step_factor, mixed_step_s, sampled_rows_s, step_base_s
from llmqsim.cost.layer import SAMPLER_BYTES_PER_LOGIT, SAMPLER_CALLS, Layer
from llmqsim.cost.lower import NS_PER_S, layer_of
from llmqsim.options import HostCost
from llmqsim.report.explain_show import exact_seconds
from llmqsim.report.show import duration
from llmqsim.scenario.build import Servers

DECODE_REQUESTS, DECODE_CONTEXT = 32, 1000
PREFILL_TOKENS = 2048
AFFINE_TERMS = ("base", "per_token", "per_prefill_token", "per_decode_request", "per_kv_token")

Operator = dict[str, Any]


def typical_steps(cost: Any, servers: Servers) -> list[dict[str, Any]]:
    """A decode step and a prefill step of these servers, cut to what they take (slots, token budget, longest request).

    cost : the scenario's `cost`. Each step: {name, shape, tokens, padded_tokens, operators, seconds (the sum of its
    operators), simulated_seconds (what a run charges: the same from interpolated tables, in whole nanoseconds)}.
    FLOPs and bytes are of one GPU and all calls; a formula is of one call. Stations have no steps: an empty list.
    """
    if cost.model == "stations":
        return []
    options, longest = servers.deployment.options, servers.longest_request_tokens
    context = min(DECODE_CONTEXT, longest or DECODE_CONTEXT)
    batch = min(DECODE_REQUESTS, options.max_num_seqs)
    if servers.deployment.capacity is not None:
        batch = max(1, min(batch, servers.deployment.capacity.usable_tokens // context))
    prompt = min(PREFILL_TOKENS, options.max_num_batched_tokens, longest or PREFILL_TOKENS)
    return [_step(cost, servers, "decode", batch, context, 0), _step(cost, servers, "prefill", 0, 0, prompt)]


def _step(cost: Any, servers: Servers, name: str, batch: int, context: int, prompt: int) -> dict[str, Any]:
    """One step: `batch` decodes of `context` tokens each, or one whole prompt of `prompt` tokens."""
    tokens = batch + prompt
    padded = int(kernels.padded_tokens(servers.deployment.cost.params, tokens, 1 if prompt else 0))
    if cost.model == "calibrated":
        operators = _operators(servers, batch, context, prompt, padded)
    else:
        operators = _own(cost, batch, context, prompt)
    total = sum(operator["seconds"] for operator in operators)
    for operator in operators:
        operator["share"] = operator["seconds"] / total if total else None
    return {
        "name": name,
        "shape": {"decode_requests": batch, "decode_context_tokens": context, "prefill_tokens": prompt},
        "tokens": tokens,
        "padded_tokens": padded,
        "operators": operators,
        "seconds": total,
        "simulated_seconds": _simulated_s(servers, batch, context, prompt),
    }


def _simulated_s(servers: Servers, batch: int, context: int, prompt: int) -> float:
    costs, params = servers.deployment.cost.costs, servers.deployment.cost.params
    attention_ns = float(kernels.prefill_attention_ns(costs, params, prompt, prompt)) if prompt else 0.0
    chunks = 1 if prompt else 0
    rows = batch + chunks
    return kernels.step_ns(costs, params, batch, batch * context, prompt, chunks, attention_ns, rows, rows) / NS_PER_S


def _operator(name: str, calls: int, seconds: float, formula: str, flops: Any = None, moved: Any = None) -> Operator:
    """One operator of a step. seconds, flops, moved : of all calls together, on one GPU; None: doesn't apply."""
    return {
        "name": name,
        "calls": calls,
        "formula": formula,
        "flops": None if flops is None else float(flops),
        "bytes": None if moved is None else float(moved),
        "seconds": float(seconds),
    }


def _own(cost: Any, batch: int, context: int, prompt: int) -> list[Operator]:
    """The terms of a step cost that the scenario gives."""
    if cost.model == "constant":
        return [_operator("step", 1, cost.step, f"{exact_seconds(cost.step)}, whatever the step holds")]
    counts = dict(zip(AFFINE_TERMS, (1, batch + prompt, prompt, batch, batch * context), strict=True))
    return [
        _operator(term, n, each * n, f"{n:,} x {exact_seconds(each)}")
        for term, n in counts.items()
        if (each := getattr(cost, term)) and n
    ]


def _operators(servers: Servers, batch: int, context: int, prompt: int, padded: int) -> list[Operator]:
    deployment = servers.deployment
    layer = layer_of(servers.model, servers.gpu, servers.tensor_parallel_size, deployment.options, deployment.cost.store)
    operators = _linear(layer, padded)
    operators += _large_step(deployment.host, padded, operators)
    if not kernels.captured(deployment.cost.params, batch + prompt, 1 if prompt else 0):
        operators += _launches(layer, deployment.host, operators)
    if layer.model.mixers:
        operators += _mixers(layer, batch, context, prompt)
    else:
        operators.append(_prefill_attention(layer, prompt) if prompt else _decode_attention(layer, batch, context))
    rows = batch or 1
    operators += _head(layer, rows)
    host, base_s = deployment.host, step_base_s(deployment.host, servers.tensor_parallel_size)
    split = f", {duration(host.per_step_tp_s)} of it for tensor parallelism" if servers.tensor_parallel_size > 1 else ""
    operators.append(_operator("host, every step", 1, base_s, f"{duration(base_s)} a step{split}"))
    operators += _sampling(servers, rows)
    each = duration(host.per_running_s)
    operators.append(_operator("host, running requests", rows, rows * host.per_running_s, f"{rows} x {each} a request"))
    if prompt:
        text = f"{layer.model.layers} layers x {duration(host.per_mixed_layer_s)}"
        mixed_s = mixed_step_s(host, layer.model.layers)
        operators.append(_operator("host, prefill chunk", layer.model.layers, mixed_s, text))
    return operators


def _linear(layer: Layer, tokens: int) -> list[Operator]:
    """What depends on the tokens of the step alone, and the slow-down of all that under sustained load."""
    operators = []
    for op in layer.linear_ops():
        flops, moved = op.work(tokens)
        seconds = op.calls * float(op.seconds(tokens))
        flops = None if flops is None else flops * op.calls
        operators.append(_operator(op.name, op.calls, seconds, op.formula(tokens), flops, moved * op.calls))
    slower = float(layer.derate(tokens)) - 1.0
    if slower > 0:
        linear_s = sum(operator["seconds"] for operator in operators)
        text = f"{100 * slower:.3g} % on all of the above, at {tokens:,} tokens a step"
        operators.append(_operator("sustained load", 1, slower * linear_s, text))
    return operators


def _large_step(host: HostCost, tokens: int, operators: list[Operator]) -> list[Operator]:
    """What an engine's large steps take beyond today's kernels, if anything."""
    slower = float(large_step_factor(host, np.asarray(tokens))) - 1.0
    if slower <= 0:
        return []
    text = f"{100 * slower:.3g} % on all of the above, at {tokens:,} tokens a step: the engine's own kernels"
    return [_operator("slower kernels", 1, slower * sum(operator["seconds"] for operator in operators), text)]


def _launches(layer: Layer, host: HostCost, operators: list[Operator]) -> list[Operator]:
    """What launching the kernels of an uncaptured step one by one takes beyond their own time, if anything."""
    layers = layer.model.layers
    waiting_s = eager_floor_s(host, layers) - sum(operator["seconds"] for operator in operators)
    if waiting_s <= 0:
        return []
    text = f"no CUDA graph: {layers} layers take at least {duration(host.eager_per_layer_s)} each"
    return [_operator("waiting for launches", layers, waiting_s, text)]


def _sampling(servers: Servers, rows: int) -> list[Operator]:
    """Sorting for top-p and top-k, and streaming in the engine's own loop, where there is either."""
    deployment, vocab = servers.deployment, servers.model.vocab
    seconds = float(sampled_rows_s(deployment.host, deployment.options, servers.gpu, vocab, np.array([rows]))[0])
    text = f"sampler {deployment.options.sampler}, {rows} rows of {vocab:,} entries"
    return [_operator("top-p sampling, streaming", 1, seconds, text)] if seconds else []


def _latent_attention(layer: Layer, batch: int, context: int, prompt: int) -> Operator:
    """Multi-head latent attention of a decode step or of a prompt."""
    k, m = layer.latent_attention(), layer.model
    if prompt:
        seconds = float(layer.prefill_seconds(prompt, 0)) + layer.prefill_launch_seconds()
        flops, rows, kv = (float(part) for part in k.prefill.work(prompt, 0, *k.prefill_shape()))
        moved = rows + kv
        text = f"latent, expanded: causal, {prompt:,} tokens, {k.heads} heads: {k.prefill.roofline.formula(flops, rows)}"
    else:
        seconds = float(layer.decode_seconds(batch, context))
        flops, moved = (float(part) for part in k.decode_work(batch, context))
        text = f"latent of {k.latent} for each of {batch} x {context:,} tokens, {k.heads} heads: max({flops:.3g} FLOP / "
        text += f"{k.prefill.roofline.flops_per_s:.3g}, {moved:.3g} B / {k.decode.roofline.bytes_per_s:.3g}) + launch"
    name = "prefill attention" if prompt else "decode attention"
    return _operator(name, m.layers, seconds, text, flops * m.layers, moved * m.layers)


def _mixers(layer: Layer, batch: int, context: int, prompt: int) -> list[Operator]:
    """Attention or state of each kind of layer, and the launches of prefill."""
    found = []
    for one in layer.model.mixers:
        what = f"causal, {prompt:,} tokens" if prompt else f"{batch} x {context:,} tokens"
        window = (mixed.prefill_window if prompt else mixed.decode_window)(layer, one)
        if one.kind == "state":
            what += f"; priced as attention over a window of {window:,} tokens"
        elif window:
            what += f", {window:,} at most"
        seconds = mixed.prefill_one(layer, one, prompt, 0) if prompt else mixed.decode_one(layer, one, batch, context)
        found.append(_operator(one.name, one.layers, one.layers * float(seconds), what))
    if prompt:
        launch = layer.prefill_launch_seconds()
        found.append(_operator("prefill launches", layer.model.layers, launch, f"{duration(launch)} in all layers"))
    return found


def _windows(layer: Layer) -> str:
    m = layer.model
    return f"; {m.windowed_layers} layers see {m.sliding_window:,} tokens at most" if m.windowed_layers else ""


def _decode_attention(layer: Layer, batch: int, context: int) -> Operator:
    if layer.model.kv_lora_rank:
        return _latent_attention(layer, batch, context, 0)
    k, layers = layer.kernels, layer.model.layers
    shape = (batch, context, layer.heads, layer.kv_heads, layer.model.head_dim, k.kv_bytes)
    flops, moved = k.decode.work(*shape)
    timed = float(k.decode.seconds(*shape) / k.decode.roofline.seconds(flops, moved))
    text = f"{batch} x {context:,} tokens, {layer.heads} heads, {layer.kv_heads} KV heads: "
    text += f"{k.decode.roofline.formula(float(flops), float(moved))} , timed x {timed:.2f}"
    text += _windows(layer)
    windowed, near = layer.model.windowed_layers, min(context, layer.model.sliding_window)
    near_flops, near_moved = k.decode.work(batch, near, *shape[2:])
    flops = flops * (layers - windowed) + near_flops * windowed
    moved = moved * (layers - windowed) + near_moved * windowed
    return _operator("decode attention", layers, layer.decode_seconds(batch, context), text, flops, moved)


def _prefill_attention(layer: Layer, prompt: int) -> Operator:
    if layer.model.kv_lora_rank:
        return _latent_attention(layer, 0, 0, prompt)
    k, layers = layer.kernels, layer.model.layers
    shape = (prompt, 0, layer.heads, layer.kv_heads, layer.model.head_dim, k.kv_bytes)
    flops, rows, kv = (float(part) for part in k.prefill.work(*shape))
    full_s = max(float(k.prefill.roofline.busy_s(flops, rows)), kv / k.prefill.kv_bytes_per_s)
    timed = float(k.prefill.busy_s(*shape)) / full_s
    text = f"causal, {prompt:,} tokens, {layer.heads} heads: {k.prefill.roofline.formula(flops, rows)}"
    text += f", timed x {timed:.2f}"
    text += _windows(layer)
    seconds = float(layer.prefill_seconds(prompt, 0)) + layer.prefill_launch_seconds()
    if windowed := layer.model.windowed_layers:
        near = k.prefill.work(prompt, layer.windowed_prefix(prompt, 0), *shape[2:])[0]
        flops = flops * (1 - windowed / layers) + float(near) * windowed / layers
    return _operator("prefill attention", layers, seconds, text, flops * layers, (rows + kv) * layers)


def _head(layer: Layer, rows: int) -> list[Operator]:
    k, hidden, vocab = layer.kernels, layer.model.hidden, layer.vocab
    flops, moved = (float(part) for part in k.gemm.work(rows, vocab, hidden))
    logits_s = float(k.gemm.seconds(rows, vocab, hidden))
    head = f"[{rows} x {hidden}] x [{hidden} x {vocab}]: {k.gemm.formula(rows, vocab, hidden)}"
    memory = k.elementwise.roofline
    sampler = f"{SAMPLER_CALLS} kernels x {memory.t0_s * 1e6:.1f} us + {rows} x {vocab:,} x {SAMPLER_BYTES_PER_LOGIT} B"
    sampler += f" / {memory.bytes_per_s:.3g}"
    if layer.tensor_parallel_size > 1:
        sampler += f", and logits gathered from {layer.tensor_parallel_size} GPUs"
    sampler_s = float(layer.head_seconds(rows)) - logits_s
    return [
        _operator("LM head", 1, logits_s, head, flops, moved),
        _operator("sampler", 1, sampler_s, sampler, None, rows * vocab * SAMPLER_BYTES_PER_LOGIT),
    ]
