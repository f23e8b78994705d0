"""Models that torch cannot export are refused in one sentence with the module, the line and the remedy."""

from __future__ import annotations

import inspect
import json
import logging
import re

import pytest
import torch
from torch import nn

import trireme


def refusal(tmp_path, model, batch):
    path = tmp_path / "refused.pt2"
    with pytest.raises(ValueError) as caught:
        trireme.export(model, batch, path)
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)


class Around(nn.Module):
    """The module in question is its part `middle`."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(4, 4), middle

    def forward(self, x):
        return self.middle(self.first(x)).square().mean()


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Reads(nn.Module):
    def forward(self, x):
        return x * float(x.max().item() > 0) if x.max().item() > 1 else x


class Compares(nn.Module):
    def forward(self, x):
        return x if torch.equal(x, x + 1) else x * 2


class Parses(nn.Module):
    def forward(self, x):
        return x * json.loads("two")


@torch.library.custom_op("trireme_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


class Opaque(nn.Module):
    """Its operator does not tell the shape of its result."""

    def forward(self, x):
        return twice(x)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Sequential(nn.LazyBatchNorm1d())

    def forward(self, x):
        return self.norm(x).square().mean()


def test_a_lazy_module_without_sizes(tmp_path):
    model = Lazy()
    assert refusal(tmp_path, model, torch.randn(3, 4)) == (
        'module "norm.0" (LazyBatchNorm1d) of Lazy has no sizes yet; run the model on the example batch before the export'
    )
    model(torch.randn(3, 4))
    trireme.export(model, torch.randn(3, 4), tmp_path / "a.pt2")


def test_a_batch_norm_whose_momentum_depends_on_the_step(tmp_path):
    assert refusal(tmp_path, Around(nn.BatchNorm1d(4, momentum=None)), torch.randn(3, 4)) == (
        'module "middle" (BatchNorm1d) of Around has momentum=None, an average whose factor depends on the number of '
        "steps, which an archive cannot hold; give it a momentum such as 0.1"
    )
    model = Around(nn.BatchNorm1d(4, momentum=None, track_running_stats=False))
    trireme.export(model, torch.randn(3, 4), tmp_path / "a.pt2")


DECIDES = (
    "decides by the values in a tensor, which one archive cannot hold; write it without if, loop, int() or float() of such "
    "values, as with torch.where"
)
UNEXPORTABLE = {
    Branches: DECIDES,
    Reads: DECIDES,
    Compares: DECIDES,
    Parses: "fails: JSONDecodeError: Expecting value: line 1 column 1 (char 0); write that code with operators that export",
    Opaque: "fails: There was no fake impl registered for <CustomOpDef(trireme_test::twice)>. This is necessary for "
    "torch.compile/export/fx tracing to work. Please use `twice.register_fake` to add an fake impl; write that code with "
    "operators that export",
}


@pytest.mark.parametrize("kind", UNEXPORTABLE)
def test_what_torch_cannot_export_is_one_sentence(tmp_path, kind):
    line = inspect.getsourcelines(kind.forward)[1] + 1
    assert refusal(tmp_path, Around(kind()), torch.randn(3, 4)) == (
        f'Around cannot be exported, as "middle" ({kind.__name__}) at test_unexportable.py:{line} {UNEXPORTABLE[kind]}'
    )


def test_a_failure_is_one_sentence_without_the_graph(tmp_path, capfd, caplog):
    log = logging.getLogger("torch.export")
    refusal(tmp_path, Around(Branches()), torch.randn(3, 4))
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    log.warning("heard again")
    assert "heard again" in caplog.text


class Sequences(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        kinds = {"batch_first": True, "dropout": 0.0}
        self.whole = nn.Transformer(4, 2, 1, 1, 8, **kinds)
        self.encoder, self.decoder = self.whole.encoder, self.whole.decoder
        self.options = options

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.call(x, mask).square().mean()


class Encodes(Sequences):
    def call(self, x, mask):
        return self.encoder(x, mask, **self.options)


class Decodes(Sequences):
    def call(self, x, mask):
        return self.decoder(x, x, mask, **self.options)


class EncodesThenDecodes(Sequences):
    def call(self, x, mask):
        return self.whole(x, x, mask, **self.options)


class DecodesLast(Sequences):
    def call(self, x, mask):
        return self.whole(x, x, tgt_mask=mask, **self.options)


@pytest.mark.parametrize(
    ("kind", "option", "part"),
    [
        (Encodes, "is_causal", "Encoder"),
        (Decodes, "tgt_is_causal", "Decoder"),
        (EncodesThenDecodes, "src_is_causal", "Encoder"),
        (DecodesLast, "tgt_is_causal", "Decoder"),
    ],
)
def test_a_mask_that_torch_would_look_into(tmp_path, kind, option, part):
    line = inspect.getsourcelines(kind.call)[1] + 1
    said = refusal(tmp_path, kind(), torch.randn(3, 5, 4))
    assert re.sub('"[a-z.]*"', "M", said) == (
        f"{kind.__name__} cannot be exported, as M (Transformer{part}) at test_unexportable.py:{line} looks into its mask, "
        f"which one archive cannot hold; say what the mask is: {option}=True where it is causal, else False"
    )
    trireme.export(kind(**{option: True}), torch.randn(3, 5, 4), tmp_path / "a.pt2")


class Raises(nn.Module):
    def forward(self, x):
        raise KeyError("mine")


def test_an_error_of_the_users_own_is_left_as_it_is(tmp_path):
    with pytest.raises(KeyError, match="mine"):
        trireme.export(Around(Raises()), torch.randn(3, 4), tmp_path / "a.pt2")


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x):
        self.gate = self.gate.to("cpu", torch.float32)  # as it is
        return x * self.gate.to(torch.bfloat16)(x.bfloat16()).float()


def test_weights_that_change_their_dtype_are_refused(tmp_path):
    line = inspect.getsourcelines(Narrow.forward)[1] + 2
    assert refusal(tmp_path, Around(Narrow()), torch.randn(3, 4)) == (
        f'Around converts weights to torch.bfloat16 in "middle" (Narrow) at test_unexportable.py:{line}, which an archive '
        "cannot hold; build the model with these weights in that dtype"
    )
