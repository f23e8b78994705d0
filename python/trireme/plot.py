"""Draws the loss of a run as text: `python -m trireme.plot METRICS.jsonl`.

METRICS.jsonl is what `trireme train --metrics` writes. A column is the mean of the steps that share it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import signal
from collections.abc import Sequence
from pathlib import Path


def draw(losses: Sequence[float], width: int = 64, height: int = 14) -> str:
    """A drawing of `height` lines with its axes; the highest and the lowest column touch top and bottom."""
    width = min(width, len(losses))
    bounds = [column * len(losses) // width for column in range(width + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in itertools.pairwise(bounds)]
    low, high = min(means), max(means)
    scale = (height - 1) / (high - low) if high > low else 0.0
    rows = [round((mean - low) * scale) for mean in means]
    lines = []
    for row in range(height - 1, -1, -1):
        label = f"{low + row / scale:8.3f}" if scale and row in {0, height // 2, height - 1} else " " * 8
        lines.append(f"{label} |{''.join('*' if r == row else ' ' for r in rows)}".rstrip())
    lines.append(f"{'loss':>8} +{'-' * width}")
    lines.append(f"{'step':>8}  1{len(losses):>{width - 1}}")
    return "\n".join(lines)


def read_losses(path: Path) -> list[float | None]:
    """None stands for a loss that was not finite."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trireme.plot", description="Draws the loss of a run as text.")
    parser.add_argument("metrics", type=Path, help="the file of trireme train --metrics")
    parser.add_argument("--below", type=float, metavar="F", help="fail unless the last loss is below F x the first")
    options = parser.parse_args()
    try:
        steps = read_losses(options.metrics)
    except OSError as error:
        parser.error(f"{options.metrics}: {error.strerror}")
    except (ValueError, TypeError):
        parser.error(f"{options.metrics} is no file of trireme train --metrics")
    losses = [loss for loss in steps if loss is not None]
    if not losses:
        parser.error(f"{options.metrics} has no line with a loss")
    print(draw(losses))
    if None in steps:
        print(f"the loss of step {steps.index(None) + 1} is not finite")
    share = losses[-1] / losses[0] if losses[0] else math.inf
    print(f"loss {losses[0]:.3f} at step 1, {losses[-1]:.3f} at step {len(steps)}: {share:.0%} of the first")
    if options.below is not None and not (share < options.below and None not in steps):
        print(f"the last loss should be below {options.below:.0%} of the first")
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may leave, as head does
    raise SystemExit(main())
