"""Lengths of prompts and answers of a case to the scenario's `workload.lengths`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmqsim.errors import ScenarioError

INFERENCE_PERF_SURPLUS = 1.047
"""prompt tokens that the server counts for one that inference-perf asks for, where both are known (1.045 to 1.051)"""
LONGEST_NATURAL = 1024
DATASETS: tuple[tuple[str, tuple[float, float]], ...] = (
    ("gsm8k", (160.0, 0.8)),
    ("orca", (290.0, 0.9)),
    ("sharegpt", (220.0, 1.5)),
    ("cnn", (870.0, 0.4)),
)
"""word in a dataset's name -> mean prompt and CV, tokens; rough figures from memory, for data sets without lengths"""
OUTPUT_CV = 0.75
"""of answers that stop by themselves, where only their mean is known; assumed"""


def prompt_length(spec: Any, entry: Mapping[str, Any], tool: str) -> tuple[Any, str | None]:
    """The prompt's length distribution, and a note where it is a guess. Raises ScenarioError when nothing is known."""
    if entry.get("prompt_tokens_total") and (n := entry.get("n_ok") or entry.get("n")):
        return max(1, round(entry["prompt_tokens_total"] / n)), None
    if isl := entry.get("isl"):
        return int(isl), None
    if known := _known(spec):
        return known, None
    if isinstance(spec, Mapping):
        if nominal := spec.get("nominal"):
            return max(1, round(nominal * (INFERENCE_PERF_SURPLUS if "inference-perf" in tool else 1))), None
        for word, (mean, cv) in DATASETS:
            if word in str(spec.get("dataset", "")).lower():
                shape = {"lognormal": {"mean": mean, "cv": cv}, "max": LONGEST_NATURAL}
                return shape, f"prompt lengths of the data set are from memory: mean {mean:g}, CV {cv:g}"
    raise ScenarioError("workload.prompt_tokens: lengths missing; give exact, mean or nominal")


def output_length(spec: Any, entry: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The same of answers. Token totals of an entry are inputs: how long answers were, not how fast they came."""
    osl = entry.get("osl")
    if entry.get("output_tokens_total") and (n := entry.get("n_ok") or entry.get("n")):
        return _stopped(entry["output_tokens_total"] / n, osl), None
    if osl:
        return int(osl), None
    if known := _known(spec):
        return known, None
    each = (entry.get("throughput") or {}).get("output_tok_per_request")
    if each:
        shape = {"lognormal": {"mean": _before_cap(float(each)), "cv": OUTPUT_CV}, "max": LONGEST_NATURAL}
        return shape, f"only the mean of the answers' lengths is known; CV {OUTPUT_CV:g} assumed"
    if isinstance(spec, Mapping) and spec.get("nominal"):
        return int(spec["nominal"]), None
    raise ScenarioError("workload.output_tokens: lengths missing; give exact or mean")


def foreseen(spec: Any) -> bool:
    """Does the client say how long the answer will be (ignore_eos with max_tokens)?"""
    if not isinstance(spec, Mapping):
        return True
    return not spec.get("natural_stop") and spec.get("ignore_eos") is not False


def _known(spec: Any) -> Any:
    """A distribution from what is written: a number, exact, a measured mean, mean with percentiles, a range."""
    if isinstance(spec, (int, float)) and not isinstance(spec, bool):
        return max(1, round(spec))
    if not isinstance(spec, Mapping):
        return None
    if spec.get("exact"):
        return max(1, round(spec["exact"]))
    if spec.get("min") and spec.get("max") and not spec.get("mean"):
        return {"uniform": [int(spec["min"]), int(spec["max"])]}
    mean = spec.get("measured_mean") or spec.get("mean")
    if not mean:
        return None
    spread = spec.get("measured_sd") or spec.get("sd") or spec.get("std")
    if spread:
        return {"lognormal": {"mean": float(mean), "cv": max(0.001, spread / mean)}}
    middle = spec.get("p50") or spec.get("median")
    if middle and middle < mean:  # a log-normal's mean is its median times exp(s²/2)
        cv = math.sqrt(math.exp(2 * math.log(mean / middle)) - 1)
        return {"lognormal": {"mean": float(mean), "cv": max(0.001, cv)}, **_longest(spec)}
    if middle and spec.get("p90"):
        cv = max(0.001, (spec["p90"] - middle) / 1.2816 / mean)
        return {"lognormal": {"mean": float(mean), "cv": cv}, **_longest(spec)}
    return max(1, round(mean))


def _longest(spec: Mapping[str, Any]) -> dict[str, int]:
    return {"max": int(spec["max"])} if spec.get("max") else {}


def _stopped(mean: float, asked: Any) -> Any:
    """Answers that may stop before the length asked for, at a constant rate, so that their mean is as counted."""
    if not asked or mean >= 0.999 * asked:
        return max(1, round(mean))
    low, high = 1.0, 1e9
    for _ in range(200):  # mean of min(X, asked), X exponential with mean m: m (1 - exp(-asked / m)), growing in m
        middle = math.sqrt(low * high)
        low, high = (middle, high) if middle * -math.expm1(-asked / middle) < mean else (low, middle)
    return {"exponential": {"mean": middle}, "max": int(asked)}


def _before_cap(mean: float) -> float:
    """Mean of the log-normal whose draws, cut at LONGEST_NATURAL, have this mean."""
    from scipy.stats import norm

    s = math.sqrt(math.log(1 + OUTPUT_CV**2))
    low, high = mean, 4 * mean
    for _ in range(60):
        middle = (low + high) / 2
        mu = math.log(middle) - s * s / 2
        z = (math.log(LONGEST_NATURAL) - mu) / s
        cut = middle * norm.cdf(z - s) + LONGEST_NATURAL * norm.sf(z)
        low, high = (middle, high) if cut < mean else (low, middle)
    return middle
