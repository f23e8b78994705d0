"""`trireme probe`: what it measures of ranks and links, as a cluster that the other commands read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import command
import pytest
import yaml
from hosts import need_namespaces, shaped
from processes import END_S, WORKER, trireme

pytestmark = [pytest.mark.binary, pytest.mark.slow]


def probe(*arguments, code=0):
    return command.run("probe", "--budget", "2s", *arguments, code=code)


@pytest.mark.parametrize("transport", ["gloo", "direct"])
def test_two_ranks_become_a_cluster_that_simulate_reads(tmp_path, transport):
    path = tmp_path / "cluster.yaml"
    done = probe("-o", path, "--transport", transport)
    cluster = yaml.safe_load(path.read_text())
    (device,) = cluster["device_kinds"].values()
    assert set(device["flops"]) == {"float32", "float64", "bfloat16"}
    assert 1e8 < device["flops"]["float32"] < 1e13
    assert 1e8 < device["bandwidth"] < 1e12
    assert 1e-8 < device["launch"] < 1e-3
    (host,) = cluster["host_kinds"].values()
    assert host["devices"] == 2
    assert 1e-7 < host["link"]["latency"] < 1e-2
    assert 1e7 < host["link"]["bandwidth"] < 1e11
    assert 0 < host["link"]["cpu_per_byte"] < 1e-6
    assert f"messages over {transport}, one at a time:" in done.stdout
    assert re.search(r"ranks 0 and 1: [\d.]+ us \([\d.]+ \.\. [\d.]+\), [\d.e+]+ MB/s", done.stdout)
    assert "the ranks of " in done.stdout
    model = command.DATA / "nanogpt.f32.pt2"
    told = command.run("simulate", model, "--pp", 2, "--micro-batch", 2, "--cluster", path, "--json").stdout
    assert json.loads(told)["step_ns"] > 0


def test_without_a_file_the_cluster_goes_to_stdout_and_progress_does_not():
    done = probe("--workers", 3)
    assert yaml.safe_load(done.stdout)["format"] == "trireme-cluster-1"
    assert "step " in done.stderr
    assert json.loads(probe("--json", "--quiet").stdout).keys() == {"table", "cluster", "notes"}


def test_one_rank_has_a_processor_and_no_links():
    cluster = yaml.safe_load(probe("--workers", 1, "--quiet").stdout)
    (host,) = cluster["host_kinds"].values()
    assert host["devices"] == 1
    assert "has one rank, so the link of a device to it is assumed" in probe("--workers", 1, "--quiet").stdout


def test_links_between_hosts_have_the_rates_that_shape_them(tmp_path):
    need_namespaces()
    path = tmp_path / "cluster.yaml"
    options = ["--hosts", 3, "--rate", "20MB", "--ranks-per-host", 2]
    words = [WORKER, "probe", "--budget", "8s", "--transport", "direct", "-o", path]
    done = shaped("run", *options, "--", *words)
    cluster = yaml.safe_load(path.read_text())
    assert [host["name"] for host in cluster["hosts"]] == ["h0", "h1", "h2"]
    assert {kind["devices"] for kind in cluster["host_kinds"].values()} == {2}
    assert len(cluster["network"]["links"]) == 3
    for link in cluster["network"]["links"]:
        assert link["bandwidth"] == pytest.approx(20e6, rel=0.1)
        assert link.get("latency", 0) < 1e-2
    assert "a rank of each host, 3 members: " in done.stdout
    assert "all ranks, 6 members: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0s"], "'0s' is no time such as 30s, 2m or 1h, up to 1e6 seconds"),
        (["--workers", "0"], "--workers: 0 is not a whole number of at least 1"),
        (["-o", "/nonexistent/c.yaml"], "-o /nonexistent/c.yaml: there is no folder /nonexistent"),
    ],
)
def test_wrong_requests_are_refused(arguments, message):
    done = command.run("probe", *arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_no_cluster_is_not_overwritten(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    done = probe("-o", path, code=2)
    assert done.stderr == (
        f"trireme: -o {path}: this file is no cluster, so it is not overwritten; remove it or name another\n"
    )
    assert path.read_text() == "mine"


def test_workers_that_are_not_those_of_the_launcher_are_refused():
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29411"}
    done = subprocess.run(
        [WORKER, "probe", "--workers", "3"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "has started 2 ranks, but --workers says 3; leave it out" in done.stderr


def test_a_rank_that_dies_ends_the_probe_and_is_named(tmp_path):
    with trireme("probe", "--workers", 3, "--budget", "1m", folder=tmp_path) as run:
        workers = run.wait_for_workers(3)
        time_of_kill = time.monotonic()
        os.kill(workers[2], signal.SIGKILL)
        assert run.wait() == 1
        assert time.monotonic() - time_of_kill < 3 * END_S
        assert run.err.splitlines()[0].endswith(" died: killed by signal 9 (SIGKILL)")
        assert run.err.startswith("rank 2 (")
        assert run.out == ""
