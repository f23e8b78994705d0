"""Hooks on gradients that a forward pass registers, which torch.export drops without a word, are refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import trireme


class Hooked(nn.Module):
    def __init__(self, register):
        super().__init__()
        self.first, self.last, self.register = nn.Linear(4, 6), nn.Linear(6, 1), register

    def forward(self, x):
        return self.last(self.register(self.first(x), self.first)).square().mean()


def packed(kind):
    def register(h, _):
        with kind:
            return h.tanh()

    return register


def hooked(register):
    """Gives the activation back, on which something was registered."""

    def forward(h, module):
        register(h, module)
        return h

    return forward


class Halved(saved_tensors_hooks):
    def __init__(self):
        super().__init__(lambda t: t.half(), lambda t: t.float())


HOOKS = {
    "of an activation": hooked(lambda h, _: h.register_hook(lambda g: 2 * g)),
    "of a weight": hooked(lambda _, m: m.weight.register_hook(lambda g: 2 * g)),
    "after accumulation": hooked(lambda _, m: m.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))),
    "of several": hooked(lambda h, m: register_multi_grad_hook([h, m.bias], lambda g: None)),
    "of any": hooked(lambda h, m: register_multi_grad_hook([h, m.bias], lambda g: None, mode="any")),
    "of a node": hooked(lambda h, _: h.grad_fn.register_hook(lambda a, b: (2 * a[0],))),
    "ahead of a node": hooked(lambda h, _: h.grad_fn.register_prehook(lambda a: (2 * a[0],))),
}
PACKING = {
    "of saved tensors": packed(saved_tensors_hooks(lambda t: t.half(), lambda t: t.float())),
    "of a class of its own": packed(Halved()),
}
HARMLESS = {
    "a gradient that is kept": hooked(lambda h, _: h.retain_grad()),
    "saved elsewhere": packed(save_on_cpu()),
    "checkpointing": lambda h, _: checkpoint(torch.tanh, h, use_reentrant=False),
}


def refusal(tmp_path, register):
    with pytest.raises(ValueError) as caught:
        trireme.export(Hooked(register), torch.randn(3, 4), tmp_path / "a.pt2")
    assert not (tmp_path / "a.pt2").exists()
    return str(caught.value)


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
def test_a_hook_on_a_gradient_is_refused(tmp_path, register):
    told = refusal(tmp_path, register)
    assert told.startswith("Hooked registers a hook on a gradient in Hooked at test_hooks.py:")
    assert told.endswith(", which an archive cannot hold; remove it, and do what it does in forward")


@pytest.mark.parametrize("register", PACKING.values(), ids=PACKING)
def test_other_saved_tensors_are_refused(tmp_path, register):
    told = refusal(tmp_path, register)
    assert told.startswith("Hooked replaces what autograd saves in Hooked at test_hooks.py:")
    assert told.endswith(", which an archive cannot hold; remove the hooks, and do what they do in forward")


@pytest.mark.parametrize("register", HARMLESS.values(), ids=HARMLESS)
def test_what_changes_no_gradient_is_exported(tmp_path, register):
    trireme.export(Hooked(register), torch.randn(3, 4), tmp_path / "a.pt2")


def test_hooks_work_after_an_export(tmp_path):
    refusal(tmp_path, HOOKS["of an activation"])
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: 2 * g)
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]
