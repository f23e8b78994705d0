"""Models larger than memory: what exporting, inspecting, planning, starting and saving them costs."""

from __future__ import annotations

import json
import lzma
import os
import resource
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import command
import llama_70b
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import trireme

pytestmark = [pytest.mark.binary, pytest.mark.slow]

MIB = 2**20
GIB = 2**30


@dataclass
class Cost:
    output: str
    seconds: float
    peak_bytes: int  # of the largest process


# Linux counts the memory of the process that starts another as the other's, so a small one stands between.
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def measure(*arguments) -> Cost:
    start = time.monotonic()
    watched = [sys.executable, "-c", WATCH, *map(str, arguments)]
    done = subprocess.run(watched, capture_output=True, text=True, timeout=command.TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return Cost(done.stdout, time.monotonic() - start, int(done.stderr.splitlines()[-1]) * 1024)


# --- 70 billion parameters -------------------------------------------------------------------------------------------

NUM_ELEMENTS = 2 * 128256 * 8192 + 80 * (2 * 8192**2 + 2 * 1024 * 8192 + 3 * 8192 * 28672 + 2 * 8192) + 8192


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "llama_70b.pt2"
    path.write_bytes(lzma.decompress(llama_70b.ARCHIVE.read_bytes()))
    return path


def test_a_llama_of_70_billion_parameters_is_inspected(llama):
    cost = measure(command.BINARY, "inspect", llama, "--json")
    found = json.loads(cost.output)
    assert sum(p["elements"] for p in found["parameters"]) == NUM_ELEMENTS
    assert found["num_parameters_without_values"] == len(found["parameters"]) == 3 + 80 * 9
    assert cost.seconds < 10
    assert cost.peak_bytes < GIB


def test_a_llama_of_70_billion_parameters_is_planned(llama):
    cost = measure(command.BINARY, "plan", llama, "--pp", 8, "--dp", 4, "--micro-batches", 16, "--json")
    stages = json.loads(cost.output)["stages"]
    assert len(stages) == 8
    assert sum(s["num_parameters"] for s in stages) == NUM_ELEMENTS
    assert cost.seconds < 10
    assert cost.peak_bytes < GIB


def test_exporting_does_not_take_the_memory_of_the_weights(tmp_path):
    """One layer of that Llama and what is around the layers: 5.5 GiB of weights."""

    def peak_bytes():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = peak_bytes()
    llama_70b.make(tmp_path / "llama.pt2", num_layers=1)
    assert peak_bytes() - before < GIB
    assert (tmp_path / "llama.pt2").stat().st_size < MIB


# --- what a rank holds -----------------------------------------------------------------------------------------------

WIDTH, LAYERS = 1024, 48
WEIGHT_BYTES = 4 * WIDTH * WIDTH * LAYERS  # 201 MB


class Tower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(LAYERS))

    def forward(self, x, y):
        for layer in self.layers:
            x = x + layer(x)
        return (x.mean(1) - y).pow(2).mean()


def write_zeros(path: Path, names: list[str], width: int) -> None:
    """A safetensors file that takes no room on the disk."""
    size = 4 * width * width
    entries = {
        n: {"dtype": "F32", "shape": [width, width], "data_offsets": [i * size, (i + 1) * size]}
        for i, n in enumerate(names)
    }
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, path.stat().st_size + size * len(names))


def train(folder: Path, width: int, *options) -> Cost:
    folder.mkdir(exist_ok=True)
    with trireme.empty_weights():
        model = Tower(width)
    rows = {"x": torch.ones(2, width), "y": torch.ones(2)}
    trireme.export(model, rows, folder / "tower.pt2")
    save_file(rows, folder / "data.safetensors")
    write_zeros(folder / "init.safetensors", list(model.state_dict()), width)
    return measure(
        *(command.BINARY, "train", folder / "tower.pt2", "--data", f"safetensors:{folder / 'data.safetensors'}"),
        *("--batch", 2, "--steps", 2, "--pp", 2, "--optimizer", "sgd", "--quiet"),
        *("--init", folder / "init.safetensors", *options),
    )


@pytest.mark.parametrize("saves", [False, True])
def test_a_rank_holds_its_half_once(tmp_path, saves):
    """Half of the weights and half of their gradients, beside what a rank of a tiny model takes.

    A second copy of the weights of the stage would be half the weights more; a quarter is left
    for what a backward pass and the saving of single tensors take. The peak of the tiny model moves by some MiB,
    hence the little less on the other side, which shows that weights and gradients are seen at all.
    """
    options = ["--save", tmp_path / "saved.safetensors"] if saves else []
    idle = train(tmp_path / "tiny", 4, *options)
    cost = train(tmp_path / "tower", WIDTH, *options)
    held = cost.peak_bytes - idle.peak_bytes
    print(f"{held / MIB:.0f} MiB for weights of {WEIGHT_BYTES / MIB:.0f} MiB on two ranks")
    assert 0.95 * WEIGHT_BYTES < held < 1.25 * WEIGHT_BYTES
    if saves:
        assert (tmp_path / "saved.safetensors").stat().st_size > WEIGHT_BYTES
