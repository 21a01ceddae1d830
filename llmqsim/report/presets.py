"""`llmqsim presets`: everything that a scenario can name, with its source or meaning."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from llmqsim import policies, registry
from llmqsim.errors import UserError, or_known, or_nearest
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu, gpu_names, interconnect_names
from llmqsim.hardware.model import model, model_names
from llmqsim.hardware.serving import engine_names
from llmqsim.kv.lanes import kv_link, kv_link_names
from llmqsim.units import format_bytes
from llmqsim.workload import predictors
from llmqsim.workload.table_file import load_preset, preset_names

assert policies and predictors, "imported to register the built-in policies"

WIDTH, LABEL, KIND = 100, 30, 14
MANY, VERY_MANY = 30, 60
"""names from which those that begin alike stand together: up to the first sign, or up to the first digit"""
Entries = Callable[[], Iterator[tuple[str, str]]]
KINDS = {
    "routing": "routing",
    "batching": "engine.batching",
    "ordering": "engine.ordering",
    "preemption": "engine.preemption",
    "placement": "placement",
    "predictor": "workload.predictor",
}
"""kind of policy -> key of the scenario"""


def kinds() -> list[str]:
    """What `llmqsim presets KIND` takes."""
    return list(_sections())


def presets_text() -> str:
    """Models, GPUs, engines, length presets and policies, one entry each, at most 100 columns wide."""
    return "\n\n".join(presets_of(kind) for kind in _sections())


def presets_names() -> str:
    """The names alone, kind by kind, and how to see more; of very many names their first letters, and how many begin so."""
    rows = []
    for kind, (_, entries) in _sections().items():
        names = ", ".join(_shortened([name for name, _ in entries()]))
        rows.append(textwrap.fill(f"{kind:<{KIND}}{names}", WIDTH, subsequent_indent=" " * KIND, break_on_hyphens=False))
    return "\n".join([*rows, "`llmqsim presets models qwen`: what they are and where that is from; --full: all of them"])


def _shortened(names: list[str]) -> list[str]:
    if len(names) <= MANY:
        return names
    families: dict[str, list[str]] = {}
    for name in names:
        begins = re.match("[a-z]+" if len(names) > VERY_MANY else "[^-]+", name)
        families.setdefault(begins.group() if begins else name, []).append(name)
    if len(names) <= VERY_MANY:
        return [f"{family}… ({len(own)})" if len(own) > 1 else own[0] for family, own in families.items()]
    many = {family: len(own) for family, own in families.items() if len(own) > 1}
    others = len(families) - len(many)
    return [f"{family}… ({count})" for family, count in many.items()] + ([f"others ({others})"] if others else [])


def presets_of(kind: str, words: Sequence[str] = ()) -> str:
    """Entries of one kind, those that hold all of these words. Raises UserError where there are none, or no such kind."""
    title, _ = _section(kind)
    found = _found(kind, words)
    if not found:
        names = [name for name, _ in _section(kind)[1]()]
        raise UserError(f"presets {kind}: nothing holds {' and '.join(map(repr, words))}{or_nearest(words[0], names)}")
    return "\n".join([title, *(_entry(*entry) for entry in found)])


def told(kind: str | None, words: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """The same as plain data: kind -> name -> what it is. kind : None for all of them. Raises UserError."""
    if kind is not None:
        presets_of(kind, words)
    return {one: dict(_found(one, words)) for one in ([kind] if kind is not None else _sections())}


def _found(kind: str, words: Sequence[str]) -> list[tuple[str, str]]:
    wanted = [word.lower() for word in words]
    return [entry for entry in _section(kind)[1]() if all(word in " ".join(entry).lower() for word in wanted)]


def _section(kind: str) -> tuple[str, Entries]:
    sections = _sections()
    if kind not in sections:
        raise UserError(f"presets: unknown kind (got {kind!r}){or_known(kind, sections)}")
    return sections[kind]


def _sections() -> dict[str, tuple[str, Entries]]:
    """Kind -> what a scenario writes, and the entries."""
    return {
        "models": ("model: MODEL, or {config: path of a Hugging Face config.json}", _models),
        "gpus": ("gpu: GPU, or {name: …, memory: …, memory_bandwidth: …, flops: {bfloat16: …}}, or {like: GPU, …}", _gpus),
        "interconnects": ("interconnect: LINK, or {latency: 10 us, bandwidth: 20 GB/s}", _links),
        "kv_links": ("handoff: {link: LINK}, or {like: LINK, …}, or {bandwidth: 20 GB/s, …}", _kv_links),
        "handoffs": ("handoff: {preset: PROTOCOL}", _protocols),
        "engines": ("engine: {preset: ENGINE}", _engines),
        "lengths": ("workload: {lengths: PRESET}, or {file: table made by `llmqsim workload fit`}", _lengths),
        **{kind: (f"{key}: POLICY", partial(_policies, kind)) for kind, key in KINDS.items()},
    }


def _entry(name: str, text: str) -> str:
    indent = " " * LABEL
    first = f"  {name:<{LABEL - 2}}"
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _also(entry: dict) -> str:
    aliases = ", ".join(entry.get("aliases", ()))
    return f"; also {aliases}" if aliases else ""


def _models() -> Iterator[tuple[str, str]]:
    entries = read_preset("models.yaml")["models"]
    for name in model_names():
        shown = model(name)
        active = f" ({shown.active_parameters / 1e9:.1f} B active)" if shown.experts else ""
        size = f"{shown.parameters / 1e9:.2f} B parameters{active}, up to {shown.max_position_embeddings:,} tokens"
        yield name, f"{size}; {entries[name]['source']}{_also(entries[name])}"


def _gpus() -> Iterator[tuple[str, str]]:
    entries = read_preset("gpus.yaml")["gpus"]
    for name in gpu_names():
        card = gpu(name)
        bandwidth, flops = card.memory_bandwidth_bytes_per_s / 1e12, card.flops_per_s["bfloat16"] / 1e12
        size = f"{format_bytes(card.memory_bytes)}, {bandwidth:.2f} TB/s, {flops:.0f} TFLOP/s in bfloat16"
        yield name, f"{size}; {card.sources['memory_bandwidth_bytes_per_s']}{_also(entries[name])}"


def _links() -> Iterator[tuple[str, str]]:
    data = read_preset("interconnects.yaml")
    for name in interconnect_names():
        entry = data["interconnects"][name]
        latency = f", {entry['latency_s'] * 1e6:g} us a message" if "latency_s" in entry else ""
        rate = f"{entry['bandwidth_bytes_per_s'] / 1e9:g} GB/s{latency}"
        yield name, f"{rate}; {data['sources'].get(entry['source'], entry['source'])}"


def _kv_links() -> Iterator[tuple[str, str]]:
    for name in kv_link_names():
        link = kv_link(name)
        times = f"{link.latency_ns / 1e3:g} us a transfer, {link.per_fragment_ns / 1e3:g} us a fragment"
        yield name, f"{link.bytes_per_us / 1e3:g} GB/s, {times}; {link.source}"


def _protocols() -> Iterator[tuple[str, str]]:
    for name, entry in sorted(read_preset("handoffs.yaml")["handoffs"].items()):
        yield name, f"{entry['transfer']}, first token from {entry['first_token']}; {entry['source']}"


def _engines() -> Iterator[tuple[str, str]]:
    for name in engine_names():
        entry = read_preset("engines.yaml")["engines"][name]
        yield name, f"{entry['versions']}{_also(entry)}"


def _lengths() -> Iterator[tuple[str, str]]:
    for name in preset_names():
        table = load_preset(name)
        means = [table.marginal(column).mean() for column in ("prompt_tokens", "output_tokens")]
        about = table.about
        size = f"mean {means[0]:,.0f} prompt and {means[1]:,.0f} output tokens"
        yield name, f"{size}; {about['source']}; {about['licence']}"


def _policies(kind: str) -> Iterator[tuple[str, str]]:
    for name, cls in registry.classes(kind).items():
        text = cls.__doc__ or "no description"
        yield name, text.strip().split("\n\n")[0].replace("\n", " ")
