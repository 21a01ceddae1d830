"""Every key that a scenario may hold: its rule, its default and one sentence of meaning, unit included.

These classes (traffic.py, deployment.py and here) are the only list of keys. The JSON Schema, docs/scenario.md and the
did-you-means are made from them. Rules that tie several keys together live in checks.py; what needs presets (does it
fit?) in build.py.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from llmqsim.scenario import rules
from llmqsim.scenario.deployment import CalibratedCost, Engine, Model, Routing, StepCost
from llmqsim.scenario.kinds import Count, Duration, Index, Latency, Spec, Text
from llmqsim.scenario.traffic import Workload


class Slo(Spec):
    """What users are promised: at least one latency. A request meets it when every given target holds.

    A bare number is seconds; from 10 on it needs a unit, since benchmarks write bare milliseconds.
    """

    ttft: Latency | None = Field(None, description="Time to first token, seconds.")
    tpot: Annotated[float, rules.seconds(example="50 ms")] | None = Field(
        None, description="Time per output token after the first, seconds."
    )
    e2e: Latency | None = Field(None, description="Time to the last token, seconds.")
    attainment: Annotated[
        float, rules.number(above=0, below=1, hint="write a share such as 0.95; no finite run can show 100 %")
    ] = Field(0.95, description="Share of arrivals that must meet every target.")


class Run(Spec):
    """How to run it."""

    seed: Index = Field(0, description="Seed of all random streams.")
    replication: Index = Field(0, description="Which independent sample of that seed.")
    engine: Annotated[str, rules.choice("auto", "reference")] = Field("auto", description="Which simulator engine.")
    until: Duration | None = Field(
        None, description="Stop the clock here, seconds; requests not finished by then are counted as unfinished."
    )


class ScenarioSpec(Spec):
    """One question about one deployment under one traffic."""

    name: Text | None = Field(None, description="Short name; the file's name if absent.")
    question: Text | None = Field(None, description="The question in one sentence; printed on top of the report.")
    workload: Workload = Field(description="The traffic.")
    model: Model | None = Field(None, description="The model; not needed with a constant or affine cost model.")
    gpu: Annotated[str, rules.text("the name of a GPU preset", "a100-sxm-80gb")] | None = Field(
        None, description="The GPU; not needed with a constant or affine cost model."
    )
    replicas: Count = Field(1, description="How many copies of the engine share the traffic.")
    tensor_parallel_size: Annotated[int, rules.powers_of_two(64)] = Field(1, description="GPUs per replica.")
    routing: Routing = Field(Routing(policy="round_robin"), description="Which replica a request goes to.")
    engine: Engine = Field(Engine(), description="The serving engine's options.")
    cost: StepCost = Field(CalibratedCost(), description="How long a step takes.")
    slo: Slo | None = Field(None, description="Latency targets.")
    run: Run = Field(Run(), description="Seed and limits of the run.")
