"""What the code around a training step's operations holds, where codes differ: it decides which bytes are live beside
what autograd keeps, in the forward pass, between the passes, and for how long.

Read from the code itself: Hugging Face transformers 5.23.0 (src/transformers/models/<model type>), nanoGPT's model.py.
"""

from __future__ import annotations

from napkin.record import record, replace

ROTARY = ("rotary", "fp32")
IDS = ("ids", "int64")


@record
class Frame:
    """Choices of one model's code.

    buffers      tensors beside the parameters that the model holds, each (what, number format or "" for the weights'):
                 rotary: inverse frequencies, twice, for each kind of table · spare rotary: those that no layer reads ·
                 angles: sines and cosines of every position, each layer its own · masks: a causal mask of the longest
                 sequence, each layer its own · mask: one for all layers · ids: of every position · sines: of every
                 position and two more, each stack its own · logits: one for each token of the vocabulary · scale: the
                 factor of each table's embeddings · factors: two of layers' own inputs · scalar: one for each layer ·
                 scalars: two for each layer
    norms_last   a layer registers its norms behind its products
    closure      what the code of a checkpointed layer refers to: tables (rotary), ids (one row of positions), each
                 ids (a row a sequence), masks (written-out attention's, one for each window), mask (one for all),
                 alibi (slopes times positions)
    cuts         query, key and value are cut out of their joined product one by one
    weights_late attention's weights reach the layer, which holds them until it returns
    norms_inline query and key are normalised as each is made, before the next product
    embeddings   the model's code holds what it looked up until the layers are through: "layers", or the loss: "loss"
    """

    buffers: tuple[tuple[str, str], ...] = (ROTARY,)
    norms_last: bool = True
    closure: tuple[str, ...] = ("tables", "ids", "masks")
    cuts: bool = False
    weights_late: bool = True
    norms_inline: bool = False
    embeddings: str = "layers"


_HF = Frame()
_SCALED = replace(_HF, buffers=(ROTARY, ("scale", "")))
_LAYERED = replace(_HF, buffers=(ROTARY, ("scale", ""), ("scalar", "")))
_STREAMED = replace(_LAYERED, buffers=(*_LAYERED.buffers, ("factors", "")))
_BETWEEN = replace(_HF, norms_last=False)
_ANGLES = replace(_BETWEEN, buffers=(("angles", "fp32"),))
_SPARE = replace(_HF, buffers=(ROTARY, ("spare rotary", "fp32")))
_GPT2 = replace(_BETWEEN, closure=("tables", "masks"))
_BOTH_WAYS = replace(_HF, closure=("tables",))
_NUMBERED = replace(_BOTH_WAYS, buffers=(ROTARY, IDS))
_SEGMENTED = replace(_BOTH_WAYS, buffers=(ROTARY, IDS, IDS))
_OFFSET = replace(_HF, buffers=(("logits", ""),), closure=("masks",))
_SINES = replace(_HF, buffers=(("sines", ""),))
_ALIKE: tuple[tuple[Frame, str], ...] = (
    (
        _SEGMENTED,
        "albert bert camembert data2vec-text electra ernie jina_embeddings_v3 nomic_bert roberta roberta-prelayernorm "
        "xlm-roberta xlm-roberta-xl",
    ),
    (_NUMBERED, "bert-generation deberta deberta-v2 distilbert esm megatron-bert mobilebert mpnet rembert"),
    (_OFFSET, "bart blenderbot blenderbot-small led marian mbart mvp pegasus plbart"),
    (_BOTH_WAYS, "gte longformer modernbert"),
    (_SINES, "m2m_100 nllb-moe"),
)
_HF_FRAMES: dict[str, Frame] = {
    **{name: frame for frame, names in _ALIKE for name in names.split()},
    "apertus": replace(_HF, buffers=(ROTARY, ("scalars", ""))),
    "bloom": replace(_BETWEEN, closure=("mask", "alibi")),
    "codegen": _ANGLES,
    "eurobert": replace(_HF, closure=("tables", "ids")),
    "gemma": _SCALED,
    "gemma2": _SCALED,
    "gemma3_text": _SCALED,
    "granite_swa": _SPARE,
    "granitemoe_swa": _SPARE,
    "gemma3n": _STREAMED,
    "gemma3n_text": _STREAMED,
    "gemma4": _LAYERED,
    "gemma4_text": _LAYERED,
    "gemma4_unified": _LAYERED,
    "gemma4_unified_text": _LAYERED,
    "gpt-sw3": _GPT2,
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_BETWEEN, buffers=(("mask", "bool"),)),
    "gpt_neo": replace(_BETWEEN, buffers=(("masks", "bool"),), closure=("mask",)),
    "gpt_neox": _BETWEEN,
    "gptj": _ANGLES,
    "mpt": _BETWEEN,
    "opt": replace(_HF, closure=("each ids", "mask")),
    "openai-gpt": replace(_BETWEEN, buffers=(IDS, ("masks", ""))),
    "phi3": replace(_HF, cuts=True),
    "roformer": replace(_BOTH_WAYS, buffers=()),
    "t5gemma2": _SCALED,
    "vaultgemma": _SCALED,
    "xglm": replace(_SINES, closure=("masks",)),
}
_INLINE = frozenset(
    ("doge", "dots1", "flex_olmo", "flint", "lfm2", "lfm2_moe", "mellum", "minimax_m2", "olmo2", "olmo3", "olmo_hybrid")
) | frozenset(("olmoe", "qwen3", "qwen3_moe"))
_PLAIN = Frame(buffers=(), norms_last=False, closure=())
_FRAMES = {"nanogpt": replace(_PLAIN, buffers=(("masks", ""),), weights_late=False, embeddings="loss")}


def frame_of(implementation: str, model_type: str) -> Frame:
    """What the code of an implementation holds for a model type."""
    if implementation == "hf":
        return replace(_HF_FRAMES.get(model_type, _HF), norms_inline=model_type in _INLINE)
    return _FRAMES.get(implementation, _PLAIN)
