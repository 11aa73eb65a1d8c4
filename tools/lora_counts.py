"""Trainable parameters of LoRA as peft makes them, compared with what napkin counts.

A model of a small drawn config is built on the meta device, and peft adapts each choice of targets: every name that
ends a module's path, experts in one tensor, every linear layer, peft's default for the type.

    hf/bin/pip install peft==0.21.2
    hf/bin/python tools/lora_counts.py                    every model type
    hf/bin/python tools/lora_counts.py llama t5 --cases 3 these, more configs
    hf/bin/python tools/lora_counts.py llama --write      keep what is equal for the tests, what differs for answers
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from drawn_configs import BORROWED, HOLDERS, WHOLE, draw, head_for, head_of  # noqa: E402
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS  # noqa: E402
from peft.utils.transformers_weight_conversion import (  # noqa: E402
    _MODEL_TO_CONVERSION_PATTERN,
    _MOE_TARGET_MODULE_MAPPING,
)
from reference_class import configured, drawn_types, reading  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

from napkin._tables import adapter_targets  # noqa: E402
from napkin.architectures import MODULES, implementation_of  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.footprint.local_weights import sum_weights  # noqa: E402
from napkin.footprint.prepared import stack_of_step  # noqa: E402
from napkin.footprint.rank_weights import weights_on_a_rank  # noqa: E402
from napkin.operations.adapters.targets import resolved  # noqa: E402
from napkin.operations.tuning import Tuning  # noqa: E402
from napkin.record import replace  # noqa: E402
from napkin.training.layout import Layout  # noqa: E402
from napkin.training.optimizer_names import find  # noqa: E402
from napkin.training.precision import POLICIES  # noqa: E402
from napkin.training.setup import Setup  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

CASES = ROOT / "tests" / "data" / "lora_counts.json"
TABLE = ROOT / "src" / "napkin" / "_tables" / "adapter_targets.py"
RANK = 4
OTHERS = re.compile("vision|visual|image|audio|projector|connector|merger")
"""Parts of a class with other senses, which are not the language model."""
OTHER_CLASSES = re.compile("Vision(Model|Encoder)|ProteinEncoder")
"""Classes of such parts."""
ADAPTED = (torch.nn.Linear, Conv1D, torch.nn.Embedding)
"""Modules that are compared; peft adapts convolutions too."""
ALL_LINEAR, DEFAULT = "all-linear", "default"


def network(fields: dict[str, Any]) -> Any:
    """Build the class of a config's model_type, without weights."""
    with torch.device("meta"), no_init_weights():
        return head_for(fields).from_config(configured(fields))


def is_other(model: Any) -> Callable[[str], bool]:
    """Return what tells whether a path lies in a part with other senses."""
    inside = tuple(
        f"{name}." for name, one in model.named_modules() if name and OTHER_CLASSES.search(type(one).__name__)
    )
    return lambda name: bool(OTHERS.search(name)) or name.startswith(inside)


def choices_of(model: Any) -> dict[str, dict[str, Any]]:
    """Return choices of targets, each as peft's options: the last part of every path, experts' parameters, every linear
    layer, peft's default."""
    found: dict[str, dict[str, Any]] = {ALL_LINEAR: {"target_modules": ALL_LINEAR}}
    if isinstance(DEFAULTS.get(model.config.model_type), list):
        found[DEFAULT] = {"target_modules": DEFAULTS[model.config.model_type]}
    other = is_other(model)
    for name, one in model.named_modules():
        if isinstance(one, ADAPTED) and not other(name):
            leaf = name.rpartition(".")[2]
            found.setdefault(leaf, {"target_modules": [leaf]})
    for name, weight in model.named_parameters():
        if weight.dim() == 3 and "experts" in name and not other(name):
            leaf = ".".join(name.split(".")[-2:])
            found.setdefault(leaf, {"target_modules": [], "target_parameters": [leaf]})
    base = _MODEL_TO_CONVERSION_PATTERN.get(model.config.model_type)
    if base in _MOE_TARGET_MODULE_MAPPING:
        names = [name for name in _MOE_TARGET_MODULE_MAPPING[base] if name != "gate"]
        found[",".join(names)] = {"target_modules": names}
    return found


def counts(fields: dict[str, Any]) -> dict[str, int]:
    """Return peft's number of trainable parameters of each choice of targets that it takes."""
    model = network(fields)
    text, other = model.config.model_type, is_other(model)
    sums = {}
    for choice, options in choices_of(model).items():
        if choice == ALL_LINEAR and any(other(name) for name, _ in model.named_modules()):
            continue  # other senses than text are adapted too
        one = copy.deepcopy(model)
        try:
            adapted = peft.inject_adapter_in_model(peft.LoraConfig(r=RANK, **options), one)
        except ValueError as problem:
            print(f"   {text} {choice}: peft refuses: {str(problem)[:100]}")
            continue
        own = [w for n, w in adapted.named_parameters() if "lora_" in n and not other(n)]
        sums[choice] = sum(weight.numel() for weight in own)
    return {name: count for name, count in sums.items() if count}


def said(fields: dict[str, Any], targets: tuple[str, ...]) -> int:
    """Return napkin's number of trained parameters."""
    model = replace(reading(fields), vision=None)
    implementation = implementation_of("hf", model.family)
    tuning = resolved(Tuning("lora", RANK, 0.0), targets, model, implementation)
    implementation = replace(implementation, tuning=tuning)
    setup = Setup(implementation, Layout(seq=8), POLICIES["bf16-pure"], find("adamw")[0], "foreach", "eager")
    stack = stack_of_step(model, setup)
    counts, layers = zip(*((n, layer) for _, n, layer in stack.kinds()), strict=True)
    held = weights_on_a_rank(model, stack, setup, layers)
    ends = [(1, one) for one in (held.before, held.after, held.shared) if one is not None]
    both = sum_weights([*zip(counts, held.layers, strict=True), *ends])
    return int(both.all + both.idle)


def compare(fields: dict[str, Any]) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
    """Return peft's counts and napkin's if it answers, and by choice of targets what napkin says where it
    differs."""
    found = counts(fields)
    mine: dict[str, int] = {}
    off: dict[str, str] = {}
    for choice, count in found.items():
        try:
            mine[choice] = said(fields, tuple(choice.lower().split(",")))
        except NapkinError as problem:
            off[choice] = f"peft {count:,}, refused: {problem.message[:90]}"
            continue
        if mine[choice] != count:
            off[choice] = f"peft {count:,}, napkin {mine[choice]:,}"
    return found, mine, off


def differences(fields: dict[str, Any], found: dict[str, int], mine: dict[str, int]) -> dict[str, float]:
    """Return how far each answer lies from peft's count, as a share of it. Where other senses keep `all-linear` from
    being counted, it lies as far off as the sum of all linear layers' names, those that napkin lacks included."""
    shares = {choice: abs(mine[choice] - found[choice]) / found[choice] for choice in mine}
    if mine and ALL_LINEAR not in found:
        modules = network(fields).named_modules()
        linear = {name.rpartition(".")[2] for name, one in modules if isinstance(one, ADAPTED[:2])} & set(found)
        peft_s, napkin_s = (sum(counted.get(name, 0) for name in linear) for counted in (found, mine))
        shares[ALL_LINEAR] = abs(napkin_s - peft_s) / peft_s if peft_s else 0.0
    return shares


def class_type(name: str) -> str:
    """Return the model_type of the class that runs a type."""
    if name in HOLDERS and head_of(name) is WHOLE:
        return HOLDERS[name]
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    name = BORROWED.get(name, name)
    return transformers.AutoConfig.for_model(name).model_type if name in known else name


def write_table(compared: dict[str, dict[str, float]]) -> None:
    """Write peft's targets of the types that napkin reads: its defaults, and what it takes names of linear layers of
    transformers 4 for; and how far napkin's counts of the types `compared` lie from peft's, next to those compared
    before."""
    known: dict[str, dict[str, float]] = {
        name: adapter_targets.DIFFERS.get(name, {}) for name in adapter_targets.COMPARED
    }
    known |= {name: shares if any(shares.values()) else {} for name, shares in compared.items()}
    types = {name: class_type(name) for name in sorted(MODULES)}
    defaults = {name: DEFAULTS[one] for name, one in types.items() if isinstance(DEFAULTS.get(one), list)}
    bases = {name: _MODEL_TO_CONVERSION_PATTERN.get(one) for name, one in types.items()}
    versions = f"peft {peft.__version__} and transformers {transformers.__version__}"
    lines = [
        f'"""Generated by tools/lora_counts.py --write from {versions}."""',
        "",
        "from __future__ import annotations",
    ]
    lines += ["", "DEFAULTS: dict[str, tuple[str, ...]] = {"]
    lines += [f"    {name!r}: {tuple(target.lower() for target in targets)!r}," for name, targets in defaults.items()]
    lines += ["}", "RENAMED: dict[str, dict[str, str]] = {"]
    lines += [f"    {base!r}: {mapping!r}," for base, mapping in _MOE_TARGET_MODULE_MAPPING.items()]
    lines += ["}", "CONVERTED: dict[str, str] = {"]
    lines += [f"    {name!r}: {base!r}," for name, base in bases.items() if base in _MOE_TARGET_MODULE_MAPPING]
    lines += ["}", "COMPARED: frozenset[str] = frozenset(("]
    lines += [f"    {name!r}," for name in sorted(known)]
    lines += ["))", "DIFFERS: dict[str, dict[str, float]] = {"]
    for name, shares in sorted(known.items()):
        if shares:
            lines.append(
                f"    {name!r}: { ({one.lower(): round(share, 4) for one, share in sorted(shares.items())})!r},"
            )
    TABLE.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types (default: all that napkin reads)")
    parser.add_argument("--cases", type=int, default=3, help="configs of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep a config of each type for the tests")
    asked = parser.parse_args()
    rows = json.loads(CASES.read_text(encoding="utf-8"))["rows"] if CASES.exists() else []
    compared: dict[str, dict[str, float]] = {}
    for model_type in asked.types or drawn_types():
        kept = False
        rng = random.Random(f"{asked.seed} {model_type}")
        equal = run = 0
        for _ in range(asked.cases):
            fields = draw(model_type, rng, 0.0).fields
            try:
                found, mine, off = compare(fields)
                shares = differences(fields, found, mine)
            except Exception as problem:  # whatever a class or peft does not run
                print(f"   {model_type}: does not run: {type(problem).__name__}: {str(problem)[:150]}")
                continue
            run, equal = run + len(found), equal + len(found) - len(off)
            for choice, what in off.items():
                print(f"   {model_type} {choice}: {what}")
            if shares:
                most = compared.setdefault(model_type, {})
                most |= {choice: max(share, most.get(choice, 0.0)) for choice, share in shares.items()}
            if asked.write and not off and not kept:
                kept = True
                rows = [row for row in rows if row[0] != model_type] + [[model_type, found, fields]]
        print(f"{model_type}: {equal} of {run} equal", flush=True)
    if asked.write:
        write_table(compared)
        about = f"Trainable parameters of LoRA at rank {RANK}: peft {peft.__version__} on transformers "
        about += f"{transformers.__version__}, counted by tools/lora_counts.py."
        text = json.dumps({"about": about, "columns": ["model_type", "counts", "config"]})[:-1] + ', "rows": [\n'
        lines = (json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[0]))
        CASES.write_text(text + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
