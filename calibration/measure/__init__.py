"""The measuring kit: kernel timings of the user's own GPU, in the schema of the kernel tables that `fit` reads.

    llmqsim calibrate measure --out my_gpu --minutes 30

To read it: `schema.py` (what a row is), `shapes.py` (what may be measured), `plan.py` (in which order), `timer.py` (how
one call is timed), `store.py` (rows that survive a kill), `session.py` (the loop). Only `torch_kernels/` needs PyTorch.
"""
