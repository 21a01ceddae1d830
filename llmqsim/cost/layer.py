"""A transformer step as operators: which kernels run, on which shapes, how often.

Everything that depends on the number of tokens alone is a `LinearOp`; attention depends on contexts as well and the
LM head on the rows that are sampled, so they stand apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.cost import mixed
from llmqsim.cost.coefficients import Kernels
from llmqsim.cost.linear import LinearOp, Matrix
from llmqsim.cost.mla import LatentAttention
from llmqsim.cost.operators import Gemm
from llmqsim.cost.quantized import typed
from llmqsim.cost.tabled import TabledExperts
from llmqsim.hardware.model import Model
from llmqsim.hardware.weights import WEIGHT_BYTES, linear_dtypes

ELEMENTWISE_CALLS = 5
"""kernels of a layer: two fused add-and-norm, rotary embedding, KV write, activation (as vLLM fuses them)"""
SAMPLER_CALLS = 4
"""final norm, logits to float32, greedy or random choice, gather of the sampled ids"""
SAMPLER_BYTES_PER_LOGIT = 12
"""16-bit logit read, float32 written, read twice for the choice (greedy or temperature; no top-p or top-k sort)"""


@dataclass(frozen=True)
class Layer:
    """The shapes of one GPU's share of a model under tensor parallelism.

    With pipeline stages a step still is one batch through all layers, on one GPU of each stage in turn.
    """

    model: Model
    tensor_parallel_size: int
    kernels: Kernels
    pipeline_parallel_size: int = 1
    expert_parallel: bool = False
    data_parallel_size: int = 1
    """replicas that share one set of experts; the others are taken to bring as many tokens to each step"""

    @property
    def heads(self) -> int:
        """Query heads on each GPU."""
        return self.model.heads // self.tensor_parallel_size

    @property
    def kv_heads(self) -> int:
        """KV heads on each GPU."""
        return self.model.kv_heads_per_gpu(self.tensor_parallel_size)

    @property
    def intermediate(self) -> int:
        """MLP columns on each GPU."""
        return self.model.intermediate // self.tensor_parallel_size

    @property
    def vocab(self) -> int:
        """Rows of the LM head on each GPU."""
        return -(-self.model.vocab // self.tensor_parallel_size)

    def matrices(self) -> tuple[Matrix, ...]:
        """The weight matrices on each GPU, routed experts apart."""
        m, tp = self.model, self.tensor_parallel_size
        linear = linear_dtypes(m)["MLP"]
        made = [*self._attention_matrices()]
        if m.dense_mlp_layers:
            made += self._mlp("", self.intermediate, m.dense_mlp_layers, linear)
        if m.shared_intermediate:
            made += self._mlp("shared ", m.shared_intermediate // tp, m.moe_layers, linear)
        if m.wide_layers:
            made += self._mlp("wider ", self.intermediate, m.wide_layers, linear)
        if m.experts:
            made.append(Matrix("router", m.experts, m.hidden, m.moe_layers, "bfloat16"))
        return (*made, *mixed.extra_matrices(self))

    def _attention_matrices(self) -> tuple[Matrix, ...]:
        m, dtype = self.model, linear_dtypes(self.model)["attention"]
        if m.mixers:
            return mixed.matrices(self)
        width = self.heads * m.head_dim
        if m.kv_lora_rank:
            queries = m.q_lora_rank or m.hidden
            up = self.heads * (m.qk_nope_head_dim + m.v_head_dim)
            down = m.q_lora_rank + m.kv_lora_rank + m.qk_rope_head_dim
            return (
                Matrix("latent down", down, m.hidden, m.layers, dtype),
                Matrix("queries up", width, queries, m.layers, dtype),
                Matrix("latent up", up, m.kv_lora_rank, m.layers, dtype),
                Matrix("attention output", m.hidden, self.heads * m.v_head_dim, m.layers, dtype),
            )
        return (
            Matrix("QKV", width + 2 * self.kv_heads * m.head_dim, m.hidden, m.layers, dtype),
            Matrix("attention output", m.hidden, width, m.layers, dtype),
        )

    def _mlp(self, kind: str, width: int, layers: int, dtype: str) -> tuple[Matrix, ...]:
        m = self.model
        up = "gate and up" if m.gated else "up"
        return (
            Matrix(kind + up, (2 if m.gated else 1) * width, m.hidden, layers, dtype),
            Matrix(kind + "down", m.hidden, width, layers, dtype),
        )

    def elementwise_bytes_per_token(self) -> int:
        """Bytes that norms, rotary embedding, KV write and activation of a layer move for one token on each GPU.

        The activation is that of the mean layer; routed experts count their own.
        """
        m, width = self.model, self.heads * self.model.head_dim
        kv_width = self.kv_heads * m.head_dim
        norms = 2 * 4 * m.hidden
        rotary = 2 * (width + kv_width)
        kv_write = 2 * 2 * kv_width
        if m.kv_lora_rank:
            rotary = 2 * (self.heads + 1) * m.qk_rope_head_dim
            kv_write = 2 * (m.kv_lora_rank + m.qk_rope_head_dim)
        shared = m.shared_intermediate // self.tensor_parallel_size
        columns = (m.dense_mlp_layers * self.intermediate + m.moe_layers * shared) // m.layers
        return m.dtype_bytes * (norms + rotary + kv_write + (3 if m.gated else 2) * columns)

    def linear_ops(self) -> tuple[LinearOp, ...]:
        """Everything that depends on the tokens of a step alone, the whole model over."""
        ops = [self._gemm(matrix) for matrix in self.matrices()]
        if self.model.experts:
            ops.append(self._experts())
        if self.data_parallel_size > 1:
            ops.append(self._exchange())
        ops.append(self._elementwise())
        if self.tensor_parallel_size > 1:
            ops.append(self._all_reduce())
        if self.pipeline_parallel_size > 1:
            ops.append(self._send())
        return tuple(ops)

    def linear_seconds(self, tokens: np.ndarray) -> np.ndarray:
        """Seconds of all linear operators for an array of tokens in a step, sustained-load slow-down included."""
        total = sum(op.calls * op.seconds(tokens) for op in self.linear_ops())
        return total * self.derate(tokens)

    def derate(self, tokens: np.ndarray) -> np.ndarray:
        """Factor >= 1 on the linear operators, growing with the logarithm of the tokens."""
        rule = self.kernels.derate
        ramp = np.log(np.maximum(tokens, 1) / rule.start_tokens) / np.log(rule.full_tokens / rule.start_tokens)
        return 1.0 + rule.share * np.clip(ramp, 0.0, 1.0)

    def decode_seconds(self, batch, context) -> np.ndarray:
        """Seconds of decode attention in all layers: `batch` requests of `context` tokens."""
        k, m = self.kernels, self.model
        if m.mixers:
            return mixed.decode_seconds(self, batch, context)
        if m.kv_lora_rank:
            return m.layers * self.latent_attention().decode_seconds(batch, context)
        shape = (self.heads, self.kv_heads, m.head_dim, k.kv_bytes)
        seconds = (m.layers - m.windowed_layers) * k.decode.seconds(batch, context, *shape)
        if m.windowed_layers:
            seconds = seconds + m.windowed_layers * k.decode.seconds(batch, context, *shape, window=m.sliding_window)
        return seconds

    def prefill_seconds(self, query, prefix) -> np.ndarray:
        """Seconds of prefill attention in all layers for one chunk, without the launches."""
        k, m = self.kernels, self.model
        if m.mixers:
            return mixed.prefill_seconds(self, query, prefix)
        if m.kv_lora_rank:
            return m.layers * self.latent_attention().prefill_busy_s(query, prefix)
        shape = (self.heads, self.kv_heads, m.head_dim, k.kv_bytes)
        seconds = (m.layers - m.windowed_layers) * k.prefill.busy_s(query, prefix, *shape)
        if m.windowed_layers:
            seconds = seconds + m.windowed_layers * k.prefill.busy_s(query, prefix, *shape, window=m.sliding_window)
        return seconds

    def latent_attention(self) -> LatentAttention:
        """One layer's multi-head latent attention on one GPU."""
        k = self.kernels
        return LatentAttention(self.model, self.heads, k.decode, k.prefill, k.gemm, k.kv_bytes)

    def windowed_prefix(self, query, prefix) -> np.ndarray:
        """Prefix after which a chunk without window sees as many keys as this one does through the window.

        It may be negative: then the chunk itself is longer than twice the window.
        """
        query, prefix = np.asarray(query, dtype=np.float64), np.asarray(prefix, dtype=np.float64)
        near = np.clip(self.model.sliding_window - prefix, 0.0, query)  # tokens that the window does not cut
        keys = near * (prefix + near / 2.0) + (query - near) * self.model.sliding_window
        return np.divide(keys, query, out=np.zeros(np.broadcast(query, prefix).shape), where=query > 0) - query / 2.0

    def prefill_launch_seconds(self) -> float:
        """Seconds of launching prefill attention in all layers, once for all chunks of a step."""
        return self.model.layers * self.kernels.prefill.roofline.t0_s

    def head_seconds(self, rows) -> np.ndarray:
        """Seconds of LM head and sampler for an array of sampled rows; no rows, no time."""
        rows = np.asarray(rows, dtype=np.float64)
        logits = self.kernels.gemm.seconds(rows, self.vocab, self.model.hidden)
        moved = rows * self.vocab * SAMPLER_BYTES_PER_LOGIT
        # The GPUs' logits are gathered, which moves half of what an all-reduce of the same message does.
        gathering = self.kernels.all_reduce.seconds(
            rows * self.model.vocab * self.model.dtype_bytes, self.tensor_parallel_size
        )
        sampler = self.kernels.elementwise.seconds(SAMPLER_CALLS, moved)
        return np.where(rows > 0, logits + sampler + gathering / 2, 0.0)

    def gemm(self, dtype: str) -> Gemm:
        """The GEMM for weights of a type."""
        if dtype == "bfloat16":
            return self.kernels.gemm
        return self.kernels.gemm.with_weights(dtype, typed(self.kernels.gemm, dtype, self.kernels.eight_bit_speedup))

    def _gemm(self, matrix: Matrix) -> LinearOp:
        gemm, n, k = self.gemm(matrix.dtype), matrix.n, matrix.k
        kind = "" if matrix.dtype == "bfloat16" else f" {matrix.dtype}"
        return LinearOp(
            matrix.name,
            matrix.layers,
            lambda tokens: gemm.seconds(tokens, n, k),
            lambda tokens: f"[{tokens} x {k}] x [{k} x {n}]{kind}: {gemm.formula(tokens, n, k)}",
            lambda tokens: gemm.work(tokens, n, k),
        )

    def _experts(self) -> LinearOp:
        m = self.model
        experts = TabledExperts(
            self.gemm(m.weight_dtype),
            WEIGHT_BYTES[m.weight_dtype],
            m.expert_hidden or m.hidden,
            m.moe_intermediate,
            m.experts,
            m.experts_per_token,
            self.tensor_parallel_size * self.data_parallel_size,
            self.expert_parallel,
            3 if m.gated else 2,
            self.kernels.measured,
            m.weight_dtype,
        )
        all_of = self.data_parallel_size
        return LinearOp(
            "routed experts",
            m.moe_layers,
            lambda tokens: experts.seconds(all_of * np.asarray(tokens)),
            lambda tokens: experts.formula(all_of * tokens),
            lambda tokens: experts.work(all_of * tokens),
        )

    def _exchange(self) -> LinearOp:
        """Tokens of all replicas to the GPUs of their experts and back: an all-gather and a reduce-scatter, together as
        much as an all-reduce of them all.
        """
        kernel, replicas = self.kernels.all_reduce, self.data_parallel_size
        per_token = self.model.dtype_bytes * self.model.hidden * replicas
        return LinearOp(
            "exchange between replicas",
            self.model.moe_layers,
            lambda tokens: kernel.seconds(np.asarray(tokens, dtype=np.float64) * per_token, replicas),
            lambda tokens: f"{tokens} x {per_token:,} B gathered and scattered over {replicas} replicas",
            lambda tokens: (None, tokens * per_token),
        )

    def _elementwise(self) -> LinearOp:
        kernel, per_token = self.kernels.elementwise, self.elementwise_bytes_per_token()
        return LinearOp(
            "norms, rotary, KV write, activation",
            self.model.layers,
            lambda tokens: kernel.seconds(ELEMENTWISE_CALLS, np.asarray(tokens, dtype=np.float64) * per_token),
            lambda tokens: f"{ELEMENTWISE_CALLS} kernels x {kernel.roofline.t0_s * 1e6:.1f} us + "
            f"{tokens} x {per_token:,} B / {kernel.roofline.bytes_per_s:.3g}",
            lambda tokens: (None, tokens * per_token),
        )

    def _all_reduce(self) -> LinearOp:
        kernel, gpus = self.kernels.all_reduce, self.tensor_parallel_size
        per_token = self.model.dtype_bytes * self.model.hidden
        return LinearOp(
            "all-reduce",
            2 * self.model.layers,
            lambda tokens: kernel.seconds(np.asarray(tokens, dtype=np.float64) * per_token, gpus),
            lambda tokens: f"{tokens} x {per_token:,} B summed over {gpus} GPUs",
            lambda tokens: (None, tokens * per_token),
        )

    def _send(self) -> LinearOp:
        """Hidden state and residual from each stage to the next, over the same link as the all-reduce."""
        link = self.kernels.all_reduce.library
        per_token = 2 * self.model.dtype_bytes * self.model.hidden
        return LinearOp(
            "send to the next stage",
            self.pipeline_parallel_size - 1,
            lambda tokens: link.seconds(0.0, np.asarray(tokens, dtype=np.float64) * per_token),
            lambda tokens: f"{link.t0_s * 1e6:.1f} us + {tokens} x {per_token:,} B / {link.bytes_per_s:.3g}",
            lambda tokens: (None, tokens * per_token),
        )
