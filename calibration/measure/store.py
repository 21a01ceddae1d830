"""Measured rows on disk: shards that are only ever added, so that a kill loses seconds and nothing is measured twice.

A shard is a file of JSON lines that appears whole or not at all (temporary file, fsync, rename):
`{"session": …}` once a session, `{"conditions": …}`, `{"key", "table", "row"}` and `{"key", "table", "failed"}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError

from . import schema

SHARDS = "shards"


class Store:
    """The rows of one output folder, open for one process at a time (Linux and macOS: an advisory lock)."""

    def __init__(self, folder: Path):
        """Open or make the folder. Raises DataError when it can't be used or a shard can't be read."""
        self.folder = folder
        _check(folder)
        self.shards = folder / SHARDS
        try:
            self.shards.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)
        except OSError as error:
            raise DataError(f"{folder}: can't be written to ({error.strerror}); give another --out") from None
        self.rows: dict[str, tuple[str, dict[str, Any]]] = {}
        """key to (table, row)"""
        self.failed: dict[str, str] = {}
        """key to reason"""
        self.sessions: list[dict[str, Any]] = []
        self.conditions: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = []
        self._number = 0
        try:
            for leftover in self.shards.glob(".*.tmp"):
                leftover.unlink()
            for path in sorted(self.shards.glob("*.jsonl")):
                self._read(path)
        except BaseException:
            self.close()
            raise

    def __contains__(self, key: str) -> bool:
        return key in self.rows or key in self.failed

    @property
    def unwritten(self) -> int:
        """Records that no shard holds yet."""
        return len(self._new)

    def add(self, table: str, key: str, row: Mapping[str, Any]) -> None:
        """Keep a measured row."""
        self._keep({"key": key, "table": table, "row": dict(row)})

    def fail(self, table: str, key: str, reason: str) -> None:
        """Remember that a shape can't be measured."""
        self._keep({"key": key, "table": table, "failed": reason})

    def note_session(self, session: Mapping[str, Any]) -> None:
        """Remember device, versions and options of this session."""
        self._keep({"session": dict(session)})

    def flush(self, conditions: Mapping[str, Any]) -> None:
        """Write what is new as one more shard, with the conditions it was measured under."""
        if not self._new:
            return
        self._keep({"conditions": {"shard": self._number + 1, "records": len(self._new), **conditions}})
        self._number += 1
        text = "".join(json.dumps(record) + "\n" for record in self._new)
        target = self.shards / f"{self._number:06d}.jsonl"
        temporary = self.shards / f".{target.name}.tmp"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise DataError(f"{target}: can't be written ({error.strerror}); free some room and run again") from None
        self._new.clear()

    def close(self) -> None:
        """Let another process use the folder."""
        os.close(self._lock)

    def _keep(self, record: dict[str, Any]) -> None:
        self._remember(record)
        self._new.append(record)

    def _remember(self, record: dict[str, Any]) -> None:
        if "row" in record:
            self.rows.setdefault(record["key"], (record["table"], record["row"]))
        elif "failed" in record:
            self.failed[record["key"]] = record["failed"]
        elif "session" in record:
            self.sessions.append(record["session"])
        else:
            self.conditions.append(record["conditions"])

    def _read(self, path: Path) -> None:
        for number, line in enumerate(_lines(path), start=1):
            try:
                record = json.loads(line)
                found = _record_faults(record)
            except ValueError:
                found = ["no JSON"]
            if found:
                raise DataError(
                    f"{path}:{number}: {'; '.join(found)} (got {line[:60]!r}); "
                    "move this file away: its rows are then measured again"
                )
            self._remember(record)
        # A name with another number was put here by hand: its rows count, new shards go after our own.
        if path.stem.isdigit():
            self._number = max(self._number, int(path.stem))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: can't be read as text ({error}); move this file away") from None


def _record_faults(record: Any) -> list[str]:
    if not isinstance(record, dict) or not {"row", "failed", "session", "conditions"} & set(record):
        return ["not a record of this kit"]
    if "row" not in record and "failed" not in record:
        return []
    table, key = record.get("table"), record.get("key")
    if table not in schema.TABLES or not isinstance(key, str):
        return ["no known table or no key"]
    if "failed" in record:
        return []
    found = schema.faults(table, record["row"]) if isinstance(record["row"], dict) else ["the row is no mapping"]
    return found or ([] if schema.key(table, record["row"]) == key else ["the key is not that of the row"])


def _check(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; --out names a folder, which is made if it is not there")
    names = [f"{table}.{ending}" for table in schema.TABLES for ending in ("parquet", "csv")]
    strangers = [name for name in names if (folder / name).exists()]
    if strangers and not (folder / SHARDS).is_dir():
        raise DataError(
            f"{folder}: holds tables that this kit did not write ({', '.join(strangers)}); "
            "give a folder of its own (--out)"
        )


def _locked(folder: Path) -> int:
    import fcntl

    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise DataError(f"{folder}: another process is measuring into it; wait for it or give another --out") from None
    return handle
