"""What a trace is like: lengths, arrivals, drift, sharing, demand, and what means alone would hide; pure functions."""
