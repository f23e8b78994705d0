"""Ranks on two hosts of scripts/shaped, joined by two virtual cables."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import command
import pytest
from hosts import Hosts, hosts_up
from processes import WORKER, Run, rank_name, train_arguments, wait_until

pytestmark = [pytest.mark.binary, pytest.mark.slow]

SILENCE_S = 3
MASTER = "10.77.0.1"
PORT = 29500  # each pair of hosts has all ports for itself


class TwoHosts:
    """a and b: 10.77.0.1 and 10.77.0.2 by eth0, and by a second cable 10.78.0.1 and 10.78.0.2 by eth1."""

    def __init__(self, hosts: Hosts):
        self.hosts = hosts
        self.ip("b", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", hosts.spaces["a"])
        for number, host in enumerate("ab", start=1):
            self.ip(host, "address", "add", f"10.78.0.{number}/24", "dev", "eth1")
            self.ip(host, "link", "set", "eth1", "up")

    def ip(self, host, *arguments):
        return self.hosts.ip(host, *arguments)

    def sent_bytes(self, host, cable):
        (link,) = json.loads(self.ip(host, "-j", "-s", "link", "show", "dev", cable))
        return link["stats64"]["tx"]["bytes"]

    def start(self, folder, host, command, environment=None):
        (folder / host).mkdir()
        return Run(self.hosts.inside(host, *command), folder / host, environment)

    def rank(self, folder, host, rank, *arguments):
        """A rank of two on the host; rank 0 is on a."""
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": MASTER, "MASTER_PORT": str(PORT)}
        return self.start(folder, host, [WORKER, *arguments], place)

    def torchrun(self, folder, host, *arguments, options):
        """Two of four ranks on the host."""
        launcher = [Path(sys.executable).with_name("torchrun"), "--no-python", "--nnodes", 2, "--nproc-per-node", 2]
        return self.start(folder, host, [*launcher, *options, WORKER, *arguments])

    def run(self, folder, *arguments):
        with self.rank(folder, "a", 0, *arguments) as first, self.rank(folder, "b", 1, *arguments) as second:
            assert first.wait() == 0, first.err
            assert second.wait() == 0, second.err
            return first.out


transports = pytest.mark.parametrize("transport", ["gloo", "direct"])


@pytest.fixture
def hosts():
    with hosts_up("--hosts", "a,b") as made:
        yield TwoHosts(made)


def metrics_and_weights(folder):
    metrics = [
        {
            key: value
            for key, value in line.items()
            if key not in ("seconds", "peak_bytes", "compute_cpu_seconds", "links")
        }
        for line in command.read_metrics(folder / "metrics.jsonl")
    ]
    return metrics, (folder / "w.safetensors").read_bytes()


@transports
@pytest.mark.parametrize(("pp", "dp"), [(2, 1), (1, 2)], ids=["two stages", "two replicas"])
def test_two_hosts_give_the_numbers_of_one(tmp_path, hosts, pp, dp, transport):
    results = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        outputs = ("--metrics", folder / "metrics.jsonl", "--save", folder / "w.safetensors")
        arguments = train_arguments(*outputs, "--transport", transport, steps=4, pp=pp, dp=dp)
        if name == "one":
            command.run(*arguments)
        else:
            hosts.run(folder, *arguments)
        results.append(metrics_and_weights(folder))
    assert results[0] == results[1]


@pytest.mark.parametrize(("kind", "transport"), [("static", "gloo"), ("c10d", "gloo"), ("c10d", "direct")])
def test_torchrun_on_two_hosts_gives_the_numbers_of_one(tmp_path, hosts, kind, transport):
    results = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        outputs = ("--metrics", folder / "metrics.jsonl", "--save", folder / "w.safetensors")
        arguments = train_arguments(*outputs, "--transport", transport, steps=4)
        if name == "one":
            command.run(*arguments)
        else:
            static = [("--master-addr", MASTER, "--master-port", PORT, "--node-rank", node) for node in range(2)]
            elastic = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{MASTER}:{PORT}", "--rdzv-id", "a")
            places = static if kind == "static" else [elastic, elastic]
            nodes = [
                hosts.torchrun(folder, h, *arguments, options=place) for h, place in zip("ab", places, strict=True)
            ]
            with nodes[0] as first, nodes[1] as second:
                assert first.wait() == 0, first.err
                assert second.wait() == 0, second.err
                assert "step 4/4  loss " in first.out + second.out
        results.append(metrics_and_weights(folder))
    assert results[0] == results[1]


@transports
def test_transfers_go_by_the_interface_to_rank_0_or_by_the_one_chosen(tmp_path, hosts, transport):
    arguments = train_arguments("--transport", transport, steps=4, dp=1)
    before = hosts.sent_bytes("b", "eth1")
    (tmp_path / "default").mkdir()
    hosts.run(tmp_path / "default", *arguments)
    assert hosts.sent_bytes("b", "eth1") - before < 4096
    before = [hosts.sent_bytes(host, "eth1") for host in "ab"]
    (tmp_path / "chosen").mkdir()
    hosts.run(tmp_path / "chosen", *arguments, "--interface", "eth1")
    # At least the activations of 4 steps of 16 samples in one direction, their gradients in the other.
    for host, sent in zip("ab", before, strict=True):
        assert hosts.sent_bytes(host, "eth1") - sent > 16 * 4 * 1024


@pytest.mark.parametrize("state", ["down", "without an address"])
def test_an_interface_of_no_use_is_one_sentence(tmp_path, hosts, state):
    hosts.ip("b", "link", "set", "eth1", "down")
    if state != "down":
        hosts.ip("b", "address", "flush", "dev", "eth1")
        hosts.ip("b", "link", "set", "eth1", "addrgenmode", "none")
        hosts.ip("b", "link", "set", "eth1", "up")
    with hosts.rank(tmp_path, "b", 1, *train_arguments(dp=1), "--interface", "eth1") as run:
        assert run.wait() == 2
        what = "is down" if state == "down" else "has no address"
        assert run.err == f"trireme-worker: --interface: interface eth1 of this host {what}\n"


@transports
@pytest.mark.parametrize("what", ["link down", "host gone"])
def test_a_host_that_cannot_be_reached_ends_the_run_and_is_named(tmp_path, hosts, what, transport):
    metrics = tmp_path / "metrics.jsonl"
    arguments = train_arguments("--transport", transport, "--metrics", metrics, "--silence-timeout", SILENCE_S, dp=1)
    with hosts.rank(tmp_path, "a", 0, *arguments) as first, hosts.rank(tmp_path, "b", 1, *arguments) as second:
        wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2, "steps")
        hosts.ip("b", "link", "set", "eth0", "down")
        if what == "host gone":
            second.process.kill()
        start = time.monotonic()
        assert first.wait() == 1
        # Silence, and what the hub waits for answers.
        assert time.monotonic() - start < 3 * (SILENCE_S + 2)
        said = first.err.splitlines()
        assert said[0] == f"{rank_name(1)} on b was lost: silent for {SILENCE_S} s"
        assert said[1].startswith(f"{rank_name(0)} on a was in ")
        if what == "link down":
            assert second.wait() == 1
            end = f" when {rank_name(0)} at 10.77.0.1 was silent for {SILENCE_S} s"
            assert second.err.startswith(f"{rank_name(1)} on b was in ")
            assert second.err.endswith(f"{end}\n")
