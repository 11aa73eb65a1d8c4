"""The page in a real browser: `make test-page`. Its numbers, words and pictures are those of the command line."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from napkin.cli import main
from napkin.cli.web_answer import answered
from tests.browser import FOLDER, Page, Texts, browser, served
from tests.conftest import ROOT

RUN: Texts = {"hardware": "h100", "gpus": "8"}
FSDP: Texts = {"model": "llama3-8b", **RUN, "zero": "3"}
SETS: tuple[tuple[str, Texts], ...] = (
    ("train-time", {"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "h100", "mfu": "0.5"}),
    ("train-time", {"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "h100"}),
    ("train-time", {"params": "7 B", "tokens": "2e12", "hardware": "a100", "within": "30d"}),
    ("train-time", {"model": "llama3-8b", "tokens": "1T", "gpus": "256", "hardware": "h200", "price": "2.5"}),
    ("train-time", {"params": "1.3B", "gpus": "64", "hardware": "b200", "within": "7d"}),
    ("train-time", {"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "mi300x", "mfu": "0.9"}),
    ("max-params", {**RUN}),
    ("max-params", {**RUN, "precision": "bf16-pure"}),
    ("max-params", {"gpus": "64", "hardware": "a100-40gb", "optimizer": "adamw-8bit"}),
    ("max-params", {**RUN, "like": "llama3", "zero": "3"}),
    ("memory", FSDP),
    ("memory", {**FSDP, "seq": "8Ki"}),
    ("memory", {**FSDP, "seq": "32768", "recompute": "full"}),
    ("memory", {"model": "llama3-70b", "hardware": "h100", "gpus": "64", "tp": "8", "pp": "4", "zero": "1"}),
    ("memory", {"model": "llama3-8b", "hardware": "rtx4090", "lora-rank": "16", "quantized": "nf4", "seq": "2048"}),
    ("memory", {"model": "mixtral-8x7b", "hardware": "h200", "gpus": "16", "ep": "8", "zero": "1"}),
    ("memory", {"model": "gpt2", "hardware": "a100-40gb", "micro-batch": "8", "seq": "1024", "precision": "amp-bf16"}),
    ("memory", {**FSDP, "max": "micro-batch"}),
    ("memory", {"model": "7B", "hardware": "h100", "inference": True}),
    ("step", FSDP),
    ("step", {**FSDP, "micro-batch": "2", "recompute": "selective"}),
    ("step", {"model": "llama3-70b", "hardware": "h100", "gpus": "128", "tp": "8", "pp": "4", "global-batch": "64"}),
    ("step", {"model": "deepseek-v3", "hardware": "h800", "gpus": "2048", "pp": "16", "ep": "64", "zero": "1"}),
    ("mfu", {"model": "llama3-8b", "tokens-per-second": "64000", **RUN}),
    ("mfu", {"model": "llama3-8b", "tokens-per-second": "98k", **RUN, "seq": "8192"}),
    ("mfu", {"params": "7B", "tokens-per-second-per-gpu": "3500", "hardware": "a100", "gpus": "8"}),
    ("params", {"model": "llama3-8b"}),
    ("params", {"model": "deepseek-v3"}),
    ("flops", {"model": "llama3-70b", "seq": "8192"}),
    ("flops", {"model": "mixtral-8x7b", "batch": "4"}),
)
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
    "num_attention_heads": 8, "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """The page, opened once; Python stays loaded from test to test."""
    with served() as address, browser() as driver:
        opened = Page(driver, address)
        opened.open()
        yield opened


def close(here: Any, there: Any) -> bool:
    """Whether two parsed answers are the same; numbers to the last digits, in which libraries of exp and log differ."""
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(close(here[name], there[name]) for name in here)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(close, here, there))
    if isinstance(here, float) or isinstance(there, float):
        return bool(here == pytest.approx(there, rel=1e-12))
    return bool(here == there)


def words(command: str, texts: Texts) -> list[str]:
    """Return the command line of a question."""
    model = [str(texts["model"])] if "model" in texts else []
    options = [f"--{name}" if text is True else f"--{name}={text}" for name, text in texts.items() if name != "model"]
    return [command, *model, *options]


def shell(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str, str]:
    """Return status, output and errors of a command line."""
    status = main(list(line))
    out, err = capsys.readouterr()
    return status, out, err


def shown(page: Page) -> list[str]:
    """Return the errors and hints of the page as a shell prints them."""
    script = "return [...document.querySelectorAll('#errors p')].map((one) => one.textContent)"
    found: list[str] = page.run(script)
    return found


def test_the_lectures_answers_are_there_before_anything_is_loaded() -> None:
    html = pathlib.Path(FOLDER, "index.html").read_text(encoding="utf-8")
    assert "<b>143.9 days</b>" in html
    assert "<b>40.00 B parameters</b>" in html
    assert "<!--" not in html


@pytest.mark.parametrize(("command", "texts"), SETS, ids=lambda one: one if isinstance(one, str) else "")
def test_every_number_is_that_of_the_command_line(
    page: Page, capsys: pytest.CaptureFixture[str], command: str, texts: Texts
) -> None:
    status, out, err = shell(capsys, *words(command, texts), "--json")
    page.ask(command, texts)
    assert close(page.json(), json.loads(out)), page.text("#answer")
    expected: Any = answered(command, texts)
    screen = expected["screen"]
    assert page.text("#live .headline").split() == " ".join(part["text"] for part in screen["headline"]).split()
    tables = [table for table in (screen["table"], screen["more"]) if table]
    rows = [[cell for cell in row if cell and isinstance(cell, str)] for table in tables for row in table["rows"]]
    assert [[cell for cell in row if cell] for row in page.cells()] == rows
    assert shown(page) == err.splitlines()


def test_errors_are_the_shells_and_next_to_their_fields(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.open("memory", FSDP)
    page.type("gpus", "8x")
    page.type("hardware", "h1000")
    _, _, err = shell(capsys, "memory", "llama3-8b", "--gpus=8x", "--hardware=h1000", "--zero=3")
    assert shown(page) == err.splitlines()
    assert page.text("#wrong-gpus").startswith("--gpus: '8x'")
    assert page.find("#field-gpus").get_attribute("aria-invalid") == "true"
    assert page.find("#field-zero").get_attribute("aria-invalid") is None
    page.type("gpus", "16")
    page.type("hardware", "h100")
    assert shown(page) == []
    assert "16 × H100" in page.text("#live .asked")


def test_a_dropped_config_is_answered_as_in_its_folder(
    page: Page, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    _, out, _ = shell(capsys, "memory", "./config.json", "--hardware=h100", "--gpus=8", "--zero=3", "--json")
    page.open("memory", FSDP)
    page.drop("config.json", json.dumps(LLAMA))
    assert close(page.json(), json.loads(out))
    assert "config.json" not in page.run("return location.hash")
    assert "stays on this machine" in page.text(".file")


@pytest.mark.parametrize(
    "config", [HOSTILE, json.dumps({**LLAMA, "model_type": HOSTILE}), json.dumps({**LLAMA, HOSTILE: 1}), "[" * 300]
)
def test_a_hostile_config_is_refused_in_the_same_words_and_executes_nothing(
    page: Page,
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
) -> None:
    (tmp_path / "config.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    status, _, err = shell(capsys, "params", "./config.json")
    page.open("params", {"model": "gpt2"})
    page.drop("config.json", config)
    assert status in (2, 3) or HOSTILE not in config
    assert shown(page) == err.splitlines()
    assert page.run("return window.hacked === undefined && !document.querySelector('img, body script')")


def test_nothing_is_loaded_from_or_sent_to_another_host(page: Page) -> None:
    page.open("memory", FSDP)
    loaded = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert all(name.startswith((page.address, f"blob:{page.address}")) for name in loaded)
    script = """const [other, done] = arguments, sent = `fetch('${other}', {mode: 'no-cors'})`;
        const inside = new Blob([`${sent}.then(() => postMessage('sent'), () => postMessage('blocked'))`]);
        const seen = [];
        document.addEventListener('securitypolicyviolation', (one) => seen.push(one.effectiveDirective));
        new Worker(URL.createObjectURL(inside)).onmessage = ({data}) => fetch(other, {mode: 'no-cors'})
            .then(() => done(['sent']), () => setTimeout(() => done([data, ...seen]), 50));"""
    with served() as other:  # it would answer
        assert page.driver.execute_async_script(script, other) == ["blocked", "connect-src"]


def test_a_slider_is_moved_from_the_keyboard(page: Page) -> None:
    page.open("memory", FSDP)
    slider = page.find("#field-seq").find_element("xpath", "../../input[@type='range']")
    before = page.find("#field-seq").get_property("value")
    page.run("delete document.documentElement.dataset.shown")
    slider.send_keys(Keys.ARROW_RIGHT)
    page.wait()
    assert page.find("#field-seq").get_property("value") == "8192" != before
    assert slider.get_attribute("aria-valuetext") == "8192"
    assert "8,192 tokens" in page.text("#live .asked")


def test_a_link_reproduces_the_page(page: Page) -> None:
    page.open("step", {**FSDP, "micro-batch": "2"})
    page.type("seq", "2048")
    answer, link = page.text("#live .headline"), page.run("return location.href")
    page.driver.get("about:blank")
    page.driver.get(link)
    page.wait()
    assert page.text("#live .headline") == answer
    assert page.find("#field-seq").get_property("value") == "2048"


def test_an_answer_is_kept_to_compare(page: Page) -> None:
    page.open("memory", FSDP)
    answer = page.text("#live .headline")
    page.run("[...document.querySelectorAll('.tool')].find((one) => one.textContent === 'Keep to compare').click()")
    page.type("seq", "16384")
    assert page.text("#kept .headline") == answer != page.text("#live .headline")
    page.run("delete document.documentElement.dataset.shown; document.querySelector('.kept button').click()")
    page.wait()
    assert page.text("#live .headline") == answer


def test_a_remedy_is_applied(page: Page) -> None:
    page.open("memory", {**FSDP, "seq": "8192"})
    change = page.run("return document.querySelector('.more th[scope=row]').textContent")
    page.run("delete document.documentElement.dataset.shown; document.querySelector('.more button').click()")
    page.wait()
    assert change in page.text("#command")
    assert "FITS" in page.text("#live .headline")


def test_explain_opens_down_to_the_leaves(page: Page) -> None:
    page.open("max-params", {**RUN})
    page.run("delete document.documentElement.dataset.shown; document.querySelector('.explain summary').click()")
    page.wait()
    script = """for (let i = 0; i < 6; i++)
        document.querySelectorAll('.explain details:not([open])').forEach((one) => { one.open = true; });
        return new Promise((done) => setTimeout(() => done(document.querySelector('.explain').textContent), 200))"""
    for _ in range(4):
        told = page.run(script)
    for words in ("params/max = 40.00 B parameters", "⌊exact⌋", "NVIDIA H100 datasheet", "gpus = 8 GPUs", "given"):
        assert words in told


AXE = os.path.join(ROOT, "page", "node_modules", "axe-core", "axe.min.js")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_axe_finds_no_error(page: Page, scheme: str, width: int) -> None:
    axe = pathlib.Path(AXE).read_text(encoding="utf-8")
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        asked: tuple[tuple[str, Texts], ...] = (("memory", {**FSDP, "seq": "8192"}), ("train-time", {"params": "7Q"}))
        for command, texts in (*asked, ("step", FSDP)):
            page.open(command, texts)
            page.run("document.querySelector('.explain summary')?.click()")
            page.wait()
            page.run(axe + "; window.axe = axe")
            found = page.driver.execute_async_script(
                "const done = arguments[0]; axe.run().then((all) => done(all.violations))"
            )
            assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
            assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_page_works_offline_after_the_first_visit(page: Page) -> None:
    page.open("max-params", {**RUN})
    page.driver.execute_async_script("navigator.serviceWorker.ready.then(() => arguments[0]())")
    page.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        page.driver.refresh()
        page.wait()
        assert "40.00 B parameters" in page.text("#live .headline")
    finally:
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
