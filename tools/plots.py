"""Draw the plots that README.md shows, docs/images/step.svg and scaling.svg, from their commands.

python tools/plots.py    runs PLOTS with matplotlib; tools/docs.py does it too
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PLOTS = {
    "step.svg": "step llama3-70b --gpus 256 --hardware h100 --tp 8 --pp 4 --seq 8192 --global-batch 256 "
    "--framework megatron-core",
    "scaling.svg": "plan llama3-70b --gpus 256..2048 --hardware h100 --seq 8192",
}
"""Plot → the command that draws it."""


def drawn(command: str) -> str:
    """Return the picture that a command draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plot.svg")
        words = [sys.executable, "-m", "napkin", *shlex.split(command), "--plot", str(path), "--quiet"]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
        return path.read_text(encoding="utf-8")


def update() -> list[str]:
    """Draw the plots anew; return those that changed."""
    changed = []
    for name, command in PLOTS.items():
        picture, before = drawn(command), IMAGES / name
        if picture != before.read_text(encoding="utf-8"):
            before.write_text(picture, encoding="utf-8")
            changed.append(name)
    return changed


if __name__ == "__main__":
    for one in update():
        print(f"docs/images/{one}: written")
