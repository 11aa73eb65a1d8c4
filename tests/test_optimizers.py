"""Optimizer states against real torch.optim objects after one step, and against the sources of the others."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.elementwise import Number
from napkin.errors import NapkinError, Refused
from napkin.inputs.launch import names
from napkin.options.optimizer_spellings import SPELLINGS
from napkin.term import leaf
from napkin.training import optimizer_names, optimizer_states
from napkin.training.optimizer import counters_on_device
from napkin.training.optimizer_names import find
from napkin.training.optimizer_states import state_bytes
from napkin.training.optimizers import OPTIMIZERS
from tests.conftest import run_line

CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "sgd-nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}),
    "rmsprop-centered": ("RMSprop", {"centered": True}),
    "rmsprop-momentum-centered": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "adam": ("Adam", {}),
    "adam-amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamw-amsgrad": ("AdamW", {"amsgrad": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adadelta": ("Adadelta", {}),
    "rprop": ("Rprop", {}),
    "asgd": ("ASGD", {}),
    "adafactor": ("Adafactor", {}),
    "muon": ("Muon", {}),
}
SHAPES = ((96, 64), (256, 8), (64,), (4, 6, 10), (1, 1))


def kept(name: str, shape: tuple[int, ...], width: int) -> dict[str, Number]:
    optimizer = OPTIMIZERS[name]
    return {s.name: optimizer_states.state_bytes(s, shape, width) for s in optimizer.kept(shape)}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_states_are_those_of_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    cls, arguments = CLASSES[name]
    if not hasattr(torch.optim, cls):
        pytest.skip(f"this torch has no {cls}")
    for shape in SHAPES:
        parameter = torch.nn.Parameter(torch.ones(shape, dtype=getattr(torch, dtype)))
        parameter.grad = torch.ones_like(parameter)
        if OPTIMIZERS[name].only_matrices and len(shape) != 2:
            with pytest.raises(NapkinError):
                OPTIMIZERS[name].kept(shape)
            continue
        optimizer = getattr(torch.optim, cls)([parameter], lr=0.1, **arguments)
        optimizer.step()
        real = {k: v.numel() * v.element_size() for k, v in optimizer.state[parameter].items() if v is not None}
        assert kept(name, shape, parameter.element_size()) == real


def test_fused_keeps_its_counter_on_the_device() -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    parameter.grad = torch.ones_like(parameter)
    fused = torch.optim.AdamW([parameter], fused=True)
    fused.step()
    assert fused.state[parameter]["step"].element_size() == optimizer_states.COUNTER_BYTES
    assert counters_on_device("fused")
    assert not counters_on_device("foreach")
    assert not counters_on_device(None)


def test_eight_bit_states() -> None:
    # bitsandbytes: a byte an element and an fp32 scale for 256; fp32 below 4096 elements
    assert kept("adamw-8bit", (96, 64), 2) == {"state1": 6144 + 4 * 24, "state2": 6144 + 4 * 24}
    assert kept("adamw-8bit", (4095,), 2) == {"state1": 4 * 4095, "state2": 4 * 4095}
    assert kept("adamw-4bit", (96, 64), 2) == {
        "step": 4,
        **dict.fromkeys(("exp_avg", "exp_avg_sq"), 3072 + 4 * 48 + 64),  # torchao: blocks of 128, a book of 16 codes
    }
    assert kept("adamw-4bit", (4095,), 2)["exp_avg"] == 2 * 4095
    assert kept("lion-8bit", (4097,), 4) == {"state1": 4097 + 4 * 17}


def test_factored_states() -> None:
    assert kept("came", (96, 64), 2) == {
        "exp_avg": 4 * 96 * 64,
        "exp_avg_sq_row": 4 * 96, "exp_avg_res_row": 4 * 96, "exp_avg_sq_col": 4 * 64, "exp_avg_res_col": 4 * 64,
    }  # fmt: skip
    assert kept("came", (64,), 2) == {"exp_avg": 256, "exp_avg_sq": 256}
    with pytest.raises(Refused):
        optimizer_states.per_param(OPTIMIZERS["adafactor"], leaf("w", 4, "byte/param"))


@pytest.mark.parametrize(
    ("name", "bytes_each"),
    [("sgd", 0), ("adagrad", 4), ("adamw", 8), ("adam-amsgrad", 12), ("muon", 4), ("lion", 4), ("adamw-8bit", 2.03125)],
)
def test_bytes_for_each_parameter(name: str, bytes_each: float) -> None:
    assert optimizer_states.per_param(OPTIMIZERS[name], leaf("w", 4, "byte/param")).value == bytes_each


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("name", [name for name, one in OPTIMIZERS.items() if not one.factored])
def test_bytes_for_each_parameter_are_those_of_a_large_tensor(name: str, width: int) -> None:
    optimizer = OPTIMIZERS[name]
    whole = optimizer_states.of_tensor(optimizer, (4096, 4096), leaf("w", width, "byte"), "fused").each.value
    assert optimizer_states.per_param(optimizer, leaf("w", width, "byte/param")).value == pytest.approx(
        whole, rel=1e-5
    )  # the code book of 4 bits


@pytest.mark.parametrize(
    ("question", "path", "value"),
    [
        # bitsandbytes keeps 32-bit states in fp32 for 16-bit parameters too (optimizer.py, init_state): 2 × 4 bytes
        ("optimizer paged-adamw --param-dtype bf16", "optimizer/bytes_per_param", 8),
        ("optimizer lion-32bit --param-dtype bf16", "optimizer/bytes_per_param", 4),
        # 2 of weights, 2 of gradients, 8 of states
        ("max-params --gpus 8 --hardware h100 --precision bf16-pure --optimizer paged-adamw", "bytes_per_param", 12),
        # 8,030,261,248 × (2 + 8)
        ("checkpoint llama3-8b --precision bf16-pure --optimizer paged-adamw", "checkpoint/bytes", 80_302_612_480),
    ],
)
def test_states_of_32_bits_for_16_bit_parameters(question: str, path: str, value: float) -> None:
    assert run_line(f"{question} --json").values[path] == value


def test_a_name_carries_its_form() -> None:
    assert optimizer_names.find("AdamW_fused") == (OPTIMIZERS["adamw"], "fused")
    assert optimizer_names.find("adamw", form="foreach") == (OPTIMIZERS["adamw"], "foreach")
    assert optimizer_names.find("adamw8bit") == (OPTIMIZERS["adamw-8bit"], None)
    for text, form in (("adamw-fused", "foreach"), ("adamax-fused", None), ("adafactor", "fused"), ("adamq", None)):
        with pytest.raises(NapkinError) as problem:
            optimizer_names.find(text, form=form)
        assert problem.value.status == 2
        assert problem.value.hint


@pytest.mark.parametrize(
    ("words", "name", "in_backward"),
    [
        ("adamw", "adamw", False),
        ("adamw_torch_fused", "adamw-fused", False),
        ("adamw-8bit (torchao)", "adamw-8bit", False),
        ("AdamW 8bit", "adamw-8bit", False),
        ("bnb adamw 8bit", "adamw-8bit", False),
        ("torchao AdamW4bit", "adamw4bit", False),
        ("bitsandbytes.optim.PagedAdamW8bit", "pagedadamw8bit", False),
        ("PagedAdamW, optimizer in backward", "pagedadamw", True),
        ("AdamW (in_bwd)", "adamw", True),
        ("rowclip", "rowclip", False),
        ("AdamW rowclip", "adamw-rowclip", False),
        ("AdamW optimizer in backward", "adamw", True),
        ("AdamW with 8-bit states", "adamw-8bit", False),
        ("AdamW 8-bit", "adamw-8bit", False),
        ("AdamW (8bit)", "adamw-8bit", False),
        ("Adam (8-bit, bitsandbytes)", "adam-8bit", False),
        ("bnb 8-bit paged AdamW", "paged-adamw-8bit", False),
        ("adamw_bnb_8bit", "adamw-8bit", False),
        ("galore_adamw_8bit", "galore-adamw-8bit", False),
        ("galore_adamw8bit_per_layer:1024", "galore-adamw8bit:1024", True),
        ("apollo-adamw:256", "apollo-adamw:256", False),
        ("torch fused AdamW", "adamw-fused", False),
        ("lamb 8-bit", "lamb-8bit", False),
    ],
)
def test_a_sources_words_for_an_optimizer_are_read(words: str, name: str, in_backward: bool) -> None:
    assert optimizer_names.in_words(words) == (name, in_backward)


@pytest.mark.parametrize("spelled", ["galore-adamw8bit:64", "galore_adamw_8bit:64", "GaLore-AdamW8bit:64"])
def test_the_names_of_galores_own_scripts_are_its_optimizer(spelled: str) -> None:
    """scripts/single_gpu/llama_7b.sh of jiaweizzhao/GaLore."""
    named, own, usual = (
        run_line(f"memory gpt2 --optimizer {name} --json").values["memory/optimizer"]
        for name in (spelled, "galore-adamw-8bit:64", "galore-adamw-8bit")
    )
    assert named == own < usual


def test_a_class_of_bitsandbytes_is_its_optimizer() -> None:
    assert find("pagedadamw")[0] is OPTIMIZERS["paged-adamw"]
    assert find("pagedadamw8bit")[0] is OPTIMIZERS["paged-adamw-8bit"]


def test_paged_states_are_outside_what_the_allocator_counts() -> None:
    """A master copy stays; 8-bit states of llama3-8b's large tensors stand in managed memory."""
    from .conftest import run_line

    values, eight = (
        run_line(f"memory llama3-8b --seq 128 --optimizer {name} --json").values
        for name in ("paged_adamw_8bit", "adamw-8bit")
    )
    params = values["memory/parameters"] // 2
    assert values["memory/optimizer"] == 4 * params
    assert values["memory/host/optimizer"] == eight["memory/optimizer"] - 4 * params


@pytest.mark.parametrize(("name", "each"), [("lamb", 8), ("sophia", 8), ("adan", 16), ("paged-adamw", 8)])
def test_optimizers_against_torch(name: str, each: int) -> None:
    assert optimizer_states.per_param(OPTIMIZERS[name], leaf("w", 4, "byte/param")).value == each


@pytest.mark.parametrize(
    ("name", "shape", "width", "total"),
    [
        # measured on torch 2.13: tensors of optimizer.state after three steps
        ("galore-adamw:16", (96, 256), 4, 16_384 + 16_384 + 6_144),
        ("galore-adamw:16", (256, 96), 2, 8_192 + 8_192 + 3_072),
        ("apollo-adamw:16", (96, 256), 4, 16_384 + 16_384 + 6_144 + 4),
        ("apollo-mini", (256, 96), 2, 512 + 512 + 192 + 2),
        ("adam-mini", (256, 256), 4, 262_144 + 1_024),
        ("adam-mini", (256,), 2, 512 + 2),
        ("soap", (96, 256), 4, 2 * 98_304 + 2 * 299_008),
        ("soap", (96, 256), 2, 2 * 49_152 + 2 * 149_504),
        ("soap", (256,), 4, 2 * 1_024),
        # by hand: a side above 10,000 has no Gram matrix in SOAP, and is cut into 8,192 + 1,808 in Shampoo
        ("soap", (20_000, 64), 4, 8 * 20_000 * 64 + 8 * 64 * 64),
        ("shampoo", (10_000, 64), 4, 8 * 640_000 + 8 * (8_192**2 + 1_808**2 + 2 * 64**2)),
        # int4: half a byte each, scale and zero of the parameter's format for each 256
        ("q-galore-adamw-8bit:16", (96, 256), 2, 2 * (4_096 + 4 * 16) + 768 + 2 * 2 * 6),
    ],
)
def test_states_of_optimizers_of_matrices(name: str, shape: tuple[int, ...], width: int, total: int) -> None:
    optimizer, _ = find(name)
    assert sum(state_bytes(state, shape, width) for state in optimizer.kept(shape)) == total


def test_a_rank_belongs_to_a_projection() -> None:
    for bad in ("galore-adamw:0", "galore-adamw:x", "adamw:8", "galore-adamw:٣"):
        with pytest.raises(NapkinError):
            find(bad)
    assert find("galore")[0].name == "galore-adamw"


@pytest.mark.parametrize(
    ("name", "flops", "cubes"),
    [
        # a 64 × 256 matrix by hand, FLOPs of products and cubes of decompositions a step
        ("muon", 5 * 2 * (2 * 64 * 64 * 256 + 64**3), 0.0),
        ("shampoo", 2 * 2 * (64 * 64 * 256 + 64 * 256 * 256), (64**3 + 256**3) / 10),
        ("soap", 4 * 2 * (64 * 64 * 256 + 64 * 256 * 256), (64**3 + 256**3) / 10),
        ("galore-adamw:16", 2 * 2 * 64 * 256 * 16, 64 * 64 * 256 / 200),
        ("apollo-adamw:16", 2 * 64 * 256 * 16, 0.0),
    ],
)
def test_work_of_optimizers_on_a_matrix(name: str, flops: float, cubes: float) -> None:
    works = find(name)[0].works
    assert works is not None
    for shape in ((64, 256), (256, 64)):
        work = works(*shape)
        assert sum(2 * one.times * one.m * one.k * one.n for one in work.products) == flops
        assert sum(each for _, each in work.cubes) == pytest.approx(cubes)


def test_in_backward_only_the_largest_gradient_is_allocated() -> None:
    """Llama 3 8B in bf16: 128,256 · 4,096 numbers of 2 bytes in place of 8,030,261,248."""
    line = "memory llama3-8b --gpus 1 --hardware h100 --precision bf16-pure --recompute full"
    held, waiting = (run_line(f"{line} {more} --json").values for more in ("--optimizer-in-backward", ""))
    assert held["memory/gradients"] == 128_256 * 4_096 * 2
    assert waiting["memory/gradients"] == 8_030_261_248 * 2
    assert held["memory/optimizer"] == waiting["memory/optimizer"]
    assert held["memory/total"] < waiting["memory/total"] - 10e9
    several = run_line(f"{line} --grad-accum 2 --optimizer-in-backward")
    assert several.status == 2
    assert "a step with each micro-batch" in several.errors[0]
    rows = run_line("plan llama3-8b --gpus 8 --hardware h100 --optimizer-in-backward --json").data["rows"]
    assert all(row["global_batch"] == row["micro_batch"] * row["dp"] for row in rows)


@pytest.mark.parametrize("name", ["shampoo", "soap", "galore-adamw", "apollo-mini"])
def test_whole_matrices_are_not_divided(name: str) -> None:
    refused = run_line(f"step llama3-8b --gpus 8 --hardware h100 --tp 2 --optimizer {name}")
    assert refused.status == 2
    assert "whole matrices" in refused.errors[0]
    rows = run_line(f"plan llama3.2-1b --gpus 8 --hardware h100 --optimizer {name} --json").data["rows"]
    assert {row["tp"] for row in rows} == {1}


def test_optimizers_of_matrices_take_the_order_that_was_published() -> None:
    """KellerJordan/modded-nanogpt, records/102924_Optimizers: Adam 138.6 ms a step, Muon 142.0, distributed Shampoo
    257.9 with a root every tenth step, SOAP 301.0, 124M on 8 H100."""
    line = "step gpt2 --hardware h100 --gpus 8 --micro-batch 64 --global-batch 512 --seq 1024 --precision amp-bf16"
    names = ("adamw", "muon --zero 1", "shampoo --zero 1", "soap")
    adam, muon, shampoo, soap = (run_line(f"{line} --optimizer {one} --json").values for one in names)
    assert muon["step/time"] == pytest.approx(adam["step/time"], rel=0.05)
    assert 0.06 < shampoo["step/time"] - adam["step/time"] < 0.2
    assert shampoo["step/time"] < soap["step/time"] < adam["step/time"] + 0.33


def test_other_names_lead_to_optimizers_that_exist() -> None:
    assert set(SPELLINGS.values()) <= set(OPTIMIZERS)
    assert not set(SPELLINGS) & set(OPTIMIZERS)  # a name of one's own has no second meaning
    assert set(names.OPTIMIZERS) <= set(OPTIMIZERS)
    assert not set(names.ADAMW) & set(SPELLINGS)


def test_the_answer_says_which_part_of_an_optimizer_is_not_modeled() -> None:
    """Q-GaLore's paper keeps weights in int8; its optimizer alone does not."""
    assert "q-galore-adamw-8bit with its weights not in int8" in run_line("memory gpt2 --optimizer q-galore").out
    assert "not in int8" not in run_line("memory gpt2 --optimizer galore-adamw-8bit").out


def test_names_of_libraries_and_what_is_not_modeled() -> None:
    """bitsandbytes' RMSprop keeps one fp32 state whatever the weights' type; a name that is known and not modeled says
    why, with status 3."""
    assert find("FusedAdam")[0] is OPTIMIZERS["adamw"]
    assert find("adamw_torch_npu_fused")[0] is OPTIMIZERS["adamw"]
    assert find("rmsprop_bnb")[0] is OPTIMIZERS["rmsprop-32bit"]
    assert kept("rmsprop-32bit", (96, 64), 2) == {"state1": 4 * 96 * 64}
    assert find("lion_32bit")[0] is OPTIMIZERS["lion-32bit"]
    assert kept("lion-32bit", (96, 64), 2) == {"state1": 4 * 96 * 64}
    with pytest.raises(Refused, match="running average of the gradients"):
        find("grokadamw")


def test_ademamix_keeps_two_averages_of_the_gradient_and_one_of_its_square() -> None:
    """bitsandbytes/optim/ademamix.py, init_state: (2, shape) and shape; in 8 bits with a scale for each 256."""
    n = 96 * 64
    three = ("state1_fast", "state1_slow", "state2")
    assert kept("ademamix", (96, 64), 2) == dict.fromkeys(three, 4 * n)
    assert kept("ademamix-8bit", (96, 64), 2) == dict.fromkeys(three, n + 4 * n // 256)
    assert kept("ademamix-8bit", (4095,), 2) == dict.fromkeys(three, 4 * 4095)
    assert find("paged_ademamix_32bit")[0] is OPTIMIZERS["paged-ademamix"]
    assert OPTIMIZERS["paged-ademamix-8bit"].paged


def test_schedule_free_optimizers_keep_z_in_the_type_of_the_weights() -> None:
    """schedulefree/adamw_schedulefree.py: z is a clone of the parameter, exp_avg_sq zeros like it; SGD's has z alone. A
    foreach step makes the roots of all second moments at once, a loop those of one tensor next to the last one's."""
    assert kept("schedule-free-adamw", (96, 64), 2) == {"z": 2 * 96 * 64, "exp_avg_sq": 2 * 96 * 64}
    assert kept("schedule-free-sgd", (96, 64), 4) == {"z": 4 * 96 * 64}
    assert find("AdamWScheduleFree")[0] is OPTIMIZERS["schedule-free-adamw"]
    sizes = [(64, (8, 8)), (32, (32,))]
    adamw = OPTIMIZERS["schedule-free-adamw"]
    assert adamw.temporaries("foreach", sizes, 1000, 4) == 4 * 1000
    assert adamw.temporaries("forloop", sizes, 96, 4) == 4 * (64 + 32)
