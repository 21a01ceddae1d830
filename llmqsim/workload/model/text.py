"""Traffic models as the YAML text that file.py reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.workload import lengths as distributions
from llmqsim.workload.fit import TEXT_WIDTH, table_content
from llmqsim.workload.length_table import LengthTable
from llmqsim.workload.model.mixes import Mix, Mixture, Pairs
from llmqsim.workload.model.shape import Growth, Shape
from llmqsim.workload.model.traffic import Stream, TrafficModel


def model_text(model: TrafficModel) -> str:
    """The YAML text that `parse_model` reads."""
    import yaml

    content: dict[str, Any] = {"kind": "traffic", **model.about}
    if not model.shape.plain:
        content["shape"] = _shape_content(model.shape)
    if model.layers:
        content["prefix"] = [{"tokens": x.tokens, "groups": x.groups, "skew": x.skew} for x in model.layers]
    content["streams"] = [_stream_content(stream) for stream in model.streams]
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=TEXT_WIDTH, allow_unicode=True)


def _shape_content(shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {"start": shape.start_s}
    if shape.hours:
        found["hours"] = _plain(np.array(shape.hours))
    if shape.days:
        found["days"] = _plain(np.array(shape.days))
    if shape.ramps:
        found["ramps"] = [{"from": r.from_s, "to": r.to_s, "factor": r.factor} for r in shape.ramps]
    if shape.flashes:
        found["flash_crowds"] = [
            {"at": f.at_s, "factor": f.factor, "rise": f.rise_s, "hold": f.hold_s, "fall": f.fall_s} for f in shape.flashes
        ]
    if shape.growth != Growth():
        g = shape.growth
        found["growth"] = {"clients": g.clients, "per_client": g.per_client, "prompts": g.prompts, "every": g.every_s}
    return found


def _stream_content(stream: Stream) -> dict[str, Any]:
    gaps: dict[str, Any] = {"law": stream.gaps.law}
    if stream.gaps.law != "poisson":
        gaps["cv"] = float(f"{stream.gaps.cv:.9g}")
    if stream.gaps.values is not None and stream.gaps.levels is not None:
        gaps |= {"levels": _plain(stream.gaps.levels), "values": _plain(stream.gaps.values)}
    found: dict[str, Any] = {"name": stream.name, "rate": float(f"{stream.rate:.12g}"), "gaps": gaps}
    if (r := stream.regimes) is not None:
        found["regimes"] = {"window": float(f"{r.window_s:.9g}"), "rate": _plain(r.rate),
                            "next": [_plain(row) for row in r.next], "lengths": r.lengths.tolist()}  # fmt: skip
    found["lengths"] = [_mix_content(mix) for mix in stream.lengths]
    return found


def _mix_content(mix: Mix) -> Any:
    if isinstance(mix, LengthTable):
        return table_content(mix)
    if isinstance(mix, Pairs):
        return {"pairs": {"prompt": mix.prompt.tolist(), "output": mix.output.tolist()}}
    if isinstance(mix, Mixture):
        return {"mixture": {"shares": _plain(mix.shares), "parts": [_mix_content(part) for part in mix.parts]}}
    return {"prompt": _law_content(mix.prompt), "output": _law_content(mix.output)}


def _law_content(law: Any) -> Any:
    if isinstance(law, distributions.Constant):
        return law.tokens
    if isinstance(law, distributions.Lognormal):
        return {"lognormal": {"mean": float(law.mean), "cv": float(law.cv)}}
    raise AssertionError(f"no fit makes {law!r}")


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]
