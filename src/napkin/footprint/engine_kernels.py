"""Bytes that an engine's kernels move in addition to weights and cache: activations between matmuls, and tensors that
fused kernels would not write.

Most engines pass activations on in 16 bits, and run attention in one kernel. llama.cpp has one kernel for each
elementwise operation, in 32 bits. On GPUs with CUDA or HIP its 16-bit products convert their operand from 32 bits and
their result back (ggml-cuda.cu, ggml_cuda_op_mul_mat_cublas: to_fp16_cuda, cublasGemmEx of CUDA_R_16F, to_fp32_cuda);
Metal's read and write 32 bits. Before June 2024 quantized weights were written as 16 bits for the products of a prompt;
since then they are multiplied as they are stored (pull request 8075). Without flash attention scores are written: by
Q·Kᵀ, the conversion, the softmax, and the conversion before P·V.
"""

from __future__ import annotations

from collections.abc import Iterator

from napkin.counting import flops
from napkin.elementwise import Number
from napkin.footprint.served_weights import StoredWeights
from napkin.operations.base import Operation
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Model
from napkin.record import record, replace

HALF = 2
"""Bytes of an element of 16 bits, in which `Operation.traffic` counts."""
FEW = 64
"""Tokens up to which quantized weights are multiplied as they are stored (ggml-cuda.cu, MMQ_MAX_BATCH_SIZE)."""


@record
class EngineKernels:
    """How an engine's kernels read and write activations.

    width      bytes of an element between kernels
    converts   bytes moved to convert an element of a matmul's operand or result
    scores     bytes moved per attention score; 0: one fused kernel that writes none
    widens     quantized weights are written in 16 bits before the matmuls of a prompt
    copies     maximum parts of a prompt in flight in a pipeline; 0: the number of stages
    """

    width: int = HALF
    converts: int = 0
    scores: int = 0
    widens: bool = False
    copies: int = 0


FUSED = EngineKernels()
COPIES = 4
"""Of a graph's inputs (ggml CMakeLists.txt, GGML_SCHED_MAX_COPIES)."""
QUEUE = 1000
"""Kernels that the host can queue on a stream before it blocks: about 1,000, a fixed limit
(forums.developer.nvidia.com/t/68937)."""
WIDE_CUDA, WIDE_METAL = EngineKernels(4, 6, 24, copies=COPIES), EngineKernels(4, 0, 16, copies=COPIES)
"""llama.cpp without flash attention. A score on CUDA: 2 written, 2 + 4 converted, 4 + 4 softmax, 4 + 2 converted, 2
read; on Metal: 4 written, 4 + 4 softmax, 4 read."""


def kernels_today(engine: str, vendor: str) -> EngineKernels:
    """Return the default kernels of an engine's server: llama.cpp's uses flash attention if available
    (common/arg.cpp, --flash-attn: auto)."""
    if engine != "llama.cpp":
        return FUSED
    return replace(WIDE_METAL if vendor == "Apple" else WIDE_CUDA, scores=0)


def activations(kernels: EngineKernels, model: Model, tokens: Number, pairs: Number) -> float:
    """Return the bytes that kernels move between matmuls for `tokens` tokens, whose attention has `pairs` (query, key)
    pairs in each head."""
    of_token, of_pair = _moved(model, kernels)
    return float(tokens) * of_token + float(pairs) * of_pair


@remembered
def _moved(model: Model, kernels: EngineKernels) -> tuple[float, float]:
    """Return the bytes that kernels move between matmuls for a token, and for a (query, key) pair in each head."""
    of_token = of_pair = 0.0
    for count, op, converted in _operations(model):
        of_token += count * (float(op.traffic()[0]) * kernels.width / HALF + kernels.converts * converted)
        if kernels.scores and (core := op.attends()) is not None:
            of_pair += count * float(core.heads) * kernels.scores
    return of_token, of_pair


def widened(kernels: EngineKernels, weights: StoredWeights, read: Number, tokens: Number) -> float:
    """Return the bytes moved to write weights in 16 bits in a pass of `tokens` tokens that reads `read` bytes."""
    if not kernels.widens or weights.each >= HALF or tokens <= FEW:
        return 0.0
    return float(read) * (1 + HALF / weights.each)


def in_flight(kernels: EngineKernels, model: Model, weights: StoredWeights, stages: int, parts: Number) -> float:
    """Return the parts of a prompt in flight in a pipeline: if one host launches the kernels of all stages, the one
    that runs and as many as their streams can queue."""
    most = float(min(stages, parts))
    if not kernels.copies or stages == 1:
        return most
    again = int(kernels.widens and weights.each < HALF)
    of_layers = (n * _launches(kernels, op, converted > 0, again) for n, op, converted in _operations(model))
    launched = sum(of_layers) / stages
    return min(most, kernels.copies, 1 + QUEUE / launched)


def _launches(kernels: EngineKernels, op: Operation, multiplies: bool, widened: int) -> int:
    """Return the number of kernels of an operation: the matmul, one conversion each for operand and result, one to
    widen the weights; for attention two matmuls and a softmax."""
    of_product = 1 + (2 if kernels.converts else 0)
    if op.attends() is not None:
        return 2 * of_product + 1 if kernels.scores else 1
    return of_product + widened if multiplies else 1


def _operations(model: Model) -> Iterator[tuple[int, Operation, float]]:
    """Yield (layers, operation, elements per token of the operands and results of its matmuls) of the last stack."""
    stack = model.stacks[-1]
    work = flops.works(model, 1, 1)[stack.name]
    for _, count, layer in stack.kinds():
        for op in layer.operations:
            products = [one for one in flops.products_of(op, work) if one.weight]
            yield int(count), op, sum(float(one.batch * one.m * (one.k + one.n)) for one in products)
