"""Machine code between processes: in which folder, whose, and for how long.

numba looks only at the file of a function to see whether its machine code on disk is still good. A kernel here is made
of others and of constants from other files, so each folder of machine code is named by a digest of all of them: an
upgrade, or an edit, never runs code that was compiled from older sources.

What is read here is run, so folders and files count only where nobody but their owner or root can write, and the owner
is this user, root, or whoever owns the package itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path

import numba
from numba.core import caching
from numba.core.runtime import rtsys
from numba.misc.appdirs import AppDirs

from llmqsim.jit import once

PACKAGE = Path(__file__).parents[1]
VARIABLE = "NUMBA_CACHE_DIR"
"""environment variable: a folder to keep machine code in, before all others"""
KEPT = 3
"""folders of machine code that are kept, the newest ones: versions that are used in turn don't compile in turn"""
_MARKS = (b"\nfrom llmqsim.jit import", b"\nfrom numba.extending import", b"\n# Part of machine code:")
"""lines of which a file has one if machine code is made of it"""


@cache
def stamp() -> str:
    """Digest of everything that machine code is made of, and by what."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} numba {numba.__version__}".encode())
    for name, content in sources().items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def sources() -> dict[str, bytes]:
    """Files of which machine code is made: how it is made, kernels, and what says that it is a part of them."""
    found = {}
    for folder, _, names in os.walk(PACKAGE):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    content = file.read()
                if folder == os.path.dirname(__file__) or any(mark in content for mark in _MARKS):
                    found[os.path.relpath(path, PACKAGE).replace(os.sep, "/")] = content
    return dict(sorted(found.items()))


def homes(what: str = "kernels") -> list[Path]:
    """Where machine code (or `what` else) may be kept, in order: as the user says, with the package, in the user's cache."""
    named = numba.config.CACHE_DIR
    own = [PACKAGE / "__pycache__", Path(AppDirs(appname="llmqsim", appauthor=False).user_cache_dir)]
    return [home / what for home in ([Path(named) / "llmqsim"] if named else own)]


def is_safe(path: Path) -> bool:
    """Could only this user, root or the package's owner have written it? True where files have no owners (Windows)."""
    if not hasattr(os, "geteuid"):
        return True
    found = os.lstat(path)
    owners = {0, os.geteuid(), os.stat(__file__).st_uid}
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in owners and not others_write and not stat.S_ISLNK(found.st_mode)


@cache
def readable() -> tuple[Path, ...]:
    """Folders that hold machine code of these sources and are safe to read."""
    found = []
    for home in homes():
        folder = home / stamp()
        with suppress(OSError):
            if is_safe(folder) and is_safe(home):
                found.append(folder)
            else:
                _complain(f"{folder}: others could have written there, so its machine code is not used")
    return tuple(found)


@cache
def writable() -> Path | None:
    """The folder that new machine code of these sources goes to; None: there is none, and nothing is kept."""
    for home in homes():
        with suppress(OSError):
            make(home)
            if is_safe(home):
                fresh = make(home / stamp())
                if is_safe(home / stamp()) and os.access(home / stamp(), os.W_OK):
                    if fresh:
                        _drop_stale(home)
                    return home / stamp()
    places = " nor ".join(str(home.parent) for home in homes())
    _complain(
        f"machine code can't be kept: neither {places} can be written safely, so every start compiles again; "
        f"set {VARIABLE} to a folder that only you can write"
    )
    return None


def _complain(what: str) -> None:
    print(f"llmqsim: {what}", file=sys.stderr, flush=True)


def make(folder: Path) -> bool:
    """Make a folder that nobody but its owner can write; True when it is new."""
    if folder.is_dir():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    folder.chmod(0o755)
    return True


def _drop_stale(home: Path) -> None:
    """Machine code of older sources: all but the newest folders, and what numba itself kept beside the sources."""
    folders = sorted((p for p in home.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime_ns)
    for folder in folders[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
    if home.is_relative_to(PACKAGE):
        for pattern in ("*.nbi", "*.nbc"):
            for path in PACKAGE.rglob(f"__pycache__/{pattern}"):
                if not path.is_relative_to(home):
                    path.unlink(missing_ok=True)


class Cache(caching.NullCache):
    """What of one kernel is on disk; finds out when asked, because most kernels are never called from Python."""

    def __init__(self, function):
        self._function = function

    @cached_property
    def _read(self) -> list[caching.Cache]:
        return [_in(folder)(self._function) for folder in readable()]

    @cached_property
    def _written(self) -> caching.Cache | None:
        folder = writable()
        return None if folder is None else _in(folder)(self._function)

    @property
    def cache_path(self):
        return None if self._written is None else self._written.cache_path

    def holds_any(self) -> bool:
        """Is there machine code of it, of any types of arguments?"""
        return any(kept._cache_file._load_index() for kept in self._read)

    def load_overload(self, sig, target_context):
        for kept in self._read:
            found = kept.load_overload(sig, target_context)
            if found is not None:
                return found
        return None

    def save_overload(self, sig, cres):
        if self._written is not None:
            self._written.save_overload(sig, cres)

    def flush(self):
        if self._written is not None:
            self._written.flush()


class _File(caching.IndexDataCacheFile):
    """numba's files, made so that only their owner can write them, and read only where that is so."""

    def _load_index(self):
        return super()._load_index() if _is_sound(self._index_path) else {}

    def _load_data(self, name):
        if not _is_sound(self._data_path(name)):
            raise FileNotFoundError(name)
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath) -> Iterator:
        with super()._open_for_write(filepath) as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o644)
            yield file


def _is_sound(path: str) -> bool:
    try:
        return is_safe(Path(path))
    except OSError:
        return False


@cache
def _in(folder: Path) -> type[caching.Cache]:
    """numba's cache of a function, kept in this folder."""

    class Locator(caching._CacheLocator):
        def __init__(self, py_func, py_file):
            # numba names files by function, its line and its file's last name, and many files here share theirs
            self._py_file, self._path = py_file, folder / _room(py_file)
            self._lineno = py_func.__code__.co_firstlineno

        @classmethod
        def from_function(cls, py_func, py_file):
            return cls(py_func, py_file)

        def ensure_cache_path(self):
            make(self._path)

        def get_cache_path(self):
            return str(self._path)

        def get_source_stamp(self):
            return stamp()

        def get_disambiguator(self):
            return str(self._lineno)

    class Impl(caching.CompileResultCacheImpl):
        _locator_classes = (Locator,)

    class Files(caching.Cache):
        _impl_class = Impl

        def __init__(self, py_func):
            super().__init__(py_func)
            own = self._cache_file
            self._cache_file = _File(self._cache_path, self._impl.filename_base, own._source_stamp)

        def load_overload(self, sig, target_context):
            """As numba's, without making ready to compile: that takes longer, and compiling sees to it itself."""
            if not once.works():
                return super().load_overload(sig, target_context)
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)

    return Files


def _room(py_file: str) -> str:
    """A folder's name for a source file: its place in the package."""
    path = Path(py_file)
    if path.is_relative_to(PACKAGE):
        return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return path.stem + "-" + hashlib.sha256(str(path).encode()).hexdigest()[:12]
