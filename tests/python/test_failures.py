"""A run that cannot go on ends at once, leaves nothing behind, and says which rank was the cause."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import command
import processes
import pytest
import torch
from processes import ACTION, expect_report, is_alive, rank_name, train_arguments, trireme, wait_until
from safetensors.torch import load_file

pytestmark = [pytest.mark.binary, pytest.mark.slow]

KILLS_A_RANK = 5
KILLED = "killed by signal 9 (SIGKILL)"


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("rank", range(4))
def test_a_killed_rank_ends_the_run_and_is_named(tmp_path, metrics, rank):
    """At random moments: every other time after the first step, else from the start of the processes on."""
    random = processes.seeded_random()
    for turn in range(KILLS_A_RANK):
        metrics.unlink(missing_ok=True)
        with trireme(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
            pids = run.wait_for_workers()
            if is_training := turn % 2 == 0:
                run.wait_for_steps(metrics)
            time.sleep(random.uniform(0, 1))
            killed = time.monotonic()
            os.kill(pids[rank], signal.SIGKILL)
            assert run.expect_end(pids, killed) == 1
            lines = run.err.splitlines()[-4:]
            expect_report(lines, rank, KILLED)
            if is_training:
                assert any(ACTION.search(line) for line in lines[1:]), lines


def test_a_killed_rank_is_named_with_what_the_others_waited_for(tmp_path, metrics):
    """Stopped first, so that all others wait for it by the time it is killed."""
    with trireme(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics, 2)
        os.kill(pids[3], signal.SIGSTOP)
        size = -1
        while size != (size := metrics.stat().st_size):
            time.sleep(0.3)
        os.kill(pids[3], signal.SIGKILL)
        assert run.wait() == 1
        lines = run.err.splitlines()[-4:]
        expect_report(lines, 3, KILLED)
        assert all(ACTION.search(line) for line in lines[1:]), lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("reaches", ["supervisor", "group"])
def test_a_signal_ends_everything_with_its_status(tmp_path, metrics, number, reaches):
    saved = tmp_path / "out" / "saved.safetensors"
    saved.parent.mkdir()
    arguments = train_arguments("--metrics", metrics, "--save", saved, "--save-every", 1)
    with trireme(*arguments, folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics, 3)
        sockets = processes.listening_sockets([run.process.pid, *pids])
        assert sockets
        since = time.monotonic()
        (os.killpg if reaches == "group" else os.kill)(run.process.pid, number)
        assert run.expect_end(pids, since) == 128 + number
    assert not sockets & processes.all_listening_sockets()
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert "died" not in run.err


def test_ctrl_c_before_the_first_step_ends_everything(tmp_path):
    random = processes.seeded_random()
    for _ in range(4):
        with trireme(*train_arguments(), folder=tmp_path) as run:
            pids = run.wait_for_workers()
            time.sleep(random.uniform(0, 0.8))
            since = time.monotonic()
            os.killpg(run.process.pid, signal.SIGINT)
            assert run.expect_end(pids, since) == 130


def test_ctrl_c_ends_a_stopped_rank(tmp_path, metrics):
    with trireme(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics)
        os.kill(pids[2], signal.SIGSTOP)
        since = time.monotonic()
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.expect_end(pids, since) == 130


def test_a_supervisor_that_was_stopped_too_long_is_named(tmp_path, metrics):
    arguments = train_arguments("--metrics", metrics, "--silence-timeout", 2)
    with trireme(*arguments, folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics)
        os.kill(run.process.pid, signal.SIGSTOP)
        wait_until(lambda: not any(map(is_alive, pids)), "end of the workers")
        os.kill(run.process.pid, signal.SIGCONT)
        assert run.wait() == 1
        said = [line for line in run.err.splitlines() if line.startswith("rank ")]
    assert said[0].endswith(" failed: trireme train was silent for 2 s"), said
    assert len(said) == 4


def test_no_worker_outlives_a_killed_supervisor(tmp_path, metrics):
    with trireme(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics)
        os.kill(run.process.pid, signal.SIGKILL)
        run.wait()
        wait_until(lambda: not any(map(is_alive, pids)), "end of the workers", processes.END_S)


def test_a_loss_that_is_not_finite_ends_the_run_with_the_weights_of_the_step_before(tmp_path):
    good, saved = tmp_path / "good.safetensors", tmp_path / "saved.safetensors"
    layout = ("--lr", 1e30, "--quiet")
    command.run(*train_arguments(*layout, "--save", good, steps=1))
    failed = command.run(*train_arguments(*layout, "--save", saved, "--save-every", 1, steps=50), code=1)
    lines = failed.stderr.splitlines()[-4:]
    reason = f"failed: the loss of step 2 is not finite, first on {rank_name(1)}; the weights of step 1 are in {saved}"
    assert lines[0] == f"{rank_name(0)} {reason}"
    expected, found = load_file(good), load_file(saved)
    assert all(torch.equal(expected[name], found[name]) for name in expected)

    saved.unlink()
    command.run(*train_arguments(*layout, "--save", saved, steps=50), code=1)
    expected, found = load_file(good), load_file(saved)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("option", ["--save", "--metrics", "--grad-norms"])
def test_what_cannot_be_written_is_refused_before_the_run(tmp_path, option):
    missing = tmp_path / "nowhere" / "file"
    refused = command.run(*train_arguments(option, missing), code=2)
    assert refused.stderr == f"trireme: {option} {missing}: there is no folder {missing.parent}\n"
    refused = command.run(*train_arguments(option, tmp_path), code=2)
    assert refused.stderr == f"trireme: {option} {tmp_path}: this is a folder, not a file\n"
    assert refused.stdout == ""


def test_a_refused_run_leaves_the_files_of_the_last_one(tmp_path, metrics):
    metrics.write_text("the last run's\n")
    command.run(*train_arguments("--metrics", metrics, "--save", tmp_path / "nowhere" / "file"), code=2)
    command.run(*train_arguments("--metrics", metrics, "--init", tmp_path / "nothing"), code=2)
    assert metrics.read_text() == "the last run's\n"


def test_a_plan_that_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "nowhere" / "plan.yaml"
    refused = command.run("plan", processes.NANOGPT[0], "--pp", 2, "-o", path, code=2)
    assert refused.stderr == f"trireme: -o {path}: there is no folder {path.parent}\n"
    assert refused.stdout == ""


def test_a_missing_worker_program_is_one_sentence(tmp_path):
    alone = tmp_path / "trireme"
    alone.write_bytes(command.BINARY.read_bytes())
    alone.chmod(0o755)
    result = subprocess.run([alone, *train_arguments()], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stderr == f"trireme: cannot start {tmp_path}/trireme-worker: No such file or directory\n"


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path, metrics):
    reading, writing = os.pipe()
    with trireme(*train_arguments("--metrics", metrics, steps=30), folder=tmp_path, stdout=writing) as run:
        os.close(writing)
        with os.fdopen(reading) as output:
            assert output.readline().startswith("step 1/30 ")
        assert run.wait() == 0
    assert len(command.read_metrics(metrics)) == 30


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_is_killed_while_it_saves_leaves_the_last_file_whole(tmp_path, metrics, rank):
    random = processes.seeded_random()
    saved = tmp_path / "out" / "saved.safetensors"
    saved.parent.mkdir()
    foreign = saved.with_name(saved.name + ".12345.tmp")
    foreign.write_text("of somebody else")
    names = None
    for _ in range(4):
        metrics.unlink(missing_ok=True)
        arguments = train_arguments("--metrics", metrics, "--save", saved, "--save-every", 1)
        with trireme(*arguments, folder=tmp_path) as run:
            pids = run.wait_for_workers()
            run.wait_for_steps(metrics, 2)
            time.sleep(random.uniform(0, 0.2))
            os.kill(pids[rank], signal.SIGKILL)
            assert run.wait() == 1
        assert {path.name for path in saved.parent.iterdir()} == {saved.name, foreign.name}
        names = names or set(load_file(saved))
        assert set(load_file(saved)) == names
    assert foreign.read_text() == "of somebody else"
