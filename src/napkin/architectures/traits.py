"""What decoders with softmax attention can do differently: which layers do what, their experts, and all other traits.

A trait that names a field is read from the config; a trait that is a constant is a fact of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.architectures import common
from napkin.architectures.attention import Gate
from napkin.architectures.blocks import RMS, Block, NormStyle
from napkin.architectures.common import FULL, WINDOWED, Switch
from napkin.inputs.model import Config
from napkin.record import record

# --- which layers do what --------------------------------------------------------------------------------------------


Pattern = Callable[[Config, int], Callable[[int], str]]
"""(config, layers) → the attention of layer i, where config.json does not list it."""


def every(period: int, field: str = "") -> Pattern:
    """Windows everywhere but in each `period`-th layer."""

    def pattern(config: Config, layers: int) -> Callable[[int], str]:
        n = (config.optional_integer(field, least=0) if field else period) or period
        return lambda i: WINDOWED if (i + 1) % n else FULL

    return pattern


def first_of(period: int) -> Pattern:
    """Full attention in layers 0, n, 2n, …"""
    return lambda config, layers: lambda i: WINDOWED if i % period else FULL


def everywhere(config: Config, layers: int) -> Callable[[int], str]:
    return lambda i: WINDOWED


def in_windows(config: Config, kinds: Sequence[str], sparse: Sequence[bool]) -> list[bool]:
    """Rotary positions in layers with a window alone."""
    return [kind == WINDOWED for kind in kinds]


def nowhere(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention where layer_types does not say otherwise."""
    return lambda i: FULL


def flint_pattern(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention in the first two layers, in each fourth one from the second on, and in the last."""
    return lambda i: FULL if i < 2 or i % 4 == 1 or i == layers - 1 else WINDOWED


def late(config: Config, layers: int) -> Callable[[int], str]:
    """Windows from layer max_window_layers on."""
    start = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i >= start else FULL


def early_even(config: Config, layers: int) -> Callable[[int], str]:
    """Windows in the even layers before max_window_layers."""
    end = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i % 2 == 0 and i < end else FULL


def exaone_pattern(config: Config, layers: int) -> Callable[[int], str]:
    """sliding_window_pattern: a period, or letters as in LLLG (local and global), repeated."""
    value = config.raw("sliding_window_pattern", required=False)
    if isinstance(value, str) and value and not set(value) - set("LG"):
        return lambda i: WINDOWED if value[i % len(value)] == "L" else FULL
    return every(4, "sliding_window_pattern")(config, layers)


def alternating(config: Config, layers: int) -> Callable[[int], str]:
    """attention_types: [[[global, local], n], …] repeats each pair n times; global and local in turn by default."""
    blocks_of = config.items("attention_types", required=False)
    if blocks_of is None:
        return lambda i: WINDOWED if i % 2 else FULL
    kinds: list[str] = []
    for block in blocks_of:
        try:
            names, count = block
            kinds += [{"global": FULL, "local": WINDOWED}[name] for name in names] * min(count, layers)
        except (TypeError, ValueError, KeyError):
            raise config.wrong("attention_types", "is not a list of [[global, local], n]") from None
    if len(kinds) != layers:
        raise config.wrong("attention_types", f"lists {len(kinds)} layers of {layers}")
    return lambda i: kinds[i]


Sparse = Callable[[Config, int], Callable[[int], bool]]
"""(config, layers) → whether layer i has experts."""


def all_sparse(config: Config, layers: int) -> Callable[[int], bool]:
    return lambda i: True


def after_first(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first k layers."""
    config.must_be("moe_layer_freq", 1)
    dense = config.integer("first_k_dense_replace", least=0)
    return lambda i: i >= dense


def after_dense(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first num_dense_layers."""
    dense = config.integer("num_dense_layers", least=0)
    return lambda i: i >= dense


def stepped(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer, but those listed as dense."""
    step = config.integer("decoder_sparse_step")
    dense = common.indices(config, "mlp_only_layers", layers)
    return lambda i: i not in dense and (i + 1) % step == 0


def stepped_after_two(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer, but those listed as dense; the first two are where no list says it."""
    sparse = stepped(config, layers)
    if config.items("mlp_only_layers", required=False) is not None:
        return sparse
    return lambda i: i > 1 and sparse(i)


def between(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer from a first to a last one."""
    start, step = config.integer("moe_layer_start_index", least=0), config.integer("moe_layer_interval")
    end = config.integer("moe_layer_end_index", least=-1)
    last = layers - 1 if end == -1 else end
    return lambda i: start <= i <= last and (i + 1) % step == 0


def listed(config: Config, layers: int) -> Callable[[int], bool]:
    """Layers listed in moe_layers, or each n-th one."""
    if config.has("moe_layers"):
        config.ignore("interleave_moe_layer_step")
        chosen = common.indices(config, "moe_layers", layers)
        return lambda i: i in chosen
    step = config.integer("interleave_moe_layer_step")
    return lambda i: (i + 1) % step == 0


def by_list(config: Config, layers: int) -> Callable[[int], bool]:
    """As mlp_layer_types lists them, or every layer."""
    if config.items("mlp_layer_types", required=False) is None:
        return all_sparse(config, layers)
    return by_type(config, layers)


def by_type(config: Config, layers: int) -> Callable[[int], bool]:
    """As mlp_layer_types lists them, or dense for the first k (1 where the class does not say)."""
    config.must_be("moe_layer_freq", 1)
    given = config.items("mlp_layer_types", required=False)
    if given is None:
        dense = config.optional_integer("first_k_dense_replace", least=0)
        first = 1 if dense is None else dense
        return lambda i: i >= first
    return listed_types(config, layers, given)


def listed_types(config: Config, layers: int, given: Sequence[object]) -> Callable[[int], bool]:
    """As mlp_layer_types lists them."""
    config.ignore("first_k_dense_replace")
    if len(given) != layers or set(map(str, given)) - {"sparse", "dense"}:
        raise config.wrong("mlp_layer_types", f"is not a list of {layers} times sparse or dense")
    return lambda i: given[i] == "sparse"


# --- traits ----------------------------------------------------------------------------------------------------------


SPARSEMIXER_CHOOSES = 2
"""Experts that SparseMixer chooses for a token, one after the other (Phi-3.5-MoE; Liu et al. 2024, GRIN MoE,
arXiv:2409.12136): its code takes no other number."""


def unchanged(block: Block, width: int) -> Block:
    """Return the block as it is."""
    return block


@record
class Mixture:
    """The experts of a model_type.

    experts, top_k, inner   fields            where         which layers have them
    shared   "" none; "count": `shared_field` experts of the routed size, side by side; "size": one of that width;
             "like": one of the routed size; "mlp": the dense layers' own
    balances output_router_logits adds a loss on how evenly the experts are used
    jitter   the field that says how strong the noise is that multiplies the tokens, `jitters` times
    softcap  the field that says where the router's logits are cut softly; 0 where they are not
    scaled, wide_product   as scaled and upcast of blocks.moe
    with_shared   (block, width) → the mixture with shared experts as this model has it
    """

    experts: str = "num_local_experts"
    top_k: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"
    where: Sparse = all_sparse
    shared: str = ""
    shared_field: str = ""
    shared_least: int = 0
    shared_gate: bool = False
    score: str = "softmax"
    normalise: Switch = False
    upcast: bool = False
    balanced: str = ""
    router_bias: bool = False
    bias: bool = False
    function: str = ""
    weighted_input: bool = False
    fused_shared: bool = False
    jitter: str = ""
    jitters: int = 1
    balances: bool = False
    softcap: str = ""
    scaled: bool = False
    with_shared: Callable[[Block, int], Block] = unchanged
    wide_product: bool = False


Rotates = Callable[[Config, Sequence[str], Sequence[bool]], list[bool]]
"""(config, each layer's attention, whether it has experts) → which layers have rotary positions."""


@record
class Traits:
    """What a model_type does differently from Llama (whose traits are the defaults). `square`: the output projection is
    h × h, so that heads · head_dim must be h. `tempered`: the field that says whether queries of layers without rotary
    positions are multiplied by a factor of their position (or that they are). `rotates`: which layers have rotary
    positions, by their attention as it is listed; the size of a window must then be stated where one is listed.
    `thetas`: the field that lists each layer's rotary base, 0 where it has no rotary positions. `last_out_bias`: the
    last layer's output projection alone has a bias. `inner_times`: the field that says how many times h the
    feed-forward network is wide."""

    norm: NormStyle = RMS
    arrangement: str = "pre"
    final_norm: bool = True
    bias: Switch = False
    out_bias: Switch = False
    last_out_bias: bool = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    kv_heads: str = "num_key_value_heads"
    own_head_dim: bool = True
    square: bool = False
    inner: str = "intermediate_size"
    inner_default: int = 0
    inner_times: str = ""
    function: tuple[str, ...] = ("hidden_act",)
    gated: bool = True
    function_is: str = ""
    fused: bool = False
    fused_mlp: bool = False
    rope: str = "half"
    rope_share: float = 1.0
    rope_upcast: bool = False
    no_rope_every: str = ""
    thetas: str = ""
    rope_in_windows_only: bool = False
    qk_norm: NormStyle | None = None
    qk_norm_switch: Switch = True
    qk_norm_over: str = "head"
    norm_after_rope: bool = False
    norm_needs_rope: bool = False
    rotates: Rotates | None = None
    gate: Gate | None = None
    value_dim: str = ""
    value_scale: bool = False
    tempered: Switch = ""
    clamp: Switch = False
    windows: Pattern | None = None
    window_switch: Switch = True
    window_field: str = "sliding_window"
    sinks: bool = False
    upcast: Switch = False
    indexed: bool = False
    groups: int = 1
    spread: bool = False
    softcap: str = ""
    final_softcap: str = ""
    wide_final_cap: bool = False
    position: str = "none"
    positions_offset: int | None = None
    embedding_scale: Switch = False
    embedding_norm: NormStyle | None = None
    logit_scale: Switch = False
    residual_scale: bool = False
    residual_after_norm: Switch = False
    weighted: bool = False
    parallel_switch: str = ""
    sandwich_switch: str = ""
    inner_norm: NormStyle | None = None
    parallel_norms: int = 1
    wide_product: bool = False
    dropout: tuple[bool, bool] = (False, False)
    dropout_sum: bool = False
    embedding_dropout: bool = False
    activation_dropout: bool = False
    moe: Mixture | None = None
    mtp: bool = False
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ignored: tuple[str, ...] = ()
