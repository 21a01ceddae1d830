"""Lowering: everything that a step of one deployment can cost, worked out once into the tables of cost/kernels.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from llmqsim.cost import kept
from llmqsim.cost import kernels as k
from llmqsim.cost.host import eager_floor_s, large_step_factor, mixed_step_s, sampled_rows_s, step_base_s
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.options import EngineOptions, HostCost

if TYPE_CHECKING:  # what lowering takes is imported when it is done: most costs were kept
    from llmqsim.cost.layer import Layer
    from llmqsim.cost.store import Store

NS_PER_S = 1e9
LONGEST_DENSE_TABLE = 32_768
"""tokens of a step up to which the linear table has an entry each; beyond, its last slope goes on"""
UNBOUNDED = 2**40
"""stands for no limit in the box; small enough to be multiplied by a batch"""
CACHED_READ_PERCENT = 50
"""time of a KV token that is in the L2 cache, per cent of one in memory: L2 caches of A100 and H100 deliver about twice
what their memory does (from memory); docs/fidelity.md says what rests on it"""
ARRAYS = ("costs", "params")
NOT_TOLD = (*ARRAYS, "store")
NO_BOX = {axis: float("inf") for axis in k.AXES}


@dataclass(frozen=True)
class StepCost:
    """What steps cost, ready for the kernels of cost/kernels.py."""

    costs: np.ndarray
    """float64: scalars C_*, then tables, ns"""
    params: np.ndarray
    """int64: places of the tables, CUDA-graph padding, measured box"""
    provenance: tuple[str, ...]
    box: Mapping[str, float]
    """highest measured value by axis (AXES); infinite for a model of the user's own"""
    notes: tuple[str, ...] = ()
    """what a reader of the result must know of it; also in provenance"""
    pipeline_stages: int = 1
    """stages that a step goes through one after the other; as many steps can be under way, each a stage apart"""
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """kernel family to the timings behind it and their error, per cent, on shapes that no fit saw"""
    store: Store | None = None
    """the fits behind it, None for those that ship"""
    cached_read_percent: int = 100
    """time of a KV token that another request of the step has brought from memory, per cent of the full time"""
    kernels_of: tuple[tuple[str, str], ...] = ()
    """engines and their releases whose kernels were timed, (backend, version), each once"""

    @property
    def error(self) -> float | None:
        """Relative error of step times that the fits state: the largest P90 of a kernel family; None: none stated."""
        told = [error["p90_percent"] / 100 for error in self.errors.values() if "p90_percent" in error]
        return max(told, default=None)

    def scaled(self, factor: float) -> StepCost:
        """The same with every step `factor` times as long, host time included (all entries are times)."""
        return replace(self, costs=self.costs * factor)


def constant(step_s: float) -> StepCost:
    """Every step takes `step_s` seconds, whatever it holds."""
    return affine(base_s=step_s, provenance=f"constant step of {step_s:g} s, from the scenario")


def affine(
    base_s: float = 0.0,
    per_token_s: float = 0.0,
    per_prefill_token_s: float = 0.0,
    per_decode_request_s: float = 0.0,
    per_kv_token_s: float = 0.0,
    per_running_s: float = 0.0,
    per_mixed_step_s: float = 0.0,
    provenance: str = "affine step cost, from the scenario",
) -> StepCost:
    """step = base + per_token x tokens + per_prefill_token x prompt tokens + per_decode_request x decodes
    + per_kv_token x KV tokens that the decodes read + per_running x running requests + per_mixed_step if it holds a
    prefill chunk. Seconds; the sum is rounded once, to nanoseconds.
    """
    costs = np.zeros(k.COST_SCALARS)
    costs[k.C_BASE] = base_s * NS_PER_S
    costs[k.C_PER_TOKEN] = per_token_s * NS_PER_S
    costs[k.C_PER_PREFILL_TOKEN] = per_prefill_token_s * NS_PER_S
    costs[k.C_PER_DECODE_REQUEST] = per_decode_request_s * NS_PER_S
    costs[k.C_PER_KV_TOKEN] = per_kv_token_s * NS_PER_S
    costs[k.C_PER_RUNNING] = per_running_s * NS_PER_S
    costs[k.C_MIXED] = per_mixed_step_s * NS_PER_S
    return StepCost(costs, _params((), NO_BOX), (provenance,), NO_BOX)


def lower(
    model: Model,
    gpu: Gpu,
    tp: int,
    options: EngineOptions,
    host: HostCost,
    max_context_tokens: int | None,
    store: Store | None = None,
) -> StepCost:
    """Tables of one deployment from the fitted kernel families, lowered now or as they were kept (kept.py).

    tp : GPUs of a replica. max_context_tokens : longest context that can occur, None for the model's own limit; the
    grids end there (their last cells go on beyond it). store : fitted kernels, None for those that ship. Raises
    ScenarioError for a GPU without coefficients, DataError for a folder without fits.
    """
    of = (model, gpu, tp, options, host, max_context_tokens)
    name = kept.digest_of(*of, fits=store.folder if store else None)
    found = kept.read(name)
    if found is None:
        cost = _lowered(*of, store)
        kept.write(name, *_packed(cost))
        return cost
    return _unpacked(*found, store)


def _packed(cost: StepCost) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and plain data that say all of it but the store."""
    arrays = {name: getattr(cost, name) for name in ARRAYS}
    return arrays, {field.name: getattr(cost, field.name) for field in fields(cost) if field.name not in NOT_TOLD}


def _unpacked(arrays: dict[str, np.ndarray], told: dict, store: Store | None) -> StepCost:
    for name in ("provenance", "notes"):
        told[name] = tuple(told[name])
    told["kernels_of"] = tuple(tuple(pair) for pair in told["kernels_of"])
    return StepCost(**arrays, **told, store=store)


def _lowered(
    model: Model,
    gpu: Gpu,
    tp: int,
    options: EngineOptions,
    host: HostCost,
    max_context_tokens: int | None,
    store: Store | None,
) -> StepCost:
    from llmqsim.cost.coefficients import error_sentence

    layer = layer_of(model, gpu, tp, options, store)
    longest = max_context_tokens or model.max_position_embeddings
    costs = np.zeros(k.COST_SCALARS)
    costs[k.C_BASE] = step_base_s(host, tp) * NS_PER_S
    costs[k.C_PER_RUNNING] = host.per_running_s * NS_PER_S
    costs[k.C_MIXED] = (mixed_step_s(host, model.layers) + layer.prefill_launch_seconds()) * NS_PER_S
    costs[k.C_EAGER] = eager_floor_s(host, model.layers) * NS_PER_S
    requests, rows = _axis(options.max_num_seqs), np.arange(options.max_num_seqs + 2)
    contexts = _axis(longest)
    chunks = _axis(min(options.max_num_batched_tokens, longest))
    dense = np.arange(min(options.max_num_batched_tokens, LONGEST_DENSE_TABLE) + 2)
    tables = (
        _even_end(layer.linear_seconds(dense) * large_step_factor(host, dense)),
        layer.head_seconds(rows) + sampled_rows_s(host, options, gpu, model.vocab, rows),
        layer.decode_seconds(requests[:, None], contexts[None, :]),
        layer.prefill_seconds(chunks[:, None], contexts[None, :]),
    )
    params = _params(options.cudagraph_capture_sizes, layer.kernels.box)
    params[k.P_DECODE_GRAPHS] = options.cudagraph_mode == "full_decode_only"
    _place(params, tables)
    arena = np.concatenate([costs, *(table.ravel() * NS_PER_S for table in tables)])
    measured = layer.kernels.measured
    assert measured is not None
    notes = _unfitted(model, options)
    first, *rest = layer.kernels.provenance
    first = _timed_under(first, gpu, measured.engines())
    found = {family: error for family, error in measured.errors().items() if "median_percent" in error}
    error = (error_sentence(found),) if found else ()
    provenance = (first, *error, *rest, *measured.notes(), *notes)
    stages = options.pipeline_parallel_size
    errors = measured.errors()
    engines = measured.engines()
    return StepCost(
        arena, params, provenance, layer.kernels.box, notes, stages, errors, store, CACHED_READ_PERCENT, engines
    )


def _timed_under(note: str, gpu: Gpu, engines: tuple[tuple[str, str], ...]) -> str:
    """The provenance's first sentence, with the releases whose kernels were taken in place of the constants' own."""
    stated = read_preset(f"coefficients/{gpu.coefficients}.yaml")["backend"]
    taken = " and ".join(f"{backend} {version}" for backend, version in engines)
    return note.replace(f", {stated},", f", {taken},") if taken else note


def layer_of(model: Model, gpu: Gpu, tp: int, options: EngineOptions, store: Store | None = None) -> Layer:
    """The operators of one GPU's share of the model."""
    from llmqsim.cost.coefficients import load_kernels
    from llmqsim.cost.layer import Layer
    from llmqsim.cost.tabled import tabled

    kernels = tabled(load_kernels(gpu, model.kv_dtype_bytes(options.kv_cache_dtype)), gpu, options.preset, store)
    stages, whole = options.pipeline_parallel_size, options.enable_expert_parallel
    return Layer(model, tp, kernels, stages, whole, options.data_parallel_size)


def _unfitted(model: Model, options: EngineOptions) -> tuple[str, ...]:
    """Sentences about operators of this deployment that are physical forms without a fit of their own."""
    notes = []
    if model.kv_lora_rank:
        notes.append("latent attention: physical form on the attention rates, not fitted")
    if model.weight_dtype in ("int4", "int4_g32", "mxfp4", "nvfp4"):
        notes.append(f"{model.weight_dtype} weights: 16-bit GEMM fits with their bytes and arithmetic, not timed")
    if options.pipeline_parallel_size > 1:
        notes.append(
            f"{options.pipeline_parallel_size} pipeline stages, taken as equally long; as many micro-batches are under way"
        )
    return tuple(notes)


def _even_end(seconds: np.ndarray) -> np.ndarray:
    """The same table with the mean slope of its last quarter in its last entry, whose slope goes on beyond it.

    The entry itself is beyond every step that a token budget allows. Between two single tokens a kernel may change
    its tiling or an all-reduce its algorithm, and such a jump must not be taken for a slope.
    """
    quarter = max(1, len(seconds) // 4)
    if len(seconds) > 2:
        seconds = seconds.copy()
        seconds[-1] = seconds[-2] + (seconds[-2] - seconds[-2 - quarter]) / quarter
    return seconds


def _axis(highest: int) -> np.ndarray:
    """Grid points from 0 to the first that is not below `highest`, two at least."""
    points = [0, 1]
    while points[-1] < highest:
        points.append(int(k.grid_point(len(points))))
    return np.array(points, dtype=np.float64)


def _place(params: np.ndarray, tables: tuple[np.ndarray, ...]) -> None:
    """Write where each table begins and how large it is."""
    linear, head, decode, prefill = tables
    start = k.COST_SCALARS
    params[k.P_LINEAR], params[k.P_LINEAR_SIZE] = start, linear.size
    start += linear.size
    params[k.P_HEAD], params[k.P_HEAD_SIZE] = start, head.size
    start += head.size
    params[k.P_DECODE] = start
    params[k.P_DECODE_ROWS], params[k.P_DECODE_COLUMNS] = decode.shape
    start += decode.size
    params[k.P_PREFILL] = start
    params[k.P_PREFILL_ROWS], params[k.P_PREFILL_COLUMNS] = prefill.shape


def _params(capture_sizes: tuple[int, ...], box: Mapping[str, float]) -> np.ndarray:
    """Parameters without tables: padding to `capture_sizes` (sorted) and the box."""
    padded = np.arange(capture_sizes[-1] + 1 if capture_sizes else 0)
    if capture_sizes:
        padded = np.asarray(capture_sizes)[np.searchsorted(capture_sizes, padded)]
    params = np.zeros(k.PARAM_SCALARS + len(padded), dtype=np.int64)
    params[k.PARAM_SCALARS :] = padded
    params[k.P_PADDED_SIZE] = len(padded)
    for i, axis in enumerate(k.AXES):
        params[k.P_BOX + i] = int(min(box[axis], UNBOUNDED))
    return params
