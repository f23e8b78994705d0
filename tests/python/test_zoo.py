"""Every archive of tests/data/zoo gives the loss and the gradient norms that PyTorch eager gave."""

from __future__ import annotations

import functools
import json
import math

import command
import pytest
import torch
from archive import Archive
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.binary

ZOO = command.DATA / "zoo"
LAYOUTS = {
    "1x1": [],
    "S2": ["--pp", 2, "--micro-batches", 2],
    "DP2": ["--dp", 2],
    "S2-one": ["--pp", 2, "--micro-batches", 1],
}
# BatchNorm and the hand-made loss depend on the micro-batch, so these stay in one.
WHOLE_BATCH = {"resnet", "tricky"}
APART = {"nanogpt_dropout"}
JAGGED = {"dlrm", "dlrm_sparse"}
NAMES = sorted(p.name.removesuffix(".pt2") for p in ZOO.glob("*.pt2"))
GRID = [
    (name, case, layout)
    for name in NAMES
    if name not in APART
    for case in (0, 1)
    for layout in (("1x1", "S2-one") if name in WHOLE_BATCH else ("1x1", "S2", "DP2"))
]


@functools.cache
def archive(name):
    return Archive(ZOO / f"{name}.pt2")


@functools.cache
def cases(name):
    return json.loads((ZOO / f"{name}.expected.json").read_text())["cases"]


def train(tmp_path, name, case, *options, code=0):
    """One step at learning rate 0: the metrics line, the gradient norms by name, the saved weights."""
    expected = cases(name)[case]
    values = {
        key: torch.tensor(value["data"], dtype=getattr(torch, value["dtype"])).reshape(value["shape"])
        for key, value in zip(archive(name).inputs, expected["inputs"], strict=True)
    }
    save_file(values, tmp_path / "data.safetensors")
    result = command.run(
        *("train", ZOO / f"{name}.pt2", "--data", f"safetensors:{tmp_path / 'data.safetensors'}"),
        *("--batch", expected["batch"], "--steps", 1, "--optimizer", "sgd", "--lr", 0, "--no-shuffle", "--workers", 1),
        *("--grad-norms", tmp_path / "norms.json", "--metrics", tmp_path / "metrics.jsonl"),
        *("--save", tmp_path / "saved.safetensors", "--quiet", *options),
        *(["--jagged", "indices=offsets"] if name in JAGGED else []),
        code=code,
    )
    if code != 0:
        return result
    (line,) = command.read_metrics(tmp_path / "metrics.jsonl")
    norms = json.loads((tmp_path / "norms.json").read_text())
    return line, norms, load_file(tmp_path / "saved.safetensors")


def whole_norm(name, norms):
    """The norm of the whole gradient; a tied parameter counts once."""
    records = {archive(name).weights[n]["path_name"]: norm or 0.0 for n, norm in norms.items()}
    return math.sqrt(sum(norm**2 for norm in records.values()))


def compare_norms(name, norms, expected, relative):
    floor = 1e-8 * whole_norm(name, expected)
    assert not set(norms) - set(expected)
    wrong = {}
    for parameter, wanted in expected.items():
        found = norms.get(parameter)
        if wanted is None:
            is_right = not found
        else:
            is_right = found is not None and abs(found - wanted) <= relative * wanted + floor
        if not is_right:
            wrong[parameter] = (found, wanted)
    assert not wrong


def test_the_zoo_is_complete():
    assert len(NAMES) == 15


@pytest.mark.parametrize(("name", "case", "layout"), GRID, ids=["-".join(map(str, g)) for g in GRID])
def test_loss_and_gradient_norms(tmp_path, name, case, layout):
    expected = cases(name)[case]
    relative = 2e-2 if "autocast" in name else 2e-6
    line, norms, saved = train(tmp_path, name, case, *LAYOUTS[layout])
    assert line["items"] == expected["n_items"]
    assert line["loss"] == pytest.approx(expected["loss"], rel=relative, abs=0)
    compare_norms(name, norms, expected["grad_norm"], relative)
    for buffer, wanted in expected["buffers_after_norm"].items():
        assert saved[buffer].double().norm().item() == pytest.approx(wanted, rel=relative), buffer


@pytest.mark.parametrize("case", [0, 1])
def test_dropout_depends_on_the_seed_alone(tmp_path, case):
    layouts = [[], ["--micro-batches", 2], ["--micro-batches", 3], LAYOUTS["S2"], LAYOUTS["DP2"]]
    line, norms, _ = train(tmp_path, "nanogpt_dropout", case)
    for layout in layouts:
        other, other_norms, _ = train(tmp_path, "nanogpt_dropout", case, *layout)
        assert other["loss"] == pytest.approx(line["loss"], rel=2e-6, abs=0)
        compare_norms("nanogpt_dropout", other_norms, norms, 2e-6)
    other, _, _ = train(tmp_path, "nanogpt_dropout", case, "--seed", 1)
    assert abs(other["loss"] - line["loss"]) > 1e-4 * line["loss"]
