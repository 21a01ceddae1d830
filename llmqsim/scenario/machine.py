"""Keys that say what the engine runs on: the model, the GPU, and the link between GPUs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import Bandwidth, Bytes, Count, File, Latency, Spec, Text, by_keys


class ModelConfig(Spec):
    """A model by its Hugging Face config.json."""

    config: File = Field(description="config.json of a decoder-only model, relative to the file that names it.")
    architecture: Text | None = Field(
        None,
        description="Read the file as this family (a model_type) instead of by its own; `dense` reads it as a plain "
        "transformer. For files of families that are not known: the answer says so first.",
    )


Model = Annotated[
    Annotated[str, rules.text("the name of a model preset", "llama-3.1-8b"), Tag("kind:preset")] | Annotated[ModelConfig, Tag("kind:config")],
    by_keys("preset", (str,), config="config"),
]


class Flops(Spec):
    """Dense arithmetic of a GPU by data type, operations per second."""

    bfloat16: Annotated[float, rules.flops()] | None = Field(None, description="In 16 bits.")
    fp8: Annotated[float, rules.flops()] | None = Field(None, description="In 8 bits.")
    fp4: Annotated[float, rules.flops()] | None = Field(None, description="In 4 bits.")


class OwnGpu(Spec):
    """A GPU of your own. What is left out, and the efficiency of its kernels, comes from `like`, or else from the
    measured GPU that is nearest in bandwidth and arithmetic."""

    name: Text | None = Field(None, description="What the report calls it.")
    like: Annotated[str, rules.text("the name of a GPU preset", "h100-sxm")] | None = Field(
        None, description="GPU preset that lends every value that is left out."
    )
    memory: Bytes | None = Field(None, description="Memory as sold, bytes.")
    usable_memory: Bytes | None = Field(
        None, description="Memory that the driver reports to a process, bytes; default: the same share as its relative."
    )
    memory_bandwidth: Bandwidth | None = Field(None, description="Peak memory bandwidth, bytes per second.")
    flops: Flops = Field(Flops(), description="Dense arithmetic by data type.")
    l2: Bytes | None = Field(None, description="Size of the last-level cache, bytes.")
    multiprocessors: Count | None = Field(None, description="Multiprocessors.")


GpuChoice = Annotated[
    Annotated[str, rules.text("the name of a GPU preset", "a100-sxm-80gb"), Tag("kind:preset")] | Annotated[OwnGpu, Tag("kind:own")],
    by_keys("preset", (str,), **dict.fromkeys(OwnGpu.model_fields, "own")),
]


class OwnLink(Spec):
    """A link of your own between the GPUs of a replica. Both values are effective ones, as a message sees them."""

    latency: Latency = Field(description="Of one message, seconds.")
    bandwidth: Bandwidth = Field(description="Of one GPU, one direction, bytes per second.")


Interconnect = Annotated[
    Annotated[str, rules.text("the name of a link", "nvlink4"), Tag("kind:preset")] | Annotated[OwnLink, Tag("kind:own")],
    by_keys("preset", (str,), **dict.fromkeys(OwnLink.model_fields, "own")),
]
