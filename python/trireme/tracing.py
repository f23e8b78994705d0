"""Runs torch.export on a step, and says in one sentence of the user's own code why it cannot."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch import nn
from torch._dynamo.exc import UserError
from torch._functorch import eager_transforms
from torch._functorch import vmap as functorch_vmap
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.autograd.graph import saved_tensors_hooks
from torch.export import ExportedProgram, _trace
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from trireme.call import Call, traced_step
from trireme.hugging_face import traced_by_rules_of_eager
from trireme.losses import Loss
from trireme.own_backward import is_differentiated, recorded_own_calls
from trireme.places import is_of_a_library, name_of, place_of
from trireme.reach import reached_parameters

# A condition on sizes that tracing took for granted, and the user's line that did.
_Guard: TypeAlias = tuple[Any, str]


@contextlib.contextmanager
def _recorded_guards(model: nn.Module) -> Iterator[list[_Guard]]:
    guards: list[_Guard] = []
    original = ShapeEnv._log_guard

    def log_guard(self: Any, prefix: str, expression: Any, *args: Any, **kwargs: Any) -> Any:
        guards.append((expression, place_of(model, traceback.walk_stack(sys._getframe(1)))))
        return original(self, prefix, expression, *args, **kwargs)

    with mock.patch.object(ShapeEnv, "_log_guard", log_guard):
        yield guards


@contextlib.contextmanager
def _refused_transforms(model: nn.Module) -> Iterator[None]:
    """What torch would leave as a constant or a call of Python in the archive, or refuse far from the user's line."""

    def refusal(what: str, remedy: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            where = place_of(model, traceback.walk_stack(sys._getframe(1)))
            raise ValueError(f"{name_of(model)} {what} in {where}, which an archive cannot hold; {remedy}")

        return refuse

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        _, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if dtype is not None and any(p.dtype != dtype for p in module.parameters() if p.is_floating_point()):
            refusal(f"converts weights to {dtype}", "build the model with these weights in that dtype")()
        return module

    derivative = refusal("takes a derivative", "write the derivative itself with plain operators")
    hook = refusal("registers a hook on a gradient", "remove it, and do what it does in forward")
    packing = refusal("replaces what autograd saves", "remove the hooks, and do what they do in forward")
    enter = saved_tensors_hooks.__enter__

    def enter_packing(self: saved_tensors_hooks) -> None:
        # Those of torch itself, as in checkpointing, save the same values in another place.
        (enter if type(self).__module__.startswith("torch.") and type(self) is not saved_tensors_hooks else packing)(
            self
        )

    with (
        mock.patch.object(torch.Tensor, "register_hook", hook),
        mock.patch.object(torch.Tensor, "register_post_accumulate_grad_hook", hook),
        # All hooks on nodes of autograd pass here.
        mock.patch.object(torch.autograd.Function, "_register_hook", hook),
        mock.patch.object(saved_tensors_hooks, "__enter__", enter_packing),
        mock.patch.object(nn.Module, "to", to),
        # The check of a distribution's parameters decides by their values.
        mock.patch.object(torch.distributions.Distribution, "_validate_args", False),
        mock.patch.object(torch.autograd, "_engine_run_backward", derivative),
        mock.patch.object(eager_transforms, "grad_increment_nesting", derivative),
        mock.patch.object(eager_transforms, "jvp_increment_nesting", derivative),
        mock.patch.object(
            functorch_vmap, "vmap_increment_nesting", refusal("calls torch.vmap", "give the dim by hand")
        ),
    ):
        yield


@contextlib.contextmanager
def _replaced_forward(model: nn.Module, names: list[str], step: Callable[..., Any]) -> Iterator[None]:
    """Lets a call of `model` run `step(*flat)` instead; within `step` the model is its own self."""
    hooks = ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"]
    own = {k: model.__dict__[k] for k in [*hooks, "forward"] if k in model.__dict__}

    def forward(*flat: torch.Tensor) -> Any:
        restore()
        try:
            return step(*flat)
        finally:
            replace()

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]

    def replace() -> None:
        model.__dict__.update({k: type(own[k])() for k in hooks if k in own})
        model.__dict__["forward"] = forward

    def restore() -> None:
        del model.__dict__["forward"]
        model.__dict__.update(own)

    replace()
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def _silent_log() -> Iterator[None]:
    """Without what torch says of a failure, which is the whole graph; lines of lower levels were asked for."""
    original = logging.Logger.handle

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING or not f"{record.name}.".startswith("torch."):
            original(self, record)

    with (
        mock.patch.object(logging.Logger, "handle", handle),
        mock.patch.object(_trace, "print", lambda *_, **__: None, create=True),
    ):
        yield


@contextlib.contextmanager
def _mode(model: nn.Module, train: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        model.train(train)
        yield


def trace(
    model: nn.Module, call: Call, loss: Loss, shapes: tuple[dict[int, Any], ...], train: bool
) -> tuple[ExportedProgram, set[str]]:
    """The program, and the names of the parameters that the eager loss reaches."""
    reached: set[str] = set()
    own: list[Any] = []  # autograd functions on the way to the loss

    def step(*flat: torch.Tensor) -> tuple[torch.Tensor, Any]:
        value, items = traced_step(model, call, loss, flat)
        reached.update(reached_parameters(model, value, own))
        return value, items

    with (
        _mode(model, train),
        _silent_log(),
        traced_by_rules_of_eager(model, call.names),
        _replaced_forward(model, call.names, step),
        _recorded_guards(model) as guards,
        _refused_transforms(model),
        recorded_own_calls() as own_calls,
        torch.enable_grad(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="None of the inputs have requires_grad", category=UserWarning)
        try:
            program = torch.export.export(model, tuple(call.tensors), strict=False, dynamic_shapes=shapes)
        except Exception as error:
            if isinstance(error, UserError) and "Constraints violated" in str(error):
                raise ValueError(_violation(model, call, shapes, guards, str(error))) from None
            frames = list(traceback.walk_tb(error.__traceback__))
            file = frames[-1][0].f_code.co_filename
            if not is_of_a_library(file) and not type(error).__module__.startswith("torch."):
                raise  # ours, or of the user's own code
            raise ValueError(_failure(model, error, frames)) from None
    bad = next((c[0].__name__ for c in own_calls if c[0] in own and not is_differentiated(c)), None)
    if bad is not None:
        raise ValueError(
            f"{name_of(model)} uses the autograd function {bad}, whose own backward, which is not the derivative of "
            "its forward, an archive does not hold; write it with plain operators and detach()"
        )
    return program, reached


def _failure(model: nn.Module, error: Exception, frames: list[tuple[FrameType, int]]) -> str:
    """Says in one sentence which part of the model torch cannot export."""
    where = place_of(model, reversed(frames))
    codes = [frame.f_code for frame, _ in frames]
    detect = nn.modules.transformer._detect_is_causal_mask.__code__
    if detect in codes:
        is_encoder = nn.TransformerEncoder.forward.__code__ in codes
        is_whole = nn.Transformer.forward.__code__ in codes
        option = ("src_is_causal" if is_whole else "is_causal") if is_encoder else "tgt_is_causal"
        return (
            f"{name_of(model)} cannot be exported, as {where} looks into its mask, which one archive cannot hold; say "
            f"what the mask is: {option}=True where it is causal, else False"
        )
    if isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException)):
        return (
            f"{name_of(model)} cannot be exported, as {where} decides by the values in a tensor, which one archive "
            "cannot hold; write it without if, loop, int() or float() of such values, as with torch.where"
        )
    reason = next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), "")
    if not (reason and (type(error).__module__.startswith("torch.") or type(error) is RuntimeError)):
        reason = f"{type(error).__name__}: {reason}".rstrip(": ")  # 'labels' alone says little of a KeyError
    return (
        f"{name_of(model)} cannot be exported, as {where} fails: {reason}; write that code with operators that export"
    )


def _violation(
    model: nn.Module, call: Call, shapes: tuple[dict[int, Any], ...], guards: list[_Guard], text: str
) -> str:
    """Says in one sentence which dim cannot be symbolic, and where that was decided."""
    match = re.search(r"Constraints violated \((\w+)", text)
    dim = match.group(1) if match else "batch"
    sizes = {d.__name__: t.shape[i] for s, t in zip(shapes, call.tensors, strict=True) for i, d in s.items()}
    static = re.search(r"to be a constant \((\d+)\)|inferred to be a constant \((\d+)\)", text)

    def is_cause(expression: Any) -> bool:
        sides = getattr(expression, "args", ())
        is_equality = expression.__class__.__name__ == "Equality"
        between_inputs = is_equality and all(getattr(s, "is_Symbol", False) for s in sides)
        fixes = is_equality and any(getattr(s, "is_Integer", False) for s in sides)
        return not between_inputs and (fixes or not static)

    where = next((where for expression, where in guards if is_cause(expression)), name_of(model))
    whose = "the batch" if dim == "batch" else f'dim "{dim}"'
    if static:
        return (
            f"{whose} of {name_of(model)} became static ({sizes.get(dim, '?')}) in {where}; take the size from the "
            "tensor there (x.shape, or -1 in a view) and use no number, int() or Python loop for it"
        )
    reason = re.search(r"(?:satisfy the generated guard|are valid because) (.*?)\.?\n", text)
    found = reason.group(1) if reason else "a condition"
    condition = re.sub(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]", r"\1.shape[\2]", found)
    condition = re.sub(r" and \S+ <= IntInfinity\(\)", "", condition)
    return (
        f"{whose} of {name_of(model)} cannot have every size, as {where} needs {condition}; write that code for any "
        "size" + ("" if dim == "batch" else ", or bound the dim by a torch.export.Dim")
    )
