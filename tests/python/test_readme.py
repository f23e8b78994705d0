"""The README's example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import command
import pytest
import torch

import trireme

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


def test_the_masked_loss_is_the_mean_of_its_items(tmp_path):
    written = re.search(r"^    def masked.*?\n(?=\n)", README, re.MULTILINE | re.DOTALL).group()
    names = {"F": torch.nn.functional}
    exec(textwrap.dedent(written), names)
    batch = torch.randn(4, 3), torch.randn(4, 2), torch.ones(4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trireme.export(torch.nn.Linear(3, 2), batch, tmp_path / "a.pt2", loss=names["masked"])
    with pytest.warns(UserWarning, match="return \\(mean, items\\) from it"):
        trireme.export(torch.nn.Linear(3, 2), batch, tmp_path / "a.pt2", loss=lambda *given: names["masked"](*given)[0])


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
