"""Faults of other training engines that concern how ranks start, wait and race; those of numbers are in test_layouts.py.

Rows: a docstring starts with the kinds of fault that the test stands for (T1, ...: public reports of training engines).
"""

from __future__ import annotations

import os
import re
import subprocess
import time

import command
import pytest
import torch
import torch.nn.functional as F
from hosts import hosts_up
from own_model import ADAMW, compare, integers, is_bitwise_equal, normal
from torch import nn

pytestmark = pytest.mark.binary

NUM_ROWS = 24


class Deep(nn.Module):
    """Eight blocks and an embedding, so that eight stages make sense."""

    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(19, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        self.head = nn.Linear(width, 19)

    @staticmethod
    def rows(generator):
        return {"tokens": integers(generator, 19, NUM_ROWS, 4), "targets": integers(generator, 19, NUM_ROWS, 4)}

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Wide(nn.Module):
    """What two stages pass on is much larger than a socket's buffer: 24 rows of 64 kB."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, NUM_ROWS, 128, 64), "y": normal(generator, NUM_ROWS, 128, 64)}

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return F.mse_loss(x, y)


@pytest.mark.parametrize("layout", [(1, 8, 1), (2, 4, 2), (4, 2, 3), (8, 1, 2)])
def test_every_shape_of_eight_ranks_starts_and_ends(own_model, layout):
    """T7, T11, T13: as eight processes; 5 s on a machine that has a core a rank, and three times that."""
    model = own_model(Deep)
    begin = time.monotonic()
    processes = model.train("--workers", 8, layout=layout, steps=2, batch=16)
    seconds = time.monotonic() - begin
    compare(model.expected(steps=2, batch=16), processes)
    assert seconds < 15 * max(1, 8 / os.cpu_count())


@pytest.mark.parametrize("pp", [40, 1000])
def test_more_stages_than_a_model_has_blocks_are_refused_at_once(own_model, pp):
    """T11, T44, T54, T72."""
    model = own_model(Deep)
    begin = time.monotonic()
    refused = command.run("plan", model.archive, "--pp", pp, code=2)
    assert time.monotonic() - begin < 5
    assert re.fullmatch(
        rf"trireme: the model can be cut at \d+ places, which makes \d+ stages, not --pp {pp}\n", refused.stderr
    )


@pytest.fixture
def narrow_network():
    """A host whose sockets buffer 4 kB."""
    with hosts_up("--hosts", 1) as hosts:
        for key in ("tcp_rmem", "tcp_wmem"):
            write = f"echo 4096 4096 4096 >/proc/sys/net/ipv4/{key}"
            subprocess.run(hosts.inside("h0", "sh", "-c", write), check=True)
        yield hosts.inside("h0")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_tiny_socket_buffers_stop_nothing(own_model, narrow_network, schedule):
    """T4: a send that cannot be buffered waits for its receive; no schedule may rely on buffers."""
    model = own_model(Wide)
    plain = model.train("--workers", 3, layout=(3, 1, 4), schedule=schedule, steps=2)
    metrics = model.directory / "narrow.jsonl"
    options = ["--data", f"safetensors:{model.data}", "--batch", 11, "--steps", 2, "--pp", 3, "--micro-batches", 4]
    options += [
        "--schedule",
        schedule,
        "--no-shuffle",
        "--quiet",
        "--metrics",
        metrics,
        "--lr",
        0.05,
        "--momentum",
        0.9,
    ]
    words = [*narrow_network, command.BINARY, "train", model.archive, *options, "--optimizer", "sgd"]
    subprocess.run([str(word) for word in words], check=True, timeout=60)
    losses = [line["loss"] for line in command.read_metrics(metrics)]
    assert losses == plain.losses


@pytest.mark.alone
def test_a_busy_machine_changes_no_bit(own_model):
    """T25: gradients that race would differ from run to run while ranks are preempted."""
    model = own_model(Deep, torch.float32)
    quiet = model.train("--workers", 4, layout=(2, 2, 3), steps=20, optimizer=ADAMW)
    burners = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        busy = model.train("--workers", 4, layout=(2, 2, 3), steps=20, optimizer=ADAMW)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert is_bitwise_equal(quiet, busy)
