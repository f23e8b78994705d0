"""Inputs that are not a row a sample: jagged ones, changing lengths, batches in another dim, shared ones.

Each model is trained by the command and by a plain PyTorch loop over the same samples. Float64: the sums of two layouts
differ in their order only, some 1e-16 of their size a step, so 1e-9 leaves room for what Adam makes of that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import command
import pytest
import torch
from own_model import TOLERANCE, compare_states
from safetensors.torch import load_file, save_file
from torch import nn

import trireme

pytestmark = pytest.mark.binary

LAYOUTS = {
    "1x1": ["--micro-batches", 1],
    "S2": ["--pp", 2, "--micro-batches", 2],
    "DP2": ["--dp", 2, "--micro-batches", 2],
    "S2-DP2": ["--pp", 2, "--dp", 2, "--micro-batches", 1, "--schedule", "gpipe"],
}
BATCH, STEPS = 5, 6  # 13 samples: batches of 5, 5 and 3, twice


@dataclass
class Case:
    """A model, its data in a file, and how a plain loop takes samples from them."""

    kind: type[nn.Module]
    directory: Path

    def fresh(self) -> nn.Module:
        torch.manual_seed(5)
        return self.kind().double()

    def __post_init__(self) -> None:
        self.data = self.kind.data(torch.Generator().manual_seed(3))
        self.archive, self.file = self.directory / "model.pt2", self.directory / "data.safetensors"
        save_file(self.data, self.file)
        trireme.export(self.fresh(), self.kind.batch(self.data, range(3)), self.archive, **self.kind.export)

    def train(self, *options, code: int = 0, data=None):
        """The lines of the metrics and the weights; or the message of the refusal."""
        metrics, saved = self.directory / "metrics.jsonl", self.directory / "saved.safetensors"
        result = command.run(
            *("train", self.archive, "--data", data or f"safetensors:{self.file}", "--batch", BATCH, "--steps", STEPS),
            *("--lr", 3e-3, "--eps", 1e-6, "--quiet", "--metrics", metrics, "--save", saved),
            *([] if "--workers" in options else ["--workers", 1]),
            *(*self.kind.options, *options),
            code=code,
        )
        return result.stderr if code else (command.read_metrics(metrics), load_file(saved))

    def expected(self):
        model = self.fresh()
        updates = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-6, fused=True)
        losses = []
        for step in range(STEPS):
            first = step % 3 * BATCH
            loss = model(**self.kind.batch(self.data, range(first, min(first + BATCH, 13))))
            updates.zero_grad()
            loss.backward()
            updates.step()
            losses.append(loss.item())
        return losses, model.state_dict()

    def check(self, *options):
        lines, state = self.train("--no-shuffle", *options)
        losses, wanted = self.expected()
        assert [line["loss"] for line in lines] == pytest.approx(losses, rel=TOLERANCE, abs=0)
        compare_states(wanted, state)

    def check_shuffled(self):
        """Shuffled, the samples are the same in every layout."""
        lines, state = self.train("--seed", 4)
        for layout in ("S2", "DP2"):
            others, other = self.train("--seed", 4, *LAYOUTS[layout])
            assert [v["loss"] for v in others] == pytest.approx([v["loss"] for v in lines], rel=TOLERANCE, abs=0)
            compare_states(state, other)
        assert lines[0]["loss"] != pytest.approx(self.expected()[0][0], rel=1e-3)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = Case(kind, tmp_path_factory.mktemp(kind.__name__))
        return made[kind]

    return get


def jagged_rows(values, starts, samples):
    """The values of these samples and their offsets."""
    ends = [*starts[1:].tolist(), len(values)]
    pieces = [values[starts[i] : ends[i]] for i in samples]
    sizes = torch.tensor([0, *(len(p) for p in pieces)])
    return torch.cat(pieces), sizes.cumsum(0)


class Bag(nn.Module):
    """Two jagged inputs by one vector of offsets; some samples have no values."""

    export: ClassVar = {"jagged": {"indices": "offsets", "weights": "offsets"}}
    options: ClassVar = []
    keeps_end = False

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="sum", include_last_offset=self.keeps_end)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)

    @classmethod
    def data(cls, generator):
        sizes = torch.randint(0, 5, (13,), generator=generator)
        sizes[0], sizes[7], sizes[12] = 3, 0, 0
        count = int(sizes.sum())
        return {
            "indices": torch.randint(0, 20, (count,), generator=generator),
            "weights": torch.randn(count, generator=generator, dtype=torch.float64),
            "offsets": torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)[:-1]]),
            "y": torch.randn(13, generator=generator, dtype=torch.float64),
        }

    @classmethod
    def batch(cls, data, samples):
        samples = [*samples]
        indices, offsets = jagged_rows(data["indices"], data["offsets"], samples)
        weights, _ = jagged_rows(data["weights"], data["offsets"], samples)
        offsets = offsets if cls.keeps_end else offsets[:-1]
        return {"indices": indices, "weights": weights, "offsets": offsets, "y": data["y"][samples]}

    def forward(self, indices, weights, offsets, y):
        x = torch.tanh(self.first(self.bag(indices, offsets, per_sample_weights=weights)))
        return (self.last(x).squeeze(-1) - y).square().mean()


class EndedBag(Bag):
    """The offsets have one entry more, in the model and in the data."""

    keeps_end = True

    @classmethod
    def data(cls, generator):
        data = super().data(generator)
        return data | {"offsets": torch.cat([data["offsets"], torch.tensor([len(data["indices"])])])}

    @classmethod
    def batch(cls, data, samples):
        return super().batch(data | {"offsets": data["offsets"][:-1]}, samples)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [Bag, EndedBag])
def test_jagged_inputs_equal_pytorch(case, kind, layout):
    case(kind).check(*LAYOUTS[layout])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [Bag, EndedBag])
def test_rows_of_jagged_inputs_are_summed_row_by_row(case, kind, layout):
    """Some micro-batches read no row."""
    case(kind).check(*LAYOUTS[layout], "--sparse", "always")


def test_jagged_inputs_are_shuffled_as_samples(case):
    case(Bag).check_shuffled()


def test_jagged_inputs_in_processes_and_in_evaluation(case):
    bag = case(Bag)
    bag.check("--pp", 2, "--micro-batches", 2, "--workers", 2)
    result = command.run(
        *("eval", bag.archive, "--data", f"safetensors:{bag.file}", "--batch", 5, "--workers", 1, "--json", "--dp", 2)
    )
    with torch.no_grad():
        wanted = bag.fresh()(**Bag.batch(bag.data, range(13))).item()
    assert json.loads(result.stdout)["eval_loss"] == pytest.approx(wanted, rel=TOLERANCE)


def test_jagged_is_said_by_the_archive_or_the_option(case, tmp_path):
    bag = case(Bag)
    assert 'input %indices "indices" i64[s' in command.run("inspect", bag.archive, "--graph").stdout
    plain = tmp_path / "plain.pt2"
    torch.export.save(torch.export.load(bag.archive), plain)
    options = ["--data", f"safetensors:{bag.file}", "--batch", 5, "--steps", 1, "--workers", 1, "--quiet"]
    refused = command.run("train", plain, *options, code=2)
    assert "or say where it is by --batch-dim INPUT=DIM and --jagged VALUES=OFFSETS" in refused.stderr
    shown = command.run("inspect", plain).stdout
    assert ", batch unknown (--batch-dim or --jagged of trireme train says it), symbolic sizes " in shown
    both = ["--jagged", "indices=offsets", "--jagged", "weights=offsets"]
    command.run("train", *both, plain, *options)


def test_jagged_options_that_do_not_fit(case):
    bag = case(Bag)

    def told(*options):
        return bag.train(*options, code=2)

    known = "it has indices, weights, offsets, y"
    assert told("--jagged", "values=offsets") == (
        f"trireme: --jagged values=offsets: the model has no input values; {known}\n"
    )
    assert told("--jagged", "indices=starts") == (
        f"trireme: --jagged indices=starts: the model has no input starts; {known}\n"
    )
    assert told("--jagged", "indices=indices") == "trireme: --jagged indices=indices cuts an input by itself\n"
    assert told("--jagged", "indices") == (
        "trireme: --jagged: 'indices' is not VALUES=OFFSETS; see trireme train --help\n"
    )
    assert "the input y f64[" in told("--jagged", "indices=y")
    assert "] holds offsets, but is not a vector of integers, one for each sample" in told("--jagged", "indices=y")


def test_offsets_that_do_not_fit(case, tmp_path):
    bag = case(Bag)

    def told(**changed):
        save_file(bag.data | changed, tmp_path / "wrong.safetensors")
        return bag.train(data=f"safetensors:{tmp_path / 'wrong.safetensors'}", code=2)

    offsets = bag.data["offsets"]
    count = len(bag.data["indices"])
    assert told(offsets=offsets.flip(0)) == f"trireme: offset 0 of offsets is {offsets[-1]}, not 0\n"
    beyond = torch.cat([offsets[:-1], torch.tensor([count + 1])])
    assert told(offsets=beyond) == (f"trireme: offset 12 of offsets is {count + 1}, but indices has {count} values\n")
    assert told(weights=bag.data["weights"][1:]) == (
        f"trireme: weights has {count - 1} values, but indices has {count}, and offsets cuts both\n"
    )
    assert "is of f64, but the input offsets takes i64; convert the data" in told(offsets=offsets.double())


class Padded(nn.Module):
    """The padding takes part in the loss, so a wrong length shows."""

    export: ClassVar = {"dynamic": {"tokens": {1: "seq"}, "targets": {1: "seq"}}}
    options: ClassVar = ["--lengths", "tokens=length"]

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 6)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 15)

    @classmethod
    def data(cls, generator):
        # The longest of the three batches: 5, 6 and 9.
        length = torch.tensor([4, 5, 3, 2, 4, 6, 1, 2, 3, 4, 9, 1, 0], dtype=torch.int32)
        tokens = torch.randint(1, 15, (13, 10), generator=generator)
        tokens[torch.arange(10) >= length[:, None]] = 0
        return {"tokens": tokens, "targets": tokens.roll(-1, 1), "length": length}

    @classmethod
    def batch(cls, data, samples):
        samples = [*samples]
        longest = int(data["length"][samples].max())
        return {name: data[name][samples, :longest] for name in ("tokens", "targets")}

    def forward(self, tokens, targets):
        x = torch.tanh(self.first(self.embed(tokens))).cumsum(1)
        return nn.functional.cross_entropy(self.last(x).flatten(0, 1), targets.flatten(), reduction="mean")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_length_that_changes_each_step_equals_pytorch(case, layout):
    """T37: the next batch is one token longer: it is neither cut nor does the run crash."""
    case(Padded).check(*LAYOUTS[layout])


def test_lengths_of_shuffled_samples(case):
    case(Padded).check_shuffled()


def test_lengths_of_arrays(case, tmp_path):
    import numpy as np

    padded = case(Padded)
    paths = {}
    for name, value in padded.data.items():
        paths[name] = tmp_path / f"{name},s.npy"  # with a comma
        np.save(paths[name], value.numpy())
    tokens, targets, length = (str(paths[n]).replace(",", "\\,") for n in ("tokens", "targets", "length"))
    lines, _ = padded.train("--no-shuffle", data=f"arrays:{tokens},{targets},length={length}")
    assert [line["loss"] for line in lines] == pytest.approx(padded.expected()[0], rel=TOLERANCE, abs=0)
    assert padded.train(data=f"arrays:{tokens},{targets}", code=2) == (
        f"trireme: arrays:{tokens},{targets} has no column length; add it as ,length=PATH\n"
    )
    assert padded.train(data=f"bytes:{tokens}", code=2) == (
        f"trireme: --lengths is for arrays: and safetensors:, not for bytes:{tokens}\n"
    )


class TimeFirst(nn.Module):
    """nn.LSTM as it is by default, [time, batch, features], and positions [3, batch, time]."""

    export: ClassVar = {"dynamic": {"x": {1: "batch"}, "positions": {1: "batch"}}}
    options: ClassVar = []

    def __init__(self):
        super().__init__()
        self.mix = self.mixer()
        self.embed, self.last = nn.Embedding(9, 6), nn.Linear(6, 1)

    @staticmethod
    def mixer():
        return nn.LSTM(4, 6)

    @classmethod
    def data(cls, generator):
        return {
            "x": torch.randn(13, 7, 4, generator=generator, dtype=torch.float64),
            "positions": torch.randint(0, 9, (13, 3, 7), generator=generator),
            "y": torch.randn(13, generator=generator, dtype=torch.float64),
        }

    @classmethod
    def batch(cls, data, samples):
        samples = [*samples]
        x, positions = data["x"][samples].transpose(0, 1), data["positions"][samples].transpose(0, 1)
        return {"x": x.contiguous(), "positions": positions.contiguous(), "y": data["y"][samples]}

    def forward(self, x, positions, y):
        h = self.mix(x)
        h = (h[0] if isinstance(h, tuple) else h) + self.embed(positions).sum(0).transpose(0, 1)
        return (self.last(torch.tanh(h))[..., 0].mean(0) - y).square().mean()


class SymbolicTimeFirst(TimeFirst):
    export: ClassVar = {"dynamic": {"x": {0: "time", 1: "batch"}, "positions": {0: None, 1: "batch", 2: "time"}}}

    @staticmethod
    def mixer():
        return nn.Linear(4, 6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [TimeFirst, SymbolicTimeFirst])
def test_a_batch_in_dim_1_equals_pytorch(case, kind, layout):
    case(kind).check(*LAYOUTS[layout])


def test_a_batch_in_dim_1_of_a_plain_archive(case, tmp_path):
    time_first = case(SymbolicTimeFirst)
    plain = tmp_path / "plain.pt2"
    torch.export.save(torch.export.load(time_first.archive), plain)
    options = ["--data", f"safetensors:{time_first.file}", "--batch", 5, "--steps", 1, "--workers", 1, "--quiet"]
    # Time or batch: nothing says which.
    refused = command.run("train", plain, *options, code=2)
    assert "the batch is not one symbolic size of every input (x f64[" in refused.stderr
    command.run("train", plain, *options, "--batch-dim", "x=1")
    wrong = command.run("train", plain, *options, "--batch-dim", "x=2", code=2)
    assert "trireme: --batch-dim x=2 is no symbolic dim of f64[" in wrong.stderr
    two = command.run("train", plain, *options, "--batch-dim", "x=1", "--batch-dim", "positions=2", code=2)
    assert "trireme: --batch-dim positions=2 is the size " in two.stderr


class Shared(nn.Module):
    """A matrix and a scalar without a batch are the same for all samples."""

    export: ClassVar = {"dynamic": {"mix": {0: None}}}
    options: ClassVar = []

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    @classmethod
    def data(cls, generator):
        return {
            "x": torch.randn(13, 4, generator=generator, dtype=torch.float64),
            "mix": torch.randn(4, 4, generator=generator, dtype=torch.float64),
            "scale": torch.tensor(0.7, dtype=torch.float64),
        }

    @classmethod
    def batch(cls, data, samples):
        return data | {"x": data["x"][[*samples]]}

    def forward(self, x, mix, scale):
        return (self.last(torch.tanh(self.first(x)) @ mix) * scale).square().mean()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_without_a_batch_equal_pytorch(case, layout):
    case(Shared).check(*LAYOUTS[layout])


def test_an_input_without_a_batch_is_given_once(case, tmp_path):
    shared = case(Shared)
    wrong = tmp_path / "wrong.safetensors"
    save_file(shared.data | {"scale": torch.ones(13, dtype=torch.float64)}, wrong)
    assert shared.train(data=f"safetensors:{wrong}", code=2) == (
        f"trireme: tensor scale of {wrong} has the sizes [13], but the input scale takes []; it has no batch and is "
        "given once\n"
    )


def test_a_file_that_is_cut_short_during_a_run_is_named(case, tmp_path):
    """Reading behind the end of a mapped file would end the process by SIGBUS."""
    import subprocess

    shared = case(Shared)
    file, metrics = tmp_path / "data.safetensors", tmp_path / "metrics.jsonl"
    file.write_bytes(shared.file.read_bytes())
    size = file.stat().st_size
    process = subprocess.Popen(
        list(
            map(
                str,
                [
                    *(command.BINARY, "train", shared.archive, "--data", f"safetensors:{file}", "--batch", 5),
                    *("--steps", 10**7, "--workers", 1, "--quiet", "--metrics", metrics),
                ],
            )
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (metrics.exists() and metrics.stat().st_size > 0):  # it does not go again
            assert process.poll() is None
        with open(file, "r+b") as stream:
            stream.truncate(100)
        _, told = process.communicate(timeout=command.TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 1
    assert f"{file} has 100 bytes now, but had {size} when the run began" in told
