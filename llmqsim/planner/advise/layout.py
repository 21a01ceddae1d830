"""Levers of parallelism: every way to cut the GPUs that there are into replicas; whole experts or slices of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmqsim.planner.advise.facts import Facts, Place
from llmqsim.planner.advise.levers import LAYOUT, Lever
from llmqsim.simulation import GPUS_PER_NODE

DEGREES = (1, 2, 4, 8)
"""of tensor parallelism: within what NVLink joins, unless a replica spans more already"""
STAGES = (1, 2, 4, 8)
STATED_POOLS = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""engine options that state the KV pool of a replica as it is: of one cut otherwise they say nothing"""


def levers(facts: Facts) -> Iterator[Lever]:
    """All layouts of each place: tensor parallelism × stages × replicas, of the same number of GPUs."""
    if not facts.calibrated:
        return
    for place in facts.places:
        yield from _layouts(facts, place)
        yield from _experts(facts, place)


def _layouts(facts: Facts, place: Place) -> Iterator[Lever]:
    gpus = place.gpus_each * place.replicas
    now = (place.servers.tensor_parallel_size, place.options.pipeline_parallel_size)
    for tp in sorted({*DEGREES, now[0]}):
        for pp in sorted({*STAGES, now[1]}):
            if (tp, pp) == now or gpus % (tp * pp) or tp * pp > max(GPUS_PER_NODE, place.gpus_each):
                continue
            name = "tensor_parallel" if pp == now[1] else "pipeline_parallel"
            sets = _cut(facts, place, tp, pp, gpus // (tp * pp))
            where = f"{place.name} " if place.prefix else ""
            before = _told(place.replicas, *now)
            yield Lever(name, f"{where}{before} → {_told(gpus // (tp * pp), tp, pp)}{_beside(sets)}", sets, LAYOUT)


def _cut(facts: Facts, place: Place, tp: int, pp: int, replicas: int) -> tuple[tuple[str, Any], ...]:
    """The keys of a layout. A first second replica gets a router that looks, where none was asked for."""
    values: dict[str, Any] = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "replicas": replicas}
    if pp == place.options.pipeline_parallel_size:
        del values["pipeline_parallel_size"]
    if place.replicas == 1 and replicas > 1 and facts.written(place).routing.policy == "round_robin":
        values["routing"] = "least_outstanding"
    stated = [key for key in STATED_POOLS if getattr(place.options, key)]
    return tuple(
        (place.prefix + key, value) for key, value in (*values.items(), *((f"engine.{k}", None) for k in stated))
    )


def _told(replicas: int, tp: int, pp: int) -> str:
    return f"{replicas} × TP {tp}{f' × PP {pp}' if pp > 1 else ''}"


def _beside(sets: tuple[tuple[str, Any], ...]) -> str:
    """What else a layout changes, in words."""
    said = (
        [", to the replica with the fewest requests in flight"] if any(k.endswith("routing") for k, _ in sets) else []
    )
    said += [", KV pool as computed"] if any(v is None for _, v in sets) else []
    return "".join(said)


def _experts(facts: Facts, place: Place) -> Iterator[Lever]:
    """Whole experts on each GPU of a replica, or a slice of every one."""
    model = place.servers.model
    if not model.experts or place.servers.tensor_parallel_size < 2:
        return
    engine = facts.written(place).engine
    if (engine.data_parallel_size or 1) > 1:
        return
    on = not engine.enable_expert_parallel
    says = "whole experts on each GPU" if on else "a slice of every expert on each GPU"
    yield Lever("expert_parallel", says, ((f"{place.prefix}engine.enable_expert_parallel", on),), LAYOUT)
