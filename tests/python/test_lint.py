"""tools/lint finds each planted violation in a small copy of the tree, and nothing else there."""

from __future__ import annotations

import shutil
import subprocess
import sys

import command
import pytest

LINT = command.REPOSITORY / "tools" / "lint"
HEADER = "// Something: for a test.\n#pragma once\n"
MARK = "TO" + "DO"

CLEAN = {
    "README.md": "Plain.\n",
    "src/trireme/base/thing.h": HEADER,
    "src/trireme/graph/graph.h": HEADER + '#include "trireme/base/thing.h"\n',
    "src/trireme/graph/graph.cc": '#include "trireme/graph/graph.h"\n// exit(1), "goto" in words\nconst char* k = "abort()";\n',
    "src/trireme/torch/open.h": HEADER + '#include "trireme/graph/graph.h"\n',
    "src/trireme/torch/tensors.h": HEADER + "#include <ATen/core/Tensor.h>\n",
    "src/trireme/torch/optimizer_options.h": HEADER,
    "src/trireme/cli/options.h": HEADER + '#include "trireme/torch/optimizer_options.h"\n',
    "src/trireme/worker/main.cc": '#include "trireme/torch/open.h"\nint main() { std::exit(1); }\n',
    "src/trireme/exec/transport.cc": "void Transport::abort(Error e) { peer.abort(e); peer->exit(); std::snprintf(b); }\n",
    "src/trireme/exec/checked.h": HEADER + '#include <gtest/gtest.h>\nauto a = std::getenv("TRIREME_SEED");\n',
    "python/trireme/capture.py": "import torch\n",
    "tests/python/test_x.py": f"# {MARK}(#12): the rest\n",
}


def lint(root):
    result = subprocess.run([sys.executable, LINT, root], capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout.splitlines()


@pytest.fixture
def tree(tmp_path):
    for path, text in CLEAN.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "tools").mkdir()
    shutil.copy(command.REPOSITORY / "tools" / "layers.txt", tmp_path / "tools")
    return tmp_path


def test_a_clean_tree_passes(tree):
    assert lint(tree) == (0, ["lint: 0 errors, 0 warnings"])


PLANTED = [
    (
        "src/trireme/base/a.cc",
        '#include "trireme/graph/graph.h"\n',
        "1: base/ must not include graph/graph.h; tools/layers.txt has its row",
    ),
    (
        "src/trireme/cli/a.cc",
        '\n#include "trireme/torch/open.h"\n',
        "2: cli/ must not include torch/open.h; tools/layers.txt has its row",
    ),
    ("src/trireme/base/a.cc", '#include "thing.h"\n', '1: "thing.h" is included by a short path; write "trireme/..."'),
    ("src/trireme/more/a.cc", "\n", "1: more is not a layer of tools/layers.txt"),
    (
        "src/trireme/exec/a.cc",
        "#include <c10/util/Exception.h>\n",
        "1: only torch/ includes libtorch, and this reaches it: <c10/util/Exception.h>",
    ),
    (
        "src/trireme/worker/a.cc",
        '#include "trireme/torch/tensors.h"\n',
        "1: only torch/ includes libtorch, and this reaches it: trireme/torch/tensors.h -> <ATen/core/Tensor.h>",
    ),
    ("src/trireme/base/a.h", "#pragma once\n", "1: a header opens with a comment that says what the file is for"),
    ("src/trireme/base/a.h", "// A: b.\n", "1: a header has #pragma once"),
    ("src/trireme/base/a.cc", "int a;\n" * 801, "801: 801 lines, at most 800; does it define one thing?"),
    ("python/trireme/a.py", "a = 1\n" * 801, "801: 801 lines, at most 800; does it define one thing?"),
    ("src/trireme/base/string_utils.cc", "\n", "1: utils, helpers, common, misc and manager name nothing"),
    (
        "src/trireme/base/a.cc",
        "\n{ std::abort(); }\n",
        "2: a library does not end the process; return an Error, or use TRIREME_CHECK",
    ),
    (
        "src/trireme/worker/a.cc",
        "if (x) exit(2);\n",
        "1: a library does not end the process; return an Error, or use TRIREME_CHECK",
    ),
    (
        "src/trireme/base/a.cc",
        'std::fprintf(stderr, "");\n',
        "1: a library does not print; return the text, or take where it goes as an argument",
    ),
    (
        "src/trireme/exec/a.cc",
        "std::cout << 1;\n",
        "1: a library does not print; return the text, or take where it goes as an argument",
    ),
    (
        "src/trireme/torch/a.cc",
        'std::getenv("RANK");\n',
        "1: environment variables are read in cli/ and worker/ only",
    ),
    (
        "src/trireme/graph/a.cc",
        "dynamic_cast<A*>(b);\n",
        "1: style.md rules this out: dynamic_cast, std::bind, goto, coroutines, <regex>",
    ),
    (
        "src/trireme/graph/a.cc",
        "#include <regex>\n",
        "1: style.md rules this out: dynamic_cast, std::bind, goto, coroutines, <regex>",
    ),
    (
        "src/trireme/base/a.h",
        HEADER + "using namespace std;\n",
        "3: a header has neither <iostream> nor `using namespace`",
    ),
    ("README.md", "a \u2192 b\n", "1: U+2192 is not ASCII"),
    ("docs/a.md", f"{MARK} write this\n", f"1: a {MARK} names its issue, as {MARK}(#12)"),
    ("scripts/a", "cd /ho" + "me/somebody/trireme\n", "1: the path of one machine"),
    (
        "python/trireme/plot.py",
        "import torch\n",
        "1: torch is imported at module level, but `import trireme` is without it",
    ),
]


@pytest.mark.parametrize(("path", "text", "message"), PLANTED)
def test_a_planted_violation_is_found(tree, path, text, message):
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text)
    assert lint(tree) == (1, [f"{path}:{message}", "lint: 1 errors, 0 warnings"])


def test_a_long_file_is_a_warning(tree):
    (tree / "src/trireme/base/a.cc").write_text("int a;\n" * 501)
    message = "src/trireme/base/a.cc:501: warning: 501 lines, 500 are normal; does it define one thing?"
    assert lint(tree) == (0, [message, "lint: 0 errors, 1 warnings"])


def test_the_python_package_stays_small(tree):
    for name in ("a", "b", "c", "d"):
        (tree / f"python/trireme/{name}.py").write_text("a = 1\n" * 471)
    message = "python/trireme:1885: 1885 lines in all, at most 1880"
    assert lint(tree) == (1, [message, "lint: 1 errors, 0 warnings"])


def test_a_row_of_the_table_names_rows_above_it(tree):
    table = tree / "tools" / "layers.txt"
    table.write_text(table.read_text().replace("graph:     base", "graph:     base plan"))
    code, lines = lint(tree)
    assert code == 1
    assert any(line.endswith("graph names plan, which is not a row above it") for line in lines)
