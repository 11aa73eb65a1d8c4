"""`napkin books`: how many books a library holds."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.render.answer import Answer
from napkin.term import leaf, multiply


def run(inputs: Inputs) -> Answer:
    """Answer the question."""
    shelves = leaf("shelves", inputs.integer("count", "how many?"), "1")
    return Answer("books", [multiply("books", shelves, leaf("each", 40, "1"))])


COMMAND = Command("books", "Books of a library", run, options=("count",), examples=("books --count 12",))
