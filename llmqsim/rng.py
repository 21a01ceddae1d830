"""Named random streams. A new stream never shifts an old one, and replications never overlap.

A stream is identified by (seed, replication, name). The name enters through a stable hash (SHA-256), never through
Python's randomised string hash or the order of creation.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, replication: int, name: str) -> np.random.Generator:
    """Return the generator (PCG64) of one named stream.

    seed : int >= 0, the experiment. replication : int >= 0, the sample of that experiment.
    """
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, replication, *words])))
