"""Link: carries KV from one place to another, in the order of asking, at full bandwidth. Integer bytes, integer ns."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.kv.transfer import KvLink
from llmqsim.records import LinkUsage


class Link:
    """One end's link, or the one that all share."""

    def __init__(self, name: str, terms: KvLink):
        self.usage = LinkUsage(name)
        self._terms = terms
        self._free_ns = 0

    def carry(self, asked_ns: int, size_bytes: int, fragments: int) -> int:
        """Carry bytes behind all that was asked for before; return when the last of them is across, latency left out."""
        terms, usage = self._terms, self.usage
        begin_ns = max(asked_ns, self._free_ns)
        taken_ns = rules.carry_ns(size_bytes, fragments, terms.bytes_per_us, terms.per_fragment_ns)
        self._free_ns = begin_ns + taken_ns
        usage.transfers += 1
        usage.bytes += size_bytes
        usage.busy_ns += taken_ns
        usage.queued_ns += begin_ns - asked_ns
        return self._free_ns


class Links:
    """All links of a run, made as they are first used. A transfer takes up both ends at once, each in its own order."""

    def __init__(self, terms: KvLink):
        self.terms = terms
        self._links: dict[str, Link] = {}

    def carry(self, ends: tuple[str, str], asked_ns: int, size_bytes: int, fragments: int) -> int:
        """Carry bytes from one end to the other; return when they are there."""
        names = ("shared",) if self.terms.shared else ends
        over = [self._link(name).carry(asked_ns, size_bytes, fragments) for name in names]
        return max(over) + self.terms.latency_ns

    def usage(self) -> tuple[LinkUsage, ...]:
        """Usage of each link, by name."""
        return tuple(self._links[name].usage for name in sorted(self._links))

    def _link(self, name: str) -> Link:
        if name not in self._links:
            self._links[name] = Link(name, self.terms)
        return self._links[name]
