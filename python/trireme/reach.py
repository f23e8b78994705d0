"""Which parameters the loss reaches: by autograd's graph while tracing, and by the archive's graph afterwards."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from trireme.places import name_of


def reached_parameters(model: nn.Module, loss: torch.Tensor, own: list[Any]) -> set[str]:
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
    where = f'"{module[0]}" ({name_of(module[1])}) of {name_of(model)}' if module else name_of(model)
    return (
        f"re-entrant checkpointing of {where} loses its gradients in the archive; checkpoint with use_reentrant=False"
    )


def check_gradients(model: nn.Module, program: ExportedProgram, reached: set[str]) -> None:
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise ValueError(
            f"every parameter of {name_of(model)} has requires_grad=False and nothing would train; set it on those "
            "to train"
        )
    if not reached & trainable:
        raise ValueError(
            f"the loss of {name_of(model)} reaches no parameter, so nothing would train; look for detach(), no_grad() "
            "or integer outputs between the parameters and the loss"
        )
    lost = sorted(reached - _reached_in_graph(model, program))
    if lost:
        raise ValueError(
            f"the gradient of {lost[0]} of {name_of(model)} is lost in the archive; look for re-entrant checkpointing "
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
