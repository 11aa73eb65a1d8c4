"""CUDA, emulated on the meta device: what its kernels save for backward, and which types autocast gives them.

Attention kernels are called as their ATen operations, dropout and fused norms are those of CUDA, and autocast is that
of autocast_on_meta.py. `emulate` puts all of it in place for this process.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"], os.environ["CUDA_VISIBLE_DEVICES"] = "1", ""

import torch  # noqa: E402
import torch._meta_registrations  # noqa: E402
import torch.nn.functional as functional  # noqa: E402
import torch.utils.checkpoint  # noqa: E402
from autocast_on_meta import Again, Autocast, Region, is_lowering, lowered_dtype, paused  # noqa: E402

from napkin.operations.attention.kernels import FLASH_HEAD, FLASH_LARGEST  # noqa: E402
from napkin.operations.implementations import FLASH  # noqa: E402

aten = torch.ops.aten


KERNEL = FLASH
"""The attention kernel that is asked for."""


def attend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention on CUDA (ATen/native/transformers/attention.cpp): the flash kernel takes no mask and
    one head size, padded to a multiple of 8; the efficient one no grouped heads; a boolean mask becomes a sum's term.
    """
    kernel = KERNEL
    active = Autocast.active
    if active is not None and not active.off:
        query, key, value, attn_mask = (active.lower(t) for t in (query, key, value, attn_mask))
    if key.shape[1] != query.shape[1] and not enable_gqa:
        with paused():
            return written_out(query, key, value, attn_mask, dropout_p, is_causal, scale)
    unlike = query.shape[-1] != value.shape[-1] or query.shape[-1] > FLASH_LARGEST
    if kernel == FLASH and (attn_mask is not None or unlike):
        kernel = "efficient"
    if kernel == FLASH:
        size = query.shape[-1]
        rest = -size % FLASH_HEAD
        if rest:
            query, key, value = (functional.pad(t, [0, rest]) for t in (query, key, value))
        flash = aten._scaled_dot_product_flash_attention
        out = fused(flash, (query, key, value, dropout_p, is_causal, False), scale)
        return out[..., :size] if rest else out
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
        if kernel == "efficient" and any(step % 8 for step in attn_mask.stride()[:-1]):
            attn_mask = functional.pad(attn_mask, [0, -attn_mask.shape[-1] % 8])[..., : attn_mask.shape[-1]]
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    if kernel == "cudnn":
        cudnn = aten._scaled_dot_product_cudnn_attention
        return fused(cudnn, (query, key, value, attn_mask, True, dropout_p, is_causal, False), scale)
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    efficient = aten._scaled_dot_product_efficient_attention
    return fused(efficient, (query, key, value, attn_mask, True, dropout_p, is_causal), scale)


def fused(kernel: Any, args: tuple[Any, ...], scale: float | None) -> Any:
    """Return a kernel's result. Where there are numbers, which CUDA's kernels cannot make here: any that differ from
    token to token, as the kernel lays its result out."""
    if args[0].device.type == "meta":
        return kernel(*args, scale=scale)[0]
    with paused():
        return _WithNumbers.apply(kernel, scale, *args)


class _WithNumbers(torch.autograd.Function):
    """The kernel runs on the meta device, where hooks tell what it saves; here the same is saved in its place."""

    @staticmethod
    def forward(ctx: Any, kernel: Any, scale: float | None, *args: Any) -> Any:
        given = [x.detach().to("meta") if isinstance(x, torch.Tensor) else x for x in args]
        for x in given[:3]:
            x.requires_grad_()
        saved: list[Any] = []
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
            made = kernel(*given, scale=scale)[0]
        any_numbers = torch.randn(made.shape, generator=torch.Generator().manual_seed(2), device="cpu")
        out = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="cpu").copy_(any_numbers)
        pairs = zip((*given, made), (*args, out), strict=True)
        known = {x.untyped_storage()._cdata: here for x, here in pairs if isinstance(x, torch.Tensor)}
        kept = [known.get(x.untyped_storage()._cdata) for x in saved]
        others = (torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in saved)
        ctx.save_for_backward(*(other if x is None else x for x, other in zip(kept, others, strict=True)))
        return out

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError


def written_out(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    """_scaled_dot_product_attention_math: what no kernel takes, here of heads that are not declared as grouped."""
    assert attn_mask is not None
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
    q, k, v = (t.float() for t in (query, key, value))
    root = (scale or query.shape[-1] ** -0.5) ** 0.5
    scores = torch.matmul(q * root, k.transpose(-2, -1) * root)
    weights = aten._safe_softmax(scores.add_(attn_mask), -1)
    return torch.matmul(drop(weights, dropout_p), v).to(query.dtype)


def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """functional.dropout on CUDA: one kernel, a mask of one byte an element."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


class LogSigmoid(torch.autograd.Function):
    """log_sigmoid_forward of CUDA, which keeps its input alone; other devices keep a buffer of its size too."""

    @staticmethod
    def forward(ctx: Any, input: Any) -> Any:
        ctx.save_for_backward(input)
        return torch.empty_like(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.empty_like(ctx.saved_tensors[0])


class FusedNorm(torch.autograd.Function):
    """_fused_rms_norm of CUDA, which keeps its input and the reciprocal root mean squares in fp32; other devices write
    it out."""

    @staticmethod
    def forward(ctx: Any, input: Any, shape: Any, weight: Any, eps: float | None) -> Any:
        rstd = input.new_empty((*input.shape[: -len(shape)], *(1 for _ in shape)), dtype=torch.float32)
        ctx.save_for_backward(input, weight, rstd)
        return torch.empty_like(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        input, weight, _ = ctx.saved_tensors
        return torch.empty_like(input), None, None if weight is None else torch.empty_like(weight), None


def normed(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """functional.rms_norm, which autocast runs in fp32."""
    active = Autocast.active
    if active is not None and not active.off:
        input, weight = active.raise_(input), active.raise_(weight)
    with paused():
        return FusedNorm.apply(input, normalized_shape, weight, eps)


def multiplied(input: Any, weight: Any, bias: Any = None) -> Any:
    """functional.linear, which CUDA refuses for operands of two types, and the meta device does not."""
    active = Autocast.active
    if (active is None or active.off) and input.dtype != weight.dtype:
        raise TypeError(f"mat1 and mat2 must have the same dtype, but got {input.dtype} and {weight.dtype}")
    return torch._C._nn.linear(input, weight, bias)


def grouped(mat_a: Any, mat_b: Any, *_: Any, offs: Any = None, out_dtype: Any = None, **__: Any) -> Any:
    """torch's grouped product on CUDA takes fp32 too (aten/src/ATen/native/GroupedMMUtils.h), which the meta device
    refuses; strides are multiples of 16 bytes on both."""
    for tensor in (mat_a, mat_b):
        step = tensor.stride(-2) if tensor.stride(-1) == 1 else tensor.stride(-1)
        if step * tensor.element_size() % 16:
            raise ValueError("strides should be multiple of 16 bytes")
    return torch._meta_registrations._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype)


def emulate() -> None:
    """Put CUDA's behavior in place of the meta device's, for this process."""
    import transformers.masking_utils
    import transformers.utils.generic

    lowers = {"lowers": False}
    torch.utils.checkpoint._get_autocast_kwargs = lambda device_type="": (
        lowers | {"lowers": Autocast.active is not None},
        lowers | {"lowers": Autocast.active is not None},
    )
    torch.amp.autocast = Again  # type: ignore[assignment,misc]
    torch._meta_registrations._meta_grouped_mm_common = grouped
    functional.scaled_dot_product_attention = attend
    functional.dropout = drop
    functional.linear = multiplied
    functional.logsigmoid = LogSigmoid.apply
    functional.rms_norm = normed
    torch.autocast = Region  # type: ignore[assignment,misc]
    torch.is_autocast_enabled = is_lowering
    torch.get_autocast_dtype = lowered_dtype
    transformers.utils.generic.maybe_autocast = Region
    # their answers are in the data: one sequence a row, nothing masked, no layer left out, shares between 0 and 1
    torch.distributions.Distribution.set_default_validate_args(False)
    masks = transformers.masking_utils
    masks.find_packed_sequence_indices = lambda position_ids: None
    masks.fast_all = lambda mask: True
    both_ways = masks._ignore_bidirectional_mask_sdpa
    masks._ignore_bidirectional_mask_sdpa = lambda mask, *others: both_ways(None, *others)
    transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *_: None
    # a number that the class holds as a tensor, and reads
    spans = transformers.models.deberta.modeling_deberta
    spans.compute_attention_span = lambda query, key, reach: min(max(query.shape[-2], key.shape[-2]), reach)
    rand = torch.rand
    torch.rand = lambda *size, **how: rand([], device="cpu") if size == ([],) else rand(*size, **how)
