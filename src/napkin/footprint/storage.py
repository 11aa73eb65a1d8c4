"""Bytes on disk: checkpoints and their write time, and token ids."""

from __future__ import annotations

from napkin.term import TRUE, Term, add, choose, constant, divide, leaf, multiply

UINT16_IDS = 2**16


def checkpoint_bytes(params: Term, per_param: dict[str, Term]) -> Term:
    """Return Σ parameters × bytes of each kind of tensor that is saved (parameters, master copy, optimizer states)."""
    parts = [multiply(f"checkpoint/{name}", params, width) for name, width in per_param.items()]
    return add("checkpoint/bytes", *parts)


def write_time(size: Term, bandwidth: Term) -> Term:
    """Return the seconds that writing a checkpoint takes."""
    return divide("checkpoint/write_time", size, bandwidth)


def id_bytes(vocabulary: int) -> Term:
    """Return the bytes of a token id: 2 (uint16) up to 65,536 ids, else 4 (uint32)."""
    two = constant("bytes_of_uint16", 2, "byte/token", "ids 0 to 65,535 fit 16 bits")
    four = constant("bytes_of_uint32", 4, "byte/token", "ids 0 to 4,294,967,295 fit 32 bits")
    fits = leaf("vocabulary_fits_uint16", int(vocabulary <= UINT16_IDS), "1", TRUE, "65,536 ids at most")
    return choose("bytes_per_token", fits, two, four)


def data_bytes(tokens: Term, width: Term) -> Term:
    """Return the bytes of the tokenized data."""
    return multiply("data/bytes", tokens, width)
