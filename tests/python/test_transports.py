"""`--transport direct`: the numbers of Gloo, to the bit where the order of sums is the same, on one host and two."""

from __future__ import annotations

import os
import signal

import command
import pytest
from processes import expect_report, rank_name, train_arguments, trireme

pytestmark = [pytest.mark.binary, pytest.mark.slow]


def results(folder, transport, pp, dp, *more):
    """Losses and weights."""
    metrics, weights = folder / f"{transport}.jsonl", folder / f"{transport}.safetensors"
    outputs = ("--metrics", metrics, "--save", weights, "--quiet")
    command.run(*train_arguments(*outputs, "--transport", transport, *more, steps=6, pp=pp, dp=dp))
    lines = [(line["step"], line["loss"], line["items"]) for line in command.read_metrics(metrics)]
    return lines, weights.read_bytes()


@pytest.mark.parametrize(("pp", "dp"), [(2, 1), (1, 2), (2, 2), (4, 1)])
def test_both_transports_give_the_same_bits(tmp_path, pp, dp):
    """A sum of two is the same in either order."""
    assert results(tmp_path, "direct", pp, dp) == results(tmp_path, "gloo", pp, dp)


def test_four_replicas_give_the_same_bits_again(tmp_path):
    (tmp_path / "again").mkdir()
    assert results(tmp_path, "direct", 1, 4) == results(tmp_path / "again", "direct", 1, 4)


@pytest.mark.parametrize("rank", [0, 3])
def test_a_killed_rank_ends_the_run_and_is_named(tmp_path, rank):
    metrics = tmp_path / "metrics.jsonl"
    with trireme(*train_arguments("--metrics", metrics, "--transport", "direct"), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics)
        os.kill(pids[rank], signal.SIGKILL)
        assert run.wait() == 1
        expect_report(run.err.splitlines()[-4:], rank, "killed by signal 9 (SIGKILL)")


def test_a_stopped_rank_ends_the_run_and_is_named(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    arguments = train_arguments("--metrics", metrics, "--transport", "direct", "--silence-timeout", 2)
    with trireme(*arguments, folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics)
        os.kill(pids[2], signal.SIGSTOP)
        assert run.wait() == 1
        lines = run.err.splitlines()[-4:]
        assert lines[0] == f"{rank_name(2)} was lost: silent for 2 s"
        assert not any(map(os.path.exists, (f"/proc/{pid}/exe" for pid in pids)))


def test_ranks_that_are_threads_have_no_transport(tmp_path):
    refused = command.run(*train_arguments("--transport", "direct", "--workers", 1), code=2)
    said = "--transport is for ranks as processes, with --workers 1 they are threads: leave one out"
    assert refused.stderr == f"trireme: {said}\n"
