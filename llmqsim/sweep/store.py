"""The store of a sweep: one SQLite file, a row for every finished run, written whole or not at all.

Only the process that leads a sweep writes to it; every run is its own transaction, so that a killed sweep has lost
nothing but what was under way. A key is there once, whoever computed it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llmqsim.errors import DataError
from llmqsim.version import __version__

FORMAT = "1"
_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    seed INTEGER NOT NULL,
    replication INTEGER NOT NULL,
    summary TEXT,
    refused TEXT
);
"""
_LOCK_S = 60.0


class Store:
    """Finished runs by key. Use as a context manager.

    Raises DataError when the file is no store of this version, or can't be written; what it holds stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        with self._told("can't be opened"):
            self._data = sqlite3.connect(self.path, timeout=_LOCK_S)
            new = not self._data.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if new:
                self._create()
        try:
            self._check()
        except DataError:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._data.close()

    def _create(self) -> None:
        with self._data:
            self._data.executescript(f"BEGIN; {_TABLES}")
            about = {"llmqsim_sweep": FORMAT, "version": __version__}
            self._data.executemany("INSERT INTO about VALUES (?, ?)", about.items())

    def _check(self) -> None:
        try:
            about = dict(self._data.execute("SELECT name, value FROM about"))
        except sqlite3.DatabaseError:
            raise DataError(f"{self.path}: is no store of a sweep; give another file with --store") from None
        if about.get("llmqsim_sweep") != FORMAT:
            raise DataError(
                f"{self.path}: is a store of format {about.get('llmqsim_sweep')!r}, this version writes {FORMAT!r}; "
                "its points stay; give another file with --store"
            )
        if about.get("version") != __version__:
            raise DataError(
                f"{self.path}: was made by llmqsim {about.get('version')}, this is {__version__}, and results of two "
                "versions are not compared; its points stay; give another file with --store"
            )

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(f"{self.path}: {what} ({error}); points that are in it stay") from None

    def has(self, keys: list[str]) -> set[str]:
        """Those of the keys whose runs are here."""
        with self._told("can't be read"):
            every = {key for (key,) in self._data.execute("SELECT key FROM runs")}
        return every.intersection(keys)

    def add(
        self, key: str, settings: dict[str, Any], seed: int, replication: int, summary: str | None, refused: str | None
    ):
        """Keep a finished run: its summary as JSON text, or why it could not be run. A key that is here stays."""
        row = (key, json.dumps(settings, sort_keys=True), seed, replication, summary, refused)
        with self._told("can't be written"), self._data:
            self._data.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)

    def get(self, key: str) -> tuple[dict[str, Any] | None, str | None]:
        """(summary, why it could not be run) of a key that is here; one of the two is None."""
        with self._told("can't be read"):
            summary, refused = self._data.execute("SELECT summary, refused FROM runs WHERE key = ?", (key,)).fetchone()
        return (None if summary is None else json.loads(summary)), refused

    def __len__(self) -> int:
        with self._told("can't be read"):
            return self._data.execute("SELECT count(*) FROM runs").fetchone()[0]
