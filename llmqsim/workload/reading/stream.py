"""A file's bytes in blocks of whole lines, unpacked on the way, so that no file has to fit into memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from llmqsim.errors import DataError, UserError
from llmqsim.formats import HEAD, binary

BLOCK = 1 << 25
"""bytes of a block, unpacked"""
BOM = b"\xef\xbb\xbf"
ZSTD = b"\x28\xb5\x2f\xfd"
PACKED: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "gzip", ".gz"),
    (ZSTD, "zstd", ".zst"),
    (b"BZh", "bzip2", ".bz2"),
    (b"\xfd7zXZ", "xz", ".xz"),
)
"""first bytes, name and suffix of packed files"""
WRONG = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError, ValueError)


def opened(path: str | Path, what: str) -> IO[bytes]:
    """A file, unpacked while it is read; how it is packed is told by its content. Raises DataError, UserError."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (whoever reads it closes it)
        start = file.read(6)
        file.seek(0)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {what} was expected") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; the file of {what} was expected") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise DataError(f"{path}: can't be read ({reason})") from None
    for mark, name, _ in PACKED:
        if start.startswith(mark):
            return _unpacker(name, path)(file)
    for _, name, suffix in PACKED:
        if str(path).endswith(suffix) and start:
            file.close()
            raise DataError(f"{path}: named {suffix} but not {name} data; compress it with {name} or drop the {suffix}")
    return file


def _unpacker(name: str, path: str | Path) -> Callable[[Any], IO[bytes]]:
    if name == "zstd":
        return _zstd(path)
    return {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}[name] if name != "gzip" else (
        lambda file: gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    )


def _zstd(path: str | Path) -> Callable[[Any], IO[bytes]]:
    """Python's own module from 3.14 on, else the package zstandard."""
    try:
        from compression import zstd  # type: ignore[import-not-found]

        return zstd.ZstdFile
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found]
    except ImportError:
        raise UserError(
            f"{path}: is packed by zstd, which Python reads from 3.14 on; before that, pip install 'llmqsim[zstd]', "
            "or unpack it, or pack it by gzip"
        ) from None
    return lambda file: zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def pieces(path: str | Path, what: str, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a file, unpacked. Raises DataError where packed data are cut short or damaged."""
    with opened(path, what) as file:
        while True:
            try:
                piece = file.read(size)
            except EOFError:
                raise DataError(f"{path}: the packed data end too early: the file is truncated; copy it again") from None
            except WRONG as error:
                kind = "gzip data" if isinstance(file, gzip.GzipFile) else "packed data"
                raise DataError(f"{path}: damaged {kind} ({error}); copy the file again") from None
            except Exception as error:  # zstandard's own error is known only where it is installed
                if type(error).__name__ not in ("ZstdError",):
                    raise
                raise DataError(f"{path}: damaged zstd data ({error}); copy the file again") from None
            if not piece:
                return
            yield piece


def head(path: str | Path, what: str) -> bytes:
    """The first bytes of a file, unpacked, without a byte order mark and with "\\n" line ends. Raises DataError.

    Refused are an empty file and one that is no text, but for Parquet, which its reader wants to see.
    """
    raw = b""
    for piece in pieces(path, what, HEAD):
        raw += piece
        if len(raw) >= HEAD and raw.strip():
            break
    if not raw.strip():
        raise DataError(f"{path}: the file is empty; {what} was expected")
    if (kind := binary(raw)) and not raw.startswith(b"PAR1"):
        raise DataError(f"{path}: the file is binary: {kind}. Expected: {what} in UTF-8 text")
    if b"\x00" in raw and not raw.startswith(b"PAR1"):
        raise DataError(f"{path}: the file is binary (it holds zero bytes); {what} in UTF-8 text was expected")
    return plain(raw.removeprefix(BOM))


def plain(raw: bytes) -> bytes:
    """With "\\n" at the ends of lines."""
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw


def blocks(path: str | Path, what: str, lenient: bool = False, size: int = BLOCK) -> Iterator[tuple[int, bytes]]:
    """Line number of its first line, and bytes, of blocks that end where a line ends (never inside quotes).

    UTF-8 without a byte order mark, "\\n" at line ends; the last line may lack it. Raises DataError for what is no
    text; lenient : bytes that are no UTF-8 become U+FFFD instead.
    """
    line, rest, first = 1, b"", True
    for piece in pieces(path, what, size):
        rest += piece.removeprefix(BOM) if first else piece
        first = False
        held = rest[-1:] == b"\r"  # its "\n" may come with the next piece
        text = plain(rest[:-1] if held else rest)
        cut = _last_line_end(text)
        rest = text[cut:] + (b"\r" if held else b"")
        if cut:
            yield line, _text(text[:cut], path, line, what, lenient)
            line += text.count(b"\n", 0, cut)
    if rest:
        yield line, _text(plain(rest), path, line, what, lenient)


def _last_line_end(text: bytes) -> int:
    """Where the last whole line ends: the number of quotes before it is even."""
    cut = text.rfind(b"\n") + 1
    if b'"' not in text:
        return cut
    while cut and text.count(b'"', 0, cut) % 2:
        cut = text.rfind(b"\n", 0, cut - 1) + 1
    return cut


def _text(raw: bytes, path: str | Path, line: int, what: str, lenient: bool) -> bytes:
    if b"\x00" in raw:
        raise DataError(f"{path}: the file is binary (it holds zero bytes); {what} in UTF-8 text was expected")
    if raw.isascii():
        return raw
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if lenient:
            return raw.decode("utf-8", "replace").encode()
        place = line + raw.count(b"\n", 0, error.start)
        raise DataError(
            f"{path}:{place}: not UTF-8 text (byte {raw[error.start]:#04x}); {what} in UTF-8 text was expected"
        ) from None
    return raw


def whole(path: str | Path, what: str, lenient: bool = False) -> str:
    """All of a text file, for formats that are one document."""
    buffer = io.BytesIO()
    for _, block in blocks(path, what, lenient):
        buffer.write(block)
    return buffer.getvalue().decode("utf-8")
