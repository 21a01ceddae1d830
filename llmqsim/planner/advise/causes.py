"""What is wrong, by rule: first what the most helpful lever removes, then marks with a lever that helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmqsim.planner.advise.facts import Facts
from llmqsim.planner.advise.levers import CAUSES, SATURATION, STEP_TIME
from llmqsim.planner.advise.marks import mark
from llmqsim.planner.advise.rows import Row
from llmqsim.planner.utilisation import SATURATED


def causes(
    facts: Facts, rows: Sequence[Row], utilisation: float, short: bool, lossy: bool = True
) -> list[dict[str, Any]]:
    """Causes, the first one first: cause, says, evidence, lever, gain.

    short : the SLO is missed with all levers pulled. utilisation : throughput over saturated throughput, as it is or
    with all levers pulled, what is more. lossy : are levers wanted that may change answers? Where they are not, what
    they mend comes after what the others do.
    """
    helping = sorted(
        (row for row in rows if row.helps and row.lever.buys is None), key=lambda r: r.rank(lossy), reverse=True
    )
    found: dict[str, dict[str, Any]] = {}
    for row in helping:
        cause = row.lever.cures
        evidence = mark(facts, cause) or (_pulled(row) if row is helping[0] else None)
        if cause not in found and evidence is not None:
            found[cause] = _told(evidence, cause, row)
    named = list(found.values())
    if short:
        cause = SATURATION if utilisation >= SATURATED else STEP_TIME
        evidence = f"throughput is {100 * utilisation:.0f} % of the saturated throughput, and no lever mends it"
        named = [_bare(cause, evidence), *(one for one in named if one["cause"] != cause)]
    return named


def _pulled(row: Row) -> str:
    """What shows a cause that leaves no mark of its own in the run."""
    return f"no figure of the run shows it, but what {row.lever.name} gives: {row.lever.says}"


def _told(evidence: str, cause: str, row: Row) -> dict[str, Any]:
    gain = {"attainment": row.attainment["difference"], "capacity_per_s": row.capacity and row.capacity["difference"]}
    return {
        "cause": cause,
        "says": CAUSES[cause],
        "evidence": evidence,
        "lever": row.lever.name,
        "gain": gain,
    }


def _bare(cause: str, evidence: str) -> dict[str, Any]:
    return {"cause": cause, "says": CAUSES[cause], "evidence": evidence, "lever": None, "gain": None}
