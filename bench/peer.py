"""What the ranks of peers have in common: they stay, and train steps when they are told to.

A rank says `ready`, reads a number of steps from each line of its input, and answers with a line of JSON: the seconds
and, where it knows them, the losses of these steps. So its start costs once, and rounds can take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

# Trains the step of this number; its loss, where this rank knows it.
TrainStep = Callable[[int], float | None]


def request() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="of the model, its weights.pt and rows.pt")
    parser.add_argument("--model", required=True, help="a row of shaped_cases.MODELS")
    parser.add_argument("--stages", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="of a micro-batch")
    options = parser.parse_args()
    # What libraries print is not an answer.
    options.answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return options


def initial(build: Callable[[], nn.Module], folder: Path) -> nn.Module:
    model = build()
    model.load_state_dict(torch.load(folder / "weights.pt"))
    return model


def serve(train_step: TrainStep, answers: TextIO) -> None:
    print("ready", file=answers, flush=True)
    step = 0
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            begin = time.perf_counter()
            losses.append(train_step(step))
            seconds.append(time.perf_counter() - begin)
            step += 1
        print(json.dumps({"seconds": seconds, "losses": losses}), file=answers, flush=True)
    # Other ranks may have gone by now, and threads of libraries abort the process now and then.
    os._exit(0)
