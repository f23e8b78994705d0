"""What `bench/run shaped` has measured: kept as JSON, and said as tables and figures."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from bound import Load
from contest import print_result

OURS = "trirace"
AGAIN = f"{OURS} again"
LEAST_SPREAD = 0.02  # few rounds may agree by chance


@dataclass
class Point:
    ratio: float  # of link to compute, as asked for
    rate: float  # bytes a second, as a plain stream has it
    latency_s: float
    rounds: dict[str, list[float]]  # by contestant, seconds of the mean step
    simulated: dict[str, float]  # by contestant that is ours, seconds of a step
    warm_ups: str = ""  # extra ones of ours, by hop
    # By contestant that is ours and kind, seconds a step that a rank waits for what is under way.
    exposed_s: dict[str, dict[str, float]] = field(default_factory=dict)

    def step_s(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def against_ours(self, name: str) -> float:
        return statistics.median(t / o for t, o in zip(self.rounds[name], self.rounds[OURS], strict=True))

    def spread(self) -> float:
        """Of ours against itself."""
        return max(abs(a / o - 1) for a, o in zip(self.rounds[AGAIN], self.rounds[OURS], strict=True))

    def simulation_error(self, name: str) -> float:
        """Of the ratio to ours."""
        return self.simulated[name] / self.simulated[OURS] / self.against_ours(name) - 1

    def pairs_in_order(self) -> tuple[int, int]:
        """Of the pairs of simulated contestants that differ by more than the spread, how many differ alike; and all."""
        spread = max(self.spread(), LEAST_SPREAD)
        alike = count = 0
        for one, other in itertools.combinations(self.simulated, 2):
            measured = self.step_s(one) / self.step_s(other)
            if abs(measured - 1) > spread:
                count += 1
                alike += (measured > 1) == (self.simulated[one] > self.simulated[other])
        return alike, count

    def others(self) -> list[str]:
        return [name for name in self.rounds if name not in (OURS, AGAIN)]


@dataclass
class Contest:
    case: str
    title: str
    load: Load  # with all sums whole
    own: Load  # of ours: sparse sums are of the rows alone
    points: list[Point]


@dataclass
class Record:
    measured: list[str]  # when, where, with what
    core_share: float
    contests: list[Contest]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Record:
        read = json.loads(text)
        contests = [
            Contest(
                entry["case"],
                entry["title"],
                Load(**entry["load"]),
                Load(**entry["own"]),
                [Point(**point) for point in entry["points"]],
            )
            for entry in read["contests"]
        ]
        return Record(read["measured"], read["core_share"], contests)

    def points(self) -> Iterator[tuple[Contest, Point]]:
        for contest in self.contests:
            for point in contest.points:
                yield contest, point


def figures_of(record: Record) -> dict[str, float | str]:
    by_name: dict[str, list[float]] = {}
    errors: list[float] = []
    step_errors: list[float] = []
    pairs: list[tuple[int, int]] = []
    factors: dict[str, list[float]] = {"compute": [], "link": []}
    for contest, point in record.points():
        for name in point.others():
            by_name.setdefault(name, []).append(point.against_ours(name))
        errors += [point.simulation_error(name) for name in point.simulated if name != OURS]
        step_errors += [point.simulated[name] / point.step_s(name) - 1 for name in point.simulated]
        pairs.append(point.pairs_in_order())
        if contest.own.is_steep(point.rate):
            is_link = contest.own.link_s(point.rate) > max(contest.own.compute_s)
            factor = point.step_s(OURS) / contest.own.bound_s(point.rate)
            factors["link" if is_link else "compute"].append(factor)
    figures: dict[str, float | str] = {"bench": "shaped", "core_share": record.core_share}
    for name, ratios in by_name.items():
        key = {"1f1b": "flush"}.get(name, name)
        figures[f"best_ratio_{key}"] = max(ratios)
        figures[f"geomean_{key}"] = math.exp(statistics.mean(map(math.log, ratios)))
    figures["worst_ratio"] = min(ratio for ratios in by_name.values() for ratio in ratios)
    figures["aa_spread"] = statistics.median(point.spread() for _, point in record.points())
    figures["aa_spread_worst"] = max(point.spread() for _, point in record.points())
    if errors:
        figures["simulated_ratio_median_error"] = statistics.median(map(abs, errors))
        figures["simulated_ratio_worst_error"] = max(map(abs, errors))
        figures["simulated_step_median_error"] = statistics.median(map(abs, step_errors))
        figures["simulated_pairs_in_order"] = sum(alike for alike, _ in pairs)
        figures["simulated_pairs"] = sum(count for _, count in pairs)
    figures |= {f"bound_factor_{kind}": max(values) for kind, values in factors.items() if values}
    return figures


def print_record(record: Record) -> None:
    print("\n".join(record.measured))
    print(f"* Each host has {record.core_share:g} of a core.")
    for contest in record.contests:
        print_contest(contest)
    print_result(figures_of(record))


def print_contest(contest: Contest) -> None:
    load = contest.load
    print(
        f"\n{contest.title}\n  a step computes {max(load.compute_s) * 1e3:.0f} ms on the busiest rank, and the busiest "
        f"link carries {load.link_bytes / 1e6:.2f} MB, of trirace {contest.own.link_bytes / 1e6:.2f} MB"
    )
    others = contest.points[0].others()
    heads = "".join(f"{name:>17}" for name in others)
    print(f"{'link / compute':>16}{'rate':>13}{'bound':>11}{OURS:>11}{'x bound':>9}{'A/A':>8}{'warm-ups':>10}{heads}")
    for point in contest.points:
        bound = contest.own.bound_s(point.rate)
        ratios = "".join(f"{ratio_text(point, name):>17}" for name in others)
        print(
            f"{load.link_s(point.rate) / max(load.compute_s):>16.2f}{point.rate / 1e6:>8.2f} MB/s{bound * 1e3:>8.0f} ms"
            f"{point.step_s(OURS) * 1e3:>8.0f} ms{point.step_s(OURS) / bound:>9.3f}{point.spread():>8.1%}"
            f"{point.warm_ups:>10}{ratios}"
        )
    print_exposed(contest)


def print_exposed(contest: Contest) -> None:
    """Where sending takes about as long as computing, so that most can be hidden."""
    point = min(contest.points, key=lambda each: abs(math.log(each.ratio)))
    texts = [
        f"{name} " + " + ".join(f"{seconds * 1e3:.0f} ms of {kind}" for kind, seconds in kinds.items())
        for name, kinds in point.exposed_s.items()
    ]
    if texts:
        print(f"  a rank waits at {point.ratio:g}: {'; '.join(texts)}")


def ratio_text(point: Point, name: str) -> str:
    """Measured, and what was simulated."""
    simulated = f" ({point.simulated[name] / point.simulated[OURS]:.2f})" if name in point.simulated else ""
    return f"{point.against_ours(name):.3f}x{simulated}"
