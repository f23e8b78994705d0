"""`trireme schedule`: text, lanes, picture and JSON, of schedules by name and of files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import command
import pytest

pytestmark = pytest.mark.binary

ORDER = """\
schedule mine stages=2 micro-batches=2
rank 0: F0 F1 B0 B1
rank 1: F0 B0 F1 B1
"""


def schedule(*arguments):
    return command.run("schedule", *arguments).stdout


def refusal(*arguments):
    result = command.run("schedule", *arguments, code=2)
    assert result.stdout == ""
    return result.stderr.removeprefix("trireme: ").removesuffix("\n")


def test_text_of_a_schedule_is_read_again(tmp_path):
    text = schedule("zb-v", "--stages", 3, "--micro-batches", "5,2,0")
    assert text.startswith("schedule zb-v stages=3 chunks=2 placement=v micro-batches=5,2,0 look-ahead=")
    (tmp_path / "zb-v.schedule").write_text(text)
    assert schedule(tmp_path / "zb-v.schedule") == text


def test_lanes_and_what_they_take():
    assert schedule("zb-h1", "--stages", 2, "--micro-batches", 3, "--show") == (
        "rank 0 | F0 F1 .  I0 W0 F2 I1 W1 I2 W2\n"
        "rank 1 | .  F0 I0 F1 I1 W0 F2 I2 W1 W2\n"
        "10 units, the longest rank 10 from its first pass to its last; in flight at most 2 2\n"
    )
    lanes = schedule("gpipe", "--stages", 2, "--micro-batches", 1, "--costs", "F=2,B=3,delay=1", "--show")
    assert lanes.splitlines()[:2] == [
        "rank 0 | F0 -- .  .  .  .  .  .  .  B0 -- --",
        "rank 1 | .  .  .  F0 -- B0 -- --",
    ]


def test_the_order_of_a_user_is_completed(tmp_path):
    (tmp_path / "mine").write_text(ORDER)
    assert schedule(tmp_path / "mine") == (
        "schedule text stages=2 micro-batches=2 look-ahead=2\n"
        "rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 SC0 U\n"
        "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U\n"
    )
    replicas = schedule(tmp_path / "mine", "--micro-batches", "2,1").splitlines()
    assert replicas[0] == "schedule text stages=2 micro-batches=2,1 look-ahead=2"
    assert replicas[3] == "rank 2: F0 SA0 RG0 B0 SC0 U"


def test_a_picture_is_well_formed_and_has_every_pass(tmp_path):
    picture = tmp_path / "picture.svg"
    text = schedule("shifted-critical-path", "--stages", 3, "--micro-batches", 4, "--svg", picture)
    passes = [word for word in text.split() if word.rstrip("0123456789") in ("F", "Fc", "R", "B")]
    svg = ElementTree.parse(picture).getroot()
    titles = [title.text.split()[0] for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == passes
    schedule("1f1b", "--stages", 2, "--svg", picture)  # a picture is overwritten
    assert "1f1b" in picture.read_text()


def test_json_has_the_numbers():
    found = json.loads(schedule("interleaved", "--stages", 2, "--micro-batches", 4, "--chunks", 3, "--json"))
    assert {key: found[key] for key in ("schedule", "stages", "chunks", "placement", "micro_batches")} == {
        "schedule": "interleaved",
        "stages": 2,
        "chunks": 3,
        "placement": "looped",
        "micro_batches": [4],
    }
    assert found["makespan"] == found["longest_span"] == (4 * 3 + 1) * 3
    assert found["text"].startswith("schedule interleaved ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zb-h1"], "give --stages"),
        (["1f1b", "--stages", 4, "--chunks", 2], "schedule 1f1b has 1 chunk a rank, not 2"),
        (
            ["gpipe", "--stages", 2, "--micro-batches", 4, "--in-flight", 3],
            "schedule gpipe has up to 4 micro-batch chunks in flight on a rank, more than the limit of 3",
        ),
        (
            ["zb-v", "--stages", 2, "--in-flight", 1],
            "1 in flight a rank: a micro-batch alone has 2 chunks in flight",
        ),
        (
            ["1f1b", "--stages", 2, "--costs", "F=x"],
            '--costs: "F=x" is no cost: give F, B, I, W, R or delay, "=" and a whole number up to 1099511627776',
        ),
        (
            ["greedy", "--stages", 1000000, "--micro-batches", 16384],
            "1000000 stages of 1 chunks and 16384 micro-batches are too many: at most 16 chunks, and 4194304 passes in all",
        ),
        (
            ["1f1b", "--stages", 2, "--costs", "F=1000000", "--show"],
            "2 lanes of 3000006 units are too long to draw; give smaller --costs",
        ),
        (["1f1b", "--stages", 2, "--json", "--show"], "--json has no drawing; leave out --show"),
        (
            ["1f1b", "--stages", 2, "--micro-batches", 0],
            "2 stages and 0 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 micro-batch",
        ),
        (
            ["zigzag", "--stages", 2],
            "cannot open zigzag: No such file or directory, and no schedule by name: gpipe, 1f1b, interleaved, zb-h1, "
            "zb-h2, zb-v, dualpipe-v, pre-recompute, last-no-recompute, shifted-critical-path, 2bw, greedy, forward-only",
        ),
    ],
)
def test_refusals(arguments, message):
    assert refusal(*arguments) == message


def test_refusals_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text(ORDER)
    (tmp_path / "whole").write_text(schedule("1f1b", "--stages", 2))
    (tmp_path / "bad").write_text(ORDER.replace("F1 B0 B1", "B0 F1 Q1"))
    (tmp_path / "stuck").write_text("schedule x stages=2 micro-batches=1\nrank 0: RG0 F0 B0\nrank 1: F0 B0\n")
    says = "says how many stages and chunks it has; leave out --stages and --chunks"
    assert refusal("mine", "--stages", 2) == f"mine {says}"
    assert refusal("mine", "--micro-batches", 3) == (
        "mine: the order is of 2 stages and 2 micro-batches, not of 2 and 3"
    )
    assert refusal("whole", "--micro-batches", 3) == (
        "whole says how many micro-batches it has; leave out --micro-batches"
    )
    assert refusal("bad").startswith('bad: line 2: unknown action "Q1"; known are F, Fc, R, B,')
    assert refusal("stuck").startswith("stuck: deadlock at look-ahead 16: rank 0 waits at RG0")
    assert refusal("1f1b", "--stages", 2, "--svg", "mine") == (
        "--svg mine: this file is no SVG, so it is not overwritten; remove it or name another"
    )
    assert (tmp_path / "mine").read_text() == ORDER


def test_help_names_the_schedules():
    text = command.run("schedule", "--help").stdout
    assert "dualpipe-v" in text
    assert "trireme schedule mine.schedule --show" in text
