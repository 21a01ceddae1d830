"""The lines that a vLLM server prints when it starts, as figures: weights, KV memory, tokens, concurrency, settings.

The wording changed between releases; each figure knows several. With several ranks the smallest pool and the largest
weights count. Wordings: logs of vLLM 0.5 to 0.26 (../shared/data/startup_logs.csv names many), the others from memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from llmqsim.errors import DataError
from llmqsim.files import read_bytes

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""what colours a terminal's text, in the middle of a line, too"""
FLAG = re.compile(
    r"--(tensor-parallel-size|pipeline-parallel-size|max-model-len|max-num-seqs|max-num-batched-tokens|"
    r"gpu-memory-utilization|kv-cache-dtype|block-size|quantization)[ =]+",
    re.IGNORECASE,
)
"""options of a command line that is printed before the start"""
NUMBER = r"(-?\d[\d,]*(?:\.\d+)?)"
UNIT = r"\s*(GiB|GB|MiB|MB)"
SCALE = {"GiB": 2**30, "GB": 2**30, "MiB": 2**20, "MB": 2**20}
"""older releases say GB and mean GiB"""


@dataclass(frozen=True)
class Figure:
    """How a figure is printed. size : it is followed by a unit of memory. several : what to take of several ranks."""

    name: str
    pattern: re.Pattern[str]
    size: bool = False
    several: Callable[..., float] = max


def _figure(name: str, text: str, *, size: bool = False, several: Callable[..., float] = max) -> Figure:
    said = text.replace("NUMBER", NUMBER).replace("SIZE", NUMBER + UNIT)
    return Figure(name, re.compile(said, re.IGNORECASE), size, several)


FIGURES = (
    _figure("weights", r"(?:model loading took|loading model weights took|model weights take)\s*SIZE", size=True),
    _figure("kv", r"available kv cache memory:?\s*\(?SIZE", size=True, several=min),
    _figure("kv", r"reserved for kv cache is\s*SIZE", size=True, several=min),
    _figure("tokens", r"gpu kv cache size:?\s*NUMBER\s*tokens", several=min),
    _figure("blocks", r"#\s*(?:gpu|cuda) blocks:?\s*NUMBER", several=min),
    _figure("blocks", r"num_gpu_blocks\s*(?:is:?|=|:)\s*NUMBER", several=min),
    _figure("concurrency", r"maximum concurrency for [\d,]+ tokens per request:?\s*NUMBER\s*x", several=min),
    _figure("concurrency_tokens", r"maximum concurrency for NUMBER tokens per request"),
    _figure("kv", r"kv_cache_size=SIZE", size=True, several=min),
    _figure("blocks", r"num_gpu_blocks_override['\"]?\s*[:=]\s*NUMBER", several=min),
    _figure("tokens", r"that can be stored in kv cache \(NUMBER\)", several=min),
    _figure("weights", r"actual usage is\s*SIZE for weight", size=True),
    _figure("activation", r"SIZE for peak activation", size=True),
    _figure("non_torch", r"SIZE for non-torch memory", size=True),
    _figure("graphs", r"SIZE for cudagraph memory", size=True),
    _figure("memory", r"free memory on device \(\d+(?:\.\d+)?/SIZE\)", size=True),
    _figure("utilization", r"desired gpu memory utilization is \(NUMBER"),
    _figure("memory", r"total_gpu_memory=SIZE", size=True),
    _figure("graphs", r"graph capturing finished.*?took\s*SIZE", size=True),
    _figure("graphs_estimated", r"estimated (?:cuda|gpu)[ -]?graph memory(?: usage)?[^\d-]*SIZE", size=True),
    _figure("activation", r"(?:pytorch )?activation peak memory takes\s*SIZE", size=True),
    _figure("activation", r"peak activation memory:?\s*SIZE", size=True),
    _figure("non_torch", r"non[_ -]torch(?:[_ ]memory| forward increase)?(?: takes|:)?\s*SIZE", size=True),
    _figure("memory", r"total_gpu_memory \(SIZE\)", size=True),
    _figure("utilization", r"gpu_memory_utilization \(NUMBER\)"),
    _figure("utilization", r"gpu_memory_utilization['\"]?\s*[:=]\s*NUMBER"),
    _figure("block", r"setting attention block size to NUMBER tokens"),
    _figure("block", r"block_size['\"]?\s*[:=]\s*NUMBER"),
    _figure("padding_layers", r"add NUMBER padding layers?"),
    _figure("needed", r"SIZE kv cache is needed", size=True),
    _figure("needed_tokens", r"max(?:imum)? seq(?:uence)?[_ ]len(?:gth)?[^()]*\(NUMBER\)"),
    _figure("longest", r"estimated maximum model length is:?\s*NUMBER"),
    _figure("max_model_len", r"(?:max_seq_len|max_model_len)['\"]?\s*[:=]\s*NUMBER"),
    _figure("max_model_len", r"using max model len NUMBER"),
    _figure("tensor_parallel_size", r"tensor_parallel_size['\"]?\s*[:=]\s*NUMBER"),
    _figure("pipeline_parallel_size", r"pipeline_parallel_size['\"]?\s*[:=]\s*NUMBER"),
    _figure("max_num_batched_tokens", r"max_num_batched_tokens['\"]?\s*[:=]\s*NUMBER"),
    _figure("max_num_seqs", r"max_num_seqs['\"]?\s*[:=]\s*NUMBER"),
    _figure("drafted", r"num_(?:spec|speculative)_tokens['\"]?\s*[:=]\s*NUMBER"),
)
WORDS = {
    "version": re.compile(r"(?:engine \(v|vllm (?:api server )?version:?\s*v?)(\d+\.\d+[^\s),]*)", re.IGNORECASE),
    "model": re.compile(r"(?<![\w])model(?:_tag)?['\"]?\s*[:=]\s*['\"]([^'\"]+)['\"]"),
    "kv_cache_dtype": re.compile(r"kv_cache_dtype['\"]?\s*[:=]\s*['\"]?(\w+)"),
    "quantization": re.compile(r"quantization['\"]?\s*[:=]\s*['\"]?([\w-]+)"),
    "enable_prefix_caching": re.compile(r"enable_prefix_caching['\"]?\s*[:=]\s*(True|False)"),
    "mamba_cache_mode": re.compile(r"mamba_cache_mode['\"]?\s*[:=]\s*['\"]?(none|align|all)\b"),
    "drafts": re.compile(r"method['\"]?\s*[:=]\s*['\"]([\w-]+)['\"]"),
    "enforce_eager": re.compile(r"enforce_eager['\"]?\s*[:=]\s*(True|False)"),
    "async_scheduling": re.compile(r"(asynchronous scheduling is (?:enabled|disabled))", re.IGNORECASE),
}
NEEDED = ("weights", "kv", "tokens", "blocks", "concurrency", "needed")
"""a log without any of these says nothing of memory"""
OTHERS = (
    (re.compile(r"KV Cache is allocated|max_total_num_tokens|mem_fraction_static"), "SGLang"),
    (re.compile(r"\[TensorRT-LLM\]|\[TRT-LLM\]|tensorrt_llm"), "TensorRT-LLM"),
)


@dataclass(frozen=True)
class StartLog:
    """What a log says. figures : bytes, tokens and counts by name; words : text by name; lines : where each stands."""

    path: str
    figures: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    digits: dict[str, float] = field(default_factory=dict)
    """name to half a unit of the last digit that was printed: bytes, or the figure's own unit"""

    @overload
    def get(self, name: str) -> float | None: ...

    @overload
    def get(self, name: str, otherwise: float) -> float: ...

    def get(self, name: str, otherwise: float | None = None) -> float | None:
        """A figure, or `otherwise` where it was not printed."""
        return self.figures.get(name, otherwise)

    def __contains__(self, name: str) -> bool:
        return name in self.figures

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    @property
    def release(self) -> str | None:
        """The engine preset of the version that was printed: "vllm-0.21"."""
        found = re.match(r"(\d+)\.(\d+)", self.words.get("version", ""))
        return f"vllm-{found[1]}.{found[2]}" if found else None


def read_startup_log(path: str | Path) -> StartLog:
    """Read a start-up log. Raises DataError for a file that can't be read or is none, naming the engine it is of."""
    text = read_bytes(path, "the start-up log of a vLLM server").decode("utf-8", "replace")
    found = parse(text, str(path))
    if not any(name in found.figures for name in NEEDED):
        other = next((engine for pattern, engine in OTHERS if pattern.search(text)), None)
        if other is not None:
            raise DataError(f"{path}: a log of {other}; only the start-up lines of vLLM are read")
        raise DataError(
            f"{path}: no start-up log of a vLLM server: it has none of 'Model loading took', 'Available KV cache memory', "
            "'GPU KV cache size', '# GPU blocks', 'Maximum concurrency'"
        )
    return found


def parse(text: str, path: str = "log") -> StartLog:
    """Every figure and word that the text has."""
    figures: dict[str, float] = {}
    words: dict[str, str] = {}
    lines: dict[str, int] = {}
    digits: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = FLAG.sub(lambda found: f"{found[1].replace('-', '_')}=", COLOUR.sub("", line))
        for one in FIGURES:
            match = one.pattern.search(line)
            if match is None:
                continue
            unit = SCALE[next(key for key in SCALE if key.lower() == match[2].lower())] if one.size else 1
            value = float(match[1].replace(",", "")) * unit
            if one.name not in figures or one.several(figures[one.name], value) != figures[one.name]:
                figures[one.name], lines[one.name] = value, number
                digits[one.name] = unit * 0.5 * 10.0 ** -len(match[1].partition(".")[2])
        for name, pattern in WORDS.items():
            if name not in words and (match := pattern.search(line)):
                words[name], lines[name] = match[1], number
    return StartLog(path, figures, words, lines, digits)
