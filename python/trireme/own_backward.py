"""Autograd functions with a backward of their own, of which an archive keeps the forward alone.

Where that backward is the derivative of the forward, as in functions that only save memory or time, the archive trains
as the model does: its operators are differentiated. In others, such as straight-through estimators, it would not. Which
of both holds is found by running the function on random numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

# (function, arguments): a tensor among these is there as _Tensor.
OwnCall = tuple[Any, list[Any]]


class _Tensor(SimpleNamespace):
    sizes: list[int]
    dtype: torch.dtype
    requires_grad: bool


@contextlib.contextmanager
def recorded_own_calls() -> Iterator[list[OwnCall]]:
    calls: list[OwnCall] = []
    original = torch.autograd.Function.__dict__["apply"]

    def described(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes = [s.node.hint if isinstance(s, torch.SymInt) else s for s in leaf.shape]
        return _Tensor(sizes=sizes, dtype=leaf.dtype, requires_grad=leaf.requires_grad)

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call = (cls, [described(a) for a in args])
        calls.extend([call] if call not in calls else [])
        return original.__get__(None, cls)(*args, **kwargs)

    with mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)):
        yield calls


def is_differentiated(call: OwnCall) -> bool:
    """Whether its backward gives the derivative of its forward; false where that cannot be tried out."""
    function, given = call
    tensors = [a for a in given if isinstance(a, _Tensor)]
    if not any(t.requires_grad for t in tensors):
        return True
    if not all(t.dtype.is_floating_point for t in tensors):
        return False  # integers mean something: there are no random ones that fit

    def gradients(is_own: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)

        def normal(sizes: Any) -> torch.Tensor:
            return 3 * torch.randn(sizes, generator=generator, dtype=torch.float64)  # both sides of a clamp

        arguments = [normal(a.sizes).requires_grad_(a.requires_grad) if isinstance(a, _Tensor) else a for a in given]
        needs = tuple(isinstance(a, _Tensor) and a.requires_grad for a in given)
        if is_own:
            outputs = function.apply(*arguments)
        elif function.setup_context is not torch.autograd.Function.setup_context:
            outputs = function.forward(*arguments)
        else:  # with a context that nobody reads
            hears = {n: lambda *_: None for n in ("save_for_backward", "set_materialize_grads")}
            outputs = function.forward(SimpleNamespace(needs_input_grad=needs, **hears), *arguments)
        made = [o for o in pytree.tree_leaves(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
        inputs = [a for a, is_needed in zip(arguments, needs, strict=True) if is_needed]
        found = torch.autograd.grad(made, inputs, [normal(o.shape).to(o.dtype) for o in made], allow_unused=True)
        return [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]

    try:
        with torch.enable_grad():
            pairs = zip(gradients(True), gradients(False), strict=True)
            return all(torch.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True) for a, b in pairs)
    except Exception:  # whatever a function of a user does with numbers it was not made for
        return False
