"""The drawing of a loss, as text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from trireme.plot import draw


def plot(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "trireme.plot", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_falling_loss_is_drawn():
    assert draw([8.0, 4.0, 2.0, 1.0, 1.0], height=8).splitlines() == [
        "   8.000 |*",
        "         |",
        "         |",
        "   5.000 |",
        "         | *",
        "         |",
        "         |  *",
        "   1.000 |   **",
        "    loss +-----",
        "    step  1   5",
    ]


def test_a_column_is_the_mean_of_its_steps():
    assert draw([3.0, 1.0, 1.0, 0.0, 1.0], width=2, height=2).splitlines() == [
        "   2.000 |*",
        "   0.667 | *",
        "    loss +--",
        "    step  15",
    ]


@pytest.mark.parametrize("losses", [[1.0], [2.0, 2.0]])
def test_a_constant_loss_is_a_line(losses):
    assert "*" * len(losses) in draw(losses)


def test_the_module_prints_the_drawing_and_judges(tmp_path):
    metrics = tmp_path / "m.jsonl"
    metrics.write_text('{"step": 1, "loss": 4.0}\n{"step": 1, "eval_loss": 9.0}\n{"step": 2, "loss": 2.0}\n')
    result = plot(metrics, "--below", 0.6)
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == "loss 4.000 at step 1, 2.000 at step 2: 50% of the first"
    result = plot(metrics, "--below", 0.5)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "the last loss should be below 50% of the first"
    metrics.write_text("")
    assert f"{metrics} has no line with a loss" in plot(metrics).stderr


def test_a_loss_that_is_not_finite_is_said(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 3, "loss": null}\n')
    shown = plot(path)
    assert shown.returncode == 0
    assert "the loss of step 3 is not finite\n" in shown.stdout
    assert plot(path, "--below", 0.9).returncode == 1


def test_a_reader_that_leaves_is_no_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n')
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "trireme.plot", path]
    shown = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(theirs)
    assert (shown.returncode, shown.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("content", [None, b"\xff\x00", b"loss", b"[1, 2]\n3\n", b""])
def test_what_is_no_metrics_file_is_one_sentence(tmp_path, content):
    path = tmp_path / "metrics.jsonl"
    if content is not None:
        path.write_bytes(content)
    shown = plot(path)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert shown.stderr.splitlines()[-1].startswith(f"python -m trireme.plot: error: {path}")
