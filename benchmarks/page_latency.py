"""How long the page takes from a slider's move to the answer, next to the same question in a shell.

python benchmarks/page_latency.py [MOVES]    after `make page`; needs chromium, chromedriver and selenium

For each question a slider goes over its stops. The page: from the input event to the drawn answer, as the page itself
marks them (`performance.mark`); `advice` is the second message of `memory`, with what would make it fit. The shell: the
wall time of `napkin … --json`, process and all, in the same run on the same machine. Compare the ratio and not the
seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.browser import Page, Texts, browser, served

FSDP: Texts = {"model": "llama3-8b", "hardware": "h100", "gpus": "8", "zero": "3"}
QUESTIONS: tuple[tuple[str, Texts, str], ...] = (
    ("train-time", {"params": "70B", "tokens": "15T", "gpus": "1024", "hardware": "h100"}, "params"),
    ("max-params", {"gpus": "8", "hardware": "h100"}, "gpus"),
    ("memory", FSDP, "seq"),
    ("step", FSDP, "seq"),
    ("mfu", {"model": "llama3-8b", "tokens-per-second": "64000", "gpus": "8", "hardware": "h100"}, "tokens-per-second"),
    ("flops", {"model": "llama3-8b"}, "seq"),
)
TOOK = """
const [name, done] = arguments;
const slider = document.querySelector(`#field-${name}`).closest('.field').querySelector('[type=range]');
slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
delete document.documentElement.dataset.shown;
performance.clearMarks();
slider.dispatchEvent(new Event('input', {bubbles: true}));
const look = () => {
  if (!(document.documentElement.dataset.shown || '').endsWith('-advice')) return setTimeout(look, 5);
  const marks = performance.getEntriesByType('mark').map((one) => one.startTime);
  done(marks.slice(1).map((at) => at - marks[0]));
};
look();
"""


def in_shell(command: str, texts: Texts, times: int) -> float:
    """Return the median seconds of the question in a shell."""
    model = [str(texts["model"])] if "model" in texts else []
    options = [f"--{name}={text}" for name, text in texts.items() if name != "model"]
    line = [sys.executable, "-m", "napkin", command, *model, *options, "--json"]
    took = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(line, check=True, capture_output=True)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share lies."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main(moves: int) -> None:
    """Print a line for each question."""
    print(f"{moves} moves; milliseconds           median   p95  advice p95   shell   page/shell")
    with served() as address, browser() as driver:
        page = Page(driver, address)
        page.open()
        for command, texts, slider in QUESTIONS:
            page.open(command, texts)
            driver.execute_async_script(TOOK, slider)  # what a first move loads
            marks = [driver.execute_async_script(TOOK, slider) for _ in range(moves)]
            first, last = [one[0] for one in marks], [one[-1] for one in marks]
            shell = 1000 * in_shell(command, texts, 5)
            advice = f"{percentile(last, 0.95):10.0f}" if command == "memory" else " " * 10
            middle = statistics.median(first)
            high = percentile(first, 0.95)
            print(
                f"{command:10} over {slider:18} {middle:6.0f} {high:5.0f}  {advice} {shell:7.0f} {middle / shell:11.2f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
