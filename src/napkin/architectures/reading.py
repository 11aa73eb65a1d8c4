"""Read the fields of a config.json that many architectures share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from napkin.inputs.class_facts import registered
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 1_000_000
"""More layers than this are a typing error."""

FUNCTIONS = (
    "silu",
    "swish",
    "gelu",
    "gelu_10",
    "gelu_accurate",
    "gelu_fast",
    "gelu_new",
    "gelu_python",
    "gelu_python_tanh",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "relu",
    "relu2",
    "relu6",
    "leaky_relu",
    "mish",
    "sigmoid",
    "tanh",
    "laplace",
    "linear",
)
"""Activation functions without parameters."""

WINDOWED, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"

ALONE = "only the language model of"
"""How a note begins that what a multimodal model has next to text is not counted."""

Switch = bool | str
"""A fact of the class, or the name of the field that states it."""

LOADED_IN_BOTH = (
    "in 16 bits the class of transformers 5.24 runs after model.to(dtype), as it is counted; loaded with a 16-bit "
    "dtype, it keeps some of its parameters in fp32, and its forward pass fails on the two types"
)
"""Of a class that creates parameters in fp32 whatever the dtype that it is loaded in."""


def depth(config: Config, field: str = "num_hidden_layers") -> int:
    """Read the number of layers; never from a default."""
    layers = config.integer(field, default=False)
    if layers > DEEPEST:
        raise config.wrong(field, f"{layers:,} layers are more than {DEEPEST:,}")
    return layers


def width(config: Config, field: str = "hidden_size") -> int:
    """Read h; never from a default."""
    return config.integer(field, default=False)


def on(config: Config, switch: Switch) -> bool:
    """Read a switch; a field that is null counts as off."""
    if isinstance(switch, bool):
        return switch
    if config.raw(switch, required=False) is None and not config.has(switch) and switch in config.defaults:
        return False
    return config.flag(switch)


def head_size(config: Config, hidden: int, heads: int, own: bool = True, *, floor: bool = False) -> int:
    """Read d: the `head_dim` field if the class reads one (`own`), else h / a, which must divide unless the class
    rounds it down (`floor`)."""
    if own:
        stated = config.optional_integer("head_dim")
        if stated is not None:
            return stated
    if floor and hidden >= heads:
        return config.derived("head_dim", hidden // heads)
    computed = config.divides("num_attention_heads", hidden, heads, "(hidden_size)")
    if not own and config.has("head_dim") and config.integer("head_dim") != computed and config.matters("head_dim"):
        raise config.refuse("head_dim", f"is not hidden_size / num_attention_heads = {computed}, which this class uses")
    return config.derived("head_dim", computed) if own else computed


def kv_heads_of(config: Config, heads: int, field: str = "num_key_value_heads") -> int:
    """Read the key/value heads: as many as query heads where null or unknown to the class; they must divide the query
    heads."""
    stated = config.optional_integer(field)
    if stated is None:
        return config.derived(field, heads)
    if heads % stated:
        raise config.wrong(field, f"{heads} attention heads are not a multiple of {stated} key/value heads")
    return stated


def rotary_dim(config: Config, head_dim: int, part: float) -> int:
    """Read how many elements of a head rotate: by the config's partial_rotary_factor or rotary_pct (`part` if
    neither)."""
    stated = config.optional_integer("rotary_dim")
    if stated is not None:
        return min(stated, head_dim)
    fraction: object = None
    for block in ("rope_parameters", "rope_scaling"):
        inside = config.raw(block, required=False)
        if isinstance(inside, dict):
            fraction = inside.get("partial_rotary_factor", fraction)
    for field in ("partial_rotary_factor", "rotary_pct"):
        if config.has(field):
            fraction = config.real(field)
    return in_pairs(config, head_dim, part if fraction is None else fraction)


def in_pairs(config: Config, head_dim: int, fraction: object) -> int:
    """Return a part of a head's elements, rounded up to pairs."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise config.wrong("partial_rotary_factor", f"{printable(repr(fraction), 60)} is not a fraction from 0 to 1")
    return -2 * (-int(head_dim * fraction) // 2)  # in pairs


def rope_of(config: Config, kind: str, otherwise: dict[str, Any] | None) -> dict[str, Any] | None:
    """Read the rotary positions that rope_parameters holds for a layer type; None for none. `otherwise`: where the
    field is omitted."""
    block = config.mapping("rope_parameters", required=False)
    if block is None:
        return otherwise
    if kind not in block:
        raise config.refuse("rope_parameters", f"has no entry for {kind}")
    entry = block[kind]
    if entry is not None and not isinstance(entry, dict):
        raise config.wrong("rope_parameters", f"{printable(repr(entry), 60)} is not a mapping")
    return entry


def activation(config: Config, *fields: str) -> str:
    """Read the activation function's name, from the first of `fields` that says it."""
    field = next((f for f in fields if config.has(f)), None)
    if field is None:
        field = next((f for f in fields if config.defaults.get(f) is not None), fields[0])
    config.ignore(*fields)
    return config.text(field, known=FUNCTIONS)


def layer_types(config: Config, layers: int, otherwise: Callable[[int], str]) -> Sequence[str]:
    """Read the attention of each layer as config.json lists it, or as the class lays it out if it does not."""
    given = listed(config, "layer_types", layers, (WINDOWED, FULL, CHUNKED))
    return [otherwise(i) for i in range(layers)] if given is None else given


def indices(config: Config, field: str, layers: int) -> frozenset[int]:
    """Read a list of layer indices; empty where null. One beyond the last layer names none, as the classes read it."""
    given = config.items(field, required=False) or []
    for entry in given:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
            raise config.wrong(field, f"{printable(repr(entry), 60)} is not the number of a layer, from 0")
    return frozenset(entry for entry in given if entry < layers)


def tied(config: Config) -> bool:
    """Read whether the embeddings are tied."""
    return config.flag("tie_word_embeddings")


def never_tied(config: Config) -> None:
    """Read tie_word_embeddings if the class has nothing to tie: its head is its own whatever the file says."""
    if config.flag("tie_word_embeddings", otherwise=False):
        config.notes.append("tie_word_embeddings has no effect: the class has a separate head")
        config.restate("tie_word_embeddings", False)


Only = tuple[tuple[str, tuple[object, ...]], ...]
"""Fields of config.json, each with the values that napkin knows of it."""

HEADS = ("LMHead", "Generation", "Pretraining", "PreTraining", "Text2Text", "BlockDiffusion")
"""Words that name a language model's head, in a class's name or at its end."""
LANGUAGE_HEADS = (*HEADS, "CausalLM", "MaskedLM", "PrefixLM", "ModelFor", "ModelingFor")
"""Words in the names of classes with a language model's head. LM alone is in names of models as well: SmolLM3Model."""
HEAD_ENDINGS = (*HEADS, "LM", "LMHeadModel")
"""Ends of the names of classes with a language model's head."""
BODIES = ("Model", "Encoder", "Decoder")
"""Ends of the names of classes without a head."""
BARE = ("Model", "EncoderModel")
"""What heads.py writes for the body in front of a head."""


def class_names(config: Config) -> list[str]:
    """Return the classes named under `architectures`. Refused (3): one that transformers does not have for a model_type
    that it has, if the name does not say that it is a language model: a draft model of speculative decoding, say."""
    names: list[str] = []
    for name in config.items("architectures", required=False) or []:
        if not isinstance(name, str):
            raise config.wrong("architectures", f"{printable(repr(name), 60)} is not the name of a class")
        names.append(name)
        if not _is_known(name) and registered(config.model_type):
            raise config.refuse(
                "architectures",
                f"transformers has no class {printable(name, 60)}, so napkin does not know what it holds",
                f"remove the field to count the language model of {printable(config.model_type, 40)}",
            )
    return names


def _is_known(name: str) -> bool:
    """Return whether a class's name says what it holds: the language model's head, or nothing behind a body that
    transformers has."""
    if name.endswith(HEAD_ENDINGS):
        return True
    if name.endswith(BODIES):
        from napkin._tables.class_heads import CLASS_BODIES

        bare = name.removeprefix("TF").removeprefix("Flax").lower()
        return name in BARE or f" {bare} " in f" {CLASS_BODIES.lower()} "
    return not any(word in name for word in LANGUAGE_HEADS)


def integers(config: Config, field: str) -> list[int]:
    """Read a list of whole numbers above zero."""
    found = config.items(field) or []
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**6:
            raise config.wrong(field, f"{printable(repr(value), 60)} is not a whole number above zero")
    if not found:
        raise config.wrong(field, "is empty")
    return found


def restrict(config: Config, only: Only, ignored: tuple[str, ...]) -> None:
    """Refuse fields that say what a class of this family does not do, and ignore those that change no count.

    only  (field, the values that napkin knows of it)"""
    for field, values in only:
        config.must_be(field, *values)
    config.ignore(*ignored)


def headless(config: Config) -> bool:
    """Read whether the class has no head: `architectures` names such a class, or only a class around it has a head. A
    class with another head is refused."""
    tie = "tie_word_embeddings"
    if tie in config.defaults and config.defaults[tie] is None and not config.has(tie):
        config.notes.append(f"{printable(config.model_type, 40)} has no head of its own: none is counted")
        return True
    heads = class_names(config)
    if not heads or any(name.endswith("LM") or word in name for name in heads for word in LANGUAGE_HEADS):
        return False
    other = [n for n in heads if not n.endswith(BODIES)]
    if other:
        raise config.refuse(
            "architectures",
            f"{printable(other[0], 60)} has another head than a language model's",
            "name the class with the language model's head, or remove the field",
        )
    config.notes.append(f"{printable(heads[0], 60)} has no head: none is counted")
    config.ignore(tie)
    return True


def chosen_experts(config: Config, experts: str, top_k: str, also: int = 0) -> tuple[int, int]:
    """Read how many experts there are (and `also` more without weights), and how many a token chooses of all."""
    total, chosen = config.integer(experts) + also, config.integer(top_k)
    if chosen > total:
        raise config.wrong(top_k, f"chooses {chosen} of {total} experts")
    return total, chosen


def routing_groups(config: Config, experts: int) -> tuple[int, int]:
    """Read in how many groups the experts are, and in how many of them those of a token (DeepSeek-V2, arXiv:2405.04434,
    section 2.2.2; DeepSeek-V3, arXiv:2412.19437, section 2.1.2); (1, 1) where the file states no limit."""
    if not (config.has("n_group") and config.has("topk_group")):
        config.ignore("n_group", "topk_group")
        return 1, 1
    groups, chosen = config.integer("n_group"), config.integer("topk_group")
    return (groups, chosen) if chosen < groups and experts % groups == 0 else (1, 1)


def balance_loss(config: Config, experts: int, top_k: int, each: int = 1) -> Operation | None:
    """Return the loss on how evenly the experts are used, where output_router_logits adds it."""
    if not config.flag("output_router_logits", otherwise=False):
        return None
    from napkin.operations.router import BalanceLoss

    return BalanceLoss("balance_loss", (), experts, top_k, each=each)


def listed(config: Config, field: str, layers: int, known: Collection[str]) -> list[str] | None:
    """Read a list with one entry per layer, each of them known; None if the field is omitted."""
    given = config.items(field, required=False)
    if given is None:
        return None
    return checked(config, field, given, layers, known)


def checked(config: Config, field: str, given: Sequence[object], layers: int, known: Collection[str]) -> list[str]:
    """Return the entries of a list, one per layer. Refused (3): one that is not known."""
    if len(given) != layers:
        raise config.wrong(field, f"has {len(given)} entries for {layers} layers")
    for entry in given:
        if entry not in known:
            raise config.refuse(field, f"napkin does not know {printable(repr(entry), 60)}")
    return [str(entry) for entry in given]


LAYER_WORDS = {
    "layer_types": (
        "full_attention",
        "sliding_attention",
        "chunked_attention",
        "window_attention",
        "indexed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "minimax_m3_sparse",
        "conv",
        "moe",
        "hybrid",
        "hybrid_sliding",
        "reference_sliding_attention",
        "linear_attention",
        "sparse",
        "dense",
        "mamba",
        "attention",
        "deepseek_sparse_attention",
        "qwen_sparse_attention",
    ),
    "mlp_layer_types": ("sparse", "dense"),
}
"""What every configuration class of transformers accepts in these lists, under today's names and earlier ones."""


def check_layer_lists(config: Config, layers: int) -> None:
    """Check lists with one entry per layer that nothing has read: every class rejects a wrong length or word, also one
    that does not use them."""
    for field, known in LAYER_WORDS.items():
        if field not in config.origins and config.fields.get(field) is not None:
            checked(config, field, config.items(field) or (), layers, known)
