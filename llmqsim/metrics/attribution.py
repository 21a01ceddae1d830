"""What one request, a class or a length decile waited for, from the table of requests (Result.to_frame, or its CSV)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from llmqsim.errors import DataError, UserError, or_known
from llmqsim.files import read_bytes
from llmqsim.formats import refuse_foreign
from llmqsim.metrics.waiting import WORDS

if TYPE_CHECKING:
    import pandas as pd

DECILES = 10
BEFORE_START = tuple(name for name in WORDS if name != "preempted")
"""reasons for which a request waits before its first step; it resumes after a preemption later"""
NEEDED = [
    "arrival_s", "prompt_tokens", "output_tokens", "class", "replica", "first_scheduled_s", "first_token_s", "finish_s",
    "outcome", "reason", "preemptions", "cached_tokens", "generated_tokens", *(f"wait_{name}_s" for name in WORDS),
]  # fmt: skip


def read_requests(path: str) -> pd.DataFrame:
    """The table that `llmqsim run --requests` wrote. Raises DataError for another file."""
    import io

    import pandas as pd

    raw = read_bytes(path, "a table of requests")
    try:
        frame = pd.read_csv(io.BytesIO(raw), keep_default_na=True, na_values=[""])
    except (ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{path}: is no table ({error}); give the CSV that `llmqsim run --requests` writes") from None
    missing = [name for name in ("request", *NEEDED) if name not in frame]
    if missing:
        text = raw[: 1 << 16].decode("utf-8", "replace")
        refuse_foreign(path, text, "the CSV that `llmqsim run --requests` writes", (), advise=False)
        rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"{path}:1: no column {missing[0]!r}{rest}; give the CSV that `llmqsim run --requests` writes with this "
            "version"
        )
    numbers = [name for name in NEEDED if name not in ("class", "outcome", "reason")]
    for name in numbers:
        wrong = pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(f"{path}:{row + 2}: {name}: must be a number (got {frame[name][row]!r})")
    return frame.set_index("request")


def chosen(frame: pd.DataFrame, request: str | None, klass: str | None, decile: str | None) -> tuple[str, np.ndarray]:
    """The requests asked for: what they are in words, and their mask, bool[rows].

    decile : 1 (shortest) to 10, by prompt and output tokens together. Raises UserError.
    """
    if request is not None:
        mask = frame.index.astype(str) == request
        if not mask.any():
            last = f"{frame.index.min()} to {frame.index.max()}" if len(frame) else "none"
            raise UserError(f"--request: no such request (got {request!r}); there are {last}")
        return f"request {request}", mask
    if klass is not None:
        mask = (frame["class"] == klass).to_numpy()
        if not mask.any():
            raise UserError(f"--class: no such class (got {klass!r}){or_known(klass, sorted(set(frame['class'])))}")
        return f"class {klass}", mask
    if decile not in [str(i) for i in range(1, DECILES + 1)]:
        raise UserError(f"--decile: must be a number from 1 (shortest) to {DECILES} (longest), (got {decile!r})")
    size = (frame["prompt_tokens"] + frame["output_tokens"]).to_numpy()
    place = np.empty(len(size), dtype=np.int64)
    place[np.argsort(size, kind="stable")] = np.arange(len(size)) * DECILES // max(1, len(size))
    mask = place == int(decile) - 1
    if not mask.any():
        raise UserError(f"--decile: {len(frame)} requests are too few for deciles; ask for one with --request")
    return f"length decile {decile} of {DECILES} ({int(size[mask].min()):,} to {int(size[mask].max()):,} tokens)", mask


def attribution(frame: pd.DataFrame, mask: np.ndarray) -> dict[str, Any]:
    """Means over the requests of a mask: waiting by reason, then computing, beside the same of all requests.

    requests, outcomes; `waits` (seconds by reason, of those that were taken in); `e2e_s`, `ttft_s`, `computing_s` (of
    those completed: E2E less all waiting); `all` the same of everybody; `rank` (share of all completed whose TTFT and
    E2E are no longer than the mean here); for a single request `ahead`.
    """
    told = _means(frame, mask)
    told["all"] = _means(frame, np.ones(len(frame), dtype=bool))
    told["rank"] = {name: _rank(frame, name, told[name]) for name in ("ttft_s", "e2e_s")}
    told["ahead"] = _ahead(frame, int(np.flatnonzero(mask)[0])) if mask.sum() == 1 else None
    return told


def _means(frame: pd.DataFrame, mask: np.ndarray) -> dict[str, Any]:
    rows = frame[mask]
    entered = rows[rows["outcome"] != "rejected"]
    done = rows[rows["outcome"] == "completed"]
    waits = {name: _mean(entered[f"wait_{name}_s"]) for name in WORDS}
    e2e = done["finish_s"] - done["arrival_s"]
    waited = sum(done[f"wait_{name}_s"] for name in WORDS)
    return {
        "requests": len(rows),
        "outcomes": {str(name): int(n) for name, n in rows["outcome"].value_counts().sort_index().items()},
        "prompt_tokens": _mean(rows["prompt_tokens"]),
        "output_tokens": _mean(rows["output_tokens"]),
        "cached_tokens": _mean(entered["cached_tokens"]),
        "preemptions": _mean(entered["preemptions"]),
        "waits": waits,
        "ttft_s": _mean(done["first_token_s"] - done["arrival_s"]),
        "e2e_s": _mean(e2e),
        "computing_s": _mean(e2e - waited),
    }


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None


def _rank(frame: pd.DataFrame, name: str, value: float | None) -> float | None:
    if value is None:
        return None
    end = {"ttft_s": "first_token_s", "e2e_s": "finish_s"}[name]
    done = frame[frame["outcome"] == "completed"]
    return float((done[end] - done["arrival_s"] <= value).mean())


def _ahead(frame: pd.DataFrame, place: int) -> dict[str, Any] | None:
    """Who was at its replica when it arrived: those that waited, those that ran, and the largest of them."""
    own = frame.iloc[place]
    if own["replica"] < 0:
        return None
    others = frame[(frame["replica"] == own["replica"]) & (frame["arrival_s"] <= own["arrival_s"])]
    others = others.drop(index=frame.index[place])
    started = others["first_scheduled_s"].fillna(np.inf)
    left = others["finish_s"].fillna(np.inf)
    waiting = (others["outcome"] != "rejected") & (started > own["arrival_s"])
    running = (started <= own["arrival_s"]) & (left > own["arrival_s"])
    here = others[waiting | running]
    size = here["prompt_tokens"] + here["output_tokens"]
    largest = None
    if len(here):
        row = here.loc[size.idxmax()]
        largest = {
            "request": str(size.idxmax()),
            "prompt_tokens": int(row["prompt_tokens"]),
            "output_tokens": int(row["output_tokens"]),
        }
    return {"waiting": int(waiting.sum()), "running": int(running.sum()), "largest": largest}
