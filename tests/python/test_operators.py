"""Operators of other name spaces than aten: from a library of the user's, or from our table of native replacements."""

from __future__ import annotations

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import compare, normal
from torch import nn

pytestmark = pytest.mark.binary

WIDTH = 4
LIBRARIES = command.REPOSITORY / "build" / "test_operators"
SWISH = LIBRARIES / "swish.so"


@pytest.fixture(scope="module", autouse=True)
def own_operators():
    torch.ops.load_library(SWISH)


class Swish(nn.Module):
    def forward(self, x):
        return torch.ops.own.swish(x, 1.5)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(WIDTH, 6), Swish(), nn.Linear(6, WIDTH)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 12, WIDTH)}

    def forward(self, x):
        return (self.last(self.act(self.first(x))) - x).square().mean()


class Counted(Layers):
    def forward(self, x):
        y = self.first(x)
        torch.ops.own.count(y)
        return self.last(y).square().mean()


def refusal(model, *options, code):
    result = model.command("--batch", 6, "--steps", 1, *options, code=code)
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize("layout", [(1, 1, 1), (3, 1, 2), (1, 2, 1)])
def test_an_operator_of_a_library_trains_as_in_pytorch(own_model, layout):
    model = own_model(Layers)
    trained = model.train("--operator-library", LIBRARIES / "empty.so", "--operator-library", SWISH, layout=layout)
    compare(model.expected(), trained)


def test_every_process_loads_the_library(own_model, tmp_path):
    model = own_model(Layers)
    compare(
        model.expected(steps=2), model.train("--workers", 2, "--operator-library", SWISH, layout=(2, 1, 1), steps=2)
    )
    data = ["--data", f"safetensors:{model.data}", "--batch", 11, "--workers", 1]
    evaluated = command.run("eval", model.archive, *data, "--operator-library", SWISH)
    loss = float(evaluated.stdout.split()[2])
    assert loss == pytest.approx(model.mean_loss(model.fresh(), 11), rel=1e-6)


def test_a_model_with_unknown_operators_is_inspected_and_planned(own_model):
    model = own_model(Layers)
    assert "(no rule: bytes moved)  (train it with --operator-library)" in command.run("inspect", model.archive).stdout
    command.run("plan", model.archive, "--pp", 3)


def test_an_unknown_operator_is_refused_with_the_way_out(own_model):
    model = own_model(Layers)
    assert refusal(model, code=2) == (
        f"trireme: {model.archive}: own.swish.default of module 'act' is no operator of aten; give the library that "
        "registers it by --operator-library LIB.so, or, where it exists in Python only, replace it in the model\n"
    )


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        ("missing", "--operator-library {path}: there is no such file"),
        ("unlinked", "--operator-library {path}: it cannot be loaded: {path}: undefined symbol: defined_nowhere"),
        ("empty", "--operator-library {path} does not register the operator own.swish.default of module 'act'"),
        (
            "other_swish",
            "--operator-library {path}: own.swish.default of module 'act': argument beta does not fit its type str",
        ),
    ],
)
def test_a_library_that_does_not_serve_is_refused(own_model, library, sentence):
    path = LIBRARIES / f"{library}.so"
    said = refusal(own_model(Layers), "--operator-library", path, code=2 if library == "missing" else 1)
    assert sentence.format(path=path) in said


def test_two_libraries_of_one_name_space_are_refused(own_model):
    other = LIBRARIES / "other_swish.so"
    said = refusal(own_model(Layers), "--operator-library", SWISH, "--operator-library", other, code=1)
    assert (
        f"--operator-library {other} cannot be loaded after {SWISH}: Only a single TORCH_LIBRARY can be used to" in said
    )
    assert "frame #" not in said


def test_a_write_that_the_name_does_not_tell_is_refused(own_model):
    said = refusal(own_model(Counted), "--operator-library", SWISH, code=1)
    assert (
        "own.count.default changes its argument x in place, which is supported only of the first argument "
        "of an operator whose name ends in _; return a new tensor instead"
    ) in said


class Experts(nn.Module):
    """transformers' grouped product of sorted rows, one expert without any, rows left over, a transposed weight."""

    def __init__(self):
        super().__init__()
        self.first, self.experts = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(4, 3, WIDTH))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 12, WIDTH)}

    def forward(self, x):
        kind = (torch.arange(x.shape[0]) % 3 * 2).clamp(max=3)
        sorted_rows = self.first(x)[kind.argsort(stable=True)]
        counts = torch.stack([(kind == i).sum() for i in range(4)])
        offsets = (counts - torch.tensor([0, 0, 0, 1])).clamp(min=0).cumsum(0, dtype=torch.int32)
        made = torch.ops.transformers.grouped_mm_fallback(sorted_rows, self.experts.transpose(1, 2), offs=offsets)
        return F.silu(made).square().mean()


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 1, 1)])
def test_the_grouped_product_of_transformers_trains_as_in_pytorch(own_model, layout):
    import transformers.integrations.moe  # noqa: F401  registers the operator in Python

    model = own_model(Experts)
    compare(model.expected(), model.train(layout=layout))
