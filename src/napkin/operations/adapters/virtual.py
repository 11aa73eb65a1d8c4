"""Virtual tokens in front of a frozen network's own: prompt tuning, p-tuning and prefix tuning, as peft 0.21 has them
(peft/tuners/prompt_tuning/model.py, p_tuning/model.py, prefix_tuning/model.py; peft_model.py, get_prompt)."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.autograd.tensors import BYTES, Tensor
from napkin.errors import Refused
from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind, AdapterProduct
from napkin.operations.roles import TOKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.base import Operation
    from napkin.operations.lowering import Lowering
    from napkin.operations.model import Model
    from napkin.operations.tuning import Tuning


class PromptTuning(AdapterKind):
    """Trained embeddings of n tokens before those of the sequence (Lester et al. 2021, arXiv:2104.08691). The layer is
    the token embedding; `size`: n."""

    name, title = "prompt", "prompt tuning"
    sized, measure, usual = "virtual-tokens", "virtual tokens", 0

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "embedding", (at.size, at.d_out)


class PTuning(PromptTuning):
    """Prompt tuning through three linear layers as wide as the network, whose inputs the n embeddings are (Liu et al.
    2021, arXiv:2103.10385; PromptEncoder with encoder_reparameterization_type MLP and its default width)."""

    name, title = "p-tuning", "p-tuning"

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().weights(at)
        for number in range(3):
            yield f"mlp_head.{2 * number}.weight", (at.d_out, at.d_out)
            yield f"mlp_head.{2 * number}.bias", (at.d_out,)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        for number in range(3):
            yield AdapterProduct(f"mlp_head.{2 * number}", at.size, at.d_out, at.d_out)


class PrefixTuning(AdapterKind):
    """Trained keys and values of n tokens before those of the sequence, in each layer (Li and Liang 2021,
    arXiv:2101.00190), without a projection. The layer is attention: d_in, queries per token; d_out, keys and values per
    token."""

    name, title = "prefix", "prefix tuning"
    sized, measure, usual = "virtual-tokens", "virtual tokens", 0

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "embedding", (at.size, at.d_out)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        """Scores and values of all tokens with the n keys, for all heads."""
        yield AdapterProduct("scores", 0, at.d_in, at.size)
        yield AdapterProduct("values", 0, at.size, at.d_in)


KINDS: dict[str, AdapterKind] = {one.name: one for one in (PromptTuning(), PTuning(), PrefixTuning())}
BEFORE_LAYERS = (PromptTuning.name, PTuning.name)
"""Kinds whose virtual tokens pass through the whole network as the others do."""


def virtual_on(op: Operation, tuning: Tuning) -> tuple[AdapterKind, AdaptedLayer] | None:
    """Return the kind of the virtual tokens that an operation reads, and the operation as they see it."""
    kind = KINDS.get(tuning.method)
    if kind is None:
        return None
    if tuning.method in BEFORE_LAYERS:
        table = next(iter(op.tables()), None) if op.embeds() == TOKEN else None
        return None if table is None else (kind, AdaptedLayer(table.shape[0], table.shape[1], tuning.rank))
    core = op.attends()
    if core is None:
        return None
    return kind, AdaptedLayer(core.heads * core.v_dim, core.kv_heads * (core.qk_dim + core.v_dim), tuning.rank)


def with_virtual_tokens(run: Lowering, op: Operation, out: Tensor) -> Tensor:
    """Return the embeddings of a sequence whose first tokens are virtual: a copy, which saves nothing. What p-tuning's
    layers read is as small as they are."""
    tuning = run.implementation.tuning
    found = None if tuning is None or tuning.method not in BEFORE_LAYERS else virtual_on(op, tuning)
    if tuning is None or found is None:
        return out
    tape = run.tape
    outer, tape.frozen = tape.frozen, False
    trained = found[0].count(found[1]) * BYTES[tuning.kept_in or tape.compute]
    out = tape.record("cat", (out,), tape.new(out.count, out.dtype, "with virtual tokens"), weight=trained)
    tape.frozen = outer
    return out


def with_prefix(run: Lowering, op: Operation, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values with the prefix's before those of each sequence: copies, next to the prefix,
    whose views the cache refers to until the pass is over."""
    tuning = run.implementation.tuning
    found = None if tuning is None or tuning.method != PrefixTuning.name else virtual_on(op, tuning)
    if tuning is None or found is None:
        return qkv
    tape, (kind, at) = run.tape, found
    outer, tape.frozen = tape.frozen, False
    elements = run.b * at.size * at.d_out
    trained = kind.count(at) * BYTES[tuning.kept_in or tape.compute]
    prefix = tape.new(elements, qkv[1].dtype, "prefix")
    prefix = tape.record("embedding", (), prefix, (prefix,), weight=trained)
    keys, values = (
        tape.record("cat", (t, prefix), tape.new(t.count + elements // 2, t.dtype, "with prefix"), broadcast=True)
        for t in qkv[1:]
    )
    tape.frozen = outer
    return qkv[0], keys, values


def check_virtual(model: Model, method: str) -> None:
    """Raise an error for networks whose virtual tokens are not modeled."""
    named = f"--adapter {method}"
    if len(model.stacks) > 1 or model.vision is not None:
        raise Refused(f"{named}: not modeled for models of several parts", "--adapter lora")
    if method in BEFORE_LAYERS:
        return
    cores = [core for _, _, layer in model.stacks[-1].kinds() for op in layer.operations if (core := op.attends())]
    shapes = {(core.kv_heads, core.qk_dim, core.v_dim, core.heads) for core in cores}
    if any(qk != v or qk * heads != model.hidden for _, qk, v, heads in shapes) or len(shapes) != 1:
        raise Refused(
            f"{named}: {model.name}: peft makes keys and values of hidden size / heads for every layer, which this "
            "model does not have",
            "--adapter prompt or p-tuning",
        )
