"""FlashInfer's attention over paged KV (bf16 and fp8), and latent attention when decoding."""

from __future__ import annotations

from importlib.util import find_spec

from ..backend import Variant
from ..work import flops_and_bytes
from .attention import paged, sizes
from .environment import installed

PAGE = 16
WORKSPACE_BYTES = 256 * 2**20
LATENT, ROPE = 512, 64
"""DeepSeek's latent attention: widths of the latent and of the rotary part"""
BEFORE_LATENT_SCALE = (128 + 64) ** -0.5


def kernels(env) -> list:
    """What can be timed here: FlashInfer where it is installed; the products around latent attention always."""
    from . import Kernel

    backend, version = env.engine
    products = Variant("mla", backend, version, "bfloat16", "torch_bmm", ops=("mla_gen_pre", "mla_gen_post"))
    found = [Kernel(products, _product)]
    if env.is_cpu or not find_spec("flashinfer"):
        return found
    own = ("flashinfer", installed("flashinfer-python") or "unknown", "bfloat16")
    for kv_dtype in ("bfloat16", "fp8") if env.capability >= (8, 9) else ("bfloat16",):
        context = Variant("attention_context", *own, "flashinfer_prefill_paged", kv_dtype)
        decode = Variant("attention_decode", *own, "flashinfer_decode_paged", kv_dtype)
        found += [Kernel(context, _prefill(kv_dtype)), Kernel(decode, _decode(kv_dtype))]
    found.append(Kernel(Variant("mla", *own, "flashinfer_mla_paged", ops=("mla_decode",)), _latent))
    return found


def _workspace(env):
    return env.torch.empty(WORKSPACE_BYTES, dtype=env.torch.uint8, device=env.place)


def _pages(env, batch: int, kv_len: int, blocks):
    """(page starts, page ids, tokens in the last page) as FlashInfer wants them."""
    pages = -(-kv_len // PAGE)
    starts = env.integers([i * pages for i in range(batch + 1)])
    return starts, blocks.reshape(-1), env.integers([kv_len - (pages - 1) * PAGE] * batch)


def _types(env, kv_dtype: str) -> dict:
    torch = env.torch
    return {"q_data_type": torch.bfloat16, "kv_data_type": torch.float8_e4m3fn if kv_dtype == "fp8" else torch.bfloat16}


def _prefill(kv_dtype: str):
    def build(env, shape):
        import flashinfer

        batch, q_len, kv_len = sizes(shape)
        query, caches, blocks = paged(env, shape, PAGE, kv_dtype)
        heads = (shape["num_heads"], shape["num_kv_heads"], shape["head_dim"], PAGE)
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_workspace(env), "NHD")
        starts = env.integers([i * q_len for i in range(batch + 1)])
        wrapper.plan(starts, *_pages(env, batch, kv_len, blocks), *heads, causal=True, **_types(env, kv_dtype))
        return [lambda cache=cache: wrapper.run(query, cache) for cache in caches]

    return build


def _decode(kv_dtype: str):
    def build(env, shape):
        import flashinfer

        batch, _, kv_len = sizes(shape)
        query, caches, blocks = paged(env, shape, PAGE, kv_dtype)
        heads = (shape["num_heads"], shape["num_kv_heads"], shape["head_dim"], PAGE)
        grouped = shape["num_heads"] // shape["num_kv_heads"] >= 4
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(_workspace(env), "NHD", use_tensor_cores=grouped)
        wrapper.plan(*_pages(env, batch, kv_len, blocks), *heads, **_types(env, kv_dtype))
        return [lambda cache=cache: wrapper.run(query, cache) for cache in caches]

    return build


def _latent(env, shape):
    import flashinfer

    batch, kv_len, heads = shape["batch"], shape["kv_history"] + 1, shape["num_heads"]
    pages = -(-kv_len // PAGE)
    count = env.copies(flops_and_bytes("mla", shape)[2])
    caches = [(env.normal(batch * pages, PAGE, LATENT), env.normal(batch * pages, PAGE, ROPE)) for _ in range(count)]
    query, rotary = env.normal(batch, heads, LATENT), env.normal(batch, heads, ROPE)
    starts, ids, _ = _pages(env, batch, kv_len, env.shuffled(batch * pages))
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(_workspace(env), backend="auto")
    rows, lengths = env.integers(list(range(batch + 1))), env.integers([kv_len] * batch)
    bf16 = env.torch.bfloat16
    wrapper.plan(rows, starts, ids, lengths, heads, LATENT, ROPE, PAGE, False, BEFORE_LATENT_SCALE, bf16, bf16)
    return [lambda kv=kv, pe=pe: wrapper.run(query, rotary, kv, pe) for kv, pe in caches]


def _product(env, shape):
    """Queries into the latent space (pre), values out of it (post): one product a head."""
    inner, outer = (128, LATENT) if shape["op"] == "mla_gen_pre" else (LATENT, 128)
    x = env.normal(shape["num_heads"], shape["batch"], inner)
    count = env.copies(flops_and_bytes("mla", shape)[2])
    weights = [env.normal(shape["num_heads"], inner, outer) for _ in range(count)]
    return [lambda w=w: env.torch.bmm(x, w) for w in weights]


