"""Predicted steps against measured ones: `trireme train --predict` with profiles that never saw a pipeline.

    bench/run fidelity [--cases gpt-1f1b,...] [--rounds 5] [--steps 12] [--budget 4]

A round takes, of each case, a profile of `--budget` seconds of its stages, each alone (by as many processes at once as
there are stages), a run, and the same run again. The figure of a case is the median over rounds; profiles and runs take
turns, so that a drift of the machine meets both alike. Each rank and each process that measures has a core of its own
(`--pin`). `aa_spread` is the median over cases and rounds of |run / same run - 1|.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import ours
import torch
from contest import print_result
from models import CASES, Gpt, token_loss


@dataclass(frozen=True)
class Config:
    """A model of MODELS and how it runs."""

    model: str
    stages: int
    micro_batches: int
    schedule: str = "1f1b"
    rows: int = 4  # of a micro-batch


MODELS = {
    "gpt": (lambda: Gpt(width=256, blocks=6, heads=8), token_loss, CASES["gpt"].data),
    "resnet": (CASES["resnet"].build, CASES["resnet"].loss, CASES["resnet"].data),
    "llama": (CASES["llama"].build, CASES["llama"].loss, CASES["llama"].data),
}
CONFIGS = {
    "gpt-1": Config("gpt", 1, 4),
    "resnet-1": Config("resnet", 1, 2),
    "gpt-1f1b": Config("gpt", 2, 4),
    "gpt-gpipe": Config("gpt", 2, 8, "gpipe", rows=2),
    "gpt-zb-h1": Config("gpt", 2, 8, "zb-h1", rows=2),
    "gpt-2bw": Config("gpt", 2, 8, "2bw", rows=2),
    "llama-interleaved": Config("llama", 2, 4, "interleaved"),
    "llama-recompute": Config("llama", 2, 8, "pre-recompute"),
    "resnet-1f1b": Config("resnet", 2, 8),
}


@dataclass
class Measured:
    """Of one case, by round."""

    step_errors: list[float] = field(default_factory=list)
    memory_errors: list[float] = field(default_factory=list)  # of the rank that is off most
    again: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def layout(config: Config) -> list[object]:
    """Of `trireme profile` and of `trireme train`."""
    return ["--pp", config.stages, "--micro-batches", config.micro_batches, "--schedule", config.schedule]


def run(folder: Path, config: Config, steps: int, path: Path) -> dict:
    command = [
        *(ours.BINARY, "train", folder / "model.pt2", "--data", f"safetensors:{folder}/rows.safetensors"),
        *(
            "--batch",
            config.rows * config.micro_batches,
            "--steps",
            steps,
            "--no-shuffle",
            "--quiet",
            "--json",
            "--pin",
        ),
        *layout(config),
        *("--predict", "--profile", path),
    ]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return json.loads(done.stdout)


def measure(folder: Path, config: Config, options: argparse.Namespace, measured: Measured) -> None:
    path = ours.profile(folder, config.rows, config.stages, options.budget, "--pin", *layout(config))
    first, second = (run(folder, config, options.steps, path) for _ in range(2))
    seconds = statistics.mean([first["step_seconds"], second["step_seconds"]])
    measured.seconds.append(seconds)
    measured.step_errors.append(first["predicted"]["step_seconds"] / seconds - 1)
    measured.again.append(abs(first["step_seconds"] / second["step_seconds"] - 1))
    pairs = zip(first["predicted"]["peak_bytes"], first["peak_bytes"], strict=True)
    measured.memory_errors.append(max((predicted / held - 1 for predicted, held in pairs), key=abs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CONFIGS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--budget", type=float, default=4)
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in CONFIGS]:
        sys.exit(f"bench: there is no case {unknown[0]}; known are {', '.join(CONFIGS)}")
    results = {name: Measured() for name in names}
    with tempfile.TemporaryDirectory() as root:
        for model in {CONFIGS[name].model for name in names}:
            torch.manual_seed(0)
            build, loss, rows = MODELS[model]
            folder = Path(root) / model
            folder.mkdir()
            ours.prepare(folder, build(), rows(256), 4, loss)
        for _ in range(options.rounds):
            for name, measured in results.items():
                measure(Path(root) / CONFIGS[name].model, CONFIGS[name], options, measured)
    print(f"\n{'case':<20} {'step':>10} {'error':>8} {'A/A':>8} {'memory error':>13}")
    for name, measured in results.items():
        step, error, again, memory = (
            statistics.median(numbers)
            for numbers in (measured.seconds, measured.step_errors, measured.again, measured.memory_errors)
        )
        print(f"{name:<20} {step * 1e3:>7.1f} ms {error:>+8.1%} {again:>8.1%} {memory:>+13.1%}")
    errors = [abs(statistics.median(measured.step_errors)) for measured in results.values()]
    print_result(
        {
            "bench": "fidelity",
            "median_step_error": statistics.median(errors),
            "worst_step_error": max(errors),
            "aa_spread": statistics.median(value for measured in results.values() for value in measured.again),
            "worst_memory_error": max(abs(e) for measured in results.values() for e in measured.memory_errors),
            "cores": os.cpu_count() or 1,
        }
    )


if __name__ == "__main__":
    main()
