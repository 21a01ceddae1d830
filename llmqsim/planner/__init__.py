"""Questions that take many runs: comparing variants, sizing, capacity, the gate. Each answer comes with its interval."""
