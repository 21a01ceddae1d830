"""Kernels of the measuring kit that this machine can't run: stand-ins with the libraries' signatures check the calls.

The signatures are those of vLLM 0.33, FlashInfer 0.7.4 and flash-attn 2.8; what they compute is a reference on the CPU.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

from llmqsim.cli_measure import load_kit

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
DECODE = {"op": "attention_decode", "batch": 3, "kv_history": 36, **HEADS}
CHUNK = {"op": "attention_context", "batch": 2, "q_len": 5, "kv_len": 21, **HEADS}
LAYER = {"num_tokens": 6, "tp": 2, "n_head": 4, "n_kv_head": 2, "hidden": 32, "inter": 64, "vocab": 100, "gated": 1}


@pytest.fixture
def env():
    """An environment on the CPU that calls itself a Hopper GPU."""
    made = load_kit("torch_kernels.environment").Environment("cpu")
    made.is_cpu, made.capability = False, (9, 0)
    made.device = replace(made.device, gpu="H100-SXM-80GB", is_cpu=False)
    return made


def module(monkeypatch, name: str, **content) -> None:
    made = ModuleType(name)
    made.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, made)
    if "." in name:
        parent, _, child = name.rpartition(".")
        if parent not in sys.modules:
            module(monkeypatch, parent)
        monkeypatch.setattr(sys.modules[parent], child, made, raising=False)


def gather(cache, blocks, length):
    """Keys or values [batch, length, heads, size] out of pages."""
    return cache[blocks.long()].flatten(1, 2)[:, :length].float()


def reference(query, k_cache, v_cache, blocks, length):
    """Causal attention of the last queries [batch, q, heads, size] over paged KV."""
    import torch

    keys, values = gather(k_cache, blocks, length), gather(v_cache, blocks, length)
    group = query.shape[2] // keys.shape[2]
    keys, values = keys.repeat_interleave(group, 2), values.repeat_interleave(group, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", query.float(), keys) * query.shape[-1] ** -0.5
    behind = torch.arange(length)[None, :] > torch.arange(query.shape[1])[:, None] + length - query.shape[1]
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores.masked_fill(behind, float("-inf")), -1), values)


def vllm_varlen(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, q_v=None,
                dropout_p=0.0, softmax_scale=None, causal=False, window_size=None, softcap=0.0, alibi_slopes=None,
                deterministic=False, return_attn_probs=False, block_table=None, return_softmax_lse=False, out=None,
                fa_version=2):  # fmt: skip
    batch = len(cu_seqlens_q) - 1
    assert causal and cu_seqlens_k is None and out.shape == q.shape and fa_version == 3
    assert cu_seqlens_q.tolist() == [i * max_seqlen_q for i in range(batch + 1)]
    assert seqused_k.tolist() == [max_seqlen_k] * batch and softmax_scale == q.shape[-1] ** -0.5
    return reference(q.reshape(batch, max_seqlen_q, *q.shape[1:]), k, v, block_table, max_seqlen_k)


@pytest.mark.parametrize("table, shape", [("attention_decode", DECODE), ("attention_context", CHUNK)])
def test_vllm_attention(env, monkeypatch, table, shape):
    attention = load_kit("torch_kernels.attention")
    where = "vllm.v1.attention.backends.fa_utils"
    module(monkeypatch, where, flash_attn_varlen_func=vllm_varlen, get_flash_attn_version=lambda: 3)
    assert attention._vllm_flash_version() == "3"
    calls = attention._vllm(table)(env, shape)
    batch, q_len, _ = attention.sizes(shape)
    assert calls[0]().shape == (batch, q_len, 4, 8)
    assert len(calls) > 1, "every call has KV of its own"
    assert not calls[0]().equal(calls[1]())


def test_vllm_attention_of_older_versions(env, monkeypatch):
    where = "vllm.attention.utils.fa_utils"
    module(monkeypatch, where, flash_attn_varlen_func=vllm_varlen, get_flash_attn_version=lambda: 3)
    assert load_kit("torch_kernels.attention")._vllm("attention_decode")(env, DECODE)[0]().shape == (3, 1, 4, 8)


def test_an_unknown_vllm_is_left_out_with_its_reason(env):
    assert load_kit("torch_kernels.attention")._vllm_flash_version() == "unknown"


@pytest.mark.parametrize("table, shape", [("attention_decode", DECODE), ("attention_context", CHUNK)])
def test_flash_attn(env, monkeypatch, table, shape):
    def with_kvcache(q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, block_table=None, causal=False):
        assert k_cache.shape[1] % 256 == 0 and cache_seqlens.tolist() == [37] * 3
        return reference(q, k_cache, v_cache, block_table, 37)

    def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False, block_table=None):
        assert causal and cu_seqlens_k.tolist() == [0, 21, 42] and cu_seqlens_q.tolist() == [0, 5, 10]
        return reference(q.reshape(2, 5, 4, 8), k, v, block_table, max_seqlen_k)

    module(monkeypatch, "flash_attn", flash_attn_with_kvcache=with_kvcache, flash_attn_varlen_func=varlen)
    assert load_kit("torch_kernels.attention")._flash(table)(env, shape)[0]().isfinite().all()


class Wrapper:
    """FlashInfer's wrappers over paged KV: plan once, run often."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_tensor_cores=False):
        assert kv_layout == "NHD" and float_workspace_buffer.numel() >= 128 * 2**20

    def run(self, q, paged_kv_cache):
        k, v = paged_kv_cache
        assert self.indices.sort().values.tolist() == list(range(len(k)))
        length = (int(self.starts[1]) - 1) * 16 + int(self.last[0])
        blocks = self.indices.reshape(len(self.starts) - 1, -1)
        return reference(q.reshape(len(blocks), -1, *q.shape[1:]), k, v, blocks, length), length


class Decode(Wrapper):
    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **kwargs):
        assert (num_qo_heads, num_kv_heads, head_dim, page_size) == (4, 2, 8, 16)
        assert set(kwargs) == {"q_data_type", "kv_data_type"}
        self.starts, self.indices, self.last = indptr, indices, last_page_len


class Prefill(Wrapper):
    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim_qk, page_size, causal=False, q_data_type=None, kv_data_type=None):  # fmt: skip
        assert causal and qo_indptr.tolist() == [0, 5, 10]
        self.starts, self.indices, self.last = paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len


class Latent:
    def __init__(self, float_workspace_buffer, backend="auto"):
        pass

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size,
             causal, sm_scale, q_data_type, kv_data_type):  # fmt: skip
        assert kv_len_arr.tolist() == [37] * 3 and kv_indptr.tolist() == [0, 3, 6, 9] and not causal
        assert (num_heads, head_dim_ckv, head_dim_kpe, page_size) == (16, 512, 64, 16)

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache):
        assert (q_nope.shape, q_pe.shape) == ((3, 16, 512), (3, 16, 64))
        assert (ckv_cache.shape, kpe_cache.shape) == ((9, 16, 512), (9, 16, 64))
        return q_nope


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "fp8"])
def test_flashinfer(env, monkeypatch, kv_dtype):
    kit = load_kit("torch_kernels.flashinfer")
    wrappers = {"BatchDecodeWithPagedKVCacheWrapper": Decode, "BatchPrefillWithPagedKVCacheWrapper": Prefill}
    module(monkeypatch, "flashinfer", **wrappers)
    out, length = kit._decode(kv_dtype)(env, DECODE | {"kv_dtype": kv_dtype})[0]()
    assert length == 37 and out.isfinite().all()
    out, length = kit._prefill(kv_dtype)(env, CHUNK | {"kv_dtype": kv_dtype})[0]()
    assert length == 21 and out.shape == (2, 5, 4, 8)


def test_flashinfer_latent_attention(env, monkeypatch):
    module(monkeypatch, "flashinfer", mla=SimpleNamespace(BatchMLAPagedAttentionWrapper=Latent))
    shape = {"op": "mla_decode", "batch": 3, "q_len": 1, "kv_history": 36, "num_heads": 16}
    assert load_kit("torch_kernels.flashinfer")._latent(env, shape)[0]().shape == (3, 16, 512)


def vllm_ops(torch) -> dict:
    """`vllm._custom_ops` as far as the kit calls it."""

    def scaled_fp8_quant(input, scale=None, num_token_padding=None, scale_ub=None, use_per_token_if_dynamic=False):
        by_token = torch.ones((input.shape[0], 1)) if use_per_token_if_dynamic else scale
        return input.to(torch.float8_e4m3fn), by_token

    def cutlass_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias=None):
        assert b.stride(0) == 1, "fp8 weights are column-major"
        return (a.float() * scale_a) @ (b.float() * scale_b)

    def fused_add_rms_norm(input, residual, weight, epsilon):
        assert input.shape == residual.shape == (6, 32) and weight.shape == (32,)

    def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
        assert query.shape == (6, 16) and key.shape == (6, 8) and head_size == 8 and cos_sin_cache.shape[1] == 8

    return {f.__name__: f for f in (scaled_fp8_quant, cutlass_scaled_mm, fused_add_rms_norm, rotary_embedding)}


def test_vllm_linear_norms_and_experts(env, monkeypatch):
    gemm, layer_ops, moe = (load_kit(f"torch_kernels.{name}") for name in ("gemm", "layer_ops", "moe"))
    module(monkeypatch, "vllm._custom_ops", **vllm_ops(env.torch))
    shape = {"op": "gemm", "m": 4, "n": 32, "k": 16, "dtype": "fp8"}
    calls = gemm._vllm_fp8(env, shape)
    assert calls[0]().shape == (4, 32) and not calls[0]().equal(calls[1]())
    assert gemm._vllm_quantise(env, {"m": 4, "k": 16})[0]()[0].dtype == env.torch.float8_e4m3fn
    for op in ("input_layernorm", "post_attention_layernorm", "attn_rope"):
        layer_ops._vllm(env, LAYER | {"op": op})[0]()

    def fused_experts(hidden_states, w1, w2, topk_weights, topk_ids):
        assert (w1.shape, w2.shape) == ((4, 32, 16), (4, 16, 16)) and topk_ids.dtype == env.torch.int32
        assert topk_weights.shape == topk_ids.shape == (6, 2)
        return hidden_states

    module(monkeypatch, "vllm.model_executor.layers.fused_moe", fused_experts=fused_experts)
    experts = {"num_tokens": 6, "hidden": 16, "inter": 32, "topk": 2, "num_experts": 4, "tp": 2, "ep": 1}
    assert moe._vllm(env, experts)[0]().shape == (6, 16)
    module(monkeypatch, "vllm.model_executor.layers.fused_moe")  # vLLM 0.33
    module(monkeypatch, "vllm.model_executor.layers.fused_moe.fused_moe", fused_experts_impl=fused_experts)
    assert moe._vllm(env, experts)[0]().shape == (6, 16)


def test_every_library_is_offered_where_it_is_installed(env, monkeypatch):
    for name in ("attention", "flashinfer", "gemm", "layer_ops", "moe"):
        monkeypatch.setattr(load_kit(f"torch_kernels.{name}"), "find_spec", lambda name: True)
    found = []
    for name in ("gemm", "attention", "flashinfer", "layer_ops", "moe"):
        found += [kernel.variant for kernel in load_kit(f"torch_kernels.{name}").kernels(env)]
    offered = {(v.table, v.backend) for v in found}
    for table in ("attention_context", "attention_decode"):
        assert {(table, backend) for backend in ("torch", "flash_attn", "vllm", "flashinfer")} <= offered
    assert {(table, "vllm") for table in ("gemm", "quantize", "moe", "layer_ops")} | {("mla", "flashinfer")} <= offered
    assert len(set(found)) == len(found)


def test_the_drivers_fields_and_warnings(env, monkeypatch):
    kit = load_kit("torch_kernels.environment")
    values = {"clocks.sm": "1410", "power.limit": "300.00", "power.max_limit": "400.00", "utilization.gpu": "40"}
    values |= {"mig.mode.current": "Enabled", "persistence_mode": "Enabled"}

    def smi(arguments):
        if arguments == ["--query-compute-apps=pid"]:
            return ["1", "2"]
        fields = arguments[0].removeprefix("--query-gpu=").split(",")
        return [", ".join(values[field] for field in fields)] if set(fields) <= set(values) else []

    monkeypatch.setattr(kit, "_smi", smi)
    kit.known_fields.cache_clear()
    assert env.conditions()["sm_mhz"] == 1410.0 and "temperature_c" not in env.conditions(), "what the driver knows"
    said = " ".join(env.warnings())
    for words in ("MIG is on", "300 W of 400 W", "40 % busy", "other processes"):
        assert words in said
    kit.known_fields.cache_clear()


def test_datasheet_peaks_of_known_gpus():
    kit = load_kit("torch_kernels.environment")
    assert kit.datasheet("H100-SXM-80GB").flops_per_s["bfloat16"] == pytest.approx(9.9e14, rel=0.01)
    assert kit.datasheet("A100-SXM-80GB").bytes_per_s == pytest.approx(2.04e12, rel=0.01)
    assert kit.datasheet("Quadro-9000") is None
