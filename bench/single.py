"""One worker against the eager loop with its own best settings, and against torch.compile: whole steps.

    bench/run single [--cases gpt,mlp] [--rounds 5] [--steps 30] [--seconds 2] [--no-compile]

A round has at least `--steps` steps and, by the time of a first run, lasts about `--seconds` or more.
Ours is `trireme train`, timed by its own metrics; theirs is the loop below in a process of its own. Both read the same
rows from memory or a mapped file, run forward, backward and AdamW (fused) on one thread. The losses are compared
before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ours
import torch
from contest import Contestant, check_losses, compete, print_result, print_table
from models import CASES

WARM_UP_STEPS = 5


def eager_loop(case_name: str, folder: Path, steps: int, compiles: bool) -> None:
    """Runs in its own process; prints the seconds and losses of its steps as JSON."""
    torch.set_num_threads(1)
    case = CASES[case_name]
    model = case.build()
    model.load_state_dict(torch.load(folder / "weights.pt"))
    model.train()
    rows = torch.load(folder / "rows.pt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(lambda x, y: case.loss(model(x), y)) if compiles else lambda x, y: case.loss(model(x), y)
    seconds, losses = [], []
    for step in range(steps):
        begin = time.perf_counter()
        at = step * case.batch % len(rows[0])
        x, y = (t[at : at + case.batch] for t in rows)
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "losses": losses}))


def run_eager(case_name: str, folder: Path, steps: int, compiles: bool) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--loop", case_name, "--folder", str(folder), "--steps", str(steps)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command + (["--compile"] if compiles else []), check=True, capture_output=True, env=environment
    )
    return json.loads(done.stdout)


def run_ours(case_name: str, folder: Path, steps: int) -> dict[str, list[float]]:
    return ours.train(folder, CASES[case_name].batch, steps)


def prepare(case_name: str, folder: Path) -> None:
    torch.manual_seed(0)
    case = CASES[case_name]
    ours.prepare(folder, case.build(), case.data(64 * case.batch), case.batch, case.loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        eager_loop(options.loop, options.folder, options.steps, options.compile)
        return
    figures: dict[str, float | str] = {"bench": "single", "torch": torch.__version__}
    for case_name in options.cases.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(case_name, folder)
            first = run_eager(case_name, folder, 10, False)
            check_losses(case_name, run_ours(case_name, folder, 10)["losses"], first["losses"])
            steps = max(options.steps, round(options.seconds / min(first["seconds"])))
            contestants: dict[str, Contestant] = {
                "trireme": lambda: run_ours(case_name, folder, steps)["seconds"],  # noqa: B023
                "eager": lambda: run_eager(case_name, folder, steps, False)["seconds"],  # noqa: B023
                "trireme again": lambda: run_ours(case_name, folder, steps)["seconds"],  # noqa: B023
            }
            if not options.no_compile:
                contestants["compile"] = lambda: run_eager(case_name, folder, steps, True)["seconds"]  # noqa: B023
            outcome = compete(contestants, options.rounds, WARM_UP_STEPS)
            ratios = print_table(case_name, outcome, "trireme", "trireme again")
            figures |= {
                f"ratio_{key}.{case_name}" if not key.startswith("a_a") else f"{key}.{case_name}": value
                for key, value in ratios.items()
            }
    print_result(figures)


if __name__ == "__main__":
    main()
