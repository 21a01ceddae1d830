"""The merged tree of a scenario as the checks over several keys read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llmqsim.scenario.layers import SERVER_KEYS
from llmqsim.scenario.source import Node

Finding = tuple[str, str]
"""dotted key, sentence"""
Check = Callable[["Tree"], Iterator[Finding]]


class Tree:
    """What was written, by dotted key."""

    def __init__(self, root: Node):
        self.root = root

    def node(self, key: str) -> Node | None:
        """The node at a dotted key, or None."""
        node: Node | None = self.root
        for part in key.split("."):
            node = node.value.get(part) if node is not None and node.is_mapping else None
        return node

    def get(self, key: str) -> Any:
        """The plain value at a dotted key, or None."""
        node = self.node(key)
        return None if node is None else node.plain()

    def whole(self, key: str) -> int | None:
        """The value, if it is a whole number."""
        value = self.get(key)
        return value if type(value) is int else None

    def __contains__(self, key: str) -> bool:
        return self.node(key) is not None

    def names(self, key: str) -> list[str]:
        """The names in a mapping of the user's own names."""
        node = self.node(key)
        return list(node.value) if node is not None and node.is_mapping else []

    def pool(self, name: str) -> Tree:
        """One pool's keys as if they stood at the top level."""
        pool = self.node(f"pools.{name}")
        shared = {key: node for key, node in self.root.value.items() if key not in SERVER_KEYS and key != "pools"}
        return Tree(Node({**shared, **(pool.value if pool.is_mapping else {})}, pool.place))

    def pool_key(self, name: str, key: str) -> str:
        """Where a pool has a key from: its own place, or the top level."""
        inner, top = self.node(f"pools.{name}.{key}"), self.node(key)
        mine = key.split(".")[0] in SERVER_KEYS and (inner is None or top is None or inner.place != top.place)
        return f"pools.{name}.{key}" if mine else key

    def traffic(self) -> list[str]:
        """Every place that may hold arrivals and lengths: the workload and its classes."""
        return ["workload", *(f"workload.classes.{name}" for name in self.names("workload.classes"))]

    def slos(self) -> list[str]:
        """Every place that holds targets."""
        places = ["slo", *(f"{place}.slo" for place in self.traffic()[1:])]
        return [key for key in places if (node := self.node(key)) is not None and node.is_mapping]

    def at(self, key: str) -> str:
        """The key with its place, for the other half of a contradiction."""
        node = self.node(key)
        return f"{key} ({node.place})" if node else key
