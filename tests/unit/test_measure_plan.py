"""The plan of the measuring kit: deterministic, covering, fair to every table, within the device."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from fake_gpu import GIB, FakeBackend, all_tasks, device, plan, schema, shapes, timer, variant, work

from llmqsim.hardware.model import model

EVERYTHING = tuple(schema.TABLES)


def radius(points: np.ndarray, chosen: list[int]) -> float:
    """Distance of the point that is farthest from all chosen ones."""
    gaps = ((points[:, None, :] - points[chosen][None, :, :]) ** 2).sum(-1)
    return float(np.sqrt(gaps.min(axis=1).max()))


def gemm_points() -> np.ndarray:
    space = shapes.SPACES["gemm"]
    found = space.candidates(shapes.Deployments(), 1)
    return np.array([space.coordinates(shape) for shape in found])


def test_the_same_plan_every_time():
    first = [task.key for task in islice(all_tasks(FakeBackend(tables=EVERYTHING)), 500)]
    again = [task.key for task in islice(all_tasks(FakeBackend(tables=EVERYTHING)), 500)]
    assert first == again
    assert len(set(first)) == 500


def test_every_beginning_covers_better_than_chance():
    points = gemm_points()
    order = plan.coverage_order(points, 400)
    rng = np.random.default_rng(0)
    for count, share in ((10, 1.0), (50, 0.8), (200, 0.7), (400, 0.7)):
        by_chance = min(radius(points, list(rng.choice(len(points), count, replace=False))) for _ in range(5))
        assert radius(points, order[:count]) < share * by_chance


def test_each_next_shape_is_the_farthest_from_all_before():
    points = np.array([[0.0], [1.0], [4.0], [10.0], [10.0]])
    # the middle is 5: nearest is 4; then 10 (the copy of it never comes), then 0, then 1
    assert plan.coverage_order(points, 10) == [2, 3, 0, 1]
    assert plan.coverage_order(points, 2) == [2, 3]
    assert plan.coverage_order(np.empty((0, 2)), 5) == []


def test_both_sides_of_a_tile_edge_are_told_apart():
    assert shapes.past_edge(129) > shapes.past_edge(128) == shapes.past_edge(127) == 0.0
    early = [s.shape["m"] for s in islice(all_tasks(FakeBackend(tables=("gemm",))), 300)]
    assert {128, 129} <= set(early) and {256, 257} <= set(early)


def test_a_longer_budget_continues_a_shorter_one():
    tasks = list(islice(all_tasks(FakeBackend(tables=EVERYTHING)), 300))
    assert [t.key for t in islice(all_tasks(FakeBackend(tables=EVERYTHING)), 100)] == [t.key for t in tasks[:100]]


def test_tables_share_the_time_as_set():
    spent = dict.fromkeys(("gemm", "attention_decode", "attention_context"), 0.0)
    for task in islice(all_tasks(FakeBackend(tables=tuple(spent))), 1000):
        spent[task.table] += task.seconds
    for table, seconds in spent.items():
        share = shapes.SPACES[table].share / sum(shapes.SPACES[name].share for name in spent)
        assert seconds / sum(spent.values()) == pytest.approx(share, abs=0.01)


def test_every_planned_shape_makes_a_whole_row():
    seen = set()
    for task in islice(all_tasks(FakeBackend(tables=EVERYTHING)), 1500):
        row = dict(task.shape) | {"gpu": "x", "latency_us": 1.0, "n_rep": 3, "rep_spread": 0.0, "lat_min_us": 1.0}
        row |= {"source": "s", "flag": "", "timing": "graph", "mode": "graph"}
        row = {column: row[column] for column in schema.TABLES[task.table]}
        assert schema.faults(task.table, row) == []
        seen.add(task.table)
    assert seen == set(EVERYTHING)


@pytest.mark.parametrize("memory", [80 * GIB, 8 * GIB])
def test_no_shape_is_larger_than_the_device(memory):
    for task in all_tasks(FakeBackend(gpu=device(memory_bytes=memory), tables=("gemm", "attention_decode", "moe"))):
        _, moved, cold = work.flops_and_bytes(task.table, task.shape)
        assert max(moved, cold) <= plan.SHARE_OF_MEMORY * memory


def test_a_cpu_gets_tiny_shapes_and_one_gpu_no_collectives():
    cpu = device(gpu="cpu", is_cpu=True, memory_bytes=GIB, count=1)
    tasks = list(islice(all_tasks(FakeBackend(gpu=cpu, tables=EVERYTHING)), 2000))
    assert tasks and not {"collectives", "p2p"} & {task.table for task in tasks}
    assert max(work.call_seconds(task.table, task.shape, work.CPU) for task in tasks) <= work.CPU.longest_call_s


def test_a_deployment_is_measured_on_its_own_matrices_and_heads():
    what = shapes.Deployments((model("llama-2-70b"),), (4,))
    assert what.sides() == [(2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168), (8000, 8192)]
    assert what.heads() == [(16, 2, 128)]
    fake = FakeBackend(tables=("gemm", "attention_decode", "layer_ops"))
    for task in islice(all_tasks(fake, what), 300):
        if task.table == "gemm":
            assert (task.shape["n"], task.shape["k"]) in what.sides()
        if task.table == "layer_ops":
            assert (task.shape["model"], task.shape["tp"]) == ("llama-2-70b", 4)


def test_a_kernel_is_only_asked_for_its_operators():
    only = variant("collectives", ops=("all_reduce",))
    found = list(plan.table_tasks("collectives", [only], shapes.Deployments(), device(count=8), timer.Effort()))
    assert {task.shape["op"] for task in found} == {"all_reduce"}
    assert {task.shape["num_gpus"] for task in found} == {2, 4, 8}


def test_work_of_known_shapes():
    flops, moved, cold = work.flops_and_bytes("gemm", {"m": 16, "n": 1024, "k": 512, "dtype": "bfloat16"})
    assert (flops, moved, cold) == (2 * 16 * 1024 * 512, 2 * 1024 * 512 + 2 * 16 * (1024 + 512), 2 * 1024 * 512)
    heads = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128}
    decode = work.flops_and_bytes("attention_decode", {"batch": 4, "kv_history": 99, "kv_dtype": "fp8", **heads})
    assert decode[1] == 4 * 100 * 2 * 2 * 128
    prefill = work.flops_and_bytes("attention_context", {"batch": 1, "q_len": 100, "kv_len": 100, **heads})
    assert prefill[0] == 4 * 100 * 50 * 8 * 128


def test_what_beats_the_datasheet_is_flagged():
    peaks = work.Peaks({"bfloat16": 1e15}, 3e12)
    shape = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"}
    flops = 2 * 8192**3
    assert work.super_peak("gemm", shape, flops / 1.1e15, peaks)
    assert not work.super_peak("gemm", shape, flops / 0.9e15, peaks)
