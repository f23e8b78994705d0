"""One rank of DeepSpeed's PipelineEngine (peer.py) on a model, cut and rows of shaped_cases.py.

Runs in the environment of peers, which `bench/run` makes.
"""

from __future__ import annotations

import os

import torch
from models import Part, token_loss
from peer import initial, request, serve
from shaped_cases import MODELS


def main() -> None:
    options = request()
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    model = MODELS[options.model]
    whole = initial(model.build, options.folder)
    module = PipelineModule(
        layers=[LayerSpec(Part, whole, first, end) for first, end in model.places(options.stages)],
        num_stages=options.stages,
        loss_fn=token_loss,
        partition_method="uniform",
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    config = {
        "train_micro_batch_size_per_gpu": options.rows,
        "gradient_accumulation_steps": options.micro_batches,
        "steps_per_print": 1_000_000,
    }
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    inputs, targets = torch.load(options.folder / "rows.pt")
    rows = options.rows * options.micro_batches
    replicas = int(os.environ["WORLD_SIZE"]) // options.stages
    replica = engine.grid.get_data_parallel_rank()

    def train_step(step: int) -> float:
        # The rows of a step are those that the other contestants read.
        first = (step * replicas + replica) * rows % len(inputs)
        starts = range(first, first + rows, options.rows)
        data = ((inputs[at : at + options.rows], targets[at : at + options.rows]) for at in starts)
        return engine.train_batch(data_iter=data).item()

    serve(train_step, options.answers)


if __name__ == "__main__":
    main()
