"""Many runs of one scenario: a grid file says which keys take which values, a store keeps every finished point.

`read_grid` (grid.py) → points (axes.py, points.py) → executor (local.py, distributed.py) → store (store.py) → table
(table.py). Read `sweep.py` first: it is the loop that the rest serves.
"""

from __future__ import annotations

from llmqsim.sweep.grid import Grid, read_grid
from llmqsim.sweep.sweep import Swept, sweep

__all__ = ["Grid", "Swept", "read_grid", "sweep"]
