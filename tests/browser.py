"""The page of tools/page.py in Debian's headless Chromium, for its tests and benchmarks."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.conftest import ROOT

FOLDER = os.path.join(ROOT, "site", "page")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 300.0
"""Seconds to wait for an answer: a busy machine takes long to start Python."""
Texts = dict[str, str | bool]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: str = FOLDER) -> Iterator[str]:
    """Serve a folder on this machine; gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def browser(width: int = 1280, height: int = 1000) -> Iterator[webdriver.Chrome]:
    """Start a browser with nothing remembered."""
    if CHROMIUM is None or DRIVER is None:
        raise FileNotFoundError("chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The page in a browser, as its reader uses it."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def run(self, script: str, *words: Any) -> Any:
        """Return what a script in the page returns."""
        return self.driver.execute_script(script, *words)

    def find(self, selector: str) -> WebElement:
        """Return the first element of a selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def open(self, command: str = "", texts: Texts | None = None) -> None:
        """Open the page with a question in its address, and wait for the answer."""
        words = {name: "yes" if text is True else text for name, text in (texts or {}).items()}
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{command}{'?' + urlencode(words) if words else ''}")
        self.wait()

    def ask(self, command: str, texts: Texts) -> None:
        """Ask another question by the address, in the page that is open."""
        words = {name: "yes" if text is True else text for name, text in texts.items()}
        self.run(
            "location.hash = ''; delete document.documentElement.dataset.shown; location.hash = arguments[0]",
            f"{command}?{urlencode(words)}",
        )
        self.wait()

    def wait(self) -> None:
        """Wait until the last question is answered in full."""
        done = "const s = document.documentElement.dataset.shown; return !!s && (s.endsWith('-advice'))"
        WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: self.run(done))

    def json(self) -> dict[str, Any]:
        """Return what `Download JSON` gives."""
        script = """
            const done = arguments[0], made = URL.createObjectURL;
            URL.createObjectURL = (blob) => (blob.text().then(done), made.call(URL, blob));
            [...document.querySelectorAll('.tool')].find((one) => one.textContent === 'Download JSON').click();
            URL.createObjectURL = made;"""
        found: dict[str, Any] = json.loads(self.driver.execute_async_script(script))
        return found

    def cells(self) -> list[list[str]]:
        """Return the texts of the tables of the answer, a row each."""
        script = """return [...document.querySelectorAll('#live tbody tr')].map((row) =>
            [...row.children].filter((cell) => !cell.querySelector('svg, button')).map((cell) => cell.textContent))"""
        found: list[list[str]] = self.run(script)
        return found

    def text(self, selector: str) -> str:
        """Return the text of an element as it is written."""
        found = self.find(selector).get_property("textContent")
        return " ".join(str(found).split())

    def type(self, name: str, text: str) -> None:
        """Type a text into a field in place of what it holds."""
        script = """const [field, text] = arguments; delete document.documentElement.dataset.shown;
            field.value = text; field.dispatchEvent(new Event('input', {bubbles: true}))"""
        self.run(script, self.find(f"#field-{name}"), text)
        self.wait()

    def drop(self, name: str, text: str) -> None:
        """Drop a file on the page."""
        script = """const [name, text] = arguments; delete document.documentElement.dataset.shown;
            const held = new DataTransfer(); held.items.add(new File([text], name));
            document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: held, bubbles: true, cancelable: true}))"""
        self.run(script, name, text)
        self.wait()
