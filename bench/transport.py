"""Two ranks of this host: what a message takes by the direct transport, by Gloo, and by a bare loop over a socket.

    bench/run transport [--rounds 5]

Messages of 4 MB and of 64 KB, several posted at once, in one direction. `tcp_vs_raw` is the bare loop's time / ours
without shared memory: at 1 the transport costs nothing. `shm_vs_gloo` is Gloo's time / ours with shared memory.
`urgent_delay_chunks`: an urgent message of 64 KB that is posted while 64 MB of bulk are on their way arrives after so
many times what a frame of the bulk (256 KB) takes. `cpu_per_message_us`: the processor time of both ends of a message
between two ranks that compute, each on a core of its own, and send each other one message after each pass of 1 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path

from contest import compete, print_result, print_table

BUILD = Path(__file__).resolve().parent.parent / "build"
SIZES = {"4mb": 4 << 20, "64kb": 64 << 10}
BATCH_BYTES = 128 << 20
BATCHES = 7
WARM_UP_BATCHES = 2
BUSY_MESSAGES = 200
URGENT = 64 << 10, 64 << 20, 9


def run(who: str, *numbers: int) -> dict[str, list[float]]:
    command = [str(BUILD / "bin/transport_bench"), who, *map(str, numbers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", BUILD, "--target", "transport_bench"], check=True, stdout=subprocess.DEVNULL)
    figures: dict[str, float | str] = {"bench": "transport"}
    for size, num_bytes in SIZES.items():

        def stream(who: str, num_bytes: int = num_bytes) -> list[float]:
            return run(who, num_bytes, BATCH_BYTES // num_bytes, BATCHES)["seconds"]

        contestants = {
            "TCP": lambda stream=stream: stream("tcp"),
            "raw socket": lambda stream=stream: stream("raw"),
            "Gloo": lambda stream=stream: stream("gloo"),
            "shared memory": lambda stream=stream: stream("shm"),
            "TCP again": lambda stream=stream: stream("tcp"),
        }
        outcome = compete(contestants, options.rounds, WARM_UP_BATCHES)
        ratios = print_table(f"a message of {num_bytes >> 10} KiB", outcome, "TCP", "TCP again")
        for name in ("TCP", "shared memory", "raw socket", "Gloo"):
            print(f"  {name:<14} {num_bytes / outcome.median(name) / 1e9:6.2f} GB/s")
        figures[f"tcp_vs_raw.{size}"] = ratios["raw socket"]
        figures[f"tcp_vs_gloo.{size}"] = ratios["Gloo"]
        figures[f"shm_vs_gloo.{size}"] = outcome.ratio("Gloo", "shared memory")
        figures |= {f"{name}.{size}": ratios[name] for name in ("a_a_low", "a_a_high")}
    for size, num_bytes in SIZES.items():

        def busy(who: str, num_bytes: int = num_bytes) -> list[float]:
            return run(f"busy-{who}", num_bytes, BUSY_MESSAGES, BATCHES)["processor_seconds"]

        contestants = {who: lambda busy=busy, who=who: busy(who) for who in ("shm", "tcp", "gloo")}
        outcome = compete(contestants | {"shm again": lambda busy=busy: busy("shm")}, options.rounds, WARM_UP_BATCHES)
        print(f"\nprocessor time of a message of {num_bytes >> 10} KiB, both its ends")
        for name, rounds in outcome.rounds.items():
            low, high = min(rounds) * 1e6, max(rounds) * 1e6
            print(f"  {name:<14} {outcome.median(name) * 1e6:8.1f} us  ({low:.1f} .. {high:.1f})")
        figures |= {f"cpu_per_message_us.{who}.{size}": outcome.median(who) * 1e6 for who in contestants}
    delays, frames = [], []
    for _ in range(options.rounds):
        found = run("urgent", *URGENT)
        delays.append(statistics.median(found["delays"]))
        frames.append(statistics.median(found["frames"]))
    delay = statistics.median(d / f for d, f in zip(delays, frames, strict=True))
    print(f"\nan urgent message of 64 KiB behind 64 MiB: {statistics.median(delays) * 1e6:.0f} us, {delay:.2f} frames")
    print_result(figures | {"urgent_delay_chunks": delay})


if __name__ == "__main__":
    main()
