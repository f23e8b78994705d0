"""What a user can get wrong is said word for word, before any rank starts: exit status 2, nothing on stdout."""

from __future__ import annotations

import json
import os
import subprocess

import command
import pytest
import torch
import torch.nn.functional as F
from own_model import TOLERANCE, integers, normal
from torch import nn

pytestmark = pytest.mark.binary

MODEL = command.DATA / "mlp.f32.pt2"
DATA = f"safetensors:{command.DATA / 'mlp.f32.data.safetensors'}"
RUN = ["train", MODEL, "--data", DATA, "--batch", 8]
TRAIN = [*RUN, "--steps", 2]
EVAL = ["eval", MODEL, "--data", DATA, "--batch", 8]
PLAN = ["plan", MODEL]
HELP = "; see trireme --help"
TRAIN_HELP, EVAL_HELP, PLAN_HELP = (f"; see trireme {name} --help" for name in ("train", "eval", "plan"))
CORES = len(os.sched_getaffinity(0))


def refusal(*arguments):
    result = command.run(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("trireme: ").rstrip("\n")


def numbers(option, *rest, base=TRAIN):
    """Options that count: at least 1, or at least 0."""
    least = 0 if option in ("--seed", "--warmup-steps") else 1
    for value in [least - 1, "many", "1.5"]:
        said = f"{option}: {value} is not a whole number of at least {least}; see trireme {base[0]} --help"
        yield [*base, option, value, *rest], said


SAID = [
    (
        [],
        "give a command: inspect, plan, policies, schedule, profile, probe, simulate, tune-comm, rehearse, report, train, eval"
        + HELP,
    ),
    (
        ["--foo", "train"],
        "--foo is no option before a command; give a command: inspect, plan, policies, schedule, profile, probe, simulate, tune-comm, rehearse, report, train, eval"
        + HELP,
    ),
    ([*PLAN, "--json", "--show-schedule"], "--json has no drawing; leave out --show-schedule"),
    (
        ["trian"],
        "there is no command trian; known are inspect, plan, policies, schedule, profile, probe, simulate, tune-comm, rehearse, report, train, eval"
        + HELP,
    ),
    (["train"], "MODEL is required" + TRAIN_HELP),
    (["eval"], "MODEL is required" + EVAL_HELP),
    (["plan"], "MODEL is required" + PLAN_HELP),
    (["inspect"], "MODEL is required; see trireme inspect --help"),
    (["train", MODEL], "--data is required" + TRAIN_HELP),
    (["train", MODEL, "--data", DATA], "--batch is required" + TRAIN_HELP),
    (RUN, "train needs --steps or --epochs"),
    ([*TRAIN, "--epochs", 1], "--steps excludes --epochs" + TRAIN_HELP),
    ([*TRAIN, "--batchs", 3], "train does not take --batchs; see trireme train --help"),
    ([*EVAL, "--steps", 3], "eval does not take --steps; see trireme eval --help"),
    ([*PLAN, "--lr", 1], "plan does not take --lr; see trireme plan --help"),
    *numbers("--steps", base=RUN),
    *numbers("--epochs", base=RUN),
    *numbers("--batch", "--steps", 1, base=["train", MODEL, "--data", DATA]),
    *numbers("--seq-len"),
    *numbers("--pp"),
    *numbers("--dp"),
    *numbers("--micro-batches"),
    *numbers("--pp", base=PLAN),
    *numbers("--workers"),
    *numbers("--threads"),
    *numbers("--seed"),
    *numbers("--warmup-steps"),
    *numbers("--save-every", "--save", "weights.safetensors"),
    *numbers("--eval-every", "--eval-data", DATA),
    *numbers("--eval-batches", "--eval-data", DATA),
    *numbers("--eval-batches", base=EVAL),
    (
        [*TRAIN, "--pp", 10**11],
        f"--pp: {10**11} is not a whole number of at least 1 and at most 2147483647" + TRAIN_HELP,
    ),
    (
        [*TRAIN, "--seed", 2**64],
        f"--seed: {2**64} is not a whole number of at least 0 and at most {2**63 - 1}" + TRAIN_HELP,
    ),
    (
        [*TRAIN, "--warmup-steps", 2**63],
        f"--warmup-steps: {2**63} is not a whole number of at least 0 and at most {2**63 - 1}" + TRAIN_HELP,
    ),
    ([*TRAIN, "--seed", ""], "--seed: '' is not a whole number of at least 0" + TRAIN_HELP),
    ([*TRAIN, "--seed", "0x10"], "--seed: 0x10 is not a whole number of at least 0" + TRAIN_HELP),
    ([*TRAIN, "--optimizer", "lion"], "--optimizer: lion not in {sgd,adamw,lazy-adamw}" + TRAIN_HELP),
    ([*TRAIN, "--lr-schedule", "step"], "--lr-schedule: step not in {constant,linear,cosine}" + TRAIN_HELP),
    ([*TRAIN, "--betas", "0.9"], "--betas: At least 2 required but received 1" + TRAIN_HELP),
    ([*TRAIN, "--betas", "a,b"], "Could not convert: --betas = a,b" + TRAIN_HELP),
    ([*TRAIN, "--betas", "nan,0.9"], "--betas nan must be at least 0 and less than 1"),
    ([*TRAIN, "--lr", "fast"], "--lr: 'fast' is not a number" + TRAIN_HELP),
    ([*TRAIN, "--lr", ""], "--lr: '' is not a number" + TRAIN_HELP),
    ([*TRAIN, "--lr", "1e400"], "--lr: 1e400 is beyond the range of a double, some 1e-308 to 1e308" + TRAIN_HELP),
    ([*TRAIN, "--clip-norm", "none"], "--clip-norm: 'none' is not a number" + TRAIN_HELP),
    ([*TRAIN, "--clip-norm", "inf"], "--clip-norm inf must be greater than 0 and finite"),
    ([*TRAIN, "--weight-decay", "1,5"], "--weight-decay: '1,5' is not a number" + TRAIN_HELP),
    ([*TRAIN, "--eps", "nan"], "--eps nan must be at least 0"),
    ([*TRAIN, "--optimizer", "sgd", "--momentum", "nan"], "--momentum nan must be at least 0"),
    *(
        ([*base, option, ""], f"{option}: it is empty; see trireme {base[0]} --help")
        for base, options in {
            tuple(TRAIN): [
                "--save",
                "--metrics",
                "--grad-norms",
                "--init",
                "--plan",
                "--cut",
                "--freeze",
                "--no-decay",
            ],
            tuple(PLAN): ["--output"],
        }.items()
        for option in options
    ),
    ([*TRAIN, "--eval-data", ""], "--eval-data: it is empty" + TRAIN_HELP),
    (["inspect", ""], "MODEL: it is empty; see trireme inspect --help"),
    (
        [*TRAIN, "--freeze", "(" * 20000],
        "--freeze: the expression has 20000 characters, more than 1000" + TRAIN_HELP,
    ),
    ([*TRAIN, "--seq-len", 8], f"--seq-len 8 is for bytes: and tokens:, not for {DATA}"),
    ([*EVAL, "--seq-len", 8], f"--seq-len 8 is for bytes: and tokens:, not for {DATA}"),
    (
        [*TRAIN, "--threads", 100000],
        f"--threads 100000 is more than {8 * CORES}, 8 for each of the {CORES} cores of this machine",
    ),
    (
        ["train", MODEL, "--data", DATA, "--batch", 5000, "--steps", 1],
        f"--batch 5000 is more than the 64 samples of --data {DATA}",
    ),
    ([*TRAIN, "--betas", "0.9,1"], "--betas 1 must be at least 0 and less than 1"),
    ([*TRAIN, "--lr", -1], "--lr -1 must be at least 0"),
    ([*TRAIN, "--lr", "nan"], "--lr nan must be at least 0"),
    ([*TRAIN, "--eps", -1], "--eps -1 must be at least 0"),
    ([*TRAIN, "--weight-decay", -1], "--weight-decay -1 must be at least 0"),
    ([*TRAIN, "--clip-norm", 0], "--clip-norm 0 must be greater than 0"),
    ([*TRAIN, "--optimizer", "sgd", "--momentum", -1], "--momentum -1 must be at least 0"),
    ([*TRAIN, "--optimizer", "sgd", "--nesterov"], "--nesterov needs --momentum greater than 0"),
    ([*TRAIN, "--momentum", 0.9], "--momentum is for --optimizer sgd, not adamw"),
    ([*TRAIN, "--optimizer", "sgd", "--eps", 1e-6], "--eps is for --optimizer adamw, not sgd"),
    ([*TRAIN, "--save-every", 2], "--save-every needs --save"),
    ([*TRAIN, "--eval-every", 2], "--eval-every and --eval-batches need --eval-data"),
    ([*TRAIN, "--eval-batches", 2], "--eval-every and --eval-batches need --eval-data"),
    ([*TRAIN, "--plan", "p.yaml", "--dp", 2], "--plan p.yaml already says what --dp says; leave one of them out"),
    ([*TRAIN, "--warmup-steps", 3], "--warmup-steps 3 is more than the 2 steps of the run"),
    ([*TRAIN, "--workers", 3], "--workers 3 is neither 1 nor pp x dp = 1"),
    ([*TRAIN, "--pp", 2, "--dp", 2, "--workers", 2], "--workers 2 is neither 1 nor pp x dp = 4"),
    (
        [*TRAIN, "--dp", 4, "--micro-batches", 3],
        "--batch 8 has fewer samples than dp x micro-batches = 4 x 3 = 12",
    ),
    ([*EVAL, "--pp", 9], "--batch 8 has fewer samples than dp x micro-batches = 1 x 9 = 9"),
    ([*TRAIN, "--pp", 40], "the model can be cut at 11 places, which makes 12 stages, not --pp 40"),
    ([*PLAN, "--pp", 40], "the model can be cut at 11 places, which makes 12 stages, not --pp 40"),
    ([*TRAIN, "--pp", 1, "--cut", "head"], "--cut names 1 module, but --pp 1 needs 0"),
    ([*TRAIN, "--pp", 2, "--cut", "head,layers.1"], "--cut names 2 modules, but --pp 2 needs 1"),
    (
        [*TRAIN, "--pp", 2, "--cut", "tail"],
        "--cut names the module 'tail', which the model does not have; trireme inspect lists those it can be cut "
        "before",
    ),
    ([*TRAIN, "--pp", 3, "--cut", "head,layers.2"], "--cut names 'layers.2' after a module that runs later"),
    (
        [*TRAIN, "--pp", 2, "--cut", "layers.0"],
        "the model cannot be cut before module 'layers.0': nothing comes before it",
    ),
    (
        [*TRAIN, "--schedule", "zigzag"],
        "there is no schedule 'zigzag' to train by; known are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe-v, pre-recompute, last-no-recompute, shifted-critical-path, 2bw, greedy",
    ),
    (
        [*PLAN, "--schedule", "forward-only"],
        "there is no schedule 'forward-only' to train by; known are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe-v, pre-recompute, last-no-recompute, shifted-critical-path, 2bw, greedy",
    ),
    (
        [*TRAIN, "--freeze", "wte"],
        "--freeze 'wte' is found in no parameter's name; trireme inspect lists the parameters",
    ),
    ([*TRAIN, "--freeze", "("], "--freeze: '(' is not a regular expression: Unmatched ( or \\("),
    (
        [*TRAIN, "--freeze", "."],
        f"{MODEL}: the loss reaches no parameter that is trained; freeze fewer of them",
    ),
    (
        [*TRAIN, "--no-decay", "wte"],
        "--no-decay 'wte' is found in no parameter's name; trireme inspect lists the parameters",
    ),
    ([*TRAIN, "--no-decay", "[a"], "--no-decay: '[a' is not a regular expression: Unmatched [, [^, [:, [., or [="),
    ([*TRAIN, "--replan", "1.05"], "--replan 1.05: a link has drifted from 1.1 times on; 0 is never"),
    ([*TRAIN, "--replan", "-1"], "--replan -1: a link has drifted from 1.1 times on; 0 is never"),
    ([*TRAIN, "--save", "/nowhere/w"], "--save /nowhere/w: there is no folder /nowhere"),
    ([*TRAIN, "--save", "/tmp"], "--save /tmp: this is a folder, not a file"),
    ([*TRAIN, "--save", MODEL], f"--save {MODEL} would overwrite MODEL"),
    ([*PLAN, "-o", MODEL], f"-o {MODEL} would overwrite MODEL"),
    ([*TRAIN, "--grad-norms", DATA.partition(":")[2]], f"--grad-norms {DATA.partition(':')[2]} would overwrite --data"),
    ([*TRAIN, "--metrics", "/tmp/o", "--save", "/tmp/../tmp/o"], "--save /tmp/../tmp/o would overwrite --metrics"),
    ([*TRAIN, "--metrics", "/nowhere/m"], "--metrics /nowhere/m: there is no folder /nowhere"),
    ([*TRAIN, "--grad-norms", "/nowhere/g"], "--grad-norms /nowhere/g: there is no folder /nowhere"),
    ([*PLAN, "-o", "/nowhere/p"], "-o /nowhere/p: there is no folder /nowhere"),
    ([*TRAIN, "--init", "/nowhere"], "cannot open /nowhere: No such file or directory"),
    ([*TRAIN, "--plan", "/nowhere"], "cannot open /nowhere: No such file or directory"),
    (["train", "/nowhere", *TRAIN[2:]], "cannot open /nowhere: No such file or directory"),
    (["eval", "/nowhere", *EVAL[2:]], "cannot open /nowhere: No such file or directory"),
    (["plan", "/nowhere"], "cannot open /nowhere: No such file or directory"),
    (["inspect", "/nowhere"], "cannot open /nowhere: No such file or directory"),
]


@pytest.mark.parametrize(("arguments", "said"), SAID, ids=[" ".join(map(str, a[-2:])) for a, _ in SAID])
def test_what_is_wrong_with_a_request(arguments, said):
    assert refusal(*arguments) == said


def test_cut_says_how_many_stages_there_are():
    text = command.run("plan", MODEL, "--cut", "layers.1,head", "--json").stdout
    plan = json.loads(text)
    assert (plan["pp"], plan["micro_batches"]) == (3, 3)
    assert [stage["first_module"] for stage in plan["stages"][1:]] == ["layers.1", "head"]


@pytest.mark.parametrize("arguments", [[*PLAN, "--json"], ["inspect", MODEL], EVAL, ["--help"]], ids=str)
def test_a_result_that_cannot_be_written(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [command.BINARY, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "trireme: cannot write to stdout: No space left on device"


def test_numbers_are_decimal():
    assert (
        command.run("plan", MODEL, "--dp", "010", "--json").stdout
        == command.run("plan", MODEL, "--dp", 10, "--json").stdout
    )


# --- plans -------------------------------------------------------------------------------------------------------

EDITS = {
    "another format": ("trireme-plan-1", "2", "it is not a plan of trireme plan (format: trireme-plan-1 is missing)"),
    "no map": ("format: ", "format- ", None),
    "another model": (
        "num_nodes: 12",
        "num_nodes: 13",
        "the plan is for a model of 13 nodes, not 12; make it again with trireme plan",
    ),
    "more stages": ("pp: 2", "pp: 3", "the plan has 2 stages but says pp 3"),
    "no replica": ("dp: 1", "dp: 0", "the plan has pp 2, dp 0 and micro_batches 2; each is at least 1"),
    "another schedule": (
        "schedule: 1f1b",
        "schedule: zigzag",
        "there is no schedule 'zigzag' to train by; known are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe-v, pre-recompute, last-no-recompute, shifted-critical-path, 2bw, greedy",
    ),
    "another node": (
        "first_node: linear_2",
        "first_node: linear_9",
        "the plan names the node linear_9, which the model does not have; make the plan again with trireme plan",
    ),
    "an early node": (
        "first_node: linear_2",
        "first_node: linear",
        "stage 1 of the plan does not begin after stage 0",
    ),
    "a missing key": ("micro_batches: 2\n", "", "it has no 'micro_batches'; make the plan again"),
    "a missing node": ("- first_node", "- node", "stage 0 has no 'first_node'; make the plan again"),
    "a word": ("pp: 2", "pp: two", "line 4: the value is of another kind than trireme plan writes"),
    "a bracket": ("stages:", "stages: [", "line 9 is not YAML (illegal block entry)"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_wrong_with_a_plan(tmp_path, edit):
    path = tmp_path / "plan.yaml"
    command.run("plan", MODEL, "--pp", 2, "-o", path)
    old, new, said = EDITS[edit]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = refusal(*TRAIN, "--plan", path)
    assert found.startswith(f"{path}: ")
    assert said is None or found == f"{path}: {said}"
    assert refusal(*EVAL, "--plan", path) == found


# --- models ------------------------------------------------------------------------------------------------------

WIDTH = 4


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, 12, WIDTH)}

    def middle(self, x):
        return x

    def forward(self, x):
        return self.last(self.middle(self.first(x))).square().mean()


class Selects(Layers):
    """The data decides a size."""

    def middle(self, x):
        return x[x[:, 0] > -9]


class Nonzero(Layers):
    def middle(self, x):
        return x + torch.nonzero(x > 0).double().mean()


@pytest.mark.parametrize("kind", [Selects, Nonzero])
def test_sizes_that_the_data_decides(own_model, kind):
    """T40: one stage trains them, or they are refused in a sentence; more stages never part a size from its uses."""
    model = own_model(kind)
    options = ["--data", f"safetensors:{model.data}", "--batch", 4, "--steps", 1, "--pp", 9, "--micro-batches", 1]
    said = refusal("train", model.archive, *options)
    if said.startswith(f"{model.archive}: node "):
        assert said == refusal("inspect", model.archive)
        return
    assert "the model can be cut at" in said
    assert model.train(batch=4).losses == pytest.approx(model.expected(batch=4).losses, rel=TOLERANCE)


def test_a_batch_that_is_no_symbol(tmp_path):
    path, data = tmp_path / "static.pt2", DATA
    program = torch.export.export(Layers().double(), (torch.zeros(3, WIDTH, dtype=torch.float64),))
    torch.export.save(program, path)
    assert refusal("train", path, "--data", data, "--batch", 4, "--steps", 1) == (
        f"{path}: the batch is not one symbolic size of every input (x f64[3,4]); export it with trireme.export, or with "
        "one shared Dim for all inputs, or say where it is by --batch-dim INPUT=DIM and --jagged VALUES=OFFSETS"
    )


class Normed(Layers):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def middle(self, x):
        return self.norm(x)


def test_batch_norm_over_one_sample_is_refused(own_model):
    """PyTorch refuses it, too; the operator alone would store a variance that is not a number."""
    model = own_model(Normed)
    result = model.command("--batch", 3, "--steps", 1, "--micro-batches", 2, code=1)
    assert result.stdout == ""
    assert (
        "aten.batch_norm.default of module 'norm': training needs more than one value a channel, but a micro-batch of "
        "sizes [1, 4] has one; use fewer micro-batches, or --drop-last where the last batch of an epoch is too short"
    ) in result.stderr
    model.train(batch=5, layout=(1, 1, 2), steps=2)


class Renormed(Layers):
    """Its forward changes a parameter."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, WIDTH, max_norm=0.7)

    @staticmethod
    def rows(generator):
        return {"tokens": integers(generator, 5, 12)}

    def forward(self, tokens):
        return F.mse_loss(
            self.last(torch.tanh(self.first(self.embed(tokens)))), torch.ones(tokens.shape[0], WIDTH).double()
        )


def test_a_parameter_that_forward_changes(own_model):
    """Replicas would change it each in its own way."""
    model = own_model(Renormed)
    trained = model.train(batch=6)
    assert trained.losses == pytest.approx(model.expected(batch=6).losses, rel=TOLERANCE)
    options = ["--data", f"safetensors:{model.data}", "--batch", 4, "--steps", 1, "--dp", 2]
    assert refusal("train", model.archive, *options) == (
        "the forward pass changes parameter 'embed.weight' by aten.embedding_renorm_.default, which replicas cannot "
        "combine; use --dp 1"
    )


class Clamped(Layers):
    """Clamps a weight after its last use, for the next step; its backward does not need it."""

    def forward(self, x):
        loss = super().forward(x)
        with torch.no_grad():
            self.first.weight.clamp_(-0.2, 0.2)
        return loss


def test_a_parameter_that_is_clamped_behind_its_last_use(own_model):
    model = own_model(Clamped)
    run = model.expected(batch=6)
    trained = model.train(batch=6)
    assert trained.losses == pytest.approx(run.losses, rel=TOLERANCE)
    assert torch.allclose(trained.state["first.weight"], run.state["first.weight"], rtol=TOLERANCE)
