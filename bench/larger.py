"""The contest of `bench/run shaped` among Trireme's own policies, with more ranks and other models: rehearsed.

    bench/run larger [--cases gpt-16,islands,...] [--rounds 2] [--steps 6] [--record FILE] [--from FILE]

`trireme rehearse` runs ranks, transport and timeline on hosts with shaped links (scripts/shaped; needs root), where
passes only take their time: that of an analytic device. A ratio is theirs / ours; beside it, in brackets, the simulated
one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import ours
import torch
from contest import print_result, read_record
from models import CASES as MODEL_CASES
from models import Gpt, resnet, token_loss
from results import environment
from shaped_contestants import ROWS
from shaped_record import OURS
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "build" / "bin" / "trireme-worker"
SHAPED = [sys.executable, str(ROOT / "scripts" / "shaped"), "run", "--name", "bench-larger"]
FLOPS_PER_S = 8e9  # of a rank: about half a core's
LIMIT_S = 300  # of a run


def tied() -> nn.Module:
    model = Gpt(blocks=7, vocabulary=4096)
    model.head.weight = model.wte.weight
    return model


@dataclass(frozen=True)
class Model:
    build: Callable[[], nn.Module]
    loss: Callable[..., torch.Tensor]
    rows: Callable[[], tuple[torch.Tensor, torch.Tensor]]


def tokens(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(vocabulary, (8, 64)), torch.randint(vocabulary, (8, 64))


MODELS = {
    "gpt": Model(partial(Gpt, blocks=7, vocabulary=1024), token_loss, partial(tokens, 1024)),
    "tied": Model(tied, token_loss, partial(tokens, 4096)),
    "resnet": Model(resnet, F.cross_entropy, partial(MODEL_CASES["resnet"].data, 8)),
}


@dataclass(frozen=True)
class Network:
    """Hosts on switches of some, and what joins the switches."""

    rate: float  # of a host's link, bytes a second
    hosts_per_switch: int = 64
    uplink: float = 0.0  # of each switch to the others

    def text(self, hosts: int) -> str:
        links = []
        for host in range(hosts):
            links.append((f"h{host}", f"s{host // self.hosts_per_switch}", self.rate))
        switches = sorted({end for _, end, _ in links})
        if len(switches) == 2:
            links.append((*switches, self.uplink))
        elif len(switches) > 2:
            links += [(switch, "spine", self.uplink) for switch in switches]
        lines = [f"{{between: [{one}, {two}], bandwidth: {rate}, latency: 1e-4}}" for one, two, rate in links]
        return f"""\
format: trireme-cluster-1
name: shaped hosts
device_kinds: {{core: {{flops: {{float32: {FLOPS_PER_S}}}, memory: 1e12, bandwidth: 1e12}}}}
host_kinds: {{host: {{device: core, link: {{bandwidth: 1e13}}}}}}
hosts: [{{name: h, kind: host, count: {hosts}}}]
network: {{topology: links, links: [{", ".join(lines)}]}}
"""


@dataclass(frozen=True)
class Case:
    what: str
    model: str
    stages: int
    replicas: int
    micro_batches: int
    network: Network
    rows: int = 4  # of a micro-batch


CASES = {
    "gpt-8": Case("8 ranks", "gpt", 4, 2, 8, Network(6e6)),
    "gpt-16": Case("16 ranks", "gpt", 4, 4, 8, Network(8e6)),
    "resnet-8": Case("a ResNet, whose activations are large", "resnet", 2, 4, 4, Network(20e6), rows=8),
    "tied-8": Case("embedding and head share their weights", "tied", 4, 2, 8, Network(12e6)),
    "islands": Case("two islands with a slow hop between them", "gpt", 4, 2, 8, Network(24e6, 4, 12e6)),
    "uplink": Case("switches whose uplinks are four times oversubscribed", "gpt", 2, 8, 8, Network(24e6, 4, 24e6)),
}
OWN = {name: row.options for name, row in ROWS.items() if not row.program and not row.is_again and not row.is_part}


@dataclass
class Found:
    """Seconds of a step, by contestant; of `rehearsed` by round."""

    simulated: dict[str, float]
    rehearsed: dict[str, list[float]]

    def ratio(self, name: str) -> float:
        pairs = zip(self.rehearsed[name], self.rehearsed[OURS], strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)

    def simulated_ratio(self, name: str) -> float:
        return self.simulated[name] / self.simulated[OURS]


def rehearse(folder: Path, case: Case, options: tuple[str, ...], steps: int) -> dict:
    ranks = case.stages * case.replicas
    cluster = folder / "cluster.yaml"
    cluster.write_text(case.network.text(ranks))
    command = [
        *(*SHAPED, "--cluster", cluster, "--", WORKER, "rehearse", folder / f"{case.model}.pt2", "--cluster", cluster),
        *("--pp", case.stages, "--dp", case.replicas, "--micro-batches", case.micro_batches, "--steps", steps),
        *("--micro-batch", case.rows, "--json", "--quiet", *options),
    ]
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench: {' '.join(error.cmd)} ended with {error.returncode}:\n{error.stderr}")
    except subprocess.TimeoutExpired as error:
        sys.exit(f"bench: {' '.join(error.cmd)} has not ended within {LIMIT_S} s")
    return json.loads(done.stdout)


def measure(names: list[str], rounds: int, steps: int) -> dict[str, Found]:
    found = {name: Found({}, {each: [] for each in OWN}) for name in names}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        for model in dict.fromkeys(CASES[name].model for name in names):
            torch.manual_seed(0)
            row = MODELS[model]
            ours.export(row.build(), row.rows(), folder / f"{model}.pt2", row.loss)
        for done in range(rounds):
            for name in names:
                print(f"bench: round {done + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                for each, options in OWN.items():
                    result = rehearse(folder, CASES[name], options, steps)
                    found[name].simulated[each] = result["simulated_step_ns"] / 1e9
                    found[name].rehearsed[each].append(result["rehearsed_step_ns"] / 1e9)
    return found


def say(found: dict[str, Found]) -> dict[str, float | str]:
    others = [name for name in OWN if name != OURS]
    print(f"\n{'case':<10}{'ranks':>6}{OURS:>13}" + "".join(f"{name:>17}" for name in others))
    errors: list[float] = []
    for name, each in found.items():
        case = CASES[name]
        texts = [f"{each.ratio(other):.3f}x ({each.simulated_ratio(other):.2f})" for other in others]
        step = statistics.median(each.rehearsed[OURS])
        columns = "".join(f"{text:>17}" for text in texts)
        print(f"{name:<10}{case.stages * case.replicas:>6}{step * 1e3:>10.0f} ms{columns}  {case.what}")
        errors += [each.simulated_ratio(other) / each.ratio(other) - 1 for other in others]
    ratios = {other: [each.ratio(other) for each in found.values()] for other in others}
    geomeans = {f"geomean_{name}": math.exp(statistics.mean(map(math.log, all_))) for name, all_ in ratios.items()}
    return {
        "bench": "larger",
        **{f"best_ratio_{name}": max(all_) for name, all_ in ratios.items()},
        **geomeans,
        "worst_ratio": min(min(all_) for all_ in ratios.values()),
        "simulated_ratio_median_error": statistics.median(map(abs, errors)),
        "simulated_ratio_worst_error": max(map(abs, errors)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"bench: there is no case {unknown[0]}; known are {', '.join(CASES)}")
    if options.source:
        record = json.loads(read_record(options.source))
        measured, found = record["measured"], {name: Found(**each) for name, each in record["found"].items()}
    else:
        measured, found = environment(), measure(names, options.rounds, options.steps)
    if options.record:
        record = {"measured": measured, "found": {name: asdict(each) for name, each in found.items()}}
        options.record.write_text(json.dumps(record, indent=1))
    print("\n".join(measured))
    print_result(say(found))


if __name__ == "__main__":
    main()
