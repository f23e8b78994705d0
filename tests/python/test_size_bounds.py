"""An archive is right for the sizes it was exported for, and others are refused before the run."""

from __future__ import annotations

import command
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import trireme

pytestmark = pytest.mark.binary


class Positions(nn.Module):
    def __init__(self, has_positions=True):
        super().__init__()
        self.embed, self.position = nn.Embedding(11, 4), nn.Parameter(torch.zeros(16, 4))
        self.has_positions = has_positions

    def forward(self, tokens):
        x = self.embed(tokens) + (self.position[: tokens.shape[1]] if self.has_positions else self.position[0])
        return F.cross_entropy((x @ self.embed.weight.T)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def run(archive, tmp_path, rows, length, *options, code=0):
    data = tmp_path / "data.safetensors"
    save_file({"tokens": torch.zeros(rows, length, dtype=torch.long)}, data)
    arguments = ["--data", f"safetensors:{data}", "--steps", 1, "--workers", 1, "--quiet", *options]
    return command.run("train", archive, *arguments, code=code).stderr


def test_a_length_outside_its_bounds_is_refused(tmp_path):
    archive = tmp_path / "m.pt2"
    length = torch.export.Dim("length", min=4, max=16)
    trireme.export(Positions(), torch.zeros(2, 8, dtype=torch.long), archive, dynamic={"tokens": {1: length}})
    for allowed in (4, 16):
        run(
            archive, tmp_path, 3, allowed, "--batch", 3, "--micro-batches", 3
        )  # a batch of one sample is none of the bounds
    for refused in (3, 17):
        assert run(archive, tmp_path, 3, refused, "--batch", 3, code=2) == (
            f"trireme: dim 1 of input 'tokens' is {refused} in the data, but the model was exported for 4 to 16\n"
        )


def test_a_length_without_bounds_of_its_own_is_at_least_three(tmp_path):
    archive = tmp_path / "m.pt2"
    trireme.export(Positions(False), torch.zeros(2, 8, dtype=torch.long), archive, dynamic={"tokens": {1: "length"}})
    run(archive, tmp_path, 3, 3, "--batch", 3)
    assert run(archive, tmp_path, 3, 2, "--batch", 3, code=2) == (
        "trireme: dim 1 of input 'tokens' is 2 in the data, but the model was exported for at least 3\n"
    )


def test_a_micro_batch_outside_its_bounds_is_refused(tmp_path):
    archive = tmp_path / "m.pt2"
    batch = torch.export.Dim("batch", min=3, max=6)
    example = (torch.zeros(4, 8, dtype=torch.long),)
    program = torch.export.export(Positions(), example, dynamic_shapes=({0: batch},), strict=False)
    torch.export.save(program, archive)
    run(archive, tmp_path, 12, 8, "--batch", 6)
    run(archive, tmp_path, 12, 8, "--batch", 12, "--dp", 2, "--micro-batches", 2)
    allowed = "but the model was exported for 3 to 6; change --batch, --dp or --micro-batches\n"
    sentence = "trireme: a micro-batch of a step of {} samples has {}, " + allowed
    assert run(archive, tmp_path, 12, 8, "--batch", 7, code=2) == sentence.format(7, 7)
    assert run(archive, tmp_path, 12, 8, "--batch", 6, "--micro-batches", 3, code=2) == sentence.format(6, 2)
    assert run(archive, tmp_path, 8, 8, "--batch", 6, code=2) == sentence.format(2, 2)
    run(archive, tmp_path, 8, 8, "--batch", 6, "--drop-last")
