"""The group: all who decode, as one. A step costs O(1), and a request that joins or leaves costs O(log n).

A member gets one token in every step from the one after it joined, so that all it will do is known when it joins
(members.py). Steps are numbered by replica from 1: `usage.steps` were committed, `usage.steps` + `steps` were formed. Those
who don't decode yet (`prefilling`) are rows of a step as in step/. When memory is short, the group is closed (opening.py),
and the step is formed there.
"""
