"""2BW trains to the numbers of one PyTorch process that follows its rule: gradients at the weights before the last update."""

from __future__ import annotations

import json

import command
import pytest
import reference
import torch
from chain import Chain
from own_model import ADAMW, SGD, TOLERANCE, compare, is_bitwise_equal
from test_borders import InPlace, Running, Spectral
from test_kept_weights import BATCH, Classifier, edited, failure, is_same_state, lines, options
from test_layouts import Auxiliary, Dropouts, Shared

pytestmark = pytest.mark.binary

PLAIN_SGD = reference.Optimizer("sgd", lr=0.05)
RULES = [PLAIN_SGD, SGD, ADAMW]


def check(model, layout, *options, micro_batches=1, clip_norm=None, **run):
    clipping = [] if clip_norm is None else ["--clip-norm", clip_norm]
    expected = model.expected(is_late=True, micro_batches=micro_batches, clip_norm=clip_norm, **run)
    compare(expected, model.train(*options, *clipping, layout=layout, schedule="2bw", **run))


@pytest.mark.parametrize("optimizer", RULES, ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("layout", [(1, 1, 1), (1, 1, 3), (2, 1, 1), (2, 1, 4), (4, 1, 4), (2, 2, 3), (4, 2, 3)])
def test_the_rule(own_model, layout, optimizer):
    """Batches of 11, 11 and 2 rows: the last has too few micro-batches to run ahead where there are many stages."""
    check(own_model(Chain), layout, steps=8, optimizer=optimizer)


@pytest.mark.parametrize("layout", [(2, 1, 4), (4, 1, 4), (2, 2, 2)])
def test_gradients_are_clipped_by_the_norm_of_their_own_batch(own_model, layout):
    model = own_model(Chain)
    run = {"batch": 12, "steps": 8}
    check(model, layout, clip_norm=0.05, **run)
    assert max(model.expected(is_late=True, clip_norm=0.05, **run).grad_norms) > 0.05


@pytest.mark.parametrize("layout", [(2, 1, 3), (4, 1, 4), (2, 2, 2), (4, 2, 4)])
@pytest.mark.parametrize("kind", [Shared, Auxiliary, InPlace])
def test_what_stages_share_and_change(own_model, kind, layout):
    check(own_model(kind), layout, batch=12, steps=6, clip_norm=1e9, optimizer=ADAMW)


@pytest.mark.parametrize("kind", [Running, Spectral])
def test_buffers_that_forward_changes(own_model, kind):
    """In the order of the forwards, which is that of the sequential loop over micro-batches."""
    check(own_model(kind), (2, 1, 3), micro_batches=3, batch=8, steps=6)


@pytest.mark.parametrize("layout", [(2, 1, 4), (4, 1, 4), (2, 2, 3)])
def test_dropout_draws_the_numbers_of_its_own_step(own_model, layout):
    model = own_model(Dropouts)
    first = model.train(optimizer=ADAMW, schedule="2bw", batch=12, steps=6)
    other = model.train(layout=layout, optimizer=ADAMW, schedule="2bw", batch=12, steps=6)
    assert other.losses == pytest.approx(first.losses, rel=TOLERANCE, abs=0)


def test_a_curve_of_100_steps_is_bitwise_that_of_one_stage(own_model):
    """In float32, at the same number of micro-batches."""
    model = own_model(Chain, torch.float32)
    run = {"batch": 12, "steps": 100, "optimizer": ADAMW, "schedule": "2bw"}
    one = model.train(layout=(1, 1, 4), **run)
    many = model.train(layout=(3, 1, 4), **run)
    assert one.losses[-1] < 0.9 * one.losses[0]
    assert is_bitwise_equal(one, many)
    assert model.train(layout=(1, 1, 4), **{**run, "schedule": "1f1b"}).losses != one.losses


@pytest.mark.parametrize("layout", [(3, 1, 4), (3, 2, 5)])
def test_extra_warm_ups_change_no_number(own_model, layout):
    """Batches of 12 and, at the end of the data, of 4: too few micro-batches for a step to run ahead."""
    model = own_model(Shared)
    run = {"layout": layout, "schedule": "2bw", "batch": 20, "steps": 8, "optimizer": ADAMW}
    plain = model.train("--clip-norm", 0.5, **run)
    assert is_bitwise_equal(plain, model.train("--clip-norm", 0.5, "--extra-warm-ups", "1,1", **run))
    assert is_bitwise_equal(plain, model.train("--clip-norm", 0.5, "--extra-warm-ups", "0,2", **run))


def test_extra_warm_ups_that_do_not_fit_are_refused(own_model):
    model = own_model(Chain)
    run = ["--batch", 12, "--steps", 2, "--pp", 3, "--micro-batches", 3]
    refused = model.command(*run, "--schedule", "2bw", "--extra-warm-ups", "1,1", code=2)
    assert refused.stderr == (
        "trireme: schedule 2bw of 3 stages runs 4 forwards ahead, but a step has 3 micro-batches; give at least 4\n"
    )
    refused = model.command(*run, "--schedule", "gpipe", "--extra-warm-ups", "1,1", code=2)
    assert refused.stderr == "trireme: schedule gpipe has no extra warm-ups, which are for 1f1b and 2bw\n"


@pytest.mark.parametrize("transport", ["gloo", "direct"])
@pytest.mark.parametrize("layout", [(2, 1, 4), (2, 2, 3)])
def test_processes_train_as_threads_do(own_model, tmp_path, layout, transport):
    """Over a wire, where sums and messages of two steps are on their way at once; and their timeline can be read."""
    model, timeline = own_model(Shared), tmp_path / "run.timeline"
    run = {"layout": layout, "schedule": "2bw", "batch": 12, "steps": 8, "optimizer": ADAMW}
    threads = model.train("--clip-norm", 0.5, **run)
    workers = ["--workers", layout[0] * layout[1], "--transport", transport, "--timeline", timeline]
    assert is_bitwise_equal(threads, model.train("--clip-norm", 0.5, *workers, **run))
    report = json.loads(command.run("report", timeline, "--json").stdout)
    assert report["steps"] == 8
    for rank in report["ranks"]:
        assert sum(rank.values()) == report["wall_ns"]


@pytest.mark.parametrize("layout", [(2, 1, 4), (4, 2, 4)])
def test_evaluations_and_files_see_the_newest_weights_and_change_nothing(own_model, tmp_path, layout):
    model = own_model(Chain)
    run = {"layout": layout, "schedule": "2bw", "batch": 12, "optimizer": ADAMW}
    plain = model.train(steps=7, **run)
    data = ["--eval-data", f"safetensors:{model.data}", "--eval-every", 3]
    watched = model.train(*data, "--save-every", 2, steps=7, **run)
    assert is_bitwise_equal(plain, watched)
    assert [line["step"] for line in watched.evaluations] == [3, 6, 7]
    at_3 = model.fresh()
    at_3.load_state_dict(model.train(steps=3, **run).state)
    assert watched.evaluations[0]["eval_loss"] == pytest.approx(model.mean_loss(at_3, 12), rel=TOLERANCE, abs=0)


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 1, 2), (3, 1, 2)])
@pytest.mark.parametrize("fault", ["loss", "gradient norm"])
@pytest.mark.parametrize("steps", [4, 5, 8])
def test_a_step_that_is_not_finite_leaves_weights_and_buffers_as_they_were(own_model, tmp_path, layout, fault, steps):
    """It is found while the next step runs, and the one after has begun."""
    model = own_model(Classifier)
    value = float("nan") if fault == "loss" else 0.0
    data = edited(model, tmp_path / "data.safetensors", "x", slice(18, 24), value)
    saved, rule = tmp_path / "saved.safetensors", ["--clip-norm", 1e9]
    wanted = model.train(*rule, layout=layout, schedule="2bw", batch=BATCH, steps=3).state
    run = ["train", model.archive, "--data", data, *rule, *options(layout, steps), "--schedule", "2bw", "--workers", 1]
    said = lines(command.run(*run, "--save", saved, code=1))[0]
    last = layout[0] - 1
    where = f", first on rank {last} (stage {last}, replica 0)" if fault == "loss" else ""
    assert said == f"{failure(layout)}the {fault} of step 4 is not finite{where}; the weights of step 3 are in {saved}"
    assert is_same_state(saved, wanted)


def test_what_cannot_overlap_is_refused(own_model):
    said = own_model(Chain).command(
        "--steps", 1, "--batch", 8, "--pp", 4, "--micro-batches", 2, "--schedule", "2bw", code=2
    )
    assert said.stderr == (
        "trireme: schedule 2bw of 4 stages runs 3 forwards ahead, but a step has 2 micro-batches; give at least 3\n"
    )
    said = own_model(Classifier).command("--steps", 1, "--batch", 8, "--dp", 2, "--schedule", "2bw", code=2)
    assert said.stderr == (
        'trireme: schedule 2bw with --dp 2: replicas cannot combine "norm.running_mean", which the forward pass changes, '
        "while their steps overlap; use --dp 1 or another schedule\n"
    )


class Renormed(Chain):
    """Its embedding is scaled down in the forward pass."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 6, max_norm=1.0)

    def forward(self, x, y):
        return super().forward(x + self.embed((x[:, 0] > 0).long()), y)


def test_a_parameter_that_forward_changes_is_refused(own_model):
    said = own_model(Renormed).command("--steps", 1, "--batch", 8, "--schedule", "2bw", code=2)
    assert said.stderr == (
        'trireme: schedule 2bw keeps two versions of parameter "embed.weight", which the forward pass changes; use '
        "another schedule\n"
    )
