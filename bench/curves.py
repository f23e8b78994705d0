"""Loss curves on the demo's text: 1F1B, which flushes, against 2BW, whose gradients are one update late.

    bench/run curves [--steps 300] [--record FILE] [--from FILE] [--svg docs/results/curves.svg]

The model, text and layout of scripts/demo, at its learning rate and at a third of it. A row of the table is the mean of
the ten steps that end there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ours
from contest import print_result, read_record
from results import environment

EXAMPLE = ours.BINARY.parents[2] / "examples" / "gpt"
# Of each schedule and rate, the demo's and a third of it, since late gradients bear less; all eyes tell them apart.
COLOURS = {"1f1b 0.003": "#0072b2", "2bw 0.003": "#d55e00", "1f1b 0.001": "#56b4e9", "2bw 0.001": "#e69f00"}
LAYOUT = ("--pp", 2, "--dp", 2, "--micro-batches", 4)
WARM_UP = ("--lr-schedule", "cosine", "--warmup-steps", 20)
BATCH, WINDOW = 32, 10
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 360, 56, 40, 16


def train(steps: int) -> dict[str, list[float]]:
    """The loss of each step, by schedule and rate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, output in (("export.py", "model.pt2"), ("text.py", "text")):
            subprocess.run([sys.executable, EXAMPLE / script, folder / output], check=True, stdout=subprocess.DEVNULL)
        curves = {}
        for name in COLOURS:
            schedule, rate = name.split()
            options = ("--schedule", schedule, "--lr", rate, *LAYOUT, *WARM_UP)
            curves[name] = ours.train_on(folder, f"bytes:{folder}/text", BATCH, steps, *options)["losses"]
        return curves


def means(losses: list[float]) -> list[tuple[int, float]]:
    """Each step that ends a window, and the mean of the window."""
    ends = range(WINDOW, len(losses) + 1, WINDOW)
    return [(end, sum(losses[end - WINDOW : end]) / WINDOW) for end in ends]


def svg(curves: dict[str, list[float]]) -> str:
    """A line for each of COLOURS, of the means of its windows."""
    points = {name: means(losses) for name, losses in curves.items()}
    steps = max(step for line in points.values() for step, _ in line)
    highest = max(loss for line in points.values() for _, loss in line)

    def place(step: float, loss: float) -> str:
        x = LEFT + step / steps * (WIDTH - LEFT - 16)
        return f"{x:.1f},{HEIGHT - BOTTOM - loss / highest * (HEIGHT - BOTTOM - TOP):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for loss in range(int(highest) + 1):
        y = place(0, loss).split(",")[1]
        parts.append(f'<path d="M{LEFT},{y}H{WIDTH - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y}" font-size="12" text-anchor="end" dy="4">{loss}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        x = place(step, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" font-size="12" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" font-size="12" text-anchor="middle">step</text>')
    for row, (name, line) in enumerate(points.items()):
        colour = COLOURS[name]
        path = " ".join(place(*point) for point in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - 110}" y="{TOP + 20 + 18 * row}" font-size="14" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    if options.steps < 3 * WINDOW:
        sys.exit(f"bench: --steps {options.steps}: a curve has at least {3 * WINDOW}")
    if options.source:
        record = json.loads(read_record(options.source))
    else:
        record = {"measured": environment(), "losses": train(options.steps)}
    curves = record["losses"]
    if options.record:
        options.record.write_text(json.dumps(record))
    if options.svg:
        options.svg.write_text(svg(curves))
    print("\n".join(record["measured"]))
    tables = {name: means(losses) for name, losses in curves.items()}
    rows = list(zip(*tables.values(), strict=True))
    print(f"\n{'steps to':>9}" + "".join(f"{name:>12}" for name in tables))
    apart = max(1, len(rows) // 6)
    for row in rows[len(rows) % apart + apart - 1 :: apart]:
        print(f"{row[0][0]:>9}" + "".join(f"{loss:>12.4f}" for _, loss in row))
    last = {f"loss_last.{name.replace(' ', '.lr')}": table[-1][1] for name, table in tables.items()}
    print_result({"bench": "curves", "loss_first": rows[0][0][1], **last})


if __name__ == "__main__":
    main()
