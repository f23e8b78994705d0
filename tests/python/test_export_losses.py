"""trireme.export: losses of every kind give torch's loss and the number of its items."""

from __future__ import annotations

import models
import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from exported import Net, Output, Tagger, close, run, tokens
from torch import nn

import trireme


def test_loss_callable_gives_the_batch_size_as_items(tmp_path):
    net = Net()
    trireme.export(
        net,
        (torch.randn(3, 4), torch.randn(3, 3)),
        tmp_path / "a.pt2",
        loss=lambda out, wanted: F.mse_loss(out, wanted),
    )
    assert Archive(tmp_path / "a.pt2").inputs == ["x", "wanted"]
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    loss, items = run(tmp_path / "a.pt2", x, y)
    close(loss, F.mse_loss(net(x), y))
    assert items == 6


def test_loss_callable_gives_its_own_items_and_takes_two_targets(tmp_path):
    net = Net()

    def weighted(output, target, weight):
        each = F.cross_entropy(output, target, reduction="none")
        return (each * weight).sum() / weight.sum(), (weight > 0).sum()

    x, y, w = torch.randn(4, 4), tokens(4) % 3, torch.tensor([1.0, 0.0, 2.0, 0.5])
    trireme.export(net, (x, y, w), tmp_path / "a.pt2", loss=weighted)
    loss, items = run(tmp_path / "a.pt2", x, y, w)
    close(loss, weighted(net(x), y, w)[0])
    assert items == 3


def test_targets_that_are_probabilities_count_as_samples(tmp_path):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 0.25]))
    trireme.export(Net(), (torch.randn(3, 4), torch.rand(3, 3)), tmp_path / "a.pt2", loss=loss)
    assert run(tmp_path / "a.pt2", torch.randn(5, 4), torch.rand(5, 3))[1] == 5


def test_dict_inputs_are_keywords_and_the_loss_names_its_targets(tmp_path):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 2)

        def forward(self, *, left, right, scale=1.0, mask=None):
            return self.l(left - right) * scale * mask[:, None]

    def masked(output, wanted, mask):
        return (F.mse_loss(output, wanted, reduction="none").sum(1) * mask).sum() / mask.sum(), mask.sum()

    model, mask = Two(), torch.tensor([1.0, 0.0, 1.0])
    batch = {
        "wanted": torch.randn(3, 2),
        "right": torch.randn(3, 4),
        "left": torch.randn(3, 4),
        "scale": 3.0,
        "mask": mask,
    }
    trireme.export(model, batch, tmp_path / "a.pt2", loss=masked)
    archive = Archive(tmp_path / "a.pt2")
    assert archive.inputs == ["right", "left", "mask", "wanted"]
    assert [i["role"] for i in archive.manifest["inputs"]] == ["input", "input", "input", "target"]
    loss, items = run(tmp_path / "a.pt2", batch["right"], batch["left"], mask, batch["wanted"])
    inputs = {k: batch[k] for k in ("left", "right", "scale", "mask")}
    close(loss, masked(model(**inputs), batch["wanted"], mask)[0])
    assert items == 2


def test_nested_inputs_are_flattened_with_their_path(tmp_path):
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 2)

        def forward(self, pair, extra):
            return self.l(pair[0] + pair[1] + extra["a"]).pow(2).mean()

    batch = ([torch.randn(2, 4), torch.randn(2, 4)], {"a": torch.randn(2, 4)})
    trireme.export(Nested(), batch, tmp_path / "a.pt2")
    assert Archive(tmp_path / "a.pt2").inputs == ["pair_0", "pair_1", "extra_a"]


@pytest.mark.parametrize("kind", ["scalar", "pair", "object", "dict"])
def test_models_that_return_their_loss(tmp_path, kind):
    class Own(Net):
        def forward(self, x, y):
            loss = F.cross_entropy(super().forward(x), y)
            returned = {
                "scalar": loss,
                "pair": (loss, (y > 0).sum()),
                "object": Output(loss=loss),
                "dict": {"loss": loss},
            }
            return returned[kind]

    trireme.export(Own(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2")
    archive = Archive(tmp_path / "a.pt2")
    assert archive.inputs == ["x", "y"]
    assert archive.manifest["loss"] is None
    y = torch.tensor([0, 1, 2, 1])
    assert run(tmp_path / "a.pt2", torch.randn(4, 4), y)[1] == (3 if kind == "pair" else 4)


def test_causal_lm_shifts_the_inputs(tmp_path):
    model, ids = Tagger(), tokens(3, 6)
    trireme.export(model, ids[:2], tmp_path / "a.pt2", loss="causal-lm")
    loss, items = run(tmp_path / "a.pt2", ids)
    close(loss, F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    assert items == 15
    assert Archive(tmp_path / "a.pt2").inputs == ["ids"]


def test_causal_lm_ignores_padding_and_ignored_labels(tmp_path):
    model, ids = Tagger(), tokens(3, 6)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4])
    trireme.export(model, {"ids": ids, "attention_mask": mask}, tmp_path / "a.pt2", loss="causal-lm")
    labels = ids.masked_fill(mask == 0, -100)[:, 1:]
    wanted = F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), labels.flatten())
    loss, items = run(tmp_path / "a.pt2", ids, mask)
    close(loss, wanted)
    assert items == 5 + 3 + 1

    own = ids.masked_fill(mask == 0, -100)
    trireme.export(model, (ids, own), tmp_path / "b.pt2", loss="causal-lm")
    assert Archive(tmp_path / "b.pt2").inputs == ["ids", "labels"]
    loss, items = run(tmp_path / "b.pt2", ids, own)
    close(loss, wanted)
    assert items == 5 + 3 + 1


@pytest.mark.parametrize("name", ["masked-lm", "classification"])
def test_labels_are_not_shifted(tmp_path, name):
    model, ids, labels = Tagger(), tokens(3, 6), tokens(3, 6)
    labels[0, :4] = -100
    trireme.export(model, {"ids": ids, "labels": labels}, tmp_path / "a.pt2", loss=name)
    assert Archive(tmp_path / "a.pt2").inputs == ["ids", "labels"]
    loss, items = run(tmp_path / "a.pt2", ids, labels)
    close(loss, F.cross_entropy(model(ids).logits.flatten(0, 1), labels.flatten()))
    assert items == 14


def test_classification_of_samples(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss="classification")
    assert run(tmp_path / "a.pt2", torch.randn(4, 4), torch.tensor([1, -100, 0, 2]))[1] == 3


def test_seq2seq_makes_the_decoders_inputs(tmp_path):
    model = models.build("t5", "f32")
    rows = {k: v[:3] for k, v in models.rows("t5", "f32").items()}
    trireme.export(model, rows, tmp_path / "a.pt2", loss="seq2seq-lm")
    archive = Archive(tmp_path / "a.pt2")
    assert archive.inputs == ["input_ids", "labels"]
    assert len(archive.manifest["ties"][0]) >= 3
    loss, items = run(tmp_path / "a.pt2", *rows.values())
    close(loss, model(**rows).loss)
    assert items == int((rows["labels"] != -100).sum())


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_loss_of_the_output_alone_has_no_targets(tmp_path, as_dict):
    def spread(output):
        return output.square().mean()

    x = torch.randn(3, 4)
    trireme.export(Net(), {"x": x} if as_dict else x, tmp_path / "a.pt2", loss=spread)
    manifest = Archive(tmp_path / "a.pt2").manifest
    assert manifest["loss"].split(".")[-1] == "spread"
    assert manifest["inputs"] == [{"name": "x", "role": "input"}]
