"""Keys of pools: servers of several kinds, where requests go, and how computed prompts get from one to the other."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.deployment import CalibratedCost, Engine, Routing, StepCost
from llmqsim.scenario.kinds import Bandwidth, Duration, Flag, Index, Pause, Policy, Replicas, Spec, by_keys
from llmqsim.scenario.machine import GpuChoice, Interconnect

ROLES = ("prefill", "decode", "both")


class PoolSpec(Spec):
    """Replicas of one kind behind one router. What it leaves out is as at the top level."""

    role: Annotated[str, rules.choice(*ROLES)] | None = Field(
        None,
        description="What its replicas do; default: the pool's name if that is `prefill` or `decode`, else `both`.",
    )
    gpu: GpuChoice | None = Field(None, description="The GPU.")
    interconnect: Interconnect | None = Field(None, description="Link between the GPUs of a replica.")
    replicas: Replicas = Field(1, description="How many copies of the engine.")
    tensor_parallel_size: Annotated[int, rules.powers_of_two(64)] = Field(
        1, description="GPUs that share every layer of a replica."
    )
    pipeline_parallel_size: Annotated[int, rules.whole(1, 64)] = Field(
        1, description="Stages of layers, one after the other."
    )
    routing: Routing = Field(Routing(policy="round_robin"), description="Which replica of the pool a request goes to.")
    engine: Engine = Field(Engine(), description="The serving engine's options.")
    cost: StepCost = Field(CalibratedCost(), description="How long a step takes.")

    def role_of(self, name: str) -> str:
        """What the pool of this name does."""
        return self.role or (name if name in ("prefill", "decode") else "both")


class Placement(Policy):
    """Which pools a request visits. `placement: NAME` is short for `{policy: NAME}`; other keys are its parameters."""

    policy: Annotated[str, rules.text("the name of a placement policy", "split")] = Field(
        description="Placement policy: split, by_class, by_prompt, or one that you registered; docs/disaggregation.md "
        "has their parameters."
    )


class OwnKvLink(Spec):
    """A link of your own between replicas. What is left out comes from `like`."""

    like: Annotated[str, rules.text("the name of a KV link", "rdma-400g")] | None = Field(
        None, description="KV link preset that lends every value that is left out."
    )
    bandwidth: Bandwidth | None = Field(
        None, description="Of one GPU, one direction, bytes per second; of the whole link if it is shared."
    )
    latency: Pause | None = Field(None, description="Of a transfer, once, seconds; default 0.")
    per_fragment: Pause | None = Field(
        None, description="Least time of each contiguous piece (one a block, layer, and K or V), seconds; default 0."
    )
    shared: Flag | None = Field(
        None, description="One link that all replicas share, instead of one at each replica's end; default false."
    )


KvLinkChoice = Annotated[
    Union[
        Annotated[str, rules.text("the name of a KV link", "rdma-400g"), Tag("kind:preset")],
        Annotated[OwnKvLink, Tag("kind:own")],
    ],
    by_keys("preset", (str,), **dict.fromkeys(OwnKvLink.model_fields, "own")),
]


class HandoffSpec(Spec):
    """How the KV of a computed prompt gets from a prefill to a decode replica."""

    preset: Annotated[str, rules.text("the name of a protocol", "vllm_nixl")] = Field(
        "vllm_nixl", description="Protocol: vllm_nixl, sglang, distserve or mooncake; the keys below override it."
    )
    link: KvLinkChoice = Field(description="What carries the KV.")
    transfer: Annotated[str, rules.choice("pull", "push", "layerwise")] | None = Field(
        None,
        description="`pull`: decode reads when the prompt is computed and it has room; `push`: decode takes blocks "
        "first, prefill sends after each chunk; `layerwise`: the same, each layer as soon as it is computed.",
    )
    first_token: Annotated[str, rules.choice("prefill", "transfer", "decode")] | None = Field(
        None,
        description="Who gives the client its first token: `prefill` at once, the decode replica when the KV has "
        "arrived (`transfer`), or `decode`, which computes the last prompt token again.",
    )
    lease: Duration | None = Field(
        None, description="With pull: KV that nobody has begun to read by then is dropped, seconds; default: never."
    )
    reserve_tokens: Index | None = Field(
        None, description="Tokens kept free for each running request when decode takes blocks for a prompt."
    )
    waiting_share: Annotated[float, rules.between(0.0, 1.0)] | None = Field(
        None, description="Most of the decode pool's blocks that prompts may hold there before they run."
    )
