"""Bytes that multimodal classes save for backward with images, and FLOPs of an image, compared with what napkin says.

The whole class of a small config runs once on the meta device, as saved_bytes.py runs language models: one forward pass
over sequences with images and its loss. No weights, no GPU, no download.

    hf/bin/python tools/vision_bytes.py                        every type of vision_configs.py, in every mode
    hf/bin/python tools/vision_bytes.py llava gemma3 --show    these, with what each section keeps
    hf/bin/python tools/vision_bytes.py llava --write          keep the result for the tests
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import cuda_on_meta  # noqa: E402
import torch  # noqa: E402
import torch.fx.experimental._config  # noqa: E402
import transformers  # noqa: E402
from cuda_on_meta import emulate  # noqa: E402
from reference_class import POLICY, reading  # noqa: E402
from saved_by_class import Measured, traced  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402
from vision_configs import CONFIGS, Case  # noqa: E402

from napkin.architectures import implementation_of  # noqa: E402
from napkin.counting.vision import flops_of  # noqa: E402
from napkin.footprint import memory  # noqa: E402
from napkin.footprint.prepared import prepare  # noqa: E402
from napkin.training.layout import Layout  # noqa: E402
from napkin.training.optimizer_names import find  # noqa: E402
from napkin.training.precision import POLICIES  # noqa: E402
from napkin.training.recomputation import Recompute  # noqa: E402
from napkin.training.setup import Setup  # noqa: E402

transformers.logging.set_verbosity_error()
torch.fx.experimental._config.meta_nonzero_assume_all_nonzero = True  # of masks: all patches and images are there
CASES = ROOT / "tests" / "data" / "vision_bytes.json"
MODES = list(product(("bf16", "fp32", "autocast"), ("flash", "eager"), ("none", "full"), ((1, 1), (2, 1), (1, 2))))
"""Precision, attention kernel, recomputation, (sequences, images in each)."""


def plain_numbers() -> None:
    """Let what classes compute of images' sizes run with numbers."""
    for name in [name for name in sys.modules if name.startswith("transformers.models.")]:
        for function in ("get_vision_position_ids", "get_vision_attention_seqlens", "get_vision_window_index"):
            plain = getattr(sys.modules[name], function, None)
            if plain is not None and not hasattr(plain, "plain"):
                setattr(sys.modules[name], function, _with_numbers(plain, function.endswith("ids")))
        places = "get_vision_interpolation_indices_and_weights"
        if hasattr(sys.modules[name], places) and not hasattr(getattr(sys.modules[name], places), "plain"):
            setattr(sys.modules[name], places, _with_numbers(getattr(sys.modules[name], places), True))


def _with_numbers(function: Any, moved: bool) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):
            found = function(*args, **kwargs)
        if not moved:
            return found
        return tuple(one.to("meta") for one in found) if isinstance(found, tuple) else found.to("meta")

    run.plain = function  # type: ignore[attr-defined]
    return run


def network(case: Case, precision: str, kernel: str) -> Any:
    """Build the class, without weights."""
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(case.fields)))
    for part in (config, config.get_text_config()):
        part.use_cache = False
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    attention = "eager" if kernel == "eager" else "sdpa"
    with torch.device("meta"), no_init_weights():
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=dtype, attn_implementation=attention)
    plain_numbers()
    model = model.to("meta")
    model.tie_weights()
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    for part in model.modules():  # the class counts the places of images, which have no values here
        if hasattr(part, "get_placeholder_mask"):
            part.get_placeholder_mask = lambda input_ids, inputs_embeds, **_: _places(input_ids, inputs_embeds)
    return model.train()


def _places(input_ids: Any, inputs_embeds: Any) -> Any:
    mask = (input_ids == 7).unsqueeze(-1).expand_as(inputs_embeds)
    return mask if _places.alone else (mask, mask)  # type: ignore[attr-defined]


def measure(case: Case, precision: str, kernel: str, recompute: str, sequences: int, images: int) -> Measured:
    """One forward pass and its loss."""
    cuda_on_meta.KERNEL = kernel
    model = network(case, precision, kernel)
    if recompute != "none":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    _places.alone = case.alone  # type: ignore[attr-defined]
    with torch.device("meta"):
        ids = torch.arange(sequences * case.length).view(sequences, case.length) % 97
        given = {"input_ids": ids, "labels": ids.clone(), **case.given(sequences, case.length, images)}
    return traced(model, given | {"use_cache": False}, "meta", precision)


def said(case: Case, precision: str, kernel: str, recompute: str, sequences: int, images: int) -> Any:
    """napkin's step and its only rank."""
    model = reading(case.fields)
    layout = Layout(
        seq=case.length, micro=sequences, images=images, image_tokens=case.tokens, recompute=Recompute(recompute)
    )
    implementation = implementation_of("hf", model.family)
    numbers, optimizer = POLICIES[POLICY[precision]], find("adamw")[0]
    tower = model.vision.implementation
    step = prepare(model, Setup(implementation, layout, numbers, optimizer, "foreach", kernel, tower=tower))
    return step, memory.rank_of(step, 0)


def flops(case: Case) -> tuple[int, int]:
    """Return the FLOPs of one image forward: the class's, and napkin's."""
    cuda_on_meta.KERNEL = "eager"
    model = network(case, "fp32", "eager")
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        given = case.given(1, case.length, 1)
        model.get_image_features(**{name: value for name, value in given.items() if name != "position_ids"})
    return counter.get_total_flops(), flops_of(reading(case.fields), 0, case.tokens)[0].value


def show(step: Any, found: Measured) -> None:
    """Print the storages that only one of both has, by their bytes."""
    mine: Counter[int] = Counter()
    labels: dict[int, list[str]] = {}
    shared: set[int] = set()
    for count, section in ((1, step.run.before), *step.run.layers, (1, step.run.after)):
        for s in section.kept:
            size = int(s.size * s.kept)
            if s.kind != "activation" or (s.shared and id(s) in shared):
                continue
            shared.add(id(s))
            mine[size] += 1 if s.shared else count
            labels.setdefault(size, []).append(f"{section.name}:{s.label}")
    theirs = Counter(row.size for row in found.rows)
    for size in sorted(set(mine) | set(theirs)):
        if mine[size] != theirs[size]:
            print(f"      {size} bytes: mine {mine[size]} {Counter(labels.get(size, ()))}")
            named = Counter(f"{r.module} {'×'.join(map(str, r.shape))} {r.dtype}" for r in found.rows if r.size == size)
            print(f"         theirs {theirs[size]} {dict(named)}")


def compare(case: Case, shown: bool) -> list[list[Any]]:
    """Compare one config in every mode; return the rows that are equal."""
    rows, equal, ran = [], 0, 0
    for precision, kernel, recompute, (sequences, images) in MODES:
        mode = (precision, kernel, recompute, sequences, images)
        try:
            found = measure(case, *mode)
        except Exception as problem:  # whatever a class does not run
            print(f"   {case.name} {mode} does not run: {type(problem).__name__}: {str(problem)[:200]}")
            if shown:
                raise
            continue
        step, rank = said(case, *mode)
        ran += 1
        same = (rank.saved, rank.casts) == (found.saved, found.casts)
        equal += same
        if same:
            rows.append([case.name, *mode, found.saved, found.casts])
        else:
            off = rank.saved - found.saved
            print(
                f"   {case.name} {mode}: saved {found.saved:,}, napkin {off:+,} ({off / found.saved:+.2%}); casts "
                f"{found.casts:,}, napkin {rank.casts - found.casts:+,}"
            )
            if shown:
                show(step, found)
    print(f"{case.name}: {equal} of {ran} modes equal; FLOPs of an image (class, napkin) {flops(case)}", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="names of vision_configs.py (default: all)")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--only", default="", help="modes that contain this: bf16/flash/none")
    parser.add_argument("--write", action="store_true", help="keep the cases that are equal for the tests")
    asked = parser.parse_args()
    emulate()
    MODES[:] = [one for one in MODES if asked.only in "/".join(one[:3])]
    found = {name: compare(CONFIGS[name], asked.show) for name in asked.types or CONFIGS}
    if asked.write:
        kept = json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else {"rows": [], "configs": {}}
        rows = [row for row in kept["rows"] if row[0] not in found] + [row for of in found.values() for row in of]
        configs = {**kept["configs"], **{name: CONFIGS[name].written for name in found}}
        about = (
            f"Saved by classes of transformers {transformers.__version__} on torch {torch.__version__} (meta device)."
        )
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows))
        head = json.dumps({"about": about, "configs": configs})[:-1]
        CASES.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
