"""The small operators of a layer: norms, rotary embedding, activation, addition, and the token embedding.

Activations are not rotated past the cache: in a server the operator before has just written them.
"""

from __future__ import annotations

from importlib.util import find_spec

from ..backend import Variant

MOST_POSITIONS = 4096
EPSILON = 1e-5
FUSED = ("input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act")


def kernels(env) -> list:
    """What can be timed here: vLLM's fused kernels where it is installed, PyTorch's for the rest."""
    from . import Kernel

    backend, version = env.engine
    plain = ("emb", "add")
    if not env.is_cpu and find_spec("vllm"):
        fused = Variant("layer_ops", "vllm", version, "bfloat16", "vllm_custom_ops", ops=FUSED)
        rest = Variant("layer_ops", "vllm", version, "bfloat16", "torch", ops=plain)
        return [Kernel(fused, _vllm), Kernel(rest, _torch)]
    return [Kernel(Variant("layer_ops", backend, version, "bfloat16", "torch_unfused", ops=plain + FUSED), _torch)]


def _widths(shape) -> tuple[int, int, int]:
    """(query heads, KV heads, head size) on one GPU."""
    tp = shape["tp"]
    return shape["n_head"] // tp, max(1, shape["n_kv_head"] // tp), shape["hidden"] // shape["n_head"]


def _torch(env, shape):
    torch, tokens, hidden = env.torch, shape["num_tokens"], shape["hidden"]
    functions = torch.nn.functional
    x, y = env.normal(tokens, hidden), env.normal(tokens, hidden)
    weight = env.normal(hidden)
    match shape["op"]:
        case "emb":
            rows = -(-shape["vocab"] // shape["tp"])
            table = env.normal(rows, hidden)
            ids = torch.randint(0, rows, (tokens,), device=env.place)
            return [lambda: functions.embedding(ids, table)]
        case "add":
            return [lambda: torch.add(x, y)]
        case "input_layernorm":
            return [lambda: functions.rms_norm(x, (hidden,), weight, EPSILON)]
        case "post_attention_layernorm":
            return [lambda: functions.rms_norm(x + y, (hidden,), weight, EPSILON)]
        case "mlp_act":
            inter = shape["inter"] // shape["tp"]
            gate, up = env.normal(tokens, inter), env.normal(tokens, inter)
            if not shape["gated"]:
                return [lambda: functions.gelu(gate)]
            return [lambda: functions.silu(gate) * up]
    return [_rotation(env, shape)]


def _rotation(env, shape):
    """Rotary embedding of queries and keys, NeoX style (halves), unfused."""
    heads, kv_heads, size = _widths(shape)
    both = env.normal(shape["num_tokens"], heads + kv_heads, size)
    cos, sin = (env.normal(shape["num_tokens"], 1, size // 2) for _ in range(2))

    def call():
        first, second = both.chunk(2, dim=-1)
        return env.torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return call


def _vllm(env, shape):
    from vllm import _custom_ops as ops

    torch, tokens, hidden = env.torch, shape["num_tokens"], shape["hidden"]
    x, residual, weight = env.normal(tokens, hidden), env.normal(tokens, hidden), env.normal(hidden)
    match shape["op"]:
        case "input_layernorm" | "post_attention_layernorm":
            # vLLM adds the residual and takes the norm in one kernel, before attention as before the MLP.
            return [lambda: ops.fused_add_rms_norm(x, residual, weight, EPSILON)]
        case "mlp_act":
            inter = shape["inter"] // shape["tp"]
            wide, out = env.normal(tokens, 2 * inter), env.normal(tokens, inter)
            return [lambda: torch.ops._C.silu_and_mul(out, wide)]
    heads, kv_heads, size = _widths(shape)
    positions = torch.randint(0, MOST_POSITIONS, (tokens,), device=env.place)
    query, key = env.normal(tokens, heads * size), env.normal(tokens, kv_heads * size)
    table = env.normal(MOST_POSITIONS, size)
    return [lambda: ops.rotary_embedding(positions, query, key, size, table, True)]
