"""Residual tables and physical forms: exact on knots, smooth between, nothing invented outside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqsim.cost import forms
from llmqsim.cost.families import FAMILIES
from llmqsim.cost.residual import ResidualTable, Smoothness
from llmqsim.cost.store import pack, unpack

RNG = np.random.default_rng(3)


def table(values=None):
    features = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, 3.0]])
    knots = (np.array([1.0, 4.0, 16.0]), np.array([1.0, 8.0]))
    values = RNG.normal(0, 0.2, (5, 3, 2)) if values is None else values
    return ResidualTable(features, knots, values, Smoothness((3.0, 3.0), (((1.0, 1.0), 3.0, 1.0),), 0.02))


def at(t, block, a, b):
    return t.log_ratio(np.array([0]), np.array([block], dtype=float), (np.array([a]), np.array([b])))[0]


def test_measured_shapes_are_exact():
    t = table()
    for i, block in enumerate(t.features):
        for j, a in enumerate(t.knots[0]):
            assert at(t, block, a, 8.0) == pytest.approx(t.values[i, j, 1], abs=1e-12)


def test_between_knots_it_is_linear_in_the_logarithm_and_flat_outside():
    t = table()
    assert at(t, (0, 0), 2.0, 1.0) == pytest.approx((t.values[0, 0, 0] + t.values[0, 1, 0]) / 2)
    assert at(t, (0, 0), 1e6, 1e6) == pytest.approx(t.values[0, 2, 1])
    assert at(t, (0, 0), 0.0, 1.0) == pytest.approx(t.values[0, 0, 0])


def test_a_block_in_between_takes_after_its_neighbours_and_one_outside_after_the_edge():
    t = table(np.broadcast_to(np.array([0.1, 0.1, 0.3, 0.3, 0.2])[:, None, None], (5, 3, 2)).copy())
    assert 0.1 < at(t, (0.5, 0.5), 4.0, 1.0) < 0.3
    assert at(t, (0.5, 0.1), 4.0, 1.0) < at(t, (0.5, 0.9), 4.0, 1.0)
    assert at(t, (50.0, 50.0), 4.0, 1.0) == pytest.approx(at(t, (3.0, 3.0), 4.0, 1.0))


def test_packing_loses_at_most_half_a_step():
    t = table()
    again = unpack(pack(t, "x"), "x", FAMILIES["gemm"])
    assert np.abs(again.values - t.values).max() <= 0.001 + 1e-12
    assert again.values.shape == t.values.shape


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 50))
def test_keys_seen_through_a_window(query, prefix, window):
    seen = sum(min(prefix + i + 1, window) if window else prefix + i + 1 for i in range(query))
    pairs = forms.causal_pairs(*(np.array([float(v)]) for v in (query, prefix + query, window)))
    assert pairs[0] == pytest.approx(seen)


def test_random_routing_touches_fewer_experts_than_balanced_timings():
    n = np.array([1.0, 8.0, 100.0, 1e5])
    balanced, random = forms.active_experts(n, 8, 64), forms.active_experts(n, 8, 64, balanced=False)
    assert np.all(random <= balanced + 1e-9) and random[0] == pytest.approx(8) and random[-1] == pytest.approx(64)
    assert random[1] == pytest.approx(64 * (1 - (1 - 8 / 64) ** 8))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_no_form_beats_its_own_datasheet(family):
    keys = {"timing": "graph", "kv_dtype": "bfloat16", "head_dim": 128, "window": 0, "op": family.ops[0],
            "distribution": "balanced", "mode": "graph", "nodes": 1}
    config = {"gpu": "x", "backend": "vllm", "dtype": "bfloat16", **{name: keys[name] for name in family.key}}
    sizes = {"num_experts": 64, "topk": 8, "hidden": 4096, "inter": 14336, "n_head": 32, "n_kv_head": 8, "gated": 1,
             "num_heads": 32, "num_kv_heads": 8, "num_gpus": 4, "tp": 1, "ep": 1, "vocab": 32000}
    shape = {name: np.full(3, float(sizes.get(name, 1))) for name in family.shape}
    for name in ("m", "n", "k", "q_len", "kv_len", "kv_history", "batch", "message_bytes", "num_tokens"):
        if name in shape:
            shape[name] = np.array([64.0, 1024.0, 4096.0])
    card = forms.Machine("x", {"bfloat16": 1e15}, 3e12, 4e11, 132, 5e7)
    columns = family.columns(config, shape)
    form = family.form(config)
    ideal = {name: 1.0 if name in ("compute_efficiency", "memory_efficiency") or name.endswith("_ratio") else low
             for name, _, low, _ in form.bounds()} | {"overlap": 12.0}
    sheet, seconds = form.at_datasheet(columns, card, "bfloat16"), form.seconds(ideal, columns, card, "bfloat16")
    assert np.all(seconds > sheet) and np.all(np.diff(seconds) >= 0)


def test_elimination_solves_what_it_is_given():
    """Against a solution that was chosen first: the right side is made from it, column by column in exact integers."""
    from llmqsim.cost.residual import solved

    rng = np.random.default_rng(7)
    half = rng.integers(-3, 4, size=(40, 40))
    matrix, x = half @ half.T + 40 * np.eye(40, dtype=int), rng.integers(-9, 10, size=(40, 5))
    assert np.abs(solved(matrix.astype(float), matrix @ x) - x).max() < 1e-11
