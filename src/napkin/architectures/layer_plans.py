"""Which layer of a decoder does what: windows, rotary positions, experts, each read from the fields that say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.architectures import reading
from napkin.architectures.reading import FULL, WINDOWED, Switch, on
from napkin.inputs.model import Config, number_in
from napkin.record import record


@record
class Plan:
    """What sets one layer apart from the others.

    table   the number of the rotary table that it reads; None: no rotary positions
    sparse  its feed-forward is a mixture of experts
    heads   its query heads, if they are its own (0: those of the model)
    last    whether it is the last layer, if that matters
    """

    window: int | None = None
    chunk: int | None = None
    table: int | None = 0
    sparse: bool = False
    heads: int = 0
    last: bool = False


# --- windows ---------------------------------------------------------------------------------------------------------


@record
class Seen:
    """What queries see: the attention of each layer (None: full in all), and the size of a window or chunk."""

    kinds: Sequence[str] | None = None
    window: int | None = None
    chunk: int | None = None


Pattern = Callable[[Config, int], Callable[[int], str]]
"""(config, layers) → the attention of layer i, where config.json does not list it."""


@record
class Windows:
    """Windows in some layers: as `layer_types` lists them, or by a pattern.

    switch    whether there are windows, or the field that says so
    field     size of the window, in tokens
    required  the field must be given if a layer with a window is listed; else no size means no windows
    """

    pattern: Pattern
    switch: Switch = True
    field: str = "sliding_window"
    required: bool = False

    def __call__(self, config: Config, layers: int) -> Seen:
        """Read the attention of each layer."""
        window = (config.optional_integer(self.field, least=0) or None) if on(config, self.switch) else None
        config.ignore(self.field, "sliding_window_pattern", "max_window_layers", "layer_types")
        if window is None and not self.required:
            return Seen()
        kinds = reading.layer_types(config, layers, self.pattern(config, layers))
        if window is None and WINDOWED in kinds:
            raise config.refuse(self.field, "is missing, but there are layers with a window")
        return Seen(kinds, window)


def laid_out(kind: Callable[[int, int], str]) -> Pattern:
    """Return the pattern of kind(i, layers), the attention of layer i."""
    return lambda config, layers: lambda i: kind(i, layers)


def every(period: int, field: str = "") -> Windows:
    """Return windows everywhere but in each `period`-th layer; `field` may state another period."""

    def pattern(config: Config, layers: int) -> Callable[[int], str]:
        n = (config.optional_integer(field, least=0) if field else period) or period
        return lambda i: WINDOWED if (i + 1) % n else FULL

    return Windows(pattern)


def all_but_each(period: int) -> Windows:
    """Return windows everywhere but in layers 0, n, 2n and so on."""
    return Windows(laid_out(lambda i, layers: WINDOWED if i % period else FULL))


def _from_layer(config: Config, layers: int) -> Callable[[int], str]:
    """Windows from layer max_window_layers on."""
    start = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i >= start else FULL


EVERYWHERE = Windows(laid_out(lambda i, layers: WINDOWED))
AS_LISTED = Windows(laid_out(lambda i, layers: FULL))
"""Where layer_types does not list windows, there are none."""
LATE = Windows(_from_layer)


# --- rotary positions ------------------------------------------------------------------------------------------------

Rotates = Callable[[Config, Seen, Sequence[bool]], Sequence[int | None]]
"""(config, what queries see, which layers have experts) → the rotary table of each layer, None for none."""


def in_all(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
    """Rotary positions in every layer."""
    return [0] * len(sparse)


def in_windows(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
    """Rotary positions only in layers with a window."""
    kinds = seen.kinds or [FULL] * len(sparse)
    return [0 if kind == WINDOWED else None for kind in kinds]


def in_windows_if_any(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
    """Rotary positions only in layers with a window; in all if the model has no window."""
    if seen.window is None or seen.kinds is None:
        return [0] * len(sparse)
    return [None if kind == FULL else 0 for kind in seen.kinds]


def as_parameters_say(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
    """Rotary positions where rope_parameters has them for a layer's attention; without the field, with a window."""
    kinds = seen.kinds or [FULL] * len(sparse)
    found = {
        kind: reading.rope_of(config, kind, {} if kind == WINDOWED else None) is not None for kind in sorted(set(kinds))
    }
    return [0 if found[kind] else None for kind in kinds]


def but_each(field: str) -> Rotates:
    """Return rotary positions as no_rope_layers lists them (1: has them), or in all but each n-th layer, n in `field`,
    where omitted 4."""

    def rotates(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
        layers = len(sparse)
        given = config.items("no_rope_layers", required=False)
        if not given:
            n = config.optional_integer(field) or 4
            return [0 if (i + 1) % n else None for i in range(layers)]
        if len(given) != layers or any(flag not in (0, 1) for flag in given):
            raise config.wrong("no_rope_layers", f"is not a list of {layers} times 0 or 1")
        return [0 if flag else None for flag in given]

    return rotates


def by_base(field: str) -> Rotates:
    """Rotary positions with the base that `field` lists for each layer: a table for each base, none for base 0."""

    def rotates(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
        given = config.items(field, required=False)
        if given is None:
            return [0] * len(sparse)
        bases = [number_in(value) for value in given]
        wrong = any(isinstance(v, bool) or not isinstance(v, (int, float)) or v < 0 for v in bases)
        if wrong or len(bases) != len(sparse):
            raise config.wrong(field, f"is not a list of {len(sparse)} rotary bases")
        numbers = {base: number for number, base in enumerate(sorted({base for base in bases if base}), 1)}
        return [numbers.get(base) for base in bases]

    return rotates


# --- experts ---------------------------------------------------------------------------------------------------------

Sparse = Callable[[Config, int], Callable[[int], bool]]
"""(config, layers) → whether layer i has experts."""


def all_sparse(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in every layer."""
    return lambda i: True


def after_first(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first first_k_dense_replace layers."""
    config.must_be("moe_layer_freq", 1)
    dense = config.integer("first_k_dense_replace", least=0)
    return lambda i: i >= dense


def stepped(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in each n-th layer, except those listed as dense."""
    step = config.integer("decoder_sparse_step")
    dense = reading.indices(config, "mlp_only_layers", layers)
    return lambda i: i not in dense and (i + 1) % step == 0


def listed_or(otherwise: Sparse) -> Sparse:
    """As mlp_layer_types lists them, `otherwise` if it does not."""

    def sparse(config: Config, layers: int) -> Callable[[int], bool]:
        given = config.items("mlp_layer_types", required=False)
        if given is None:
            return otherwise(config, layers)
        config.ignore("first_k_dense_replace", "moe_layer_freq")
        if len(given) != layers or set(map(str, given)) - {"sparse", "dense"}:
            raise config.wrong("mlp_layer_types", f"is not a list of {layers} times sparse or dense")
        return lambda i: given[i] == "sparse"

    return sparse


def by_type(config: Config, layers: int) -> Callable[[int], bool]:
    """As mlp_layer_types lists them, or dense for the first k (1 if the class does not say)."""

    def after_first_or_one(config: Config, layers: int) -> Callable[[int], bool]:
        config.must_be("moe_layer_freq", 1)
        dense = config.optional_integer("first_k_dense_replace", least=0)
        first = 1 if dense is None else dense
        return lambda i: i >= first

    return listed_or(after_first_or_one)(config, layers)
