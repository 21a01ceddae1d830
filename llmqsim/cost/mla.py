"""Multi-head latent attention (DeepSeek): a physical form on the GPU's attention and GEMM rates, not fitted.

Decoding absorbs the up-projections into queries and outputs, so that all heads read one latent (and rotary key) per
token. Prefill expands the latent into keys and values of every head, also for tokens before the chunk, and is then
ordinary causal attention with keys of qk_nope + qk_rope and values of v_head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.cost.operators import DecodeAttention, Gemm, PrefillAttention
from llmqsim.hardware.model import Model


@dataclass(frozen=True)
class LatentAttention:
    """One layer on one GPU that has `heads` of the model's heads. kv_bytes : of one element of the cached latent."""

    model: Model
    heads: int
    decode: DecodeAttention
    prefill: PrefillAttention
    gemm: Gemm
    kv_bytes: int

    @property
    def latent(self) -> int:
        """Elements that a token caches in a layer."""
        return self.model.kv_lora_rank + self.model.qk_rope_head_dim

    def decode_work(self, batch, context):
        """(FLOPs, bytes moved): scores over the latent and rotary key, values over the latent."""
        batch, context = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        rows = np.maximum(context, self.decode.floor_tokens)
        width = self.latent + self.model.kv_lora_rank
        moved = batch * (self.kv_bytes * rows * self.latent + 2.0 * self.heads * width)
        return 2.0 * batch * rows * self.heads * width, moved

    def decode_seconds(self, batch, context):
        """Seconds of one layer. Arithmetic goes at the rate of prefill attention: with many heads it counts."""
        flops, moved = self.decode_work(batch, context)
        roofline = self.decode.roofline
        launch = roofline.t0_s + np.asarray(batch, dtype=np.float64) * self.decode.per_block_s
        return launch + np.maximum(flops / self.prefill.roofline.flops_per_s, moved / roofline.bytes_per_s)

    def prefill_shape(self) -> tuple[int, int, float, int]:
        """Heads, KV heads, mean of key and value size, and bytes, as PrefillAttention takes them."""
        mean = (self.model.head_dim + self.model.v_head_dim) / 2.0
        return self.heads, self.heads, mean, 2

    def prefill_busy_s(self, query, prefix):
        """Seconds of one layer for one chunk, without the launch, the expansion of its prefix included."""
        prefix = np.asarray(prefix, dtype=np.float64)
        width = self.heads * (self.model.qk_nope_head_dim + self.model.v_head_dim)
        rank = self.model.kv_lora_rank
        expansion = self.gemm.roofline.busy_s(2.0 * prefix * rank * width, 2.0 * prefix * (rank + width))
        return self.prefill.busy_s(query, prefix, *self.prefill_shape()) + expansion
