"""User cases that this version answers, each through the normal report: the JSON of `llmqsim run` or `metrics`.

Exact values follow from the inputs by arithmetic; trends and bounds hold on every seed.
"""

from __future__ import annotations

import json

import pytest

from llmqsim import from_mapping, simulate
from llmqsim.cli import main
from llmqsim.report.tables import screen

QWEN_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def run_json(folder, scenario: dict, *options: str) -> dict:
    """The JSON that `llmqsim run` writes for a scenario."""
    path, out = folder / "scenario.yaml", folder / "out.json"
    path.write_text(json.dumps(scenario))  # JSON is YAML
    assert main(["run", str(path), "--json", str(out), *options]) == 0
    return json.loads(out.read_text())


# S01 ------------------------------------------------------------------------------------------------------------


def small_chat(folder) -> dict:
    (folder / "config.json").write_text(json.dumps(QWEN_7B))
    return {
        "workload": {
            "requests": 5,
            "arrivals": {"process": "burst"},
            "lengths": {"prompt": 100, "output": 5},
        },
        "model": {"config": "config.json"},
        "gpu": "a100-sxm-80gb",
        "engine": {"kv_cache_memory_bytes": "10 GiB", "block_size": 16},
    }


def test_s01_the_kv_formula_counts_kv_heads(tmp_path):
    kv = run_json(tmp_path, small_chat(tmp_path))["kv"]
    assert kv["bytes_per_token"] == 57_344
    assert (kv["blocks"], kv["tokens"]) == (11_702, 187_232)
    assert all(number in kv["formula"] for number in ("28", "4", "128", "57,344"))


# S02 ------------------------------------------------------------------------------------------------------------


def pool_of_2360(**engine) -> dict:
    return {
        "workload": {
            "requests": 300,
            "arrivals": {"process": "burst"},
            "lengths": {
                "prompt": {"lognormal": {"mean": 900, "cv": 1.0}, "max": 7000},
                "output": {"exponential": {"mean": 250}, "max": 1000},
            },
        },
        "cost": {"model": "affine", "base": "10 ms", "per_prefill_token": "50 us"},
        "engine": {"num_gpu_blocks_override": 2360, "max_model_len": 8192, **engine},
    }


def test_s02_guaranteed_concurrency_is_a_floor_shown_beside_the_sustained_one(tmp_path):
    kv = run_json(tmp_path, pool_of_2360())["kv"]
    assert (kv["blocks"], kv["tokens"]) == (2360, 37_760)
    assert kv["guaranteed_concurrency"] == pytest.approx(4.61, abs=0.005)
    assert kv["sustained_concurrency"]["peak"] > 2 * kv["guaranteed_concurrency"]


def test_s02_an_8_bit_cache_doubles_the_blocks_and_leaves_the_weights_alone(tmp_path):
    scenario = small_chat(tmp_path)
    scenario["engine"] = {}
    wide = run_json(tmp_path, scenario)["kv"]
    narrow = run_json(tmp_path, scenario, "--set", "engine.kv_cache_dtype=fp8")["kv"]
    pool_bytes = wide["items"][-1]["bytes"]
    assert narrow["items"] [-1]["bytes"] == pool_bytes
    assert narrow["blocks"] == pool_bytes // (57_344 * 16 // 2) and narrow["blocks"] // 2 == wide["blocks"]
    assert [i for i in narrow["items"] if i["name"] != "KV pool"] == [i for i in wide["items"] if i["name"] != "KV pool"]


def test_s02_a_pool_stated_in_blocks_says_that_the_kv_type_does_not_change_it(tmp_path):
    narrow = run_json(tmp_path, pool_of_2360(kv_cache_dtype="fp8"))
    assert narrow["kv"]["blocks"] == 2360
    assert any("kv_cache_memory_bytes" in note for note in narrow["notes"])


def test_auto_says_why_it_took_the_slower_engine(tmp_path):
    fast = run_json(tmp_path, pool_of_2360())
    slow = run_json(tmp_path, pool_of_2360() | {"routing": {"policy": "round_robin", "late_binding": 64}})
    assert (fast["engine"], slow["engine"]) == ("compiled", "reference")
    assert any("routing.late_binding" in note for note in slow["notes"])
    assert not any("reference engine" in note for note in fast["notes"])


# S03 ------------------------------------------------------------------------------------------------------------


def two_users(folder, slots: int) -> dict:
    (folder / "two.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.0,100,100\n0.3,100,100\n")
    return {
        "workload": {"trace": "two.csv"},
        "cost": {"model": "constant", "step": "0.5 s"},
        "engine": {"max_num_seqs": slots, "num_gpu_blocks_override": 1000},
    }


def test_s03_the_second_user_waits_for_the_whole_first_answer_and_the_report_says_why(tmp_path):
    summary = run_json(tmp_path, two_users(tmp_path, 1))
    assert summary["ttft_s"]["max"] == pytest.approx(50.2, abs=1e-9)
    assert summary["waiting_for"]["largest"] == "slots"
    assert summary["kv"]["waiting"]["peak"] == 1 and summary["kv"]["usage_peak"] < 0.05
    text = screen(simulate(from_mapping(two_users(tmp_path, 1), folder=str(tmp_path))))
    assert "max_num_seqs" in text or "slot" in text


def test_s03_four_slots_serve_the_second_user_at_once(tmp_path):
    assert run_json(tmp_path, two_users(tmp_path, 4))["ttft_s"]["max"] < 1.1


# S08 ------------------------------------------------------------------------------------------------------------


def two_prompts(slots: int, **cost) -> dict:
    return {
        "workload": {
            "requests": 2,
            "arrivals": {"process": "burst"},
            "lengths": {"prompt": 1024, "output": 1},
        },
        "cost": {"model": "affine", **cost},
        "engine": {"max_num_seqs": slots, "max_num_batched_tokens": 4096},
    }


@pytest.mark.parametrize(
    ("cost", "together", "apart"),
    [
        ({"per_prefill_token": "1 s / 1024"}, (2.0, 2.0), (1.0, 2.0)),
        ({"base": "0.9 s", "per_prefill_token": "0.1 s / 1024"}, (1.1, 1.1), (1.0, 2.0)),
    ],
)
def test_s08_batching_two_full_prefills_helps_only_with_slack(tmp_path, cost, together, apart):
    for slots, (first, second) in ((4, together), (1, apart)):
        ttft = run_json(tmp_path, two_prompts(slots, **cost))["ttft_s"]
        assert ttft["max"] == second
        assert ttft["mean"] == pytest.approx((first + second) / 2, rel=1e-12)


# S10 ------------------------------------------------------------------------------------------------------------


def test_s10_same_word_different_number(tmp_path, capsys):
    events, out = tmp_path / "events.csv", tmp_path / "out.json"
    events.write_text("request,arrival,time,tokens\na,0,0.120,1\na,0,0.150,2\na,0,0.210,3\na,0,0.240,1\n")
    assert main(["metrics", str(events), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    for name, value in {"ttft_s": 0.120, "e2e_s": 0.240, "tpot_s": 0.020, "ntpot_s": 0.24 / 7, "ttsc_s": 0.030}.items():
        assert found[name]["mean"] == pytest.approx(value, abs=1e-9), name
    assert found["chunk_gap_s"]["values"] == pytest.approx([0.030, 0.060, 0.030])
    assert found["itl_s"]["values"] == pytest.approx([0.015, 0.020, 0.030])
    text = capsys.readouterr().out
    assert "TPOT" in text and "ITL" in text and "vLLM" in text


def test_s10_a_one_token_request_has_no_tpot_and_is_no_miss(tmp_path):
    scenario = {
        "workload": {
            "requests": 4,
            "arrivals": {"process": "constant", "rate": 1},
            "lengths": {"prompt": 10, "output": 1},
        },
        "cost": {"model": "constant", "step": "10 ms"},
        "slo": {"ttft": "1 s", "tpot": "1 ms"},
    }
    summary = run_json(tmp_path, scenario)
    assert summary["tpot_s"]["n"] == 0 and summary["tpot_s"]["mean"] is None
    assert summary["attainment"] == 1.0


# S11 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("burstiness", "cv"), [(1, 1.0), (0.25, 2.0), (1 / 9, 3.0)])
def test_s11_burstiness_is_the_shape_and_leaves_the_rate_alone(burstiness, cv):
    scenario = from_mapping(
        {
            "workload": {
                "requests": 20_000,
                "arrivals": {"process": "gamma", "rate": 100, "burstiness": burstiness},
                "lengths": {"prompt": 1, "output": 1},
            },
            "cost": {"model": "constant", "step": "1 us"},
        }
    )
    arrivals = simulate(scenario).table.arrival_ns / 1e9
    gaps = [arrivals[0], *(arrivals[1:] - arrivals[:-1])]
    mean = sum(gaps) / len(gaps)
    spread = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    # four standard errors of the mean; the CV of a skewed law converges more slowly
    assert mean == pytest.approx(0.01, rel=4 * cv / len(gaps) ** 0.5)
    assert spread / mean == pytest.approx(cv, rel=0.1)


def llm_replica(arrivals: dict, seed: int) -> dict:
    """Summary of one replica with 64 slots whose steps cost what an 8B model's roughly do."""
    scenario = from_mapping(
        {
            "workload": {"requests": 2500, "arrivals": arrivals, "lengths": {"prompt": 512, "output": 64}},
            "cost": {"model": "affine", "base": "8 ms", "per_prefill_token": "60 us", "per_decode_request": "0.1 ms"},
            "engine": {"max_num_seqs": 64},
            "run": {"seed": seed},
        }
    )
    return simulate(scenario).summary()


def test_s11_bursty_arrivals_cost_an_llm_replica_its_ttft_at_the_same_throughput():
    rate = 0.8 * llm_replica({"process": "burst"}, 0)["throughput"]["requests_per_s"]
    for seed in (1, 2, 3):
        smooth = llm_replica({"process": "poisson", "rate": rate}, seed)
        bursty = llm_replica({"process": "gamma", "rate": rate, "burstiness": 1 / 9}, seed)
        assert bursty["ttft_s"]["mean"] >= 2.5 * smooth["ttft_s"]["mean"]
        assert bursty["throughput"]["requests_per_s"] == pytest.approx(smooth["throughput"]["requests_per_s"], rel=0.2)
