"""`trireme profile`: what it measures, for how long, and what it says when the time was short."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

import command
import pytest
import yaml

pytestmark = pytest.mark.binary

MODEL = command.DATA / "nanogpt.f32.pt2"
PASSES = ["forward", "backward", "input_gradient", "weight_gradient", "recompute"]


def profile(*arguments, code=0):
    return command.run("profile", *arguments, code=code)


def test_every_pass_of_every_block_is_measured(tmp_path):
    path = tmp_path / "gpt.profile"
    result = profile(MODEL, "--micro-batch", "4,1", "--budget", "1s", "-o", path)
    found = yaml.safe_load(path.read_text())
    assert found["format"] == "trireme-profile-1"
    assert found["device"].endswith(", 1 thread")
    assert [block["first_module"].split(".")[0] for block in found["blocks"]][:3] == ["wte", "wpe", "h"]
    for block in found["blocks"]:
        assert block["update"]["from"] == "measured"
        assert [size["micro_batch"] for size in block["sizes"]] == [1, 4]
        for size in block["sizes"]:
            assert [size[name]["from"] for name in PASSES] == ["measured"] * 5
            assert size["forward"]["seconds"] > 0
    # Both halves of a backward make about the whole; some operators are quicker in one go.
    whole, split = (
        sum(block["sizes"][1][name]["seconds"] for block in found["blocks"] for name in names)
        for names in (["backward"], ["input_gradient", "weight_gradient"])
    )
    assert 0.5 < whole / split < 2
    assert result.stdout == ""
    assert "forward and backward of 4 samples: " in result.stderr
    assert "analytic" not in result.stderr


def test_the_profile_goes_to_stdout_and_is_over_when_its_time_is():
    begin = time.monotonic()
    text = profile(MODEL, "--budget", "0.02m", "--quiet").stdout
    assert time.monotonic() - begin < 3 * (1.2 + 2)
    assert [size["micro_batch"] for size in yaml.safe_load(text)["blocks"][0]["sizes"]] == [1, 2, 4]


def test_what_the_time_did_not_suffice_for_is_analytic_and_said():
    result = profile(MODEL, "--budget", "0.000001s")
    first = yaml.safe_load(result.stdout)["blocks"][0]["sizes"]
    # The first step was measured, F and B of one sample; other sizes follow from it.
    assert first[0]["forward"]["from"] == "measured"
    assert first[0]["recompute"]["from"] == "analytic"
    assert "forward" not in first[1]
    assert "the time sufficed for 2 of the 36 steps" in result.stderr


def test_several_processes_may_measure_at_once():
    result = profile(MODEL, "--budget", "1s", "--concurrent", 2)
    assert yaml.safe_load(result.stdout)["device"].endswith(", 1 thread, 2 at once")


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (["--pp", 2], "each of 2 stages by 1f1b"),
        (["--pp", 2, "--schedule", "zb-v", "--micro-batches", 4], "each of 2 stages by zb-v"),
        (["--pp", 3, "--schedule", "pre-recompute", "--micro-batches", 2], "each of 3 stages by pre-recompute"),
        (["--schedule", "2bw", "--pp", 2], "each of 2 stages by 2bw"),
        (["--cut", "h.1.mlp"], "each of 2 stages by 1f1b"),
    ],
)
def test_the_stages_of_a_plan_are_measured_alone(layout, said):
    result = profile(MODEL, *layout, "--micro-batch", 2, "--budget", "1s")
    found = yaml.safe_load(result.stdout)
    assert found["device"].endswith(f", 1 thread, {said}")
    for block in found["blocks"]:
        assert block["update"]["from"] == "measured"
        (size,) = block["sizes"]
        assert [size[name]["from"] for name in PASSES] == ["measured"] * 5
        assert size["forward"]["seconds"] > 0


def test_a_plan_file_says_what_the_stages_are(tmp_path):
    path = tmp_path / "plan.yaml"
    command.run("plan", MODEL, "--pp", 2, "--dp", 2, "--schedule", "interleaved", "-o", path)
    result = profile(MODEL, "--plan", path, "--budget", "0.2s")
    assert "each of 2 stages by interleaved" in result.stdout


@pytest.mark.parametrize("model", ["t5.f32.pt2", "resnet.f32.pt2", "gpt2.f32.pt2", "llama.f64.pt2"])
def test_stages_run_alone_on_what_crosses_their_borders(model):
    """Masks, positions and two inputs of one layer cross, besides activations; other sizes each time with t5."""
    result = profile(command.DATA / model, "--pp", 2, "--micro-batch", "1,3", "--budget", "0.3s")
    for block in yaml.safe_load(result.stdout)["blocks"]:
        assert block["sizes"][0]["forward"]["from"] == "measured"


def cores_of(pid):
    """The cores that the main thread of a process may use."""
    status = Path(f"/proc/{pid}/status").read_text()
    return re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE).group(1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_pinned_processes_have_cores_of_their_own():
    words = [command.BINARY, "profile", MODEL, "--pin", "--concurrent", "2", "--budget", "30s", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            first, second, *_ = sorted(os.sched_getaffinity(0))
            found = set()
            deadline = time.monotonic() + 3 * 5
            while found != {str(first), str(second)} and time.monotonic() < deadline:
                others = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                with contextlib.suppress(FileNotFoundError):
                    found = {cores_of(pid) for pid in [process.pid, *others]}
                time.sleep(0.05)
            assert found == {str(first), str(second)}
        finally:
            process.kill()


def test_processor_time_is_that_of_the_process_alone():
    """Many processes on few cores wait for each other, and compute as long as one."""
    many = 4 * len(os.sched_getaffinity(0))

    def seconds(*options):
        text = profile(MODEL, "--micro-batch", 4, "--budget", "1s", "--quiet", *options).stdout
        blocks = yaml.safe_load(text)["blocks"]
        return sum(block["sizes"][0]["backward"]["seconds"] for block in blocks), text

    alone, _ = seconds()
    beside, text = seconds("--concurrent", many, "--processor-time")
    assert f", {many} at once, processor time\n" in text
    assert beside < 2 * alone


def test_the_data_may_be_given():
    data = f"safetensors:{command.DATA / 'nanogpt.data.safetensors'}"
    assert profile(MODEL, "--data", data, "--budget", "0.2s").stdout.startswith("format: trireme-profile-1\n")


def test_no_other_file_is_overwritten(tmp_path):
    other = tmp_path / "thesis.txt"
    other.write_text("years of work")
    result = profile(MODEL, "-o", other, code=2)
    assert result.stderr == (
        f"trireme: -o {other}: this file is no profile, so it is not overwritten; remove it or name another\n"
    )
    assert other.read_text() == "years of work"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "MODEL is required; see trireme profile --help"),
        ([MODEL, "--budget", "soon"], "--budget: 'soon' is no time such as 30s, 2m or 1h, up to 1e6 seconds; see"),
        ([MODEL, "--budget", "0s"], "--budget: '0s' is no time such as 30s, 2m or 1h, up to 1e6 seconds; see"),
        ([MODEL, "--micro-batch", "1,0"], "--micro-batch: 0 is not a whole number of at least 1; see"),
        ([MODEL, "--micro-batch", "2,1,2"], "--micro-batch names 2 twice"),
        ([MODEL, "--data", "random:many"], "the data 'random:many' is to be random:N, with a number of samples from 1"),
        ([MODEL, "--pp", 99], "the model can be cut at 66 places, which makes 67 stages, not --pp 99"),
        ([MODEL, "--schedule", "nope"], "there is no schedule 'nope' to train by; known are "),
        (["/nowhere.pt2"], "cannot open /nowhere.pt2: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    result = profile(*arguments, code=2)
    assert result.stderr.startswith(f"trireme: {said}")
    assert result.stderr.count("\n") == 1
