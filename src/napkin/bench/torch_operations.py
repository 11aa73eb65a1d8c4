"""The computation of each kind of operation in torch: one function per kind, registered by `builds`.

A kind without a function is refused by name. Imported only if a step is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from napkin.errors import Refused
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.experts import Experts
from napkin.operations.linear import Matmul
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Dropout, Jitter, Multiply, Scale, Softcap
from napkin.operations.rotary import Rotary
from napkin.operations.router import Router
from napkin.operations.views import Concat, Slice

EPSILON = 1e-6
INIT_STD = 0.02
SOFTCAP = 30.0


def _eager_gelu(x: Tensor) -> Tensor:
    """Compute gelu_new in elementary operations, as its models do."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": _eager_gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@dataclass(slots=True)
class ForwardContext:
    """Tensors that the layers share in one forward pass: cos and sin by rotated width, computed once."""

    rotations: dict[int, tuple[Tensor, Tensor]]
    backends: Sequence[SDPBackend]


Kind = TypeVar("Kind", bound=Operation)
Run = Callable[[Any, "TorchOperation", list[Tensor], ForwardContext], Tensor]
RUNS: dict[type[Operation], Run] = {}
"""Kind of operation → what it computes: (operation, its module, input tensors, context) → output tensor."""


def builds(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, TorchOperation, list[Tensor], ForwardContext], Tensor]], Run]:
    """Register the module that computes a type of operation."""

    def register(run: Callable[[Kind, TorchOperation, list[Tensor], ForwardContext], Tensor]) -> Run:
        RUNS[kind] = run
        return run

    return register


class TorchOperation(nn.Module):
    """One operation with its parameters."""

    def __init__(self, op: Operation, offset: int = 0) -> None:
        super().__init__()
        run = RUNS.get(type(op))
        if run is None:
            raise Refused(
                f"bench step: cannot build {type(op).__name__} ({op.name})",
                "a training step is measured for decoders of norms, linear layers, attention, MLPs and experts",
            )
        self.op = op
        self.run = run
        self.offset = offset  # of a Slice, in what it is cut from
        for weight in op.weights():
            shape = weight.shape if weight.copies == 1 else (weight.copies, *weight.shape)
            self.register_parameter(weight.name, nn.Parameter(torch.empty(shape)))

    def reset(self) -> None:
        """Set the initial values of the parameters."""
        for name, parameter in self.named_parameters():
            if name == "weight" and type(self.op) is Norm:
                nn.init.constant_(parameter, 0.0 if self.op.unit_offset else 1.0)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INIT_STD)

    def forward(self, inputs: list[Tensor], context: ForwardContext) -> Tensor:
        """Compute the operation's output from its inputs."""
        return self.run(self.op, self, inputs, context)

    def parameter(self, name: str) -> Tensor | None:
        """Return the parameter of that name, None if the operation has none."""
        found = getattr(self, name, None)
        return found if isinstance(found, Tensor) else None


def of_kind(operations: Sequence[Operation], kind: type[Kind]) -> list[Kind]:
    """Return the operations of a kind, in order."""
    return [op for op in operations if isinstance(op, kind)]


@builds(Norm)
def _norm(op: Norm, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    x = inputs[0]
    if op.gated:
        raise Refused(f"bench step: cannot build a gated norm ({op.name})")
    shape = x.shape
    if op.groups > 1:
        x = x.view(*shape[:-1], op.groups, op.width)
    weight, bias = part.parameter("weight"), part.parameter("bias")
    if op.kind == "layer":
        if weight is not None and weight.dim() > 1:
            x = F.layer_norm(x, (op.width,), eps=EPSILON) * weight
        else:
            x = F.layer_norm(x, (op.width,), weight, bias, EPSILON)
        return x.view(shape)
    upcast = x.to(torch.float32)
    upcast = upcast * torch.rsqrt(upcast.pow(2).mean(-1, keepdim=True) + EPSILON)
    if weight is None:
        result = upcast.to(x.dtype)
    elif op.arithmetic == "fp32_norm":
        result = weight * upcast.to(x.dtype)
    else:
        factor = 1.0 + weight.float() if op.unit_offset else weight.float()
        result = (upcast * factor).to(x.dtype)
    return result.view(shape)


@builds(Matmul)
def _matmul(op: Matmul, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    weight = part.parameter("weight")
    assert weight is not None
    return F.linear(inputs[0], weight, part.parameter("bias"))


@builds(Slice)
def _slice(op: Slice, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return inputs[0][..., part.offset : part.offset + op.width]


@builds(Rotary)
def _rotary(op: Rotary, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    flat = inputs[0]
    x = flat.view(*flat.shape[:-1], op.heads, op.head_dim)
    cos, sin = context.rotations[op.dim]
    part_rotated, rest = (x, None) if op.dim == op.head_dim else (x[..., : op.dim], x[..., op.dim :])
    half = op.dim // 2
    if op.pairing in ("half", "halves"):
        rotated = torch.cat((-part_rotated[..., half:], part_rotated[..., :half]), dim=-1)
    else:
        rotated = torch.stack((-part_rotated[..., 1::2], part_rotated[..., ::2]), dim=-1).flatten(-2)
    result = part_rotated * cos + rotated * sin
    if rest is not None:
        result = torch.cat((result, rest), dim=-1)
    return result.reshape(flat.shape)


@builds(AttentionCore)
def _attention(op: AttentionCore, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    q, k, v = inputs[:3]
    length = q.shape[1]
    narrow = any(limit is not None and limit < length for limit in (op.window, op.chunk))
    if narrow or op.softcap or op.sinks or op.cross or op.position != "none":
        raise Refused(
            f"bench step: cannot build this attention ({op.name}: windows, sinks, caps or biases)",
            "a window that is as long as the sequence is not a window: try a shorter --seq" if narrow else None,
        )
    q = q.view(*q.shape[:-1], op.heads, op.qk_dim).transpose(1, 2)
    k = k.view(*k.shape[:-1], op.kv_heads, op.qk_dim).transpose(1, 2)
    v = v.view(*v.shape[:-1], op.kv_heads, op.v_dim).transpose(1, 2)
    grouped = op.heads != op.kv_heads
    if context.backends:
        with sdpa_kernel(list(context.backends)):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=op.causal, enable_gqa=grouped)
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=op.causal, enable_gqa=grouped)
    return out.transpose(1, 2).reshape(*inputs[0].shape[:-1], op.heads * op.v_dim)


@builds(Activation)
def _activation(op: Activation, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    function = FUNCTIONS.get(op.function)
    if function is None:
        raise Refused(f"bench step: cannot build the activation {op.function} ({op.name})")
    return function(inputs[0])


@builds(Add)
def _add(op: Add, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    total = inputs[0]
    for other in inputs[1:]:
        total = total + other
    return total


@builds(Multiply)
def _multiply(op: Multiply, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return inputs[0] * inputs[1]


@builds(Scale)
def _scale(op: Scale, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    scale = part.parameter("scale")
    return inputs[0] * (1.0 if scale is None else scale)


@builds(Dropout)
def _dropout(op: Dropout, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return inputs[0]  # the step is measured at dropout 0


@builds(Jitter)
def _jitter(op: Jitter, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return inputs[0]  # the step is measured without noise


@builds(Softcap)
def _softcap(op: Softcap, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return torch.tanh(inputs[0] / SOFTCAP) * SOFTCAP


@builds(Concat)
def _concat(op: Concat, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    return torch.cat(inputs, dim=-1)


@builds(Embedding)
def _embedding(op: Embedding, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    weight = part.parameter("weight")
    assert weight is not None
    return F.embedding(inputs[0], weight)


@builds(Router)
def _router(op: Router, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    """Compute [tokens, experts]: the weight of each chosen expert, zero for the others."""
    weight = part.parameter("weight")
    assert weight is not None
    if op.score not in ("softmax", "softmax_top_k", "sigmoid"):
        raise Refused(f"bench step: cannot build a router that scores by {op.score} ({op.name})")
    logits = F.linear(inputs[0], weight, part.parameter("bias")).float()
    if op.score == "softmax_top_k":
        best, chosen = logits.topk(op.top_k, dim=-1)
        scores = best.softmax(-1)
    else:
        scores, chosen = (logits.softmax(-1) if op.score == "softmax" else logits.sigmoid()).topk(op.top_k, dim=-1)
    if op.normalize:
        scores = scores / scores.sum(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, chosen, scores).to(inputs[0].dtype)


@builds(Experts)
def _experts(op: Experts, part: TorchOperation, inputs: list[Tensor], context: ForwardContext) -> Tensor:
    """Sort tokens by expert, run one matmul a group, and add the weighted results back to their tokens."""
    if op.bias or op.weighted_input or op.function not in FUNCTIONS:
        raise Refused(f"bench step: cannot build these experts ({op.name})")
    x = inputs[0].reshape(-1, op.d_model)
    scores, chosen = inputs[1].reshape(-1, op.experts).topk(op.top_k, dim=-1)
    order = chosen.flatten().argsort()
    owner = order // op.top_k
    ones = torch.ones_like(order)
    counts = torch.zeros(op.experts, dtype=ones.dtype, device=x.device).scatter_add(0, chosen.flatten(), ones)
    rows = x[owner]
    function = FUNCTIONS[op.function]
    if op.gated:
        gate, up = _grouped(rows, part.parameter("gate_up"), counts).chunk(2, dim=-1)
        hidden = function(gate) * up
    else:
        hidden = function(_grouped(rows, part.parameter("up"), counts))
    out = _grouped(hidden, part.parameter("down"), counts) * scores.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, owner, out.to(x.dtype)).view(inputs[0].shape)


def _grouped(rows: Tensor, weights: Tensor | None, counts: Tensor) -> Tensor:
    """Multiply each group of rows by its own matrix: one kernel where torch has it (bf16 on CUDA), else a call each."""
    assert weights is not None
    if rows.is_cuda and rows.dtype == torch.bfloat16:
        offsets = counts.cumsum(0).to(torch.int32)
        return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=offsets)
    parts = torch.split(rows, counts.tolist())
    return torch.cat([part @ weight.t() for part, weight in zip(parts, weights, strict=True)])
