"""Evaluation is PyTorch's model.eval() under no_grad, in every layout, and leaves no trace in the training."""

from __future__ import annotations

import json
import re

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import ADAMW, TOLERANCE, integers, is_bitwise_equal, normal
from safetensors.torch import load_file
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 8
LAYOUTS = [((1, 1, 2), "1f1b"), *(((2, r, m), s) for r, m in ((1, 3), (2, 2)) for s in ("gpipe", "1f1b"))]
IDS = [f"{s}x{r}-{schedule}" for (s, r, _), schedule in LAYOUTS]


class Noisy(nn.Module):
    """All that evaluation switches off: dropout, attention dropout, BatchNorm's own statistics and its counter."""

    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(11, WIDTH), nn.Dropout(0.3)
        self.q, self.k, self.v, self.fc = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm, self.head = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 11)
        self.norm2 = nn.BatchNorm1d(WIDTH, momentum=0.3)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    @staticmethod
    def rows(generator):
        targets = integers(generator, 11, 24, 4)
        targets[torch.rand(targets.shape, generator=generator) < 0.4] = -100
        return {"tokens": integers(generator, 11, 24, 4), "targets": targets}

    def forward(self, tokens, targets):
        x = self.drop(self.embed(tokens))
        p = 0.2 if self.training else 0.0
        q, k, v = (f(x)[:, None] for f in (self.q, self.k, self.v))
        x = x + F.scaled_dot_product_attention(q, k, v, dropout_p=p)[:, 0]
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = torch.tanh(F.dropout(self.fc(x), 0.1, self.training, inplace=True))
        x = self.lstm(x)[0]
        x = self.norm2(x.transpose(1, 2)).transpose(1, 2)
        loss = F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), ignore_index=-100)
        return loss, (targets != -100).sum()


def arguments(layout, schedule):
    stages, replicas, micro_batches = layout
    return ["--pp", stages, "--dp", replicas, "--micro-batches", micro_batches, "--schedule", schedule, "--workers", 1]


def loaded(model, state):
    module = model.fresh()
    module.load_state_dict(state, strict=True)
    return module


@pytest.mark.parametrize("batch", [7, 24, 5])
@pytest.mark.parametrize(("layout", "schedule"), LAYOUTS, ids=IDS)
def test_eval_equals_pytorch(own_model, tmp_path, layout, schedule, batch):
    """T10, T46: batches of 24 rows that divide and do not, and a last batch of 3 or 4."""
    model = own_model(Noisy)
    state = model.train(layout=layout, schedule=schedule, batch=12, optimizer=ADAMW).state
    assert state["norm.num_batches_tracked"] == 5 * layout[1] * layout[2]
    weights = model.directory / "saved.safetensors"
    before = weights.read_bytes()
    metrics = tmp_path / "metrics.jsonl"
    result = command.run(
        *("eval", model.archive, "--data", f"safetensors:{model.data}", "--batch", batch, "--init", weights),
        *(*arguments(layout, schedule), "--json", "--metrics", metrics),
    )
    found = json.loads(result.stdout)
    wanted = model.mean_loss(loaded(model, state), batch)
    assert found["eval_loss"] == pytest.approx(wanted, rel=TOLERANCE, abs=0)
    assert found["items"] == (model.rows["targets"] != -100).sum().item()
    assert command.read_metrics(metrics) == [{"step": 0, "eval_loss": found["eval_loss"]}]
    assert weights.read_bytes() == before


def test_eval_prints_one_line(own_model):
    model = own_model(Noisy)
    data = ["--data", f"safetensors:{model.data}", "--batch", 8, "--workers", 1]
    wanted = model.mean_loss(model.fresh(), 8)
    result = command.run("eval", model.archive, *data)
    match = re.fullmatch(r"eval loss (\S+) over (\d+) items\n", result.stdout)
    assert match
    assert float(match[1]) == pytest.approx(wanted, rel=TOLERANCE, abs=0)
    assert int(match[2]) == (model.rows["targets"] != -100).sum()
    first = command.run("eval", model.archive, *data, "--eval-batches", 1, "--json")
    rows = {name: values[:8] for name, values in model.rows.items()}
    with torch.no_grad():
        assert json.loads(first.stdout)["eval_loss"] == pytest.approx(
            model.fresh().eval()(**rows)[0].item(), rel=TOLERANCE
        )


@pytest.mark.parametrize(("layout", "schedule"), LAYOUTS, ids=IDS)
def test_evaluation_while_training(own_model, layout, schedule):
    """T10, T46: at every third step and at the end, of the weights of that step; the training does not notice."""
    model = own_model(Noisy)
    run = {"layout": layout, "schedule": schedule, "batch": 9, "optimizer": ADAMW}
    data = ["--eval-data", f"safetensors:{model.data}"]
    plain = model.train(steps=4, **run)
    evaluated = model.train(*data, "--eval-every", 3, steps=4, **run)
    assert is_bitwise_equal(plain, evaluated)
    at_3 = model.train(steps=3, **run).state
    assert [line["step"] for line in evaluated.evaluations] == [3, 4]
    wanted = [model.mean_loss(loaded(model, state), 9) for state in (at_3, evaluated.state)]
    assert [line["eval_loss"] for line in evaluated.evaluations] == pytest.approx(wanted, rel=TOLERANCE, abs=0)

    short = model.train(*data, "--eval-batches", 1, steps=4, **run)
    assert is_bitwise_equal(plain, short)
    rows = {name: values[:9] for name, values in model.rows.items()}
    with torch.no_grad():
        wanted = loaded(model, short.state).eval()(**rows)[0].item()
    assert [line["step"] for line in short.evaluations] == [4]
    assert short.evaluations[0]["eval_loss"] == pytest.approx(wanted, rel=TOLERANCE, abs=0)


class Counting(nn.Module):
    """Its forward changes buffers in evaluation, too."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 24, WIDTH)}

    def forward(self, x):
        h = self.first(x)
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return self.last(torch.tanh(h - self.mean)).square().mean()


def test_evaluation_keeps_buffers_that_forward_changes(own_model):
    model = own_model(Counting)
    plain = model.train(layout=(2, 1, 3))
    evaluated = model.train("--eval-data", f"safetensors:{model.data}", "--eval-every", 1, layout=(2, 1, 3))
    assert is_bitwise_equal(plain, evaluated)
    # Each micro-batch of an evaluation starts from the buffer as it is: with one batch, as PyTorch's.
    data = ["--data", f"safetensors:{model.data}", "--batch", 24, "--workers", 1, "--json"]
    weights = model.directory / "saved.safetensors"
    wanted = model.mean_loss(loaded(model, load_file(weights)), 24)
    found = json.loads(command.run("eval", model.archive, *data, "--init", weights).stdout)
    assert found["eval_loss"] == pytest.approx(wanted, rel=TOLERANCE, abs=0)
    # Replicas cannot train such a buffer, but they can evaluate.
    two = json.loads(command.run("eval", model.archive, *data, "--init", weights, "--dp", 2).stdout)
    assert two["items"] == 24
