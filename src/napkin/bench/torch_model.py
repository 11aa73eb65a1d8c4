"""A plain torch model made from napkin's own list of operations, so that what is timed is what was counted.

Written as Hugging Face's modeling files are (norms in fp32, cos and sin once a forward pass, logits in fp32 for the
loss), so that `napkin memory --implementation hf` speaks of the same tensors. Imported only if a step is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.utils.checkpoint import checkpoint

from napkin import record
from napkin.bench.torch_operations import ForwardContext, TorchOperation, of_kind
from napkin.errors import Refused
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.model import Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import TOKEN
from napkin.operations.rotary import Rotary
from napkin.operations.views import Slice

ROPE_BASE = 10000.0
IGNORED = -100  # the label that cross_entropy ignores


class OperationList(nn.Module):
    """A list of operations run in order; a tensor is dropped after its last reader."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__()
        offsets = _offsets(operations)
        self.parts = nn.ModuleList(TorchOperation(op, offsets.get(op.name, 0)) for op in operations)
        last = {name: at for at, op in enumerate(operations) for name in op.reads}
        self.steps = [
            (op.name, op.reads, tuple(n for n in dict.fromkeys(op.reads) if last[n] == at))
            for at, op in enumerate(operations)
        ]

    def forward(self, x: Tensor, context: ForwardContext) -> Tensor:
        """Run the operations on x [batch, seq, width]; return the last one's output."""
        tensors = {"x": x}
        for part, (name, reads, done) in zip(self.parts, self.steps, strict=True):
            x = part([tensors[r] for r in reads], context)
            for gone in done:
                del tensors[gone]
            tensors[name] = x
        return x


def _offsets(operations: Sequence[Operation]) -> dict[str, int]:
    """Return where each slice begins in the tensor that it is cut from: after the slices cut from it before."""
    used: dict[str, int] = {}
    offsets = {}
    for op in of_kind(operations, Slice):
        offsets[op.name] = used.get(op.reads[0], 0)
        used[op.reads[0]] = offsets[op.name] + op.width
    return offsets


class TorchDecoder(nn.Module):
    """Embeddings, layers, final norm and head of one stack; `forward` gives the loss of next-token prediction."""

    def __init__(self, model: Model, backends: Sequence[SDPBackend] = (), recompute: bool = False) -> None:
        super().__init__()
        if len(model.stacks) != 1 or model.shared:
            raise Refused(f"bench step: {model.name} is not one stack of layers with their own weights")
        stack = model.stacks[0]
        self.model = model
        self.backends = backends
        self.recompute = recompute
        self.embeddings = nn.ModuleList(TorchOperation(op) for op in of_kind(stack.before, Embedding))
        self.before = OperationList(_after_embeddings(stack.before))
        self.layers = nn.ModuleList(OperationList(one.operations) for count, one in stack.runs for _ in range(count))
        self.after = OperationList(stack.after)
        self.rotated = sorted({op.dim for one in stack.layers for op in of_kind(one.operations, Rotary)})
        if model.tied:
            self._tie()

    def _tie(self) -> None:
        head = self.after.parts[-1]
        assert isinstance(head, TorchOperation)
        embedding = self.embeddings[0]
        assert isinstance(embedding, TorchOperation)
        head.register_parameter("weight", cast(nn.Parameter, embedding.weight))

    def reset(self, seed: int = 0) -> None:
        """Set the initial values of all parameters."""
        torch.manual_seed(seed)
        for part in self.modules():
            if isinstance(part, TorchOperation):
                part.reset()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy of the next token for tokens [batch, seq]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        context = ForwardContext({}, self.backends)
        x: Tensor | None = None
        for embedding in self.embeddings:
            looked = embedding([tokens if _role(embedding) == TOKEN else positions[None]], context)
            x = looked if x is None else x + looked
        if x is None:
            raise Refused(f"bench step: {self.model.name} has no token embedding")
        context.rotations.update(self._rotations(positions, x.dtype))
        x = self.before(x, context)
        for one in self.layers:
            x = checkpoint(one, x, context, use_reentrant=False) if self.recompute else one(x, context)
        logits = self.after(x, context).float()
        labels = F.pad(tokens, (0, 1), value=IGNORED)[..., 1:].contiguous()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=IGNORED)

    def _rotations(self, positions: Tensor, dtype: torch.dtype) -> dict[int, tuple[Tensor, Tensor]]:
        """Return cos and sin [1, seq, 1, width] by rotated width."""
        rotations = {}
        for width in self.rotated:
            exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
            angles = torch.outer(positions.float(), ROPE_BASE**-exponents)
            both = torch.cat((angles, angles), dim=-1)[None, :, None, :]
            rotations[width] = (both.cos().to(dtype), both.sin().to(dtype))
        return rotations


def _role(embedding: nn.Module) -> str:
    assert isinstance(embedding, TorchOperation)
    return embedding.op.role


def _after_embeddings(before: Sequence[Operation]) -> list[Operation]:
    """Return what follows the embeddings, reading their sum as "x"."""
    names = {op.name for op in of_kind(before, Embedding)}
    sums = {op.name for op in of_kind(before, Add)}
    rest: list[Operation] = []
    for op in before:
        if op.name in names:
            continue
        if op.name in sums and set(op.reads) <= names:  # the sum of the embeddings, taken already
            names.add(op.name)
            continue
        rest.append(record.replace(op, reads=tuple("x" if name in names else name for name in op.reads)))
    return rest
