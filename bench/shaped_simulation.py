"""What the simulator says of a step on shaped hosts, from profiles measured on them at their share of a core."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ours
from shaped_cases import MODELS, Case
from shaped_links import Hosts, cluster_text

WORKER = ours.BINARY.with_name("trireme-worker")
SCHEDULES = ("1f1b", "2bw")  # of ours


def layout(case: Case) -> list[object]:
    """Which stage computes what."""
    cut = MODELS[case.model].cut_text(case.stages)
    return ["--pp", case.stages, "--cut", cut, "--micro-batches", case.micro_batches, "--micro-batch", case.rows]


def profile(hosts: Hosts, folder: Path, case: Case, budget_s: float) -> None:
    """Measures the processor time of the stages of the case's model in the folder, as each schedule of ours runs them,
    on all hosts at once, each at its share of a core. The first is believed."""
    for schedule in SCHEDULES:
        profile_by(schedule, hosts, folder, case, budget_s)


def profile_by(schedule: str, hosts: Hosts, folder: Path, case: Case, budget_s: float) -> None:
    # Ranks of one training would wait for each other; these do not know of each other.
    path = f"{folder}/{schedule}.$RANK.profile"
    script = f'exec env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT "$@" -o "{path}"'
    data = ("--data", f"safetensors:{folder}/rows.safetensors", "--budget", f"{budget_s:g}s", "--quiet")
    command = [
        ours.BINARY,
        "profile",
        folder / "model.pt2",
        *layout(case),
        "--schedule",
        schedule,
        "--processor-time",
        *data,
    ]
    hosts.run(["sh", "-c", script, "sh", *command], f"the profile of {folder.name}", 60 + 3 * budget_s)


def profile_of(folder: Path, options: tuple[str, ...]) -> Path:
    """For a step of ours with these options."""
    return folder / f"{options[options.index('--schedule') + 1]}.0.profile"


def simulate(
    folder: Path, case: Case, core_share: float, options: tuple[str, ...], latency_s: float, rate: float
) -> dict[str, Any]:
    """A step of ours with these options, by `trireme simulate --json`."""
    (folder / "cluster.yaml").write_text(cluster_text(case.ranks, latency_s, rate, core_share))
    command = [
        *(ours.BINARY, "simulate", folder / "model.pt2", "--profile", profile_of(folder, options)),
        *("--cluster", folder / "cluster.yaml", *layout(case), "--dp", case.replicas, "--json", *options),
    ]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)
