"""`bench/run shaped`: its bound against what the hosts' devices count, its figures against arithmetic, its end."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import command
import pytest
import torch
from hosts import need_namespaces
from processes import WORKER, Run, seeded_random, wait_until

BENCH = command.REPOSITORY / "bench"
sys.path.append(str(BENCH))  # last: tests/fixtures has a module of models, too
import ours  # noqa: E402
from bound import Load, exposed_of, load_of  # noqa: E402
from curves import TOP, means, svg  # noqa: E402
from results import page_with  # noqa: E402
from shaped_links import Hosts, Peer  # noqa: E402
from shaped_record import AGAIN, OURS, Contest, Point, Record, figures_of  # noqa: E402

specification = importlib.util.spec_from_file_location("bench_models", BENCH / "models.py")
bench_models = importlib.util.module_from_spec(specification)
sys.modules["bench_models"] = bench_models
specification.loader.exec_module(bench_models)
NAME = "bench-shaped"


def report(*links, stages=2, replicas=2, steps=2):
    named = [{"name": name, "bytes": size} for name, size in links]
    return {"stages": stages, "replicas": replicas, "steps": steps, "links": named}


def test_the_load_of_a_step_is_what_its_ranks_compute_and_send():
    load = load_of(
        report(("0>1", 100), ("1>0", 60), ("AR stage 0", 900), ("SX stage 0", 100), ("AR stage 1", 400), ("SC", 9)),
        [0.005, 0.010, 0.015, 0.020],
    )
    assert load.compute_s == [0.005, 0.010, 0.015, 0.020]
    # A sum over two: half of it as terms, half as sums.
    assert load.sent_bytes == [500 + 50, 200 + 30, 500, 200]
    assert load.received_bytes == [500 + 30, 200 + 50, 500, 200]
    assert load.link_bytes == 550
    assert load_of(report(("AR stage 0", 900), stages=1, replicas=3, steps=1), [1.0]).sent_bytes == [1200] * 3


def test_the_bound_is_the_larger_of_compute_and_link():
    load = Load([0.3, 0.4], [10e6, 0], [0, 10e6])
    assert load.bound_s(50e6) == 0.4
    assert load.bound_s(10e6) == 1.0
    assert [load.is_steep(rate) for rate in (50e6, 31.3e6, 31.2e6, 20.1e6, 19.9e6)] == [True, True, False, False, True]


def test_bytes_without_a_rule_are_refused():
    with pytest.raises(ValueError, match="no rule for the bytes of TR replica 0"):
        load_of(report(("TR replica 0", 1)), [1.0])


def test_exposed_time_is_that_of_the_mean_rank():
    links = [
        {"name": "0>1", "exposed_ns": 8e9},
        {"name": "1>0", "exposed_ns": 4e9},
        {"name": "AR stage 0", "exposed_ns": 2e9},  # of each of its two members
        {"name": "AR stage 1", "exposed_ns": 4e9},
        {"name": "SC", "exposed_ns": 1e9},  # of each of all four
    ]
    found = exposed_of({"stages": 2, "replicas": 2, "steps": 2, "links": links})
    assert found == {"transfers": (8 + 4) / 4 / 2, "sums": ((2 + 4) * 2 / 4 + 1) / 2}


def point(ratio, rate, ours, again, flush, torch, simulated=(0.8, 1.2)):
    rounds = {OURS: ours, AGAIN: again, "1f1b": flush, "torch": torch}
    return Point(ratio, rate, 1e-4, rounds, dict(zip((OURS, "1f1b"), simulated, strict=True)), "1,0")


def contest(*points):
    """Computes 0.4 s, sends 10 MB."""
    load = Load([0.3, 0.4], [10e6, 0], [0, 10e6])
    return Contest("gpt-2x2-m4", "a title", load, load, list(points))


def test_the_figures_are_those_of_the_rounds():
    compute_bound = point(0.5, 50e6, [0.44, 0.44], [0.44, 0.45], flush=[0.66, 0.66], torch=[0.88, 0.88])
    even = point(1, 25e6, [0.8, 0.8], [0.8, 0.8], flush=[1.2, 1.6], torch=[0.72, 0.72])
    link_bound = point(2, 12.5e6, [0.88, 0.92], [0.92, 0.88], flush=[0.88, 0.92], torch=[1.76, 1.84])
    figures = figures_of(Record(["* Measured: then"], 0.38, [contest(compute_bound, even), contest(link_bound)]))
    assert figures["best_ratio_flush"] == pytest.approx((1.5 + 2) / 2)
    assert figures["best_ratio_torch"] == pytest.approx(2)
    assert figures["geomean_torch"] == pytest.approx((2 * 0.9 * 2) ** (1 / 3))
    assert figures["worst_ratio"] == pytest.approx(0.9)
    assert figures["aa_spread_worst"] == pytest.approx(0.92 / 0.88 - 1)
    # 0.44 s of 0.4; the point where both take as long is not among them; 0.9 s of 0.8.
    assert figures["bound_factor_compute"] == pytest.approx(1.1)
    assert figures["bound_factor_link"] == pytest.approx(1.125)


def test_simulated_ratios_are_laid_beside_measured_ones():
    right = point(1, 25e6, [0.8], [0.8], flush=[1.2], torch=[0.7], simulated=(1, 1.5))
    wrong = point(1, 25e6, [1.0], [1.0], flush=[1.1], torch=[0.7], simulated=(1.1, 1))
    inside_the_spread = point(1, 25e6, [1.0], [1.2], flush=[1.1], torch=[0.7], simulated=(1, 1.1))
    figures = figures_of(Record(["* Measured: then"], 0.38, [contest(right, right, wrong, inside_the_spread)]))
    assert (figures["simulated_pairs_in_order"], figures["simulated_pairs"]) == (2, 3)
    assert figures["simulated_ratio_worst_error"] == pytest.approx(1 - 1 / 1.1 / 1.1)
    assert figures["simulated_ratio_median_error"] == pytest.approx(0)
    # Steps: 25, 25, 25, 25, 10, 9.1, 0 and 0 %.
    assert figures["simulated_step_median_error"] == pytest.approx((0.25 + 0.1) / 2)


def test_a_record_is_read_as_it_was_written():
    record = Record(["* Measured: then"], 0.38, [contest(point(1, 25e6, [0.8], [0.8], flush=[1.2], torch=[0.7]))])
    assert Record.from_json(record.to_json()) == record


def bench(*arguments, code=0, program="shaped.py"):
    words = [sys.executable, BENCH / program, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_a_record_is_said_again_without_a_run(tmp_path):
    record = Record(["* Measured: then"], 0.38, [contest(point(1, 25e6, [0.8], [0.8], flush=[1.2], torch=[0.7]))])
    (tmp_path / "kept.json").write_text(record.to_json())
    lines = bench("--from", tmp_path / "kept.json").stdout.splitlines()
    assert json.loads(lines[-1].removeprefix("RESULT "))["best_ratio_flush"] == 1.5
    assert lines[6].split() == [
        "1.00",
        "25.00",
        "MB/s",
        "400",
        "ms",
        "800",
        "ms",
        "2.000",
        "0.0%",
        "1,0",
        "1.500x",
        "(1.50)",
        "0.875x",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--contestants", "2bw,torch"),
            "all are compared with trirace and trirace again; leave them in --contestants",
        ),
        (("--steps", 3), "--steps 4 are the fewest: three of them are not timed"),
    ],
)
def test_what_is_no_contest_is_one_sentence(arguments, said):
    assert bench(*map(str, arguments), code=1).stderr == f"bench: {said}\n"


def left(pid):
    """Of the process's hosts; tests run beside each other."""
    folders = ("/run/netns", "/etc/netns", "/sys/fs/cgroup/cpu")
    return {str(path) for folder in folders for path in Path(folder).glob(f"trireme-shaped-{NAME}.{pid}.*")}


@pytest.fixture
def nothing_is_left():
    need_namespaces()
    if not Path("/sys/fs/cgroup/cpu").exists():
        pytest.skip("no control groups of version 1")
    yield
    assert left(os.getpid()) == set()


@pytest.mark.slow
@pytest.mark.binary
@pytest.mark.parametrize(("pp", "dp"), [(2, 2), (4, 1)])
def test_the_devices_count_the_bytes_of_the_bound(tmp_path, nothing_is_left, pp, dp):
    torch.manual_seed(0)
    tokens = torch.randint(1024, (2, 16, 64))
    ours.prepare(
        tmp_path, bench_models.Gpt(blocks=3, vocabulary=1024), (tokens[0], tokens[1]), 4, bench_models.token_loss
    )
    timeline, counted = tmp_path / "run.timeline", {}
    data = ("--data", f"safetensors:{tmp_path}/rows.safetensors", "--batch", 16, "--pp", pp, "--dp", dp)
    train = (WORKER, "train", tmp_path / "model.pt2", *data, "--transport", "direct", "--timeline", timeline, "--quiet")
    with Hosts(NAME, 4, 1.0) as hosts:
        for steps in (2, 22):
            before = [hosts.counters(host) for host in hosts.layout.hosts]
            hosts.run([*train, "--steps", steps, "--timeline-steps", steps], "a run", 60)
            after = [hosts.counters(host) for host in hosts.layout.hosts]
            counted[steps] = [{k: b[k] - a[k] for k in a} for a, b in zip(before, after, strict=True)]
    load = load_of(json.loads(command.run("report", timeline, "--json").stdout), [1.0] * 4)
    for rank in range(4):
        for way, stated in (("sent", load.sent_bytes), ("received", load.received_bytes)):
            # Without what is sent once a run.
            found = (counted[22][rank][way] - counted[2][rank][way]) / 20
            assert stated[rank] <= found <= 1.04 * stated[rank]  # headers, acknowledgements, scalars, heartbeats


@pytest.mark.slow
@pytest.mark.binary
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_time_leaves_no_host(tmp_path, nothing_is_left, number):
    chance = seeded_random()
    command = [sys.executable, BENCH / "shaped.py", "--cases", "gpt-2x2-m4", "--no-deepspeed"]
    with Run(command, tmp_path) as run:
        wait_until(lambda: left(run.process.pid), "hosts")
        time.sleep(chance.uniform(0, 8))
        run.process.send_signal(number)
        assert run.wait() == 128 + number
        assert "Traceback" not in run.err
        assert left(run.process.pid) == set()


@pytest.mark.slow
@pytest.mark.binary
def test_a_rank_that_ends_ends_the_bench_with_a_sentence(nothing_is_left):
    with pytest.raises(SystemExit) as end, Hosts(NAME, 2, 0.5) as hosts:
        hosts.run(["sh", "-c", "test $RANK = 0 || exit 3; sleep 1000"], "a run", 60)
    assert end.value.code == "bench: a run: rank 1 ended with 3"
    with pytest.raises(SystemExit) as end, Hosts(NAME, 2, 0.5) as hosts:
        hosts.run(["sleep", "1000"], "a run", 0.2)
    assert end.value.code == "bench: a run has not ended within 0.2 s"
    with pytest.raises(SystemExit) as end, Hosts(NAME, 2, 0.5) as hosts:
        Peer(hosts, "a peer", ["sh", "-c", "echo ready; read line; test $RANK = 0 || sleep 1000"], {}).train(1, 60)
    assert end.value.code == "bench: rank 0 of a peer has ended"
    with pytest.raises(SystemExit) as end, Hosts(NAME, 2, 0.5) as hosts:
        Peer(hosts, "a peer", ["sh", "-c", "echo ready; sleep 1000"], {}).train(1, 0.2)
    assert end.value.code == "bench: a peer has not answered within 0.2 s"


def test_a_page_of_results_keeps_the_sections_that_were_not_run():
    page = "# Results\n\nold\n\n## Input and start-up\n\na\n\n## Dropout, forward and backward\n\nb\n"
    shaped = "Training over links of stated rates"
    made = page_with(page, "# Results\n\nnew", {shaped: "c", "Input and start-up": "d"})
    sections = "## Dropout, forward and backward\n\nb\n\n## Input and start-up\n\nd\n\n" + f"## {shaped}\n\nc\n"
    assert made == "# Results\n\nold\n\n" + sections
    assert page_with("", "# Results\n\nnew", {shaped: "c"}) == f"# Results\n\nnew\n\n## {shaped}\n\nc\n"


def test_curves_are_a_picture_and_the_means_of_ten_steps():
    one, two = [10 - step / 10 for step in range(40)], [10.0] * 40
    assert means(one) == [
        (10, pytest.approx(9.55)),
        (20, pytest.approx(8.55)),
        (30, pytest.approx(7.55)),
        (40, pytest.approx(6.55)),
    ]
    picture = ElementTree.fromstring(svg({"1f1b 0.003": one, "2bw 0.003": two}))
    first, second = picture.iter("{http://www.w3.org/2000/svg}polyline")
    heights = [float(point.split(",")[1]) for point in second.get("points").split()]
    assert heights == [TOP] * 4  # the highest loss is at the top
    slope = [float(point.split(",")[1]) for point in first.get("points").split()]
    assert slope == sorted(slope) and slope[0] > TOP


def test_larger_cases_are_said_with_their_simulated_ratios(tmp_path):
    found = {
        "gpt-8": {
            "simulated": {OURS: 1.0, "2bw": 1.5, "1f1b": 2.0, "fifo": 1.1},
            "rehearsed": {OURS: [1.0, 1.0], "2bw": [1.5, 1.6], "1f1b": [2.0, 2.0], "fifo": [1.0, 1.0]},
        },
        "uplink": {
            "simulated": {OURS: 2.0, "2bw": 2.0, "1f1b": 2.0, "fifo": 2.0},
            "rehearsed": {OURS: [2.0, 2.0], "2bw": [2.0, 2.0], "1f1b": [2.5, 2.5], "fifo": [1.9, 1.9]},
        },
    }
    (tmp_path / "kept.json").write_text(json.dumps({"measured": ["* Measured: then"], "found": found}))
    lines = bench("--from", tmp_path / "kept.json", program="larger.py").stdout.splitlines()
    assert lines[3].split()[:5] == ["gpt-8", "8", "1000", "ms", "1.550x"]
    figures = json.loads(lines[-1].removeprefix("RESULT "))
    assert figures["best_ratio_1f1b"] == 2.0
    assert figures["geomean_1f1b"] == pytest.approx(2.5**0.5, abs=1e-4)
    assert figures["worst_ratio"] == 0.95
    assert figures["simulated_ratio_worst_error"] == pytest.approx(0.2)


@pytest.mark.slow
def test_peers_have_a_share_of_a_core_when_they_are_ready(nothing_is_left):
    say_group = """echo ready; read line; echo "\\"$(grep :cpu: /proc/self/cgroup)\\""; read line"""
    with Hosts(NAME, 2, 0.5) as hosts:
        groups = Peer(hosts, "a peer", ["sh", "-c", say_group], {}).train(1, 60)
        names = [f"trireme-shaped-{hosts.name}_{host}" for host in hosts.layout.hosts]
    assert [group.rpartition("/")[2] for group in groups] == names


@pytest.mark.parametrize("program", ["shaped.py", "larger.py", "curves.py"])
def test_a_record_that_is_not_there_is_one_sentence(program):
    said = bench("--from", "/nowhere/kept.json", program=program, code=1).stderr
    assert said == "bench: --from /nowhere/kept.json: No such file or directory\n"
