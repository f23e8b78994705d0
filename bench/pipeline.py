"""Two pipeline stages against torch.distributed.pipelining and DeepSpeed: the toy GPT, whole steps with AdamW.

    bench/run pipeline [--schedules gpipe,1f1b] [--rounds 5] [--steps 30] [--rows 2] [--micro-batches 8]
                       [--no-deepspeed]

All cut at the same block and use Gloo over loopback, one thread a rank. `--rows` is the size of a micro-batch.
DeepSpeed's schedule is 1F1B. `bound` is what two even stages could reach of one process: 2 m / (m + 1).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ours
import torch
from contest import Contestant, check_losses, compete, print_result, print_table
from models import CASES, Gpt, token_loss

HERE = Path(__file__).resolve().parent
WARM_UP_STEPS = 5
CUT = 4  # blocks of the first stage: the head weighs about as much as two blocks


class First(torch.nn.Module):
    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.wte, self.wpe, self.blocks = model.wte, model.wpe, model.blocks[:CUT]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x


class Second(torch.nn.Module):
    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.blocks, self.ln_f, self.head = model.blocks[CUT:], model.ln_f, model.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def torch_rank(rank: int, schedule_name: str, folder: Path, options: argparse.Namespace) -> None:
    """One rank of torch.distributed.pipelining; the last prints seconds and losses as JSON."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store.{os.environ['BENCH_ROUND']}", rank=rank, world_size=2
    )
    model = Gpt()
    model.load_state_dict(torch.load(folder / "weights.pt"))
    module = First(model) if rank == 0 else Second(model)
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = get_schedule_class(schedule_name)(stage, options.micro_batches, loss_fn=token_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    inputs, targets = torch.load(folder / "rows.pt")
    batch = options.rows * options.micro_batches
    seconds, all_losses = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        at = step * batch % len(inputs)
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs[at : at + batch])
        else:
            schedule.step(target=targets[at : at + batch], losses=losses)
            all_losses.append(torch.stack(losses).mean().item())
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if rank == 1:
        print(json.dumps({"seconds": seconds, "losses": all_losses}))
    dist.destroy_process_group()


def run_torch(schedule: str, folder: Path, options: argparse.Namespace, round_id: list[int]) -> dict[str, list[float]]:
    round_id[0] += 1
    name = {"gpipe": "GPipe", "1f1b": "1F1B"}[schedule]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "BENCH_ROUND": str(round_id[0]), "GLOO_SOCKET_IFNAME": "lo"}
    base = [
        sys.executable,
        __file__,
        "--folder",
        str(folder),
        "--steps",
        str(options.steps),
        "--rows",
        str(options.rows),
        "--micro-batches",
        str(options.micro_batches),
        "--schedules",
        name,
    ]
    first = subprocess.Popen(
        [*base, "--rank", "0"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    second = subprocess.run([*base, "--rank", "1"], env=environment, check=True, capture_output=True)
    first.wait(60)
    return json.loads(second.stdout.splitlines()[-1])


def run_deepspeed(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--folder", folder, "--steps", options.steps]
    words += ["--rows", options.rows, "--micro-batches", options.micro_batches]
    command = [os.environ["TRIREME_PEERS_PYTHON"], str(HERE / "deepspeed_rank.py"), *map(str, words)]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu"}
    shared |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LOCAL_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            command,
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    outputs = [rank.communicate(timeout=600) for rank in ranks]
    for rank, (_, said) in zip(ranks, outputs, strict=True):
        if rank.returncode != 0:
            sys.exit(f"bench: a rank of DeepSpeed failed:\n{said[-2000:]}")
    return json.loads(outputs[1][0].splitlines()[-1])


def run_ours(schedule: str, folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    layout = ["--pp", 2, "--cut", f"blocks.{CUT}", "--micro-batches", options.micro_batches, "--schedule", schedule]
    return ours.train(folder, options.rows * options.micro_batches, options.steps, *layout)


def prepare(folder: Path, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    batch = options.rows * options.micro_batches
    ours.prepare(folder, Gpt(), CASES["gpt"].data(8 * batch), max(batch, 2), token_loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", default="gpipe,1f1b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--no-deepspeed", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        torch_rank(options.rank, options.schedules, options.folder, options)
        return
    m = options.micro_batches
    figures: dict[str, float | str] = {
        "bench": "pipeline",
        "torch": torch.__version__,
        "rows": options.rows,
        "m": m,
        "bound": 2 * m / (m + 1),
    }
    round_id = [0]
    for schedule in options.schedules.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, options)
            mine = run_ours(schedule, folder, options)["losses"]
            check_losses(f"{schedule}, torch", mine, run_torch(schedule, folder, options, round_id)["losses"])
            contestants: dict[str, Contestant] = {
                "trireme": lambda: run_ours(schedule, folder, options)["seconds"],  # noqa: B023
                "torch": lambda: run_torch(schedule, folder, options, round_id)["seconds"],  # noqa: B023
                "trireme again": lambda: run_ours(schedule, folder, options)["seconds"],  # noqa: B023
            }
            if schedule == "1f1b" and not options.no_deepspeed:
                check_losses("DeepSpeed", mine, run_deepspeed(folder, options)["losses"])
                contestants["deepspeed"] = lambda: run_deepspeed(folder, options)["seconds"]  # noqa: B023
            ratios = print_table(
                f"{schedule}, {m} micro-batches of {options.rows} rows",
                compete(contestants, options.rounds, WARM_UP_STEPS),
                "trireme",
                "trireme again",
            )
            figures |= {
                f"{key if key.startswith('a_a') else 'ratio_' + key}.{schedule}": v for key, v in ratios.items()
            }
    print_result(figures)


if __name__ == "__main__":
    main()
