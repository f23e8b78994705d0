"""Two pipeline stages against torch.distributed.pipelining and DeepSpeed: the toy GPT, whole steps with AdamW.

    bench/run pipeline [--schedules gpipe,1f1b] [--rounds 5] [--steps 30] [--rows 2] [--micro-batches 8]
                       [--no-deepspeed]

    --schedules   gpipe, 1f1b, interleaved, zb-v, dualpipe-v against torch's own; zb-h1, which torch has not, and zb-v
                  against our 1f1b, with what the simulator says of that ratio: `simulated_1f1b`. Its costs are
                  profiles of the stages, of two processes at once, taken anew in each round

All cut at the same blocks and have one thread a rank; peers use Gloo over loopback, ours shared memory. `--rows` is
the size of a micro-batch. DeepSpeed's schedule is 1F1B. `bound` is what two even stages could reach of one process:
2 m / (m + 1).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import ours
import torch
from contest import Contestant, check_losses, compete, print_result, print_table
from models import CASES, Gpt, parts_of, token_loss

HERE = Path(__file__).resolve().parent
WARM_UP_STEPS = 5
PROFILE_S = 4
# The blocks that stages begin with, by chunks a stage: the head weighs about as much as three blocks. 6: the head.
CUTS = {1: [4], 2: [2, 4, 6]}


@dataclass(frozen=True)
class Row:
    """A schedule, and what it is compared with."""

    theirs: str = ""  # torch's name for it; empty: it has none
    chunks: int = 1
    is_v: bool = False  # the second chunks run backwards over the ranks
    beside_1f1b: bool = False


ROWS = {
    "gpipe": Row("GPipe"),
    "1f1b": Row("1F1B"),
    "interleaved": Row("Interleaved1F1B", chunks=2),
    "zb-h1": Row(beside_1f1b=True),
    "zb-v": Row("ZBVZeroBubble", chunks=2, is_v=True, beside_1f1b=True),
    "dualpipe-v": Row("DualPipeV", chunks=2, is_v=True),
}


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
    row = ROWS[schedule_name]
    modules = parts_of(model, CUTS[row.chunks])
    own = [rank] if row.chunks == 1 else [rank, 3 - rank if row.is_v else 2 + rank]
    stages = [PipelineStage(modules[part], part, len(modules), torch.device("cpu")) for part in own]
    schedule = get_schedule_class(row.theirs)(
        stages if row.chunks > 1 else stages[0], options.micro_batches, loss_fn=token_loss
    )
    has_loss = len(modules) - 1 in own
    optimizer = torch.optim.AdamW((p for part in own for p in modules[part].parameters()), lr=1e-3, fused=True)
    inputs, targets = torch.load(folder / "rows.pt")
    batch = options.rows * options.micro_batches
    seconds, all_losses = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        at = step * batch % len(inputs)
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        given = {"target": targets[at : at + batch], "losses": losses} if has_loss else {}
        schedule.step(*[inputs[at : at + batch]] if rank == 0 else [], **given)
        if has_loss:
            all_losses.append(torch.stack(losses).mean().item())
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if has_loss:
        print(json.dumps({"seconds": seconds, "losses": all_losses}))
    dist.destroy_process_group()


def run_torch(schedule: str, folder: Path, options: argparse.Namespace, round_id: list[int]) -> dict[str, list[float]]:
    round_id[0] += 1
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
        schedule,
    ]
    loss_rank = 0 if ROWS[schedule].is_v else 1
    silent = subprocess.Popen(
        [*base, "--rank", str(1 - loss_rank)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    done = subprocess.run(
        [*base, "--rank", str(loss_rank)], env=environment, check=True, stdout=subprocess.PIPE, timeout=600
    )
    silent.wait(60)
    return json.loads(done.stdout.splitlines()[-1])


def run_deepspeed(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--folder", folder, "--model", "toy", "--stages", 2]
    words += ["--rows", options.rows, "--micro-batches", options.micro_batches]
    command = [os.environ["TRIREME_PEERS_PYTHON"], str(HERE / "deepspeed_rank.py"), *map(str, words)]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu"}
    shared |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LOCAL_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            command,
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    # Each waits for the other, so both must have been told before one is heard.
    for rank in ranks:
        rank.stdin.write(f"{options.steps}\n")
        rank.stdin.close()
        rank.stdin = None
    outputs = [rank.communicate(timeout=600) for rank in ranks]
    for rank, (_, said) in zip(ranks, outputs, strict=True):
        if rank.returncode != 0:
            sys.exit(f"bench: a rank of DeepSpeed failed:\n{said[-2000:]}")
    return json.loads(outputs[1][0].splitlines()[-1])


def layout(schedule: str, options: argparse.Namespace) -> list[object]:
    """Of `trireme train` and of `trireme simulate`."""
    row = ROWS[schedule]
    cut = ",".join(f"blocks.{place}" if place < len(Gpt().blocks) else "ln_f" for place in CUTS[row.chunks])
    words = ["--pp", 2, "--cut", cut, "--micro-batches", options.micro_batches, "--schedule", schedule]
    return [*words, "--chunks", row.chunks] if row.chunks > 1 else words


def run_ours(schedule: str, folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    batch = options.rows * options.micro_batches
    return ours.train(folder, batch, options.steps, *layout(schedule, options))


def simulated_ratio(schedule: str, folder: Path, options: argparse.Namespace) -> float:
    """The step of 1f1b / that of the schedule, each simulated with a new profile of its stages."""

    def simulated(name: str) -> float:
        profile = ours.profile(folder, options.rows, 2, PROFILE_S, *layout(name, options))
        return ours.simulate(folder, profile, options.rows, *layout(name, options))

    return simulated("1f1b") / simulated(schedule)


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
            contestants: dict[str, Contestant] = {
                "trireme": lambda: run_ours(schedule, folder, options)["seconds"],  # noqa: B023
                "trireme again": lambda: run_ours(schedule, folder, options)["seconds"],  # noqa: B023
            }
            if ROWS[schedule].theirs:
                check_losses(f"{schedule}, torch", mine, run_torch(schedule, folder, options, round_id)["losses"])
                contestants["torch"] = lambda: run_torch(schedule, folder, options, round_id)["seconds"]  # noqa: B023
            simulated: list[float] = []
            before_round = None
            if ROWS[schedule].beside_1f1b:
                before_round = lambda: simulated.append(simulated_ratio(schedule, folder, options))  # noqa: B023, E731
                check_losses(f"{schedule}, 1f1b", mine, run_ours("1f1b", folder, options)["losses"])
                contestants["1f1b"] = lambda: run_ours("1f1b", folder, options)["seconds"]  # noqa: B023
            if schedule == "1f1b" and not options.no_deepspeed:
                check_losses("DeepSpeed", mine, run_deepspeed(folder, options)["losses"])
                contestants["deepspeed"] = lambda: run_deepspeed(folder, options)["seconds"]  # noqa: B023
            ratios = print_table(
                f"{schedule}, {m} micro-batches of {options.rows} rows",
                compete(contestants, options.rounds, WARM_UP_STEPS, before_round),
                "trireme",
                "trireme again",
            )
            figures |= {
                f"{key if key.startswith('a_a') else 'ratio_' + key}.{schedule}": v for key, v in ratios.items()
            }
            if simulated:
                figures[f"simulated_1f1b.{schedule}"] = statistics.median(simulated)
                print(f"  1f1b simulated           {statistics.median(simulated):.3f} x ours")
    print_result(figures)


if __name__ == "__main__":
    main()
