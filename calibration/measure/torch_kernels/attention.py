"""Attention of one layer, all sequences equal: PyTorch's over contiguous KV; vLLM's and flash-attn's over paged KV.

Keys and values go round past the L2 cache: in a server every layer has its own.
"""

from __future__ import annotations

from importlib.util import find_spec

from ..backend import Variant
from ..work import flops_and_bytes
from .environment import installed

VLLM_PAGE, FLASH_PAGE = 16, 256
"""tokens of a page; flash-attn takes no smaller one"""


def kernels(env) -> list:
    """What can be timed here."""
    from . import Kernel

    version = env.torch.__version__
    found = [
        Kernel(Variant("attention_context", "torch", version, "bfloat16", "torch_sdpa_contiguous"), _sdpa_context),
        Kernel(Variant("attention_decode", "torch", version, "bfloat16", "torch_sdpa_contiguous"), _sdpa_decode),
    ]
    if env.is_cpu:
        return found
    if find_spec("flash_attn"):
        for table in ("attention_context", "attention_decode"):
            labels = ("flash_attn", installed("flash-attn") or "unknown", "bfloat16", "flash_attn_paged")
            found.append(Kernel(Variant(table, *labels), _flash(table)))
    if find_spec("vllm"):
        for table in ("attention_context", "attention_decode"):
            label = f"vllm_flash_attn_fa{_vllm_flash_version()}"
            found.append(Kernel(Variant(table, "vllm", env.engine[1], "bfloat16", label), _vllm(table)))
    return found


def sizes(shape) -> tuple[int, int, int]:
    """(batch, queries, keys) of a context or decode shape."""
    if "q_len" in shape:
        return shape["batch"], shape["q_len"], shape["kv_len"]
    return shape["batch"], 1, shape["kv_history"] + 1


def _copies(env, shape) -> int:
    table = "attention_context" if "q_len" in shape else "attention_decode"
    return env.copies(flops_and_bytes(table, shape)[2])


def _sdpa_inputs(env, shape):
    batch, q_len, kv_len = sizes(shape)
    query = env.normal(batch, shape["num_heads"], q_len, shape["head_dim"])
    size = (batch, shape["num_kv_heads"], kv_len, shape["head_dim"])
    return query, [(env.normal(*size), env.normal(*size)) for _ in range(_copies(env, shape))]


def _sdpa_context(env, shape):
    """Causal; with a prefix, queries are the last ones (PyTorch's `is_causal` would take the first)."""
    attention, mask = env.torch.nn.functional.scaled_dot_product_attention, None
    if shape["kv_len"] > shape["q_len"]:
        from torch.nn.attention.bias import causal_lower_right

        mask = causal_lower_right(shape["q_len"], shape["kv_len"])
    query, caches = _sdpa_inputs(env, shape)
    grouped = shape["num_heads"] != shape["num_kv_heads"]
    options = {"attn_mask": mask, "is_causal": mask is None, "enable_gqa": grouped}
    return [lambda k=k, v=v: attention(query, k, v, **options) for k, v in caches]


def _sdpa_decode(env, shape):
    attention = env.torch.nn.functional.scaled_dot_product_attention
    query, caches = _sdpa_inputs(env, shape)
    grouped = shape["num_heads"] != shape["num_kv_heads"]
    return [lambda k=k, v=v: attention(query, k, v, enable_gqa=grouped) for k, v in caches]


def paged(env, shape, page: int, dtype: str = "bfloat16"):
    """(queries [tokens, heads, size], caches, block table [batch, pages]): pages lie in random order."""
    batch, q_len, kv_len = sizes(shape)
    pages = -(-kv_len // page)
    query = env.normal(batch * q_len, shape["num_heads"], shape["head_dim"])
    size = (batch * pages, page, shape["num_kv_heads"], shape["head_dim"])
    caches = [(env.normal(*size, dtype=dtype), env.normal(*size, dtype=dtype)) for _ in range(_copies(env, shape))]
    return query, caches, env.shuffled(batch * pages).reshape(batch, pages)


def _starts(env, batch: int, length: int):
    return env.integers([i * length for i in range(batch + 1)])


def _flash(table: str):
    def build(env, shape):
        from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

        batch, q_len, kv_len = sizes(shape)
        query, caches, blocks = paged(env, shape, FLASH_PAGE)
        if table == "attention_decode":
            rows = query.unsqueeze(1)
            lengths = env.integers([kv_len] * batch)
            options = {"cache_seqlens": lengths, "block_table": blocks, "causal": True}
            return [lambda k=k, v=v: flash_attn_with_kvcache(rows, k, v, **options) for k, v in caches]
        starts = (_starts(env, batch, q_len), _starts(env, batch, kv_len), q_len, kv_len)
        options = {"causal": True, "block_table": blocks}
        return [lambda k=k, v=v: flash_attn_varlen_func(query, k, v, *starts, **options) for k, v in caches]

    return build


def _vllm_flash():
    """(vLLM's flash attention, the version of the algorithm it takes here); the modules have moved over time."""
    try:
        from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func, get_flash_attn_version
    except ImportError:
        from vllm.attention.utils.fa_utils import flash_attn_varlen_func, get_flash_attn_version
    return flash_attn_varlen_func, get_flash_attn_version()


def _vllm_flash_version() -> str:
    try:
        return str(_vllm_flash()[1])
    except Exception:  # an unknown vLLM: its kernel is then left out with the reason that calling it gives
        return "unknown"


def _vllm(table: str):
    def build(env, shape):
        attention, version = _vllm_flash()
        batch, q_len, kv_len = sizes(shape)
        query, caches, blocks = paged(env, shape, VLLM_PAGE)
        options = {
            "out": env.torch.empty_like(query),
            "cu_seqlens_q": _starts(env, batch, q_len),
            "max_seqlen_q": q_len,
            "seqused_k": env.integers([kv_len] * batch),
            "max_seqlen_k": kv_len,
            "softmax_scale": shape["head_dim"] ** -0.5,
            "causal": True,
            "block_table": blocks,
            "fa_version": version,
        }
        return [lambda k=k, v=v: attention(q=query, k=k, v=v, **options) for k, v in caches]

    return build
