"""Cases of the golden traces, and the command that writes a new one."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

from tests.laws.cases import Case

FOLDER = Path(__file__).parent
MS = 1_000_000

BASE = {
    "batching": "continuous",
    "policy": {},
    "preemption": "recompute_newest",
    "block_bytes": 1000,
    "replicas": 1,
    "routing": "round_robin",
    "blocks": None,
    "block_size": 4,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 16,
    "in_flight": 1,
    "max_model_len": None,
}
# arrivals at random and in ties; long and short prompts; one-token answers; ends foreseen and not
REQUESTS = (
    (0, 12, 6, 6),
    (0, 5, 1, 1),
    (5 * MS, 30, 3, 9),
    (5 * MS, 2, 9, 20),
    (11 * MS, 9, 4, 4),
    (20 * MS, 22, 7, 16),
    (20 * MS, 3, 2, 2),
    (31 * MS, 14, 5, 12),
)
GROUPS = tuple((i % 2, 8) for i in range(len(REQUESTS)))
WHOLE = {"max_num_batched_tokens": 128, "enable_chunked_prefill": False}


def case(groups=(), **servers) -> Case:
    """A case over REQUESTS: 5 ms a step, 0.1 ms a prefill token, 0.2 ms a decode."""
    return Case(REQUESTS, {**BASE, **servers}, (5 * MS, MS // 10, MS // 5), (MS, 2 * MS), groups)


TIGHT = {"blocks": 18, "block_size": 2}
"""one block more than the longest request needs"""

CASES: dict[str, Case] = {
    "v1_roomy": case(),
    "v1_async": case(in_flight=2),
    "v1_tight_pool": case(**TIGHT),
    "v1_tight_pool_async": case(in_flight=2, **TIGHT),
    "v1_tight_pool_no_gate": case(scheduler_reserve_full_isl=False, **TIGHT),
    "v1_prefix_cache": case(blocks=14, enable_prefix_caching=True, groups=GROUPS),
    "v1_prefix_cache_host_tier": case(blocks=12, enable_prefix_caching=True, kv_offloading_bytes=8000, groups=GROUPS),
    "v1_two_replicas_least_outstanding": case(replicas=2, routing="least_outstanding", in_flight=2),
    "v1_long_prefill_threshold": case(long_prefill_token_threshold=6),
    "v0": case(batching="vllm_v0", blocks=14, watermark=0.1, **WHOLE),
    "v0_swap": case(
        batching="vllm_v0",
        blocks=12,
        preemption="swap_newest",
        swap_space_bytes=20_000,
        host_link_bytes_per_s=1e6,
        **WHOLE,
    ),
    "sarathi": case(batching="sarathi", **TIGHT),
    "sglang": case(batching="sglang", blocks=36, block_size=1, policy={"clip_tokens": 3}),
    "sglang_roomy": case(batching="sglang", block_size=1),
    "trtllm_guaranteed_no_evict": case(batching="trtllm_guaranteed_no_evict", blocks=20),
    "trtllm_max_utilization": case(batching="trtllm_max_utilization", **TIGHT),
    "orca": case(batching="orca", blocks=20, **WHOLE),
    "static": case(batching="static", **{**WHOLE, "max_num_seqs": 3}),
    "static_one_slot": case(batching="static", **{**WHOLE, "max_num_seqs": 1}),
    "static_longest_sequence": case(batching="static", blocks=21, **{**WHOLE, "max_num_seqs": 2, "max_model_len": 40}),
    "dynamic": case(batching="static", policy={"size": 3, "max_wait_s": 0.02}, **{**WHOLE, "max_num_seqs": 4}),
    "partial_prefills": case(batching="partial_prefills", policy={"n": 3, "long": 1, "long_tokens": 20}),
}


def marks(name: str) -> dict[str, list[int]]:
    """Every column of the table that the run of a case leaves."""
    from llmqsim.requests import COLUMNS

    table = CASES[name].run().table
    return {column.name: getattr(table, column.name).tolist() for column in COLUMNS}


def main(name: str, why: str) -> None:
    """Write the golden file of a case; refuse to overwrite."""
    path = FOLDER / f"{name}.json"
    if path.exists():
        sys.exit(f"{path.name} exists: golden traces only accrete; add a case under a new name")
    columns = ",\n  ".join(f'"{column}": {values}' for column, values in marks(name).items())
    made = datetime.date.today().isoformat()
    path.write_text(f'{{\n "made": "{made}",\n "why": {json.dumps(why)},\n "marks": {{\n  {columns}\n }}\n}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
