"""Linear layers Y[m, n] = X[m, k] W[k, n], and the static fp8 quantisation of X.

Weights go round past the L2 cache; X stays, as in a server the operator before has just written it.
"""

from __future__ import annotations

from importlib.util import find_spec

from ..backend import Variant
from ..work import flops_and_bytes

FP8_CAPABILITY = (8, 9)


def kernels(env) -> list:
    """What can be timed here: bf16 always; fp8 with vLLM's kernels, else with PyTorch's."""
    from . import Kernel

    backend, version = env.engine
    found = [Kernel(Variant("gemm", backend, version, "bfloat16", "torch.nn.functional.linear"), _linear)]
    if env.is_cpu or env.capability < FP8_CAPABILITY:
        return found
    if find_spec("vllm"):
        found.append(Kernel(Variant("gemm", "vllm", version, "fp8", "vllm_cutlass_scaled_mm"), _vllm_fp8))
        found.append(Kernel(Variant("quantize", "vllm", version, "fp8", "static_scaled_fp8_quant"), _vllm_quantise))
    else:
        found.append(Kernel(Variant("gemm", "torch", version, "fp8", "torch._scaled_mm+eager_quantise"), _torch_fp8))
    return found


def _linear(env, shape):
    m, n, k = shape["m"], shape["n"], shape["k"]
    linear = env.torch.nn.functional.linear
    x = env.normal(m, k)
    weights = [env.normal(n, k) for _ in range(env.copies(flops_and_bytes("gemm", shape)[2]))]
    return [lambda w=w: linear(x, w) for w in weights]


def _fp8_weights(env, shape) -> list:
    """Weights [k, n] in column-major order, as the fp8 kernels ask for."""
    count = env.copies(flops_and_bytes("gemm", shape)[2])
    return [env.normal(shape["n"], shape["k"], dtype="fp8").t() for _ in range(count)]


def _vllm_fp8(env, shape):
    """The whole Linear call: dynamic quantisation of X by token, then the scaled product."""
    from vllm import _custom_ops as ops

    torch = env.torch
    x = env.normal(shape["m"], shape["k"])
    scale = torch.ones((1, 1), dtype=torch.float32, device=env.place)

    def call(w):
        quantised, by_token = ops.scaled_fp8_quant(x, use_per_token_if_dynamic=True)
        return ops.cutlass_scaled_mm(quantised, w, by_token, scale, torch.bfloat16)

    return [lambda w=w: call(w) for w in _fp8_weights(env, shape)]


def _torch_fp8(env, shape):
    """As vLLM's, with PyTorch alone: the quantisation is several kernels, which the label says."""
    torch = env.torch
    x = env.normal(shape["m"], shape["k"])
    one = torch.ones((), dtype=torch.float32, device=env.place)

    def call(w):
        scale = (x.abs().amax() / 448.0).float()
        quantised = (x / scale).to(torch.float8_e4m3fn)
        return torch._scaled_mm(quantised, w, scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)

    return [lambda w=w: call(w) for w in _fp8_weights(env, shape)]


def _vllm_quantise(env, shape):
    from vllm import _custom_ops as ops

    x = env.normal(shape["m"], shape["k"])
    scale = env.torch.ones((1,), dtype=env.torch.float32, device=env.place)
    return [lambda: ops.scaled_fp8_quant(x, scale)]
