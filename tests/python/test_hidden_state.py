"""What an archive does not say aloud: its default dtype, writes through `out`, parameters that the forward changes,
and sizes that the data decides. Each is right in every layout, or refused by name."""

from __future__ import annotations

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import compare, integers, normal
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 6
NUM_ROWS = 24


class Head(nn.Module):
    """Two layers after something that a test puts in the middle."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, NUM_ROWS, WIDTH), "y": normal(generator, NUM_ROWS, WIDTH)}

    def middle(self, x):
        return x

    def forward(self, x, y):
        return F.mse_loss(self.last(self.middle(torch.tanh(self.first(x)))), y)


class DefaultDtype(Head):
    def middle(self, x):
        positions = torch.arange(WIDTH)
        return x + positions * 0.01 + torch.zeros(WIDTH) + torch.full((WIDTH,), 0.3)


@pytest.fixture
def double_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 2, 2)])
def test_tensors_without_a_dtype_have_the_default_of_the_export(double_default, own_model, layout):
    model = own_model(DefaultDtype)
    compare(model.expected(), model.train(layout=layout))


class Spectral(Head):
    """Power iteration writes its vectors by `out=`."""

    def __init__(self):
        super().__init__()
        self.inner = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def middle(self, x):
        return torch.tanh(self.inner(x))


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 1, 1), (3, 1, 1)])
def test_a_buffer_written_by_out_trains_as_in_pytorch(own_model, layout):
    model = own_model(Spectral)
    compare(model.expected(), model.train(layout=layout))


def test_a_buffer_written_by_out_is_refused_for_replicas(own_model):
    refusal = own_model(Spectral).command("--batch", 11, "--steps", 1, "--dp", 2, code=2)
    assert "the forward pass changes buffer 'inner.parametrizations.weight.0._" in refusal.stderr
    assert "which replicas cannot combine; use --dp 1" in refusal.stderr


def test_a_buffer_that_micro_batches_change_is_noted(own_model):
    model = own_model(Spectral)
    options = ["--batch", 12, "--steps", 1, "--pp", 2, "--micro-batches"]
    said = model.command(*options, 3).stderr
    name = "inner.parametrizations.weight.0._u"
    note = (
        f"the forward pass changes buffer '{name}' in each micro-batch, 3 times a step; with --micro-batches 1 once, "
        "as PyTorch does\n"
    )
    assert said == f"trireme: {note}"
    assert model.command(*options, 1).stderr == ""
    plan = ["plan", model.archive, "--pp", 2, "--micro-batches"]
    assert command.run(*plan, 3).stdout.endswith(f"  {note}")
    assert "micro-batch," not in command.run(*plan, 1).stdout
    data = ["--data", f"safetensors:{model.data}", "--workers", 1]
    assert "trireme" not in command.run("eval", model.archive, *data, "--batch", 12, "--micro-batches", 3).stderr


class Normed(Head):
    """Moving averages are as PyTorch has them, micro-batch by micro-batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def middle(self, x):
        return self.norm(x)


def test_moving_averages_are_not_noted(own_model):
    said = own_model(Normed).command("--batch", 12, "--steps", 1, "--micro-batches", 3).stderr
    assert "the forward pass changes" not in said


class Noisy(Head):
    """A buffer that is filled at random in place."""

    def __init__(self, fill="normal_"):
        super().__init__()
        self.fill = fill
        self.register_buffer("noise", torch.zeros(WIDTH))

    def middle(self, x):
        getattr(self.noise, self.fill)()
        return x + 0.1 * self.noise


class Uniform(Noisy):
    def __init__(self):
        super().__init__("uniform_")


@pytest.mark.parametrize("kind", [Noisy, Uniform])
def test_a_buffer_filled_at_random_in_place_is_refused_for_replicas(own_model, kind):
    model = own_model(kind)
    trained = [model.train(layout=layout) for layout in [(1, 1, 2), (2, 1, 2)]]
    assert [line["loss"] for line in trained[0].lines] == [line["loss"] for line in trained[1].lines]
    refusal = model.command("--batch", 11, "--steps", 1, "--dp", 2, code=2)
    assert refusal.stderr == (
        f"trireme: the forward pass fills buffer 'noise' with random numbers by aten.{model.fresh().fill}.default, and each "
        "replica draws its own; fill a new tensor instead, as torch.rand_like does, or use --dp 1\n"
    )


class Renormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(9, WIDTH, max_norm=1.0), nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return {"i": integers(generator, 9, NUM_ROWS), "y": normal(generator, NUM_ROWS, WIDTH)}

    def forward(self, i, y):
        return F.mse_loss(self.last(self.table(i)), y)


def test_a_parameter_that_the_forward_changes_is_refused_for_replicas(own_model):
    model = own_model(Renormed)
    compare(model.expected(), model.train())
    refusal = model.command("--batch", 11, "--steps", 1, "--dp", 2, code=2)
    assert (
        "the forward pass changes parameter 'table.weight' by aten.embedding_renorm_.default, which replicas cannot "
        "combine; use --dp 1"
    ) in refusal.stderr


class Complex(Head):
    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.ones(WIDTH // 2 + 1, dtype=torch.complex128))

    def to(self, dtype):
        self.first.to(dtype), self.last.to(dtype)  # Module.to would make the filter real
        return self

    def middle(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=WIDTH)


def test_a_complex_parameter_in_an_archive_is_refused(own_model, monkeypatch):
    monkeypatch.setattr("trireme.capture._check_modules", lambda _: None)
    refusal = own_model(Complex).command("--batch", 11, "--steps", 1, code=2)
    assert (
        "parameter 'filter' is c128; complex parameters are not supported, store it as a real one and call "
        "torch.view_as_complex"
    ) in refusal.stderr


class Overwrites(Head):
    def middle(self, x):
        gate = x.sigmoid()
        squared = gate.square()
        gate.mul_(2)
        return squared + gate


def test_what_torch_says_in_a_run_has_no_hint_to_python(own_model):
    failure = own_model(Overwrites).command("--batch", 11, "--steps", 1, "--quiet", code=1).stderr
    assert failure.startswith("rank 0 (stage 0, replica 0) failed: step 1: B0 (backward of micro-batch 0): one of the ")
    assert failure.endswith("is at version 1; expected version 0 instead\n")


class FloatItem(Head):
    def middle(self, x):
        return x * x.detach().abs().mean().item()


def test_a_floating_point_number_that_the_data_decides_is_refused(own_model):
    refusal = own_model(FloatItem).command("--batch", 11, "--steps", 1, code=2)
    assert (
        "the data decides a floating-point number (.item()), which is not supported; keep it a tensor" in refusal.stderr
    )


class Masked(Head):
    """The number of positive rows is known only when they are counted."""

    def middle(self, x):
        positive = x[x[:, 0] > 0]
        return x + positive.sum(0) / WIDTH


@pytest.mark.parametrize("layout", [(1, 1, 1), (1, 1, 3), (2, 2, 2)])
def test_sizes_that_the_data_decides_stay_in_one_stage(own_model, layout):
    model = own_model(Masked)
    compare(model.expected(micro_batches=layout[1] * layout[2]), model.train(layout=layout))
