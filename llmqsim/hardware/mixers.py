"""How layers look back on earlier tokens: their matrices, and what each keeps of a token or of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass

INDEX_SCALE_TOKENS = 128
"""elements of an 8-bit index key that share one float32 scale (DeepSeek sparse attention, from memory)"""


@dataclass(frozen=True)
class Projection:
    """A weight matrix of one layer. split : "out" by its outputs over tensor-parallel GPUs, "in" by its inputs, "whole"."""

    name: str
    outputs: int
    inputs: int
    split: str = "out"

    @property
    def parameters(self) -> int:
        """Elements of the matrix."""
        return self.outputs * self.inputs

    def shape(self, tp: int) -> tuple[int, int]:
        """(outputs, inputs) on each of `tp` GPUs."""
        outputs = self.outputs // tp if self.split == "out" else self.outputs
        return outputs, self.inputs // tp if self.split == "in" else self.inputs


@dataclass(frozen=True)
class Mixer:
    """Layers that mix tokens in the same way. Widths are of the whole layer, before tensor parallelism."""

    name: str
    """as a person says it: "attention", "gated delta net" """
    kind: str
    """"full", "window" and "chunked" keep keys and values of each token; "state" something of fixed size a request"""
    layers: int
    projections: tuple[Projection, ...]
    vectors: int = 0
    """other parameters of a layer: biases, norms, convolutions"""
    heads: int = 0
    """query heads, or those that a state is split by; 0: none"""
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    latent: int = 0
    """elements of the latent and rotary key that stand for keys and values; every GPU holds them whole"""
    index_bytes: int = 0
    """bytes of a token's index key (sparse attention), whole on every GPU"""
    window: int = 0
    shared: bool = False
    """these layers use the keys and values of others and keep none"""
    state_elements: int = 0
    """of a request's recurrent state"""
    state_width: int = 4
    """bytes of each of them"""
    conv_channels: int = 0
    conv_kernel: int = 0

    @property
    def parameters(self) -> int:
        """Of one layer."""
        return sum(one.parameters for one in self.projections) + self.vectors

    def heads_per_gpu(self, tp: int) -> int:
        """KV heads on each GPU: split, but at least one."""
        return max(1, self.kv_heads // tp)

    def kv_bytes(self, tp: int, width: int) -> int:
        """Bytes of one token in one layer on each GPU; width : bytes of an element."""
        if self.kind == "state" or self.shared:
            return 0
        if self.latent:
            return self.latent * width + self.index_bytes
        return self.heads_per_gpu(tp) * (self.key_dim + self.value_dim) * width + self.index_bytes

    def state_bytes(self, tp: int, drafted: int = 0, conv_width: int = 2) -> int:
        """Bytes of a request's state in one layer on each GPU.

        State x its type + conv channels x (kernel - 1 + drafted) x 2 bytes. drafted : speculative tokens of a step.
        """
        kept = max(0, self.conv_kernel - 1 + drafted) if self.conv_kernel else 0
        return math.ceil((self.state_elements * self.state_width + self.conv_channels * kept * conv_width) / tp)


def index_bytes(width: int) -> int:
    """Bytes of a token's index key of `width` elements: 8 bits each and a float32 scale for every 128."""
    return width + 4 * math.ceil(width / INDEX_SCALE_TOKENS)


def attention(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    key_dim: int,
    value_dim: int = 0,
    *,
    kind: str = "full",
    window: int = 0,
    gated: bool = False,
    one_matrix: bool = False,
    shared: bool = False,
    vectors: int = 0,
) -> Mixer:
    """Grouped-query attention. gated : queries bring an output gate as wide. one_matrix : keys are the values."""
    value_dim = value_dim or key_dim
    queries = heads * key_dim * (2 if gated else 1)
    values = 0 if one_matrix else kv_heads * value_dim
    rows = queries if shared else queries + kv_heads * key_dim + values
    return Mixer(
        "attention on others' KV" if shared else {"window": "windowed attention", "chunked": "chunked attention"}.get(kind, "attention"),
        kind,
        layers,
        (Projection("QKV", rows, hidden), Projection("attention output", hidden, heads * value_dim, "in")),
        vectors,
        heads=heads,
        kv_heads=kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        window=window,
        shared=shared,
    )  # fmt: skip


def latent_attention(layers: int, hidden: int, heads: int, ranks: tuple[int, int], dims: tuple[int, int, int]) -> Mixer:
    """DeepSeek's. ranks : (queries or 0, keys and values); dims : (without position, rotary, values) of a head."""
    query_rank, rank = ranks
    plain, rotary, value = dims
    down = query_rank + rank + rotary
    return Mixer(
        "latent attention",
        "full",
        layers,
        (
            Projection("latent down", down, hidden, "whole"),
            Projection("queries up", heads * (plain + rotary), query_rank or hidden),
            Projection("latent up", heads * (plain + value), rank),
            Projection("attention output", hidden, heads * value, "in"),
        ),
        query_rank + rank,
        heads=heads,
        kv_heads=1,
        key_dim=plain + rotary,
        value_dim=value,
        latent=rank + rotary,
    )


def gated_delta_net(
    layers: int, hidden: int, keys: tuple[int, int], values: tuple[int, int], kernel: int, width: int
) -> Mixer:
    """Qwen3-Next's. keys, values : (heads, size of one); width : bytes of a state's element."""
    key, value = keys[0] * keys[1], values[0] * values[1]
    return Mixer(
        "gated delta net",
        "state",
        layers,
        (
            Projection("linear QKV and gate", 2 * key + 2 * value, hidden),
            Projection("decay and beta", 2 * values[0], hidden),
            Projection("linear output", hidden, value, "in"),
        ),
        (2 * key + value) * kernel + 2 * values[0] + values[1],
        heads=values[0],
        state_elements=values[0] * values[1] * keys[1],
        state_width=width,
        conv_channels=2 * key + value,
        conv_kernel=kernel,
    )


def kimi_delta(layers: int, hidden: int, heads: int, size: int, kernel: int) -> Mixer:
    """Kimi Delta Attention: a decay for each channel; states in 32 bits."""
    wide = heads * size
    return Mixer(
        "Kimi delta attention",
        "state",
        layers,
        (
            Projection("linear QKV", 3 * wide, hidden),
            Projection("decay and gate, down", 2 * size, hidden, "whole"),
            Projection("decay and gate, up", 2 * wide, size),
            Projection("beta", heads, hidden),
            Projection("linear output", hidden, wide, "in"),
        ),
        3 * wide * kernel + heads + wide + size,
        heads=heads,
        state_elements=wide * size,
        conv_channels=3 * wide,
        conv_kernel=kernel,
    )


def lightning(layers: int, hidden: int, heads: int, size: int) -> Mixer:
    """MiniMax's: queries, keys, values and an output gate of the same width; states in 32 bits, no convolution."""
    wide = heads * size
    return Mixer(
        "lightning attention",
        "state",
        layers,
        (Projection("linear QKV and gate", 4 * wide, hidden), Projection("linear output", hidden, wide, "in")),
        wide,
        heads=heads,
        state_elements=wide * size,
    )


def mamba2(layers: int, hidden: int, heads: tuple[int, int], groups: int, state: int, kernel: int, width: int) -> Mixer:
    """heads : (number, size); state : its size for each channel; width : bytes of a state's element."""
    inner = heads[0] * heads[1]
    channels = inner + 2 * groups * state
    return Mixer(
        "Mamba-2",
        "state",
        layers,
        (
            Projection("state-space input", inner + channels + heads[0], hidden),
            Projection("state-space output", hidden, inner, "in"),
        ),
        channels * (kernel + 1) + 3 * heads[0] + inner,
        heads=heads[0],
        state_elements=inner * state,
        state_width=width,
        conv_channels=channels,
        conv_kernel=kernel,
    )


def mamba1(layers: int, hidden: int, inner: int, state: int, rank: int, kernel: int, width: int) -> Mixer:
    """inner : channels; rank : of the time step."""
    return Mixer(
        "Mamba",
        "state",
        layers,
        (
            Projection("state-space input", 2 * inner, hidden),
            Projection("state-space parameters", rank + 2 * state, inner, "in"),
            Projection("time step", inner, rank),
            Projection("state-space output", hidden, inner, "in"),
        ),
        inner * (kernel + 1) + inner + inner * state + inner,
        state_elements=inner * state,
        state_width=width,
        conv_channels=inner,
        conv_kernel=kernel,
    )


def short_convolution(layers: int, hidden: int, width: int, kernel: int) -> Mixer:
    """LFM2's: a gated convolution over the last `kernel` tokens; width : its channels."""
    return Mixer(
        "short convolution",
        "state",
        layers,
        (Projection("convolution input", 3 * width, hidden), Projection("convolution output", hidden, width, "in")),
        width * kernel,
        conv_channels=width,
        conv_kernel=kernel,
    )
