"""A headless Chromium, spoken to through a pipe (the DevTools protocol): nothing but the standard library is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """Where a Chromium is; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `errors` gathers what the console complains of and what the script throws."""

    def __init__(self, folder: Path):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        os.set_inheritable(theirs_in, True)
        os.set_inheritable(theirs_out, True)
        command = [
            found(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip

        def pipes() -> None:
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self._process = subprocess.Popen(
            command, close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._write = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self._number, self._buffer, self._session = 0, b"", ""
        self.errors: list[str] = []
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            told = self._next()
            if told.get("id") == self._number:
                if "error" in told:
                    raise AssertionError(f"{method}: {told['error']}")
                return told["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = self._read.read1(1 << 16)
            if not more:
                raise AssertionError("the browser has gone")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        told = json.loads(message)
        method, params = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self._events.append(params)
        elif method == "Page.loadEventFired":
            self._loaded = True
        return told

    def open(self, path: Path, width: int, height: int, dark: bool = False) -> list[str]:
        """Show a page; the addresses that it asked for."""
        self._events, self._loaded = [], False
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._ask("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()
        return [one["request"]["url"] for one in self._events]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        told = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(told["exceptionDetails"])
        return told["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key."""
        text = {"text": name} if len(name) == 1 else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=name)

    def mouse(self, kind: str, x: float, y: float, down: bool = False) -> None:
        """Move ("mouseMoved"), press ("mousePressed") or let go ("mouseReleased")."""
        button = "left" if down or kind != "mouseMoved" else "none"
        self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(down), clickCount=1)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the page."""
        told = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=20)
        self._read.close()
        self._write.close()
