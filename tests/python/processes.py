"""Starts `trireme` or a launcher of its workers as its users do, and looks at what it started."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import command

WORKER = command.BINARY.with_name("trireme-worker")
STEPS_FOR_EVER = 10**8
DEADLINE_S = 60  # for what must happen, however busy the machine is
END_S = 5  # from a failure or a signal to the end of the last process
# A shell that starts tests in the background, or nohup, lets all that they start ignore SIGINT or SIGHUP.
HEARS_SIGNALS = ("env", "--default-signal=HUP,INT,TERM")
NANOGPT = (command.DATA / "nanogpt.f32.pt2", "--data", f"safetensors:{command.DATA / 'nanogpt.data.safetensors'}")


def train_arguments(*more: Any, steps: int = STEPS_FOR_EVER, pp: int = 2, dp: int = 2) -> list[str]:
    """A training run of four small ranks."""
    return [str(a) for a in ("train", *NANOGPT, "--batch", 16, "--steps", steps, "--pp", pp, "--dp", dp, *more)]


def seeded_random() -> random.Random:
    seed = int(os.environ.get("TRIREME_SEED", random.SystemRandom().randrange(2**32)))
    print(f"TRIREME_SEED={seed}")
    return random.Random(seed)


def wait_until(condition, what: str, deadline_s: float = DEADLINE_S):
    """The first true value of `condition`."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what}: not within {deadline_s} s")


def state(pid: int) -> str:
    """The letter of /proc; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def listening_sockets(pids: list[int]) -> set[str]:
    """The inodes of listening TCP sockets that one of the processes holds."""
    held = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                held.add(os.readlink(link))
            except FileNotFoundError:
                continue
    return {inode for inode in all_listening_sockets() if f"socket:[{inode}]" in held}


def all_listening_sockets() -> set[str]:
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {fields[9] for fields in lines if fields[3] == "0A"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Run:
    """A command in a process group of its own; ends with its workers when the `with` block does."""

    def __init__(self, arguments: list[Any], folder: Path, environment: dict[str, str] | None = None, **popen: Any):
        self.out_path, self.err_path = folder / "stdout", folder / "stderr"
        out, err = self.out_path.open("wb"), self.err_path.open("wb")
        self.process = subprocess.Popen(
            [*HEARS_SIGNALS, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=popen.pop("stdout", out),
            stderr=err,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
            process_group=0,
            **popen,
        )
        out.close()
        err.close()
        self.seen: set[int] = set()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.seen:
            if self.is_worker(pid):
                os.kill(pid, signal.SIGKILL)

    @property
    def out(self) -> str:
        return self.out_path.read_text()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    @staticmethod
    def is_worker(pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/exe") == str(WORKER)
        except (FileNotFoundError, ProcessLookupError):
            return False

    def workers(self) -> dict[int, int]:
        """The process of each rank that runs."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if parent(pid) != self.process.pid or not self.is_worker(pid):
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            for variable in variables:
                if variable.startswith(b"RANK="):
                    found[int(variable[5:])] = pid
        self.seen |= set(found.values())
        return found

    def wait_for_workers(self, count: int = 4) -> list[int]:
        def all_there():
            assert self.process.poll() is None, self.err
            found = self.workers()
            return [found[rank] for rank in range(count)] if len(found) == count else None

        return wait_until(all_there, "start of the workers")

    def wait_for_steps(self, metrics: Path, count: int = 1) -> None:
        def written():
            assert self.process.poll() is None, self.err
            return metrics.exists() and metrics.read_bytes().count(b"\n") >= count

        wait_until(written, f"step {count}")

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {deadline_s} s\n{self.err}") from None

    def expect_end(self, pids: list[int], since: float) -> int:
        """The exit status; everything must be gone END_S after `since`."""
        status = self.wait(END_S)
        left = [pid for pid in pids if is_alive(pid)]
        assert not left, left
        assert time.monotonic() - since < END_S
        return status


def trireme(*arguments: Any, folder: Path, **more: Any) -> Run:
    return Run([command.BINARY, *arguments], folder, **more)


def rank_name(rank: int, pp: int = 2) -> str:
    return f"rank {rank} (stage {rank % pp}, replica {rank // pp})"


# "rank 1 (stage 1, replica 0) was in RA0 (activations of micro-batch 0 from rank 0)"
ACTION = re.compile(r" was in [A-Z]+\d* \(.+\)$")


def expect_report(lines: list[str], dead: int, cause: str, num_ranks: int = 4) -> None:
    """The last lines of a run: who died of what, and what every other rank was doing."""
    assert lines[0] == f"{rank_name(dead)} died: {cause}"
    assert len(lines) == num_ranks, lines
    others = [rank for rank in range(num_ranks) if rank != dead]
    for rank, line in zip(others, lines[1:], strict=True):
        assert re.match(re.escape(rank_name(rank)) + " (was|had) ", line), lines
