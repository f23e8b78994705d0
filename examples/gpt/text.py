"""Joins the source of Python's standard library in one file: `python examples/gpt/text.py OUT`."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
text = b"".join(path.read_bytes() for path in sources)
Path(sys.argv[1]).write_bytes(text)
print(f"{sys.argv[1]}: {len(text)} bytes of {len(sources)} modules")
