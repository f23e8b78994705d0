"""One rank of torch.distributed.pipelining's 1F1B with replicas, as its users write it; see shaped.py.

Each replica is a pipeline of its own. After the last backward of a step the gradients of a stage are summed over the
replicas in buckets as those of DistributedDataParallel: in the reverse order of the parameters, the first of 1 MB, the
others of 25 MB, all posted before the first is waited for.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from models import Part, token_loss
from peer import initial, request, serve
from shaped_cases import MODELS
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20


def buckets_of(parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    buckets: list[list[torch.Tensor]] = [[]]
    held, limit = 0, FIRST_BUCKET_BYTES
    for parameter in reversed(parameters):
        if held >= limit:
            buckets.append([])
            held, limit = 0, BUCKET_BYTES
        buckets[-1].append(parameter)
        held += parameter.nbytes
    return buckets


def average_gradients(buckets: list[list[torch.Tensor]], group: dist.ProcessGroup, replicas: int) -> None:
    posted = []
    for bucket in buckets:
        flat = _flatten_dense_tensors([parameter.grad for parameter in bucket])
        posted.append((bucket, flat, dist.all_reduce(flat, group=group, async_op=True)))
    for bucket, flat, work in posted:
        work.wait()
        flat /= replicas
        for parameter, mean in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
            parameter.grad = mean


def main() -> None:
    options = request()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stages = options.stages
    replicas = dist.get_world_size() // stages
    replica, own = divmod(dist.get_rank(), stages)
    pipelines = [dist.new_group([r * stages + s for s in range(stages)]) for r in range(replicas)]
    owners = [dist.new_group([r * stages + s for r in range(replicas)]) for s in range(stages)]

    model = MODELS[options.model]
    module = Part(initial(model.build, options.folder), *model.places(stages)[own])
    stage = PipelineStage(module, own, stages, torch.device("cpu"), group=pipelines[replica])
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=token_loss)
    parameters = list(module.parameters())
    buckets = buckets_of(parameters)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    inputs, targets = torch.load(options.folder / "rows.pt")
    rows = options.rows * options.micro_batches
    is_last = own == stages - 1

    def train_step(step: int) -> float | None:
        at = (step * replicas + replica) * rows % len(inputs)
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        given = {"target": targets[at : at + rows], "losses": losses} if is_last else {}
        schedule.step(*[inputs[at : at + rows]] if own == 0 else [], **given)
        if replicas > 1:
            average_gradients(buckets, owners[own], replicas)
        optimizer.step()
        return torch.stack(losses).mean().item() if is_last else None

    serve(train_step, options.answers)


if __name__ == "__main__":
    main()
