"""The simulator: one step of 1F1B over 16 stages x 64 replicas on a fat tree, on one core.

    bench/run simulator [--rounds 3] [--stages 16] [--replicas 64] [--micro-batches 128]

A second size, of half the micro-batches, shows that the cost is linear in the events. `seconds` and `peak_rss_mb` are
of the first: the median of the rounds, and the most of any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from statistics import median

from contest import print_result

BUILD = Path(__file__).resolve().parent.parent / "build"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=128)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", BUILD, "--target", "simulator_bench"], check=True, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes = [options.micro_batches, max(options.micro_batches // 2, 1)]
    rounds: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for _ in range(options.rounds):
        for size in sizes:
            command = [BUILD / "bin/simulator_bench", str(options.stages), str(options.replicas), str(size)]
            done = subprocess.run(command, check=True, capture_output=True)
            rounds[size].append(json.loads(done.stdout))
    print(f"{options.stages} stages x {options.replicas} replicas, 1f1b, one core, {options.rounds} rounds")
    print(f"{'micro-batches':>14} {'events':>10} {'seconds':>9} {'ns/event':>9} {'peak MB':>9} {'simulated step':>15}")
    figures = []
    for size, results in rounds.items():
        seconds = median(result["seconds"] for result in results)
        events = results[0]["num_events"]
        peak = max(result["peak_rss_mb"] for result in results)
        figures.append((seconds, events, peak))
        print(
            f"{size:14} {events:10} {seconds:9.3f} {seconds / events * 1e9:9.0f} {peak:9.0f}"
            f" {results[0]['step_seconds']:13.3f} s"
        )
    (seconds, events, peak), (half_seconds, half_events, _) = figures
    print_result(
        {
            "bench": "simulator",
            "seconds": round(seconds, 4),
            "peak_rss_mb": round(peak, 1),
            "events": events,
            "ns_per_event": round(seconds / events * 1e9, 1),
            "ns_per_event_of_half": round(half_seconds / half_events * 1e9, 1),
        }
    )


if __name__ == "__main__":
    main()
