"""How training code is written, where codes differ: the few facts that decide what autograd keeps.

Everything else follows from the operations (base.py) and autograd's rules (tape.py, lowering.py). The facts are read
from the code itself: Hugging Face transformers 5.23.0 (src/transformers/models/<model type>/modeling_<model type>.py),
nanoGPT (karpathy/nanoGPT model.py), Megatron-core with Transformer Engine (NVIDIA/Megatron-LM).
"""

from __future__ import annotations

from napkin.inputs.model import measured_modes
from napkin.operations.frames import Frame, frame_of
from napkin.record import record, replace

TRANSFORMERS = "5.23.0"
"""Version of Hugging Face transformers whose code the `hf` implementation follows."""
TORCH = "2.13"
"""Version of torch whose autograd rules these are."""

FLASH, EFFICIENT, CUDNN, EAGER = "flash", "efficient", "cudnn", "eager"
ALL_KERNELS = (FLASH, EFFICIENT, CUDNN, EAGER)


@record
class Loss:
    """Bytes for each logit of a form of cross entropy, from the head's product to the gradient of its result.

    kept    for backward        peak  at the largest moment, what is kept counted in
    passed  to the backward of the head's product: the gradient that it reads and what of the rest still stands
    chunks  products of the head, one for each part of the tokens: the sum of its weight's gradient and a part's own
            stand side by side
    held    by the training loop, until the backward pass is over
    fused   with the head's product, one part of the tokens at a time: no logits leave it, gradients are made at once
    """

    kept: float
    peak: float
    passed: float = 2.0
    chunks: int = 1
    held: float = 0.0
    fused: bool = False
    source: str = ""


LOSSES = {
    "compiled": Loss(2, 4, source="torch.compile: the 16-bit logits are kept, their gradient is made beside them"),
    "chunked": Loss(
        2,
        2.25,
        passed=1.75,
        chunks=8,
        source="torchtune modules/transformer.py chunked_output, modules/loss/ce_chunked_output_loss.py, compiled: "
        "eight products, 16-bit logits, the gradient of one part at a time",
    ),
    "chunked-eager": Loss(
        4,
        6.5,
        passed=4.25,
        chunks=8,
        source="the same, not compiled: 16-bit logits until the loss is there, fp32 log-softmax of all parts, fp32 "
        "logits of one",
    ),
    "vocabulary": Loss(
        4, 10, source="Megatron-LM megatron/core/tensor_parallel/cross_entropy.py: fp32 softmax in place, its gradient"
    ),
    "sharded": Loss(
        4,
        12,
        source="nanotron parallel/tensor_parallel/functional.py: 16-bit and fp32 logits, shifted ones whose softmax "
        "stays, a 16-bit gradient",
    ),
    "dtensor": Loss(
        4, 20, source="torch.distributed.tensor.parallel.loss_parallel: shifted, exp, gradient, exp and product in fp32"
    ),
    "fused": Loss(
        0,
        0,
        fused=True,
        source="linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py: parts of "
        "2^⌈log2⌈T / ⌈V/h⌉⌉⌉ tokens, whose logits become their gradient in place; gradients of the hidden state and of "
        "the head's weight are made in the forward pass and kept",
    ),
    "held": Loss(
        4, 4, 0, held=4, source="LitGPT finetune/*.py: logits cast to fp32 as they leave the model, held by the loop"
    ),
}


@record
class Tuning:
    """What is trained of a frozen network.

    method     lora (two thin matrices beside a weight), adapter (a prompt in each attention, from the third layer on),
               adapter_v2 (that, and a scale and a bias on each product, and the norms' weights)
    rank       of LoRA's matrices          dropout  before them
    targets    products that LoRA stands beside; () for all
    quantised  number format of frozen products' weights: nf4, nf4-dq (its scales in 8 bits too) or ""
    library    whose quantised products: bitsandbytes (as of 2023: they keep their input though the weight is frozen,
               and the head is one of them), transformers or torchao (neither: bitsandbytes/autograd/_functions.py,
               MatMul4Bit; transformers/integrations/bitsandbytes.py leaves the head alone)
    """

    method: str
    rank: int = 8
    dropout: float = 0.05
    targets: tuple[str, ...] = ()
    quantised: str = ""
    library: str = "bitsandbytes"

    @property
    def keeps(self) -> bool:
        return bool(self.quantised) and self.library == "bitsandbytes"

    @property
    def widened(self) -> int:
        """Bytes of a quantised weight while its product runs: in bf16; bitsandbytes makes fp16 of it first."""
        return (4 if self.library == "bitsandbytes" else 2) if self.quantised else 0


FROZEN_LAYERS = {"adapter": 2}
"""Layers before the first that is trained: they keep nothing (LLaMA-Adapter starts at layer 2)."""


ALWAYS, ALIBI, NEVER = "always", "alibi", "never"


@record
class Code:
    """Choices of one model's code.

    softmax      of written-out attention. wide: fp32, asked of the kernel, the result cast back · native: in the
                 scores' type · wide_scores: query and key are cast to fp32 before their product
    mask         a boolean causal mask that written-out attention keeps: "" none · layer: each layer its own, cut out
                 of a buffer of its own · shared: one for each sequence, the same for all layers · each:
                 one for each sequence in each layer
    floors       the masked scores are cut from below, against a scalar: both are kept
    shifts_scores  a row's maximum is subtracted from the scores before the softmax, with sinks or without
    written      activations that have no kernel of their own (gelu_new, gelu_fast, quick_gelu) are written out in
                 elementary operations; else each is one kernel
    norms        reference: as the operation says · fused: one kernel in the input's type · fp32: root mean squares
                 written out, the weight multiplied in fp32 before the cast · lowered: under autocast the kernel runs in
                 16 bits, its arguments cast by the code
    rotary       table: cos and sin made once for all layers · values: made in each layer, in the type of its values ·
                 layer: widened in each layer, once · pair: widened in
                 each layer for the query and again for the key, in their type · kernel: one kernel that keeps cos and
                 sin alone
    wide_sinks   learnt scores of written-out attention are stored in fp32, which the scores that join them become
    rotary_fp32  cos and sin stay fp32 where activations are narrower
    turned_back  what rotary positions turn is cast back to the type that it had
    half_tables  cos and sin hold each angle once
    joins        the rotated part is always put together with the rest anew, even where it is the whole
    by_kind      layers with a window and layers without have tables of their own
    wide_loss    logits are cast to fp32 before the loss
    shifted      labels are shifted in the model: padded to s + 1 and copied (one sequence stays a view)
    positions    ids of learned positions, and rotary tables. one: one row for all sequences · each: one row a
                 sequence · learnt: of ids one row a sequence, of tables one for all · source: each in an encoder, one
                 in its decoder · buffer: kept with the weights
    segments     ids of segments: one row for all sequences, or each
    laid_by_heads  queries, keys and values are copied to lie by heads, a scaled key is one more copy, and each layer
                 makes its own mask (DeBERTa v2)
    casts_down   the input of an MLP's last product is cast to its weight's type, which autocast casts back
    mixer        what runs a recurrence. whole: one kernel from the input projection to the output's, which keeps little
                 and runs the rest again · apart: a kernel for the convolution and one for the scan · torch: written out
    window_mask  torch's scaled_dot_product_attention learns of a window by an explicit mask, made where the window is
                 not longer than the sequence
    router       in which type the chosen experts' weights leave the router. logits: that of the logits · scores: as the
                 scores are · tokens: that of the tokens · sparsemixer: chosen one after the other, each from a masked
                 softmax (Phi-3.5-MoE)
    native_scores  the scores are made in the logits' type: "kept" under autocast too, or "raised" by it; "": in fp32
    masked_choice  the weights of choices without an expert are masked
    new_shares   the chosen scores are divided by their sum into a new tensor; else in place
    clamped      the sum that divides the chosen scores is cut from below
    fp32_router  the router's weight is stored in fp32; else a product in fp32 casts it on every pass
    router_apart autocast is off in the router
    looped       experts run one after the other on the tokens that chose them, gate and up in one product (joined) or
                 in one each (apart) of a tensor that holds all experts, or each a module of its own (modules); "": on
                 sorted tokens, in grouped products
    wide_logits  its logits are cast to fp32 before anything reads them
    functions    activations that run another function than the config names
    powered      a norm's reciprocal deviation is a power of the variance, which is kept; else what rsqrt makes is
    bounded_ids  ids that the table of layers' own inputs lacks are set to 0: ids of its own
    wide_weight  a norm's weight is cast to fp32 before its product
    drops        attention's weights go through dropout: always, with ALiBi's biases alone, or never
    ungrouped    keys and values of fewer heads reach the kernel as they are: torch then has its written-out form alone
    turned       products read their weight transposed: autocast does not know it by then, and casts it on every pass
    tempers_once one tensor of positions' factors serves the queries of all layers; else each makes its own
    copies_ids   the token ids are copied, those of other senses masked
    conv_view    a convolution reads its weight in another shape, which autocast casts on every pass
    query_scale  each query is multiplied by a factor of its position
    sinks        how written-out attention has one learnt score a head beside the others. shifted: put beside them, all
                 shifted by their maximum · joined: put beside them · scaled: the result is multiplied by
                 σ(logsumexp(scores) − sink), which is the same
    windows_masked  a window reaches it by a mask however short the sequence is
    masked       an explicit mask always reaches the attention kernel
    kernels      attention kernels that the code can call
    passes_mask  the mask is an argument of the checkpointed layer, which autograd then saves
    crops        learnt positions are cut to the training sequence
    swiglu       split: activation, then a product · fused: one kernel that keeps its input alone
    gather_again with sequence parallelism a column-parallel linear keeps its own part and gathers again in backward
    parallel_loss the loss works on the divided vocabulary
    loss         a form of cross entropy that is not torch's own (LOSSES); "": log-softmax and likelihood
    repeats      keys and values are repeated for each query head before the kernel
    gathers_heads  tensor-parallel ranks that are a multiple of the key/value heads gather the joined product's result
                 and take a whole head each; its weights are divided evenly. Other codes fail where ranks do not divide
                 them (Megatron-core of 2025, megatron/core/transformer/attention.py, num_query_groups < world_size)
    joined_qkv   query, key and value are cut from one product, which stays whole as long as any part of it does
    tuning       what is trained of a frozen network; None: everything
    frame        what the code around the operations holds
    """

    softmax: str = "wide"
    mask: str = ""
    floors: bool = False
    shifts_scores: bool = False
    written: bool = True
    norms: str = "reference"
    rotary: str = "table"
    wide_sinks: bool = False
    rotary_fp32: bool = False
    turned_back: bool = False
    half_tables: bool = False
    joins: bool = False
    by_kind: bool = False
    wide_loss: bool = True
    shifted: bool = True
    positions: str = "one"
    segments: str = "one"
    laid_by_heads: bool = False
    casts_down: bool = False
    mixer: str = "whole"
    window_mask: bool = False
    router: str = "logits"
    native_scores: str = ""
    masked_choice: bool = False
    new_shares: bool = False
    clamped: bool = False
    fp32_router: bool = False
    router_apart: bool = False
    wide_logits: bool = False
    looped: str = ""
    functions: tuple[tuple[str, str], ...] = ()
    drops: str = ALWAYS
    ungrouped: bool = False
    turned: bool = False
    tempers_once: bool = False
    conv_view: bool = False
    copies_ids: bool = False
    query_scale: bool = False
    powered: bool = False
    bounded_ids: bool = False
    sinks: str = "shifted"
    wide_weight: bool = False
    windows_masked: bool = False
    masked: bool = False
    kernels: tuple[str, ...] = ALL_KERNELS
    passes_mask: bool = False
    crops: bool = False
    swiglu: str = "split"
    gather_again: bool = False
    parallel_loss: bool = False
    loss: str = ""
    repeats: bool = False
    gathers_heads: bool = False
    joined_qkv: bool = False
    tuning: Tuning | None = None
    frame: Frame = Frame()


_HF = Code(window_mask=True)
_HF_EAGER = replace(_HF, kernels=(EAGER,))
_OLMO = replace(_HF, rotary_fp32=True)
_PARTIAL = replace(_HF, joins=True)
_GEMMA4 = replace(_HF, by_kind=True, wide_weight=True, powered=True, router="scores")
_SIGMOID = replace(_HF, router="scores", native_scores="kept")
_GPT2 = replace(_HF, softmax="native", passes_mask=True)
_SEQ2SEQ = replace(_HF, softmax="native", wide_loss=False, shifted=False)
"""Labels stand beside their positions, and the loss takes the logits as they are."""
_BART = replace(_SEQ2SEQ, positions="source")
_FIXED = replace(_SEQ2SEQ, positions="buffer")
_T5 = replace(_SEQ2SEQ, casts_down=True)
_BERT = replace(_SEQ2SEQ, positions="buffer")
_ROBERTA = replace(_SEQ2SEQ, positions="each", segments="each")
_MODERN = replace(_HF, shifted=False, by_kind=True)
_SPARSE = replace(_SIGMOID, masked=True, kernels=(EFFICIENT, EAGER))
_HF_CODES: dict[str, Code] = {
    "afmoe": replace(_HF, router="scores", new_shares=True),
    "albert": _BERT,
    "aria_text": replace(_HF, router="scores", native_scores="raised"),
    "beam": replace(_SIGMOID, rotary_fp32=True, by_kind=True, fp32_router=True, tempers_once=True),
    "bart": _BART,
    "bert": _BERT,
    "bert-generation": replace(_BERT, wide_loss=True, shifted=True),
    "blenderbot": _SEQ2SEQ,
    "blenderbot-small": _SEQ2SEQ,
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "deberta": replace(_BERT, segments="each", kernels=(EAGER,), mask="each"),
    "deberta-v2": replace(_BERT, kernels=(EAGER,), laid_by_heads=True),
    "distilbert": _BERT,
    "electra": _BERT,
    "ernie": _BERT,
    "esm": replace(_SEQ2SEQ, positions="learnt"),
    "eurobert": replace(_HF, shifted=False),
    "gte": replace(_SEQ2SEQ, segments="each"),
    "jina_embeddings_v3": replace(_SEQ2SEQ, segments="each"),
    "mpnet": replace(_SEQ2SEQ, positions="each", kernels=(EAGER,)),
    "rembert": replace(_BERT, segments="each", kernels=(EAGER,)),
    "roformer": replace(_BERT, segments="each", rotary="layer", kernels=(EAGER,)),
    "plbart": _BART,
    "mvp": replace(_SEQ2SEQ, positions="each", kernels=(EAGER,)),
    "led": replace(_SEQ2SEQ, kernels=(EAGER,)),
    "longformer": replace(_ROBERTA, kernels=(EAGER,)),
    "m2m_100": _SEQ2SEQ,
    "marian": _FIXED,
    "mbart": _BART,
    "megatron-bert": replace(_BERT, segments="each", kernels=(EAGER,)),
    "mobilebert": replace(_BERT, segments="each"),
    "modernbert": _MODERN,
    "modernbert-decoder": replace(_HF, by_kind=True, positions="each"),
    "mt5": _T5,
    "nllb-moe": replace(_SEQ2SEQ, kernels=(EAGER,), looped="modules", router="tokens", fp32_router=True),
    "nomic_bert": replace(_SEQ2SEQ, segments="each"),
    "pegasus": _FIXED,
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "switch_transformers": replace(_T5, kernels=(EAGER,), looped="modules", router="tokens", fp32_router=True),
    "t5": _T5,
    "t5gemma": replace(_HF_EAGER, shifted=False),
    "t5gemma2": replace(_HF, shifted=False, by_kind=True, windows_masked=True),
    "umt5": _T5,
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "biogpt": replace(_HF, softmax="native"),
    "bloom": _HF_EAGER,
    "codegen": replace(_HF_EAGER, softmax="wide_scores", rotary="pair", rotary_fp32=True),
    "cohere2_moe": replace(_HF, router="tokens", new_shares=True),
    "cohere_compass_text": replace(_HF, positions="each", by_kind=True),
    "ctrl": replace(_HF, softmax="native", drops=NEVER),
    "dbrx": replace(_HF, router="scores", native_scores="kept", new_shares=True, looped="apart"),
    "deepseek_v2": replace(_HF, router="scores"),
    "deepseek_v3": _SIGMOID,
    "deepseek_v32": _SPARSE,
    "deepseek_v4": replace(
        _HF_EAGER, rotary="each", wide_sinks=True, router="scores", native_scores="kept", new_shares=True
    ),
    "dots1": _SIGMOID,
    "ernie4_5": replace(_HF, rotary="layer", rotary_fp32=True, drops=NEVER),
    "ernie4_5_moe": replace(
        _HF,
        rotary="layer",
        rotary_fp32=True,
        drops=NEVER,
        router="tokens",
        wide_logits=True,
        new_shares=True,
        clamped=True,
        fp32_router=True,
        router_apart=True,
    ),
    "diffllama": replace(_HF, drops=NEVER),
    "doge": replace(_HF, masked=True, kernels=(FLASH, EFFICIENT, EAGER)),  # cuDNN's takes no mask with a gradient
    "falcon": replace(_HF, softmax="native", masked=True, ungrouped=True, drops=ALIBI, turned=True),
    "flex_olmo": _OLMO,
    "flint": replace(
        _HF_EAGER,
        softmax="native",
        sinks="joined",
        router="scores",
        native_scores="kept",
        new_shares=True,
        fp32_router=True,
        router_apart=True,
        wide_logits=True,
    ),
    "gemma2": _HF_EAGER,
    "gemma3_text": replace(_HF, by_kind=True),
    "gemma3n": replace(_GEMMA4, bounded_ids=True),
    "gemma3n_text": replace(_GEMMA4, bounded_ids=True),
    "gemma4": replace(_GEMMA4, copies_ids=True),
    "gemma4_text": _GEMMA4,
    "gemma4_unified": replace(_GEMMA4, copies_ids=True, masked=True),
    "gemma4_unified_text": _GEMMA4,
    "glm": replace(_PARTIAL, rotary="layer"),
    "glm4": replace(_PARTIAL, rotary="layer"),
    "glm4_moe": replace(_SIGMOID, joins=True),
    "glm4v_moe_text": replace(_SIGMOID, joins=True, positions="each", wide_logits=True),
    "glm4v_text": replace(_PARTIAL, positions="each"),
    "gpt-sw3": _GPT2,
    "gpt2": _GPT2,
    "gpt_neo": replace(_HF_EAGER, softmax="wide_scores"),
    "gpt_neox": _PARTIAL,
    "gpt_neox_japanese": replace(_HF_EAGER, softmax="native", joins=True),
    "gpt_oss": replace(_HF_EAGER, softmax="native", half_tables=True, native_scores="kept"),
    "gptj": replace(_HF_EAGER, softmax="wide_scores", rotary="pair"),
    "granite_swa": replace(_HF_EAGER, sinks="scaled"),
    "granitemoe": replace(_HF, router="tokens", wide_logits=True),
    "granitemoe_swa": replace(_HF_EAGER, sinks="scaled", router="tokens", wide_logits=True),
    "granitemoeshared": replace(_HF, router="tokens", wide_logits=True),
    "exaone_moe": _SIGMOID,
    "glm4_moe_lite": _SIGMOID,
    "glm_moe_dsa": _SPARSE,
    "granitemoehybrid": replace(_HF, router="tokens", wide_logits=True),
    "inkling_text": replace(_HF, kernels=(EFFICIENT, EAGER)),
    "jamba": replace(_HF, mixer="apart", router="tokens"),
    "lfm3": replace(_HF, mixer="torch", rotary_fp32=True, by_kind=True, conv_view=True),
    "lfm2_moe": replace(_HF, native_scores="kept", router="scores", new_shares=True),
    "minimax": replace(_HF, mixer="torch", router="scores"),
    "nemotron_h": replace(_SIGMOID, wide_weight=True),
    "olmo_hybrid": _OLMO,
    "qwen2_5_vl_text": replace(_HF, positions="each"),
    "qwen2_vl_text": replace(_HF, positions="each"),
    "qwen3_5_moe_text": replace(_HF, positions="each"),
    "qwen3_5_text": replace(_HF, positions="each"),
    "qwen3_vl_moe_text": replace(_HF, positions="each"),
    "qwen3_vl_text": replace(_HF, positions="each"),
    "qwen4_exp_text": replace(_HF, positions="each", masked=True, kernels=(EFFICIENT, EAGER), joins=True),
    "recurrent_gemma": replace(_HF, mixer="torch", rotary="values"),
    "zamba": replace(_HF, mixer="apart"),
    "zaya": replace(_PARTIAL, by_kind=True, router="scores", native_scores="raised", masked_choice=True),
    "helium": replace(_HF, rotary="layer", wide_weight=True),
    "hunyuan_v1_moe": replace(_HF, fp32_router=True),
    "laguna": replace(_PARTIAL, by_kind=True, router="tokens", new_shares=True, wide_logits=True),
    "llama4_text": replace(_HF, softmax="native"),
    "hy_v3": replace(_HF, router="scores", native_scores="kept", new_shares=True),
    "kolibri1": replace(_HF, router="scores", native_scores="kept", new_shares=True),
    "mellum": replace(_HF, by_kind=True),
    "jetmoe": replace(_HF, router="tokens", wide_logits=True),
    "longcat_flash": replace(_HF, looped="joined"),
    "mimo_v2_flash": replace(
        _SIGMOID, kernels=(EAGER,), softmax="native", shifts_scores=True, joins=True, by_kind=True
    ),
    "minimax_m2": replace(_PARTIAL, router="scores"),
    "minimax_m3_vl_text": replace(_PARTIAL, router="scores"),
    "ministral3": replace(_HF, query_scale=True),
    "kimi_k2": _SIGMOID,
    "kimi_k25": replace(_SIGMOID, copies_ids=True),
    "axk1": _SIGMOID,
    "dots3_note_text": replace(_SIGMOID, turned_back=True),
    "axk2": _SPARSE,
    "bailing_hybrid": _SIGMOID,
    "hy_v4": replace(_SIGMOID, kernels=(EAGER,), wide_sinks=True),
    "kimi_linear": _SIGMOID,
    "mistral4": replace(_HF, router="scores", native_scores="raised", query_scale=True),
    "mixtral": replace(_HF, router="scores"),
    "mpt": replace(_HF_EAGER, mask="shared", drops=NEVER),
    "nemotron": replace(_PARTIAL, norms="lowered"),
    "olmo": _OLMO,
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, by_kind=True),
    "openai-gpt": replace(_HF_EAGER, softmax="native", positions="buffer", functions=(("gelu", "gelu_new"),)),
    "opt": replace(_HF, positions="each"),
    "persimmon": _PARTIAL,
    "phi": _PARTIAL,
    "phi3": _PARTIAL,
    "phi4_multimodal": _PARTIAL,
    "phimoe": replace(_HF, router="sparsemixer"),
    "solar_open": _SIGMOID,
    "stablelm": _PARTIAL,
    "xglm": replace(_HF_EAGER, softmax="native", floors=True),
}
_NANOGPT = Code(
    softmax="native",
    mask="layer",
    written=False,
    norms="fused",
    rotary="table",
    wide_loss=False,
    shifted=False,
    crops=True,
)
_MEGATRON = Code(
    softmax="native",
    written=False,
    norms="fused",
    rotary="kernel",
    wide_loss=False,
    shifted=False,
    swiglu="fused",
    gather_again=True,
    parallel_loss=True,
    gathers_heads=True,
)
_MEGATRON_2022 = replace(_MEGATRON, gathers_heads=False, loss="vocabulary")
_NANOTRON = replace(_MEGATRON, gathers_heads=False, swiglu="split", gather_again=False, loss="sharded")
_TITAN = replace(_HF, window_mask=False, rotary="kernel", shifted=False, parallel_loss=True)
_TORCHTUNE = replace(_TITAN, repeats=True, parallel_loss=False)
_LITGPT = replace(
    _HF,
    window_mask=False,
    norms="fp32",
    joins=True,
    written=False,
    shifted=False,
    loss="held",
    joined_qkv=True,
)
_FRAMEWORK_CODES = {
    "nanogpt": _NANOGPT,
    "megatron": _MEGATRON,
    "megatron-2022": _MEGATRON_2022,
    "nanotron": _NANOTRON,
    "torchtitan": _TITAN,
    "torchtune": _TORCHTUNE,
    "litgpt": _LITGPT,
}
IMPLEMENTATIONS = ("hf", *_FRAMEWORK_CODES)


ONE, MANY = "one", "many"


def mode(precision: str, attention: str, dropout: bool, sequences: int) -> str:
    """The name of what decides which of a code's lines run: bf16, fp32 or autocast · the attention kernel · dropout or
    not · one sequence or more (torch makes views where a dimension is 1)."""
    return f"{precision}/{attention}/{'dropout' if dropout else 'plain'}/{ONE if sequences == 1 else MANY}"


def measured(implementation: str, model_type: str, mode: str) -> bool:
    """Whether the bytes kept for backward in this mode are those that hooks counted on the code itself, for every
    config that was drawn (tools/saved_bytes.py)."""
    if implementation != "hf":
        return implementation == "nanogpt" and model_type == "gpt2"
    return mode in measured_modes(model_type)


def code_of(implementation: str, model_type: str) -> Code:
    """The choices of an implementation for a model type."""
    code = _HF_CODES.get(model_type, _HF) if implementation == "hf" else _FRAMEWORK_CODES[implementation]
    return replace(code, frame=frame_of(implementation, model_type))
