"""Without the plugin (`pip install -e .[bench]`) there is nothing to collect here."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pytest_benchmark") else ["test_*.py"]
