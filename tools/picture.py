"""Draw docs/images/packages.svg: the packages from top to bottom in the order that tests/test_packages.py asserts.

python tools/picture.py    a package is added to ORDER there and, with what it is for, to ABOUT here
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "packages.svg"
ABOUT = {
    "__main__": "starts the command line",
    "__init__": "the version; imports what Python asks for",
    "cli": "argv, help, completion, exit statuses",
    "integrations": "a meter for training loops, callbacks of libraries",
    "api": "what `import napkin` offers",
    "commands": "one question each: options in, answer out",
    "bench": "measures this machine; the only user of torch",
    "evidence": "published measurements, calibration, intervals",
    "rules": "rules of lint about configurations, each with its price",
    "planning": "layout search, what fits, remedies",
    "render": "an answer as text, JSON, CSV, Markdown, plot",
    "footprint": "memory of a step: states, saved tensors, peak",
    "timing": "time of a run and of a step, communication, roofline",
    "counting": "parameters, FLOPs, conventions, MFU",
    "training": "layout, precision, optimizers, recomputation, frameworks",
    "architectures": "one record for each model_type, one file for each family",
    "operations": "kinds of operation: weights, matmuls, tape rules",
    "autograd": "a symbolic tape: what is kept for backward, how long",
    "inputs": "config.json, hardware, profiles, logs, snapshots",
    "options": "every option, declared once",
    "formats": "number formats: bits, range, rounding",
    "term": "the answer as a tree of terms",
    "errors": "a fact, a hint, an exit status",
    "units": "quantities as people write and read them, and the algebra of units",
    "record": "frozen records that cost nothing to declare",
    "elementwise": "arithmetic on numbers or arrays",
    "_tables": "generated: hardware, presets, evidence",
}
WIDTH, ROW, GAP, MARGIN = 860, 46, 12, 16
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#1f2328}.name{font-size:14px;font-weight:600}"
    ".about{font-size:11px;fill:#57606a}rect{fill:#f6f8fa;stroke:#8c959f}path{stroke:#8c959f;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.about{fill:#9198a1}rect{fill:#161b22}}"
)


def order() -> list[tuple[str, ...]]:
    """Return the lines of packages from the bottom to the top, as the test states them."""
    tree = ast.parse((ROOT / "tests" / "test_packages.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "ORDER":
            lines: list[tuple[str, ...]] = list(ast.literal_eval(node.value))
            return lines
    raise LookupError("tests/test_packages.py has no ORDER")


def wrapped(text: str, width: float) -> list[str]:
    """Return the words in lines of about 6.1 pixels a letter."""
    lines: list[str] = [""]
    for word in text.split():
        if len(f"{lines[-1]} {word}") * 6.1 > width - 12 and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def drawn() -> str:
    """Return the picture."""
    body: list[str] = []
    top = MARGIN
    for line in reversed(order()):
        width = (WIDTH - 2 * MARGIN - GAP * (len(line) - 1)) / len(line)
        texts = [wrapped(ABOUT[name], width) for name in line]
        height = ROW + 14 * (max(map(len, texts)) - 1)
        for at, (name, about) in enumerate(zip(line, texts, strict=True)):
            left = MARGIN + at * (width + GAP)
            middle = left + width / 2
            body.append(f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{height}" rx="5"/>')
            body.append(f'<text class="name" x="{middle:g}" y="{top + 19}" text-anchor="middle">{escape(name)}</text>')
            for row, text in enumerate(about):
                y = top + 36 + 14 * row
                body.append(f'<text class="about" x="{middle:g}" y="{y}" text-anchor="middle">{escape(text)}</text>')
        top += height + GAP
    height = top - GAP + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    title = "<title>Packages of napkin: each imports from lines below its own only</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *body, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the picture."""
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
