"""`--schedule FILE`: the order of passes that a user has written down, trained, planned and simulated."""

from __future__ import annotations

import json
import re

import command
import pytest
import torch
from chain import Chain, check
from own_model import ADAMW, is_bitwise_equal

pytestmark = pytest.mark.binary

HEADER = "schedule mine stages=2 micro-batches=3"
# Both stages keep all three micro-batches, and the last one runs them backwards.
LAST_FIRST = f"""\
{HEADER}
rank 0: F0 F1 F2 B2 B1 B0
rank 1: F0 F1 F2 B2 B1 B0
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "own.schedule"
        path.write_text(text)
        return path

    return write


def printed(*arguments):
    return command.run("schedule", *arguments).stdout


@pytest.mark.parametrize("layout", [(2, 1, 3), (2, 2, 3), (2, 1, 2)])
def test_an_order_by_hand_trains_to_the_numbers_of_one_process(own_model, written, layout):
    """Also replicas, which all follow it, and fewer micro-batches, of which it keeps the first."""
    check(own_model(Chain), layout, schedule=written(LAST_FIRST), optimizer=ADAMW)


@pytest.mark.parametrize(
    ("name", "options"), [("zb-h1", []), ("interleaved", ["--chunks", 2]), ("zb-v", []), ("last-no-recompute", [])]
)
def test_a_printed_schedule_trains_as_the_one_with_its_name(own_model, written, name, options):
    model = own_model(Chain, torch.float32)
    path = written(printed(name, "--stages", 2, "--micro-batches", 4, *options))
    run = {"layout": (2, 2, 4), "batch": 16, "steps": 5, "optimizer": ADAMW}
    assert is_bitwise_equal(model.train(schedule=name, **run), model.train(schedule=path, **run))


def test_the_file_says_how_many_stages_chunks_and_micro_batches(written):
    model = command.DATA / "nanogpt.f32.pt2"
    path = written(printed("interleaved", "--stages", 2, "--micro-batches", 4, "--chunks", 2))
    planned = json.loads(command.run("plan", model, "--schedule", path, "--json").stdout)
    assert [planned[each] for each in ("pp", "chunks", "micro_batches")] == [2, 2, 4]
    train = ("train", model, "--data", "random:12", "--batch", 4, "--steps", 2, "--json", "--quiet")
    named = ("--pp", 2, "--chunks", 2, "--micro-batches", 4, "--schedule", "interleaved")
    losses = [json.loads(command.run(*train, *options).stdout)["loss"] for options in (("--schedule", path), named)]
    assert losses[0] == losses[1]


def test_a_plan_keeps_the_order_and_needs_the_file_no_more(written, tmp_path):
    model = command.DATA / "nanogpt.f32.pt2"
    path, plan = written(LAST_FIRST), tmp_path / "plan.yaml"
    options = ("--schedule", path)
    assert "3 micro-batches a replica, schedule text" in command.run("plan", model, *options, "-o", plan).stdout
    drawn = command.run("plan", model, *options, "--show-schedule").stdout
    assert "rank 1 | .  F0 F1 F2 B2 -- B1 -- B0 --" in drawn
    simulated = json.loads(command.run("simulate", model, *options, "--micro-batch", 2, "--json").stdout)
    path.unlink()
    again = json.loads(command.run("simulate", model, "--plan", plan, "--micro-batch", 2, "--json").stdout)
    assert again["step_ns"] == simulated["step_ns"]
    train = ("train", model, "--data", "random:12", "--batch", 6, "--steps", 1, "--plan", plan, "--json", "--quiet")
    assert command.run(*train).stdout


def refusal(model, *options):
    told = command.run("plan", model, *options, code=2).stderr
    assert len(told.splitlines()) == 1
    return told.removeprefix("trireme: ")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("no schedule\n", [], "line 1: "),
        (LAST_FIRST, ["--pp", 3], "it is of 2 stages, but --pp is 3"),
        (LAST_FIRST, ["--pp", 1], "it is of 2 stages, but --pp is 1"),
        (LAST_FIRST, ["--chunks", 2], "it is of 1 chunks a stage, but --chunks is 2"),
        (LAST_FIRST, ["--extra-warm-ups", 1], "schedule text has no extra warm-ups"),
        (
            LAST_FIRST,
            ["--micro-batches", 4],
            "the order is of 2 stages and 3 micro-batches, not of 2 and 4",
        ),
        (f"{HEADER}\nrank 0: F0 F1 F2 B2 B1 B0\n", [], "it lists 1 ranks: 2 stages of 1 replicas make 2"),
        (
            f"{HEADER}\nrank 0: F0 F1 F2 B2 B1\nrank 1: F0 F1 F2 B2 B1 B0\n",
            [],
            "rank 0 misses the backward of micro-batch 0",
        ),
        (f"{HEADER} versions=2\nrank 0: F0 B0\nrank 1: F0 B0\n", [], "a step with versions=2 runs with its neighbours"),
        (f"{HEADER} evaluation\nrank 0: F0 F1 F2\nrank 1: F0 F1 F2\n", [], "it is an evaluation, and no training"),
    ],
)
def test_an_order_that_does_not_fit_is_refused_by_its_file(written, text, options, said):
    path = written(text)
    told = refusal(command.DATA / "nanogpt.f32.pt2", "--schedule", path, *options)
    assert told.startswith(f"{path}: ")
    assert said in told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: text.replace("schedule: text", "schedule: 1f1b"),
            "it has an order, but its schedule is 1f1b, not text",
        ),
        (
            lambda text: re.sub(r"order:\n.*?(?=stages:\n)", "", text, flags=re.DOTALL),
            "schedule text needs an order of passes",
        ),
        (lambda text: text.replace("B2 B1 B0", "B2 B1"), "rank 0 misses the backward of micro-batch 0"),
    ],
)
def test_a_plan_whose_order_was_damaged_is_refused(written, tmp_path, change, said):
    model, plan = command.DATA / "nanogpt.f32.pt2", tmp_path / "plan.yaml"
    command.run("plan", model, "--schedule", written(LAST_FIRST), "-o", plan)
    damaged = change(plan.read_text())
    assert damaged != plan.read_text()
    plan.write_text(damaged)
    told = command.run("simulate", model, "--plan", plan, code=2).stderr
    assert told.startswith(f"trireme: {plan}: ")
    assert said in told


def test_a_name_that_is_no_file_lists_the_schedules():
    told = refusal(command.DATA / "nanogpt.f32.pt2", "--schedule", "none.schedule")
    assert told.startswith("there is no schedule and no file 'none.schedule' to train by; known are gpipe, 1f1b, ")
