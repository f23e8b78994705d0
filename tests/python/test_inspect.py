"""What `trireme inspect` says of the chain of blocks."""

from __future__ import annotations

import json

import command
import pytest
import torch
from torch import nn

import trireme

pytestmark = pytest.mark.binary


class Small(nn.Module):
    """Wide at its only border between modules, narrow inside of one."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return torch.tanh(self.inner(x)).square().mean()


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(8, 8) for _ in range(4))

    def forward(self, x):
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x


def test_a_model_of_one_module_is_shown_as_its_operators(tmp_path):
    """As the planner, which cuts inside the module where the modules give too few places."""
    trireme.export(Small(), torch.randn(3, 8), tmp_path / "a.pt2")
    blocks = json.loads(command.run("inspect", tmp_path / "a.pt2", "--json").stdout)["blocks"]
    assert len(blocks) > 1
    assert {block["first_module"] for block in blocks} <= {"inner", ""}
    table = command.run("inspect", tmp_path / "a.pt2").stdout.partition("chain of blocks\n")[2].splitlines()
    assert len(table) == len(blocks)
    assert all(line.split()[1] in ("inner", "(no") for line in table)
