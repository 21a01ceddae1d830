"""What `workload inspect` says, against closed forms, small programs written here, and published statistics of traces."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from llmqsim.cli import main
from llmqsim.workload.inspection import demand, sharing
from llmqsim.workload.inspection.arrivals import by_hour, dispersion, of_arrivals, of_drift, two_sample
from llmqsim.workload.inspection.inspect import inspect
from llmqsim.workload.inspection.lengths import bands, of_lengths
from llmqsim.workload.replay import scatter
from llmqsim.workload.trace import Trace, read_trace

TRACES = Path(__file__).parents[2] / "../shared/data/traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces (../shared/data/traces) are absent")
RNG = np.random.default_rng


def trace(arrival_s, prompt=None, output=None, **more) -> Trace:
    ones = np.ones(len(arrival_s), dtype=np.int64)
    return Trace(np.asarray(arrival_s, dtype=float), ones if prompt is None else prompt, ones if output is None else output,
                 "trace t", **more)  # fmt: skip


def test_poisson_arrivals_have_dispersion_and_cv_of_one():
    times = np.cumsum(RNG(0).exponential(0.05, 100_000))
    seen = of_arrivals(times)
    assert seen.rate == pytest.approx(20, rel=0.02) and seen.gap_cv == pytest.approx(1, abs=0.02)
    for one in seen.dispersion:
        assert abs(one.index - 1) < 4 * one.noise
        assert one.noise == pytest.approx(math.sqrt(2 / (one.windows - 1)))


def test_gamma_gaps_have_their_cv_and_disperse_to_its_square():
    """A renewal process's counts in long windows have variance over mean CV² (Cox 1962)."""
    cv = 3.0
    times = np.cumsum(RNG(1).gamma(1 / cv**2, cv**2 * 0.01, 400_000))
    assert of_arrivals(times).gap_cv == pytest.approx(cv, rel=0.02)
    assert dispersion(times, 40.0).index == pytest.approx(cv**2, rel=0.4)
    constant = dispersion(np.arange(0, 1000, 0.25), 10.0)
    assert constant.index == pytest.approx(0, abs=1e-9)


def test_hours_of_the_day_are_of_the_clock_and_not_of_the_trace():
    """One request a minute, ten from 14:00 to 15:00 UTC; the trace begins at 05:30 and lasts three and a half days."""
    minutes = np.arange(0, 3.5 * 1440) * 60.0
    start = 19_000 * 86_400 + 5.5 * 3600
    hour = ((start + minutes) % 86_400) // 3600
    times = np.sort(np.concatenate([minutes, np.repeat(minutes[hour == 14], 9)]))
    rates = np.array(by_hour(times, start)) * 60
    assert rates[14] == pytest.approx(10, rel=0.01) and np.delete(rates, 14) == pytest.approx(np.ones(23), rel=0.02)
    assert by_hour(times[times < 86_400], start) is None


def test_lengths_by_hand():
    values = np.array([1] * 50 + [10] * 48 + [1000, 2000])
    seen = of_lengths(values)
    assert (seen.p50, seen.p90, seen.p99, seen.max) == (1, 10, 1000, 2000)
    assert seen.mean == pytest.approx(35.3) and seen.tokens_beyond_p99 == pytest.approx(2000 / 3530)
    assert seen.piles == ((1, 0.5), (10, 0.48)) and seen.tail_index is None


def test_the_tail_index_of_a_pareto_law_is_its_exponent():
    pareto = np.ceil(1000 * RNG(2).random(200_000) ** (-1 / 1.7)).astype(np.int64)
    # Hill's estimate has a relative standard deviation of 1 / sqrt(k), k = 2,000
    assert of_lengths(pareto).tail_index == pytest.approx(1.7, rel=4 / math.sqrt(2000))


def test_answers_by_prompt_keep_equal_prompts_together():
    prompt = np.array([5] * 70 + list(range(6, 36)))
    found = bands(prompt, prompt * 2)
    assert sum(band.rows for band in found) == 100 and found[0].prompt_low == found[0].prompt_high == 5
    assert all(2 * band.prompt_low <= band.output_mean <= 2 * band.prompt_high for band in found)


def test_waits_are_lindleys_and_those_of_m_m_1():
    arrival, service = np.cumsum(RNG(3).exponential(1.0, 300)), RNG(4).exponential(0.9, 300)
    free, waited = 0.0, []
    for at, takes in zip(arrival, service, strict=True):
        waited.append(max(0.0, free - at))
        free = max(free, at) + takes
    assert demand.waits(arrival, service) == pytest.approx(waited, abs=1e-9)
    n, load = 1_000_000, 0.8
    arrival, service = np.cumsum(RNG(5).exponential(1.0, n)), RNG(6).exponential(load, n)
    # P(W > t) = ρ e^{-(μ-λ)t}
    exact = math.log(load / 0.01) / (1 / load - 1)
    assert demand.p99_wait(arrival, service) == pytest.approx(exact, rel=0.06)
    assert demand.waits(arrival, service).mean() == pytest.approx(load / (1 / load - 1), rel=0.05)


def test_kv_time_is_the_sum_over_decode_steps():
    prompt, output = np.array([7, 100, 3]), np.array([1, 4, 1000])
    exact = [sum(p + i + 1 for i in range(o)) for p, o in zip(prompt.tolist(), output.tolist(), strict=True)]
    assert demand.kv_time(prompt, output).tolist() == exact


def slow_lru(rows: list[list[int]], capacity: int | None) -> list[int]:
    """Prefix cache by whole prefixes as tuples and a list in order of last use."""
    order: list[tuple] = []
    hits = []
    for row in rows:
        prefixes = [tuple(row[: i + 1]) for i in range(len(row))]
        n = 0
        while n < len(prefixes) and prefixes[n] in order:
            n += 1
        hits.append(n)
        for prefix in reversed(prefixes):
            if prefix in order:
                order.remove(prefix)
            order.append(prefix)
        if capacity is not None:
            order = order[max(0, len(order) - capacity) :]
    return hits


def test_cached_prefixes_are_those_of_a_small_lru_of_its_own():
    draw = RNG(7)
    rows = [[0, *draw.integers(0, 3, draw.integers(0, 6)).tolist()] for _ in range(300)]
    for capacity in (None, 1, 5, 20, 60):
        assert sharing.lru_hits(sharing.chain(rows), capacity) == slow_lru(rows, capacity)
    # the same content after another beginning is not the same prefix
    assert sharing.lru_hits(sharing.chain([[1, 2], [3, 2], [1, 2]]), None) == [0, 0, 2]


def test_the_hit_share_of_a_known_trace():
    """Prompts of 1,000 tokens, two blocks of 512 (the last cut): the first block is shared by all."""
    made = trace(np.arange(4.0), np.full(4, 1000), prefix_ids=[[0, 1], [0, 2], [0, 1], [0, 3]])
    seen = sharing.of_prefixes(made, [1024])
    assert seen.hits[0].hit_share == pytest.approx((512 + 1000 + 512) / 4000)
    # two blocks: 0 and the last one are held, so block 1 is gone when it comes again
    assert seen.hits[1].hit_share == pytest.approx(3 * 512 / 4000) and (seen.blocks, seen.distinct) == (8, 4)


def test_sessions_by_hand():
    made = trace([0.0, 1.0, 4.0, 5.0], np.array([10, 8, 17, 40]), np.array([5, 1, 2, 1]), session=np.array([0, 1, 0, 0]))
    seen = sharing.of_sessions(made)
    assert (seen.sessions, seen.requests, seen.turns_max, seen.turns_mean) == (2, 4, 3, 2.0)
    assert seen.reusable_share == pytest.approx((15 + 19) / 75) and seen.gap_p95_s == pytest.approx(3.85)


def test_drift_is_the_two_sample_distance():
    a, b = RNG(8).integers(0, 50, 400), RNG(9).integers(5, 60, 300)
    exact = max(abs(np.mean(a <= x) - np.mean(b <= x)) for x in range(-1, 61))
    assert two_sample(a, b) == pytest.approx(exact)
    same = of_drift(trace(np.arange(3000.0), RNG(10).integers(1, 900, 3000), RNG(11).integers(1, 90, 3000)))
    assert same.prompt_distance < same.noise and abs(same.rate_change) < 0.01
    assert [part.rows for part in same.thirds] == [1000, 1000, 1000]


def test_means_alone_miss_bursts_and_lengths():
    times = np.cumsum(RNG(12).exponential(1.0, 20_000))
    plain = inspect(trace(times, np.full(20_000, 100), np.full(20_000, 10)))
    assert plain.waits.trace == pytest.approx(plain.waits.means_only, rel=0.2)
    assert plain.demand.kv_at_means == pytest.approx(1) and plain.demand.work_cv == 0
    bursts = inspect(trace(np.repeat(times[:4000], 5), np.full(20_000, 100), np.full(20_000, 10)))
    assert bursts.waits.trace > 4 * bursts.waits.means_only


@needs_traces
@pytest.mark.parametrize(
    ("name", "rate", "cv", "indexes", "busiest", "correlation"),
    [("azure2023_code", 3.12, 12.7, (13.1, 70.5, 164), 3.4, -0.01), ("azure2023_conv", 5.92, 1.08, (1.34, 3.5, 15.9), 1.4, 0.03),
     ("sweagent_gemini3", 2.60, 35.7, (4.0, 31, 181), 2.9, -0.08)],
)  # fmt: skip
def test_statistics_are_those_published_with_the_traces(name, rate, cv, indexes, busiest, correlation):
    seen = inspect(read_trace(TRACES / f"{name}.csv.gz"))
    assert seen.arrivals.rate == pytest.approx(rate, abs=0.006) and seen.arrivals.gap_cv == pytest.approx(cv, abs=0.06)
    assert [one.index for one in seen.arrivals.dispersion] == pytest.approx(indexes, rel=0.02)
    assert seen.arrivals.busiest_minute == pytest.approx(busiest, abs=0.06)
    assert seen.rank_correlation == pytest.approx(correlation, abs=0.006)


@needs_traces
def test_an_unlimited_cache_finds_what_was_published_of_mooncake():
    made = read_trace(TRACES / "mooncake_conversation.csv.gz")
    chains = sharing.chain(made.prefix_ids)
    # "with an unlimited cache 35 % of all 512-token blocks hit"
    assert sum(sharing.lru_hits(chains, None)) / sum(map(len, chains)) == pytest.approx(0.35, abs=0.005)
    gaps = np.diff(made.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(2.96, abs=0.01)
    seen = of_arrivals(scatter(made.arrival_s))
    assert seen.gap_cv == pytest.approx(1.01, abs=0.04)
    assert [one.index for one in seen.dispersion] == pytest.approx((1.07, 1.4, 2.7), rel=0.1)


def test_the_command_writes_json_and_refuses_before_it_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i / 2},{50 + i % 7},{5 + i % 3},0 {i % 4}\n" for i in range(300))
    Path("t.csv").write_text("arrival_s,prompt_tokens,output_tokens,prefix_hash_blocks\n" + rows)
    argv = ["workload", "inspect", "t.csv", "--json", "o.json", "--cache-tokens", "512,4096"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    told = json.loads(Path("o.json").read_text())
    assert told["rows"] == 300 and told["arrivals"]["rate"] == pytest.approx(2.0) and told["sessions"] is None
    assert [hit["tokens"] for hit in told["prefixes"]["hits"]] == [None, 512, 4096]
    assert "A plan on mean lengths" in out and "dispersion" not in out.splitlines()[0] and max(map(len, out.splitlines())) <= 190
    assert main(["workload", "inspect", "t.csv", "--figure", "f.gif"]) == 2
    Path("one.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,6\n")
    assert main(["workload", "inspect", "one.csv"]) == 0
    assert main(["workload", "inspect", "t.csv", "--cache-tokens", "many"]) == 2


@pytest.mark.long
def test_the_figure_is_drawn_with_times_and_without(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the figures extra is not installed")
    monkeypatch.chdir(tmp_path)
    for stamp in ("{}", ""):
        rows = "".join(f"{stamp.format(i / 2)},{50 + i % 7},{5 + i % 3}\n" for i in range(300))
        Path("t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
        assert main(["workload", "inspect", "t.csv", "--figure", "f.svg"]) == 0
        assert Path("f.svg").stat().st_size > 10_000
