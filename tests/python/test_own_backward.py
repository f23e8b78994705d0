"""An archive keeps the forward of an autograd function alone, which will do where its backward is the derivative."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trireme


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x):
        return self.layers(x)


def rows():
    return torch.randn(3, 4), torch.tensor([0, 2, 1])


class Swish(torch.autograd.Function):
    """Its backward is right, whether it is written in one way or the other."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return ctx.scale * grad * gate * (1 + x * (1 - gate)), None


class LaterSwish(torch.autograd.Function):
    backward = Swish.backward

    @staticmethod
    def forward(x, scale):
        return scale * x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad, None


class Looked(torch.autograd.Function):
    """Right, but nothing shows it: the example of integers cannot be made up."""

    @staticmethod
    def forward(ctx, x, ids):
        ctx.save_for_backward(ids)
        return x.index_select(1, ids)

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros(len(grad), 3).index_add(1, ctx.saved_tensors[0], grad), None


@pytest.mark.parametrize("function", [Swish, LaterSwish])
def test_own_backward_that_is_the_derivative(tmp_path, function):
    class Gated(Net):
        def forward(self, x):
            return function.apply(super().forward(x), 2.0)

    model, batch = Gated(), rows()
    trireme.export(model, batch, tmp_path / "a.pt2", loss=F.cross_entropy)
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    program = torch.export.load(tmp_path / "a.pt2").module()
    program(*batch)[0].backward()
    gradients = {name: parameter.grad for name, parameter in program.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad)


@pytest.mark.parametrize(("function", "second"), [(Reversed, 1.0), (Looked, torch.tensor([0, 1, 2]))])
def test_own_backward_that_is_not_shown_to_be_the_derivative(tmp_path, function, second):
    class Turned(Net):
        def forward(self, x):
            return function.apply(super().forward(x), second)

    with pytest.raises(ValueError) as refusal:
        trireme.export(Turned(), rows(), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert str(refusal.value) == (
        f"Turned uses the autograd function {function.__name__}, whose own backward, which is not the derivative of its "
        "forward, an archive does not hold; write it with plain operators and detach()"
    )
    assert not list(tmp_path.iterdir())
