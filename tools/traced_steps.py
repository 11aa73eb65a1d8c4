"""Live bytes of whole training steps of real Hugging Face code, traced and compared with what napkin says.

A model of a small config takes two steps on the meta device (CUDA emulated as in saved_bytes.py) while a dispatch mode
sees every ATen operation and every storage's birth and death; the second step counts. What it sees: bytes before the
step, after the last micro-batch's forward and backward pass, and the largest in forward, backward and optimizer step.

    hf/bin/python tools/traced_steps.py                        every model type, a few steps of each
    hf/bin/python tools/traced_steps.py llama gpt2 --cases 20  these, more
    hf/bin/python tools/traced_steps.py llama --write          keep what was found of each type's peaks, in the table
                                                               that napkin reads, and equal steps for the tests
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import random
import sys
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import cuda_on_meta
import torch
import torch.utils.checkpoint
from autocast_on_meta import Autocast
from drawn_configs import Shape, draw, has_dropout, unseen
from reference_class import POLICY, ROOT, drawn_types, network, reading
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers.modeling_layers import GradientCheckpointingLayer

from napkin.architectures import implementation_of
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup

CASES = ROOT / "tests" / "data" / "traced_steps.json"
TABLE = ROOT / "src" / "napkin" / "_tables" / "traced_steps.py"
NEAR = 0.01
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adadelta": (torch.optim.Adadelta, {}),
}
STEPS = (
    ("adamw", "foreach"),
    ("adamw", "forloop"),
    ("adamw", "fused"),
    ("sgd", "foreach"),
    ("sgd-momentum", "fused"),
    ("rmsprop", "forloop"),
    ("adadelta", "foreach"),
)
SEEN = ("before", "after_forward", "after_backward", "forward", "backward", "step")
KEPT_CASES = 2


class Watch(TorchDispatchMode):
    """Bytes of live storages, and the largest since `peak` was set back."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def see(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.seen:
            self.seen.add(key)
            self.live += size
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        self.peak = max(self.peak, self.live)
        return out

    def phase(self) -> int:
        """Return the largest since the last call."""
        found, self.peak = self.peak, self.live
        return found


class Mish(torch.autograd.Function):
    """mish as on CUDA: one kernel each way, where the meta device writes its backward out."""

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        context.save_for_backward(x)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return torch.empty_like(context.saved_tensors[0])


def emulate() -> None:
    """As cuda_on_meta.py does, and what fused optimizers ask the device for."""
    cuda_on_meta.emulate()
    module = importlib.import_module("torch.optim.optimizer")
    module._get_fused_kernels_supported_devices = lambda: ["meta"]  # type: ignore[attr-defined]
    library = torch.library.Library("aten", "IMPL", "Meta")
    library.impl("_fused_sgd_", lambda *_, **__: None)
    torch.nn.functional.mish = Mish.apply
    KEEP.append(library)


KEEP: list[Any] = []
"""Registrations last as long as their library."""


def trace(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    batch: tuple[int, int],
    every: int,
    how: Any,
    many: int,
    frozen: int | None = None,
    head: bool = False,
) -> Any:
    """Return what a step of `many` micro-batches holds, by SEEN; `frozen`: layers that are not trained, nor what is
    before them, nor what is after all layers if `head`."""
    cuda_on_meta.KERNEL = kernel
    model = network(fields, precision, kernel)
    if sum(weight.numel() for weight in model.parameters()) != params(reading(fields))["params/total"].value:
        raise ValueError("its class holds more than the language model")
    if every:
        checkpoint(model, every)
    if frozen is not None:
        freeze(model, frozen)
    if head:
        freeze_end(model)
    kind, options = OPTIMIZERS[how[0]]
    forms = {"foreach": how[1] == "foreach"} | ({"fused": how[1] == "fused"} if kind is not torch.optim.RMSprop else {})
    if kind is torch.optim.Adadelta:
        forms.pop("fused")
    optimizer = kind([weight for weight in model.parameters() if weight.requires_grad], **options, **forms)
    watch = Watch()
    with torch.device("meta"):
        ids, labels = (torch.zeros(batch, dtype=torch.long) for _ in range(2))
        more = unseen(Shape(fields, *batch))
        for tensor in (*model.parameters(), *model.buffers(), ids, labels):
            watch.see(tensor)
        for _ in range(2):
            gc.collect()
            with watch:
                found = {"before": watch.live, "forward": 0, "backward": 0}
                watch.phase()
                for _ in range(many):
                    with Autocast() if precision == "autocast" else contextlib.nullcontext():
                        loss = model(input_ids=ids, labels=labels, use_cache=False, **more).loss
                    found |= {"after_forward": watch.live, "forward": max(found["forward"], watch.phase())}
                    loss.backward()
                    found |= {"after_backward": watch.live, "backward": max(found["backward"], watch.phase())}
                optimizer.step()
                found |= {"step": watch.phase()}
                optimizer.zero_grad(set_to_none=True)
            del loss
    return {name: found[name] for name in SEEN}


def checkpoint(model: Any, every: int) -> None:
    """Checkpoint one layer of `every`, counted as they run with gradient: first an encoder's, a layer that runs again
    once more."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ran = [0]

    def start(*_: Any) -> None:
        ran[0] = 0

    def next_layer(module: Any, *_: Any) -> None:
        if torch.is_grad_enabled():
            module.gradient_checkpointing = ran[0] % every == 0
            ran[0] += 1

    model.register_forward_pre_hook(start)
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.register_forward_pre_hook(next_layer)


def freeze(model: Any, layers: int) -> None:
    """Freeze the embeddings of a decoder or encoder and its first layers."""
    body = model.base_model
    stack = body.encoder.layer if hasattr(body, "encoder") else body.h if hasattr(body, "h") else body.layers
    parts = [body.get_input_embeddings(), *(getattr(body, name, None) for name in ("wpe", "embeddings"))]
    for part in (*filter(None, parts), *list(stack)[:layers]):
        part.requires_grad_(False)


def freeze_end(model: Any) -> None:
    """Freeze all that a decoder has outside its embeddings and layers."""
    body = model.base_model
    layers = body.h if hasattr(body, "h") else body.layers
    kept = {id(weight) for part in (layers, body.get_input_embeddings()) for weight in part.parameters()}
    for weight in model.parameters():
        weight.requires_grad_(weight.requires_grad and id(weight) in kept)


def said(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    batch: tuple[int, int],
    every: int,
    how: Any,
    many: int,
    frozen: int | None = None,
    head: bool = False,
    dropout: float = 0.0,
) -> Any:
    """Return the same as napkin computes it."""
    model = reading(fields)
    operations = (op for stack in model.stacks for layer in stack.layers for op in layer.operations)
    if not all(op.depends_on_shapes(batch[1]) for op in operations):
        raise ValueError("no bytes are said to be exact for this length")
    recompute = Recompute("every", every) if every > 1 else Recompute("full" if every else "none")
    layout = Layout(seq=batch[1], micro=batch[0], micro_batches=many, recompute=recompute)
    setup = Setup(
        implementation_of("hf", model.family),
        layout,
        POLICIES[POLICY[precision]],
        find(how[0])[0],
        how[1],
        kernel,
        dropout,
        frozen=frozen,
        still_head=head,
    )
    rank = memory.rank_of(prepare(model, setup), 0)
    at = {moment.name: moment for moment in rank.moments}
    after = {moment.name: moment.live for moment in rank.between}
    left = dict(at["step"].made["temporaries"])["left_by_recomputation"]
    return {
        "before": rank.parameters + rank.optimizer + at["forward"].inputs + left,
        "after_forward": after["forward"],
        "after_backward": after["backward"],
        "forward": at["forward"].live,
        "backward": max(at["loss"].live, at["backward"].live),
        "step": at["step"].live,
    }


def case(
    seed: object, model_type: str, number: int, dropout: float = 0.0
) -> tuple[dict[str, Any], str, str, tuple[int, int], int, Any, int]:
    """Draw a config, the precision, attention's kernel, the batch, which layers are checkpointed, the optimizer, and
    how many micro-batches."""
    rng = random.Random(f"{seed} {model_type} {number}")
    drawn = draw(model_type, rng, dropout)
    drawn.fields["vocab_size"] = rng.choice((11, 97, 4096))
    kernel = rng.choice(implementation_of("hf", model_type).kernels)
    kernel = "flash" if kernel == "cudnn" else kernel
    batch = (rng.choice((1, 2, 3)), drawn.length)
    precision, every, how = rng.choice(tuple(POLICY)), rng.choice((0, 0, 1, 2)), rng.choice(STEPS)
    return drawn.fields, precision, kernel, batch, every, how, rng.choice((1, 1, 2, 3))


def write_table(model_type: str, errors: list[float]) -> None:
    """Write the table with a new entry for this model type: steps, peaks equal to the byte, peaks within 1 %, the
    furthest."""
    table: dict[str, Any] = {"TRACED": {}}
    if TABLE.exists():
        exec(TABLE.read_text(encoding="utf-8"), table)
    kept = {name: entry for name, entry in table["TRACED"].items() if name != model_type}
    if errors:
        worst: float = max(errors, key=abs)
        near = sum(abs(error) < NEAR for error in errors)
        kept[model_type] = (len(errors), errors.count(0.0), near, round(worst, 5))
    text = '"""Generated by tools/traced_steps.py --write from traces of the code itself."""\n\n'
    text += "from __future__ import annotations\n\nTRACED: dict[str, tuple[int, int, int, float]] = {\n"
    text += "".join(f"    {name!r}: {entry},\n" for name, entry in sorted(kept.items()))
    TABLE.write_text(text + "}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types (default: all that napkin reads)")
    parser.add_argument("--cases", type=int, default=6, help="steps of each")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="draws: this many steps of each seed")
    parser.add_argument("--freeze", type=int, help="this many first layers, and the embedding, are not trained")
    parser.add_argument("--freeze-head", action="store_true", help="nor what is after the layers")
    parser.add_argument("--dropout", type=float, default=0.0, help="in classes that have any")
    parser.add_argument("--write", action="store_true", help="keep some equal cases")
    asked = parser.parse_args()
    if asked.write and (asked.freeze is not None or asked.freeze_head or asked.dropout):
        parser.error("--write keeps steps that train everything, without dropout")
    emulate()
    rows = json.loads(CASES.read_text(encoding="utf-8"))["rows"] if CASES.exists() else []
    for model_type in asked.types or drawn_types():
        equal: list[Any] = []
        counts = dict.fromkeys(SEEN, 0)
        errors: list[float] = []
        for seed, number in product(asked.seed, range(asked.cases)):
            dropout = asked.dropout if has_dropout(model_type) else 0.0
            one = (*case(seed, model_type, number, dropout), asked.freeze, asked.freeze_head)
            try:
                found, expected = trace(*one), said(*one, dropout)
            except NapkinError as problem:
                print(f"   refused: {problem.message}")
                continue
            except Exception as problem:  # whatever a class does not run
                print(f"   does not run: {type(problem).__name__}: {str(problem)[:120]}")
                continue
            peaks = [max(one["forward"], one["backward"], one["step"]) for one in (expected, found)]
            errors.append(peaks[0] / peaks[1] - 1)
            for name in SEEN:
                counts[name] += found[name] == expected[name]
            if found == expected:
                equal.append([model_type, *one[1:7], list(found.values()), one[0]])
            else:
                off = {name: expected[name] - found[name] for name in SEEN if expected[name] != found[name]}
                print(f"   {seed}/{number}: {one[1:]} off {off}, peak {errors[-1]:+.3%}")
        print(f"{model_type}: {len(equal)} of {len(errors)} equal; {counts}", flush=True)
        if asked.write:
            write_table(model_type, errors)
            kept = random.Random(model_type).sample(equal, min(KEPT_CASES, len(equal)))
            rows = [row for row in rows if row[0] != model_type] + kept
    if asked.write:
        about = "Live bytes of a training step's moments, traced by tools/traced_steps.py."
        columns = ["model_type", "precision", "kernel", "batch", "every", "optimizer", "micro_batches"]
        text = (
            json.dumps({"about": about, "columns": [*columns, "seen", "config"], "seen": SEEN})[:-1] + ', "rows": [\n'
        )
        lines = (json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[0]))
        Path(CASES).write_text(text + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
