"""How the flat inputs of an archive become the arguments of the model and of its loss, and the step that is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from trireme.batch import identifier, split_batch
from trireme.losses import NAMED_LOSSES, Loss, logits_of, loss_and_items
from trireme.places import name_of
from trireme.samples import Layout


@dataclass
class Call:
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


def describe(model: nn.Module, batch: Any, loss: Loss) -> Call:
    entries = batch if isinstance(batch, Mapping) else [batch] if isinstance(batch, torch.Tensor) else list(batch)
    function = loss.forward if isinstance(loss, nn.Module) else loss
    given = split_batch(name_of(model), model.forward, entries, function)

    call = Call()
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
            f'{name_of(model)} cannot make decoder inputs from labels, which loss="seq2seq-lm" needs; give the example '
            'batch as a dict with "decoder_input_ids"'
        )
    return call


def traced_step(model: nn.Module, call: Call, loss: Loss, flat: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Any]:
    """The function that is traced."""
    args, kwargs, loss_args, loss_kwargs = call.arguments(flat)
    if loss == "seq2seq-lm" and "decoder_input_ids" not in kwargs:
        kwargs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=loss_args[0])
    output = model._call_impl(*args, **kwargs)  # with the model's own hooks, without a second entry in the module stack
    if loss is None:
        value, items = loss_and_items(model, output, "the output")
    elif isinstance(loss, str):
        value, items = NAMED_LOSSES[loss](logits_of(model, output, loss), *loss_args, **loss_kwargs)
    else:
        value, items = loss_and_items(model, loss(output, *loss_args, **loss_kwargs), "the loss")
    return value, call.num_samples(flat) if items is None else items
