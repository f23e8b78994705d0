"""Trireme as a contestant: the archive and rows of a model in a folder, and timed runs of `trireme train` on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

BINARY = Path(__file__).resolve().parent.parent / "build/bin/trireme"


def prepare(
    folder: Path, model: nn.Module, rows: tuple[torch.Tensor, ...], example_rows: int, loss: Callable[..., Any]
) -> None:
    """Writes what both sides read: weights.pt and rows.pt for theirs, model.pt2 and rows.safetensors for ours."""
    torch.save(model.state_dict(), folder / "weights.pt")
    torch.save(rows, folder / "rows.pt")
    export(model, tuple(t[:example_rows].clone() for t in rows), folder / "model.pt2", loss)
    described = subprocess.run([BINARY, "inspect", "--json", folder / "model.pt2"], check=True, capture_output=True)
    names = [entry["names"][0] for entry in json.loads(described.stdout)["inputs"]]
    save_file({n: t.contiguous() for n, t in zip(names, rows, strict=True)}, folder / "rows.safetensors")


def export(model: nn.Module, rows: tuple[torch.Tensor, ...], path: Path, loss: Callable[..., Any]) -> None:
    import trireme

    trireme.export(model, rows, path, loss=loss)


def train(folder: Path, batch: int, steps: int, *options: Any) -> dict[str, list[float]]:
    """The seconds and the loss of each step, on the rows of the folder in their order."""
    return train_on(folder, f"safetensors:{folder}/rows.safetensors", batch, steps, "--no-shuffle", *options)


def train_on(folder: Path, data: str, batch: int, steps: int, *options: Any) -> dict[str, list[float]]:
    """The seconds and the loss of each step."""
    metrics = folder / "metrics.jsonl"
    given = ["--data", data, "--batch", batch, "--steps", steps]
    command = [BINARY, "train", folder / "model.pt2", *given, "--metrics", metrics, "--quiet", *options]
    subprocess.run([str(word) for word in command], check=True)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {"seconds": [line["seconds"] for line in lines], "losses": [line["loss"] for line in lines]}


def profile(folder: Path, rows: int, processes: int, budget_s: float, *options: Any) -> Path:
    """Blocks of micro-batches of so many rows, timed in as many processes at once; the path of the profile."""
    path = folder / "model.profile"
    given = ["--micro-batch", rows, "--budget", f"{budget_s}s", "--concurrent", processes]
    given += ["--data", f"safetensors:{folder}/rows.safetensors", "-o", path]
    command = [BINARY, "profile", folder / "model.pt2", *given, "--quiet", *options]
    subprocess.run([str(word) for word in command], check=True)
    return path


def simulate(folder: Path, profile: Path, rows: int, *options: Any) -> float:
    """The seconds of a step of micro-batches of so many rows, simulated."""
    given = ["--profile", profile, "--micro-batch", rows, "--json"]
    command = [BINARY, "simulate", folder / "model.pt2", *given, *options]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return json.loads(done.stdout)["step_ns"] * 1e-9
