"""Trained by Trireme in any layout, a model has the losses and weights of the plain PyTorch loop in reference.py.

Float64, so that a wrong gradient cannot hide in rounding: the sums of a layout differ in their order only, which changes
a value by some 1e-16 of its size, and by less than 1e-14 after 20 steps in each family (measured by splitting the batch
of the reference). The tolerance of 1e-9 leaves room for five orders more and for nothing that is wrong.

Rows: 64 in batches of 11, so that the last batch of an epoch has 9, no micro-batch split is even, and the run passes three
epochs. Labels are ignored unevenly, so that micro-batches differ in their items.
"""

from __future__ import annotations

import functools

import command
import models
import pytest
import reference
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.binary

BATCH = 11
STEPS = 20
CLIP_NORM = 0.5
TOLERANCE = 1e-9
# A gradient that is zero in exact arithmetic (the key bias of attention) is rounding noise of about 1e-17, and its weights
# are noise of lr * STEPS * 1e-17 / eps = 1e-13 at most under AdamW with this eps. So weights are compared to 1e-9 of the
# largest of their tensor, or of this size where all are smaller.
SMALLEST_SIZE = 1e-3

OPTIMIZERS = {
    "sgd": reference.Optimizer("sgd", lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": reference.Optimizer("adamw", lr=1e-3, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
}
# (stages, replicas, micro-batches of a replica); the schedule says nothing where there is one stage
LAYOUTS = {"1x1": (1, 1, 2), "S2": (2, 1, 3), "S4": (4, 1, 4), "DP2": (1, 2, 2), "S2xDP2": (2, 2, 3)}
GRID = [
    (layout, schedule)
    for layout, (stages, _, _) in LAYOUTS.items()
    for schedule in (("gpipe", "1f1b") if stages > 1 else ("1f1b",))
]


def data_file(family, precision):
    own = command.DATA / f"{family}.{precision}.data.safetensors"
    return own if own.exists() else command.DATA / f"{family}.data.safetensors"


def fresh_model(family, precision):
    model = models.build(family, precision)
    weights = reference.archive_weights(command.DATA / f"{family}.{precision}.pt2")
    model.load_state_dict({name: weights[name] for name in model.state_dict()}, strict=True)
    return model


@functools.cache
def expected(family, precision, optimizer, clips, micro_batches):
    return reference.train(
        models.FAMILIES[family],
        fresh_model(family, precision),
        load_file(data_file(family, precision)),
        batch=BATCH,
        steps=STEPS,
        optimizer=OPTIMIZERS[optimizer],
        clip_norm=CLIP_NORM if clips else None,
        micro_batches=micro_batches,
    )


def arguments(optimizer, clips):
    options = OPTIMIZERS[optimizer]
    given = ["--optimizer", options.name, "--lr", options.lr, "--weight-decay", options.weight_decay]
    if options.name == "sgd":
        given += ["--momentum", options.momentum, "--nesterov"]
    else:
        given += ["--betas", ",".join(map(str, options.betas)), "--eps", options.eps]
    return given + (["--clip-norm", CLIP_NORM] if clips else [])


def trained(tmp_path, family, precision, layout, schedule, optimizer, clips, *more, batch=BATCH):
    """The metrics and the saved weights of a run of the command; `layout` is a name or (S, DP, M)."""
    stages, replicas, micro_batches = LAYOUTS.get(layout, layout)
    metrics, saved = tmp_path / "metrics.jsonl", tmp_path / "saved.safetensors"
    command.run(
        *("train", command.DATA / f"{family}.{precision}.pt2"),
        *("--data", f"safetensors:{data_file(family, precision)}"),
        *("--batch", batch, "--steps", STEPS, "--no-shuffle"),
        *("--pp", stages, "--dp", replicas, "--micro-batches", micro_batches, "--schedule", schedule),
        *arguments(optimizer, clips),
        *("--metrics", metrics, "--save", saved, "--quiet"),
        *(more or ("--workers", 1)),
    )
    return command.read_metrics(metrics), load_file(saved)


def compare(run, lines, saved, model, tolerance, smallest_size):
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["items"] for line in lines] == run.items
    assert [line["loss"] for line in lines] == pytest.approx(run.losses, rel=tolerance, abs=0)
    if run.grad_norms:
        assert max(run.grad_norms) > CLIP_NORM, "the reference never clips: this test would say nothing"
        assert [line["grad_norm"] for line in lines] == pytest.approx(run.grad_norms, rel=tolerance, abs=0)
    model.load_state_dict(saved, strict=True)
    wrong = {}
    for name, wanted in run.state.items():
        if not wanted.is_floating_point():
            assert torch.equal(saved[name], wanted), name
            continue
        assert saved[name].dtype == wanted.dtype, name
        error = (saved[name] - wanted).abs().max().item() / max(wanted.abs().max().item(), smallest_size)
        if not error <= tolerance:  # not a number is wrong, too
            wrong[name] = error
    assert not wrong


def check(tmp_path, family, precision, layout, schedule, optimizer, clips, *more):
    _, replicas, micro_batches = LAYOUTS[layout]
    split = replicas * micro_batches if models.FAMILIES[family].has_batch_norm else 1
    run = expected(family, precision, optimizer, clips, split)
    lines, saved = trained(tmp_path, family, precision, layout, schedule, optimizer, clips, *more)
    compare(run, lines, saved, models.build(family, precision), TOLERANCE, SMALLEST_SIZE)


@pytest.mark.parametrize("clips", [False, True], ids=["", "clip"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("layout", "schedule"), GRID, ids=["-".join(g) for g in GRID])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_float64_training_equals_pytorch(tmp_path, family, layout, schedule, optimizer, clips):
    check(tmp_path, family, "f64", layout, schedule, optimizer, clips)


@pytest.mark.parametrize("family", ["nanogpt", "t5", "resnet"])
def test_ranks_as_processes_equal_pytorch(tmp_path, family):
    check(tmp_path, family, "f64", "S2xDP2", "1f1b", "adamw", True, "--workers", 4)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_float32_training_equals_pytorch(tmp_path, family):
    """In float32 a reordered sum of n = 1e3 terms is off by sqrt(n) * 2**-24 = 2e-6 of its size, in each of 20 steps.

    Errors of a step carry over to the next through the weights, scaled by lr * curvature < 1, so they add up to
    20 * 2e-6 = 4e-5. BatchNorm divides by a deviation over few values, which costs one order.
    """
    tolerance = 4e-4 if models.FAMILIES[family].has_batch_norm else 4e-5
    split = 4 if models.FAMILIES[family].has_batch_norm else 1
    run = expected(family, "f32", "sgd", False, split)
    lines, saved = trained(tmp_path, family, "f32", "S4", "1f1b", "sgd", False)
    compare(run, lines, saved, models.build(family, "f32"), tolerance, 0.1)


def test_the_last_short_batch_can_be_dropped(tmp_path):
    rows = load_file(data_file("mlp", "f64"))
    model = fresh_model("mlp", "f64")
    family, optimizer = models.FAMILIES["mlp"], OPTIMIZERS["sgd"]
    run = reference.train(family, model, rows, batch=BATCH, steps=STEPS, optimizer=optimizer, drop_last=True)
    assert run.items == [BATCH] * STEPS
    lines, saved = trained(tmp_path, "mlp", "f64", "S2", "1f1b", "sgd", False, "--workers", 1, "--drop-last")
    compare(run, lines, saved, models.build("mlp", "f64"), TOLERANCE, SMALLEST_SIZE)


@pytest.mark.parametrize("family", ["mlp", "llama", "resnet"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_float32_is_bitwise_the_same_in_every_pipeline(tmp_path, family, replicas):
    """No family here has a tie across stages, and the micro-batches are equal: no sum changes its order."""
    layouts = [(1, "1f1b"), (1, "1f1b"), (2, "gpipe"), (2, "1f1b"), (4, "gpipe"), (4, "1f1b")]
    runs = []
    for stages, schedule in layouts[: 4 if replicas == 2 else 6]:
        layout = (stages, replicas, 4)
        lines, saved = trained(tmp_path, family, "f32", layout, schedule, "adamw", True, batch=16)
        runs.append((layout, schedule, [(line["loss"], line["grad_norm"]) for line in lines], saved))
    for layout, schedule, losses, saved in runs[1:]:
        assert losses == runs[0][2], (layout, schedule)
        unequal = [name for name, tensor in saved.items() if not torch.equal(tensor, runs[0][3][name])]
        assert not unequal, (layout, schedule)
