"""Imports point down only: each room may import the rooms below it, and the foundation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "llmqsim"

FOUNDATION = {
    "answers", "errors", "files", "formats", "stamps", "terminal", "units", "registry", "rng", "version", "jit", "memory", "progress", "kept",
}  # fmt: skip
DATA = {"requests", "packed", "passing", "caveats", "records", "options", "clients", "clock", "presets"}
MAY_IMPORT: dict[str, set[str]] = {
    "answers": set(),
    "errors": set(),
    "progress": {"terminal"},
    "files": {"errors"},
    "formats": {"errors"},
    "stamps": {"errors"},
    "terminal": set(),
    "version": set(),
    "jit": set(),
    "kept": {"jit"},
    "clock": {"errors"},
    "rng": {"errors"},
    "units": {"errors"},
    "memory": {"errors", "units"},
    "registry": {"errors", "units"},
    "packed": set(),
    "requests": {"errors", "packed"},
    "passing": {"requests", "packed"},
    "records": set(),
    "options": set(),
    "clients": set(),
    "caveats": set(),
    "presets": set(),
    "workload": FOUNDATION | {"requests", "clients", "presets"},
    "hardware": FOUNDATION | {"options", "presets"},
    "cost": FOUNDATION | {"options", "hardware", "presets"},
    "calibrate": FOUNDATION | {"hardware", "cost", "presets"},
    "kv": FOUNDATION | {"options", "hardware"},
    "policies": FOUNDATION,
    "engine": FOUNDATION | DATA | {"kv", "cost", "policies"},
    "cluster": FOUNDATION | DATA | {"kv", "cost", "policies", "engine"},
    "metrics": FOUNDATION | {"requests", "records"},
    "result": FOUNDATION | {"caveats", "requests", "records", "metrics"},
    # what may be written sees only the foundation; build.py alone turns it into servers and requests
    "scenario": FOUNDATION,
    "scenario.build": FOUNDATION
    | DATA
    | {"scenario", "workload", "hardware", "cost", "kv", "policies", "cluster", "engine"},
    "long_runs": FOUNDATION | DATA | {"metrics", "scenario", "scenario.build", "cluster", "engine", "workload"},
    "simulation": FOUNDATION | DATA | {"result", "metrics", "scenario", "scenario.build", "cluster", "long_runs"},
    "policy_suite": FOUNDATION | DATA | {"cluster", "engine", "cost", "kv", "policies"},
    "report": FOUNDATION | DATA | {"result", "metrics", "simulation", "scenario", "scenario.build", "hardware", "cost", "kv", "workload", "policies", "engine", "tradeoff"},
    # many runs: it asks simulation for them, and a run of its own only for what a request takes alone (cluster/alone.py)
    "planner": FOUNDATION
    | DATA
    | {"simulation", "result", "metrics", "scenario", "scenario.build", "cluster", "engine", "hardware", "cost", "workload"},
    "benchmark": FOUNDATION | DATA | {"simulation", "scenario", "scenario.build", "report", "cost"},
    "sweep": FOUNDATION | {"scenario", "simulation", "planner"},
    "cli": FOUNDATION | DATA | {"benchmark", "result", "metrics", "simulation", "scenario", "report", "workload", "cost", "engine"}
    | {"cli_advise", "cli_calibrate", "cli_claims", "cli_completion", "cli_fits", "cli_gate", "cli_planner", "cli_report", "cli_sweep", "cli_tradeoff", "cli_validate", "cli_warm", "cli_workload"}
    | {"cli_hints"},
    "cli_hints": {"errors", "scenario"},
    "tradeoff": FOUNDATION | {"scenario", "simulation", "metrics", "planner"},
    # a user of everything that answers questions: published figures beside simulated ones
    "claims": FOUNDATION
    | DATA
    | {"simulation", "result", "metrics", "scenario", "scenario.build", "planner", "engine", "hardware", "cost", "kv"},
    "cli_claims": FOUNDATION | {"claims", "report", "cli_planner"},
    "warm": FOUNDATION | {"scenario", "simulation"},
    "cli_warm": FOUNDATION | {"warm"},
    "cli_workload": FOUNDATION | {"report", "workload"},
    "cli_fits": FOUNDATION | {"report"},
    "cli_tradeoff": FOUNDATION | {"report", "tradeoff"},
    "cli_sweep": FOUNDATION | {"report", "sweep"},
    "cli_advise": FOUNDATION | {"planner", "report", "cli_planner"},
    "cli_completion": {"cli"},
    "cli_report": FOUNDATION | {"report", "simulation", "scenario", "hardware", "cli"},
    "cli_gate": FOUNDATION | {"planner", "report", "scenario", "cli_planner"},
    "pytest_plugin": FOUNDATION | {"planner", "simulation", "scenario", "metrics", "report", "result"},
    "cli_planner": FOUNDATION | {"planner", "report", "scenario"},
    "cli_calibrate": FOUNDATION | {"report", "cost", "calibrate", "cli_measure", "cli_validate"},
    "cli_measure": {"errors"},
    # a user of the simulator, like report and benchmark: it reads measured runs, simulates them and compares
    "validate": FOUNDATION | DATA | {"simulation", "scenario", "scenario.build", "result", "metrics", "hardware", "cost"},
    "cli_validate": FOUNDATION | {"report", "validate"},
}


def room(path: Path) -> str:
    """The room that a file belongs to."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] == "scenario" and parts[1].startswith("build"):
        return "scenario.build"
    return parts[0]


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in _running_nodes(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "llmqsim" and len(parts) > 1:
                builds = parts[1] == "scenario" and parts[2:3] and parts[2].startswith("build")
                target = "scenario.build" if builds else parts[1]
                if (PACKAGE / parts[1]).exists() or (PACKAGE / f"{parts[1]}.py").exists():
                    found.add(target)
    return found


def _running_nodes(tree: ast.AST):
    """All nodes but those under `if TYPE_CHECKING:`, whose imports never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _running_nodes(node)


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    own = room(path)
    assert own in MAY_IMPORT, f"{own}: a new room; say in MAY_IMPORT what it may see"
    forbidden = imported_rooms(path) - MAY_IMPORT[own] - {own}
    assert not forbidden, f"{own} must not import {sorted(forbidden)}"


def test_the_package_never_imports_the_measuring_kit():
    for path in FILES:
        assert "import calibration" not in path.read_text() and "from calibration" not in path.read_text(), path


def test_there_is_something_to_check():
    assert len(FILES) > 30
