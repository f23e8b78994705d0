"""One rank of DeepSpeed's PipelineEngine on the model, cut and rows of the pipeline bench; see pipeline.py.

Runs in the environment of peers (`bench/run` makes it); the last rank prints seconds and losses as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch
from models import Gpt, token_loss
from pipeline import CUTS, Part


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    options = parser.parse_args()
    result = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # DeepSpeed's own words

    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    whole = Gpt()
    whole.load_state_dict(torch.load(options.folder / "weights.pt"))
    places = [0, *CUTS[1], len(whole.blocks) + 1]
    model = PipelineModule(
        layers=[LayerSpec(Part, whole, first, end) for first, end in itertools.pairwise(places)],
        num_stages=2,
        loss_fn=token_loss,
        partition_method="uniform",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    config = {
        "train_micro_batch_size_per_gpu": options.rows,
        "gradient_accumulation_steps": options.micro_batches,
        "steps_per_print": 1_000_000,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    inputs, targets = torch.load(options.folder / "rows.pt")
    # The rows of a step are those that the other contestants read.
    batch = options.rows * options.micro_batches
    starts = (step * batch % len(inputs) + k for step in itertools.count() for k in range(0, batch, options.rows))
    data = ((inputs[at : at + options.rows], targets[at : at + options.rows]) for at in starts)
    seconds, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        loss = engine.train_batch(data_iter=data)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    if os.environ["RANK"] == "1":
        print(json.dumps({"seconds": seconds, "losses": losses}), file=result, flush=True)
    # Its threads are still there at the end of main, and abort the process now and then.
    os._exit(0)


if __name__ == "__main__":
    main()
