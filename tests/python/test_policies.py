"""`trireme policies`: the table, and docs/policies.md, which it prints.

`pytest tests/python/test_policies.py --write-table` writes the page instead of comparing with it.
"""

from __future__ import annotations

import re

import command
import pytest

pytestmark = pytest.mark.binary

PAGE = command.REPOSITORY / "docs" / "policies.md"


def speedups(page):
    """By section and policy: how many times as fast as `end` steps are, column by column."""
    found = {}
    for section in page.split("\n### ")[1:]:
        title = section.split("\n")[0].split(":")[0]
        for row in re.findall(r"^\| \*?([a-z0-9+, -]+)\*? \| (.*) \|$", section, re.MULTILINE)[1:]:
            cells = [float(cell.strip("* ").split(" ")[0]) for cell in row[1].split("|")]
            found.setdefault(title, {})[row[0]] = cells
    return found


def test_the_page_is_what_the_program_prints(request):
    page = command.run("policies", "--page").stdout
    if request.config.getoption("--write-table"):
        PAGE.write_text(page)
    assert page == PAGE.read_text(), "run pytest tests/python/test_policies.py --write-table"


def test_the_table_has_a_line_a_policy():
    lines = command.run("policies").stdout.splitlines()
    named = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [line.split()[0] for line in lines] == named
    assert lines[0] == (
        "end                all gradients when the backward is over, and nothing else meanwhile "
        "(Narayanan et al., PipeDream-2BW, ICML 2021)"
    )


def test_the_page_says_what_is_true():
    """The gain grows up to where computing and communication take as long, and falls after; an order wins twofold."""
    tables = speedups(PAGE.read_text())
    assert list(tables) == ["vgg-16", "resnet-50", "gpt-2", "lstm-lm", "1f1b", "2bw"]
    for model in ["vgg-16", "resnet-50", "gpt-2"]:
        rows = tables[model]
        for name, row in rows.items():
            assert all(cell <= bound for cell, bound in zip(row, rows["bound"], strict=True)), (model, name)
            if name in {"bound", "end", "p3"}:
                continue
            peak = row.index(max(row))
            assert row[: peak + 1] == sorted(row[: peak + 1]), (model, name)
            assert row[peak:] == sorted(row[peak:], reverse=True), (model, name)
        # Overlap alone is most of it; what is more comes of order and pieces.
        assert rows["trirace"][3] > rows["mg-wfbp"][3] > rows["end"][3]
    # Without flushes everything but what is sent at the end hides, until the links are full.
    assert tables["2bw"]["trirace"][3] > 1.4 > tables["1f1b"]["trirace"][3]
    assert tables["2bw"]["trirace"][4] == max(cells[4] for cells in tables["2bw"].values())
