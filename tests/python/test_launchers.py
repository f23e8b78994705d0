"""The workers under torchrun: the same numbers, and the same words when a rank dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import command
import processes
import pytest
from processes import ACTION, Run, expect_report, free_port, rank_name, train_arguments, wait_until

pytestmark = [pytest.mark.binary, pytest.mark.slow]

NOBODY_SAID = "its control connection ended"  # torchrun alone knows of what a process died


def torchrun(*arguments, folder, options=(), num_ranks=4):
    """Ranks on this machine."""
    options = options or ("--master-port", free_port())
    launcher = [Path(sys.executable).with_name("torchrun"), "--no-python"]
    return Run([*launcher, "--nproc-per-node", num_ranks, *options, processes.WORKER, *arguments], folder)


def worker(environment, *arguments):
    """A rank that something starts with these variables alone."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    start = time.monotonic()
    result = subprocess.run(
        [processes.WORKER, *arguments], env=kept | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - start < 10
    return result


def without_time(metrics):
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "peak_bytes", "compute_cpu_seconds")}
        for line in metrics
    ]


def expected_metrics(tmp_path, steps):
    path = tmp_path / "expected.jsonl"
    command.run(*train_arguments("--metrics", path, "--quiet", steps=steps))
    return without_time(command.read_metrics(path))


@pytest.mark.parametrize("options", [(), ("--standalone",)], ids=["static", "standalone"])
def test_torchrun_gives_the_same_numbers(tmp_path, options):
    metrics = tmp_path / "metrics.jsonl"
    with torchrun(*train_arguments("--metrics", metrics, steps=8), folder=tmp_path, options=options) as run:
        assert run.wait() == 0, run.err
        assert run.out.startswith("step 1/8  loss ")
        assert "step 8/8  loss " in run.out
    assert without_time(command.read_metrics(metrics)) == expected_metrics(tmp_path, 8)


def test_two_nodes_give_the_same_numbers(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    port = free_port()
    folders = [tmp_path / "0", tmp_path / "1"]
    nodes = []
    for node, folder in enumerate(folders):
        folder.mkdir()
        options = ("--nnodes", 2, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port)
        arguments = train_arguments("--metrics", metrics, steps=4)
        nodes.append(torchrun(*arguments, folder=folder, options=options, num_ranks=2))
    with nodes[0] as first, nodes[1] as second:
        assert first.wait() == 0, first.err
        assert second.wait() == 0, second.err
    assert without_time(command.read_metrics(metrics)) == expected_metrics(tmp_path, 4)


def test_eval_prints_its_result_once(tmp_path):
    arguments = ("eval", *processes.NANOGPT, "--batch", 16, "--pp", 2)
    expected = command.run(*arguments)
    with torchrun(*arguments, folder=tmp_path, num_ranks=2) as run:
        assert run.wait() == 0, run.err
        assert run.out == expected.stdout
        assert run.out.startswith("eval loss ")


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_is_named(tmp_path, rank):
    metrics = tmp_path / "metrics.jsonl"
    with torchrun(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics, 3)
        os.kill(pids[rank], signal.SIGKILL)
        wait_until(lambda: not any(map(processes.is_alive, pids)), "end of the ranks", processes.END_S)
        assert run.wait() != 0
        said = [line for line in run.err.splitlines() if line.startswith("rank ")]
    if rank > 0:
        expect_report(said, rank, NOBODY_SAID)
        assert any(ACTION.search(line) for line in said[1:]), said
    else:
        end = f" when the connection to {rank_name(0)} ended"
        assert sorted(line.partition(" was in ")[0] for line in said) == [rank_name(r) for r in (1, 2, 3)]
        assert all(line.endswith(end) for line in said)
        assert any(ACTION.search(line.removesuffix(end)) for line in said), said


def test_ranks_that_the_launcher_stops_are_heard(tmp_path):
    """However late: rank 0 hears only afterwards that a rank has died and the others were stopped."""
    metrics = tmp_path / "metrics.jsonl"
    runs = plain_ranks(tmp_path, *[train_arguments("--metrics", metrics)] * 4)
    with runs[0] as run, runs[1], runs[2], runs[3]:
        run.wait_for_steps(metrics, 3)
        os.kill(run.process.pid, signal.SIGSTOP)
        runs[1].process.kill()
        runs[1].process.wait()  # the others are stopped because it has ended, not while it ends
        for stopped in runs[2:]:
            stopped.process.terminate()
        # Longer than the last words of a rank that nobody asks; one whose peer has left may end at once.
        with contextlib.suppress(subprocess.TimeoutExpired):
            runs[2].process.wait(1.5)
        os.kill(run.process.pid, signal.SIGCONT)
        assert run.wait() == 1
        said = [line for line in run.err.splitlines() if line.startswith("rank ")]
    expect_report(said, 1, NOBODY_SAID)
    assert all(ACTION.search(line) for line in said[2:]), said


def test_a_stopped_run_says_so(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    with torchrun(*train_arguments("--metrics", metrics), folder=tmp_path) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics, 1)
        run.process.terminate()
        wait_until(lambda: not any(map(processes.is_alive, pids)), "end of the ranks", processes.END_S)
        run.wait()
        said = [line for line in run.err.splitlines() if line.startswith("rank ")]
    assert len(said) == 4, said
    assert said[0].endswith(
        " failed: stopped by SIGTERM, which launchers send when they are stopped or another rank has ended"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_says_so_once(tmp_path, rank):
    metrics = tmp_path / "metrics.jsonl"
    runs = plain_ranks(tmp_path, *[train_arguments("--metrics", metrics, dp=1)] * 2)
    with runs[0] as first, runs[1] as second:
        first.wait_for_steps(metrics, 1)
        runs[rank].process.terminate()
        assert first.wait() == 1
        assert second.wait() == 1
        said = [line for line in first.err.splitlines() if line.startswith("rank ")]
    stopped = "failed: stopped by SIGTERM, which launchers send when they are stopped or another rank has ended"
    assert said[0] == f"{rank_name(rank)} {stopped}"
    assert len(said) == 2, said
    assert second.err == ""


def test_a_rank_that_fails_is_named(tmp_path):
    with torchrun(*train_arguments("--lr", 1e30, steps=50), folder=tmp_path) as run:
        assert run.wait() != 0
        said = [line for line in run.err.splitlines() if line.startswith("rank ")]
    assert len(said) == 4
    assert f" failed: the loss of step 2 is not finite, first on {rank_name(1)}" in said[0]


def test_an_elastic_restart_starts_again(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    options = ("--max-restarts", 1, "--master-port", free_port())
    with torchrun(*train_arguments("--metrics", metrics, steps=150), folder=tmp_path, options=options) as run:
        pids = run.wait_for_workers()
        run.wait_for_steps(metrics, 2)
        os.kill(pids[1], signal.SIGKILL)
        assert run.wait() == 0, run.err
    assert [line["step"] for line in command.read_metrics(metrics)] == list(range(1, 151))


@pytest.mark.parametrize(
    ("num_ranks", "more", "sentence"),
    [
        (3, (), "trireme-worker: torchrun has started 3 ranks, but the plan has pp x dp = 4 ranks"),
        (4, ("--wrong",), "trireme-worker: train does not take --wrong; see trireme-worker train --help"),
    ],
)
def test_a_wrong_request_is_refused_once(tmp_path, num_ranks, more, sentence):
    with torchrun(*train_arguments(*more), folder=tmp_path, num_ranks=num_ranks) as run:
        assert run.wait() != 0
        said = [line for line in run.err.splitlines() if line.startswith("trireme-worker")]
    assert len(said) == 1
    assert said[0].startswith(sentence)


def test_only_the_first_rank_of_a_machine_refuses_a_wrong_request(tmp_path):
    runs = []
    for name in ("first", "stopped", "alone"):
        (tmp_path / name).mkdir()
        place = {"LOCAL_RANK": str(len(runs))}
        runs.append(Run([processes.WORKER, *train_arguments("--wrong")], tmp_path / name, place))
    sentence = "trireme-worker: train does not take --wrong; see trireme-worker train --help\n"
    first, stopped, alone = runs
    with first, stopped, alone:
        assert (first.wait(), first.err) == (2, sentence)
        # A launcher would have ended the first one if these had ended before it.
        assert stopped.process.poll() is None
        assert alone.process.poll() is None
        stopped.process.terminate()
        assert stopped.wait() != 0
        assert stopped.err == ""
        # Its launcher does not end it, so it can be the only one that is wrong.
        assert (alone.wait(), alone.err) == (2, sentence)


PLACE = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


# launchers_test.cc has the sentences of all variables of all launchers.
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"MASTER_PORT": None},
            "MASTER_PORT is not set, but RANK of torchrun is; start ranks by trireme train, or by torchrun --no-python",
        ),
        ({"RANK": "one"}, "RANK is 'one', not a number from 0 to 1000000"),
        ({"WORLD_SIZE": "2"}, "torchrun has started 2 ranks, but the plan has pp x dp = 4 ranks"),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
            "RANK is 1, but OMPI_COMM_WORLD_RANK of Open MPI is 2; unset RANK",
        ),
    ],
)
def test_a_wrong_place_is_one_sentence(change, sentence):
    variables = {name: value for name, value in (PLACE | change).items() if value is not None}
    refused = worker(variables, *train_arguments())
    assert (refused.returncode, refused.stderr) == (2, f"trireme-worker: {sentence}\n")


def test_only_the_rank_that_writes_needs_the_folder(tmp_path):
    missing = tmp_path / "nowhere" / "w"
    refused = worker(PLACE | {"RANK": "0"}, *train_arguments("--save", missing))
    sentence = f"trireme-worker: --save {missing}: there is no folder {missing.parent}\n"
    assert (refused.returncode, refused.stderr) == (2, sentence)
    # Rank 1 goes on to the next mistake.
    refused = worker(PLACE | {"WORLD_SIZE": "2"}, *train_arguments("--save", missing))
    assert refused.stderr == "trireme-worker: torchrun has started 2 ranks, but the plan has pp x dp = 4 ranks\n"


def plain_ranks(tmp_path, *arguments_of_ranks):
    """Ranks that no launcher started: rank 0 serves the store itself."""
    port = free_port()
    runs = []
    for rank, arguments in enumerate(arguments_of_ranks):
        folder = tmp_path / str(rank)
        folder.mkdir()
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(arguments_of_ranks))}
        place |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        runs.append(Run([processes.WORKER, *arguments], folder, place))
    return runs


def test_ranks_need_no_launcher(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    arguments = train_arguments("--metrics", metrics, steps=4, dp=1)
    first, second = plain_ranks(tmp_path, arguments, arguments)
    with first, second:
        assert first.wait() == 0, first.err
        assert second.wait() == 0, second.err
    assert len(command.read_metrics(metrics)) == 4


def test_ranks_with_other_arguments_than_rank_0_are_refused(tmp_path):
    first, second = plain_ranks(tmp_path, train_arguments(dp=1), train_arguments("--seed", 1, dp=1))
    with first, second:
        assert first.wait() == 1
        assert second.wait() == 1
        assert first.err.splitlines()[0] == (
            f"{rank_name(1)} failed: the model, the plan, the options or the number of samples are not those of "
            "rank 0; start all ranks with the same arguments and files"
        )
        assert second.err == ""


def test_a_master_that_does_not_exist_is_one_sentence():
    refused = worker(PLACE | {"MASTER_ADDR": "no.such.host.invalid"}, *train_arguments())
    name = f"{rank_name(1)} on {socket.gethostname()}"
    sentence = f"{name}: cannot resolve host no.such.host.invalid: Name or service not known\n"
    assert (refused.returncode, refused.stderr) == (1, sentence)


MPI = {
    "Open MPI": ("mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"),
    "MPICH": ("mpiexec.hydra",),
}


@pytest.mark.parametrize("name", list(MPI))
def test_mpi_gives_the_same_numbers(tmp_path, name):
    metrics = tmp_path / "metrics.jsonl"
    arguments = train_arguments("--metrics", metrics, steps=4)
    with Run([*MPI[name], "-n", 4, processes.WORKER, *arguments], tmp_path) as run:
        assert run.wait() == 0, run.err
        assert "step 4/4  loss " in run.out
    assert without_time(command.read_metrics(metrics)) == expected_metrics(tmp_path, 4)


@pytest.mark.parametrize("name", list(MPI))
def test_mpi_with_another_number_of_ranks_than_the_plan_is_refused(tmp_path, name):
    with Run([*MPI[name], "-n", 2, processes.WORKER, *train_arguments()], tmp_path) as run:
        assert run.wait() != 0
        said = {line for line in run.err.splitlines() if line.startswith("trireme-worker")}
    assert said == {f"trireme-worker: {name} has started 2 ranks, but the plan has pp x dp = 4 ranks"}


def slurm_step(rank):
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": str(rank),
        "SLURM_JOB_NODELIST": socket.gethostname(),
        "SLURM_JOB_ID": str(os.getpid()),
    }


def indexed_job(port):
    def place(rank):
        return {
            "JOB_COMPLETION_INDEX": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": socket.gethostname(),
            "MASTER_PORT": str(port),
        }

    return place


@pytest.mark.parametrize("name", ["SLURM", "Kubernetes"])
def test_variables_of_a_cluster_give_the_same_numbers(tmp_path, name):
    metrics = tmp_path / "metrics.jsonl"
    place = slurm_step if name == "SLURM" else indexed_job(free_port())
    runs = []
    for rank in range(2):
        folder = tmp_path / str(rank)
        folder.mkdir()
        arguments = train_arguments("--metrics", metrics, steps=4, dp=1)
        runs.append(Run([processes.WORKER, *arguments], folder, place(rank)))
    with runs[0] as first, runs[1] as second:
        assert first.wait() == 0, first.err
        assert second.wait() == 0, second.err
    expected = tmp_path / "expected.jsonl"
    command.run(*train_arguments("--metrics", expected, "--quiet", steps=4, dp=1))
    assert without_time(command.read_metrics(metrics)) == without_time(command.read_metrics(expected))
