"""Decides how the samples of an example batch lie in each input; the rules are those of `trireme.export`.

Only names and shapes are looked at, so torch is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BATCH = "batch"


@dataclass(frozen=True)
class Layout:
    """Of one input. `batch_dim` is None where it has no batch or is jagged."""

    batch_dim: int | None = 0
    offsets: str | None = None  # of a jagged input: the input that says where each sample starts
    says_end: bool = False  # of offsets: one entry more than samples, the end of the last


def dim_name(dim: Any) -> str | None:
    return dim if isinstance(dim, str) else getattr(dim, "__name__", None)


def layouts(
    model: str,
    shapes: Mapping[str, tuple[int, ...]],
    dynamic: Mapping[str, Mapping[int, Any]],
    jagged: Mapping[str, str],
) -> dict[str, Layout]:
    """By input; `model` names the model in messages."""
    for option, names in (("dynamic", [*dynamic]), ("jagged", [*jagged, *jagged.values()])):
        if unknown := [n for n in names if n not in shapes]:
            raise ValueError(
                f'{option} names "{unknown[0]}", which is no input of {model}; name one of {", ".join(shapes)}'
            )
    found = {}
    for name, shape in shapes.items():
        dims = dynamic.get(name, {})
        for index in dims:
            if not 0 <= index < len(shape):
                raise ValueError(f"dynamic dim {index} of input {name} of {model} is not in 0..{len(shape) - 1}")
        batch = [i for i, dim in dims.items() if dim_name(dim) == BATCH]
        if len(batch) > 1:
            raise ValueError(f"dynamic gives input {name} of {model} the batch in dims {batch}; a sample has one place")
        if name in jagged:
            _check_jagged(model, name, shapes, jagged)
            found[name] = Layout(None, offsets=jagged[name])
        else:
            has_batch = bool(batch) or (len(shape) > 0 and 0 not in dims)
            found[name] = Layout((batch or [0])[0] if has_batch else None)
    size = _batch_size(model, shapes, found, set(jagged.values()))
    return {
        n: Layout(0, says_end=True) if n in jagged.values() and shapes[n][0] == size + 1 else found[n] for n in found
    }


def _check_jagged(model: str, name: str, shapes: Mapping[str, tuple[int, ...]], jagged: Mapping[str, str]) -> None:
    offsets = jagged[name]
    if offsets in jagged:
        raise ValueError(f"jagged cuts {name} of {model} by {offsets}, which is jagged itself; name its offsets")
    if len(shapes[offsets]) != 1 or not shapes[name]:
        raise ValueError(
            f"jagged cuts {name} of {model} by {offsets}, but the shapes {shapes[name]} and {shapes[offsets]} are not "
            "values and a vector of offsets"
        )
    other = next(n for n, o in jagged.items() if o == offsets)
    if shapes[other][0] != shapes[name][0]:
        raise ValueError(
            f"{other} of {model} has {shapes[other][0]} values but {name} has {shapes[name][0]}, and {offsets} cuts "
            "both"
        )
    if shapes[name][0] < 2:
        raise ValueError(f"the example batch of {model} has {shapes[name][0]} values in {name}; give at least 2")


def _batch_size(
    model: str, shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, Layout], offsets: set[str]
) -> int:
    sizes = {n: shapes[n][v.batch_dim] for n, v in found.items() if v.batch_dim is not None}
    rows = {n: s for n, s in sizes.items() if n not in offsets} or sizes
    if not rows:
        raise ValueError(f"no input of {model} has a batch; give at least one input with a row for each sample")
    size = next(iter(rows.values()))
    if any(s != size for s in rows.values()) or any(sizes[n] not in (size, size + 1) for n in offsets):
        where = "in dim 0 " if all(found[n].batch_dim == 0 for n in rows) else ""
        listed = ", ".join(f"{n} has {s}" for n, s in sizes.items())
        raise ValueError(
            f"the inputs of {model} disagree on the batch {where}({listed}); give the same number of samples in each"
        )
    if size < 2:
        raise ValueError(
            f"the example batch of {model} is of size {size}, which torch.export makes static; give at least 2 samples"
        )
    return size
