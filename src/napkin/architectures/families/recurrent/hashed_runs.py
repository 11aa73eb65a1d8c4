"""Embeddings of hashed runs of tokens, looked up in some layers and added to the residual streams (Qwen4-Exp).

Field names are those of the class of Hugging Face transformers 5.23.0 (src/transformers/models/qwen4_exp/).
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.architectures.blocks import RMS_OFFSET, Operations
from napkin.architectures.reading import (
    width,
)
from napkin.architectures.recurrent_parts import LINEAR
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.gated_streams import Agreement, DilatedConv, NgramTable, OuterProduct
from napkin.operations.linear import Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add
from napkin.operations.roles import NGRAM
from napkin.record import record, replace

MOST_EMBEDDINGS = 1_000
"""Upper limit of hashed embeddings, against typing errors; each needs its own prime number."""


@record
class HashedRuns:
    """Embeddings of hashed runs of tokens, as config.json describes them.

    rows    of each layer's embeddings together; 0 if it has none
    width   of what is looked up       reach   tokens of a run before the last
    heads   embeddings in each layer   kernel  of the dilated convolution
    """

    rows: Sequence[int]
    width: int = 0
    reach: int = 0
    heads: int = 0
    kernel: int = 0


def streams_norm(name: str, source: str, hidden: int, streams: int) -> Norm:
    """Return each stream normalized with its own weight."""
    return replace(RMS_OFFSET, per_group=True)(name, source, hidden, streams)


def looked_up(runs: HashedRuns, hidden: int, streams: int, rows: int) -> Operations:
    """Return what the embeddings hold of the runs that end with a token, gated by how it agrees with each stream, and a
    dilated convolution of it, added to the streams."""
    wide = hidden * streams
    return (
        NgramTable(
            "runs",
            (),
            rows,
            runs.width,
            role=NGRAM,
            module="ple.ple_embedding.ngram_embedding",
            heads=runs.heads,
            reach=runs.reach,
        ),
        Matmul("runs_key", ("runs",), runs.width, wide),
        streams_norm("runs_key_norm", "runs_key", hidden, streams),
        Matmul("runs_value", ("runs",), runs.width, hidden),
        streams_norm("runs_query_norm", "x", hidden, streams),
        Agreement("runs_gate", ("runs_key_norm", "runs_query_norm"), hidden, streams),
        OuterProduct("runs_gated", ("runs_gate", "runs_value"), hidden, streams),
        streams_norm("runs_norm", "runs_gated", hidden, streams),
        DilatedConv("runs_convolved", ("runs_norm",), wide, runs.kernel, runs.reach + 1),
        Activation("runs_act", ("runs_convolved",), wide, "silu"),
        Add("runs_added", ("runs_gated", "runs_act"), wide),
        Add("runs_residual", ("x", "runs_added"), wide),
    )


def read_runs(config: Config, listed: Sequence[str]) -> HashedRuns:
    """Read the embeddings of hashed runs of tokens; `listed`: what mixes in each layer."""
    places = _places(config, listed)
    config.ignore("seed", "split_ngram_parts")
    if not places:
        config.ignore("ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram")
        config.ignore("ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by")
        return HashedRuns((0,) * len(listed))
    config.ignore("eos_token_id")
    reach = config.integer("ngram_size", least=2) - 1
    heads = reach * config.integer("heads_per_ngram")
    each = config.optional_integer("ple_embed_dim") or width(config)
    config.divides("ple_embed_dim", each, heads, "(ple_embed_dim)")
    if heads * len(places) > MOST_EMBEDDINGS:
        raise config.wrong("heads_per_ngram", f"{heads * len(places):,} embeddings are more than {MOST_EMBEDDINGS:,}")
    start, multiple = config.integer("ngram_vocab_size_base"), config.integer("make_ngram_vocab_size_divisible_by")
    rows = _rows(len(listed), places, heads, start, multiple)
    return HashedRuns(rows, each, reach, heads, config.integer("ple_conv_kernel_size"))


def _places(config: Config, listed: Sequence[str]) -> list[int]:
    """Read which layers, from 1, look runs up."""
    layers = len(listed)
    given = config.items("ple_layer_ids", required=False) or []
    for entry in given:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 1 <= entry <= layers:
            raise config.wrong(
                "ple_layer_ids", f"{printable(repr(entry), 60)} is not the number of a layer, 1 to {layers}"
            )
        if listed[entry - 1] != LINEAR:
            raise config.wrong("ple_layer_ids", f"layer {entry} is not one of linear_attention")
    return sorted(set(given))


def _rows(layers: int, places: Sequence[int], heads: int, start: int, multiple: int) -> list[int]:
    """Return the rows of each layer's embeddings together: consecutive primes from `start` on, one for each of `heads`,
    the sum padded to a multiple."""
    found = [0] * layers
    prime = start - 1
    for place in places:
        total = 0
        for _ in range(heads):
            prime = _next_prime(prime)
            total += prime
        found[place - 1] = -(-total // multiple) * multiple
    return found


def _next_prime(after: int) -> int:
    candidate = after + 1
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(number: int) -> bool:
    """Return whether a number is prime: Miller's test, which with these bases is right below 3,215,031,751 (Pomerance,
    Selfridge and Wagstaff 1980)."""
    bases = (2, 3, 5, 7)
    if number < 2 or any(number % base == 0 for base in bases):
        return number in bases
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    return all(
        power in (1, number - 1) or any(pow(power, 2**i, number) == number - 1 for i in range(1, twos))
        for power in (pow(base, odd, number) for base in bases)
    )
