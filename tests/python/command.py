"""Runs the built `trireme` command and reads what it writes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
BINARY = Path(os.environ.get("TRIREME_BINARY", REPOSITORY / "build" / "bin" / "trireme"))
TIMEOUT_S = 60


def run(*arguments: Any, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs `trireme ARGUMENTS`; the exit status must be `code`."""
    command = [str(BINARY), *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, errors="surrogateescape", timeout=TIMEOUT_S, check=False
    )
    assert result.returncode == code, f"exit {result.returncode} of {' '.join(command)}\n{result.stdout}{result.stderr}"
    return result


def read_metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
