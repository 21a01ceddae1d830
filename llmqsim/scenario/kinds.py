"""What all parts of the schema share: their base class, the types of single values, and how a union tells its kinds."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator

from llmqsim.scenario import rules

Count = Annotated[int, rules.whole(1)]
Index = Annotated[int, rules.whole(0)]
Text = Annotated[str, rules.text()]
Flag = Annotated[bool, rules.flag()]
Bytes = Annotated[int, rules.size()]
Bandwidth = Annotated[float, rules.bandwidth()]
Rate = Annotated[float, rules.rate()]
Scale = Annotated[float, rules.between(1e-6, 1e6)]
Spread = Annotated[float, rules.between(1 / rules.SPREAD, rules.SPREAD)]
MeanLength = Annotated[float, rules.number(above=0, at_most=1e9)]
Slots = Annotated[int, rules.whole(1, 2**16)]
Replicas = Annotated[int, rules.whole(1, 10_000)]
Duration = Annotated[float, rules.seconds(example="10 min")]
Pause = Annotated[float, rules.seconds(zero=True, example="1 ms")]
Latency = Annotated[float, rules.seconds(example="500 ms")]
Cost = Annotated[float, rules.seconds(zero=True, example="0.1 s / 1024", at_most=rules.LARGEST_COST_S)]
StepTime = Annotated[float, rules.seconds(example="50 ms", at_most=rules.LARGEST_COST_S)]
HostTime = Annotated[float, rules.seconds(zero=True, example="0.26 ms", at_most=rules.LARGEST_COST_S)]
File = Annotated[str, rules.file()]

KIND = "kind:"
"""prefix of union tags, so that they can be told from keys in the place of a fault"""
NO_KIND = "no kind"
"""type of the fault of a union value that fits none of its kinds; its message is the field that tells them, if one"""


class Spec(BaseModel):
    """Base of all parts: frozen, unknown keys refused. Numbers are SI: seconds, bytes, tokens, per second."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(BaseModel):
    """A policy by name; `NAME` is short for `{policy: NAME}`; other keys are its parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def parameters(self) -> dict[str, Any]:
        """The policy's own parameters, as written."""
        return dict(self.model_extra or {})


def by_field(name: str, default: str | None = None) -> Discriminator:
    """The kind of a mapping is the value of one of its fields."""

    def tag(value: Any) -> str:
        kind = value.get(name, default) if isinstance(value, dict) else getattr(value, name, None)
        return f"{KIND}{kind}"

    return Discriminator(tag, custom_error_type=NO_KIND, custom_error_message=name)


def by_keys(scalar: str | None, scalar_types: tuple[type, ...], **kinds: str) -> Discriminator:
    """The kind of a mapping is told by a key that only this kind has; a scalar is a kind of its own."""

    def tag(value: Any) -> str:
        if scalar and isinstance(value, scalar_types):
            return f"{KIND}{scalar}"
        found = {kind for key, kind in kinds.items() if isinstance(value, dict) and key in value}
        if isinstance(value, BaseModel):
            found = {kind for key, kind in kinds.items() if key in type(value).model_fields}
        return f"{KIND}{found.pop()}" if len(found) == 1 else KIND

    return Discriminator(tag, custom_error_type=NO_KIND, custom_error_message="")
