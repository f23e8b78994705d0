"""`--transport direct`: the numbers of Gloo, to the bit where the order of sums is the same, on one host and two."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import command
import pytest
from processes import expect_report, rank_name, train_arguments, trireme, wait_until

pytestmark = [pytest.mark.binary, pytest.mark.slow]
ways = pytest.mark.parametrize("way", [(), ("--no-shared-memory",)], ids=["shared memory", "TCP"])


def results(folder, transport, pp, dp, *more):
    """Losses and weights."""
    metrics, weights = folder / f"{transport}.jsonl", folder / f"{transport}.safetensors"
    outputs = ("--metrics", metrics, "--save", weights, "--quiet")
    command.run(*train_arguments(*outputs, "--transport", transport, *more, steps=6, pp=pp, dp=dp))
    lines = [(line["step"], line["loss"], line["items"]) for line in command.read_metrics(metrics)]
    return lines, weights.read_bytes()


@ways
@pytest.mark.parametrize(("pp", "dp"), [(2, 1), (1, 2), (2, 2), (4, 1)])
def test_both_transports_give_the_same_bits(tmp_path, pp, dp, way):
    """A sum of two is the same in either order."""
    assert results(tmp_path, "direct", pp, dp, *way) == results(tmp_path, "gloo", pp, dp)


def test_four_replicas_give_the_same_bits_again(tmp_path):
    (tmp_path / "again").mkdir()
    assert results(tmp_path, "direct", 1, 4) == results(tmp_path / "again", "direct", 1, 4)


@pytest.fixture
def start(tmp_path):
    """Starts a run without an end over the direct transport; it and its workers, once they train."""
    with contextlib.ExitStack() as stack:

        def started(*more):
            metrics = tmp_path / "metrics.jsonl"
            arguments = train_arguments("--metrics", metrics, "--transport", "direct", *more)
            run = stack.enter_context(trireme(*arguments, folder=tmp_path))
            pids = run.wait_for_workers()
            run.wait_for_steps(metrics)
            return run, pids

        yield started


@ways
def test_ranks_of_one_host_share_memory_unless_told_not_to(start, way):
    _, pids = start(*way)
    shared = ["memfd:trireme-ring" in Path(f"/proc/{pid}/maps").read_text() for pid in pids]
    assert shared == [not way] * 4


@ways
@pytest.mark.parametrize("rank", range(4))
def test_a_killed_rank_ends_the_run_and_is_named(start, rank, way):
    run, pids = start(*way)
    os.kill(pids[rank], signal.SIGKILL)
    assert run.wait() == 1
    expect_report(run.err.splitlines()[-4:], rank, "killed by signal 9 (SIGKILL)")


@ways
@pytest.mark.parametrize("rank", range(4))
def test_a_stopped_rank_ends_the_run_and_is_named(start, rank, way):
    run, pids = start("--silence-timeout", 2, *way)
    os.kill(pids[rank], signal.SIGSTOP)
    assert run.wait() == 1
    lines = run.err.splitlines()[-4:]
    assert lines[0] == f"{rank_name(rank)} was lost: silent for 2 s"
    assert not any(map(os.path.exists, (f"/proc/{pid}/exe" for pid in pids)))


def wait_until_asleep(pids):
    """Until the processes have used no time of a core between 20 looks."""
    looks = []

    def are_asleep():
        looks.append([Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13] for pid in pids])
        return len(looks) > 20 and all(look == looks[-1] for look in looks[-20:])

    wait_until(are_asleep, "ranks that wait")


@ways
def test_a_rank_that_stands_still_for_a_while_changes_nothing(tmp_path, way):
    def weights(name, disturb):
        saved, metrics = tmp_path / f"{name}.safetensors", tmp_path / f"{name}.jsonl"
        outputs = ("--save", saved, "--metrics", metrics, "--transport", "direct", *way)
        (tmp_path / name).mkdir()
        with trireme(*train_arguments(*outputs, steps=200), folder=tmp_path / name) as run:
            pids = run.wait_for_workers()
            run.wait_for_steps(metrics)
            disturb(pids)
            assert run.wait() == 0, run.err
        return saved.read_bytes()

    def stop_each(pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            wait_until_asleep(pids)
            os.kill(pid, signal.SIGCONT)

    assert weights("disturbed", stop_each) == weights("undisturbed", lambda _: None)


def test_ranks_that_are_threads_have_no_transport(tmp_path):
    refused = command.run(*train_arguments("--transport", "direct", "--workers", 1), code=2)
    said = "--transport is for ranks as processes, with --workers 1 they are threads: leave one out"
    assert refused.stderr == f"trireme: {said}\n"
