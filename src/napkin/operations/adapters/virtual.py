"""Virtual tokens in front of a frozen network's own: prompt tuning, p-tuning and prefix tuning, as peft 0.21 has them
(peft/tuners/prompt_tuning/model.py, p_tuning/model.py, prefix_tuning/model.py; peft_model.py, get_prompt)."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.autograd.tensors import BYTES, Tensor
from napkin.elementwise import Number
from napkin.errors import Refused
from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind, AdapterProduct
from napkin.operations.implementations import Implementation
from napkin.operations.roles import TOKEN
from napkin.operations.tuning import PREFIX, Tuning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.base import Operation
    from napkin.operations.lowering import Lowering
    from napkin.operations.model import Model


QKV = tuple[Tensor, Tensor, Tensor]


class VirtualTokens(AdapterKind):
    """Tokens in front of those of a sequence; `size`: their number n.

    embedded  they pass through the whole network as the others do"""

    sized, measure, usual = "virtual-tokens", "virtual tokens", 0
    embedded = True

    def words(self, size: int) -> str:
        return f"{self.title}, {size:,} {self.measure}"

    def on(self, op: Operation, implementation: Implementation, tuning: Tuning) -> AdaptedLayer | None:
        """Return the token embedding."""
        table = next(iter(op.tables()), None) if op.embeds() == TOKEN else None
        return None if table is None else AdaptedLayer(table.shape[0], table.shape[1], tuning.rank)

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "embedding", (at.size, at.d_out)

    def check(self, model: Model) -> None:
        """Raise an error for networks whose virtual tokens are not modeled."""
        if len(model.stacks) > 1 or model.vision is not None:
            raise Refused(f"--adapter {self.name}: not modeled for models of several parts", "--adapter lora")


class PromptTuning(VirtualTokens):
    """Trained embeddings of n tokens before those of the sequence (Lester et al. 2021, arXiv:2104.08691)."""

    name, title = "prompt", "prompt tuning"


class PTuning(VirtualTokens):
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


class PrefixTuning(VirtualTokens):
    """Trained keys and values of n tokens before those of the sequence, in each layer (Li and Liang 2021,
    arXiv:2101.00190), without a projection. The layer is attention: d_in, queries per token; d_out, keys and values per
    token."""

    name, title = PREFIX, "prefix tuning"
    embedded = False

    def on(self, op: Operation, implementation: Implementation, tuning: Tuning) -> AdaptedLayer | None:
        """Return the attention core."""
        core = op.attends()
        if core is None:
            return None
        return AdaptedLayer(core.heads * core.v_dim, core.kv_heads * (core.qk_dim + core.v_dim), tuning.rank)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        """Scores and values of all tokens with the n keys, for all heads."""
        yield AdapterProduct("scores", 0, at.d_in, at.size)
        yield AdapterProduct("values", 0, at.size, at.d_in)

    def check(self, model: Model) -> None:
        super().check(model)
        cores = [core for _, _, layer in model.stacks[-1].kinds() for op in layer.operations if (core := op.attends())]
        shapes = {(core.kv_heads, core.qk_dim, core.v_dim, core.heads) for core in cores}
        if any(qk != v or qk * heads != model.hidden for _, qk, v, heads in shapes) or len(shapes) != 1:
            raise Refused(
                f"--adapter {self.name}: {model.name}: peft makes keys and values of hidden size / heads for every "
                "layer, which this model does not have",
                "--adapter prompt or p-tuning",
            )


VIRTUAL_TOKENS: dict[str, VirtualTokens] = {one.name: one for one in (PromptTuning(), PTuning(), PrefixTuning())}


def with_virtual_tokens(run: Lowering, kind: AdapterKind, at: AdaptedLayer, out: Tensor) -> Tensor:
    """Return the embeddings of a sequence whose first tokens are virtual: a copy, which saves nothing. What p-tuning's
    layers read is as small as they are."""
    tape = run.tape
    outer, tape.frozen = tape.frozen, False
    trained = _trained_bytes(run, kind, at)
    out = tape.record("cat", (out,), tape.new(out.count, out.dtype, "with virtual tokens"), weight=trained)
    tape.frozen = outer
    return out


def with_prefix(run: Lowering, kind: AdapterKind, at: AdaptedLayer, qkv: QKV) -> QKV:
    """Return queries, keys and values with the prefix's before those of each sequence: copies, next to the prefix,
    whose views the cache refers to until the pass is over."""
    tape = run.tape
    outer, tape.frozen = tape.frozen, False
    elements = run.b * at.size * at.d_out
    prefix = tape.new(elements, qkv[1].dtype, "prefix")
    prefix = tape.record("embedding", (), prefix, (prefix,), weight=_trained_bytes(run, kind, at))
    keys, values = (
        tape.record("cat", (t, prefix), tape.new(t.count + elements // 2, t.dtype, "with prefix"), broadcast=True)
        for t in qkv[1:]
    )
    tape.frozen = outer
    return qkv[0], keys, values


def _trained_bytes(run: Lowering, kind: AdapterKind, at: AdaptedLayer) -> Number:
    """Return the bytes of the trained tensors."""
    tuning = run.implementation.tuning
    assert tuning is not None
    return kind.count(at) * BYTES[tuning.kept_in or run.tape.compute]
