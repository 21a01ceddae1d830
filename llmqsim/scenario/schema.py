"""Every key that a scenario may hold: its rule, its default and one sentence of meaning, unit included.

These classes (traffic.py, machine.py, deployment.py, pools.py and here) are the only list of keys. The JSON Schema,
docs/scenario.md and the did-you-means are made from them. Rules that tie several keys together live in checks.py; what
needs presets (does it fit?) in build.py.
"""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.deployment import Admission, CalibratedCost, Engine, Routing, StepCost
from llmqsim.scenario.kinds import Count, Duration, Flag, Index, Replicas, Spec, Text, by_keys
from llmqsim.scenario.machine import GpuChoice, Interconnect, Model
from llmqsim.scenario.pools import HandoffSpec, Placement, PoolSpec
from llmqsim.scenario.targets import Slo
from llmqsim.scenario.traffic import Workload


class WarmupRequests(Spec):
    """Cut the first so many requests."""

    requests: Count = Field(description="How many requests to leave out of the figures, in order of arrival.")
    drain: Flag = Field(
        False,
        description="The load generator waits until the warm-up is answered before it goes on, as many do; in a "
        "closed loop that starts a new burst.",
    )


class WarmupTime(Spec):
    """Cut what arrives before a time."""

    time: Duration = Field(description="Leave requests that arrive before this time out of the figures, seconds.")


Warmup = Annotated[
    Union[
        Annotated[str, rules.choice("auto"), Tag("kind:auto")],
        Annotated[WarmupRequests, Tag("kind:requests")],
        Annotated[WarmupTime, Tag("kind:time")],
    ],
    by_keys("auto", (str,), requests="requests", time="time"),
]


class Run(Spec):
    """How to run it."""

    seed: Index = Field(0, description="Seed of all random streams.")
    replication: Index = Field(0, description="Which independent sample of that seed.")
    engine: Annotated[str, rules.choice("auto", "compiled", "reference")] = Field(
        "auto",
        description="Which simulator engine: `compiled` is fast, `reference` runs everything, `auto` takes the compiled "
        "one where it has a form for all that the scenario asks for. Their results are the same.",
    )
    until: Duration | None = Field(
        None, description="Stop the clock here, seconds; requests not finished by then are counted as unfinished."
    )
    warmup: Warmup | None = Field(
        None,
        description="Start-up to leave out of the figures: so many requests, so much time, or `auto`, found by MSER-5. "
        "Figures with and without it are both shown.",
    )


class ScenarioSpec(Spec):
    """One question about one deployment under one traffic."""

    name: Text | None = Field(None, description="Short name; the file's name if absent.")
    question: Text | None = Field(None, description="The question in one sentence; printed on top of the report.")
    workload: Workload = Field(description="The traffic.")
    model: Model | None = Field(None, description="The model; not needed with a constant or affine cost model.")
    gpu: GpuChoice | None = Field(None, description="The GPU; not needed with a constant or affine cost model.")
    interconnect: Interconnect | None = Field(
        None, description="Link between the GPUs of a replica; default: what most servers with this GPU have."
    )
    replicas: Replicas = Field(1, description="How many copies of the engine share the traffic.")
    tensor_parallel_size: Annotated[int, rules.powers_of_two(64)] = Field(
        1, description="GPUs that share every layer of a replica."
    )
    pipeline_parallel_size: Annotated[int, rules.whole(1, 64)] = Field(
        1, description="Stages of layers, one after the other, each on tensor_parallel_size GPUs."
    )
    routing: Routing = Field(Routing(policy="round_robin"), description="Which replica a request goes to.")
    admission: Admission = Field(
        Admission(policy="all"), description="Whether a request may enter at all. One that is refused counts as a miss."
    )
    engine: Engine = Field(Engine(), description="The serving engine's options.")
    cost: StepCost = Field(CalibratedCost(), description="How long a step takes.")
    pools: dict[str, PoolSpec] | None = Field(
        None, description="Servers of several kinds, by a name of your choice; what they share stands above."
    )
    placement: Placement | None = Field(
        None, description="Which pools a request visits; default: split, with a prefill and a decode pool."
    )
    handoff: HandoffSpec | None = Field(
        None, description="How computed prompts get from a prefill to a decode pool; needed where there are both."
    )
    slo: Slo | None = Field(None, description="Latency targets.")
    run: Run = Field(Run(), description="Seed and limits of the run.")
