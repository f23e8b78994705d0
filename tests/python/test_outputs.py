"""No run overwrites what it or another run reads or writes: one sentence before it starts, and the file stays."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess

import command
import processes
import pytest
from processes import NANOGPT, Run, train_arguments, wait_until
from safetensors.torch import load, load_file, save_file

pytestmark = pytest.mark.binary

TRAIN = ["train", *NANOGPT, "--batch", 8, "--steps", 1, "--workers", 1]


def refusal(*arguments, path):
    """Of a run that would have written `path`."""
    before = path.read_bytes()
    said = command.run(*arguments, code=2).stderr
    assert path.read_bytes() == before
    return said


def test_the_metrics_of_a_run_that_goes_on_are_its_own(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    with Run([command.BINARY, *train_arguments("--metrics", metrics, pp=1, dp=1)], tmp_path) as run:
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 2, "steps")
        said = command.run(*TRAIN, "--metrics", metrics, code=2).stderr
        assert said == f"trireme: --metrics {metrics}: another run is writing this file; name another one\n"
        assert run.process.poll() is None
        run.process.terminate()  # ends its worker as well
        run.process.wait(processes.DEADLINE_S)
    lines = command.read_metrics(metrics)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    command.run(*TRAIN, "--metrics", metrics)
    assert len(command.read_metrics(metrics)) == 1


@pytest.fixture
def checkpoint(tmp_path):
    """Two files and their index."""
    command.run(*TRAIN, "--save", tmp_path / "whole.safetensors")
    weights = load_file(tmp_path / "whole.safetensors")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    names = {name: f"part-{index % 2}.safetensors" for index, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({n: weights[n] for n in weights if names[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return folder


@pytest.mark.parametrize("option", ["--metrics", "--save", "--grad-norms"])
@pytest.mark.parametrize("name", ["part-1.safetensors", "model.safetensors.index.json"])
def test_no_part_of_a_checkpoint_is_overwritten(checkpoint, option, name):
    path = checkpoint / name
    for init in (checkpoint, checkpoint / "model.safetensors.index.json"):
        said = refusal(*TRAIN, "--init", init, option, path, path=path)
        assert said == f"trireme: {option} {path} would overwrite --init\n"


def test_weights_take_the_place_of_the_whole_checkpoint_or_lie_beside_it(checkpoint, tmp_path):
    whole = tmp_path / "whole.safetensors"
    command.run(*TRAIN, "--init", whole, "--save", whole)
    beside = checkpoint / "trained.safetensors"
    for _ in range(2):
        command.run(*TRAIN, "--init", checkpoint, "--save", beside, "--metrics", checkpoint / "metrics.jsonl")
    assert set(load_file(beside)) == set(load_file(whole))


def test_no_file_that_is_read_is_overwritten(tmp_path):
    folder = tmp_path / "texts" / "deep"
    folder.mkdir(parents=True)
    text, model = folder / "a,b.txt", tmp_path / "model.pt2"
    text.write_bytes(bytes(1000))
    model.write_bytes(NANOGPT[0].read_bytes())
    files = [
        (text, "--data", ["--data", f"bytes:{tmp_path / 'texts'}"]),
        (text, "--data", ["--data", f"bytes:{folder}/a\\,b.txt"]),
        (text, "--data", ["--data", f"arrays:x.npy,length={folder}/a\\,b.txt"]),
        (text, "--eval-data", ["--data", "bytes:none", "--eval-data", f"bytes:{folder}"]),
        (model, "--eval-model", ["--data", "bytes:none", "--eval-data", "bytes:none", "--eval-model", model]),
        (model, "--operator-library", ["--data", "bytes:none", "--operator-library", model]),
    ]
    for path, read, options in files:
        for option in ("--metrics", "--save"):
            said = refusal("train", NANOGPT[0], "--batch", 8, "--steps", 1, *options, option, path, path=path)
            assert said == f"trireme: {option} {path} would overwrite {read}\n"


def test_paths_that_are_not_utf_8_are_read_and_written(tmp_path):
    """The bytes are those of the user; in JSON, which cannot hold them, they are replaced."""
    odd = tmp_path / "a\udcffb"
    odd.mkdir()
    model = odd / "model.pt2"
    model.write_bytes(NANOGPT[0].read_bytes())
    for words in (["inspect", "--json", model], ["plan", "--pp", 2, "--json", model]):
        assert json.loads(command.run(*words).stdout)
    plan, saved, metrics = odd / "plan.yaml", odd / "saved.safetensors", odd / "metrics.jsonl"
    command.run("plan", model, "--pp", 2, "-o", plan)
    outputs = ["--save", saved, "--metrics", metrics, "--grad-norms", odd / "norms.json"]
    command.run("train", model, *NANOGPT[1:], "--batch", 8, "--steps", 1, "--plan", plan, *outputs)
    assert load(saved.read_bytes())
    assert len(command.read_metrics(metrics)) == 1


OUTPUTS = [("--save", TRAIN), ("--metrics", TRAIN), ("--grad-norms", TRAIN), ("-o", ["plan", NANOGPT[0]])]


@pytest.mark.parametrize(("option", "words"), OUTPUTS, ids=[option for option, _ in OUTPUTS])
def test_what_cannot_be_written_is_refused_at_the_start(tmp_path, option, words):
    def said(path):
        refused = command.run(*words, option, path, code=2)
        assert refused.stdout == ""
        return refused.stderr.removeprefix(f"trireme: {option} {path}: ")

    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "nowhere" / "file")
    os.mkfifo(pipe)
    assert said(link) == f"there is no folder {tmp_path}/nowhere\n"
    assert said("/proc/a") == "cannot write to the folder: No such file or directory\n"
    assert said(pipe) == "this is a pipe, not a file\n"
    assert said(tmp_path) == "this is a folder, not a file\n"
    assert said(tmp_path / ("n" * 300)) == "cannot write to the folder: File name too long\n"
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "socket"))
        assert said(tmp_path / "socket") == "this is a socket or a disk, not a file\n"
    assert {path.name for path in tmp_path.iterdir()} == {"link", "pipe", "socket"}


def test_a_plan_takes_the_place_of_plans_only(tmp_path):
    plan, link, other = tmp_path / "plan.yaml", tmp_path / "link.yaml", tmp_path / "notes.yaml"
    plan.touch()
    link.symlink_to(plan)
    for stages in (1, 2):
        command.run("plan", NANOGPT[0], "--pp", stages, "-o", link)
        assert f"pp: {stages}\n" in plan.read_text()
    assert link.is_symlink()
    for content in (b"format: trireme-plan-2\n", b"pp: [", NANOGPT[0].read_bytes()):
        other.write_bytes(content)
        assert refusal("plan", NANOGPT[0], "-o", other, path=other) == (
            f"trireme: -o {other}: this file is no plan, so it is not overwritten; remove it or name another\n"
        )


def test_a_plan_is_written_whole_or_not_at_all(tmp_path):
    """A limit of the size of files is a disk that gets full; Python ignores its signal, and so do its children then."""
    plan = tmp_path / "plan.yaml"
    command.run("plan", NANOGPT[0], "-o", plan)
    before = plan.read_bytes()
    words = [command.BINARY, "plan", NANOGPT[0], "--pp", "2", "-o"]
    for path in (plan, tmp_path / "new.yaml"):
        said = subprocess.run(
            [*words, path],
            capture_output=True,
            text=True,
            timeout=command.TIMEOUT_S,
            check=False,
            restore_signals=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        )
        assert said.stderr == f"trireme: cannot write {path}: File too large\n"
        assert (said.returncode, said.stdout) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    assert plan.read_bytes() == before


def test_weights_are_no_stream(tmp_path):
    refused = command.run(*TRAIN, "--save", "/dev/full", code=2)
    assert refused.stderr == "trireme: --save /dev/full: this is a device, not a file\n"
    assert '"step":1,' in command.run(*TRAIN, "--quiet", "--metrics", "/dev/stderr").stderr
    assert command.run("plan", NANOGPT[0], "-o", "/dev/stdout").stdout.startswith("format:")


def test_a_folder_that_goes_during_the_run_is_made_again(tmp_path):
    folder = tmp_path / "out" / "deep"
    folder.mkdir(parents=True)
    metrics, saved, norms = tmp_path / "metrics.jsonl", folder / "saved.safetensors", folder / "norms.json"
    outputs = ["--metrics", metrics, "--save", saved, "--grad-norms", norms]
    with Run([command.BINARY, *train_arguments(*outputs, steps=40)], tmp_path) as run:
        run.wait_for_steps(metrics)
        shutil.rmtree(tmp_path / "out")
        assert run.wait() == 0, run.err
    assert load_file(saved)
    assert json.loads(norms.read_text())


PROGRAMS = [
    (command.BINARY, TRAIN),
    (command.BINARY, ["eval", *NANOGPT, "--batch", 8]),
    (command.BINARY, ["plan", NANOGPT[0]]),
    (command.BINARY, ["inspect", NANOGPT[0]]),
    (processes.WORKER, TRAIN),
]


@pytest.mark.parametrize(("program", "words"), PROGRAMS)
def test_a_current_folder_that_is_gone_is_one_sentence(tmp_path, program, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    started = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", program, *map(str, words)],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=command.TIMEOUT_S,
        check=False,
    )
    said = f"{program.name}: the current folder no longer exists; change to one that does\n"
    assert (started.returncode, started.stdout, started.stderr) == (2, "", said)
