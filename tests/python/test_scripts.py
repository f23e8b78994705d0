"""The scripts count right, and refuse what they do not know."""

from __future__ import annotations

import os
import shutil
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


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/test", "scripts/demo", "scripts/shaped", "tools/check"])
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


@pytest.fixture
def fresh(tmp_path):
    """A directory with the scripts alone, and a bin/ whose programs stand in for those of the machine."""
    shutil.copytree(command.REPOSITORY / "scripts", tmp_path / "scripts")
    for name in ("requirements.txt", "pyproject.toml", "CMakePresets.json"):
        shutil.copy(command.REPOSITORY / name, tmp_path)
    (tmp_path / "bin").mkdir()
    return tmp_path


def stand_in(fresh, name, text):
    program = fresh / "bin" / name
    program.write_text(f"#!/bin/bash\n{text}\n")
    program.chmod(0o755)


def setup(fresh, venv=".venv"):
    env = {**os.environ, "PATH": f"{fresh / 'bin'}:{os.environ['PATH']}", "TRIREME_VENV": str(fresh / venv)}
    return subprocess.run(
        [fresh / "scripts" / "setup"], env=env, capture_output=True, text=True, timeout=60, check=False
    )


ALL_INSTALLED = 'sed \'s/^/ii  /\' "$(dirname "$0")/../scripts/packages-debian.txt"'


def test_setup_without_root_prints_the_line_to_run(fresh):
    stand_in(fresh, "id", "echo 1000")
    stand_in(fresh, "dpkg-query", f"{ALL_INSTALLED} | grep -vE ' (ninja-build|libfmt-dev|clang-tidy-19)$'")
    stand_in(fresh, "apt-get", "echo called >>apt-was-called")
    result = setup(fresh)
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if line]
    assert lines == [
        "setup: Debian packages are missing; run this line, then this script again:",
        "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ninja-build libfmt-dev ",
    ]
    assert not (fresh / "apt-was-called").exists()


def python_with_a_pip(fresh, pip):
    """A python3.11 whose venvs have a `pip` of ours: `pip` is what it does, in bash, with its arguments."""
    stand_in(fresh, "dpkg-query", ALL_INSTALLED)
    stand_in(fresh, "in-venv", f'if [ "$2" = pip ]; then shift 2; {pip}; fi')
    stand_in(
        fresh,
        "python3.11",
        'if [ "$2" = venv ]; then echo venv >>calls; mkdir -p "$3/bin"; cp bin/in-venv "$3/bin/python"; fi',
    )
    stand_in(
        fresh,
        "cmake",
        "echo cmake >>calls; mkdir -p build/bin; touch build/build.ninja build/bin/trireme{,-worker}; chmod +x build/bin/*",
    )


def calls(fresh):
    found = (fresh / "calls").read_text().splitlines()
    (fresh / "calls").unlink()
    return found


def test_setup_does_what_is_left_to_do(fresh):
    python_with_a_pip(fresh, 'echo pip "${@: -1}" >>calls')
    assert setup(fresh).returncode == 0
    assert calls(fresh) == ["venv", "pip torch==2.13.0", "pip requirements.txt", "pip .", "cmake", "cmake"]
    assert setup(fresh).returncode == 0
    assert calls(fresh) == ["cmake"]  # ninja decides what is to be built
    with (fresh / "requirements.txt").open("a") as file:
        file.write("more==1\n")
    assert setup(fresh).returncode == 0
    assert calls(fresh) == ["pip torch==2.13.0", "pip requirements.txt", "pip .", "cmake", "cmake"]


def test_an_interrupted_setup_makes_its_environment_anew(fresh):
    python_with_a_pip(fresh, 'echo pip "${@: -1}" >>calls; [ "${@: -1}" != requirements.txt ]')
    result = setup(fresh)
    assert result.returncode == 1
    log = fresh / "build" / "setup.log"
    assert f"Python packages of requirements.txt: failed; the whole output is in {log}" in result.stderr
    assert calls(fresh) == ["venv", "pip torch==2.13.0", "pip requirements.txt"]
    (fresh / ".venv" / "half-made").touch()
    python_with_a_pip(fresh, 'echo pip "${@: -1}" >>calls')
    assert setup(fresh).returncode == 0
    assert calls(fresh)[:2] == ["venv", "pip torch==2.13.0"]
    assert not (fresh / ".venv" / "half-made").exists()


def test_setup_says_when_it_takes_an_environment_from_another_checkout(fresh):
    python_with_a_pip(fresh, "true")
    assert setup(fresh).returncode == 0
    packages = fresh / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    link = packages / "__editable__.trireme-0.1.0.pth"
    link.write_text("/elsewhere/python")
    (fresh / "requirements.txt").open("a").write("\n")
    result = setup(fresh)
    assert (
        f"setup: in {fresh}/.venv, `import trireme` was that of /elsewhere/python and becomes that of {fresh}/python; "
        "PYTHONPATH selects another\n"
    ) in result.stdout
    link.write_text(f"{fresh}/python")
    (fresh / "requirements.txt").open("a").write("\n")
    result = setup(fresh)
    assert result.returncode == 0
    assert "was that of" not in result.stdout


def test_setup_deletes_no_environment_that_it_did_not_make(fresh):
    python_with_a_pip(fresh, "false")
    own = fresh / "own" / "bin" / "python"
    own.parent.mkdir(parents=True)
    shutil.copy(fresh / "bin" / "in-venv", own)
    assert setup(fresh, "own").returncode == 1
    result = setup(fresh, "own")
    assert f"an earlier setup was interrupted in {fresh / 'own'}, which it had not made" in result.stderr
    assert own.exists()
    (fresh / "documents").mkdir()
    (fresh / "documents" / "letter").touch()
    result = setup(fresh, "documents")
    assert f"{fresh / 'documents'} is neither empty nor a virtual environment" in result.stderr
    assert (fresh / "documents" / "letter").exists()
