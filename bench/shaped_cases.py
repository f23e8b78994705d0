"""The models and layouts of `bench/run shaped`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models import Gpt


@dataclass(frozen=True)
class Model:
    build: Callable[[], Gpt]
    blocks: int
    vocabulary: int
    outputs: int
    cuts: dict[int, list[int]]  # by stages, the blocks that they begin with

    def places(self, stages: int) -> list[tuple[int, int]]:
        """First and last + 1 of each stage; the head counts as a block."""
        return list(itertools.pairwise([0, *self.cuts[stages], self.blocks + 1]))

    def cut_text(self, stages: int) -> str:
        """As --cut has it."""
        return ",".join(f"blocks.{block}" for block in self.cuts[stages])


def even(vocabulary: int) -> Model:
    """Stages take about the same time: the head and the loss weigh as much as a block."""
    build = partial(Gpt, blocks=7, vocabulary=vocabulary, outputs=1024)
    return Model(build, 7, vocabulary, 1024, {2: [4], 4: [2, 4, 6]})


MODELS = {
    "gpt": even(1024),
    "embedding": even(32768),
    # Of the pipeline bench; there the head weighs about as much as three blocks.
    "toy": Model(Gpt, 6, 4096, 4096, {2: [4]}),
}
ROWS = 16  # of a replica and step
LENGTH = 64  # tokens of a row


@dataclass(frozen=True)
class Case:
    model: str
    stages: int
    replicas: int
    micro_batches: int

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas

    @property
    def rows(self) -> int:
        """Of a micro-batch."""
        return ROWS // self.micro_batches

    @property
    def title(self) -> str:
        layout = f"{self.stages} stages x {self.replicas} replica{'s' if self.replicas > 1 else ''}"
        return f"{self.model}: {layout}, {self.micro_batches} micro-batches of {self.rows} rows"

    @property
    def name(self) -> str:
        return f"{self.model}-{self.stages}x{self.replicas}-m{self.micro_batches}"


CASES = {
    case.name: case
    for case in (
        Case(model, *layout, m) for model in ("gpt", "embedding") for layout in ((2, 2), (4, 1)) for m in (4, 8)
    )
}
