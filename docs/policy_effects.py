"""Write docs/policy_effects.md: what every policy does to two recorded workloads at 70, 90 and 110 % of FCFS capacity.

    python docs/policy_effects.py TRACES [--requests N] [--out docs/policy_effects.md]

TRACES : a folder that holds azure2023_conv.csv.gz and azure2023_code.csv.gz (Azure LLM inference traces of 2023). The
first N requests of each are replayed, stretched to the load. Some minutes of one core.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from llmqsim import from_mapping, simulate
from llmqsim.files import write_text
from llmqsim.report.show import duration, percent
from llmqsim.rng import stream
from llmqsim.workload.trace import read_trace

LOADS = (0.7, 0.9, 1.1)
WORKLOADS = {"conversation": "azure2023_conv.csv.gz", "code": "azure2023_code.csv.gz"}
RANKER = {"policy": "ranker", "tau": 0.6}
NOISY = {"policy": "lognormal", "sigma": 0.5}
SWAP = {"preset": "vllm-0.6", "batching": "continuous", "preemption": "swap_newest", "swap_space": "64 GiB"}
"""vLLM V1 can't swap; the orderings that were made for engines that do run on V0's host times and V1's batching"""

Rows = tuple[tuple[str, dict, object], ...]
ORDERINGS: Rows = (
    ("fcfs", {"ordering": "fcfs"}, None),
    ("lifo", {"ordering": "lifo"}, None),
    ("random", {"ordering": "random"}, None),
    ("priority", {"ordering": "priority"}, None),
    ("priority, preempting", {"ordering": {"policy": "priority", "preempt": True}}, None),
    ("sjf by prompt", {"ordering": {"policy": "sjf", "by": "prompt"}}, None),
    ("sjf, oracle", {"ordering": "sjf"}, "oracle"),
    ("sjf, ranker 0.6", {"ordering": "sjf"}, RANKER),
    ("sjf, ranker 0.6, ageing 50 tokens/s", {"ordering": {"policy": "sjf", "ageing": 50}}, RANKER),
    ("srpt, oracle", {"ordering": "srpt"}, "oracle"),
    ("srpt, ranker 0.6, corrected", {"ordering": "srpt"}, {**RANKER, "online": 2}),
    ("srpt, not preempting, ranker 0.6", {"ordering": {"policy": "srpt", "preempt": False}}, RANKER),
    ("shortest_cost, class mean", {"ordering": "shortest_cost"}, "class_mean"),
    ("shortest_cost, regression", {"ordering": "shortest_cost"}, "regression"),
    ("learned_rank, ranker 0.6", {"ordering": "learned_rank"}, RANKER),
    ("learned_rank, not preempting, ranker 0.6", {"ordering": {"policy": "learned_rank", "preempt": False}}, RANKER),
    ("mlfq", {"ordering": "mlfq"}, None),
    ("vtc", {"ordering": "vtc"}, None),
    ("edf", {"ordering": "edf"}, None),
    ("edf, preempting", {"ordering": {"policy": "edf", "preempt": True}}, None),
    ("least_slack, sigma 0.5", {"ordering": "least_slack"}, NOISY),
    ("goodput_first, sigma 0.5", {"ordering": "goodput_first"}, NOISY),
    ("longest_prefix", {"ordering": "longest_prefix"}, None),
    ("vLLM 0.6 with swap: fcfs", {"ordering": "fcfs", **SWAP}, None),
    ("vLLM 0.6 with swap: priority, preempting", {"ordering": {"policy": "priority", "preempt": True}, **SWAP}, None),
    ("vLLM 0.6 with swap: srpt, oracle", {"ordering": "srpt", **SWAP}, "oracle"),
    ("vLLM 0.6 with swap: learned_rank, ranker 0.6", {"ordering": "learned_rank", **SWAP}, RANKER),
)
OTHERS: Rows = (
    ("partial_prefills, 4 of which 1 long", {"batching": {"policy": "partial_prefills", "n": 4}}, None),
    ("prefill_share 0.5", {"batching": {"policy": "prefill_share", "share": 0.5}}, None),
    ("slo_chunk", {"batching": "slo_chunk"}, None),
    ("multi_step 8", {"batching": {"policy": "multi_step", "n": 8}}, None),
    ("reserve_predicted, oracle", {"batching": "reserve_predicted"}, "oracle"),
    ("reserve_predicted, 90 % quantile", {"batching": "reserve_predicted"}, {"policy": "quantile", "q": 0.9}),
    ("victims: least_kv", {"preemption": "least_kv"}, None),
    ("victims: least_urgent", {"preemption": "least_urgent"}, None),
    ("victims: most_slack, sigma 0.5", {"preemption": "most_slack"}, NOISY),
)

PAGE = """# What policies do to two real workloads

Written by `python docs/policy_effects.py TRACES` from the first {requests:,} requests of the Azure conversation and code traces of 2023. Llama-3.1-8B on one A100 80 GB, vLLM 0.19, `max_num_seqs: 64`, a KV pool of {blocks:,} blocks of 16 tokens (a quarter of what fits, so that memory matters). The load is the trace's own arrivals, stretched; 100 % is the rate at which first come first served gets through all of these requests when all are there at time 0.

The traces name neither classes nor tenants. For the policies that look at them, 60 % of the requests, drawn at random, are *interactive* (priority 0, TTFT within 2 s and TPOT within 100 ms), the others *batch* (priority 1, E2E within 60 s); half of all belong to one of five tenants, the rest to the four others alike. Cells: share of arrivals within SLO; mean and P99 of TTFT; mean E2E. One run a cell: the requests are the same in all of them, and differences of a few per cent mean nothing.

The code trace comes in bursts: over these requests a backlog stands most of the time, even at 70 %. Where an ordering preempts, those who give way compute their KV again (`recompute_newest`; vLLM V1 can't swap) unless the row says swap, which is then vLLM 0.6's host times with V1's batching: every preemption then makes work, which makes others wait, which preempts, so that mlfq and learned_rank, made for engines that swap, collapse (`mlfq` with `proactive: true` swaps ahead of need; policies.md).

Every figure is of all requests, so a policy that serves some at the cost of others shows a better mean and a worse P99; `starved` counts requests that were without a token for more than ten times the mean E2E (more for larger ones, see metrics.md), at 110 %.
"""


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    given = parser.parse_args()
    blocks = 7000
    parts = [PAGE.format(requests=given.requests, blocks=blocks)]
    with tempfile.TemporaryDirectory() as folder:
        for name, file in WORKLOADS.items():
            parts.append(workload(name, given.traces / file, given.requests, blocks, Path(folder)))
    write_text(given.out, "\n".join(parts))


def workload(name: str, trace: Path, requests: int, blocks: int, folder: Path) -> str:
    """The section of one trace."""
    rate = labelled(trace, requests, folder / f"{name}.csv")
    capacity = simulate(from_mapping(scenario(name, {}, None, blocks, 1.0, burst=True), folder=str(folder)))
    served = capacity.summary()["throughput"]["requests_per_s"]
    heads = " | ".join(f"{load:.0%} in SLO | TTFT | P99 | E2E" for load in LOADS)
    lines = [f"## Azure {name}", "", f"100 % is {served:.3g} req/s.", "", f"| policy | {heads} | starved |"]
    lines.append("| --- |" + " ---: |" * (4 * len(LOADS) + 1))
    for rows in (ORDERINGS, OTHERS):
        for label, engine, predictor in rows:
            cells, starved = [], 0
            for load in LOADS:
                made = scenario(name, engine, predictor, blocks, load * served / rate)
                summary = simulate(from_mapping(made, folder=str(folder))).summary()
                ttft = summary["ttft_s"]
                cells += [percent(summary["attainment"]), duration(ttft["mean"]), duration(ttft["p99"])]
                cells.append(duration(summary["e2e_s"]["mean"]))
                starved = summary["starvation"]["starved"]
            lines.append(f"| {label} | {' | '.join(cells)} | {starved} |")
            print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def labelled(trace: Path, requests: int, out: Path) -> float:
    """The head of a trace with classes, tenants and priorities; returns its mean rate, requests per second.

    The same requests at time 0 go to a file beside it, for the capacity.
    """
    read = read_trace(trace)
    arrival = read.arrival_s[:requests]
    u, v = stream(0, 0, "classes").random(requests), stream(0, 0, "tenants").random(requests)
    batch = u >= 0.6
    tenant = np.where(v < 0.5, 0, 1 + (v * 997).astype(int) % 4)
    rows = [
        f"{{}},{p},{o},{'batch' if b else 'interactive'},t{t},{int(b)}"
        for p, o, b, t in zip(read.prompt_tokens, read.output_tokens, batch, tenant, strict=False)
    ]
    header = "arrival_s,prompt_tokens,output_tokens,class,tenant,priority\n"
    out.write_text(header + "".join(row.format(f"{t:.6f}") + "\n" for row, t in zip(rows, arrival, strict=False)))
    out.with_suffix(".burst.csv").write_text(header + "".join(row.format("0.0") + "\n" for row in rows))
    return (requests - 1) / float(arrival[-1] - arrival[0])


def scenario(name: str, engine: dict, predictor, blocks: int, scale: float, burst: bool = False) -> dict:
    """One run."""
    return {
        "workload": {
            "trace": {"file": f"{name}{'.burst' if burst else ''}.csv", "rate_scale": float(scale)},
            "classes": {
                "interactive": {"slo": {"ttft": "2 s", "tpot": "100 ms"}},
                "batch": {"slo": {"e2e": "60 s"}, "priority": 1},
            },
            **({"predictor": predictor} if predictor else {}),
        },
        "model": "llama-3.1-8b",
        "gpu": "a100-sxm-80gb",
        "engine": {
            "max_num_seqs": 64,
            "num_gpu_blocks_override": blocks,
            "enable_prefix_caching": "longest_prefix" in str(engine),
            **engine,
        },
    }


if __name__ == "__main__":
    main()
