"""Counts worked out by hand: FLOPs by operation in two stacks, bytes of packed tensors, truncated initialization."""

from __future__ import annotations

import math

import pytest

from napkin import formats
from napkin.counting import flops, utilization
from napkin.counting.init import truncated_std
from napkin.counting.linear_stack import EqualLayers, chain, deep, saved, weights
from napkin.counting.linear_stack import step as step_of_stack
from napkin.counting.params import params, weight_params
from napkin.counting.products import product_term
from napkin.counting.six_n import against_count
from napkin.counting.tensor_bytes import allocated
from napkin.counting.vision import flops_of
from napkin.footprint.linear_memory import _sized
from napkin.operations.attention.core import AttentionCore
from napkin.operations.linear import Matmul
from napkin.operations.roles import EXPERT
from napkin.operations.work import Gemm, Weight, Work
from napkin.term import leaf
from napkin.training.recomputation import Recompute
from tests.conftest import model, preset, run_line


def test_flops_by_operation_of_an_encoder_decoder() -> None:
    """Each stack's products by its own name: two encoder layers over 5 tokens, three decoder layers over 7."""
    h, heads, d, f, vocab, source, target = 8, 2, 4, 16, 32, 5, 7
    fields = {
        "model_type": "t5",
        "d_model": h,
        "num_heads": heads,
        "d_kv": d,
        "d_ff": f,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "vocab_size": vocab,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
    }
    t5 = model(**fields)
    found = {
        name: term.value for name, term in flops.by_operation(t5, flops.works(t5, 1, source, target=target)).items()
    }
    wide = heads * d
    assert found["encoder/q"] == 2 * 2 * source * h * wide
    assert found["decoder/q"] == 3 * 2 * target * h * wide
    assert found["encoder/attention"] == 2 * 2 * source * source * heads * 2 * d
    assert found["decoder/attention"] == 3 * 2 * target * target * heads * 2 * d
    heads_of = [name for name in found if name.endswith("lm_head")]
    assert [found[name] for name in heads_of] == [2 * target * h * vocab]
    own = 4 * h * wide + 2 * h * f
    encoder = 2 * 2 * source * own + found["encoder/attention"]
    crossing = 2 * 2 * h * wide * (target + source) + 2 * target * source * heads * 2 * d
    decoder = 3 * (2 * target * own + crossing) + found["decoder/attention"]
    assert sum(found.values()) == encoder + decoder + 2 * target * h * vocab


@pytest.mark.parametrize("cut", [0.001, 0.02, 0.049, 0.05, 0.051, 0.3, 1.0, 2.0, 3.0, 8.0])
def test_the_spread_of_a_truncated_normal(cut: float) -> None:
    """√(∫x²φ / ∫φ) from −cut to cut, by Simpson's rule."""
    steps = 2000
    width = cut / steps
    weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
    density = [math.exp(-((i * width) ** 2) / 2) for i in range(steps + 1)]
    mass = sum(w * p for w, p in zip(weights, density, strict=True))
    square = sum(w * p * (i * width) ** 2 for i, (w, p) in enumerate(zip(weights, density, strict=True)))
    assert truncated_std(cut) == pytest.approx(math.sqrt(square / mass), rel=1e-7)


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ("3x40", "bf16", 3 * 40 * 2),
        ("3x5", "fp4", 8),  # 60 bits in whole bytes
        ("1", "fp4", 1),
        ("3x40", "mxfp8", 3 * 40 + 3 * 2),  # a scale of a byte for each block of 32 in a row
        ("3x32", "mxfp8", 3 * 32 + 3),
        ("3x40", "mxfp4", 3 * 20 + 3 * 2),
        ("3x40", "nvfp4", 3 * 20 + 3 * 3 + 4),  # blocks of 16, and one 32-bit scale for the tensor
        ("5", "mxfp8", 5 + 1),
    ],
)
def test_bytes_of_packed_tensors(shape: str, dtype: str, size: int) -> None:
    assert run_line(f"tensor {shape} --dtype {dtype} --json").values["storage/bytes"] == size


def test_a_sequence_is_cut_into_equal_documents_and_a_rest() -> None:
    assert flops.equal_documents(4096, 1000) == ((1000, 4), (96, 1))
    assert flops.equal_documents(4096, 1024) == ((1024, 4),)
    assert flops.equal_documents(4096, 4096) == flops.equal_documents(4096, 5000) == ((4096, 1),)


def test_the_cut_of_torch_s_trunc_normal_is_absolute() -> None:
    """a=-3, b=3 of N(0, 0.02²): 3/0.02 standard deviations."""
    assert run_line("init --fan-in 4 --std 0.02 --json").values["init/cut_in_std"] == 150


def test_what_a_reference_model_adds_to_the_flops_of_a_token() -> None:
    """DPO with a copy as reference: forward and twice that backward of the policy, and one more forward: 4/3."""
    line = "mfu gpt2 --hardware h100 --gpus 1 --tokens-per-second 1000 --seq 1024 --json --task"
    alone, both = (run_line(f"{line} {task}").values["flops_per_second/torch"] for task in ("sft", "dpo"))
    assert both * 3 == alone * 4


def test_flops_again_of_every_second_linear_layer() -> None:
    """GPT-2: half of 2·12·h² per token and layer is computed again; attention and the head are not."""
    h, layers, vocab, seq = 768, 12, 50257, 1024
    again = layers * 12 * h * h
    forward = 2 * (layers * 12 * h * h + vocab * h) + layers * 4 * h * seq
    line = "mfu gpt2 --hardware h100 --gpus 1 --tokens-per-second 1000 --seq 1024 --recompute operations --json"
    values = run_line(line).values
    assert values["hfu/torch"] / values["mfu/torch"] == pytest.approx((3 * forward + again) / (3 * forward), rel=1e-12)


def test_a_matmul_in_training_is_three_of_its_size() -> None:
    values = run_line("flops matmul 64x32x16 --json").values
    assert (values["flops/forward"], values["flops/training"]) == (65536, 3 * 65536)


def test_equal_linear_layers_are_numbered_in_order() -> None:
    """D, D, D, D, 1 is three square layers and a fourth with one output; of width 1 all are alike."""
    assert chain((4, 4, 4, 4, 1)) == deep(4, 3) == (EqualLayers(1, 3, 4, 4), EqualLayers(4, 1, 4, 1))
    assert chain((1, 1, 1, 1)) == deep(1, 2)
    assert [run.name for run in chain((8, 8, 8, 2, 3))] == ["linear1-2", "linear3", "linear4"]
    assert weights(chain((8, 8, 8, 2, 3))) == 2 * 64 + 16 + 6


def test_flops_of_a_stack_by_example() -> None:
    """2·3·(4·4 + 4·1) = 120 FLOP forward, twice that backward, of which the data's gradient is 2·3·16: 96."""
    found = step_of_stack(chain((4, 4, 1)), 3)
    assert (found.forward.value, found.backward.value, found.total.value) == (120, 240, 360)
    assert (found.of_data.value, found.total_of_data.value) == (240 - 96, 360 - 96)
    assert (found.per_example.value, found.six_nd.value) == (120, 6 * 20 * 3)
    assert saved(chain((4, 4, 2, 1)), 3) == (3 * 4, 3 * (4 + 2))  # the data; what the second and third layer read


def test_an_optimizer_without_states_keeps_none() -> None:
    assert (
        run_line("memory linear --width 4 --depth 2 --batch 2 --optimizer sgd --json").values["memory/optimizer"] == 0
    )


def test_a_product_s_factors_are_those_it_has() -> None:
    """2·m·k·n; a batch of products if there is one."""
    one, several = (product_term("one", Gemm("one", n, 2, 3, 5, 0)) for n in (1, 7))
    assert [(part.name, part.value) for part in one.parts] == [("2", 2), ("m", 2), ("k", 3), ("n", 5)]
    assert [part.name for part in several.parts] == ["2", "batch", "m", "k", "n"]
    assert (one.value, several.value) == (60, 420)


def test_only_experts_are_idle() -> None:
    """Of a dense model each parameter is active; Mixtral's token runs 2 of 8 experts of 3·4,096·14,336."""
    dense = params(preset("llama3-8b"))["params/active"]
    assert dense.op != "difference"
    found = params(preset("mixtral-8x7b"))
    assert found["params/total"].value - found["params/active"].value == 32 * 6 * 3 * 4096 * 14336


def test_whole_bytes_are_elements_times_bytes() -> None:
    """Formats of whole bytes without scales are not packed; three elements of 4 bits are."""
    for name, shape, op in (("bf16", (3, 5), "product"), ("fp8", (3, 5), "product"), ("fp4", (3,), "ceil")):
        form = formats.find(name)
        assert allocated(form, shape, formats.element_bytes(form), "bytes").op.startswith(op)


def test_products_are_named_by_their_operation() -> None:
    """Alone by its name; scores and values of attention each, also if one of them is asked for."""
    work = Work(1, 8)
    core = AttentionCore("core", ("q", "k", "v"), 4, 4, 16, 16)
    (linear,) = flops.operation_flops("layer", Matmul("o", ("x",), 4, 6), work)
    assert (linear.name, linear.value) == ("layer/o", 2 * 8 * 4 * 6)
    both = flops.operation_flops("layer", core, work)
    assert len({one.name for one in both}) == 2
    assert all(one.name.startswith("layer/core/") for one in both)
    (first,) = flops.operation_flops("layer", core, work, lambda one: one.name == flops.products_of(core, work)[0].name)
    assert first.name == both[0].name
    names = {leaf.name for one in both for leaf in one.parts}
    assert names >= {"layer/core/pairs", "layer/core/heads", *(f"{one.name}/size" for one in both)}


def test_attention_is_three_forward_passes() -> None:
    llama = preset("llama3-8b")
    found = flops.attention(llama, flops.works(llama, 1, 64), "full")
    assert found.op == "product"
    assert [float(part.value) for part in found.parts] == [3, 32 * 2 * 64 * 64 * 32 * 2 * 128]
    back = flops.step(llama, flops.works(llama, 1, 64))["flops/backward"]
    assert (back.op, float(back.parts[0].value)) == ("product", 2)


def test_documents_of_a_sequence_by_length() -> None:
    assert flops.packed([5, 3, 5, 7, 5]) == ((7, 1), (5, 3), (3, 1))
    assert flops.packed([]) == ()


def test_experts_come_first_in_a_weight_s_dimensions() -> None:
    """8 experts of 4 × 6, of which 6 are idle."""
    weight = Weight("w", (4, 6), EXPERT, 8, 2)
    found, idle = weight_params("p", weight), weight_params("p", weight, leaf("idle", 6, "1"))
    assert [part.value for part in found.parts] == [8, 4, 6]
    assert [part.value for part in idle.parts] == [6, 4, 6]
    assert (found.value, idle.value) == (192, 144)


def test_a_convention_against_the_count() -> None:
    """6·10⁹·10³ FLOP next to 5·10⁹ for each of 10³ tokens."""
    exact, times = against_count(
        leaf("flops", 6e12, "FLOP"), leaf("per_token", 5e9, "FLOP/token"), leaf("tokens", 1e3, "token")
    )
    assert (exact.value, times.value) == (5e12, 1.2)


def test_what_an_mfu_is_called() -> None:
    """At a mark and just below it; test_evidence_runs.py holds the marks themselves against the published steps."""
    good, fair, less = utilization.GOOD, utilization.FAIR, 1e-9
    names = [utilization.verdict_of(used) for used in (1 + less, 1, good, good - less, fair, fair - less, 0.051, 0.05)]
    assert names == ["impossible", "good", "good", "fair", "fair", "poor", "poor", "bad"]
    line = "mfu --params 8B --hardware h100 --gpus 1 --tokens-per-second"
    for rate, said in ((14_000, False), (14_500, True)):  # MFU of 0.679 and 0.704: 6·8·10⁹ of 989.4·10¹² FLOP/s
        assert ("fewer --gpus than ran" in run_line(f"{line} {rate} --verbose").out) is said


def test_an_mfu_above_1_that_masks_explain_is_divided_by_what_it_counts_too_often() -> None:
    """Up to the FLOPs that masks allow, here two thirds; beyond, nothing explains it."""
    assert utilization.judged(1.2, excess=1.5) == pytest.approx(1.2 / 1.5)
    assert [utilization.judged(used, excess=1.5) for used in (1.6, 0.9)] == [1.6, 0.9]
    assert utilization.judged(1.2, excess=1.5, seen=0.5) == pytest.approx(0.6)


def test_an_image_of_no_known_size_has_no_flops() -> None:
    """Qwen3-VL takes images of any size: of 64 tokens of the language model each is merged from 4 patches."""
    seeing = preset("qwen3-vl-8b")
    assert flops_of(seeing, 1) == flops_of(preset("gpt2"), 1, 64) == []
    assert seeing.vision is not None
    assert seeing.vision.lengths(64) == (256, 256, 64)
    once, each, several = flops_of(seeing, 3, 64)
    assert several.value == 3 * each.value
    assert each.value == pytest.approx(3 * once.value, rel=0.01)  # pixels need no gradient


def test_a_model_without_attention_recomputes_none() -> None:
    small = model(model_type="mamba", hidden_size=64, num_hidden_layers=2, vocab_size=256, state_size=16, expand=2)
    over = flops.works(small, 1, 8)
    assert utilization.recomputed(small, over, Recompute("selective")).value == 0
    assert utilization.repeated(small, small, over, Recompute("selective")).value == 1


def test_passes_without_gradients_lower_the_share_that_is_recomputed() -> None:
    """Of a step and as many FLOPs of a reference's passes, recomputation is half the share."""
    small = model(model_type="gpt2", n_embd=64, n_layer=2, n_head=4, vocab_size=256)
    over, full = flops.works(small, 1, 8), Recompute("full")
    step = flops.passes("flops/step", small, over)
    alone, beside = (utilization.repeated(small, small, over, full, others).value - 1 for others in ((), (step,)))
    assert alone == pytest.approx(2 * beside)
    assert 0 < alone <= 1 / 3


def test_what_a_stack_saves_begins_with_the_data() -> None:
    """Widths 4, 6, 6, 2: each layer saves what it reads, 4 of the data and 2 · 6 of outputs, for each of 5 samples."""
    assert saved(chain((4, 6, 6, 2)), 5) == (5 * 4, 5 * 12)


def test_three_values_of_four_bits_take_two_bytes() -> None:
    values = leaf("values", 3, "param", "given")
    assert _sized("odd", values, "nvfp4").value == 2
    assert _sized("even", values, "bf16").value == 6


def test_a_network_without_attention_has_no_scores() -> None:
    small = model(model_type="mamba", hidden_size=64, num_hidden_layers=2, vocab_size=256, state_size=16, expand=2)
    found = flops.step(small, flops.works(small, 1, 8))
    assert [found[f"flops/attention{of}"].value for of in ("", "/half", "/exact")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("shape", "names"),
    [((8,), ("entries",)), ((8, 4), ("rows", "columns")), ((2, 8, 4), ("blocks", "rows", "columns"))],
)
def test_dimensions_are_named_by_their_number(shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    found = weight_params("p", Weight("w", shape, copies=3))
    assert [part.name for part in found.parts] == [f"p/w/{name}" for name in ("experts", *names)]
    assert found.value == 3 * math.prod(shape)
