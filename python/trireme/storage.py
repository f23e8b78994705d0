"""Finds tensors of a model that share memory without being one, which an archive cannot keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def check_storage(model: nn.Module, constants: Mapping[str, Any]) -> None:
    """Raises ValueError where a parameter that trains overlaps another tensor of the model."""
    groups: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers(), *constants.items()]:
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            groups.setdefault(tensor.untyped_storage()._cdata, []).append((name, tensor))
    for group in groups.values():
        if len(group) == 1 or not any(t.requires_grad for _, t in group):
            continue
        unit = min(t.element_size() for _, t in group)
        owner = torch.full((group[0][1].untyped_storage().nbytes() // unit,), -1, dtype=torch.int32)
        training = sorted(group, key=lambda named: not named[1].requires_grad)
        for index, (name, tensor) in enumerate(training):
            width = tensor.element_size() // unit
            steps = [(n if s else 1, s * width) for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
            sizes, strides = zip(*steps, (width, 1), strict=True)
            taken = owner.as_strided(sizes, strides, tensor.storage_offset() * width)
            if taken.numel() and (other := int(taken.max())) >= 0:
                raise ValueError(
                    f'"{name}" of {type(model).__name__} lies in the memory of its parameter "{training[other][0]}", '
                    "and the two would train apart; clone() one of them, or use the one parameter for both"
                )
            if tensor.requires_grad:
                taken.fill_(index)
