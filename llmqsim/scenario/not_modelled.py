"""Options of serving engines that this simulator does not model: why, and the nearest that it does."""

from __future__ import annotations

LORA = "LoRA adapters are not modelled: they add matrices to every layer and memory beside the weights; the nearest is the base model alone"
CONTEXT = (
    "context parallelism is not modelled: the KV of a request would lie on several GPUs; the nearest is "
    "tensor_parallel_size, or pools of prefill and decode"
)
REASONS = {
    **dict.fromkeys(
        ("enable_lora", "lora_modules", "max_loras", "max_lora_rank", "max_cpu_loras", "lora_paths", "lora_target_modules", "lora"), LORA
    ),
    **dict.fromkeys(
        (
            "decode_context_parallel_size", "prefill_context_parallel_size", "context_parallel_size", "dcp_size", "pcp_size",
            "cp_size", "attn_cp_size",
        ),
        CONTEXT,
    ),
    "enable_multimodal": "image and audio input is not modelled: its tokens are prompt tokens, and encoding takes no time",
    "mm_processor_kwargs": "image and audio input is not modelled: its tokens are prompt tokens, and encoding takes no time",
}  # fmt: skip
"""keys as vLLM and SGLang spell them"""


def not_modelled(key: str) -> str | None:
    """Why an option is refused, or None for a key that is not in the list."""
    return REASONS.get(key.replace("-", "_").lower())
