"""Memory of cross entropy implementations other than torch's own."""

from __future__ import annotations

from napkin.record import record


@record
class Loss:
    """Bytes per logit of a form of cross entropy, from the head's matmul to the gradient of its output.

    kept    saved for backward        peak  at the peak, including `kept`
    passed  live in the backward of the head's matmul: the gradient that it reads and what is still allocated
    chunks  products of the head, one for each part of the tokens: the sum of its weight's gradient and a part's own
            are live together
    held    by the training loop until the end of the backward pass
    fused   with the head's product, one part of the tokens at a time: no logits leave it, gradients are made at once.
            chunks, if several: parts of equal size, `peak` bytes for each logit of one of them; the gradient of the
            hidden state is fp32, and that of the head's weight goes into the parameter's own as each part is done
    local   held by the loss function, in addition to `kept`, until it returns
    again   of a reference's logits there, at the peak
    row     of one sequence, in addition to the peak
    """

    kept: float
    peak: float
    passed: float = 2.0
    chunks: int = 1
    held: float = 0.0
    fused: bool = False
    local: float = 0.0
    again: float = 0.0
    row: float = 0.0
    source: str = ""


LOSSES = {
    "compiled": Loss(2, 4, source="torch.compile: the 16-bit logits are kept, their gradient is a tensor of its own"),
    "in-place": Loss(
        2,
        2,
        source="unslothai/unsloth unsloth/kernels/cross_entropy_loss.py, fms-acceleration's copy of it: 16-bit logits, "
        "whose gradient is written over them",
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
        chunks=8,
        fused=True,
        source="pytorch/torchtitan torchtitan/components/loss.py, ChunkedLossWrapper, GradAccumulator: each part's "
        "backward pass runs at once; compiled: 16-bit logits and their gradient",
    ),
    "chunked-backward-eager": Loss(
        0,
        14,
        chunks=8,
        fused=True,
        source="the same, not compiled: 16-bit logits, fp32 log-softmax and its gradient, fp32 gradient of the logits",
    ),
    "chunked-backward-divided": Loss(
        0,
        18,
        chunks=8,
        fused=True,
        source="the same on a divided vocabulary, _LossParallelCrossEntropy: 16-bit logits, fp32 log-probabilities, "
        "and in the backward pass zeros, exponentials, their sum and its product",
    ),
    "held": Loss(
        4, 4, 0, held=4, source="LitGPT finetune/*.py: logits cast to fp32 as they leave the model, held by the loop"
    ),
}
