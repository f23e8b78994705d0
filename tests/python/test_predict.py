"""`trireme train --predict`: what was predicted of a step beside what was measured; the memory of each rank."""

from __future__ import annotations

import json

import command
import pytest

pytestmark = pytest.mark.binary

TRAIN = [
    *("train", command.DATA / "nanogpt.f32.pt2", "--data", f"safetensors:{command.DATA / 'nanogpt.data.safetensors'}"),
    *("--batch", 8, "--steps", 4, "--micro-batches", 2, "--pp", 2),
]


def test_the_result_has_time_and_memory_predicted_and_measured(tmp_path):
    metrics, timeline = tmp_path / "metrics.jsonl", tmp_path / "run.timeline"
    found = json.loads(command.run(*TRAIN, "--json", "--predict", "--metrics", metrics, "--timeline", timeline).stdout)
    lines = command.read_metrics(metrics)
    assert found["step_seconds"] in [line["seconds"] for line in lines]
    assert found["predicted"]["step_seconds"] > 0
    assert found["predicted"]["notes"][0] == "passes: by the analytic model; trireme profile measures them"
    for measured, predicted in zip(found["peak_bytes"], found["predicted"]["peak_bytes"], strict=True):
        assert predicted == pytest.approx(measured, rel=0.05)
    assert [line.get("peak_bytes") for line in lines] == [None] * 3 + [found["peak_bytes"]]
    assert len(found["compute_cpu_seconds"]) == 2
    assert all(0 < seconds <= 2 * found["step_seconds"] for seconds in found["compute_cpu_seconds"])
    assert [line.get("compute_cpu_seconds") for line in lines] == [None] * 3 + [found["compute_cpu_seconds"]]
    header = timeline.read_text().splitlines()[0]
    assert f" peak-bytes={','.join(map(str, found['peak_bytes']))}" in header


def test_both_versions_of_2bw_are_in_the_memory():
    """Weights and their gradients twice: within 5 % of what the tensors of each rank held."""
    found = json.loads(command.run(*TRAIN, "--json", "--quiet", "--predict", "--schedule", "2bw").stdout)
    for measured, predicted in zip(found["peak_bytes"], found["predicted"]["peak_bytes"], strict=True):
        assert predicted == pytest.approx(measured, rel=0.05)


def test_the_table_is_printed_at_the_end():
    printed = command.run(*TRAIN, "--quiet", "--predict").stdout.splitlines()
    assert printed[0].split() == ["predicted", "measured", "error"]
    assert [line.split("  ")[1] for line in printed[1:4]] == ["step", "memory of rank 0", "memory of rank 1"]
    (links,) = [line for line in printed if "between ranks" in line]
    assert links.endswith("; 60 us and 1.5 GB/s between ranks are assumed, trireme probe measures them for --cluster")


def test_ranks_that_share_a_process_have_no_memory_of_their_own():
    found = json.loads(command.run(*TRAIN, "--json", "--quiet", "--workers", 1).stdout)
    assert "peak_bytes" not in found
    assert "predicted" not in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--profile", "p"], "--profile needs --predict"),
        (["--cluster", "c"], "--cluster needs --predict"),
        (["--predict", "--profile", "/nowhere"], "cannot open /nowhere: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_before_the_run(options, said):
    assert command.run(*TRAIN, *options, code=2).stderr == f"trireme: {said}\n"
