"""Text with or without ANSI colors."""

from __future__ import annotations

TONES = {
    "fits": "32",
    "holds": "32",
    "does not fit": "31",
    "broken": "31",
    "impossible": "31",
    "too close to call": "33",
    "too close": "33",
    "close": "33",
    "good": "32",
    "fair": "33",
    "poor": "31",
    "bad": "31",
    "healthy": "32",
    "unhealthy": "31",
    "throttled": "33",
    "contended": "33",
    "incomplete": "33",
}
"""Verdict → its color, as an ANSI code."""
BOLD, DIM, DRAWN = "1", "2", "36"


class Paint:
    """Adds ANSI color codes to text, or leaves it unchanged."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, *codes: str | None) -> str:
        used = ";".join(code for code in codes if code)
        return f"\x1b[{used}m{text}\x1b[0m" if self.color and used and text.strip() else text
