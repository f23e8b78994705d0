"""Models larger than memory: parameters that have a shape but no values.

Such a parameter lies on torch's device "meta", where operators work out shapes and nothing else. Buffers are real. In a
trace, fake parameters that claim to lie where the buffers do take the place of these.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Iterator
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

_TORCH = os.path.dirname(torch.__file__)
_NO_VALUES = r"\bmeta\b|incompatible tensor type"  # in what torch says
_REMEDY = "build this module outside of trireme.empty_weights(), where it keeps its values"


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """Modules built within have parameters without values, which take no memory; their buffers are real.

    `trireme.export` writes such a model without weights, and `trireme train --init` reads them later. A module that is
    built outside and assigned to one built within keeps its values in the archive.

    Raises ValueError where a module needs the values of a parameter to be built.
    """
    register = nn.Module.register_parameter

    def register_empty(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta and not nn.parameter.is_lazy(param):
            _drop_values(module, name, param)
        register(module, name, param)

    try:
        with mock.patch.object(nn.Module, "register_parameter", register_empty):
            yield
    except Exception as error:
        if isinstance(error, ValueError) or not re.search(_NO_VALUES, str(error), re.IGNORECASE):
            raise
        raise ValueError(
            f"{_place(error)} reads or sets the values of a parameter, which has none; {_REMEDY}"
        ) from error


def _drop_values(module: nn.Module, name: str, param: nn.Parameter) -> None:
    """In place: whoever else refers to the parameter, as ties do, goes on to refer to the same one."""
    data = torch.empty_strided(param.shape, param.stride(), dtype=param.dtype, device="meta")
    empty = nn.Parameter(data, requires_grad=param.requires_grad)
    empty.__dict__.update(param.__dict__)
    try:
        empty.__class__ = type(param)
        torch.utils.swap_tensors(param, empty)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f'parameter "{name}" of {type(module).__name__} is in use already and cannot give its values up; {_REMEDY}'
        ) from error


def _place(error: Exception) -> str:
    frames = [f for f in traceback.walk_tb(error.__traceback__) if not f[0].f_code.co_filename.startswith(_TORCH)]
    owners = [f.f_locals.get(f.f_code.co_varnames[0]) for f, _ in frames if f.f_code.co_varnames]
    modules = [type(m).__name__ for m in owners if isinstance(m, nn.Module)]
    frame, line = frames[-1]
    return f"{modules[-1] if modules else 'a module'} at {os.path.basename(frame.f_code.co_filename)}:{line}"


@contextlib.contextmanager
def traceable(model: nn.Module) -> Iterator[None]:
    """Within, parameters without values are fake ones, and torch.export can trace the model."""
    for path, module in model.named_modules():
        attributes = {} if module._forward_pre_hooks else vars(module)  # such hooks compute attributes anew
        for name, value in {**module._buffers, **attributes}.items():
            if isinstance(value, torch.Tensor) and value.is_meta:
                raise ValueError(
                    f'the tensor "{name}" of "{path}" ({type(module).__name__}) has no values, as it was computed from '
                    f"a parameter or on the device meta; {_REMEDY}"
                )
    places = [(m, n, p) for m in model.modules() for n, p in m._parameters.items() if p is not None and p.is_meta]
    if not places:
        yield
        return
    fakes: dict[nn.Parameter, nn.Parameter] = {}
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()), contextlib.ExitStack() as stack:
        for _, _, param in places:
            if param not in fakes:
                data = torch.empty_strided(param.shape, param.stride(), dtype=param.dtype)
                fakes[param] = nn.Parameter(data, requires_grad=param.requires_grad)
        for module, name, param in places:
            stack.callback(setattr, module, name, param)
            setattr(module, name, fakes[param])  # not in _parameters: an LSTM keeps a list of its own
        yield
