"""A plain torch model made from napkin's own list of operations, so that what is timed is what was counted.

Written as Hugging Face's modeling files are (norms in fp32, cos and sin once a forward pass, logits in fp32 for the
loss), so that `napkin memory --implementation hf` speaks of the same tensors. Imported only where a step is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from napkin import record
from napkin.errors import Refused
from napkin.operations.attention import AttentionCore, Rotary
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.experts import Experts, Router
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Dropout, Jitter, Multiply, Scale, Softcap
from napkin.operations.views import Concat, Slice

EPSILON = 1e-6
ROPE_BASE = 10000.0
INIT_STD = 0.02
SOFTCAP = 30.0
IGNORED = -100  # the label that cross_entropy leaves out


def _written_gelu(x: Tensor) -> Tensor:
    """gelu_new in elementary operations, as its models compute it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": _written_gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@dataclass(slots=True)
class Context:
    """What one forward pass shares between layers: cos and sin by rotated width, made once."""

    turns: dict[int, tuple[Tensor, Tensor]]
    backends: Sequence[SDPBackend]


class Op(nn.Module):
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
        norm = isinstance(self.op, Norm)
        for name, parameter in self.named_parameters():
            if norm and name == "weight":
                nn.init.constant_(parameter, 0.0 if getattr(self.op, "unit_offset", False) else 1.0)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INIT_STD)

    def forward(self, inputs: list[Tensor], context: Context) -> Tensor:
        return self.run(self, inputs, context)

    def parameter(self, name: str) -> Tensor | None:
        found = getattr(self, name, None)
        return found if isinstance(found, Tensor) else None


class Program(nn.Module):
    """A list of operations run in order; a tensor is dropped after its last reader."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__()
        used: dict[str, int] = {}
        parts = []
        for op in operations:
            offset = 0
            if isinstance(op, Slice):
                offset = used.get(op.reads[0], 0)
                used[op.reads[0]] = offset + op.width
            parts.append(Op(op, offset))
        self.parts = nn.ModuleList(parts)
        last = {name: at for at, op in enumerate(operations) for name in op.reads}
        self.steps = [
            (op.name, op.reads, tuple(n for n in dict.fromkeys(op.reads) if last[n] == at))
            for at, op in enumerate(operations)
        ]

    def forward(self, x: Tensor, context: Context) -> Tensor:
        tensors = {"x": x}
        for part, (name, reads, done) in zip(self.parts, self.steps, strict=True):
            x = part([tensors[r] for r in reads], context)
            for gone in done:
                del tensors[gone]
            tensors[name] = x
        return x


class Decoder(nn.Module):
    """Embeddings, layers, final norm and head of one stack; `forward` gives the loss of next-token prediction."""

    def __init__(self, model: Model, backends: Sequence[SDPBackend] = (), recompute: bool = False) -> None:
        super().__init__()
        if len(model.stacks) != 1 or model.shared:
            raise Refused(f"bench step: {model.name} is not one stack of layers with their own weights")
        stack = model.stacks[0]
        self.model = model
        self.backends = backends
        self.recompute = recompute
        self.tables = nn.ModuleList(Op(op) for op in stack.before if isinstance(op, Embedding))
        self.before = Program(_after_tables(stack.before))
        self.layers = nn.ModuleList(Program(one.operations) for count, one in stack.runs for _ in range(count))
        self.after = Program(stack.after)
        turned = [op for one in stack.layers for op in one.operations if isinstance(op, Rotary)]
        self.turned = sorted({op.dim for op in turned})
        if model.tied:
            self._tie()

    def _tie(self) -> None:
        head = self.after.parts[-1]
        assert isinstance(head, Op)
        table = self.tables[0]
        assert isinstance(table, Op)
        head.register_parameter("weight", cast(nn.Parameter, table.weight))

    def reset(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        for part in self.modules():
            if isinstance(part, Op):
                part.reset()

    def forward(self, tokens: Tensor) -> Tensor:
        sequences, length = tokens.shape
        positions = torch.arange(length, device=tokens.device)
        context = Context({}, self.backends)
        x: Tensor | None = None
        for table in self.tables:
            looked = table([tokens if _role(table) == "token" else positions[None]], context)
            x = looked if x is None else x + looked
        if x is None:
            raise Refused(f"bench step: {self.model.name} has no token table")
        context.turns.update(self._turns(positions, x.dtype))
        x = self.before(x, context)
        for one in self.layers:
            x = checkpoint(one, x, context, use_reentrant=False) if self.recompute else one(x, context)
        logits = self.after(x, context).float()
        labels = F.pad(tokens, (0, 1), value=IGNORED)[..., 1:].contiguous()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=IGNORED)

    def _turns(self, positions: Tensor, dtype: torch.dtype) -> dict[int, tuple[Tensor, Tensor]]:
        turns = {}
        for width in self.turned:
            exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
            angles = torch.outer(positions.float(), ROPE_BASE**-exponents)
            both = torch.cat((angles, angles), dim=-1)[None, :, None, :]
            turns[width] = (both.cos().to(dtype), both.sin().to(dtype))
        return turns


def _role(table: nn.Module) -> str:
    assert isinstance(table, Op)
    assert isinstance(table.op, Embedding)
    return table.op.role


def _after_tables(before: Sequence[Operation]) -> list[Operation]:
    """What follows the look-ups, reading their sum as "x"."""
    names = {op.name for op in before if isinstance(op, Embedding)}
    rest: list[Operation] = []
    for op in before:
        if isinstance(op, Embedding):
            continue
        if isinstance(op, Add) and set(op.reads) <= names:  # the sum of the tables, taken already
            names.add(op.name)
            continue
        rest.append(record.replace(op, reads=tuple("x" if name in names else name for name in op.reads)))
    return rest


# --- what each operation does --------------------------------------------------------------------------------------

Run = Callable[[Op, list[Tensor], Context], Tensor]


def _norm(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    op = part.op
    assert isinstance(op, Norm)
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
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    if weight is None:
        result = wide.to(x.dtype)
    elif op.arithmetic == "fp32_norm":
        result = weight * wide.to(x.dtype)
    else:
        factor = 1.0 + weight.float() if op.unit_offset else weight.float()
        result = (wide * factor).to(x.dtype)
    return result.view(shape)


def _matmul(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    weight = part.parameter("weight")
    assert weight is not None
    return F.linear(inputs[0], weight, part.parameter("bias"))


def _slice(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    assert isinstance(part.op, Slice)
    return inputs[0][..., part.offset : part.offset + part.op.width]


def _rotary(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    op = part.op
    assert isinstance(op, Rotary)
    flat = inputs[0]
    x = flat.view(*flat.shape[:-1], op.heads, op.head_dim)
    cos, sin = context.turns[op.dim]
    turned, rest = (x, None) if op.dim == op.head_dim else (x[..., : op.dim], x[..., op.dim :])
    half = op.dim // 2
    if op.pairing == "half":
        rotated = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1)
    else:
        rotated = torch.stack((-turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    result = turned * cos + rotated * sin
    if rest is not None:
        result = torch.cat((result, rest), dim=-1)
    return result.reshape(flat.shape)


def _attention(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    op = part.op
    assert isinstance(op, AttentionCore)
    q, k, v = inputs[:3]
    length = q.shape[1]
    narrow = any(limit is not None and limit < length for limit in (op.window, op.chunk))
    if narrow or op.softcap or op.sinks or op.cross or op.position != "none":
        raise Refused(
            f"bench step: cannot build this attention ({op.name}: windows, sinks, caps or biases)",
            "a window that is as long as the sequence is no window: try a shorter --seq" if narrow else None,
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


def _activation(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    assert isinstance(part.op, Activation)
    function = FUNCTIONS.get(part.op.function)
    if function is None:
        raise Refused(f"bench step: cannot build the activation {part.op.function} ({part.op.name})")
    return function(inputs[0])


def _add(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    total = inputs[0]
    for other in inputs[1:]:
        total = total + other
    return total


def _multiply(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    return inputs[0] * inputs[1]


def _scale(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    scale = part.parameter("scale")
    return inputs[0] * (1.0 if scale is None else scale)


def _dropout(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    return inputs[0]  # the step is measured at dropout 0


def _jitter(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    return inputs[0]  # the step is measured without noise


def _softcap(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    return torch.tanh(inputs[0] / SOFTCAP) * SOFTCAP


def _concat(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    return torch.cat(inputs, dim=-1)


def _embedding(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    weight = part.parameter("weight")
    assert weight is not None
    return F.embedding(inputs[0], weight)


def _router(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    """Tokens × experts: the weight of each chosen expert, zero for the others."""
    op, weight = part.op, part.parameter("weight")
    assert isinstance(op, Router)
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


def _experts(part: Op, inputs: list[Tensor], context: Context) -> Tensor:
    """Tokens sorted by expert, one product a group, the weighted results added back to their tokens."""
    op = part.op
    assert isinstance(op, Experts)
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
    """Each group of rows times its own matrix: one kernel where torch has it (bf16 on CUDA), else one call a group."""
    assert weights is not None
    if rows.is_cuda and rows.dtype == torch.bfloat16:
        offsets = counts.cumsum(0).to(torch.int32)
        return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=offsets)
    parts = torch.split(rows, counts.tolist())
    return torch.cat([part @ weight.t() for part, weight in zip(parts, weights, strict=True)])


RUNS: dict[type[Operation], Run] = {
    Norm: _norm,
    Matmul: _matmul,
    Slice: _slice,
    Rotary: _rotary,
    AttentionCore: _attention,
    Activation: _activation,
    Add: _add,
    Multiply: _multiply,
    Scale: _scale,
    Dropout: _dropout,
    Jitter: _jitter,
    Softcap: _softcap,
    Concat: _concat,
    Embedding: _embedding,
    Router: _router,
    Experts: _experts,
}
