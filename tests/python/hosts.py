"""Hosts of `scripts/shaped` for tests: network namespaces with a host name and names of the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import command
import pytest

SHAPED = command.REPOSITORY / "scripts" / "shaped"
REMOVED_S = 60


def shaped(*arguments, code=0):
    """Runs scripts/shaped; the exit status must be `code`."""
    words = [sys.executable, SHAPED, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=REMOVED_S, check=False)
    assert done.returncode == code, f"exit {done.returncode} of {words}\n{done.stdout}{done.stderr}"
    return done


def need_namespaces():
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "unshare", "setpriv"))):
        pytest.skip("network namespaces need root, ip, tc, unshare and setpriv")
    probe = f"trireme-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"the kernel refuses network namespaces: {made.stderr.strip()}")
    subprocess.run(["ip", "netns", "delete", probe], check=True)


class Hosts:
    def __init__(self, name: str, up: str):
        self.name = name
        lines = [line.split() for line in up.splitlines()]
        self.addresses = {host: address for host, address, _ in lines}
        self.spaces = {host: space for host, _, space in lines}

    def inside(self, host, *arguments):
        """The words of a command on the host."""
        return [sys.executable, SHAPED, "exec", "--name", self.name, host, "--", *map(str, arguments)]

    def ip(self, host, *arguments):
        words = ["ip", "-n", self.spaces[host], *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=REMOVED_S, check=True).stdout


@contextmanager
def hosts_up(*options):
    need_namespaces()
    name = f"test-{os.getpid()}"
    try:
        yield Hosts(name, shaped("up", "--name", name, *options).stdout)
    finally:
        shaped("down", "--name", name)
