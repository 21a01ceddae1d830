"""Batching: what runs in this step? One module a family of engines."""

from llmqsim.policies.batching import capped, continuous, multi_step, orca, reserving, sarathi, sglang, static, trtllm, vllm_v0

__all__ = [
    "capped",
    "continuous",
    "multi_step",
    "orca",
    "reserving",
    "sarathi",
    "sglang",
    "static",
    "trtllm",
    "vllm_v0",
]
