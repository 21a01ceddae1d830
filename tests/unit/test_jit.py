"""How kernels are compiled, where their machine code is kept, and what of it a user sees."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import llmqsim
from llmqsim import records
from llmqsim.engine.compiled.books import gap_bin
from llmqsim.jit import disk

PACKAGE = Path(llmqsim.__file__).parent
GAP_BIN = """
from llmqsim import jit
from llmqsim.jit import disk
from llmqsim.engine.compiled.books import gap_bin
"""
SCENARIO = """
workload: {requests: 300, arrivals: {process: poisson, rate: 12 req/s}, lengths: azure-conversation}
model: llama-3.1-8b
gpu: a100-sxm-80gb
replicas: 2
routing: least_outstanding
run: {engine: compiled}
"""


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def machine_code(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


def test_nothing_is_compiled_at_import():
    told = python(
        "from llmqsim import simulate\n"
        "from llmqsim.engine.compiled import loop, sending\n"
        "print([len(kernel.signatures) for kernel in (sending.entry, sending.route, loop.entry)])"
    )
    assert told == "[0, 0, 0]"


def test_a_new_cache_is_cold_until_the_kernel_has_run(tmp_path):
    told = python(
        GAP_BIN + "jit.announce_with(lambda: print('compiling'))\n"
        "for _ in range(3):\n"
        "    jit.about_to_call(gap_bin)\n"
        "    gap_bin(300)\n"
        "    print(gap_bin.is_cold())",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert told.split() == ["compiling", "False", "False", "False"]


def test_machine_code_of_other_sources_is_not_used(tmp_path):
    python(GAP_BIN + "gap_bin(1)", NUMBA_CACHE_DIR=str(tmp_path))
    same = python(GAP_BIN + "print(gap_bin.is_cold())", NUMBA_CACHE_DIR=str(tmp_path))
    ready = "print(gap_bin(300), 'numba.np.arraymath' in sys.modules)"
    loads = python("import sys" + GAP_BIN + ready, NUMBA_CACHE_DIR=str(tmp_path))
    assert loads == f"{gap_bin(300)} False", "what is loaded needs nothing that compiling does"
    upgraded = GAP_BIN + "disk.stamp = lambda: 'of another version'\nprint(gap_bin.is_cold())"
    assert (same, python(upgraded, NUMBA_CACHE_DIR=str(tmp_path))) == ("False", "True")


def test_the_digest_covers_all_that_kernels_import():
    """Read from the imports at the top of each file with kernels: what gives them a name is in the digest, too."""
    known = disk.sources()
    kernels = [name for name, content in known.items() if b"\nfrom llmqsim.jit import" in content]
    assert len(kernels) > 50
    for name in kernels:
        for given in _imported(known[name].decode()):
            assert given in known, f"{name}: {given} has no line '# Part of machine code: ...'"


def _imported(source: str) -> set[str]:
    """Files of ours that a file imports at its top, relative to the package."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("llmqsim."):
            place = PACKAGE.joinpath(*node.module.split(".")[1:])
            for alias in node.names:
                files = (place / f"{alias.name}.py", place / alias.name / "__init__.py", place.with_suffix(".py"))
                file = next(file for file in (*files, place / "__init__.py") if file.exists())
                found.add(file.relative_to(PACKAGE).as_posix())
    return found


TWO_FACES = """
from llmqsim.engine.costs import kernels
from llmqsim.jit import once
print(once.works(), kernels.fill_prefill_ns.part is not None)
"""


def test_kernels_compile_once_where_numba_is_as_tested():
    assert python(TWO_FACES) == "True True"


def test_kernels_compile_in_numbas_own_way_where_it_is_not():
    assert python(TWO_FACES, LLMQSIM_PLAIN_NUMBA="1") == "False False"
    later = "import numba\nnumba.version_info = numba.version_info._replace(short=(0, 69))\n"
    assert python(later + TWO_FACES) == "False False"
    moved = "from numba.core.codegen import CPUCodeLibrary as Library\ndel Library._finalize_final_module\n"
    assert python(moved + TWO_FACES) == "False False"


CHAIN = """
from llmqsim.engine.compiled.books import gap_bin
from llmqsim.jit import kernel

@kernel
def inner(gap):
    return gap_bin(gap) * 2 + 1

@kernel
def outer(gap):
    return inner(gap) + inner(gap + 7)

print(outer(1000), inner(1000), gap_bin(1000), *[len(k.signatures) for k in (outer, inner, gap_bin)])
made = (inner.part or inner.called).overloads.values()
print(all(cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name) != 0 for cres in made))
"""


@pytest.mark.parametrize("plain", ["", "1"])
def test_a_kernel_can_be_called_by_kernels_and_by_python(plain, tmp_path):
    """Also when its machine code was not made because only kernels called it, and somebody asks for it after all."""
    low = records.gap_bin
    expected = (low(1000) * 2 + 1 + low(1007) * 2 + 1, low(1000) * 2 + 1, low(1000), 1, 1, 1)
    path = tmp_path / "chain.py"
    path.write_text(CHAIN)
    for _ in range(2):  # compiled, then read from the disk
        environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path), "LLMQSIM_PLAIN_NUMBA": plain}
        told = python("import chain", **environment)
        assert told.splitlines() == [" ".join(map(str, expected)), "True"]


@pytest.mark.long
def test_both_ways_of_compiling_give_the_same_run(tmp_path):
    """A whole run in the compiled engine, with a router, and its hash."""
    once, plain, path = tmp_path / "once", tmp_path / "plain", tmp_path / "x.yaml"
    path.write_text(SCENARIO)
    code = f"from llmqsim import load, simulate\nprint(simulate(load({str(path)!r})).to_frame().to_csv())"
    told = python(code, NUMBA_CACHE_DIR=str(once))
    assert told.count("\n") == 300
    assert told == python(code, NUMBA_CACHE_DIR=str(plain), LLMQSIM_PLAIN_NUMBA="1")
    assert len(machine_code(once)) < len(machine_code(plain)) / 5


def test_gap_bins_are_those_of_the_records():
    gaps = [*range(3000), *(base + d for k in range(12, 62) for base in [1 << k] for d in (-1, 0, 1, 12345))]
    assert [gap_bin(gap) for gap in gaps] == [records.gap_bin(gap) for gap in gaps]
