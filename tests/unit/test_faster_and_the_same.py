"""What took a slower thing's place gives the same: numbers to the last bit, trees node by node."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from llmqsim.metrics.distribution import exact_sum, in_order, median, median_count, quantile, up_to
from llmqsim.scenario import source
from llmqsim.workload.table_file import load_preset, preset_names

SCALES = (1.0, 1e9, 1e-300, 5e-324, 1e290)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rows", (1, 2, 7, 1000))
def test_a_sum_of_floats_is_rounded_once(scale, rows):
    generator = np.random.default_rng(rows)
    for values in (generator.random(rows), generator.normal(size=rows), generator.lognormal(0, 5, rows)):
        assert exact_sum(values * scale) == math.fsum((values * scale).tolist())


@pytest.mark.parametrize("most", (10, 2**40, 2**62))
def test_a_sum_of_whole_numbers_is_exact(most):
    values = np.random.default_rng(0).integers(-most, most, 1001)
    assert exact_sum(values) == sum(values.tolist())


def test_counts_up_to_each_look_with_ties():
    generator = np.random.default_rng(0)
    for times, looks in ((0, 5), (5, 0), (1, 1), (300, 200), (50, 400)):
        have, seen = np.sort(generator.integers(0, 60, times)), np.sort(generator.integers(0, 60, looks))
        assert up_to(have, seen).tolist() == np.searchsorted(have, seen, side="right").tolist()


def test_ranks_of_what_is_sorted_are_numpys():
    generator = np.random.default_rng(0)
    for rows in (1, 2, 3, 20, 21, 47, 60):
        for most in (3, 10**9, 10**17):
            values = generator.integers(0, most, rows)
            ordered = np.sort(values)
            for q in (0.9, 0.5, 0.1, 0.37, 0.0, 1.0):
                assert quantile(ordered, q) == np.quantile(values, q)
            assert median(ordered) == np.median(values)
            assert median_count(values) == np.median(values)
            assert median_count(values % (rows + 3)) == np.median(values % (rows + 3))
            assert median_count(values - most // 2) == np.median(values - most // 2)
            for floats in (values / 7, values / 7 - most / 20):
                assert in_order(floats).tobytes() == np.sort(floats).tobytes()


@pytest.mark.parametrize("name", preset_names())
def test_lengths_are_those_of_the_histograms(name):
    table, generator = load_preset(name), np.random.default_rng(7)
    u_prompt, u_output = generator.random((2, 3000))
    u_prompt[:3], u_output[:3] = (0, 1 - 2**-53, 0.5), (1 - 2**-53, 0, 0.25)
    prompt, output = table.draw(u_prompt, u_output)
    assert prompt.tolist() == table.prompt.quantile(u_prompt).tolist()
    group = table.group(prompt)
    for index, histogram in enumerate(table.outputs):
        mine = group == index
        assert output[mine].tolist() == histogram.quantile(u_output[mine]).tolist()


ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "llmqsim/presets").glob("benchmarks.yaml")) + sorted((ROOT / "scenarios").rglob("*.yaml"))
TEXTS = [path.read_text(encoding="utf-8") for path in FILES] + [
    "a: [1, .5, 1e3, yes, ~, 'x', 0o7, 1_0]\nb: {c: &d {e: true}, f: *d}\n",
    "a:\n  - x\n  - {y: 2}\n# end\n",
    "a: 1\na: 2\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_yaml_parsers_give_one_tree(text, monkeypatch):
    if source._FastLoader is None:
        pytest.skip("PyYAML was built without libyaml")
    fast = source.parse_yaml(text, "x.yaml")
    monkeypatch.setattr(source, "_FastLoader", None)
    assert source.parse_yaml(text, "x.yaml") == fast
