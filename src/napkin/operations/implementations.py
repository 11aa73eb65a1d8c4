"""How implementations of a network differ: the few facts that decide what autograd keeps and what is allocated.

Everything else follows from the operations (base.py) and autograd's rules (tape.py, lowering.py). The facts are read
from the code itself: Hugging Face transformers 5.23.0 (src/transformers/models/<model type>/modeling_<model type>.py),
nanoGPT (karpathy/nanoGPT model.py), Megatron-core with Transformer Engine (NVIDIA/Megatron-LM).
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.elementwise import Number
from napkin.inputs.class_facts import measured_modes
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from napkin.autograd.tape import Tape
    from napkin.autograd.tensors import Tensor
    from napkin.operations.tuning import Tuning
else:
    Protocol = object

TRANSFORMERS = "5.23.0"
"""Version of Hugging Face transformers whose code the `hf` implementation follows."""
TORCH = "2.13"
"""Version of torch whose autograd rules these are."""

FLASH, EFFICIENT, CUDNN, EAGER = "flash", "efficient", "cudnn", "eager"
FLASH_2 = "flash2"
"""FlashAttention-2 by name, where `flash` is of the version that the software runs; both keep the same."""
ALL_KERNELS = (FLASH, EFFICIENT, CUDNN, EAGER)


class Running(Protocol):
    """The interface of lowering.Lowering for functions of a family."""

    @property
    def tape(self) -> Tape: ...
    def weight(self, count: Number) -> Tensor: ...


ROTARY = ("rotary", "fp32")
"""Buffers of inverse frequencies."""
IDS = ("ids", "int64")
"""A buffer of position ids."""

ROUTED = "experts"
"""Routed experts, the last part of their path."""

MASKS, POSITION_IDS, PADDING, PAIRS, ANGLES = "masks", "ids", "padding", "pairs", "angles"
"""What a class passes to its layers by position."""

QKV, ROTATED, FOLDED, SCORES, MASKED = "qkv", "rotated", "folded", "scores", "masked"
ATTENDED, SUMMED, INNER, IN_DROPOUT = "attended", "summed", "inner", "in dropout"
"""What variables can hold."""

ALWAYS, ALIBI, NEVER, WITHOUT_FLASH = "always", "alibi", "never", "without flash"


CUT_AS_GIVEN, CUT_IN_FP32, CUT_IN_FUNCTION = "given", "fp32", "function"
ONE_KERNEL = ("fused", "overwritten", "remade")
"""How an activation and the multiplication that reads it run as one kernel."""
OVERWRITES = ("overwritten", "remade")
"""Of these, the ones that write their gradients over both inputs."""
HUGGING_FACE = "hf"
"""The name of transformers' own classes among implementations."""
JOINED, APART = "joined", "apart"
STACKED = (JOINED, APART)
"""How experts run one after the other whose weights are one tensor."""


@record
class Implementation:
    """How one class or framework runs a network, where implementations differ.

    What only one family does is a function in that family's module, which records the operations on the tape.

    name         as `--implementation` names it: hf for every class of transformers

    Eager attention
    softmax      fp32: in fp32, asked of the kernel, the result cast back · native: in the scores' type, under autocast
                 in fp32 · narrowed: so too, the result cast back · fp32_scores: query and key are cast to fp32 before
                 their matmul
    mask         the boolean causal mask that it keeps. "": none · layer: each layer's own, cut out of a buffer ·
                 shared: one for each sequence, the same for all layers · each: one for each sequence in each layer
    masked_scores  runs on the masked scores
    sinks        how each head's learned extra score joins the others. shifted: concatenated, all shifted by their
                 maximum · always shifted: so are scores without sinks · joined: concatenated · scaled: the result is
                 multiplied by σ(logsumexp(scores) − sink), which is equal
    fp32_sinks   these learned scores are fp32, and so are the scores that they join
    drops        attention's weights go through dropout: always, with ALiBi's biases only, or never

    Attention kernels
    kernels      attention kernels that the implementation can call
    kernel_mask  the explicit mask that torch's scaled_dot_product_attention gets. "": none · long: windows that are not
                 longer than the sequence · windows: every window · always: the causal mask too · without flash: so too,
                 but with the flash kernel, which is not torch's · padding: the mask of each sequence's tokens, one row
                 for all queries
    passes       positional arguments of each layer next to the stream, which its checkpoint keeps. masks: attention's,
                 one for each window · ids: one row of positions · padding: an encoder's mask of its tokens · pairs: an
                 fp32 mask of the pairs of tokens of each sequence · angles: sines and cosines. What a gradient passes
                 through (the encoder's output, position biases, layers' own inputs) is always a positional argument
    few_heads    how keys and values of fewer heads reach the kernel. "": as it takes them · repeated: for each query
                 head · unchanged: as they are, which only torch's math form accepts
    qkv          how query, key and value are cut from a fused projection. "": at once, as views · joined: the
                 projection stays allocated as long as any part does · apart: one by one
    packed       sequences lie one behind the other in one, and each attends in a call of its own
    query_scale  each query is multiplied by a factor of its position
    weights_to   how far attention returns its weights. attention: they end with it · layer: to the layer, which holds
                 them until it returns · loop: to the loop over the layers, whose variable holds them until the next
                 layer returns
    variables    what variables of attention hold until it returns, in addition to query, key and value. qkv: the fused
                 projection · rotated: the parts that are rotated, before and after · folded: query, key and value with
                 heads behind each other, copied before any product · scores, masked: eager attention's, before and
                 after the mask. Of the layer: attended: what attention returns, until the layer returns · summed: what
                 is added up in a norm's argument, until the norm returns · inner: what the MLP's last linear layer
                 reads, until the layer returns · in dropout: attention's and the MLP's variables, until dropout has run
                 on their result
    norms_inline query and key are normalized as each is made, before the next projection

    Rotary positions
    rotary       table: cos and sin made once for all layers · values: made in each layer, in the type of its values ·
                 layer: upcast in each layer, once · pair: upcast in each layer for the query and again for the key, in
                 their type · kernel: one kernel that keeps only cos and sin
    fused_projections  linear layers that read the same tensor are one product, which keeps one copy of it in 8 or 4
                 bits
    tokens_first  queries and keys whose parts are joined have their heads behind the tokens, as attention's result does
                 then; else the heads come first, and the result is copied
    rotary_fp32  cos and sin stay fp32 where activations are 16-bit
    joins        the rotated part is always concatenated with the rest, even if there is no rest
    joins_narrow  what is concatenated is cast to the values' type
    by_kind      layers with a window and layers without have cos and sin of their own

    Embeddings and loss
    positions    ids of learned positions, and rows of cos and sin. one: one row for all sequences · each: one row for
                 each · learned: of ids one row for each, of cos and sin one for all · source: each in an encoder, one
                 in its decoder · buffer: kept with the weights
    segments     ids of segments: one row for all sequences, or each
    token_ids    "": as given · copied: those of other modalities masked · bounded: those that the embedding of layers'
                 own inputs lacks are set to 0, ids of its own · transposed: the steps of several sequences lie together
    crops        learned positions are cut to the training sequence
    fp32_loss    logits are cast to fp32 before the loss
    shifted      labels are shifted in the model: padded to s + 1 and copied (one sequence stays a view)
    causal_loss  both, in the class of an encoder that predicts the next token
    cuts         the last token's logits and the first label of each sequence are cut off: of the logits as they are
                 (given), or after their cast to fp32, in their place (fp32) or in a function whose caller holds them
                 (function); "": neither
    loss         a form of cross entropy that is not torch's own (LOSSES); "": log-softmax and likelihood
    log_probs    form of the loss over log-probabilities, if logits leave the model in fp32 whatever its weights have;
                 "": that of the weights decides
    holds_logits  a variable of the training loop refers to what the model returned, logits too, until the backward pass
                 is over
    parallel_loss  the loss works on the divided vocabulary

    Norms, activations, MLPs, convolutions
    norms        reference: as the operation says · fused: one kernel in the input's type · own: the same, in 16 bits
                 under autocast too, and the input's gradient is written over the output's (RMS norms) · fp32: root mean
                 squares in elementary operations, the weight multiplied in fp32 before the cast · lowered: under
                 autocast the kernel runs in 16 bits, its arguments cast by the class
    rstd         makes a norm's reciprocal deviation from the variance, if that is not rsqrt
    fp32_norm_weight  a norm's weight is cast to fp32 before it multiplies
    written      activations that have no kernel of their own (gelu_new, gelu_fast, quick_gelu) run as elementary
                 operations; else each is one kernel
    swiglu       split: activation, then a multiplication · fused: one kernel that keeps only its input · overwritten:
                 the same, which writes their gradients over both its inputs · remade: the same in dense
                 layers, which also computes its result again in the place of its gradient · generated:
                 compiled kernels run any activation that a multiplication reads
    before_down  runs on the input of an MLP's last linear layer
    linear       runs a linear layer, if it is not torch's F.linear
    mixer        what runs a recurrence. whole: one kernel from the input projection to the output's, which keeps little
                 and recomputes the rest · apart: a kernel for the convolution and one for the scan · torch: elementary
                 operations

    Mixtures of experts
    router       the type in which the chosen experts' weights leave the router. logits: that of the logits · scores:
                 that of the scores · tokens: that of the tokens · sparsemixer: chosen one after the other, each from a
                 masked softmax (Phi-3.5-MoE)
    native_scores  the scores are made in the logits' type: "kept" under autocast too, or "raised" by it; "": in fp32
    shares       divides the chosen scores by their sum
    chosen       runs on the weights of the chosen experts before they leave the router
    scores_inside  a choice's score multiplies what the expert's last product reads, not what it makes
    fp32_router  the router's weight is stored in fp32; else a matmul in fp32 casts it on every pass
    linear_router  the router is a linear layer of its own, which adapters can target
    router_apart autocast is off in the router
    fp32_logits  the router's logits are cast to fp32 before anything reads them
    looped       experts run one after the other on the tokens that chose them, gate and up in one matmul (joined) or in
                 one each (apart) of a tensor of all experts' weights, or each a module of its own (modules); "": on
                 sorted tokens, in grouped matmuls
    looped_in_4  what `looped` was in transformers 4, where it is "" in 5 (modeling_<model type>.py of 4.52 and 4.57)
    prunes       of what recomputation by operations saves, a compiled step keeps what a gradient needs: not the output
                 of a block's last linear layer (torch/_functorch/partitioners.py cuts the joint graph where values
                 cross from the forward to the backward pass; eager, all outputs that the policy saves are cached:
                 torch/utils/checkpoint.py, _CachingTorchDispatchMode)
    unrouted     every expert runs every token, in batched matmuls; scores of those that were not chosen are 0
    branched     NF4 weights are expanded by nested conditions, as bitsandbytes did before 0.48, not by a table
    expert_linears  names of both linear layers of each expert, if it is a module of its own
    fuses_gradients  linear layers add their weights' gradients to a buffer of all gradients themselves, and return
                 placeholders that are kept (footprint/placeholders.py)
    grouped_linears  the experts' weights are those of linear layers, gate and up in one, which have adapters as others

    Layouts and tuning
    gather_again with sequence parallelism a column-parallel linear keeps its own part and gathers again in backward;
                 LoRA's pair on it keeps the tokens of all ranks
    gathers_keys  context-parallel ranks gather the keys and values of all, and merge in fp32 what they make of each
                 rank's: torch's context_parallel as accelerate and torchtitan set it (ParallelismConfig, "allgather")
    gathers_heads  tensor-parallel ranks that are a multiple of the key/value heads gather the fused projection's result
                 and take a whole head each; its weights are divided evenly. Other implementations fail where ranks do
                 not divide them (Megatron-core of 2025, megatron/core/transformer/attention.py, num_query_groups <
                 world_size)
    wide_head    the head is left out of recipes of fewer than 16 bits, which convert the other linear layers
    head_is_layer  the class names another module than the head as the one with its output: peft's `all-linear` takes
                 the head too
    tuning       what is trained of a frozen network; None: everything
    own_head     the head has a weight of its own, also where a model's config ties it to the embedding

    What is allocated around the operations
    buffers      tensors in addition to the parameters, each (what, dtype or "" for the weights'). rotary: inverse
                 frequencies, twice, for each rotary table · spare rotary: those that no layer reads · each rotary: each
                 layer that rotates its own · angles: sines and cosines of every position, each layer its own · shared
                 angles: one for all layers · masks: a causal mask of the longest sequence, each layer its own · mask:
                 one for all layers · ids: of every position · sines: of every position and two more, each stack its own
                 · positions: a row of sines for each · logits: one for each token of the vocabulary · scale: the factor
                 of each embedding · factors: two of layers' own inputs · scalar: one for each layer · scalars: two for
                 each layer
    checkpoints  the class supports activation checkpointing
    late         a checkpointed layer is recomputed when its backward pass first needs a tensor (use_reentrant=False)
    wakes        with checkpointing, the embedding's output requires a gradient, though nothing before it is trained
    fp32_weights weights (`module/weight`, of the module only the end; norm for a norm's, nothing if none is named)
                 that loading a checkpoint in a 16-bit type leaves in fp32 (_keep_in_fp32_modules_strict)
    fp16_excepts those that only loading in fp16 leaves in fp32 (_keep_in_fp32_modules)
    norms_last   a layer registers its norms after its linear layers
    registers_first  modules of a layer, or before the layers, by the last part of their path, that register their
                 weights before those of their parent that run earlier
    closure      what a checkpointed layer refers to: tables (cos and sin), ids (one row of positions), each ids (a row
                 for each sequence), distances (an id for each query and key, where relative positions have scores),
                 masks (eager attention's, one for each window), mask (one for all), alibi (slopes times positions)
    embeddings   the model holds what it looked up until the layers are done: "layers", or the loss: "loss"
    counted      model types of which the bytes kept for backward were counted on its code, without recomputation; None
                 if the table of class_facts.py says so for each mode
    """

    name: str = HUGGING_FACE
    softmax: str = "fp32"
    mask: str = ""
    written: bool = True
    norms: str = "reference"
    rotary: str = "table"
    fp32_sinks: bool = False
    fused_projections: bool = False
    tokens_first: bool = False
    rotary_fp32: bool = False
    joins: bool = False
    joins_narrow: bool = False
    by_kind: bool = False
    fp32_loss: bool = True
    shifted: bool = True
    causal_loss: bool = False
    cuts: str = ""
    positions: str = "one"
    segments: str = "one"
    mixer: str = "whole"
    kernel_mask: str = ""
    router: str = "logits"
    native_scores: str = ""
    fp32_router: bool = False
    linear_router: bool = False
    router_apart: bool = False
    fp32_logits: bool = False
    looped: str = ""
    looped_in_4: str = "modules"
    prunes: bool = False
    unrouted: bool = False
    branched: bool = False
    scores_inside: bool = False
    expert_linears: tuple[str, ...] = ()
    fuses_gradients: bool = False
    grouped_linears: bool = False
    drops: str = ALWAYS
    packed: bool = False
    query_scale: bool = False
    sinks: str = "shifted"
    masked_scores: Callable[[Running, Tensor], Tensor] | None = None
    linear: Callable[[Running, Tensor, Number, Number, bool, str], Tensor] | None = None
    rstd: Callable[[Running, Tensor], Tensor] | None = None
    before_down: Callable[[Running, Tensor], Tensor] | None = None
    shares: Callable[[Running, Tensor, Number], Tensor] | None = None
    chosen: Callable[[Running, Tensor], Tensor] | None = None
    few_heads: str = ""
    qkv: str = ""
    token_ids: str = ""
    fp32_norm_weight: bool = False
    kernels: tuple[str, ...] = ALL_KERNELS
    passes: tuple[str, ...] = ()
    crops: bool = False
    swiglu: str = "split"
    gather_again: bool = False
    holds_logits: bool = False
    parallel_loss: bool = False
    loss: str = ""
    log_probs: str = ""
    gathers_heads: bool = False
    gathers_keys: bool = False
    wide_head: bool = False
    head_is_layer: bool = False
    tuning: Tuning | None = None
    own_head: bool = False
    buffers: tuple[tuple[str, str], ...] = (ROTARY,)
    fp32_weights: tuple[str, ...] = ()
    fp16_excepts: tuple[str, ...] = ()
    norms_last: bool = True
    registers_first: tuple[str, ...] = ()
    checkpoints: bool = True
    late: bool = False
    wakes: bool = False
    closure: tuple[str, ...] = ("tables", "ids", "masks")
    weights_to: str = "layer"
    variables: tuple[str, ...] = ()
    norms_inline: bool = False
    embeddings: str = "layers"
    counted: tuple[str, ...] | None = None

    @property
    def of_transformers(self) -> bool:
        """Whether it is a class of transformers."""
        return self.name == HUGGING_FACE


HF = Implementation(kernel_mask="long", late=True, wakes=True, gathers_keys=True)
"""Most decoders of transformers: every kernel of torch's attention, fp32 softmax and loss, tables made once."""
HF_EAGER = replace(HF, kernels=(EAGER,))
"""Attention as elementary operations only."""
PARTIAL_ROTARY = replace(HF, joins=True)
"""The rotated part of a head is put together with the rest anew."""
FP32_ROTARY = replace(HF, rotary_fp32=True)
SIGMOID_ROUTER = replace(HF, router="scores", native_scores="kept")
"""Scores of experts in the logits' type (DeepSeek-V3's router)."""
FP32_ROUTER = replace(SIGMOID_ROUTER, fp32_router=True, fp32_weights=("mlp.gate/weight",), registers_first=(ROUTED,))
"""Since transformers 5.24 its weight is stored in fp32."""
OWN_LABELS = replace(HF, softmax="native", fp32_loss=False, shifted=False)
"""Labels lie at their own positions, and the loss takes the logits as they are (encoders, encoder-decoders)."""

ONE, MANY, PLAIN, DROPS = "one", "many", "plain", "dropout"


def mode(precision: str, attention: str, dropout: bool, sequences: int, recompute: str = "none") -> str:
    """Return the name of a mode: bf16, fp32 or autocast · the attention kernel · dropout or not · one sequence or more
    (torch makes views if a dimension is 1) · what is recomputed, if anything is."""
    name = f"{precision}/{attention}/{DROPS if dropout else PLAIN}/{ONE if sequences == 1 else MANY}"
    return name if recompute == "none" else f"{name}/{recompute}"


def recomputation_of(name: str) -> str:
    """Return the recomputation of a mode."""
    return name.split("/")[4] if name.count("/") == 4 else "none"


def measured(implementation: Implementation, model_type: str, mode: str) -> bool:
    """Return whether the bytes kept for backward in this mode equal those that hooks counted on the implementation, for
    every config that was drawn (tools/saved_bytes.py)."""
    if implementation.counted is None:
        return mode in measured_modes(model_type)
    return model_type in implementation.counted and recomputation_of(mode) == "none"
