"""Which head each class of transformers has that scores labels: parameters and FLOPs of the class itself, on the meta
device, against every head that napkin knows (src/napkin/architectures/heads.py).

    hf/bin/python tools/class_heads.py            which classes differ from the table
    hf/bin/python tools/class_heads.py --write    write the table; a few minutes

The table also lists the classes without a head, by name: a class with another name may hold anything.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import torch  # noqa: E402
import transformers  # noqa: E402
from class_counts import SENSES, products  # noqa: E402
from drawn_configs import Shape, draw, unseen  # noqa: E402
from reference_class import configured, reading  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from napkin._tables.class_heads import CLASS_HEADS  # noqa: E402
from napkin.architectures import MODULES, WRAPPERS, heads  # noqa: E402
from napkin.architectures.reading import BODIES  # noqa: E402
from napkin.counting import flops  # noqa: E402
from napkin.counting.params import params  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.operations.scored import SEQUENCE, SPAN, TOKEN  # noqa: E402

TABLE = ROOT / "src" / "napkin" / "_tables" / "class_heads.py"
CASES = ROOT / "tests" / "data" / "class_heads.json"
KEPT = 2
"""Classes with a head of one kind that the tests keep."""
TASKS = {
    "SEQUENCE_CLASSIFICATION": SEQUENCE,
    "TOKEN_CLASSIFICATION": TOKEN,
    "QUESTION_ANSWERING": SPAN,
    "MULTIPLE_CHOICE": SEQUENCE,
}
"""Mappings of transformers, and what the loss of their classes is over."""
GLOBAL = ("longformer",)
"""Types whose heads make some tokens see all, which the language model does not."""
WHY: dict[str, str] = {}
"""Why the last draw of a class did not run."""
PATIENCE = 12
"""Draws that do not run, after which a class is only built."""
BODY = ("pooler", "project_out", "final")
"""Operations behind the layers that are the body's."""
PATHS: dict[str, set[str]] = {}
"""Modules of a class that have weights."""
DRAWS, ATTEMPTS = 3, 60


def classes() -> Iterator[tuple[str, str, str]]:
    """Yield (class, model type, task) of every class whose model type napkin knows."""
    for task in TASKS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
        for model_type, name in found.items():
            if (model_type in MODULES or model_type in WRAPPERS) and model_type not in GLOBAL:
                yield (name if isinstance(name, str) else name[0]), model_type, task


Counts = tuple[int, int, int]
"""Parameters, forward FLOPs, and FLOPs of the head alone."""


def drawn(name: str, model_type: str, task: str, seed: int) -> Iterator[tuple[Shape, Counts]]:
    """Yield configs of a class with what it has."""
    rng, seen, problems = random.Random(f"{seed} {name}"), 0, 0
    for _ in range(ATTEMPTS):
        if seen == DRAWS:
            return
        shape = draw(model_type, rng, 0.0)._replace(sequences=2)
        spans = TASKS[task] == SPAN
        shape.fields.update(architectures=[name], num_labels=2 if spans else rng.choice((1, 2, 5, 7)))
        if model_type in ("xlm", "flaubert"):
            shape.fields.setdefault("emb_dim", 48)
        if model_type == "squeezebert":
            shape.fields["embedding_size"] = shape.fields["hidden_size"]
        try:
            reading({key: value for key, value in shape.fields.items() if key != "architectures"})
            yield shape, counted(name, shape, task, run=problems < PATIENCE)
            if spans and seen == 0 and name != "DistilBertForQuestionAnswering":  # which refuses others than 2
                more = shape._replace(fields=shape.fields | {"num_labels": 5})
                yield more, counted(name, more, task, run=False)
        except Exception as problem:  # a draw that contradicts itself, in whatever way
            problems += not isinstance(problem, NapkinError)
            WHY[name] = f"{type(problem).__name__}: {str(problem)[:140]}"
            continue
        seen += 1


def counted(name: str, shape: Shape, task: str, run: bool = True) -> Counts:
    """Return what the class itself has; no FLOPs (-1) if it is not run. Those of the head alone are what it has more
    than its body, which may have the pooler."""
    config = configuration(name, shape)
    config._attn_implementation = "eager"
    text = config.get_text_config()
    text.pad_token_id = config.pad_token_id = 0
    with torch.device("meta"):
        model = getattr(transformers, name)._from_config(config, attn_implementation="eager").train()
    ids = torch.arange(shape.sequences * shape.length).view(shape.sequences, shape.length) % 90 + 3
    kept = {key: value for key, value in unseen(shape).items() if value is not None}
    if task == "MULTIPLE_CHOICE":
        ids = ids[None]
        kept = {key: value[None] for key, value in kept.items()}
    if model.config.is_encoder_decoder:
        kept["decoder_input_ids"] = ids if shape.length == shape.target else ids[:, :1].expand(-1, shape.target)
    ends = getattr(config, "eos_token_id", None)
    if isinstance(ends, int) and task == "SEQUENCE_CLASSIFICATION":
        ids = ids.clone()
        ids[ids == ends] = 60
        ids[..., -1] = ends
        if "decoder_input_ids" in kept:
            kept["decoder_input_ids"] = torch.cat([ids[:, :1].expand(-1, shape.target - 1), ids[:, -1:]], 1)
    grouped = {torch.ops.aten._grouped_mm: products}
    senses = hasattr(config, "vision_config")
    weights = sum(w.numel() for path, w in model.named_parameters() if not (senses and SENSES.search(path)))
    PATHS[name] = {path.rpartition(".")[0] for path, _ in model.named_parameters()}
    if not run:
        return weights, -1, -1
    model = model.to_empty(device="cpu")
    for weight in (*model.parameters(), *model.buffers()):
        if weight.is_floating_point():
            weight.data.uniform_(-0.05, 0.05)
        else:
            weight.data.zero_()
    found = []
    for one in (model, getattr(model, model.base_model_prefix)):
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=grouped) as counter:
            one(input_ids=ids.view(-1, ids.shape[-1]) if one is not model else ids, **flat(kept, ids, one is not model))
        found.append(counter.get_total_flops())
    return weights, found[0], found[0] - found[1]


def configuration(name: str, shape: Shape) -> Any:
    """Return the configuration of a class: a language model's own, or one that holds it."""
    model_type = shape.fields["model_type"]
    if getattr(transformers, name).config_class.model_type == model_type:
        return transformers.AutoConfig.for_model(**shape.fields)
    return configured(shape.fields)


def flat(kept: dict[str, Any], ids: Any, body: bool) -> dict[str, Any]:
    """Return arguments of the body, of which choices are sequences."""
    return {key: value[0] if body and ids.dim() == 3 else value for key, value in kept.items()}


def said(shape: Shape) -> tuple[Any, Any, Any]:
    """Return the same as napkin counts it."""
    model = reading(shape.fields)
    over = flops.works(model, shape.sequences, shape.length, target=shape.target or None)
    own = (product for op in model.stacks[-1].after for product in op.gemms(over[model.stacks[-1].name]))
    late = [2 * one.batch * one.m * one.k * one.n for one in own if not one.name.startswith(BODY)]
    return params(model)["params/total"].value, flops.forward(model, over).value, sum(late)


def kind_of(name: str, cases: list[tuple[Shape, Counts]], model_type: str, task: str) -> str | None:
    """Return the head that a class has; None if none of napkin's equals it, or too few draws run."""
    tried = []
    for kind, head in heads.HEADS.items():
        if head.scores != TASKS[task] or (head.outputs == 1) != (task == "MULTIPLE_CHOICE"):
            continue
        CLASS_HEADS[name] = kind
        try:
            found = [said(shape) for shape, _ in cases]
        except (NapkinError, StopIteration, IndexError) as problem:
            tried.append(f"{kind}: {str(problem)[:120]}")
            continue
        theirs = [one for _, one in cases]
        pairs = list(zip(found, theirs, strict=True))
        named = {head.path, *([head.dense] if head.dense else ()), *([head.norm] if head.norm else ())}
        there = all(any(path.endswith(one) for path in PATHS[name]) for one in named) if cases else False
        same = [all(b[n] in (a[n], -1) for a, b in pairs) for n in range(3)]
        if there and same[0] and (same[1] or same[2]):
            return kind
        tried.append(f"{kind}: {[tuple(x - y for x, y in zip(a, b, strict=True)) for a, b in pairs]}")
    print(f"{name} ({model_type}): no head fits", WHY.get(name, ""), *tried, sep="\n      ")
    return None


def bodies() -> list[str]:
    """Return the names of classes without a head."""
    known = {name for name, where in transformers._class_to_module.items() if ".modeling_" in where}
    return sorted(name for name in known if name.endswith(BODIES) and not name.endswith("PreTrainedModel"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    before = dict(CLASS_HEADS)
    found: dict[str, str] = {}
    rows: list[list[Any]] = []
    seen: set[str] = set()
    for name, model_type, task in classes():
        if re.search(asked.only, name) and name not in seen:
            seen.add(name)
            cases = list(drawn(name, model_type, task, asked.seed))
            kind = kind_of(name, cases, model_type, task)
            if kind is not None:
                found[name] = kind
                if list(found.values()).count(kind) <= KEPT:
                    rows += [[name, *theirs, s.length, s.target, s.fields] for s, theirs in cases[:1]]
            if kind != before.get(name):
                print(f"{name}: {before.get(name)} -> {kind}", flush=True)
    print(f"{len(found)} classes")
    if asked.write:
        text = f'"""Generated by tools/class_heads.py --write from transformers {transformers.__version__}."""\n'
        text += "\nfrom __future__ import annotations\n\nCLASS_HEADS: dict[str, str] = {\n"
        text += "".join(f"    {name!r}: {kind!r},\n" for name, kind in sorted(found.items()))
        text += f"}}\n# classes without a head\nCLASS_BODIES = {' '.join(bodies())!r}\n"
        TABLE.write_text(text, encoding="utf-8")
        about = (
            f"Classes of transformers {transformers.__version__}, counted by tools/class_heads.py, two sequences each."
        )
        columns = ["class", "params", "flops", "head_flops", "length", "target", "config"]
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        head = json.dumps({"about": about, "columns": columns})[:-1]
        CASES.write_text(head + ', "rows": [\n' + lines + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
