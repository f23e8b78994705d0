"""Who takes part in `bench/run shaped`, and how long a step of each takes on the hosts.

Ours are runs of `trireme-worker train`, a process a rank, which begin anew each time. Peers stay (peer.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import ours
from bound import Load, exposed_of, load_of
from contest import check_losses
from shaped_cases import MODELS, Case
from shaped_links import Hosts, Peer
from shaped_record import AGAIN, OURS
from shaped_simulation import WORKER, simulate

HERE = Path(__file__).resolve().parent
WARM_UP_STEPS, LAST_STEPS = 2, 2  # not timed; the last of a run have no next step to overlap with
FIRST_PORT = 29600
START_S = 20  # at most, of a run of ours


@dataclass(frozen=True)
class Row:
    """Ours, by its options; or a peer, by its program."""

    options: tuple[str, ...] = ()
    program: str = ""
    is_late: bool = False  # trains by the rule of 2BW
    finds_warm_ups: bool = False  # with the extra warm-ups that the simulator finds for its links
    is_again: bool = False  # is not checked once more
    is_part: bool = False  # ours without one of its parts


LATE, FLUSHING, DENSE = ("--schedule", "2bw"), ("--schedule", "1f1b"), ("--sparse", "never")
ROWS = {
    OURS: Row((*LATE, "--comm", "trirace"), is_late=True, finds_warm_ups=True),
    "2bw": Row((*LATE, "--comm", "end", *DENSE), is_late=True),  # PipeDream-2BW as published
    "1f1b": Row((*FLUSHING, "--comm", "end", *DENSE)),  # as Megatron has it
    "torch": Row(program="torch_rank.py"),
    AGAIN: Row((*LATE, "--comm", "trirace"), is_late=True, finds_warm_ups=True, is_again=True),
    "fifo": Row((*LATE, "--comm", "fifo", *DENSE), is_late=True),
    "deepspeed": Row(program="deepspeed_rank.py"),
    # Without sums that leave early (then nothing is there for transfers to go before), rows in place of tables,
    # transfers that go first and come from further ahead.
    "no-allreduce": Row((*LATE, "--comm", "end"), is_late=True, finds_warm_ups=True, is_part=True),
    "no-sparse": Row((*LATE, "--comm", "trirace", *DENSE), is_late=True, finds_warm_ups=True, is_part=True),
    "no-p2p": Row((*LATE, "--comm", "fifo"), is_late=True, is_part=True),
}


def python_of(program: str) -> str:
    return os.environ["TRIREME_PEERS_PYTHON"] if program == "deepspeed_rank.py" else sys.executable


class Field:
    """The contestants of a case on the hosts. In a `with` block, since peers stay."""

    def __init__(
        self, hosts: Hosts, folder: Path, case: Case, names: list[str], rows: dict[str, Row] | None = None
    ) -> None:
        self.hosts, self.folder, self.case, self.names = hosts, folder, case, names
        self.rows = ROWS if rows is None else rows
        self.peers: dict[str, Peer] = {}
        self.exposed_s: dict[str, dict[str, float]] = {}  # of ours, in their last run, by kind
        self.warm_ups = ""  # extra ones by hop, for the links as they are

    @property
    def core_share(self) -> float:
        return self.hosts.layout.core_share

    def __enter__(self) -> Field:
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "USE_LIBUV": "0", "DS_ACCELERATOR": "cpu"}
        for name in self.names:
            if program := self.rows[name].program:
                command = [python_of(program), HERE / program, "--folder", self.folder, *self.layout()]
                # Peers stay, so each has a port of its own, which ours does not need.
                port = {"MASTER_PORT": str(FIRST_PORT + len(self.peers))}
                self.peers[name] = Peer(self.hosts, f"{name} in {self.case.name}", command, environment | port)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for peer in self.peers.values():
            peer.close()

    def layout(self) -> list[Any]:
        case = self.case
        sizes = ["--micro-batches", case.micro_batches, "--rows", case.rows]
        return ["--model", case.model, "--stages", case.stages, *sizes]

    def options(self, name: str) -> tuple[str, ...]:
        warm_ups = ("--extra-warm-ups", self.warm_ups) if self.warm_ups and self.rows[name].finds_warm_ups else ()
        return self.rows[name].options + warm_ups

    def find_warm_ups(self, latency_s: float, rate: float) -> None:
        search = (*self.rows[OURS].options, "--find-extra-warm-ups")
        notes = simulate(self.folder, self.case, self.core_share, search, latency_s, rate)["notes"]
        found = "found --extra-warm-ups "
        self.warm_ups = next(note.removeprefix(found) for note in notes if note.startswith(found))

    def run_ours(self, name: str, steps: int, limit_s: float, *more: Any) -> list[dict[str, Any]]:
        """The lines of its metrics."""
        case, cut = self.case, MODELS[self.case.model].cut_text(self.case.stages)
        metrics = self.folder / "metrics.jsonl"
        command = [
            *(WORKER, "train", self.folder / "model.pt2", "--data", f"safetensors:{self.folder}/rows.safetensors"),
            *("--batch", case.rows * case.micro_batches * case.replicas, "--steps", steps, "--no-shuffle", "--quiet"),
            *("--pp", case.stages, "--dp", case.replicas, "--micro-batches", case.micro_batches, "--cut", cut),
            *("--threads", 1, "--metrics", metrics, *self.options(name), *more),
        ]
        self.hosts.run(command, f"{name} in {case.name}", limit_s, count=case.ranks)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def load(self, name: str, steps: int) -> Load:
        """What a step sends over links without a limit, and what it computes: the processor time of its passes at the
        hosts' share of a core. A rank that waits now and then computes faster than at its share, for what it has saved,
        but no rank can in the long run."""
        timeline = self.folder / "run.timeline"
        more = ("--timeline", timeline, "--timeline-steps", steps)
        last = self.run_ours(name, steps + WARM_UP_STEPS, 60 + 3 * steps, *more)[-1]
        compute_s = [seconds / self.core_share for seconds in last["compute_cpu_seconds"]]
        return load_of(self.report(timeline), compute_s)

    def simulated_s(self, latency_s: float, rate: float) -> dict[str, float]:
        """The steps of all that are ours."""
        names = [name for name in self.names if not self.rows[name].program and not self.rows[name].is_again]
        return {
            name: simulate(self.folder, self.case, self.core_share, self.options(name), latency_s, rate)["step_ns"]
            / 1e9
            for name in names
        }

    def report(self, timeline: Path) -> dict[str, Any]:
        done = subprocess.run([ours.BINARY, "report", timeline, "--json"], capture_output=True, check=True)
        return json.loads(done.stdout)

    def step_seconds(self, name: str, steps: int, expected_s: float) -> float:
        """The mean step of a run of this many. `expected_s`: about how long a step takes."""
        limit_s = START_S + 3 * steps * expected_s
        if name in self.peers:
            seconds = self.peers[name].train(steps, limit_s)[-1]["seconds"][1:]  # the first meets a new rate
        else:
            # The report of the last round stays; recording takes less than a thousandth of a step.
            timeline = self.folder / "run.timeline"
            more = ("--timeline", timeline, "--timeline-steps", steps - WARM_UP_STEPS)
            lines = self.run_ours(name, steps, limit_s, *more)
            self.exposed_s[name] = exposed_of(self.report(timeline))
            seconds = [line["seconds"] for line in lines][WARM_UP_STEPS:-LAST_STEPS]
        return sum(seconds) / len(seconds)

    def losses(self, name: str, steps: int) -> list[float]:
        limit_s = START_S + 10 * steps
        if name not in self.peers:
            return [line["loss"] for line in self.run_ours(name, steps, limit_s)]
        answers = self.peers[name].train(steps, limit_s)
        known = [answer["losses"] for answer in answers if answer["losses"][0] is not None]
        return [sum(step) / len(step) for step in zip(*known, strict=True)]

    def check_losses(self, steps: int) -> None:
        """All train the same: those that flush, and those that follow the rule of 2BW."""
        first: dict[bool, tuple[str, list[float]]] = {}
        for name in self.names:
            row = self.rows[name]
            if row.is_again:
                continue
            losses = self.losses(name, steps)
            other, expected = first.setdefault(row.is_late, (name, losses))
            check_losses(f"{self.case.name}, {name} and {other}", expected, losses)
