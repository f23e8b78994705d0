"""A system that refuses memory, threads, processes or files ends a run with a sentence, not with a core."""

from __future__ import annotations

import os
import resource
import subprocess

import command
import processes
import pytest

pytestmark = [pytest.mark.binary, pytest.mark.slow]

MIB = 1 << 20
NOBODY_ELSE = 54321  # a user without processes: the limit counts those of a user


def limited(kind, soft, *arguments, hard=None, user=None, program=command.BINARY, **popen):
    def limit():
        resource.setrlimit(kind, (soft, soft if hard is None else hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)

    words = [str(a) for a in (program, *arguments)]
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=command.TIMEOUT_S,
        preexec_fn=limit,
        check=False,
        **popen,
    )


def train(*more):
    return processes.train_arguments("--quiet", *more, steps=1)


def expect_words(result):
    if result.returncode != 0:
        assert result.returncode in (1, 2, 127), (result.returncode, result.stderr)  # 127: of the system's loader
        assert result.stderr.strip(), result.returncode
        assert "SIG" not in result.stderr, result.stderr
        assert "terminate" not in result.stderr and "internal error" not in result.stderr, result.stderr
    return result


def test_a_folder_of_more_files_than_may_be_open(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(300):
        (folder / f"{i:03}").write_bytes(bytes(10))
    data = f"bytes:{folder}"
    model, saved = command.DATA / "demo_gpt.f32.pt2", tmp_path / "saved.safetensors"
    where = [
        "--data",
        data,
        "--eval-data",
        data,
        "--batch",
        10,
        "--steps",
        30,
        "--workers",
        1,
        "--quiet",
        "--save",
        saved,
    ]
    for soft in (40, 100):
        result = limited(resource.RLIMIT_NOFILE, soft, "train", model, *where)
        assert (result.returncode, result.stderr) == (0, "")


def test_metrics_that_outgrow_their_disk_end_with_a_whole_line(tmp_path):
    """A limit of the size of files, whose signal is ignored, is a disk that gets full in the middle of a line."""
    metrics, saved = tmp_path / "metrics.jsonl", tmp_path / "saved.safetensors"
    model, data = command.DATA / "mlp.f32.pt2", f"safetensors:{command.DATA / 'mlp.f32.data.safetensors'}"
    where = ["--data", data, "--batch", 8, "--steps", 600, "--quiet", "--metrics", metrics, "--save", saved]
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(processes.free_port())}
    worker = {"program": processes.WORKER, "env": os.environ | place, "restore_signals": False}
    result = limited(resource.RLIMIT_FSIZE, 40_001, "train", model, *where, **worker)
    fault = f"cannot write {metrics}: File too large"
    failure = f"{processes.rank_name(0, 1)} failed: {fault}; the weights of step 600 are in {saved}"
    assert (result.returncode, result.stderr) == (1, f"{fault}; training goes on\n{failure}\n")
    lines = command.read_metrics(metrics)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert 300 < len(lines) < 600


@pytest.mark.parametrize("workers", [1, 4])
def test_too_few_open_files(workers):
    needed = 16 + 3 * workers
    said = "trireme: a process of this run needs {} open files, but may have {}; raise the limit (ulimit -n), or use fewer "
    for soft in (12, needed - 1):
        result = limited(resource.RLIMIT_NOFILE, soft, *train("--workers", workers))
        assert (result.returncode, result.stderr) == (2, said.format(needed, soft) + "ranks\n")
    assert limited(resource.RLIMIT_NOFILE, needed, *train("--workers", workers)).returncode == 0
    assert limited(resource.RLIMIT_NOFILE, 10, *train("--workers", workers), hard=needed).returncode == 0
    for soft in range(3, 10):
        expect_words(limited(resource.RLIMIT_NOFILE, soft, *train("--workers", workers)))


@pytest.mark.parametrize("workers", [1, 4])
def test_too_little_memory(workers):
    codes = [
        expect_words(limited(resource.RLIMIT_AS, size * MIB, *train("--workers", workers))).returncode
        for size in (40, 150, 400, 450, 500, 550, 600, 700)
    ]
    assert codes[0] != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of another user")
@pytest.mark.parametrize("workers", [1, 4])
def test_too_few_threads(workers):
    version = limited(resource.RLIMIT_NPROC, 100, "--version", user=NOBODY_ELSE)
    assert version.returncode == 0, "the build must be readable for all users"
    results = [
        expect_words(limited(resource.RLIMIT_NPROC, count, *train("--workers", workers), user=NOBODY_ELSE))
        for count in (1, 2, 3, 4, 5, 6, 8, 12, 16, 20)
    ]
    said = "; raise the limit of this process (ulimit -a), or use less\n"
    assert results[0].stderr == "trireme: the system starts no further thread" + said
    assert results[1].stderr == "trireme: cannot start a process: Resource temporarily unavailable\n"
