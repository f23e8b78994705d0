"""The README's demonstration: the loss falls, and the numbers are those of PyTorch."""

from __future__ import annotations

import json
import subprocess

import command
import pytest

BUDGET_S = 180


@pytest.mark.slow
@pytest.mark.binary
@pytest.mark.timeout(3 * BUDGET_S + 10)
def test_the_demo_trains_and_proves_parity(tmp_path):
    result = subprocess.run(
        [command.REPOSITORY / "scripts" / "demo", tmp_path],
        capture_output=True,
        text=True,
        timeout=3 * BUDGET_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "largest relative difference: losses" in result.stdout
    assert "loss +---" in result.stdout
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 400
    assert losses[-1] < 0.6 * losses[0]
