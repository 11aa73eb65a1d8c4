"""Parameters and forward FLOPs of real Hugging Face classes, counted by torch and compared with what napkin says.

Small configs are drawn as saved_bytes.py draws them, and built on the meta device: parameters are the sum over tensors,
FLOPs what torch.utils.flop_counter sees of a forward pass with written-out attention, and grouped products. No weights,
no GPU, no download.

    hf/bin/python tools/class_counts.py esm switch_transformers          these types, a dozen configs each
    hf/bin/python tools/class_counts.py esm --write                      keep two of the configs for the tests
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import cuda_on_meta  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from drawn_configs import ONE_CLASS, WHOLE, Shape, batch_of, draw, head_for  # noqa: E402
from reference_class import device_of, network, reading  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from napkin.counting import flops  # noqa: E402
from napkin.counting.params import params  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402

SENSES = re.compile(
    r"(^|\.)(vision|visual|image|audio|protein|perceiver|multi_modal|embed_vision|embed_audio|connector|projector"
    r"|encoder\.(pos_embed|patch_embed|layers|neck|multi_modal))"
)
"""Modules of what is not a language model."""
CASES = ROOT / "tests" / "data" / "class_counts.json"
KEPT = 2
"""Cases of a model type that the tests keep."""


def products(rows: Any, weights: Any, *others: Any, out_shape: Any, **named: Any) -> int:
    """FLOPs of products of tokens, sorted by expert, with their expert's matrix."""
    return 2 * int(rows[0]) * int(rows[1]) * int(weights[2])


def counted(shape: Shape) -> tuple[int, int]:
    """Parameters and forward FLOPs of the class itself."""
    model, device = network(shape.fields, "fp32", "eager"), device_of(shape.fields)
    grouped = {torch.ops.aten._grouped_mm: products}
    with torch.device(device), torch.no_grad(), FlopCounterMode(display=False, custom_mapping=grouped) as counter:
        model(**batch_of(shape))
    senses = head_for(shape.fields) is WHOLE or not {"vision_config", "audio_config"}.isdisjoint(shape.fields)
    several = senses or shape.fields["model_type"] in ONE_CLASS
    text = (one.numel() for name, one in model.named_parameters() if not (several and SENSES.search(name)))
    return sum(text), counter.get_total_flops()


def said(shape: Shape) -> tuple[Any, Any]:
    """Return the same as napkin counts it."""
    model = reading(shape.fields)
    works = flops.works(model, shape.sequences, shape.length, target=shape.target or None)
    return params(model)["params/total"].value, flops.forward(model, works).value


def rows_of(model_type: str, count: int, seed: int) -> list[list[Any]]:
    """Cases that were equal; the others are printed."""
    rng, rows, seen = random.Random(f"{seed} {model_type}"), [], 0
    for _ in range(6 * count):
        if seen == count:
            break
        shape = draw(model_type, rng, 0.0)._replace(sequences=rng.choice((1, 2, 3)))
        try:
            mine = said(shape)
            theirs = counted(shape)
        except (NapkinError, LookupError, TypeError, ValueError, RuntimeError) as problem:  # it contradicts itself
            print(f"   {model_type} does not run: {type(problem).__name__}: {str(problem)[:120]}")
            continue
        seen += 1
        if mine == theirs:
            fields, sequences, length, target = shape
            rows.append([model_type, sequences, length, target, *theirs, fields])
        else:
            off = [a - b for a, b in zip(mine, theirs, strict=True)]
            print(f"   {model_type} {shape.sequences}×{shape.length}: parameters {off[0]:+,}, FLOPs {off[1]:+,}")
            print(f"      {json.dumps(shape.fields)}")
    print(f"{model_type}: {len(rows)} of {seen} cases equal", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="+", help="model types")
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep some cases for the tests")
    asked = parser.parse_args()
    cuda_on_meta.emulate()
    found = {model_type: rows_of(model_type, asked.cases, asked.seed) for model_type in asked.types}
    if asked.write:
        kept = json.loads(CASES.read_text(encoding="utf-8"))["rows"] if CASES.exists() else []
        rows = [row for row in kept if row[0] not in found]
        rows += [row for of_type in found.values() for row in of_type[:KEPT]]
        about = (
            f"Parameters and forward FLOPs of Hugging Face transformers {transformers.__version__} on torch "
            f"{torch.__version__.split('+')[0]}, counted by tools/class_counts.py."
        )
        columns = ["model_type", "sequences", "length", "target", "params", "flops", "config"]
        text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
        text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[0]))
        CASES.write_text(text + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
