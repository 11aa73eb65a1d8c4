"""Model descriptions: Meta's and Mistral's params.json, Primus' model files."""

from __future__ import annotations

from napkin.inputs.foreign import translated
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole
from napkin.inputs.megatron_shape import config_of


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is the description of a model."""
    meta = source.has_all("dim", "n_layers")
    primus = source.has_any("extends", "num_layers") and source.has_any("hidden_size", "extends", "tokenizer_type")
    return source.is_mapping and (
        meta or (primus and ("extends" in source or ("num_layers" in source and "model_type" not in source)))
    )


def _read(reading: Reading) -> None:
    if "dim" in reading.source:
        take_meta_sizes(reading)
        data = reading.source.document.data
        reading.build(lambda: (translated(data, reading.source.name) or (None, ""))[0])
        return
    model.take_shape(reading)
    if "swiglu" not in reading.source:
        reading.shape.pop("gated", None)
    if "untie_embeddings_and_output_weights" not in reading.source:
        reading.shape.pop("tied", None)
    if "layers" in reading.shape:
        reading.describe("num_layers", "hidden_size", "num_attention_heads")
    else:
        reading.ask("model", "extends")
    if "extends" in reading.source:
        reading.omit("extends", "the rest is in another file")
    else:
        flags = {
            key.replace("_", "-"): str(reading.source.plain(key))
            for key in model.SHAPE.split()
            if reading.source.plain(key) not in (None, False)
        }
        reading.build(lambda: config_of(flags, reading.read("max_position_embeddings", whole)))


def take_meta_sizes(
    reading: Reading, multiple: int | None = None, tied: str = "tied_embeddings|tie_word_embeddings"
) -> None:
    """Read the sizes.

    Meta rounds the MLP's width up to multiple_of; Mistral gives it. A vocabulary of -1 is the tokenizer's.
    multiple  multiple_of where the file does not state it     tied  keys of tied embeddings, separated by |
    """
    for name, key in (
        ("layers", "n_layers"),
        ("hidden", "dim"),
        ("heads", "n_heads"),
        ("kv_heads", "n_kv_heads"),
        ("head_dim", "head_dim"),
        ("ffn", "hidden_dim"),
        ("experts", "moe.num_experts"),
        ("top_k", "moe.num_experts_per_tok"),
    ):
        reading.dimension(name, reading.read(key, whole), key)
    if "kv_heads" not in reading.shape and "heads" in reading.shape:
        reading.dimension("kv_heads", reading.shape["heads"], "n_kv_heads")
    multiple, width = reading.read("multiple_of", whole) or multiple, reading.shape.get("hidden")
    if "ffn" not in reading.shape and multiple and width:
        inner = int(2 * 4 * width / 3)
        factor = reading.read("ffn_dim_multiplier", number)
        inner = int(factor * inner) if factor is not None else inner
        reading.dimension("ffn", multiple * -(-inner // multiple), "multiple_of", "ffn_dim_multiplier", "dim")
    rows = reading.read("vocab_size", lambda value: None if value == -1 else whole(value))
    reading.dimension("vocab", rows, "vocab_size")
    if rows is None and "vocab_size" in reading.source:
        reading.omit("vocab_size", "-1 means the tokenizer's vocabulary, which is not in the file")
    if "multiple_of" in reading.source or "ffn" in reading.shape:
        reading.dimension("gated", True)
        reading.dimension("tied", bool(reading.read(tied, flag)), tied.split("|")[0])
    reading.describe("n_layers", "dim", "n_heads", "multiple_of", "hidden_dim")


FORMAT = LaunchFormat(
    "model-description",
    "the description of a model",
    "meta-llama/llama-models; mistralai/mistral-inference args.py; AMD-AGI/Primus primus/configs/models",
    is_this,
    rules=(
        KeyRule(
            "dim n_layers n_heads n_kv_heads head_dim hidden_dim multiple_of ffn_dim_multiplier vocab_size moe "
            f"{model.SHAPE}",
            "model",
            "sizes; Meta's MLP is 8/3 of the hidden size, rounded up to multiple_of",
            _read,
        ),
    ),
    ignored="""norm_eps rope_theta use_scaled_rope rope_scaling_factor max_batch_size max_seq_len bases tokenizer_*
        model_type position_embedding_type rotary_base use_rotary_position_embeddings causal yarn""",
    not_modelled={
        "lora": "adapters of the published weights",
        "sliding_window": "sliding-window attention",
        "quantization_args": "quantized weights",
        "moe": "experts",
        "vision_encoder": "a vision tower",
    },
)
