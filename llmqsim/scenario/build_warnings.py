"""What is not modelled of this deployment and moves its figures: each with the consequence and its direction.

A caveat is said only where it applies to these servers and this traffic. docs/fidelity.md says what rests on each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

import numpy as np

from llmqsim.caveats import Caveat
from llmqsim.cost.lower import StepCost
from llmqsim.cost.store import version_order
from llmqsim.hardware.data import read_preset
from llmqsim.kv.capacity import KvCapacity
from llmqsim.scenario.build import Servers, build_workload
from llmqsim.scenario.build_fleet import Plant
from llmqsim.scenario.load import Scenario
from llmqsim.workload.build import Workload

WITHOUT_HYBRID_MANAGER = ("vllm-0.6", "static-2023")
"""presets of engines that themselves kept windowed layers in full"""
EAGER_LAYER_S = (0.5e-3, 0.8e-3)
"""a layer of a decode step without compilation and CUDA graphs: 20.6 ms for 40 layers (vllm-omni issue 7960), 22 ms for
28 layers (vllm issue 20469)"""
RELEASE_PERCENT = (2, 12)
"""what a release changes step times by: the decode steps of Llama-3.1-8B and Qwen3-32B, vLLM 0.14, 0.19 and 0.24"""
LEAST_FACTOR = 1.05
"""a windowed model whose pool is misjudged by less than this is not worth a line"""
_PRESET = re.compile(r"(vllm|sglang|trtllm)-(\d+(?:\.\d+)*)")


def caveats(scenario: Scenario, servers: Servers | Plant, traffic: Callable[[], Workload]) -> tuple[Caveat, ...]:
    """Everything that applies to these servers under this traffic, each sentence once, gravest first.

    traffic : gives the requests, and is asked only where they matter.
    """
    kinds = list(servers.pools.items()) if isinstance(servers, Plant) else [("", servers)]
    found: dict[Caveat, None] = {}
    for say in (_time_unit, _windowed, _hybrid, _states, _architecture, _eager, _expert_parallel, _kernel_version):
        for name, its in kinds:
            own = scenario.pool(name) if name else scenario
            found |= dict.fromkeys(say(own, its, traffic))
    return tuple(found)


def caveats_of(scenario: Scenario, servers: Servers | Plant) -> tuple[Caveat, ...]:
    """The same for the traffic that the scenario's own seed draws."""
    run = scenario.spec.run
    return caveats(scenario, servers, cache(lambda: build_workload(scenario, servers, run.seed, run.replication)))


def told_of(several: Mapping[str, Iterable[Caveat]]) -> list[dict[str, str]]:
    """The caveats of several runs as plain data, each once; what does not hold for all of them says for which."""
    holders: dict[Caveat, list[str]] = {}
    for name, some in several.items():
        for one in some:
            holders.setdefault(one, []).append(name)
    whole = len(several)
    return [
        one.to_json() if len(names) == whole else Caveat(one.code, f"{', '.join(names)}: {one.text}").to_json()
        for one, names in holders.items()
    ]


def window_factor(share: float, window: int, tokens: np.ndarray) -> float:
    """How many times as many of these requests fit when windowed layers (a `share` of all) keep their window alone."""
    held = tokens * (1.0 - share) + np.minimum(tokens, window) * share
    return float(tokens.sum() / held.sum())


def _time_unit(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    if scenario.spec.workload.trace is not None and (doubt := traffic().doubt):
        yield Caveat("time_unit", doubt)


def _windowed(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    model, deployment = servers.model, servers.deployment
    if model is None or not model.windowed_layers or deployment.capacity is None:
        return
    if deployment.options.preset in WITHOUT_HYBRID_MANAGER or not _lays_out(deployment.capacity):
        return
    requests = traffic().table
    tokens = requests.prompt_tokens + requests.output_tokens
    factor = window_factor(model.windowed_layers / model.layers, model.sliding_window, tokens)
    if factor < LEAST_FACTOR:
        return
    yield Caveat(
        "windowed_kv",
        f"the {model.windowed_layers} of {model.layers} layers with a window of {model.sliding_window:,} tokens hold "
        f"KV of the whole context here; a hybrid KV manager holds about {factor:.2g} times as many requests of "
        f"{tokens.mean():,.0f} tokens, so concurrency is too low, and queueing and preemptions are too high",
    )


def _lays_out(capacity: KvCapacity) -> bool:
    """Does the engine that the scenario names keep layers of several kinds apart?"""
    return capacity.hybrid is not None and capacity.hybrid.rule.hybrid


def _hybrid(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    """Models whose layers have states, or heads of their own by kind: the run's pool beside the engine's."""
    model, capacity = servers.model, servers.deployment.capacity
    if model is None or not model.mixers or capacity is None or not _lays_out(capacity):
        return
    requests = traffic().table
    tokens = requests.prompt_tokens + requests.output_tokens
    kinds, counts = np.unique(tokens, return_counts=True)
    held = sum(capacity.hybrid.held(int(n)) * int(count) for n, count in zip(kinds, counts, strict=True))
    ours = capacity.usable_tokens * len(tokens) / float(tokens.sum())
    theirs = (capacity.hybrid.pages - 1) * len(tokens) / held
    ratio = theirs / ours
    if 1 / LEAST_FACTOR < ratio < LEAST_FACTOR:
        return
    said = ", ".join(f"{one.layers} x {one.name}" for one in model.mixers)
    way = "low, and queueing and preemptions are too high" if ratio > 1 else "high, and queueing and preemptions are too low"
    yield Caveat(
        "hybrid_kv",
        f"{model.name} has layers of several kinds ({said}); the pool of a run counts tokens in all layers that keep "
        f"them and sets states aside; a hybrid KV manager holds about {ratio:.2g} times as many requests of "
        f"{tokens.mean():,.0f} tokens, so concurrency is too {way}",
    )


def _states(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    """Layers that no kernel timing is of."""
    states = [one for one in servers.model.mixers if one.kind == "state"] if servers.model is not None else []
    if not states or scenario.spec.cost.model != "calibrated":
        return
    said = ", ".join(f"{one.layers} x {one.name}" for one in states)
    yield Caveat(
        "state_layers",
        f"layers that keep a state ({said}) have no kernel timings here and are priced as attention over a window that "
        "moves as many bytes, and their matrices as such, so step times may err either way",
    )


def _architecture(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    for one in servers.model.unmodelled if servers.model is not None else ():
        yield Caveat("architecture", f"{servers.model.name}, {one.key}: {one.effect}")


def _eager(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    spec = scenario.spec
    priced = spec.cost.model == "calibrated" and spec.engine.host.eager_per_layer is None
    if not (spec.engine.enforce_eager and priced) or servers.model is None:
        return
    low, high = (1e3 * each * servers.model.layers for each in EAGER_LAYER_S)
    yield Caveat(
        "enforce_eager",
        "enforce_eager hardly changes step times here; without compilation and CUDA graphs a decode step of "
        f"{servers.model.layers} layers takes some {low:.0f} to {high:.0f} ms at least, so TPOT is too low (set "
        "engine.host.eager_per_layer)",
    )


def _expert_parallel(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    options = servers.deployment.options
    if not options.enable_expert_parallel or options.data_parallel_size == 1:
        return
    yield Caveat(
        "expert_parallel",
        f"the {options.data_parallel_size} ranks that share experts step freely here; real ones wait for the slowest "
        "in every layer, so TPOT is too low and throughput too high where their loads differ",
    )


def _kernel_version(scenario: Scenario, servers: Servers, traffic: Callable[[], Workload]) -> Iterator[Caveat]:
    cost, named = servers.deployment.cost, scenario.spec.engine.preset
    timed = cost.kernels_of if isinstance(cost, StepCost) else ()
    others = [f"{backend} {version}" for backend, version in timed if not _same(named, backend, version)]
    if not others:
        return
    low, high = RELEASE_PERCENT
    foreign = [backend for backend, _ in timed if not named.lower().startswith(backend)]
    more = ", another engine's kernels by more" if foreign else ""
    yield Caveat(
        "kernel_version",
        f"kernels were timed under {' and '.join(others)}, the preset is {named}: a release changes step times by "
        f"{low} to {high} %, either way{more}",
    )


def _same(named: str, backend: str, version: str) -> bool:
    """Is the timed release among those that the preset's name stands for?"""
    entries = read_preset("engines.yaml")["engines"]
    its = next((key for key, entry in entries.items() if key.lower() == named.lower()), None)
    releases = (its, *entries[its].get("aliases", ())) if its else (named,)
    for release in releases:
        found = _PRESET.fullmatch(release.lower())
        if found and found[1] == backend:
            wanted = [float(part) for part in found[2].split(".")]
            if list(version_order(version)[: len(wanted)]) == wanted:
                return True
    return False
