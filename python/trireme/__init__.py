"""Trireme trains unmodified PyTorch models over many devices.

`trireme.export` writes a model as an archive that `trireme train` reads. Importing this package does not import torch;
the first use of `export` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trireme.capture import export

__all__ = ["__version__", "export"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "export":
        from trireme.capture import export

        return export
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
