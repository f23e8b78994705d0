"""A loss that is more than a mean over samples is said, by the export and by every command that cuts batches."""

from __future__ import annotations

import warnings

import command
import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from safetensors.torch import save_file
from torch import nn

import trireme

NUM_ROWS = 12


class Classifier(nn.Module):
    def __init__(self, layer=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), layer or nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def contrast(output, target):
    scores = F.normalize(output) @ F.normalize(output).T
    return F.cross_entropy(scores, torch.arange(target.shape[0]))


def counted(output, target):
    is_used = target > 0
    return F.cross_entropy(output, target.masked_fill(~is_used, -100)), is_used.sum()


MEANS = {
    "cross entropy": (None, F.cross_entropy),
    "dropout": (nn.Dropout(0.5), F.cross_entropy),
    "dropout of features": (nn.FeatureAlphaDropout(0.5), F.cross_entropy),
    "layer norm": (nn.LayerNorm(5), F.cross_entropy),
    "a count of items": (None, counted),
    "weighted classes": (None, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))),
    "a norm of the weights": (None, lambda o, y: F.cross_entropy(o, y) + 0.1),
}
OTHERS = {
    "batch norm": (nn.BatchNorm1d(5), F.cross_entropy),
    "centred by the batch": (Centred(), F.cross_entropy),
    "in-batch negatives": (None, contrast),
    "a sum": (None, lambda o, y: F.cross_entropy(o, y, reduction="sum")),
    "a penalty that is a sum": (None, lambda o, y: F.cross_entropy(o, y) + 0.01 * o.abs().sum()),
    "a root": (None, lambda o, y: F.mse_loss(o, F.one_hot(y, 3).float()).sqrt()),
    "balance over the batch": (None, lambda o, y: F.cross_entropy(o, y) + o.softmax(1).mean(0).square().sum()),
    "a sort over the batch": (None, lambda o, y: (o.sort(0).values * torch.arange(y.shape[0])[:, None]).mean()),
}


def rows(number):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(number, 6, generator=generator), torch.randint(3, (number,), generator=generator)


def export(path, layer, loss, samples):
    torch.manual_seed(3)
    model = Classifier(layer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trireme.export(model, rows(samples), path, loss=loss)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("samples", [2, 3, 4, 7])
@pytest.mark.parametrize(("layer", "loss"), MEANS.values(), ids=MEANS)
def test_a_mean_over_samples_is_not_warned_of(tmp_path, layer, loss, samples):
    assert export(tmp_path / "a.pt2", layer, loss, samples) == []
    assert "mean_over_samples" not in Archive(tmp_path / "a.pt2").manifest


@pytest.mark.parametrize("samples", [2, 3, 4, 7])
@pytest.mark.parametrize(("layer", "loss"), OTHERS.values(), ids=OTHERS)
def test_another_loss_is_warned_of(tmp_path, layer, loss, samples):
    assert export(tmp_path / "a.pt2", layer, loss, samples) == [
        "the loss of Classifier is not a mean over samples: each micro-batch trains as a batch of its own, as in gradient "
        "accumulation (--micro-batches 1 --dp 1 keeps batches whole)"
    ]
    assert Archive(tmp_path / "a.pt2").manifest["mean_over_samples"] is False


class Autocast(nn.Module):
    """Computes in half precision what is not its weights."""

    def __init__(self, dtype):
        super().__init__()
        self.inner, self.dtype = Classifier(), dtype

    def forward(self, x):
        with torch.autocast("cpu", self.dtype):
            return self.inner(x)


class Cast(Classifier):
    """Computes in half precision by its own conversions, whose dtypes the archive asserts."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        hidden = self.layers[:2](x).to(self.dtype)
        return self.layers[2]((hidden * 2).to(torch.float32))


def slightly_balanced(output, target):
    """Samples meet in less of the loss than half precision rounds."""
    return F.cross_entropy(output, target) + 0.05 * output.float().softmax(1).mean(0).square().sum()


HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
@pytest.mark.parametrize("is_mean", [True, False])
@pytest.mark.parametrize("kind", [Classifier, Autocast, Cast])
def test_half_precision_hides_nothing(tmp_path, dtype, is_mean, kind):
    torch.manual_seed(3)
    is_whole = kind is Classifier
    model = Classifier(nn.Sequential(nn.LayerNorm(5), nn.Dropout(0.5))).to(dtype) if is_whole else kind(dtype)
    x, target = rows(8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = x.to(dtype) if is_whole else x, target
        trireme.export(model, batch, tmp_path / "a.pt2", loss=F.cross_entropy if is_mean else slightly_balanced)
    assert ["not a mean over samples" in str(w.message) for w in caught] == ([] if is_mean else [True])


def test_a_model_without_values_is_not_looked_at(tmp_path):
    with trireme.empty_weights():
        model = Classifier()
    with pytest.warns(UserWarning) as caught:
        trireme.export(model, rows(4), tmp_path / "a.pt2", loss=contrast)
    assert [str(w.message) for w in caught] == [
        "the parameters of Classifier have no values, so whether its loss is a mean over samples was not checked; where it "
        "is not, each micro-batch trains as a batch of its own"
    ]
    assert "mean_over_samples" not in Archive(tmp_path / "a.pt2").manifest


def test_buffers_and_random_numbers_stay(tmp_path):
    model = Classifier(nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(11)
    wanted = torch.rand(3)
    torch.manual_seed(11)
    with pytest.warns(UserWarning, match="not a mean over samples"):
        trireme.export(model, rows(4), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Rescaled(Classifier):
    """Writes to a frozen weight in a region of its own, which the archive keeps as a graph inside the graph."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.5)
        return self.layers(x) * self.scale


def test_weights_that_the_forward_pass_changes_stay(tmp_path):
    model = Rescaled()
    trireme.export(model, rows(4), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert torch.equal(model.scale, torch.full((3,), 2.0))


@pytest.mark.binary
def test_commands_that_cut_batches_say_so(tmp_path):
    archive, data = tmp_path / "a.pt2", tmp_path / "rows.safetensors"
    export(archive, None, contrast, 4)
    x, target = rows(NUM_ROWS)
    save_file({"x": x, "target": target}, data)
    said = (
        "the loss is not a mean over samples: each of the {} micro-batches of a batch is a batch of its own, as in gradient "
        "accumulation; --micro-batches 1 --dp 1 keeps batches whole\n"
    )
    shown = command.run("inspect", archive).stdout
    assert "  the loss is not a mean over samples: it changes with --micro-batches and --dp\n" in shown
    run = ["train", archive, "--data", f"safetensors:{data}", "--batch", 6, "--steps", 1]
    evaluate = ["eval", archive, "--data", f"safetensors:{data}", "--batch", 6]
    for cut, parts in ((["--pp", 2], 2), (["--dp", 2, "--micro-batches", 2], 4)):
        assert said.format(parts) in command.run("plan", archive, *cut).stdout
        assert "trireme: " + said.format(parts) in command.run(*run, *cut).stderr
        assert "trireme: " + said.format(parts) in command.run(*evaluate, *cut).stderr
    whole = ["--pp", 2, "--micro-batches", 1]
    assert "not a mean" not in command.run("plan", archive, *whole).stdout + command.run(*run, *whole).stderr
    assert "not a mean" not in command.run(*evaluate, *whole).stderr
