"""Build the documentation site in site/.

python tools/site.py stages docs/, CHANGELOG.md, CONTRIBUTING.md and the reference (site_reference.py) in .site/. A link
to a file of the repository becomes a page that shows the file. The generator builds that strictly (mkdocs.yml). Then
every link of what was built is followed, and a page that would load anything from another host is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from site_reference import pages  # noqa: E402

from page import build as build_page  # noqa: E402
from page import can_build as can_build_page  # noqa: E402

STAGED = ROOT / ".site"
BUILT = ROOT / "site"
MOVED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages of the repository's root by their name in the site."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh", ".cff": "yaml"}
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
CSS = """
.md-typeset table:not([class]) { font-size: .66rem; }
.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset table:not([class]) :is(th, td) { padding: .45em .8em; }
.md-typeset pre > code { font-size: .66rem; line-height: 1.35; }
.md-typeset .highlight :is(.m, .mi, .mf, .l, .s, .kc, .nb) { color: inherit; }
.md-typeset td code { word-break: normal; overflow-wrap: anywhere; }
@media (min-width: 60em) { .md-typeset :is(p, li) code { white-space: nowrap; } }
"""


def place(path: Path) -> str:
    """Return where a file or folder of the repository is in the site: a page's name, or an asset's."""
    inside = path.relative_to(ROOT).as_posix()
    if inside in MOVED:
        return MOVED[inside]
    if inside.startswith("docs/") and path.suffix in (".md", ".svg", ".png", ".json"):
        return inside.removeprefix("docs/")
    return f"source/{inside}.md"


def shown(path: Path) -> str:
    """Return the page that shows a file, or lists a folder."""
    inside = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n# {inside}\n\n"
    if path.is_dir():
        names = sorted(one.name + "/" * one.is_dir() for one in path.iterdir() if one.name[0] not in "._")
        return head + "".join(f"- `{name}`\n" for name in names)
    fence = "`" * 8
    text = path.read_text(encoding="utf-8")
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def staged(text: str, source: Path, name: str, wanted: set[Path]) -> str:
    """Return a page's text with links to where things are in the site; `wanted` takes the files that it links to."""

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[2]).resolve()
        if not target.exists() or ROOT not in target.parents:
            raise LookupError(f"{source}: no such file: {link[2]}")
        to = place(target)
        if to.startswith("source/"):
            wanted.add(target)
        return link[1] + os.path.relpath(to, os.path.dirname(name) or ".") + link[3]

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


ASK = """
[**Ask here, in your browser**](page/index.html): the same Python, nothing to install, nothing uploaded.
"""
"""What two pages say below their first paragraph if the site has the page that answers."""


def stage() -> None:
    """Write everything that the generator reads, and the page that answers where npm is here."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGED, ignore=shutil.ignore_patterns("*.md", "examples"))
    (STAGED / "site.css").write_text(CSS, encoding="utf-8")
    wanted: set[Path] = set()
    for source in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"):
        name = place(source)
        (STAGED / name).write_text(staged(source.read_text(encoding="utf-8"), source, name, wanted), encoding="utf-8")
    if can_build_page():
        build_page(STAGED / "page")
        for name in ("index.md", "browser.md"):
            head, end, rest = (STAGED / name).read_text(encoding="utf-8").partition("\n\n")
            first, _, rest = rest.partition("\n\n")
            (STAGED / name).write_text(f"{head}{end}{first}\n{ASK}\n{rest}", encoding="utf-8")
    else:
        print("SKIPPED: the site is without the page that answers in a browser: no npm here to fetch Pyodide with")
    written = {f"reference/{name}": text for name, text in pages().items()}
    written |= {place(path): shown(path) for path in wanted}
    for name, text in written.items():
        (STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        (STAGED / name).write_text(text, encoding="utf-8")


class Page(HTMLParser):
    """A built page: its anchors, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        found = {name: value or "" for name, value in attrs}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found.get("href", ""))


def target_of(page: Path, url: str, built: Path) -> Path:
    """Return the file that a link of a built page leads to."""
    path = unquote(urlsplit(url).path)
    to = (built / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
    return (to / "index.html" if to.is_dir() else to).resolve()


def problems(built: Path) -> list[str]:
    """Return links of the built site that lead nowhere, and what a page would load from another host."""
    parsed = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(built.rglob("*.html"))}
    found = []
    for path, page in parsed.items():
        for url in (*page.links, *page.loads):
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") or parts.netloc:
                if url in page.loads:
                    found.append(f"{path.relative_to(built.resolve())}: loads {url}")
                continue
            if parts.scheme:  # mailto:, data:
                continue
            to = target_of(path, url, built)
            inside = parsed.get(to)
            if not to.exists():
                found.append(f"{path.relative_to(built.resolve())}: no such page: {url}")
            elif inside is not None and parts.fragment and unquote(parts.fragment) not in inside.anchors:
                found.append(f"{path.relative_to(built.resolve())}: no such heading: {url}")
    found += [
        f"{path.relative_to(built)}: loads {url}"
        for path in sorted(built.rglob("*.css"))
        for url in re.findall(r"(?:@import|url\()\s*[\"']?(https?://[^\"')\s]+)", path.read_text(encoding="utf-8"))
    ]
    return found


def main() -> int:
    """Build the site; return the exit status."""
    stage()
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT, capture_output=True, text=True
    )
    if built.returncode:
        print(built.stdout + built.stderr, file=sys.stderr)
        return 1
    wrong = problems(BUILT)
    for problem in wrong:
        print(f"error: {problem}", file=sys.stderr)
    print(f"site/: {len(list(BUILT.rglob('*.html')))} pages; python -m http.server -d site shows them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
