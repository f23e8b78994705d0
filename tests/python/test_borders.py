"""What crosses a border of two stages, and where a border may lie.

Rows: as in test_layouts.py.
"""

from __future__ import annotations

import re
import subprocess

import command
import pytest
import torch
import torch.nn.functional as F
from chain import LAYOUTS, NUM_ROWS, SCHEDULES, WIDTH, Chain, check
from own_model import (
    SGD,
    TOLERANCE,
    compare,
    integers,
    is_bitwise_equal,
    normal,
    optimizer_arguments,
)
from torch import nn

pytestmark = pytest.mark.binary


# --- what crosses a border ---------------------------------------------------------------------------------------


class Borders(nn.Module):
    """`count` tensors of many dtypes are made in `first` and read in `last`."""

    count = 8

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            h = torch.tanh(self.linear(x))
            return [
                h,
                h > 0.1,
                h.argmax(1),
                (2 * h).float(),
                h.detach().exp(),
                (h * 100).to(torch.int32),
                (h + 1).to(torch.bfloat16),
                (h.sum(1) > 0).to(torch.uint8),
            ]

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.embed = nn.Embedding(WIDTH, WIDTH)

        def forward(self, z, values):
            z = self.linear(z)
            for value in values:
                if value.is_floating_point():
                    z = z + value.double().sin()
                elif value.dtype == torch.bool:
                    z = torch.where(value, z, -z)
                elif value.dtype == torch.int64:
                    z = z + self.embed(value)
                else:
                    z = z * (1 + 0.01 * value.double().view(z.shape[0], -1))
            return z

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = self.First(), nn.Linear(WIDTH, WIDTH), self.Last()

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        values = self.first(x)[: self.count]
        return F.mse_loss(self.last(torch.tanh(self.middle(values[0])), values), y)


BORDERS = [type(f"Borders{n}", (Borders,), {"count": n}) for n in range(1, 9)]


@pytest.mark.parametrize("kind", BORDERS, ids=lambda kind: str(kind.count))
def test_many_tensors_of_many_dtypes_skip_a_stage(own_model, kind):
    """T29, T30, T42: every kind of tensor crosses two borders, with its gradient where it has one."""
    model = own_model(kind)
    run = model.expected()
    for schedule in SCHEDULES:
        compare(run, model.train("--cut", "middle,last", layout=(3, 1, 4), schedule=schedule))
    compare(run, model.train("--cut", "middle,last", layout=(3, 2, 2)))


class Views(nn.Module):
    """Borders of views: transposed, with gaps, expanded, without dims, of a parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        h = self.first(x).view(-1, 2, WIDTH)
        transposed, gaps, column = h.transpose(0, 2), h[:, 1], h[:, 0, 2:3].expand(-1, WIDTH)
        total, scale, part = h.sin().mean(dim=(1, 2)), self.scale.exp()[None].expand(x.shape[0], -1), self.scale[1:4]
        z = self.last(gaps * scale) + transposed[:, 0].t() + column + total[:, None]
        return F.mse_loss(z * part.sum(), y)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(2, 1, 3), (2, 2, 2)])
def test_views_cross_a_border(own_model, layout, schedule):
    """T30: strides of any kind on a border."""
    check(own_model(Views), layout, "--cut", "last", schedule=schedule)


class InPlace(nn.Module):
    """Chains of in-place operators, on views too; a cut may part none of them from its memory."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x.mul_(1.5).add_(0.1)
            x[:, i] = x[:, i + 1] * 2
            x[:, 2:4].mul_(0.5)
            x = x.relu_() - 0.3 * x.detach()
        return F.mse_loss(x, y)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_of_in_place_operators(own_model, layout, schedule):
    """T42: no leaf is changed in place, no gradient is lost."""
    check(own_model(InPlace), layout, schedule=schedule)


class Mixed(nn.Module):
    """Integer, boolean and float inputs, read by several stages."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, WIDTH)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return {
            "kind": integers(generator, 7, NUM_ROWS),
            "is_used": integers(generator, 2, NUM_ROWS, WIDTH).bool(),
            "x": normal(generator, NUM_ROWS, WIDTH),
            "weight": normal(generator, NUM_ROWS).abs(),
        }

    def forward(self, kind, is_used, x, weight):
        mask = is_used[:, None, :] & torch.ones(WIDTH, WIDTH, dtype=torch.bool).tril()
        z = torch.tanh(self.first(self.embed(kind))).masked_fill(~is_used, 0.0)
        z = self.last(z) + (mask.double() @ x[:, :, None])[:, :, 0]
        return (z.square().mean(1) * weight).mean()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_integers_bools_and_floats(own_model, layout):
    """T29, T42: each stage reads the inputs that it uses, and makes masks for itself."""
    check(own_model(Mixed), layout)


# --- buffers and regions -----------------------------------------------------------------------------------------


class Running(nn.Module):
    """A buffer that the forward pass both changes and multiplies with: backward needs its value of then."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        h = self.first(x)
        self.calls += 1
        self.scale.mul_(0.9).add_(0.1 * h.detach().abs().mean(0))
        return F.mse_loss(self.last(torch.tanh(h * self.scale)), y)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(1, 1, 3), (2, 1, 3), (2, 1, 1)])
def test_a_buffer_that_forward_changes(own_model, layout, schedule):
    """T40: as in the sequential loop over micro-batches."""
    model = own_model(Running)
    run = {"batch": 8, "steps": 6}  # never less samples than micro-batches
    compare(model.expected(micro_batches=layout[2], **run), model.train(layout=layout, schedule=schedule, **run))


@pytest.mark.parametrize("layout", [(1, 2, 1), (2, 2, 2)])
def test_replicas_cannot_share_such_a_buffer(own_model, layout):
    """T40: refused by name before any rank starts."""
    stages, replicas, micro_batches = layout
    options = ["--pp", stages, "--dp", replicas, "--micro-batches", micro_batches]
    result = own_model(Running).command("--batch", 11, "--steps", 1, *options, code=2)
    assert (
        "the forward pass changes buffer 'calls' by aten.add_.Tensor, which replicas cannot combine; use --dp 1"
        in result.stderr
    )


class Spectral(Chain):
    """Its buffers are changed by the `out` of an operator."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)) for _ in range(2))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(1, 1, 2), (2, 1, 3)])
def test_spectral_norm(own_model, layout, schedule):
    """T40: a power iteration for each micro-batch; refused where each replica would have its own."""
    model, run = own_model(Spectral), {"batch": 8, "steps": 4}
    compare(model.expected(micro_batches=layout[2], **run), model.train(layout=layout, schedule=schedule, **run))
    result = model.command("--batch", 8, "--steps", 1, "--dp", 2, code=2)
    assert (
        "the forward pass changes buffer 'layers.0.parametrizations.weight.0._u' by aten.div.out, which replicas cannot "
        "combine; use --dp 1"
    ) in result.stderr


class Regions(nn.Module):
    """Regions without gradient and with autocast that several modules lie in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.head = nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        x = self.layers[0](x)
        with torch.no_grad():
            fixed = self.layers[1](x)
            fixed = torch.tanh(self.layers[2](fixed))
        with torch.autocast("cpu", torch.bfloat16):
            x = self.layers[3](x * (1 + fixed))
            x = self.layers[4](torch.tanh(x))
        return F.mse_loss(self.head(x.to(y.dtype)), y)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("cut", ["layers.2", "layers.4", "layers.1,layers.4", "layers.2,layers.4", "head"])
def test_a_region_cut_in_the_middle(own_model, cut, schedule):
    """T42: both parts of a region without gradient or with autocast keep its mode."""
    model = own_model(Regions)
    check(model, (cut.count(",") + 2, 1, 3), "--cut", cut, schedule=schedule)
    single = own_model(Regions, torch.float32)  # autocast leaves float64 alone
    cuts = single.train("--cut", cut, layout=(cut.count(",") + 2, 1, 2), batch=12, schedule=schedule)
    assert is_bitwise_equal(cuts, single.train(layout=(1, 1, 2), batch=12))
    # A bfloat16 has 8 bits: 2**-8 of a value in each of a few products, and a mean over many of them.
    assert cuts.losses == pytest.approx(single.expected(batch=12).losses, rel=2e-2)


# --- every place to cut ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Views, Running, Mixed])
def test_every_place_to_cut(own_model, tmp_path, kind):
    """T28, T30: a plan that begins its second stage at any node trains the same, or is refused in a sentence."""
    model = own_model(kind)
    run = {"batch": 8, "steps": 2}
    one = model.train(layout=(1, 1, 2), **run)
    text = command.run("inspect", model.archive, "--graph").stdout
    nodes = re.findall(r"^\[?%(\w+).* = aten\.", text, re.MULTILINE)
    path = tmp_path / "plan.yaml"
    command.run("plan", model.archive, "--pp", 2, "--micro-batches", 2, "-o", path)
    head, _, tail = path.read_text().rpartition("first_node: ")
    options = ["--data", f"safetensors:{model.data}", "--batch", 8, "--steps", 2, "--no-shuffle", "--quiet"]
    options += ["--workers", 1, "--plan", path, "--metrics", tmp_path / "metrics.jsonl", *optimizer_arguments(SGD)]
    num_legal = 0
    for node in nodes[1:]:
        path.write_text(f"{head}first_node: {node}\n{tail.partition(chr(10))[2]}")
        result = subprocess.run(
            [command.BINARY, "train", model.archive, *map(str, options)], capture_output=True, text=True
        )
        if result.returncode == 2:
            assert f"stage 1 of the plan cannot begin at {node}: " in result.stderr
            continue
        assert result.returncode == 0, result.stderr
        losses = [line["loss"] for line in command.read_metrics(tmp_path / "metrics.jsonl")]
        assert losses == pytest.approx(one.losses, rel=TOLERANCE, abs=0), node
        num_legal += 1
    assert num_legal > 0
