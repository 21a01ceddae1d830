"""Models as the dimensions of a decoder-only transformer, from which bytes and FLOPs follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llmqsim.errors import ScenarioError
from llmqsim.hardware import weights
from llmqsim.hardware.data import find, read_preset
from llmqsim.hardware.hf_unmodelled import FAMILY, TOWER, Unmodelled
from llmqsim.hardware.mixers import Mixer, index_bytes
from llmqsim.hardware.towers import Tower

KV_DTYPE_BYTES = {"bfloat16": 2, "fp8": 1}


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer. Names follow the field's usage; counts are of the whole model, before TP."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    """of queries and keys; with latent attention qk_nope_head_dim + qk_rope_head_dim"""
    intermediate: int
    """columns of a dense MLP"""
    vocab: int
    max_position_embeddings: int
    """longest sequence (prompt and answer), tokens"""
    gated: bool
    """the MLP has a gate matrix beside its up matrix (SwiGLU)"""
    tied_embeddings: bool
    """the LM head is the embedding matrix, stored once"""
    dtype_bytes: int = 2
    """bytes of an activation, and of a weight that is not quantised"""
    norm_vectors: int = 1
    """parameters of a norm per hidden dimension: 1 RMSNorm, 2 LayerNorm (scale and shift)"""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over the head dimension of queries and keys (Qwen3)"""
    position_rows: int = 0
    """rows of a learned position embedding; 0: rotary"""
    weight_dtype: str = "bfloat16"
    """of the matrices in the layers: bfloat16 (stands for float16, too), fp8, fp8_block, int4, mxfp4 (experts alone)"""
    attention_dtype: str = ""
    """of the attention matrices where it differs from weight_dtype"""
    experts: int = 0
    """routed experts of a layer; 0: dense"""
    experts_per_token: int = 0
    moe_intermediate: int = 0
    """columns of one routed expert"""
    shared_intermediate: int = 0
    """columns of all shared experts of a layer together"""
    dense_layers: int = 0
    """layers of a mixture-of-experts model whose MLP is dense (the first ones, in DeepSeek)"""
    router_bias: bool = False
    shared_gate: bool = False
    """the shared expert's output is gated by one more column (Qwen2-MoE)"""
    kv_lora_rank: int = 0
    """width of the latent that multi-head latent attention caches; 0: keys and values are cached"""
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    """of values; 0: as head_dim"""
    sliding_window: int = 0
    """tokens that a windowed layer attends to; 0: none is windowed"""
    windowed_layers: int = 0
    attention_sinks: bool = False
    """one learned logit a head (gpt-oss)"""
    top_p_sampling: bool = False
    """the published generation defaults switch top-p or top-k on, so that each step sorts the vocabulary"""
    vision_bytes: int = 0
    """taken on each GPU by what is not the language model (vision tower, its share of the start-up profile)"""
    linear_dtype: str = ""
    """of dense and shared MLPs where it differs from weight_dtype"""
    state_dtype: str = ""
    """of the matrices of layers with states where it differs from weight_dtype"""
    mixers: tuple[Mixer, ...] = ()
    """kinds of layers where they are not all attention with the heads above, with or without a window"""
    bare_layers: int = 0
    """layers that mix tokens and have no MLP"""
    wide_layers: int = 0
    """layers whose dense MLP is twice as wide as `intermediate`"""
    expert_hidden: int = 0
    """width at which routed experts read and write where it is not `hidden`"""
    index_width: int = 0
    """of an index key of sparse attention; 0: none"""
    index_heads: int = 0
    index_layers: int = 0
    towers: tuple[Tower, ...] = ()
    """beside the language model; their weights are in `extra`"""
    extra: tuple[weights.Part, ...] = ()
    """weights beside embedding, layers and head: towers, embeddings of each layer, indexers"""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """field name to where its value comes from"""
    unmodelled: tuple[Unmodelled, ...] = field(default=(), compare=False)
    """what its config.json says and is not modelled"""

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all KV heads together (of the keys; the values have as much again)."""
        return self.kv_heads * self.head_dim

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def dense_mlp_layers(self) -> int:
        """Layers with a dense MLP."""
        return self.layers - self.moe_layers - self.bare_layers

    def attention_parameters(self) -> int:
        """Weights and biases of one layer's attention that tensor parallelism splits."""
        sinks = self.heads if self.attention_sinks else 0
        if self.kv_lora_rank:
            queries = (self.q_lora_rank or self.hidden) * self.query_width
            up = self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
            return queries + up + self.heads * self.v_head_dim * self.hidden + sinks
        qkv = (self.hidden + self.qkv_bias) * (self.query_width + 2 * self.kv_width)
        return qkv + (self.query_width + self.output_bias) * self.hidden + sinks

    def norm_parameters(self) -> int:
        """Parameters of all norms: two a layer, a final one, and those of queries, keys and latents if any."""
        per_layer = 2 * self.norm_vectors * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        per_layer += self.kv_lora_rank + self.q_lora_rank
        return self.layers * per_layer + self.norm_vectors * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole language model."""
        return sum(part.parameters for part in weights.parts(self))

    @property
    def active_parameters(self) -> int:
        """Parameters without the experts that a token does not visit; the embedding counts in full."""
        idle = self.moe_layers * (self.experts - self.experts_per_token) * weights.expert(self)
        return self.parameters - idle

    def weight_bytes(
        self, tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1, data_parallel_size: int = 1
    ) -> int:
        """Bytes of weights on the fullest GPU.

        Matrices, embedding and LM head are split, with KV heads copied where there are fewer than GPUs; norms, routers,
        MLA's down-projections and position embeddings are whole on each. Expert parallelism places whole experts where
        tensor parallelism splits each: the bytes are the same; data_parallel_size replicas share them. Pipeline stages hold equal numbers of layers.
        """
        return weights.bytes_per_gpu(self, tensor_parallel_size, pipeline_parallel_size, data_parallel_size)

    def kv_heads_per_gpu(self, tensor_parallel_size: int) -> int:
        """KV heads on each GPU: split, but at least one (vLLM copies them beyond that)."""
        return max(1, self.kv_heads // tensor_parallel_size)

    def kv_dtype_bytes(self, kv_cache_dtype: str) -> int:
        """Bytes of one KV element under vLLM's `kv_cache_dtype`: 'auto' is as wide as the activations."""
        return self.dtype_bytes if kv_cache_dtype == "auto" else KV_DTYPE_BYTES[kv_cache_dtype]

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        """KV cache of one token in the whole model, no window applied; states don't grow and are not in it.

        2 (key and value) x layers x KV heads x head size x bytes; with latent attention layers x (latent + rotary key)
        x bytes, which every GPU holds whole; index keys of sparse attention come on top.
        """
        if self.mixers:
            return sum(one.layers * one.kv_bytes(1, dtype_bytes) for one in self.mixers) + self._index_bytes()
        if self.kv_lora_rank:
            return self.layers * (self.kv_lora_rank + self.qk_rope_head_dim) * dtype_bytes + self._index_bytes()
        return 2 * self.layers * self.kv_width * dtype_bytes + self._index_bytes()

    def kv_bytes_per_token_per_gpu(self, tensor_parallel_size: int, dtype_bytes: int = 2) -> int:
        """The same on each GPU of a tensor-parallel group: KV heads are split, latents and index keys are not."""
        if self.mixers:
            tp = tensor_parallel_size
            return sum(one.layers * one.kv_bytes(tp, dtype_bytes) for one in self.mixers) + self._index_bytes()
        if self.kv_lora_rank:
            return self.kv_bytes_per_token(dtype_bytes)
        heads = self.kv_heads_per_gpu(tensor_parallel_size)
        return 2 * self.layers * heads * self.head_dim * dtype_bytes + self._index_bytes()

    def _index_bytes(self) -> int:
        """Bytes of a token's index keys, whole on every GPU."""
        return self.index_layers * index_bytes(self.index_width)

    def tensor_parallel_fault(self, tensor_parallel_size: int) -> str | None:
        """Why the model can't be split over so many GPUs (a sentence), or None when it can."""
        tp = tensor_parallel_size
        counts = [(self.heads, "attention heads")]
        counts += [(self.intermediate, "MLP columns")] if self.dense_mlp_layers else []
        counts += [(self.shared_intermediate, "shared-expert columns")] if self.shared_intermediate else []
        for count, what in counts:
            if count % tp:
                return f"{count} {what} of {self.name} can't be split evenly over {tp} GPUs (got {tp})"
        for one in self.mixers:
            for count in (one.heads, one.conv_channels):
                if count % tp:
                    what = f"{count} heads or channels ({one.name}) of {self.name}"
                    return f"{what} can't be split evenly over {tp} GPUs (got {tp})"
            if one.kv_heads and not one.latent and one.kv_heads % tp and tp % one.kv_heads:
                what = f"{one.kv_heads} KV heads ({one.name}) of {self.name}"
                return f"{what} can be neither split nor copied evenly (got {tp})"
        if not self.kv_lora_rank and self.kv_heads % tp and tp % self.kv_heads:
            return f"{self.kv_heads} KV heads of {self.name} can be neither split nor copied evenly (got {tp})"
        return None

    def parallel_faults(self, tp: int, pp: int, expert_parallel: bool) -> dict[str, str]:
        """Scenario key to why the model can't be spread that way (a sentence); empty when it can."""
        faults = {}
        if fault := self.tensor_parallel_fault(tp):
            faults["tensor_parallel_size"] = fault
        if expert_parallel and not self.experts:
            faults["engine.enable_expert_parallel"] = f"{self.name} has no experts (got true); leave it out"
        elif expert_parallel and self.experts % tp:
            faults["engine.enable_expert_parallel"] = (
                f"{self.experts} experts of {self.name} can't be spread evenly over {tp} GPUs (got true with "
                f"tensor_parallel_size {tp})"
            )
        elif self.experts and not expert_parallel and self.moe_intermediate % tp:
            faults.setdefault(
                "tensor_parallel_size",
                f"{self.moe_intermediate} columns of an expert of {self.name} can't be split evenly over {tp} GPUs "
                f"(got {tp}); engine.enable_expert_parallel places whole experts",
            )
        if self.layers % pp:
            faults["pipeline_parallel_size"] = (
                f"{self.layers} layers of {self.name} can't be split evenly into {pp} stages (got {pp})"
            )
        return faults

    def quantized(self, weight_dtype: str) -> Model:
        """The same model with its weights in another type."""
        origin = {**self.sources, "weight_dtype": "engine.quantization"}
        told = tuple(one for one in self.unmodelled if one.key != "quantization_config")
        return replace(
            self, weight_dtype=weight_dtype, attention_dtype="", linear_dtype="", state_dtype="", sources=origin, unmodelled=told
        )


def model_names() -> tuple[str, ...]:
    """All model presets, sorted."""
    return tuple(sorted(read_preset("models.yaml")["models"]))


def model(name: str) -> Model:
    """The model preset called `name` (a Hugging Face id or any case will do). Raises ScenarioError when unknown."""
    from llmqsim.hardware.hf_config import from_mapping

    entries = read_preset("models.yaml")["models"]
    if name.lower().endswith(".json"):
        raise ScenarioError(f"model: is the name of a file and of no preset (got '{name}'); write {{config: {name}}}")
    key = find("model", name, entries, starts=True)
    entry = entries[key]
    made = from_mapping(entry["config"], name=key, source=entry["source"], settled=True)
    settled = {FAMILY, *([TOWER] if "vision_bytes" in entry else [])}  # by who wrote the preset
    return replace(
        made,
        top_p_sampling=entry.get("top_p_sampling", False),
        vision_bytes=entry.get("vision_bytes", 0),
        unmodelled=tuple(one for one in made.unmodelled if one.key not in settled),
    )
