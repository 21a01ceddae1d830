"""Routing: which replica? Importing this package registers the built-in policies; docs/policies.md lists them.

`blind.py` looks at no replica; `load.py` at how much each has; `affinity.py` at who has been where before; `groups.py`
gives parts of the traffic replicas of their own.
"""

from llmqsim.policies.routing import affinity, blind, groups, load
from llmqsim.policies.routing.blind import Random, RoundRobin
from llmqsim.policies.routing.load import LeastOutstanding

__all__ = ["LeastOutstanding", "Random", "RoundRobin", "affinity", "blind", "groups", "load"]
