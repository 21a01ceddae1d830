"""Keys of measured runs: which are read, which are left aside and why, and those that nobody knows.

A key that no reader looks at must not look as if it had counted. Each is named with its case: in the reason of its
figures where it may change them, on the screen in any case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmqsim.errors import did_you_mean

if TYPE_CHECKING:
    from llmqsim.validate.cases import Case

READ: dict[str, str] = {
    "": "id family source regime config workload measured request_table points group_id",
    "config": "model model_path gpu engine engine_version measured_on mode campaign interconnect link tp "
    "tensor_parallel_size pp pipeline_parallel_size dp data_parallel_size replicas attention_dp_size ep moe_ep_size "
    "expert_parallel_size n_gpus num_gpus gpus precision quantization gemm_quant_mode dtype in_process cuda_graphs "
    "enforce_eager kv_tokens kv_gib_per_gpu kv_free_mem_fraction max_num_seqs max_batch_per_engine max_batch_size "
    "max_num_batched_tokens max_num_tokens chunked_prefill enable_chunked_prefill prefix_caching enable_prefix_caching "
    "gpu_memory_utilization block_size max_model_len kv_blocks num_gpu_blocks async_scheduling kv_cache_dtype "
    "kv_precision kv_dtype kv_cache_precision sampler batching prefill_tp_size prefill_pp_size "
    "prefill_attention_dp_size prefill_num_workers prefill_moe_ep_size decode_tp_size decode_pp_size "
    "decode_attention_dp_size decode_num_workers decode_moe_ep_size",
    "workload": "tool arrival n_requests prompt_tokens output_tokens prefix client_timeout_s client_max_in_flight "
    "max_concurrency classes warmup time_unit isl osl input_tokens",
    "workload.arrival": "process stages rate_per_s concurrency duration_s cv burstiness span_s batch",
    "workload.prefix": "distinct_prompts shared_system_tokens shared_tokens groups order",
    "workload.prompt_tokens": "exact nominal mean measured_mean sd std measured_sd p50 median p90 min max dataset",
    "workload.output_tokens": "exact nominal mean measured_mean sd std measured_sd p50 median p90 min max natural_stop "
    "ignore_eos min_tokens_equals_max",
    "measured": "stage isl osl n n_ok n_failed n_requests batch concurrency rate_per_s tp pp dp throughput "
    "prompt_tokens_total output_tokens_total duration_s makespan_s max_in_flight",
}
"""by where they stand; under `measured` also every latency with _ms or _s"""
LABELS: dict[str, str] = {
    "": "notes note name description timeseries rate_check",
    "config": "id family source regime group_id points notes note engine_note eval_id inferred isl osl input_tokens "
    "output_tokens repeats prefill_spread_pct name description",
    "workload": "note notes",
    "workload.arrival": "note seed n_streams",
    "workload.prefix": "note declared_groups_x_users prompts_per_group",
    "measured": "note",
}
"""what says nothing of the run, or says again what another key says"""
ASIDE: dict[str, str] = {
    "config.cpu_kv_offload": "the KV cache in the host's memory is not simulated here",
    "config.cpu_kv_blocks": "the KV cache in the host's memory is not simulated here",
    "config.cuda_graph_padding": "batches are padded as the engine preset says",
    "config.kv_blocks_estimate": "the capacity model is nearer to measured pools than others' estimates",
    "config.moe_quant_mode": "experts are of the type of the other weights",
    "config.moe_tp_size": "it follows from the tensor and expert parallel sizes",
    "config.prefill_batch_size": "slots are those of the engine preset",
    "config.decode_batch_size": "slots are those of the engine preset",
    "workload.slo": "errors of the figures are told, not attainment",
    "measured.engine_log": "measured, and not compared",
    "measured.achieved_rate_per_s": "measured, and not compared",
    "measured.send_lag_s": "measured, and not compared",
    "measured.prompt_tokens_mean": "measured, and not compared",
}
"""left aside, and why"""
FREE = frozenset({"workload.classes"})
"""mappings whose keys are names of the user's own"""
AGAIN: dict[str, tuple[str, ...]] = {"config.moe_quant_mode": ("gemm_quant_mode", "precision")}
"""keys that say nothing new where they equal one of these beside them"""
HARMLESS = frozenset(key for key in ASIDE if key.startswith("measured.")) | {"workload.slo", "config.moe_tp_size"}
"""can't change a prediction: told on the screen alone"""


@dataclass(frozen=True)
class Unread:
    """A key that no reader looks at. key : its path. matters : might it change what is predicted?"""

    key: str
    why: str
    matters: bool

    @property
    def text(self) -> str:
        """As a sentence's part."""
        return f"{self.key} is not read: {self.why}"


def unread(case: Case) -> list[Unread]:
    """The keys of a case that were given a value and are read nowhere, each once, in the order written."""
    places = [
        ("", dict.fromkeys(case.other_keys, True)),
        ("config", case.config),
        ("workload", case.workload),
        *(("measured", entry) for entry in case.entries),
    ]
    found: dict[str, Unread] = {}
    for place, given in places:
        for one in _unread(place, given):
            found.setdefault(one.key, one)
    return list(found.values())


def matters(case: Case) -> list[str]:
    """Those that might change a prediction, in words."""
    return [one.text for one in unread(case) if one.matters]


def told(cases: Iterable[Case]) -> list[tuple[str, int]]:
    """Each unread key in words, and in how many cases it stands; most frequent first."""
    counts: dict[str, int] = {}
    for case in cases:
        for one in unread(case):
            counts[one.text] = counts.get(one.text, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def _unread(place: str, given: Mapping[str, Any]) -> Iterator[Unread]:
    read, labels = READ.get(place, "").split(), LABELS.get(place, "").split()
    for name, value in given.items():
        key = f"{place}.{name}" if place else str(name)
        if key in READ and isinstance(value, Mapping):
            yield from _unread(key, value)
        if key in FREE or name in read or name in labels or _nothing(value) or _latency(place, str(name)):
            continue
        if any(given.get(other) == value for other in AGAIN.get(key, ())):
            continue
        if key in ASIDE:
            yield Unread(key, ASIDE[key], key not in HARMLESS)
        else:
            yield Unread(key, f"no such key{did_you_mean(str(name), read)}", True)


def _nothing(value: Any) -> bool:
    """Is it a value that asks for nothing?"""
    empty_cell = isinstance(value, float) and math.isnan(value)
    return value is None or value is False or value == "" or value == 0 or empty_cell


def _latency(place: str, name: str) -> bool:
    from llmqsim.validate.figures import LATENCIES

    return place == "measured" and any(name in (f"{metric}_ms", f"{metric}_s") for metric in LATENCIES)
