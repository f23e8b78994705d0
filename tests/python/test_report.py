"""`trireme report`: the table, the JSON, the trace, and the page in a browser."""

from __future__ import annotations

import json

import command
import pytest
from browser import Browser
from processes import train_arguments

pytestmark = pytest.mark.binary

FOUND = """\
timeline measured 1f1b stages=2 event-cost=70
rank 0 F0 0 100000 step=1
rank 0 SA0 100000 140000 step=1 peer=1 bytes=64
rank 0 RG0 100000 350000 step=1 peer=1 bytes=64
rank 0 wait RG0 100000 350000 step=1 peer=1
rank 0 B0 350000 480000 step=1
rank 0 U 480000 500000 step=1
rank 1 RA0 0 140000 step=1 peer=0 bytes=64
rank 1 wait RA0 0 140000 step=1 peer=0
rank 1 F0 140000 200000 step=1
rank 1 B0 200000 300000 step=1
rank 1 SG0 300000 350000 step=1 peer=0 bytes=64
rank 1 U 300000 330000 step=1
"""


@pytest.fixture
def found(tmp_path):
    path = tmp_path / "found.timeline"
    path.write_text(FOUND)
    return path


@pytest.fixture
def predicted(tmp_path):
    path = tmp_path / "predicted.timeline"
    path.write_text(FOUND.replace("measured", "simulated").replace("480000 500000", "480000 490000"))
    return path


def test_a_training_run_adds_up(tmp_path):
    path = tmp_path / "run.timeline"
    command.run(*train_arguments("--timeline", path, "--micro-batches", 4, "--quiet", steps=12))
    report = json.loads(command.run("report", path, "--json").stdout)
    assert report["steps"] == 12
    assert report["not_over"] == []
    assert len(report["ranks"]) == 4
    for rank in report["ranks"]:
        assert sum(rank.values()) == report["wall_ns"]
        assert rank["compute_ns"] > 0
        assert rank["optimizer_ns"] > 0
    assert {link["name"] for link in report["links"]} == {
        *("0>1", "1>0", "2>3", "3>2"),
        *("AR stage 0", "AR stage 1", "TR replica 0", "TR replica 1", "SC"),
    }
    assert 0 < report["recording_share"] < 0.01


def test_evaluations_are_a_slice_of_their_own(tmp_path):
    path = tmp_path / "run.timeline"
    evaluation = ("--eval-data", f"safetensors:{command.DATA / 'nanogpt.data.safetensors'}", "--eval-every", 2)
    command.run(*train_arguments("--timeline", path, "--quiet", *evaluation, steps=5))
    events = [line.split() for line in path.read_text().splitlines()[1:]]
    evaluated = [(event[1], event[-1]) for event in events if event[2] == "evaluation"]
    assert sorted(evaluated) == [(str(rank), f"step={step}") for rank in range(4) for step in (2, 4, 5)]
    report = json.loads(command.run("report", path, "--json").stdout)
    assert report["steps"] == 5
    evaluation_ns = 0
    for rank in report["ranks"]:
        assert sum(rank.values()) == report["wall_ns"]
        assert 0 < rank["evaluation_ns"] < report["wall_ns"]
        evaluation_ns += rank["evaluation_ns"] / len(report["ranks"])
    assert report["step_ns"] == pytest.approx((report["wall_ns"] - evaluation_ns) / 5, abs=1)


def test_a_prediction_is_compared(found, predicted):
    table = command.run("report", found, "--against", predicted).stdout
    assert "predicted step 490 us, found 500 us: -2.0%" in table
    report = json.loads(command.run("report", found, "--against", predicted, "--json").stdout)
    assert report["step_error"] == pytest.approx(-0.02)
    assert report["slices"]["optimizer"] == {"predicted_ns": 20000, "found_ns": 25000}
    assert report["slices"]["compute"] == {"predicted_ns": 195000, "found_ns": 195000}


def test_a_timeline_that_was_cut_off_is_reported(found):
    found.write_text(FOUND[: FOUND.index("rank 1 SG0") + 5])
    assert "1 step from step 1 in 500 us" in command.run("report", found).stdout


def test_a_trace_is_that_of_chrome(found, tmp_path):
    command.run("report", found, "--chrome", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (update,) = [event for event in events if event["name"] == "U" and event["pid"] == 1]
    assert update == {
        "ph": "X",
        "name": "U",
        "cat": "update",
        "pid": 1,
        "tid": 0,
        "args": {"step": 1, "peer": -1, "bytes": 0},
        "ts": 300.0,
        "dur": 30.0,
    }


def test_wrong_requests_are_refused_in_a_sentence(tmp_path, found):
    def refusal(*arguments):
        return command.run("report", *arguments, code=2).stderr

    missing = tmp_path / "none.timeline"
    assert refusal(missing) == (
        f"trireme: there is no {missing}, and no part {missing}.rank0 of a run that was killed\n"
    )
    other = tmp_path / "other.timeline"
    other.write_text("timeline simulated 1f1b stages=3\n")
    assert refusal(found, "--against", other) == (
        f"trireme: {found} has 2 ranks, {other} has 3: they are of different runs\n"
    )
    assert refusal(other) == f"trireme: {other} has no events: the run ended before its first step\n"
    other.write_text("hello\n")
    assert refusal(other) == (
        f'trireme: {other}: line 1: this is no timeline: its first line does not begin with "timeline"\n'
    )
    assert refusal(found, "-o", found) == f"trireme: -o {found} would overwrite TIMELINE\n"


@pytest.mark.slow
def test_the_page_shows_the_lanes_in_a_browser(tmp_path, found, predicted):
    page = tmp_path / "report.html"
    command.run("report", found, "--against", predicted, "-o", page)
    assert "http" not in page.read_text().replace("http://www.w3.org", "")
    with Browser(tmp_path) as browser:
        browser.open(page)
        assert browser.console() == []
        labels = browser.run("return [...document.querySelectorAll('.lane')].map(e => e.textContent)")
        assert labels == ["rank 0predicted", "found", "rank 1predicted", "found"]
        assert browser.run("return document.title") == "found.timeline"
        assert "-2.0%" in browser.run("return document.getElementById('cards').textContent")
        # The lane of rank 0 as it was found, at a time within B0.
        place = browser.run("""
            const box = document.getElementById('plot').getBoundingClientRect();
            const row = rows[1];
            return [box.left + x(400000), box.top + row.y + height / 2]""")
        browser.point_at(*place)
        tip = "return document.getElementById('tip').innerText"
        assert browser.run(tip).splitlines() == [
            "B0",
            "backward, rank 0, found, step 1",
            "130 \N{MICRO SIGN}s, from 350 \N{MICRO SIGN}s",
        ]
        before = browser.run("return to - from")
        browser.turn_wheel(*place, -300)
        after = browser.run("return new Promise(done => setTimeout(() => done([to - from, x(400000)]), 100))")
        assert after[0] < before
        assert after[1] == pytest.approx(place[0] - browser.run("return canvas.getBoundingClientRect().left"), abs=1.5)
        # The pixel in the middle of B0, beside its name, has the colour of a backward.
        colour = browser.run("""
            look(first, last); draw();
            const scale = window.devicePixelRatio, row = rows[1];
            return [...pen.getImageData(x(360000) * scale, (row.y + height / 2) * scale, 1, 1).data]""")
        assert colour == [0x12, 0xA5, 0x94, 255]
        browser.run("document.getElementById('path').click(); document.getElementById('flows').click(); draw()")
        assert browser.console() == []
