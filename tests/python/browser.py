"""A headless Chromium that a test drives through chromedriver's HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import processes

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,1000",
]


class Browser:
    """Opens pages of files; ends with the `with` block."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = processes.free_port()

    def __enter__(self) -> Browser:
        driver = shutil.which("chromedriver")
        assert driver, "chromedriver is missing: scripts/setup installs it"
        self.process = subprocess.Popen(
            [driver, f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.session = ""
        try:
            processes.wait_until(self.is_ready, "start of chromedriver")
            options = {"args": [*FLAGS, f"--user-data-dir={self.folder / 'browser'}"]}
            capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self.session = f"/session/{made['sessionId']}"
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait()

    def is_ready(self) -> bool:
        try:
            return bool(self.call("GET", "/status")["ready"])
        except OSError:
            return False

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path) -> None:
        self.call("POST", f"{self.session}/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": []})

    def point_at(self, x: float, y: float) -> None:
        move = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
        self.call("POST", f"{self.session}/actions", {"actions": [mouse]})

    def turn_wheel(self, x: float, y: float, delta: int) -> None:
        turn = {"type": "scroll", "x": round(x), "y": round(y), "deltaX": 0, "deltaY": delta}
        wheel = {"type": "wheel", "id": "wheel", "actions": [turn]}
        self.call("POST", f"{self.session}/actions", {"actions": [wheel]})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.call("POST", f"{self.session}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("GET", f"{self.session}/screenshot")))
