"""Interleaved rounds of contestants, and what they say.

A contestant is a function that trains some steps in a process of its own and returns the seconds of each step. Rounds
go A B A' C A B A' C ..., so that a drift of the machine meets all alike. A step's time is the median over a round
without its first steps; the ratio is the median over rounds of theirs / ours.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Contestant = Callable[[], list[float]]


@dataclass
class Outcome:
    """Median seconds a step of each round, by contestant."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, ours: str) -> float:
        return statistics.median(t / o for t, o in zip(self.rounds[name], self.rounds[ours], strict=True))


def compete(
    contestants: dict[str, Contestant], rounds: int, warm_up_steps: int, before_round: Callable[[], None] | None = None
) -> Outcome:
    """`before_round` measures something else that meets the same drift."""
    outcome = Outcome({name: [] for name in contestants})
    for _ in range(rounds):
        if before_round is not None:
            before_round()
        for name, contestant in contestants.items():
            seconds = contestant()
            outcome.rounds[name].append(statistics.median(seconds[warm_up_steps:]))
    return outcome


def check_losses(title: str, mine: list[float], theirs: list[float]) -> None:
    """Both must have trained the same: the losses of the first 10 steps agree."""
    worst = max(abs(a - b) / abs(b) for a, b in zip(mine[:10], theirs[:10], strict=True))
    if worst > 1e-4:
        sys.exit(f"bench: {title}: the losses of the first 10 steps differ by {worst:.1e}")


def print_table(title: str, outcome: Outcome, ours: str, again: str) -> dict[str, float]:
    """Prints one contest; returns the ratios of the others, and the A/A spread."""
    ratios = {name: outcome.ratio(name, ours) for name in outcome.rounds if name not in (ours, again)}
    spread = [a / b for a, b in zip(outcome.rounds[again], outcome.rounds[ours], strict=True)]
    print(f"\n{title}")
    for name in outcome.rounds:
        ratio = "" if name == ours else f"  {outcome.ratio(name, ours):6.3f} x ours"
        low, high = min(outcome.rounds[name]), max(outcome.rounds[name])
        print(f"  {name:<24} {outcome.median(name) * 1e3:9.2f} ms  ({low * 1e3:.2f} .. {high * 1e3:.2f}){ratio}")
    print(f"  A/A: {min(spread):.3f} .. {max(spread):.3f}")
    return ratios | {"a_a_low": min(spread), "a_a_high": max(spread)}


def read_record(path: Path) -> str:
    """What a run with --record has kept."""
    try:
        return path.read_text()
    except OSError as error:
        sys.exit(f"bench: --from {path}: {error.strerror}")


def print_result(figures: dict[str, float | str]) -> None:
    print("RESULT " + json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}))
