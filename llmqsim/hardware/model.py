"""Models as the dimensions of a decoder-only transformer, from which bytes and FLOPs follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmqsim.hardware.data import find, read_preset


KV_DTYPE_BYTES = {"bfloat16": 2, "fp8": 1}


@dataclass(frozen=True)
class Model:
    """A dense decoder-only transformer. Names follow the field's usage; counts are of the whole model, before TP."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_position_embeddings: int
    """longest sequence (prompt and answer), tokens"""
    gated: bool
    """the MLP has a gate matrix beside its up matrix (SwiGLU)"""
    tied_embeddings: bool
    """the LM head is the embedding matrix, stored once"""
    dtype_bytes: int = 2
    """bytes of a weight"""
    norm_vectors: int = 1
    """parameters of a norm per hidden dimension: 1 RMSNorm, 2 LayerNorm (scale and shift)"""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over the head dimension of queries and keys (Qwen3)"""
    position_rows: int = 0
    """rows of a learned position embedding; 0: rotary"""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """field name to where its value comes from"""

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all KV heads together (of the keys; the values have as much again)."""
        return self.kv_heads * self.head_dim

    def layer_matrix_parameters(self) -> int:
        """Weights and biases of one layer that tensor parallelism splits."""
        qkv = (self.hidden + self.qkv_bias) * (self.query_width + 2 * self.kv_width)
        output = (self.query_width + self.output_bias) * self.hidden
        ups = (2 if self.gated else 1) * (self.hidden + self.mlp_bias) * self.intermediate
        down = (self.intermediate + self.mlp_bias) * self.hidden
        return qkv + output + ups + down

    def norm_parameters(self) -> int:
        """Parameters of all norms: two a layer, a final one, and those of queries and keys where there are any."""
        per_layer = 2 * self.norm_vectors * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        return self.layers * per_layer + self.norm_vectors * self.hidden

    @property
    def embedding_matrices(self) -> int:
        """Matrices of vocabulary x hidden: embedding and LM head, one when tied."""
        return 1 if self.tied_embeddings else 2

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        embeddings = (self.embedding_matrices * self.vocab + self.position_rows) * self.hidden
        return self.layers * self.layer_matrix_parameters() + self.norm_parameters() + embeddings

    def weight_bytes(self, tensor_parallel_size: int = 1) -> int:
        """Bytes of weights on each GPU.

        Matrices, embedding and LM head are split, with KV heads copied where there are fewer than GPUs; norms and
        position embeddings are whole on each.
        """
        tp = tensor_parallel_size
        copies = self.kv_heads_per_gpu(tp) * tp - self.kv_heads
        copied = 2 * copies * self.head_dim * (self.hidden + self.qkv_bias)
        split = self.layers * (self.layer_matrix_parameters() + copied)
        split += self.embedding_matrices * self.vocab * self.hidden
        whole = self.norm_parameters() + self.position_rows * self.hidden
        return self.dtype_bytes * (-(-split // tp) + whole)

    def kv_heads_per_gpu(self, tensor_parallel_size: int) -> int:
        """KV heads on each GPU: split, but at least one (vLLM copies them beyond that)."""
        return max(1, self.kv_heads // tensor_parallel_size)

    def kv_dtype_bytes(self, kv_cache_dtype: str) -> int:
        """Bytes of one KV element under vLLM's `kv_cache_dtype`: 'auto' is as wide as the weights."""
        return self.dtype_bytes if kv_cache_dtype == "auto" else KV_DTYPE_BYTES[kv_cache_dtype]

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        """KV cache of one token in the whole model: 2 (key and value) x layers x KV heads x head size x bytes."""
        return 2 * self.layers * self.kv_width * dtype_bytes

    def tensor_parallel_fault(self, tensor_parallel_size: int) -> str | None:
        """Why the model can't be split over so many GPUs (a sentence), or None when it can."""
        tp = tensor_parallel_size
        for count, what in ((self.heads, "attention heads"), (self.intermediate, "MLP columns")):
            if count % tp:
                return f"{count} {what} of {self.name} can't be split evenly over {tp} GPUs (got {tp})"
        if self.kv_heads % tp and tp % self.kv_heads:
            return f"{self.kv_heads} KV heads of {self.name} can be neither split nor copied evenly (got {tp})"
        return None


def model_names() -> tuple[str, ...]:
    """All model presets, sorted."""
    return tuple(sorted(read_preset("models.yaml")["models"]))


def model(name: str) -> Model:
    """The model preset called `name` (a Hugging Face id or any case will do). Raises ScenarioError when unknown."""
    from llmqsim.hardware.hf_config import from_mapping

    entries = read_preset("models.yaml")["models"]
    key = find("model", name, entries)
    return from_mapping(entries[key]["config"], name=key, source=entries[key]["source"])
