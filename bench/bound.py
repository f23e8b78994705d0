"""What no schedule can beat: the busiest rank's compute, or the busiest link's bytes at its rate.

    bound = max( max over ranks of compute, max over links and directions of bytes / rate )

Bytes come from the timeline of a run (`trireme report --json`), as they were sent; the compute of a rank is the
processor time of its passes in that run, over its share of a core. Each rank has a host with a link of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUMS = ("AR stage ", "SX stage ")  # over replicas: of buckets, and of rows of tables


@dataclass(frozen=True)
class Load:
    """Of one step."""

    compute_s: list[float]  # by rank
    sent_bytes: list[float]  # by rank, of payload
    received_bytes: list[float]

    @property
    def link_bytes(self) -> float:
        """Of the busiest direction of a link."""
        return max(*self.sent_bytes, *self.received_bytes)

    def link_s(self, rate: float) -> float:
        return self.link_bytes / rate

    def bound_s(self, rate: float) -> float:
        return max(*self.compute_s, self.link_s(rate))

    def is_steep(self, rate: float, most: float = 0.8) -> bool:
        """The smaller of compute and link is at most this share of the larger."""
        compute, link = max(self.compute_s), self.link_s(rate)
        return min(compute, link) <= most * max(compute, link)


def load_of(report: dict[str, Any], compute_s: list[float]) -> Load:
    """Of the mean step of a timeline, and what it computes by rank."""
    stages, replicas, steps = report["stages"], report["replicas"], report["steps"]
    sent, received = [0.0] * (stages * replicas), [0.0] * (stages * replicas)

    def pass_on(source: int, target: int, size: float) -> None:
        sent[source] += size / steps
        received[target] += size / steps

    for link in report["links"]:
        name, size = link["name"], link["bytes"]
        if ">" in name:
            source, target = map(int, name.split(">"))
            pass_on(source, target, size)
        elif name.startswith(SUMS):
            # Each member sends all of its sum but a part of 1 / replicas, first as terms and then as sums, and receives
            # as much: no all-reduce does with less (Patarasuk and Yuan,
            # "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
            stage = int(name.split()[-1])
            members = [replica * stages + stage for replica in range(replicas)]
            for place, member in enumerate(members):
                pass_on(member, members[place - 1], 2 * (replicas - 1) / replicas * size)
        elif name != "SC":  # scalars are some bytes
            raise ValueError(f"no rule for the bytes of {name}")
    return Load(compute_s, sent, received)


def exposed_of(report: dict[str, Any]) -> dict[str, float]:
    """Seconds a step that a rank waits for bytes under way, in the mean of the ranks, by their kind."""
    kinds = {"transfers": 0.0, "sums": 0.0}
    ranks = report["stages"] * report["replicas"]
    for link in report["links"]:
        kind = "transfers" if ">" in link["name"] else "sums"
        # Of a transfer its receiver waits; a collective has the mean of its members.
        members = {"AR": report["replicas"], "SX": report["replicas"], "TR": report["stages"], "SC": ranks}
        waiting = 1 if kind == "transfers" else members[link["name"][:2]]
        kinds[kind] += link["exposed_ns"] / 1e9 * waiting / ranks / report["steps"]
    return kinds
