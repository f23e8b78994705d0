"""Schedules with chunks and with split backwards train to the numbers of one PyTorch process."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from chain import Chain, check
from own_model import ADAMW, TOLERANCE, compare, is_bitwise_equal, normal
from test_borders import InPlace, Regions, Running, Spectral
from test_layouts import Auxiliary, Dropouts, Shared
from torch import nn

pytestmark = pytest.mark.binary

SCHEDULES = ["interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "greedy"]
RECOMPUTING = ["pre-recompute", "last-no-recompute", "shifted-critical-path"]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@schedules
@pytest.mark.parametrize(
    ("stages", "micro_batches"), [(1, 1), (1, 3), (2, 1), (4, 1), (2, 2), (3, 3), (4, 2), (3, 5), (2, 8)]
)
def test_any_number_of_stages_and_micro_batches(own_model, stages, micro_batches, schedule):
    check(own_model(Chain), (stages, 1, micro_batches), schedule=schedule, steps=3)


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_any_number_of_chunks(own_model, chunks):
    check(own_model(Chain), (2, 2, 3), "--chunks", chunks, schedule="interleaved", optimizer=ADAMW)


@schedules
def test_a_curve_of_100_steps_is_bitwise_that_of_one_stage(own_model, schedule):
    """In float32, at the same number of micro-batches."""
    model = own_model(Chain, torch.float32)
    one = model.train(layout=(1, 1, 4), batch=12, steps=100, optimizer=ADAMW)
    many = model.train(layout=(3, 1, 4), batch=12, steps=100, optimizer=ADAMW, schedule=schedule)
    assert one.losses[-1] < 0.9 * one.losses[0]
    assert is_bitwise_equal(one, many)


@schedules
@pytest.mark.parametrize("layout", [(2, 1, 3), (2, 2, 2)])
@pytest.mark.parametrize("kind", [Shared, Auxiliary, InPlace])
def test_what_stages_share_and_change(own_model, kind, layout, schedule):
    """Parameters that chunks of one rank and of several use, losses of inner chunks, in-place operators."""
    check(own_model(kind), layout, "--clip-norm", 1e9, schedule=schedule, optimizer=ADAMW)


@schedules
@pytest.mark.parametrize("kind", [Running, Spectral])
def test_buffers_that_forward_changes(own_model, kind, schedule):
    """As in the sequential loop over micro-batches."""
    model, run = own_model(kind), {"batch": 8, "steps": 4}
    layout = (1 if kind is Running and schedule != "zb-h1" else 2, 1, 3)  # Running can be cut once
    compare(model.expected(micro_batches=3, **run), model.train(layout=layout, schedule=schedule, **run))


@schedules
def test_dropout_does_not_depend_on_the_schedule(own_model, schedule):
    model = own_model(Dropouts)
    first = model.train(optimizer=ADAMW)
    other = model.train(layout=(2, 2, 3), schedule=schedule, optimizer=ADAMW)
    assert other.losses == pytest.approx(first.losses, rel=TOLERANCE, abs=0)


@schedules
def test_regions_without_gradient_and_with_autocast(own_model, schedule):
    check(own_model(Regions), (2, 1, 3), schedule=schedule)


class Convolutions(nn.Module):
    """Convolutions of one, two and three dims, with groups and strides, and a transposed weight."""

    def __init__(self):
        super().__init__()
        self.line = nn.Conv1d(2, 4, 3, padding=1)
        self.plane = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(4, 4, (1, 3), groups=2, dilation=(1, 2), padding=(0, 2), bias=False)
        self.space = nn.Conv3d(1, 2, 2)
        self.weight = nn.Parameter(torch.randn(18, 5) / 4)
        self.bias = nn.Parameter(torch.zeros(5))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 24, 2, 8), "y": normal(generator, 24, 5)}

    def forward(self, x, y):
        x = torch.tanh(self.line(x)).unsqueeze(1)
        x = torch.tanh(self.plane(x))
        x = x + torch.tanh(self.grouped(x))
        x = torch.tanh(self.space(x.unsqueeze(1))).flatten(1)
        return F.mse_loss(torch.addmm(self.bias, x, self.weight), y)


@pytest.mark.parametrize("schedule", ["1f1b", *SCHEDULES])
def test_convolutions(own_model, schedule):
    check(own_model(Convolutions), (2, 1, 3), schedule=schedule, optimizer=ADAMW)


@pytest.mark.parametrize("schedule", RECOMPUTING)
@pytest.mark.parametrize("kind", [Chain, Running, Spectral, Dropouts])
def test_recomputed_passes_are_those_of_the_forward(own_model, kind, schedule):
    """The same random numbers, and buffers that change once a micro-batch."""
    model = own_model(kind)
    plain = model.train(layout=(2, 1, 4), batch=8, steps=4, optimizer=ADAMW)
    recomputed = model.train(layout=(2, 1, 4), batch=8, steps=4, optimizer=ADAMW, schedule=schedule)
    if kind is Dropouts:  # attention takes another kernel where no graph is built
        assert recomputed.losses == pytest.approx(plain.losses, rel=TOLERANCE, abs=0)
    else:
        assert is_bitwise_equal(plain, recomputed)
