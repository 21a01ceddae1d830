"""simulate: the composition root. A pure function of its arguments: no globals, no files written, no output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim import long_runs, progress
from llmqsim.caveats import Caveat
from llmqsim.clock import EndOfTime
from llmqsim.cluster import choose
from llmqsim.cluster.alone import late_alone
from llmqsim.errors import ScenarioError, UserError
from llmqsim.metrics.folded_summary import summarise_folded
from llmqsim.metrics.slo import Promise
from llmqsim.records import StepLog
from llmqsim.requests import INDEX, Outcome
from llmqsim.result import NoRequests, Result
from llmqsim.scenario.build import Servers, build_workload
from llmqsim.scenario.build_fleet import Plant, build_plant
from llmqsim.scenario.build_idle import Happened, idle_keys
from llmqsim.scenario.build_warnings import caveats, caveats_of
from llmqsim.scenario.load import Scenario, load
from llmqsim.scenario.targets import SLO_KEYS, Slo
from llmqsim.units import to_ns
from llmqsim.version import __version__

KEEP = ("requests", "summary")
"""what a result may hold of its requests: all of them, or the figures alone"""
LOOKED_AT = 2000
"""requests that are looked at to say how far a run has come"""
GPUS_PER_NODE = 8
"""what NVLink joins in the servers that all-reduce was measured on"""


def simulate(
    scenario: Scenario | str | Path,
    seed: int | None = None,
    replication: int | None = None,
    keep_steps: bool = False,
    keep: str = "requests",
) -> Result:
    """Run a scenario (or the file of one) and return its result.

    seed, replication : override the scenario's `run.seed` and `run.replication`; replications of one seed are
    independent samples. keep_steps : keep the log of every step. keep : "requests", or "summary" for the figures alone,
    in a fifth of the memory (docs/benchmarks.md, "Memory"). Raises UserError for what can't be run as written.
    """
    prepared = prepare(scenario)
    run = prepared.scenario.spec.run
    seed = run.seed if seed is None else seed
    return prepared.run(seed, run.replication if replication is None else replication, keep_steps, keep)


def prepare(scenario: Scenario | str | Path) -> Prepared:
    """A scenario with its servers built, for many runs of it. Raises UserError for what can't be run as written."""
    if not isinstance(scenario, Scenario):
        scenario = load(scenario)
    return Prepared(scenario, build_plant(scenario))


@dataclass(frozen=True)
class Prepared:
    """A scenario and its servers: all that its runs have in common."""

    scenario: Scenario
    servers: Servers | Plant

    def caveats(self) -> tuple[Caveat, ...]:
        """What makes the figures of its runs err, for the traffic of the scenario's own seed."""
        return caveats_of(self.scenario, self.servers)

    def run(self, seed: int, replication: int, keep_steps: bool = False, keep: str = "requests") -> Result:
        """One run of it; a pure function, as `simulate` is."""
        if keep not in KEEP:
            raise UserError(f"keep: must be one of {', '.join(KEEP)} (got {keep!r})")
        scenario, servers = self.scenario, self.servers
        long = None
        if keep == "summary" and not keep_steps:
            long = long_runs.run(scenario, servers, seed, replication, promise(scenario))
        if long is not None:
            workload, finished = long.sample, long.finished
        else:
            workload = build_workload(scenario, servers, seed, replication, streamed=keep == "summary")
            with progress.running(len(workload.table), lambda: _done(workload.table)):
                finished = _run(scenario, servers, workload, keep_steps)
        idle = idle_keys(scenario, servers, Happened.of(finished.usage, workload.table))
        result = Result(
            scenario=scenario.to_dict(),
            seed=seed,
            replication=replication,
            engine=finished.engine,
            version=__version__,
            table=workload.table,
            gaps=finished.gaps,
            usage=finished.usage,
            end_ns=finished.end_ns,
            kv=_kv(servers),
            slo=_slo(scenario.spec.slo),
            class_slo=_class_slos(scenario),
            warmup=_warmup(scenario),
            envelope=_envelope(servers),
            notes=(
                *_beyond_one_node(scenario),
                *workload.notes,
                *_unused_prefixes(workload.table.prefixes is not None, servers),
                *_stated_blocks(servers),
                *servers.deployment.cost.notes,
                *_slower_engine(finished.fallback),
            ),
            no_effect=idle,
            caveats=caveats(scenario, servers, lambda: workload),
            step_log=_steps(finished.step_log),
            pools=_pools(servers),
            links=finished.links,
            late_alone=_late_alone(servers, workload),
        )
        if long is not None:
            return replace(result, told=summarise_folded(result, long.folded), table=NoRequests())
        return result.without_requests() if keep == "summary" else result


def _late_alone(servers: Servers | Plant, workload) -> np.ndarray | None:
    """Of a run in which a client gave up."""
    patience = workload.clients.timeout_ns
    if patience is None or not (workload.table.outcome == Outcome.TIMED_OUT).any():
        return None
    return late_alone(servers.deployment, workload.table, patience)


def _done(table: Any) -> float | None:
    """Share of the requests of a run under way that are over; of a streamed table, up to the last that is over."""
    data = table.__dict__.get("data")
    if data is None or not len(table):
        return None
    rows = np.unique(np.linspace(0, len(table) - 1, LOOKED_AT).astype(np.int64))
    over = data[INDEX["outcome"], rows] != Outcome.UNFINISHED
    if not over.any():
        return 0.0
    return float((np.flatnonzero(over)[-1] + 1) / len(rows)) if table.streamed else float(over.mean())


def _slower_engine(lacking: str | None) -> tuple[str, ...]:
    return () if lacking is None else (f"the reference engine ran; what the compiled one lacks: {lacking}",)


def _run(scenario: Scenario, servers: Servers | Plant, workload, keep_steps: bool) -> choose.Finished:
    """Run with the engine that `run.engine` asks for; refuse, with the reason, where it can't."""
    run = scenario.spec.run
    until_ns = None if run.until is None else to_ns(run.until)
    try:
        return choose.run(run.engine, workload.table, servers.everything, workload.clients, keep_steps, until_ns)
    except ScenarioError as error:
        raise ScenarioError(*(f"{scenario.where(fault.split(':', 1)[0])}: {fault}" for fault in error.faults)) from None
    except choose.NotCompiled as reason:
        told = f"the compiled engine has no form for this run: {reason}; use auto or reference"
        raise ScenarioError(scenario.fault("run.engine", told)) from None
    except EndOfTime as error:
        hint = "make steps shorter (cost, engine.host), or set run.until"
        raise ScenarioError(scenario.fault("cost", f"{error}; {hint}")) from None


def _unused_prefixes(shared: bool, servers: Servers) -> tuple[str, ...]:
    options = servers.deployment.options
    if not shared or (options.enable_prefix_caching and servers.deployment.capacity is not None):
        return ()
    why = "the KV pool is unlimited" if options.enable_prefix_caching else "engine.enable_prefix_caching is off"
    return (f"prompts have prefixes in common, and nothing is cached: {why}",)


def _pools(servers: Servers | Plant) -> tuple[dict[str, Any], ...]:
    """Each pool as plain data, in the order of replicas; empty without pools."""
    if isinstance(servers, Servers):
        return ()
    fleet = servers.fleet
    return tuple(
        {
            "name": pool.name,
            "role": pool.role,
            "replicas": pool.deployment.replicas,
            "gpus": pool.deployment.replicas
            * servers.pools[pool.name].tensor_parallel_size
            * pool.deployment.options.pipeline_parallel_size,
            "first_replica": fleet.first_replica(pool.name),
            "kv": _kv(servers.pools[pool.name]),
        }
        for pool in fleet.pools
    )


def _kv(servers: Servers | Plant) -> dict[str, Any] | None:
    """The KV pool of one replica as plain data; None where it never binds."""
    capacity = servers.deployment.capacity
    if capacity is None:
        return None
    longest = servers.deployment.options.max_model_len
    return {
        "blocks": capacity.blocks,
        "block_size": capacity.block_size,
        "tokens": capacity.tokens,
        "usable_tokens": capacity.usable_tokens,
        "bytes_per_token": capacity.bytes_per_token,
        "formula": capacity.formula or None,
        "max_model_len": longest,
        "guaranteed_concurrency": None if longest is None else capacity.guaranteed_concurrency(longest),
        "hybrid_concurrency": None if longest is None else capacity.hybrid_concurrency(longest),
        "source": capacity.source,
        "items": [{"name": item.name, "bytes": item.bytes, "formula": item.formula} for item in capacity.items],
    }


def _envelope(servers: Servers) -> dict[str, Any]:
    """Where the step costs come from, and the highest values that were measured (null: no limit)."""
    cost = servers.deployment.cost
    return {
        "source": cost.provenance[0],
        "provenance": list(cost.provenance),
        "box": {axis: None if value == float("inf") else value for axis, value in cost.box.items()},
    }


def _stated_blocks(servers: Servers) -> tuple[str, ...]:
    """A pool stated in blocks stays as it is, whatever a block weighs (as in vLLM); a narrower KV type seems to do nothing."""
    options = servers.deployment.options
    if options.num_gpu_blocks_override is None or options.kv_cache_dtype == "auto":
        return ()
    return (
        f"engine.num_gpu_blocks_override sets the blocks, so kv_cache_dtype {options.kv_cache_dtype} does not change "
        + "them; state kv_cache_memory_bytes to see what it saves",
    )


def _beyond_one_node(scenario: Scenario) -> tuple[str, ...]:
    """A note where a replica has more GPUs than the interconnect that was measured joins."""
    tp = scenario.spec.tensor_parallel_size
    if tp <= GPUS_PER_NODE or scenario.spec.gpu is None:
        return ()
    return (f"TP {tp} goes beyond one node of {GPUS_PER_NODE} GPUs; its all-reduce times are those of one node",)


def promise(scenario: Scenario) -> Promise:
    """The latency targets that a scenario sets, by class."""
    return Promise(_slo(scenario.spec.slo), _class_slos(scenario))


def _slo(slo: Slo | None) -> dict[str, Any]:
    """Targets in seconds, the attainment asked for, and what it counts from; empty without an SLO."""
    if slo is None:
        return {}
    targets = {f"{name}_s": getattr(slo, name) for name in SLO_KEYS}
    others = {"attainment": slo.attainment, "counted_from": slo.counted_from}
    return {name: value for name, value in (targets | others).items() if value is not None}


def _class_slos(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """The same of the classes that have their own."""
    classes = scenario.spec.workload.classes or {}
    return {name: _slo(spec.slo) for name, spec in classes.items() if spec.slo is not None}


def _warmup(scenario: Scenario) -> Any:
    """What to leave out, as plain data."""
    warmup = scenario.spec.run.warmup
    return warmup if warmup is None or isinstance(warmup, str) else warmup.model_dump()


def _steps(log: list[tuple] | None) -> StepLog | None:
    if log is None:
        return None
    return StepLog(*np.array(log, dtype=np.int64).reshape(-1, len(StepLog.__dataclass_fields__)).T)
