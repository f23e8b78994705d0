"""What the simulator says of a step on shaped hosts, from a profile measured on them at their share of a core."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import ours
from shaped_cases import MODELS, Case
from shaped_links import Hosts, cluster_text

WORKER = ours.BINARY.with_name("trireme-worker")


AT_SHARE, AT_CORE = "share", "core"


def profile(hosts: Hosts, folder: Path, rows: list[int], budget_s: float, at: str = AT_SHARE) -> None:
    """Measures the model of the folder for micro-batches of these sizes, on all hosts at once, each at its share of a
    core; or on as many as there are cores, each with one. The first is believed."""
    sizes = ",".join(map(str, rows))
    # Ranks of one training would wait for each other; these do not know of each other.
    script = f'exec env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT "$@" -o "{folder}/{at}.$RANK.profile"'
    data = ("--data", f"safetensors:{folder}/rows.safetensors", "--budget", f"{budget_s:g}s", "--quiet")
    command = [ours.BINARY, "profile", folder / "model.pt2", "--micro-batch", sizes, *data]
    where = {} if at == AT_SHARE else {"count": min(len(hosts.layout.hosts), os.cpu_count() or 1), "has_share": False}
    hosts.run(["sh", "-c", script, "sh", *command], f"the profile of {folder.name}", 60 + 3 * budget_s, **where)


def simulate(
    folder: Path, case: Case, options: tuple[str, ...], latency_s: float, rate: float, at: str = AT_SHARE
) -> dict[str, Any]:
    """A step of ours with these options, by `trireme simulate --json`."""
    (folder / "cluster.yaml").write_text(cluster_text(case.ranks, latency_s, rate))
    cut = MODELS[case.model].cut_text(case.stages)
    command = [
        *(ours.BINARY, "simulate", folder / "model.pt2", "--profile", folder / f"{at}.0.profile"),
        *("--cluster", folder / "cluster.yaml", "--micro-batch", case.rows, "--micro-batches", case.micro_batches),
        *("--pp", case.stages, "--dp", case.replicas, "--cut", cut, "--json", *options),
    ]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)
