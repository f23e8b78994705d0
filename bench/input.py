"""What a step waits for its input, and how long a run takes to its first step.

    bench/run input [--rounds 5] [--steps 30]

A feed whose reading takes half as long as what a step computes is read ahead of the step, and within it. A run is
started with one rank and with four; next to it, what a Python process takes to import torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from contest import compete, print_result, print_table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DATA = ROOT / "tests/data"
WARM_UP_STEPS = 3
TOKENS_A_STEP = 256 * 16384  # of input.cc


def start_up(*options: Any) -> float:
    """The seconds of a run of one step."""
    data = f"safetensors:{DATA / 'nanogpt.data.safetensors'}"
    words = ["train", DATA / "nanogpt.f32.pt2", "--data", data, "--batch", 8, "--steps", 1, "--quiet", *options]
    begin = time.perf_counter()
    subprocess.run([str(w) for w in (BUILD / "bin/trireme", *words)], check=True)
    return time.perf_counter() - begin


def import_torch() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", BUILD, "--target", "input_bench"], check=True, stdout=subprocess.DEVNULL)
    waits: dict[str, list[float]] = {"ahead": [], "in_step": []}
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.bin"
        tokens.write_bytes(bytes(2 * TOKENS_A_STEP * options.steps))

        def run(who: str) -> list[float]:
            command = [BUILD / "bin/input_bench", who, tokens, str(options.steps)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            waits[who].append(statistics.median(found["waits"][WARM_UP_STEPS:]))
            return found["steps"]

        outcome = compete(
            {
                "reads ahead": lambda: run("ahead"),
                "reads in the step": lambda: run("in_step"),
                "reads ahead again": lambda: run("ahead"),
            },
            options.rounds,
            WARM_UP_STEPS,
        )
    ratios = print_table("a step whose input takes half as long", outcome, "reads ahead", "reads ahead again")
    figures = {"ratio_in_step": ratios.pop("reads in the step"), **ratios}
    figures |= {f"wait_ms.{who}": 1e3 * statistics.median(seconds) for who, seconds in waits.items()}
    for who in waits:
        print(f"  waits for its input, {who:<12} {figures[f'wait_ms.{who}']:9.3f} ms")
    runs = {
        "1_rank": lambda: start_up(),
        "4_ranks": lambda: start_up("--pp", 2, "--dp", 2),
        "import_torch": import_torch,
    }
    print("\na run of one step, from its start to its end")
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, timed in runs.items():
            times[name].append(timed())
    for name, seconds in times.items():
        figures[f"start_up_s.{name}"] = statistics.median(seconds)
        print(f"  {name:<24} {statistics.median(seconds):9.3f} s  ({min(seconds):.3f} .. {max(seconds):.3f})")
    print_result({"bench": "input", "torch": torch.__version__, **figures})


if __name__ == "__main__":
    main()
