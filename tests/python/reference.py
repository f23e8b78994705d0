"""The plain PyTorch training loop that Trireme is compared with; no Trireme code is used.

A step takes the next `batch` rows in their order, an epoch after the other; the last batch of an epoch may be short. Its
gradient is that of the mean over all items of the batch. The batch may be split into contiguous micro-batches, whose
sizes differ by at most one, larger first: without BatchNorm only the rounding depends on that, with BatchNorm each
micro-batch is normalised by itself and the running statistics are those of this sequential loop.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Optimizer:
    name: str
    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        parameters = [p for p in model.parameters() if p.requires_grad]
        shared: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay, "fused": True}
        if self.name == "sgd":
            return torch.optim.SGD(parameters, momentum=self.momentum, nesterov=self.nesterov, **shared)
        return torch.optim.AdamW(parameters, betas=self.betas, eps=self.eps, **shared)


@dataclass
class Run:
    losses: list[float]
    items: list[int]
    grad_norms: list[float]
    state: dict[str, torch.Tensor]


def archive_weights(archive: Path) -> dict[str, torch.Tensor]:
    """The weights as they lie in the archive: whole storages beside a table of names."""
    numpy_types = {5: np.int64, 7: np.float32, 8: np.float64}
    weights: dict[str, torch.Tensor] = {}
    with zipfile.ZipFile(archive) as file:
        config = next(n for n in file.namelist() if n.endswith("_weights_config.json"))
        for name, entry in json.loads(file.read(config))["config"].items():
            meta = entry["tensor_meta"]
            storage = file.read(f"{config.rpartition('/')[0]}/{entry['path_name']}")
            flat = torch.from_numpy(np.frombuffer(storage, numpy_types[meta["dtype"]]).copy())
            sizes, strides = ([d["as_int"] for d in meta[k]] for k in ("sizes", "strides"))
            weights[name] = flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])
    return weights


def batch_rows(num_rows: int, batch: int, step: int, drop_last: bool = False) -> range:
    """The rows of step `step`, from 0."""
    per_epoch = num_rows // batch if drop_last else -(-num_rows // batch)
    start = step % per_epoch * batch
    return range(start, min(start + batch, num_rows))


def micro_batch_sizes(num_samples: int, micro_batches: int) -> list[int]:
    size, larger = divmod(num_samples, micro_batches)
    return [size + 1] * larger + [size] * (micro_batches - larger)


def train(
    family: models.Family,
    model: nn.Module,
    rows: Mapping[str, torch.Tensor],
    *,
    batch: int,
    steps: int,
    optimizer: Optimizer,
    clip_norm: float | None = None,
    micro_batches: int = 1,
    drop_last: bool = False,
) -> Run:
    """Trains `model` in place."""
    model.train()
    updates = optimizer.build(model)
    num_rows = len(next(iter(rows.values())))
    run = Run([], [], [], {})
    for step in range(steps):
        chosen = list(batch_rows(num_rows, batch, step, drop_last))
        samples = {name: values[chosen] for name, values in rows.items()}
        sizes = micro_batch_sizes(len(chosen), micro_batches)
        pieces = zip(*(values.split(sizes) for values in samples.values()), strict=True)
        total_loss, total_items = 0.0, 0
        for piece in pieces:
            loss, items = family.step(model, dict(zip(samples, piece, strict=True)))
            count = int(items)
            if count > 0:
                (loss * count).backward()
                total_loss += loss.item() * count
                total_items += count
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= total_items
        if clip_norm is not None:
            run.grad_norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm).item())
        updates.step()
        updates.zero_grad()
        run.losses.append(total_loss / total_items)
        run.items.append(total_items)
    run.state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return run
