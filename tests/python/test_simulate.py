"""`trireme simulate`: the table, the JSON and the timeline, against arithmetic written out here."""

from __future__ import annotations

import json
import re

import command
import pytest
import yaml

pytestmark = pytest.mark.binary

EXAMPLES = command.REPOSITORY / "examples"
# Two stages with passes of 2 s and 4 s, that send 500 bytes each way.
COSTS = """\
format: trireme-step-costs-1
stages:
  - &stage
    chunks: [{forward_ns: 2000000000, backward_ns: 4000000000, activation_bytes: 500, gradient_bytes: 500,
              kept_bytes: 1000}]
    bucket_bytes: [3000]
    static_bytes: 50
  - *stage
"""
# 1000 bytes a second.
CLUSTER = """\
format: trireme-cluster-1
device_kinds: {d: {flops: {float32: 1e12}, memory: 4000, bandwidth: 1e12}}
host_kinds: {h: {device: d, link: {bandwidth: 1e15}}}
hosts: [{name: n, kind: h, count: 4}]
network: {topology: fat-tree, bandwidth: 1000, hosts_per_switch: 4}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return ["--costs", tmp_path / "costs.yaml", "--cluster", tmp_path / "cluster.yaml"]


def simulate(*arguments):
    return json.loads(command.run("simulate", *arguments, "--json").stdout)


def test_a_step_of_gpipe_is_its_closed_form_and_its_transfers(files):
    found = simulate("gpipe", *files, "--micro-batches", 3)
    assert found["free_network_step_ns"] == (3 + 1) * 6 * 10**9
    # The first activation and the last gradient are waited for, half a second each; the others are hidden.
    assert found["step_ns"] == found["free_network_step_ns"] + 10**9
    assert [rank["compute_ns"] for rank in found["ranks"]] == [18 * 10**9] * 2
    assert found["bubble_rate"] == pytest.approx(1 - 18 / 25)
    assert found["ranks"][1] == {
        "host": "n1",
        "compute_ns": 18 * 10**9,
        "peak_bytes": 50 + 3 * 1000 + 500,
        "device_bytes": 4000,
    }


def test_replicas_sum_their_gradients(files):
    alone, both, fair = (
        simulate("1f1b", *files, "--dp", dp, "--micro-batches", 2, *options)["step_ns"]
        for dp, options in ((1, []), (2, []), (2, ["--fair-links"]))
    )
    # A ring of two: 2 (2 - 1) / 2 x 3000 bytes. Stage 0 has its gradients last.
    assert both - alone == 3 * 10**9
    # The last gradient that stage 1 sends, of half a second, shares its link with the sum of stage 1.
    assert fair - both == 5 * 10**8


def test_a_schedule_may_be_a_file(files, tmp_path):
    own = tmp_path / "own.schedule"
    own.write_text("schedule own stages=2 micro-batches=1\nrank 0: F0 SA0 RG0 B0 SC0 U\nrank 1: RA0 F0 B0 SG0 SC0 U\n")
    assert simulate(own, *files)["step_ns"] == 13 * 10**9


def test_the_report_reads_what_was_simulated(files, tmp_path):
    timeline = tmp_path / "step.timeline"
    step = simulate("1f1b", *files, "--micro-batches", 4, "-o", timeline)
    report = json.loads(command.run("report", timeline, "--json").stdout)
    assert report["wall_ns"] == step["step_ns"]
    assert [rank["compute_ns"] for rank in report["ranks"]] == [rank["compute_ns"] for rank in step["ranks"]]


@pytest.mark.parametrize("name", ["interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "greedy", "forward-only"])
def test_every_schedule_runs(name):
    found = simulate(
        *(name, "--cluster", EXAMPLES / "clusters" / "dgx-a100-pod.yaml"),
        *("--model", "gpt:layers=16,hidden=1024,heads=16,seq=512,vocab=50257", "--pp", 4, "--micro-batches", 8),
        *(["--chunks", 2] if name == "interleaved" else []),
    )
    assert 0.2 < found["compute_share"] < 1
    assert len(found["ranks"]) == 4


def test_a_model_may_be_given_by_its_sizes():
    pod = ["--cluster", EXAMPLES / "clusters" / "dgx-a100-pod.yaml"]
    sizes = "gpt:layers=24,hidden=2304,heads=24,seq=1024,vocab=51200"
    found = simulate("1f1b", *pod, "--model", sizes, "--pp", 4, "--dp", 2, "--micro-batch", 4, "--micro-batches", 8)
    # 6 flops a parameter and token, of a layer 12 h^2 parameters, and 12 s h of attention; the head has v h.
    tokens, h = 4 * 1024 * 8 * 2, 2304
    flops = tokens * 6 * (24 * (12 * h * h + 2 * 1024 * h) + 51200 * h)
    of_peak = flops / (312e12 * 8 * found["step_ns"] * 1e-9)
    assert 0.2 < of_peak < 0.65
    result = command.run("simulate", "1f1b", *pod, "--model", sizes, "--dtype", "int8", code=2)
    assert result.stderr.startswith('trireme: device kind "a100" has no flops of int8, but of bfloat16, ')


def test_the_table_says_what_does_not_fit(files):
    table = command.run("simulate", "gpipe", *files, "--micro-batches", 8).stdout
    assert "gpipe, 2 stages x 1 replica, simulated\n  step           55 s\n" in table
    assert "communication  1 s that nothing hides: 1.8 % of the step\n" in table
    # It keeps 8 x 1000 bytes, holds 8 x 500 that it has sent, and gets 2 x 500 at a time; parameters have 50.
    assert "rank 0 needs 13.6 kB, more than the 4000 B of its d" in table


def test_the_example_of_the_readme_runs():
    (line,) = re.findall(r"^    trireme (simulate .*)$", (command.REPOSITORY / "README.md").read_text(), re.MULTILINE)
    words = [command.REPOSITORY / word if word.startswith("examples/") else word for word in line.split()]
    assert "8 stages x 8 replicas" in command.run(*words).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["1f1bb"], "cannot open 1f1bb: No such file or directory, and no schedule by name: "),
        (["1f1b", "--dp", 3], "the schedule has 6 ranks, but the cluster 4 devices"),
        (["1f1b", "--jitter", 2], "the jitter is 2, not 0 to 1"),
        (["1f1b", "--pp", 2], "--costs says what --pp says; leave it out"),
        (
            ["1f1b", "--model", "gpt:layers=1"],
            "simulate needs a MODEL.pt2, or a schedule with --costs or --model, and not both",
        ),
        (["m.pt2"], "m.pt2 says what --costs says; leave it out"),
        (["1f1b", "--profile", "p"], '--profile is for a MODEL.pt2, not for "1f1b"'),
        (["own.schedule", "--dp", 2], "a schedule from a file says what --dp says; leave it out"),
    ],
)
def test_what_is_wrong_is_said(files, arguments, said):
    result = command.run("simulate", *arguments, *files, code=2)
    assert result.stderr.startswith(f"trireme: {said}")
    assert result.stderr.count("\n") == 1


def test_what_is_wrong_in_a_file_is_said_with_its_line(files, tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS.replace("bucket_bytes", "buckets"))
    result = command.run("simulate", "1f1b", *files, code=2)
    assert result.stderr == f'trireme: {tmp_path / "costs.yaml"}: line 6: a stage has no key "buckets"\n'
    (tmp_path / "costs.yaml").write_text(COSTS + "tied_bytes: [8]\n")
    result = command.run("simulate", "1f1b", *files, code=2)
    assert result.stderr == (
        f"trireme: {tmp_path / 'costs.yaml'} has tied_bytes, but a schedule by name ties nothing; "
        "give the schedule as a file with tied=\n"
    )
    (tmp_path / "costs.yaml").write_text(COSTS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("1000,", "0,"))
    result = command.run("simulate", "1f1b", *files, code=2)
    assert result.stderr == (
        f"trireme: {tmp_path / 'cluster.yaml'}: "
        "the bandwidth of the network is 0 bytes a second; it must be at least 1\n"
    )


MODEL = command.DATA / "nanogpt.f32.pt2"


def test_a_model_is_costed_by_the_analytic_model_on_this_host(tmp_path):
    options = [MODEL, "--pp", 2, "--micro-batches", 4, "--micro-batch", 2]
    found = simulate(*options, "--schedule", "zb-h1")
    assert found["schedule"] == "zb-h1"
    assert found["notes"][0] == "passes: by the analytic model; trireme profile measures them"
    assert found["notes"][1].startswith("cluster: this host (")
    assert [rank["host"] for rank in found["ranks"]] == ["localhost"] * 2
    assert simulate(*options, "--schedule", "1f1b")["step_ns"] > found["step_ns"]
    plan = tmp_path / "plan.yaml"
    command.run("plan", MODEL, "--pp", 2, "--micro-batches", 4, "--schedule", "zb-h1", "-o", plan)
    assert simulate(MODEL, "--plan", plan, "--micro-batch", 2) == found


def test_a_model_is_costed_by_its_profile(tmp_path):
    """One stage: the step is m forwards and backwards of all blocks, and the update."""
    path = tmp_path / "gpt.profile"
    model = command.DATA / "mlp.f32.pt2"  # no parameter is tied
    command.run("profile", model, "--micro-batch", "2", "--budget", "0.2s", "-o", path)
    profile = yaml.safe_load(path.read_text())
    passes = sum(block["sizes"][0][name]["seconds"] for block in profile["blocks"] for name in ("forward", "backward"))
    update = sum(block["update"]["seconds"] for block in profile["blocks"])
    found = simulate(model, "--micro-batches", 3, "--micro-batch", 2, "--profile", path)
    # Each pass is a whole number of nanoseconds.
    assert found["step_ns"] == pytest.approx(1e9 * (3 * passes + update), abs=4)
    assert found["notes"][0] == f"passes: measured, {profile['device']}"
    other = command.run("simulate", MODEL, "--profile", path, code=2)
    assert other.stderr.startswith(f"trireme: {path}: the profile is of a model of ")
    assert other.stderr.endswith("; make it again\n")


def test_extra_warm_ups_are_found_where_a_hop_is_slow_and_memory_allows(tmp_path, files):
    """Passes of 2 s and 4 s; an activation takes 0.5 s, and so does a gradient, which is 0.5 s for a pair of passes."""
    arguments = ["2bw", *files, "--micro-batches", 4]
    assert simulate(*arguments)["step_ns"] == 4 * (6 * 10**9 + 5 * 10**8)
    # Of 11,550 bytes one more micro-batch in flight makes 12,550, and its order looks two receives further ahead.
    for memory, warm_ups in ((13_000, 0), (14_000, 1)):
        (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("memory: 4000", f"memory: {memory}"))
        found = simulate(*arguments, "--find-extra-warm-ups")
        assert f"found --extra-warm-ups {warm_ups}" in found["notes"]
        assert found["step_ns"] == simulate(*arguments, "--extra-warm-ups", warm_ups)["step_ns"]
        assert found["ranks"][0]["peak_bytes"] == 11_550 + (1000 + 2 * 500) * warm_ups
    assert found["step_ns"] == 4 * 6 * 10**9
    refused = command.run("simulate", "gpipe", *files, "--find-extra-warm-ups", code=2)
    assert refused.stderr == "trireme: schedule gpipe has no extra warm-ups, which are for 1f1b and 2bw\n"
