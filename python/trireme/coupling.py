"""Whether the loss is a mean over samples. Only then do the sizes of micro-batches and replicas change nothing.

Batch statistics, contrast with the other samples of a batch, a root or a sum of the mean: such a loss of a batch is not
that of its parts. As torch's gradient accumulation does, training takes each micro-batch for a batch of its own then.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from trireme.samples import Layout

_HALF = torch.float16, torch.bfloat16
# Relative: parts are summed in another order.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-5} | dict.fromkeys(_HALF, 2e-2)


def _wide(value: Any) -> Any:
    """Of a tensor or a dtype of half precision, which would hide in its rounding what samples do to one another."""
    if isinstance(value, torch.Tensor) and value.dtype in _HALF:
        return value.float()
    return torch.float32 if isinstance(value, torch.dtype) and value in _HALF else value


class _Comparable(TorchDispatchMode):
    """Random operators give one number everywhere, so that the parts of a batch compare with the whole.

    Where it `widens`, operators compute in float32 what is half precision. Weights may be large, and become wide for
    the time of an operator only.
    """

    def __init__(self, widens: bool) -> None:
        super().__init__()
        self._widens = widens

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_assert" in func.name():  # holds for sizes of the archive only
            return None
        if self._widens:
            args, kwargs = pytree.tree_map(_wide, (args, kwargs))
        if func is torch.ops.aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            for drawn in pytree.tree_leaves(result):
                drawn.fill_(0.5 if drawn.is_floating_point() else 0)
        return result


def _loss(program: ExportedProgram, tensors: Sequence[torch.Tensor], widens: bool) -> tuple[float, float]:
    """The loss and its number of items; nothing of the program changes."""
    given = iter(tensors)
    values = {**program.constants, **program.state_dict}
    # Weights may be large: they are copied only where an operator might write to them.
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    writes = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for g in graphs for n in g.nodes)

    def value(kind: InputKind, target: str) -> torch.Tensor:
        if kind is InputKind.PARAMETER and not writes:
            return values[target].detach()
        kept = next(given) if kind is InputKind.USER_INPUT else values[target].detach().clone()
        return _wide(kept) if widens else kept

    inputs = [value(spec.kind, spec.target) for spec in program.graph_signature.input_specs]
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _Comparable(widens):
        loss, items = torch.fx.Interpreter(program.graph_module).run(*inputs)[-2:]
    return float(loss), float(items)


_Ranges = list[tuple[int, int]]  # of samples, from the first to before the end


def _select(tensors: Sequence[torch.Tensor], layouts: Mapping[str, Layout], ranges: _Ranges) -> list[torch.Tensor]:
    given = dict(zip(layouts, tensors, strict=True))
    cutters = {layout.offsets for layout in layouts.values()}

    def part(name: str, first: int, end: int) -> torch.Tensor:
        tensor, layout = given[name], layouts[name]
        if layout.offsets is not None:
            offsets = [*given[layout.offsets].tolist(), len(tensor)]
            return tensor[offsets[first] : offsets[end]]
        cut = tensor.narrow(layout.batch_dim or 0, first, end - first + layout.says_end)
        return cut - cut[0] if name in cutters else cut

    return [
        given[name]
        if layout.batch_dim is None and layout.offsets is None
        else torch.cat([part(name, *each) for each in ranges], layout.batch_dim or 0)
        for name, layout in layouts.items()
    ]


def is_mean_over_samples(
    program: ExportedProgram, tensors: Sequence[torch.Tensor], layouts: Mapping[str, Layout]
) -> bool | None:
    """False where the loss of the example batch is not the mean of the losses of its parts, by their items.

    None without values. True, too, where it cannot be told, as the parts cannot be computed.
    """
    values = [*program.state_dict.values(), *program.constants.values()]
    if any(not isinstance(v, torch.Tensor) or v.is_meta or isinstance(v, FakeTensor) for v in values):
        return None
    size = min(
        t.shape[v.batch_dim] - v.says_end
        for t, v in zip(tensors, layouts.values(), strict=True)
        if v.batch_dim is not None
    )
    half = size // 2
    first, second, rest = (0, half), (half, 2 * half), (half, size)
    # Some models cannot take a half of one sample; then each half stands twice in a batch.
    attempts = [([first, rest], [first], [rest])]
    if not any(v.offsets for v in layouts.values()):
        attempts.append(([first, second], [first, first], [second, second]))
    # Some operators take half precision only.
    for widens, ranges in itertools.product((True, False), attempts):
        with contextlib.suppress(Exception):  # whatever a model raises for a batch of one
            (whole, _), *parts = (_loss(program, _select(tensors, layouts, each), widens) for each in ranges)
            break
    else:
        return True
    items = sum(items for _, items in parts)
    losses = [whole, *(loss for loss, _ in parts)]
    if not items or not all(map(math.isfinite, losses)):
        return True
    mean = sum(loss * items for loss, items in parts if items) / items
    dtypes = {n.meta["val"].dtype for n in program.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)}
    tolerance = max((_TOLERANCE.get(_wide(d) if widens else d, 0) for d in dtypes), default=0)
    return abs(whole - mean) <= tolerance * max(map(abs, losses))
