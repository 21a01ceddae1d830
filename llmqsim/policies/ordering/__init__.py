"""Ordering: who is next in the waiting queue? One module for each thing that an ordering may go by."""

from llmqsim.policies.ordering import arrival, cache, deadline, service, size
from llmqsim.policies.ordering.arrival import Fcfs, Priority

__all__ = ["Fcfs", "Priority", "arrival", "cache", "deadline", "service", "size"]
