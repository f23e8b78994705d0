"""trireme.export: what is in the archive and what it computes; test_export_losses.py and test_export_refusals.py have the rest."""

from __future__ import annotations

import os
import subprocess
import sys

import models
import pytest
import torch
import torch.nn.functional as F
from archive import Archive
from exported import Net, Tagger, close, refusal, run, tokens
from torch import nn

import trireme


def test_a_full_disk_is_an_error_of_the_system_and_the_process_lives(tmp_path):
    """A limit of the size of files, whose signal is ignored, is a disk that gets full."""
    program = """
import resource, signal, sys, torch, trireme
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = torch.nn.Linear(4, 1000)
for limit in (1000, 10_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        trireme.export(model, (torch.zeros(2, 4), torch.zeros(2, 1000)), sys.argv[1], loss=torch.nn.MSELoss())
    except OSError as error:
        print(error)
"""
    path = tmp_path / "a.pt2"
    path.write_text("as it was")
    said = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == 2 * f"cannot write {path}: File too large\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt2"]
    assert path.read_text() == "as it was"


def test_import_is_lazy():
    program = (
        "import sys, trireme; assert 'torch' not in sys.modules; print(trireme.__version__, 'export' in dir(trireme))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "0.1.0 True\n"


def test_names_are_the_users_own(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    archive = Archive(tmp_path / "a.pt2")
    names = sorted(Net().state_dict())
    assert sorted(archive.weights) == names
    assert sorted(archive.targets) == names
    assert archive.module_names == {"", "l1", "norm", "l2"}
    assert archive.inputs == ["x", "target"]
    assert all(set(n["metadata"]) <= {"nn_module_stack"} for n in archive.nodes)


def test_manifest_records_roles_ties_and_versions(tmp_path):
    rows = models.rows("nanogpt", "f32")
    example, loss = models.FAMILIES["nanogpt"].export_as({k: v[:2] for k, v in rows.items()})
    trireme.export(models.build("nanogpt", "f32"), example, tmp_path / "a.pt2", loss=loss)
    assert Archive(tmp_path / "a.pt2").manifest == {
        "format_version": 1,
        "trireme_version": "0.1.0",
        "torch_version": torch.__version__,
        "model": "models.NanoGpt",
        "loss": "token_loss",
        "inputs": [
            {"name": "idx", "role": "input"},
            {"name": "targets", "role": "target"},
        ],
        "buffers": [],
        "ties": [["wte.weight", "lm_head.weight"]],
    }
    weights = Archive(tmp_path / "a.pt2").weights
    assert weights["wte.weight"]["path_name"] == weights["lm_head.weight"]["path_name"]


def test_batch_is_symbolic_in_every_input(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    archive = Archive(tmp_path / "a.pt2")
    assert archive.size("x") == [None, 4]
    assert archive.size("target") == [None]
    net = Net()
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "b.pt2", loss=F.cross_entropy)
    x, y = torch.randn(7, 4), tokens(7) % 3
    loss, items = run(tmp_path / "b.pt2", x, y)
    close(loss, F.cross_entropy(net(x), y))
    assert items == 7


def test_modes_are_restored_and_the_trace_is_in_train_mode(tmp_path):
    net = Net()
    net.l1.eval()
    net.norm.eval()
    before = {n: m.training for n, m in net.named_modules()}
    state = {n: t.clone() for n, t in net.state_dict().items()}
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert {n: m.training for n, m in net.named_modules()} == before
    assert all(torch.equal(state[n], t) for n, t in net.state_dict().items())
    assert "forward" not in vars(net)
    assert net(torch.randn(2, 4)).shape == (2, 3)
    node = next(n for n in Archive(tmp_path / "a.pt2").nodes if n["target"].endswith("batch_norm.default"))
    assert next(i["arg"] for i in node["inputs"] if i["name"] == "training") == {"as_bool": True}


def test_model_is_restored_after_a_failure(tmp_path):
    class Fails(Net):
        def forward(self, x):
            raise RuntimeError("own error")

    net = Fails().eval()
    with pytest.raises(RuntimeError, match="own error"):
        trireme.export(net, (torch.randn(3, 4), tokens(3)), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert "forward" not in vars(net)
    assert not net.training
    assert list(tmp_path.iterdir()) == []


def test_hooks_of_the_model_see_its_own_arguments(tmp_path):
    net = Net()
    net.register_forward_hook(lambda module, args, output: output * 2)
    trireme.export(net, (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    x, y = torch.randn(5, 4), tokens(5) % 3
    close(run(tmp_path / "a.pt2", x, y)[0], F.cross_entropy(net(x), y))
    assert len(net._forward_hooks) == 1


def test_wrappers_leave_no_prefix(tmp_path):
    trireme.export(torch.compile(Net()), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    assert set(Archive(tmp_path / "a.pt2").weights) == set(Net().state_dict())
    trireme.export(nn.DataParallel(Net()), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "b.pt2", loss=F.cross_entropy)
    assert set(Archive(tmp_path / "b.pt2").weights) == set(Net().state_dict())


def test_an_archive_is_replaced_whole_and_keeps_no_more_of_the_batch(tmp_path):
    path = tmp_path / "a.pt2"
    path.write_bytes(b"old")
    data = torch.randn(10000, 4)
    trireme.export(Net(), (data[:3], tokens(3) % 3), path, loss=F.cross_entropy)
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt2"]
    assert path.stat().st_size < 40000


def test_an_archive_takes_the_place_of_files_only(tmp_path):
    (tmp_path / "link.pt2").symlink_to(tmp_path / "a.pt2")
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "link.pt2", loss=F.cross_entropy)
    assert (tmp_path / "link.pt2").is_symlink()
    assert Archive(tmp_path / "a.pt2").inputs == ["x", "target"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError) as caught:
        trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "pipe", loss=F.cross_entropy)
    assert str(caught.value) == (
        f"{tmp_path / 'pipe'} is no regular file, which an archive must be; give the path of a file"
    )


def test_file_rights_are_the_users(tmp_path):
    trireme.export(Net(), (torch.randn(3, 4), tokens(3) % 3), tmp_path / "a.pt2", loss=F.cross_entropy)
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a.pt2").stat().st_mode & 0o777 == 0o666 & ~mask


# --- Hugging Face ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_causal_models_need_no_mask_tensor(tmp_path, name):
    model = models.build(name, "f32").eval()
    model.config.use_cache = True
    ids = models.rows(name, "f32")["input_ids"][:5]
    implementation = model.config._attn_implementation
    trireme.export(
        model, {"input_ids": ids[:2]}, tmp_path / "a.pt2", loss="causal-lm", dynamic={"input_ids": {1: "seq"}}
    )
    archive = Archive(tmp_path / "a.pt2")
    attention = [n for n in archive.nodes if n["target"].endswith("scaled_dot_product_attention.default")]
    assert len(attention) == 4
    for node in attention:
        given = {i["name"]: i["arg"] for i in node["inputs"]}
        assert given["is_causal"] == {"as_bool": True}
        assert given.get("attn_mask", {"as_none": True}) == {"as_none": True}
    assert not {"cumsum.default", "le.Tensor", "where.self"} & set(archive.operators)
    assert model.config._attn_implementation == implementation
    assert model.config.use_cache
    for length in (10, 7):
        labels = ids[:, :length]
        loss, items = run(tmp_path / "a.pt2", labels)
        close(loss, model(input_ids=labels, labels=labels).loss)
        assert items == 5 * (length - 1)


def test_causal_models_keep_the_mask_of_a_padded_batch(tmp_path):
    model = models.build("llama", "f32")
    ids = models.rows("llama", "f32")["input_ids"][:3]
    mask = torch.tensor([[1] * 10, [0] * 3 + [1] * 7, [1] * 10])
    trireme.export(model, {"input_ids": ids, "attention_mask": mask}, tmp_path / "a.pt2", loss="causal-lm")
    labels = ids.masked_fill(mask == 0, -100)
    close(run(tmp_path / "a.pt2", ids, mask)[0], model(input_ids=ids, attention_mask=mask, labels=labels).loss)


def test_bert_keeps_its_ties_and_its_padding(tmp_path):
    model = models.build("bert", "f32")
    rows = {k: v[:4] for k, v in models.rows("bert", "f32").items()}
    trireme.export(model, rows, tmp_path / "a.pt2", loss="masked-lm")
    ties = Archive(tmp_path / "a.pt2").manifest["ties"]
    assert ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"] in ties
    close(run(tmp_path / "a.pt2", *rows.values())[0], model(**rows).loss)


# --- dynamic dims ------------------------------------------------------------------------------------------------


def test_one_name_is_one_dynamic_size(tmp_path):
    model, ids, labels = Tagger(), tokens(3, 6), tokens(3, 6)
    dynamic = {"ids": {1: "seq"}, "labels": {1: "seq"}}
    trireme.export(model, (ids, labels), tmp_path / "a.pt2", loss="masked-lm", dynamic=dynamic)
    archive = Archive(tmp_path / "a.pt2")
    assert archive.size("ids") == archive.size("labels") == [None, None]
    sizes = [archive.program["graph"]["tensor_values"][n]["sizes"][1]["as_expr"]["expr_str"] for n in ("ids", "labels")]
    assert sizes[0] == sizes[1]
    assert run(tmp_path / "a.pt2", tokens(2, 9), tokens(2, 9))[1] == 18


def test_dynamic_dims_that_do_not_exist(tmp_path):
    batch = (torch.randn(3, 4), tokens(3) % 3)
    options = {"loss": F.cross_entropy}
    assert refusal(tmp_path, Net(), batch, dynamic={"z": {1: "seq"}}, **options) == (
        'dynamic names "z", which is no input of Net; name one of x, target'
    )
    assert refusal(tmp_path, Net(), batch, dynamic={"x": {2: "seq"}}, **options) == (
        "dynamic dim 2 of input x of Net is not in 0..1"
    )
