"""--eval-model: evaluation runs another graph with the weights, and the running statistics, of the one that trains."""

from __future__ import annotations

import json

import command
import pytest
import torch
from own_model import ADAMW, TOLERANCE, integers, is_bitwise_equal, normal
from safetensors.torch import load_file
from torch import nn

import trireme

pytestmark = pytest.mark.binary

LAYOUTS = {"1x1": (1, 1, 1), "S2": (2, 1, 2), "DP2": (1, 2, 2), "S3": (3, 1, 1)}


class TwoHeads(nn.Module):
    """Evaluation skips a layer, takes another head, which training leaves as it is, and normalises by its statistics."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 4)
        self.eval_head = nn.Linear(6, 4)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.layers[0].weight

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 22, 6), "y": integers(generator, 4, 22)}

    def forward(self, x, y):
        for i, layer in enumerate(self.layers):
            if self.training or i != 1:
                x = x + torch.tanh(layer(x))
        x = self.norm(self.tied(x))
        head = self.head(x) if self.training else self.eval_head(x) - self.head(x)
        return nn.functional.cross_entropy(head, y)


@pytest.fixture(scope="module")
def eval_archive(own_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("eval") / "eval.pt2"
    model = own_model(TwoHeads)
    other = model.fresh()
    with torch.no_grad():
        for parameter in other.parameters():  # its own weights are not used
            parameter.mul_(0)
    trireme.export(other, {k: v[:3] for k, v in model.rows.items()}, path, train=False)
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_evaluation_runs_the_other_graph_with_the_trained_weights(own_model, eval_archive, layout):
    model = own_model(TwoHeads)
    run = {"layout": LAYOUTS[layout], "batch": 11, "optimizer": ADAMW}
    data = ["--eval-data", f"safetensors:{model.data}", "--eval-model", eval_archive]
    plain = model.train(steps=4, **run)
    evaluated = model.train(*data, "--eval-every", 3, steps=4, **run)
    assert is_bitwise_equal(plain, evaluated)
    at_3 = model.train(steps=3, **run).state
    wanted = []
    for state in (at_3, evaluated.state):
        module = model.fresh()
        module.load_state_dict(state)
        wanted.append(model.mean_loss(module, 11))
    assert [line["eval_loss"] for line in evaluated.evaluations] == pytest.approx(wanted, rel=TOLERANCE, abs=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_eval_takes_the_weights_of_the_model_or_of_init(own_model, eval_archive, workers):
    model = own_model(TwoHeads)
    model.train(layout=(2, 1, 2), optimizer=ADAMW)
    saved = model.directory / "saved.safetensors"
    data = ["--data", f"safetensors:{model.data}", "--batch", 22, "--pp", 2, "--workers", workers, "--json"]
    for init in ([], ["--init", saved]):
        module = model.fresh()
        if init:
            module.load_state_dict(load_file(saved))
        result = command.run("eval", model.archive, "--eval-model", eval_archive, *data, *init)
        assert json.loads(result.stdout)["eval_loss"] == pytest.approx(
            model.mean_loss(module, 22), rel=TOLERANCE, abs=0
        )


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 4)])
        self.noise = Noise()

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 22, 6), "y": integers(generator, 4, 22)}

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.noise(self.layers[0](x)), y)


class Noise(nn.Module):
    def forward(self, x):
        return x * torch.bernoulli(torch.full_like(x, 0.5)) if self.training else x


def test_random_numbers_in_evaluation_are_said(own_model, tmp_path):
    model = own_model(Noisy)
    data, shape = f"safetensors:{model.data}", ["--batch", 11, "--workers", 1, "--quiet"]
    said = (
        "trireme: the model draws random numbers in evaluation, too (aten.bernoulli.default of module 'noise'); if it "
        "should not, export it with trireme.export(train=False) as well and give that archive by --eval-model\n"
    )
    train = ["train", model.archive, "--data", data, *shape, "--steps", 1]
    assert command.run("eval", model.archive, "--data", data, *shape).stderr == said
    assert command.run(*train, "--eval-data", data).stderr == said
    assert command.run(*train).stderr == ""
    other = tmp_path / "eval.pt2"
    trireme.export(model.fresh(), {k: v[:3] for k, v in model.rows.items()}, other, train=False)
    assert command.run(*train, "--eval-data", data, "--eval-model", other).stderr == ""


def test_models_that_do_not_match(own_model, eval_archive, tmp_path):
    model = own_model(TwoHeads)
    path = tmp_path / "other.pt2"

    def told(change):
        other = model.fresh()
        change(other)
        trireme.export(other, {k: v[:3] for k, v in model.rows.items()}, path, train=False)
        data = ["--data", f"safetensors:{model.data}", "--batch", 11, "--workers", 1]
        return command.run("eval", model.archive, "--eval-model", path, *data, code=2).stderr

    def says(what):
        return f"trireme: --eval-model {path}: {what}\n"

    def untie(other):
        other.tied = nn.Linear(6, 6).double()

    def tie(other):
        other.layers[2].weight = other.layers[1].weight

    def widen(other):
        other.head, other.eval_head = nn.Linear(6, 5).double(), nn.Linear(6, 5).double()

    def extend(other):
        other.more = nn.Linear(2, 2).double()

    def shorten(other):
        other.norm = nn.Identity()

    untied = tmp_path / "untied.pt2"
    assert told(tie) == says("layers.1.weight and layers.2.weight are one tied parameter, but two in the trained model")
    assert told(widen) == says("eval_head.bias is f64[5], but f64[4] in the trained model")
    assert told(extend) == says("it has more.bias, which the trained model has not")
    assert told(shorten) == says("it lacks norm.bias, which the trained model has")
    assert "--eval-model" in command.run("train", "--help").stdout
    # Names that are tied in training alone take the one value.
    other = model.fresh()
    untie(other)
    trireme.export(other, {k: v[:3] for k, v in model.rows.items()}, untied, train=False)
    data = ["--data", f"safetensors:{model.data}", "--batch", 22, "--workers", 1, "--json"]
    result = command.run("eval", model.archive, "--eval-model", untied, *data)
    wanted = model.mean_loss(model.fresh(), 22)
    assert json.loads(result.stdout)["eval_loss"] == pytest.approx(wanted, rel=TOLERANCE, abs=0)


def test_eval_model_needs_something_to_evaluate(own_model, eval_archive):
    model = own_model(TwoHeads)
    said = model.command("--batch", 4, "--steps", 1, "--eval-model", eval_archive, code=2).stderr
    assert said == "trireme: --eval-model needs --eval-data\n"
