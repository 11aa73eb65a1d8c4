"""Scale a published shape up or down: width, depth and feed-forward in the published proportions.

Head size, experts and vocabulary are kept. Heads come in multiples of the key/value heads, and for narrow models of a
half or a quarter of them, with the most key/value heads that divide both. The inner width comes in multiples of 128 (of
8 below 1024), and depth is adjusted to the size. Fields that list layers continue their pattern; in a multimodal model
only the language model is scaled. The count of each candidate is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from napkin.architectures import build, text_model
from napkin.counting.params import params
from napkin.errors import BROKEN, NapkinError, Refused
from napkin.inputs.load import Document
from napkin.inputs.model import Config
from napkin.inputs.model_file import config_from, preset_config
from napkin.inputs.presets import presets, spelling
from napkin.operations.model import Model

WIDTH, DEPTH, HEADS, KV_HEADS = "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"
DOUBLE_LAYERS = "num_layers"
"""The depth field of a model_type whose layers have two attention blocks each (LongCat)."""
INNER = (
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "shared_expert_intermediate_size",
)
GROWS = ("num_heads", "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "mamba_d_ssm", "lru_width")
"""Heads and widths of recurrent layers, which scale with the width."""
UNIT = 64
"""Step of the width in a network without heads."""
Listed = TypeVar("Listed", list[object], str)
MOST_HEADS = 4_096
"""Maximum heads of a searched model; a Llama with 1e15 parameters takes seconds."""
FINEST = 4
"""Steps into which a width is divided at least, where key/value heads allow that."""
SLACK = 0.25
"""Relative tolerance of the depth around the published proportion."""


def count(model: Model) -> int:
    """Return the total parameters."""
    total: int = params(model)["params/total"].value
    return total


class Proportions:
    """A family's proportions, and the model that they give for a number of heads and layers."""

    def __init__(self, config: Config) -> None:
        config = text_model(config)
        if len(build(config).stacks) != 1:
            raise Refused(f"{config.name}: its shape is not one stack of layers", "name a decoder, e.g. llama3-8b")
        self.config = config
        self.deep = DEPTH if config.has(DEPTH) or not config.has(DOUBLE_LAYERS) else DOUBLE_LAYERS
        self.hidden, self.layers = config.integer(WIDTH), config.integer(self.deep)
        known = [name for name in (HEADS, KV_HEADS, *GROWS) if config.has(name) or name in config.defaults]
        self.headed = known[0] if known else ""
        self.heads = config.integer(self.headed) if known else max(1, self.hidden // UNIT)
        self.grows = {name: config.integer(name) for name in known if name in GROWS and config.raw(name) is not None}
        self.listed: dict[str, tuple[Any, Any]] = {
            name: _repeating(config, name, value)
            for name, value in config.fields.items()
            if isinstance(value, list | str) and len(value) == self.layers and name != "model_type"
        }
        self.kv_heads = config.optional_integer(KV_HEADS) or 0
        self.step = self.kv_heads if 0 < self.kv_heads < self.heads else 1
        self.keeps_kv = self.kv_heads not in (0, self.heads)

    def model(self, heads: int, layers: int) -> Model:
        """Return the model with `heads` heads of the published size, all widths in proportion. Refused where the class
        cannot have them."""
        fields = {**self.config.fields, "model_type": self.config.model_type}
        hidden = self.hidden * heads // self.heads
        changed: dict[str, object] = {WIDTH: hidden, self.deep: layers}
        if self.headed:
            changed[HEADS if self.headed == KV_HEADS else self.headed] = heads
        changed |= {name: value * heads // self.heads for name, value in self.grows.items()}
        if not self.keeps_kv and self.config.has(KV_HEADS):
            changed[KV_HEADS] = heads
        elif self.keeps_kv:
            changed[KV_HEADS] = math.gcd(heads, self.kv_heads)
        for field, (ahead, turn) in self.listed.items():
            turns = turn * -(-max(0, layers - len(ahead)) // len(turn))
            changed[field] = (ahead + turns)[:layers]
        for field in INNER:
            if self.config.has(field):
                grain = 128 if hidden >= 1024 else 8
                inner = self.config.integer(field) * heads / self.heads
                changed[field] = max(grain, round(inner / grain) * grain)
        for field in changed:
            for name in self.config.spellings(field):
                fields.pop(name, None)
        if self.deep == DEPTH:
            fields.pop(DOUBLE_LAYERS, None)  # the same, if a file says both
        title = f"like {self.config.name}"
        try:
            return build(config_from(title, Document(title, fields | changed), fields | changed))
        except NapkinError as problem:
            raise Refused(
                f"{self.config.name}: its proportions give no network of its class ({problem.message})",
                "name another model or family, e.g. llama3",
            ) from None

    def widths(self, tp: int) -> list[int]:
        """Return the numbers of heads to try, ascending multiples of tp: neighbors differ by a quarter at most, where
        parts of the key/value heads allow that."""
        found = [math.lcm(self.step, tp)]
        while found[-1] <= MOST_HEADS:
            parts = (self.step // part for part in (1, 2, 4) if self.step % part == 0)
            steps = [math.lcm(one, tp) for one in parts]
            found.append(found[-1] + next((one for one in steps if one * FINEST <= found[-1]), steps[-1]))
        return found

    def depth(self, heads: int) -> int:
        """Return the layers in the published proportion to the width."""
        return max(1, round(self.layers * heads / self.heads))


def _repeating(config: Config, field: str, listed: Listed) -> tuple[Listed, Listed]:
    """Return (prefix, repeating pattern) of a config field that lists layers: the shortest pattern that occurs at least
    twice and makes up at least half of the layers. Refused (3) if there is none."""
    for period in range(1, len(listed) // 2 + 1):
        ahead = next(n for n in range(len(listed)) if listed[n + period :] == listed[n : len(listed) - period])
        if max(2 * ahead, ahead + 2 * period) <= len(listed):
            return listed[:ahead], listed[ahead : ahead + period]
    raise Refused(f"{config.name}: {field} names its layers one by one", "name another member of the family")


def nearest_of_family(family: str, limit: int) -> Config | None:
    """Return the published model of a family with the size nearest to `limit` parameters, the smallest below one; None
    if no family has this name."""
    members = [preset_config(one) for one in presets() if spelling(one.family) == spelling(family)]
    sized = [(abs(math.log(count(build(config)) / max(limit, 1))), at) for at, config in enumerate(members)]
    return members[min(sized)[1]] if sized else None


def largest_of_family(
    config: Config, fits: Callable[[Model], bool], tp: int = 1, pp: int = 1, chunks: int = 1, least: int = 1
) -> tuple[Model, int]:
    """Return the largest model of the config's proportions that fits, and its parameters. `fits` must be monotonic in
    size. Heads are multiples of `tp`, layers at least `pp` and `least`, and multiples of `chunks`. Refused if none
    fits, or larger ones would fit than are searched."""
    shape = Proportions(config)
    widths = shape.widths(tp)
    fewest = -(-max(pp, least) // chunks) * chunks

    def whole(layers: int) -> int:
        return max(fewest, round(layers / chunks) * chunks)

    def model_fits(heads: int, layers: int) -> bool:
        return fits(shape.model(heads, whole(layers)))

    def width_fits(at: int) -> bool:
        return model_fits(widths[at], shape.depth(widths[at]))

    none_fits = NapkinError(f"{config.name}: not even its smallest shape fits", "allow more memory", BROKEN)
    if not model_fits(widths[0], fewest):
        raise none_fits
    low, high = 0, 1
    while width_fits(high):
        low, high = high, min(2 * high, len(widths) - 1)
        if low == high:
            raise Refused(
                f"like {config.name}: more than {MOST_HEADS:,} heads would fit, and larger shapes are not searched",
                "ask for fewer GPUs, or leave out --like",
            )
    while high - low > 1:
        middle = (low + high) // 2
        if width_fits(middle):
            low = middle
        else:
            high = middle
    narrow = _deepest(shape, widths[low], fewest, chunks, model_fits)
    wide = _deepest(shape, widths[high], fewest, chunks, model_fits)
    if narrow is None and wide is None:  # fewer layers would fit than the proportions have
        raise none_fits
    model = max((m for m in (narrow, wide) if m is not None), key=count)
    return model, count(model)


def _deepest(
    shape: Proportions, heads: int, fewest: int, chunks: int, fits: Callable[[int, int], bool]
) -> Model | None:
    """Return the deepest model of a width that fits, its depth within SLACK of the proportion; None if none does."""
    usual = shape.depth(heads)
    shallow = max(fewest, math.ceil(usual * (1 - SLACK)) // chunks * chunks)
    deep = max(fewest, int(usual * (1 + SLACK)) // chunks * chunks) + chunks
    if not fits(heads, shallow):
        return None
    while deep - shallow > chunks:
        middle = shallow + (deep - shallow) // chunks // 2 * chunks
        if fits(heads, middle):
            shallow = middle
        else:
            deep = middle
    return shape.model(heads, shallow)


def at_most(limit: int) -> Callable[[Model], bool]:
    """Return whether a model has at most `limit` parameters."""
    return lambda model: count(model) <= limit
