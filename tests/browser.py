"""Headless Chromium for tests, installed from Debian if it is missing, and the errors of its pages."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
READY_MS = 120_000  # most time for a page to become ready


def find_chromium() -> str | None:
    """Return the path of the browser; install the browser first if it is missing and this process is root."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for arguments in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *arguments], capture_output=True, timeout=300, check=False)
        path = shutil.which("chromium")
    return path


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start Chromium without a window. Skip the test if there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium here, and it cannot be installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Player:
    """A page of the player in a browser. ``problems`` are console messages, errors and requests to other hosts."""

    def __init__(self, browser: Browser, path: Path, hash_: str = "#still=1", **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(error.message))
        self.page.on("request", self._note_request)
        self.page.goto(f"file://{path}{hash_}")
        self.page.locator('html[data-ready="1"]').wait_for(state="attached", timeout=READY_MS)

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "blob:", "data:")):
            self.problems.append(request.url)

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        if kind is None and self.problems:
            pytest.fail(f"the page says: {self.problems}")

    def ask(self, expression: str, argument: object = None) -> Any:
        """Return the value of a JavaScript expression, or of a function of one argument, in the page."""
        return self.page.evaluate(expression, argument)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.draw()

    def draw(self) -> None:
        self.ask("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    @property
    def x(self) -> float:
        return float(self.ask("player.view.x"))

    def text(self, element: str) -> str:
        return self.page.text_content(f"#{element}") or ""

    def pixels(self, canvas: str) -> bytes:
        return self.page.locator(f"#{canvas}").screenshot()

    def color_count(self, canvas: str, color: str) -> int:
        """Return the number of pixels of a canvas that have a color of the style, such as ``full``."""
        style = "name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()"
        wanted = ImageColor.getrgb(self.ask(style, color))
        pixels = np.asarray(Image.open(BytesIO(self.pixels(canvas))).convert("RGB")).astype(int)
        return int((abs(pixels - wanted).max(axis=2) < 3).sum())
