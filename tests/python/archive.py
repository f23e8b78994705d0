"""Reads the JSON of a torch.export archive, without torch and without Trireme."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any


class Archive:
    def __init__(self, path: str | Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as file:
            self.records = [n.partition("/")[2] for n in file.namelist()]
            root = file.namelist()[0].partition("/")[0]

            def load(record: str) -> Any:
                return json.loads(file.read(f"{root}/{record}"))

            self.program = load(next(r for r in self.records if r.startswith("models/")))["graph_module"]
            self.weights = load(next(r for r in self.records if r.endswith("_weights_config.json")))["config"]
            self.constants = load(next(r for r in self.records if r.endswith("_constants_config.json")))["config"]
            self.manifest = load("extra/trireme.json") if "extra/trireme.json" in self.records else None

    def bytes_of(self, entry: dict[str, Any]) -> bytes:
        """The storage of an entry of `weights` or `constants`."""
        with zipfile.ZipFile(self.path) as file:
            return file.read(next(n for n in file.namelist() if n.endswith(f"/{entry['path_name']}")))

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return self.program["graph"]["nodes"]

    @property
    def operators(self) -> list[str]:
        return [n["target"].removeprefix("torch.ops.aten.") for n in self.nodes]

    @property
    def inputs(self) -> list[str]:
        """The names of the user's inputs, in order."""
        specs = self.program["signature"]["input_specs"]
        return [s["user_input"]["arg"]["as_tensor"]["name"] for s in specs if "user_input" in s]

    @property
    def targets(self) -> list[str]:
        """The user's names of parameters and buffers in the signature."""
        specs = [next(iter(s.values())) for s in self.program["signature"]["input_specs"]]
        return [s[k] for s in specs for k in ("parameter_name", "buffer_name") if k in s]

    @property
    def module_names(self) -> set[str]:
        stacks = [n["metadata"].get("nn_module_stack", "") for n in self.nodes]
        names = {entry.split(",")[1] for stack in stacks for entry in stack.split(";") if entry}
        return {n for n in names if not n.startswith("_empty")}

    def size(self, name: str) -> list[int | None]:
        """The dims of a value, None where symbolic."""
        return [d.get("as_int") for d in self.program["graph"]["tensor_values"][name]["sizes"]]
