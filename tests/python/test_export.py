"""trireme.export: what is in the archive, what it computes, and what is refused, word for word."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path

import models
import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from torch import nn
from torch.utils.checkpoint import checkpoint

import trireme

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.l2 = nn.Linear(6, 3)

    def forward(self, x):
        return self.l2(torch.relu(self.norm(self.l1(x))))


class Output:
    def __init__(self, **fields):
        self.__dict__.update(fields)


torch.utils._pytree.register_pytree_node(
    Output, lambda o: (list(o.__dict__.values()), list(o.__dict__)), lambda v, k: Output(**dict(zip(k, v, strict=True)))
)


class Tagger(nn.Module):
    """Token logits in `.logits`, in the way of a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, ids, attention_mask=None):
        return Output(logits=self.head(self.embed(ids)))


def tokens(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1))


def run(path, *inputs):
    loss, items = torch.export.load(path).module()(*inputs)
    return loss, items.item() if isinstance(items, torch.Tensor) else items


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def refusal(tmp_path, model, batch, **options):
    path = tmp_path / "refused.pt2"
    with pytest.raises(ValueError) as caught:
        trireme.export(model, batch, path, **options)
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)


def test_import_is_lazy():
    program = (
        "import sys, trireme; assert 'torch' not in sys.modules; print(trireme.__version__, 'export' in dir(trireme))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "0.1.0 True\n"


def test_names_are_the_users_own(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    archive = Archive(tmp_path / "a.pt2")
    names = sorted(Net().state_dict())
    assert sorted(archive.weights) == names
    assert sorted(archive.targets) == names
    assert archive.module_names == {"", "l1", "norm", "l2"}
    assert archive.inputs == ["x", "target"]
    assert all(set(n["metadata"]) <= {"nn_module_stack"} for n in archive.nodes)


def test_manifest_records_roles_ties_and_versions(tmp_path):
    rows = models.rows("nanogpt", "f32")
    example, loss = models.FAMILIES["nanogpt"].export_as({k: v[:2] for k, v in rows.items()})
    trireme.export(models.build("nanogpt", "f32"), example, tmp_path / "a.pt2", loss=loss)
    assert Archive(tmp_path / "a.pt2").manifest == {
        "format_version": 1,
        "trireme_version": "0.1.0",
        "torch_version": torch.__version__,
        "model": "models.NanoGpt",
        "loss": "token_loss",
        "inputs": [
            {"name": "idx", "role": "input"},
            {"name": "targets", "role": "target"},
        ],
        "buffers": [],
        "ties": [["wte.weight", "lm_head.weight"]],
    }
    weights = Archive(tmp_path / "a.pt2").weights
    assert weights["wte.weight"]["path_name"] == weights["lm_head.weight"]["path_name"]


def test_batch_is_symbolic_in_every_input(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    archive = Archive(tmp_path / "a.pt2")
    assert archive.size("x") == [None, 4]
    assert archive.size("target") == [None]
    net = Net()
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "b.pt2", loss=F.cross_entropy)
    x, y = torch.randn(7, 4), tokens(7) % 3
    loss, items = run(tmp_path / "b.pt2", x, y)
    close(loss, F.cross_entropy(net(x), y))
    assert items == 7


def test_modes_are_restored_and_the_trace_is_in_train_mode(tmp_path):
    net = Net()
    net.l1.eval()
    net.norm.eval()
    before = {n: m.training for n, m in net.named_modules()}
    state = {n: t.clone() for n, t in net.state_dict().items()}
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert {n: m.training for n, m in net.named_modules()} == before
    assert all(torch.equal(state[n], t) for n, t in net.state_dict().items())
    assert "forward" not in vars(net)
    assert net(torch.randn(2, 4)).shape == (2, 3)
    node = next(n for n in Archive(tmp_path / "a.pt2").nodes if n["target"].endswith("batch_norm.default"))
    assert next(i["arg"] for i in node["inputs"] if i["name"] == "training") == {"as_bool": True}


def test_model_is_restored_after_a_failure(tmp_path):
    class Fails(Net):
        def forward(self, x):
            raise RuntimeError("own error")

    net = Fails().eval()
    with pytest.raises(RuntimeError, match="own error"):
        trireme.export(net, (torch.randn(3, 4), tokens(3)), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert "forward" not in vars(net)
    assert not net.training
    assert list(tmp_path.iterdir()) == []


def test_hooks_of_the_model_see_its_own_arguments(tmp_path):
    net = Net()
    net.register_forward_hook(lambda module, args, output: output * 2)
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    x, y = torch.randn(5, 4), tokens(5) % 3
    close(run(tmp_path / "a.pt2", x, y)[0], F.cross_entropy(net(x), y))
    assert len(net._forward_hooks) == 1


def test_wrappers_leave_no_prefix(tmp_path):
    trireme.export(torch.compile(Net()), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert set(Archive(tmp_path / "a.pt2").weights) == set(Net().state_dict())
    trireme.export(nn.DataParallel(Net()), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "b.pt2", loss=F.cross_entropy)
    assert set(Archive(tmp_path / "b.pt2").weights) == set(Net().state_dict())


def test_an_archive_is_replaced_whole_and_keeps_no_more_of_the_batch(tmp_path):
    path = tmp_path / "a.pt2"
    path.write_bytes(b"old")
    data = torch.randn(10000, 4)
    trireme.export(Net(), (data[:3], tokens(3) % 3), path, loss=F.cross_entropy)
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt2"]
    assert path.stat().st_size < 40000


# --- losses ------------------------------------------------------------------------------------------------------


def test_an_archive_takes_the_place_of_files_only(tmp_path):
    (tmp_path / "link.pt2").symlink_to(tmp_path / "a.pt2")
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "link.pt2", loss=F.cross_entropy)
    assert (tmp_path / "link.pt2").is_symlink()
    assert Archive(tmp_path / "a.pt2").inputs == ["x", "target"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError) as caught:
        trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "pipe", loss=F.cross_entropy)
    assert str(caught.value) == (
        f"{tmp_path / 'pipe'} is no regular file, which an archive must be; give the path of a file"
    )


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


def test_cross_entropy_counts_targets_that_are_not_ignored(tmp_path):
    net = Net()
    target = torch.tensor([0, 9, 2, 9])
    loss_module = nn.CrossEntropyLoss(ignore_index=9)
    trireme.export(net, (torch.randn(4, 4), tokens(4) % 3), tmp_path / "a.pt2", loss=loss_module)
    x = torch.randn(4, 4)
    loss, items = run(tmp_path / "a.pt2", x, target)
    close(loss, loss_module(net(x), target))
    assert items == 2


WEIGHTS = torch.tensor([0.5, 2.0, 0.25])
COUNTED = {
    "weighted": (nn.CrossEntropyLoss(weight=WEIGHTS), 0.75),
    "weighted and ignored": (nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=2), 0.5),
    "weighted and smooth": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1), 0.75),
    "smooth": (nn.CrossEntropyLoss(label_smoothing=0.1), 2),
    "likelihood": (nn.NLLLoss(), 2),
    "likelihood, ignored": (nn.NLLLoss(ignore_index=2), 1),
    "likelihood, weighted": (nn.NLLLoss(weight=WEIGHTS), 0.75),
    "function": (F.nll_loss, 2),
    "partial": (functools.partial(F.cross_entropy, weight=WEIGHTS, ignore_index=0), 0.25),
    "partial likelihood": (functools.partial(F.nll_loss, ignore_index=0), 1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_losses_of_torch_count_what_their_mean_divides_by(tmp_path, name):
    """Two micro-batches, weighted by their items, give the mean of the batch."""
    net, (loss, wanted) = nn.Linear(4, 3), COUNTED[name]
    trireme.export(net, (torch.randn(4, 4), tokens(4) % 3), tmp_path / "a.pt2", loss=loss)
    ignored = getattr(loss, "ignore_index", getattr(loss, "keywords", {}).get("ignore_index", -100))
    x, y = torch.randn(4, 4), torch.tensor([0, 2, ignored, ignored])
    value, items = run(tmp_path / "a.pt2", x, y)
    assert float(items) == wanted
    close(value, loss(net(x), y))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 1, 2, 1])
    parts = [run(tmp_path / "a.pt2", x[rows], y[rows]) for rows in (slice(0, 2), slice(2, 5))]
    total = sum(float(items) for _, items in parts)
    close(sum(value * float(items) for value, items in parts) / total, loss(net(x), y))


def test_targets_that_are_probabilities_count_as_samples(tmp_path):
    loss = nn.CrossEntropyLoss(weight=WEIGHTS)
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


def test_a_mean_over_labels_without_their_number_is_warned_of(tmp_path):
    rows = {k: v[:3] for k, v in models.rows("gpt2", "f32").items()}
    with pytest.warns(UserWarning) as caught:
        trireme.export(models.build("gpt2", "f32"), rows, tmp_path / "a.pt2")
    assert (
        "GPT2LMHeadModel returns a mean loss without its number of items, so each sample counts as one whatever its labels "
        "ignore; pass a loss by name to count labels"
    ) in [str(w.message) for w in caught]
    assert run(tmp_path / "a.pt2", *rows.values())[1] == 3


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


# --- Hugging Face ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_causal_models_need_no_mask_tensor(tmp_path, name):
    model = models.build(name, "f32").eval()
    model.config.use_cache = True
    ids = models.rows(name, "f32")["input_ids"][:5]
    implementation = model.config._attn_implementation
    trireme.export(
        model, {"input_ids": ids[:2]}, tmp_path / "a.pt2", loss="causal-lm", dynamic={"input_ids": {1: "seq"}}
    )
    archive = Archive(tmp_path / "a.pt2")
    attention = [n for n in archive.nodes if n["target"].endswith("scaled_dot_product_attention.default")]
    assert len(attention) == 4
    for node in attention:
        given = {i["name"]: i["arg"] for i in node["inputs"]}
        assert given["is_causal"] == {"as_bool": True}
        assert given.get("attn_mask", {"as_none": True}) == {"as_none": True}
    assert not {"cumsum.default", "le.Tensor", "where.self"} & set(archive.operators)
    assert model.config._attn_implementation == implementation
    assert model.config.use_cache
    for length in (10, 7):
        labels = ids[:, :length]
        loss, items = run(tmp_path / "a.pt2", labels)
        close(loss, model(input_ids=labels, labels=labels).loss)
        assert items == 5 * (length - 1)


def test_causal_models_keep_the_mask_of_a_padded_batch(tmp_path):
    model = models.build("llama", "f32")
    ids = models.rows("llama", "f32")["input_ids"][:3]
    mask = torch.tensor([[1] * 10, [0] * 3 + [1] * 7, [1] * 10])
    trireme.export(model, {"input_ids": ids, "attention_mask": mask}, tmp_path / "a.pt2", loss="causal-lm")
    labels = ids.masked_fill(mask == 0, -100)
    close(run(tmp_path / "a.pt2", ids, mask)[0], model(input_ids=ids, attention_mask=mask, labels=labels).loss)


def test_bert_keeps_its_ties_and_its_padding(tmp_path):
    model = models.build("bert", "f32")
    rows = {k: v[:4] for k, v in models.rows("bert", "f32").items()}
    trireme.export(model, rows, tmp_path / "a.pt2", loss="masked-lm")
    ties = Archive(tmp_path / "a.pt2").manifest["ties"]
    assert ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"] in ties
    close(run(tmp_path / "a.pt2", *rows.values())[0], model(**rows).loss)


# --- dynamic dims ------------------------------------------------------------------------------------------------


def test_one_name_is_one_dynamic_size(tmp_path):
    model, ids, labels = Tagger(), tokens(3, 6), tokens(3, 6)
    dynamic = {"ids": {1: "seq"}, "labels": {1: "seq"}}
    trireme.export(model, (ids, labels), tmp_path / "a.pt2", loss="masked-lm", dynamic=dynamic)
    archive = Archive(tmp_path / "a.pt2")
    assert archive.size("ids") == archive.size("labels") == [None, None]
    sizes = [archive.program["graph"]["tensor_values"][n]["sizes"][1]["as_expr"]["expr_str"] for n in ("ids", "labels")]
    assert sizes[0] == sizes[1]
    assert run(tmp_path / "a.pt2", tokens(2, 9), tokens(2, 9))[1] == 18


def test_dynamic_dims_that_do_not_exist(tmp_path):
    batch = (torch.randn(3, 4), tokens(3) % 3)
    options = {"loss": F.cross_entropy}
    assert refusal(tmp_path, Net(), batch, dynamic={"z": {1: "seq"}}, **options) == (
        'dynamic names "z", which is no input of Net; name one of x, target'
    )
    assert refusal(tmp_path, Net(), batch, dynamic={"x": {2: "seq"}}, **options) == (
        "dynamic dim 2 of input x of Net is not in 0..1"
    )


# --- refusals ----------------------------------------------------------------------------------------------------


def test_unknown_loss(tmp_path):
    assert refusal(tmp_path, Net(), torch.randn(3, 4), loss="causal_lm") == (
        'loss "causal_lm" of Net is not known; give one of causal-lm, classification, masked-lm, seq2seq-lm, a callable, '
        "or None where the model returns its loss"
    )


def test_loss_with_parameters(tmp_path):
    class Prototypes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.zeros(3))

        def forward(self, output, target):
            return (output - self.centres).pow(2).mean()

    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(3)), loss=Prototypes()) == (
        "the loss Prototypes has parameters of its own, which would not be trained; make it a submodule of Net and call it "
        "in forward"
    )


def test_model_without_parameters(tmp_path):
    assert refusal(tmp_path, nn.ReLU(), torch.randn(3, 4)) == (
        "ReLU has no parameters and nothing to train; export the module that owns them"
    )


def test_batch_of_one(tmp_path):
    assert refusal(tmp_path, Net(), torch.randn(1, 4)) == (
        "the example batch of Net is of size 1, which torch.export makes static; give at least 2 samples"
    )


def test_batches_that_disagree(tmp_path):
    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(4)), loss=F.cross_entropy) == (
        "the inputs of Net disagree on the batch in dim 0 (x has 3, target has 4); give the same number of samples in each"
    )


def test_batch_without_tensor_and_without_batch(tmp_path):
    assert refusal(tmp_path, Net(), {"x": 3}) == (
        "the example batch of Net has no tensor; give tensors whose dim 0 is the batch"
    )
    assert refusal(tmp_path, Net(), {"x": torch.tensor(1.0)}) == (
        "no input of Net has a batch; give at least one input with a row for each sample"
    )


def test_batches_that_no_sample_can_be_cut_from(tmp_path):
    batch = {"x": torch.randn(3, 4), "values": torch.zeros(5), "offsets": tokens(3)}

    def told(dynamic=None, **jagged):
        return refusal(tmp_path, Net(), batch, dynamic=dynamic, jagged=jagged)

    assert told(dynamic={"x": {0: "batch", 1: "batch"}}) == (
        "dynamic gives input x of Net the batch in dims [0, 1]; a sample has one place"
    )
    assert told(value="offsets") == 'jagged names "value", which is no input of Net; name one of x, values, offsets'
    assert told(values="offset") == 'jagged names "offset", which is no input of Net; name one of x, values, offsets'
    assert told(values="values") == "jagged cuts values of Net by values, which is jagged itself; name its offsets"
    assert told(values="x") == (
        "jagged cuts values of Net by x, but the shapes (5,) and (3, 4) are not values and a vector of offsets"
    )
    batch["more"] = torch.zeros(6)
    assert told(values="offsets", more="offsets") == (
        "values of Net has 5 values but more has 6, and offsets cuts both"
    )
    batch["offsets"], batch["more"] = tokens(5), torch.zeros(3)
    assert told(values="offsets") == (
        "the inputs of Net disagree on the batch in dim 0 (x has 3, offsets has 5, more has 3); give the same number of "
        "samples in each"
    )
    batch["values"] = torch.zeros(1)
    assert told(values="offsets") == "the example batch of Net has 1 values in values; give at least 2"


def test_entries_that_do_not_fit(tmp_path):
    batch = (torch.randn(3, 4), tokens(3), tokens(3))
    assert refusal(tmp_path, Net(), batch, loss=lambda output, target: output.mean()) == (
        "the example batch of Net has 3 entries, of which forward takes 1 and the loss 1; give the inputs first and the "
        "targets last"
    )
    assert refusal(tmp_path, Tagger(), batch, loss=lambda output, *targets: output.mean()) == (
        "cannot tell how many of the 3 entries of the example batch of Tagger are targets; give the loss one named parameter "
        "for each target"
    )
    assert refusal(tmp_path, Net(), {"x": torch.randn(3, 4)}, loss=lambda output, target: output.mean()) == (
        "the example batch of Net has no target for the loss; name its keys like the loss's parameters (target)"
    )


def test_named_losses_without_what_they_need(tmp_path):
    assert refusal(tmp_path, Tagger(), {"ids": tokens(3, 6)}, loss="masked-lm") == (
        'the example batch of Tagger has no labels, which loss="masked-lm" needs; give them under the key "labels" of a dict '
        "or as the last entry of a tuple"
    )
    assert refusal(tmp_path, Tagger(), tokens(3, 6), loss="seq2seq-lm") == (
        'the example batch of Tagger has no labels, which loss="seq2seq-lm" needs; give them under the key "labels" of a dict '
        "or as the last entry of a tuple"
    )
    assert refusal(tmp_path, Tagger(), (tokens(3, 6), tokens(3, 6)), loss="seq2seq-lm") == (
        'Tagger cannot make decoder inputs from labels, which loss="seq2seq-lm" needs; give the example batch as a dict with '
        '"decoder_input_ids"'
    )
    assert refusal(tmp_path, Tagger(), (tokens(3, 6), tokens(3, 6), tokens(3, 6)), loss="causal-lm") == (
        'the example batch of Tagger has 3 entries and loss="causal-lm" takes (inputs,) or (inputs, labels); give further '
        "inputs in a dict"
    )

    class Bare(Tagger):
        def forward(self, ids):
            return Output(scores=super().forward(ids).logits)

    assert refusal(tmp_path, Bare(), tokens(3, 6), loss="causal-lm") == (
        'Bare returns a Output without logits, which loss="causal-lm" reads; give a callable (output, *targets) as the loss'
    )


def test_loss_that_is_no_mean(tmp_path):
    assert refusal(tmp_path, Net(), torch.randn(3, 4)) == (
        "the output of Net has shape (3, 3) and dtype torch.float32, not a floating scalar; return the mean over the items"
    )
    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(3)), loss=lambda o, t: (o.argmax(1) == t).sum()) == (
        "the loss of Net has shape () and dtype torch.int64, not a floating scalar; return the mean over the items"
    )
    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(3)), loss=lambda o, t: None) == (
        "the loss of Net gives no loss; return a scalar mean loss or (mean loss, items)"
    )
    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(3)), loss=lambda o, t: (o.mean(), o)) == (
        "the loss of Net comes with (3, 3) in the place of the number of items; return a scalar mean loss or (mean loss, "
        "items)"
    )


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), "CrossEntropyLoss"),
        (functools.partial(F.cross_entropy, reduction="sum"), "cross_entropy"),
    ],
)
def test_loss_that_is_a_sum(tmp_path, loss, name):
    assert refusal(tmp_path, Net(), (torch.randn(3, 4), tokens(3) % 3), loss=loss) == (
        f'the loss {name} of Net has reduction="sum", but a mean is needed; take reduction="mean", or return (mean loss, '
        "items) from a callable"
    )


def test_loss_that_reaches_no_parameter(tmp_path):
    frozen = Net().requires_grad_(False)
    batch = (torch.randn(3, 4), tokens(3) % 3)
    assert refusal(tmp_path, frozen, batch, loss=F.cross_entropy) == (
        "every parameter of Net has requires_grad=False and nothing would train; set it on those to train"
    )
    assert refusal(tmp_path, Net(), batch, loss=lambda o, t: F.cross_entropy(o.detach(), t)) == (
        "the loss of Net reaches no parameter, so nothing would train; look for detach(), no_grad() or integer outputs "
        "between the parameters and the loss"
    )


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool, freeze: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embed = nn.Linear(4, 4).requires_grad_(not freeze)
        self.block = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(checkpoint(self.block, self.embed(x), use_reentrant=self.reentrant))


def test_reentrant_checkpointing(tmp_path):
    batch = (torch.randn(3, 4), tokens(3) % 3)
    assert refusal(tmp_path, Checkpointed(True), batch, loss=F.cross_entropy) == (
        're-entrant checkpointing of "block" (Linear) of Checkpointed loses its gradients in the archive; checkpoint with '
        "use_reentrant=False"
    )
    assert refusal(tmp_path, Checkpointed(True, freeze=True), batch, loss=F.cross_entropy) == (
        "the gradient of head.bias of Checkpointed is lost in the archive; look for re-entrant checkpointing "
        "(use_reentrant=False) or no_grad() on its way to the loss"
    )
    trireme.export(Checkpointed(False), batch, tmp_path / "a.pt2", loss=F.cross_entropy)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_reentrant_checkpointing_of_transformers(tmp_path):
    model = models.build("llama", "f32")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    ids = models.rows("llama", "f32")["input_ids"][:2]
    assert refusal(tmp_path, model, ids, loss="causal-lm") == (
        're-entrant checkpointing of "model.layers.3" (LlamaDecoderLayer) of LlamaForCausalLM loses its gradients in the '
        "archive; checkpoint with use_reentrant=False"
    )


def test_own_backward(tmp_path):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad

    class Quantised(Net):
        def forward(self, x):
            return Straight.apply(super().forward(x))

    assert refusal(tmp_path, Quantised(), (torch.randn(3, 4), tokens(3) % 3), loss=F.cross_entropy) == (
        "Quantised uses the autograd function Straight, whose own backward, which is not the derivative of its forward, an "
        "archive does not hold; write it with plain operators and detach()"
    )


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_loss_of_the_output_alone_has_no_targets(tmp_path, as_dict):
    def spread(output):
        return output.square().mean()

    x = torch.randn(3, 4)
    trireme.export(Net(), {"x": x} if as_dict else x, tmp_path / "a.pt2", loss=spread)
    manifest = Archive(tmp_path / "a.pt2").manifest
    assert manifest["loss"].split(".")[-1] == "spread"
    assert manifest["inputs"] == [{"name": "x", "role": "input"}]


class Sized(nn.Module):
    """A model whose inner block depends on the size of its batch."""

    def __init__(self, inner) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), Inner(inner)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.pow(2).mean()


class Inner(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    "inner",
    [
        lambda x: x.view(6, 4),
        lambda x: x + torch.zeros(6, 4),
        lambda x: x * int(x.shape[0]),
        lambda x: torch.stack([row * 2 for row in x]),
        lambda x: sum(x[i] for i in range(x.shape[0])),
    ],
)
def test_batch_that_became_static(tmp_path, inner):
    line = inspect.getsourcelines(inner)[1]
    assert refusal(tmp_path, Sized(inner), torch.randn(6, 4)) == (
        f'the batch of Sized became static (6) in "layers.1" (Inner) at {Path(__file__).name}:{line}; take the size from the '
        "tensor there (x.shape, or -1 in a view) and use no number, int() or Python loop for it"
    )


@pytest.mark.parametrize(
    ("inner", "condition"),
    [
        (lambda x: x.view(2, -1, 4), "((4*x.shape[0]) % 8) == 0"),
        (lambda x: x + 1 if x.shape[0] > 3 else x, "4 <= x.shape[0]"),
    ],
)
def test_batch_that_cannot_have_every_size(tmp_path, inner, condition):
    line = inspect.getsourcelines(inner)[1]
    assert refusal(tmp_path, Sized(inner), torch.randn(6, 4)) == (
        f'the batch of Sized cannot have every size, as "layers.1" (Inner) at {Path(__file__).name}:{line} needs {condition}; '
        "write that code for any size"
    )


def test_sequence_that_became_static(tmp_path):
    inner = lambda x: x + torch.zeros(5, 4)  # noqa: E731
    assert refusal(tmp_path, Sized(inner), torch.randn(6, 5, 4), dynamic={"x": {1: "seq"}}).startswith(
        'dim "seq" of Sized became static (5) in "layers.1" (Inner) at '
    )


def test_file_rights_are_the_users(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a.pt2").stat().st_mode & 0o777 == 0o666 & ~mask
