"""GPUs, models and engines as benchmark files spell them, to the names of presets.

Spellings differ in vendor, form factor, memory, signs and suffixes. A name is cut into tokens; words that change no
dimension (chat, instruct, hf, a date) and weight types are left out; what remains must be a preset's. A name whose size
differs from every preset's is unknown: nothing is taken for its neighbour.
"""

from __future__ import annotations

import re
from functools import lru_cache

from llmqsim.errors import ScenarioError, or_known
from llmqsim.hardware.data import read_preset

IDLE = frozenset(
    "instruct chat hf it base meta nvidia amd redhatai neuralmagic model text pretrained sft preview preface latest "
    "dynamic fp8 fp16 bf16 fp4 nvfp4 mxfp4 int4 int8 awq gptq w4a16 w8a8 w8a16 w4a8 kv marlin quantized block "
    "4k 8k 32k 128k 200k 1m bnb gguf dgq distill turbo 99 2407 2501 2503 2506 2507 2508 0324 0528 0125 v0.1 v0.2 v0.3 v0 v1".split()
)
"""tokens of a model's name that change none of its dimensions"""
SIZE = re.compile(r"^(?:\d+x)?\d+(?:\.\d+)?[bm]$|^a\d+(?:\.\d+)?b$|^\d+e$")
FORM = frozenset(
    "gpu tensor core geforce nvidia amd instinct tesla server workstation edition max q generation ada hbm3 hbm2e "
    "hbm3e gddr6 gddr7 oam hgx dgx blackwell".split()
)
"""words on a GPU that tell no two presets apart"""


def gpu_preset(name: str) -> str:
    """The GPU preset that a name stands for. Raises ScenarioError with the nearest known one."""
    entries = read_preset("gpus.yaml")["gpus"]
    given = _gpu_tokens(name)
    best: tuple[int, str] | None = None
    for key, entry in entries.items():
        for alias in (key, *entry.get("aliases", ())):
            tokens = _gpu_tokens(alias)
            if tokens and tokens <= given and not _other_memory(tokens, given, entry):
                best = max(best or (0, ""), (len(tokens), key))
    if best is None:
        raise ScenarioError(f"gpu: unknown (got '{name}'){or_known(name, entries)}")
    return best[1]


def _gpu_tokens(name: str) -> frozenset[str]:
    words = re.split(r"[^a-z0-9.]+", name.lower())
    joined = [re.sub(r"^(sxm|pcie)\d$", r"\1", re.sub(r"gib$", "gb", word)) for word in words if word]
    return frozenset(word for word in joined if word not in FORM)


def _other_memory(tokens: frozenset[str], given: frozenset[str], entry: dict) -> bool:
    """Does the name state a memory that this card does not have? (an A100 of 40 GB is not the one of 80)"""
    stated = [float(word[:-2]) for word in given if re.fullmatch(r"\d+(\.\d+)?gb", word)]
    have = entry["memory_bytes"]["value"] / 2**30
    return any(abs(size - have) > 0.15 * have for size in stated)


def model_preset(name: str) -> str:
    """The model preset that a name stands for, whatever its weights' type. Raises ScenarioError with the nearest one."""
    entries = read_preset("models.yaml")["models"]
    by_name = {alias.lower(): key for key, entry in entries.items() for alias in (key, *entry.get("aliases", ()))}
    if name.lower() in by_name:
        return by_name[name.lower()]
    given = model_tokens(name)
    found = _model_index().get(given)
    if found is None:
        raise ScenarioError(f"model: dimensions of '{name}' are not known{or_known(name, entries)}")
    return found


@lru_cache(maxsize=1)
def _model_index() -> dict[frozenset[str], str]:
    index: dict[frozenset[str], str] = {}
    for key, entry in read_preset("models.yaml")["models"].items():
        for alias in (key, *entry.get("aliases", ())):
            index.setdefault(model_tokens(alias), key)
    return index


def model_tokens(name: str) -> frozenset[str]:
    """What of a model's name tells it from others: family, version, size, variant."""
    words = re.split(r"[^a-z0-9.]+", name.lower().rsplit("/", 1)[-1])
    tokens: list[str] = []
    for word in filter(None, words):
        if word in IDLE or re.fullmatch(r"v?2[0-9]{3}", word):
            continue
        split = re.fullmatch(r"([a-z]{3,})-?(\d+(?:\.\d+)?)", word)
        if split and not SIZE.match(word):
            tokens += [split[1], split[2]]
        else:
            tokens.append(word)
    return frozenset(re.sub(r"\.0$", "", token) for token in tokens)


PRODUCTS = (
    ("tensorrt", "trtllm"), ("trt-llm", "trtllm"), ("trtllm", "trtllm"), ("nim", "trtllm"),
    ("sglang", "sglang"), ("vllm", "vllm"), ("orca", "orca"),
    ("fastertransformer", "static"), ("static", "static"),
)  # fmt: skip
"""word in an engine's name and the stem of its presets; the first that fits"""


def engine_preset(name: str, version: str | None, default_version: str | None = None) -> tuple[str, str | None]:
    """The engine preset of an engine and version, and a note where another version's stands in.

    version : as written; what follows the numbers is ignored. default_version : where none is stated.
    Raises ScenarioError for an engine without presets.
    """
    entries = read_preset("engines.yaml")["engines"]
    stem = next((stem for word, stem in PRODUCTS if word in name.lower()), None)
    if stem is None:
        raise ScenarioError(f"engine: unknown (got '{name}'); known: vllm, sglang, tensorrt-llm (also as NIM), static")
    numbered = _versions(stem, entries)
    asked = _number(version) or _number(default_version)
    if not numbered:
        return next(key for key, entry in entries.items() if stem in (key, *entry.get("aliases", ()))), None
    newest = max(numbered)
    if asked is None:
        return numbered[newest], f"engine_version is not stated; {numbered[newest]} is taken"
    if asked in numbered:
        return numbered[asked], None
    below = [number for number in numbered if number <= asked]
    nearest = max(below) if below else min(numbered)
    return numbered[nearest], f"no preset of {stem} {asked[0]}.{asked[1]}; {numbered[nearest]} stands in"


def _versions(stem: str, entries: dict) -> dict[tuple[int, int], str]:
    """(major, minor) -> preset, of the presets of one engine."""
    found: dict[tuple[int, int], str] = {}
    for key, entry in entries.items():
        for alias in (key, *entry.get("aliases", ())):
            if match := re.fullmatch(rf"{stem}-(\d+)\.(\d+)", alias):
                found[int(match[1]), int(match[2])] = key
    return found


def _number(version: str | None) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", str(version or ""))
    return (int(match[1]), int(match[2])) if match else None


RELEASED: dict[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        ("2025-01", "0.7"), ("2025-03", "0.8"), ("2025-05", "0.9"), ("2025-07", "0.10"), ("2025-10", "0.11"),
        ("2025-12", "0.12"), ("2026-01", "0.14"), ("2026-02", "0.15"), ("2026-03", "0.17"), ("2026-05", "0.20"),
        ("2026-07", "0.24"),
    ),
    "sglang": (("2025-01", "0.4"), ("2025-08", "0.5")),
    "trtllm": (("2025-01", "0.17"), ("2025-07", "1.0"), ("2025-12", "1.1"), ("2026-03", "1.2")),
}  # fmt: skip
"""engine -> (first month, version) that a run of that date most likely had; release months from memory"""


def version_by_date(name: str, date: object) -> str | None:
    """The version that was current when a run was measured; None without a date."""
    stem = next((stem for word, stem in PRODUCTS if word in name.lower()), None)
    known = [version for month, version in RELEASED.get(stem or "", ()) if str(date or "")[:7] >= month]
    return known[-1] if known and date else None
