"""--init of a Hugging Face checkpoint in several files, for a model that was exported without weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import processes
import pytest
import reference
import torch
import torch.nn.functional as F
from own_model import SGD, Trained, compare, integers, optimizer_arguments
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import trireme

pytestmark = pytest.mark.binary

LENGTH, VOCABULARY = 6, 32


class TinyLlama:
    """A checkpoint of three files, an archive without weights, and the plain loop that starts from the checkpoint."""

    def __init__(self, directory: Path, is_tied: bool) -> None:
        self.config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=is_tied,
        )
        self.archive, self.folder, self.data = (directory / n for n in ("llama.pt2", "checkpoint", "data.safetensors"))
        torch.manual_seed(5)
        LlamaForCausalLM(self.config).double().save_pretrained(self.folder, max_shard_size="30KB")
        self.index = json.loads((self.folder / "model.safetensors.index.json").read_text())["weight_map"]
        with trireme.empty_weights():
            model = LlamaForCausalLM(self.config).double()
        tokens = integers(torch.Generator().manual_seed(6), VOCABULARY, 12, LENGTH)
        self.rows = {"input_ids": tokens}
        save_file(self.rows, self.data)
        trireme.export(model, {"input_ids": tokens[:2]}, self.archive, loss="causal-lm")

    def step(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
        tokens = batch["input_ids"]
        logits = model(tokens, use_cache=False).logits[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), tokens[:, 1:].numel()

    def expected(self, steps: int) -> reference.Run:
        model = LlamaForCausalLM.from_pretrained(self.folder, dtype=torch.float64)
        return reference.train(self, model, self.rows, batch=4, steps=steps, optimizer=SGD)

    def command(self, *options: Any, code: int = 0, steps: int = 1) -> Any:
        return command.run(*self.arguments(*options, steps=steps), code=code)

    def arguments(self, *options: Any, steps: int = 1) -> list[Any]:
        data = ["--data", f"safetensors:{self.data}", "--batch", 4, "--steps", steps, "--no-shuffle", "--quiet"]
        where = [] if "--workers" in options else ["--workers", 1]
        return ["train", self.archive, *data, *optimizer_arguments(SGD), *where, *options]

    def refusal(self, init: Any) -> str:
        result = self.command("--init", init, code=2)
        assert result.stdout == ""
        return result.stderr


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], TinyLlama]:
    made: dict[bool, TinyLlama] = {}

    def get(is_tied: bool = True) -> TinyLlama:
        if is_tied not in made:
            made[is_tied] = TinyLlama(tmp_path_factory.mktemp("llama"), is_tied)
        return made[is_tied]

    return get


@pytest.fixture
def checkpoint(tiny_llama, tmp_path):
    """A copy that a test may damage: the model, and the folder."""
    model = tiny_llama(True)
    return model, Path(shutil.copytree(model.folder, tmp_path / "copy"))


@pytest.mark.parametrize(("is_tied", "workers"), [(True, 1), (True, 4), (False, 1)])
def test_a_checkpoint_of_several_files_trains_as_in_pytorch(tiny_llama, tmp_path, is_tied, workers):
    model = tiny_llama(is_tied)
    assert len(set(model.index.values())) == 3
    assert ("lm_head.weight" in model.index) == (not is_tied)
    metrics, saved = tmp_path / "metrics.jsonl", tmp_path / "saved.safetensors"
    layout = ["--pp", 2, "--dp", 2, "--micro-batches", 1, "--workers", workers]
    model.command("--init", model.folder, *layout, "--metrics", metrics, "--save", saved, steps=5)
    compare(model.expected(5), Trained(command.read_metrics(metrics), [], load_file(saved)))


@pytest.mark.parametrize("workers", [1, 4])
def test_an_archive_of_its_own_is_evaluated_with_the_weights_of_a_checkpoint(tiny_llama, tmp_path, workers):
    model = tiny_llama(True)
    evaluated, metrics, saved = (tmp_path / n for n in ("eval.pt2", "metrics.jsonl", "saved.safetensors"))
    with trireme.empty_weights():
        other = LlamaForCausalLM(model.config).double()
    trireme.export(other, {"input_ids": model.rows["input_ids"][:2]}, evaluated, loss="causal-lm", train=False)
    layout = ["--pp", 2, "--dp", 2, "--micro-batches", 1, "--workers", workers]
    evaluation = ["--eval-model", evaluated, "--eval-data", f"safetensors:{model.data}", "--eval-every", 2]
    model.command("--init", model.folder, *layout, *evaluation, "--metrics", metrics, "--save", saved, steps=3)
    lines = [line for line in command.read_metrics(metrics) if "eval_loss" in line]
    assert [line["step"] for line in lines] == [2, 3]
    for line in lines:
        trained = LlamaForCausalLM(model.config).double()
        trained.load_state_dict(model.expected(line["step"]).state)
        with torch.no_grad():
            wanted, _ = model.step(trained, model.rows)
        assert line["eval_loss"] == pytest.approx(wanted.item(), rel=1e-9)


def losses(model, tmp_path, *options):
    metrics = tmp_path / "losses.jsonl"
    model.command(*options, "--metrics", metrics, steps=2)
    return [line["loss"] for line in command.read_metrics(metrics)]


def test_the_index_and_what_was_saved_can_be_named_as_well(tiny_llama, tmp_path):
    model, saved = tiny_llama(True), tmp_path / "saved.safetensors"
    wanted = losses(model, tmp_path, "--init", model.folder, "--save", saved)
    assert losses(model, tmp_path, "--init", model.folder / "model.safetensors.index.json") == wanted
    folder = tmp_path / "one"
    LlamaForCausalLM.from_pretrained(model.folder, dtype=torch.float64).save_pretrained(folder)
    assert losses(model, tmp_path, "--init", folder) == wanted
    assert losses(model, tmp_path, "--init", saved)[0] < wanted[0]


def test_numbers_are_converted_as_load_state_dict_does(tiny_llama, tmp_path):
    """A checkpoint of 16 bits starts a model of 64: exactly the rounded numbers."""
    model = tiny_llama(True)
    rounded = LlamaForCausalLM.from_pretrained(model.folder, dtype=torch.bfloat16)
    rounded.save_pretrained(tmp_path / "16", max_shard_size="10KB")
    rounded.double().save_pretrained(tmp_path / "64")
    assert losses(model, tmp_path, "--init", tmp_path / "16") == losses(model, tmp_path, "--init", tmp_path / "64")


def test_without_init_nothing_is_made_up(tiny_llama, tmp_path):
    model = tiny_llama(True)
    message = f"trireme: {model.archive} holds no values of model.embed_tokens.weight and 37 more; "
    result = model.command(code=2)
    assert result.stderr == message + "give them with --init\n"
    data = ["--data", f"safetensors:{model.data}", "--batch", 4]
    assert command.run("eval", model.archive, *data, code=2).stderr == message + "give them with --init\n"
    command.run("eval", model.archive, *data, "--workers", 1, "--init", model.folder)


def test_inspect_and_plan_say_that_there_are_no_weights(tiny_llama):
    model = tiny_llama(True)
    note = "  38 of 38 parameters have no values in the archive; train with --init\n"
    assert note in command.run("inspect", model.archive).stdout
    assert command.run("plan", model.archive, "--pp", 2).stdout.endswith(note)
    for arguments in (["inspect"], ["plan", "--pp", 2]):
        found = json.loads(command.run(arguments[0], model.archive, *arguments[1:], "--json").stdout)
        assert found["num_parameters_without_values"] == 38


# --- checkpoints that do not fit -----------------------------------------------------------------------------------


def change(folder, name, edit):
    """Applies `edit(tensors, name)` to the file that holds the tensor, and returns the file."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    path = folder / index[name]
    tensors = load_file(path)
    edit(tensors, name)
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def change_index(folder, edit):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    edit(index["weight_map"])
    path.write_text(json.dumps(index))
    return path


NORM = "model.layers.2.input_layernorm.weight"


def test_a_name_that_is_missing_is_shown_with_the_nearest(checkpoint):
    model, folder = checkpoint
    path = change_index(folder, lambda names: names.pop(NORM))
    assert model.refusal(folder) == f"trireme: --init {path}: the file has no tensor {NORM}\n"

    def bare(names):
        for name in list(names):
            names[name.removeprefix("model.")] = names.pop(name)

    change_index(folder, bare)
    assert model.refusal(folder) == (
        f"trireme: --init {path}: the file has no tensor model.embed_tokens.weight; of the names that the model lacks, "
        "embed_tokens.weight is the nearest\n"
    )


def test_a_misspelt_name_is_shown_with_the_nearest(checkpoint):
    model, folder = checkpoint
    path = change_index(folder, lambda names: names.update({NORM.replace("norm", "nrom"): names.pop(NORM)}))
    assert model.refusal(folder) == (
        f"trireme: --init {path}: the file has no tensor {NORM}; of the names that the model lacks, "
        f"{NORM.replace('norm', 'nrom')} is the nearest\n"
    )


def test_a_name_that_the_model_lacks_is_refused(checkpoint):
    model, folder = checkpoint
    path = change_index(folder, lambda names: names.update({"score.weight": names[NORM]}))
    message = "the file has a tensor score.weight, which the model has not; remove it from the file\n"
    assert model.refusal(folder) == f"trireme: --init {path}: {message}"


def test_a_buffer_that_is_not_saved_comes_from_the_archive(checkpoint, tmp_path):
    """Old checkpoints have the frequencies of rotary embeddings, which belong to the model."""
    model, folder = checkpoint
    wanted = losses(model, tmp_path, "--init", folder)
    name = "model.rotary_emb.inv_freq"
    change(folder, NORM, lambda tensors, _: tensors.update({name: torch.full((2,), 77.0)}))
    change_index(folder, lambda names: names.update({name: names[NORM]}))
    assert losses(model, tmp_path, "--init", folder) == wanted


def test_shapes_types_and_ties_are_checked(checkpoint):
    model, folder = checkpoint
    path = folder / "model.safetensors.index.json"

    def refusal(edit, name=NORM):
        change(folder, name, edit)
        return model.refusal(folder)

    start = f"trireme: --init {path}: "
    wider = refusal(lambda tensors, name: tensors.update({name: torch.zeros(17, dtype=torch.float64)}))
    assert wider == f"{start}{NORM} is f64[17], but the model has f64[16]\n"
    integer = refusal(lambda tensors, name: tensors.update({name: torch.zeros(16, dtype=torch.int64)}))
    assert integer == f"{start}{NORM} is i64[16], but the model has f64[16]\n"
    change(folder, NORM, lambda tensors, name: tensors.update({name: torch.zeros(16)}))
    change_index(folder, lambda names: names.update({"lm_head.weight": names[NORM]}))
    head = torch.zeros(VOCABULARY, 16, dtype=torch.float64)
    differs = refusal(lambda tensors, _: tensors.update({"lm_head.weight": head}))
    ties = "lm_head.weight and model.embed_tokens.weight"
    ties = "model.embed_tokens.weight and lm_head.weight" if not differs.startswith(start + ties) else ties
    assert differs == f"{start}{ties} are one tied parameter of the model, but differ in the file\n"


def test_a_file_that_is_missing_cut_or_lacks_its_tensor_is_refused(checkpoint):
    model, folder = checkpoint
    index = folder / "model.safetensors.index.json"
    path = change(folder, NORM, lambda tensors, name: tensors.pop(name))
    message = f"puts {NORM} into {path.name}, which has no such tensor\n"
    assert model.refusal(folder) == f"trireme: --init the index {index} {message}"
    path.write_bytes(path.read_bytes()[:-1])
    assert model.refusal(folder).startswith(f"trireme: --init {path}: tensor ")
    path.unlink()
    assert model.refusal(folder) == f"trireme: --init cannot open {path}: No such file or directory\n"


# --- what a rank reads ---------------------------------------------------------------------------------------------


def test_a_rank_reads_only_its_part(tiny_llama, tmp_path):
    """Each rank is given a folder without the files that only the other stage needs."""
    model = tiny_llama(False)
    wanted = losses(model, tmp_path, "--init", model.folder, "--pp", 2)
    stages = json.loads(command.run("plan", model.archive, "--pp", 2, "--json").stdout)["stages"]
    assert len(stages) == 2
    first_of_stage_1 = int(stages[1]["first_module"].split(".")[2])

    def stage(name):
        if name.startswith("model.layers."):
            return int(int(name.split(".")[2]) >= first_of_stage_1)
        return 0 if name == "model.embed_tokens.weight" else 1

    needed = [{f for n, f in model.index.items() if stage(n) == s} for s in (0, 1)]
    assert needed[0] - needed[1] and needed[1] - needed[0]
    port, metrics = str(processes.free_port()), tmp_path / "metrics.jsonl"
    ranks = []
    for rank in (0, 1):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        for file in ["model.safetensors.index.json", *needed[rank]]:
            shutil.copy(model.folder / file, folder)
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        options = ["--init", folder, "--pp", 2, "--workers", 2, "--metrics", metrics]
        ranks.append(processes.Run([processes.WORKER, *model.arguments(*options, steps=2)], folder, place))
    first, second = ranks
    with first, second:
        assert first.wait() == 0, first.err
        assert second.wait() == 0, second.err
    assert [line["loss"] for line in command.read_metrics(metrics)] == wanted


# --- some parameters with values -----------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A part from a checkpoint, and a part of one's own."""

    def __init__(self, adapter):
        super().__init__()
        self.base, self.adapter = nn.Linear(3, 3, dtype=torch.float64), adapter

    def forward(self, x, y):
        return F.mse_loss(self.adapter(self.base(x)), y)


def test_a_part_that_was_built_with_values_keeps_them(tmp_path):
    adapter, base = nn.Linear(3, 3, dtype=torch.float64), nn.Linear(3, 3, dtype=torch.float64)
    with trireme.empty_weights():
        model = Adapted(adapter)
    rows = {n: torch.randn(4, 3, dtype=torch.float64) for n in ("x", "y")}
    archive, data, init = (tmp_path / n for n in ("m.pt2", "data.safetensors", "base.safetensors"))
    trireme.export(model, rows, archive)
    save_file(rows, data)
    own = {f"base.{n}": v.detach() for n, v in base.named_parameters()}
    arguments = ["eval", archive, "--data", f"safetensors:{data}", "--batch", 4, "--workers", 1, "--json"]

    def loss(state, *modules):
        save_file(state, init)
        expected = F.mse_loss(modules[1](modules[0](rows["x"])), rows["y"]).item()
        assert json.loads(command.run(*arguments, "--init", init).stdout)["eval_loss"] == pytest.approx(
            expected, rel=1e-9
        )

    loss(own, base, adapter)
    other = nn.Linear(3, 3, dtype=torch.float64)
    loss(own | {f"adapter.{n}": v.detach() for n, v in other.named_parameters()}, base, other)
    assert (
        "2 of 4 parameters have no values in the archive; train with --init" in command.run("inspect", archive).stdout
    )
    message = f"trireme: {archive} holds no values of base.weight and 1 more; give them with --init\n"
    assert command.run(*arguments, code=2).stderr == message
    save_file({"adapter.weight": own["base.weight"], "base.bias": own["base.bias"]}, init)
    assert command.run(*arguments, "--init", init, code=2).stderr == (
        f"trireme: --init {init}: the file has no tensor base.weight\n"
    )
