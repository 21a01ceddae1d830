"""Claims, run and judged: plain data, as `llmqsim claims --json` writes it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from llmqsim.claims.bands import Band, check_known, holds, read_bands
from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.registry import CLAIMS
from llmqsim.errors import UserError, or_known
from llmqsim.files import read_bytes
from llmqsim.version import __version__

FOLDER = Path(__file__).parent / "scenarios"
"""of the claims that come with the package, and of their bands"""
BANDS = "bands.yaml"
NO_BANDS = "no bands ({path} is not there), so nothing is judged; give the file with --bands"
UNEXPLAINED = "it lies outside its band, and nobody has said why"
UNDECIDED = "its interval over seeds holds an end of the band, so that more seeds would be needed"


def claims(
    only: Sequence[str] = (),
    folder: str | os.PathLike[str] = FOLDER,
    bands: str | os.PathLike[str] | None = None,
    reduced: bool = False,
    seed: int = 0,
    announce: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run claims and judge each check by its band.

    only : ids, all of them if empty. folder : of the scenarios. bands : file of the bands; None for the folder's own,
    without which nothing is judged, which the notes say. reduced : at the size for CI. announce : hears of progress.
    Returns version, seed, reduced, notes, about (what each scenario's header says), and claims: a mapping for each check
    with id, check, published, simulated (mean over seeds), low, high, holds (None where there is no band, or where it is
    undecided), assumption, interval (of the mean over seeds; None), undecided, and reason where it does not hold.
    Raises UserError.
    """
    chosen = _chosen(only)
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            f"--folder: {folder} is no folder; give one with scenarios of the claims, or leave it out for those that ship"
        )
    path = folder / BANDS if bands is None else Path(bands)
    missing = bands is None and not path.exists()
    limits = {} if missing else read_bands(path)
    if unknown := [name for name in limits if name not in CLAIMS]:
        raise UserError(*(f"{path}: there is no claim '{name}'{or_known(name, CLAIMS)}" for name in unknown))
    setting = Setting(folder, reduced, seed, announce)
    lines, about = [], {}
    for name in chosen:
        about[name] = header(folder / f"{name.lower()}.yaml")
        announce(name)
        figures = CLAIMS[name](setting)
        mine = limits.get(name, {})
        check_known(path, name, mine, [figure.check for figure in figures])
        lines += [_line(name, figure, mine.get(figure.check)) for figure in figures]
    notes = [NO_BANDS.format(path=path)] if missing else []
    told = {"version": __version__, "seed": seed, "reduced": reduced, "notes": notes, "about": about}
    return {**told, "claims": lines}


def header(path: str | os.PathLike[str]) -> str:
    """The comment that a scenario begins with, as one paragraph, without the claim's name. Raises DataError."""
    text = read_bytes(path, "the scenario of a claim").decode("utf-8", "replace")
    lines = takewhile(lambda line: line.startswith("#"), text.splitlines())
    words = " ".join(line.lstrip("# ") for line in lines)
    return words.partition(". ")[2] if words.lower().startswith(Path(path).stem.lower()) else words


def _chosen(only: Sequence[str]) -> list[str]:
    known = {name.lower(): name for name in CLAIMS}
    if unknown := [name for name in only if name.lower() not in known]:
        raise UserError(*(f"--only: there is no claim '{name}'{or_known(name, CLAIMS)}" for name in unknown))
    wanted = {known[name.lower()] for name in only} or set(CLAIMS)
    return [name for name in CLAIMS if name in wanted]


def _line(name: str, figure: Figure, band: Band | None) -> dict[str, Any]:
    judged = holds(figure.values, figure.interval, band)
    undecided = judged is None and band is not None
    low, high = band or (None, None)
    line = {
        "id": name,
        "check": figure.check,
        "published": figure.published,
        "simulated": figure.mean if math.isfinite(figure.mean) else None,
        "low": low,
        "high": high,
        "holds": judged,
        "assumption": figure.assumption,
        "interval": figure.interval,
        "undecided": undecided,
    }
    if judged is False:
        return {**line, "reason": figure.reason or UNEXPLAINED}
    return {**line, "reason": UNDECIDED} if undecided else line
