"""Batches like the example with what it may have nothing of: ignored targets, padding, masks, weights of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch

from trireme.call import Call
from trireme.losses import IGNORE_INDEX


@dataclass(frozen=True)
class Variant:
    """Makes of an input, of where it changes and of numbers in [0, 1) what it becomes; the others stay as they are."""

    what: str
    is_in_range: bool  # whatever takes the input takes the values
    applies: Callable[[torch.dtype], bool]
    change: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

    def inputs(self, call: Call) -> list[str]:
        cutters = {layout.offsets for layout in call.layouts.values()}
        return [
            name
            for (name, layout), tensor in zip(call.layouts.items(), call.tensors, strict=True)
            if name not in cutters and (layout.batch_dim is not None or layout.offsets is not None)
            if tensor.numel() and self.applies(tensor.dtype)
        ]

    def batch(self, call: Call, names: Collection[str]) -> list[torch.Tensor]:
        """Of the second half of the samples the last entry changes, and some others, so that the halves differ."""
        generator = torch.Generator().manual_seed(0)

        def changed(tensor: torch.Tensor, dim: int) -> torch.Tensor:
            rows = tensor.movedim(dim, 0)
            random = torch.rand(rows.shape, generator=generator)
            is_chosen = random < 0.5
            is_chosen[: len(rows) // 2] = False
            is_chosen.view(len(rows), -1)[len(rows) // 2 :, -1] = True
            return self.change(rows, is_chosen, random).to(tensor.dtype).movedim(0, dim)

        return [
            changed(tensor, layout.batch_dim or 0) if name in names else tensor
            for (name, layout), tensor in zip(call.layouts.items(), call.tensors, strict=True)
        ]


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


VARIANTS = [
    # Weights of samples; all zero says nothing of an input, as where an example is only of the right shape.
    Variant(
        "other values of",
        True,
        lambda dtype: dtype.is_floating_point,
        lambda rows, _, random: torch.where(rows.any(), rows, 1) * (0.25 + 0.75 * random),
    ),
    Variant("other values of", True, lambda dtype: dtype is torch.bool, lambda rows, is_chosen, _: rows ^ is_chosen),
    # Padding, masks of integers and other classes: whatever a table has, it has an entry 0, and mostly 1.
    Variant("other values of", True, _is_integer, lambda rows, is_chosen, _: torch.where(is_chosen, rows == 0, rows)),
    Variant(
        f"{IGNORE_INDEX} in",
        False,
        lambda dtype: _is_integer(dtype) and dtype.is_signed,
        lambda rows, is_chosen, _: rows.masked_fill(is_chosen, IGNORE_INDEX),
    ),
    Variant(
        "nan in",
        True,
        lambda dtype: dtype.is_floating_point,
        lambda rows, is_chosen, _: rows.masked_fill(is_chosen, math.nan),
    ),
]
