"""Whether the loss is a mean over samples. Only then do the sizes of micro-batches and replicas change nothing.

Batch statistics, contrast with the other samples of a batch, a root or a sum of the mean: such a loss of a batch is not
that of its parts. As torch's gradient accumulation does, training takes each micro-batch for a batch of its own then.
A mean over other items than samples, as targets that are not ignored, is one of its parts by the number of these items.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from trireme.call import Call
from trireme.samples import Layout
from trireme.variants import VARIANTS

_HALF = torch.float16, torch.bfloat16
# Relative: parts are summed in another order.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-5} | dict.fromkeys(_HALF, 2e-2)

_TARGET_MEANS = "cross_entropy_loss", "nll_loss", "nll_loss2d", "nll_loss_nd"
# Of a mean, these are a mean of the same items.
_SAME = {
    *(
        "_to_copy",
        "alias",
        "clone",
        "contiguous",
        "flatten",
        "mean",
        "neg",
        "reshape",
        "squeeze",
        "sum",
        "to",
        "type_as",
    ),
    *("unsqueeze", "view"),
}


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
        self.divisor: torch.Tensor | None = None  # of the last mean over class targets

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_assert" in func.name():  # holds for sizes of the archive only
            return None
        if self._widens:
            args, kwargs = pytree.tree_map(_wide, (args, kwargs))
        if func is torch.ops.aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        result = func(*args, **(kwargs or {}))
        if func.name() in ("aten::nll_loss_forward", "aten::nll_loss2d_forward"):
            self.divisor = result[1]
        if torch.Tag.nondeterministic_seeded in func.tags:
            for drawn in pytree.tree_leaves(result):
                drawn.fill_(0.5 if drawn.is_floating_point() else 0)
        return result


class _TargetMeans(TorchFunctionMode):
    """Follows a mean over class targets to the loss, by the rule of src/trireme/graph/loss_items.h."""

    def __init__(self, comparable: _Comparable, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._comparable = comparable
        # Of what stems from the inputs: what the mean divided by, as long as the tensor has this version.
        self._divisors: Any = WeakIdKeyDictionary()
        for tensor in inputs:
            self._divisors[tensor] = None, 0

    def divisor_of(self, value: torch.Tensor) -> torch.Tensor | None:
        divisor, version = self._divisors.get(value, (None, 0))
        return divisor if value._version == version else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        read = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        stem = [t for t in read if t in self._divisors]
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        is_moved = name in ("add", "sub") and len(stem) == 1
        is_scaled = name in ("add", "sub", "mul", "div") and len(read) == 1 and "rounding_mode" not in given
        divisor = None
        if (name in _SAME or is_moved or is_scaled) and stem and all(t.numel() == 1 for t in read):
            divisor = self.divisor_of(stem[0] if is_moved else read[0])
        result = func(*args, **kwargs)
        if name in _TARGET_MEANS and given.get("reduction", 1) == 1 and not given["target"].is_floating_point():
            divisor = self._comparable.divisor
        for made in pytree.tree_leaves(result) if stem else []:
            if isinstance(made, torch.Tensor):
                self._divisors[made] = divisor if made.numel() == 1 else None, made._version
        return result


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


@dataclass
class _Step:
    """The step of an archive, computed for batches and their parts; nothing of the program changes."""

    program: ExportedProgram
    call: Call
    widens: bool

    def loss_and_items(self, tensors: Sequence[torch.Tensor]) -> tuple[float, float]:
        given = iter(tensors)
        values = {**self.program.constants, **self.program.state_dict}
        # Weights may be large: they are copied only where an operator might write to them.
        graphs = [m.graph for m in self.program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
        writes = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for g in graphs for n in g.nodes)

        def value(kind: InputKind, target: str) -> torch.Tensor:
            if kind is InputKind.PARAMETER and not writes:
                return values[target].detach()
            kept = next(given) if kind is InputKind.USER_INPUT else values[target].detach().clone()
            return _wide(kept) if self.widens else kept

        specs = self.program.graph_signature.input_specs
        inputs = [value(spec.kind, spec.target) for spec in specs]
        users = [v for v, spec in zip(inputs, specs, strict=True) if spec.kind is InputKind.USER_INPUT]
        comparable = _Comparable(self.widens)
        means = _TargetMeans(comparable, users)
        with torch.no_grad(), torch.random.fork_rng(devices=[]), comparable, means:
            loss, items = torch.fx.Interpreter(self.program.graph_module).run(*inputs)[-2:]
        divisor = means.divisor_of(loss) if self.counts_samples else None
        return float(loss), float(items if divisor is None else divisor)

    @functools.cached_property
    def counts_samples(self) -> bool:
        """Whether the items are the batch; of a loss over class targets the engine counts the targets then."""
        items = self.program.graph.output_node().args[0][-1]
        size = items.meta["val"] if isinstance(items, torch.fx.Node) else items
        values = {n.name: n.meta["val"] for n in self.program.graph.nodes if n.op == "placeholder"}
        batch = self.call.num_samples([values[name] for name in self.program.graph_signature.user_inputs])
        return isinstance(size, torch.SymInt) and size.node.expr == batch.node.expr

    def is_mean(self, tensors: Sequence[torch.Tensor], ranges: Sequence[_Ranges]) -> bool | None:
        """`ranges` are those of a batch, and of the parts that it consists of. None: it cannot be told."""
        computed = (self.loss_and_items(_select(tensors, self.call.layouts, each)) for each in ranges)
        whole, _ = next(computed)
        if not math.isfinite(whole):
            return None
        counted = [(loss, items) for loss, items in computed if items]
        if not counted:
            return None
        mean = sum(loss * items for loss, items in counted) / sum(items for _, items in counted)
        nodes = self.program.graph.nodes
        dtypes = {n.meta["val"].dtype for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)}
        tolerance = max((_TOLERANCE.get(_wide(d) if self.widens else d, 0) for d in dtypes), default=0)
        # A part without a number is none of a mean that has one.
        return abs(whole - mean) <= tolerance * max(map(abs, (whole, *(loss for loss, _ in counted))))


def has_values(program: ExportedProgram) -> bool:
    values = [*program.state_dict.values(), *program.constants.values()]
    return all(isinstance(v, torch.Tensor) and not v.is_meta and not isinstance(v, FakeTensor) for v in values)


def coupling(program: ExportedProgram, call: Call) -> str | None:
    """With which batch the loss is not the mean of the losses of its parts by their items, as "with -100 in target".

    Empty: with the example batch. None: with no batch that was tried, or it cannot be told, as the parts cannot be
    computed. A trial takes three forward passes, of a batch and of two parts. The example batch has up to four trials,
    of which the first that can be computed decides. Then each of VARIANTS has one; where the model cannot compute it
    with all inputs changed, each half of them has one, and so on: at most two an input, most of which end early.
    """
    size = call.num_samples(call.tensors)
    half = size // 2
    first, second, rest = (0, half), (half, 2 * half), (half, size)
    # Some models cannot take a half of one sample; then each half stands twice in a batch.
    attempts = [([(0, size)], [first], [rest])]
    if not any(v.offsets for v in call.layouts.values()):
        attempts.append(([(0, 2 * half)], [first, first], [second, second]))
    # Some operators take half precision only.
    for widens, ranges in itertools.product((True, False), attempts):
        step = _Step(program, call, widens)
        with contextlib.suppress(Exception):  # whatever a model raises for a batch of one
            if step.is_mean(call.tensors, ranges) is False:
                return ""
            break
    else:
        return None
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    spaces = {getattr(n.target, "namespace", "aten") for graph in graphs for n in graph.nodes}
    # An operator of a library may read wherever an index points.
    is_checked = spaces <= {"aten", "higher_order"}
    for variant in VARIANTS if is_checked else [v for v in VARIANTS if v.is_in_range]:
        pending = [variant.inputs(call)]
        while pending:
            names = pending.pop(0)
            is_mean = None
            with contextlib.suppress(Exception):  # whatever a model raises for numbers that it has no meaning for
                is_mean = step.is_mean(variant.batch(call, names), ranges) if names else True
            if is_mean is False:
                return f" with {variant.what} {', '.join(names)}"
            if is_mean is None and len(names) > 1:
                pending += names[: len(names) // 2], names[len(names) // 2 :]
    return None
