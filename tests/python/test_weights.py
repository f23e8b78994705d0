"""What --save writes is a state dict of the user's module, and --init takes it up again; weights of 16 bits; plain archives."""

from __future__ import annotations

from dataclasses import replace

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import ADAMW, SGD, Trained, compare, compare_states, integers, is_bitwise_equal, normal
from safetensors.torch import load_file, save_file
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 8
LAYOUTS = [(1, 1, 2), (2, 1, 2), (2, 2, 1)]


class Everything(nn.Module):
    """Ties, frozen and unused parameters, buffers of every kind, a layout of memory that is not row-major."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, WIDTH), nn.BatchNorm1d(WIDTH)
        self.fc, self.frozen = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.embed.weight
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(3, 2)
        self.turned = nn.Parameter(torch.randn(WIDTH, 3).t())
        self.register_buffer("unused_buffer", torch.arange(5))
        self.register_buffer("scale", torch.tensor(1.5))
        self.register_buffer("mask", torch.ones(WIDTH), persistent=False)

    @staticmethod
    def rows(generator):
        return {"tokens": integers(generator, 11, 24, 3), "targets": integers(generator, 11, 24, 3)}

    def forward(self, tokens, targets):
        x = self.norm(self.embed(tokens).transpose(1, 2)).transpose(1, 2) * self.mask
        x = torch.tanh(self.fc(x)) * self.scale + self.turned
        x = self.head(x + self.frozen(x))
        return F.cross_entropy(x.flatten(0, 1), targets.flatten())


def loaded(model, state):
    module = model.fresh()
    module.load_state_dict(state, strict=True)
    return module


@pytest.mark.parametrize("layout", LAYOUTS)
def test_saved_weights_are_a_state_dict(own_model, layout):
    """T17: names, ties, what is unused, frozen or persistent, and nothing else."""
    model = own_model(Everything)
    trained = model.train(layout=layout, optimizer=ADAMW)
    assert set(trained.state) == set(model.fresh().state_dict())
    assert "mask" not in trained.state
    assert torch.equal(trained.state["embed.weight"], trained.state["head.weight"])
    compare(model.expected(optimizer=ADAMW, micro_batches=layout[1] * layout[2]), trained)
    initial = model.fresh().state_dict()
    for name in ("unused.weight", "unused.bias", "unused_buffer", "scale", "frozen.weight", "frozen.bias"):
        assert torch.equal(trained.state[name], initial[name]), name
    assert loaded(model, trained.state).head.weight is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_init_continues(own_model, tmp_path, layout):
    """T17, T59: weights of one layout go on in another; what no stage uses, too."""
    model = own_model(Everything)
    state = model.train(layout=(2, 1, 3)).state
    state["unused.bias"] += 1
    state["unused_buffer"] *= 2
    save_file({n: v.contiguous() for n, v in state.items()}, tmp_path / "weights.safetensors")
    run = model.expected(model=loaded(model, state), micro_batches=layout[1] * layout[2])
    trained = model.train("--init", tmp_path / "weights.safetensors", layout=layout)
    compare(run, trained)
    assert torch.equal(trained.state["unused.bias"], state["unused.bias"])
    for missing in ("head.weight", "embed.weight"):  # one name of the tie is enough, either
        some = {n: v.contiguous() for n, v in state.items() if n != missing}
        save_file(some, tmp_path / "some.safetensors")
        again = model.train("--init", tmp_path / "some.safetensors", layout=layout)
        assert is_bitwise_equal(trained, again)


def test_init_that_does_not_fit(own_model, tmp_path):
    model = own_model(Everything)
    state = {n: v.clone() for n, v in model.fresh().state_dict().items()}
    path = tmp_path / "weights.safetensors"

    def refusal(**changes):
        changed = {n: v.contiguous() for n, v in {**state, **changes}.items() if v is not None}
        save_file(changed, path)
        result = model.command("--batch", 8, "--steps", 1, "--init", path, code=2)
        assert result.stdout == ""
        return result.stderr

    start = f"trireme: --init {path}: "
    assert refusal(**{"fc.bias": None}) == start + "the file has no tensor fc.bias\n"
    assert refusal(**{"unused.bias": None}) == start + "the file has no tensor unused.bias\n"
    assert refusal(**{"embed.weight": None, "head.weight": None}) == start + "the file has no tensor embed.weight\n"
    wrong = torch.zeros(WIDTH + 1, dtype=torch.float64)
    assert refusal(**{"fc.bias": wrong}) == start + "fc.bias is f64[9], but the model has f64[8]\n"
    wrong = torch.zeros(WIDTH, dtype=torch.int64)
    assert refusal(**{"fc.bias": wrong}) == start + "fc.bias is i64[8], but the model has f64[8]\n"
    wrong = state["head.weight"] + 1
    assert refusal(**{"head.weight": wrong}) == (
        start + "embed.weight and head.weight are one tied parameter of the model, but differ in the file\n"
    )
    path.write_bytes(b"PK no safetensors")
    result = model.command("--batch", 8, "--steps", 1, "--init", path, code=2)
    assert str(path) in result.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_save_every_keeps_the_last_good_weights(own_model, tmp_path, layout):
    """A run that fails in step 4 leaves the weights of step 3, whole."""
    model = own_model(Chain)
    wanted = model.train(layout=layout, steps=3, batch=6).state
    rows = {n: v.clone() for n, v in model.rows.items()}
    rows["x"][18:] = float("nan")
    data, saved = tmp_path / "data.safetensors", tmp_path / "saved.safetensors"
    save_file(rows, data)
    stages, replicas, micro_batches = layout
    options = ["--pp", stages, "--dp", replicas, "--micro-batches", micro_batches, "--workers", 1, "--no-shuffle"]
    options += ["--optimizer", "sgd", "--lr", SGD.lr, "--momentum", SGD.momentum, "--quiet", "--batch", 6]
    arguments = ["train", model.archive, "--data", f"safetensors:{data}", *options, "--save", saved]
    result = command.run(*arguments, "--steps", 5, "--save-every", 2, code=1)
    rank = f"rank {stages - 1} (stage {stages - 1}, replica 0)"
    said = f"the loss of step 4 is not finite, first on {rank}; the weights of step 3 are in {saved}"
    assert said in result.stderr
    assert all(torch.equal(value, wanted[name]) for name, value in load_file(saved).items())
    assert [p.name for p in tmp_path.iterdir() if "saved" in p.name] == ["saved.safetensors"]
    result = command.run(*arguments, "--steps", 3, "--save-every", 1)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 24, WIDTH), "y": normal(generator, 24, WIDTH)}

    def forward(self, x, y):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x.double(), y.double())


# --- 16 bits -----------------------------------------------------------------------------------------------------


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
        self.fc, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.embed.weight

    @staticmethod
    def rows(generator):
        targets = integers(generator, 11, 24, 4)
        targets[torch.rand(targets.shape, generator=generator) < 0.4] = -100
        return {"tokens": integers(generator, 11, 24, 4), "targets": targets}

    def forward(self, tokens, targets):
        x = self.block(self.embed(tokens))
        x = self.head(x + torch.tanh(self.fc(x)))
        return F.cross_entropy(x.float().flatten(0, 1), targets.flatten(), ignore_index=-100), (targets != -100).sum()


def bfloat16_loop(model, make, batch, steps, micro_batches):
    """Plain PyTorch; the 16-bit gradients of the micro-batches are added in float32 and rounded once.

    Not with fused=True: on CPUs, torch 2.13's fused SGD leaves 16-bit parameters as they are.
    """
    module = model.fresh()
    optimizer = make(module.parameters())
    losses = []
    for step in range(steps):
        rows = list(model.batches(batch))[step % (24 // batch)]
        pieces = zip(*(v.split(batch // micro_batches) for v in rows.values()), strict=True)
        sums = {n: torch.zeros(p.shape) for n, p in module.named_parameters()}
        total, weighted = 0, 0.0
        for piece in pieces:
            loss, items = model.step(module, dict(zip(rows, piece, strict=True)))
            (loss * int(items)).backward()
            for name, parameter in module.named_parameters():
                sums[name] += parameter.grad.float()
            module.zero_grad()
            total, weighted = total + int(items), weighted + loss.item() * int(items)
        for name, parameter in module.named_parameters():
            parameter.grad = (sums[name] / total).to(parameter.dtype)
        optimizer.step()
        module.zero_grad()
        losses.append(weighted / total)
    return losses, module.state_dict()


BFLOAT16_OPTIMIZERS = {
    "sgd": (SGD, lambda p: torch.optim.SGD(p, lr=SGD.lr, momentum=0.9)),
    "nesterov": (
        replace(SGD, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=SGD.lr, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adamw": (ADAMW, lambda p: torch.optim.AdamW(p, lr=ADAMW.lr, eps=ADAMW.eps, weight_decay=0.1, fused=True)),
}


@pytest.mark.parametrize("optimizer", BFLOAT16_OPTIMIZERS)
@pytest.mark.parametrize("kind", [Chain, Transformer])
def test_bfloat16_weights(own_model, kind, optimizer):
    """The same operators round the same, so one stage and one replica are bitwise the loop's.

    A tie over stages, and replicas, add in another order: 2**-24 of a sum in float32, which may round the other way to 8
    bits: 2**-8 of a gradient and as much of the weight that it changes, and again in a later step, which starts from
    that: 2**-6 of the largest of its tensor. A loss is a mean over 8-bit numbers: 2**-8. The bias of keys has a gradient
    of zero in exact arithmetic; AdamW makes steps of full size from its noise.
    """
    model = own_model(kind, torch.bfloat16)
    options, make = BFLOAT16_OPTIMIZERS[optimizer]
    run = {"batch": 12, "steps": 6}
    losses, state = bfloat16_loop(model, make, micro_batches=4, **run)
    assert losses[-1] < losses[0]
    run["optimizer"] = options
    one = model.train(layout=(1, 1, 4), **run)
    assert one.losses == pytest.approx(losses, rel=1e-6, abs=0)
    compare_states(state, one.state, tolerance=0.0)
    for layout in [(2, 1, 4), (1, 2, 2), (2, 2, 2)]:
        other = model.train(layout=layout, **run)
        assert other.losses == pytest.approx(losses, rel=2**-8, abs=0)
        is_noise = {n: optimizer == "adamw" and "in_proj_bias" in n for n in state}
        wanted, found = ({n: v for n, v in side.items() if not is_noise[n]} for side in (state, other.state))
        compare_states(wanted, found, tolerance=2**-6)


# --- archives of torch.export ------------------------------------------------------------------------------------


class Pair(Chain):
    def forward(self, x, y):
        return super().forward(x, y), (y > 0).sum()


class Whole(Chain):
    """Returns its loss in a tuple, as exporters often do."""

    def forward(self, x, y):
        return (super().forward(x, y),)


@pytest.mark.parametrize("kind", [Chain, Pair, Whole])
def test_a_plain_archive_trains_as_well(own_model, tmp_path, kind):
    model = own_model(Pair if kind is Pair else Chain)
    module = kind().double()
    module.load_state_dict(model.fresh().state_dict())
    batch = torch.export.Dim("batch")
    example = tuple(v[:3] for v in model.rows.values())
    program = torch.export.export(module, example, dynamic_shapes=({0: batch}, {0: batch}))
    path = tmp_path / "plain.pt2"
    torch.export.save(program, path)
    saved, metrics = tmp_path / "saved.safetensors", tmp_path / "metrics.jsonl"
    for layout, split in (([], 1), (["--pp", 2, "--dp", 2], 4)):
        command.run(
            *("train", path, "--data", f"safetensors:{model.data}", "--batch", 11, "--steps", 5, "--no-shuffle"),
            *("--optimizer", "sgd", "--lr", SGD.lr, "--momentum", SGD.momentum, "--workers", 1, "--quiet"),
            *("--save", saved, "--metrics", metrics, *layout),
        )
        run = model.expected()
        run = model.expected(micro_batches=split)  # the items of Pair are no share of the mean
        compare(run, Trained(command.read_metrics(metrics), [], load_file(saved)))
