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


class Strange(nn.Module):
    """Calls two operators that no rule is written for."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x):
        return torch.linalg.matrix_exp(torch.linalg.matrix_exp(self.weight)).sinc().sum() * x.mean()


def test_operators_without_a_rule_are_listed(tmp_path):
    trireme.export(Strange(), torch.ones(3, 4), tmp_path / "a.pt2")
    lines = command.run("inspect", tmp_path / "a.pt2").stdout.splitlines()
    assert "operators without a rule: linalg_matrix_exp x2, sinc x1; flops counted as bytes moved" in lines
    trireme.export(Small(), torch.randn(3, 8), tmp_path / "b.pt2")
    assert "without a rule" not in command.run("inspect", tmp_path / "b.pt2").stdout


def test_each_place_that_inspect_names_can_be_cut():
    model = command.DATA / "nanogpt.f32.pt2"
    blocks = json.loads(command.run("inspect", model, "--json").stdout)["blocks"]
    names = [block["cut"] for block in blocks if block["cut"]]
    assert len(names) > 1
    assert all(f"  --cut {name}\n" in command.run("inspect", model).stdout for name in names)
    plan = command.run("plan", model, "--pp", len(names) + 1, "--cut", ",".join(names), "--json").stdout
    assert len(json.loads(plan)["stages"]) == len(names) + 1
