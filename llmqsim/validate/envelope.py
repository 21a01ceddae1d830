"""Is a prediction within what it can be trusted for, and if not, why; and how wide its error may be near saturation."""

from __future__ import annotations

from llmqsim.hardware.data import read_preset
from llmqsim.validate.execute import Outcomes
from llmqsim.validate.runs import Run

OVERLOADED = "overloaded"
"""verdict of stability"""
MOST_OUTSIDE = 0.2
"""share of steps that may be beyond the measured box of the kernels"""
NEAR_SATURATION = 0.5
"""g from which it is printed beside the results: errors of a step then double in TPOT"""
UNBOUNDED_GAIN = 0.95
"""from here on no first-order figure holds"""


def why_outside(run: Run, outcome: Outcomes) -> list[str]:
    """Reasons why a run's figures are outside the envelope; none: they are in it."""
    reasons = list(run.outside)
    preset = run.scenario["engine"]["preset"]
    if _assumed_host(preset):
        reasons.append(f"host time of {preset} is assumed, not measured")
    far = {axis: share for axis, share in outcome.outside.items() if share > MOST_OUTSIDE}
    if far:
        told = ", ".join(f"{share:.0%} beyond the measured {axis}" for axis, share in far.items())
        reasons.append(f"steps {told}")
    if outcome.verdict == OVERLOADED:
        reasons.append("overloaded: figures depend on how long the run lasts")
    if outcome.refused:
        reasons.append(f"{outcome.refused} of {outcome.requests} requests were refused")
    return reasons


def remarks(run: Run, outcome: Outcomes) -> list[str]:
    """What a reader of in-envelope figures should still know."""
    said = list(run.notes)
    if outcome.gain is not None and outcome.gain >= NEAR_SATURATION:
        said.append(near_saturation(outcome.gain))
    if outcome.timed_out:
        said.append(f"{outcome.timed_out} of {outcome.requests} requests timed out: latencies are of survivors")
    return said


def near_saturation(gain: float) -> str:
    """g in words."""
    if gain >= UNBOUNDED_GAIN:
        return f"at saturation: g {gain:.2f}, no bound on the error"
    return f"near saturation: g {gain:.2f}, errors of a step grow {1 / (1 - gain):.1f}-fold"


def amplification(gain: float | None) -> float | None:
    """By which an error of a step's time grows in TPOT; None at saturation or where there is no g."""
    return None if gain is None or gain >= UNBOUNDED_GAIN else 1 / (1 - gain)


def _assumed_host(preset: str) -> bool:
    """Is the host time of an engine preset a guess?"""
    entry = read_preset("engines.yaml")["engines"][preset]
    return (entry["host"].get("per_step_s") or {}).get("source") == "assumed"
