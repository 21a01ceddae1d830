"""Files, read and written: every way in which that can fail is one sentence, and an output is whole or not there."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from llmqsim.errors import DataError

StrPath = str | os.PathLike[str]


def read_bytes(path: StrPath, what: str) -> bytes:
    """The content of a file. what : what it should be, for the message ("a trace"). Raises DataError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {what} was expected") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; the file of {what} was expected") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: can't be read ({_why(error)})") from None


def check_outputs(outputs: dict[str, StrPath | None], inputs: Iterable[StrPath] = ()) -> None:
    """Refuse, before any work is done, outputs that could not be written, or that would replace what is read.

    outputs : option ("--json") to the path that was given for it, None where it was not. Raises DataError with every
    fault.
    """
    faults: list[str] = []
    taken = {os.path.realpath(path): f"is an input of this command ({path})" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        fault = _fault(path)
        if not fault and not _is_special(path):
            real = os.path.realpath(path)
            fault = f"{taken[real]}; give another file" if real in taken else None
            taken.setdefault(real, f"is named for {option} as well")
        if fault:
            faults.append(f"{path}: {option} can't be written there: it {fault}" if str(path) else f"{option}: {fault}")
    if faults:
        raise DataError(*faults)


def write(path: StrPath, fill: Callable[[IO[str]], Any]) -> None:
    """Let `fill` write UTF-8 text into a temporary file, then put it in place in one step; links stay links.

    A device or a pipe is written directly. Text that is no valid Unicode (from odd file names) is escaped.
    Raises DataError when it can't be written; then nothing is left behind.
    """
    if fault := _fault(path):
        raise DataError(f"{path}: can't be written: it {fault}")
    try:
        if _is_special(path):
            with _open(path) as file:
                fill(file)
        else:
            _replace(Path(os.path.realpath(path)), fill)
    except OSError as error:
        raise DataError(f"{path}: can't be written ({_why(error)})") from None


def write_text(path: StrPath, text: str) -> None:
    """Write a whole text file, or nothing. Raises DataError."""
    write(path, lambda file: file.write(text))


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write a whole file of bytes, or nothing. Raises DataError."""
    write(path, lambda file: file.buffer.write(data))


def append_text(path: StrPath, text: str) -> None:
    """Add to the end of a text file that others write to as well, such as a CI's step summary. Raises DataError."""
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: can't be written ({_why(error)})") from None


def _replace(target: Path, fill: Callable[[IO[str]], Any]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".llmqsim.", dir=target.parent)
    try:
        with _open(handle) as file:
            fill(file)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _open(file: StrPath | int) -> IO[str]:
    return open(file, "w", encoding="utf-8", errors="backslashreplace", newline="")


def _is_special(path: StrPath) -> bool:
    """Is something there that is neither a file nor a folder, such as /dev/stdout?"""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _fault(path: StrPath) -> str | None:
    """Why a file can't be written there, to be read after "it"; None if it can."""
    if not str(path):
        return "has no name; name a file"
    folder = Path(path).parent
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return "is a folder; name a file in it"
    except FileNotFoundError:
        if not folder.is_dir():
            return f"is in the folder {folder}, which does not exist; make it first"
    except NotADirectoryError:
        return f"is in {folder}, which is no folder"
    except (OSError, ValueError) as error:
        return f"has a name that can't be used ({_why(error)})"
    if not _is_special(path) and not os.access(os.path.dirname(os.path.realpath(path)), os.W_OK):
        return f"is in the folder {folder}, which has no permission to write"
    return None


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
