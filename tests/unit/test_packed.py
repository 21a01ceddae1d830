"""A streamed table: the same figures and columns, in less memory, whoever runs and wherever it is cut."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import UserError, load_text, packed, requests, simulate
from llmqsim.cli import main
from llmqsim.cluster import compiled
from llmqsim.packed import Memory, Packed
from llmqsim.requests import COLUMNS, RequestTable
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import _run, prepare

SCENARIO = """
workload: {requests: 1500, arrivals: {process: poisson, rate: 6 req/s}, lengths: azure-conversation}
model: llama-3.1-8b
gpu: a100-sxm-80gb
engine: {enable_prefix_caching: false}
slo: {ttft: 500 ms, attainment: 0.9}
run: {warmup: auto}
"""
CASES = {
    "one replica": [],
    "a run that is cut": ["run.until=100 s"],
    "requests that are refused": ["engine.max_model_len=1000"],
    "three replicas in turn": ["replicas=3"],
    "reports every so often": [
        "replicas=3",
        "routing={policy: least_loaded, signal_age: 700 ms}",
        "workload.arrivals.rate=20 req/s",
    ],
    "a door": ["replicas=3", "admission={policy: queue_cap, most: 4}", "workload.arrivals.rate=30 req/s"],
    "work in flight": ["replicas=3", "routing=least_predicted_work", "workload.arrivals.rate=20 req/s"],
    "drawn at random": ["replicas=3", "routing=random", "workload.arrivals.rate=20 req/s"],
    "the least loaded of three": ["replicas=3", "routing=least_outstanding", "workload.arrivals.rate=20 req/s"],
    "overload, short memory": ["engine.num_gpu_blocks_override=600", "workload.arrivals.rate=20 req/s"],
    "a closed loop": ["workload.arrivals={process: closed_loop, clients: 30}"],
    "a sorted queue": [
        "replicas=2", "engine.ordering=priority", "engine.preemption=recompute_newest",
        "workload.arrivals.rate=30 req/s",
        "workload.classes={one: {share: 0.5, priority: 0}, two: {share: 0.5, priority: 1}}",
    ],
    "clients that give up": ["workload.clients.timeout=3 s", "workload.arrivals.rate=20 req/s"],
    "the reference engine": ["run.engine=reference", "workload.requests=300"],
    "a fallback in the middle": [
        # a step becomes longer than the compiled engine's numbers hold once enough requests run
        "cost={model: affine, base: 1 s, per_decode_request: 30 s}", "workload.requests=300",
    ],
}


@pytest.fixture(params=(64, 500))
def piece(request, monkeypatch):
    """Rows of a stretch."""
    for module in (packed, requests, compiled):
        monkeypatch.setattr(module, "PIECE_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("case", CASES)
def test_a_streamed_run_leaves_what_a_plain_one_leaves(case, piece):
    scenario = load_text(SCENARIO, sets=CASES[case])
    prepared = prepare(scenario)
    plain, streamed = (build_workload(scenario, prepared.servers, 0, 0, streamed) for streamed in (False, True))
    assert streamed.table.streamed == (len(streamed.table) > piece)
    one, other = (_run(scenario, prepared.servers, made, keep_steps=False) for made in (plain, streamed))
    for column in COLUMNS:
        expected, found = (getattr(made.table, column.name) for made in (plain, streamed))
        assert np.array_equal(expected, found), column.name
    assert (one.engine, one.end_ns, one.usage) == (other.engine, other.end_ns, other.usage)
    assert np.array_equal(one.gaps.counts, other.gaps.counts)
    assert (other.fallback is not None) == (case == "a fallback in the middle")


def test_rows_that_are_over_are_packed_as_the_run_goes(piece, monkeypatch):
    """The rows that have memory are those of a stretch or two, not all."""
    alive = []
    pack = RequestTable.pack_finished

    def spy(table):
        pack(table)
        alive.append(table._opened - table._packed.rows)

    monkeypatch.setattr(RequestTable, "pack_finished", spy)
    simulate(load_text(SCENARIO), keep="summary")
    assert len(alive) == -(-1500 // piece) - 1
    assert max(alive) < piece + 256  # and those in flight


@pytest.mark.parametrize("case", ("one replica", "the least loaded of three", "the reference engine"))
def test_the_summary_is_the_same(case, piece):
    scenario = load_text(SCENARIO, sets=CASES[case])
    kept = simulate(scenario, keep="summary")
    assert kept.summary() == simulate(scenario).summary()
    with pytest.raises(UserError, match="keep='summary'"):
        kept.to_frame()


def test_packed_columns_come_back():
    generator, whole = np.random.default_rng(0), []
    store = Packed(5, {3: 2})
    for rows in (1, 300, 7):
        times = np.sort(generator.integers(0, 2**60, rows))
        data = np.stack(
            [
                np.full(rows, -1),
                generator.integers(-3, 200, rows),
                times,
                np.where(generator.random(rows) < 0.1, -1, times + generator.integers(0, 2**33, rows)),
                generator.integers(-(2**62), 2**62, rows),
            ]
        )
        store.add(data)
        whole.append(data)
    for column, values in enumerate(np.concatenate(whole, axis=1)):
        for _ in range(2):
            assert store.column(column).tolist() == values.tolist()


def test_memory_that_was_given_back_reads_as_zeros_and_can_be_written_again():
    memory = Memory(2, 5000)
    memory.data[:] = 7
    memory.give_back(1000, 4000)
    left = memory.data
    assert (left[:, :1000] == 7).all() and (left[:, 4000:] == 7).all()
    if memory._map is not None:
        assert (left[:, 1600:3400] == 0).all()  # whole pages
    left[:, 1000:4000] = 9
    assert (left[:, 1000:4000] == 9).all()


def test_keep_on_the_command_line(tmp_path, capsys):
    path, table = tmp_path / "x.yaml", tmp_path / "t.csv"
    path.write_text(SCENARIO)
    outs = [tmp_path / f"{keep}.json" for keep in ("summary", "requests")]
    for out in outs:
        assert main(["run", str(path), "--keep", out.stem, "--json", str(out)]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert main(["run", str(path), "--keep", "summary", "--requests", str(table)]) == 2
    assert "--keep: summary keeps no requests to write" in capsys.readouterr().err
    assert not table.exists()
    with pytest.raises(UserError, match=r"keep: must be one of requests, summary \(got 'all'\)"):
        simulate(load_text(SCENARIO), keep="all")
