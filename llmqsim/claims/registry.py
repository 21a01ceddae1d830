"""Every claim by its name."""

from __future__ import annotations

from collections.abc import Callable

from llmqsim.claims import c01, c02, c03, c04, c05, c06, c07, c08, c09, c10, c11, c12, distserve
from llmqsim.claims.figure import Figure, Setting

CLAIMS: dict[str, Callable[[Setting], list[Figure]]] = {
    "C01": c01.measure,
    "C02": c02.measure,
    "C03": c03.measure,
    "C04": c04.measure,
    "C05": c05.measure,
    "C06": c06.measure,
    "C07": c07.measure,
    "C08": c08.measure,
    "C09": c09.measure,
    "C10": c10.measure,
    "C11": c11.measure,
    "C12": c12.measure,
    "DistServe": distserve.measure,
}
"""in the order in which they are run and listed"""
