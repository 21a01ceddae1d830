"""Traffic models from YAML files, `kind: traffic`, of a fit (text.py) or by hand: checked, every fault by its key."""

from __future__ import annotations

import math
import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import DataError, ScenarioError, UserError, did_you_mean, or_known
from llmqsim.workload import lengths as distributions
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.model.laws import Gaps, Regimes
from llmqsim.workload.model.mixes import Mix, Mixture, Pair, Pairs
from llmqsim.workload.model.shape import Flash, Growth, Ramp, Shape
from llmqsim.workload.model.traffic import Layer, Stream, TrafficModel
from llmqsim.workload.reading.stream import head, whole
from llmqsim.workload.table_file import load_preset, load_table, table_of

WHAT = "a traffic model (YAML, `kind: traffic`, as `llmqsim workload fit --traffic` writes it)"
KEYS = ("kind", "streams", "shape", "prefix")
SHAPE_KEYS = ("hours", "days", "ramps", "flash_crowds", "growth", "start")
LAWS = ("poisson", "gamma", "table")
MOST_RATE = 1e9


def is_model(path: str | Path) -> bool:
    """Is a file a traffic model, by its content? False where it can't be read: its reader says why."""
    if not str(path).lower().endswith((".yaml", ".yml")):
        return False
    try:
        return any(line.strip() == b"kind: traffic" for line in head(path, WHAT).splitlines())
    except UserError:
        return False


def load_model(path: str | Path) -> TrafficModel:
    """Read a model. Raises DataError with every fault, each `file: key: …`."""
    return parse_model(whole(path, WHAT), str(path), Path(path).parent)


def parse_model(text: str, name: str, folder: Path = Path()) -> TrafficModel:
    """Make a model from YAML text; `name` stands for the file in messages, other files are relative to `folder`."""
    import yaml

    try:
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        raise DataError(f"{place}: not YAML ({getattr(error, 'problem', None) or error}); {WHAT} was expected") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{name}: can't be read as YAML ({error}); {WHAT} was expected") from None
    if not isinstance(content, dict) or content.get("kind") != "traffic":
        raise DataError(f"{name}: kind: must be 'traffic'; {WHAT} was expected")
    return _Check(text, name, folder).model(content)


class _Check:
    """Collects the faults of one file."""

    def __init__(self, text: str, name: str, folder: Path):
        self.text, self.name, self.folder, self.faults = text, name, folder, []

    def fault(self, key: str, sentence: str, got: Any) -> None:
        self.faults.append(f"{self.name}: {key}: {sentence} (got {reprlib.repr(got)})")

    def model(self, content: dict) -> TrafficModel:
        given = content.get("streams")
        if not isinstance(given, list) or not given:
            self.fault("streams", "must be a list of streams, each with name, rate, gaps and lengths", given)
            given = []
        streams = [self.stream(one, f"streams[{i}]") for i, one in enumerate(given)]
        shape = self.shape(content.get("shape") or {})
        layers = [self.layer(one, f"prefix[{i}]") for i, one in enumerate(self.listed(content.get("prefix"), "prefix"))]
        names = [stream.name for stream in streams if stream is not None]
        if len(set(names)) < len(names):
            self.fault("streams", "must have different names", names)
        if self.faults:
            raise DataError(*self.faults)
        about = {key: value for key, value in content.items() if key not in KEYS}
        return TrafficModel(tuple(s for s in streams if s is not None), shape,
                            tuple(x for x in layers if x is not None), about)  # fmt: skip

    def keys(self, spec: Any, known: tuple[str, ...], key: str) -> dict:
        """The mapping, with unknown keys told."""
        if not isinstance(spec, dict):
            self.fault(key, f"must be a mapping with {', '.join(known)}", spec)
            return {}
        for unknown in set(map(str, spec)) - set(known):
            self.fault(f"{key}.{unknown}", f"unknown key{did_you_mean(unknown, known) or or_known(unknown, known)}", spec.get(unknown))
        return spec

    def listed(self, spec: Any, key: str) -> list:
        if spec is None:
            return []
        if not isinstance(spec, list):
            self.fault(key, "must be a list", spec)
            return []
        return spec

    def number(self, spec: dict, name: str, key: str, low: float, high: float, default: float | None = None) -> float:
        value = spec.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            self.fault(f"{key}.{name}", f"must be a number from {low:g} to {high:g}", value)
            return low or 1.0
        return float(value)

    def column(self, values: Any, key: str, low: float, high: float, count: int | None = None) -> np.ndarray:
        good = isinstance(values, list) and values and (count is None or len(values) == count)
        if not good or not all(isinstance(v, (int, float)) and not isinstance(v, bool) and low <= v <= high for v in values):
            many = f"{count} numbers" if count else "numbers"
            self.fault(key, f"must be a list of {many} from {low:g} to {high:g}", values)
            return np.full(count or 1, max(low, 1.0) if low <= 1 <= high else low)
        return np.array(values, dtype=float)

    def stream(self, spec: Any, key: str) -> Stream | None:
        spec = self.keys(spec, ("name", "rate", "gaps", "regimes", "lengths"), key)
        if not spec:
            return None
        name = spec.get("name", "all")
        if not isinstance(name, str) or not name.strip():
            self.fault(f"{key}.name", "must be a name", name)
        rate = self.number(spec, "rate", key, 1e-12, MOST_RATE)
        gaps = self.gaps(spec.get("gaps", {"law": "poisson"}), f"{key}.gaps")
        given = spec.get("lengths")
        listed = given if isinstance(given, list) else [given]
        mixes = [self.mix(one, f"{key}.lengths[{i}]" if isinstance(given, list) else f"{key}.lengths")
                 for i, one in enumerate(listed)]  # fmt: skip
        regimes = None if spec.get("regimes") is None else self.regimes(spec["regimes"], f"{key}.regimes", len(mixes))
        if regimes is None and len(mixes) > 1:
            self.fault(f"{key}.lengths", "several need regimes that say which is used when", f"{len(mixes)} of them")
        if any(mix is None for mix in mixes) or not mixes:
            return None
        return Stream(str(name), rate, gaps, tuple(mix for mix in mixes if mix is not None), regimes)

    def gaps(self, spec: Any, key: str) -> Gaps:
        spec = self.keys({"law": spec} if isinstance(spec, str) else spec, ("law", "cv", "levels", "values"), key)
        law = spec.get("law", "poisson")
        if law not in LAWS:
            self.fault(f"{key}.law", f"unknown{or_known(str(law), LAWS)}", law)
            return Gaps("poisson")
        if law == "poisson":
            return Gaps("poisson")
        cv = self.number(spec, "cv", key, 0.01, 1e3, None if law == "gamma" else 1.0)
        if law == "gamma":
            return Gaps("gamma", cv)
        levels = self.column(spec.get("levels"), f"{key}.levels", 0, 1)
        values = self.column(spec.get("values"), f"{key}.values", 0, 1e12, len(levels))
        if len(levels) < 2 or levels[0] != 0 or levels[-1] != 1 or (np.diff(levels) <= 0).any() or (np.diff(values) < 0).any():
            self.fault(key, "levels must grow from 0 to 1, and values with them", spec.get("levels"))
            return Gaps("poisson")
        mean = float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(levels)))
        if not mean > 0:
            self.fault(f"{key}.values", "must not all be 0", 0)
            return Gaps("poisson")
        return Gaps("table", cv, levels, values / mean)

    def regimes(self, spec: Any, key: str, mixes: int) -> Regimes | None:
        spec = self.keys(spec, ("window", "rate", "next", "lengths"), key)
        rate = self.column(spec.get("rate"), f"{key}.rate", 0, 1e9)
        k = len(rate)
        rows = self.listed(spec.get("next"), f"{key}.next")
        if len(rows) != k:
            self.fault(f"{key}.next", f"must have a row for each of {k} regimes", spec.get("next"))
            return None
        step = np.array([self.column(row, f"{key}.next[{i}]", 0, 1, k) for i, row in enumerate(rows)])
        if not self.faults and np.abs(step.sum(axis=1) - 1).max() > 1e-6:
            self.fault(f"{key}.next", "each row must add up to 1", step.sum(axis=1).round(6).tolist())
        which = self.column(spec.get("lengths", [0] * k), f"{key}.lengths", 0, mixes - 1, k)
        window = self.number(spec, "window", key, 1e-3, 1e9)
        if self.faults:
            return None
        made = Regimes(window, rate, step / step.sum(axis=1, keepdims=True), which.astype(np.int64))
        mean = float(made.stationary() @ rate)
        if not mean > 0:
            self.fault(f"{key}.rate", "must not all be 0", 0)
            return None
        return Regimes(window, rate / mean, made.next, made.lengths)

    def mix(self, spec: Any, key: str) -> Mix | None:
        try:
            if isinstance(spec, str):
                return load_preset(spec)
            if isinstance(spec, dict) and set(spec) == {"file"}:
                return load_table(self.folder / str(spec["file"]))
            if isinstance(spec, dict) and set(spec) == {"pairs"}:
                pairs = self.keys(spec["pairs"], ("prompt", "output"), f"{key}.pairs")
                prompt = self.column(pairs.get("prompt"), f"{key}.pairs.prompt", 1, MAX_TOKENS)
                output = self.column(pairs.get("output"), f"{key}.pairs.output", 1, MAX_TOKENS, len(prompt))
                return Pairs(prompt.astype(np.int64), output.astype(np.int64))
            if isinstance(spec, dict) and set(spec) == {"mixture"}:
                return self.mixture(spec["mixture"], f"{key}.mixture")
            if isinstance(spec, dict) and isinstance(spec.get("output"), list):
                return table_of({"kind": "bins", **spec}, self.text, f"{self.name}: {key}")
            if isinstance(spec, dict) and set(spec) == {"prompt", "output"}:
                laws = [distributions.parse(spec[name], f"{key}.{name}") for name in ("prompt", "output")]
                return Pair(laws[0], laws[1])
        except (ScenarioError, DataError) as error:
            self.faults += [fault if fault.startswith(self.name) else f"{self.name}: {fault}" for fault in error.faults]
            return None
        self.fault(key, "must be a preset's name, {file: …}, {prompt: …, output: …}, {pairs: …} or {mixture: …}", spec)
        return None

    def mixture(self, spec: Any, key: str) -> Mix | None:
        spec = self.keys(spec, ("shares", "parts"), key)
        parts = [self.mix(one, f"{key}.parts[{i}]") for i, one in enumerate(self.listed(spec.get("parts"), f"{key}.parts"))]
        shares = self.column(spec.get("shares"), f"{key}.shares", 0, 1, len(parts) or None)
        known = [part for part in parts if part is not None and not isinstance(part, Mixture)]
        if len(known) != len(parts) or not parts:
            if not self.faults:
                self.fault(f"{key}.parts", "must be lengths, and no mixtures themselves", len(parts))
            return None
        if abs(shares.sum() - 1) > 1e-6:
            self.fault(f"{key}.shares", "must add up to 1", shares.tolist())
            return None
        return Mixture(shares / shares.sum(), tuple(known))

    def shape(self, spec: Any) -> Shape:
        spec = self.keys(spec, SHAPE_KEYS, "shape")
        hours = self.column(spec["hours"], "shape.hours", 0, 1e6, 24) if "hours" in spec else ()
        days = self.column(spec["days"], "shape.days", 0, 1e6, 7) if "days" in spec else ()
        ramps, flashes = [], []
        for i, one in enumerate(self.listed(spec.get("ramps"), "shape.ramps")):
            key = f"shape.ramps[{i}]"
            one = self.keys(one, ("from", "to", "factor"), key)
            begin = self.number(one, "from", key, 0, 4e9)
            ramps.append(Ramp(begin, self.number(one, "to", key, math.nextafter(begin, math.inf), 4e9),
                              self.number(one, "factor", key, 0, 1e6)))  # fmt: skip
        for i, one in enumerate(self.listed(spec.get("flash_crowds"), "shape.flash_crowds")):
            key = f"shape.flash_crowds[{i}]"
            one = self.keys(one, ("at", "factor", "rise", "hold", "fall"), key)
            flashes.append(Flash(self.number(one, "at", key, 0, 4e9), self.number(one, "factor", key, 0, 1e6),
                                 self.number(one, "rise", key, 0, 4e9, 10.0), self.number(one, "hold", key, 0, 4e9, 300.0),
                                 self.number(one, "fall", key, 0, 4e9, 600.0)))  # fmt: skip
        growth = Growth()
        if spec.get("growth") is not None:
            one = self.keys(spec["growth"], ("clients", "per_client", "prompts", "every"), "shape.growth")
            shares = [self.number(one, name, "shape.growth", 0 if name == "clients" else -0.99, 100, 0.0)
                      for name in ("clients", "per_client", "prompts")]  # fmt: skip
            growth = Growth(*shares, every_s=self.number(one, "every", "shape.growth", 1, 4e9, 604_800.0))
        start = self.number(spec, "start", "shape", 0, 4e9, 0.0) if "start" in spec else 0.0
        return Shape(tuple(hours), tuple(days), tuple(ramps), tuple(flashes), growth, start)

    def layer(self, spec: Any, key: str) -> Layer | None:
        spec = self.keys(spec, ("tokens", "groups", "skew"), key)
        tokens, groups = self.number(spec, "tokens", key, 512, MAX_TOKENS), self.number(spec, "groups", key, 1, 1e7, 1)
        if tokens % 512:
            self.fault(f"{key}.tokens", "must be a multiple of 512, the tokens of a block", tokens)
        return Layer(int(tokens), int(groups), self.number(spec, "skew", key, 0, 10, 0.0))
