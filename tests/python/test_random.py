"""Random numbers are counted: they depend on the seed and on no layout; where no dim of a tensor counts samples, on the
number of micro-batches besides."""

from __future__ import annotations

import json
import re

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import TOLERANCE, compare_states, is_bitwise_equal, normal
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 4
LENGTH = 6
NUM_ROWS = 12
# The same samples in other micro-batches, stages and replicas.
LAYOUTS = [(1, 1, 1), (1, 1, 3), (3, 1, 2), (1, 2, 1), (2, 2, 2)]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, NUM_ROWS, LENGTH, WIDTH)}

    def middle(self, x):
        return x

    def forward(self, x):
        return (self.last(self.middle(torch.tanh(self.first(x)))) - x).square().mean()


class Drawn(Layers):
    """What draws in evaluation, too: by functions, like a tensor, in place, from tensors of parameters."""

    def middle(self, x):
        b, t, w = x.shape
        x = x + 0.1 * torch.rand(b, 1, w) + 0.1 * torch.randn(b, t, w) + 0.1 * torch.randint(-2, 3, (b, t, w))
        x = x + 0.1 * torch.rand_like(x) * torch.randn_like(x) + 0.1 * torch.randint_like(x, 4)
        x = x * torch.bernoulli(torch.full_like(x, 0.5)) + 0.1 * torch.bernoulli(x, 0.25)
        x = x + torch.normal(x.detach(), 0.1) + 0.1 * torch.empty_like(x).normal_(1, 2)
        x = x + 0.1 * torch.empty_like(x).uniform_(-1, 1) + 0.1 * torch.empty_like(x).exponential_()
        x = x + 0.01 * torch.empty_like(x).log_normal_() + 0.01 * torch.empty_like(x).geometric_(0.5)
        x = x + 0.1 * torch.empty_like(x).bernoulli_(0.3) + 0.1 * torch.empty_like(x).random_(5)
        chosen = torch.multinomial(x[:, 0].detach().softmax(-1), 2)
        x = x + 0.1 * F.one_hot(chosen, WIDTH).sum(1, keepdim=True)
        return x + F.gumbel_softmax(x)


class Merged(Layers):
    """Samples and positions in one dim, one or the other first; two copies of the batch in one."""

    def middle(self, x):
        a = F.dropout(x.reshape(-1, WIDTH).sigmoid(), 0.3, self.training).view(x.shape)
        b = x.transpose(0, 1).reshape(-1, WIDTH)
        b = (b + torch.randn_like(b)).view(LENGTH, -1, WIDTH).transpose(0, 1)
        c = F.dropout(torch.cat([x, 2 * x]), 0.3, self.training)
        return a + b + c[: x.shape[0]] * c[x.shape[0] :]


class Dropping(Layers):
    """What evaluation turns off."""

    def __init__(self):
        super().__init__()
        self.slope, self.alpha, self.channels = nn.RReLU(), nn.AlphaDropout(0.2), nn.Dropout1d(0.3)
        self.alpha_channels = nn.FeatureAlphaDropout(0.2)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.3, batch_first=True)
        self.gru = nn.GRU(WIDTH, WIDTH // 2, num_layers=3, dropout=0.3, bidirectional=True)
        self.rnn = nn.RNN(WIDTH, WIDTH, num_layers=2, dropout=0.3, batch_first=True)

    def middle(self, x):
        x = x + self.alpha(self.slope(x)) + self.channels(x) + self.alpha_channels(x)
        x = x + F.rrelu(x * 2, training=self.training, inplace=True)
        x = x + self.lstm(x)[0] + self.gru(x.transpose(0, 1))[0].transpose(0, 1)
        return x + self.rnn(x)[0]


class OfWeights(Layers):
    """A mask and noise of a weight are one draw a step, whatever the micro-batches."""

    def middle(self, x):
        weight = F.dropout(self.last.weight, 0.4, self.training)
        return F.linear(x, weight + 0.1 * torch.randn_like(weight))


@pytest.mark.parametrize("kind", [Drawn, Merged, Dropping, OfWeights])
def test_numbers_of_samples_depend_on_the_seed_alone(own_model, kind):
    """T23, T24: no layout draws other numbers."""
    model = own_model(kind)
    trained = [model.train(layout=layout, batch=NUM_ROWS, steps=2) for layout in LAYOUTS]
    for each in trained[1:]:
        assert each.losses == pytest.approx(trained[0].losses, rel=TOLERANCE)
        compare_states(trained[0].state, each.state)
    assert is_bitwise_equal(trained[0], model.train(batch=NUM_ROWS, steps=2))
    other = model.train("--seed", 1, batch=NUM_ROWS, steps=2)
    assert abs(other.losses[0] - trained[0].losses[0]) > 1e-5


class Shared(Layers):
    """No dim counts samples: noise of the batch, an order of it, and what is left of it."""

    def __init__(self):
        super().__init__()
        self.noise = Noise()

    def middle(self, x):
        x = x + self.noise(x)
        x = x + x[torch.randperm(x.shape[0])]
        return x * F.dropout(x.mean(0, keepdim=True), 0.5, self.training)


class Noise(nn.Module):
    def forward(self, x):
        return torch.randn(WIDTH) + torch.randn(WIDTH)


def test_numbers_of_micro_batches_depend_on_their_number_besides(own_model):
    model = own_model(Shared)
    four = [
        model.train(layout=layout, batch=NUM_ROWS, steps=2) for layout in [(1, 1, 4), (2, 1, 4), (2, 2, 2), (1, 4, 1)]
    ]
    for each in four[1:]:
        assert each.losses == pytest.approx(four[0].losses, rel=TOLERANCE)
        compare_states(four[0].state, each.state)
    whole = model.train(batch=NUM_ROWS, steps=2)
    assert abs(whole.losses[0] - four[0].losses[0]) > 1e-5
    described = json.loads(command.run("inspect", model.archive, "--json").stdout)["random"]
    assert {(entry["op"], entry["module"], entry["key"]) for entry in described} == {
        ("aten.randn.default", "noise", "micro-batch"),
        ("aten.randperm.default", "", "micro-batch"),
        ("aten.dropout.default", "", "micro-batch"),
    }
    lines = command.run("inspect", model.archive).stdout.splitlines()
    at = lines.index("random numbers")
    meaning = "by micro-batch: the numbers depend on how many micro-batches a step has"
    assert [line.split(None, 4) for line in lines[at + 1 : at + 4]] == [
        ["2", "x", "aten.randn.default", "noise", meaning],
        ["1", "x", "aten.randperm.default", "(no", f"module)              {meaning}"],
        ["1", "x", "aten.dropout.default", "(no", f"module)              {meaning}"],
    ]


def evaluate(model, *options):
    data = ["--data", f"safetensors:{model.data}", "--batch", NUM_ROWS, "--workers", 1, "--json"]
    return json.loads(command.run("eval", model.archive, *data, *options).stdout)["eval_loss"]


def test_evaluation_turns_off_what_pytorch_turns_off(own_model):
    model = own_model(Dropping)
    assert evaluate(model) == pytest.approx(model.mean_loss(model.fresh(), NUM_ROWS), rel=TOLERANCE)


def test_evaluation_draws_on_where_nothing_says_training(own_model):
    model = own_model(Drawn)
    loss = evaluate(model)
    assert evaluate(model, "--pp", 3, "--micro-batches", 4) == pytest.approx(loss, rel=TOLERANCE)
    assert abs(evaluate(model, "--seed", 1) - loss) > 1e-5
    # Other numbers than those of training, from the same weights.
    first = model.train(batch=NUM_ROWS, steps=1).losses[0]
    assert abs(first - loss) > 1e-5


class Poisson(Layers):
    def middle(self, x):
        return x + torch.poisson(x.detach().abs())


class Gamma(Layers):
    def middle(self, x):
        return x * torch._standard_gamma(x.detach().abs() + 1)


INSTEAD = "draw with rand, randn, exponential_, bernoulli or multinomial instead"


@pytest.mark.parametrize(
    ("kind", "operator"), [(Poisson, "aten.poisson.default"), (Gamma, "aten._standard_gamma.default")]
)
def test_what_only_torchs_generator_can_draw_is_refused(own_model, kind, operator):
    model = own_model(kind)
    sentence = (
        f"trireme: {model.archive}: {operator} draws from torch's own generator, whose numbers depend on the "
        f"layout; {INSTEAD}\n"
    )
    data = ["--data", f"safetensors:{model.data}", "--batch", 4]
    assert model.command("--batch", 4, "--steps", 1, code=2).stderr == sentence
    assert command.run("eval", model.archive, *data, code=2).stderr == sentence
    assert re.search(rf"1 x {re.escape(operator)} .* refused: {INSTEAD}", command.run("inspect", model.archive).stdout)
