from __future__ import annotations

import command
import pytest
import torch
from own_model import OwnModel

torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption("--write-table", action="store_true", help="write docs/models.md from what the families measure")


@pytest.fixture(autouse=True)
def built_binary(request):
    """Tests of the command fail, rather than vanish, where it is not built; leave them out by -m 'not binary'."""
    if request.node.get_closest_marker("binary") and not command.BINARY.exists():
        pytest.fail(f"{command.BINARY} is missing; build it by scripts/setup", pytrace=False)


@pytest.fixture(scope="session")
def own_model(tmp_path_factory):
    """own_model(Class) exports a model class of own_model.py once, in float64 unless said otherwise."""
    made: dict[object, OwnModel] = {}

    def get(kind, dtype=torch.float64, **export):
        key = (kind, dtype, *sorted(export.items()))
        if key not in made:
            made[key] = OwnModel(tmp_path_factory.mktemp(kind.__name__), kind, dtype, **export)
        return made[key]

    return get
