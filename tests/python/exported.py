"""Models that tests export, and what they ask of the archive."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import trireme


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.l2 = nn.Linear(6, 3)

    def forward(self, x):
        return self.l2(torch.relu(self.norm(self.l1(x))))


class Output:
    def __init__(self, **fields):
        self.__dict__.update(fields)


torch.utils._pytree.register_pytree_node(
    Output, lambda o: (list(o.__dict__.values()), list(o.__dict__)), lambda v, k: Output(**dict(zip(k, v, strict=True)))
)


class Tagger(nn.Module):
    """Token logits in `.logits`, in the way of a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, ids, attention_mask=None):
        return Output(logits=self.head(self.embed(ids)))


def tokens(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1))


def run(path, *inputs):
    loss, items = torch.export.load(path).module()(*inputs)
    return loss, items.item() if isinstance(items, torch.Tensor) else items


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def refusal(tmp_path, model, batch, **options):
    path = tmp_path / "refused.pt2"
    with pytest.raises(ValueError) as caught:
        trireme.export(model, batch, path, **options)
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)
