"""Optimizers, parameter groups, learning rates and the order of the data, against torch.optim and the help's formulas."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import pytest
import reference
import torch
from own_model import TOLERANCE, OwnModel, compare, integers, normal
from safetensors.torch import load_file
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 6
STEPS = 10
LAYOUTS = [(1, 1, 2), (2, 2, 2)]
OPTIMIZERS = {
    "sgd": reference.Optimizer("sgd", lr=0.1),
    "sgd-momentum": reference.Optimizer("sgd", lr=0.05, momentum=0.9),
    "sgd-nesterov": reference.Optimizer("sgd", lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
    "adamw": reference.Optimizer("adamw", lr=1e-2, betas=(0.7, 0.95), eps=1e-4, weight_decay=0.3),
    "adamw-default": reference.Optimizer("adamw", lr=1e-3, weight_decay=0.01),
}


class Net(nn.Module):
    """Has parameters that no loss reaches: unused ones, and one that is only read without its gradient."""

    def __init__(self):
        super().__init__()
        self.wte, self.norm = nn.Embedding(9, WIDTH), nn.LayerNorm(WIDTH)
        self.fc, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 9)
        self.unused, self.detached = nn.Linear(3, 2), nn.Parameter(torch.ones(WIDTH))
        self.gate = nn.Parameter(torch.ones(WIDTH))

    @staticmethod
    def rows(generator):
        return {"tokens": integers(generator, 9, 24, 3), "targets": integers(generator, 9, 24, 3)}

    def forward(self, tokens, targets):
        x = self.norm(self.wte(tokens)) * self.detached.detach()
        with torch.no_grad():
            gate = torch.sigmoid(self.gate * x)
        x = self.head(torch.tanh(self.fc(x * gate)))
        return nn.functional.cross_entropy(x.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Groups:
    """torch.optim with fused=True; parameters whose name has `no_decay` are a group without weight decay."""

    options: reference.Optimizer
    no_decay: str = "$^"
    freeze: str = "$^"

    def build(self, model):
        named = list(model.named_parameters())
        for name, parameter in named:
            parameter.requires_grad_(not re.search(self.freeze, name))
        kept = [p for n, p in named if re.search(self.no_decay, n) and p.requires_grad]
        decayed = [p for n, p in named if not re.search(self.no_decay, n) and p.requires_grad]
        o = self.options
        groups = [{"params": decayed, "weight_decay": o.weight_decay}, {"params": kept, "weight_decay": 0.0}]
        if o.name == "sgd":
            return torch.optim.SGD(groups, lr=o.lr, momentum=o.momentum, nesterov=o.nesterov, fused=True)
        return torch.optim.AdamW(groups, lr=o.lr, betas=o.betas, eps=o.eps, fused=True)


def untouched(model: OwnModel, trained, *names):
    initial = model.fresh().state_dict()
    assert all(torch.equal(trained.state[name], initial[name]) for name in names)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_equal_torch(own_model, name, layout):
    model, optimizer = own_model(Net), OPTIMIZERS[name]
    trained = model.train(layout=layout, steps=STEPS, optimizer=optimizer)
    compare(model.expected(steps=STEPS, optimizer=Groups(optimizer)), trained)
    untouched(model, trained, "unused.weight", "unused.bias", "detached", "gate")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["sgd-nesterov", "adamw"])
@pytest.mark.parametrize(
    ("options", "groups"),
    [
        (["--no-decay", "bias|norm"], {"no_decay": "bias|norm"}),
        (["--no-decay", "^norm[.]"], {"no_decay": "^norm[.]"}),
        (["--freeze", "wte"], {"freeze": "wte"}),
        (["--freeze", "^(wte|fc)", "--no-decay", "bias"], {"freeze": "^(wte|fc)", "no_decay": "bias"}),
        (["--freeze", "head|norm|fc.bias"], {"freeze": "head|norm|fc.bias"}),
    ],
    ids=lambda value: "_".join(map(str, value[1::2])) if isinstance(value, list) else "",
)
def test_groups_equal_torch(own_model, options, groups, name, layout):
    model, optimizer = own_model(Net), OPTIMIZERS[name]
    trained = model.train(*options, "--clip-norm", 0.2, layout=layout, steps=STEPS, optimizer=optimizer)
    run = model.expected(steps=STEPS, optimizer=Groups(optimizer, **groups), clip_norm=0.2)
    assert max(run.grad_norms) > 0.2
    compare(run, trained)
    frozen = [n for n in trained.state if re.search(groups.get("freeze", "$^"), n)]
    untouched(model, trained, *frozen, "unused.weight", "detached")


def test_weight_decay_has_torch_defaults(own_model):
    """0.01 with AdamW, 0 with SGD; and the defaults of the rest."""
    model = own_model(Net)
    options = ["--batch", 11, "--steps", 3, "--no-shuffle", "--save", model.directory / "saved.safetensors"]
    for arguments, build in {
        (): lambda p: torch.optim.AdamW(p, fused=True),
        ("--optimizer", "sgd"): lambda p: torch.optim.SGD(p, lr=1e-3, fused=True),
    }.items():
        model.command(*options, *arguments, "--metrics", model.directory / "metrics.jsonl")
        maker = type("Default", (), {"build": lambda self, m, build=build: build(m.parameters())})()
        run = model.expected(steps=3, optimizer=maker)
        found = load_file(options[-1])
        assert all(torch.allclose(found[n], v, rtol=TOLERANCE, atol=1e-12) for n, v in run.state.items())


# --- learning rates ----------------------------------------------------------------------------------------------


def learning_rate(kind, peak, warmup, step, steps):
    """The help: t <= W: lr t/W; then with u = (t-W)/(T-W+1): lr, lr (1-u), lr (1+cos(pi u))/2."""
    if step <= warmup:
        return peak * step / warmup
    u = (step - warmup) / (steps - warmup + 1)
    return peak * {"constant": 1.0, "linear": 1 - u, "cosine": (1 + math.cos(math.pi * u)) / 2}[kind]


class Scheduled:
    """SGD whose learning rate is set before each step."""

    def __init__(self, rates):
        self.rates = rates

    def build(self, model):
        optimizer = torch.optim.SGD(
            (p for p in model.parameters() if p.requires_grad), lr=1.0, momentum=0.9, fused=True
        )
        rates = iter(self.rates)
        step = optimizer.step

        def scheduled_step():
            optimizer.param_groups[0]["lr"] = next(rates)
            step()

        optimizer.step = scheduled_step
        return optimizer


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("warmup", [0, 1, 4, STEPS])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_learning_rates(own_model, kind, warmup, layout):
    model = own_model(Net)
    rates = [learning_rate(kind, 0.3, warmup, step, STEPS) for step in range(1, STEPS + 1)]
    optimizer = reference.Optimizer("sgd", lr=0.3, momentum=0.9)
    options = ["--lr-schedule", kind, "--warmup-steps", warmup]
    trained = model.train(*options, layout=layout, steps=STEPS, optimizer=optimizer)
    assert [line["lr"] for line in trained.lines] == pytest.approx(rates, rel=1e-14)
    compare(model.expected(steps=STEPS, optimizer=Scheduled(rates)), trained)


# --- the order of the data ---------------------------------------------------------------------------------------


class Loss(nn.Module):
    """The loss of a sample tells which one it is."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 24, WIDTH)}

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).mean()


STILL = reference.Optimizer("sgd", lr=0.0)


def order(model, *options, layout=(1, 1, 1), batch=1):
    """The losses of two epochs."""
    given = ["--epochs", 2, *options]
    return model.train(*given, layout=layout, batch=batch, steps=None, optimizer=STILL, is_shuffled=True).losses


def test_an_epoch_has_every_sample_once(own_model):
    model = own_model(Loss)
    with torch.no_grad():
        samples = [model.fresh()(row[None]).item() for row in model.rows["x"]]
    losses = order(model)
    first, second = losses[:24], losses[24:]
    assert sorted(first) == pytest.approx(sorted(samples), rel=TOLERANCE)
    assert sorted(second) == pytest.approx(sorted(samples), rel=TOLERANCE)
    assert first != second
    assert first != pytest.approx(samples, rel=TOLERANCE)
    assert order(model) == losses
    assert order(model, "--seed", 1)[:24] != first
    assert order(model, "--no-shuffle") == pytest.approx(samples * 2, rel=TOLERANCE)


@pytest.mark.parametrize("layout", [(1, 1, 4), (2, 1, 2), (1, 2, 1), (2, 2, 2)])
def test_the_order_depends_on_no_layout(own_model, layout):
    model = own_model(Loss)
    one = order(model)
    for batch in (4, 7):
        wanted = []
        for epoch in (one[:24], one[24:]):
            wanted += [sum(epoch[i : i + batch]) / len(epoch[i : i + batch]) for i in range(0, 24, batch)]
        assert order(model, layout=layout, batch=batch) == pytest.approx(wanted, rel=TOLERANCE, abs=1e-12)


def test_epochs_and_drop_last(own_model):
    model = own_model(Loss)
    run = {"layout": (1, 1, 2), "batch": 7, "steps": None, "is_shuffled": True, "optimizer": replace(STILL, lr=0.1)}
    assert [line["items"] for line in model.train("--epochs", 2, **run).lines] == [7, 7, 7, 3] * 2
    assert [line["items"] for line in model.train("--epochs", 2, "--drop-last", **run).lines] == [7, 7, 7] * 2
    run["steps"] = 5
    assert [line["items"] for line in model.train("--drop-last", **run).lines] == [7] * 5
