"""Training over links of stated rates: Trireme against others, each rank on a host with a part of a core (needs root).

    bench/run shaped [--quick] [--ablation] [--cases gpt-2x2-m4,...] [--ratios 0.1,0.3,1,2,4]
                     [--contestants torch,...] [--rounds 3] [--minutes 55] [--steps 8] [--core-share 0.38]
                     [--budget 6] [--no-deepspeed] [--record FILE] [--from FILE]

    --quick       fewer cases, ratios and steps: shape, not proof
    --ablation    trirace against itself without one of its parts
    --minutes     how long it may take: a point has as many rounds, of --rounds, as there is time for, and one at least
    --record      keep all that was measured in this file
    --from        say what a --record file has, and measure nothing

A host is a network namespace (scripts/shaped) whose processes together have a share of a core in periods of 10 ms, the
threads that send included, for all contestants alike. A case is a model, stages x replicas, and micro-batches a step.
Its ratios are those of link to compute: the links of a point have the rate at which the bytes of a step take that many
times as long as its computing. What a step sends is counted in a run over links without a limit; what it computes is
the processor time of its passes in that run, divided by the share; the rate is measured by a plain stream at each
point. The bound of a step is the larger of computing and sending, on the busiest rank and link: no schedule can beat
it. From profiles of the stages measured at the share, and the link as it was measured, `trireme simulate` says how long
a step of each of ours takes, in the table as a ratio in brackets, and finds the extra warm-ups of trirace.

All train with AdamW. Ours sums rows of a large table; torch and DeepSpeed sum it whole, since their AdamW refuses
sparse gradients, and so do our stand-ins for what others publish (2bw, 1f1b, fifo).

Contestants take turns. A figure is the median over rounds of the mean step without the first and the last ones; a
ratio is the median over rounds of theirs / ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import ours
import torch
from bound import Load
from contest import read_record
from models import token_loss
from results import environment
from shaped_cases import CASES, LENGTH, MODELS, Case
from shaped_contestants import ROWS, Field
from shaped_links import UNSHAPED, Hosts
from shaped_record import AGAIN, OURS, Contest, Point, Record, print_record
from shaped_simulation import profile

CORE_SHARE = 0.38
CHECKED_STEPS = 10
RATIOS = (0.1, 0.3, 1.0, 2.0, 4.0)
PARTS = [name for name, row in ROWS.items() if row.is_part]
ABLATION = {"contestants": ",".join([OURS, AGAIN, *PARTS])}
QUICK = {"cases": "gpt-2x2-m4,embedding-2x2-m4,gpt-4x1-m8", "ratios": "0.3,1,2", "minutes": 7, "steps": 6, "budget": 4}


def prepare(root: Path, names: list[str]) -> None:
    """An archive and rows of each model, for both sides."""
    for name in names:
        model, folder = MODELS[name], root / name
        torch.manual_seed(0)
        folder.mkdir()
        rows = 8 * 32
        tokens = torch.randint(model.vocabulary, (rows, LENGTH))
        targets = torch.randint(model.outputs, (rows, LENGTH))
        ours.prepare(folder, model.build(), (tokens, targets), 4, token_loss)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Progress:
    """What is done of the work, and what time there is for the rest."""

    def __init__(self, work: float, minutes: float) -> None:
        self.begin = time.monotonic()
        self.end = self.begin + 60 * minutes
        self.done, self.work = 0.0, work

    def share_s(self, work: float) -> float:
        """Of the time that is left, for this part of the work that is left."""
        return (self.end - time.monotonic()) * work / (self.work - self.done)

    def add(self, work: float, what: str) -> None:
        self.done += work
        left = (time.monotonic() - self.begin) * (self.work / self.done - 1)
        say(f"{what}: {self.done / self.work:.0%} done, about {left / 60:.0f} min left")


def work_of(ratio: float) -> float:
    return 3 + 1 + ratio  # starting takes about as long as three steps' computing for each that is timed


def measure_case(
    hosts: Hosts, root: Path, case: Case, names: list[str], options: argparse.Namespace, progress: Progress
) -> Contest:
    with Field(hosts, root / case.model, case, names) as field:
        hosts.set_rate(UNSHAPED)
        profile(hosts, root / case.model, case, options.budget)
        load: Load = field.load("1f1b", options.steps)
        own: Load = field.load(OURS, options.steps)
        field.check_losses(CHECKED_STEPS)
        contest = Contest(case.name, case.title, load, own, [])
        for ratio in map(float, options.ratios.split(",")):
            rate = load.link_bytes / (ratio * max(load.compute_s))
            hosts.set_rate(rate)
            latency, measured = hosts.measure_link(rate)
            field.find_warm_ups(latency, measured)
            simulated = field.simulated_s(latency, measured)
            point = Point(ratio, measured, latency, {name: [] for name in names}, simulated, field.warm_ups)
            expected = max(load.compute_s) * (2 + ratio)
            end = time.monotonic() + progress.share_s(work_of(ratio))
            for _ in range(options.rounds):
                begin = time.monotonic()
                for name in names:
                    point.rounds[name].append(field.step_seconds(name, options.steps, expected))
                if 2 * time.monotonic() - begin > end:
                    break  # there is no time for another one
            point.exposed_s = {name: kinds for name, kinds in field.exposed_s.items() if name != AGAIN}
            contest.points.append(point)
            progress.add(work_of(ratio), f"{case.name} at {measured / 1e6:.2f} MB/s")
    return contest


def measure(options: argparse.Namespace) -> Record:
    cases = [CASES[name] for name in options.cases.split(",")]
    names = [name for name in options.contestants.split(",") if not (options.no_deepspeed and name == "deepspeed")]
    ratios = [float(ratio) for ratio in options.ratios.split(",")]
    progress = Progress(sum(map(work_of, ratios)) * len(cases), options.minutes)
    record = Record(environment(), options.core_share, [])
    with tempfile.TemporaryDirectory() as folder:
        say("exporting the models")
        prepare(Path(folder), list(dict.fromkeys(case.model for case in cases)))
        with Hosts("bench-shaped", max(case.ranks for case in cases), options.core_share) as hosts:
            for case in cases:
                record.contests.append(measure_case(hosts, Path(folder), case, names, options, progress))
                if options.record:
                    options.record.write_text(record.to_json())
    return record


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ratios", default=",".join(f"{ratio:g}" for ratio in RATIOS))
    parser.add_argument("--contestants", default=",".join(name for name in ROWS if name not in PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--budget", type=float, default=6)
    parser.add_argument("--core-share", type=float, default=CORE_SHARE)
    parser.add_argument("--no-deepspeed", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    if parser.parse_args().quick:
        parser.set_defaults(**QUICK)
    if parser.parse_args().ablation:
        parser.set_defaults(**ABLATION)
    options = parser.parse_args()
    for what, known in (("cases", CASES), ("contestants", ROWS)):
        if unknown := [name for name in getattr(options, what).split(",") if name not in known]:
            sys.exit(f"bench: --{what} has no {unknown[0]}; known are {', '.join(known)}")
    if not {OURS, AGAIN} <= set(options.contestants.split(",")):
        sys.exit(f"bench: all are compared with {OURS} and {AGAIN}; leave them in --contestants")
    if options.steps < 4:
        sys.exit("bench: --steps 4 are the fewest: three of them are not timed")
    return options


def main() -> None:
    options = parse()
    os.environ["OMP_NUM_THREADS"] = "1"
    print_record(Record.from_json(read_record(options.source)) if options.source else measure(options))


if __name__ == "__main__":
    main()
