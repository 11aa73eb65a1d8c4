"""Bytes that real Hugging Face code saves for backward, measured and compared with what napkin says.

A model of a small config (drawn_configs.py) runs once on the meta device: hooks see each tensor that autograd saves.
CUDA is emulated (cuda_on_meta.py), kernels of recurrent layers are replaced by what they save (recurrent_kernels.py).
No weights, no GPU, no download.

    python -m venv hf && hf/bin/pip install torch==2.13.0 transformers==5.23.0 pyyaml
    hf/bin/python tools/saved_bytes.py                              every model type, a few configs in every mode
    hf/bin/python tools/saved_bytes.py llama bert --cases 4         these, more configs
    hf/bin/python tools/saved_bytes.py mpt --only bf16/eager --show the tensors of what differs, mine and theirs
    hf/bin/python tools/saved_bytes.py --config c.json --shape 2x64 one config in every mode
    hf/bin/python tools/saved_bytes.py llama --write                keep the result: the table that napkin reads, and
                                                                    some of the cases for the tests
    hf/bin/python tools/saved_bytes.py llama --lora q_proj,v_proj   next to peft's adapters, the rest frozen

A mode is precision/kernel/dropout/batch, and /full where every layer is checkpointed. A model type's mode is exact
where every config drawn was equal; a run leaves the verdicts of modes that it did not measure as they were.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import warnings
import weakref
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import cuda_on_meta  # noqa: E402
import recurrent_kernels  # noqa: E402
import torch  # noqa: E402
import torch._meta_registrations  # noqa: E402
import transformers  # noqa: E402
from cuda_on_meta import Autocast, emulate, paused  # noqa: E402
from drawn_configs import (  # noqa: E402
    BORROWED,
    DROPOUT,
    HOLDERS,
    WHOLE,
    Shape,
    batch_of,
    draw,
    has_dropout,
    head_for,
    head_of,
)
from transformers.initialization import no_init_weights  # noqa: E402

from napkin.architectures import MODULES, build, implementation_of  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.footprint import memory  # noqa: E402
from napkin.footprint.prepared import prepare  # noqa: E402
from napkin.inputs.load import Document  # noqa: E402
from napkin.inputs.model_file import config_from  # noqa: E402
from napkin.operations.adapters.targets import resolved  # noqa: E402
from napkin.operations.implementations import ALL_KERNELS, MANY, ONE, mode, recomputation_of  # noqa: E402
from napkin.operations.tuning import Tuning  # noqa: E402
from napkin.record import replace  # noqa: E402
from napkin.training.layout import Layout  # noqa: E402
from napkin.training.optimizer_names import find  # noqa: E402
from napkin.training.precision import POLICIES  # noqa: E402
from napkin.training.recomputation import Recompute  # noqa: E402
from napkin.training.setup import Setup  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
aten = torch.ops.aten

TABLE = ROOT / "src" / "napkin" / "_tables" / "saved_bytes.py"
CASES = ROOT / "tests" / "data" / "saved_bytes.json"
ADAPTED_CASES = ROOT / "tests" / "data" / "lora_bytes.json"
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
KEEP_ALL = "none"
"""The recomputation that keeps everything."""
RANK = 4
"""Rank of LoRA's matrices."""
SHOWN = 3
"""Differing cases of a model type that are printed."""
ATTEMPTS = 6
"""Draws for each config that is wanted: some that are drawn contradict themselves."""
KEPT_CASES = {KEEP_ALL: 4, "full": 2}
"""Cases of a model type that the tests keep, by recomputation."""


# --- measuring ------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One storage that autograd saved."""

    module: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class Held:
    """A tensor that autograd saved, for as long as the graph that wants it back lives."""

    def __init__(self, tensor: Any, key: int) -> None:
        self.tensor, self.key = tensor, key


class Measured(NamedTuple):
    """What one run of a class kept for backward."""

    rows: list[Row]
    saved: int
    casts: int


LOOPED = (
    "glm5_next_text",
    "dbrx",
    "prophetnet",
    "reformer",
    "jetmoe",
    "led",
    "longcat_flash",
    "longformer",
    "nllb-moe",
    "switch_transformers",
    "xmod",
)
"""Types whose step depends on numbers (experts run one after the other on as many tokens as chose them, tokens are
sorted): the CPU runs them."""


def device_of(fields: dict[str, Any]) -> str:
    return "cpu" if fields["model_type"] in LOOPED else "meta"


def configured(fields: dict[str, Any]) -> Any:
    """Return the configuration of the class that is run: the language model's own, or one that holds it beside other
    senses, which are made small and see nothing."""
    model_type = fields["model_type"]
    if head_of(model_type) is not WHOLE:
        return transformers.AutoConfig.for_model(**fields | {"model_type": BORROWED.get(model_type, model_type)})
    whole = fields
    if model_type in HOLDERS:
        tied = {"tie_word_embeddings": fields["tie_word_embeddings"]}
        whole = {"model_type": HOLDERS[model_type], "text_config": fields, **tied, **beside(fields)}
    config = transformers.AutoConfig.for_model(**whole)
    vision = getattr(config, "vision_config", None)
    for holder, name, least in ((vision, "depth", 1), (vision, "num_hidden_layers", 1), (config, "image_token_id", 0)):
        if hasattr(holder, name):  # the id stands in the vocabulary, as a published one does
            setattr(holder, name, least)
    config.get_text_config().use_cache = False
    return config


def beside(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what other senses' configurations must say of the language model."""
    width = fields.get("hidden_size")
    wanted = {
        "muse_spark_text": {"audio_config": {"out_hidden_size": width}},
        "inkling2_text": {"vision_config": {"text_hidden_size": width}},
        "inkling2_loop_text": {"vision_config": {"text_hidden_size": width}},
    }
    return wanted.get(fields["model_type"], {})


class Skipped(torch.nn.Module):
    """A layer that attends to an image, of which there is none."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Any, *others: Any, **named: Any) -> Any:
        return hidden


def narrowed(weight: Any) -> Any:
    """Return a weight as autocast passes it to a matmul."""
    active = Autocast.active
    return weight if weight is None or active is None or active.off else active.lower(weight)


def attends(fields: dict[str, Any]) -> bool:
    """Whether any layer has attention."""
    layers = (layer for stack in reading(fields).stacks for _, layer in stack.runs)
    return any(op.attends() is not None for layer in layers for op in layer.operations)


def reading(fields: dict[str, Any]) -> Any:
    """napkin's model of a config."""
    return build(config_from("config", Document("config", fields), fields))


def network(fields: dict[str, Any], precision: str, kernel: str) -> Any:
    """Build the class of a config's model_type, without weights."""
    config = configured(fields)
    config.use_cache = False
    model_type = fields["model_type"]
    classes = [head_for(fields)._model_mapping[type(config)]]
    text, known = type(config.get_text_config()), transformers.AutoModel._model_mapping
    if text in known:
        classes.append(known[text])
    for module in (sys.modules[one.__module__] for one in classes):
        recurrent_kernels.install(module, recurrent_kernels.stand_ins(narrowed, paused))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    attention = "eager" if kernel == "eager" or not attends(fields) else "sdpa"
    device = device_of(fields)
    with torch.device(device), no_init_weights():
        model = head_for(fields).from_config(config, dtype=dtype, attn_implementation=attention)
    if hasattr(model.base_model, "gated_cross_attn_layers"):
        layers = model.base_model.gated_cross_attn_layers
        model.base_model.gated_cross_attn_layers = torch.nn.ModuleList(map(Skipped, layers))
    if model_type == "udop":  # which asks for the labels' values
        model._shift_right = lambda labels: torch.cat((labels.new_zeros(len(labels), 1), labels[:, :-1]), 1)
    if device == "cpu":  # weights that send tokens to every expert
        generator = torch.Generator().manual_seed(1)
        model.tie_weights()
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    else:
        model = model.to("meta")
        model.tie_weights()
        # some classes fix the type of a few weights, which loading a checkpoint undoes but if they insist on fp32
        insists = tuple(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
        for name, weight in model.named_parameters():
            weight.data = weight.data.to(torch.float32 if any(part in name for part in insists) else dtype)
    return model.train()


ADAPTER = "lora"
"""Kind of the adapters, by peft's name."""
ADAPTER_DROPOUT = 0.0
"""Dropout of LoRA's inputs."""
SIZED: dict[str, dict[str, int]] = {
    "ia3": {},
    "adalora": {"init_r": RANK, "total_step": 10},
    "oft": {"oft_block_size": RANK},
    "boft": {"boft_block_size": RANK},
}
"""What gives a kind the size RANK, where it is not `r`."""


def peft_config(kind: str, targets: Any) -> Any:
    """Return peft's config of a kind of adapters, of size RANK."""
    import peft

    made = peft.PEFT_TYPE_TO_CONFIG_MAPPING[kind.upper()]
    inner = {"feedforward_modules": [n for n in targets if n in INNER]} if kind == "ia3" else {}
    return made(target_modules=targets, **SIZED.get(kind, {"r": RANK}), **inner)


INNER = ("down_proj", "fc2", "dense_4h_to_h")


def adapted(model: Any, targets: str) -> Any:
    """Return the model with peft's adapters, in the type of its weights, next to these targets; the rest is frozen."""
    import peft

    names = targets.split(",")
    weights = {name for name, weight in model.named_parameters() if "experts" in name and weight.dim() > 2}
    parameters = [name for name in names if "." in name and any(weight.endswith("." + name) for weight in weights)]
    modules = [name for name in names if name not in parameters]
    wanted = "all-linear" if modules == ["all-linear"] else modules
    if ADAPTER == "lora":
        config = peft.LoraConfig(
            r=RANK, target_modules=wanted, target_parameters=parameters, lora_dropout=ADAPTER_DROPOUT
        )
    else:
        config = peft_config(ADAPTER, wanted)
    if ADAPTER == "lora":
        model = peft.inject_adapter_in_model(config, model)
    else:  # VeRA's shared matrices are made with the model
        model = peft.get_peft_model(model, config, autocast_adapter_dtype=False).base_model.model
    model.enable_input_require_grads()  # as trainers do for quantized and for checkpointed networks
    return model


def measure(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    sequences: int,
    length: int,
    target: int = 0,
    recompute: str = KEEP_ALL,
    lora: str = "",
) -> Measured:
    """One forward pass and its loss; `target`: tokens of the decoder's sequences, if they are others; `lora`: what
    adapters are next to, in a frozen network."""
    cuda_on_meta.KERNEL = kernel
    model = network(fields, precision, kernel)
    if lora:
        model = adapted(model, lora)
    if recompute != KEEP_ALL:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    device = device_of(fields)
    with torch.device(device):
        batch = batch_of(
            Shape(fields, sequences, length, target), torch.bfloat16 if precision == "bf16" else torch.float32
        )
    if "router_dtype" in fields:  # the first pass casts the router's weights
        with torch.no_grad():
            model(**batch)
    return traced(model, batch, device, precision)


def traced(model: Any, batch: dict[str, Any], device: str, precision: str) -> Measured:
    """Run a class's forward pass, and return what autograd saves on it."""
    narrow_norms = {
        name
        for name, module in model.named_modules()
        if device == "cpu" and isinstance(module, torch.nn.LayerNorm) and precision == "bf16"
    }
    given = [tensor for tensor in batch.values() if isinstance(tensor, torch.Tensor)]
    alive = [*model.parameters(), *model.buffers(), *given]  # a storage's address is its name
    known = {tensor.untyped_storage()._cdata for tensor in alive}
    stack: list[str] = []
    hit: set[str] = set()
    experts = {name for name, _ in model.named_modules() if re.search(r"\.expert_\d+$", name)}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
        if name in experts:
            module.register_forward_pre_hook(lambda *_, name=name: hit.add(name))
        module.register_forward_hook(lambda *_: (stack.pop(), None)[1], always_call=True)
    rows: dict[int, Row] = {}
    casts: dict[int, int] = {}
    held: weakref.WeakSet[Held] = weakref.WeakSet()
    autocast = Autocast()

    def pack(tensor: Any) -> Held:
        storage = tensor.untyped_storage()
        key = storage._cdata
        tensor = tensor.detach()  # a result that is kept would keep its own graph
        if key not in known and key not in rows and key not in casts:
            alive.append(tensor)
            if key in autocast.copies:
                casts[key] = storage.nbytes()
            else:
                where, dtype = stack[-1] if stack else "", str(tensor.dtype).removeprefix("torch.")
                wide = 2 if where in narrow_norms and tensor.shape[-1] == 1 else 1  # fp32 on CUDA, bf16 on the CPU
                rows[key] = Row(where, tuple(tensor.shape), dtype, wide * storage.nbytes())
        one = Held(tensor, key)
        held.add(one)
        return one

    with (
        torch.device(device),
        autocast if precision == "autocast" else contextlib.nullcontext(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor),
    ):
        made = model(**batch)
    if hit < experts:
        raise ValueError("an expert got no token")
    kept = {one.key for one in held}  # what no gradient passes through is gone by now
    del made
    found = [row for key, row in rows.items() if key in kept]
    return Measured(found, sum(row.size for row in found), sum(size for key, size in casts.items() if key in kept))


def layer_of(module: str) -> int | None:
    """Return the number of the layer that a module is in."""
    found = re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?:\.|$)", module)
    return int(found[1]) if found else None


# --- what napkin says -----------------------------------------------------------------------------------------------


def said(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    dropout: float,
    sequences: int,
    length: int,
    target: int = 0,
    recompute: str = KEEP_ALL,
    lora: str = "",
) -> Any:
    """napkin's step and its only rank."""
    model = reading(fields)
    layout = Layout(seq=length, micro=sequences, target=target, recompute=Recompute(recompute))
    implementation = implementation_of("hf", model.family)
    if lora:
        tuning = resolved(
            Tuning(ADAPTER, RANK, ADAPTER_DROPOUT, library="transformers"),
            tuple(lora.split(",")),
            model,
            implementation,
        )
        implementation = replace(implementation, tuning=tuning)
    policy, optimizer, woken = POLICIES[POLICY[precision]], find("adamw")[0], lora != ""
    setup = Setup(implementation, layout, policy, optimizer, "foreach", kernel, dropout, woken=woken)
    step = prepare(model, setup)
    return step, memory.rank_of(step, 0)


def show(step: Any, found: Measured) -> None:
    """Storages of one layer and outside that only one of both has, by their bytes."""
    last = max((n for n in (layer_of(row.module) for row in found.rows) if n is not None), default=0)
    pieces = {
        "last layer": (step.run.layers[-1][1].kept, [r for r in found.rows if layer_of(r.module) == last]),
        "outside": (
            (*step.run.before.kept, *step.run.after.kept),
            [r for r in found.rows if layer_of(r.module) is None],
        ),
    }
    for piece, (kept, rows) in pieces.items():
        mine = Counter(int(s.size * s.kept) for s in kept if s.kind == "activation")
        theirs = Counter(row.size for row in rows)
        for size in sorted(set(mine) | set(theirs)):
            if mine[size] != theirs[size]:
                labels = [f"{s.label}{' (shared)' * s.shared}" for s in kept if int(s.size * s.kept) == size]
                print(f"      {piece}, {size} bytes: mine {mine[size]} {labels}")
                named = [
                    f"{r.module.split('.', 3)[-1]} {'×'.join(map(str, r.shape))} {r.dtype}"
                    for r in rows
                    if r.size == size
                ]
                print(f"      {' ' * len(piece)}  theirs {theirs[size]} {named}")


# --- comparing ------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One measurement beside what napkin says of it. `problem`: why there is none."""

    mode: str
    shape: Shape
    found: Measured | None
    saved: int
    casts: int
    problem: str = ""

    @property
    def equal(self) -> bool:
        return self.found is not None and (self.saved, self.casts) == (self.found.saved, self.found.casts)


def compare(
    shape: Shape, precision: str, kernel: str, dropout: float, recompute: str, shown: bool, lora: str = ""
) -> Case:
    fields, sequences, length, target = shape
    name = mode(precision, kernel, dropout > 0, sequences, recompute)
    try:
        found = measure(fields, precision, kernel, sequences, length, target, recompute, lora)
    except Exception as problem:  # whatever a class does not run
        return Case(name, shape, None, 0, 0, f"does not run: {type(problem).__name__}: {str(problem)[:150]}")
    try:
        step, rank = said(fields, precision, kernel, dropout, sequences, length, target, recompute, lora)
    except NapkinError as problem:
        return Case(name, shape, None, 0, 0, f"refused: {problem.message}")
    operations = [op for stack in step.model.stacks for layer in stack.layers for op in layer.operations]
    if not all(op.depends_on_shapes(length) for op in operations):
        return Case(name, shape, None, 0, 0, "no bytes are said to be exact for this length")
    case = Case(name, shape, found, rank.saved, rank.casts)
    if shown and not case.equal:
        report(case)
        show(step, found)
    return case


def report(case: Case) -> None:
    assert case.found is not None
    off = case.saved - case.found.saved
    print(
        f"   {case.mode} {case.shape.sequences}×{case.shape.length}: saved {case.found.saved:,} bytes, napkin says "
        f"{off:+,} ({off / case.found.saved:+.2%}), casts {case.casts - case.found.casts:+,}"
    )
    print(f"      {json.dumps(case.shape.fields)}")


def sweep(model_type: str, count: int, seed: int, only: str, recompute: str, shown: bool, lora: str) -> list[Case]:
    """`count` configs in every mode with this recomputation."""
    cases = []
    suffix = "" if recompute == KEEP_ALL else f" {recompute}"
    dropouts = (0.0, DROPOUT) if has_dropout(model_type) else (0.0,)
    for precision, kernel, dropout, batch in product(POLICY, ALL_KERNELS, dropouts, (ONE, MANY)):
        rng = random.Random(f"{seed} {model_type} {precision} {kernel} {dropout} {batch}{suffix}")
        if not mode(precision, kernel, dropout > 0, 1 if batch == ONE else 2, recompute).startswith(only):
            continue
        wanted, left = count, ATTEMPTS * count
        while wanted and left:
            drawn = draw(model_type, rng, dropout)
            drawn = drawn._replace(sequences=1 if batch == ONE else rng.choice((2, 3)))
            case = compare(drawn, precision, kernel, dropout, recompute, shown, lora)
            wanted, left = wanted - (case.found is not None), left - 1
            cases.append(case)
            if [one.problem for one in cases[-3:]] == [case.problem] * 3 and case.problem:
                break  # not for what was drawn
    return cases


def verdicts(cases: list[Case]) -> dict[str, bool]:
    """Of each mode with a measurement, whether all were equal."""
    found: dict[str, bool] = {}
    for case in cases:
        if case.found is not None:
            found[case.mode] = found.get(case.mode, True) and case.equal
    return found


# --- keeping --------------------------------------------------------------------------------------------------------


def write_table(model_type: str, cases: list[Case]) -> None:
    """Write the table with a new entry for this model type; other types keep theirs, and their version."""
    table: dict[str, Any] = {}
    exec(TABLE.read_text(encoding="utf-8"), table)
    of_torch, version = torch.__version__.split("+")[0], transformers.__version__
    entries = table["EXACT"] if of_torch == table["TORCH"] else {}
    kept = {t: (table["MODES"][n], many, of) for t, (n, many, of) in entries.items()}
    found, run = verdicts(cases), sum(case.found is not None for case in cases)
    before, many, of = kept.pop(model_type, ((), 0, version))
    if of != version:
        before, many = (), 0
    others = [name for name in before if name not in found]
    equal = tuple(sorted([*others, *(name for name, exact in found.items() if exact)]))
    if equal:
        kept[model_type] = (equal, run + (many if others else 0), version)
    sets = sorted({modes for modes, *_ in kept.values()}, key=lambda modes: (-len(modes), modes))
    text = '"""Generated by tools/saved_bytes.py --write from measurements of the code itself."""\n\n'
    text += f"from __future__ import annotations\n\nTORCH = {of_torch!r}\n"
    text += "MODES: tuple[tuple[str, ...], ...] = (\n"
    for modes in sets:
        text += "    (\n" + "".join(f"        {name!r},\n" for name in modes) + "    ),\n"
    text += ")\nEXACT: dict[str, tuple[int, int, str]] = {\n"
    lines = (f"    {t!r}: ({sets.index(modes)}, {many}, {of!r}),\n" for t, (modes, many, of) in sorted(kept.items()))
    text += "".join(lines)
    TABLE.write_text(text + "}\n", encoding="utf-8")


def write_cases(model_type: str, cases: list[Case]) -> None:
    """Equal cases for the tests, of modes drawn by chance, in place of those with the same recomputation."""
    kept = json.loads(CASES.read_text(encoding="utf-8"))["rows"] if CASES.exists() else []
    exact = verdicts(cases)
    ways = {recomputation_of(name) for name in exact}
    rows = [row for row in kept if row[0] != model_type or recomputation_of(row[1]) not in ways]
    by_mode = {case.mode: case for case in cases if case.found is not None and exact[case.mode]}
    many = min(*(KEPT_CASES[way] for way in ways), len(by_mode)) if ways else 0
    for name in random.Random(model_type).sample(sorted(by_mode), many):
        fields, sequences, *lengths = by_mode[name].shape
        length = lengths if lengths[1] else lengths[0]
        rows.append([model_type, name, sequences, length, by_mode[name].saved, by_mode[name].casts, fields])
    about = (
        f"Bytes that autograd saves for backward: Hugging Face transformers, in the version that the table names for a "
        f"model type, on torch {torch.__version__.split('+')[0]}, measured by tools/saved_bytes.py."
    )
    columns = ["model_type", "mode", "sequences", "length", "saved", "weight_casts", "config"]
    text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[:2]))
    CASES.write_text(text + "\n]}\n", encoding="utf-8")


def write_adapted(model_type: str, targets: str, cases: list[Case]) -> None:
    """Write the equal cases of a model type with adapters, in place of those next to the same targets."""
    rows = json.loads(ADAPTED_CASES.read_text(encoding="utf-8"))["rows"] if ADAPTED_CASES.exists() else []
    rows = [row for row in rows if row[:2] != [model_type, targets]]
    for case in [case for case in cases if case.found is not None and case.equal][: KEPT_CASES[KEEP_ALL]]:
        fields, sequences, length, _ = case.shape
        rows.append([model_type, targets, case.mode, sequences, length, case.saved, case.casts, fields])
    about = f"Bytes saved for backward next to adapters of rank {RANK}, measured by tools/saved_bytes.py --lora."
    columns = ["model_type", "targets", "mode", "sequences", "length", "saved", "weight_casts", "config"]
    text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[:3]))
    ADAPTED_CASES.write_text(text + "\n]}\n", encoding="utf-8")


def drawn_types() -> list[str]:
    """Return the model types that napkin reads and the library has."""
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    return [name for name in MODULES if name in known or name in BORROWED]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types (default: all causal ones that napkin reads)")
    parser.add_argument("--cases", type=int, default=2, help="configs in each mode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modes that begin so: bf16/eager")
    parser.add_argument(
        "--recompute", choices=(KEEP_ALL, "full"), default=KEEP_ALL, help="full: checkpoint every layer"
    )
    parser.add_argument("--show", action="store_true", help="the tensors of what differs")
    parser.add_argument("--lora", default="", help="targets of adapters next to the frozen network: q_proj,v_proj")
    parser.add_argument("--adapter", default="lora", help="their kind, by peft's name: ia3, loha, oft")
    parser.add_argument("--lora-dropout", type=float, default=0.0, help="dropout of LoRA's inputs")
    parser.add_argument("--config", help="a config.json in place of drawn ones")
    parser.add_argument("--shape", default="2x64", help="its sequences and their length")
    parser.add_argument("--write", action="store_true", help="keep the verdicts and some cases")
    asked = parser.parse_args()
    globals().update(ADAPTER=asked.adapter, ADAPTER_DROPOUT=asked.lora_dropout)
    emulate()
    if asked.config:
        fields = json.loads(Path(asked.config).read_text(encoding="utf-8"))
        sequences, length = map(int, asked.shape.split("x"))
        for precision in POLICY:
            for kernel in ALL_KERNELS:
                case = compare(
                    Shape(fields, sequences, length), precision, kernel, 0.0, asked.recompute, True, asked.lora
                )
                print(f"{case.mode}: {'equal' if case.equal else case.problem or 'differs'}")
        return 0
    for model_type in asked.types or drawn_types():
        cases = sweep(model_type, asked.cases, asked.seed, asked.only, asked.recompute, asked.show, asked.lora)
        found = verdicts(cases)
        if asked.only and not cases:
            parser.error(f"no mode of {model_type} begins with {asked.only!r}")
        problems = Counter(case.problem for case in cases if case.problem)
        equal, run = sum(case.equal for case in cases), sum(case.found is not None for case in cases)
        print(f"{model_type}: {sum(found.values())} of {len(found)} modes exact, {equal} of {run} cases", flush=True)
        if not asked.show:
            for case in [case for case in cases if case.found and not case.equal][:SHOWN]:
                report(case)
        for problem, many in problems.most_common(4):
            print(f"   {many} × {problem}")
        if asked.write and asked.lora:
            write_adapted(model_type, asked.lora, cases)
        elif asked.write:
            write_table(model_type, cases)
            write_cases(model_type, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
