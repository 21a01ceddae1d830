"""Placement: which pools does a request visit, in which order?

A policy answers three questions: `routes`, all that it could ever say (so that a pool nobody could visit is found before
the run); `visitors`, which requests could visit a pool (for the same reason, and to refuse what a pool can't take);
`stages`, where one request goes now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from llmqsim.errors import ScenarioError, or_known
from llmqsim.policies.protocol import PlacedRequest, PoolView, PlacementTable
from llmqsim.registry import param, register

Route = tuple[str, ...]


def named(key: str, name: str, pools: Mapping[str, str]) -> str:
    """The name of a pool that is there. Raises ScenarioError."""
    if name not in pools:
        raise ScenarioError(f"{key}: no such pool (got {name!r}){or_known(str(name), pools)}")
    return name


def check_route(key: str, route: Route, pools: Mapping[str, str]) -> Route:
    """One pool that can do everything or decode, or a prefill pool and a decode pool. Raises ScenarioError."""
    for name in route:
        named(key, name, pools)
    roles = tuple(pools[name] for name in route)
    if roles not in (("both",), ("decode",), ("prefill", "decode")):
        said = " then ".join(f"{name} ({role})" for name, role in zip(route, roles, strict=True)) or "nowhere"
        raise ScenarioError(f"{key}: a request can't go {said}; it goes to one pool, or to a prefill and a decode pool")
    return route


@register("placement", "split")
@dataclass(frozen=True)
class Split:
    """Prompts to a prefill pool, answers from a decode pool; what is not worth the way stays at the decode pool.

    prefill, decode : the pools; not needed where there is one of each. A request is split if its prompt has at least
    min_prompt_tokens, and if what the chosen decode replica does not have cached is at least min_uncached_tokens and at
    least min_uncached_share of it (llm-d's nonCachedTokens; Dynamo's conditional mode: 2048 tokens and 0.7).
    """

    prefill: str | None = None
    decode: str | None = None
    min_prompt_tokens: int = param(0, least=0)
    min_uncached_tokens: int = param(0, least=0)
    min_uncached_share: float = param(0.0, least=0, most=1)

    def routes(self, pools: Mapping[str, str], classes: tuple[str, ...]) -> tuple[Route, ...]:
        """The long way, and the short one if there is a condition."""
        route = self._route(pools)
        return (route, route[1:]) if self.is_conditional else (route,)

    def visitors(self, table: PlacementTable, pools: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Everybody decodes; short prompts are never sent to the prefill pool."""
        prefill, decode = self._route(pools)
        least = max(self.min_prompt_tokens, self.min_uncached_tokens)
        return {prefill: table.prompt_tokens >= least, decode: np.ones(len(table), dtype=bool)}

    def stages(self, request: PlacedRequest, pools: Mapping[str, PoolView]) -> Route:
        """Compare what would have to be computed with the thresholds."""
        route = self._route({name: view.role for name, view in pools.items()})
        prompt = request.prompt_tokens
        if prompt < self.min_prompt_tokens:
            return route[1:]
        if self._looks:
            uncached = prompt - pools[route[1]].hit_tokens(request.row)
            if uncached < self.min_uncached_tokens or uncached < self.min_uncached_share * prompt:
                return route[1:]
        return route

    @property
    def is_conditional(self) -> bool:
        """Could a request stay at the decode pool?"""
        return self.min_prompt_tokens > 0 or self._looks

    @property
    def _looks(self) -> bool:
        return self.min_uncached_tokens > 0 or self.min_uncached_share > 0

    def _route(self, pools: Mapping[str, str]) -> Route:
        """The one pool of each role, or the named ones."""
        route = []
        for role, name in (("prefill", self.prefill), ("decode", self.decode)):
            of_role = [pool for pool, its in pools.items() if its == role]
            if name is None and len(of_role) != 1:
                told = ", ".join(of_role) or "none"
                raise ScenarioError(f"placement.{role}: missing; say which, of the pools with role {role}: {told}")
            route.append(of_role[0] if name is None else named(f"placement.{role}", name, pools))
        return check_route("placement", tuple(route), pools)


@register("placement", "by_class")
@dataclass(frozen=True)
class ByClass:
    """Each traffic class has its pools: `classes: {chat: fast, batch: [p, d]}`; `rest` is for those not named."""

    classes: object = None
    rest: object = None

    def routes(self, pools: Mapping[str, str], classes: tuple[str, ...]) -> tuple[Route, ...]:
        """One a class."""
        if not isinstance(self.classes or {}, Mapping):
            raise ScenarioError(f"placement.classes: must be a mapping of classes to pools (got {self.classes!r})")
        for name in self.classes or {}:
            if name not in classes:
                raise ScenarioError(f"placement.classes.{name}: no such traffic class{or_known(str(name), classes)}")
        found = [self._of(name, pools) for name in classes]
        if self.rest is not None:
            check_route("placement.rest", _listed(self.rest), pools)
        return tuple(dict.fromkeys(found))

    def visitors(self, table: PlacementTable, pools: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The classes that a pool serves."""
        found = {name: np.zeros(len(table), dtype=bool) for name in pools}
        for number, name in enumerate(table.classes):
            for pool in self._of(name, pools):
                found[pool] |= table.class_id == number
        return found

    def stages(self, request: PlacedRequest, pools: Mapping[str, PoolView]) -> Route:
        """As its class says."""
        return _listed((self.classes or {}).get(request.class_name, self.rest))

    def _of(self, name: str, pools: Mapping[str, str]) -> Route:
        route = (self.classes or {}).get(name, self.rest)
        if route is None:
            raise ScenarioError(f"placement.classes.{name}: missing; say which pool it goes to, or give placement.rest")
        return check_route(f"placement.classes.{name}", _listed(route), pools)


@register("placement", "by_prompt")
@dataclass(frozen=True)
class ByPrompt:
    """Prompts of at least `tokens` go to `long`, the others to `short`; each a pool, or a prefill and a decode pool."""

    tokens: int = param(0, least=0)
    short: object = None
    long: object = None

    def routes(self, pools: Mapping[str, str], classes: tuple[str, ...]) -> tuple[Route, ...]:
        """Two."""
        for name in ("short", "long"):
            if getattr(self, name) is None:
                raise ScenarioError(f"placement.{name}: missing; say which pool these prompts go to")
        return tuple(check_route(f"placement.{n}", _listed(getattr(self, n)), pools) for n in ("short", "long"))

    def visitors(self, table: PlacementTable, pools: Mapping[str, str]) -> dict[str, np.ndarray]:
        """By length."""
        found = {name: np.zeros(len(table), dtype=bool) for name in pools}
        is_long = table.prompt_tokens >= self.tokens
        for route, mask in ((self.short, ~is_long), (self.long, is_long)):
            for pool in _listed(route):
                found[pool] |= mask
        return found

    def stages(self, request: PlacedRequest, pools: Mapping[str, PoolView]) -> Route:
        """By length."""
        return _listed(self.long if request.prompt_tokens >= self.tokens else self.short)


def _listed(route: object) -> Route:
    return tuple(route) if isinstance(route, (list, tuple)) else (route,)
