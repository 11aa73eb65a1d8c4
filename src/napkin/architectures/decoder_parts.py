"""Parts of a `Decoder` record (decoder.py): positions, norms, widths, embedding, head, and functions that read them.

A switch is a constant of the class, or the name of a field of config.json.
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures import reading
from napkin.architectures.arrangements import Arrangement
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkNorm
from napkin.architectures.blocks import NormStyle
from napkin.architectures.layer_plans import Plan
from napkin.architectures.reading import Switch, on
from napkin.inputs.model import Config
from napkin.record import record

Vary = Callable[[Attention, Plan], Attention]
"""(attention as all layers have it, what sets a layer apart) → that layer's."""


@record
class RotaryPositions:
    """Rotary positions: how elements are paired, the part of a head that rotates if no field says so, and whether
    the rotation runs in fp32 (`once` and `fused` as in operations.rotary.Rotary)."""

    pairing: str = "half"
    part: float = 1.0
    upcast: bool = False
    once: bool = False
    fused: bool = False


@record
class NormedHeads:
    """Norms of queries and keys (as in attention.QkNorm), and whether they are there, or the field that says so."""

    style: NormStyle
    over: str = "head"
    after_rope: bool = False
    switch: Switch = True

    def read(self, config: Config) -> QkNorm | None:
        """Read whether there are norms."""
        return QkNorm(self.style, self.over, self.after_rope) if on(config, self.switch) else None


@record
class Inner:
    """Width of the feed-forward network: that of a field, else `times` h; of `field` times h if it `multiplies`."""

    field: str
    times: int = 0
    multiplies: bool = False

    def read(self, config: Config, hidden: int) -> int:
        """Read the width."""
        if self.multiplies:
            return config.integer(self.field) * hidden
        if not self.times:
            return config.integer(self.field)
        stated = config.optional_integer(self.field) if self.field else None
        return config.derived(self.field, self.times * hidden) if stated is None else stated


@record
class Embedded:
    """What follows the lookup in the embedding.

    positions  learned positions, with this many rows before the first (None: no learned positions)
    sines      role of the sines of positions that are added (None: there are none)
    scale      a constant multiplies it, or the field that is stated if one does
    """

    positions: int | None = None
    sines: str | None = None
    scale: Switch = False
    norm: NormStyle | None = None
    dropout: bool = False


@record
class Headed:
    """The final norm and the language model's head.

    scale    a constant multiplies the logits, or the field that is stated if one does
    softcap  the field of the logits' soft cap; `fp32`: the cap runs in fp32
    """

    norm: bool = True
    bias: Switch = False
    scale: Switch = False
    softcap: str = ""
    fp32: bool = False


def activation_in(*fields: str) -> Callable[[Config], str]:
    """Read the activation function from the first of these fields that says it."""
    return lambda config: reading.activation(config, *fields)


def constant(function: str) -> Callable[[Config], str]:
    """Return the class's activation function, whatever a field says."""
    return lambda config: function


def always(arrangement: Arrangement) -> Callable[[Config], Arrangement]:
    """Return the class's arrangement."""
    return lambda config: arrangement


def where(switch: Switch, yes: Arrangement, no: Arrangement) -> Callable[[Config], Arrangement]:
    """Choose one arrangement if a field is true, else another."""
    return lambda config: yes if on(config, switch) else no


def scored(**changes: object) -> Callable[[Config, Attention], Attention]:
    """Make attention's scores in this way (fields of attention.Scores)."""
    return lambda config, usual: usual.scored(**changes)


def bidirectional(field: str) -> Callable[[Config, Attention], Attention]:
    """Let every token see every other if the field says so."""
    return lambda config, usual: usual.scored(causal=not config.flag(field, otherwise=False))


def softcapped(field: str) -> Callable[[Config, Attention], Attention]:
    """Cap attention's scores softly, if the field is not null."""
    return lambda config, usual: usual.scored(softcap=capped(config, field))


def clamped(field: str) -> Callable[[Config, Attention], Attention]:
    """Clamp the results of the projections if a field says how far."""
    return lambda config, usual: usual.projected(clamped=stated(config, field))


def capped(config: Config, field: str) -> bool:
    """Read whether a soft cap is on: a class that has one keeps it if the field is omitted, not if it is null."""
    if field not in config.fields:
        return field not in config.defaults or config.defaults[field] is not None
    return config.real(field, required=False) is not None


def stated(config: Config, switch: Switch) -> bool:
    """Read a switch that is a constant, or a field that counts as on if it is stated (a multiplier, a clamp)."""
    if isinstance(switch, bool):
        return switch
    value = config.raw(switch, required=False)
    return value is not None and value is not False
