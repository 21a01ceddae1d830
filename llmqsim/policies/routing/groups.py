"""Routing that gives parts of the traffic replicas of their own, so that they do not wait for each other.

Pools with their own GPUs and options are another thing (docs/disaggregation.md); here all replicas are of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from llmqsim.policies.protocol import RoutedRequest, RouterView, Routing
from llmqsim.registry import param, register


def _fewest(replicas: Sequence[RouterView], group: Sequence[int]) -> int:
    """Fewest in flight of a group; of all, where none of the group may be chosen now."""
    own = [replica for replica in replicas if replica.index in group] or replicas
    return min(own, key=lambda replica: replica.outstanding).index


def _group_fault(name: str, group: Any) -> str | None:
    whole = isinstance(group, (list, tuple)) and group and all(type(i) is int and i >= 0 for i in group)
    return None if whole else f"{name} must be a list of replicas, counted from 0 (got {group!r})"


def _missing(group: Sequence[int], replicas: int) -> str | None:
    beyond = [i for i in group if i >= replicas]
    return f"replica {beyond[0]} does not exist: there are {replicas}, counted from 0" if beyond else None


@register("routing", "by_class")
@dataclass(frozen=True)
class ByClass(Routing):
    """Each traffic class has replicas of its own, `groups: {chat: [0, 1], batch: [2]}`; classes not named use `rest`.

    Within a group: the fewest in flight. rest : a list of replicas; by default those that no group names, or all.
    """

    groups: dict = param(None)
    rest: tuple = param(())
    sees_state = True

    def fault(self) -> str | None:
        """What is wrong with the parameters."""
        if not isinstance(self.groups, dict) or not self.groups:
            return f"groups must be a mapping of traffic classes to lists of replicas (got {self.groups!r})"
        named = [(f"groups.{name}", group) for name, group in self.groups.items()]
        faults = [_group_fault(name, group) for name, group in named] + (
            [_group_fault("rest", self.rest)] if self.rest else []
        )
        return next((told for told in faults if told), None)

    def unfit(self, replicas: int, classes: tuple[str, ...]) -> str | None:
        """What does not go with this run."""
        unknown = [name for name in self.groups if name not in classes]
        if unknown:
            return f"groups.{unknown[0]}: no such traffic class; known: {', '.join(classes)}"
        return next((told for group in (*self.groups.values(), self.rest) if (told := _missing(group, replicas))), None)

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Fewest in flight of its group."""
        return _fewest(replicas, self.group_of(request.class_name, [replica.index for replica in replicas]))

    def group_of(self, class_name: str, replicas: Sequence[int]) -> Sequence[int]:
        """The replicas of a class."""
        group = self.groups.get(class_name, self.rest)
        if group:
            return group
        taken = {index for group in self.groups.values() for index in group}
        return [index for index in replicas if index not in taken]


@register("routing", "by_length")
@dataclass(frozen=True)
class ByLength(Routing):
    """Requests of a size have replicas of their own: up to limits[0] tokens in groups[0], and so on, the rest in the last.

    by : "prompt", or "predicted" (prompt and predicted output together; needs a predictor). Within a group: the fewest
    in flight. Long requests then no longer make short ones wait.
    """

    limits: tuple = param(())
    groups: tuple = param(())
    by: str = param("prompt", choices=("prompt", "predicted"))
    sees_state = True

    @property
    def needs_predictions(self) -> bool:
        """Does it look at predicted lengths?"""
        return self.by == "predicted"

    def fault(self) -> str | None:
        """What is wrong with the parameters."""
        rising = list(self.limits) == sorted(set(self.limits)) if all(type(x) is int for x in self.limits) else False
        if not self.limits or not rising or self.limits[0] < 1:
            return (
                f"limits must be a list of rising numbers of tokens, such as [1024, 8192] (got {list(self.limits)!r})"
            )
        if len(self.groups) != len(self.limits) + 1:
            return f"groups must have one list of replicas more than limits ({len(self.limits) + 1}, got {len(self.groups)})"
        faults = (_group_fault(f"groups[{i}]", group) for i, group in enumerate(self.groups))
        return next((told for told in faults if told), None)

    def unfit(self, replicas: int, classes: tuple[str, ...]) -> str | None:
        """What does not go with this run."""
        return next((told for group in self.groups if (told := _missing(group, replicas))), None)

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Fewest in flight of its group."""
        return _fewest(replicas, self.groups[self.group_of(request.prompt_tokens, request.predicted_tokens)])

    def group_of(self, prompt_tokens: ArrayLike, predicted_tokens: ArrayLike) -> np.ndarray:
        """Number of the group of a request of so many tokens, or of each of many."""
        size = np.add(prompt_tokens, np.maximum(0, predicted_tokens) if self.by == "predicted" else 0)
        return np.searchsorted(self.limits, size)
