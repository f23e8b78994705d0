"""Trireme trains unmodified PyTorch models over many devices.

`trireme.export` writes a model as an archive that `trireme train` reads; `trireme.empty_weights()` is for models that
do not fit into memory. Importing this package does not import torch; the first use of these does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trireme.capture import export
    from trireme.empty import empty_weights

__all__ = ["__version__", "empty_weights", "export"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    homes = {"empty_weights": "trireme.empty", "export": "trireme.capture"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
