"""Bytes that real Hugging Face code saves for backward, measured and compared with what napkin says.

A model of a small config (drawn_configs.py) runs once on the meta device: hooks see each tensor that autograd saves.
CUDA is emulated (cuda_on_meta.py), kernels of recurrent layers are replaced by what they save (recurrent_kernels.py).
No weights, no GPU, no download.

    python -m venv hf && hf/bin/pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2 pyyaml
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
import json
import random
import re
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from cuda_on_meta import emulate  # noqa: E402
from drawn_configs import DROPOUT, Shape, draw, has_dropout  # noqa: E402
from peft_adapters import RANK, Adapters  # noqa: E402
from reference_class import POLICY, drawn_types, reading  # noqa: E402
from saved_by_class import KEEP_ALL, Measured, measure  # noqa: E402
from saved_cases import Case, verdicts, write_adapted, write_cases, write_table  # noqa: E402

from napkin.architectures import implementation_of  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.footprint import memory  # noqa: E402
from napkin.footprint.prepared import prepare  # noqa: E402
from napkin.operations.adapters.targets import resolved  # noqa: E402
from napkin.operations.implementations import ALL_KERNELS, MANY, ONE, mode  # noqa: E402
from napkin.operations.tuning import Tuning  # noqa: E402
from napkin.record import replace  # noqa: E402
from napkin.training.layout import Layout  # noqa: E402
from napkin.training.optimizer_names import find  # noqa: E402
from napkin.training.precision import POLICIES  # noqa: E402
from napkin.training.recomputation import Recompute  # noqa: E402
from napkin.training.setup import Setup  # noqa: E402

SHOWN = 3
"""Differing cases of a model type that are printed."""
ATTEMPTS = 6
"""Draws for each config that is wanted: some that are drawn contradict themselves."""


def layer_of(module: str) -> int | None:
    """Return the number of the layer that a module is in."""
    found = re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?:\.|$)", module)
    return int(found[1]) if found else None


def said(
    fields: dict[str, Any],
    precision: str,
    kernel: str,
    dropout: float,
    sequences: int,
    length: int,
    target: int = 0,
    recompute: str = KEEP_ALL,
    adapters: Adapters | None = None,
) -> Any:
    """napkin's step and its only rank."""
    model = reading(fields)
    layout = Layout(seq=length, micro=sequences, target=target, recompute=Recompute(recompute))
    implementation = implementation_of("hf", model.family)
    if adapters:
        tuning = resolved(
            Tuning(adapters.kind, RANK, adapters.dropout, library="transformers"),
            tuple(adapters.targets.split(",")),
            model,
            implementation,
        )
        implementation = replace(implementation, tuning=tuning)
    policy, optimizer, woken = POLICIES[POLICY[precision]], find("adamw")[0], adapters is not None
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


def compare(
    shape: Shape,
    precision: str,
    kernel: str,
    dropout: float,
    recompute: str,
    shown: bool,
    adapters: Adapters | None = None,
) -> Case:
    fields, sequences, length, target = shape
    name = mode(precision, kernel, dropout > 0, sequences, recompute)
    try:
        found = measure(fields, precision, kernel, sequences, length, target, recompute, adapters)
    except Exception as problem:  # whatever a class does not run
        return Case(name, shape, None, 0, 0, f"does not run: {type(problem).__name__}: {str(problem)[:150]}")
    try:
        step, rank = said(fields, precision, kernel, dropout, sequences, length, target, recompute, adapters)
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


def sweep(
    model_type: str, count: int, seed: int, only: str, recompute: str, shown: bool, adapters: Adapters | None
) -> list[Case]:
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
            case = compare(drawn, precision, kernel, dropout, recompute, shown, adapters)
            wanted, left = wanted - (case.found is not None), left - 1
            cases.append(case)
            if [one.problem for one in cases[-3:]] == [case.problem] * 3 and case.problem:
                break  # not for what was drawn
    return cases


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
    adapters = Adapters(asked.lora, asked.adapter, asked.lora_dropout) if asked.lora else None
    emulate()
    if asked.config:
        fields = json.loads(Path(asked.config).read_text(encoding="utf-8"))
        sequences, length = map(int, asked.shape.split("x"))
        for precision in POLICY:
            for kernel in ALL_KERNELS:
                case = compare(
                    Shape(fields, sequences, length), precision, kernel, 0.0, asked.recompute, True, adapters
                )
                print(f"{case.mode}: {'equal' if case.equal else case.problem or 'differs'}")
        return 0
    for model_type in asked.types or drawn_types():
        cases = sweep(model_type, asked.cases, asked.seed, asked.only, asked.recompute, asked.show, adapters)
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
