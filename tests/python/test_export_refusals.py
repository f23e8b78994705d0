"""trireme.export: what is refused, word for word."""

from __future__ import annotations

import functools
import inspect
import re
from pathlib import Path

import models
import pytest
import torch
import torch.nn.functional as F
from exported import Net, Output, Tagger, refusal, tokens
from torch import nn
from torch.utils.checkpoint import checkpoint

import trireme


def test_what_is_no_model_no_batch_and_no_folder(tmp_path):
    batch, path = torch.randn(3, 4), tmp_path / "missing" / "net.pt2"
    assert refusal(tmp_path, "Net", batch) == "the model is a str, not an nn.Module; give the module that trains"
    assert refusal(tmp_path, Net(), None) == (
        "the example batch is a NoneType; give a tensor, a tuple of tensors or a dict"
    )
    assert refusal(tmp_path, torch.jit.trace(nn.Linear(4, 4), batch), batch) == (
        "the model is a TorchScript module; give the nn.Module that it was made from"
    )
    with pytest.raises(ValueError, match="^" + re.escape(f"the folder of {path} does not exist; make it first") + "$"):
        trireme.export(Net(), batch, path)


def test_export_within_autocast(tmp_path):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert refusal(tmp_path, Net(), torch.randn(3, 4)) == (
            "trireme.export is called within torch.autocast; enter it in the model's forward instead"
        )


def test_hooks_on_gradients(tmp_path):
    model = Net()
    model.l1.weight.register_hook(torch.zeros_like)
    assert refusal(tmp_path, model, (torch.randn(3, 4), tokens(3) % 3), loss=F.cross_entropy) == (
        "parameter l1.weight of Net has a hook on its gradient, which an archive does not hold; remove it, and do what it "
        "does in forward"
    )


def test_hooks_on_the_backward_pass_of_a_module(tmp_path):
    for register in ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook"):
        model = Net()
        getattr(model.l1, register)(lambda *_: None)
        assert refusal(tmp_path, model, (torch.randn(3, 4), tokens(3) % 3), loss=F.cross_entropy) == (
            'module "l1" (Linear) of Net has a backward hook, which an archive does not hold; do what it does in forward'
        )


def test_complex_parameters(tmp_path):
    model = Net()
    model.l1.filter = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    assert refusal(tmp_path, model, (torch.randn(3, 4), tokens(3) % 3), loss=F.cross_entropy) == (
        "parameter l1.filter of Net is complex (torch.complex64); store it as a real one and call torch.view_as_complex "
        "in forward"
    )


class Physics(nn.Module):
    """Learns a function by its derivative, in one of the ways of torch."""

    def __init__(self, derivative):
        super().__init__()
        self.net, self.derivative = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)), derivative

    def forward(self, x, slope):
        return (self.derivative(self.net, x) - slope).pow(2).mean()


def by_autograd(net, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]


DERIVATIVES = {
    "autograd.grad": by_autograd,
    "func.grad": lambda net, x: torch.func.grad(lambda z: net(z).sum())(x),
    "func.jvp": lambda net, x: torch.func.jvp(net, (x,), (torch.ones_like(x),))[1],
    "func.vjp": lambda net, x: torch.func.vjp(net, x)[1](torch.ones_like(x))[0],
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_derivatives_inside_the_model(tmp_path, derivative):
    line = derivative.__code__.co_firstlineno + (2 if derivative is by_autograd else 0)
    assert refusal(tmp_path, Physics(derivative), (torch.randn(3, 1), torch.randn(3, 1))) == (
        f"Physics takes a derivative in Physics at test_export_refusals.py:{line}, which an archive cannot hold; write the "
        "derivative itself with plain operators"
    )


def test_vmap_inside_the_model(tmp_path):
    model = Physics(lambda net, x: torch.vmap(net)(x))
    line = model.derivative.__code__.co_firstlineno
    assert refusal(tmp_path, model, (torch.randn(3, 1), torch.randn(3, 1))) == (
        f"Physics calls torch.vmap in Physics at test_export_refusals.py:{line}, which an archive cannot hold; give the "
        "dim by hand"
    )


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
