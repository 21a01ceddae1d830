"""Attention and states of models whose layers are not all alike, kind by kind, on one GPU.

A layer with a state of fixed size has no timings here. It is priced as the nearest that has: in decode as attention over
a window whose keys and values are as many bytes as the state read and written, in prefill as attention over a window
that needs as much arithmetic as a chunked scan (2 FLOPs an element of the state to read it, 2 to update it, and half as
much again inside a chunk; from memory).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmqsim.cost.linear import Matrix
from llmqsim.hardware.mixers import Mixer
from llmqsim.hardware.weights import linear_dtypes

if TYPE_CHECKING:
    from llmqsim.cost.layer import Layer

SCAN_SHARE = 1.5
"""arithmetic of a chunked scan, in units of reading and updating the state once a token"""
LEAST_WINDOW = 16
"""tokens; below it an attention kernel takes no less time"""


def matrices(layer: Layer) -> tuple[Matrix, ...]:
    """The weight matrices of all mixers on each GPU."""
    types, tp = linear_dtypes(layer.model), layer.tensor_parallel_size
    made = []
    for mixer in layer.model.mixers:
        dtype = types["states" if mixer.kind == "state" else "attention"]
        copies = 0
        if mixer.kind != "state" and not (mixer.latent or mixer.shared):
            copies = (mixer.heads_per_gpu(tp) * tp - mixer.kv_heads) * (mixer.key_dim + mixer.value_dim)
        for i, one in enumerate(mixer.projections):
            n, k = one.shape(tp)
            made.append(Matrix(one.name, n + (copies // tp if i == 0 else 0), k, mixer.layers, dtype))
    return tuple(made)


def extra_matrices(layer: Layer) -> tuple[Matrix, ...]:
    """What a step multiplies beside mixers and MLPs: indexers, embeddings of each layer, projections to a latent."""
    tp = layer.tensor_parallel_size
    return tuple(
        Matrix(part.name, n // tp if part.split == "tp" else n, k, layers, part.dtype)
        for part in layer.model.extra
        for n, k, layers in part.matrices
    )


def decode_seconds(layer: Layer, batch, context):
    """Seconds of one decode step of all mixers: `batch` requests of `context` tokens."""
    return sum(one.layers * decode_one(layer, one, batch, context) for one in layer.model.mixers)


def prefill_seconds(layer: Layer, query, prefix):
    """Seconds of one chunk in all mixers, without the launches."""
    return sum(one.layers * prefill_one(layer, one, query, prefix) for one in layer.model.mixers)


def decode_one(layer: Layer, mixer: Mixer, batch, context):
    """Seconds of one layer of a kind in a decode step."""
    if mixer.latent:
        return layer.latent_attention().decode_seconds(batch, context)
    window = decode_window(layer, mixer)
    return layer.kernels.decode.seconds(batch, context, *_shape(layer, mixer), **({"window": window} if window else {}))


def prefill_one(layer: Layer, mixer: Mixer, query, prefix):
    """Seconds of one layer of a kind for one chunk, without its launch."""
    if mixer.latent:
        return layer.latent_attention().prefill_busy_s(query, prefix)
    window = prefill_window(layer, mixer)
    return layer.kernels.prefill.busy_s(query, prefix, *_shape(layer, mixer), **({"window": window} if window else {}))


def decode_window(layer: Layer, mixer: Mixer) -> int:
    """Window of windowed attention; for a state that of the attention that moves as many bytes; 0: none."""
    if mixer.kind != "state":
        return mixer.window
    _, kv_heads, size, width = _shape(layer, mixer)
    moved = 2 * mixer.state_bytes(layer.tensor_parallel_size)
    return max(LEAST_WINDOW, round(moved / (2 * kv_heads * size * width)))


def prefill_window(layer: Layer, mixer: Mixer) -> int:
    """The same for prefill, where arithmetic counts."""
    if mixer.kind != "state":
        return mixer.window
    heads, _, size, _ = _shape(layer, mixer)
    elements = mixer.state_elements / layer.tensor_parallel_size
    return max(LEAST_WINDOW, round(SCAN_SHARE * elements / (heads * size)))


def _shape(layer: Layer, mixer: Mixer) -> tuple[int, int, int, int]:
    """(query heads, KV heads, head size, bytes of a KV element) on each GPU; for a state those of the model's attention."""
    tp, width = layer.tensor_parallel_size, layer.kernels.kv_bytes
    if mixer.kind == "state":
        return layer.heads, layer.kv_heads, layer.model.head_dim, width
    return mixer.heads // tp, mixer.heads_per_gpu(tp), (mixer.key_dim + mixer.value_dim) // 2, width
