"""The archives and data in tests/data are those that tests/fixtures/make.py writes today."""

from __future__ import annotations

import command
import make
import models
import pytest
import reference
import torch
from archive import Archive
from safetensors.torch import load_file


@pytest.mark.parametrize("family", ["mlp", "nanogpt", "llama"])
def test_fixtures_are_up_to_date(tmp_path, family):
    make.make(family, tmp_path)
    for made in sorted(tmp_path.iterdir()):
        kept = command.DATA / made.name
        if made.suffix == ".pt2":
            assert Archive(made).program == Archive(kept).program
            assert Archive(made).manifest == Archive(kept).manifest
            left, right = reference.archive_weights(made), reference.archive_weights(kept)
        else:
            left, right = load_file(made), load_file(kept)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_data_is_named_after_the_inputs_and_uneven(family):
    rows = load_file(command.DATA / f"{family}.data.safetensors")
    assert sorted(rows) == sorted(Archive(command.DATA / f"{family}.f64.pt2").inputs)
    assert {len(values) for values in rows.values()} == {models.NUM_ROWS}
    labels = rows.get("labels", rows.get("targets"))
    if labels is not None:
        assert len(set((labels != models.IGNORED).sum(1).tolist())) > 2
