"""Times of one deployment's kernels from the fitted configurations: shapes in, seconds out.

`Measured` picks, for each family, the configuration nearest to a GPU, a backend and a version, and prices shapes on the
GPU's own datasheet figures. All methods take arrays or numbers that broadcast and give float64 seconds of one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from llmqsim.cost.families import FAMILIES
from llmqsim.cost.forms import active_experts, causal_pairs
from llmqsim.cost.store import Fitted, Store, device_of, machine_of, shipped
from llmqsim.errors import InvariantError
from llmqsim.hardware.gpu import Gpu

EXPERT_LAUNCH_S = 1e-5
"""part of an expert layer that does not depend on how many experts are read (docs/cost_model.md)"""
LABELS = {
    "fp8": "fp8", "fp8_block": "fp8_block", "int8": "int8", "int4": "int4_wo", "int4_g32": "int4_wo", "mxfp4": "w4a16_mxfp4",
    "nvfp4": "nvfp4",
}  # fmt: skip
"""dtype labels of the kernel tables by weight dtype; every other weight is 16 bits wide"""

ENGINES = ("vllm", "sglang", "trtllm")
"""backends that are serving engines; others are libraries and profilers"""


@dataclass
class Measured:
    """Fitted kernels of one GPU under one backend version.

    used : family to the configuration that was taken, filled as families are asked for.
    """

    card: Gpu
    backend: str
    version: str
    store: Store = field(default_factory=shipped)
    instead: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """family to another (backend, version) to take it from"""
    used: dict[str, Fitted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._device, self._machine = device_of(self.card) or self.card.name, machine_of(self.card)

    def seconds(self, family: str, key: Mapping[str, object], shape: Mapping[str, object], dtype="bfloat16"):
        """Seconds of one call of a family.

        key : the family's own key columns. shape : its shape columns. dtype : label of the kernel tables.
        """
        own, wanted = FAMILIES[family], self._wanted(family, key, dtype)
        fitted = self.store.find(family, wanted)
        if fitted is None:
            raise InvariantError(f"{family}: nothing fitted like {wanted}")
        self.used.setdefault(family, fitted)
        arrays = np.broadcast_arrays(*(np.asarray(values, dtype=np.float64) for values in shape.values()))
        columns = own.columns(wanted, {name: values.ravel() for name, values in zip(shape, arrays, strict=True)})
        form = own.form(fitted.config).seconds(fitted.constants, columns, self._machine, dtype)
        blocks, place = _distinct(np.round(own.features(columns), 6))
        ratio = self.store.table(fitted).log_ratio(place, blocks, own.knots(columns))
        return (form * np.exp(ratio)).reshape(arrays[0].shape)

    def _wanted(self, family: str, key: Mapping[str, object], dtype: str) -> dict[str, object]:
        backend, version = self.instead.get(family, (self.backend, self.version))
        return {"gpu": self._device, "backend": backend, "backend_version": version, "dtype": dtype, **key}

    def launch_s(self, family: str, key: Mapping[str, object], dtype="bfloat16") -> float:
        """The launch time in the physical form of a family."""
        fitted = self.store.find(family, self._wanted(family, key, dtype))
        return float(fitted.constants["t0_s"]) if fitted else 0.0

    def gemm_seconds(self, m, n, k, weight_dtype: str = "bfloat16"):
        """Y[m, n] = X[m, k] W[k, n]; 8-bit weights include the quantisation of X.

        4-bit weights were not timed: the 16-bit fit with their bytes.
        """
        label = LABELS.get(weight_dtype, "bfloat16")
        m = np.maximum(np.asarray(m, dtype=np.float64), 1.0)
        return self.seconds("gemm", {"timing": "graph"}, {"m": m, "n": n, "k": k}, label)

    def prefill_seconds(self, query, prefix, heads, kv_heads, head_dim, kv_dtype="bfloat16", window=0, batch=1):
        """Causal attention of `query` tokens after `prefix` others.

        Only chunks without prefix were timed: a chunk on a prefix costs what the plain prefill of equal arithmetic
        does (with a window, too). The caller keeps it above the reading of its KV.
        """
        equal = plain_tokens(query, prefix, window)
        shape = {"batch": batch, "q_len": equal, "kv_len": equal, "num_heads": heads, "num_kv_heads": kv_heads}
        return self.seconds("prefill_attention", attention_key(kv_dtype, head_dim, window), shape)

    def decode_seconds(self, batch, context, heads, kv_heads, head_dim, kv_dtype="bfloat16", window=0):
        """One new token in each of `batch` requests of `context` tokens, the new one included."""
        history = np.maximum(np.asarray(context, dtype=np.float64) - 1.0, 0.0)
        batch = np.maximum(np.asarray(batch, dtype=np.float64), 1.0)
        shape = {"batch": batch, "kv_history": history, "num_heads": heads, "num_kv_heads": kv_heads}
        return self.seconds("decode_attention", attention_key(kv_dtype, head_dim, window), shape)

    def mla_prefill_seconds(self, query, prefix, heads, kv_dtype="bfloat16"):
        """Latent attention of a chunk at DeepSeek's geometry; a prefix counts as in `prefill_seconds`."""
        equal = plain_tokens(query, prefix)
        return self.seconds("mla_context", {"kv_dtype": kv_dtype}, {"batch": 1, "q_len": equal, "num_heads": heads})

    def mla_decode_seconds(self, batch, context, heads, kv_dtype="bfloat16"):
        """One new token a request over its latent KV."""
        history = np.maximum(np.asarray(context, dtype=np.float64) - 1.0, 0.0)
        shape = {"batch": np.maximum(batch, 1.0), "kv_history": history, "num_heads": heads}
        return self.seconds("mla_decode", {"kv_dtype": kv_dtype}, shape)

    def mla_projection_seconds(self, tokens, heads, which: str):
        """Absorbed projection before ('mla_gen_pre') or after ('mla_gen_post') latent decode attention."""
        shape = {"batch": np.maximum(tokens, 1.0), "num_heads": heads}
        return self.seconds("mla_projection", {"op": which}, shape)

    def moe_seconds(self, tokens, hidden, inter, topk, experts, tp=1, ep=1, weight_dtype: str = "bfloat16"):
        """The routed experts of one layer on one GPU; inter : of one expert, before tensor parallelism.

        Balanced timings touch min(E, n k) experts, random routing E (1 - (1 - k/E)^n): what depends on the experts
        read is scaled by the ratio (docs/cost_model.md). 8-bit timings that are slower than
        the 16-bit ones (untuned kernels) are screened: the 16-bit time holds there.
        """
        n = np.maximum(np.asarray(tokens, dtype=np.float64), 1.0)
        label = LABELS.get(weight_dtype, "bfloat16")
        layer = {"hidden": hidden, "inter": inter, "topk": topk, "num_experts": experts, "tp": tp, "ep": ep}
        balanced = {"distribution": "balanced"}
        timed = self.seconds("moe", balanced, {"num_tokens": n, **layer}, label)
        if label in ("fp8", "fp8_block"):
            timed = np.minimum(timed, self.seconds("moe", balanced, {"num_tokens": n, **layer}))
        share = active_experts(n, topk, experts, balanced=False) / active_experts(n, topk, experts)
        return np.where(timed > EXPERT_LAUNCH_S, EXPERT_LAUNCH_S + (timed - EXPERT_LAUNCH_S) * share, timed)

    def all_reduce_seconds(self, message_bytes, gpus, mode: str = "graph"):
        """Sum of a message over the GPUs of one node."""
        shape = {"num_gpus": gpus, "message_bytes": np.maximum(message_bytes, 1.0)}
        return self.seconds("collective", {"op": "all_reduce", "mode": mode, "nodes": 1}, shape)

    def errors(self) -> dict[str, dict[str, float]]:
        """Timings of each configuration used, and its error on held-out shapes (absent if none could be left out)."""
        return {
            family: {**(fitted.facts["held_out"] or {}), "rows": fitted.facts["rows"]}
            for family, fitted in self.used.items()
        }

    def engines(self) -> tuple[tuple[str, str], ...]:
        """(backend, version) of the configurations used that are kernels of a serving engine, each once."""
        found = ((str(one.config["backend"]), str(one.config["backend_version"])) for one in self.used.values())
        return tuple(dict.fromkeys(pair for pair in found if pair[0] in ENGINES))

    def notes(self) -> tuple[str, ...]:
        """One sentence for each configuration used: where measured, error on shapes it did not see."""
        return tuple(_note(family, fitted, self._device) for family, fitted in self.used.items())


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of a matrix in ascending order, and which of them each row is, int64[rows]."""
    if len(rows) and (rows == rows[0]).all():  # one weight matrix, one head configuration: nothing to sort
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    blocks, place = np.unique(rows, axis=0, return_inverse=True)
    return blocks, place.reshape(-1)


def plain_tokens(query, prefix, window: int = 0) -> np.ndarray:
    """Length (at least 1) of the prompt without prefix whose queries see as many keys in all."""
    query, prefix = np.broadcast_arrays(np.asarray(query, dtype=np.float64), np.asarray(prefix, dtype=np.float64))
    pairs = 2.0 * causal_pairs(query, query + prefix, window)
    equal = (np.sqrt(1.0 + 4.0 * pairs) - 1.0) / 2.0
    if window:
        # a prompt of t >= window tokens has window (window + 1) / 2 + (t - window) window pairs
        beyond = window + (pairs / 2.0 - window * (window + 1.0) / 2.0) / window
        equal = np.where(equal > window, beyond, equal)
    return np.maximum(equal, 1.0)


def attention_key(kv_dtype: str, head_dim: int, window: int) -> dict[str, object]:
    """The key columns of an attention configuration."""
    return {"kv_dtype": kv_dtype, "head_dim": head_dim, "window": window}


def _note(family: str, fitted: Fitted, device: str) -> str:
    config, error = fitted.config, fitted.facts["held_out"]
    borrowed = "" if config["gpu"] == device else f" (relative of {device})"
    text = f"{family}: {config['gpu']}{borrowed}, {config['backend']} {config['backend_version']}, {config['dtype']}"
    if error:
        text += f", held-out shapes {error['median_percent']:.1f}/{error['p90_percent']:.1f} % median/P90"
    return text
