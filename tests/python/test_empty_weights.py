"""trireme.empty_weights(): models are built and exported without the values of their parameters."""

from __future__ import annotations

import contextlib
import resource
import weakref

import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from torch import nn

import trireme

WIDTH = 8
REMEDY = "build this module outside of trireme.empty_weights(), where it keeps its values"


class Everything(nn.Module):
    """Ties of both kinds, all kinds of buffers, constants, lists of parameters, initialisation of every kind."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.block = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.embed.weight
        shared = nn.Parameter(torch.randn(WIDTH))
        self.first, self.second = nn.ParameterList([shared]), nn.ParameterDict({"again": shared})
        self.turned = nn.Parameter(torch.randn(WIDTH, 3).t(), requires_grad=False)
        self.register_buffer("rates", torch.linspace(0, 1, WIDTH), persistent=False)
        self.share = torch.linspace(0, 1, 5)[3].item()
        self.constant = torch.full((WIDTH,), 0.5)
        for weight in (self.embed.weight, self.normed.bias):
            weight.data.normal_()
            with torch.no_grad():
                weight[0] = 1
                weight.mul_(2).copy_(torch.ones(weight.shape))
        nn.init.orthogonal_(self.turned)
        nn.init.trunc_normal_(self.embed.weight)

    def forward(self, tokens, targets):
        x = self.block(self.lstm(self.embed(tokens))[0])
        x = self.norm(x.transpose(1, 2)).transpose(1, 2) * self.rates + torch.tensor([0.25] * WIDTH)
        x = self.normed(x) * self.first[0] + self.second["again"] * self.share * self.constant + self.turned
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


BATCH = {"tokens": torch.zeros(2, 3, dtype=torch.long), "targets": torch.zeros(2, 3, dtype=torch.long)}


def exported(tmp_path, name, context, **changes):
    with context:
        model = Everything()
    for key, value in changes.items():
        setattr(model, key, value)
    before = dict(model.named_parameters(remove_duplicate=False))
    lists = [id(p) for p in model.lstm._flat_weights]
    trireme.export(model, BATCH, tmp_path / f"{name}.pt2")
    after = dict(model.named_parameters(remove_duplicate=False))
    assert before.keys() == after.keys() and all(before[n] is after[n] for n in before)
    assert lists == [id(p) for p in model.lstm._flat_weights]
    return model, Archive(tmp_path / f"{name}.pt2")


def stored_bytes(archive, table):
    return {name: archive.bytes_of(entry) for name, entry in table.items()}


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_the_program_is_that_of_a_model_with_weights(tmp_path):
    full, wanted = exported(tmp_path, "full", contextlib.nullcontext())
    empty, found = exported(tmp_path, "empty", trireme.empty_weights())
    assert all(p.is_meta for p in empty.parameters())
    assert empty.head.weight is empty.embed.weight and empty.first[0] is empty.second["again"]
    assert found.program == wanted.program
    # Whether samples meet, as in BatchNorm, takes values to tell.
    assert found.manifest | {"mean_over_samples": False} == wanted.manifest
    assert found.manifest["ties"] == [["embed.weight", "head.weight"], ["first.0", "second.again"]]
    types = ({n: e["tensor_meta"] for n, e in archive.weights.items()} for archive in (found, wanted))
    assert next(types) == next(types)
    names = {n for n, _ in full.named_parameters(remove_duplicate=False)}
    values, real = stored_bytes(found, found.weights), stored_bytes(wanted, wanted.weights)
    for name in found.weights:
        assert values[name] == (b"" if name in names else real[name]), name
    assert {"norm.running_mean", "norm.num_batches_tracked"} <= values.keys() - names
    assert stored_bytes(found, found.constants) == stored_bytes(wanted, wanted.constants)
    assert found.constants.keys() >= {"rates", "constant"}


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_a_module_from_outside_keeps_its_values(tmp_path):
    outside = nn.Linear(WIDTH, 11, bias=False)
    _, archive = exported(tmp_path, "mixed", trireme.empty_weights(), head=outside)
    values = stored_bytes(archive, archive.weights)
    assert values["head.weight"] == outside.weight.detach().numpy().tobytes()
    assert values["embed.weight"] == values["turned"] == b""
    assert archive.manifest["ties"] == [["first.0", "second.again"]]


def test_parameters_take_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with trireme.empty_weights():
        model = nn.Sequential(*(nn.Linear(2**13, 2**13) for _ in range(256)))
    assert sum(p.numel() for p in model.parameters()) > 2**34
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**15  # KiB


def test_dtypes_and_attributes_of_parameters_stay():
    with trireme.empty_weights():
        layer = nn.Linear(2, 3, dtype=torch.bfloat16)
        marked = nn.Parameter(torch.ones(3), requires_grad=False)
        marked.group = "slow"
        layer.marked = marked
        layer.half()
        layer.requires_grad_(False)
    assert layer.weight.dtype == torch.half and not layer.weight.requires_grad
    assert layer.marked is marked and marked.is_meta and marked.group == "slow"
    assert not nn.Linear(2, 3).weight.is_meta  # outside, all is as ever


def linear(module):
    module.layer = nn.Linear(WIDTH, WIDTH)
    return module.layer.weight


class ReadsNumber(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = linear(self).std().item()


class Decides(nn.Module):
    def __init__(self):
        super().__init__()
        if linear(self).abs().max() > 3:
            self.layer.weight.data.mul_(0.1)


class ReadsArray(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = linear(self).detach().numpy().mean()


class CopiesValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("copied", torch.zeros(WIDTH, WIDTH))
        self.copied.copy_(linear(self).data)


class SetsData(nn.Module):
    def __init__(self):
        super().__init__()
        linear(self).data = torch.ones(WIDTH, WIDTH)


class AddsTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = linear(self).data + torch.ones(WIDTH)


@pytest.mark.parametrize("kind", [ReadsNumber, Decides, ReadsArray, CopiesValues, SetsData, AddsTensor])
def test_a_module_that_needs_values_is_refused_where_it_is_built(kind):
    with pytest.raises(ValueError) as error, trireme.empty_weights():
        kind()
    line = kind.__init__.__code__.co_firstlineno + (3 if kind is CopiesValues else 2)
    message = (
        f"{kind.__name__} at test_empty_weights.py:{line} reads or sets the values of a parameter, which has none; "
    )
    assert str(error.value) == message + REMEDY
    assert not nn.Linear(2, 3).weight.is_meta


def test_other_errors_pass():
    with pytest.raises(KeyError, match="mine"), trireme.empty_weights():
        raise KeyError("mine")


class Computed(nn.Module):
    def __init__(self, is_buffer):
        super().__init__()
        scale = linear(self).std()
        self.register_buffer("scale", scale) if is_buffer else setattr(self, "scale", scale)

    def forward(self, x):
        return (self.layer(x) * self.scale).mean()


@pytest.mark.parametrize("is_buffer", [False, True])
def test_what_is_computed_from_a_parameter_is_refused(tmp_path, is_buffer):
    with trireme.empty_weights():
        model = nn.Sequential(Computed(is_buffer))
    with pytest.raises(ValueError) as error:
        trireme.export(model, torch.zeros(2, WIDTH), tmp_path / "x.pt2")
    assert str(error.value) == (
        'the tensor "scale" of "0" (Computed) has no values, as it was computed from a parameter or on the device meta; '
        + REMEDY
    )
    assert not any(tmp_path.iterdir())


def test_spectral_norm_is_built_outside(tmp_path):
    class Net(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.first, self.layer = nn.Linear(WIDTH, WIDTH), layer

        def forward(self, x):
            return self.layer(self.first(x)).mean()

    def layer():
        return nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    with trireme.empty_weights():
        model = Net(layer())
    with pytest.raises(
        ValueError, match=r'the tensor "_u" of "layer.parametrizations.weight.0" \(_SpectralNorm\) has no'
    ):
        trireme.export(model, torch.zeros(2, WIDTH), tmp_path / "x.pt2")
    outside = layer()
    with trireme.empty_weights():
        model = Net(outside)
    assert model.first.weight.is_meta
    trireme.export(model, torch.zeros(2, WIDTH), tmp_path / "x.pt2")


def test_a_parameter_in_use_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            weight = nn.Parameter(torch.ones(3))
            self.kept = [weakref.ref(weight)]
            self.weight = weight

    with pytest.raises(ValueError) as error, trireme.empty_weights():
        Net()
    assert str(error.value) == f'parameter "weight" of Net is in use already and cannot give its values up; {REMEDY}'
