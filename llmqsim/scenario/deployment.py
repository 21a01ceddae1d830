"""Keys that say what serves the traffic: engine options, policies, and the cost of a step."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import (
    Bandwidth,
    Bytes,
    Cost,
    Count,
    File,
    Flag,
    HostTime,
    Pause,
    Policy,
    Slots,
    Spec,
    StepTime,
    by_field,
)

QUANTIZATIONS = {
    "fp8": "fp8", "fp8_block": "fp8_block", "int8": "int8", "awq": "int4", "gptq": "int4", "mxfp4": "mxfp4", "nvfp4": "nvfp4",
}  # fmt: skip
"""engine.quantization and the weight type it stands for"""


class Routing(Policy):
    """Which replica a request goes to. `routing: NAME` is short for `{policy: NAME}`; other keys are its parameters."""

    policy: Annotated[str, rules.text("the name of a routing policy", "least_outstanding")] = Field(
        description="Routing policy: round_robin, random, least_outstanding, power_of_two, least_loaded, least_kv, "
        "least_predicted_work, prefix_affinity, session_sticky, by_class, by_length, or one that you registered."
    )
    signal_age: Pause | None = Field(
        None,
        description="How often replicas report what they hold (least_loaded, least_kv); between two reports the router "
        "works with the last one. Default 0: it sees them as they are.",
    )
    late_binding: Slots | None = Field(
        None,
        description="Most requests in flight at a replica. Others wait at the router, first come first served, and get "
        "their replica only when one has a place. Default: every request is sent at once.",
    )


class Admission(Policy):
    """May a request enter? `admission: NAME` is short for `{policy: NAME}`; other keys are its parameters."""

    policy: Annotated[str, rules.text("the name of an admission policy", "queue_cap")] = Field(
        description="Admission policy: all, token_bucket, queue_cap, deadline, or one that you registered."
    )


class Batching(Policy):
    """What runs in a step. `batching: NAME` is short for `{policy: NAME}`; other keys are its parameters."""

    policy: Annotated[str, rules.text("the name of a batching policy", "continuous")] = Field(
        description="Batching policy: continuous, vllm_v0, sarathi, sglang, trtllm_guaranteed_no_evict, "
        "trtllm_max_utilization, orca, static, partial_prefills, reserve_predicted, prefill_share, slo_chunk, multi_step, "
        "or one that you registered; docs/policies.md."
    )


class Ordering(Policy):
    """Who is next in the waiting queue. `ordering: NAME` is short for `{policy: NAME}`."""

    policy: Annotated[str, rules.text("the name of an ordering policy", "fcfs")] = Field(
        description="Ordering policy: fcfs, priority, sjf, srpt, shortest_cost, learned_rank, mlfq, vtc, edf, least_slack, "
        "goodput_first, longest_prefix, lifo, random, or one that you registered; docs/policies.md."
    )


class Preemption(Policy):
    """Who gives way when KV blocks run out, and how. `preemption: NAME` is short for `{policy: NAME}`."""

    policy: Annotated[str, rules.text("the name of a preemption policy", "recompute_newest")] = Field(
        description="Preemption policy: recompute_newest, recompute_least_urgent, swap_newest, newest, least_urgent, "
        "least_kv, most_slack, or one that you registered; docs/policies.md."
    )


class HostLink(Spec):
    """Between each GPU and its host's memory: what swapped and offloaded KV blocks travel over."""

    bandwidth: Bandwidth | None = Field(None, description="Of merged copies, bytes per second.")
    per_block: HostTime | None = Field(
        None,
        description="Time of each block when blocks are copied one by one, as in vLLM V0, instead of merged copies.",
    )


class Host(Spec):
    """Time that no kernel timing shows; each key overrides the engine preset's value."""

    per_step: HostTime | None = Field(None, description="Added to every step, seconds.")
    per_step_tp: HostTime | None = Field(
        None, description="Added to every step when tensor_parallel_size > 1, seconds."
    )
    per_running: HostTime | None = Field(None, description="Added to every step per running request, seconds.")
    per_mixed_layer: HostTime | None = Field(
        None, description="Added per model layer to steps that hold a prefill chunk, seconds."
    )
    per_streamed_token: HostTime | None = Field(
        None, description="Added to every step per token it makes, seconds: streaming in the engine's own loop."
    )
    eager_per_layer: HostTime | None = Field(
        None, description="Least time of a model layer in a step that no CUDA graph covers, seconds."
    )
    sampler: HostTime | None = Field(None, description="Added to every step that samples with top-p or top-k, seconds.")
    sampler_per_logit: HostTime | None = Field(
        None, description="The same per row and vocabulary entry, seconds on an H100 SXM (scales with bandwidth)."
    )
    cold_step: HostTime | None = Field(
        None,
        description="With engine.cold_start: added to each of the first steps (vLLM: seven) that hold a prefill chunk, "
        "seconds.",
    )
    request_before: HostTime | None = Field(None, description="Once a request, before the engine sees it, seconds.")
    request_after: HostTime | None = Field(None, description="Between the engine and the client, per token, seconds.")


class Memory(Spec):
    """Memory on each GPU as a server's log states it, in place of what is worked out (`llmqsim explain --log FILE`)."""

    weights: Bytes | None = Field(None, description="Weights, towers included ('Model loading took').")
    activation: Bytes | None = Field(
        None, description="Activations of the start-up run; with `other` in place of all that an engine keeps for running."
    )
    other: Bytes | None = Field(None, description="Context and communication ('non-torch memory').")
    graphs: Bytes | None = Field(None, description="What CUDA graphs take of the pool.")


SPELLINGS = {"swap_space": "swap_space_bytes", "kv_offloading_size": "kv_offloading_bytes"}
"""vLLM's names of options whose fields carry their unit"""


class Engine(Spec):
    """One serving engine, by vLLM's option names. What is left out comes from the preset."""

    preset: Annotated[str, rules.text("the name of an engine preset", "vllm-0.19")] = Field(
        "vllm-0.19", description="Engine and version whose defaults and host times hold."
    )
    max_num_seqs: Slots | None = Field(None, description="Most requests that run at once on a replica.")
    max_num_batched_tokens: Count | None = Field(None, description="Token budget of a step.")
    max_model_len: Annotated[int | str, rules.word_or(rules.whole(1), "auto")] | None = Field(
        None, description="Most tokens of a request, prompt and output; `auto`: what the model and the KV pool allow."
    )
    block_size: Count | None = Field(None, description="Tokens per KV block.")
    gpu_memory_utilization: Annotated[float, rules.number(above=0, at_most=1)] | None = Field(
        None, description="Share of the GPU's memory that the engine may take."
    )
    kv_cache_dtype: Annotated[str, rules.choice("auto", "bfloat16", "fp8")] | None = Field(
        None, description="Type of the KV cache; `auto`: as the weights."
    )
    num_gpu_blocks_override: Count | None = Field(
        None, description="KV blocks of a replica, as vLLM logs them, instead of the computed number."
    )
    kv_cache_memory_bytes: Bytes | None = Field(
        None, description="KV pool per GPU, bytes, instead of the computed size."
    )
    enable_chunked_prefill: Flag | None = Field(None, description="May a prompt be split over several steps?")
    scheduler_reserve_full_isl: Flag | None = Field(
        None, description="Admit a prompt only when the blocks of the whole of it are free, not just its first chunk's?"
    )
    in_flight: Annotated[int, rules.whole(1, 2)] | None = Field(
        None, description="Steps formed but not finished: 1 synchronous, 2 asynchronous scheduling."
    )
    async_scheduling: Flag | None = Field(
        None, description="vLLM's spelling: true is in_flight 2, false is in_flight 1."
    )
    cudagraph_capture_sizes: Annotated[tuple[int, ...], rules.whole_list(2**20)] | None = Field(
        None, description="Token counts that a step is padded up to; beyond the largest it runs unpadded."
    )
    enforce_eager: Flag | None = Field(None, description="Run without CUDA graphs, so without padding?")
    cudagraph_mode: Annotated[str, rules.choice("full_and_piecewise", "full_decode_only")] | None = Field(
        None, description="Which steps run captured: all, or only those without a prefill chunk."
    )
    quantization: Annotated[str, rules.choice(*QUANTIZATIONS)] | None = Field(
        None, description="Type of the weights, instead of the model's own; `awq` and `gptq` are 4-bit."
    )
    enable_expert_parallel: Flag | None = Field(
        None, description="Whole experts on each of the tensor-parallel GPUs instead of a slice of every one?"
    )
    data_parallel_size: Count | None = Field(
        None,
        description="Replicas that share one set of experts, spread over the GPUs of all of them (vLLM's option of that "
        "name, with enable_expert_parallel); `replicas` must be a multiple.",
    )
    sampler: Annotated[str, rules.choice("plain", "top_p")] | None = Field(
        None,
        description="`top_p` sorts the vocabulary for top-p or top-k in every step; default: as the model is "
        "published.",
    )
    cold_start: Flag | None = Field(
        None, description="Does the first request meet a server that has just started, with kernels still to compile?"
    )
    long_prefill_token_threshold: Annotated[int, rules.whole(0)] | None = Field(
        None, description="Most tokens that one request gets in a step; 0: no such limit."
    )
    enable_prefix_caching: Flag | None = Field(None, description="Share the KV blocks of common prefixes?")
    watermark: Annotated[float, rules.share()] | None = Field(
        None, description="Share of the KV blocks that an admission leaves free while others run."
    )
    swap_space: Bytes | None = Field(
        None, description="Host memory of each GPU for preemption by swap (preemption: swap_newest), bytes."
    )
    kv_offloading_size: Bytes | None = Field(
        None, description="Host memory of each GPU for cached blocks that lost their place on the GPU, bytes."
    )
    host_link: HostLink = Field(HostLink(), description="The way between a GPU and its host's memory.")
    batching: Batching | None = Field(None, description="What runs in a step; default: as the preset's engine does.")
    ordering: Ordering = Field(Ordering(policy="fcfs"), description="Who is next in the waiting queue.")
    preemption: Preemption = Field(
        Preemption(policy="recompute_newest"),
        description="Who gives way when KV blocks run out, and how; with ordering: priority, recompute_least_urgent.",
    )
    host: Host = Field(Host(), description="Overrides of the preset's host times.")
    memory: Memory = Field(Memory(), description="Measured memory in place of what is worked out.")

    def overrides(self) -> dict[str, Any]:
        """What the user set, by the field names of EngineOptions; `host`, `preset` and the policies are not in it."""
        apart = {"preset", "host", "batching", "ordering", "preemption", "async_scheduling", "enforce_eager"}
        apart |= {"host_link", "quantization", "memory", *SPELLINGS}
        given = {k: v for k in type(self).model_fields if k not in apart and (v := getattr(self, k)) is not None}
        said = {"host_link_bytes_per_s": self.host_link.bandwidth, "swap_block_s": self.host_link.per_block}
        said |= {field: getattr(self, key) for key, field in SPELLINGS.items()}
        given |= {field: value for field, value in said.items() if value is not None}
        if self.async_scheduling is not None:
            given["in_flight"] = 2 if self.async_scheduling else 1
        if self.enforce_eager:
            given["cudagraph_capture_sizes"] = ()
        return given


class CalibratedCost(Spec):
    """Step times of this model on this GPU: physical forms with residual tables, fitted on kernel timings."""

    model: Annotated[str, rules.choice("calibrated")] = Field("calibrated", description="Kind of cost model.")
    coefficients: File | None = Field(
        None, description="Folder that `llmqsim calibrate fit --out` wrote (from the scenario's own); null: the presets'."
    )


class ConstantCost(Spec):
    """Every step takes the same time; no padding, no host time; GPU and model do not enter."""

    model: Annotated[str, rules.choice("constant")] = Field(description="Kind of cost model.")
    step: StepTime = Field(description="Time of a step, seconds.")


class AffineCost(Spec):
    """A step's time is a sum of terms; no padding, no host time; GPU and model do not enter."""

    model: Annotated[str, rules.choice("affine")] = Field(description="Kind of cost model.")
    base: Cost = Field(0.0, description="Once a step, seconds.")
    per_token: Cost = Field(0.0, description="Per token in the step, prefill or decode, seconds.")
    per_prefill_token: Cost = Field(0.0, description="Per prompt token in the step, seconds.")
    per_decode_request: Cost = Field(0.0, description="Per decoding request in the step, seconds.")
    per_kv_token: Cost = Field(0.0, description="Per token of context that decoding requests read, seconds.")


class StationsCost(Spec):
    """No engine: prompts pass a station one at a time, answers then take a time of their own. For closed-form cases."""

    model: Annotated[str, rules.choice("stations")] = Field(description="Kind of cost model.")
    prefill: Cost = Field(0.0, description="Per prompt, in the station, seconds.")
    prefill_per_token: Cost = Field(0.0, description="Per prompt token, in the station, seconds.")
    decode: Cost = Field(0.0, description="First token to last, for answers of two tokens or more, seconds.")
    decode_per_token: Cost = Field(0.0, description="Per output token after the first, seconds.")


StepCost = Annotated[
    Annotated[CalibratedCost, Tag("kind:calibrated")] | Annotated[ConstantCost, Tag("kind:constant")] | Annotated[AffineCost, Tag("kind:affine")] | Annotated[StationsCost, Tag("kind:stations")],
    by_field("model", default="calibrated"),
]
