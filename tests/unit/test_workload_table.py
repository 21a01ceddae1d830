"""Length tables: exact where they can be worked out by hand, checked where a file can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from llmqsim.errors import DataError, ScenarioError
from llmqsim.workload.fit import fit_histogram, fit_lengths, table_text
from llmqsim.workload.length_table import Histogram
from llmqsim.workload.table_file import load_preset, load_table, parse_table, preset_names

EXAMPLE = """\
kind: bins
name: two kinds of requests
prompt:
  low: [10, 100]
  high: [10, 199]
  weight: [1, 3]
output:
  - {prompt_high: 50, low: [1], high: [1], weight: [1]}
  - {prompt_high: 200, low: [5], high: [9], weight: [2], mean: [6]}
"""
U = np.random.default_rng(5).random((2, 40_000))


def histogram(low, high, weight, mean) -> Histogram:
    return Histogram(np.array(low), np.array(high), np.array(weight, dtype=float), np.array(mean, dtype=float))


def test_draws_follow_the_weights_the_means_and_the_prompt():
    prompt, output = parse_table(EXAMPLE, "t").draw(*U)
    short = prompt == 10
    assert short.mean() == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / len(prompt)))
    assert prompt[~short].min() == 100 and prompt[~short].max() == 199
    assert prompt[~short].mean() == pytest.approx(149.5, abs=5 * np.sqrt((100**2 - 1) / 12 / (~short).sum()))
    assert set(output[short]) == {1} and set(output[~short]) == {5, 6, 7, 8, 9}
    assert output[~short].mean() == pytest.approx(6, abs=5 * output[~short].std() / np.sqrt((~short).sum()))


def test_marginals_are_exact():
    table = parse_table(EXAMPLE, "t")
    prompt, output = table.marginal("prompt_tokens"), table.marginal("output_tokens")
    assert prompt.mean() == pytest.approx(0.25 * 10 + 0.75 * 149.5)
    assert output.mean() == pytest.approx(0.25 * 1 + 0.75 * 6)
    second = 0.25 * 10**2 + 0.75 * np.mean(np.arange(100, 200) ** 2)
    assert prompt.cv() == pytest.approx(np.sqrt(second / prompt.mean() ** 2 - 1))
    assert prompt.cdf(np.array([9, 10, 99, 149, 199])) == pytest.approx([0, 0.25, 0.25, 0.625, 1])
    assert [prompt.quantile(q) for q in (0.25, 0.26, 0.625, 1.0)] == [10, 101, 149, 199]
    assert prompt.tokens_beyond(149) == pytest.approx(0.375 * np.mean(np.arange(150, 200)) / prompt.mean())


@given(st.integers(1, 50), st.integers(0, 60), st.floats(0, 1))
def test_a_bin_has_its_mean_exactly_and_stays_inside(low, width, place):
    high = low + width
    mean = low + place * width
    h = histogram([low], [high], [3.0], [mean])
    lows, highs, probability = h.pieces
    assert probability.sum() == pytest.approx(1)
    assert np.sum(probability * (lows + highs) / 2) == pytest.approx(mean)
    tokens = h.quantile(np.linspace(0, 1, 101)[:-1])
    assert tokens.min() >= low and tokens.max() <= high and np.all(np.diff(tokens) >= 0)


def test_quantile_inverts_the_cdf_of_the_pieces():
    h = histogram([1, 5, 20], [4, 5, 1000], [5, 3, 2], [2.2, 5, 90])
    tokens, counts = np.unique(h.quantile((np.arange(200_000) + 0.5) / 200_000), return_counts=True)
    low, high, p = h.pieces
    pmf = [np.sum(p / (high - low + 1) * ((low <= t) & (t <= high))) for t in tokens]
    assert counts / 200_000 == pytest.approx(np.array(pmf), abs=2 / 200_000)


def test_a_point_mass_stays_one():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.integers(1, 8000, 5000), np.full(400, 4096)])
    h = fit_histogram(values, 100)
    spike = (h.low == 4096) & (h.high == 4096)
    # Rows of 4,096 that came from the flat part count too.
    assert spike.sum() == 1 and h.weight[spike][0] == np.count_nonzero(values == 4096)


def test_bins_partition_the_rows_and_keep_every_mean():
    values = np.rint(np.random.default_rng(1).lognormal(6, 1.3, 3000)).astype(int) + 1
    h = fit_histogram(values, 60)
    inside = [(values >= a) & (values <= b) for a, b in zip(h.low, h.high, strict=True)]
    assert [i.sum() for i in inside] == h.weight.tolist() and h.weight.sum() == 3000
    assert [values[i].mean() for i in inside] == pytest.approx(h.mean.tolist())
    assert h.low[0] == values.min() and h.high[-1] == values.max()


def test_text_and_table_are_the_same():
    rng = np.random.default_rng(2)
    prompt = rng.integers(1, 4000, 900)
    table = fit_lengths(prompt, 1 + prompt // 10 + rng.integers(0, 30, 900), {"name": "x"})
    again = parse_table(table_text(table), "again")
    assert again.about == table.about and np.array_equal(again.prompt_high, table.prompt_high)
    for a, b in zip((table.prompt, *table.outputs), (again.prompt, *again.outputs), strict=True):
        assert np.array_equal(a.low, b.low) and np.array_equal(a.high, b.high) and np.array_equal(a.weight, b.weight)
        assert b.mean == pytest.approx(a.mean, rel=1e-6)


def test_presets_load_quickly_and_unknown_ones_are_listed():
    assert {"azure-code", "azure-conversation", "mooncake-conversation"} <= set(preset_names())
    for name in preset_names():
        about = load_preset(name).about
        assert {"source", "licence", "period", "rows", "fit"} <= set(about)
    with pytest.raises(ScenarioError, match="did you mean 'azure-conversation'.*mooncake-conversation"):
        load_preset("azure-conversatoin")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: bins", "kind: histogram", "kind: must be 'bins'"),
        ("low: [10, 100]", "low: [10, 0]", r"t:4: prompt.low\[1\]: must be a whole number of at least 1"),
        ("low: [10, 100]", "low: [10, 5]", r"prompt.low\[1\]: must be above the high"),
        ("high: [10, 199]", "high: [10, 50]", r"t:5: prompt.high\[1\]: must be a whole number, not below low"),
        ("high: [10, 199]", "high: [10, abc]", r"t:5: prompt.high\[1\]: must be a number"),
        ("high: [10, 199]", "high: [10, .nan]", r"prompt.high\[1\]: must be a number"),
        ("weight: [1, 3]", "weight: [1, -3]", r"t:6: prompt.weight\[1\]: must be a number from 0"),
        ("weight: [1, 3]", "weight: [1]", "t:4: prompt: all lists must be equally long"),
        ("weight: [1, 3]", "weight: [0, 0]", "prompt.weight: must not all be zero"),
        ("weight: [1, 3]", "wieght: [1, 3]", "prompt.wieght: unknown key; did you mean 'weight'"),
        ("mean: [6]", "mean: [60]", r"output\[1\].mean\[0\]: must lie between low and high"),
        ("prompt_high: 200", "prompt_high: 20", r"t:9: output\[1\].prompt_high: must be a number of tokens that grows"),
        ("prompt_high: 200, ", "", r"output\[1\].prompt_high"),
        ("output:", "outputs:", "output: must be a list"),
        ("kind: bins", "kind: [bins", "t:.*not YAML"),
        ("name: two", "name: 2023-99-99\nmore: two", "can't be read as YAML"),
        ("prompt_high: 200", "prompt_high: 1.0e+300", r"output\[1\].prompt_high"),
    ],
)
def test_a_wrong_table_is_refused_by_line_and_key(old, new, said):
    assert old in EXAMPLE
    with pytest.raises(DataError, match=said):
        parse_table(EXAMPLE.replace(old, new), "t")


def test_all_faults_of_a_table_at_once():
    text = EXAMPLE.replace("weight: [1, 3]", "weight: [1, x]").replace("mean: [6]", "mean: [60]")
    with pytest.raises(DataError) as error:
        parse_table(text, "t")
    assert len(error.value.faults) == 2


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"\xff\xfe", b"- 1\n- 2\n", b"just words\n"])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "t.yaml"
    path.write_bytes(content)
    with pytest.raises(DataError, match="a length table"):
        load_table(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(DataError, match="a length table"):
            load_table(path)


def test_draws_of_a_fit_follow_the_law_behind_the_sample():
    rng = np.random.default_rng(9)
    sample = np.maximum(np.rint(rng.lognormal(6, 1, 20_000)), 1).astype(int)
    table = fit_lengths(sample, sample)
    prompt, _ = table.draw(*U)
    # Both the fitted sample and the draws scatter about the law: Kolmogorov's bound for each, at a risk of 1e-5.
    bound = np.sqrt(-np.log(1e-5 / 2) / 2) * (1 / np.sqrt(len(sample)) + 1 / np.sqrt(len(prompt)))
    assert stats.ks_1samp(prompt + rng.random(len(prompt)) - 0.5, stats.lognorm(1, scale=np.exp(6)).cdf)[0] < bound


def test_an_alias_bomb_is_refused_at_once():
    bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    with pytest.raises(DataError, match=r"prompt.weight\[0\]: must be a number"):
        parse_table(EXAMPLE.replace("weight: [1, 3]", "weight: *a29").replace("kind: bins", "kind: bins\n" + bomb), "t")
