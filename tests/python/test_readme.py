"""The README's example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import command
import pytest

README = (command.REPOSITORY / "README.md").read_text()


def block(language):
    """All blocks of the language, one after the other."""
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL))


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert [link for link in links if not (command.REPOSITORY / link).exists()] == []


def test_the_model_has_twenty_lines():
    assert len([line for line in block("python").splitlines() if line]) <= 20


@pytest.mark.slow
@pytest.mark.binary
def test_the_example_trains(tmp_path):
    (tmp_path / "spiral.py").write_text(block("python"))
    lines = [line.removeprefix("$ ") for line in block("console").splitlines() if line.startswith("$ ")]
    assert lines[0].startswith("export PATH=")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(command.BINARY.parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines[1:])],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    steps = command.read_metrics(tmp_path / "spiral.jsonl")
    assert [field for field in steps[0] if f"`{field}`" not in README] == []
    losses = [step["loss"] for step in steps]
    assert len(losses) == 300
    assert losses[-1] < 0.5 * losses[0]
    assert "loss +---" in result.stdout
    assert "bubble rate" in result.stdout
    assert (tmp_path / "spiral.html").read_text().startswith("<!DOCTYPE html>")
