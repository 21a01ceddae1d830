"""Reading the workload's text files: every way in which a file can be unreadable, said in one sentence."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from llmqsim.errors import DataError
from llmqsim.files import read_bytes
from llmqsim.formats import binary

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 4 << 30
"""Largest unpacked file; a guard against a small .gz that unpacks without end."""


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a plain or gzipped UTF-8 file with "\\n" line ends and without a byte order mark.

    what : what the file should be, for the messages ("a trace"). Compression is told by content, not by name.
    Raises DataError when the file is missing, a folder, unreadable, empty, truncated or binary.
    """
    raw = _unpack(path, read_bytes(path, what))
    if not raw.strip():
        raise DataError(f"{path}: the file is empty; {what} was expected")
    if kind := binary(raw):
        raise DataError(f"{path}: the file is binary: {kind}. Expected: {what} in UTF-8 text")
    if b"\x00" in raw:
        raise DataError(f"{path}: the file is binary (it holds zero bytes); {what} in UTF-8 text was expected")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: not UTF-8 text (byte {raw[error.start]:#04x}); {what} in UTF-8 text was expected"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _unpack(path: str | Path, raw: bytes) -> bytes:
    if not raw.startswith(GZIP_MAGIC):
        if str(path).endswith(".gz") and raw:
            raise DataError(f"{path}: named .gz but not gzip data; compress it with gzip or drop the .gz")
        return raw
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            text = stream.read(MAX_BYTES + 1)
    except EOFError:
        raise DataError(f"{path}: the gzip data end too early: the file is truncated; copy it again") from None
    except (gzip.BadGzipFile, zlib.error, OSError) as error:
        raise DataError(f"{path}: damaged gzip data ({error}); copy the file again") from None
    if len(text) > MAX_BYTES:
        raise DataError(f"{path}: unpacks to more than {MAX_BYTES >> 30} GiB; split the file")
    return text
