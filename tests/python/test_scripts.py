"""The scripts count right, and refuse what they do not know."""

from __future__ import annotations

import subprocess

import command
import pytest

PYTEST = "2 failed, 70 passed, 1 error in 3.21s"
CTEST = "97% tests passed, 2 tests failed out of 80"


def bash(script):
    return subprocess.run(
        ["bash", "-c", script], cwd=command.REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


def counted(*steps):
    result = bash("\n".join([". scripts/checks.sh", *steps, "finish"]))
    return result.returncode, result.stdout.splitlines()[-1]


def says(text, status=0):
    return f"bash -c 'echo \"{text}\"; exit {status}'"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["check true", "check true"], (0, "2 passed, 0 failed")),
        (["check true", "check false"], (1, "1 passed, 1 failed")),
        ([f"count_ctest {says(CTEST, 8)}"], (1, "78 passed, 2 failed")),
        (
            [f"count_ctest {says('100% tests passed, 0 tests failed out of 7')}", "check true"],
            (0, "8 passed, 0 failed"),
        ),
        ([f"count_ctest {says('No tests were found!!!', 8)}"], (1, "0 passed, 1 failed")),
        ([f"count_ctest {says('Segmentation fault')}"], (1, "0 passed, 1 failed")),
        ([f"count_pytest {says(PYTEST, 1)}"], (1, "70 passed, 3 failed")),
        ([f"count_pytest {says('12 passed, 3 deselected, 4 warnings in 1.00s')}"], (0, "12 passed, 0 failed")),
        ([f"count_pytest {says('1 passed in 1.00s', 139)}"], (1, "1 passed, 1 failed")),
        ([f"count_pytest {says('ERROR: usage', 4)}"], (1, "0 passed, 1 failed")),
    ],
)
def test_the_sum_is_that_of_checks_and_tests(steps, expected):
    assert counted(*steps) == expected


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/test", "scripts/demo", "tools/check"])
def test_help_is_the_head_of_the_script(script):
    result = bash(f"{script} --help")
    assert result.returncode == 0
    assert f"  {script}" in result.stdout
    assert "set -" not in result.stdout


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/test", "scripts/demo"])
def test_an_unknown_option_is_refused(script):
    result = bash(f"{script} --fsat")
    assert result.returncode != 0
    assert "unknown option --fsat" in result.stderr


def test_every_debian_package_is_named_once():
    lines = (command.REPOSITORY / "scripts" / "packages-debian.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert len(names) == len(set(names)) > 10
