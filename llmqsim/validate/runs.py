"""A case to the runs that predict it: scenarios, and which entries of `measured` each of them answers.

Entries without lengths, rate or concurrency of their own are stages or classes of one run; every other entry is a run.
What a real client did (arrivals, lengths, who sent it) is input; what it measured never is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import UserError
from llmqsim.stamps import AUTO
from llmqsim.validate import contradictions, keys
from llmqsim.validate.campaigns import set_unstated
from llmqsim.validate.cases import Case
from llmqsim.validate.deployment import Servers, servers
from llmqsim.validate.positions import longer_positions
from llmqsim.validate.sent import Sent, read_sent
from llmqsim.validate.traffic import Traffic, traffic

OWN_RUN = ("isl", "osl", "n", "n_requests", "batch", "concurrency", "rate_per_s")
"""keys of an entry that make it a run of its own"""


@dataclass(frozen=True)
class Run:
    """One simulation. scenario : plain data of a scenario; its `workload.trace`, if any, is `sent`.

    entries : places in the case's `measured`. stage_rows : requests of each stage, in order, where there are stages.
    """

    case: Case
    entries: tuple[int, ...]
    scenario: Mapping[str, Any]
    gpus: int
    stage_rows: tuple[int, ...] = ()
    sent: Sent | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """files that the scenario names, by name"""
    notes: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal keys: the same simulation of the same case."""
        return f"{self.case.place} {self.case.id} {json.dumps(self.scenario, sort_keys=True, default=str)}"


@dataclass(frozen=True)
class CannotRun:
    """Entries that no scenario can be made for, and why."""

    case: Case
    entries: tuple[int, ...]
    reason: str


def plan(case: Case) -> list[Run | CannotRun]:
    """All runs of a case. Raises nothing: what can't be run says why."""
    everything = tuple(range(len(case.entries)))
    if faults := [*case.faults, *contradictions.of_case(case)]:
        return [CannotRun(case, everything, "; ".join(faults))]
    planned: list[Run | CannotRun] = []
    sound = []
    for i, entry in enumerate(case.entries):
        if said := contradictions.of_entry(case, entry):
            planned.append(CannotRun(case, (i,), said))
        else:
            sound.append(i)
    for entries in _groups(case, sound):
        try:
            planned.append(_run(case, entries))
        except UserError as error:
            planned.append(CannotRun(case, entries, "; ".join(error.faults)))
        except (TypeError, ValueError, KeyError, AttributeError) as error:  # a value of a kind that nobody foresaw
            planned.append(CannotRun(case, entries, f"{case.place}: can't be read ({type(error).__name__}: {error})"))
    return planned


def _groups(case: Case, sound: list[int]) -> Iterator[tuple[int, ...]]:
    """Entries of one run each, of those that contradict nothing."""
    shared = tuple(i for i in sound if not any(case.entries[i].get(key) is not None for key in OWN_RUN))
    if shared:
        yield shared
    yield from ((i,) for i in sound if i not in shared)


def _run(case: Case, entries: tuple[int, ...]) -> Run:
    entry = case.entries[entries[0]] if len(entries) == 1 else {}
    machine = servers(case.config, entry, case.source)
    sent = case.sent
    if case.table is not None and not any(entry.get(key) is not None for key in OWN_RUN):
        sent = read_sent(case.table, str(case.workload.get("time_unit") or AUTO))
    load = traffic(case, entry, machine.product, sent)
    _static(machine, load, entry)
    if machine.product == "vllm" and machine.sixteen_bit_experts and load.cold:
        machine.engine["cold_start"] = True
    if load.clients:
        set_unstated(machine, case.config, load.longest_tokens, load.clients)
    _long_prompts(machine, load)
    files = longer_positions(machine, load.longest_tokens)
    scenario = {**machine.keys, "workload": load.keys, "run": load.run}
    return Run(
        case=case,
        entries=entries,
        scenario=scenario,
        gpus=machine.gpus,
        stage_rows=load.stage_rows,
        sent=sent,
        files=files,
        notes=(*machine.notes, *load.notes, *keys.matters(case)),
        outside=(*machine.outside, *load.outside),
    )


def _static(machine: Servers, load: Traffic, entry: Mapping[str, Any]) -> None:
    """One static batch: everybody starts together and fits, since the real one did."""
    if not load.static:
        return
    batch = load.keys["requests"]
    machine.engine["batching"] = "static"
    machine.engine["max_num_seqs"] = batch
    size = int(machine.engine.get("block_size") or 16)
    machine.engine["block_size"] = size
    machine.engine["num_gpu_blocks_override"] = batch * (-(-load.longest_tokens // size) + 1) + 1
    machine.engine["host"] = {**machine.engine.get("host", {}), "request_before": 0.0, "request_after": 0.0}


def _long_prompts(machine: Servers, load: Traffic) -> None:
    """TensorRT-LLM takes prompts whole: where nobody states its token budget, the longest must fit beside others."""
    unstated = machine.product == "trtllm" and "max_num_batched_tokens" not in machine.engine and not load.static
    together = load.longest_prompt + load.clients
    if unstated and together > TRT_TOKEN_BUDGET:
        machine.engine["max_num_batched_tokens"] = max(together, load.longest_tokens)
        machine.engine["max_model_len"] = load.longest_tokens


TRT_TOKEN_BUDGET = 8192
