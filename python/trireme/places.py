"""Names what a sentence is about: a module of the user's, and the line of the user's code."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from types import FrameType

import torch
from torch import nn

import trireme

_TORCH, _OWN = (os.path.dirname(m.__file__) + os.sep for m in (torch, trireme))
_LIBRARIES = _TORCH, *(sysconfig.get_path(p) + os.sep for p in ("stdlib", "purelib", "platlib"))


def name_of(module: nn.Module) -> str:
    return type(module).__name__


def shape_of(tensor: torch.Tensor) -> str:
    """The shape as the example batch has it, symbolic dims too."""
    return str(tuple(s.node.hint if isinstance(s, torch.SymInt) else s for s in tensor.shape))


def is_of_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) and not file.startswith(_OWN)


def place_of(model: nn.Module, frames: Iterable[tuple[FrameType, int]]) -> str:
    """The user's module and line in the first of these frames that has them: `"layers.1" (Block) at gpt.py:12`."""
    # torch's proxies of a module share its __dict__
    owners = {id(m.__dict__): (n, m) for n, m in model.named_modules()}
    module = None
    lines: dict[bool, str] = {}  # by whether it is a library's
    for frame, number in frames:
        file = frame.f_code.co_filename
        if frame.f_code.co_name == "traced_step" and file.startswith(_OWN):  # beyond lies what calls trireme.export
            break
        owner = frame.f_locals.get("self")
        if module is None and isinstance(owner, nn.Module):
            module = owners.get(id(owner.__dict__))
        if not file.startswith((_TORCH, _OWN, "<")):
            lines.setdefault(file.startswith(_LIBRARIES), f"{os.path.basename(file)}:{number}")
    line = lines.get(False) or lines.get(True)
    name, owner = module or ("", model)
    return (f'"{name}" ({name_of(owner)})' if name else name_of(model)) + (f" at {line}" if line else "")
