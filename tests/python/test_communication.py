"""`--comm`: when what travels goes, and what goes first, changes no number."""

from __future__ import annotations

import json
import os
import signal

import command
import pytest
import torch
from chain import Chain, check
from own_model import ADAMW, is_bitwise_equal
from processes import train_arguments, trireme
from test_layouts import Auxiliary, Frozen, Shared
from test_simulate import CLUSTER, COSTS
from test_timeline import events

pytestmark = pytest.mark.binary

POLICIES = ["end", "fifo", "trirace"]


def train(model, policy, schedule, layout, *options, **run):
    workers = ["--workers", layout[0] * layout[1], "--transport", "direct"]
    return model.train(
        *workers, "--comm", policy, *options, schedule=schedule, layout=layout, batch=11, optimizer=ADAMW, **run
    )


@pytest.mark.parametrize("clipping", [(), ("--clip-norm", 0.3)], ids=["plain", "clipped"])
@pytest.mark.parametrize(
    ("schedule", "layout"),
    [("1f1b", (2, 2, 2)), ("interleaved", (2, 2, 2)), ("zb-h1", (2, 2, 3)), ("2bw", (2, 2, 2)), ("2bw", (3, 1, 3))],
)
@pytest.mark.parametrize("kind", [Chain, Shared])
def test_every_policy_gives_the_same_bits(own_model, kind, schedule, layout, clipping):
    """Shared: a tied weight. Batches of 11, 11 and 2 rows: replicas have micro-batches of several sizes, and none."""
    model = own_model(kind)
    runs = [train(model, policy, schedule, layout, *clipping, steps=6) for policy in POLICIES]
    assert is_bitwise_equal(runs[0], runs[1])
    assert is_bitwise_equal(runs[0], runs[2])


def test_the_policy_is_in_the_plan(own_model, tmp_path):
    archive, plan = own_model(Chain).archive, tmp_path / "plan.yaml"
    shown = command.run("plan", archive, "--pp", 2, "--comm", "fifo", "-o", plan).stdout
    assert "schedule 1f1b, communication fifo\n" in shown
    assert "communication: fifo\n" in plan.read_text()
    assert json.loads(command.run("plan", archive, "--json").stdout)["communication"] == "trirace"
    refused = command.run("simulate", archive, "--plan", plan, "--comm", "end", code=2)
    assert refused.stderr == f"trireme: --plan {plan} already says what --comm says; leave one of them out\n"
    plan.write_text(plan.read_text().replace("fifo", "post"))
    refused = command.run("simulate", archive, "--plan", plan, code=2)
    assert refused.stderr == f'trireme: {plan}: unknown communication policy "post"; known are end, fifo, trirace\n'


def test_an_unknown_policy_is_refused(own_model):
    refused = command.run("plan", own_model(Chain).archive, "--comm", "post", code=2)
    assert refused.stderr == 'trireme: unknown communication policy "post"; known are end, fifo, trirace\n'
    refused = command.run("schedule", "1f1b", "--stages", 2, "--comm", "post", code=2)
    assert refused.stderr == 'trireme: unknown communication policy "post"; known are end, fifo, trirace\n'


def test_updates_at_the_end_are_in_the_schedule():
    text = command.run("schedule", "2bw", "--stages", 2, "--comm", "end").stdout
    assert text.splitlines()[5:7] == [
        "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U",
        "schedule 2bw stages=2 micro-batches=2 look-ahead=2 versions=2 found=1,0 updates-at-end one-urgency",
    ]


def test_a_transfer_goes_first_where_links_can_tell_and_the_policy_lets_it(tmp_path):
    """2BW: the sums of a step, 3 s each way of 3000 bytes, meet the transfers of the next one."""
    (tmp_path / "costs.yaml").write_text(COSTS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    files = ["--costs", tmp_path / "costs.yaml", "--cluster", tmp_path / "cluster.yaml"]

    def step(policy, *options):
        arguments = ["2bw", *files, "--dp", 2, "--micro-batches", 4, "--comm", policy, *options, "--json"]
        return json.loads(command.run("simulate", *arguments).stdout)["step_ns"]

    assert step("fifo") == step("fifo", "--fair-links") == step("trirace", "--fair-links")
    assert step("trirace") < step("trirace", "--fair-links") < step("end")


# --- early sums ----------------------------------------------------------------------------------------------------

# A bucket for each tensor.
SMALL = ["--bucket-bytes", 1]


def spans(path, rank, step):
    """(begin, end) of what the rank did in a step, by action; not of its waits."""
    own = [words for words in events(path) if words[1] == str(rank) and f"step={step}" in words]
    return {w[2]: (int(w[3]), int(w[4])) for w in own if w[2] not in ("wait", "input")}


def test_sums_leave_while_the_backward_runs(tmp_path):
    """In a GPT whose embedding is tied to its head all but the tied bucket, which waits for TR."""
    path = tmp_path / "run.timeline"
    more = [*SMALL, "--micro-batches", 2, "--timeline", path, "--timeline-steps", 3, "--workers", 4, "--quiet"]
    command.run(*train_arguments(*more, "--transport", "direct", steps=4, pp=2, dp=2))
    for step in (2, 3, 4):
        for rank in range(4):
            of_rank = spans(path, rank, step)
            begin, end = of_rank["B1"]
            sums = [times for action, times in of_rank.items() if action.startswith("AR")]
            early = [times for times in sums if begin < times[0] < end]
            assert len(sums) > 10
            assert len(early) >= len(sums) - 2  # those of the tied embedding, and of the first parameter
            assert of_rank["SC0"][0] < begin
            assert of_rank["TR0"][0] >= end


def test_at_the_end_nothing_leaves_early(tmp_path):
    path = tmp_path / "run.timeline"
    more = [*SMALL, "--comm", "end", "--micro-batches", 2, "--timeline", path, "--workers", 1, "--quiet"]
    command.run(*train_arguments(*more, steps=2, pp=1, dp=2))
    of_rank = spans(path, 0, 2)
    assert all(begin >= of_rank["B1"][1] for action, (begin, _) in of_rank.items() if action.startswith("AR"))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "pre-recompute"])
@pytest.mark.parametrize("kind", [Chain, Shared, Auxiliary, Frozen])
def test_early_sums_train_as_one_process_does(own_model, kind, schedule):
    """One bucket for each tensor; 11, 11 and 2 rows. Frozen: a stage without gradients."""
    check(own_model(kind), (2, 3, 2), *SMALL, schedule=schedule, steps=4, optimizer=ADAMW)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "2bw"])
def test_16_bit_parameters_leave_early_with_the_same_bits(own_model, schedule):
    """Autograd makes their gradients in 16 bits, and they are summed in 32."""
    model = own_model(Chain, torch.bfloat16)
    runs = [train(model, policy, schedule, (2, 2, 2), *SMALL, steps=4) for policy in POLICIES]
    assert is_bitwise_equal(runs[0], runs[1])
    assert is_bitwise_equal(runs[0], runs[2])


def test_a_killed_rank_is_named_while_sums_travel(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    more = train_arguments(*SMALL, "--metrics", metrics, "--transport", "direct", pp=1, dp=3)
    with trireme(*more, folder=tmp_path) as run:
        pids = run.wait_for_workers(3)
        run.wait_for_steps(metrics)
        os.kill(pids[1], signal.SIGKILL)
        assert run.wait() == 1
        assert "killed by signal 9 (SIGKILL)" in run.err


def test_a_simulated_step_has_early_sums(tmp_path):
    """Of 3000 bytes each, 3 s on the wire, which are final 1 s after the last backward of 4 s began."""
    costs = COSTS.replace("kept_bytes: 1000}", "kept_bytes: 1000, final_ns: [1000000000]}")
    assert costs != COSTS
    (tmp_path / "costs.yaml").write_text(costs)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    files = ["--costs", tmp_path / "costs.yaml", "--cluster", tmp_path / "cluster.yaml"]

    def step(policy):
        arguments = ["1f1b", *files, "--dp", 2, "--micro-batches", 2, "--comm", policy, "--json"]
        return json.loads(command.run("simulate", *arguments).stdout)["step_ns"]

    # The first activation and the last gradient are waited for, half a second each.
    assert step("trirace") == ((2 + 1) * 6 + 1) * 10**9
    # The last gradient shares its link with a sum, which makes it half a second later; the last sum is waited for.
    assert step("end") == ((2 + 1) * 6 + 1) * 10**9 + 3_500_000_000
