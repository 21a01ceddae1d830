"""What `explain` says of a hand-off: the protocol, the link, and what a typical prompt takes on the way."""

from __future__ import annotations

from typing import Any

from llmqsim.engine import rules
from llmqsim.hardware.data import read_preset
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.scenario.build_fleet import Plant
from llmqsim.scenario.load import Scenario

TYPICAL_TOKENS = 4096
TERMS = ("transfer", "first_token", "lease", "reserve_tokens", "waiting_share")


def handoff(scenario: Scenario, plant: Plant) -> dict[str, Any] | None:
    """Terms, link and ways as plain data; None where nothing is handed over."""
    link, spec = plant.fleet.link, scenario.spec.handoff
    if link is None:
        return None
    preset = read_preset("handoffs.yaml")["handoffs"][spec.preset]
    values = {key: getattr(plant.fleet.terms, key, None) for key in TERMS} | {"lease": spec.lease}
    terms = {}
    for key, value in values.items():
        own = getattr(spec, key) is not None
        origin = scenario.origins[f"handoff.{key}"] if own else f"preset {spec.preset}" if key in preset else "default"
        terms[key] = {"value": value, "origin": origin, "source": None if own or key not in preset else preset["source"]}
    origin = next(scenario.origins[key] for key in scenario.origins if key.startswith("handoff.link"))
    return {
        "preset": spec.preset,
        "terms": terms,
        "link": {
            "name": link.name,
            "bandwidth_bytes_per_s": link.bytes_per_us * 1_000_000,
            "latency_s": link.latency_ns / 1e9,
            "per_fragment_s": link.per_fragment_ns / 1e9,
            "shared": link.shared,
            "origin": origin,
            "source": link.source,
        },
        "ways": {" to ".join(way): _typical(plant, way, lane, link) for way, lane in plant.fleet.lanes.items()},
    }


def _typical(plant: Plant, way: tuple[str, str], lane: KvLane, link: KvLink) -> dict[str, Any]:
    """A block, and a prompt of TYPICAL_TOKENS, alone on its link."""
    blocks = rules.blocks_for(TYPICAL_TOKENS, plant.pools[way[0]].deployment.options.block_size)
    by_bytes = rules.carry_ns(blocks * lane.lane_bytes, 0, link.bytes_per_us, 0)
    by_fragments = blocks * lane.fragments * link.per_fragment_ns
    return {
        "block_bytes": lane.block_bytes,
        "lane_bytes": lane.lane_bytes,
        "fragments": lane.fragments,
        "tokens": TYPICAL_TOKENS,
        "bytes": blocks * lane.block_bytes,
        "transfer_s": (max(by_bytes, by_fragments) + link.latency_ns) / 1e9,
        "bound_by": "bandwidth" if by_bytes >= by_fragments else "fragments",
    }
