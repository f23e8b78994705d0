"""Writes a training step of any `nn.Module` as a torch.export archive.

The archive holds one function: the flat inputs, targets last, give `(loss, items)`, the mean loss of a micro-batch and
the number of items it is a mean of. It is traced in train mode with a symbolic batch, so one archive serves every
micro-batch size. The model itself is traced, with its `forward` replaced for the time of the export: names in the
archive are the user's own, and no wrapper has to be renamed away.

    batch --describe--> Call (names, roles, how to call) --trace--> ExportedProgram --check--> strip --> archive

What would train wrongly without a word is a ValueError of one sentence: the module, what was found, what to do.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn.modules.lazy import LazyModuleMixin

import trireme
from trireme.call import Call, describe
from trireme.coupling import coupling, has_values
from trireme.empty import traceable
from trireme.losses import Loss, check_loss
from trireme.places import name_of
from trireme.reach import check_gradients
from trireme.samples import BATCH, dim_name, layouts
from trireme.storage import check_storage
from trireme.tracing import trace

FORMAT_VERSION = 1
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
      A mean over other items than samples comes with their number, by which micro-batches are weighed:
          is_used = target >= 0
          each = F.mse_loss(output, target, reduction="none") * is_used
          return each.sum() / is_used.sum(), is_used.sum()
      Without a number, items is the batch size. The targets of torch's cross entropy and negative log likelihood are
      counted where the loss is their mean: those that are not ignored, or the sum of their weights.
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
    Warns where the loss of a batch is not the mean over its items (batch statistics, in-batch negatives, a root or a
    sum of the whole, a mean over what a mask leaves): what is learnt then depends on the sizes of micro-batches, as in
    gradient accumulation. The step is computed for parts of the example batch, and for batches with other masks,
    weights and targets: three forward passes each, of some five batches.
    """
    _check_arguments(model, example_batch, Path(path))
    model = _unwrapped(model)
    check_loss(model, loss)
    call = describe(model, example_batch, loss)
    _check_batch(model, call)
    _check_modules(model)
    tensors = dict(zip(call.names, call.tensors, strict=True))
    call.layouts = layouts(name_of(model), {n: tuple(t.shape) for n, t in tensors.items()}, dynamic or {}, jagged or {})
    shapes = _dynamic_shapes(call, dynamic or {})
    with traceable(model):
        program, reached = trace(model, call, loss, shapes, train)
        check_storage(model, program.constants)
    _check_symbolic(model, program, call, shapes)
    if train:
        check_gradients(model, program, reached)
    coupled = None
    if not has_values(program):
        warnings.warn(
            f"the parameters of {name_of(model)} have no values, so whether its loss is a mean over samples was not "
            "checked; where it is not, each micro-batch trains as a batch of its own",
            stacklevel=2,
        )
    elif (coupled := coupling(program, call)) is not None:
        warnings.warn(
            f"the loss of {name_of(model)} is not a mean over samples{coupled}: where it is one over other items "
            "(targets not ignored, weights), return (mean, items) from it, as help(trireme.export) shows; else each "
            "micro-batch trains as a batch of its own, as in gradient accumulation, and --micro-batches 1 --dp 1 keeps "
            "batches whole",
            stacklevel=2,
        )
    _strip(program)
    _save(
        program,
        Path(path),
        _manifest(model, program, call, loss) | ({} if coupled is None else {"mean_over_samples": False}),
    )


def _unwrapped(model: nn.Module) -> nn.Module:
    """The user's module inside what torch.compile and data-parallel training put around it."""
    wrappers = torch._dynamo.OptimizedModule, nn.DataParallel, nn.parallel.DistributedDataParallel
    while isinstance(model, wrappers):
        model = model._orig_mod if isinstance(model, torch._dynamo.OptimizedModule) else model.module
    return model


def _check_arguments(model: Any, batch: Any, path: Path) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model is a {type(model).__name__}, not an nn.Module; give the module that trains")
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("the model is a TorchScript module; give the nn.Module that it was made from")
    if not isinstance(batch, (torch.Tensor, Mapping, list, tuple)):
        raise ValueError(f"the example batch is a {type(batch).__name__}; give a tensor, a tuple of tensors or a dict")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist; make it first")
    if torch.is_autocast_enabled("cpu"):
        raise ValueError("trireme.export is called within torch.autocast; enter it in the model's forward instead")


def _check_batch(model: nn.Module, call: Call) -> None:
    if next(model.parameters(), None) is None:
        raise ValueError(f"{name_of(model)} has no parameters and nothing to train; export the module that owns them")
    if not call.tensors:
        raise ValueError(f"the example batch of {name_of(model)} has no tensor; give tensors whose dim 0 is the batch")


def _check_modules(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ValueError(
                f"parameter {name} of {name_of(model)} has a hook on its gradient, which an archive does not hold; "
                "remove it, and do what it does in forward"
            )
        if parameter.is_complex():
            raise ValueError(
                f"parameter {name} of {name_of(model)} is complex ({parameter.dtype}); store it as a real one and call "
                "torch.view_as_complex in forward"
            )
    for name, module in model.named_modules():
        whose = f'module "{name}" ({name_of(module)}) of {name_of(model)}' if name else name_of(model)
        if module._backward_hooks or module._backward_pre_hooks:
            raise ValueError(f"{whose} has a backward hook, which an archive does not hold; do what it does in forward")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            raise ValueError(f"{whose} has no sizes yet; run the model on the example batch before the export")
        is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if is_norm and module.momentum is None and module.track_running_stats:
            raise ValueError(
                f"{whose} has momentum=None, an average whose factor depends on the number of steps, which an archive "
                "cannot hold; give it a momentum such as 0.1"
            )


def _dynamic_shapes(call: Call, dynamic: Dynamic) -> tuple[dict[int, Any], ...]:
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


def _check_symbolic(model: nn.Module, program: ExportedProgram, call: Call, shapes: tuple[dict[int, Any], ...]) -> None:
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    for given, placeholder, shape in zip(call.names, program.graph_signature.user_inputs, shapes, strict=True):
        for index, dim in shape.items():
            if not isinstance(values[placeholder].shape[index], torch.SymInt):
                raise ValueError(
                    f"dim {index} ({dim.__name__}) of input {given} of {name_of(model)} became static "
                    f"({values[placeholder].shape[index]}); take the size from the tensor and use no number for it"
                )


def _strip(program: ExportedProgram) -> None:
    """Drops metadata that only serves debugging of torch.export; it is 16 to 40 % of the file."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "from_node", "torch_fn"):
                    node.meta.pop(key, None)


def _manifest(model: nn.Module, program: ExportedProgram, call: Call, loss: Loss) -> dict[str, Any]:
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


class _Draft(io.RawIOBase):
    """Keeps the first error of a file: one that reached torch's writer would end the process."""

    def __init__(self, file: Any) -> None:
        self.file, self.error = file, None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return offset  # torch rewinds what it has written

    def write(self, data: Any) -> int:
        try:
            if self.error is None:
                self.file.write(data)
        except BaseException as error:
            self.error = error
        return len(data)


def _save(program: ExportedProgram, path: Path, manifest: dict[str, Any]) -> None:
    """The archive appears whole or not at all: it is written beside `path` and renamed."""
    target = Path(os.path.realpath(path))  # a link stays one
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is no regular file, which an archive must be; give the path of a file")
    try:
        folder = tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.")
        with folder as directory, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No complete tensor found", category=UserWarning)  # no values
            with open(Path(directory) / target.name, "wb") as file:
                draft = _Draft(file)
                torch.export.save(program, draft, extra_files={"trireme.json": json.dumps(manifest, indent=1)})
                if draft.error is not None:
                    raise draft.error
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, target)
    except OSError as error:
        raise type(error)(f"cannot write {path}: {error.strerror}") from None
