"""A mean over class targets is weighed by torch's own divisor, whatever the example batch holds."""

from __future__ import annotations

import functools
import json
import warnings

import command
import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from safetensors.torch import load_file, save_file
from torch import nn

import trireme

pytestmark = pytest.mark.binary

CLASSES, STEPS, ROWS, BATCH = 3, 3, 36, 12
TOLERANCE = 1e-9  # float64, sums in another order
WEIGHT = torch.tensor([1.0, 2.5, 0.5], dtype=torch.float64)
LAYOUT = ["--pp", 2, "--dp", 2, "--micro-batches", 3]


class Tagger(nn.Module):
    """Classes of rows, or of each place of a sequence."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, CLASSES))

    def forward(self, x):
        return self.layers(x)


class Own(Tagger):
    def forward(self, x, t):
        return F.cross_entropy(super().forward(x), t)


def some(o, t):
    is_used = t >= 0
    return F.cross_entropy(o[is_used], t[is_used])


def in_parts(o, t):
    with torch.autocast("cpu", enabled=False):
        loss = F.cross_entropy(o, t)
    return loss.view(1).mean() / 4


LOSSES = {
    "cross entropy": (lambda o, t: F.cross_entropy(o, t)),
    "another ignored index": (lambda o, t: F.cross_entropy(o, t.masked_fill(t < 0, 7), ignore_index=7)),
    "class weights": (lambda o, t: F.cross_entropy(o, t, weight=WEIGHT)),
    "label smoothing": (lambda o, t: F.cross_entropy(o, t, label_smoothing=0.2)),
    "both": (lambda o, t: F.cross_entropy(o, t, weight=WEIGHT, label_smoothing=0.2)),
    "likelihood": (lambda o, t: F.nll_loss(o.log_softmax(1), t, weight=WEIGHT)),
    "a module": nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1),
    "a partial": functools.partial(F.cross_entropy, weight=WEIGHT),
    "chosen rows": some,
    "a part of a view": in_parts,
    "sequences": (lambda o, t: F.cross_entropy(o.transpose(1, 2), t)),
    "weighted sequences": (lambda o, t: F.nll_loss(o.log_softmax(-1).transpose(1, 2), t, weight=WEIGHT)),
    "the model's own": None,
}


def rows(name):
    """Every second sample has targets that are ignored, the first ones more of them."""
    generator = torch.Generator().manual_seed(5)
    places = (5,) if "sequences" in name else ()
    x = torch.randn(ROWS, *places, 4, generator=generator, dtype=torch.float64)
    t = torch.randint(CLASSES, (ROWS, *places), generator=generator)
    chance = torch.linspace(0.9, 0.1, BATCH).repeat(ROWS // BATCH).reshape(ROWS, *[1 for _ in places])
    return x, t.masked_fill(torch.rand(t.shape, generator=generator) < chance, -100)


def build(name):
    torch.manual_seed(3)
    return (Own() if LOSSES[name] is None else Tagger()).double()


def loss_of(name, model, x, t):
    return model(x, t) if LOSSES[name] is None else LOSSES[name](model(x), t)


def check(directory, name, archive):
    x, t = rows(name)
    model = build(name)
    data = directory / "rows.safetensors"
    save_file(dict(zip(Archive(archive).inputs, (x, t), strict=True)), data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = []
    for start in range(0, ROWS, BATCH):
        loss = loss_of(name, model, x[start : start + BATCH], t[start : start + BATCH])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    metrics, saved = directory / "metrics.jsonl", directory / "saved.safetensors"
    given = ["--data", f"safetensors:{data}", "--batch"]
    command.run(
        *("train", archive, *given, BATCH, "--steps", STEPS, "--no-shuffle", "--optimizer", "sgd", "--lr", 0.1),
        *(*LAYOUT, "--workers", 1, "--metrics", metrics, "--save", saved),
    )
    assert [line["loss"] for line in command.read_metrics(metrics)] == pytest.approx(wanted, rel=TOLERANCE, abs=0)
    found = load_file(saved)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(found[key], value, rtol=TOLERANCE, atol=TOLERANCE * value.abs().max().item())
    for batch in (5, ROWS):
        run = command.run("eval", archive, *given, batch, "--init", saved, "--workers", 1, "--json")
        with torch.no_grad():
            whole = loss_of(name, model, x, t).item()
        assert json.loads(run.stdout)["eval_loss"] == pytest.approx(whole, rel=TOLERANCE, abs=0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_over_targets_trains_as_in_pytorch(tmp_path, name):
    """The example batch has no ignored target, and one class alone."""
    x, t = rows(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trireme.export(build(name), (x[:4], t[:4] * 0), tmp_path / "a.pt2", loss=LOSSES[name])
    check(tmp_path, name, tmp_path / "a.pt2")


def test_an_archive_of_torch_export_counts_its_targets(tmp_path):
    name = "the model's own"
    x, t = rows(name)
    batch = torch.export.Dim("batch")
    program = torch.export.export(build(name), (x, t), dynamic_shapes=({0: batch}, {0: batch}), strict=False)
    torch.export.save(program, tmp_path / "a.pt2")
    check(tmp_path, name, tmp_path / "a.pt2")
    shown = command.run("inspect", tmp_path / "a.pt2").stdout
    assert "items %items_1, the targets %t other than -100, batch " in shown
