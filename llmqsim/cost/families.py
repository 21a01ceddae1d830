"""The kernel families: which table they are timed in, what makes a configuration, a block and a knot, and their form.

A configuration (GPU, backend, version, dtype and what else is never pooled) has one set of constants and one residual
table. `columns` turns the shape columns of a kernel table into what the form, the blocks and the knots need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from llmqsim.cost import forms
from llmqsim.cost.forms import Form
from llmqsim.cost.residual import Smoothness

GRID = Smoothness((4.0, 4.0), (((1.0, 0.0), 4.0, 1.0), ((0.0, 1.0), 4.0, 1.0), ((1.0, 1.0), 4.0, 1.0)), 0.01)
"""how log residuals vary over a grid of batch and length, both in octaves; fills what was not measured"""
PREFILL_GRID = Smoothness((5.0, 2.0), (((1.0, 0.0), 27.0, 1.4), ((0.0, 1.0), 5.0, 0.3), ((1.0, 1.0), 4.0, 0.4)), 0.02)
"""the same for prefill: lengths change kernels sooner than batches do"""
KEY = ("gpu", "backend", "backend_version", "dtype")
"""columns that every configuration is told apart by; versions and backends are never pooled"""


@dataclass(frozen=True)
class Family:
    """One kernel family; see the module's docstring."""

    name: str
    table: str
    """file name of its kernel table without suffix"""
    ops: tuple[str, ...]
    shape: tuple[str, ...]
    """shape columns of the table"""
    form: Callable[[Mapping[str, object]], Form]
    """the physical form of a configuration"""
    block: Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, ...]]
    """coordinates of the block of each row; features are their base-2 logarithms"""
    knots: Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, ...]]
    """coordinates of each row on the knot axes"""
    smoothness: Smoothness
    key: tuple[str, ...] = ()
    """columns beside KEY and `kernel` that tell configurations apart"""
    penalty: Mapping[str, float] = field(default_factory=dict)
    """how far a configuration with another value of such a column is from the wanted one; see cost/store.py"""
    inner: Smoothness = GRID
    """the same over a block's own grid, where knots have two axes"""
    most_knots: int = 96
    """measured values on an axis beyond which neighbours are merged into one knot"""

    def columns(self, config: Mapping[str, object], shape: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Shape columns as float64, with the configuration's numbers beside them."""
        some = next(iter(shape.values()))
        out = {name: np.asarray(values, dtype=np.float64) for name, values in shape.items()}
        for name in self.key:
            if isinstance(config[name], (int, float)):
                out[name] = np.full(len(some), float(config[name]))
        if "kv_dtype" in config:
            out["kv_bytes"] = np.full(len(some), kv_bytes(str(config["kv_dtype"])))
        if self.table == "layer_ops":
            out |= layer_op_columns(str(config["op"]), out)
        return out

    def features(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """(rows, features) base-2 logarithms of the block coordinates."""
        return np.log2(np.stack(self.block(columns), axis=1))


def kv_bytes(dtype: str) -> float:
    """Bytes of one KV element."""
    return 1.0 if dtype.startswith("fp8") else 2.0


def layer_op_columns(op: str, c: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One GPU's share of a Vidur operator: (m, n, k) of the matrix, or rows and width of a streaming kernel."""
    head_dim = c["hidden"] / c["n_head"]
    kv_heads = np.maximum(c["n_kv_head"] / c["tp"], 1.0)
    heads = c["n_head"] / c["tp"]
    inter = c["inter"] / c["tp"]
    gates = 1.0 + c["gated"]
    width = {
        "emb": c["hidden"],
        "input_layernorm": c["hidden"],
        "post_attention_layernorm": c["hidden"],
        "add": c["hidden"],
        "attn_rope": (heads + kv_heads) * head_dim,
        "mlp_act": inter * (gates + 1.0) / 2.0,
        "attn_pre_proj": (heads + 2 * kv_heads) * head_dim,
        "attn_post_proj": c["hidden"],
        "mlp_up_proj": gates * inter,
        "mlp_down_proj": c["hidden"],
    }[op]
    inner = {"attn_post_proj": heads * head_dim, "mlp_down_proj": inter}.get(op, c["hidden"])
    return {"m": c["num_tokens"], "n": width, "k": inner, "rows": c["num_tokens"], "width": width}


GEMM_OPS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
GEMM_FORM = Form(forms.gemm_work)
EAGER_GEMM_FORM = Form(forms.gemm_work, floor=True)
DIAGONAL = (("diagonal_tokens", 100.0, 1.0, 2000.0),)
FLOOR = (("floor_tokens", 100.0, 1.0, 1000.0),)
PER_UNIT = ("per_unit_s", 1e-9, 1e-13, 1e-5)
"""seconds of a thread block, a routed row or a GPU"""


OVER_PCIE = ("L40S-48GB",)
"""devices without NVLink: the engines' own all-reduce does not run (or gains nothing) there, NCCL's ring takes all"""


def _collective_form(config: Mapping[str, object]) -> Form:
    op, eager = str(config["op"]), config["mode"] == "eager"
    if op == "all_reduce" and config["mode"] in ("graph", "eager") and config["gpu"] not in OVER_PCIE:
        reduce = forms.EngineReduce(at_limit=config["backend"] == "vllm")
        extra = (("per_gpu_s", 1e-7, 1e-10, 1e-4), ("second_stage_s", 3e-6, 1e-8, 1e-4))
        library = (("library_s", 1e-5, 1e-8, 2e-5), ("library_ratio", 1.0, 0.2, 5.0))
        return Form(reduce.work, reduce.added, (*extra, *library), eager)
    added = _per_unit(lambda c: c["num_gpus"] - 1.0)
    return Form(forms.collective_work(op), added, (PER_UNIT,), op == "all_reduce")


def _per_unit(count: Callable[[Mapping[str, np.ndarray]], np.ndarray]):
    """`per_unit_s` seconds for each of `count`."""
    return lambda c, k: k["per_unit_s"] * count(c)


_GEMM_SMOOTHNESS = Smoothness(
    (1.0, 2.0), (((1.0, 0.0), 1.0, 1.5), ((0.0, 1.0), 4.0, 1.5), ((1.0, 1.0), 4.0, 2.0)), 0.15
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "gemm", "gemm", ("gemm",), ("m", "n", "k"),
            lambda config: EAGER_GEMM_FORM if config["timing"] == "eager" else GEMM_FORM,
            lambda c: (c["n"], c["k"]),
            lambda c: (c["m"],),
            _GEMM_SMOOTHNESS,
            ("timing",),
            {"timing": 60.0},
        ),
        Family(
            "prefill_attention", "attention_context", ("attention_context",),
            ("batch", "q_len", "kv_len", "num_heads", "num_kv_heads"),
            lambda config: Form(forms.prefill_work, None, DIAGONAL),
            lambda c: (c["num_heads"], c["num_kv_heads"]),
            lambda c: (c["batch"], c["q_len"]),
            Smoothness((6.0, 6.0), (((1.0, 0.0), 6.0, 1.0), ((0.0, 1.0), 6.0, 1.0), ((1.0, -1.0), 6.0, 1.0)), 0.05),
            ("kv_dtype", "head_dim", "window"),
            {"kv_dtype": 10.0, "head_dim": 20.0, "window": 5.0},
            PREFILL_GRID,
        ),
        Family(
            "decode_attention", "attention_decode", ("attention_decode",),
            ("batch", "kv_history", "num_heads", "num_kv_heads"),
            lambda config: Form(
                forms.decode_work, _per_unit(lambda c: c["batch"] * c["num_kv_heads"]), (*FLOOR, PER_UNIT)
            ),
            lambda c: (c["num_heads"], c["num_kv_heads"], np.where(c["num_heads"] == c["num_kv_heads"], 2.0, 1.0)),
            lambda c: (c["batch"], c["kv_history"]),
            Smoothness(
                (4.0, 4.0, 0.5),
                (((1.0, 0.0, 0.0), 4.0, 0.3), ((0.0, 1.0, 0.0), 4.0, 0.3), ((1.0, -1.0, 0.0), 4.0, 0.3)),
                0.01,
            ),
            ("kv_dtype", "head_dim", "window"),
            {"kv_dtype": 10.0, "head_dim": 20.0, "window": 5.0},
        ),
        Family(
            "mla_context", "mla", ("mla_context",), ("batch", "q_len", "num_heads"),
            lambda config: Form(forms.mla_context_work, None, DIAGONAL),
            lambda c: (c["num_heads"],),
            lambda c: (c["batch"], c["q_len"]),
            Smoothness((4.0,), (), 0.01),
            ("kv_dtype",), {"kv_dtype": 10.0},
            replace(GRID, noise=0.05),
        ),
        Family(
            "mla_decode", "mla", ("mla_decode",), ("batch", "kv_history", "num_heads"),
            lambda config: Form(forms.mla_decode_work, _per_unit(lambda c: c["batch"]), (*FLOOR, PER_UNIT)),
            lambda c: (c["num_heads"],),
            lambda c: (c["batch"], c["kv_history"]),
            Smoothness((4.0,), (), 0.01),
            ("kv_dtype",), {"kv_dtype": 10.0},
            replace(GRID, noise=0.05),
        ),
        Family(
            "mla_projection", "mla", ("mla_gen_pre", "mla_gen_post"), ("batch", "num_heads"),
            lambda config: Form(forms.mla_projection_work),
            lambda c: (c["num_heads"],),
            lambda c: (c["batch"],),
            Smoothness((4.0,), (), 0.01),
            ("op",), {"op": 1000.0},
        ),
        Family(
            "moe", "moe", ("moe",), ("num_tokens", "hidden", "inter", "topk", "num_experts", "tp", "ep"),
            lambda config: Form(
                forms.moe_work,
                _per_unit(lambda c: c["num_tokens"] * c["topk"] * c["hidden"] / 4096.0),
                (("tile_rows", 4.0, 0.01, 500.0), PER_UNIT),
            ),
            lambda c: (c["hidden"], c["inter"] / c["tp"], c["topk"], c["num_experts"], c["ep"]),
            lambda c: (c["num_tokens"],),
            Smoothness((3.0, 3.0, 3.0, 3.0, 1.0), (), 0.05),
            ("distribution",), {"distribution": 0.3},
        ),
        Family(
            "collective", "collectives", ("all_reduce", "all_gather", "reduce_scatter", "alltoall"),
            ("num_gpus", "message_bytes"),
            _collective_form,
            lambda c: (c["num_gpus"],),
            lambda c: (c["message_bytes"],),
            Smoothness((3.0,), (), 0.01),
            ("op", "mode", "nodes"), {"op": 1000.0, "mode": 50.0, "nodes": 200.0},
        ),
        Family(
            "send_recv", "p2p", ("send_recv",), ("num_gpus", "message_bytes"),
            lambda config: Form(forms.send_recv_work),
            lambda c: (c["num_gpus"],),
            lambda c: (c["message_bytes"],),
            Smoothness((3.0,), (), 0.01),
            ("op", "mode", "nodes"), {"op": 1000.0, "mode": 50.0, "nodes": 200.0},
        ),
        Family(
            "quantize", "quantize", ("fp8_scale_apply", "fp8_scale_compute"), ("m", "k"),
            lambda config: Form(forms.quantise_work),
            lambda c: (c["k"],),
            lambda c: (c["m"],),
            Smoothness((3.0,), (), 0.01),
            ("op",), {"op": 1000.0},
        ),
        Family(
            "layer_ops", "layer_ops",
            (*GEMM_OPS, "emb", "input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add"),
            ("num_tokens", "tp", "n_head", "n_kv_head", "hidden", "inter", "vocab", "gated"),
            lambda config: GEMM_FORM if config["op"] in GEMM_OPS else Form(forms.streaming_work),
            lambda c: (c["n"], c["k"]),
            lambda c: (c["num_tokens"],),
            _GEMM_SMOOTHNESS,
            ("op",), {"op": 1000.0},
            most_knots=160,
        ),
    )
}
