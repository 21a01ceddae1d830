"""How far long work has come. Rooms report, and pay next to nothing for it; the command line watches and shows a line.

`with watch(): ...` shows what is reported meanwhile on stderr, from SHOWN_AFTER_S on, with how long the rest will take where
that can be told, and takes the line away at the end. Where stderr is no terminal nothing is shown. The line has no colour.
Reports change no result: they are heard by whoever watches in this process, or by nobody.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llmqsim import terminal

SHOWN_AFTER_S = 2.0
SHOWN_EVERY_S = 0.5
MOST = 118
"""characters of the line: one that wraps can't be written over"""
LEAST_SHARE = 0.01
"""of the work, from which the rest is told"""


@dataclass
class Watched:
    """What has been reported. Written by the thread that works, read by the one that shows.

    total, done : units of the present stage, in units of `unit`; total is None where nobody knows it. share : of the run that
    is under way, asked when it is shown. said : the latest remark.
    """

    began: float = field(default_factory=time.monotonic)
    stage_began: float = field(default_factory=time.monotonic)
    name: str = ""
    unit: str = "run"
    total: int | None = None
    done: int = 0
    counts_runs: bool = True
    requests: int = 0
    share: Callable[[], float | None] | None = None
    run_began: float = 0.0
    said: str = ""

    def line(self, now: float) -> str:
        """What stands on the line."""
        running = self.share() if self.share is not None else None
        parts = [part for part in (f"{self.name}: " if self.name else "",) if part]
        if self.counts_runs and running is None and self.done >= (self.total or 1) and (self.total or not self.name):
            parts.append(f"what was run is worked out, {now - self.began:,.0f} s so far")
        elif self.total:
            part = running if running is not None and self.counts_runs else 0.0
            share = min(1.0, (self.done + part) / self.total)
            parts.append(f"{self.done:,} of {self.total:,} {self.unit}s{_left(share, now - self.stage_began)}")
        elif self.done == 0 and running is not None:
            parts.append(f"{100 * running:.0f} % of {self.requests:,} requests{_left(running, now - self.run_began)}")
        else:
            done = f"{self.done:,} {self.unit}{'' if self.done == 1 else 's'}, " if self.done else ""
            parts.append(f"{done}{now - self.began:,.0f} s so far")
        return "".join(parts) + (f"; {self.said}" if self.said else "")


def _left(share: float, took_s: float) -> str:
    if share < LEAST_SHARE:
        return f", {took_s:,.0f} s so far"
    return f", about {took_s / share * (1 - share):,.0f} s left"


_watched: list[Watched] = []


def stage(name: str, total: int | None, unit: str = "run", counts_runs: bool = True) -> None:
    """A part of the work begins. total : of its units, None where it is not known. counts_runs : is every run that ends here
    a unit, or is `step` called for each?"""
    for one in _watched:
        one.name, one.total, one.unit, one.done, one.said = name, total, unit, 0, ""
        one.counts_runs = counts_runs
        one.stage_began = time.monotonic()


def step(number: int = 1) -> None:
    """So many more units are done."""
    for one in _watched:
        one.done += number


def say(text: str) -> None:
    """A remark, such as where a search is."""
    for one in _watched:
        one.said = text


@contextmanager
def running(requests: int, share: Callable[[], float | None]) -> Iterator[None]:
    """A run of so many requests is under way. share : of it that is done, 0 to 1; asked from another thread."""
    if not _watched:
        yield
        return
    for one in _watched:
        one.requests, one.share, one.run_began = requests, share, time.monotonic()
    try:
        yield
    finally:
        for one in _watched:
            one.share = None
            one.done += one.counts_runs


@contextmanager
def watch(name: str = "") -> Iterator[None]:
    """Show what is reported within, where stderr is a terminal. name : of what is done, in front of the line."""
    if not sys.stderr.isatty():
        yield
        return
    seen, over = Watched(name=name), threading.Event()
    _watched.append(seen)
    shower = threading.Thread(target=_show, args=(seen, over), daemon=True)
    shower.start()
    try:
        yield
    finally:
        _watched.remove(seen)
        over.set()
        shower.join()


def _show(seen: Watched, over: threading.Event) -> None:
    """Write the line over and over; take it away when it is over."""
    written = 0
    if over.wait(SHOWN_AFTER_S):
        return
    while True:
        text = terminal.plain(f"llmqsim: {seen.line(time.monotonic())}").replace("\n", " ")[:MOST]
        print("\r" + text.ljust(written), end="", file=sys.stderr, flush=True)
        written = len(text)
        if over.wait(SHOWN_EVERY_S):
            break
    print("\r" + " " * written + "\r", end="", file=sys.stderr, flush=True)
