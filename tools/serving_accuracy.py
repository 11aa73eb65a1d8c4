"""Write how far predictions of serving are from published rows: docs/serving-accuracy.md.

python tools/serving_accuracy.py    from configs/evidence/serving.yaml and _tables/serving_shares.py; seconds
"""

from __future__ import annotations

import math
from pathlib import Path

from napkin.commands.validate import serving
from napkin.evidence import published
from napkin.evidence.serving.errors import CHIP_UNKNOWN, ENGINE_UNKNOWN, MEASURED, half_width, source_key
from napkin.evidence.serving.generation import LATENCY, LAYER, UNKNOWN, effects, names
from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.error_statistics import by_quantity, coverage_of, errors_of
from napkin.inputs.yaml_file import read_yaml

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "configs" / "evidence" / "serving.yaml"
PAGE = ROOT / "docs" / "serving-accuracy.md"
LEVEL = 0.9
ENGINES = ("tensorrt-llm", "vllm", "llama.cpp", "gpt-fast", UNKNOWN)
CLASSES = (MEASURED, ENGINE_UNKNOWN, CHIP_UNKNOWN)


def percent(value: float, signed: bool = False) -> str:
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def entries(inside: bool) -> list[Compared]:
    """Return every quantity of the evidence next to its prediction."""
    found = published.read(str(ROWS)).serving
    return [one for row in found for one in serving.compared(row, LEVEL, inside)]


def errors(held: list[Compared], seen: list[Compared]) -> str:
    """Return the errors by quantity and source: held out, and inside."""
    known = {key: one["name"] for key, one in read_yaml(str(ROWS)).data["sources"].items()}
    rows = []
    inside = by_quantity(seen)
    for quantity, members in by_quantity(held).items():
        for key, name in known.items():
            own = [one for one in members if source_key(one.group) == key]
            if own:
                out = errors_of(own)
                same = errors_of([one for one in inside[quantity] if source_key(one.group) == key])
                covered = "–" if out.coverage is None else percent(out.coverage)
                figures = [
                    percent(out.median),
                    percent(out.p90),
                    percent(out.bias, True),
                    covered,
                    percent(same.median),
                ]
                rows.append([f"`{quantity}`", name, str(out.rows), *figures])
    return table(["quantity", "source", "rows", "median", "p90", "bias", "in the 90 % interval", "median inside"], rows)


def widths(held: list[Compared]) -> str:
    """Return the intervals of what engines do, by the class of evidence that they rest on, and their coverage."""
    known = [one for one in held if one.covered is not None and not one.suspect and "weights" not in one.quantity]
    rows = []
    for rests in CLASSES:
        found = coverage_of([one for one in known if one.evidence == rests])
        end = f"×/÷ {math.exp(half_width('throughput', rests, LEVEL)):.2f}"
        covered = f"{percent(found.covered)} ± {100 * found.error:.1f}"
        rows.append([rests, end, str(found.rows), str(found.groups), covered])
    return table(["class of evidence", "90 % interval", "rows", "pages", "covered at 90 %, ± its standard error"], rows)


def shares() -> str:
    """Return what each family of engines reaches, over the shares of training steps."""
    fitted = effects()

    def factor(share: str, bits: int, kind: str, engine: str) -> str:
        return f"{math.exp(sum(fitted.get(one, 0.0) for one in names(bits, kind, engine)[share])):.2f}"

    rows = []
    for engine in ENGINES:
        layer, wait = (float(factor(share, 16, "hbm", engine)) for share in ("layer", "latency"))
        rows.append(
            [
                engine if engine != UNKNOWN else "any other",
                *(factor("weights", 16, kind, engine) for kind in ("hbm", "dram")),
                factor("cache", 16, "hbm", engine),
                *(factor("matmul", bits, "hbm", engine) for bits in (16, 8, 4)),
                factor("attention", 16, "hbm", engine),
                f"{1e6 * LAYER * layer:.0f} μs",
                f"{1e6 * LATENCY * wait:.0f} μs",
            ]
        )
    head = ["engine", "weights (HBM)", "weights (GDDR)", "cache", "16-bit", "8-bit", "4-bit", "attention", "a layer"]
    return table([*head, "an all-reduce"], rows)


ALONE = """gpt-fast is the only source of its engine: held out, nothing is known of it, and its errors are those of an
engine that no one measured. What llama.cpp's kernels move next to weights and cache is counted, not fitted
(footprint/engine_kernels.py), so that its prompts are predicted from what other engines reach.
"""
INTERVALS = """Quantiles of the errors with sources held out, every source weighing the same, by what an answer
rests on: **measured**, another source measured this family of engines; **engine unknown**, none did; **chip unknown**,
no row ran on an accelerator of that generation. All speeds of a class have one interval: too few sources tell how far
apart the times of a token, of a prompt and rates of many requests are.
"""
SHARES = """Factors on the shares of the peaks and of the memory's bandwidth that training steps reach on the same
accelerator ([accuracy.md](accuracy.md)), and the time that launching a layer and one all-reduce take: an effect
that all engines share, and what a family adds, each drawn towards 0 where rows say little. A family's rows move
them together: a column alone does not measure that part.
"""
SILENT = """Rows without the lengths of prompts or responses, with speculation or cached prompts, of production
traffic, of models without a preset or a shape, and of accelerators that napkin does not know: each says why.
"""


def page() -> str:
    held, seen = entries(False), entries(True)
    evidence = sum(1 for one in held if one.predicted is not None and not one.suspect)
    sources = len({source_key(one.group) for one in held})
    return "\n".join(
        [
            "# How far off is serving?\n",
            "Every figure here is made by `python tools/serving_accuracy.py` from the published rows in\n"
            "`configs/evidence/serving.yaml`; `napkin validate FILE` makes the same comparison for rows of your own\n"
            "(`schema: serving/1`). **Held out** means: what engines reach was fitted without the row's whole source.\n"
            "**Inside** means: the source is in the fit.\n",
            f"{evidence:,} figures of {sources} sources.\n",
            "## By quantity and source, each source held out in turn\n",
            errors(held, seen),
            ALONE,
            "## Intervals\n",
            INTERVALS,
            widths(held),
            "## What engines reach\n",
            SHARES,
            shares(),
            "## What is not predicted\n",
            SILENT,
            "Limits on the slowest answers cost what the benchmark's own rows show "
            f"({percent(1 - math.exp(effects().get('limited', 0.0)))}).\n",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
