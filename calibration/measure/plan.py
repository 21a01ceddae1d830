"""Which shape next: a deterministic order in which every beginning covers the space of shapes as well as it can.

Within a table, each next shape is the one farthest from all before it (in `Space.coordinates`): there a smooth model
of the logarithm of time knows least. Tables take turns by their share of the budget. Nothing depends on what was
measured, so a run that was killed goes on where it stopped, and a longer budget continues a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import schema, work
from .backend import Device, Variant
from .shapes import SPACES, Deployments, Shape
from .timer import Effort

MOST_SHAPES = 2500
"""of one table: more than an hour of it"""
SHARE_OF_MEMORY = 0.4
"""of the device that one copy of a shape's buffers may take"""


@dataclass(frozen=True)
class Task:
    """One shape to be timed with one kernel."""

    table: str
    variant: Variant
    shape: Mapping[str, Any]
    seconds: float
    """that it is expected to take, roughly"""
    key: str = field(default="", compare=False)


def coverage_order(points: np.ndarray, most: int) -> list[int]:
    """Indices of up to `most` of the points, float64 (n, axes), by farthest-point sampling; O(n x most).

    Begins at the point nearest to the middle; equal points are taken once; ties go to the lower index.
    """
    if len(points) == 0:
        return []
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    chosen = [int(np.argmin(((points - middle) ** 2).sum(axis=1)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < most:
        farthest = int(np.argmax(distance))
        if distance[farthest] <= 0.0:
            break
        chosen.append(farthest)
        np.minimum(distance, ((points - points[farthest]) ** 2).sum(axis=1), out=distance)
    return chosen


def table_tasks(
    table: str, variants: Sequence[Variant], what: Deployments, device: Device, effort: Effort
) -> Iterator[Task]:
    """Tasks of one table, most informative shape first, every kernel on each shape."""
    speed = work.CPU if device.is_cpu else work.GPU
    shapes = [s for s in SPACES[table].candidates(what, device.count) if fits(table, s, device, speed)]
    points = np.array([SPACES[table].coordinates(shape) for shape in shapes], dtype=np.float64)
    for index in coverage_order(points, MOST_SHAPES):
        for variant in variants:
            shape = shapes[index] | variant.labels()
            if "kv_dtype" in schema.TABLES[table]:
                shape |= {"kv_dtype": _kv_dtype(variant, shapes[index])}
            if not variant.ops or shape["op"] in variant.ops:
                seconds = work.measuring_seconds(table, shape, speed, effort)
                yield Task(table, variant, shape, seconds, schema.key(table, shape | {"gpu": device.gpu}))


def _kv_dtype(variant: Variant, shape: Shape) -> str:
    return "none" if shape["op"].startswith("mla_gen") else variant.kv_dtype


def fits(table: str, shape: Shape, device: Device, speed: work.Speed) -> bool:
    """Whether a shape is worth timing on the device: neither too long nor too large."""
    _, moved, cold = work.flops_and_bytes(table, shape)
    small = max(moved, cold) <= SHARE_OF_MEMORY * device.memory_bytes
    return small and work.call_seconds(table, shape, speed) <= speed.longest_call_s


def interleave(tables: Mapping[str, Iterator[Task]]) -> Iterator[Task]:
    """Tasks of all tables: next comes the table that has had least expected time for its share."""
    waiting = {table: next(tasks, None) for table, tasks in tables.items()}
    spent = dict.fromkeys(tables, 0.0)
    while ready := [table for table, task in waiting.items() if task is not None]:
        table = min(ready, key=lambda name: spent[name] / SPACES[name].share)
        task = waiting[table]
        spent[table] += task.seconds
        yield task
        waiting[table] = next(tables[table], None)


def tasks(
    variants: Mapping[str, Sequence[Variant]], what: Deployments, device: Device, effort: Effort
) -> Iterator[Task]:
    """Everything to be measured on a device, in order; `variants` by table."""
    return interleave({name: table_tasks(name, own, what, device, effort) for name, own in variants.items() if own})
