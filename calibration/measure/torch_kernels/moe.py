"""Routed experts of one layer, balanced routing: grouped products, activation, permuting and weighing."""

from __future__ import annotations

from importlib.util import find_spec

from ..backend import Variant
from ..work import flops_and_bytes


def kernels(env) -> list:
    """What can be timed here."""
    from . import Kernel

    found = []
    if hasattr(env.torch.nn.functional, "grouped_mm"):
        found.append(Kernel(Variant("moe", "torch", env.torch.__version__, "bfloat16", "torch_grouped_mm"), _grouped))
    if not env.is_cpu and find_spec("vllm"):
        found.append(Kernel(Variant("moe", "vllm", env.engine[1], "bfloat16", "vllm_fused_moe"), _vllm))
    return found


def _inputs(env, shape):
    """(tokens, weights of the choices, choices [tokens, topk] int64, expert weights): every expert equally often."""
    torch, tokens, topk, experts = env.torch, shape["num_tokens"], shape["topk"], shape["num_experts"]
    inter = shape["inter"] // shape["tp"]
    x = env.normal(tokens, shape["hidden"])
    choices = (torch.arange(tokens * topk, device=env.place) % experts).reshape(tokens, topk)
    shares = torch.softmax(torch.randn(tokens, topk, device=env.place), dim=-1)
    count = env.copies(flops_and_bytes("moe", shape)[2])
    weights = [
        (env.normal(experts, 2 * inter, shape["hidden"]), env.normal(experts, shape["hidden"], inter))
        for _ in range(count)
    ]
    return x, shares, choices, weights


def _grouped(env, shape):
    torch, topk = env.torch, shape["topk"]
    functions = torch.nn.functional
    x, shares, choices, weights = _inputs(env, shape)
    by_expert = torch.argsort(choices.reshape(-1), stable=True)
    counts = torch.bincount(choices.reshape(-1), minlength=shape["num_experts"])
    ends = torch.cumsum(counts, 0).to(torch.int32)
    share = shares.reshape(-1)[by_expert].to(x.dtype).unsqueeze(1)
    token = by_expert // topk

    def call(up, down):
        wide = functions.grouped_mm(x[token], up.transpose(1, 2), offs=ends)
        gate, value = wide.chunk(2, dim=-1)
        rows = functions.grouped_mm(functions.silu(gate) * value, down.transpose(1, 2), offs=ends)
        return torch.zeros_like(x).index_add_(0, token, rows * share)

    return [lambda up=up, down=down: call(up, down) for up, down in weights]


def _vllm(env, shape):
    try:
        from vllm.model_executor.layers.fused_moe import fused_experts
    except ImportError:  # vLLM 0.33 keeps only what it called
        from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts_impl as fused_experts

    x, shares, choices, weights = _inputs(env, shape)
    ids = choices.to(env.torch.int32)
    return [lambda up=up, down=down: fused_experts(x, up, down, shares, ids) for up, down in weights]
