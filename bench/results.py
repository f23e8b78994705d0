"""Runs the benchmarks and writes docs/results.md: what they printed, the machine, the versions.

    bench/run results [--rounds 3] [--only single,pipeline] [--no-deepspeed] [--kept]

    --only   of these; the page keeps its other sections
    --kept   those whose record is in docs/results/ are not run again

Run it on a machine that does nothing else. The page is written once all of them have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results.md"
RECORDS = PAGE.with_suffix("")  # what benchmarks with --record and --from have measured
RECORDED = {"shaped", "ablation", "larger", "curves"}
ROUNDLESS = {"vtrain"}
WITH_DEEPSPEED = {"pipeline", "shaped"}

# A heading, the benchmark and its options.
RUNS = {
    "single": ("One worker against one PyTorch process", ["single", "--steps", "25"]),
    "pipeline": ("Two stages, micro-batches of 2 rows", ["pipeline", "--steps", "25"]),
    "one-row": ("Two stages, micro-batches of 1 row", ["pipeline", "--steps", "25", "--rows", "1"]),
    "zero-bubble": (
        "Two stages, zero bubble and interleaved",
        ["pipeline", "--schedules", "zb-h1,zb-v,interleaved", "--micro-batches", "4", "--steps", "25"],
    ),
    "dropout": ("Dropout, forward and backward", ["dropout"]),
    "input": ("Input and start-up", ["input"]),
    "transport": ("Messages between two ranks of a host", ["transport"]),
    "shaped": ("Training over links of stated rates", ["shaped"]),
    "ablation": ("What each part of trirace brings", ["shaped", "--ablation"]),
    "tuned": ("What trireme tune-comm picks", ["tuned"]),
    "larger": ("More ranks and other models, rehearsed", ["larger"]),
    "curves": ("Loss of 1F1B and 2BW", ["curves", "--svg", "docs/results/curves.svg"]),
    "rehearse": ("Simulated steps against rehearsed ones over shaped links", ["rehearse"]),
    "fidelity": ("Predicted steps against measured ones", ["fidelity"]),
    "simulator": ("The simulator on 1,024 ranks", ["simulator"]),
    "vtrain": ("Predicted steps against those that vTrain measured", ["vtrain"]),
}
FIGURES = (
    "ratio",
    "best_ratio",
    "geomean",
    "core_share",
    "loss_",
    "simulated",
    "a_a",
    "bound",
    "wait",
    "start_up",
    "tcp_vs",
    "urgent",
    "median_step",
    "worst_",
    "median_pick",
    "tune_seconds",
    "median_error",
    "aa_spread",
)

INTRODUCTION = """\
# Results

Written by `bench/run results`; no figure is typed. A ratio is theirs / ours: above 1 Trireme is faster. Contestants
take turns, round by round; a figure is the median over rounds of the median step, and `A/A` is Trireme against itself
in the same rounds: a ratio inside that spread says nothing. Contestants compute the same losses, which is checked
before anything is timed.
"""


def first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def environment() -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    root = str(HERE.parent)
    state = (
        " with uncommitted changes"
        if first_line("git", "-C", root, "status", "--porcelain", "-uno") != "unknown"
        else ""
    )
    rows = {
        "Measured": f"{date.today()} on commit {first_line('git', '-C', root, 'rev-parse', '--short', 'HEAD')}{state}",
        "Machine": f"{processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, no GPU",
        "System": f"{platform.system()} {platform.release()}",
        "Versions": f"torch {torch.__version__}, Python {platform.python_version()}, {first_line('g++', '--version')}",
    }
    return [f"* {name}: {value}" for name, value in rows.items()]


def run(words: list[str]) -> tuple[list[str], dict[str, float]]:
    """The lines that a benchmark printed, and its RESULT."""
    print(f"bench: {' '.join(words)}", file=sys.stderr)
    done = subprocess.run([str(HERE / "run"), *words], stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(words)} ended with {done.returncode}; {PAGE} is as it was")
    *table, result = done.stdout.strip().splitlines()
    print("\n".join([*table, result]))
    return table, json.loads(result.removeprefix("RESULT "))


def rounds_of(name: str, options: argparse.Namespace) -> list[str]:
    """The long ones know best how many they have time for."""
    rounds = None if name in ROUNDLESS else options.rounds or (None if name in RECORDED else 3)
    return [] if rounds is None else ["--rounds", str(rounds)]


def record_of(name: str, is_kept: bool) -> list[str]:
    path = RECORDS / f"{name}.json"
    if name not in RECORDED:
        return []
    path.parent.mkdir(exist_ok=True)
    return ["--from" if is_kept and path.exists() else "--record", str(path.relative_to(HERE.parent))]


def section(words: list[str], table: list[str], figures: dict[str, float]) -> str:
    measured = [] if words[0] in RECORDED else [*environment(), ""]  # they say it themselves
    lines = [
        *measured,
        f"`bench/run {' '.join(words)}`",
        "",
        "```",
        *table,
        "```",
        "",
        "| figure | value |",
        "|---|---|",
    ]
    if "--svg" in words:
        picture = words[words.index("--svg") + 1].removeprefix("docs/")
        lines = [f"![{picture}]({picture})", "", *lines]
    lines += [f"| {key} | {value} |" for key, value in figures.items() if key.startswith(FIGURES)]
    return "\n".join(lines)


def page_with(page: str, head: str, sections: dict[str, str]) -> str:
    """The page with these sections; its others stay as they are, and then the head, which is theirs, too."""
    old_head, *old = page.split("\n## ")
    before = {title: text.strip() for title, text in (entry.split("\n", 1) for entry in old)}
    kept = before | sections
    head = head if before.keys() <= sections.keys() else old_head.rstrip()
    known = [title for title, _ in RUNS.values() if title in kept]
    return "\n".join([head, *(f"\n## {title}\n\n{kept[title]}" for title in known)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="of each benchmark [3; of shaped its own]")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--no-deepspeed", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",")
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        sys.exit(f"bench: there is no {unknown[0]}; known are {', '.join(RUNS)}")
    sections = {}
    for name in names:
        title, words = RUNS[name]
        more = ["--no-deepspeed"] if options.no_deepspeed and words[0] in WITH_DEEPSPEED else []
        words = [*words, *rounds_of(name, options), *more, *record_of(name, options.kept)]
        table, figures = run(words)
        sections[title] = section(words, table, figures)
    PAGE.write_text(page_with(PAGE.read_text() if PAGE.exists() else "", INTRODUCTION.rstrip(), sections))
    print(f"bench: wrote {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
