"""ServeGen's clients: rates by ten-minute windows and lengths by six-hour windows; requests are drawn from them.

A client's count in a window is its rate times the window, as measured. Gaps have the window's law and shape, and are
scaled so that the count fills the window. Prompt and output of a client are drawn independently of one another.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from llmqsim import rng
from llmqsim.errors import DataError
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.reading.options import How
from llmqsim.workload.reading.sheet import Sheet
from llmqsim.workload.reading.stream import opened

WINDOW_S = 600.0
MOST_DRAWN = 500_000
"""requests that are drawn; the rates of larger tables are scaled down, and the reader is told"""
PROMPTS, OUTPUTS = ("prompt_tokens", "text_tokens"), ("output_tokens",)
RATES = ("client_id", "window_start_s", "rate_rps", "iat_dist", "shape")


def read_servegen(path: str, what: str, how: How) -> Sheet:
    """All clients' requests in order of time, the client as tenant. Raises DataError where the lengths are missing."""
    import pandas as pd

    beside = Path(path).with_name(Path(path).name.replace("_rates", "_lengths"))
    if str(beside) == str(path) or not beside.is_file():
        raise DataError(f"{path}: holds rates of ServeGen clients; their lengths are expected beside it as {beside.name}")
    frames = []
    for name in (path, str(beside)):
        with opened(name, what) as file:
            try:
                frames.append(pd.read_csv(file))
            except (ValueError, EOFError, OSError) as error:
                raise DataError(f"{name}: can't be read ({str(error)[:80]}); copy it again") from None
    rates, tables = frames
    missing = [name for name in RATES if name not in rates]
    if missing or not {"client_id", "window_start_s", "field", "value", "prob"} <= set(tables):
        raise DataError(f"{path}: no column '{(missing or ['field'])[0]}'; ServeGen's rates and lengths were expected")
    draw = rng.stream(how.seed, 0, "servegen")
    wanted = rates["rate_rps"].to_numpy() * WINDOW_S
    scale = min(1.0, MOST_DRAWN / wanted.sum())
    counts = np.floor(wanted * scale + draw.random(len(wanted))).astype(np.int64)
    laws = _laws(tables)
    notes = [f"requests are drawn from clients' rates and lengths (seed {how.seed}); prompt and output independently"]
    if scale < 1:
        notes.append(f"rates were scaled by {scale:.4g}, so that about {MOST_DRAWN:,} requests are drawn")
    return _drawn(path, rates, counts, laws, draw, notes)


def _laws(tables) -> dict[int, list[tuple[float, dict[str, tuple[np.ndarray, np.ndarray]]]]]:
    """Client to its (start of window, {field: (values, cumulative probability)}), in order of time."""
    found: dict[int, dict[float, dict]] = {}
    for (client, start, name), rows in tables.groupby(["client_id", "window_start_s", "field"], sort=True):
        upper = np.cumsum(rows["prob"].to_numpy())
        found.setdefault(client, {}).setdefault(start, {})[name] = (rows["value"].to_numpy(), upper / upper[-1])
    return {client: sorted(windows.items()) for client, windows in found.items()}


def _drawn(path: str, rates, counts: np.ndarray, laws: dict, draw: np.random.Generator, notes: list[str]) -> Sheet:
    total = int(counts.sum())
    times, prompt, output = np.empty(total), np.empty(total), np.empty(total)
    tenant = np.empty(total, dtype=object)
    at, borrowed = 0, 0
    everybody = [window for windows in laws.values() for window in windows]
    columns = (rates[name].to_numpy() for name in ("client_id", "window_start_s", "iat_dist", "shape"))
    for client, start, law, shape, count in zip(*columns, counts, strict=True):
        if not count:
            continue
        mine = slice(at, at + count)
        at += count
        times[mine] = start + _places(draw, str(law), float(shape), int(count)) * WINDOW_S
        windows = laws.get(client)
        if not windows:
            borrowed += count
            windows = [everybody[int(draw.random() * len(everybody))]]
        fields = next((f for s, f in reversed(windows) if s <= start), windows[0][1])
        prompt[mine], output[mine] = _prompt(fields, draw, int(count)), _one(fields, OUTPUTS, draw, int(count))
        tenant[mine] = f"client-{client}"
    if borrowed:
        notes.append(f"{borrowed / max(total, 1):.0%} of the requests are of clients without lengths: another's are used")
    order = np.argsort(times, kind="stable")
    prompt, output = (np.clip(np.rint(column[order]), 1, MAX_TOKENS) for column in (prompt, output))
    names = ("window_start_s", "prompt_tokens", "output_tokens")
    return Sheet(path, names, times[order], prompt, output, more={"tenant": tenant[order]}, notes=notes)


def _places(draw: np.random.Generator, law: str, shape: float, count: int) -> np.ndarray:
    """Where in a window its requests come, as shares of it, ascending."""
    shape = max(shape, 1e-3)
    gaps = draw.weibull(shape, count + 1) if law == "Weibull" else draw.gamma(shape, 1.0, count + 1)
    total = gaps.sum()
    if not 0 < total < np.inf:
        return np.sort(draw.random(count))
    return np.minimum(np.cumsum(gaps[:-1] / total), 1.0)


def _one(fields: dict, names: tuple[str, ...], draw: np.random.Generator, count: int) -> np.ndarray:
    for name in names:
        if name in fields:
            values, upper = fields[name]
            return values[np.searchsorted(upper, draw.random(count), side="right").clip(max=len(values) - 1)]
    return np.ones(count)


def _prompt(fields: dict, draw: np.random.Generator, count: int) -> np.ndarray:
    """Text, and the tokens of images, sounds and films where the model takes them."""
    tokens = _one(fields, PROMPTS, draw, count)
    for kind in ("image", "audio", "video"):
        if f"{kind}_tokens" in fields and f"{kind}_count" in fields:
            tokens = tokens + np.rint(_one(fields, (f"{kind}_count",), draw, count)) * _one(
                fields, (f"{kind}_tokens",), draw, count
            )
    return tokens
