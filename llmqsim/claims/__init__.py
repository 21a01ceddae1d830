"""The field's well-known figures, put to the test: `llmqsim claims`.

How to add a claim, C99:

1. `llmqsim/claims/scenarios/c99.yaml`: an ordinary scenario with variants. Its header comment has the question, the published
   figure and its source. What the claim assumes stands in it as a value, never in the code.
2. `llmqsim/claims/c99.py` with one function `measure(setting: Setting) -> list[Figure]`: it loads the scenario's
   variants (`setting.load`), runs them, and returns a figure for each check. A figure has what was published, what was
   simulated, and the assumption that it rests on. `setting.size(full, reduced)` chooses the size of the work; which
   checks there are does not depend on it. `Figure.over_seeds` takes one value a seed and tells the interval of their mean.
3. A line in `CLAIMS` (registry.py).
4. `llmqsim/claims/scenarios/bands.yaml`: for each check that is judged, the lowest and the highest value that still count as
   reproduced, `C99: {"words of the check": [low, high]}`; null is no limit. A check without a band is told, not judged.
5. `tests/claims/test_c99.py`: `measured("C99")` of tests/claims/claims.py gives the judged lines at reduced size.

A figure outside its band stays there with `holds: false` and the figure's `reason`; neither the engine nor a cost is bent.
One whose interval over seeds holds an end of its band is undecided.
"""

from __future__ import annotations

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.registry import CLAIMS
from llmqsim.claims.run import FOLDER, claims

__all__ = ["CLAIMS", "FOLDER", "Figure", "Setting", "claims"]
