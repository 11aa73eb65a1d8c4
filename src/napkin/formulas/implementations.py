"""How training code is written, where codes differ: the few facts that decide what autograd keeps.

Everything else follows from the operations (layer.py) and autograd's rules (tape.py, lowering.py). The facts are read
from the code itself: Hugging Face transformers 5.23.0 (src/transformers/models/<model type>/modeling_<model type>.py),
nanoGPT (karpathy/nanoGPT model.py), Megatron-core with Transformer Engine (NVIDIA/Megatron-LM).
"""

from __future__ import annotations

from napkin.record import record, replace

TRANSFORMERS = "5.23.0"
"""Version of Hugging Face transformers whose code the `hf` implementation follows."""
TORCH = "2.13"
"""Version of torch whose autograd rules these are."""

FLASH, EFFICIENT, CUDNN, EAGER = "flash", "efficient", "cudnn", "eager"
ALL_KERNELS = (FLASH, EFFICIENT, CUDNN, EAGER)


@record
class Code:
    """Choices of one model's code.

    softmax      of written-out attention. wide: fp32, asked of the kernel, the result cast back · native: in the
                 scores' type · wide_scores: query and key are cast to fp32 before their product
    mask         a boolean causal mask that written-out attention keeps: "" none · layer: each layer its own, cut out
                 of a buffer of its own · shared: one for each sequence, the same for all layers
    written      activations that have no kernel of their own (gelu_new, gelu_fast, quick_gelu) are written out in
                 elementary operations; else each is one kernel
    norms        reference: as the operation says · fused: one kernel in the input's type
    rotary       table: cos and sin made once for all layers · layer: widened in each layer, once · pair: widened in
                 each layer for the query and again for the key · kernel: one kernel that keeps cos and sin alone
    rotary_fp32  cos and sin stay fp32 where activations are narrower
    half_tables  cos and sin hold each angle once
    joins        the rotated part is always put together with the rest anew, even where it is the whole
    by_kind      layers with a window and layers without have tables of their own
    wide_loss    logits are cast to fp32 before the loss
    shifted      labels are shifted in the model: padded to s + 1 and copied (one sequence stays a view)
    positions    ids of learned positions. one: one row for all sequences · each: one row a sequence · buffer: kept
                 with the weights
    router       what weighs the experts. native: cast to the activations' type · fp32: left in fp32 · wide_top: the
                 chosen alone are cast to fp32 first · clamped: their sum is cut from below · sparsemixer: chosen one
                 after the other, each from a masked softmax (Phi-3.5-MoE)
    functions    activations that run another function than the config names
    indexed      the single key and value head of multi-query attention is taken by an index: a copy
    query_scale  each query is multiplied by a factor of its position
    masked       an explicit mask always reaches the attention kernel
    kernels      attention kernels that the code can call
    closes_over  the code of a checkpointed layer refers to rotary tables, positions and the mask
    passes_mask  the mask is an argument of the checkpointed layer, which autograd then saves
    crops        learnt positions are cut to the training sequence
    swiglu       split: activation, then a product · fused: one kernel that keeps its input alone
    gather_again with sequence parallelism a column-parallel linear keeps its own part and gathers again in backward
    parallel_loss the loss works on the divided vocabulary
    """

    softmax: str = "wide"
    mask: str = ""
    written: bool = True
    norms: str = "reference"
    rotary: str = "table"
    rotary_fp32: bool = False
    half_tables: bool = False
    joins: bool = False
    by_kind: bool = False
    wide_loss: bool = True
    shifted: bool = True
    positions: str = "one"
    router: str = "native"
    functions: tuple[tuple[str, str], ...] = ()
    indexed: bool = False
    query_scale: bool = False
    masked: bool = False
    kernels: tuple[str, ...] = ALL_KERNELS
    closes_over: bool = True
    passes_mask: bool = False
    crops: bool = False
    swiglu: str = "split"
    gather_again: bool = False
    parallel_loss: bool = False


_HF = Code()
_HF_EAGER = replace(_HF, kernels=(EAGER,))
_OLMO = replace(_HF, rotary_fp32=True)
_PARTIAL = replace(_HF, joins=True)
_HF_CODES: dict[str, Code] = {
    "biogpt": replace(_HF, softmax="native"),
    "bloom": _HF_EAGER,
    "codegen": replace(_HF_EAGER, softmax="wide_scores", rotary="pair", rotary_fp32=True),
    "ernie4_5": replace(_HF, rotary="layer", rotary_fp32=True),
    "ernie4_5_moe": replace(_HF, rotary="layer", rotary_fp32=True, router="clamped"),
    "falcon": replace(_HF, softmax="native", masked=True, indexed=True),
    "flex_olmo": _OLMO,
    "gemma2": _HF_EAGER,
    "gemma3_text": replace(_HF, by_kind=True),
    "glm": replace(_PARTIAL, rotary="layer"),
    "glm4": replace(_PARTIAL, rotary="layer"),
    "glm4_moe": replace(_PARTIAL, router="fp32"),
    "gpt2": replace(_HF, softmax="native", passes_mask=True),
    "gpt_neo": replace(_HF_EAGER, softmax="wide_scores"),
    "gpt_neox": _PARTIAL,
    "gpt_oss": replace(_HF_EAGER, softmax="native", half_tables=True),
    "gptj": replace(_HF_EAGER, softmax="wide_scores", rotary="pair"),
    "granitemoe": replace(_HF, router="wide_top"),
    "granitemoeshared": replace(_HF, router="wide_top"),
    "hunyuan_v1_moe": replace(_HF, router="fp32"),
    "minimax_m2": replace(_PARTIAL, router="fp32"),
    "ministral3": replace(_HF, query_scale=True),
    "mixtral": replace(_HF, router="fp32"),
    "mpt": replace(_HF_EAGER, mask="shared"),
    "nemotron": _PARTIAL,
    "olmo": _OLMO,
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    "openai-gpt": replace(_HF_EAGER, softmax="native", positions="buffer", functions=(("gelu", "gelu_new"),)),
    "opt": replace(_HF, positions="each"),
    "persimmon": _PARTIAL,
    "phi": _PARTIAL,
    "phi3": _PARTIAL,
    "phimoe": replace(_HF, router="sparsemixer"),
    "stablelm": _PARTIAL,
}
_NANOGPT = Code(
    softmax="native",
    mask="layer",
    written=False,
    norms="fused",
    rotary="table",
    wide_loss=False,
    shifted=False,
    closes_over=False,
    crops=True,
)
_MEGATRON = Code(
    softmax="native",
    written=False,
    norms="fused",
    rotary="kernel",
    wide_loss=False,
    shifted=False,
    closes_over=False,
    swiglu="fused",
    gather_again=True,
    parallel_loss=True,
)
IMPLEMENTATIONS = ("hf", "nanogpt", "megatron")


MEASURED = frozenset(
    [
        "apertus",
        "arcee",
        "biogpt",
        "bloom",
        "codegen",
        "cohere",
        "cohere2",
        "cwm",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone4",
        "flex_olmo",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "granite",
        "granitemoe",
        "granitemoeshared",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "llama",
        "minimax_m2",
        "ministral",
        "mistral",
        "mixtral",
        "mpt",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "openai-gpt",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ]
)
"""Model types whose Hugging Face code was run with saved-tensor hooks and kept exactly these bytes."""


def measured(implementation: str, model_type: str) -> bool:
    """Whether the bytes kept for backward are those that hooks counted on the code itself."""
    if implementation == "hf":
        return model_type in MEASURED
    return implementation == "nanogpt" and model_type == "gpt2"


def code_of(implementation: str, model_type: str) -> Code:
    """The choices of an implementation for a model type."""
    if implementation == "hf":
        return _HF_CODES.get(model_type, _HF)
    return {"nanogpt": _NANOGPT, "megatron": _MEGATRON}[implementation]
