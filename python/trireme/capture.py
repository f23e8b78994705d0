"""Writes a training step of any `nn.Module` as a torch.export archive.

The archive holds one function: the flat inputs, targets last, give `(loss, items)`, the mean loss of a micro-batch and
the number of items it is a mean of. It is traced in train mode with a symbolic batch, so one archive serves every
micro-batch size. The model itself is traced, with its `forward` replaced for the time of the export: names in the
archive are the user's own, and no wrapper has to be renamed away.

    batch --describe--> _Call (names, roles, how to call) --trace--> ExportedProgram --check--> strip --> archive

What would train wrongly without a word is a ValueError of one sentence: the module, what was found, what to do.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import UserError
from torch._functorch import eager_transforms
from torch._functorch import vmap as functorch_vmap
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils import _pytree as pytree

import trireme
from trireme.batch import identifier, split_batch
from trireme.coupling import is_mean_over_samples
from trireme.empty import traceable
from trireme.hugging_face import traced_by_rules_of_eager
from trireme.own_backward import is_differentiated, recorded_own_calls
from trireme.samples import BATCH, Layout, dim_name, layouts
from trireme.storage import check_storage

FORMAT_VERSION = 1
IGNORE_INDEX = -100
_TORCH, _OWN = (os.path.dirname(m.__file__) + os.sep for m in (torch, trireme))
_LIBRARIES = _TORCH, *(sysconfig.get_path(p) + os.sep for p in ("stdlib", "purelib", "platlib"))

Loss: TypeAlias = Callable[..., Any] | str | None
Dynamic: TypeAlias = Mapping[str, Mapping[int, Any]]


def export(
    model: nn.Module,
    example_batch: Any,
    path: str | os.PathLike[str],
    *,
    loss: Loss = None,
    dynamic: Dynamic | None = None,
    jagged: Mapping[str, str] | None = None,
    train: bool = True,
) -> None:
    """Writes `model` and its loss to the archive `path`, atomically; the model is left as it was.

    `example_batch` is a tensor, a tuple `(inputs..., targets...)` or a dict of keyword inputs (targets among them) of
    at least two samples. Dim 0 of a tensor is the batch, unless `dynamic` or `jagged` says otherwise. Entries that are
    not tensors are fixed in the archive.

    `loss` is one of
    - a callable `(output, *targets)` that returns the mean loss or `(mean loss, items)`. Of a tuple, the last entries
      are targets: as many as the callable has parameters after the first. Parameters with defaults and `*targets` take
      what the model's `forward` has no place for, at least one. Of a dict, the keys that the callable names, and those
      that `forward` does not accept, are targets; a key that both name goes to both, `labels` to the loss alone. One
      that takes the output alone has no targets.
      Without a count, items is the batch size. Torch's own cross entropy and negative log likelihood (modules,
      functions and partials of them) count the targets that are not ignored, or sum their weights.
    - `"causal-lm"`: next-token cross entropy of `output.logits`. The labels are the inputs (those that
      `attention_mask` covers), or `labels` of a dict, or the second entry of a tuple; shifted inside.
    - `"masked-lm"`, `"seq2seq-lm"`, `"classification"`: cross entropy of `output.logits` with the key `labels` of a
      dict or the last entry of a tuple. `seq2seq-lm` makes the decoder's inputs from the labels if they are not given.
    - `None` where the model returns its loss: a scalar, `(loss, items)`, or an object with `.loss`.
    Named losses ignore the label -100 and count the others as items.

    `dynamic` names further symbolic dims by input, `{"x": {1: "seq"}}`; one name is one size. Such a dim is at least
    3; give a `torch.export.Dim` for other bounds. The name "batch" moves the batch, `{"x": {1: "batch"}}`, and
    `{0: None}` or a name for dim 0 says that the input has no batch: it is the same for all samples, as a scalar is.

    `jagged` names inputs of varying length a sample and the inputs with their offsets, as `nn.EmbeddingBag` takes them:
    `{"indices": "offsets"}`. The values of all samples are joined in dim 0.

    `train=False` traces the model in eval mode, for `trireme train --eval-model` where evaluation runs other code.

    Raises ValueError where the archive could not train: no parameter is reached, the batch became static, ...
    Warns where the loss of a batch is not the mean over its samples (batch statistics, in-batch negatives, a root or a
    sum of the whole): what is learnt then depends on the sizes of micro-batches, as in gradient accumulation.
    """
    _check_arguments(model, example_batch, Path(path))
    model = _unwrapped(model)
    _check_loss(model, loss)
    call = _describe(model, example_batch, loss)
    _check_batch(model, call)
    _check_modules(model)
    tensors = dict(zip(call.names, call.tensors, strict=True))
    call.layouts = layouts(_name(model), {n: tuple(t.shape) for n, t in tensors.items()}, dynamic or {}, jagged or {})
    shapes = _dynamic_shapes(call, dynamic or {})
    with traceable(model):
        program, reached = _trace(model, call, loss, shapes, train)
        check_storage(model, program.constants)
    _check_symbolic(model, program, call, shapes)
    if train:
        _check_gradients(model, program, reached)
    is_mean = is_mean_over_samples(program, call.tensors, call.layouts)
    if is_mean is None:
        warnings.warn(
            f"the parameters of {_name(model)} have no values, so whether its loss is a mean over samples was not "
            "checked; where it is not, each micro-batch trains as a batch of its own",
            stacklevel=2,
        )
    elif not is_mean:
        warnings.warn(
            f"the loss of {_name(model)} is not a mean over samples: each micro-batch trains as a batch of its own, as "
            "in gradient accumulation (--micro-batches 1 --dp 1 keeps batches whole)",
            stacklevel=2,
        )
    _strip(program)
    _save(
        program,
        Path(path),
        _manifest(model, program, call, loss) | ({"mean_over_samples": False} if is_mean is False else {}),
    )


# --- what is called with what ------------------------------------------------------------------------------------


@dataclass
class _Call:
    """How the flat tensors of the archive become the arguments of the model and of its loss.

    `structure` is the tree (args, kwargs, loss_args, loss_kwargs) with a `_Slot` in the place of each tensor.
    """

    names: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    structure: Any = None
    layouts: dict[str, Layout] = field(default_factory=dict)

    def num_samples(self, flat: Sequence[torch.Tensor]) -> Any:
        rows = [
            (f.shape[v.batch_dim], v)
            for f, v in zip(flat, self.layouts.values(), strict=True)
            if v.batch_dim is not None
        ]
        size, layout = min(rows, key=lambda row: row[1].says_end)
        return size - 1 if layout.says_end else size

    def arguments(self, flat: Sequence[torch.Tensor]) -> Any:
        return pytree.tree_map(lambda leaf: flat[leaf.index] if isinstance(leaf, _Slot) else leaf, self.structure)


@dataclass(frozen=True)
class _Slot:
    index: int


def _describe(model: nn.Module, batch: Any, loss: Loss) -> _Call:
    entries = batch if isinstance(batch, Mapping) else [batch] if isinstance(batch, torch.Tensor) else list(batch)
    function = loss.forward if isinstance(loss, nn.Module) else loss
    given = split_batch(_name(model), model.forward, entries, function)

    call = _Call()
    taken: dict[tuple[str, int], _Slot] = {}

    def slots(role: str, name: str, value: Any) -> Any:
        def slot(leaf_path: tuple[Any, ...], leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            full = identifier("_".join([name, *(str(getattr(k, "key", getattr(k, "idx", k))) for k in leaf_path)]))
            if (full, id(leaf)) in taken:  # the loss reads an input of the model
                return taken[full, id(leaf)]
            unique = full if full not in call.names else f"{full}_{role}"
            call.names.append(unique)
            call.roles.append(role)
            call.tensors.append(leaf.detach().clone())  # the archive keeps its storage: not that of a whole data set
            return taken.setdefault((full, id(leaf)), _Slot(len(call.tensors) - 1))

        return pytree.tree_map_with_path(slot, value)

    call.structure = (
        [slots("input", n, v) for n, v in given.args.items()],
        {n: slots("input", n, v) for n, v in given.kwargs.items()},
        [slots("target", n, v) for n, v in given.loss_args.items()],
        {n: slots("target", n, v) for n, v in given.loss_kwargs.items()},
    )
    if (
        loss == "seq2seq-lm"
        and "decoder_input_ids" not in given.kwargs
        and not hasattr(model, "prepare_decoder_input_ids_from_labels")
    ):
        raise ValueError(
            f'{_name(model)} cannot make decoder inputs from labels, which loss="seq2seq-lm" needs; give the example '
            'batch as a dict with "decoder_input_ids"'
        )
    return call


# --- the loss ----------------------------------------------------------------------------------------------------


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    labels = labels.reshape(-1)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels, ignore_index=IGNORE_INDEX)
    return loss, (labels != IGNORE_INDEX).sum()


def _causal_lm(
    logits: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    if attention_mask is not None:
        labels = labels.masked_fill(attention_mask == 0, IGNORE_INDEX)
    return _cross_entropy(logits[:, :-1], labels[:, 1:])


NAMED_LOSSES: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "causal-lm": _causal_lm,
    "classification": _cross_entropy,
    "masked-lm": _cross_entropy,
    "seq2seq-lm": _cross_entropy,
}


def _check_loss(model: nn.Module, loss: Loss) -> None:
    if isinstance(loss, str) and loss not in NAMED_LOSSES:
        raise ValueError(
            f'loss "{loss}" of {_name(model)} is not known; give one of {", ".join(NAMED_LOSSES)}, a callable, or None '
            "where the model returns its loss"
        )
    kind, options = _torch_loss(loss)
    if options.get("reduction") == "sum" and getattr(kind, "__module__", "").startswith("torch.nn."):
        raise ValueError(
            f'the loss {kind.__name__} of {_name(model)} has reduction="sum", but a mean is needed; take '
            'reduction="mean", or return (mean loss, items) from a callable'
        )
    if isinstance(loss, nn.Module) and next(loss.parameters(), None) is not None:
        raise ValueError(
            f"the loss {_name(loss)} has parameters of its own, which would not be trained; make it a submodule of "
            f"{_name(model)} and call it in forward"
        )


def _logits(model: nn.Module, output: Any, loss: str) -> torch.Tensor:
    logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if not isinstance(logits, torch.Tensor):
        raise ValueError(
            f'{_name(model)} returns a {type(output).__name__} without logits, which loss="{loss}" reads; give a '
            "callable (output, *targets) as the loss"
        )
    return logits


def _result(model: nn.Module, value: Any, whose: str) -> tuple[torch.Tensor, Any]:
    """The loss and, where it is given, the number of items of what a model or a callable returned."""
    items: Any = None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        value, items = value
    elif not isinstance(value, (torch.Tensor, tuple, list)):
        value = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", None)
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{whose} of {_name(model)} gives no loss; return a scalar mean loss or (mean loss, items)")
    if value.ndim != 0 or not value.is_floating_point():
        raise ValueError(
            f"{whose} of {_name(model)} has shape {_shape(value)} and dtype {value.dtype}, not a floating scalar; "
            "return the mean over the items"
        )
    is_count = items is None or isinstance(items, (int, torch.SymInt))
    if not is_count and not (isinstance(items, torch.Tensor) and items.ndim == 0):
        found = _shape(items) if isinstance(items, torch.Tensor) else type(items).__name__
        raise ValueError(
            f"{whose} of {_name(model)} comes with {found} in the place of the number of items; return a scalar mean "
            "loss or (mean loss, items)"
        )
    return value, items


def _torch_loss(loss: Any) -> tuple[Any, dict[str, Any]]:
    """A loss of torch's own and its options: a function, a partial of one by keywords, or a module."""
    if isinstance(loss, functools.partial) and not loss.args:
        return loss.func, loss.keywords
    is_torch = type(loss).__module__.startswith("torch.nn.")
    return (type(loss), vars(loss) | loss._buffers) if is_torch and isinstance(loss, nn.Module) else (loss, {})


def _counted_items(loss: Any, targets: list[Any]) -> torch.Tensor | None:
    """What torch's cross entropy and likelihood divide by: the number, or weights, of targets not ignored."""
    kind, options = _torch_loss(loss)
    is_counted = kind in (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
    if not is_counted or not targets or targets[0].is_floating_point():
        return None
    target, weight = targets[0].flatten(), options.get("weight")
    is_ignored = target == options.get("ignore_index", IGNORE_INDEX)
    if weight is None:
        return is_ignored.logical_not().sum()
    return weight.gather(0, target.masked_fill(is_ignored, 0)).masked_fill(is_ignored, 0).sum()


def _step(model: nn.Module, call: _Call, loss: Loss, flat: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Any]:
    """The function that is traced."""
    args, kwargs, loss_args, loss_kwargs = call.arguments(flat)
    if loss == "seq2seq-lm" and "decoder_input_ids" not in kwargs:
        kwargs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=loss_args[0])
    output = model._call_impl(*args, **kwargs)  # with the model's own hooks, without a second entry in the module stack
    if loss is None:
        value, items = _result(model, output, "the output")
        if items is None and any(n == "labels" and t.ndim > 1 for n, t in zip(call.names, call.tensors, strict=True)):
            warnings.warn(
                f"{_name(model)} returns a mean loss without its number of items, so each sample counts as one "
                "whatever its labels ignore; pass a loss by name to count labels",
                stacklevel=2,
            )
    elif isinstance(loss, str):
        value, items = NAMED_LOSSES[loss](_logits(model, output, loss), *loss_args, **loss_kwargs)
    else:
        value, items = _result(model, loss(output, *loss_args, **loss_kwargs), "the loss")
        items = _counted_items(loss, [*loss_args, *loss_kwargs.values()]) if items is None else items
    return value, call.num_samples(flat) if items is None else items


# --- tracing -----------------------------------------------------------------------------------------------------


# A condition on sizes that tracing took for granted, and the user's line that did.
_Guard: TypeAlias = tuple[Any, str]


def _place(model: nn.Module, frames: Iterable[tuple[FrameType, int]]) -> str:
    """The user's module and line in the first of these frames that has them: `"layers.1" (Block) at gpt.py:12`."""
    # torch's proxies of a module share its __dict__
    owners = {id(m.__dict__): (n, m) for n, m in model.named_modules()}
    module = None
    lines: dict[bool, str] = {}  # by whether it is a library's
    for frame, number in frames:
        if frame.f_code is _step.__code__:  # beyond lies what calls trireme.export
            break
        owner = frame.f_locals.get("self")
        if module is None and isinstance(owner, nn.Module):
            module = owners.get(id(owner.__dict__))
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _OWN, "<")):
            lines.setdefault(file.startswith(_LIBRARIES), f"{os.path.basename(file)}:{number}")
    line = lines.get(False) or lines.get(True)
    name, owner = module or ("", model)
    return (f'"{name}" ({_name(owner)})' if name else _name(model)) + (f" at {line}" if line else "")


@contextlib.contextmanager
def _recorded_guards(model: nn.Module) -> Iterator[list[_Guard]]:
    guards: list[_Guard] = []
    original = ShapeEnv._log_guard

    def log_guard(self: Any, prefix: str, expression: Any, *args: Any, **kwargs: Any) -> Any:
        guards.append((expression, _place(model, traceback.walk_stack(sys._getframe(1)))))
        return original(self, prefix, expression, *args, **kwargs)

    with mock.patch.object(ShapeEnv, "_log_guard", log_guard):
        yield guards


@contextlib.contextmanager
def _refused_transforms(model: nn.Module) -> Iterator[None]:
    """What torch would leave as a constant or a call of Python in the archive, or refuse far from the user's line."""

    def refusal(what: str, remedy: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            where = _place(model, traceback.walk_stack(sys._getframe(1)))
            raise ValueError(f"{_name(model)} {what} in {where}, which an archive cannot hold; {remedy}")

        return refuse

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        _, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if dtype is not None and any(p.dtype != dtype for p in module.parameters() if p.is_floating_point()):
            refusal(f"converts weights to {dtype}", "build the model with these weights in that dtype")()
        return module

    derivative = refusal("takes a derivative", "write the derivative itself with plain operators")
    with (
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
def _mode(model: nn.Module, train: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        model.train(train)
        yield


def _trace(
    model: nn.Module, call: _Call, loss: Loss, shapes: tuple[dict[int, Any], ...], train: bool
) -> tuple[ExportedProgram, set[str]]:
    """The program, and the names of the parameters that the eager loss reaches."""
    reached: set[str] = set()
    own: list[Any] = []  # autograd functions on the way to the loss

    def step(*flat: torch.Tensor) -> tuple[torch.Tensor, Any]:
        value, items = _step(model, call, loss, flat)
        reached.update(_reached_parameters(model, value, own))
        return value, items

    with (
        _mode(model, train),
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
            is_library = file.startswith(_LIBRARIES) and not file.startswith(_OWN)
            if not is_library and not type(error).__module__.startswith("torch."):
                raise  # ours, or of the user's own code
            raise ValueError(_failure(model, error, frames)) from None
    bad = next((c[0].__name__ for c in own_calls if c[0] in own and not is_differentiated(c)), None)
    if bad is not None:
        raise ValueError(
            f"{_name(model)} uses the autograd function {bad}, whose own backward, which is not the derivative of its "
            "forward, an archive does not hold; write it with plain operators and detach()"
        )
    return program, reached


def _failure(model: nn.Module, error: Exception, frames: list[tuple[FrameType, int]]) -> str:
    """Says in one sentence which part of the model torch cannot export."""
    where = _place(model, reversed(frames))
    if isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException)):
        return (
            f"{_name(model)} cannot be exported, as {where} decides by the values in a tensor, which one archive "
            "cannot hold; write it without if, loop, int() or float() of such values, as with torch.where"
        )
    reason = next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), "")
    if not (reason and (type(error).__module__.startswith("torch.") or type(error) is RuntimeError)):
        reason = f"{type(error).__name__}: {reason}".rstrip(": ")  # 'labels' alone says little of a KeyError
    return f"{_name(model)} cannot be exported, as {where} fails: {reason}; write that code with operators that export"


def _violation(
    model: nn.Module, call: _Call, shapes: tuple[dict[int, Any], ...], guards: list[_Guard], text: str
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

    where = next((where for expression, where in guards if is_cause(expression)), _name(model))
    whose = "the batch" if dim == "batch" else f'dim "{dim}"'
    if static:
        return (
            f"{whose} of {_name(model)} became static ({sizes.get(dim, '?')}) in {where}; take the size from the "
            "tensor there (x.shape, or -1 in a view) and use no number, int() or Python loop for it"
        )
    reason = re.search(r"(?:satisfy the generated guard|are valid because) (.*?)\.?\n", text)
    found = reason.group(1) if reason else "a condition"
    condition = re.sub(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]", r"\1.shape[\2]", found)
    condition = re.sub(r" and \S+ <= IntInfinity\(\)", "", condition)
    return (
        f"{whose} of {_name(model)} cannot have every size, as {where} needs {condition}; write that code for any size"
        + ("" if dim == "batch" else ", or bound the dim by a torch.export.Dim")
    )


# --- checks ------------------------------------------------------------------------------------------------------


def _check_arguments(model: Any, batch: Any, path: Path) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model is a {type(model).__name__}, not an nn.Module; give the module that trains")
    if not isinstance(batch, (torch.Tensor, Mapping, list, tuple)):
        raise ValueError(f"the example batch is a {type(batch).__name__}; give a tensor, a tuple of tensors or a dict")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist; make it first")
    if torch.is_autocast_enabled("cpu"):
        raise ValueError("trireme.export is called within torch.autocast; enter it in the model's forward instead")


def _check_batch(model: nn.Module, call: _Call) -> None:
    if next(model.parameters(), None) is None:
        raise ValueError(f"{_name(model)} has no parameters and nothing to train; export the module that owns them")
    if not call.tensors:
        raise ValueError(f"the example batch of {_name(model)} has no tensor; give tensors whose dim 0 is the batch")


def _check_modules(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ValueError(
                f"parameter {name} of {_name(model)} has a hook on its gradient, which an archive does not hold; "
                "remove it, and do what it does in forward"
            )
    for name, module in model.named_modules():
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            raise ValueError(
                f'module "{name}" ({_name(module)}) of {_name(model)} has no sizes yet; run the model on the example '
                "batch before the export"
            )
        is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if is_norm and module.momentum is None and module.track_running_stats:
            raise ValueError(
                f'module "{name}" ({_name(module)}) of {_name(model)} has momentum=None, an average whose factor '
                "depends on the number of steps, which an archive cannot hold; give it a momentum such as 0.1"
            )


def _dynamic_shapes(call: _Call, dynamic: Dynamic) -> tuple[dict[int, Any], ...]:
    given = [dim for named in dynamic.values() for dim in named.values() if isinstance(dim, type(Dim("x")))]
    dims: dict[str, Any] = {BATCH: Dim(BATCH)} | {dim.__name__: dim for dim in given}
    shapes = []
    for name, layout in call.layouts.items():
        shape = {}
        if layout.offsets is not None:
            shape[0] = dims.setdefault(f"values_of_{layout.offsets}", Dim(f"values_of_{layout.offsets}"))
        if layout.batch_dim is not None:
            shape[layout.batch_dim] = dims[BATCH] + 1 if layout.says_end else dims[BATCH]
        for index, dim in dynamic.get(name, {}).items():
            key = dim_name(dim)
            if key is not None and key != BATCH:
                shape[index] = dims.setdefault(key, Dim(key, min=3))
        shapes.append(shape)
    return tuple(shapes)


def _check_symbolic(
    model: nn.Module, program: ExportedProgram, call: _Call, shapes: tuple[dict[int, Any], ...]
) -> None:
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    for given, placeholder, shape in zip(call.names, program.graph_signature.user_inputs, shapes, strict=True):
        for index, dim in shape.items():
            if not isinstance(values[placeholder].shape[index], torch.SymInt):
                raise ValueError(
                    f"dim {index} ({dim.__name__}) of input {given} of {_name(model)} became static "
                    f"({values[placeholder].shape[index]}); take the size from the tensor and use no number for it"
                )


def _reached_parameters(model: nn.Module, loss: torch.Tensor, own: list[Any]) -> set[str]:
    """Walks the autograd graph that tracing built; adds to `own` the functions that bring their own backward."""
    names: dict[int, str] = {id(p): n for n, p in model.named_parameters()}
    reached: set[str] = set()
    seen: set[Any] = set()
    pending = [loss.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # An operator of torch.library is one node of the archive, and whoever registers it brings its backward.
        is_registered = type(node).__name__.startswith("GeneratedBackwardFor_")
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not is_registered:
            function = getattr(type(node), "_forward_cls", None)
            if function is None or function.__name__ == "CheckpointFunction":
                raise ValueError(_reentrant(model, node))
            own.append(function)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in names:
            reached.add(names[id(variable)])
        pending += [edge for edge, _ in node.next_functions]
    return reached


def _reentrant(model: nn.Module, node: Any) -> str:
    run: Any = getattr(node, "run_function", None)
    involved = [run, getattr(run, "__self__", None)]  # the module, a method of it, or a partial of either
    if isinstance(run, functools.partial):
        involved += [run.func, getattr(run.func, "__self__", None), *run.args]
    states = [vars(m) for m in involved if isinstance(m, nn.Module)]  # torch's proxies of a module share its __dict__
    module = next(((n, m) for n, m in model.named_modules() for s in states if vars(m) is s), None)
    where = f'"{module[0]}" ({_name(module[1])}) of {_name(model)}' if module else _name(model)
    return (
        f"re-entrant checkpointing of {where} loses its gradients in the archive; checkpoint with use_reentrant=False"
    )


def _check_gradients(model: nn.Module, program: ExportedProgram, reached: set[str]) -> None:
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise ValueError(
            f"every parameter of {_name(model)} has requires_grad=False and nothing would train; set it on those "
            "to train"
        )
    if not reached & trainable:
        raise ValueError(
            f"the loss of {_name(model)} reaches no parameter, so nothing would train; look for detach(), no_grad() or "
            "integer outputs between the parameters and the loss"
        )
    lost = sorted(reached - _reached_in_graph(model, program))
    if lost:
        raise ValueError(
            f"the gradient of {lost[0]} of {_name(model)} is lost in the archive; look for re-entrant checkpointing "
            "(use_reentrant=False) or no_grad() on its way to the loss"
        )


def _reached_in_graph(model: nn.Module, program: ExportedProgram) -> set[str]:
    """Parameters with a path to the loss outside no_grad regions: all that train, and some (detached) that do not."""
    first_names = {id(p): n for n, p in model.named_parameters()}
    loss = next(n for n in program.graph.nodes if n.op == "output").args[0][0]
    writes = [n for n in program.graph.nodes if getattr(getattr(n.target, "_schema", None), "is_mutable", False)]
    seen: set[torch.fx.Node] = set()
    pending = [loss, *writes]  # what is written in place may be read later through any view
    while pending:
        node = pending.pop()
        is_no_grad = getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled" and node.args[0] is False
        if node not in seen and not is_no_grad:
            seen.add(node)
            pending += node.all_input_nodes
    nodes = program.graph_signature.inputs_to_parameters
    return {first_names[id(model.get_parameter(nodes[n.name]))] for n in seen if n.name in nodes}


# --- the archive -------------------------------------------------------------------------------------------------


def _strip(program: ExportedProgram) -> None:
    """Drops metadata that only serves debugging of torch.export; it is 16 to 40 % of the file."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "from_node", "torch_fn"):
                    node.meta.pop(key, None)


def _manifest(model: nn.Module, program: ExportedProgram, call: _Call, loss: Loss) -> dict[str, Any]:
    ties: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        ties.setdefault(id(parameter), []).append(name)
    is_named = loss is None or isinstance(loss, str)
    placeholders = dict(zip(call.names, program.graph_signature.user_inputs, strict=True))
    inputs = []
    # The reader finds a batch that lies in dim 0 of every input by itself.
    is_marked = any(layout.batch_dim != 0 or layout.offsets is not None for layout in call.layouts.values())
    for (name, layout), role in zip(call.layouts.items(), call.roles, strict=True):
        entry: dict[str, Any] = {"name": placeholders[name], "role": role}
        if is_marked and layout.batch_dim is not None and not layout.says_end:
            entry["batch_dim"] = layout.batch_dim
        if layout.offsets is not None:
            entry["offsets"] = placeholders[layout.offsets]
        inputs.append(entry)
    return {
        "format_version": FORMAT_VERSION,
        "trireme_version": trireme.__version__,
        "torch_version": torch.__version__,
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "loss": loss if is_named else getattr(loss, "__qualname__", type(loss).__qualname__),
        "inputs": inputs,
        "buffers": [{"name": n, "role": "buffer"} for n in program.graph_signature.buffers],
        "ties": [names for names in ties.values() if len(names) > 1],
    }


def _save(program: ExportedProgram, path: Path, manifest: dict[str, Any]) -> None:
    """The archive appears whole or not at all: it is written beside `path` and renamed."""
    path = Path(os.path.realpath(path))  # a link stays one
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file, which an archive must be; give the path of a file")
    folder = tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")
    with folder as directory, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No complete tensor found", category=UserWarning)  # without values
        draft = Path(directory) / path.name
        torch.export.save(program, draft, extra_files={"trireme.json": json.dumps(manifest, indent=1)})
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)


# --- names -------------------------------------------------------------------------------------------------------


def _unwrapped(model: nn.Module) -> nn.Module:
    """The user's module inside what torch.compile and data-parallel training put around it."""
    wrappers = torch._dynamo.OptimizedModule, nn.DataParallel, nn.parallel.DistributedDataParallel
    while isinstance(model, wrappers):
        model = model._orig_mod if isinstance(model, torch._dynamo.OptimizedModule) else model.module
    return model


def _name(module: nn.Module) -> str:
    return type(module).__name__


def _shape(tensor: torch.Tensor) -> str:
    """The shape as the example batch has it, symbolic dims too."""
    return str(tuple(s.node.hint if isinstance(s, torch.SymInt) else s for s in tensor.shape))
