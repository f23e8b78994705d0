"""Whatever the layout, a model trains as in one PyTorch process: kinds of models and of batches that broke other engines.

Rows: a docstring starts with the kinds of fault that the test stands for (T1, ...: public reports of training engines).
"""

from __future__ import annotations

import command
import pytest
import torch
import torch.nn.functional as F
from chain import LAYOUTS, NUM_ROWS, SCHEDULES, WIDTH, Chain, check
from own_model import (
    ADAMW,
    SGD,
    TOLERANCE,
    compare,
    compare_states,
    integers,
    is_bitwise_equal,
    normal,
)
from torch import nn

pytestmark = pytest.mark.binary


# --- numbers of stages, micro-batches, samples -------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("stages", "micro_batches"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 3), (8, 8), (4, 2), (8, 3), (3, 5), (2, 8)]
)
def test_any_number_of_stages_and_micro_batches(own_model, stages, micro_batches, schedule):
    """T1, T2, T3, T36: m = 1, m = S, m < S, m > S, and 11 samples, which no m divides."""
    check(own_model(Chain), (stages, 1, micro_batches), schedule=schedule, steps=3)


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 11])
def test_accumulated_gradients_equal_one_batch(own_model, micro_batches):
    """T19: gradients are summed over micro-batches and divided once."""
    check(own_model(Chain), (1, 1, micro_batches), optimizer=ADAMW)


@pytest.mark.parametrize("layout", [(1, 1, 3), (2, 1, 2), (4, 2, 3)])
def test_clipping_sees_the_whole_gradient(own_model, layout):
    """T21: one norm over all stages, as torch's."""
    model = own_model(Chain)
    run = model.expected(clip_norm=0.3)
    assert max(run.grad_norms) > 0.3
    compare(run, model.train("--clip-norm", 0.3, layout=layout))


@pytest.mark.parametrize("layout", [(2, 1, 4), (4, 2, 1)])
def test_a_batch_of_one_sample_a_micro_batch(own_model, layout):
    """T36: as many samples as micro-batches."""
    check(own_model(Chain), layout, batch=layout[1] * layout[2])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(1, 1, 6), (2, 1, 6), (2, 2, 3), (4, 2, 4)])
def test_a_last_batch_with_fewer_samples_than_micro_batches(own_model, layout, schedule):
    """T8, T36: 24 rows in batches of 11, the last of an epoch has 2."""
    check(own_model(Chain), layout, schedule=schedule, steps=6)


@pytest.mark.parametrize("layout", [(1, 2, 1), (2, 2, 2), (1, 3, 1)])
def test_a_last_batch_of_one_sample_for_two_replicas(own_model, layout):
    """T8: a replica without a sample takes part in the step."""
    check(own_model(Chain), layout, batch=23, steps=4, optimizer=ADAMW)


# --- items -------------------------------------------------------------------------------------------------------


class Tokens(nn.Module):
    """Targets are ignored unevenly; whole micro-batches have none."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 13)

    @staticmethod
    def rows(generator):
        targets = integers(generator, 13, NUM_ROWS, 5)
        targets[torch.rand(targets.shape, generator=generator) < 0.6] = -100
        targets[:6] = -100
        return {"tokens": integers(generator, 13, NUM_ROWS, 5), "targets": targets}

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        loss = F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), ignore_index=-100)
        return loss, (targets != -100).sum()


@pytest.mark.parametrize("layout", [(1, 1, 11), (2, 1, 5), (1, 2, 2), (2, 2, 3)])
def test_micro_batches_with_uneven_items_and_with_none(own_model, layout):
    """T22: the mean over all tokens, not of the means; a micro-batch without items is not nan."""
    check(own_model(Tokens), layout)


def test_a_batch_without_items_is_said(own_model):
    """T22: nothing to learn from is no nan."""
    result = own_model(Tokens).command("--batch", 6, "--steps", 1, "--no-shuffle", code=1)
    assert "the batch of step 1 has no items: every target is ignored" in result.stderr


# --- stages of a special kind ------------------------------------------------------------------------------------


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.act = nn.Softmax(1)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH)
        self.embed.requires_grad_(False)
        self.norm.requires_grad_(False)

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        return F.mse_loss(self.head(self.norm(self.act(self.embed(x)))), y)


class Activation(Frozen):
    """All trains, and `act` is a stage of its own without parameters."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(3, 1, 4), (3, 2, 2)])
@pytest.mark.parametrize("kind", [Frozen, Activation])
def test_stages_without_parameters_and_with_frozen_ones(own_model, kind, layout, schedule):
    """T43: a frozen first stage, a stage without parameters."""
    check(own_model(kind), layout, "--cut", "act,norm", schedule=schedule, optimizer=ADAMW)


class Auxiliary(nn.Module):
    """Each layer adds to the loss, as a router of experts does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.routers = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(4))

    @staticmethod
    def rows(generator):
        return Chain.rows(generator)

    def forward(self, x, y):
        loss = 0.0
        for layer, router in zip(self.layers, self.routers, strict=True):
            loss = loss + 0.1 * router(x).logsumexp(1).square().mean()
            x = x + torch.tanh(layer(x))
        return loss + F.mse_loss(x, y)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [*LAYOUTS, (4, 1, 4)])
def test_losses_of_inner_layers(own_model, layout, schedule):
    """T32: an auxiliary loss of an inner stage counts once and reaches its parameters."""
    check(own_model(Auxiliary), layout, schedule=schedule)


# --- sharing -----------------------------------------------------------------------------------------------------


class Tied(Tokens):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 13, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("clip", [[], ["--clip-norm", 0.2]], ids=["", "clip"])
@pytest.mark.parametrize("layout", [(1, 1, 2), (2, 1, 3), (4, 1, 2), (1, 2, 2), (2, 2, 3), (3, 2, 1)])
def test_a_tied_embedding(own_model, layout, clip):
    """T15, T18: the gradients of all uses are summed, and the norm counts them once."""
    model = own_model(Tied)
    run = model.expected(optimizer=ADAMW, clip_norm=0.2 if clip else None)
    trained = model.train(*clip, layout=layout, optimizer=ADAMW)
    compare(run, trained)
    assert torch.equal(trained.state["embed.weight"], trained.state["head.weight"])


class Shared(nn.Module):
    """One embedding and one norm for encoder and decoder; one layer runs three times."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(13, WIDTH), nn.LayerNorm(WIDTH)
        self.encoder, self.decoder = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.repeated, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 13)

    @staticmethod
    def rows(generator):
        return {n: integers(generator, 13, NUM_ROWS, 4) for n in ("source", "target")}

    def forward(self, source, target):
        memory = self.norm(torch.tanh(self.encoder(self.norm(self.embed(source)))))
        memory = memory + torch.tanh(self.repeated(memory))
        z = self.norm(self.embed(target[:, :-1]))
        z = z + torch.tanh(self.repeated(z)) + memory.mean(1, keepdim=True)
        z = self.norm(z + torch.tanh(self.decoder(z)))
        z = self.head(z + torch.tanh(self.repeated(z)))
        return F.cross_entropy(z.flatten(0, 1), target[:, 1:].flatten())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", [(2, 1, 3), (4, 1, 2), (4, 2, 2)])
def test_modules_shared_by_stages(own_model, layout, schedule):
    """T15: a module that several stages run, with weight, bias and norm."""
    check(own_model(Shared), layout, "--clip-norm", 1e9, schedule=schedule, optimizer=ADAMW)


# --- dropout -----------------------------------------------------------------------------------------------------


class Dropouts(nn.Module):
    """Dropout over several shapes: samples first or not, merged with positions, of a weight, in attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.2, batch_first=True)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)
        self.head = nn.Linear(WIDTH, 13)

    @staticmethod
    def rows(generator):
        return {"tokens": integers(generator, 13, NUM_ROWS, 5)}

    def forward(self, tokens):
        x = F.dropout(self.embed(tokens), 0.1, self.training)
        y = x.transpose(0, 1)
        x = x + F.dropout(y.tanh(), 0.2, self.training).transpose(0, 1)
        q, k, v = (f(x)[:, None] for f in (self.q, self.k, self.v))
        p = 0.3 if self.training else 0.0
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)[:, 0]
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + F.dropout(x.reshape(-1, WIDTH), 0.2, self.training).view(x.shape)
        x = F.dropout(x + F.linear(x, F.dropout(self.weight, 0.3, self.training)), 0.1, self.training, inplace=True)
        return F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def test_dropout_depends_on_no_layout(own_model):
    """T23, T24: the same elements of the same samples are dropped wherever they are computed."""
    model = own_model(Dropouts)
    first = model.train(optimizer=ADAMW)
    for layout in [(1, 1, 4), (2, 1, 3), (3, 1, 1), (1, 2, 2), (2, 2, 3)]:
        for schedule in SCHEDULES if layout[0] > 1 else ["1f1b"]:
            other = model.train(layout=layout, schedule=schedule, optimizer=ADAMW)
            assert other.losses == pytest.approx(first.losses, rel=TOLERANCE, abs=0)
    other = model.train("--seed", 1, optimizer=ADAMW)
    assert all(abs(a - b) > 1e-6 for a, b in zip(first.losses, other.losses, strict=True))


# --- curves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_curve_of_100_steps_is_bitwise_that_of_one_stage(own_model, schedule):
    """T26, T35: in float32, at the same number of micro-batches."""
    model = own_model(Chain, torch.float32)
    one = model.train(layout=(1, 1, 4), batch=12, steps=100, optimizer=ADAMW)
    four = model.train(layout=(4, 1, 4), batch=12, steps=100, optimizer=ADAMW, schedule=schedule)
    assert one.losses[-1] < 0.9 * one.losses[0]
    assert is_bitwise_equal(one, four)


def test_the_loss_is_reported_whoever_computes_it(own_model):
    """T47: rank 0 has no loss of its own, yet reports it."""
    model = own_model(Chain)
    run = model.expected(steps=2)
    trained = model.train("--workers", 4, layout=(2, 2, 2), steps=2)
    compare(run, trained)
    options = ["--batch", 11, "--steps", 2, "--no-shuffle", "--pp", 2, "--workers", 2]
    result = command.run("train", model.archive, "--data", f"safetensors:{model.data}", *options)
    assert "step 2/2" in result.stdout
    assert "loss -1" not in result.stdout


# --- losses that weigh their targets -----------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    @staticmethod
    def rows(generator):
        target = integers(generator, 4, 24)
        target[::5] = -100
        return {"x": normal(generator, 24, 4), "target": target}

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return F.log_softmax(x, -1)


CLASS_WEIGHTS = torch.tensor([0.25, 1.0, 3.0, 10.0], dtype=torch.float64)
WEIGHING_LOSSES = [nn.CrossEntropyLoss(weight=CLASS_WEIGHTS), nn.NLLLoss(), nn.NLLLoss(weight=CLASS_WEIGHTS)]


@pytest.mark.parametrize("loss", WEIGHING_LOSSES, ids=str)
@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 2, 2), (3, 1, 5)])
def test_losses_of_torch_that_weigh_their_targets(own_model, loss, layout):
    """The mean of a batch does not depend on how it is divided: some micro-batches here have ignored targets alone."""
    model = own_model(Classifier, loss=loss)
    trained = model.train(batch=6, layout=layout, steps=4)
    plain, losses = model.fresh(), []
    optimizer = torch.optim.SGD(plain.parameters(), lr=SGD.lr, momentum=SGD.momentum)
    for rows in model.batches(6):
        optimizer.zero_grad()
        value = loss(plain(rows["x"]), rows["target"])
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert trained.losses == pytest.approx(losses, rel=TOLERANCE)
    compare_states(plain.state_dict(), trained.state)
