"""A row of measured fine-tuning, and what `validate` says of it."""

from __future__ import annotations

import pathlib
from typing import Any

from tests.conftest import run_line

ROW = """- id: {id}
  source: {{title: hand-made}}
  task: {task}
  model: {{preset: {model}}}
  hardware: {{chip: {chip}, count: {count}}}
  method: {{{method}}}
  layout: {{micro_batch: 4, grad_accum: 1, recompute: full, {layout}}}
  measured: {{{measured}}}
"""
LORA = "kind: lora, lora_rank: 16, lora_targets_canonical: 'q,v'"
A100 = "A100 SXM 80GB"
DROPPED = "loss: 'cross entropy, logits dropped'"
PLAIN = "seq: 4096, precision: bf16-pure, trainer: none, stack: none"


def validated(tmp_path: pathlib.Path, *rows: dict[str, Any], chip: str = A100) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the entries of `validate` for rows, by id and quantity."""
    usual = {
        "id": "a",
        "task": "sft",
        "model": "llama3-8b",
        "chip": chip,
        "count": 1,
        "method": LORA,
        "layout": PLAIN,
        "measured": "peak_bytes: 3e+10, what: allocated, tokens_per_second_per_gpu: 3000",
    }
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + "".join(ROW.format(**{**usual, **row}) for row in rows))
    found = run_line(f"validate {file} --json")
    assert found.status == 0, found.err
    return {(row["id"], row["quantity"]): row for row in found.data["rows"]}
