"""The model and its drawing: streams of clients, each with gaps, regimes and lengths, under one shape over time.

A stream's rate is followed on a grid; its gaps are drawn at unit rate and stretched by it, so that a higher rate
stretches one and the same pattern. All draws come from named streams: stream i of a model draws the same whatever
other streams there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from llmqsim import rng
from llmqsim.errors import ScenarioError
from llmqsim.workload.arrivals import bounded
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.model.laws import Gaps, Regimes
from llmqsim.workload.model.mixes import Mix, size
from llmqsim.workload.model.shape import MOST_STEPS, Shape
from llmqsim.workload.trace import Trace

BLOCK_TOKENS = 512
"""tokens of a block of a prefix, as ids in a trace stand for"""
SPARE = 1.02
LONGEST_SEARCH = 60
"""doublings of the time after which a number of requests is said never to come"""


@dataclass(frozen=True)
class Layer:
    """A part of prompts that some have in common: each request has one of `groups` texts of `tokens` tokens.

    skew : of Zipf's law by which group i of them is chosen, 0 for all alike. Layers follow one another in a prompt, and a
    text of a later layer belongs to the text before it.
    """

    tokens: int
    groups: int
    skew: float = 0.0


@dataclass(frozen=True, eq=False)
class Stream:
    """Traffic of one kind, or of one client. rate : mean, per second. lengths : one mix, or one for each that regimes
    name. regimes : None where rate and mix do not change by themselves."""

    name: str
    rate: float
    gaps: Gaps
    lengths: tuple[Mix, ...]
    regimes: Regimes | None = None


@dataclass(frozen=True, eq=False)
class TrafficModel:
    """Streams under one shape; `about` holds name, source, and the errors of the fit."""

    streams: tuple[Stream, ...]
    shape: Shape = field(default=Shape())
    layers: tuple[Layer, ...] = ()
    about: dict = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Mean requests per second, the shape left out."""
        return sum(stream.rate for stream in self.streams)


def draw_traffic(
    model: TrafficModel, seed: int, replication: int, requests: int | None, duration_s: float | None, name: str = "model"
) -> Trace:
    """Requests in order of arrival: the first `requests`, or those before `duration_s`, the fewer. Raises ScenarioError."""
    if requests is None and duration_s is None:
        raise ScenarioError("workload: a traffic model needs `requests`, `duration` or both, or the traffic never ends")
    until = duration_s if duration_s is not None else _time_of(model, bounded(requests or 0))
    if requests is None:
        bounded(_expected(model, until))
    parts = _all_streams(model, seed, replication, until)
    while requests is not None and duration_s is None and sum(len(p[0]) for p in parts) < requests:
        until *= 1.3
        parts = _all_streams(model, seed, replication, until)
    times = np.concatenate([part[0] for part in parts])
    if len(parts) > 1 or requests is not None:
        order = np.argsort(times, kind="stable")[:requests] if len(parts) > 1 else slice(0, requests)
    else:
        order = slice(None)
    prompt, output = (np.concatenate([part[i] for part in parts])[order] for i in (1, 2))
    times = times[order]
    if model.shape.growth.prompts:
        prompt = np.clip(np.rint(prompt * model.shape.prompts(times)), 1, MAX_TOKENS).astype(np.int64)
    labels = {}
    if len(model.streams) > 1:
        names = np.array([stream.name for stream in model.streams], dtype=object)
        labels = {"tenant": np.repeat(names[[part[3] for part in parts]], [len(part[0]) for part in parts])[order]}
    made = Trace(times, prompt, output, f"traffic model {name}", (), labels)
    return _with_prefixes(model, made, seed, replication) if model.layers else made


def _all_streams(model: TrafficModel, seed: int, replication: int, until: float) -> list[tuple]:
    """(times, prompt, output, number of its stream) of every stream, and of every copy of it that growth brings."""
    parts = []
    copies = math.ceil(float(model.shape.clients(np.array([until]))[0]) - 1e-9) if model.shape.growth.clients else 1
    for i, stream in enumerate(model.streams):
        for copy in range(max(copies, 1)):
            parts.append((*_one_stream(model, stream, copy, seed, replication, until), i))
    return parts


def _one_stream(model: TrafficModel, stream: Stream, copy: int, seed: int, replication: int, until: float):
    def draw(what: str) -> np.random.Generator:
        return rng.stream(seed, replication, f"traffic/{stream.name}/{copy}/{what}")

    edges, rates, path = _rates(model, stream, copy, until, draw("regimes"))
    passed = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])
    sums = _sums(stream.gaps, float(passed[-1]), draw("gaps"))
    times = np.interp(sums, passed, edges) if len(edges) > 2 else sums / rates[0]
    u_prompt, u_output = draw("prompts").random(len(times)), draw("outputs").random(len(times))
    if len(stream.lengths) == 1 or path is None or stream.regimes is None:
        return times, *stream.lengths[0].draw(u_prompt, u_output)
    window = np.minimum((times // stream.regimes.window_s).astype(np.int64), len(path) - 1)
    mix = stream.regimes.lengths[path[window]]
    prompt, output = np.empty(len(times), dtype=np.int64), np.empty(len(times), dtype=np.int64)
    for number, law in enumerate(stream.lengths):
        mine = mix == number
        if mine.any():
            prompt[mine], output[mine] = law.draw(u_prompt[mine], u_output[mine])
    return times, prompt, output


def _rates(model: TrafficModel, stream: Stream, copy: int, until: float, draw: np.random.Generator):
    """Edges (float64[k + 1] s) and rates between them (float64[k]), and the regime of each window, if there are any."""
    shape, path = model.shape, None
    edges = np.array([0.0, until])
    if not shape.plain:
        step = max(shape.step_s(), until / MOST_STEPS)
        edges = np.minimum(np.arange(math.ceil(until / step) + 1) * step, until)
    if stream.regimes is not None:
        windows = max(1, math.ceil(until / stream.regimes.window_s))
        path = stream.regimes.path(windows, draw)
        own = np.minimum(np.arange(windows + 1) * stream.regimes.window_s, until)
        edges = own if shape.plain else np.unique(np.concatenate([own, edges]))
    middle = (edges[1:] + edges[:-1]) / 2
    rates = np.full(len(middle), stream.rate)
    if path is not None and stream.regimes is not None:
        rates *= stream.regimes.rate[path[np.minimum((middle // stream.regimes.window_s).astype(np.int64), len(path) - 1)]]
    if not shape.plain:
        rates *= shape.factor(middle)
        if shape.growth.clients:
            rates *= np.clip(shape.clients(middle) - copy, 0.0, 1.0)
    return edges, rates, path


def _sums(gaps: Gaps, until: float, draw: np.random.Generator) -> np.ndarray:
    """Sums of unit gaps up to `until`, float64[n], in blocks of one random stream."""
    block = int(until + 6 * math.sqrt(until) * max(1.0, gaps.cv)) + 64
    block = min(block, max(1 << 16, int(until * SPARE) + 64))
    parts, total = [], 0.0
    while True:
        sums = np.cumsum(gaps.quantile(draw.random(block))) + total
        parts.append(sums)
        total = float(sums[-1])
        if total >= until:
            break
        block = max(64, min(block, 1 << 16))
    sums = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return sums[: int(np.searchsorted(sums, until, side="left"))]


def _expected(model: TrafficModel, until: float) -> float:
    if model.shape.plain:
        return model.rate * until
    at = np.linspace(0, until, 2048)
    return float(model.rate * np.mean(model.shape.factor(at) * model.shape.clients(at)) * until)


def _time_of(model: TrafficModel, requests: int) -> float:
    """A time by which so many requests have most likely come."""
    wanted = requests + 6 * math.sqrt(requests) + 10
    until = wanted / model.rate
    for _ in range(LONGEST_SEARCH):
        if _expected(model, until) >= wanted:
            return until
        until *= 1.5
    raise ScenarioError(f"workload: {requests:,} requests never come at the rates of the traffic model; ask for fewer")


def _with_prefixes(model: TrafficModel, made: Trace, seed: int, replication: int) -> Trace:
    """Block ids of what prompts have in common; only blocks that lie wholly within a prompt are told."""
    rows = len(made)
    taken = np.zeros(rows, dtype=np.int64)
    paths: list[list[int]] = [[] for _ in range(rows)]
    next_id, owner = 0, np.zeros(rows, dtype=np.int64)
    for number, layer in enumerate(model.layers):
        share = np.arange(1, layer.groups + 1, dtype=float) ** -layer.skew
        draw = rng.stream(seed, replication, f"traffic/prefix/{number}")
        group = np.searchsorted(np.cumsum(share / share.sum()), draw.random(rows), side="right").clip(max=layer.groups - 1)
        owner = owner * layer.groups + group
        _, which = np.unique(owner, return_inverse=True)
        blocks = layer.tokens // BLOCK_TOKENS
        full = np.clip((made.prompt_tokens - taken) // BLOCK_TOKENS, 0, blocks)
        for i, (first, count) in enumerate(zip((which * blocks + next_id).tolist(), full.tolist(), strict=True)):
            paths[i].extend(range(first, first + count))
        next_id += blocks * (int(which.max(initial=0)) + 1)
        taken += blocks * BLOCK_TOKENS
    return replace(made, prefix_ids=paths, hash_tokens=BLOCK_TOKENS)


def sizes(streams: Sequence[Stream]) -> int:
    """Numbers that streams are told by, lengths included."""
    total = 0
    for stream in streams:
        total += 1 + stream.gaps.size + (stream.regimes.size if stream.regimes else 0)
        total += sum(size(mix) for mix in stream.lengths)
    return total
