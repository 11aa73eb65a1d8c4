"""Put a network together: embedding, runs of equal layers, final norm and head."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import groupby

from napkin.architectures.blocks import NormStyle, Operations
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding, Sines
from napkin.operations.linear import Matmul
from napkin.operations.model import LONGEST_PERIOD, Layer, Parts, Runs
from napkin.operations.pointwise import Add, Dropout, Scale, Softcap
from napkin.operations.roles import LM_HEAD, POSITION, SEGMENT, VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Key = TypeVar("Key", bound=Hashable)


def runs_of(keys: Iterable[Key], make: Callable[[Key], Layer]) -> Parts:
    """Return runs of equal layers: `keys` says for each layer what sets it apart, and `make` builds each kind once.
    What repeats to the end with a short period is one pattern, however many layers there are."""
    listed = list(keys)
    letters = {key: chr(at) for at, key in enumerate(dict.fromkeys(listed))}
    made: dict[str, Layer] = {}
    for key, letter in letters.items():
        layer = make(key)
        made[letter] = next((known for known in made.values() if known == layer), layer)
    text = "".join(map(letters.__getitem__, listed))

    def runs(part: str) -> Runs:
        return tuple((sum(1 for _ in equal), made[letter]) for letter, equal in groupby(part))

    if len(letters) == 1:
        return ((len(text), made[text[0]]),)
    period, begin = _period(text)
    if not period:
        return runs(text)
    times, rest = divmod(len(text) - begin, period)
    tail = runs(text[len(text) - rest :]) if rest else ()
    return (*runs(text[:begin]), (times, runs(text[begin : begin + period])), *tail)


def _period(text: str) -> tuple[int, int]:
    """Return (period, where it begins) of what repeats to the text's end, at least four times; (0, 0) if nothing
    does."""
    for period in range(2, LONGEST_PERIOD + 1):
        varies = len(text) >= 4 * period and len(set(text[-period:])) > 1
        if varies and text[-3 * period :] == text[-4 * period : -period]:
            low, high = 3 * period, len(text) - period  # this many at the end equal those a period before
            while low < high:
                middle = (low + high + 1) // 2
                same = text[len(text) - middle :] == text[len(text) - middle - period : len(text) - period]
                low, high = (middle, high) if same else (low, middle - 1)
            return period, len(text) - low - period
    return 0, 0


def embedding(
    rows: int,
    hidden: int,
    *,
    embedding_width: int | None = None,
    positions: int = 0,
    fixed: bool = False,
    scale: bool = False,
    cast: bool = False,
    norm: NormStyle | None = None,
    dropout: bool = False,
    segments: int = 0,
    sines: str | None = None,
) -> Operations:
    """Return the embedding, positions (`fixed`: not trained) and segments added, then scaling, a norm and dropout if
    the class has them. `cast`: as in operations.pointwise.Scale. `sines`: the role of positions without parameters."""
    table = embedding_width or hidden
    operations: list[Operation] = [Embedding("embedding", (), rows, table)]
    last = "embedding"
    if table != hidden:
        operations.append(Matmul("project_in", (last,), table, hidden))
        last = "project_in"
    if scale:
        operations.append(Scale("embedding_scaled", (last,), hidden, cast=cast))
        last = "embedding_scaled"
    if segments:
        operations.append(Embedding("segment_embedding", (), segments, hidden, role=SEGMENT))
        operations.append(Add("segments_added", (last, "segment_embedding"), hidden))
        last = "segments_added"
    if positions:
        operations.append(Embedding("position_embedding", (), positions, hidden, role=POSITION, trained=not fixed))
        operations.append(Add("positions_added", (last, "position_embedding"), hidden))
        last = "positions_added"
    if sines is not None:
        operations.append(Sines("sines", (), hidden, role=sines))
        operations.append(Add("sines_added", (last, "sines"), hidden))
        last = "sines_added"
    if norm is not None:
        operations.append(norm("embedding_norm", last, hidden))
        last = "embedding_norm"
    if dropout:
        operations.append(Dropout("embedding_dropped", (last,), hidden))
    return tuple(operations)


def head(
    hidden: int,
    rows: int,
    *,
    norm: NormStyle | None,
    bias: bool = False,
    embedding_width: int | None = None,
    scale: bool = False,
    softcap: bool = False,
    fp32_cap: bool = False,
    balance: Operation | None = None,
    none: bool = False,
    source: str = "x",
) -> Operations:
    """Return the final norm and the language model's head, which read `source`. `fp32_cap`: the soft cap runs in fp32.
    `none`: the class stops after the norm."""
    operations: list[Operation] = [balance] if balance is not None and not none else []
    last = source
    if norm is not None:
        operations.append(norm("final_norm", last, hidden))
        last = "final_norm"
    table = embedding_width or hidden
    if table != hidden:
        operations.append(Matmul("project_out", (last,), hidden, table))
        last = "project_out"
    if none:
        return tuple(operations)
    operations.append(Matmul("lm_head", (last,), table, rows, bias, VOCABULARY, role=LM_HEAD))
    if scale:
        operations.append(Scale("logits_scaled", ("lm_head",), rows))
    if softcap and fp32_cap:
        from napkin.operations.views import Cast

        operations.append(Cast("logits_wide", (operations[-1].name,), rows, True))
    if softcap:
        operations.append(Softcap("logits_capped", (operations[-1].name,), rows))
    return tuple(operations)


def depth_of(runs: Parts) -> int:
    """Return how many layers there are."""
    return sum(times if isinstance(one, Layer) else times * depth_of(one) for times, one in runs)


def last_layer(runs: Parts) -> Layer:
    """Return the last of them."""
    last = runs[-1][1]
    return last if isinstance(last, Layer) else last[-1][1]
