"""What PyTorch's caching allocator reserves in training steps with frozen weights, by its own rules.

A model of transformers with peft's adapters takes two steps on the meta device (CUDA emulated as in cuda_on_meta.py).
Each storage's birth and death is a request to an allocator that follows c10/cuda/CUDACachingAllocator.cpp: best fit
among free blocks, blocks split, freed neighbors joined, segments that are never given back. What it reserves beyond
what was allocated is what `napkin memory` calls the gaps of the cache.

    hf/bin/python tools/simulated_cache.py --cases 40           print each case, and how far napkin's reserved bytes lie
    hf/bin/python tools/simulated_cache.py --cases 40 --write   keep them for the tests
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import gc
import json
import random
from typing import Any

import cuda_on_meta
import torch
from autocast_on_meta import Autocast
from peft_adapters import Adapters, adapted
from reference_class import ROOT, network
from traced_steps import Watch, emulate

CASES = ROOT / "tests" / "data" / "simulated_cache.json"
MIB = 2**20
UNIT, SMALL, SMALL_SEGMENT, SEGMENT, OWN_SEGMENT = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB
"""kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc of the allocator."""
SHAPES = (
    {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8},
    {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32},
    {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8},
    {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2},
)
TARGETS = ("q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj", "all-linear")


class Block:
    """A piece of a segment, with its neighbors."""

    __slots__ = ("after", "before", "free", "pool", "size", "turn")

    def __init__(self, size: int, pool: list[Block]) -> None:
        self.size, self.pool, self.free, self.turn = size, pool, False, 0
        self.before: Block | None = None
        self.after: Block | None = None

    def __lt__(self, other: Block) -> bool:
        return (self.size, self.turn) < (other.size, other.turn)


class Cache:
    """The allocator; `reserved` and `allocated` in bytes, `most` of the latter."""

    def __init__(self) -> None:
        self.small: list[Block] = []
        self.large: list[Block] = []
        self.reserved = self.allocated = self.most = self.turns = 0

    def take(self, size: int) -> Block | None:
        """Return a block of at least this many bytes."""
        size = -(-size // UNIT) * UNIT
        if not size:
            return None
        pool = self.small if size <= SMALL else self.large
        place = bisect.bisect_left(pool, size, key=lambda block: block.size)
        block = pool.pop(place) if place < len(pool) else self._segment(size, pool)
        rest = block.size - size
        if rest >= UNIT if pool is self.small else rest > SMALL:
            other = Block(rest, pool)
            other.before, other.after, block.after, block.size = block, block.after, other, size
            if other.after is not None:
                other.after.before = other
            self._put(other)
        block.free = False
        self.allocated += block.size
        self.most = max(self.most, self.allocated)
        return block

    def _segment(self, size: int, pool: list[Block]) -> Block:
        whole = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        made = SMALL_SEGMENT if size <= SMALL else SEGMENT if size < OWN_SEGMENT else whole
        self.reserved += made
        return Block(made, pool)

    def give(self, block: Block | None) -> None:
        """Take a block back, and join it with free neighbors."""
        if block is None:
            return
        self.allocated -= block.size
        if block.before is not None and block.before.free:
            block = self._joined(block.before, block)
        if block.after is not None and block.after.free:
            self._joined(block, block.after)
        self._put(block)

    def _joined(self, first: Block, second: Block) -> Block:
        for one in (first, second):
            if one.free:
                del one.pool[bisect.bisect_left(one.pool, one)]
                one.free = False
        first.size, first.after = first.size + second.size, second.after
        if second.after is not None:
            second.after.before = first
        return first

    def _put(self, block: Block) -> None:
        self.turns += 1
        block.turn, block.free = self.turns, True
        bisect.insort(block.pool, block)


class Requests(Watch):  # type: ignore[no-untyped-call]
    """Storages' births and deaths, as requests to the allocator."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.blocks: dict[int, Block | None] = {}

    def see(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.seen:
            self.blocks[storage._cdata] = self.cache.take(storage.nbytes())
        super().see(tensor)

    def gone(self, key: int, size: int) -> None:
        super().gone(key, size)
        self.cache.give(self.blocks.pop(key, None))


class Product(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit: the weight is unpacked in each pass and nothing is kept (autograd/_functions.py)."""

    @staticmethod
    def forward(context: Any, x: Any, shape: tuple[int, int]) -> Any:
        context.shape = shape
        return torch.nn.functional.linear(x, torch.empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0] @ torch.empty(context.shape, dtype=gradients[0].dtype), None


class Packed(torch.nn.Linear):
    """A linear layer in 4 bits, with an fp32 scale for each 64 weights."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_parameter("bias", None)
        count = layer.in_features * layer.out_features
        self.weight = torch.nn.Parameter(torch.empty(count // 2, dtype=torch.uint8), requires_grad=False)
        self.register_buffer("scales", torch.empty(count // 64))

    def forward(self, x: Any) -> Any:
        return Product.apply(x, (self.out_features, self.in_features))  # type: ignore[no-untyped-call]


def pack(model: Any) -> None:
    """Quantize the linear layers of a decoder's layers."""
    for module in list(model.model.layers.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is torch.nn.Linear:
                setattr(module, name, Packed(layer))


def simulated(case: dict[str, Any]) -> tuple[int, int]:
    """Return the most bytes allocated, and those reserved, in two steps."""
    fields = {"model_type": "llama", "use_cache": False, **case["config"]}
    cuda_on_meta.KERNEL = "flash"
    with torch.device("meta"):
        model = network(fields, "bf16", "flash").requires_grad_(False)
        if case["quantized"]:
            pack(model)
        model = adapted(model, Adapters(case["targets"]))
        if case["recompute"]:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer, watch = torch.optim.AdamW(trained, fused=True), Requests()
        for tensor in (*model.parameters(), *model.buffers()):
            watch.see(tensor)
        gc.collect()
        with watch:
            for _ in range(2):
                ids, labels = (torch.zeros(case["batch"], dtype=torch.long) for _ in range(2))
                with Autocast() if case["autocast"] else contextlib.nullcontext():
                    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
                loss.backward()
                del loss
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    return watch.cache.most, watch.cache.reserved


def drawn(number: int) -> dict[str, Any]:
    """Return a case."""
    rng = random.Random(f"cache {number}")
    shape = rng.choice(SHAPES)
    more = {"num_hidden_layers": rng.choice((4, 8, 16)), "vocab_size": rng.choice((32_000, 64_000, 128_256))}
    return {
        "config": {**shape, **more, "tie_word_embeddings": False},
        "batch": [rng.choice((1, 2, 4)), rng.choice((512, 1024, 2048, 4096))],
        "targets": rng.choice(TARGETS),
        "quantized": rng.random() < 0.5,
        "recompute": rng.random() < 0.8,
        "autocast": False,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="keep the cases for the tests")
    asked = parser.parse_args()
    emulate()
    found = []
    for number in range(asked.cases):
        case = drawn(number)
        allocated, reserved = simulated(case)
        found.append({**case, "allocated": allocated, "reserved": reserved})
        print(f"{allocated / 2**30:7.2f} GiB allocated, {reserved / 2**30:7.2f} reserved: {case}", flush=True)
    if asked.write:
        about = "Bytes allocated and reserved in two steps, by tools/simulated_cache.py."
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in found)
        CASES.write_text('{"about": ' + json.dumps(about) + ', "rows": [\n' + lines + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
