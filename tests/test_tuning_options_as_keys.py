"""Keys of a row of measured fine-tuning that are napkin's options by name: what `memory` answers with the option."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.conftest import run_line

ROW = """schema: finetune/1
rows:
- {{id: a, source: {{title: hand-made}}, task: sft, model: {{preset: {model}}},
   hardware: {{chip: A100 SXM 80GB, count: {count}}},
   method: {{{method}}},
   layout: {{micro_batch: 1, seq: 512, recompute: full, precision: bf16-pure, {layout}}},
   measured: {{peak_bytes: 3.0e+9, what: allocated, tokens_per_second_per_gpu: 100}}}}
"""


def answers(tmp_path: pathlib.Path, **row: Any) -> dict[str, dict[str, Any]]:
    usual = {"model": "llama3.2-1b", "count": 1, "method": "kind: full", "layout": "grad_accum: 1"}
    (tmp_path / "rows.yaml").write_text(ROW.format(**{**usual, **row}))
    found = run_line(f"validate {tmp_path / 'rows.yaml'} --json")
    assert found.status == 0, found.err
    return {one["quantity"]: one for one in found.data["rows"]}


def allocated(tmp_path: pathlib.Path, **row: Any) -> Any:
    return answers(tmp_path, **row)["memory_allocated"]["predicted"]


def test_the_decoder_s_tokens_of_an_encoder_decoder(tmp_path: pathlib.Path) -> None:
    short, long = (
        allocated(tmp_path, model="flan-t5-large", layout=f"grad_accum: 1, target_seq: {n}") for n in (64, 512)
    )
    same = allocated(tmp_path, model="flan-t5-large")
    line = "memory flan-t5-large --seq 512 --target-seq 64 --recompute full --precision bf16-pure --hardware a100"
    assert short == pytest.approx(run_line(f"{line} --json").values["memory/allocated"], rel=0.01)
    assert short < long == same


def test_first_layers_that_are_not_trained(tmp_path: pathlib.Path) -> None:
    found = allocated(tmp_path, method="kind: full, freeze_layers: 12")
    line = "memory llama3.2-1b --seq 512 --freeze-layers 12 --recompute full --precision bf16-pure --hardware a100"
    assert found == pytest.approx(run_line(f"{line} --json").values["memory/allocated"], rel=0.05)
    beyond = answers(tmp_path, method="kind: full, freeze_layers: 17")
    assert "freezes 17 layers" in beyond["memory_allocated"]["why"]  # it has 16
    assert "freezes vision" in answers(tmp_path, method="kind: full, freeze: vision")["memory_allocated"]["why"]


def test_the_version_of_fsdp(tmp_path: pathlib.Path) -> None:
    layout = "grad_accum: 1, stack: fsdp, zero: 3, trainer: trl, "
    names = ("fsdp_version: 2", "framework: FSDP2", "fsdp_version: 1", "framework: FSDP")
    found = [allocated(tmp_path, model="llama2-7b", count=4, layout=layout + name) for name in names]
    assert found[0] == found[1] != found[2] == found[3]
    third = answers(tmp_path, count=4, layout=layout + "fsdp_version: 3")["memory_allocated"]
    other = layout.replace("fsdp", "deepspeed") + "fsdp_version: 2"
    beside = answers(tmp_path, count=4, layout=other)["memory_allocated"]
    assert "version 3 of FSDP" in third["why"]
    assert "version 2 of FSDP" in beside["why"]


def test_the_schedule_of_a_pipeline(tmp_path: pathlib.Path) -> None:
    layout = "global_batch: 16, pp: 4, stack: megatron-core, schedule: "
    found = [allocated(tmp_path, count=4, layout=f"{layout}{name}") for name in ("gpipe", "1f1b")]
    assert found[0] > found[1]
    unknown = answers(tmp_path, count=4, layout=f"{layout}dualpipe")
    assert "the pipeline's schedule dualpipe is not modeled" in unknown["memory_allocated"]["why"]


def test_layers_that_one_process_spreads_over_its_gpus(tmp_path: pathlib.Path) -> None:
    """One micro-batch at a time, a stage on each GPU; how many processes share them is open unless the row says dp."""
    layout = "grad_accum: 8, device_map: auto"
    open_ = answers(tmp_path, count=4, layout=layout)
    two, one = (answers(tmp_path, count=4, layout=f"{layout}, dp: {dp}")["memory_allocated"] for dp in (2, 1))
    assert open_["memory_allocated"]["predicted"] == one["predicted"] < two["predicted"]
    assert open_["memory_allocated"]["high"] > one["high"]
    assert "one after the other" in open_["tokens_per_second_per_gpu"]["why"]
    divided = answers(tmp_path, count=4, layout=f"{layout}, pp: 2")["memory_allocated"]
    assert "with which pp is not understood" in divided["why"]
    alone = answers(tmp_path, count=1, layout=layout)["memory_allocated"]
    assert alone["predicted"] == allocated(tmp_path, layout="grad_accum: 8")


def test_a_device_map_is_a_way_to_spread_layers_or_a_gpu(tmp_path: pathlib.Path) -> None:
    """One that names a GPU spreads nothing; a row does not spread layers and shard them too."""
    plain = allocated(tmp_path, count=4, layout="stack: fsdp, zero: 3")
    one = "\"{'': local_rank}\""
    assert plain == allocated(tmp_path, count=4, layout=f"stack: fsdp, zero: 3, device_map: {one}")
    for more, why in (("auto, zero: 3", "with which zero"), ("by hand", "device_map by hand is not understood")):
        found = answers(tmp_path, count=4, layout=f"grad_accum: 8, device_map: {more}")["memory_allocated"]
        assert why in found["why"]
