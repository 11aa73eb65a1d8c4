"""Name the numbers that differ between two versions of a page or a table."""

from __future__ import annotations

import difflib
import re

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def moved(before: list[str], after: list[str]) -> list[str]:
    """Return what changed in the numbers of some lines, as `label: old → new`; nothing if only words did."""
    if NUMBER.findall("\n".join(before)) == NUMBER.findall("\n".join(after)):
        return []
    masked = [[NUMBER.sub("#", line) for line in lines] for lines in (before, after)]
    found: list[str] = []
    for tag, i, j, k, end in difflib.SequenceMatcher(None, masked[0], masked[1], autojunk=False).get_opcodes():
        if tag == "equal":
            for old, new in zip(before[i:j], after[k:end], strict=True):
                label = " ".join(NUMBER.sub("", old).split())[:40]
                pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
                found += [f"{label}: {a} → {b}" for a, b in pairs if a != b]
        elif NUMBER.findall("\n".join(before[i:j])) != NUMBER.findall("\n".join(after[k:end])):
            old, new = (" | ".join(line.strip() for line in lines) for lines in (before[i:j], after[k:end]))
            found.append(f"{old or 'nothing'} → {new or 'nothing'}")
    return found
