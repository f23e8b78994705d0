"""Simulated steps against rehearsed ones, on hosts with links of stated rates (scripts/shaped; needs root).

    bench/run rehearse [--cases 1f1b-4,...] [--rounds 3] [--steps 4] [--transport direct]

A case is a schedule, as many hosts as ranks, a link rate, and how long an activation travels, in forwards of a stage.
The simulator knows the links by what plain TCP messages between two shaped hosts took in the same run: the latency by
small ones, the bandwidth by large ones. The error of a case is the median over rounds of simulated / rehearsed - 1; its
A/A is the largest ratio of two of its rounds, - 1. `late` is the share of the time of passes by which emulated kernels
woke up too late, which is the machine's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from contest import print_result
from shaped_links import cluster_text, link_of, message_command

ROOT = Path(__file__).resolve().parent.parent
SHAPED = [sys.executable, str(ROOT / "scripts" / "shaped"), "run", "--name", "bench"]
WORKER = str(ROOT / "build" / "bin" / "trireme-worker")
FORWARD_S, INPUT_GRADIENT_S, WEIGHT_GRADIENT_S, UPDATE_S = 0.04, 0.04, 0.04, 0.002  # of a stage
STREAMS_BYTES = (500_000, 3_000_000)


@dataclass(frozen=True)
class Case:
    schedule: str
    stages: int
    replicas: int
    micro_batches: int
    rate: float  # bytes a second
    travel: float  # of an activation, in forwards
    chunks: int = 1
    bucket: float = 0.0  # of gradients, in forwards that it would take to travel


CASES = {
    "1f1b-4": Case("1f1b", 4, 1, 8, 5e6, 0.1),
    "1f1b-4-wide": Case("1f1b", 4, 1, 8, 12.5e6, 1),
    "1f1b-4-bound": Case("1f1b", 4, 1, 8, 12.5e6, 2),
    "1f1b-8": Case("1f1b", 8, 1, 16, 12.5e6, 0.5),
    "gpipe-4": Case("gpipe", 4, 1, 8, 12.5e6, 0.5),
    "interleaved-4": Case("interleaved", 4, 1, 8, 12.5e6, 0.5, chunks=2),
    "zb-h1-8": Case("zb-h1", 8, 1, 12, 5e6, 0.2),
    "zb-v-4": Case("zb-v", 4, 1, 8, 12.5e6, 0.5, chunks=2),
    "greedy-6": Case("greedy", 6, 1, 10, 12.5e6, 0.3),
    "1f1b-4x4": Case("1f1b", 4, 4, 6, 5e6, 0.25, bucket=4),
    "zb-h1-4x2": Case("zb-h1", 4, 2, 6, 12.5e6, 0.5, bucket=6),
    "interleaved-4x3": Case("interleaved", 4, 3, 8, 5e6, 0.2, chunks=2, bucket=4),
}


@dataclass
class Measured:
    """Of one case, by round."""

    simulated: list[float] = field(default_factory=list)
    rehearsed: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def error(self) -> float:
        return statistics.median(s / r for s, r in zip(self.simulated, self.rehearsed, strict=True)) - 1


def shaped(hosts: int, rate: float, command: list[object]) -> str:
    words = [*SHAPED, "--hosts", str(hosts), "--rate", f"{rate:.0f}", "--", *map(str, command)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def measure_link(rate: float) -> tuple[float, float]:
    """Seconds of latency and bytes a second between two hosts."""
    return link_of(shaped(2, rate, message_command(9, STREAMS_BYTES)), STREAMS_BYTES)


def costs_text(case: Case) -> str:
    message = round(case.travel * FORWARD_S / case.chunks * case.rate)
    chunk = {
        "forward_ns": round(FORWARD_S / case.chunks * 1e9),
        "backward_ns": round((INPUT_GRADIENT_S + WEIGHT_GRADIENT_S) / case.chunks * 1e9),
        "input_gradient_ns": round(INPUT_GRADIENT_S / case.chunks * 1e9),
        "weight_gradient_ns": round(WEIGHT_GRADIENT_S / case.chunks * 1e9),
        "activation_bytes": message,
        "gradient_bytes": message,
    }
    stage = {
        "chunks": [chunk] * case.chunks,
        "update_ns": round(UPDATE_S * 1e9),
        "bucket_bytes": [round(case.bucket * FORWARD_S * case.rate)] if case.replicas > 1 else [],
    }
    return json.dumps({"format": "trireme-step-costs-1", "stages": [stage] * case.stages, "scalar_bytes": 16})


def rehearse(folder: Path, case: Case, link: tuple[float, float], options: argparse.Namespace) -> dict:
    ranks = case.stages * case.replicas
    (folder / "costs.yaml").write_text(costs_text(case))
    (folder / "cluster.yaml").write_text(cluster_text(ranks, *link))
    command = [
        *(WORKER, "rehearse", case.schedule, "--costs", folder / "costs.yaml", "--cluster", folder / "cluster.yaml"),
        *("--dp", case.replicas, "--micro-batches", case.micro_batches, "--steps", options.steps),
        *("--transport", options.transport, "--json", "--quiet"),
    ]
    return json.loads(shaped(ranks, case.rate, command))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--transport", default="direct", choices=["direct", "gloo"])
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"bench: there is no case {unknown[0]}; known are {', '.join(CASES)}")
    links = {rate: measure_link(rate) for rate in sorted({CASES[name].rate for name in names})}
    for rate, (latency, bandwidth) in links.items():
        print(f"link of {rate / 1e6:g} MB/s: {latency * 1e6:.0f} us, {bandwidth / 1e6:.2f} MB/s measured")
    results = {name: Measured() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, measured in results.items():
                found = rehearse(Path(folder), CASES[name], links[CASES[name].rate], options)
                measured.simulated.append(found["simulated_step_ns"])
                measured.rehearsed.append(found["rehearsed_step_ns"])
                compute = sum(rank["compute_ns"] for rank in found["ranks"])
                measured.late.append(sum(rank["late_ns"] for rank in found["ranks"]) / compute)
    print(f"\n{'case':<18}{'ranks':>6}{'travel':>8}{'simulated':>12}{'rehearsed':>12}{'error':>9}{'A/A':>8}{'late':>8}")
    for name, measured in results.items():
        case = CASES[name]
        print(
            f"{name:<18}{case.stages * case.replicas:>6}{case.travel:>8g}"
            f"{statistics.median(measured.simulated) / 1e6:>9.1f} ms"
            f"{statistics.median(measured.rehearsed) / 1e6:>9.1f} ms"
            f"{measured.error():>+9.1%}{max(measured.rehearsed) / min(measured.rehearsed) - 1:>8.1%}"
            f"{statistics.median(measured.late):>8.2%}"
        )
    errors = [abs(measured.error()) for measured in results.values()]
    print_result(
        {
            "bench": "rehearse",
            "median_error": statistics.median(errors),
            "worst_error": max(errors),
            "aa_spread": statistics.median(max(m.rehearsed) / min(m.rehearsed) - 1 for m in results.values()),
            "lateness": statistics.median(late for m in results.values() for late in m.late),
            "transport": options.transport,
        }
    )


if __name__ == "__main__":
    main()
