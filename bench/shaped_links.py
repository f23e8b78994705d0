"""What a link between two shaped hosts is, by plain TCP messages; hosts that stay up while a benchmark runs.

The hosts of a benchmark are those of scripts/shaped. Their links change their rate between runs; peers that stay are
started outside the hosts' shares of a core, and join them when they are ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import shaped_hosts  # noqa: E402

UNSHAPED = 2e9  # bytes a second: more than any contestant sends
SMALL_BYTES = 64

# Rank 1 sends to rank 0, which answers a byte; prints the median seconds by size. The first argument says how often.
MESSAGES = """
import json, os, socket, statistics, sys, time
rounds, *sizes = [int(word) for word in sys.argv[1:]]
def receive(peer, left):
    while left > 0:
        left -= len(peer.recv(min(left, 1 << 20)))
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(("0.0.0.0", 5000)).accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for size in sizes * rounds:
        receive(peer, size)
        peer.sendall(b"x")
else:
    for _ in range(1000):
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], 5000))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = {size: [] for size in sizes}
    for size in sizes * rounds:
        begin = time.monotonic()
        peer.sendall(bytes(size))
        receive(peer, 1)
        times[size].append(time.monotonic() - begin)
    print(json.dumps([statistics.median(times[size]) for size in sizes]))
"""


def message_command(rounds: int, sizes: tuple[int, int]) -> list[str]:
    return [sys.executable, "-c", MESSAGES, *map(str, (rounds, SMALL_BYTES, *sizes))]


def link_of(answer: str, sizes: tuple[int, int]) -> tuple[float, float]:
    """Seconds of latency and bytes a second, from what message_command printed."""
    small, less, more = json.loads(answer)
    return small / 2, (sizes[1] - sizes[0]) / (more - less)


def cluster_text(hosts: int, latency: float, bandwidth: float, core_share: float = 1) -> str:
    """Half of the latency at each end; a rank reaches its host at once."""
    share = f", core_share: {core_share}, share_period: {shaped_hosts.PERIOD_US / 1e6}" if core_share < 1 else ""
    return f"""\
format: trireme-cluster-1
name: shaped hosts
device_kinds: {{core: {{flops: {{float32: 1e9}}, memory: 1e12, bandwidth: 1e9{share}}}}}
host_kinds: {{host: {{device: core, link: {{bandwidth: 1e13}}}}}}
hosts: [{{name: h, kind: host, count: {hosts}}}]
network: {{topology: fat-tree, bandwidth: {bandwidth}, latency: {latency / 2}, hosts_per_switch: {hosts}}}
"""


class Hosts:
    """Hosts h0, h1, ... with a rank each. In a `with` block; whatever ends it, they are gone."""

    def __init__(self, name: str, count: int, core_share: float) -> None:
        self.layout = shaped_hosts.star(str(count), UNSHAPED)
        self.layout.core_share = core_share
        self.kind = name
        self.name = shaped_hosts.run_name(name)
        self.signals = shaped_hosts.Signals()
        self.peers: list[Peer] = []

    def __enter__(self) -> Hosts:
        if os.geteuid() != 0:
            sys.exit("bench: network namespaces need root")
        try:
            shaped_hosts.check(self.layout)
            for left in filter(shaped_hosts.is_dead, shaped_hosts.namespaces()):
                if left.startswith(f"{self.kind}."):
                    shaped_hosts.take_down(left)
            shaped_hosts.bring_up(self.name, self.layout, self.signals)
        except BaseException as error:
            shaped_hosts.take_down(self.name)
            self.translate(error)
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for peer in list(self.peers):
            peer.close()
        shaped_hosts.take_down(self.name)
        self.translate(error)

    def translate(self, error: BaseException | None) -> None:
        """What ends the program is a sentence or a status."""
        if isinstance(error, shaped_hosts.Stopped):
            raise SystemExit(128 + (self.signals.number or 0)) from None
        if isinstance(error, shaped_hosts.Refused):
            raise SystemExit(f"bench: {error}") from None

    def set_rate(self, rate: float) -> None:
        shaped_hosts.change_rate(self.name, self.layout, rate)

    def counters(self, host: str) -> dict[str, int]:
        """The bytes that the host's device has sent and received, headers included."""
        space = shaped_hosts.namespace(self.name, host)
        said = shaped_hosts.call("ip", "-n", space, "-j", "-s", "link", "show", "dev", "eth0")
        stats = json.loads(said)[0]["stats64"]
        return {"sent": stats["tx"]["bytes"], "received": stats["rx"]["bytes"]}

    def run(self, command: list[Any], what: str, limit_s: float, count: int | None = None, **start: Any) -> list[str]:
        """Runs the command as the rank of each of the first `count` hosts; what each prints. It prints little."""
        ranks: list[subprocess.Popen] = []
        hosts = self.layout.hosts[:count]
        end = time.monotonic() + limit_s
        try:
            words = [str(word) for word in command]
            shaped_hosts.start_ranks(ranks, self.name, hosts, 1, words, stdout=subprocess.PIPE, text=True, **start)
            while (codes := [rank.poll() for rank in ranks]) != [0] * len(ranks):
                self.signals.check()
                if failed := [(rank, code) for rank, code in enumerate(codes) if code]:
                    sys.exit(f"bench: {what}: rank {failed[0][0]} ended with {failed[0][1]}")
                if time.monotonic() > end:
                    sys.exit(f"bench: {what} has not ended within {limit_s:g} s")
                time.sleep(0.01)
            return [rank.stdout.read() for rank in ranks if rank.stdout]
        finally:
            shaped_hosts.end_ranks(ranks)
            for rank in ranks:
                if rank.stdout:
                    rank.stdout.close()

    def measure_link(self, rate: float) -> tuple[float, float]:
        """Seconds of latency and bytes a second between two hosts, with all of a core; takes about 2 s."""
        less = max(round(rate * 0.1), 30_000)
        sizes = (less, less + round(rate * 0.3))
        what = f"a stream at {rate / 1e6:.2f} MB/s"
        return link_of(self.run(message_command(3, sizes), what, 60, count=2, has_share=False)[1], sizes)


class Peer:
    """The ranks of a peer (peer.py) on the hosts."""

    def __init__(self, hosts: Hosts, what: str, command: list[Any], environment: dict[str, str]) -> None:
        self.hosts, self.what = hosts, what
        self.ranks: list[subprocess.Popen] = []
        hosts.peers.append(self)
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *map(str, command)]
        names = hosts.layout.hosts
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        shaped_hosts.start_ranks(self.ranks, hosts.name, names, 1, words, has_share=False, **pipes)
        for answer in self.answers(limit_s=180):
            if answer != "ready\n":
                sys.exit(f"bench: {what} said {answer!r} instead of ready")
        for host, rank in zip(names, self.ranks, strict=True):
            shaped_hosts.join_share(hosts.name, host, rank.pid)

    def train(self, steps: int, limit_s: float) -> list[dict[str, list[Any]]]:
        """Of each rank the seconds and losses of the next steps."""
        for rank in self.ranks:
            with contextlib.suppress(BrokenPipeError):  # one that has ended does not answer
                rank.stdin.write(f"{steps}\n")
                rank.stdin.flush()
        return [json.loads(answer) for answer in self.answers(limit_s)]

    def answers(self, limit_s: float) -> list[str]:
        """A line of each rank."""
        end = time.monotonic() + limit_s
        found: dict[int, str] = {}
        while len(found) < len(self.ranks):
            self.hosts.signals.check()
            if time.monotonic() > end:
                sys.exit(f"bench: {self.what} has not answered within {limit_s:g} s")
            waiting = {rank.stdout: number for number, rank in enumerate(self.ranks) if number not in found}
            for stream in select.select(list(waiting), [], [], 0.05)[0]:
                found[waiting[stream]] = line = stream.readline()
                if not line:
                    sys.exit(f"bench: rank {waiting[stream]} of {self.what} has ended")
        return [found[number] for number in range(len(self.ranks))]

    def close(self) -> None:
        self.hosts.peers.remove(self)
        for rank in self.ranks:
            with contextlib.suppress(BrokenPipeError):
                rank.stdin.close()  # it ends by itself
        shaped_hosts.end_ranks(self.ranks)
        for rank in self.ranks:
            rank.stdout.close()
