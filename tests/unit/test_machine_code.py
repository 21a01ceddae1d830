"""Where machine code is kept: only where nobody else could have written, and not for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmqsim.jit import disk

CALL = """
from llmqsim.engine.compiled.books import gap_bin
print(gap_bin.is_cold(), gap_bin(1000), gap_bin.is_cold())
"""
needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files here have no owners")


def call(folder: Path) -> tuple[str, str]:
    """What a fresh interpreter that keeps machine code in `folder` prints and says on stderr."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.strip()


def kept(folder: Path) -> Path:
    return folder / "llmqsim" / "kernels" / disk.stamp()


def test_machine_code_is_found_by_the_next_process(tmp_path):
    assert call(tmp_path) == ("True 756 False", "")
    assert call(tmp_path) == ("False 756 False", "")


@needs_owners
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_can_write_is_not_read_and_said(tmp_path, mode):
    call(tmp_path)
    kept(tmp_path).chmod(mode)
    told, said = call(tmp_path)
    assert told.startswith("True 756")
    assert str(kept(tmp_path)) in said and "NUMBA_CACHE_DIR" in said


@needs_owners
@pytest.mark.parametrize("ending", ["*.nbi", "*.nbc"])
def test_a_file_that_others_can_write_is_not_read(tmp_path, ending):
    call(tmp_path)
    (path,) = kept(tmp_path).rglob(ending)
    path.write_bytes(b"no pickle: reading it would fail")
    path.chmod(0o666)
    told, _ = call(tmp_path)
    assert told.split()[1] == "756"


@needs_owners
def test_folders_and_files_are_made_for_their_owner_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        call(tmp_path)
    finally:
        os.umask(before)
    for path in (kept(tmp_path), *kept(tmp_path).rglob("*")):
        assert disk.is_safe(path), path


def test_a_link_is_not_followed(tmp_path):
    call(tmp_path / "a")
    kept(tmp_path / "b").parent.mkdir(parents=True)
    kept(tmp_path / "b").symlink_to(kept(tmp_path / "a"))
    assert call(tmp_path / "b")[0].startswith("True 756")


def test_nowhere_to_write_runs_without_and_names_the_variable(tmp_path):
    """A file stands where the folder should be made: as for a read-only installation, also when root runs this."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    told, said = call(blocked)
    assert told == "True 756 False"
    assert said.count("NUMBA_CACHE_DIR") == 1 and "can't be kept" in said and len(said.splitlines()) == 1


def test_stale_machine_code_goes_when_new_sources_come(tmp_path):
    home = kept(tmp_path).parent
    for age, name in enumerate(("oldest", "older", "old")):
        (home / name).mkdir(parents=True)
        (home / name / "x.nbc").write_bytes(b"x")
        os.utime(home / name, (1_000_000 + age, 1_000_000 + age))
    call(tmp_path)
    assert {path.name for path in home.iterdir()} == {"older", "old", disk.stamp()}
