"""Parameters that lie in one memory train as in PyTorch, or are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import trireme


class Sharing(nn.Module):
    def __init__(self, share) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        share(self)

    def forward(self, x):
        return self.a(x).square().mean() + self.b.sum()


def slices(model):
    memory = torch.randn(6, 4)
    model.a.weight, model.b = nn.Parameter(memory[:4]), nn.Parameter(memory[2:])


def transposed(model):
    model.b = nn.Parameter(model.a.weight.data.t())


def whole(model):
    """Two parameters of one memory are two to an optimizer of torch, which updates it twice."""
    model.b = nn.Parameter(model.a.weight.data)


def buffer(model):
    model.register_buffer("b", model.a.weight.data[:2])


def constant(model):
    model.b = model.a.weight.detach()[1:]


@pytest.mark.parametrize(
    ("share", "names"),
    [
        (slices, ("a.weight", "b")),
        (transposed, ("a.weight", "b")),
        (whole, ("a.weight", "b")),
        (buffer, ("b", "a.weight")),
        (constant, ("b", "a.weight")),
    ],
)
def test_tensors_that_overlap_a_parameter_are_refused(tmp_path, share, names):
    with pytest.raises(ValueError) as caught:
        trireme.export(Sharing(share), torch.randn(3, 4), tmp_path / "a.pt2")
    assert str(caught.value) == (
        f'"{names[0]}" of Sharing lies in the memory of its parameter "{names[1]}", and the two would train apart; '
        "clone() one of them, or use the one parameter for both"
    )
    assert list(tmp_path.iterdir()) == []


def columns(model):
    memory = torch.randn(4, 8)
    model.a.weight, model.b = nn.Parameter(memory[:, :4]), nn.Parameter(memory[:, 4:])


def tied(model):
    model.b = model.a.weight


def frozen(model):
    buffer(model)
    model.a.requires_grad_(False)
    model.c = nn.Parameter(torch.zeros(1))
    model.a.register_forward_hook(lambda module, args, output: output * model.c)


@pytest.mark.parametrize("share", [columns, tied, frozen])
def test_tensors_that_train_alike_are_exported(tmp_path, share):
    trireme.export(Sharing(share), torch.randn(3, 4), tmp_path / "a.pt2")
