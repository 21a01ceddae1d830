"""max_tokens of each request of a trace: a known end and a stop string are told apart, and reservations follow it."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.errors import DataError
from llmqsim.scenario.load import from_mapping
from llmqsim.simulation import simulate
from llmqsim.workload.trace import read_trace

HEAD = "arrival_s,prompt_tokens,output_tokens,max_tokens\n"


def world(folder, rows: str, engine: dict, batching: str = "continuous", **workload) -> dict:
    (folder / "t.csv").write_text(HEAD + rows)
    return {
        "workload": {"trace": {"file": "t.csv"}, **workload},
        "cost": {"model": "constant", "step": "1 s"},
        "engine": {"batching": batching, "host": {"request_before": 0, "request_after": 0}, **engine},
    }


def run(folder, scenario: dict, engine: str, **run):
    return simulate(from_mapping({**scenario, "run": {"engine": engine, **run}}, folder=str(folder)))


def finish_s(result) -> list[float]:
    return (result.table.finish_ns / 1e9).tolist()


def test_the_column_is_read_and_an_empty_cell_is_no_limit(tmp_path):
    (tmp_path / "t.csv").write_text(HEAD + "0,10,5,5\n1.5,10,5,\n2,10,5,64.0\n")
    assert read_trace(tmp_path / "t.csv").max_tokens.tolist() == [5, 0, 64]
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    assert read_trace(tmp_path / "t.csv").max_tokens is None


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("4", "request 2: its answer has 5 tokens, more than the 4 that its client allowed; correct either"),
        ("many", "request 2: must be a whole number from 1 to .* or empty where nobody set a limit .got 'many'"),
        ("0", "request 2: must be a whole number"),
        ("6.5", "request 2: must be a whole number"),
        ("1e12", "request 2: must be a whole number"),
    ],
)
def test_a_limit_that_can_not_be_is_refused_with_its_row(tmp_path, cell, said):
    (tmp_path / "t.csv").write_text(HEAD + f"0,10,5,5\n1.5,10,5,{cell}\n")
    with pytest.raises(DataError, match=f"t.csv: column 'max_tokens', {said}"):
        read_trace(tmp_path / "t.csv")


def test_the_column_meets_the_key_and_the_model(tmp_path):
    """model: what max_model_len leaves where a cell is empty or allows more; a number: the lesser; output replaces."""
    rows = "0,10,5,5\n1.5,10,5,\n2,10,5,5000\n"
    engine = {"max_model_len": 100, "max_num_seqs": 4, "num_gpu_blocks_override": 100}

    def limits(**workload):
        result = run(tmp_path, world(tmp_path, rows, engine, **workload), "reference")
        return result.table.max_tokens.tolist(), result.table.output_tokens.tolist(), " ".join(result.notes)

    found, _, notes = limits()
    assert found == [5, 90, 90]
    assert "2 of 3 requests carry a max_tokens of their own; 1 answers reach it" in notes
    assert limits(max_tokens=20)[0] == [5, 20, 20]
    assert limits(max_tokens=3)[:2] == ([3, 3, 3], [3, 3, 3])
    found, _, notes = limits(max_tokens="output")
    assert found == [5, 5, 5] and "replaces the trace's own column" in notes


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_known_end_wastes_no_row_and_a_stop_string_wastes_one(tmp_path, engine):
    """Two steps in flight: when the last token is computed the next step is formed already. It holds the request only
    if its end was not foreseen (as vLLM's asynchronous scheduling does): one wasted row for each stop."""
    options = {"async_scheduling": True, "max_num_seqs": 8, "num_gpu_blocks_override": 100}
    for cells, wasted in (("33", 0), ("39", 1), ("99", 2), ("3 ", 1)):
        rows = "".join(f"{20 * i}.5,4,3,{cell.strip()}\n" for i, cell in enumerate(cells))
        scenario = world(tmp_path, rows, options)
        scenario["workload"]["trace"]["time_unit"] = "s"
        result = run(tmp_path, scenario, engine)
        assert sum(usage.wasted_rows for usage in result.usage) == wasted, cells


@pytest.mark.parametrize("engine", ["reference", pytest.param("compiled", marks=pytest.mark.long)])
@pytest.mark.parametrize("batching", ["trtllm_guaranteed_no_evict", "orca"])
def test_reservations_are_of_the_clients_own_limits(tmp_path, batching, engine):
    """9 usable blocks of 16, prompts of 32, answers of 16: with limits of 32 tokens a request holds (32 + 32) / 16 = 4
    blocks and both run at once; with 64 it holds 6, and the second waits for the first. One of each holds 10: too many.
    A step is a second, so 16 tokens take 16 s from the admission on."""
    options = {"max_num_seqs": 8, "num_gpu_blocks_override": 10, "block_size": 16, "max_model_len": 128,
               "async_scheduling": False}  # fmt: skip
    for limits, ends in (((32, 32), (16, 16)), ((64, 64), (16, 32)), ((32, 64), (16, 32)), ((16, 96), (16, 32))):
        rows = "".join(f"0,32,16,{limit}\n" for limit in limits)
        assert finish_s(run(tmp_path, world(tmp_path, rows, options, batching), engine)) == list(ends), limits


POLICIES = ("trtllm_guaranteed_no_evict", "orca", "sglang", "static")


def mixed(folder, seed: int, batching: str) -> dict:
    """Random lengths; a third each reach their limit, stop before it, and have none; memory is short."""
    random = np.random.default_rng(seed)
    n = 60
    output = random.integers(1, 60, n)
    kind = random.integers(0, 3, n)
    limit = np.where(kind == 0, output, output + random.integers(1, 50, n))
    times = np.cumsum(random.exponential(2.0, n))
    cells = ["" if k == 2 else str(value) for k, value in zip(kind, limit, strict=True)]
    lines = zip(times, random.integers(1, 120, n), output, cells, strict=True)
    rows = "".join(f"{t:.3f},{p},{o},{cell}\n" for t, p, o, cell in lines)
    options = {
        "max_num_seqs": 6, "num_gpu_blocks_override": 41, "max_num_batched_tokens": 128, "max_model_len": 256,
        "async_scheduling": bool(seed % 2) and batching == "continuous", "enable_chunked_prefill": True,
    }  # fmt: skip
    return world(folder, rows, options, batching)


def agree(folder, seed: int, batching: str) -> None:
    scenario = mixed(folder, seed, batching)
    readable, fast = (run(folder, scenario, engine) for engine in ("reference", "compiled"))
    assert np.array_equal(readable.table.data, fast.table.data) and readable.usage == fast.usage


def test_the_engines_agree_on_a_trace_with_limits(tmp_path):
    for seed in range(6):
        agree(tmp_path, seed, "continuous")


@pytest.mark.long
@pytest.mark.parametrize("batching", POLICIES)
def test_the_engines_agree_under_policies_that_reserve(tmp_path, batching):
    for seed in range(6):
        agree(tmp_path, seed, batching)
