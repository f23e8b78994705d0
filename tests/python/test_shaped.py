"""`scripts/shaped`: hosts with links of stated rates, of which nothing is left behind, however a run ends."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import SHAPED, hosts_up, need_namespaces, shaped
from processes import Run, seeded_random, wait_until

pytestmark = [pytest.mark.slow]

# Sends SIZE bytes four times over the link; prints the shortest time of a message that an answer confirms.
MESSAGES = """
import os, socket, sys, time
size = int(sys.argv[1])
if os.environ["RANK"] == "0":
    server = socket.create_server(("0.0.0.0", 5000))
    peer, _ = server.accept()
    for _ in range(4):
        left = size
        while left > 0:
            left -= len(peer.recv(min(left, 1 << 20)))
        peer.sendall(b"x")
elif os.environ["RANK"] == os.environ["SENDER"]:
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], 5000))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    times = []
    for _ in range(4):
        begin = time.monotonic()
        peer.sendall(bytes(size))
        peer.recv(1)
        times.append(time.monotonic() - begin)
    print(min(times))
"""


CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
NAME = f"test-{os.getpid()}"  # tests run beside each other


SHARE = ("--core-share", 0.5) if CPU_GROUPS.exists() else ()
# Is busy for a second in two processes, and says how much time of a core they had.
BUSY = """
import os, time
end = time.monotonic() + 1
os.fork()
while time.monotonic() < end:
    pass
os.write(1, f"{time.process_time()} ".encode())
"""


@pytest.fixture(autouse=True)
def nothing_is_left():
    need_namespaces()
    yield
    assert left() == set()


def left():
    """Namespaces, their files, control groups, and processes of `shaped` or of what it runs."""
    folders = ("/run/netns", "/etc/netns", CPU_GROUPS)
    found = {str(p) for folder in folders for p in Path(folder).glob(f"trireme-shaped-{NAME}*")}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"SHAPED_TEST={NAME}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.add(f"{entry.name} {(entry / 'cmdline').read_bytes()}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def run_on(*arguments, code=0):
    return shaped("run", "--name", NAME, *arguments, code=code)


def start(tmp_path, verb, *arguments):
    return Run([sys.executable, SHAPED, verb, "--name", NAME, *arguments], tmp_path, {"SHAPED_TEST": NAME})


def test_each_rank_knows_its_place_and_the_other_hosts():
    say = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $(hostname) $(getent hosts b | cut -d" " -f1)"'
    done = run_on("--hosts", "a,b", "--ranks-per-host", 2, "--", "sh", "-c", say)
    assert sorted(done.stdout.splitlines()) == [
        "0 4 0 2 10.77.0.1 a 10.77.0.2",
        "1 4 1 2 10.77.0.1 a 10.77.0.2",
        "2 4 0 2 10.77.0.1 b 10.77.0.2",
        "3 4 1 2 10.77.0.1 b 10.77.0.2",
    ]


def test_a_rank_that_fails_ends_the_others_and_is_the_status():
    fail_one = 'if [ "$RANK" = 1 ]; then exit 3; fi; sleep 1000 & sleep 1000'
    begin = time.monotonic()
    run_on("--hosts", 3, "--", "sh", "-c", fail_one, code=3)
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_ranks_that_do_not_hear_it(tmp_path, number):
    deaf = f'trap "" TERM INT HUP; touch {tmp_path}/$RANK; while true; do sleep 1000; done'
    with start(tmp_path, "run", "--hosts", 2, "--", "sh", "-c", deaf) as run:
        wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), "ranks")
        run.process.send_signal(number)
        assert run.wait() == 128 + number
        assert run.err == ""


@pytest.mark.parametrize("verb", ["run", "up"])
def test_a_signal_at_any_time_leaves_nothing(tmp_path, verb):
    chance: random.Random = seeded_random()
    more = ("--", "sleep", "1000") if verb == "run" else ()
    for _ in range(4):
        with start(tmp_path, verb, "--hosts", 6, "--rate", "25MB", *SHARE, *more) as run:
            time.sleep(chance.uniform(0.1, 0.6))
            run.process.terminate()
            status = run.wait()
            assert status in (128 + signal.SIGTERM, -signal.SIGTERM, 0)
        if status == 0:
            shaped("down", "--name", NAME)
        assert left() == set()


def test_what_a_killed_run_leaves_is_found_by_its_name(tmp_path):
    script = f"touch {tmp_path}/$RANK; sleep 1000"
    with start(tmp_path, "run", "--hosts", 2, *SHARE, "--", "sh", "-c", script) as run:
        wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), "ranks")
        shaped("down", "--name", NAME, "--dead")
        assert run.process.poll() is None  # one that lives is left alone
        run.process.kill()
        run.process.wait()
    assert left() != set()
    shaped("down", "--name", NAME, "--dead")
    assert left() == set()


def two_switches(rate):
    return json.dumps(
        {
            "hosts": [{"name": "h", "kind": "box", "count": 2}, {"name": "far", "kind": "box"}],
            "network": {
                "topology": "links",
                "links": [
                    {"between": ["h0", "near"], "bandwidth": 16e6, "latency": 1e-5},
                    {"between": ["near", "h1"], "bandwidth": 16e6, "latency": 1e-5},
                    {"between": ["near", "away"], "bandwidth": rate, "latency": 1e-5},
                    {"between": ["far", "away"], "bandwidth": 16e6, "latency": 1e-5},
                ],
            },
        }
    )


@pytest.mark.alone
@pytest.mark.parametrize(("rate", "stated"), [("5MB", 5e6), ("100mbit", 12.5e6)])
def test_a_link_has_the_stated_rate(rate, stated):
    # A bucket of each of the two ends passes at once.
    size = int(stated / 4)
    script = ("env", "SENDER=1", sys.executable, "-c", MESSAGES, size)
    done = run_on("--hosts", 2, "--rate", rate, "--", *script)
    assert float(done.stdout) == pytest.approx(size / stated, rel=0.05)


@pytest.mark.alone
@pytest.mark.parametrize(("sender", "stated"), [(1, 16e6), (2, 4e6)])
def test_links_of_a_cluster_have_the_rates_of_its_file(tmp_path, sender, stated):
    """h1 sends to h0 over their switch, `far` over the slow hop."""
    (tmp_path / "cluster.yaml").write_text(two_switches(4e6))
    size = int(stated / 5)
    script = ("env", f"SENDER={sender}", sys.executable, "-c", MESSAGES, size)
    done = run_on("--cluster", tmp_path / "cluster.yaml", "--", *script)
    assert float(done.stdout) == pytest.approx(size / stated, rel=0.05)


@pytest.mark.alone
@pytest.mark.skipif(not SHARE, reason="no control groups of version 1")
def test_the_processes_of_a_host_share_a_part_of_a_core():
    busy = ("--", sys.executable, "-c", BUSY)
    spent = [float(line) for line in run_on("--hosts", 1, "--core-share", 0.4, *busy).stdout.split()]
    assert len(spent) == 2
    assert sum(spent) < 1.1 * 0.4


def test_a_share_needs_control_groups_of_version_1(tmp_path):
    words = f"shaped_hosts.CPU_GROUPS = pathlib.Path({str(tmp_path)!r}); shaped_hosts.check_share(0.5)"
    done = subprocess.run(
        [sys.executable, "-c", f"import pathlib, shaped_hosts; {words}"],
        env=os.environ | {"PYTHONPATH": str(SHAPED.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"shaped_hosts.Refused: --core-share needs control groups of version 1, and {tmp_path} has none"
    assert done.stderr.splitlines()[-1] == said


def test_hosts_stay_up_until_they_are_taken_down(tmp_path):
    with hosts_up("--hosts", "a,b") as hosts:
        said = subprocess.run(hosts.inside("b", "hostname"), capture_output=True, text=True, timeout=60, check=True)
        assert said.stdout == "b\n"
        again = shaped("up", "--name", hosts.name, "--hosts", 2, code=2)
        assert again.stderr == f"shaped: {hosts.name} is up already; scripts/shaped down --name {hosts.name}\n"
        assert shaped("exec", "--name", hosts.name, "c", "--", "true", code=2).stderr == (
            f"shaped: {hosts.name} has no host c\n"
        )
        assert subprocess.run(hosts.inside("a", "false"), timeout=60, check=False).returncode == 1


LINK = "{between: [%s], bandwidth: 1e6, latency: 1e-5}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hosts", 2, "--rate", "fast"), "--rate fast: not a rate such as 25MB or 200mbit"),
        (("--hosts", 2, "--rate", "1kB"), "--rate 1kB: tbf shapes 10 kB to 10 GB a second"),
        (("--hosts", 0), "0 hosts: 1 to 256 are shaped"),
        (("--hosts", 2, "--core-share", 1.5), "--core-share 1.5: from 0.1 to 1, a whole core"),
        (("--hosts", "a,a"), "two hosts have one name"),
        (("--hosts", "a,../b"), "host '../b': a name has up to 32 small letters, digits and dashes"),
        (("--hosts", 2, "--ranks-per-host", 0), "--ranks-per-host 0: a host has 1 to 256"),
        (("--cluster", "nowhere.yaml"), "nowhere.yaml: No such file or directory"),
        ("hosts: [{name: a}, {name: b}]", "CLUSTER: no Cluster with hosts and a network: KeyError 'network'"),
        (
            "{hosts: [{name: a}], network: {topology: torus}}",
            "topology torus: shaped hosts are joined by links or a fat-tree",
        ),
        (
            "{hosts: [{name: a}, {name: b}], network: {topology: links, links: [LINK-a,s]}}",
            "not all hosts are joined by links",
        ),
        (
            "{hosts: [{name: a}, {name: b}], network: {topology: links, links: [LINK-a,s, LINK-s,t, LINK-t,a]}}",
            "link t - a closes a ring; shaped hosts have one path between two",
        ),
        (
            "{hosts: [{name: a}, {name: b}], network: {topology: links, links: [LINK-a,s, LINK-a,t]}}",
            "host a has 2 links; a shaped host has one",
        ),
    ],
)
def test_what_cannot_be_shaped_is_one_sentence(tmp_path, arguments, said):
    if isinstance(arguments, str):
        cluster = tmp_path / "cluster.yaml"
        cluster.write_text(re.sub(r"LINK-(\w),(\w)", lambda match: LINK % f"{match[1]}, {match[2]}", arguments))
        arguments = ("--cluster", cluster)
        said = said.replace("CLUSTER", str(cluster))
    assert run_on(*arguments, "--", "true", code=2).stderr == f"shaped: {said}\n"
