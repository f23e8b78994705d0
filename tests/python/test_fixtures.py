"""The archives and data in tests/data are those that tests/fixtures/make.py writes today."""

from __future__ import annotations

import json

import command
import families
import make
import models
import pytest
import reference
import torch
from archive import Archive
from safetensors.torch import load_file


def compare_answers(made, kept):
    """Another machine may add up in another order."""
    if isinstance(kept, dict):
        assert made.keys() == kept.keys()
        for name in kept:
            compare_answers(made[name], kept[name])
    elif isinstance(kept, list):
        assert len(made) == len(kept)
        for one, other in zip(made, kept, strict=True):
            compare_answers(one, other)
    else:
        assert made == (pytest.approx(kept, rel=1e-9, abs=1e-12) if isinstance(kept, float) else kept)


@pytest.mark.parametrize("family", ["mlp", "nanogpt", "llama", "any_length", "deepfm", "opt", "resnet"])
def test_fixtures_are_up_to_date(tmp_path, family):
    is_old = family in models.FAMILIES
    (make.make if is_old else make.make_family)(family, tmp_path)
    for made in sorted(tmp_path.iterdir()):
        kept = command.DATA / ("." if is_old else "families") / made.name
        if made.suffix == ".json":
            compare_answers(json.loads(made.read_text()), json.loads(kept.read_text()))
            continue
        if made.suffix == ".pt2":
            assert Archive(made).program == Archive(kept).program
            assert Archive(made).manifest == Archive(kept).manifest
            left, right = reference.archive_weights(made), reference.archive_weights(kept)
        else:
            left, right = load_file(made), load_file(kept)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*models.FAMILIES, *families.FAMILIES])
def test_an_archive_says_of_itself_what_it_said(tmp_path, family):
    """Whether its loss is a mean over samples, too."""
    make.make_archive(family, tmp_path)
    (made,) = tmp_path.iterdir()
    kept = command.DATA / ("." if family in models.FAMILIES else "families") / made.name
    assert Archive(made).manifest == Archive(kept).manifest


@pytest.mark.parametrize("family", models.FAMILIES)
def test_data_is_named_after_the_inputs_and_uneven(family):
    rows = load_file(command.DATA / f"{family}.data.safetensors")
    assert sorted(rows) == sorted(Archive(command.DATA / f"{family}.f64.pt2").inputs)
    assert {len(values) for values in rows.values()} == {models.NUM_ROWS}
    labels = rows.get("labels", rows.get("targets"))
    if labels is not None:
        assert len(set((labels != models.IGNORED).sum(1).tolist())) > 2
