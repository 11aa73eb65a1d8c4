"""Lengths of samples: counted from JSON lines in constant memory, or read back."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Mapping

from napkin.errors import NapkinError
from napkin.inputs.file_kinds import START, refuse_kind, unreadable
from napkin.inputs.load import name_of, parse_json, printable, read_text, repeated
from napkin.options.command_line import quoted
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

LONGEST_LINE = 64 * 10**6
"""Bytes of one sample."""
LONGEST = 10**9
"""Tokens of one sample."""
MOST = 10**15
"""Samples of one length."""
UNTOKENIZED = "text is not tokenized here: a field of token ids, or of their number, as a tokenizer's map adds"
"""The hint for samples of text."""
COUNTED_BY = "napkin data lengths {} --tokens-field input_ids --json -o lengths.json"
"""The command that counts the lengths of a file of samples."""
FORM = f'{COUNTED_BY.format("FILE")} writes it; or {{"histogram": [[length, count], …]}}'


@record
class SampleLengths:
    """How many samples have each length, ascending."""

    counts: tuple[tuple[int, int], ...]

    @property
    def samples(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def tokens(self) -> int:
        return sum(length * count for length, count in self.counts)

    @property
    def mean(self) -> float:
        return self.tokens / self.samples

    def quantile(self, share: float) -> int:
        """Return the least length that at least this share of the samples do not exceed."""
        left = share * self.samples
        for length, count in self.counts:
            left -= count
            if left <= 0:
                return length
        return self.counts[-1][0]

    def cut(self, longest: int) -> SampleLengths:
        """Return the lengths with samples cut to `longest` tokens."""
        kept: dict[int, int] = {}
        for length, count in self.counts:
            kept[min(length, longest)] = kept.get(min(length, longest), 0) + count
        return SampleLengths(tuple(sorted(kept.items())))

    def padded(self, together: int) -> float:
        """Return the mean length of the longest of `together` random samples, to which all of them are padded.

        E[max] = Σ l·(F(l)^b − F(l−)^b), F the share of samples that are no longer."""
        below, total, mean = 0, self.samples, 0.0
        for length, count in self.counts:
            mean += length * (((below + count) / total) ** together - (below / total) ** together)
            below += count
        return mean

    def of_slowest(self, together: int, ranks: int, sums: int) -> float:
        """Return the mean length of the sequences on the rank with the most tokens, of ranks that wait for each other
        after every `sums` micro-batches, each padded to the longest of `together` samples.

        Of single micro-batches it is the longest sample of all ranks; the spread of a mean of several falls with the
        square root of their number."""
        mean = self.padded(together)
        return mean + (self.padded(together * ranks) - mean) / math.sqrt(sums)


def count_lengths(path: str, field: str | None) -> SampleLengths:
    """Count the lengths of a file's samples, one a line: the numbers in a list, or a number itself, which is the line
    or a field of the JSON object in it. Lines are read one by one, and only the counts are kept. `-` is standard input.
    Errors (2) name the line."""
    name = name_of(path)
    try:
        if path == "-":
            return _counted(sys.stdin.buffer, name, field)
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            what = "is a directory" if stat.S_ISDIR(mode) else "is neither a file nor a pipe"
            raise NapkinError(f"{name}: {what}", "name a file of JSON lines")
        with open(path, "rb") as stream:
            return _counted(stream, name, field)
    except OSError as problem:
        raise unreadable(path, name, problem) from None


def _counted(stream: BinaryIO, name: str, field: str | None) -> SampleLengths:
    counts: dict[int, int] = {}
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            refuse_kind(line[:START], name)
        if len(line) > LONGEST_LINE:
            raise NapkinError(f"{name}:{number}: is longer than {LONGEST_LINE // 10**6} MB", "one sample a line")
        if line.strip():
            length = _length(line, f"{name}:{number}", field)
            counts[length] = counts.get(length, 0) + 1
    if not counts:
        raise NapkinError(f"{name}: has no samples", "one JSON object a line")
    return SampleLengths(tuple(sorted(counts.items())))


def _length(line: bytes, where: str, field: str | None) -> int:
    """Return the tokens of one sample."""
    try:
        sample = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as problem:
        what = str(problem) if isinstance(problem, _Twice) else "is not a JSON object"
        raise NapkinError(f"{where}: {what}", "one JSON object a line, as `datasets` writes them") from None
    found, what = sample, "it"
    if isinstance(sample, dict):
        if field is None:
            what = "--tokens-field is missing: which field holds the token ids?"
            raise NapkinError(f"{where}: {what}", _fields_of(sample))
        what = printable(field, 40)
        if field not in sample:
            raise NapkinError(f"{where}: has no field {what}", _fields_of(sample))
        found = sample[field]
    elif field is not None:
        listed = isinstance(sample, list) and any(isinstance(one, dict) for one in sample)
        hint = "one object a line, not a list of them" if listed else "one object a line, or leave out --tokens-field"
        raise NapkinError(f"{where}: is not an object with fields", hint)
    length = _tokens_in(found)
    if length is None and (found == [] or (type(found) is int and found <= 0)):
        shown = "an empty list" if found == [] else f"{found:,}"
        raise NapkinError(f"{where}: {what} is {shown}: a sample has a token at least", "leave the line out")
    if length is None:
        raise NapkinError(f"{where}: {what} is neither a list of token ids nor their number", UNTOKENIZED)
    return length


def _tokens_in(value: object) -> int | None:
    """Return the tokens that a value states: the length of a list of ids, or their number; None for other values."""
    if isinstance(value, list) and set(map(type, value)) == {int} and min(value) >= 0:
        value = len(value)
    return value if type(value) is int and 0 < value <= LONGEST else None


def _fields_of(sample: Mapping[str, object]) -> str:
    """Return a hint that names the fields of a sample that state its tokens."""
    stated = [f"--tokens-field {quoted(printable(key, 40))}" for key in sample if _tokens_in(sample[key]) is not None]
    return " or ".join(stated[:3]) if stated else UNTOKENIZED


class _Twice(ValueError):
    """Raised if a key of an object appears twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the fields of a JSON object."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Twice(f"the key {printable(repeated(key for key, _ in pairs), 40)!r} appears twice")
    return fields


def read_lengths(path: str) -> SampleLengths:
    """Read counted lengths back: the answer of `napkin data lengths --json`, or any object with a `histogram`."""
    text = read_text(path)
    hint = FORM.replace("FILE", quoted(path))
    if text.lstrip()[:1] != "{":
        hint = hint.replace(" --tokens-field input_ids", "")  # lines without fields
    try:
        document = parse_json(text, name_of(path))
    except NapkinError as problem:
        raise NapkinError(f"{problem.message}: --lengths takes lengths that are counted, not samples", hint) from None
    data = document.data
    pairs = data.get("histogram") if isinstance(data, dict) else None
    if not isinstance(pairs, list) or not pairs:
        raise NapkinError(f"{document.name}: has no histogram of lengths", hint)
    counts: dict[int, int] = {}
    for at, pair in enumerate(pairs):
        if wrong := _wrong(pair, counts):
            raise NapkinError(f"{document.place('histogram', at)}: {wrong}", FORM)
        counts[pair[0]] = pair[1]
    return SampleLengths(tuple(sorted(counts.items())))


def _wrong(pair: object, counts: Mapping[int, int]) -> str:
    """Return what is wrong with a pair of a histogram, behind the pairs before it; "" if nothing is."""
    if not isinstance(pair, list) or len(pair) != 2:
        return "is not a pair of a length and a count"
    for value, name, most in zip(pair, ("length", "count"), (LONGEST, MOST), strict=True):
        if type(value) is not int:
            return f"the {name} {printable(repr(value), 40)} is not a whole number"
        if not 1 <= value <= most:
            return f"the {name} {value} is not between 1 and {most:,}"
    return f"the length {pair[0]} appears twice" if pair[0] in counts else ""
