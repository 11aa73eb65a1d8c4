"""Build the wheel and the source distribution into dist/ and prove that they can be published; upload nothing.

    python tools/release.py

Every file that states the version must state the same one, and CHANGELOG.md must have an entry for it. Both files must
pass `twine check --strict`. Each is then installed into an empty environment of its own, from the file and the package
index only, and answers the two commands of `make demo` from another folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIST = os.path.join(ROOT, "dist")
STATED = {
    "src/napkin/__init__.py": r'^__version__ = "([^"]+)"$',
    "CITATION.cff": r"^version: (\S+)$",
    "CHANGELOG.md": r"^## (\d\S*)",
    "docs/ci.md": r"(?:napkin@|rev: )v(\S+)$",
    ".pre-commit-hooks.yaml": r"rev: v(\S+)$",
}
"""Where the version is stated: the first match of a file counts, but for docs/ci.md, which states it twice."""
ANSWERS = (
    (
        ("train-time", "--params", "70B", "--tokens", "15T", "--gpus", "1024", "--hardware", "h100", "--mfu", "0.5"),
        "143.9",
    ),
    (("max-params", "--gpus", "8", "--hardware", "h100"), "40.00 B"),
)
"""Command lines, and what the answer says."""


def versions(root: str = ROOT) -> dict[str, list[str]]:
    """Return the versions that each file states. CHANGELOG.md states its newest."""
    found = {}
    for path, pattern in STATED.items():
        with open(os.path.join(root, path), encoding="utf-8") as file:
            every = re.findall(pattern, file.read(), re.MULTILINE)
        found[path] = every[:1] if path == "CHANGELOG.md" else every
    return found


def disagreements(stated: dict[str, list[str]]) -> list[str]:
    """Return a line for each file whose version is not the package's, or that states none."""
    (own,) = stated["src/napkin/__init__.py"]
    return [
        f"{path}: {', '.join(found) or 'no version'}, not {own}" for path, found in stated.items() if {*found} != {own}
    ]


def install_and_ask(file: str) -> str:
    """Install a file into an empty environment and ask it; return what went wrong, or ""."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with tempfile.TemporaryDirectory() as folder:
        home = os.path.join(folder, "environment")
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        inside = os.path.join(home, "Scripts" if os.name == "nt" else "bin", "python")
        quiet = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*quiet, file], check=True, cwd=folder, env=env)
        for words, said in ANSWERS:
            run = subprocess.run([inside, "-m", "napkin", *words], cwd=folder, env=env, capture_output=True, text=True)
            if run.returncode or said not in run.stdout:
                return f"napkin {' '.join(words)}: status {run.returncode}: {run.stdout}{run.stderr}"
    return ""


def main() -> int:
    wrong = disagreements(versions())
    if wrong:
        print("\n".join(f"error: {one}" for one in wrong), file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT], check=True, stdout=subprocess.DEVNULL)
    files = sorted(os.path.join(DIST, name) for name in os.listdir(DIST))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    for file in files:
        problem = install_and_ask(file)
        if problem:
            print(f"error: {os.path.basename(file)}: {problem}", file=sys.stderr)
            return 1
        print(f"{os.path.basename(file)}  {os.path.getsize(file) / 1e6:.1f} MB  installs alone and answers")
    print(f"next: git tag v{versions()['src/napkin/__init__.py'][0]}, push it, and `twine upload dist/*`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
