"""What serving a model holds in memory and moves per token: weights, the cache of keys and values, recurrent states.

Symbols: b sequences, n tokens of context, L layers, kv key/value heads, d head size, W bytes of all weights, A bytes of
the weights that one token reads (experts: those of the sequences of a batch), β memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number, minimum
from napkin.formulas.layer import AttentionCore, Conv, Embedding, Layer, Matmul, Model, Operation, Reused, Scan
from napkin.term import GIVEN, TRUE, Term, add, constant, divide, leaf, multiply

LATENT = "DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the latent and the shared rotary key are cached"
DECODE = "each new token reads every weight that it uses and the whole cache: Pope et al. 2022, arXiv:2211.05102"


def cached_numbers(layer: Layer, context: Number) -> tuple[Number, Number]:
    """Numbers that one sequence of `context` tokens keeps in one layer: per-token cache, and states of fixed size.

    Attention keeps its keys and values, kv·(d_qk + d_v) a token, for at most its window; where both are made from one
    narrower latent, the latent instead. Cross-attention's keys are the other stack's, kept for `context` tokens too.
    A recurrence keeps heads · head_dim · state numbers, a convolution its last kernel − 1 inputs."""
    by_name = {op.name: op for op in layer.operations}
    growing: Number = 0
    fixed: Number = 0
    for op in layer.operations:
        if isinstance(op, AttentionCore):
            tokens = context
            for bound in (op.window, op.chunk):
                if bound is not None:
                    tokens = minimum(tokens, bound)
            growing = growing + tokens * _width(op, by_name)
        elif isinstance(op, Scan):
            fixed = fixed + op.heads * op.head_dim * (op.state or 1)
        elif isinstance(op, Conv):
            fixed = fixed + op.channels * op.group * (op.kernel - 1)
    return growing, fixed


def _width(core: AttentionCore, by_name: Mapping[str, Operation]) -> int:
    """Numbers cached a token: keys and values as attention reads them, or the latent that they are made from."""
    whole = core.kv_heads * (core.qk_dim + core.v_dim)
    keys, values = core.reads[1], core.reads[2]
    shared = set(_products_behind(keys, by_name)) & set(_products_behind(values, by_name))
    direct = {_last_product(keys, by_name), _last_product(values, by_name)}
    latents = [by_name[name] for name in shared - direct]
    widths = [op.d_out for op in latents if isinstance(op, Matmul) and op.d_out < whole]
    return min([whole, *widths])


def _products_behind(name: str, by_name: Mapping[str, Operation]) -> list[str]:
    """Every linear layer that an output depends on inside the layer."""
    found, open_names, seen = [], [name], set()
    while open_names:
        op = by_name.get(open_names.pop())
        if op is None or op.name in seen:
            continue
        seen.add(op.name)
        if isinstance(op, Matmul):
            found.append(op.name)
        open_names += op.reads
    return found


def _last_product(name: str, by_name: Mapping[str, Operation]) -> str:
    """The linear layer nearest to an output."""
    open_names = [name]
    while open_names:
        op = by_name.get(open_names.pop(0))
        if op is None:
            continue
        if isinstance(op, Matmul):
            return op.name
        open_names += op.reads
    return ""


def cache(model: Model, context: Number, sequences: Number, dtype_bytes: float, dtype: str) -> Term:
    """Bytes that `sequences` sequences of `context` tokens keep: `memory/kv_cache`."""
    parts: list[Term] = []
    for stack in model.stacks:
        if stack.name == "encoder":
            continue
        for count, layer in stack.runs:
            growing, fixed = cached_numbers(layer, context)
            if isinstance(growing, int) and isinstance(fixed, int) and growing + fixed == 0:
                continue
            parts.append(
                multiply(
                    f"memory/kv_cache/{stack.name}/{layer.kind}",
                    leaf("layers", count, "1", TRUE),
                    leaf("numbers_per_sequence", growing + fixed, "1", TRUE, LATENT),
                    leaf("sequences", sequences, "1", GIVEN),
                    constant(f"bytes of {dtype}", dtype_bytes, "byte"),
                )
            )
    return add("memory/kv_cache", *parts) if parts else constant("memory/kv_cache", 0, "byte")


def decode_time(read_once: Term, cached: Term, bandwidth: Term) -> Term:
    """Least seconds of one decoding step: the weights that it uses and the cache, once through memory."""
    moved = add("decode/bytes", read_once, cached)
    return divide("time/per_token", moved, bandwidth, source=DECODE)


def weights_read(model: Model, tokens: Number) -> Number:
    """Parameters that one decoding step of `tokens` tokens reads: every matrix once, of a table of embeddings only rows
    (counted as none). Of E experts with k chosen by each token, E·(1 − (1 − k/E)^tokens) are expected to be hit where
    all are equally likely: k for one token."""
    total: Number = 0
    for stack in model.stacks:
        if stack.name == "encoder":
            continue
        runs = [(1, stack.before), *((count, layer.operations) for count, layer in stack.runs), (1, stack.after)]
        for count, operations in runs:
            for op in operations:
                of = op.of if isinstance(op, Reused) else op
                if isinstance(op, Embedding):
                    continue
                for weight in of.weights():
                    idle = (1 - weight.used / weight.copies) ** tokens
                    hit = weight.copies if idle == 0 else weight.used if tokens == 1 else weight.copies * (1 - idle)
                    total = total + count * weight.each * hit
    return total
