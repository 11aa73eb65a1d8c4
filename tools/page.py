"""Build the page that asks napkin in a browser: python tools/page.py FOLDER.

The sources are in page/; Pyodide comes from the npm package that page/package-lock.json pins. The folder is static and
complete: the installed package as an archive for Pyodide's Python, the form as the option registry declares it, and an
index.html that holds the lecture's two answers before anything else is loaded.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from html import escape
from pathlib import Path
from typing import Any

import napkin
from napkin.cli.web_answer import answered
from napkin.cli.web_form import QUESTIONS, form

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "page"
PACKAGES = SOURCES / "node_modules"
WRITTEN = (
    "app.js",
    "dom.js",
    "draw.js",
    "form.js",
    "tree.js",
    "worker.js",
    "service-worker.js",
    "style.css",
    "icon.svg",
)
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LOADED = ("pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
"""What Python's start fetches and the progress counts, next to the archive of napkin."""
LEFT_OUT = (
    "napkin/bench/",
    "napkin/_tables/published_steps.py",
    "napkin/_tables/published_memory.py",
    "napkin/cli/help.py",
)
"""Parts of the package that no question of the page loads: the measuring of machines, tables of `validate`, help."""
LECTURE = ("train-time", "max-params")


def fetch_packages() -> None:
    """Install what page/package-lock.json pins, if it is not there."""
    wanted = json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))["dependencies"]["pyodide"]
    have = PACKAGES / "pyodide" / "package.json"
    if have.exists() and json.loads(have.read_text(encoding="utf-8"))["version"] == wanted:
        return
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=SOURCES, check=True)


def archive(path: Path) -> None:
    """Write the installed package as one archive of modules, compiled for Pyodide's Python."""
    package = Path(napkin.__file__).parent
    sources = path.with_suffix(".sources")
    with zipfile.ZipFile(sources, "w") as packed:
        for module in sorted(package.rglob("*.py")):
            inside = module.relative_to(package.parent).as_posix()
            if not inside.startswith(LEFT_OUT):
                packed.writestr(zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0)), module.read_bytes())
    subprocess.run(["node", "compile.mjs", sources.resolve(), path.resolve()], cwd=SOURCES, check=True)
    sources.unlink()


def _rows(table: dict[str, Any] | None) -> str:
    """Return the rows of a table of quantities; the lecture's have no bars."""
    if table is None:
        return ""
    rows = []
    for first, *rest in table["rows"]:
        cells = "".join(
            f'<td class="{"remark" if column["remark"] else "right"}">{escape(cell)}</td>'
            for cell, column in zip(rest, table["columns"][1:], strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def lecture() -> str:
    """Return the lecture's two answers as HTML."""
    cards = []
    for question in QUESTIONS:
        if question.command in LECTURE:
            found: dict[str, Any] = answered(question.command, question.start)
            screen = found["screen"]
            first, *rest = (escape(part["text"]) for part in screen["headline"])
            line = " ".join(f"<span>{part}</span>" for part in rest)
            cards.append(
                f'<article class="card"><p class="asked">{escape(screen["question"])}</p>'
                f'<p class="headline"><b>{first}</b> {line}</p>{_rows(screen["table"])}'
                f'<p class="assumed">assumed: {escape(", ".join(screen["assumed"]))}</p>'
                f'<pre class="line">{escape(" ".join(found["line"]))}</pre></article>'
            )
    return "\n".join(cards)


def build(folder: Path) -> None:
    """Write the page into a folder."""
    fetch_packages()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyodide").mkdir(parents=True)
    for name in WRITTEN:
        shutil.copy(SOURCES / name, folder / name)
    for name in PYODIDE:
        shutil.copy(PACKAGES / "pyodide" / name, folder / "pyodide" / name)
    page = (SOURCES / "index.html").read_text(encoding="utf-8")
    page = page.replace("<!--lecture-->", lecture()).replace("<!--version-->", napkin.__version__)
    (folder / "index.html").write_text(page, encoding="utf-8")
    (folder / "form.json").write_text(json.dumps(form(), ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    archive(folder / "napkin.zip")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    contents = hashlib.sha256(b"".join((folder / name).read_bytes() for name in files)).hexdigest()[:16]
    loaded = [folder / "pyodide" / name for name in LOADED] + [folder / "napkin.zip"]
    built = {
        "digest": contents,
        "archive": "napkin.zip",
        "bytes": sum(path.stat().st_size for path in loaded),
        "files": ["./", *files, "built.json"],
    }
    (folder / "built.json").write_text(json.dumps(built), encoding="utf-8")


def can_build() -> bool:
    """Return whether Pyodide is here or can be fetched."""
    return shutil.which("npm") is not None or (PACKAGES / "pyodide").exists()


def main(words: list[str]) -> int:
    """Build the page; return the exit status."""
    folder = Path(words[0]) if words else ROOT / "site" / "page"
    if not can_build():
        print("error: no npm to fetch Pyodide with; hint: install Node.js 20 or newer", file=sys.stderr)
        return 5
    build(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB; python -m http.server -d {folder} shows it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
