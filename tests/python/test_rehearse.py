"""`trireme rehearse`: real ranks and messages, passes that only take their time."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import command
import pytest
from hosts import need_namespaces, shaped
from processes import END_S, WORKER, trireme, wait_until
from test_simulate import CLUSTER

pytestmark = [pytest.mark.binary, pytest.mark.slow]

# Two stages with passes of 3 ms and 6 ms.
COSTS = """\
format: trireme-step-costs-1
stages:
  - &stage
    chunks: [{forward_ns: 3000000, backward_ns: 6000000, input_gradient_ns: 3000000, weight_gradient_ns: 3000000,
              activation_bytes: 300000, gradient_bytes: 200000, kept_bytes: 300000}]
    update_ns: 1000000
    bucket_bytes: [100000]
  - *stage
scalar_bytes: 16
"""
NETWORK = CLUSTER.replace("bandwidth: 1000,", "bandwidth: 1e9, latency: 1e-4,").replace("count: 4", "count: 16")


@pytest.fixture
def costs(tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS)
    (tmp_path / "cluster.yaml").write_text(NETWORK)
    return ["--costs", tmp_path / "costs.yaml", "--cluster", tmp_path / "cluster.yaml"]


def rehearse(*arguments):
    return json.loads(command.run("rehearse", *arguments, "--json", "--quiet").stdout)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "2bw"])
@pytest.mark.parametrize("transport", ["gloo", "direct"])
def test_ranks_compute_for_the_time_of_their_passes(costs, schedule, transport):
    options = (schedule, *costs, "--micro-batches", 3, "--dp", 2)
    found = rehearse(*options, "--steps", 2, "--transport", transport)
    simulated = json.loads(command.run("simulate", *options, "--json").stdout)
    assert found["simulated_step_ns"] == simulated["step_ns"]
    assert len(found["steps_ns"]) == 2
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    for rank in found["ranks"]:
        assert rank["compute_ns"] - rank["late_ns"] == pytest.approx(3 * 9e6 + 1e6)
        assert rank["late_ns"] >= 0
        assert rank["simulated_wait_ns"] == simulated["step_ns"] - (3 * 9e6 + 1e6)
    # No message arrives before it was made: the last stage begins with a wait for a forward, unless steps overlap.
    assert min(found["steps_ns"]) >= (0 if schedule == "2bw" else 3e6) + 3 * 9e6 + 1e6


def test_steps_that_overlap_are_rehearsed_without_a_break(costs):
    """One stage waits for nothing; a break between steps would be two forwards or more of the other."""
    fast = (*costs, "--micro-batches", 4, "--steps", 6, "--transport", "direct")
    overlapping, flushing = rehearse("2bw", *fast), rehearse("1f1b", *fast)
    late = sum(rank["late_ns"] for rank in overlapping["ranks"])
    assert overlapping["rehearsed_step_ns"] < overlapping["simulated_step_ns"] + 3e6 + late
    assert flushing["simulated_step_ns"] - overlapping["simulated_step_ns"] >= 9e6


def test_a_model_is_rehearsed_by_its_plan(tmp_path):
    options = (command.DATA / "nanogpt.f32.pt2", "--pp", 2, "--micro-batches", 2, "--micro-batch", 2)
    timeline = tmp_path / "run.timeline"
    done = command.run("rehearse", *options, "--steps", 3, "--timeline", timeline)
    assert "simulated step " in done.stdout
    assert "rehearsed step " in done.stdout
    report = json.loads(command.run("report", timeline, "--json").stdout)
    assert len(report["ranks"]) == 2
    assert report["steps"] == 4  # with the one that warms up


def test_sixteen_ranks_start_in_seconds(costs):
    begin = time.monotonic()
    found = rehearse("1f1b", *costs, "--dp", 8, "--micro-batches", 2, "--steps", 1)
    assert len(found["ranks"]) == 16
    assert time.monotonic() - begin < 30  # 8 s on two busy cores


def test_hosts_of_shaped_rehearse_under_its_launcher(costs):
    need_namespaces()
    words = (WORKER, "rehearse", "1f1b", *costs, "--micro-batches", 2, "--steps", 1, "--json", "--quiet")
    done = shaped("run", "--name", "rehearsal", "--hosts", 2, "--rate", "10MB", "--", *words)
    found = json.loads(done.stdout)
    # Four messages one way at 10 MB/s after the first forward, at least.
    assert found["rehearsed_step_ns"] > 2 * 300000 / 10e6 * 1e9


def test_a_rank_that_is_killed_ends_the_rehearsal(tmp_path, costs):
    long = (tmp_path / "costs.yaml").read_text().replace("forward_ns: 3000000,", "forward_ns: 30000000000,")
    (tmp_path / "costs.yaml").write_text(long)
    with trireme("rehearse", "1f1b", *costs, "--steps", 100, folder=tmp_path) as run:
        workers = run.wait_for_workers(2)
        wait_until(lambda: "trireme" not in run.err, "start")
        time_of_kill = time.monotonic()
        subprocess.run(["kill", "-9", str(workers[1])], check=True)
        assert run.wait() == 1
        assert time.monotonic() - time_of_kill < 3 * END_S
        assert (
            run.err.splitlines()[0] == f"rank 1 (stage 1, replica 0) died: killed by signal {signal.SIGKILL} (SIGKILL)"
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1f1b",), "rehearse needs a MODEL.pt2, or a schedule with --costs or --model, and not both"),
        (("1f1b", "--costs", "none.yaml"), "cannot open none.yaml: No such file or directory"),
        (("1f1b", "--costs", "COSTS", "--timeline", "COSTS"), "--timeline COSTS would overwrite --costs"),
        (
            ("1f1b", "--costs", "COSTS", "--steps", 0),
            "--steps: 0 is not a whole number of at least 1; see trireme rehearse --help",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_one_sentence(costs, arguments, said):
    path = str(costs[1])
    arguments = [path if each == "COSTS" else each for each in arguments]
    assert command.run("rehearse", *arguments, code=2).stderr == f"trireme: {said.replace('COSTS', path)}\n"
