"""Stand-ins, on the meta device, for the kernels of recurrent layers: each saves what the package's autograd Function
saves and makes what it makes, and computes nothing. tools/saved_bytes.py puts them in place of the written-out code
that transformers falls back to.

The functions are those that src/napkin/operations/mixers.py names, with their sources.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.autograd import Function

SCAN_CHUNK, DELTA_CHUNK = 2048, 64
Narrowing = Callable[[Any], Any]
Pause = Callable[[], contextlib.AbstractContextManager[None]]


def rows_first(x: Any) -> Any:
    """Return a tensor whose last dimension is contiguous: the same one, or a copy."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


class _Inner(Function):
    @staticmethod
    def forward(ctx: Any, joined: Any, conv: Any, low: Any, step: Any, out: Any, a: Any, others: Any) -> Any:
        joined = rows_first(joined)
        (sequences, both, length), state = joined.shape, a.shape[-1]
        channels, narrow = both // 2, low.dtype
        rows = torch.empty(sequences * length, low.shape[0], dtype=narrow)
        b, c = (torch.empty(sequences, 1, state, length, dtype=narrow) for _ in range(2))
        chunks = -(-length // SCAN_CHUNK)
        states = torch.empty(sequences, channels, chunks, 2 * state, dtype=torch.float32)
        scanned = torch.empty(sequences, channels, length, dtype=narrow)
        ctx.save_for_backward(joined, conv, rows, low, step, out, a, b, c, states, scanned, *others)
        return torch.empty(sequences, length, out.shape[0], dtype=out.dtype)


class _Conv(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        if x.stride(2) != 1 and x.stride(1) != 1:
            x = x.contiguous()
        ctx.save_for_backward(x, weight, bias)
        return torch.empty_like(x)


class _Scan(Function):
    @staticmethod
    def forward(ctx: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, bias: Any) -> Any:
        u, delta, b, c, z = (rows_first(x) for x in (u, delta, b, c, z))
        sequences, channels, length = u.shape
        chunks = -(-length // SCAN_CHUNK)
        states = torch.empty(sequences, channels, chunks, 2 * a.shape[-1], dtype=torch.float32)
        ctx.save_for_backward(u, delta, a, b, c, d, z, bias, states, torch.empty_like(delta))
        return torch.empty_like(z)


class _Ssd(Function):
    @staticmethod
    def forward(ctx: Any, joined: Any, out: Any, heads: int, size: int, groups: int, normed: bool, kept: Any) -> Any:
        sequences, length, _ = joined.shape
        scanned = torch.empty(sequences, length, heads, size, dtype=joined.dtype)
        spread = [torch.empty(groups * sequences * length, dtype=torch.float32)] if normed else []
        ctx.save_for_backward(joined, scanned, out, *spread, *kept)
        return torch.empty(sequences, length, out.shape[0], dtype=out.dtype)


class _Delta(Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        (sequences, length, heads, _), value_heads = q.shape, v.shape[2]
        norms = [torch.empty(sequences * length * heads, dtype=torch.float32) for _ in range(2)]
        solved = torch.empty(sequences, length, value_heads, DELTA_CHUNK, dtype=k.dtype)
        summed = torch.empty(g.shape, dtype=torch.float32)
        ctx.save_for_backward(torch.empty_like(q), torch.empty_like(k), *norms, v, summed, beta, solved)
        return torch.empty(*v.shape, dtype=q.dtype)


class _Kda(Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        sequences, length, heads, _ = q.shape
        norms = [torch.empty(sequences * length * heads, dtype=torch.float32) for _ in range(2)]
        chunks = [torch.empty(sequences, length, heads, DELTA_CHUNK, dtype=k.dtype) for _ in range(2)]
        summed = torch.empty(g.shape, dtype=torch.float32)
        ctx.save_for_backward(torch.empty_like(q), torch.empty_like(k), *norms, v, summed, g, beta, *chunks)
        return torch.empty_like(v)


class _Mlstm(Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
        read = [x.contiguous() for x in (q, k, v, i, f)]
        ctx.save_for_backward(*read, *(torch.empty(i.shape, dtype=torch.float32) for _ in range(2)))
        return torch.empty(v.shape, dtype=q.dtype)


class _Wkv(Function):
    @staticmethod
    def forward(ctx: Any, decay: Any, first: Any, key: Any, value: Any) -> Any:
        out = torch.empty_like(key)
        ctx.save_for_backward(-torch.exp(decay.float()), first, key.contiguous(), value.contiguous(), out)
        return out


def stand_ins(narrowed: Narrowing, paused: Pause) -> dict[str, Callable[..., Any]]:
    """Return the functions by their names in transformers' modules. `narrowed`: a weight as autocast makes it;
    `paused`: what stands inside runs as it is written."""

    def mamba_inner_fn(
        xz: Any, conv: Any, conv_bias: Any, low: Any, step: Any, out: Any, *rest: Any, **named: Any
    ) -> Any:
        low, step, out = (narrowed(weight) for weight in (low, step, out))
        others = [
            named[name] for name in ("delta_bias", "b_rms_weight", "c_rms_weight", "dt_rms_weight") if name in named
        ]
        with paused():
            return _Inner.apply(xz, conv, low, step, out, rest[1], [conv_bias, rest[4], *others])

    def causal_conv1d_fn(x: Any, weight: Any, bias: Any = None, **_: Any) -> Any:
        with paused():
            return _Conv.apply(x, weight, bias)

    def mamba_selective_scan(
        u: Any, delta: Any, a: Any, b: Any, c: Any, D: Any = None, z: Any = None, delta_bias: Any = None, **_: Any
    ) -> Any:
        with paused():
            return _Scan.apply(u, delta, a, b, c, D, z, delta_bias)

    def mamba2_split_conv1d_scan_combined(
        joined: Any, conv: Any, conv_bias: Any, dt_bias: Any, a: Any, D: Any, chunk_size: int, **named: Any
    ) -> Any:
        norm = named.get("rmsnorm_weight")
        out = narrowed(named["outproj_weight"])
        kept = [conv, conv_bias, dt_bias, a, D, norm, named.get("outproj_bias")]
        sizes = D.shape[0], named["headdim"], named["ngroups"]
        with paused():
            return _Ssd.apply(joined, out, *sizes, norm is not None, kept)

    def torch_chunk_gated_delta_rule(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, **_: Any) -> Any:
        with paused():
            return _Delta.apply(q, k, v, g, beta), None

    def chunk_kimi_delta_attention(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, **_: Any) -> Any:
        with paused():
            return _Kda.apply(q, k, v, g, beta), None

    def mlstm_chunkwise_native_autograd(
        query: Any, key: Any, value: Any, igate: Any, fgate: Any, return_last_states: bool = False, **_: Any
    ) -> Any:
        with paused():
            out = _Mlstm.apply(query, key, value, igate, fgate)
        return (out, (None, None, None)) if return_last_states else out

    def rwkv_linear_attention(decay: Any, first: Any, key: Any, value: Any, state: Any = None, **_: Any) -> Any:
        with paused():
            return _Wkv.apply(decay, first, key, value), state

    named = (
        mamba_inner_fn,
        causal_conv1d_fn,
        mamba_selective_scan,
        mamba2_split_conv1d_scan_combined,
        torch_chunk_gated_delta_rule,
        chunk_kimi_delta_attention,
        mlstm_chunkwise_native_autograd,
        rwkv_linear_attention,
    )
    return {function.__name__: function for function in named}


class SparseBlocks:
    """The kernels of MRA's attention (transformers' kernels/mra/cuda_launch.cu, kernels-community/mra): products of
    chosen blocks of 32 queries and 32 keys, in fp32, outside of autograd."""

    @staticmethod
    def index_max(values: Any, indices: Any, queries: int, keys: int) -> tuple[Any, Any]:
        """Return the largest score of each query, and the same for each chosen block."""
        return values.new_zeros(len(indices), 32 * queries), torch.zeros_like(values)

    @staticmethod
    def mm_to_sparse(query: Any, key: Any, indices: Any) -> Any:
        """Return the scores of the chosen blocks."""
        return query.new_zeros(*indices.shape, 32, 32)

    @staticmethod
    def sparse_dense_mm(weights: Any, indices: Any, dense: Any, queries: int) -> Any:
        """Return the weighted sums of each block of queries."""
        return dense.new_zeros(len(dense), queries, dense.shape[2], 32)


def install(module: ModuleType, functions: dict[str, Callable[..., Any]]) -> None:
    """Put them in place of a modelling module's own; a convolution that asks for no kernel stays as it is written."""
    for name, function in functions.items():
        own = getattr(module, name, None)
        if own is not None and (name != "causal_conv1d_fn" or hasattr(own, "__wrapped__")):
            setattr(module, name, function)
    if hasattr(module, "mra_cuda_kernel"):
        module.mra_cuda_kernel = SparseBlocks  # type: ignore[attr-defined]
    for name in vars(module):
        if name.endswith("QSAIndexer"):
            getattr(module, name).forward = chosen_keys


def chosen_keys(_: Any, hidden: Any, positions: Any, mask: Any, *__: Any) -> Any:
    """Choose keys for each query, as a mask; what it is computed from depends on the data and is freed with it."""
    return torch.ones(hidden.shape[0], 1, hidden.shape[1], mask.shape[-1], dtype=torch.bool)
