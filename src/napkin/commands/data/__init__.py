"""`napkin data`: bytes of a corpus of token ids."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.next_command import under
from napkin.errors import NapkinError
from napkin.footprint import storage
from napkin.render.answer import Answer
from napkin.render.figures import amount
from napkin.render.screen import Screen
from napkin.term import Term
from napkin.units import human


def run(inputs: Inputs) -> Answer:
    """Answer for a number of tokens and a vocabulary, or for a file of samples."""
    if inputs.text_or_none("about") is not None:
        inputs.because(("tokens", "vocab"), "lengths does not depend on it")
        from napkin.commands.data import lengths as data_lengths

        return data_lengths.run(inputs)
    inputs.because(("samples-file", "tokens-field"), "it belongs to lengths", "napkin data lengths FILE …")
    inputs.need_all({"tokens": "how many?", "vocab": "it decides how many bytes an id takes"})
    vocabulary = inputs.integer("vocab")
    if vocabulary > 2**32:
        raise NapkinError(f"--vocab: {vocabulary:,} ids do not fit 32 bits", "at most 4,294,967,296")
    return answer(inputs.term("tokens"), vocabulary)


def answer(tokens: Term, vocabulary: int) -> Answer:
    """Answer with the bytes of the ids."""
    width = storage.id_bytes(vocabulary)
    size = storage.data_bytes(tokens, width)
    kind = "uint16" if width.value == 2 else "uint32"
    screen = Screen(
        (f"{amount(tokens.value)} tokens as token ids", f"vocabulary of {vocabulary:,}"),
        (human(size.value, "byte"), f"{width.value} bytes per token ({kind})"),
        remarks=("With np.memmap, only the pages that a batch touches are read into memory.",),
        next=under("train-time", {"params": "8B", "gpus": "64", "hardware": "h100"}),
    )
    note = "the file of ids is mapped into memory: only the pages that a batch touches are read"
    return Answer("data", terms=[size, width], notes=[note], screen=screen)


COMMAND = Command(
    "data",
    "Size of a tokenized corpus, or the lengths of its samples",
    run,
    brief="Size of a tokenized corpus",
    options=("tokens", "vocab", "tokens-field"),
    arguments=("about", "samples-file"),
    examples=("data --tokens 15T --vocab 128256", "data --tokens 1.4T --vocab 32000"),
)
