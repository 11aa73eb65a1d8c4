"""`napkin data`: bytes of a corpus of token ids."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.errors import NapkinError
from napkin.footprint import storage
from napkin.render.answer import Answer
from napkin.units import human


def run(inputs: Inputs) -> Answer:
    inputs.need("tokens", "how many?")
    vocabulary = inputs.need("vocab", "it decides how many bytes an id takes")
    if vocabulary > 2**32:
        raise NapkinError(f"--vocab: {vocabulary:,} ids do not fit 32 bits", "at most 4,294,967,296")
    width = storage.id_bytes(vocabulary)
    size = storage.data_bytes(inputs.term("tokens"), width)
    inputs.note("ids lie in a file that is mapped into memory: only the pages that a batch touches are read")
    kind = "uint16" if width.value == 2 else "uint32"
    return Answer("data", f"{human(inputs.get('tokens'), 'token')} as {kind} ids", [size, width])


COMMAND = Command(
    "data",
    "Bytes of a corpus of token ids: uint16 up to 65,536 ids, else uint32",
    run,
    ("tokens", "vocab"),
    examples=("data --tokens 15T --vocab 128256", "data --tokens 1.4T --vocab 32000"),
)
