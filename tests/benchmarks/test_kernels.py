"""How fast is each kernel? `pytest -m bench tests/benchmarks` (docs/benchmarks.md); never part of another run."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.benchmark import measure
from llmqsim.benchmark.kernels import decode_steps
from llmqsim.cluster.compiled import CompiledCluster
from llmqsim.metrics import kernels as figures
from llmqsim.packed import Packed
from llmqsim.requests import COLUMNS, NEAR_ARRIVAL
from llmqsim.scenario.build import build_servers, build_workload
from llmqsim.workload.table_file import load_preset

pytestmark = pytest.mark.bench
REQUESTS = 10_000
ROUNDS = 15


@pytest.mark.parametrize("case", ("a", "f", "c", "b8", "b64", "e"))
def test_serve(benchmark, case):
    """Requests of a benchmark case through the compiled engine alone: no drawing, no figures."""
    scenario = measure.scenario(case, f"workload.requests={REQUESTS}")
    servers = build_servers(scenario)

    def fresh():
        made = build_workload(scenario, servers, 0, 0)
        return (CompiledCluster(made.table, servers.deployment, False, made.clients),), {}

    def run(cluster):
        cluster.run()
        return cluster

    cluster = benchmark.pedantic(run, setup=fresh, rounds=ROUNDS, warmup_rounds=1)
    assert sum(usage.requests for usage in cluster.usage) == REQUESTS
    benchmark.extra_info["requests_per_s"] = round(REQUESTS / benchmark.stats.stats.min)


def test_step_durations(benchmark):
    cost = build_servers(measure.scenario("a")).deployment.cost
    assert benchmark(decode_steps, cost.costs, cost.params, 100_000, 32) > 0


def test_lengths(benchmark):
    table, (prompt, output) = load_preset("azure-conversation"), np.random.default_rng(0).random((2, 50_000))
    assert len(benchmark(table.draw, prompt, output)[0]) == 50_000


def test_exact_sum(benchmark):
    bits = np.random.default_rng(0).random(50_000).view(np.int64)
    low, high = np.zeros((2, figures.EXPONENTS), dtype=np.int64)
    benchmark(figures.add_floats, bits, low, high)
    assert high.any()


def test_counts_of_two_series(benchmark):
    times, looks = np.sort(np.random.default_rng(0).integers(0, 10**12, (2, 50_000)), axis=1)
    counts = np.empty(50_000, dtype=np.int64)
    benchmark(figures.count_up_to, times, looks, counts)
    assert counts[-1] > 49_000


def test_packing(benchmark):
    table = measure.simulate(measure.scenario("a", f"workload.requests={REQUESTS}")).table

    def pack():
        store = Packed(len(COLUMNS), NEAR_ARRIVAL)
        store.add(table.data)
        return store

    store = benchmark(pack)
    assert store.nbytes < table.data.nbytes / 3
