"""Our counter-based dropout against aten's: forward and backward over 4 M floats.

    bench/run dropout [--rounds 7] [--steps 30] [--threads 1]

Ours saves nothing: its backward counts the mask again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import torch
from contest import compete, print_result, print_table

BUILD = Path(__file__).resolve().parent.parent / "build"
WARM_UP_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", BUILD, "--target", "dropout_bench"], check=True, stdout=subprocess.DEVNULL)

    def run(who: str) -> list[float]:
        command = [BUILD / "bin/dropout_bench", who, str(options.threads), str(options.steps)]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    outcome = compete(
        {"trireme": lambda: run("ours"), "aten": lambda: run("aten"), "trireme again": lambda: run("ours")},
        options.rounds,
        WARM_UP_STEPS,
    )
    ratios = print_table(f"dropout, {options.threads} threads", outcome, "trireme", "trireme again")
    ratios["ratio_dropout"] = ratios.pop("aten")
    print_result({"bench": "dropout", "torch": torch.__version__, "threads": options.threads, **ratios})


if __name__ == "__main__":
    main()
