"""Whether `trireme tune-comm` picks well: what it picks for a plan against all that it could have picked, in training
over links of stated rates (needs root).

    bench/run tuned [--cases gpt-2x2-m4,embedding-2x2-m4] [--schedules 1f1b,2bw] [--ratios 0.5,2] [--rounds 3]
                    [--steps 8] [--core-share 0.38] [--budget 4]

Hosts, cases and ratios are those of `bench/run shaped`. `tune-comm` sees a profile that was measured at the hosts'
share of a core and the link as it was measured. Candidates are --comm with --bucket-bytes; they take turns.
`worst_pick` is the pick's step / the best candidate's, both as medians of the rounds, at worst; `aa_spread` the most
that the pick differs from itself; `tune_seconds` what the slowest search took.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ours
from contest import print_result
from shaped import CORE_SHARE, prepare, say
from shaped_cases import CASES, Case
from shaped_contestants import Field, Row
from shaped_links import UNSHAPED, Hosts, cluster_text
from shaped_simulation import layout, profile, profile_of

POLICIES = ("end", "fifo", "trirace")
BUCKET_BYTES = (1_000_000, 4_000_000)
PICK, AGAIN = "pick", "pick again"


def candidates(schedule: str) -> dict[str, Row]:
    """By what they are; sums at the end gain nothing by smaller buckets."""
    options = {"end": ("--comm", "end")}
    for policy, size in itertools.product(POLICIES[1:], (None, *BUCKET_BYTES)):
        words = ("--bucket-bytes", str(size)) if size else ()
        options[f"{policy} {size / 1e6:g} MB" if size else policy] = ("--comm", policy, *words)
    return {name: row_of(schedule, words) for name, words in options.items()}


def row_of(schedule: str, words: tuple[str, ...]) -> Row:
    return Row(("--schedule", schedule, *words), is_late=schedule == "2bw")


def tune(
    folder: Path, case: Case, core_share: float, schedule: Row, latency_s: float, rate: float
) -> tuple[tuple[str, ...], float]:
    """The options that were picked, and the seconds that it took."""
    (folder / "cluster.yaml").write_text(cluster_text(case.ranks, latency_s, rate, core_share))
    command: list[Any] = [
        *(ours.BINARY, "tune-comm", folder / "model.pt2", "--profile", profile_of(folder, schedule.options)),
        *("--cluster", folder / "cluster.yaml", *layout(case), "--dp", case.replicas, *schedule.options, "--json"),
    ]
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE)
    seconds = time.monotonic() - begin
    pick = json.loads(done.stdout)["pick"]
    size = ("--bucket-bytes", str(pick["bucket_bytes"])) if "bucket_bytes" in pick else ()
    return ("--comm", pick["policy"], *size), seconds


def measure(hosts: Hosts, root: Path, case: Case, schedule: str, options: argparse.Namespace) -> list[dict[str, float]]:
    """Of each ratio."""
    rows = candidates(schedule)
    found = []
    with Field(hosts, root / case.model, case, [], rows) as field:
        hosts.set_rate(UNSHAPED)
        load = field.load("end", options.steps)
        for ratio in map(float, options.ratios.split(",")):
            rate = load.link_bytes / (ratio * max(load.compute_s))
            hosts.set_rate(rate)
            latency, measured = hosts.measure_link(rate)
            words, seconds = tune(field.folder, case, options.core_share, row_of(schedule, ()), latency, measured)
            rows |= {PICK: row_of(schedule, words), AGAIN: row_of(schedule, words)}
            steps: dict[str, list[float]] = {name: [] for name in rows}
            for _ in range(options.rounds):
                for name in rows:
                    steps[name].append(field.step_seconds(name, options.steps, max(load.compute_s) * (2 + ratio)))
            medians = {name: statistics.median(each) for name, each in steps.items()}
            # The pick was measured twice as often, and is one of the candidates.
            pick = statistics.median(steps[PICK] + steps[AGAIN])
            best = min(medians, key=medians.__getitem__)
            spread = max(abs(again / once - 1) for once, again in zip(steps[PICK], steps[AGAIN], strict=True))
            print(
                f"{case.name:<18}{schedule:>6}{ratio:>6g}  picks {' '.join(words):<44}{pick * 1e3:>7.1f} ms, best "
                f"{medians[best] * 1e3:.1f} ms ({best}): {pick / medians[best]:.3f} of it, worst "
                f"{max(medians.values()) / medians[best]:.3f}; A/A {spread:.1%}; found in {seconds:.2f} s",
                flush=True,
            )
            found.append({"pick": pick / medians[best], "spread": spread, "seconds": seconds})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="gpt-2x2-m4,embedding-2x2-m4")
    parser.add_argument("--schedules", default="1f1b,2bw")
    parser.add_argument("--ratios", default="0.5,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--budget", type=float, default=4)
    parser.add_argument("--core-share", type=float, default=CORE_SHARE)
    options = parser.parse_args()
    if unknown := [name for name in options.cases.split(",") if name not in CASES]:
        sys.exit(f"bench: --cases has no {unknown[0]}; known are {', '.join(CASES)}")
    if options.steps < 5:
        sys.exit("bench: --steps 5 are the fewest: four of them are not timed")
    os.environ["OMP_NUM_THREADS"] = "1"
    cases = [CASES[name] for name in options.cases.split(",")]
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        say("exporting the models")
        prepare(Path(folder), list(dict.fromkeys(case.model for case in cases)))
        with Hosts("bench-tuned", max(case.ranks for case in cases), options.core_share) as hosts:
            for case in cases:
                hosts.set_rate(UNSHAPED)
                profile(hosts, Path(folder) / case.model, case, options.budget)
                for schedule in options.schedules.split(","):
                    say(f"{case.name}, {schedule}")
                    found += measure(hosts, Path(folder), case, schedule, options)
    print_result(
        {
            "bench": "tuned",
            "worst_pick": max(each["pick"] for each in found),
            "median_pick": statistics.median(each["pick"] for each in found),
            "aa_spread": statistics.median(each["spread"] for each in found),
            "aa_spread_worst": max(each["spread"] for each in found),
            "tune_seconds": max(each["seconds"] for each in found),
        }
    )


if __name__ == "__main__":
    main()
