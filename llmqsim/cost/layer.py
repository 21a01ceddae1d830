"""A transformer step as operators: which kernels run, on which shapes, how often.

Everything that depends on the number of tokens alone is a `LinearOp`; attention depends on contexts as well and the
LM head on the rows that are sampled, so they stand apart. Dense models only; experts will be further operators here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from llmqsim.cost.coefficients import Kernels
from llmqsim.hardware.model import Model

ELEMENTWISE_CALLS = 5
"""kernels of a layer: two fused add-and-norm, rotary embedding, KV write, activation (as vLLM fuses them)"""
SAMPLER_CALLS = 4
"""final norm, logits to float32, greedy or random choice, gather of the sampled ids"""
SAMPLER_BYTES_PER_LOGIT = 12
"""16-bit logit read, float32 written, read twice for the choice (greedy or temperature; no top-p or top-k sort)"""


@dataclass(frozen=True)
class LinearOp:
    """An operator whose time depends on the tokens n of a step alone. `calls` is how often it runs in a step."""

    name: str
    calls: int
    seconds: Callable[[np.ndarray], np.ndarray]
    """seconds of one call for an array of token counts"""
    formula: Callable[[int], str]
    """shape and formula of one call with the numbers of n tokens filled in"""


@dataclass(frozen=True)
class Layer:
    """The shapes of one GPU's share of a model under tensor parallelism."""

    model: Model
    tensor_parallel_size: int
    kernels: Kernels

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

    def matrices(self) -> tuple[tuple[str, int, int], ...]:
        """(name, n, k) of the weight matrices of a layer on each GPU: Y[m, n] = X[m, k] W[k, n]."""
        width = self.heads * self.model.head_dim
        kv_width = self.kv_heads * self.model.head_dim
        up = "gate and up" if self.model.gated else "up"
        return (
            ("QKV", width + 2 * kv_width, self.model.hidden),
            ("attention output", self.model.hidden, width),
            (up, (2 if self.model.gated else 1) * self.intermediate, self.model.hidden),
            ("down", self.model.hidden, self.intermediate),
        )

    def elementwise_bytes_per_token(self) -> int:
        """Bytes that norms, rotary embedding, KV write and activation of a layer move for one token on each GPU."""
        hidden, width = self.model.hidden, self.heads * self.model.head_dim
        kv_width = self.kv_heads * self.model.head_dim
        norms = 2 * 4 * hidden
        rotary = 2 * (width + kv_width)
        kv_write = 2 * 2 * kv_width
        activation = (3 if self.model.gated else 2) * self.intermediate
        return self.model.dtype_bytes * (norms + rotary + kv_write + activation)

    def linear_ops(self) -> tuple[LinearOp, ...]:
        """Everything that depends on the tokens of a step alone, the whole model over."""
        ops = [self._gemm(*matrix) for matrix in self.matrices()]
        ops.append(self._elementwise())
        if self.tensor_parallel_size > 1:
            ops.append(self._all_reduce())
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
        k = self.kernels
        one = k.decode.seconds(batch, context, self.heads, self.kv_heads, self.model.head_dim, k.kv_bytes)
        return self.model.layers * one

    def prefill_seconds(self, query, prefix) -> np.ndarray:
        """Seconds of prefill attention in all layers for one chunk, without the launches."""
        k = self.kernels
        one = k.prefill.busy_s(query, prefix, self.heads, self.kv_heads, self.model.head_dim, k.kv_bytes)
        return self.model.layers * one

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

    def _gemm(self, name: str, n: int, k: int) -> LinearOp:
        gemm = self.kernels.gemm
        return LinearOp(
            name,
            self.model.layers,
            lambda tokens: gemm.seconds(tokens, n, k),
            lambda tokens: f"[{tokens} x {k}] x [{k} x {n}]: {gemm.roofline.formula(*gemm.work(tokens, n, k))}",
        )

    def _elementwise(self) -> LinearOp:
        kernel, per_token = self.kernels.elementwise, self.elementwise_bytes_per_token()
        return LinearOp(
            "norms, rotary, KV write, activation",
            self.model.layers,
            lambda tokens: kernel.seconds(ELEMENTWISE_CALLS, np.asarray(tokens, dtype=np.float64) * per_token),
            lambda tokens: f"{ELEMENTWISE_CALLS} kernels x {kernel.roofline.t0_s * 1e6:.1f} us + "
            f"{tokens} x {per_token:,} B / {kernel.roofline.bytes_per_s:.3g}",
        )

    def _all_reduce(self) -> LinearOp:
        kernel, gpus = self.kernels.all_reduce, self.tensor_parallel_size
        per_token = self.model.dtype_bytes * self.model.hidden
        return LinearOp(
            "all-reduce",
            2 * self.model.layers,
            lambda tokens: kernel.seconds(np.asarray(tokens, dtype=np.float64) * per_token, gpus),
            lambda tokens: f"{tokens} x {per_token:,} B summed over {gpus} GPUs",
        )
