"""User cases S07 and S09 through the normal report: the JSON of `llmqsim run`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.cli import main
from llmqsim.report.tables import screen
from tests.scenarios.test_user_cases import run_json

# S06: one knob, two latencies ---------------------------------------------------------------------------------------

BUDGETS = (8192, 4096, 2048, 1024, 512, 256)


def knob(folder, ttft: str, tpot: str):
    """32 running decodes, and 16k-token prompts often enough to keep one prefill in progress."""
    path = folder / "knob.yaml"
    scenario = {
        "workload": {
            "classes": {
                "decodes": {
                    "arrivals": {"process": "closed_loop", "clients": 32},
                    "requests": 32,
                    "lengths": {"prompt": 16, "output": 150},
                    "slo": {"tpot": tpot, "attainment": 0.9},
                },
                "documents": {
                    "arrivals": {"process": "closed_loop", "clients": 2},
                    "requests": 90,
                    "lengths": {"prompt": 16_384, "output": 1},
                    "slo": {"ttft": ttft, "attainment": 0.9},
                },
            }
        },
        "cost": {"model": "affine", "base": "10 ms", "per_prefill_token": "50 us", "per_decode_request": "20 us"},
        "engine": {"max_num_seqs": 128},
    }
    path.write_text(json.dumps(scenario))
    return path


def told(folder, ttft: str, tpot: str) -> dict:
    out = folder / "knob.json"
    values = ",".join(map(str, BUDGETS))
    assert main(["tradeoff", str(knob(folder, ttft, tpot)), "--values", values, "--json", str(out)]) == 0
    return json.loads(out.read_text())


def test_s06_one_knob_moves_two_latencies_against_each_other(tmp_path, capsys):
    found = told(tmp_path, "2.5 s", "70 ms")
    tpot = [point["tpot_s"]["p99"] for point in found["points"]]
    assert [point["value"] for point in found["points"]] == list(BUDGETS)
    assert all(a > b for a, b in zip(tpot, tpot[1:]))
    ttft = [point["ttft_s"]["p50"] for point in found["points"]]
    assert all(a < b for a, b in zip(ttft, ttft[1:]))
    screen_text = capsys.readouterr().out
    assert "█" in screen_text and "both" in screen_text


def test_s06_the_range_that_meets_both_targets_or_that_there_is_none(tmp_path):
    both = told(tmp_path, "2.5 s", "70 ms")
    assert both["range"] is not None and set(both["meets"]) < set(BUDGETS)
    for point in both["points"]:
        inside = all(share >= 0.9 for share in point["shares"].values())
        assert (point["value"] in both["meets"]) == inside
    low, high = both["range"]
    assert f"{low:,} to {high:,} meets both" in both["answer"] or f"of {low:,} meets both" in both["answer"]
    none = told(tmp_path, "2 s", "30 ms")
    assert none["range"] is None and none["answer"].startswith("No value")


def test_s06_both_targets_are_needed(tmp_path, capsys):
    path = knob(tmp_path, "3 s", "60 ms")
    sets = ["--set", "workload.classes.decodes.slo.tpot=null", "--set", "workload.classes.decodes.slo.e2e=5 s"]
    assert main(["tradeoff", str(path), "--values", "512", *sets]) == 2
    assert "slo: sets no tpot target" in capsys.readouterr().err
    assert main(["tradeoff", str(path), "--values", "a lot"]) == 2
    assert "must be numbers" in capsys.readouterr().err


# S07: one whale, many minnows -----------------------------------------------------------------------------------------

WHALE, MINNOW = 130_000, 200


def ocean(folder, minnows: int, batching="continuous", decodes: int = 0, seconds: float = 30.0, **engine) -> dict:
    """A whale at time 0 (at 1 s behind decodes), minnows at 5 a second; step budget 512, step time 0.05 s."""
    start = 1.0 if decodes else 0.0
    rows = [(0.0, 1, 4000, "decode")] * decodes + [(start, WHALE, 5, "whale")]
    rows += [(start + 0.2 * (i + 1) - 0.01, MINNOW, 5, "minnow") for i in range(minnows)]
    lines = ["arrival_s,prompt_tokens,output_tokens,class", *(",".join(map(str, row)) for row in rows)]
    (folder / "ocean.csv").write_text("\n".join(lines) + "\n")
    return {
        "workload": {"trace": "ocean.csv", "predictor": "oracle"},
        "cost": {"model": "constant", "step": "50 ms"},
        "engine": {"max_num_batched_tokens": 512, "max_num_seqs": 512, "batching": batching, **engine},
        "run": {"until": f"{seconds} s"},
    }


@pytest.mark.parametrize(("decodes", "steps"), [(0, 254), (32, 271)])
def test_s07_the_whale_needs_its_steps(tmp_path, decodes, steps):
    summary = run_json(tmp_path, ocean(tmp_path, 1, decodes=decodes))
    assert summary["by_class"]["whale"]["ttft_s"]["mean"] == pytest.approx(0.05 * steps, abs=1e-9)


def test_s07_minnows_pass_the_whale_where_they_may_and_it_still_gets_there(tmp_path):
    ways = {
        "one at a time": {"batching": {"policy": "partial_prefills", "n": 1}},
        "four, one long": {"batching": {"policy": "partial_prefills", "n": 4, "long": 1}},
        "shortest first": {"ordering": {"policy": "srpt", "by": "total"}},
    }
    by_way = {name: run_json(tmp_path, ocean(tmp_path, 60, **way)) for name, way in ways.items()}
    minnow, whale = ({n: s["by_class"][who]["ttft_s"]["mean"] for n, s in by_way.items()} for who in ("minnow", "whale"))
    for name in ("four, one long", "shortest first"):
        assert minnow["one at a time"] > 5 * minnow[name], (name, minnow)
        assert whale[name] < 1.5 * whale["one at a time"], (name, whale)


def test_s07_who_is_starved_is_reported_with_the_longest_wait_by_size(tmp_path):
    """Minnows that fill every step: shortest first never comes to the whale, and the report says so."""
    crowded = ocean(tmp_path, 1, ordering={"policy": "srpt", "by": "total"}, seconds=60)
    rows = [f"{0.02 * i},{MINNOW},2,minnow" for i in range(1, 2900)]
    crowded["workload"]["trace"] = "crowd.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens,class", f"0.0,{WHALE},5,whale", *rows]
    (tmp_path / "crowd.csv").write_text("\n".join(lines) + "\n")
    summary = run_json(tmp_path, crowded)
    sizes = summary["starvation"]["longest_wait"]
    assert sizes["from 65,536"] == {"n": 1, "mean_s": 60.0, "longest_s": 60.0, "starved": 0}
    assert sizes["below 256"]["longest_s"] < 2
    text = screen(simulate(from_mapping(crowded, folder=str(tmp_path))))
    assert "waited most" in text and "60.0 s (from 65,536 tokens)" in text


# S09: when does shortest-first pay? ------------------------------------------------------------------------------------


def burst(folder, prompts, ordering) -> dict:
    """All at time 0, one at a time, 10,000 tokens a second, one output token."""
    rows = [f"0.0,{prompt},1" for prompt in prompts]
    (folder / "burst.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return {
        "workload": {"trace": "burst.csv"},
        "cost": {"model": "affine", "per_prefill_token": "0.1 ms"},
        "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000, "ordering": ordering},
    }


def test_s09a_a_burst_of_prompts(tmp_path):
    prompts = np.rint(np.linspace(1000, 19_000, 50)).astype(int)

    def mean(ordering):
        return run_json(tmp_path, burst(tmp_path, prompts, ordering))["ttft_s"]["mean"]

    assert mean({"policy": "sjf", "by": "prompt"}) == pytest.approx(17.85, abs=0.01)
    random = [mean({"policy": "random", "seed": seed}) for seed in range(40)]
    half = 3.3 * np.std(random, ddof=1) / np.sqrt(len(random))
    assert half < 0.7 and np.mean(random) == pytest.approx(25.5, abs=half)


def four_sizes(ordering, seed: int = 0) -> dict:
    """Prompts of four sizes in equal numbers, prefill only, at 90 % of capacity."""
    sizes = (128, 512, 2048, 8192)
    rate = 0.9 / (np.mean(sizes) * 1e-4)
    classes = {f"p{p}": {"share": 0.25, "lengths": {"prompt": p, "output": 1}} for p in sizes}
    return {
        "workload": {
            "requests": 6000,
            "arrivals": {"process": "poisson", "rate": float(rate)},
            "classes": classes,
        },
        "cost": {"model": "affine", "per_prefill_token": "0.1 ms"},
        "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000, "ordering": ordering},
        "run": {"seed": seed},
    }


def test_s09b_all_sizes_wait_alike_and_shortest_first_with_ageing_bounds_the_largest(tmp_path):
    fcfs, plain, aged = (
        run_json(tmp_path, four_sizes(ordering))
        for ordering in ("fcfs", {"policy": "sjf", "by": "prompt"}, {"policy": "sjf", "by": "prompt", "ageing": 2000})
    )
    waits = [part["wait_s"]["mean"] for part in fcfs["by_class"].values()]
    assert max(waits) < 1.25 * min(waits)
    assert waits[0] > 100 * 128e-4 / 1  # a hundred times its own service
    assert aged["wait_s"]["mean"] < 0.8 * fcfs["wait_s"]["mean"]
    largest = [s["by_class"]["p8192"]["wait_s"]["max"] for s in (plain, aged, fcfs)]
    assert largest[1] < 1.1 * largest[2] < largest[0]  # four seconds of arrivals at most can pass it


def test_s09c_without_a_queue_there_is_nothing_to_reorder(tmp_path):
    chat = {
        "workload": {
            "requests": 400,
            "arrivals": {"process": "poisson", "rate": 2},
            "lengths": {"prompt": {"uniform": [50, 400]}, "output": {"uniform": [20, 200]}},
            "predictor": "oracle",
        },
        "cost": {"model": "affine", "base": "20 ms", "per_prefill_token": "20 us"},
        "engine": {"max_num_seqs": 256, "num_gpu_blocks_override": 10_000},
    }
    fcfs = run_json(tmp_path, chat)
    sjf = run_json(tmp_path, chat, "--set", "engine.ordering=sjf")
    for figure in ("ttft_s", "e2e_s"):
        assert sjf[figure]["mean"] == pytest.approx(fcfs[figure]["mean"], rel=0.01)
    assert any("no queue to reorder" in note for note in sjf["notes"])
    assert not any("no queue" in note for note in fcfs["notes"])


def test_s09d_the_gain_shrinks_with_the_rank_correlation(tmp_path):
    """Four slots at 95 % of their capacity; predictions of rank correlation tau; paired with first come first served."""

    def mean(ordering, predictor, seed):
        scenario = {
            "workload": {
                "requests": 1500,
                "arrivals": {"process": "poisson", "rate": 3.8},
                "lengths": {"prompt": 1, "output": {"lognormal": {"mean": 20, "cv": 1.2}}},
                "predictor": predictor,
            },
            "cost": {"model": "constant", "step": 0.05},
            "engine": {"max_num_seqs": 4, "ordering": ordering},
            "run": {"seed": seed},
        }
        return run_json(tmp_path, scenario)["e2e_s"]["mean"]

    seeds = range(4)
    fcfs = np.array([mean("fcfs", "oracle", seed) for seed in seeds])
    gains = {}
    for tau in (1.0, 0.6, 0.3, 0.0, -1.0):
        sjf = np.array([mean("sjf", {"policy": "ranker", "tau": tau}, seed) for seed in seeds])
        gains[tau] = float(np.mean(1 - sjf / fcfs))
    assert gains[1.0] > gains[0.6] > gains[0.3] > 0.05, gains
    assert abs(gains[0.0]) < 0.3 * gains[0.6], gains
    assert gains[-1.0] < -0.5, gains
