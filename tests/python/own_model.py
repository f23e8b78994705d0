"""A small model of a test: exported, trained by the command, and trained by the plain loop of reference.py.

A model class builds without arguments, has `rows(generator)`, its data by input name, and a forward that takes the rows by
name and returns the mean loss or (mean loss, items). So the same code is exported and run by PyTorch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import command
import pytest
import reference
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import trireme

# Float64: the sums of two layouts differ in their order only, some 1e-16 of their size a step.
TOLERANCE = 1e-9
SGD = reference.Optimizer("sgd", lr=0.05, momentum=0.9)
ADAMW = reference.Optimizer("adamw", lr=3e-3, eps=1e-6, weight_decay=0.1)
# (stages, replicas, micro-batches of a replica)
WHOLE = (1, 1, 1)


@dataclass
class Trained:
    lines: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    state: dict[str, torch.Tensor]
    losses: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.losses = [line["loss"] for line in self.lines]


def optimizer_arguments(optimizer: reference.Optimizer) -> list[Any]:
    given = ["--optimizer", optimizer.name, "--lr", optimizer.lr, "--weight-decay", optimizer.weight_decay]
    if optimizer.name == "sgd":
        return [*given, "--momentum", optimizer.momentum, *(["--nesterov"] if optimizer.nesterov else [])]
    return [*given, "--betas", ",".join(map(str, optimizer.betas)), "--eps", optimizer.eps]


@contextlib.contextmanager
def counted_targets():
    """The losses that cross entropy makes meanwhile, each with the number of class targets it is the mean of."""
    counted, cross_entropy = [], F.cross_entropy

    def counting(scores, targets, *args, ignore_index=-100, **kwargs):
        loss = cross_entropy(scores, targets, *args, ignore_index=ignore_index, **kwargs)
        if not targets.is_floating_point():
            counted.append((loss, int((targets != ignore_index).sum())))
        return loss

    F.cross_entropy = counting
    try:
        yield counted
    finally:
        F.cross_entropy = cross_entropy


class OwnModel:
    def __init__(self, directory: Path, kind: Callable[[], nn.Module], dtype: torch.dtype, **export: Any) -> None:
        self.kind, self.dtype, self.directory = kind, dtype, directory
        rows = kind.rows(torch.Generator().manual_seed(99))
        self.rows = {k: v.to(dtype) if v.is_floating_point() else v for k, v in rows.items()}
        self.archive, self.data = directory / "model.pt2", directory / "data.safetensors"
        save_file(self.rows, self.data)
        trireme.export(self.fresh(), {k: v[:3] for k, v in self.rows.items()}, self.archive, **export)

    def fresh(self) -> nn.Module:
        torch.manual_seed(77)
        return self.kind().to(self.dtype)

    def command(self, *options: Any, code: int = 0) -> Any:
        """`trireme train` with these options on the model's data, ranks as threads unless said otherwise."""
        where = [] if "--workers" in options else ["--workers", 1]
        return command.run(
            "train", self.archive, "--data", f"safetensors:{self.data}", "--quiet", *where, *options, code=code
        )

    def train(
        self,
        *options: Any,
        layout: tuple[int, int, int] = WHOLE,
        schedule: str = "1f1b",
        batch: int = 11,
        steps: int | None = 5,
        optimizer: reference.Optimizer = SGD,
        is_shuffled: bool = False,
    ) -> Trained:
        metrics, saved = self.directory / "metrics.jsonl", self.directory / "saved.safetensors"
        saved.unlink(missing_ok=True)
        stages, replicas, micro_batches = layout
        self.command(
            *("--pp", stages, "--dp", replicas, "--micro-batches", micro_batches, "--schedule", schedule),
            *("--batch", batch, *(["--steps", steps] if steps else []), *([] if is_shuffled else ["--no-shuffle"])),
            *(*optimizer_arguments(optimizer), "--metrics", metrics, "--save", saved, *options),
        )
        lines = command.read_metrics(metrics)
        return Trained([v for v in lines if "loss" in v], [v for v in lines if "eval_loss" in v], load_file(saved))

    def step(self, model: nn.Module, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        with counted_targets() as counted:
            result = model(**batch)
        if isinstance(result, tuple):
            return result
        items = [count for loss, count in counted if loss is result]
        return result, items[0] if items else len(next(iter(batch.values())))

    def expected(
        self, *, batch: int = 11, steps: int = 5, optimizer: Any = SGD, model: nn.Module | None = None, **options: Any
    ) -> reference.Run:
        model = model or self.fresh()
        return reference.train(self, model, self.rows, batch=batch, steps=steps, optimizer=optimizer, **options)

    def mean_loss(self, model: nn.Module, batch: int) -> float:
        """PyTorch's evaluation: the mean over all items of the data."""
        model.eval()
        total, items = 0.0, 0.0
        with torch.no_grad():
            for rows in self.batches(batch):
                loss, count = self.step(model, rows)
                if int(count):
                    total, items = total + loss.item() * int(count), items + int(count)
        return total / items

    def batches(self, batch: int) -> Iterator[dict[str, torch.Tensor]]:
        for start in range(0, len(next(iter(self.rows.values()))), batch):
            yield {name: values[start : start + batch] for name, values in self.rows.items()}


def compare(run: reference.Run, trained: Trained, tolerance: float = TOLERANCE, smallest_size: float = 1e-3) -> None:
    """Losses and weights to `tolerance` of the largest of a tensor, or of `smallest_size` where all are smaller."""
    assert [line["step"] for line in trained.lines] == list(range(1, len(run.losses) + 1))
    assert [line["items"] for line in trained.lines] == run.items
    assert trained.losses == pytest.approx(run.losses, rel=tolerance, abs=0)
    if run.grad_norms:
        assert [line["grad_norm"] for line in trained.lines] == pytest.approx(run.grad_norms, rel=tolerance, abs=0)
    compare_states(run.state, trained.state, tolerance, smallest_size)


def compare_states(
    wanted: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
    tolerance: float = TOLERANCE,
    smallest_size: float = 1e-3,
) -> None:
    assert set(found) == set(wanted)
    wrong = {}
    for name, value in wanted.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        if not value.is_floating_point():
            assert torch.equal(found[name], value), name
            continue
        size = max(value.abs().max().item(), smallest_size) if value.numel() else 1.0
        error = (found[name].double() - value.double()).abs().max().item() / size if value.numel() else 0.0
        if not error <= tolerance:  # not a number is wrong, too
            wrong[name] = error
    assert not wrong


def is_bitwise_equal(a: Trained, b: Trained) -> bool:
    is_same_curve = a.losses == b.losses and a.state.keys() == b.state.keys()
    return is_same_curve and all(torch.equal(a.state[name], b.state[name]) for name in a.state)


def normal(generator: torch.Generator, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def integers(generator: torch.Generator, high: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, high, sizes, generator=generator)
