"""Model files that are not a Hugging Face config.json. Meta's and Mistral's params.json, the files of LitGPT, MosaicML,
OLMo, nanotron and nanoGPT are read as the config.json they correspond to (napkin.inputs.foreign_kinds); of others an
error names the file that will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from napkin.errors import Refused
from napkin.inputs import foreign_block
from napkin.inputs import foreign_kinds as kinds
from napkin.inputs.load import printable

EXPORT = "give the config.json of the model's Hugging Face export"


class Foreign(NamedTuple):
    """One kind of file: how it is recognized, and the config.json that it means or the file that will do instead.

    marks    fields that it has
    inside   the keys of the block that has them
    read     makes the fields of a config.json; None: the file does not say all that a model has
    without  fields that change no count, in addition to those that `read` looks at; any other is refused
    """

    name: str
    marks: tuple[str, ...]
    read: Callable[[foreign_block.ForeignBlock], foreign_block.Fields] | None = None
    instead: str = EXPORT
    inside: tuple[str, ...] = ()
    without: str = ""


KINDS = (
    Foreign("ExecuTorch's model config", ("dim", "n_layers", "hidden_dim", "use_scaled_rope")),
    Foreign("DeepSeek's inference config", ("dim", "inter_dim", "n_layers")),
    Foreign(
        "Meta's params.json",
        ("dim", "n_layers", "n_heads", "multiple_of"),
        kinds.meta,
        without="norm_eps rope_theta use_scaled_rope rope_scaling_factor rope_high_freq_factor max_batch_size "
        "quantization_args use_kv_cache",
    ),
    Foreign(
        "Mistral's params.json",
        ("dim", "n_layers", "n_heads", "hidden_dim"),
        kinds.mistral,
        without="norm_eps rope_theta max_batch_size causal yarn llama_4_scaling quantization model_type vision_encoder "
        "multimodal",
    ),
    Foreign(
        "LitGPT's model_config.yaml",
        ("n_embd", "n_layer", "padded_vocab_size"),
        kinds.litgpt,
        without="name org hf_config vocab_size padding_multiple norm_eps rope_base rope_condense_ratio "
        "rope_adjustments rope_interleave gelu_approximate attention_scores_scalar scale_embeddings norm_qk_type "
        "routed_scaling_factor norm_topk_prob final_logit_softcapping rotary_percentage",
    ),
    Foreign("nanoGPT's model_args", ("n_layer", "n_head", "n_embd", "block_size"), kinds.nanogpt, without="dropout"),
    *(
        Foreign(
            "MosaicML's training YAML",
            ("d_model", "n_heads", "n_layers", "name"),
            kinds.mosaic,
            inside=inside,
            without="name init_device init_config attn_impl attn_pdrop attn_uses_sequence_id alibi_bias_max clip_qkv "
            "softmax_scale resid_pdrop emb_pdrop norm_eps use_cache loss_fn use_pad_tok_in_ffn embedding_fraction "
            "fc_type verbose tokenizer_name",
        )
        for inside in (("model",), ("parameters", "model"))
    ),
    *(
        Foreign(
            "a training YAML that names a Hugging Face model",
            ("pretrained_model_name_or_path",),
            instead="ask about that model by its name, or give its config.json",
            inside=inside,
        )
        for inside in (("model",), ("parameters", "model"))
    ),
    Foreign(
        "OLMo's training YAML",
        ("d_model", "n_heads", "n_layers"),
        kinds.olmo,
        inside=("model",),
        without="alibi_bias_max rope_theta rope_full_precision flash_attention attention_dropout residual_dropout "
        "embedding_dropout layer_norm_eps eos_token_id pad_token_id init_device init_fn init_std init_cutoff_factor "
        "precision scale_emb_init emb_init_std block_group_size low_cpu_fsdp",
    ),
    *(
        Foreign("nanotron's training YAML", ("vocab_size", mark), read, inside=("model", "model_config"), without=known)
        for mark, read, known in (
            ("is_llama_config", kinds.nanotron, kinds.OF_NANOTRON),
            ("is_qwen2_config", kinds.nanotron, kinds.OF_NANOTRON),
            ("num_hidden_layers", None, ""),
        )
    ),
    Foreign(
        "GPT-NeoX's training YAML",
        ("num_layers", "hidden_size", "num_attention_heads"),
        instead=f"{EXPORT} (tools/ckpts/convert_neox_to_hf.py writes one)",
    ),
    Foreign("OpenLM's model config", ("hidden_dim", "n_layers", "n_heads", "seq_len")),
    Foreign("a params.json of another architecture than Meta's and Mistral's", ("dim", "n_layers")),
)
"""In the order in which they are tried."""


def translated(data: Mapping[str, Any], where: str) -> tuple[foreign_block.Fields, str] | None:
    """Return the config.json that another project's file means, and a note; None if the file is not recognized.
    Refused (3): one that does not say enough, or that says what napkin does not know."""
    for kind in KINDS:
        block = _block(data, kind.inside)
        if block is None or not all(mark in block for mark in kind.marks):
            continue
        if kind.read is None:
            raise Refused(f"{where}: is {kind.name}, which does not say all that a model has", kind.instead)
        try:
            fields = {field: value for field, value in kind.read(block).items() if value is not None}
            left = block.left({*kind.marks, *kind.without.split()})
            if left:
                raise ValueError(f"napkin does not know what {printable(left[0], 60)} changes")
        except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError) as problem:
            what = "a value of another kind than the format's"
            if isinstance(problem, (ValueError, KeyError)):
                what = problem.args[0] if isinstance(problem, ValueError) else f"no usable {problem}"
            what = printable(what, 100)
            raise Refused(f"{where}: is {kind.name}, and napkin cannot read it: {what}", kind.instead) from None
        return fields, "; ".join((f"read as {fields['model_type']}: {kind.name}", *block.notes))
    return None


def _block(data: Mapping[str, Any], keys: tuple[str, ...]) -> foreign_block.ForeignBlock | None:
    """Return the block at a path of keys; None if there is none."""
    inner: Any = data
    for key in keys:
        inner = inner.get(key) if isinstance(inner, dict) else None
    return foreign_block.ForeignBlock(inner, data) if isinstance(inner, dict) else None
