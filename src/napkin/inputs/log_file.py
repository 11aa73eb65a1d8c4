"""A whole training log: the medians of its figures after warm-up, in constant memory however long it is.

Of a long log, lines are drawn evenly, each with the same chance, the same ones in every reading, until the end of the
log leaves from SAMPLE to 2 · SAMPLE with figures: the error of their median is some 2 % of the figures' standard
deviation. Where figures are rare, TRIED lines or more are looked at.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from io import BufferedReader, TextIOWrapper
from typing import TextIO

from napkin.errors import NapkinError
from napkin.inputs.file_kinds import START, is_url, refuse_kind, unreadable
from napkin.inputs.file_roles import BEGIN, refuse_settings
from napkin.inputs.load import name_of
from napkin.inputs.log import EACH, FLOPS, LONGEST, STEP, TOTAL, Logged, figures, may_hold_figures, read_line

WARM_UP = 0.1
"""Share of a log's first lines that is skipped: compilation, caches, the ramp of clocks and batch."""
SLOW = 1.2
LARGEST = 10**9
"""Characters of a log."""
SAMPLE, TRIED = 4096, 2**16
_GOLDEN, _WHOLE = 2654435769, 2**32
"""Multiples of the golden ratio modulo 1, in units of 2^-32, are spread evenly over any run of line numbers."""


def read_log(text: str) -> Logged:
    """Read a log; `text` is the name of a log file or pipe, `-` for standard input, or one line of a log."""
    is_file = text == "-" or os.path.exists(text) or is_url(text)
    return read_file(text) if is_file else read_line(text)


def read_file(path: str) -> Logged:
    """Return the medians of a log's figures after warm-up; `slow`: the share of lines that are 1.2 × slower."""
    name = name_of(path)
    try:
        with _opened(path, name) as stream:
            sample = _sample(stream, name)
    except OSError as problem:
        raise unreadable(path, name, problem) from None
    if not sample:
        raise NapkinError(
            f"{name}: no line says a throughput, step time, TFLOP/s or MFU that napkin knows",
            "paste a line with --log, or give the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    return medians(sample[int(WARM_UP * len(sample)) + (len(sample) > 3) :] or sample)


def _opened(path: str, name: str) -> TextIO:
    """Open a log. Raises NapkinError (2) if it is neither a file nor a pipe."""
    if path == "-":
        return _text_of(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), name)
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        what = "is a directory" if stat.S_ISDIR(mode) else "is neither a file nor a pipe"
        raise NapkinError(f"{name}: {what}", "name a log file, or paste one of its lines")
    return _text_of(open(path, "rb"), name)


def _text_of(file: BufferedReader, name: str) -> TextIO:
    """Return the text of an open log. Raises NapkinError (2), with the file closed, if it is packed, not UTF-8, or
    settings."""
    try:
        start = file.peek(BEGIN)[:BEGIN]
        refuse_kind(start[:START], name)
        refuse_settings(start, name)
    except NapkinError:
        file.close()
        raise
    return TextIOWrapper(file, encoding="utf-8", errors="replace")


def _sample(stream: TextIO, name: str) -> list[Logged]:
    """Return the figures of evenly drawn lines, in order: of all lines with figures if they are few."""
    kept: list[tuple[int, Logged]] = []
    limit, tried = _WHOLE, 0
    for at, line in enumerate(_lines(stream, name)):
        draw = at * _GOLDEN % _WHOLE
        if draw < limit and may_hold_figures(line):
            tried += 1
            found = figures(line)
            if set(found.quantities) - {"global_batch"}:
                kept.append((draw, found))
            if len(kept) > 2 * SAMPLE or tried > 2 * TRIED:
                limit, tried = limit // 2, tried // 2
                kept = [one for one in kept if one[0] < limit]
    return [found for _, found in kept]


def _lines(stream: TextIO, name: str) -> Iterator[str]:
    """Yield the lines of a log; of a line that is too long, only its start."""
    read, whole = 0, True
    while line := stream.readline(LONGEST):
        read += len(line)
        if read > LARGEST:
            raise NapkinError(f"{name}: is larger than {LARGEST // 10**9} GB", "give a part of the log")
        if whole:
            yield line
        whole = line.endswith("\n")


def medians(kept: list[Logged]) -> Logged:
    """Return the median of each figure over the lines with the commonest set of figures."""
    counts: dict[frozenset[str], int] = {}
    for one in kept:
        names = frozenset(one.quantities)
        counts[names] = counts.get(names, 0) + 1
    commonest = max(counts, key=lambda names: counts[names])
    same = [one for one in kept if commonest <= set(one.quantities)]
    middle = {name: sorted(one.quantities[name] for one in same)[len(same) // 2] for name in commonest}
    slow = 0.0
    for name, faster in ((STEP, False), (EACH, True), (TOTAL, True), (FLOPS, True)):
        if name in middle:
            usual, found = middle[name], [one.quantities[name] for one in same]
            slow = sum(usual >= SLOW * x if faster else x >= SLOW * usual for x in found) / len(found)
            break
    words = {name: f"median {same[len(same) // 2].words[name]}" for name in commonest}
    return Logged(middle, words, len(same), slow, same[0].program)
