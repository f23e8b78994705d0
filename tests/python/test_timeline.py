"""The timeline of a training run: what each rank did and when, also after the run was killed."""

from __future__ import annotations

import os
import re
import signal

import command
import processes
import pytest
from processes import train_arguments, trireme, wait_until

pytestmark = pytest.mark.binary


def events(path):
    """The event lines, as lists of words."""
    return [line.split() for line in path.read_text().splitlines()[1:]]


def actions(path, rank, step):
    """What the rank computed and waited for in a step, in order."""
    own = [words for words in events(path) if words[1] == str(rank) and f"step={step}" in words]
    names = [" ".join(words[2:4]) if words[2] in ("wait", "input") else words[2] for words in own]
    return ", ".join(name for name in names if " " in name or name[0] in "FBU")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_last_steps_of_all_ranks_are_in_one_file(tmp_path, workers):
    path = tmp_path / "run.timeline"
    more = ["--micro-batches", 2, "--timeline", path, "--timeline-steps", 3, "--workers", workers, "--quiet"]
    command.run(*train_arguments(*more, steps=7, pp=2, dp=1))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.timeline"]
    header = path.read_text().splitlines()[0]
    assert header.startswith("timeline measured 1f1b stages=2 hosts=")
    assert {word for words in events(path) for word in words if word.startswith("step=")} == {
        "step=5",
        "step=6",
        "step=7",
    }
    for step in (5, 6, 7):
        assert actions(path, 0, step) == (
            "input F0, F0, F1, wait RG0, B0, wait RG1, B1, wait SC0, wait TR0, U, wait SA0, wait SA1"
        )
        assert actions(path, 1, step) == (
            "input F0, wait RA0, F0, B0, wait RA1, F1, B1, wait SC0, wait TR0, U, wait SG0, wait SG1"
        )
    assert " - " not in path.read_text()


def test_a_killed_rank_leaves_a_timeline_of_the_last_steps(tmp_path):
    path, metrics = tmp_path / "run.timeline", tmp_path / "metrics.jsonl"
    more = train_arguments("--timeline", path, "--metrics", metrics, "--timeline-steps", 2, pp=2, dp=1)
    with trireme(*more, folder=tmp_path) as run:
        pids = run.wait_for_workers(2)
        run.wait_for_steps(metrics, 5)
        os.kill(pids[1], signal.SIGKILL)
        assert run.wait() == 1
        assert run.err.splitlines()[-1] == f"trireme: what each rank did last is in {path}; see trireme report"
    assert not list(tmp_path.glob("*.rank*"))
    assert " - " in path.read_text()
    steps = {int(step) for step in re.findall(r" step=(\d+)", path.read_text())}
    assert 1 <= len(steps) <= 3
    assert min(steps) >= 3


def test_a_run_that_is_killed_with_its_supervisor_leaves_the_parts(tmp_path):
    path, metrics = tmp_path / "run.timeline", tmp_path / "metrics.jsonl"
    path.write_text("of an earlier run")
    with trireme(*train_arguments("--timeline", path, "--metrics", metrics, pp=2, dp=1), folder=tmp_path) as run:
        pids = run.wait_for_workers(2)
        run.wait_for_steps(metrics, 3)
        for pid in [run.process.pid, *pids]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(processes.is_alive(pid) for pid in pids), "the end of the workers")
    assert not path.exists()
    assert sorted(file.name for file in tmp_path.glob("run.timeline*")) == ["run.timeline.rank0", "run.timeline.rank1"]


def test_wrong_requests_are_refused_in_a_sentence(tmp_path):
    def refusal(*more):
        return command.run(*train_arguments(*more, steps=1, pp=2, dp=1), code=2).stderr

    assert refusal("--timeline-steps", 3) == "trireme: --timeline-steps needs --timeline\n"
    assert refusal("--timeline", tmp_path) == f"trireme: --timeline {tmp_path}: this is a folder, not a file\n"
    nowhere = tmp_path / "none" / "run.timeline"
    assert refusal("--timeline", nowhere) == f"trireme: --timeline {nowhere}: there is no folder {nowhere.parent}\n"
