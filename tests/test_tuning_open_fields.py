"""What a row of measured fine-tuning leaves open: targets that the class lacks or fuses, other versions, the name of an
accelerator."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from napkin.training.trainers import TRAINERS
from tests.conftest import run_line

ROW = """- id: {id}
  source: {{title: hand-made}}
  task: sft
  model: {{preset: {model}}}
  hardware: {{accelerator: {chip}, count: 1}}
  method: {{{method}}}
  layout: {{micro_batch: 1, grad_accum: 1, seq: 1024, stack: none, {layout}}}
  measured: {{{measured}}}
"""
USUAL: dict[str, Any] = {
    "model": "llama3.2-1b",
    "chip": "A100 SXM 80GB",
    "method": "kind: lora, lora_rank: 16, lora_targets_canonical: 'q,v'",
    "layout": "recompute: full, precision: bf16-pure, trainer: none",
    "measured": "peak_bytes: 3e+9, what: allocated",
}


def memory(tmp_path: pathlib.Path, **row: Any) -> dict[str, Any]:
    """Return the entry of a row's memory."""
    file = tmp_path / "rows.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + ROW.format(**{"id": "a", **USUAL, **row}))
    found = run_line(f"validate {file} --json")
    assert found.status == 0, found.err
    entry: dict[str, Any] = found.data["rows"][0]
    return entry


EVERY = "q,k,v,o,gate,up,down"
CLASS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


@pytest.mark.parametrize(
    ("model", "given", "parts", "modules"),
    [
        ("phi3.5-mini", CLASS, EVERY, "qkv_proj,o_proj,gate_up_proj,down_proj"),  # fused
        ("chatglm3-6b", "query_key_value (default)", "q,k,v", "query_key_value"),
        ("gpt-oss-20b", CLASS, EVERY, "q_proj,k_proj,v_proj,o_proj"),  # the experts are tensors
        ("falcon-7b", "", EVERY, "query_key_value,dense,dense_h_to_4h,dense_4h_to_h"),  # no gate
        ("glm4.7-flash", CLASS, EVERY, "q_b_proj,o_proj,gate_proj,up_proj,down_proj"),  # latent keys
        ("glm4.7-flash", "", "o,gate,up,down", "o_proj,gate_proj,up_proj,down_proj"),  # no router
    ],
)
def test_parts_of_a_layer_are_the_class_s_modules(
    tmp_path: pathlib.Path, model: str, given: str, parts: str, modules: str
) -> None:
    method = "kind: lora, lora_rank: 8, lora_targets: '{}'"
    said = memory(tmp_path, model=model, method=f"{method.format(given)}, lora_targets_canonical: '{parts}'")
    meant = memory(tmp_path, model=model, method=method.format(modules))
    assert said["predicted"] == meant["predicted"] is not None


def test_targets_that_no_one_states_are_the_class_s_own_names(tmp_path: pathlib.Path) -> None:
    """Of Phi-3, for which peft has no default: the layer that holds q and v."""
    unstated, stated = (
        memory(tmp_path, model="phi3.5-mini", method=f"kind: lora, lora_rank: 8{targets}")
        for targets in ("", ", lora_targets_canonical: 'qkv_proj'")
    )
    assert unstated["predicted"] == stated["predicted"]


def test_a_part_that_no_layer_has_is_the_reason(tmp_path: pathlib.Path) -> None:
    found = memory(tmp_path, model="falcon-7b", method="kind: lora, lora_rank: 8, lora_targets_canonical: gate")
    assert "falcon-7b has no linear layer 'gate'" in found["why"]


@pytest.mark.parametrize(
    ("chip", "model", "verdict"),
    [("24 GB", "llama3.2-1b", "fits"), ("24GB", "llama3.2-1b", "fits"), ("8GB", "llama3-8b", "does not fit")],
)
def test_a_size_alone_gives_a_verdict(tmp_path: pathlib.Path, chip: str, model: str, verdict: str) -> None:
    assert memory(tmp_path, chip=chip, model=model, measured="oom: false")["verdict"] == verdict


def test_an_accelerator_of_a_size_may_hold_less(tmp_path: pathlib.Path) -> None:
    """22.03 of an A10G's 24 GiB: what needs 94 % of a size is not called a fit, as it is with that much room."""
    layout = USUAL["layout"].replace("full", "none") + ", seq_max: 1"
    needed = memory(tmp_path, layout=layout, measured="oom: false")["high"] / 2**30
    card = f"oom: false, card_gib_at_most: {needed / 0.94}"
    assert memory(tmp_path, layout=layout, measured=card)["verdict"] == "fits"
    size = next(size for size in range(4, 200) if 0.918 * size < needed < size)
    found = memory(tmp_path, layout=layout, chip=f"{size} GB", measured="oom: false")
    assert found["verdict"] == "too close to call"


QLORA = "kind: lora, lora_rank: 16, lora_targets_canonical: 'q,v', quantized: nf4"


@pytest.mark.parametrize(
    ("trainer", "method", "versions", "keeps"),
    [
        ("hf-trainer", QLORA, "transformers 4.57", True),  # a script may not call peft's preparation
        ("hf-trainer", USUAL["method"], "transformers 4.57", False),  # and checkpoints nothing then
        ("trl", USUAL["method"], "transformers 4.57", True),  # TRL before 0.22
        ("trl", USUAL["method"], "trl 0.24, transformers 4.57", False),
        ("llama-factory", QLORA, "transformers 4.57", False),
    ],
)
def test_whether_a_run_that_says_nothing_checkpoints(
    tmp_path: pathlib.Path, trainer: str, method: str, versions: str, keeps: bool
) -> None:
    layout = f"precision: bf16, trainer: {trainer}, attention: flash, versions: '{versions}'"
    open_ = memory(tmp_path, method=method, layout=layout)
    full, none = (memory(tmp_path, method=method, layout=f"{layout}, recompute: {one}") for one in ("full", "none"))
    usual = TRAINERS[trainer].recomputes(versions, "nf4" in method, "none")
    assert open_["predicted"] == (full if usual else none)["predicted"]
    assert open_["high"] == (none if keeps or not usual else full)["high"]
    assert full["high"] < none["high"]


def test_a_run_that_states_no_version_may_have_copied_its_logits(tmp_path: pathlib.Path) -> None:
    """transformers before 4.49: fp32 logits of all but the last token, next to the others."""
    layout = "recompute: full, precision: bf16-pure, trainer: none, attention: flash"
    open_ = memory(tmp_path, layout=layout)
    old, new = (memory(tmp_path, layout=f"{layout}, versions: transformers {one}") for one in ("4.48.0", "4.49.0"))
    assert open_["predicted"] == new["predicted"]
    assert (open_["low"], open_["high"]) == (min(old["low"], new["low"]), max(old["high"], new["high"]))
    assert old["high"] != new["high"]


def test_experts_of_a_run_that_states_no_version_may_be_quantized_linear_layers(tmp_path: pathlib.Path) -> None:
    """transformers 4 has them in a list of modules, transformers 5 in one tensor, which stays in 16 bits."""
    layout = "recompute: full, precision: bf16, trainer: trl, attention: flash"
    row = {"model": "mixtral-8x7b", "method": QLORA}
    open_ = memory(tmp_path, **row, layout=layout)
    old, new = (
        memory(tmp_path, **row, layout=f"{layout}, versions: 'trl 0.24, transformers {one}'") for one in ("4.57", "5.1")
    )
    assert open_["predicted"] == new["predicted"] > 2 * old["predicted"]
    assert open_["low"] == old["low"]
    assert open_["high"] >= new["high"]
