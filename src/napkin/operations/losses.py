"""Memory of cross entropy implementations other than torch's own."""

from __future__ import annotations

from collections.abc import Callable

from napkin.elementwise import Number, ceil_div, minimum, next_power, where
from napkin.record import record

Rows = Callable[[Number, Number, Number], Number]
"""Tokens of each part, of the tokens, the vocabulary and the width of the hidden state."""


def eighths(tokens: Number, vocabulary: Number, width: Number) -> Number:
    """Return the tokens of one of eight parts."""
    return ceil_div(tokens, 8)


def as_wide_as_hidden(tokens: Number, vocabulary: Number, width: Number) -> Number:
    """Return 2^⌈log2⌈T / ⌈V/h⌉⌉⌉ tokens: the logits of a part are about as large as the hidden state."""
    return minimum(next_power(ceil_div(tokens, ceil_div(vocabulary, width))), tokens)


def of_256(tokens: Number, vocabulary: Number, width: Number) -> Number:
    """Return 256 tokens."""
    return minimum(256, tokens)


FP32_LOGITS_OF_A_PART = 2**30
"""4 GiB of them, the most (unsloth-zoo since d9fe1f43, July 2026: half of the free memory, if that is less)."""


def of_four_gib(tokens: Number, vocabulary: Number, width: Number) -> Number:
    """Return the tokens of a part if all fp32 logits are divided into as few parts of at most 4 GiB as possible: one,
    or a multiple of four."""
    parts = ceil_div(tokens * vocabulary, FP32_LOGITS_OF_A_PART)
    return ceil_div(tokens, where(parts <= 1, 1, ceil_div(parts, 4) * 4))


@record
class Loss:
    """Bytes per logit of a form of cross entropy, from the head's matmul to the gradient of its output.

    kept    saved for backward        peak  at the peak, including `kept`
    passed  live in the backward of the head's matmul: the gradient that it reads and what is still allocated
    chunks  products of the head, one for each part of the tokens: the sum of its weight's gradient and a part's own
            are live together
    held    by the training loop until the end of the backward pass
    parts   the tokens of each part, if the head's product runs inside the loss, one part at a time: no logits leave it,
            and `peak` is of one part's logits
    early   gradients are computed in the forward pass, and kept; else, in the backward pass
    added   early: the gradient of the hidden state is fp32, and that of the head's weight goes into the parameter's own
            as each part is done
    local   held by the loss function, in addition to `kept`, until it returns
    again   of a reference's logits there, at the peak, and of those of a pass without gradients of its own
    row     of one sequence, in addition to the peak
    """

    kept: float
    peak: float
    passed: float = 2.0
    chunks: int = 1
    held: float = 0.0
    parts: Rows | None = None
    early: bool = True
    added: bool = False
    local: float = 0.0
    again: float = 0.0
    row: float = 0.0
    source: str = ""


LOSSES = {
    "compiled": Loss(2, 4, source="torch.compile: the 16-bit logits are kept, their gradient is a tensor of its own"),
    "in-place": Loss(
        2,
        2,
        source="unslothai/unsloth unsloth/kernels/cross_entropy_loss.py, fms-acceleration's copy of it, "
        "NVIDIA/TransformerEngine transformer_engine/pytorch/triton/cross_entropy.py: 16-bit logits, whose gradient is "
        "written over them",
    ),
    "in-place-fp32": Loss(
        2,
        6,
        source="the same in Hugging Face's Trainer under autocast: accelerate casts the returned logits to fp32 "
        "(utils/operations.py convert_outputs_to_fp32)",
    ),
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
        4,
        10,
        again=10,
        source="NVIDIA/Megatron-LM megatron/core/tensor_parallel/cross_entropy.py (2022): fp32 softmax in place, its "
        "gradient; megatron/core/fusions/fused_cross_entropy.py, compiled parts that return new tensors: 16-bit and "
        "fp32 logits and their exponentials; backward, the softmax, its fp32 gradient and that in 16 bits; "
        "megatron/core/transformer/module.py, Float16Module: logits that leave the model without a loss are cast too",
    ),
    "sharded": Loss(
        4,
        12,
        source="nanotron parallel/tensor_parallel/functional.py: 16-bit and fp32 logits, shifted ones whose softmax "
        "stays, a 16-bit gradient",
    ),
    "dtensor": Loss(
        4,
        16,
        source="torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward, run on torch 2.13: "
        "(grad_input + exp(x)) * grad_output, of which four fp32 tensors are live at a time; forward, 14 bytes",
    ),
    "fused": Loss(
        0,
        2,
        parts=as_wide_as_hidden,
        source="linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py: parts of "
        "2^⌈log2⌈T / ⌈V/h⌉⌉⌉ tokens, whose logits become their gradient in place; gradients of the hidden state and of "
        "the head's weight are made in the forward pass and kept",
    ),
    "fused-compiled": Loss(
        0,
        4,
        parts=of_four_gib,
        source="unslothai/unsloth-zoo unsloth_zoo/fused_losses/cross_entropy_loss.py: parts whose fp32 logits would "
        "be 4 GiB at most; compiled: 16-bit logits and their gradient; gradients of the hidden state and of the head's "
        "weight are made in the forward pass and kept",
    ),
    "chunked-recomputed": Loss(
        0,
        12,
        parts=of_256,
        early=False,
        source="huggingface/trl trl/trainer/sft_trainer.py _chunk, traced: 256 tokens at a time, each part "
        "checkpointed; under autocast, from copies of the head's weight in fp32 and in 16 bits; besides the logits, "
        "three fp32 tensors of their size",
    ),
    "log-probs": Loss(
        2,
        4,
        local=2,
        again=4,
        source="huggingface/trl trl/trainer/utils.py selective_log_softmax, 16-bit logits: the log-softmax of each "
        "sequence is kept, its gradients are stacked; dpo_trainer.py holds both models' logits to the end, and "
        "entropy_from_logits copies those without the last token",
    ),
    "log-probs-fp32": Loss(
        4,
        8,
        passed=4,
        again=8,
        row=4,
        source="the same, of logits that accelerate casts to fp32 (utils/operations.py convert_outputs_to_fp32): "
        "logsumexp keeps the logits, the gradients of all sequences are stacked",
    ),
    "divergence": Loss(
        14,
        30,
        local=2,
        again=2,
        source="huggingface/trl trl/experimental/gkd/gkd_trainer.py generalized_jsd_loss, traced: both log-softmaxes, "
        "their stacked sums with log β, the mixture and both divergences, in the logits' 16 bits",
    ),
    "divergence-fp32": Loss(
        28,
        60,
        passed=4,
        local=4,
        again=6,
        source="the same, of logits that accelerate casts to fp32 (utils/operations.py convert_outputs_to_fp32)",
    ),
    "chunked-backward": Loss(
        0,
        4,
        parts=eighths,
        added=True,
        source="pytorch/torchtitan torchtitan/components/loss.py, ChunkedLossWrapper, GradAccumulator: each part's "
        "backward pass runs at once; compiled: 16-bit logits and their gradient",
    ),
    "chunked-backward-eager": Loss(
        0,
        14,
        parts=eighths,
        added=True,
        source="the same, not compiled: 16-bit logits, fp32 log-softmax and its gradient, fp32 gradient of the logits",
    ),
    "chunked-backward-divided": Loss(
        0,
        18,
        parts=eighths,
        added=True,
        source="the same on a divided vocabulary, _LossParallelCrossEntropy: 16-bit logits, fp32 log-probabilities, "
        "and in the backward pass zeros, exponentials, their sum and its product",
    ),
    "held": Loss(
        4, 4, 0, held=4, source="LitGPT finetune/*.py: logits cast to fp32 as they leave the model, held by the loop"
    ),
}


def copied_bytes(stored: Number, narrow: Number, trained: bool) -> tuple[Number, Number]:
    """Return the bytes moved per element of the head's weight for each recomputed part, forward and backward; stored,
    narrow: bytes of the weight and of the matmul's operands.

    Forward, casts to fp32 and to the matmul's format; backward the same again, and the gradient is cast back to the
    weight's format on the same way and added to the sum of the parts before."""
    wide = 4
    casts = (stored + wide) * (stored < wide) + (wide + narrow) * (narrow < wide)
    return casts, casts + (casts + 3 * stored if trained else 0)
