"""A loss that is more than a mean over samples is said, by the export and by every command that cuts batches."""

from __future__ import annotations

import warnings

import command
import models
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
        "the loss of Classifier is not a mean over samples: where it is one over other items (targets not ignored, weights), "
        "return (mean, items) from it, as help(trireme.export) shows; else each micro-batch trains as a batch of its own, as "
        "in gradient accumulation, and --micro-batches 1 --dp 1 keeps batches whole"
    ]
    assert Archive(tmp_path / "a.pt2").manifest["mean_over_samples"] is False


WEIGHT = torch.tensor([1.0, 2.0, 5.0])


def each(output, target):
    return F.cross_entropy(output, target, reduction="none")


def of_used(output, target):
    is_used = target >= 0
    return (each(output, target) * is_used).sum() / is_used.sum()


def of_chosen(output, target):
    return each(output, target)[target >= 0].mean()


def of_weighed(output, target):
    return each(output, target).mul(WEIGHT[target]).sum() / WEIGHT[target].sum()


def by_weights(output, target, weights):
    return (each(output, target) * weights).sum() / weights.sum()


def of_present(output, target, value):
    is_present = value.isnan().logical_not()
    return (output[:, 0] - value).square().where(is_present, 0.0).sum() / is_present.sum()


# (loss, a further input, what shows it): none shows with targets of class 0 alone, and weights that are all one.
HIDDEN = {
    "targets not ignored": (of_used, None, "-100 in target"),
    "chosen targets": (of_chosen, None, "-100 in target"),
    "weights of classes": (of_weighed, None, "other values of target"),
    "a mask": (by_weights, torch.ones(4, dtype=torch.bool), "other values of weights"),
    "a mask of integers": (by_weights, torch.ones(4, dtype=torch.long), "other values of target, weights"),
    "weights": (by_weights, torch.ones(4), "other values of x, weights"),
    "missing values": (of_present, torch.ones(4), "nan in x, value"),
    "another mean beside it": (lambda o, target: F.cross_entropy(o, target) + o.abs().mean(), None, "-100 in target"),
    # The engine counts no targets behind such an operator.
    "a stack": (lambda o, target: torch.stack([F.cross_entropy(o, target)]).mean(), None, "-100 in target"),
    "a changed view": (lambda o, target: changed(F.cross_entropy(o, target)), None, "-100 in target"),
}
COUNTED = {
    "targets not ignored": (lambda o, y: F.cross_entropy(o, y), None),
    "weights of classes": (lambda o, y: F.cross_entropy(o, y, weight=WEIGHT), None),
    "smooth labels": (lambda o, y: F.cross_entropy(o, y, weight=WEIGHT, label_smoothing=0.1), None),
    "chosen targets": (lambda o, y: F.cross_entropy(o[y >= 0], y[y >= 0]), None),
    "likelihoods in a region": (lambda o, y: in_a_region(o, y), None),
    "items of its own": (lambda o, y, w: (by_weights(o, y, w), w.sum()), torch.ones(4)),
    "a penalty of the weights": (lambda o, y: F.cross_entropy(o, y) * 2 + WEIGHT.square().sum() - 1, None),
    "weighed samples": (lambda o, y, w: (each(o, y) * w).mean(), torch.ones(4)),
}


def changed(loss):
    view = loss.view(1)
    loss.mul_(2.0)
    return view.mean()


def in_a_region(output, target):
    with torch.autocast("cpu", enabled=False):
        loss = F.nll_loss(output.log_softmax(1), target, weight=WEIGHT)
    return loss.view(1).mean() * 0.5


def warnings_of(path, loss, further, samples):
    x, target = rows(4)
    batch = [x, target * 0, *([] if further is None else [further])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trireme.export(Classifier(), tuple(each[:samples] for each in batch), path, loss=loss)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("samples", [2, 3, 4])
@pytest.mark.parametrize(("loss", "further", "shown_by"), HIDDEN.values(), ids=HIDDEN)
def test_what_the_example_batch_hides_is_warned_of(tmp_path, loss, further, shown_by, samples):
    (found,) = warnings_of(tmp_path / "a.pt2", loss, further, samples)
    assert f"not a mean over samples with {shown_by}: " in found
    assert Archive(tmp_path / "a.pt2").manifest["mean_over_samples"] is False


@pytest.mark.parametrize("samples", [2, 3, 4])
@pytest.mark.parametrize(("loss", "further"), COUNTED.values(), ids=COUNTED)
def test_what_is_weighed_by_its_items_is_not_warned_of(tmp_path, loss, further, samples):
    assert warnings_of(tmp_path / "a.pt2", loss, further, samples) == []


def test_the_mean_over_labels_of_a_library_is_not_warned_of(tmp_path):
    """The labels of its example are all there; the engine counts those that are not ignored."""
    rows = {k: v[:3].clamp(min=0) for k, v in models.rows("gpt2", "f32").items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trireme.export(models.build("gpt2", "f32"), rows, tmp_path / "a.pt2")
    assert [m for w in caught if "mean" in (m := str(w.message))] == []


def test_items_that_differ_from_the_divisor_are_warned_of(tmp_path):
    def miscounted(output, target):
        return F.cross_entropy(output, target), target.new_ones(target.shape).sum()

    assert len(warnings_of(tmp_path / "a.pt2", miscounted, None, 4)) == 1


class Columns(Classifier):
    """Its samples lie in dim 1."""

    def forward(self, x, weights):
        each_place = self.layers(x).square().sum(-1)
        return (each_place * weights).sum() / weights.sum()


def test_samples_of_another_dim_are_changed(tmp_path):
    batch = torch.randn(2, 4, 6), torch.ones(2, 4, dtype=torch.bool)
    dims = {1: "batch", 0: None}
    with pytest.warns(UserWarning, match="not a mean over samples with other values of weights: "):
        trireme.export(Columns(), batch, tmp_path / "a.pt2", dynamic={"x": dims, "weights": dims})


class Bags(nn.Module):
    def __init__(self, miscounts):
        super().__init__()
        self.bag, self.miscounts = nn.EmbeddingBag(5, 4, mode="sum"), miscounts

    def forward(self, values, weights, offsets, target):
        each_sample = (self.bag(values, offsets, per_sample_weights=weights).sum(1) - target).square()
        return each_sample.mean(), weights.sum() if self.miscounts else target.shape[0]


@pytest.mark.parametrize("miscounts", [False, True])
def test_samples_of_jagged_inputs_are_parted_and_changed(tmp_path, miscounts):
    batch = torch.tensor([1, 2, 3, 4, 1, 2]), torch.ones(6), torch.tensor([0, 2, 4]), torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trireme.export(Bags(miscounts), batch, tmp_path / "a.pt2", jagged={"values": "offsets", "weights": "offsets"})
    shown = "not a mean over samples with other values of weights, target: "
    assert [shown in str(w.message) for w in caught] == [True] * miscounts


READ = []  # indices


@torch.library.custom_op("coupling::look_up", mutates_args=())
def look_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    READ.extend(index.tolist())
    return table[index]


@look_up.register_fake
def _(table, index):
    return table.new_empty(index.shape)


def test_an_operator_of_a_library_is_given_no_index_that_no_table_has(tmp_path):
    def looked_up(output, target):
        return F.mse_loss(output[:, 0], look_up(WEIGHT, target))

    x, target = rows(4)
    trireme.export(Classifier(), (x, target), tmp_path / "a.pt2", loss=looked_up)
    assert set(READ) >= {0, 1} and set(READ) <= {0, 1, 2}


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(3, 4) for _ in range(5))

    def forward(self, a, b, c, d, e):
        columns = zip(self.tables, (a, b, c, d, e), strict=True)
        return sum(table(column) for table, column in columns).sum(1)


def test_the_number_of_forward_passes_is_bounded(tmp_path, monkeypatch):
    passes, run = [], torch.fx.Interpreter.run
    monkeypatch.setattr(torch.fx.Interpreter, "run", lambda *given, **more: passes.append(1) or run(*given, **more))
    batch = tuple(torch.zeros(4, dtype=torch.long) for _ in range(5))
    trireme.export(Tables(), (*batch, torch.zeros(4)), tmp_path / "a.pt2", loss=F.mse_loss)
    # Three of the example, of other floats, of other integers; one of -100 in each set of tables, and of targets that are nan.
    assert len(passes) == 3 + 3 + 3 + (2 * 5 - 1) + 1


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
