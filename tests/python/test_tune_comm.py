"""`trireme tune-comm`: every policy on a simulated step, and the one that is picked."""

from __future__ import annotations

import json

import command
import pytest
from chain import Chain
from test_simulate import CLUSTER, COSTS

pytestmark = pytest.mark.binary

SLOW = """\
format: trireme-cluster-1
name: slow
device_kinds:
  core: {flops: {float32: 1e11, float64: 5e10, bfloat16: 1e11}, memory: 8e9, bandwidth: 1e10, launch: 1e-6}
host_kinds:
  box: {device: core, devices: 1, link: {bandwidth: 1e10, latency: 1e-6}}
hosts:
  - {name: h, kind: box, count: 16}
network: {topology: fat-tree, hosts_per_switch: 16, bandwidth: 1.25e8, latency: 2e-5}
"""
GPT = "gpt:layers=8,hidden=512,heads=8,seq=256,vocab=8192"


def tune(*arguments):
    return json.loads(command.run("tune-comm", *arguments, "--json").stdout)


def refusal(*arguments):
    result = command.run("tune-comm", *arguments, code=2)
    assert result.stdout == ""
    return result.stderr.removeprefix("trireme: ").removesuffix("\n")


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "slow.yaml"
    path.write_text(SLOW)
    return path


@pytest.mark.parametrize("schedule", ["1f1b", "2bw"])
def test_the_pick_is_the_shortest_step_that_can_run(cluster, schedule):
    found = tune(schedule, "--model", GPT, "--pp", 2, "--dp", 4, "--micro-batches", 4, "--cluster", cluster)
    steps = [one["step_ns"] for one in found["tried"]]
    assert steps == sorted(steps)
    assert found["compute_ns"] <= steps[0]
    can_run = [one for one in found["tried"] if one["policy"] in {"end", "fifo", "trirace"}]
    assert found["pick"]["step_ns"] <= 1.001 * can_run[0]["step_ns"]
    end = min(one["step_ns"] for one in found["tried"] if one["policy"] == "end")
    assert found["pick"]["step_ns"] < end


def test_the_pick_of_a_model_is_written_into_its_plan(own_model, cluster, tmp_path):
    archive, plan = own_model(Chain).archive, tmp_path / "plan.yaml"
    options = ["--dp", 2, "--micro-batch", 2, "--cluster", cluster, "-o", plan]
    table = command.run("tune-comm", archive, *options).stdout
    words = next(line for line in table.splitlines() if line.startswith("pick: --comm ")).replace(",", "").split()
    assert f"communication: {words[2]}\n" in plan.read_text()
    assert words[3] != "--bucket-bytes" or f"bucket_bytes: {words[4]}\n" in plan.read_text()
    again = command.run("simulate", archive, "--plan", plan, "--micro-batch", 2, "--cluster", cluster).stdout
    assert "step" in again


def test_what_has_nothing_to_tune_is_refused(cluster, tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS)
    (tmp_path / "two.yaml").write_text(CLUSTER)
    costs = ["--costs", tmp_path / "costs.yaml"]
    assert refusal("1f1b", *costs, "--cluster", cluster) == (
        "one replica sums no gradients, so there is nothing to tune; give --dp"
    )
    assert refusal("1f1b", "--dp", 16, *costs, "--cluster", cluster) == (
        "the schedule has 32 ranks, but the cluster 16 devices"
    )
    assert refusal("forward-only", "--dp", 2, *costs, "--cluster", cluster) == (
        "an evaluation sums no gradients, so there is nothing to tune; name a schedule of training"
    )
    assert refusal("1f1b", "--dp", 2, *costs, "--cluster", cluster, "-o", tmp_path / "plan.yaml") == (
        "-o writes the plan of a MODEL.pt2; a schedule has none"
    )
