"""A screen laid out as lines of text for the terminal's width: no cell wraps, no name is cut. The defaults
of an answer are a few words each, the most surprising first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from napkin.options.command_line import Text, pieces_in, pieces_of, typed
from napkin.options.registry import OPTIONS
from napkin.record import replace
from napkin.render.answer import Answer, Cell, Shown
from napkin.render.columns import INDENT, clauses, folded, table_lines
from napkin.render.paint import BOLD, DIM, TONES, Paint
from napkin.render.screen import Display, Next, Screen, Table

DEFAULTED = ("default", "class default", "assumed")


def _number(value: Cell) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _recompute(value: Cell) -> str:
    return "no recomputation" if value == "none" else f"recompute {value}"


def _as_is(value: Cell) -> str:
    return str(value)


WORDS: Mapping[str, Callable[[Cell], str]] = {
    "stack": lambda value: "software unknown" if value == "unknown" else f"{value} software",
    "zero": lambda value: f"ZeRO-{value}",
    "seq": lambda value: f"seq {_number(value)}",
    "target-seq": lambda value: f"target seq {_number(value)}",
    "precision": _as_is,
    "dtype": _as_is,
    "optimizer": lambda value: {"adamw": "AdamW", "sgd": "SGD"}.get(str(value), str(value)),
    "recompute": _recompute,
    "micro-batch": lambda value: f"micro-batch {_number(value)}",
    "batch": lambda value: f"batch {_number(value)}",
    "cache-dtype": lambda value: f"{value} KV cache",
}
"""Input → its value in words, in the order in which they are named."""


def either(value: Cell, words: Callable[[Cell], str] = str) -> str:
    """Return a value in words; of an input that differs between the questions of a sweep, all its values."""
    return " or ".join(map(words, value)) if isinstance(value, list) else words(value)


def assumed_words(inputs: Mapping[str, Shown]) -> list[str]:
    """Return the defaults in words; empty values are omitted."""
    found = []
    gpus = inputs.get("gpus")
    for name, words in WORDS.items():
        shown = inputs.get(name)
        if name == "dtype" and "precision" in inputs:  # which says what the matmuls are in
            continue
        if name == "zero" and (gpus is None or gpus.value == 1):
            continue
        if shown is not None and shown.origin in DEFAULTED and shown.value is not None:
            found.append(either(shown.value, words))
    return found


SPACE = "   "
"""Between the parts of line 2."""


def page_lines(screen: Screen, answer: Answer, view: Display, listed: Sequence[str] | None = None) -> list[str]:
    """Return the lines of an answer's screen; listed: lines to show in place of its table."""
    paint = Paint(view.color)
    if screen.verbatim:
        return screen.verbatim.splitlines()
    if view.quiet:
        return _quiet(screen, view, paint)
    lines = [clauses(screen.question, view.width)] if screen.question else []
    if screen.headline:
        line = spaced(screen.headline, view.width - len(INDENT), screen.verdict)
        lines.append(_headline(screen, line, paint, INDENT))
    if listed is not None:
        lines += listed
    elif screen.table is not None:
        lines += table_lines(screen.table, view.width, paint)
    lines += [line for text in screen.remarks for line in folded(text, view.width, INDENT)]
    if screen.more is not None:
        lines += table_lines(screen.more, view.width, paint)
    words = [*answer.assumed, *assumed_words(answer.inputs)]
    if words:
        lines.append(_assumed(words, view.width, paint))
    if screen.next is not None:
        pieces = next_pieces(screen.next, answer)
        if sum(map(len, pieces)) <= LONGEST_NEXT:
            lines += _command(pieces, view.width, paint)
    return lines


LONGEST_NEXT = 4000
"""Characters of a next command that is shown."""


SPELLED = ("given", "run file", "from file")
"""Origins of the inputs that a command line states."""


def next_pieces(following: Next | str, answer: Answer) -> list[str]:
    """Return the next command as pieces that stay on one line each."""
    if isinstance(following, str):
        return pieces_in(following)
    given, keep = spelled_inputs(answer), following.keep
    if keep is None and any(answer.inputs[name].origin != "given" for name in given):  # of a file for several commands
        from napkin._tables.takes import TAKES

        keep = TAKES.get(following.command or answer.command)
    if keep is not None and "dtype" in given and "dtype" not in keep and "precision" in keep:
        from napkin.training.usual_policy import usual_policy

        policy = usual_policy(str(given["dtype"]))
        given = {"precision": policy, **given} if policy else given  # the same matmuls in the other command
    return pieces_of(following.command or answer.command, given, following.changes, keep)


def spelled_inputs(answer: Answer) -> dict[str, Text]:
    """Return the inputs that a command line states, as they can be typed again."""
    return {name: _typed(shown) for name, shown in answer.inputs.items() if _is_spelled(name, answer.inputs)}


def _is_spelled(name: str, inputs: Mapping[str, Shown]) -> bool:
    """Return whether a command line states an input: it was given, or it replaces the nodes that were."""
    origin = inputs[name].origin
    return name in OPTIONS and name != "nodes" and (origin in SPELLED or (name == "gpus" and origin == "derived"))


def _typed(shown: Shown) -> Text:
    """Return an input as it can be typed again."""
    return typed(shown.value if shown.text is None else shown.text)


def _quiet(screen: Screen, view: Display, paint: Paint) -> list[str]:
    """Return line 2, or the rows of a listing."""
    if screen.headline and not screen.listing:
        return [_headline(screen, SPACE.join(screen.headline), paint)]
    if screen.table is None:
        return []
    bare = [replace(column, name="") for column in screen.table.columns]
    return [
        line[len(INDENT) :] for line in table_lines(Table(bare, screen.table.rows), view.width + len(INDENT), paint)
    ]


def _headline(screen: Screen, text: str, paint: Paint, indent: str = "") -> str:
    """Return line 2 in the color of its verdict; a part that counts another verdict (`holds: 3`) has that verdict's
    color."""
    tone = TONES.get(screen.verdict)
    parts = text.split(SPACE)
    tones = [TONES.get(part.partition(":")[0], tone) for part in parts]
    if all(one == tone for one in tones):
        return paint(indent + text, BOLD, tone)
    return indent + SPACE.join(paint(part, BOLD, one) for part, one in zip(parts, tones, strict=True))


def spaced(parts: Sequence[str], width: int, verdict: str = "") -> str:
    """Return the parts separated by three spaces, without the last ones that do not fit; the part that begins with the
    verdict is dropped after all others but the first."""
    kept = list(parts)
    while len(kept) > 1 and len(SPACE.join(kept)) > width:
        judged = [bool(verdict) and part.startswith(verdict.upper()) for part in kept]
        others = [place for place in range(1, len(kept)) if not judged[place]]
        del kept[others[-1] if others else -1]
    return SPACE.join(kept)


def _assumed(words: Sequence[str], width: int, paint: Paint) -> str:
    """Return the line `assumed:`; entries that do not fit are counted."""
    for count in range(len(words), -1, -1):
        left = len(words) - count
        parts = [*words[:count], *([f"{left} more (-v)"] if left else [])]
        text = ", ".join(parts)
        if len("assumed: ") + len(text) <= width or not count:
            return paint("assumed:", DIM) + " " + text
    return ""


def _parted(piece: str, width: int) -> list[str]:
    """Return a piece that ends with a quoted word, such as a config.json, split over several lines; a shell joins
    quoted parts continued with a backslash."""
    head, _, quoted = piece.removesuffix("'").partition(" '")
    lines, line = [], f"{head} '"
    for word in quoted.split(" "):
        if len(line) + len(word) + len(" '\\") > width:
            lines.append(f"{line}'\\")
            line = "'"
        line += f"{word} "
    return [*lines, f"{line[:-1]}'"]


def _command(pieces: Sequence[str], width: int, paint: Paint) -> list[str]:
    """Return a command to paste, continued with a backslash between its options."""
    lines, line = [], "next:"
    for piece in pieces:
        if len(piece) + len("next:  \\") > width and " '" in piece and piece.endswith("'"):
            *above, piece = _parted(piece, width - len("next: "))
            lines += [f"{line} {above[0]}", *above[1:]]
            line = ""
        if line.strip() and line != "next:" and len(line) + 1 + len(piece) + 2 > width:
            lines.append(f"{line} \\")
            line = " " * 7
        line = f"{line} {piece}" if line else piece
    lines.append(line)
    lines[0] = paint("next:", DIM) + lines[0][len("next:") :]
    return lines
