"""The losses that `trireme.export` knows by name, and what a loss of the user's own gives: a mean and its items."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from trireme.places import name_of, shape_of

IGNORE_INDEX = -100
Loss: TypeAlias = Callable[..., Any] | str | None


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


def check_loss(model: nn.Module, loss: Loss) -> None:
    if isinstance(loss, str) and loss not in NAMED_LOSSES:
        raise ValueError(
            f'loss "{loss}" of {name_of(model)} is not known; give one of {", ".join(NAMED_LOSSES)}, a callable, or '
            "None where the model returns its loss"
        )
    is_partial = isinstance(loss, functools.partial)
    kind, options = (loss.func, loss.keywords) if is_partial else (type(loss), getattr(loss, "__dict__", {}))
    if options.get("reduction") == "sum" and getattr(kind, "__module__", "").startswith("torch.nn."):
        raise ValueError(
            f'the loss {kind.__name__} of {name_of(model)} has reduction="sum", but a mean is needed; take '
            'reduction="mean", or return (mean loss, items) from a callable'
        )
    if isinstance(loss, nn.Module) and next(loss.parameters(), None) is not None:
        raise ValueError(
            f"the loss {name_of(loss)} has parameters of its own, which would not be trained; make it a submodule of "
            f"{name_of(model)} and call it in forward"
        )


def logits_of(model: nn.Module, output: Any, loss: str) -> torch.Tensor:
    logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if not isinstance(logits, torch.Tensor):
        raise ValueError(
            f'{name_of(model)} returns a {type(output).__name__} without logits, which loss="{loss}" reads; give a '
            "callable (output, *targets) as the loss"
        )
    return logits


def loss_and_items(model: nn.Module, value: Any, whose: str) -> tuple[torch.Tensor, Any]:
    """The loss and, where it is given, the number of items of what a model or a callable returned."""
    items: Any = None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        value, items = value
    elif not isinstance(value, (torch.Tensor, tuple, list)):
        value = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", None)
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{whose} of {name_of(model)} gives no loss; return a scalar mean loss or (mean loss, items)")
    if value.ndim != 0 or not value.is_floating_point():
        raise ValueError(
            f"{whose} of {name_of(model)} has shape {shape_of(value)} and dtype {value.dtype}, not a floating scalar; "
            "return the mean over the items"
        )
    is_count = items is None or isinstance(items, (int, torch.SymInt))
    if not is_count and not (isinstance(items, torch.Tensor) and items.ndim == 0):
        found = shape_of(items) if isinstance(items, torch.Tensor) else type(items).__name__
        raise ValueError(
            f"{whose} of {name_of(model)} comes with {found} in the place of the number of items; return a scalar mean "
            "loss or (mean loss, items)"
        )
    return value, items
