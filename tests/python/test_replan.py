"""A training whose links change while it runs: it goes over to other warm-ups, and to no other number."""

from __future__ import annotations

import re
import sys

import command
import pytest
import torch
import torch.nn.functional as F
from hosts import hosts_up
from own_model import normal
from processes import WORKER, Run, wait_until
from torch import nn

sys.path.insert(0, str(command.REPOSITORY / "scripts"))
import shaped_hosts

pytestmark = [pytest.mark.binary, pytest.mark.slow]

WIDTH, LENGTH, NUM_ROWS = 512, 64, 32
FAST, SLOW = 80e6, 15e6  # bytes a second
STEPS = 26
PLACE = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}


class Layers(nn.Module):
    """An activation of a micro-batch of 8 rows is 1 MB; a layer computes for some 5 ms."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, NUM_ROWS, LENGTH, WIDTH), "y": normal(generator, NUM_ROWS, LENGTH, WIDTH)}

    def forward(self, x, y):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x, y)


@pytest.fixture
def hosts():
    with hosts_up("--hosts", "a,b", "--rate", "80MB") as made:
        yield made


def set_rate(hosts, rate):
    for space in hosts.spaces.values():
        shaped_hosts.shape(space, "eth0", rate)


def train(hosts, model, folder, *options, rate_after=None):
    """The lines that rank 0 prints. `rate_after`: a step and the rate from there on."""
    for host in "ab":
        (folder / host).mkdir(parents=True)
    words = [
        *(WORKER, "train", model.archive, "--data", f"safetensors:{model.data}", "--batch", NUM_ROWS, "--no-shuffle"),
        *("--steps", STEPS, "--pp", 2, "--cut", "layers.2", "--micro-batches", 4, "--metrics", folder / "metrics"),
        *("--save", folder / "weights", *options),
    ]
    set_rate(hosts, FAST)
    with (
        Run(hosts.inside("a", *words), folder / "a", PLACE | {"RANK": "0"}) as first,
        Run(hosts.inside("b", *words), folder / "b", PLACE | {"RANK": "1"}) as second,
    ):
        if rate_after is not None:
            step, rate = rate_after
            wait_until(lambda: (folder / "metrics").exists() and len(lines_of(folder)) >= step, f"step {step}")
            set_rate(hosts, rate)
        assert first.wait() == 0, first.err
        assert second.wait() == 0, second.err
        return first.out.splitlines()


def lines_of(folder):
    return (folder / "metrics").read_text().splitlines()


@pytest.mark.alone
@pytest.mark.parametrize("schedule", ["2bw", "1f1b"])
def test_a_link_that_slows_down_is_met_with_more_warm_ups(tmp_path, hosts, own_model, schedule):
    model = own_model(Layers, torch.float32)
    out = train(hosts, model, tmp_path / "changed", "--schedule", schedule, rate_after=(8, SLOW))
    change = re.compile(
        r"rank (0|1) sends to rank (1|0) at ([0-9.]+)MB/s instead of ([0-9.]+)MB/s: from step ([0-9]+) on "
        r"--extra-warm-ups [1-3] instead of [0-2]"
    )
    changes = [change.fullmatch(line) for line in out if "--extra-warm-ups" in line]
    (found,) = [each for each in changes if float(each[3]) == pytest.approx(SLOW / 1e6, rel=0.3)]
    assert float(found[4]) > 1.5 * float(found[3])
    assert 12 < int(found[5]) <= STEPS
    (links,) = [line for line in out if line.startswith("links as measured: ")]
    measured = re.fullmatch(r"links as measured: stage 0 to 1 ([0-9.]+)MB/s, stage 1 to 0 ([0-9.]+)MB/s", links)
    assert [float(each) for each in measured.groups()] == pytest.approx([SLOW / 1e6] * 2, rel=0.3)
    last = command.read_metrics(tmp_path / "changed" / "metrics")[-1]
    assert [(link["from"], link["to"]) for link in last["links"]] == [(0, 1), (1, 0)]
    assert all(0 < link["latency_s"] < 0.1 for link in last["links"])

    out = train(hosts, model, tmp_path / "unchanged", "--schedule", schedule, "--replan", 0, rate_after=(8, SLOW))
    assert not any("--extra-warm-ups" in line for line in out)
    losses = [
        [line["loss"] for line in command.read_metrics(tmp_path / run / "metrics")] for run in ("changed", "unchanged")
    ]
    assert losses[0] == losses[1]
    assert (tmp_path / "changed" / "weights").read_bytes() == (tmp_path / "unchanged" / "weights").read_bytes()
