"""The lecture's small commands, asked as a person would: numbers, paths, exit statuses, bad input."""

from __future__ import annotations

import math
from typing import Any

import pytest

from napkin.formats import FORMATS
from tests.conftest import Napkin

PATHS = ("bits", "bytes", "max", "min_normal", "min_subnormal", "epsilon")


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for path, value in expected.items():
        assert found[path] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tensor 4x8", {"elements": 32, "memory/total": 128, "view/bytes": 128, "storage/bytes": 128, "contiguous": 1}),
        ("tensor 49152x12288 --dtype fp32", {"memory/total": 2_415_919_104}),
        ("tensor 32x32 --count 2", {"memory/total": 8192, "elements": 1024}),
        ("tensor 4x4 --index 1,2", {"offset": 6, "stride/0": 4, "stride/1": 1}),
        ("tensor 4x4 --transpose", {"stride/0": 1, "stride/1": 4, "contiguous": 0, "memory/total": 64}),
        ("tensor 4x8 --transpose --contiguous", {"memory/total": 256, "contiguous": 1, "stride/0": 4, "shape/0": 8}),
        ("tensor 4x8 --slice 1:3,2:6", {"offset": 10, "view/bytes": 32, "storage/bytes": 128, "contiguous": 0}),
        ("tensor 4x8 --slice 1 --index 2", {"offset": 10, "view/offset": 8, "shape/0": 8}),
        ("tensor 2x3x4 --permute 2,0,1", {"shape/0": 4, "stride/0": 1, "stride/2": 4}),
        ("tensor 4x8 --view 2x16", {"shape/1": 16, "memory/total": 128}),
        ("tensor 1024x1024 --dtype nvfp4", {"memory/total": 1024 * 512 + 1024 * 64 + 4}),
        ("tensor 8x2048 --dtype int64", {"memory/total": 131_072}),
        ("flops matmul 16384x32768x8192", {"flops/total": 8_796_093_022_208, "m": 16384, "k": 32768, "n": 8192}),
        ("flops matmul 16x32x2 --batch 6", {"flops/total": 6 * 2048}),
        ("flops linear --widths 4,4,1 --batch 2", {"flops/forward": 80, "flops/backward": 160, "flops/total": 240}),
        (
            "flops linear --widths 32768,32768,8192 --batch 16384",
            {
                "flops/forward": 43_980_465_111_040,
                "flops/backward": 87_960_930_222_080,
                "flops/backward/of_data": 52_776_558_133_248,
                "flops/6nd": 131_941_395_333_120,
                "flops/total": 131_941_395_333_120,
            },
        ),
        (
            "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
            {
                "memory/total": 496,
                "memory/parameters": 144,
                "memory/gradients": 144,
                "memory/optimizer": 144,
                "memory/activations": 64,
                "memory/step_counters": 12,
                "memory/saved_input": 32,
            },
        ),
        ("memory linear --width 8 --depth 4 --batch 3 --optimizer adagrad --precision fp32", {"memory/total": 3552}),
        ("memory linear --width 32 --depth 2 --batch 64 --optimizer adam --precision fp32", {"memory/total": 49_664}),
        ("memory linear --widths 4,4,4,1 --batch 2", {"memory/total": 36 * 16 + 32, "memory/master": 144}),
        ("max-params --gpus 8 --hardware h100", {"params/max": 40 * 10**9, "bytes_per_param": 16}),
        ("max-params --hardware h100", {"params/max": 5 * 10**9, "bytes_per_param": 16}),
        ("max-params --gpus 8 --hardware h100 --precision fp32", {"params/max": 40 * 10**9}),
        ("max-params --gpus 8 --hardware h100 --precision bf16-fp32state", {"bytes_per_param": 12}),
        ("max-params --gpus 8 --hardware h100 --bytes-per-param 12", {"params/max": 53_333_333_333}),
        ("max-params --gpus 8 --hardware h100 --optimizer sgd", {"bytes_per_param": 8}),
        ("max-params --gpus 8 --hardware h100 --optimizer adamw-8bit", {"bytes_per_param": 8 + 2.03125}),
        ("max-params --gpus 1 --hardware h100 --inference --dtype nvfp4", {"params/max": 142_222_222_222}),
        ("max-params --gpus 1 --hardware h100 --inference --dtype nf4", {"params/max": 142_222_222_222}),
        ("max-params --gpus 1 --hardware h100 --inference --dtype int4", {"params/max": int(80e9 / (0.5 + 2.5 / 128))}),
        ("optimizer adamw --shape 96x64 --param-dtype bf16", {"optimizer/state_bytes": 4 * 6144 + 4}),
        ("optimizer adafactor --shape 4x6x10 --param-dtype bf16", {"optimizer/state_bytes": 132}),
        ("optimizer adamw-8bit --shape 96x64", {"optimizer/state_bytes": 2 * 6240 + 2048}),
        ("optimizer adamw-fused --shape 64", {"optimizer/counters/device": 4, "optimizer/bytes_per_param": 8}),
        ("optimizer adamw --params 7B --param-dtype bf16", {"optimizer/state_bytes": 28 * 10**9}),
        ("data --tokens 15T --vocab 128256", {"data/bytes": 60 * 10**12}),
        ("data --tokens 1.4T --vocab 32000", {"data/bytes": 2_800_000_000_000}),
        ("data --tokens 10 --vocab 65536", {"data/bytes": 20}),
        ("data --tokens 10 --vocab 65537", {"data/bytes": 40}),
        ("checkpoint --params 70B", {"checkpoint/bytes": 980 * 10**9}),
        ("checkpoint llama3-8b", {"checkpoint/bytes": 14 * 8_030_261_248}),
        ("checkpoint gpt2 --precision fp32", {"checkpoint/bytes": 12 * 124_439_808}),
        (
            "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
            {"checkpoint/write_time": 98, "checkpoint/interval": math.sqrt(2 * 98 * 86400)},
        ),
        ("checkpoint --params 1B --precision fp32 --write-bandwidth 1GB/s --gpu-mtbf 240h --gpus 10", {"mtbf": 86400}),
        ("init --fan-in 4096 --depth 32", {"init/std": 1 / 64, "init/output_std": 1, "init/unscaled/output_std": 64}),
        ("init --fan-in 100 --std 0.2 --depth 3", {"init/output_std": 2.0, "init/output_std/after_depth": 8.0}),
        ("roofline relu 1048576 --dtype bf16 --hardware h100", {"intensity": 0.25}),
        ("roofline transfer 63.015385GB --link pcie5", {"time/link": 1.0}),
        ("roofline transfer 80GB --link 8GB/s --hardware h100", {"time/link": 10, "time/memory": 80 / 3350}),
        ("mfu matmul 16384x32768x8192 --time 0.16s --dtype fp32 --hardware h100", {"mfu": 2**43 / 0.16 / 66.9e12}),
    ],
)  # fmt: skip
def test_numbers(napkin: Napkin, line: str, expected: dict[str, float]) -> None:
    outcome = napkin(f"{line} --json")
    assert outcome.status == 0, outcome.err
    check(outcome.values, expected)


def test_every_format_has_every_figure(napkin: Napkin) -> None:
    values = napkin("dtype 1e-8 --json").values
    assert {f"dtype/{name}/{path}" for name in FORMATS for path in PATHS} <= set(values)
    assert values["dtype/fp16/value"] == 0
    assert values["dtype/bf16/value"] == 1.0011717677116394e-08
    assert values["dtype/nvfp4/bytes"] == 0.5625


def test_how_many_formats_hold_a_value_is_counted(napkin: Napkin) -> None:
    """4,097 is above the largest numbers of fp8_e4m3 (448), fp4 (6) and int8 (127) alone."""
    values = napkin("dtype 4097 --json").values
    assert (values["dtype/representable"], values["dtype/lost"]) == (len(FORMATS) - 3, 3)


@pytest.mark.parametrize("value", ["65520", "0.1", "-3.4e38", "1e-300", "123456789.123", "1e400"])
def test_a_value_in_every_format_fits_the_screen(napkin: Napkin, value: str) -> None:
    assert max(map(len, napkin(f"dtype {value}").out.splitlines()), default=0) <= 80


def test_a_value_that_overflows_is_left_out_and_named(napkin: Napkin) -> None:
    outcome = napkin("dtype 1e6 --json")
    assert "dtype/fp16/value" not in outcome.values
    assert any("overflows to infinity in fp16" in note for note in outcome.data["notes"])
    assert any("overflows to the largest number in fp8_e4m3" in note for note in outcome.data["notes"])
    assert napkin("dtype --dtype fp16 -1e6").status == 0


@pytest.mark.parametrize(
    ("line", "verdict", "status"),
    [
        ("roofline matmul 4096x4096x4096 --hardware h100", "compute", 0),
        ("roofline matvec 4096x4096 --hardware h100", "memory", 0),
        ("mfu matmul 16384x32768x8192 --time 0.03s --dtype bf16 --hardware h100", "fair", 0),
        ("mfu matmul 16384x32768x8192 --time 0.3s --dtype bf16 --hardware h100", "bad", 0),
        ("mfu matmul 16384x32768x8192 --time 10ms --dtype bf16 --hardware h100", "good", 0),
        ("mfu matmul 16384x32768x8192 --time 1ms --dtype bf16 --hardware h100", "impossible", 1),
    ],
)
def test_verdicts(napkin: Napkin, line: str, verdict: str, status: int) -> None:
    outcome = napkin(f"{line} --json")
    assert (outcome.data["verdict"], outcome.status) == (verdict, status)


@pytest.mark.parametrize(
    ("line", "status", "word"),
    [
        ("tensor", 2, "SHAPE"),
        ("tensor 4y8", 2, "4y8"),
        ("tensor 4x0", 2, "above zero"),
        ("tensor 4x8 --dtype fp33", 2, "fp33"),
        ("tensor 4x8 --index 4,0", 2, "out of range"),
        ("tensor 4x8 --index 1", 2, "2 dimensions"),
        ("tensor 4x8 --index a,b", 2, "whole numbers"),
        ("tensor 4x8 --slice 1:2:3:4", 2, "start:stop:step"),
        ("tensor 4x8 --slice ::-1", 2, "step"),
        ("tensor 4x8 --view 3x3", 2, "elements"),
        ("tensor 4x8 --transpose --view 32", 2, "strides"),
        ("tensor 4x8 --permute 1,1", 2, "order"),
        ("tensor 4x8 --permute 1,0 --transpose", 2, "cannot be combined"),
        ("tensor 8 --transpose", 2, "dimension"),
        ("tensor 4x8 --dtype nvfp4 --transpose", 2, "packs"),
        ("dtype 1e400", 2, "out of range"),
        ("dtype nan", 2, "nan"),
        ("dtype 0x10", 2, "hexadecimal"),
        ("dtype 1,5", 2, "number"),
        ("dtype 1 --dtype fp7", 2, "fp7"),
        ("optimizer adamq", 2, "adamq"),
        ("optimizer muon --shape 64", 2, "matrices"),
        ("optimizer muon --shape 4x4x4", 2, "matrices"),
        ("optimizer adafactor --params 7B", 3, "shapes"),
        ("optimizer adamw-fused --optimizer-form foreach --shape 4", 2, "contradiction"),
        ("optimizer adamw --shape 0x4", 2, "above zero"),
        ("max-params --gpus 8", 2, "--hardware"),
        ("max-params --gpus 8 --hardware h100 --bytes-per-param 12 --precision fp32", 2, "contradiction"),
        ("max-params --gpus 8 --hardware h100 --bytes-per-param 0", 2, "above zero"),
        ("max-params --gpus 8 --hardware h100 --optimizer adafactor", 3, "shapes"),
        ("max-params --gpus 8 --hardware h100 --precision bf17-mixed", 2, "bf17"),
        ("max-params --gpus 8 --hardware h100 --inference --optimizer adamw", 2, "training"),
        ("max-params --gpus 8 --hardware h101", 2, "h101"),
        ("flops matmul", 2, "SHAPE"),
        ("flops matmul 4x4", 2, "three"),
        ("flops matmul 4x4x4 --seq 5", 2, "--seq"),
        ("flops linear", 2, "--widths"),
        ("flops linear --widths 4", 2, "no layer"),
        ("flops linear --widths 4,4 --depth 3", 2, "excludes"),
        ("flops linear 4x4", 2, "shape"),
        ("memory linear --width 4 --depth 2", 2, "--batch"),
        ("memory linear --width 4 --depth 2 --batch 2 --optimizer nope", 2, "nope"),
        ("mfu matmul 4x4x4 --hardware h100", 2, "--time"),
        ("mfu matmul 4x4x4 --hardware h100 --time 3", 2, "unit of time"),
        ("mfu matmul 4x4x4 --hardware v100 --dtype bf16 --time 3s", 3, "bf16"),
        ("roofline", 2, "MODEL"),
        ("roofline relu --hardware h100", 2, "SHAPE"),
        ("roofline dot 4x4 --hardware h100", 2, "not 1"),
        ("roofline matmul 4x4x4", 2, "--hardware"),
        ("roofline matmul 4x4x4 --hardware h100 --dtype zz", 2, "zz"),
        ("roofline matmul 4x4x4 --hardware v100 --dtype bf16", 3, "bf16"),
        ("roofline llama3-8b 4x4 --hardware h100", 2, "llama3-8b"),
        ("roofline llama3-9b --hardware h100", 2, "llama3-9b"),
        ("roofline llama3-8b --hardware h100 --link pcie5", 2, "--link"),
        ("roofline relu 10 --hardware h100 --seq 5", 2, "--seq"),
        ("roofline transfer 80G --link pcie5", 2, "ambiguous"),
        ("roofline transfer 80GB", 2, "--link"),
        ("roofline transfer 80GB --link pcie9", 2, "pcie9"),
        ("roofline transfer 80GB --link 64Gb/s", 2, "bits or bytes"),
        ("checkpoint", 2, "--params"),
        ("checkpoint llama3-8b --params 8B", 2, "cannot be combined"),
        ("checkpoint --params 70B --mtbf 24h", 2, "--write-bandwidth"),
        ("checkpoint --params 70B --write-bandwidth 1GB/s --gpu-mtbf 24h", 2, "--gpus"),
        ("checkpoint --params 70B --write-bandwidth 1GB/s --gpu-mtbf 24h --mtbf 3h", 2, "cannot be combined"),
        ("data --tokens 15T", 2, "--vocab"),
        ("data --tokens 15T --vocab 5000000000", 2, "32 bits"),
        ("init", 2, "--fan-in"),
        ("init --fan-in 0", 2, "above zero"),
        ("init --fan-in 16 --cut 0", 2, "above zero"),
    ],
)
def test_bad_input_is_one_clear_line(napkin: Napkin, line: str, status: int, word: str) -> None:
    outcome = napkin(line)
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    assert len(outcome.errors) == 1
    assert word in outcome.errors[0] + "".join(outcome.hints)
    assert len(outcome.hints) <= 1, outcome.err


def test_a_cut_leaves_what_sampling_leaves(napkin: Napkin) -> None:
    # scipy.stats.truncnorm.std(-c, c): 0.98658 at 3, 0.53956 at 1; a uniform distribution's c/√3 where c is small
    for cut, left in (("3", 0.986578), ("1", 0.539560), ("0.05", 0.05 / 3**0.5), ("1e-300", 1e-300 / 3**0.5)):
        found = napkin(f"init --fan-in 64 --cut {cut} --json").values
        assert found["init/truncated/output_std"] == pytest.approx(left, rel=1e-3)


def test_an_absurd_init_is_left_out_not_infinite(napkin: Napkin) -> None:
    outcome = napkin("init --fan-in 1e12 --depth 1000 --json")
    assert outcome.status == 0
    assert "init/unscaled/output_std/after_depth" not in outcome.values
    assert any("out of range" in note for note in outcome.data["notes"])


def test_a_compute_bound_batch_is_named_or_reported_missing(napkin: Napkin) -> None:
    assert napkin("roofline matmul 1x8192x8192 --hardware h100 --json").values["batch/compute_bound"] == 319
    outcome = napkin("roofline matmul 1x64x64 --hardware h100 --json")
    assert "batch/compute_bound" not in outcome.values
    assert any("no number of rows" in note for note in outcome.data["notes"])
