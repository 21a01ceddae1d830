"""The timeline of a run, recounted in plain Python from the CSV of its requests: no numpy, no bins of ours."""

from __future__ import annotations

import csv
import io
import math

import pytest

from llmqsim import load_text, simulate
from llmqsim.metrics.curves import by_length, distribution, slowest
from llmqsim.metrics.timeline import LENGTHS, STEPS, timeline
from llmqsim.metrics.waiting import WORDS

SCENARIO = """\
workload:
  requests: 400
  arrivals: {process: poisson, rate: 40}
  lengths: {prompt: {uniform: [20, 200]}, output: {uniform: [2, 80]}}
replicas: 3
routing: least_outstanding
cost: {model: affine, base: 8 ms, per_prefill_token: 20 us, per_decode_request: 1 ms}
engine: {max_num_seqs: 8, num_gpu_blocks_override: 45, enable_prefix_caching: true}
slo: {ttft: 300 ms, tpot: 30 ms}
run: {engine: reference}
"""


@pytest.fixture(scope="module")
def run():
    return simulate(load_text(SCENARIO), keep_steps=True)


@pytest.fixture(scope="module")
def rows(run):
    out = io.StringIO()
    run.to_frame().to_csv(out)
    out.seek(0)
    return [
        {k: v if k in ("class", "tenant", "outcome", "reason") else float(v or "nan") for k, v in r.items()}
        for r in csv.DictReader(out)
    ]


@pytest.fixture(scope="module")
def shown(run):
    return timeline(run)


def edges(shown):
    n = len(shown.waiting)
    return [shown.start_s + (shown.end_s - shown.start_s) * i / n for i in range(n + 1)]


def close(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if b is None:
            assert a is None
        else:
            assert a == pytest.approx(b, rel=2e-5, abs=1e-6)


def inside(value, low, high, last):
    return low <= value < high or (last and value == high)


def by_bin(shown, rows, key):
    ends = edges(shown)
    n = len(ends) - 1
    return [[r for r in rows if inside(r[key], ends[i], ends[i + 1], i == n - 1)] for i in range(n)]


def overlap(start, end, low, high):
    return max(0.0, min(end, high) - max(start, low))


def test_load(shown, rows):
    width = (shown.end_s - shown.start_s) / len(shown.waiting)
    close(shown.arrivals_per_s, [len(part) / width for part in by_bin(shown, rows, "arrival_s")])
    close(shown.completions_per_s, [len(part) / width for part in by_bin(shown, rows, "finish_s")])
    assert sum(shown.arrivals_per_s) * width == pytest.approx(400, rel=1e-4)


def test_attainment(shown, rows):
    def kept(r):
        tokens = r["generated_tokens"]
        tpot = (r["finish_s"] - r["first_token_s"]) / (tokens - 1) if tokens > 1 else 0.0
        return r["outcome"] == "completed" and r["first_token_s"] - r["intended_s"] <= 0.3 and tpot <= 0.03

    parts = by_bin(shown, rows, "intended_s")
    assert shown.asked == [len(part) for part in parts]
    close(shown.attainment, [sum(map(kept, part)) / len(part) if part else None for part in parts])


def test_who_waits_and_who_is_served(shown, rows):
    ends = edges(shown)
    spans = list(zip(ends, ends[1:], strict=False))
    close(
        shown.waiting,
        [sum(overlap(r["arrival_s"], r["first_scheduled_s"], a, b) for r in rows) / (b - a) for a, b in spans],
    )
    each = [
        [
            sum(overlap(r["first_scheduled_s"], r["finish_s"], a, b) for r in rows if r["replica"] == i) / (b - a)
            for i in range(3)
        ]
        for a, b in spans
    ]
    close(shown.serving, [sum(one) for one in each])
    close(shown.serving_least, [min(one) for one in each])
    close(shown.serving_most, [max(one) for one in each])
    assert shown.replicas == [sum(n > 0 for n in one) for one in each]


def test_what_they_waited_for(shown, rows):
    parts = by_bin(shown, rows, "arrival_s")
    for reason in WORDS:
        close(
            shown.waits[reason],
            [sum(r[f"wait_{reason}_s"] for r in part) / len(part) if part else None for part in parts],
        )
    assert sum(shown.preemptions) == sum(r["preemptions"] for r in rows) > 0
    assert shown.preemptions == [sum(r["preemptions"] for r in part) for part in parts]


def test_kv_use_from_the_log_of_steps(run, shown):
    """Step by step in plain Python, and near the integral that the engine keeps itself."""
    ends, log = edges(shown), run.step_log
    held = [[0.0] * (len(ends) - 1) for _ in range(3)]
    for replica in range(3):
        mine = [i for i in range(len(log.start_ns)) if log.replica[i] == replica]
        mine.sort(key=lambda i: log.start_ns[i])
        for i, after in zip(mine, [*mine[1:], None], strict=True):
            start, end = log.start_ns[i] / 1e9, log.end_ns[i] / 1e9
            if after is not None:
                end = min(end, log.start_ns[after] / 1e9)
            for k in range(len(ends) - 1):
                held[replica][k] += (
                    log.kv_blocks[i] * overlap(start, end, ends[k], ends[k + 1]) / (ends[k + 1] - ends[k])
                )
    usable = run.kv["blocks"] - 1
    assert shown.kv_from == STEPS
    close(shown.kv_mean, [sum(one) / 3 / usable for one in zip(*held, strict=True)])
    close(shown.kv_most, [max(one) / usable for one in zip(*held, strict=True)])
    whole = sum(u.kv_block_ns for u in run.usage) / 3 / usable / (run.end_ns - shown.start_s * 1e9)
    assert sum(shown.kv_mean) / len(shown.kv_mean) == pytest.approx(whole, rel=0.06)


def test_kv_use_from_lengths(rows):
    """Without the log: the prompt and half a block, then a line to prompt and answer, looked at in the middle of each bin."""
    run = simulate(load_text(SCENARIO.replace("override: 45", "override: 4000")))
    shown = timeline(run)
    frame = run.to_frame().to_dict("records")
    assert shown.kv_from == LENGTHS
    for at, mean in zip(shown.middles_s, shown.kv_mean, strict=True):
        held = 0.0
        for r in frame:
            first, start, end = r["first_token_s"], r["first_scheduled_s"], r["finish_s"]
            if start <= at < first:
                held += r["prompt_tokens"] + 8
            elif first <= at < end:
                held += r["prompt_tokens"] + 8 + r["generated_tokens"] * (at - first) / (end - first)
        assert mean == pytest.approx(held / 16 / 3999 / 3, rel=1e-4, abs=1e-7)
    own = run.summary()["kv"]["usage_mean"]
    assert sum(shown.kv_mean) / len(shown.kv_mean) == pytest.approx(own, rel=0.05)


def test_bins_are_bounded_and_nobody_is_nobody():
    many = timeline(
        simulate(load_text(SCENARIO.replace("400", "9000").replace("8 ms", "1 ms").replace("reference", "auto")))
    )
    assert len(many.waiting) == 200
    none = simulate(load_text(SCENARIO.replace("run: {engine: reference}", "run: {until: 0.0001}")))
    assert timeline(none) is None


def test_a_distribution_is_what_sorting_says():
    import numpy as np

    values = np.array([((i * 7919) % 5003) * 1_000_000 for i in range(5003)])
    seconds, shares = distribution(values)
    ordered = sorted(values.tolist())
    for second, share in zip(seconds, shares, strict=True):
        rank = round(share * len(ordered))
        assert math.isclose(ordered[rank - 1] / 1e9, second, rel_tol=1e-5, abs_tol=1e-9)
    assert len(seconds) <= 200 and shares[-1] == 1.0


def test_tenths_by_length_and_the_slowest(run, rows):
    ordered = sorted(rows, key=lambda r: r["prompt_tokens"] + r["output_tokens"])
    for i, one in enumerate(by_length(run)):
        part = ordered[40 * i : 40 * (i + 1)]
        assert one["requests"] == 40
        assert one["least"] == part[0]["prompt_tokens"] + part[0]["output_tokens"]
        assert one["most"] == part[-1]["prompt_tokens"] + part[-1]["output_tokens"]
    longest = sorted(rows, key=lambda r: r["arrival_s"] - r["finish_s"])[:50]
    assert {one["request"] for one in slowest(run)} == {int(r["request"]) for r in longest}
