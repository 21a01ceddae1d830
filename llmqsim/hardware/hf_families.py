"""Architectures that are known here, and for the others what keeps them out and which known one is nearest.

A known family's attention, states and MLPs are what the keys of its file say, as far as hf_parts.py and hf_mixers.py
read them. An unknown one would be read as a plain transformer and may be wrong by any factor, so it is refused; a user
who knows better says `architecture: dense`, or names the known family that it is built like.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

DENSE = "dense"
"""the architecture that reads any file as a plain transformer"""
KNOWN_TYPES = frozenset({
    "apertus", "arcee", "baichuan", "bailing_moe", "bailing_moe_v2", "bamba", "bloom", "cohere", "cohere2",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4",
    "exaone_moe", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text",
    "gemma4", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm4v", "glm4v_moe", "glm_moe_dsa", "gpt2",
    "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "granitemoehybrid", "hunyuan", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "internlm2", "internlm3", "internvl_chat", "jamba", "kimi_k2", "kimi_k25", "kimi_linear",
    "kimi_vl", "lfm2", "lfm2_moe", "lfm2_vl", "llama", "llama4", "llama4_text", "mimo", "mimo_v2", "mimo_v2_flash",
    "minimax", "minimax_m1", "minimax_m2", "minimax_m3", "minimax_text_01", "ministral3", "mistral", "mistral3",
    "mixtral", "nemotron", "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "opt", "phi",
    "phi3", "phimoe", "pixtral", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl", "qwen2_vl_text",
    "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl",
    "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2",
    "step3p5", "step3p7",
})  # fmt: skip
NOT_MODELLED = {
    "deepseek_v4": ("its layers read caches of compressed tokens of several sizes (compress_ratios)", "deepseek_v32"),
    "mllama": ("its cross-attention layers keep the keys and values of images", "llama"),
    "longcat_flash": ("its layers have two attentions each, and experts that do nothing (zero_expert_num)", "deepseek_v3"),
    "step3_text": ("its queries are factorised and keys and values share one head (share_q_dim)", "step3p5"),
    "deci": ("each layer has a shape of its own (block_configs)", "llama"),
    "nemotron_nas": ("each layer has a shape of its own (block_configs)", "llama"),
    "falcon": ("its keys say in three ways how many KV heads there are", "llama"),
    "dbrx": ("its sizes are nested under attn_config and ffn_config", "mixtral"),
    "chatglm": ("its keys are its own (multi_query_group_num, kv_channels)", "glm"),
    "zamba2": ("its attention layers share weights and take a wider input", "nemotron_h"),
    "recurrentgemma": ("its recurrent layers are not modelled", "nemotron_h"),
    "rwkv": ("it has no attention", "nemotron_h"),
    "mamba": ("no layer keeps keys and values: pure state-space models are not modelled", "nemotron_h"),
    "mamba2": ("no layer keeps keys and values: pure state-space models are not modelled", "nemotron_h"),
    "falcon_mamba": ("no layer keeps keys and values: pure state-space models are not modelled", "falcon_h1"),
}
"""families that are known not to be modelled: why, and the nearest that is"""
ENCODERS = frozenset({
    "albert", "bart", "bert", "bigbird_pegasus", "blenderbot", "camembert", "clip", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "hubert", "jina_bert", "layoutlm", "longformer", "longt5", "luke",
    "marian", "mbart", "modernbert", "mpnet", "mt5", "nomic_bert", "pegasus", "roberta", "seamless_m4t", "siglip",
    "speech_to_text", "t5", "umt5", "vit", "wav2vec2", "whisper", "xlm-roberta", "xlnet",
})  # fmt: skip
"""families without a decoder, or with an encoder before it"""
MASKED = ("ForMaskedLM", "ForPreTraining")
"""ends of `architectures` of models that fill gaps and generate nothing"""
DECODES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
SIGNS = (
    (("altup_num_inputs", "laurel_rank"), "gemma3n_text"),
    (("linear_attn_config",), "kimi_linear"),
    (("linear_num_value_heads",), "qwen3_next"),
    (("hybrid_override_pattern",), "nemotron_h"),
    (("attn_type_list",), "minimax_m1"),
    (("compress_ratios",), "deepseek_v4"),
    (("index_topk", "kv_lora_rank"), "deepseek_v32"),
    (("kv_lora_rank",), "deepseek_v3"),
    (("mamba_d_state",), "falcon_h1"),
    (("conv_L_cache",), "lfm2"),
    (("sliding_window", "num_local_experts"), "gpt_oss"),
    (("num_experts",), "qwen3_moe"),
    (("n_routed_experts",), "glm4_moe"),
    (("num_local_experts",), "mixtral"),
    (("sliding_window_pattern",), "gemma3_text"),
)
"""keys that tell a family where its name does not, first match"""


def encoder(config: Config) -> str | None:
    """The key and value that say that the model has no decoder, or an encoder before it; None for a decoder."""
    kind = str(config.get("model_type", ""))
    if kind in ENCODERS:
        return f"model_type: encoders are not modelled (got '{kind}')"
    if config.get("is_encoder_decoder"):
        return "is_encoder_decoder: encoders are not modelled (got true)"
    named = config.get("architectures")
    for name in named if isinstance(named, (list, tuple)) else ():
        if str(name).endswith(MASKED):
            return f"architectures: models that fill masks generate nothing (got '{name}')"
    return None


def family(config: Config, outer: Config) -> tuple[str, str | None]:
    """(model_type that the file is read by, why it can't be), None where it can. config : of the language model.

    A file without a model_type is read by the keys that only one family has, and as a plain transformer without them.
    """
    kind = str(config.get("model_type") or outer.get("model_type") or "")
    if not kind:
        kind = next((name for keys, name in SIGNS[:7] if all(config.get(key) for key in keys)), "")
        if not kind:
            return "", None
    told = (str(one).replace("-", "_") for one in (kind, outer.get("model_type", "")))
    if (barred := next((one for one in told if one in NOT_MODELLED), None)) is not None:
        why, near = NOT_MODELLED[barred]
        return kind, f"model_type: '{kind}' is not modelled: {why}; the nearest that is: {near}. {_instead(near)}"
    if kind in KNOWN_TYPES:
        return kind, None
    if kind.removesuffix("_text") in KNOWN_TYPES:  # the language model of a family with towers
        return kind.removesuffix("_text"), None
    near = nearest(kind, config)
    return kind, f"model_type: '{kind}' is not known here; the nearest that is: {near}. {_instead(near)}"


def nearest(kind: str, config: Config) -> str:
    """The known family that a file is most like: one of nearly the same name, else one with the same telling keys."""
    close = difflib.get_close_matches(kind, KNOWN_TYPES, n=1, cutoff=0.8)
    stem = kind.split("_")[0].rstrip("0123456789")
    same = [name for name in sorted(KNOWN_TYPES) if name.split("_")[0].rstrip("0123456789") == stem] if stem else []
    if close or same:
        return close[0] if close else same[-1]
    signs = (name for keys, name in SIGNS if name in KNOWN_TYPES and all(config.get(key) for key in keys))
    return next(signs, "llama")


def _instead(near: str) -> str:
    return (
        f"`model: {{config: FILE, architecture: {DENSE}}}` reads it as a plain transformer, `architecture: {near}` as "
        "one of that family, each with a warning"
    )
