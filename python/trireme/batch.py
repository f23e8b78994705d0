"""Decides which entries of an example batch are the model's inputs and which are targets of its loss.

The rules are those of `trireme.export`; nothing here looks at a tensor, so torch is not imported.
"""

from __future__ import annotations

import inspect
import keyword
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

LossFunction: TypeAlias = Callable[..., Any] | str | None


@dataclass(frozen=True)
class SplitBatch:
    """What the model and its loss are called with, by name; an entry may go to both."""

    args: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss_args: dict[str, Any] = field(default_factory=dict)
    loss_kwargs: dict[str, Any] = field(default_factory=dict)


def split_batch(
    model: str, forward: Callable[..., Any], batch: list[Any] | Mapping[str, Any], loss: LossFunction
) -> SplitBatch:
    """`model` names the model in messages; `loss` is a function, a name or None."""
    has_no_targets = loss is None or (callable(loss) and _arity(loss) == (1, 1))
    if isinstance(batch, Mapping):
        if has_no_targets:
            return SplitBatch(kwargs=dict(batch))
        return (
            _split_named_dict(model, batch, loss) if isinstance(loss, str) else _split_dict(model, forward, batch, loss)
        )
    if has_no_targets:
        count = 0
    elif isinstance(loss, str):
        count = _num_labels(model, batch, loss)
    else:
        count = _num_targets(model, forward, batch, loss)
    inputs, targets = batch[: len(batch) - count], batch[len(batch) - count :]
    args = dict(zip(_parameter_names(forward, len(inputs), "input"), inputs, strict=True))
    if loss == "causal-lm" and not targets:
        return SplitBatch(args=args, loss_args=dict(list(args.items())[:1]))
    names = _parameter_names(loss, count + 1, "target")[1:] if callable(loss) else ["labels"] * count
    return SplitBatch(args=args, loss_args=dict(zip(names, targets, strict=True)))


def identifier(text: str) -> str:
    """The name of an input in the archive, which is a lower-case Python identifier."""
    text = re.sub(r"\W", "_", text).lower()
    return f"{text}_" if keyword.iskeyword(text) else text if text[:1].isalpha() else f"input_{text}"


def _num_targets(model: str, forward: Callable[..., Any], entries: list[Any], loss: Callable[..., Any]) -> int:
    least, most = _arity(loss)
    least, most = max(least - 1, 1), most if most == sys.maxsize else max(most - 1, 1)
    fewest_inputs, most_inputs = _arity(forward)
    fits = [n for n in range(least, len(entries)) if n <= most and fewest_inputs <= len(entries) - n <= most_inputs]
    if not fits:
        raise ValueError(
            f"the example batch of {model} has {_entries(len(entries))}, of which forward takes "
            f"{_range(fewest_inputs, most_inputs)} and the loss {_range(least, most)}; give the inputs first and the "
            "targets last"
        )
    if len(fits) > 1 and most == sys.maxsize:
        raise ValueError(
            f"cannot tell how many of the {len(entries)} entries of the example batch of {model} are targets; "
            "give the loss one named parameter for each target"
        )
    return fits[0]


def _split_dict(
    model: str, forward: Callable[..., Any], batch: Mapping[str, Any], loss: Callable[..., Any]
) -> SplitBatch:
    wanted = list(_positional(loss))[1:]
    accepted = _positional(forward, keyword_only=True)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(forward).parameters.values())
    targets = {k: v for k, v in batch.items() if k in wanted or not (k in accepted or open_ended)}
    inputs = {k: v for k, v in batch.items() if k not in targets or (k in accepted and k != "labels")}
    if not targets:
        raise ValueError(
            f"the example batch of {model} has no target for the loss; name its keys like the loss's parameters "
            f"({', '.join(wanted)})"
        )
    if all(k in wanted for k in targets):
        return SplitBatch(kwargs=inputs, loss_kwargs=targets)
    return SplitBatch(kwargs=inputs, loss_args=targets)


def _num_labels(model: str, entries: list[Any], loss: str) -> int:
    if loss == "causal-lm":
        if len(entries) > 2:
            raise ValueError(
                f'the example batch of {model} has {_entries(len(entries))} and loss="causal-lm" takes '
                "(inputs,) or (inputs, labels); give further inputs in a dict"
            )
        return len(entries) - 1
    if len(entries) < 2:
        raise ValueError(_no_labels(model, loss))
    return 1


def _split_named_dict(model: str, batch: Mapping[str, Any], loss: str) -> SplitBatch:
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    if batch.get("labels") is not None:
        return SplitBatch(kwargs=inputs, loss_args={"labels": batch["labels"]})
    if loss != "causal-lm":
        raise ValueError(_no_labels(model, loss))
    ids = "input_ids" if "input_ids" in inputs else next(iter(inputs))
    mask = {k: v for k, v in inputs.items() if k == "attention_mask" and v is not None}
    return SplitBatch(kwargs=inputs, loss_args={ids: inputs[ids]}, loss_kwargs=mask)


def _no_labels(model: str, loss: str) -> str:
    return (
        f'the example batch of {model} has no labels, which loss="{loss}" needs; give them under the key '
        '"labels" of a dict or as the last entry of a tuple'
    )


def _positional(function: Callable[..., Any], keyword_only: bool = False) -> dict[str, inspect.Parameter]:
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    kinds |= {inspect.Parameter.KEYWORD_ONLY} if keyword_only else set()
    return {n: p for n, p in _parameters(function).items() if p.kind in kinds}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # a builtin without a signature
        return inspect.signature(lambda output, target: None).parameters


def _arity(function: Callable[..., Any]) -> tuple[int, int]:
    """The fewest and the most positional arguments that `function` takes."""
    positional = _positional(function).values()
    is_open = any(p.kind is p.VAR_POSITIONAL for p in _parameters(function).values())
    return sum(p.default is p.empty for p in positional), sys.maxsize if is_open else len(positional)


def _parameter_names(function: Callable[..., Any], count: int, fallback: str) -> list[str]:
    names = list(_positional(function))[:count]
    return names + [f"{fallback}_{i}" for i in range(len(names), count)]


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} or more" if most == sys.maxsize else f"{least} to {most}"
