"""From a checked scenario to its servers, of one kind or in pools: can a request get everywhere, can KV get across?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llmqsim import policies, registry
from llmqsim.cluster.fleet import BOTH, DECODE, PREFILL, Fleet, Pool
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import PULL, WITH_KV, HandoffTerms
from llmqsim.errors import ScenarioError, or_known
from llmqsim.hardware.data import read_preset
from llmqsim.kv import lanes
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.requests import RequestTable
from llmqsim.scenario.build import Servers, build_servers, located
from llmqsim.scenario.load import Scenario

assert policies, "imported to register the built-in policies"


@dataclass(frozen=True)
class Plant:
    """The servers of each pool, and how requests go between them. It answers what workload and report ask of Servers."""

    pools: dict[str, Servers]
    fleet: Fleet

    @property
    def answering(self) -> Servers:
        """The servers of the first pool that gives answers."""
        name = next(pool.name for pool in self.fleet.pools if pool.role != PREFILL)
        return self.pools[name]

    @property
    def deployment(self) -> Deployment:
        """The same as they run."""
        return self.answering.deployment

    @property
    def everything(self) -> Fleet:
        """What a cluster is made of."""
        return self.fleet

    @property
    def longest_request_tokens(self) -> int | None:
        """Tokens of the longest request that all pools take; None: no limit."""
        known = [its.longest_request_tokens for its in self.pools.values() if its.longest_request_tokens is not None]
        return min(known) if known else None

    def check_visits(self, scenario: Scenario, table: RequestTable) -> None:
        """Each pool has somebody who could visit it. Raises ScenarioError."""
        for name, mask in self.fleet.visitors(table).items():
            if not mask.any():
                longest = f"{len(table):,} requests, the longest prompt of {int(table.prompt_tokens.max()):,} tokens"
                told = f"no request of this workload can visit it ({longest}); change placement, or remove the pool"
                raise ScenarioError(scenario.fault(f"pools.{name}", told))


def build_plant(scenario: Scenario) -> Servers | Plant:
    """All servers of a scenario. Raises ScenarioError naming file, line and key."""
    spec = scenario.spec
    if spec.pools is None:
        return build_servers(scenario)
    servers = {name: build_servers(scenario.pool(name)) for name in spec.pools}
    made = [Pool(name, its.role_of(name), servers[name].deployment) for name, its in spec.pools.items()]
    roles = {pool.name: pool.role for pool in made}
    placement = _placement(scenario, roles)
    if placement is None:
        if spec.handoff is not None:
            raise ScenarioError(scenario.fault("handoff", "means nothing to a single pool; leave it out"))
        return Plant(servers, Fleet(tuple(made)))
    routes = _routes(scenario, placement, roles)
    split = [route for route in routes if len(route) > 1]
    fleet = Fleet(tuple(made), placement)
    if not split:
        if spec.handoff is not None:
            raise ScenarioError(scenario.fault("handoff", "no request goes from a prefill to a decode pool; leave it out"))
        return Plant(servers, fleet)
    if spec.handoff is None:
        told = f"missing; requests go from {' to '.join(split[0])}, so say over which link, such as {{link: rdma-400g}}"
        raise ScenarioError(scenario.fault("handoff", told))
    terms = _terms(scenario)
    link = located(scenario, lambda: _link(scenario))
    _check_roles(scenario, made)
    ways = {route: _lane(scenario, servers, route, link) for route in split}
    return Plant(servers, replace(fleet, terms=terms, link=link, lanes=ways))


def _placement(scenario: Scenario, roles: dict[str, str]) -> Any:
    """The policy; None for one pool that does everything."""
    spec = scenario.spec.placement
    if spec is not None:
        try:
            return registry.make("placement", spec.policy, spec.parameters)
        except ScenarioError as error:
            raise ScenarioError(*(scenario.fault("placement", fault) for fault in error.faults)) from None
    kinds = sorted(roles.values())
    if kinds == [DECODE, PREFILL]:
        return registry.make("placement", "split")
    if kinds == [BOTH]:
        return None
    told = ", ".join(f"{name} ({role})" for name, role in roles.items())
    raise ScenarioError(
        scenario.fault("placement", f"missing; say which of the pools a request visits (got {told})")
        if len(roles) > 1
        else scenario.fault("pools", f"one pool alone must do everything (got {told}); give role: both, or the other one")
    )


def _routes(scenario: Scenario, placement: Any, roles: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """All ways through the pools, which must lead to each of them."""
    classes = tuple(scenario.spec.workload.classes or {"all": None})
    routes = located(scenario, lambda: placement.routes(roles, classes))
    reached = {name for route in routes for name in route}
    ways = "; ".join(" then ".join(route) for route in routes)
    faults = [
        scenario.fault(f"pools.{name}", f"no request can visit it: placement sends them to {ways}; name it there, or remove it")
        for name in roles
        if name not in reached
    ]
    if faults:
        raise ScenarioError(*faults)
    return routes


def _terms(scenario: Scenario) -> HandoffTerms:
    """The protocol: its preset, and what the scenario says instead."""
    spec = scenario.spec.handoff
    presets = read_preset("handoffs.yaml")["handoffs"]
    if spec.preset not in presets:
        told = f"unknown protocol (got '{spec.preset}'){or_known(spec.preset, presets)}"
        raise ScenarioError(scenario.fault("handoff.preset", told))
    named = {key: value for key, value in presets[spec.preset].items() if key != "source"}
    own = spec.model_dump(exclude={"preset", "link", "lease"}, exclude_none=True)
    terms = HandoffTerms(**{**named, **own}, lease_ns=None if spec.lease is None else round(spec.lease * 1e9))
    if terms.transfer == PULL and terms.first_token == WITH_KV:
        told = "with pull the first token does not travel with the KV; give prefill or decode (got 'transfer')"
        raise ScenarioError(scenario.fault("handoff.first_token", told))
    if terms.transfer != PULL and terms.lease_ns is not None:
        told = f"nothing waits to be read with {terms.transfer}; leave it out (got {spec.lease:g} s)"
        raise ScenarioError(scenario.fault("handoff.lease", told))
    return terms


def _link(scenario: Scenario) -> KvLink:
    given = scenario.spec.handoff.link
    return lanes.kv_link(given if isinstance(given, str) else given.model_dump())


def _check_roles(scenario: Scenario, pools: list[Pool]) -> None:
    """What a replica of a role can't do."""
    faults = []
    for pool in pools:
        if pool.role == PREFILL and pool.deployment.preemption.swaps:
            told = "a prefill replica hands its blocks over and has no use for swapping; take recompute_newest"
            faults.append(scenario.fault(f"pools.{pool.name}.engine.preemption", told))
        if pool.role == DECODE and pool.deployment.batching.keeps_slots:
            told = "a static batch is padded and computed as one, and a decode pool has no prompts to pad; take continuous"
            faults.append(scenario.fault(f"pools.{pool.name}.engine.batching", told))
    if faults:
        raise ScenarioError(*faults)


def _lane(scenario: Scenario, servers: dict[str, Servers], route: tuple[str, ...], link: KvLink) -> KvLane:
    """What a block is between these two pools; refused, with the arithmetic, where it does not fit."""
    source, taker = (servers[name] for name in route)
    if taker.model is None:
        told = "KV has no size without a model, which says how many bytes a token takes; give model"
        raise ScenarioError(scenario.fault("handoff.link", told))
    ends = tuple((its.tensor_parallel_size, its.deployment.options) for its in (source, taker))
    found = lanes.faults(taker.model, ends)
    if found:
        raise ScenarioError(*(scenario.fault(f"pools.{route[1]}.{key}", told) for key, told in found.items()))
    return lanes.kv_lane(taker.model, ends, link.shared)
