"""What was trained is kept: an evaluation or a step that fails comes after the weights were saved, and says where."""

from __future__ import annotations

import command
import pytest
import torch
from own_model import SGD, normal
from safetensors.torch import load_file, save_file
from torch import nn

pytestmark = pytest.mark.binary

WIDTH, BATCH = 8, 6
LAYOUTS = [(1, 1, 1), (2, 1, 2), (2, 2, 1)]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 5)
        self.norm = nn.BatchNorm1d(WIDTH)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 24, WIDTH), "y": torch.arange(24) % 5}

    def forward(self, x, y):
        # The square root of 0 has a gradient that is not finite.
        size = self.first(x).abs().sum(1).sqrt().mean()
        return nn.functional.cross_entropy(self.last(self.norm(self.first(x))), y) + size


def edited(model, path, name, index, value):
    rows = {n: v.clone() for n, v in model.rows.items()}
    rows[name][index] = value
    save_file(rows, path)
    return f"safetensors:{path}"


def options(layout, steps):
    stages, replicas, micro_batches = layout
    where = ["--pp", stages, "--dp", replicas, "--micro-batches", micro_batches, "--no-shuffle", "--quiet"]
    return [
        *where,
        "--optimizer",
        "sgd",
        "--lr",
        SGD.lr,
        "--momentum",
        SGD.momentum,
        "--batch",
        BATCH,
        "--steps",
        steps,
    ]


FIRST = "rank 0 (stage 0, replica 0)"


def failure(layout):
    num_ranks = layout[0] * layout[1]
    return f"{FIRST} failed: " if num_ranks == 1 else f"the worker with all {num_ranks} ranks failed: {FIRST}: "


def lines(result):
    """Without the note that batch norm makes every micro-batch a batch of its own."""
    return [line for line in result.stderr.splitlines() if "not a mean over samples" not in line]


def is_same_state(path, wanted):
    found = load_file(path)
    return found.keys() == wanted.keys() and all(torch.equal(value, wanted[name]) for name, value in found.items())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_evaluation_without_a_loss_takes_nothing_away(own_model, tmp_path, layout):
    model = own_model(Classifier)
    wanted = model.train(layout=layout, batch=BATCH, steps=4).state
    data = edited(model, tmp_path / "eval.safetensors", "x", 3, float("nan"))
    saved, metrics = tmp_path / "saved.safetensors", tmp_path / "metrics.jsonl"
    run = [*options(layout, 4), "--eval-data", data, "--eval-every", 2, "--metrics", metrics]
    said = lines(model.command(*run, "--save", saved, code=1))
    fault = "the loss of the evaluation is not finite"
    assert said[0] == f"[rank 0] after step 2: {fault}; training goes on"
    assert said[1] == f"{failure(layout)}{fault}; the weights of step 4 are in {saved}"
    assert is_same_state(saved, wanted)
    assert [(v["step"], v["eval_loss"]) for v in command.read_metrics(metrics) if "eval_loss" in v] == [
        (2, None),
        (4, None),
    ]
    assert len(command.read_metrics(metrics)) == 6
    assert lines(model.command(*run, code=1))[1] == failure(layout) + fault


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_evaluation_that_fails_comes_after_the_weights_were_saved(own_model, tmp_path, layout):
    model = own_model(Classifier)
    data = edited(model, tmp_path / "eval.safetensors", "y", 3, 99)
    saved = tmp_path / "saved.safetensors"
    # One replica fails while the other, whose first rank writes, may still be saving.
    for every, last in ((3, 3), (100, 4)):
        wanted = model.train(layout=layout, batch=BATCH, steps=last).state
        said = model.command(
            *options(layout, 4), "--eval-data", data, "--eval-every", every, "--save", saved, code=1
        ).stderr
        index = 3 * layout[2] // BATCH
        where = f"batch 1 of the evaluation: F{index} (forward of micro-batch {index}): aten.cross_entropy_loss.default"
        assert f"{where}: Target 99 is out of bounds.; look for it in the data of this micro-batch; the weights" in said
        assert f"; the weights of step {last} are in {saved}\n" in said
        assert is_same_state(saved, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_target_out_of_range_is_named_with_its_step(own_model, tmp_path, layout):
    model = own_model(Classifier)
    data = edited(model, tmp_path / "data.safetensors", "y", 2 * BATCH, 99)  # the first row of step 3
    said = command.run("train", model.archive, "--data", data, *options(layout, 4), code=1).stderr
    where = " failed: step 3: F0 (forward of micro-batch 0): aten.cross_entropy_loss.default"
    assert f"{where}: Target 99 is out of bounds.; look for it in the data of this micro-batch\n" in said


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("option", ["--metrics", "--grad-norms"])
def test_a_full_disk_takes_no_training_away(own_model, tmp_path, layout, option):
    model = own_model(Classifier)
    train = ["train", model.archive, "--data", f"safetensors:{model.data}", *options(layout, 4), "--workers", 1]
    wanted, saved = tmp_path / "wanted.safetensors", tmp_path / "saved.safetensors"
    command.run(*train, "--save", wanted)
    evaluated = ["--eval-data", f"safetensors:{model.data}", option, "/dev/full"]
    said = lines(command.run(*train, *evaluated, "--save", saved, code=1))
    fault = "cannot write /dev/full: No space left on device"
    assert said == [
        f"[rank 0] {fault}; training goes on",
        f"{failure(layout)}{fault}; the weights of step 4 are in {saved}",
    ]
    assert is_same_state(saved, load_file(wanted))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault", ["loss", "gradient norm"])
def test_a_step_that_is_not_finite_leaves_weights_and_buffers_as_they_were(own_model, tmp_path, layout, fault):
    model = own_model(Classifier)
    value = float("nan") if fault == "loss" else 0.0
    data = edited(model, tmp_path / "data.safetensors", "x", slice(18, 24), value)
    saved, norms = tmp_path / "saved.safetensors", ["--clip-norm", 1e9]
    wanted = model.train(*norms, layout=layout, batch=BATCH, steps=3).state
    run = ["train", model.archive, "--data", data, *norms, *options(layout, 5), "--workers", 1]
    said = lines(command.run(*run, "--save", saved, code=1))[0]
    last = layout[0] - 1
    where = f", first on rank {last} (stage {last}, replica 0)" if fault == "loss" else ""
    reason = f"the {fault} of step 4 is not finite{where}"
    assert said == f"{failure(layout)}{reason}; the weights of step 3 are in {saved}"
    assert is_same_state(saved, wanted)
    assert lines(command.run(*run, code=1))[0] == failure(layout) + reason


def test_a_first_step_that_is_not_finite_overwrites_nothing(own_model, tmp_path):
    model = own_model(Classifier)
    data = edited(model, tmp_path / "data.safetensors", "x", 0, float("nan"))
    saved = tmp_path / "saved.safetensors"
    saved.write_text("of an earlier run")
    run = ["train", model.archive, "--data", data, *options((1, 1, 1), 2), "--save", saved]
    said = command.run(*run, code=1).stderr
    assert said == f"{FIRST} failed: the loss of step 1 is not finite, first on {FIRST}\n"
    assert saved.read_text() == "of an earlier run"
