"""Headless Chromium for tests, driven by the DevTools protocol over a pipe. Needs no package."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = 60.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which needs rights that containers do not have; the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser. Close it when done."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._folder = tempfile.mkdtemp(prefix="nnhal-chromium-")
        # the browser reads commands from descriptor 3, and writes to descriptor 4
        low_read, self._write = os.pipe()
        self._read, low_write = os.pipe()
        read, write = (fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10) for low in (low_read, low_write))
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={self._folder}", "about:blank"]
        script = f'exec "$@" 3<&{read} 4>&{write} {read}<&- {write}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for descriptor in (low_read, low_write, read, write):
            os.close(descriptor)
        self._changed = threading.Condition()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._listeners: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        self._number = 0
        self._is_open = True
        self._reader = threading.Thread(target=self._receive, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, type_: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._write)  # the browser ends when nothing can command it
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._reader.join()
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def page(self) -> "Page":
        """Return a new page, with storage of its own."""
        context = self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        self._listeners[session] = page.note
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.command(f"{domain}.enable")
        return page

    def command(self, method: str, session: str = "", **parameters: Any) -> Mapping[str, Any]:
        with self._changed:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers or not self._is_open, TIMEOUT_S), method
            assert number in self._answers, f"the browser has ended during {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: Mapping[str, Any] = answer["result"]
        return result

    def _receive(self) -> None:
        data = b""
        while chunk := os.read(self._read, 1 << 16):
            *messages, data = (data + chunk).split(b"\0")
            for text in messages:
                message = json.loads(text)
                with self._changed:
                    if "id" in message:
                        self._answers[message["id"]] = message
                        self._changed.notify_all()
                if "id" not in message and (listener := self._listeners.get(message.get("sessionId", ""))):
                    listener(message)
        with self._changed:
            self._is_open = False
            self._changed.notify_all()


class Page:
    """A page.

    Attributes:
        problems: messages of its console with level warning or error, exceptions, and requests that failed.
    """

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self.problems: deque[str] = deque()
        self._browser = browser
        self._session = session
        self._context = context

    def command(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        return self._browser.command(method, self._session, **parameters)

    def close(self) -> None:
        self._browser.command("Target.disposeBrowserContext", browserContextId=self._context)

    def note(self, message: Mapping[str, Any]) -> None:
        parameters = message["params"]
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.problems.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Let the system prefer a color scheme: "light" or "dark"."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript; that of the promise, if it is one."""
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            if self.evaluate(f"Boolean({expression})"):
                return
            time.sleep(0.02)
        raise AssertionError(f"not within {TIMEOUT_S:g} s: {expression}\n{self.evaluate('document.body.innerText')}")

    def press(self, *keys: str) -> None:
        """Press keys, such as "Tab", "Enter" or "a"."""
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
            code = _KEYS.get(key, ord(key[0].upper()))
            event = {"key": key, "windowsVirtualKeyCode": code}
            self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Insert a text at the focus."""
        self.command("Input.insertText", text=text)

    def screenshot(self, file: Path) -> None:
        """Save a picture of the whole page."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        answer = self.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def texts(self, selector: str) -> Sequence[str]:
        """Return the texts of the elements that a selector finds."""
        texts: list[str] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((element) => element.innerText.trim())"
        )
        return texts
