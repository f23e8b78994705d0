"""`--comm`: when what travels goes, and what goes first, changes no number."""

from __future__ import annotations

import json

import command
import pytest
from chain import Chain
from own_model import ADAMW, is_bitwise_equal
from test_layouts import Shared
from test_simulate import CLUSTER, COSTS

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

    assert step("fifo") == step("fifo", "--transfers-first") == step("trirace")
    assert step("trirace", "--transfers-first") < step("trirace") < step("end")
