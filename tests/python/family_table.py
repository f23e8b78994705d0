"""The rows of docs/models.md: what a family's archive holds, and how far its training is from the right answers.

An error is relative. That of the loss is the largest of all steps. That of the gradient is the largest of the norms of
the gradients in the last step and of the weights after it; a norm below 1/200 of the whole gradient's, or of 1e-3 for a
weight, is compared to that instead, since it may be nothing but rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import expected
from archive import Archive
from safetensors.torch import load_file

PAGE = command.REPOSITORY / "docs" / "models.md"
COLUMNS = ("family", "nodes", "no rule", "of the export", "bound", "layouts", "loss error", "gradient error")
SMALL_GRADIENT = 1 / 200
SMALL_WEIGHT = 1e-3
HEAD = """# Families of models

Each family is a small model whose archive is kept in `tests/data` with its right answers, those of plain PyTorch. A
row is what `pytest tests/python/test_families.py --write-table` measured; without that option the tests fail where a
row says something else, or where an error exceeds its bound.

Layouts: `S2` is two stages with two micro-batches, `DP2` two replicas with one each. "No rule" are the operators that
Trireme runs without knowing them (`src/trireme/graph/op_rules.cc`). Errors are relative to PyTorch's: of the loss in
any step, and of any gradient's norm in the last step and any weight after it. Bounds: 1e-09 in float64, where only the
order of sums differs; 2e-06 in float32 or with float32 inside; 2e-02 in bfloat16.

A model whose loss is "not a mean over samples" (batch statistics, samples that are compared with one another) is held
against PyTorch's gradient accumulation over the same micro-batches.
"""


@dataclass
class Row:
    family: str
    nodes: int
    no_rule: str
    remarks: str
    loss_error: float
    gradient_error: float
    bound: float
    layouts: str

    def cells(self) -> tuple[str, ...]:
        """As COLUMNS; the errors, which differ from machine to machine, come last."""
        bound, loss, gradient = (f"{e:.0e}" if e else "0" for e in (self.bound, self.loss_error, self.gradient_error))
        return self.family, str(self.nodes), self.no_rule, self.remarks, bound, self.layouts, loss, gradient


def read_rows() -> dict[str, tuple[str, ...]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return {row[0]: row for row in rows if row != COLUMNS}


def write_rows(names: Sequence[str], measured: Mapping[str, Row]) -> None:
    """Rows that were not measured stay as they are."""
    rows = (read_rows() if PAGE.exists() else {}) | {name: row.cells() for name, row in measured.items()}
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, *(rows[name] for name in names))]
    lines.insert(1, "|" + "---|" * len(COLUMNS))
    PAGE.write_text(HEAD + "\n" + "\n".join(lines) + "\n")


@dataclass
class Errors:
    loss: float = 0.0
    gradient: float = 0.0

    def add(self, kind: str, error: float) -> None:
        """One that is not a number stays."""
        known = getattr(self, kind)
        if not error <= known and not math.isnan(known):
            setattr(self, kind, error)


def gradient_errors(
    norms: Mapping[str, float | None], wanted: Mapping[str, float | None], weights: Mapping[str, Any]
) -> list[float]:
    """`weights` says where each parameter is stored: names of one place are one parameter in the whole norm."""
    assert not set(norms) - set(wanted)
    places = {name: json.dumps([weights[name]["path_name"], weights[name]["tensor_meta"]]) for name in wanted}
    squares = {places[name]: (norm or 0.0) ** 2 for name, norm in wanted.items()}
    floor = SMALL_GRADIENT * math.sqrt(sum(squares.values()))
    assert all(not norms.get(name) for name, norm in wanted.items() if norm is None)
    return [abs(norms[name] - norm) / (norm + floor) for name, norm in wanted.items() if norm]


def weight_errors(state: Mapping[str, Any], wanted: Mapping[str, list[float]]) -> list[float]:
    assert set(wanted) == {name for name, value in state.items() if value.is_floating_point()}
    return [
        max(abs(a - b) for a, b in zip(expected.fingerprint(state[name]), numbers, strict=True))
        / max(numbers[0], SMALL_WEIGHT)
        for name, numbers in wanted.items()
    ]


def measure(archive: Path, data: Path, answers: Mapping[str, Any], layout: Sequence[Any], directory: Path) -> Errors:
    """Trains the steps of the answers in the layout, ranks as threads."""
    directory.mkdir()
    optimizer = expected.OPTIMIZER
    command.run(
        *("train", archive, "--data", f"safetensors:{data}", "--batch", expected.BATCH, "--steps", expected.STEPS),
        *("--no-shuffle", "--optimizer", optimizer.name, "--lr", optimizer.lr, "--workers", 1, *layout),
        *("--metrics", directory / "metrics", "--grad-norms", directory / "norms", "--save", directory / "saved"),
    )
    lines = command.read_metrics(directory / "metrics")
    assert [line["items"] for line in lines] == answers["items"]
    errors = Errors()
    for line, loss in zip(lines, answers["losses"], strict=True):
        errors.add("loss", abs(line["loss"] - loss) / abs(loss))
    norms = json.loads((directory / "norms").read_text())
    for error in gradient_errors(norms, answers["gradient_norms"], Archive(archive).weights):
        errors.add("gradient", error)
    for error in weight_errors(load_file(directory / "saved"), answers["weights"]):
        errors.add("gradient", error)
    return errors


def remarks(archive: Path, inspected: Mapping[str, Any], answers: Mapping[str, Any]) -> str:
    """What the archive and its answers show of how it was exported and of what is special in it."""
    parameters, buffers = inspected.get("parameters", []), inspected.get("buffers", [])
    symbols = set(inspected["symbols"]) - {inspected["batch_symbol"]}
    manifest = Archive(archive).manifest
    dtypes = {entry["type"].partition("[")[0] for entry in parameters} - {"f64"}
    counts = {
        "tied": sum(len(p["names"]) > 1 for p in parameters),
        "frozen": sum(not p["requires_grad"] for p in parameters),
        "without gradient": sum(p["requires_grad"] and not p["gets_gradient"] for p in parameters),
        "buffers": len(buffers),
    }
    found = [f"loss {manifest['loss'] or 'of the model'}"] if manifest else ["torch.export alone"]
    found += sorted(dtypes)
    found += [f"{len(symbols)} more symbolic size"] if symbols else []
    found += [f"{count} {kind}" for kind, count in counts.items() if count]
    found += [] if inspected["is_mean_over_samples"] else ["not a mean over samples"]
    return "; ".join([*found, *answers.get("warnings", [])])


def inspect(archive: Path) -> dict[str, Any]:
    return json.loads(command.run("inspect", archive, "--json").stdout)


def no_rule(inspected: Mapping[str, Any]) -> str:
    names = sorted({entry["op"].split(".")[1] for entry in inspected["operators"] if not entry["has_rule"]})
    return ", ".join(names) or "-"


def in_parallel(calls: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
