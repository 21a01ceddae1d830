"""Files of measured runs: YAML with the lines of its keys, CSV and parquet tables, each fault with its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from llmqsim.errors import DataError
from llmqsim.files import read_bytes
from llmqsim.formats import of_columns, refuse_foreign

if TYPE_CHECKING:
    import pandas as pd

WHAT = "measured serving runs (YAML, schema_version 1)"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document:
    """A YAML file as plain data, and the line of any path of keys in it."""

    def __init__(self, path: str | Path):
        """Raises DataError for a file that is missing, no text or no YAML."""
        self.path = str(path)
        try:
            self.text = read_bytes(path, WHAT).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; {WHAT} were expected") from None
        try:
            self.content: Any = yaml.load(self.text, Loader=_LOADER)  # a safe loader
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{path}:{mark.line + 1}" if mark else str(path)
            raise DataError(
                f"{place}: not YAML ({getattr(error, 'problem', None) or error}); {WHAT} were expected"
            ) from None
        except (RecursionError, ValueError) as error:
            raise DataError(f"{path}: can't be read as YAML ({error}); {WHAT} were expected") from None
        self._root: yaml.Node | None = None

    def place(self, *keys: str | int) -> str:
        """`file:line` of a path of keys, or of its nearest ancestor that was written."""
        if self._root is None:
            self._root = yaml.compose(self.text, Loader=_LOADER)
        node, line = self._root, 1
        for key in keys:
            found = _below(node, key)
            if found is None:
                break
            line, node = found
        return f"{self.path}:{line}"


def _below(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    """Line and value of a key; the line is the key's."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark.line + 1, node.value[key]
    return None


def read_table(path: Path, what: str, needed: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV or parquet file as a data frame. needed : columns that must be there. Raises DataError."""
    import pandas as pd

    raw = read_bytes(path, what)
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except ImportError:
        raise DataError(f"{path}: reading parquet needs pyarrow; pip install 'llmqsim[parquet]'") from None
    except Exception as error:  # noqa: BLE001 pandas, pyarrow: many kinds
        raise DataError(f"{path}: can't be read as {what} ({str(error).splitlines()[0]})") from None
    absent = [name for name in needed if name not in frame.columns]
    if not absent:
        return frame
    expected = f"{what} (columns {', '.join(needed)})"
    if path.suffix != ".parquet":
        refuse_foreign(path, raw[: 1 << 16].decode("utf-8", "replace"), expected, [needed], advise=False)
    found = of_columns(map(str, frame.columns))
    told = f"is {found.name}" if found else f"columns missing: {', '.join(absent)}"
    raise DataError(f"{path}:1: {told}; {expected} was expected")
