"""Batching: what runs in this step? One module a family of engines."""

from llmqsim.policies.batching import continuous, orca, sarathi, sglang, static, trtllm, vllm_v0

__all__ = ["continuous", "orca", "sarathi", "sglang", "static", "trtllm", "vllm_v0"]
