"""Hosts on this machine, as scripts/shaped has them: what they are, how they come up, change and go.

A host is a network namespace and, where it has a share of a core, a control group. Both have the name of the host, so
that what is left of a run that died is found by name.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

PREFIX = "trireme-shaped-"
FRAME_BYTES, PAYLOAD_BYTES, MTU = 9014, 8948, 9000
BUCKET_BYTES, QUEUE_BYTES = 12_000, 256_000_000
MASTER_PORT = 29500
GRACE_S = 5
NETWORK = ipaddress.ip_network("10.77.0.0/16")
MAX_HOSTS = 256
UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "kbit": 125, "mbit": 125e3, "gbit": 125e6}
# `ip netns exec` shows the files of /etc/netns/NAME as those of /etc.
HOST_FILES = Path("/etc/netns")
# Of control groups, version 1. A pass of some ms meets many periods, so that a share is as good as a slower core.
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US, SMALLEST_QUOTA_US = 10_000, 1_000
JOIN_GROUP = 'echo 0 >"$0" && exec "$@"'
BECOME_HOST = 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"'


class Refused(Exception):
    """What the user or the machine has wrong, in one sentence."""


class Stopped(Exception):
    """By a signal."""


class Signals:
    """What would end this process. An exception could be raised anywhere, so each is heard where `check` is called."""

    def __init__(self) -> None:
        self.number: int | None = None
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.hear)

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number

    def check(self) -> None:
        if self.number is not None:
            raise Stopped


@dataclass
class Link:
    ends: tuple[str, str]
    rate: float | None = None  # bytes of payload a second


@dataclass
class Layout:
    hosts: list[str]
    links: list[Link] = field(default_factory=list)
    core_share: float | None = None  # of each host's processes together; 1 is a whole core

    @property
    def switches(self) -> list[str]:
        ends = [end for link in self.links for end in link.ends]
        return list(dict.fromkeys(end for end in ends if end not in self.hosts))


def rate_of(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    try:
        rate = float(match[1]) * UNITS[match[2]]  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        raise Refused(f"--rate {text}: not a rate such as 25MB or 200mbit") from None
    return checked_rate(rate, f"--rate {text}")


def checked_rate(rate: float, what: str) -> float:
    if not 1e4 <= rate <= 1e10:
        raise Refused(f"{what}: tbf shapes 10 kB to 10 GB a second")
    return rate


def star(names: str, rate: float | None) -> Layout:
    hosts = [f"h{n}" for n in range(int(names))] if re.fullmatch("[0-9]{1,4}", names) else names.split(",")
    return Layout(hosts, [Link((host, "switch"), rate) for host in hosts])


def from_cluster(path: str) -> Layout:
    """The hosts and the network of a Cluster that `trireme simulate --cluster` takes."""
    import yaml  # only here, so that all else runs without it

    try:
        cluster = yaml.safe_load(Path(path).read_text())
        hosts = []
        for group in cluster["hosts"]:
            count = int(group.get("count", 1))
            hosts += [group["name"]] if count == 1 else [f"{group['name']}{n}" for n in range(count)]
        network = cluster["network"]
        return Layout(hosts, links_of(network, hosts))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{path}: no Cluster with hosts and a network: {type(error).__name__} {error}") from None


def links_of(network: dict, hosts: list[str]) -> list[Link]:
    if network["topology"] == "links":
        return [
            Link(tuple(link["between"]), checked_rate(float(link["bandwidth"]), f"link {link['between']}"))
            for link in network["links"]
        ]
    if network["topology"] != "fat-tree":
        raise Refused(f"topology {network['topology']}: shaped hosts are joined by links or a fat-tree")
    rate, leaf_size = float(network["bandwidth"]), int(network["hosts_per_switch"])
    links = [Link((host, f"leaf{n // leaf_size}"), rate) for n, host in enumerate(hosts)]
    leaves = list(dict.fromkeys(link.ends[1] for link in links))
    if len(leaves) > 1:
        up = rate * leaf_size / float(network.get("oversubscription", 1))
        links += [Link((leaf, "spine"), up) for leaf in leaves]
    return links


def check(layout: Layout) -> None:
    """Switches forward by bridging, which knows one path between any two hosts."""
    hosts = layout.hosts
    if not 1 <= len(hosts) <= MAX_HOSTS:
        raise Refused(f"{len(hosts)} hosts: 1 to {MAX_HOSTS} are shaped")
    if len(set(hosts)) < len(hosts):
        raise Refused("two hosts have one name")
    for name in hosts:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
            raise Refused(f"host {name!r}: a name has up to 32 small letters, digits and dashes")
    joined = {vertex: vertex for vertex in [*hosts, *layout.switches]}

    def root(vertex: str) -> str:
        while joined[vertex] != vertex:
            vertex = joined[vertex]
        return vertex

    for link in layout.links:
        first, second = (root(end) for end in link.ends)
        if first == second:
            raise Refused(f"link {' - '.join(link.ends)} closes a ring; shaped hosts have one path between two")
        joined[first] = second
    for host in hosts:
        if (count := sum(host in link.ends for link in layout.links)) > 1:
            raise Refused(f"host {host} has {count} links; a shaped host has one")
    if len({root(host) for host in hosts}) > 1:
        raise Refused("not all hosts are joined by links")
    check_share(layout.core_share)


def check_share(share: float | None) -> None:
    if share is None:
        return
    if not SMALLEST_QUOTA_US / PERIOD_US <= share <= 1:
        raise Refused(f"--core-share {share:g}: from {SMALLEST_QUOTA_US / PERIOD_US:g} to 1, a whole core")
    if not (CPU_GROUPS / "cpu.cfs_period_us").exists():
        raise Refused(f"--core-share needs control groups of version 1, and {CPU_GROUPS} has none")


def call(*words: object, text: str = "") -> str:
    done = subprocess.run([*map(str, words)], input=text, capture_output=True, text=True, check=False, process_group=0)
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, words[:6]))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def start_time(pid: int) -> str:
    """With the process id, what no other process has; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def run_name(name: str) -> str:
    return f"{name}.{os.getpid()}.{start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Of a run whose process is gone."""
    match = re.fullmatch(r".*\.(\d+)\.(\d+)", name)
    return match is not None and start_time(int(match[1])) != match[2]


def namespace(name: str, place: str) -> str:
    return f"{PREFIX}{name}_{place}"


def namespaces() -> dict[str, list[str]]:
    """Of each name those that exist."""
    found: dict[str, list[str]] = {}
    for entry in sorted(p.name for p in Path("/run/netns").glob(PREFIX + "*")):
        found.setdefault(entry.removeprefix(PREFIX).partition("_")[0], []).append(entry)
    for entry in sorted(p.name for p in HOST_FILES.glob(PREFIX + "*")):  # of one whose removal was cut short
        found.setdefault(entry.removeprefix(PREFIX).partition("_")[0], [])
    for entry in sorted(p.name for p in CPU_GROUPS.glob(PREFIX + "*")):
        found.setdefault(entry.removeprefix(PREFIX).partition("_")[0], [])
    return found


def address(number: int) -> str:
    return str(NETWORK.network_address + 1 + number)


def bring_up(name: str, layout: Layout, signals: Signals) -> None:
    switches = namespace(name, "switches_")  # no host ends in "_"
    bridges = {switch: f"s{n}" for n, switch in enumerate(layout.switches)}
    names = "127.0.0.1 localhost\n" + "".join(f"{address(n)} {host}\n" for n, host in enumerate(layout.hosts))
    for space in [switches, *(namespace(name, host) for host in layout.hosts)]:
        signals.check()
        (HOST_FILES / space).mkdir(parents=True)
        (HOST_FILES / space / "hosts").write_text(names)
        call("ip", "netns", "add", space)
    if layout.core_share is not None:
        for host in layout.hosts:
            limit_share(namespace(name, host), layout.core_share)
    made = "".join(f"link add {bridge} mtu {MTU} type bridge\nlink set {bridge} up\n" for bridge in bridges.values())
    call("ip", "-n", switches, "-batch", "-", text=made)
    for number, link in enumerate(layout.links):
        signals.check()
        ends = ends_of(name, layout, number)
        (space, device), (peer_space, peer) = ends
        call(
            *("ip", "-n", space, "link", "add", device, "mtu", MTU, "type", "veth"),
            *("peer", "name", peer, "mtu", MTU, "netns", peer_space),
        )
        for (space, device), end in zip(ends, link.ends, strict=True):
            if end in bridges:
                call("ip", "-n", space, "link", "set", device, "master", bridges[end], "up")
            if link.rate is not None:
                shape(space, device, link.rate)
    for number, host in enumerate(layout.hosts):
        lines = ["link set lo up"]
        if any(host in link.ends for link in layout.links):
            lines += [f"address add {address(number)}/{NETWORK.prefixlen} dev eth0", "link set eth0 up"]
        call("ip", "-n", namespace(name, host), "-batch", "-", text="\n".join(lines))


def ends_of(name: str, layout: Layout, number: int) -> list[tuple[str, str]]:
    """The namespace and the device of each end of a link."""
    ends = enumerate(layout.links[number].ends)
    return [
        (namespace(name, end), "eth0") if end in layout.hosts else (namespace(name, "switches_"), f"l{number}-{side}")
        for side, end in ends
    ]


def limit_share(group: str, share: float) -> None:
    folder = CPU_GROUPS / group
    folder.mkdir()
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (folder / "cpu.cfs_quota_us").write_text(str(round(PERIOD_US * share)))


def change_rate(name: str, layout: Layout, rate: float) -> None:
    """Of all links of hosts that are up, to bytes a second."""
    for number in range(len(layout.links)):
        for space, device in ends_of(name, layout, number):
            shape(space, device, rate)


def shape(space: str, device: str, rate: float) -> None:
    frames = round(8 * rate * FRAME_BYTES / PAYLOAD_BYTES)
    call(
        *("tc", "-n", space, "qdisc", "replace", "dev", device, "root"),
        *("tbf", "rate", f"{frames}bit", "burst", f"{BUCKET_BYTES}b", "limit", f"{QUEUE_BYTES}b"),
    )


def processes_on(spaces: list[str]) -> list[int]:
    found = []
    for space in spaces:
        listed = subprocess.run(
            ["ip", "netns", "pids", space], capture_output=True, text=True, check=False, process_group=0
        )
        found += [int(pid) for pid in listed.stdout.split()]
    return found


def processes_in(groups: list[Path]) -> list[int]:
    return [int(pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()]


def take_down(name: str) -> None:
    """Also what runs on its hosts."""
    spaces = namespaces().get(name, [])
    groups = list(CPU_GROUPS.glob(f"{PREFIX}{name}_*"))
    end = time.monotonic() + GRACE_S
    while (left := {*processes_on(spaces), *processes_in(groups)}) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    for space in spaces:
        subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False, process_group=0)
    for group in groups:
        with contextlib.suppress(OSError):  # reported below
            group.rmdir()
    for files in HOST_FILES.glob(f"{PREFIX}{name}_*"):
        shutil.rmtree(files, ignore_errors=True)
    if (left := namespaces().get(name)) is not None:
        raise Refused(f"{', '.join(left) or f'what {name} has in {HOST_FILES} or {CPU_GROUPS}'}: cannot be removed")


def join_share(name: str, host: str, pid: int) -> None:
    (CPU_GROUPS / namespace(name, host) / "cgroup.procs").write_text(str(pid))


def on_host(name: str, host: str, command: list[str], has_share: bool = True) -> list[str]:
    group = CPU_GROUPS / namespace(name, host)
    # Before the host is entered, which has a /sys of its own.
    join = ["sh", "-c", JOIN_GROUP, str(group / "cgroup.procs")] if has_share and group.exists() else []
    return [
        *join,
        *("ip", "netns", "exec", namespace(name, host)),
        *("unshare", "--uts", "sh", "-c", BECOME_HOST, host, *command),
    ]


def start_ranks(
    ranks: list[subprocess.Popen],
    name: str,
    hosts: list[str],
    ranks_per_host: int,
    command: list[str],
    has_share: bool = True,
    **popen: Any,
) -> None:
    """Adds them one by one, so that those that were started before one could not be are known."""
    for rank in range(len(hosts) * ranks_per_host):
        place = {
            "RANK": rank,
            "WORLD_SIZE": len(hosts) * ranks_per_host,
            "LOCAL_RANK": rank % ranks_per_host,
            "LOCAL_WORLD_SIZE": ranks_per_host,
            "MASTER_ADDR": address(0),
            "MASTER_PORT": MASTER_PORT,
        }
        ranks.append(
            subprocess.Popen(
                # Also where this process is ended by SIGKILL.
                ["setpriv", "--pdeathsig", "KILL", *on_host(name, hosts[rank // ranks_per_host], command, has_share)],
                env=os.environ | {variable: str(value) for variable, value in place.items()},
                process_group=0,  # Ctrl-C is for this process, which ends them
                **({"stdin": subprocess.DEVNULL} | popen),
            )
        )


def end_ranks(ranks: list[subprocess.Popen]) -> None:
    end = time.monotonic() + GRACE_S
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGTERM)
    for rank in ranks:
        try:
            rank.wait(max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def wait_for(ranks: list[subprocess.Popen], signals: Signals) -> int:
    """The status of the first that fails, as a shell says it, else 0."""
    while True:
        signals.check()
        codes = [rank.poll() for rank in ranks]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.01)
