"""Swappable rules of the queue. Importing this package registers the built-in ones."""

from llmqsim.policies import admission, batching, ordering, placement, preemption, routing

__all__ = ["admission", "batching", "ordering", "placement", "preemption", "routing"]
