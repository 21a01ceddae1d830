"""Swappable rules of the queue. Importing this package registers the built-in ones."""

from llmqsim.policies import batching, ordering, placement, preemption, routing

__all__ = ["batching", "ordering", "placement", "preemption", "routing"]
