"""Gradients of embedding tables that are summed row by row give the bits that whole tables give."""

from __future__ import annotations

import json

import command
import pytest
import torch
import torch.nn.functional as F
from chain import NUM_ROWS, WIDTH, check
from own_model import ADAMW, SGD, TOLERANCE, compare_states, integers, is_bitwise_equal, normal
from reference import Optimizer
from test_timeline import events
from test_two_bw import check as check_2bw
from torch import nn

pytestmark = pytest.mark.binary

PLAIN_SGD = Optimizer("sgd", lr=0.05)
TABLE = 60


class Tables(nn.Module):
    """Two tables, one read twice; indices are repeated, and index 3 of the other one is padding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(TABLE, WIDTH)
        self.places = nn.Embedding(40, WIDTH, padding_idx=3)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    @staticmethod
    def rows(generator):
        return {
            "ids": integers(generator, TABLE, NUM_ROWS, 3) // 2,
            "others": integers(generator, TABLE, NUM_ROWS),
            "at": integers(generator, 7, NUM_ROWS),
            "y": normal(generator, NUM_ROWS, WIDTH),
        }

    def forward(self, ids, others, at, y):
        x = self.words(ids).sum(1) * self.words(others) + self.places(at)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x, y)


class Bags(nn.Module):
    """A bag of rows a sample; in the middle of the model, so that a stage other than the first may hold the table."""

    def __init__(self):
        super().__init__()
        self.before = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.bags = nn.EmbeddingBag(TABLE, WIDTH, mode="mean")
        self.after = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    @staticmethod
    def rows(generator):
        return {
            "x": normal(generator, NUM_ROWS, WIDTH),
            "ids": integers(generator, TABLE, NUM_ROWS, 2),
            "y": normal(generator, NUM_ROWS, WIDTH),
        }

    def forward(self, x, ids, y):
        for layer in self.before:
            x = x + torch.tanh(layer(x))
        x = x + self.bags(ids)
        for layer in self.after:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x, y)


class Small(Tables):
    """Tables of 5 rows and of 1, of which a batch reads all but one: they are summed whole after all."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(5, WIDTH), nn.Embedding(1, WIDTH)

    @staticmethod
    def rows(generator):
        rows = Tables.rows(generator)
        return {**rows, "ids": rows["ids"] % 4, "others": rows["others"] % 4, "at": rows["at"] * 0}


class Head(Tables):
    """The table is the head, too: it is no row table."""

    def forward(self, ids, others, at, y):
        x = self.words(ids).sum(1) + self.places(at) + self.words(others)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x @ self.words.weight.T / TABLE @ self.words.weight, y)


class Kinds(Tables):
    """Gradients that are sparse tensors, that are divided by how often a micro-batch reads a row, and a table of which none is
    read."""

    def __init__(self):
        super().__init__()
        self.sparse = nn.Embedding(TABLE, WIDTH, sparse=True)
        self.scaled = nn.Embedding(TABLE, WIDTH, scale_grad_by_freq=True)
        self.never_read = nn.Embedding(TABLE, WIDTH)

    def forward(self, ids, others, at, y):
        y = y - self.sparse(others) * self.scaled(ids).mean(1) + 0 * self.never_read(at[:0]).sum()
        return super().forward(ids, others, at, y)


def run_of(model, choice, layout, *options, transport="direct", **run):
    """By processes."""
    workers = ["--workers", layout[0] * layout[1], "--transport", transport]
    return model.train("--sparse", choice, *workers, *options, layout=layout, **run)


@pytest.mark.parametrize("optimizer", [PLAIN_SGD, SGD, ADAMW], ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize(
    ("schedule", "layout"),
    [
        ("gpipe", (2, 2, 2)),
        ("1f1b", (1, 2, 2)),
        ("1f1b", (2, 3, 2)),
        ("interleaved", (2, 2, 2)),
        ("zb-h1", (2, 2, 3)),
        ("pre-recompute", (2, 2, 2)),
    ],
)
@pytest.mark.parametrize("kind", [Tables, Bags, Small, Head])
def test_rows_train_as_one_process_does(own_model, kind, schedule, layout, optimizer):
    """Batches of 11, 11 and 2 rows: replicas have micro-batches of several sizes, and none."""
    check(own_model(kind), layout, "--sparse", "always", schedule=schedule, steps=6, optimizer=optimizer)


@pytest.mark.parametrize("clip_norm", [None, 0.3], ids=["plain", "clipped"])
@pytest.mark.parametrize("optimizer", [PLAIN_SGD, SGD, ADAMW], ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("layout", [(1, 1, 2), (2, 2, 2), (1, 3, 2), (3, 2, 3)])
def test_rows_of_overlapping_steps(own_model, layout, optimizer, clip_norm):
    run = {"steps": 7, "optimizer": optimizer, "clip_norm": clip_norm}
    check_2bw(own_model(Tables), layout, "--sparse", "always", **run)


@pytest.mark.parametrize("layout", [(1, 1, 1), (1, 1, 2), (2, 2, 2)])
@pytest.mark.parametrize("schedule", ["1f1b", "pre-recompute"])
def test_rows_that_wait_for_their_updates_are_current_when_they_are_read(own_model, schedule, layout):
    """By the passes of a later step, by evaluations, of other rows, and by what is saved; at a rate that changes."""
    model = own_model(Tables)
    data = ["--eval-data", f"safetensors:{model.data}", "--eval-every", 7, "--save-every", 5]
    options = [*data, "--lr-schedule", "cosine", "--clip-norm", 0.5]
    run = {"schedule": schedule, "layout": layout, "steps": 40, "batch": 4, "optimizer": ADAMW}
    late, never = (model.train("--sparse", choice, *options, **run) for choice in ("always", "never"))
    assert late.losses == pytest.approx(never.losses, rel=TOLERANCE, abs=0)
    assert [line["eval_loss"] for line in late.evaluations] == pytest.approx(
        [line["eval_loss"] for line in never.evaluations], rel=TOLERANCE, abs=0
    )
    compare_states(never.state, late.state)


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 2, 1), (1, 3, 2)])
def test_rows_of_other_kinds_of_embeddings(own_model, layout):
    """As whole tables are trained: how often a row is read depends on the micro-batch."""
    run = {"layout": layout, "steps": 6, "optimizer": ADAMW}
    rows, whole = (own_model(Kinds).train("--sparse", choice, **run) for choice in ("always", "never"))
    assert rows.losses == pytest.approx(whole.losses, rel=TOLERANCE, abs=0)
    compare_states(whole.state, rows.state)


def lazy_adamw(model, optimizer, steps):
    """By hand, in one process: the model's state. A row of a table is as it was in steps that do not read it."""
    module, batches = model.fresh(), list(model.batches(11))
    averages = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in module.named_parameters()}
    beta1, beta2 = optimizer.betas
    for step in range(1, steps + 1):
        batch = batches[(step - 1) % len(batches)]
        words = torch.cat([batch["ids"].flatten(), batch["others"]]).unique()
        read = {"words.weight": words, "places.weight": batch["at"].unique()}
        module.zero_grad()
        module(**batch).backward()
        with torch.no_grad():
            for name, p in module.named_parameters():
                rows, (mean, square) = read.get(name, slice(None)), averages[name]
                mean[rows] = beta1 * mean[rows] + (1 - beta1) * p.grad[rows]
                square[rows] = beta2 * square[rows] + (1 - beta2) * p.grad[rows] ** 2
                p[rows] *= 1 - optimizer.lr * optimizer.weight_decay
                size = (square[rows] / (1 - beta2**step)).sqrt() + optimizer.eps
                p[rows] -= optimizer.lr * mean[rows] / (1 - beta1**step) / size
    return module.state_dict()


LAZY = Optimizer("lazy-adamw", lr=3e-3, eps=1e-6, weight_decay=0.1)


@pytest.mark.parametrize("kind", [Tables, Small])
@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 1, 2), (1, 2, 2), (2, 3, 1)])
def test_lazy_adamw_is_its_rule_in_every_layout(own_model, kind, layout):
    model = own_model(kind)
    found = model.train(layout=layout, steps=8, optimizer=LAZY)
    compare_states(lazy_adamw(model, LAZY, 8), found.state)
    assert found.losses != model.train(layout=layout, steps=8, optimizer=ADAMW).losses or kind is Small


def test_lazy_adamw_needs_the_rows(own_model):
    refused = own_model(Tables).command(
        *("--batch", 4, "--steps", 1, "--optimizer", "lazy-adamw", "--sparse", "never"), code=2
    )
    assert refused.stderr == (
        "trireme: --optimizer lazy-adamw needs the rows of tables; leave out --sparse never, or use adamw\n"
    )


BITS = [
    (Tables, "1f1b", (1, 2, 2), PLAIN_SGD),
    (Tables, "gpipe", (1, 3, 2), SGD),
    (Tables, "zb-h1", (2, 2, 3), SGD),
    (Tables, "2bw", (1, 2, 2), ADAMW),
    (Tables, "2bw", (2, 2, 2), PLAIN_SGD),
    (Bags, "1f1b", (2, 2, 2), PLAIN_SGD),
    (Small, "1f1b", (1, 2, 1), PLAIN_SGD),
]


@pytest.mark.parametrize(("kind", "schedule", "layout", "optimizer"), BITS)
def test_rows_give_the_bits_of_whole_tables(own_model, kind, schedule, layout, optimizer):
    run = {"schedule": schedule, "layout": layout, "steps": 6, "optimizer": optimizer}
    assert is_bitwise_equal(*(run_of(own_model(kind), choice, **run) for choice in ("always", "never")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_give_the_same_bits(own_model, dtype):
    run = {"layout": (1, 2, 2), "steps": 6, "optimizer": PLAIN_SGD}
    assert is_bitwise_equal(*(run_of(own_model(Tables, dtype), choice, **run) for choice in ("always", "never")))


@pytest.mark.parametrize("schedule", ["1f1b", "2bw"])
def test_every_policy_and_transport_gives_the_same_bits(own_model, schedule):
    run = {"schedule": schedule, "steps": 6, "optimizer": ADAMW}
    ways = [("end", "direct"), ("fifo", "direct"), ("trirace", "direct"), ("trirace", "gloo")]
    runs = [
        run_of(own_model(Tables), "always", (2, 2, 2), "--comm", policy, "--clip-norm", 0.3, transport=transport, **run)
        for policy, transport in ways
    ]
    assert all(is_bitwise_equal(runs[0], other) for other in runs[1:])


def summed(path, step):
    """Bytes of each exchange of rows of rank 0, by action."""
    own = [words for words in events(path) if words[1] == "0" and f"step={step}" in words and words[2].startswith("SX")]
    return {w[2]: int(next(word for word in w if word.startswith("bytes="))[6:]) for w in own}


def test_the_bytes_are_those_of_the_rows_that_were_read(own_model, tmp_path):
    """Of float64: SX0 is a count a table and replica, SX1 an id each, and each sum a row of its union each."""
    model, path = own_model(Tables), tmp_path / "run.timeline"
    model.train("--sparse", "always", "--timeline", path, layout=(1, 2, 1), steps=2)
    for step in (1, 2):
        first = (step - 1) * 11
        shares = [slice(first, first + 6), slice(first + 6, first + 11)]
        words = [set(model.rows["ids"][s].flatten().tolist()) | set(model.rows["others"][s].tolist()) for s in shares]
        places = [set(model.rows["at"][s].tolist()) for s in shares]
        row = 8 * WIDTH
        assert summed(path, step) == {
            "SX0": 8 * 2 * 2,
            "SX1": 8 * sum(map(len, words + places)),
            "SX2": row * len(words[0] | words[1]),
            "SX3": row * len(places[0] | places[1]),
        }


def test_a_plan_says_what_is_chosen_and_why(own_model, tmp_path):
    archive, plan = own_model(Tables).archive, tmp_path / "plan.yaml"
    shown = command.run("plan", archive, "--dp", 2, "--sparse", "always", "--batch", 8, "-o", plan).stdout
    lines = [line for line in shown.splitlines() if line.startswith("gradients of")]
    assert [line.split(":")[0] for line in lines] == [
        'gradients of "words.weight" are summed row by row',
        'gradients of "places.weight" are summed row by row',
    ]
    assert "sparse: always\n" in plan.read_text()
    refused = command.run("simulate", archive, "--plan", plan, "--sparse", "never", code=2)
    assert refused.stderr == f"trireme: --plan {plan} already says what --sparse says; leave one of them out\n"
    tables = json.loads(command.run("plan", archive, "--dp", 2, "--batch", 8, "--json").stdout)["row_tables"]
    assert [(table["name"], table["is_chosen"]) for table in tables] == [
        ("words.weight", False),
        ("places.weight", False),
    ]
    assert "gradients of" not in command.run("plan", archive, "--batch", 8).stdout
    plan.write_text(plan.read_text().replace("always", "rarely"))
    refused = command.run("simulate", archive, "--plan", plan, code=2)
    assert refused.stderr == (
        f'trireme: {plan}: unknown choice "rarely" of sparse gradients; known are auto, never, always\n'
    )


def test_an_unknown_choice_is_refused(own_model):
    refused = command.run("plan", own_model(Tables).archive, "--sparse", "rarely", code=2)
    assert refused.stderr == (
        'trireme: --sparse: unknown choice "rarely" of sparse gradients; known are auto, never, always; '
        "see trireme plan --help\n"
    )
