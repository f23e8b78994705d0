from __future__ import annotations

import command
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def built_binary(request):
    """Tests of the command fail, rather than vanish, where it is not built; leave them out by -m 'not binary'."""
    if request.node.get_closest_marker("binary") and not command.BINARY.exists():
        pytest.fail(f"{command.BINARY} is missing; build it by scripts/setup", pytrace=False)
