"""Every family trains as PyTorch does, in each layout, and docs/models.md says what was measured.

`pytest tests/python/test_families.py --write-table` writes docs/models.md instead of comparing with it.
"""

from __future__ import annotations

import functools
import json

import command
import families
import family_table
import models
import pytest
import test_zoo
from families.family import TOLERANCE
from family_table import Errors, Row, gradient_errors, measure

pytestmark = pytest.mark.binary

FAMILIES = command.DATA / "families"
# A zoo archive is float32: sums of some 1e3 terms in another order; autocast rounds what it adds up to 8 bits.
FLOAT32, AUTOCAST = 2e-6, 2e-2
ZOO_CASE = 1
ZOO = [name for name in test_zoo.NAMES if name not in test_zoo.APART]
NAMES = [*models.FAMILIES, *families.FAMILIES, *(f"zoo/{name}" for name in ZOO)]


@pytest.fixture(scope="session")
def table(request):
    """Takes the rows that were measured, and writes them at the end where that is asked for."""
    rows = {}
    yield rows
    if request.config.getoption("--write-table"):
        family_table.write_rows(NAMES, rows)


def layouts(stages):
    pipeline = ["--pp", stages, "--micro-batches", 2, "--schedule"]
    return {
        "1x1": ["--micro-batches", 1],
        f"S{stages}-gpipe": [*pipeline, "gpipe"],
        f"S{stages}-1f1b": [*pipeline, "1f1b"],
        "DP2": ["--dp", 2, "--micro-batches", 1],
    }


def family_runs(name, directory):
    """The archive, its answers, its bound, and what to call by the name of the layout."""
    if name in models.FAMILIES:
        archive, folder, bound, stages = command.DATA / f"{name}.f64.pt2", command.DATA, TOLERANCE, 2
    else:
        family = families.FAMILIES[name]
        archive, folder, bound, stages = FAMILIES / f"{name}.pt2", FAMILIES, family.tolerance, family.stages
    answers = json.loads((folder / f"{name}.expected.json").read_text())
    runs = {}
    for layout, options in layouts(stages).items():
        wanted = answers["1"] if layout == "1x1" else answers.get("2", answers["1"])
        data = folder / f"{name}.data.safetensors"
        runs[layout] = functools.partial(measure, archive, data, wanted, options, directory / layout)
        if "longer" in answers and layout != "S2-gpipe":
            data = folder / f"{name}.longer.safetensors"
            runs[f"{layout} longer"] = functools.partial(
                measure, archive, data, answers["longer"], options, directory / f"{layout}-longer"
            )
    return archive, answers, bound, runs


def zoo_runs(name, directory):
    def run(layout):
        (directory / layout).mkdir()
        wanted = test_zoo.cases(name)[ZOO_CASE]
        line, norms, saved = test_zoo.train(directory / layout, name, ZOO_CASE, *test_zoo.LAYOUTS[layout])
        assert line["items"] == wanted["n_items"]
        errors = Errors()
        errors.add("loss", abs(line["loss"] - wanted["loss"]) / abs(wanted["loss"]))
        for error in gradient_errors(norms, wanted["grad_norm"], test_zoo.archive(name).weights):
            errors.add("gradient", error)
        for buffer, norm in wanted["buffers_after_norm"].items():
            errors.add("gradient", abs(saved[buffer].double().norm().item() - norm) / norm)
        return errors

    chosen = ("1x1", "S2-one") if name in test_zoo.WHOLE_BATCH else ("1x1", "S2", "DP2")
    runs = {layout: functools.partial(run, layout) for layout in chosen}
    return test_zoo.ZOO / f"{name}.pt2", {}, AUTOCAST if "autocast" in name else FLOAT32, runs


@pytest.mark.parametrize("name", NAMES)
def test_a_family_trains_as_in_pytorch(tmp_path, request, table, name):
    is_zoo = name.startswith("zoo/")
    archive, answers, bound, runs = (
        zoo_runs(name.removeprefix("zoo/"), tmp_path) if is_zoo else family_runs(name, tmp_path)
    )
    errors = dict(zip(runs, family_table.in_parallel(list(runs.values())), strict=True))
    inspected = family_table.inspect(archive)
    if not is_zoo:
        assert inspected["is_mean_over_samples"] == ("2" not in answers)
    row = Row(
        family=name,
        nodes=inspected["num_nodes"],
        no_rule=family_table.no_rule(inspected),
        remarks=family_table.remarks(archive, inspected, answers),
        loss_error=max(e.loss for e in errors.values()),
        gradient_error=max(e.gradient for e in errors.values()),
        bound=bound,
        layouts=", ".join(errors),
    )
    table[name] = row
    wrong = {layout: e for layout, e in errors.items() if not (e.loss <= bound and e.gradient <= bound)}
    assert not wrong
    if not request.config.getoption("--write-table"):
        *kept, loss_error, gradient_error = family_table.read_rows()[name]
        assert kept == [*row.cells()][:-2]
        assert max(float(loss_error), float(gradient_error)) <= bound


def test_the_table_has_a_row_for_each_family(request):
    if request.config.getoption("--write-table"):
        pytest.skip("it is written when all tests are done")
    assert list(family_table.read_rows()) == NAMES
    assert len(families.FAMILIES) >= 10
