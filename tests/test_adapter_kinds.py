"""Adapters other than LoRA, against peft's own parameters and the bytes that autograd saved (tools/saved_bytes.py)."""

from __future__ import annotations

import pytest

from napkin.architectures import implementation_of
from napkin.footprint import memory as footprint
from napkin.footprint.local_weights import sum_weights
from napkin.footprint.prepared import prepare, stack_of_step
from napkin.footprint.rank_weights import weights_on_a_rank
from napkin.operations.adapters.kind import AdaptedLayer
from napkin.operations.adapters.kinds import KINDS
from napkin.operations.adapters.low_rank import near_square
from napkin.operations.adapters.rotation import nearest_divisor
from napkin.operations.adapters.targets import resolved
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model_of, run_line

LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "vocab_size": 160,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
SIZE = 4


def setup_of(kind: str, targets: str, precision: str = "bf16", **fields: object) -> tuple[Model, Setup]:
    """Return a small Llama with adapters of a kind, of size 4, on two sequences of 64 tokens."""
    model = model_of({**LLAMA, **fields})
    implementation = implementation_of("hf", model.family)
    tuning = Tuning(kind, SIZE, 0.0, library="transformers")
    tuning = resolved(tuning, tuple(targets.split(",")), model, implementation)
    layout, optimizer = Layout(seq=64, micro=2), find("adamw")[0]
    policy = POLICIES[POLICY[precision]]
    return model, Setup(
        replace(implementation, tuning=tuning), layout, policy, optimizer, "foreach", "flash", woken=True
    )


@pytest.mark.parametrize(
    ("kind", "queries_and_values", "everything"),
    [
        ("adalora", 2040, 8724),
        ("vera", 240, 1140),
        ("ia3", 216, 1152),
        ("loha", 4032, 17280),
        ("lokr", 516, 2112),
        ("oft", 432, 1656),
        ("boft", 1368, 5472),
        ("miss", 864, 4224),
    ],
)
def test_kinds_train_what_peft_trains(kind: str, queries_and_values: int, everything: int) -> None:
    """peft 0.21.2 on a Llama of three layers of width 48, rank or block 4."""
    for targets, count in (
        ("q_proj,v_proj", queries_and_values),
        ("q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj", everything),
    ):
        model, setup = setup_of(kind, targets, num_hidden_layers=3)
        stack = stack_of_step(model, setup)
        counts, layers = zip(*((n, layer) for _, n, layer in stack.kinds()), strict=True)
        held = weights_on_a_rank(model, stack, setup, layers)
        assert sum_weights([*zip(counts, held.layers, strict=True)]).all == count


@pytest.mark.parametrize(
    ("kind", "size", "count"), [("adalora", 64, 18_353_664), ("loha", 32, 18_350_080), ("boft", 4, 802_816)]
)
def test_counts_are_those_that_peft_published(kind: str, size: int, count: int) -> None:
    """Llama 3.2 3B, queries and values of 28 layers: 3,072 to 3,072 and 1,024 (huggingface/peft,
    method_comparison/MetaMathQA/results)."""
    layer = sum(KINDS[kind].count(AdaptedLayer(3072, d_out, size)) for d_out in (3072, 1024))
    assert 28 * layer == count


@pytest.mark.parametrize(
    ("kind", "precision", "saved", "casts"),
    [
        ("adalora", "bf16", 572736, 0),
        ("adalora", "fp32", 932940, 0),
        ("adalora", "autocast", 691404, 0),
        ("vera", "bf16", 504372, 0),
        ("vera", "autocast", 601268, 0),
        ("ia3", "bf16", 515220, 0),
        ("ia3", "autocast", 648948, 0),
        ("loha", "bf16", 531532, 0),
        ("loha", "autocast", 648268, 0),
        ("lokr", "fp32", 851124, 0),
        ("lokr", "autocast", 648564, 288),
        ("oft", "bf16", 513588, 0),
        ("oft", "autocast", 638772, 0),
        ("boft", "bf16", 715124, 0),
        ("boft", "fp32", 1199412, 0),
        ("boft", "autocast", 851060, 0),
        ("miss", "bf16", 442932, 0),
        ("miss", "fp32", 673332, 0),
        ("miss", "autocast", 535092, 1920),
    ],
)
def test_kinds_keep_what_hooks_counted(kind: str, precision: str, saved: int, casts: int) -> None:
    """On q_proj, v_proj and down_proj, by tools/saved_bytes.py --adapter KIND on torch 2.13 and peft 0.21.2."""
    model, setup = setup_of(kind, "q_proj,v_proj,down_proj", precision)
    rank = footprint.rank_of(prepare(model, setup), 0)
    assert (rank.saved, rank.casts) == (saved, casts)


@pytest.mark.parametrize(("kind", "count"), [("prompt", 192), ("p-tuning", 7248), ("prefix", 576)])
def test_virtual_tokens_train_what_peft_trains(kind: str, count: int) -> None:
    """peft 0.21.2 on a Llama of three layers of width 48, keys of width 24, with num_virtual_tokens=4."""
    model = model_of({**LLAMA, "num_hidden_layers": 3})
    implementation = replace(implementation_of("hf", model.family), tuning=Tuning(kind, 4, 0.0, library="transformers"))
    setup = Setup(implementation, Layout(seq=64, micro=2), POLICIES["bf16-pure"], find("adamw")[0], "foreach")
    assert footprint.rank_of(prepare(model, setup), 0).weights.all == count


def saved_with(kind: str, tokens: int = 4) -> int:
    """Return the bytes that a layer of a small Llama keeps with virtual tokens."""
    model = model_of({**LLAMA, "num_hidden_layers": 3, "hidden_size": 64})
    implementation = replace(implementation_of("hf", model.family), tuning=Tuning(kind, tokens, 0.0))
    layout = Layout(seq=64, micro=2)
    setup = Setup(implementation, layout, POLICIES["bf16-pure"], find("adamw")[0], "foreach", "flash")
    (layer,) = {section.saved for _, section in prepare(model, setup).run.layers}
    return int(layer)


def test_prompts_keep_what_a_frozen_network_keeps_for_its_input() -> None:
    """Of 2 sequences of 64 tokens, by hand: norms' fp32 inputs 2·4Th and reciprocals 2·4T; rotated q, k, and v
    2T(h + 2w); the result 2Th, its log-sum-exp 4Ta and 24; gate, its SiLU and up 6Tf. Nothing of the prompt's."""
    t, h, w, f, heads = 128, 64, 32, 80, 4
    by_hand = 8 * t * h + 8 * t + 2 * t * (h + 2 * w) + 2 * t * h + 4 * t * heads + 24 + 6 * t * f
    assert saved_with("prompt") == saved_with("p-tuning") == by_hand


def test_a_prefix_lengthens_keys_and_values_of_each_layer() -> None:
    """With a mask over n + 64 keys torch's efficient kernel reads k and v repeated for all heads, 2·2·2(n + s)h, in
    place of 2·2Tw; next to the prefix itself, 2·2n·2w, and the mask that it casts, 2T(n + s). Its generator's state has
    8 bytes less."""
    t, s, h, w = 128, 64, 64, 32
    for n in (16, 32):
        by_hand = 2 * 2 * 2 * (n + s) * h - 4 * t * w + 2 * 2 * n * 2 * w + 2 * t * (n + s) - 8
        assert saved_with("prefix", n) - saved_with("prompt") == by_hand


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--adapter prompt", "needs --virtual-tokens"),
        ("--adapter prompt --virtual-tokens 20 --lora-rank 8", "--adapter prompt has none"),
        ("--adapter prompt --virtual-tokens 20 --lora-targets q_proj", "adapts no layer's weights"),
        ("--adapter prompt --virtual-tokens 64", "--seq 64 includes them"),
        ("--lora-rank 8 --virtual-tokens 20", "--adapter lora has none"),
    ],
)
def test_virtual_tokens_are_named(line: str, error: str) -> None:
    found = run_line(f"memory llama3-8b --seq 64 {line}")
    assert found.status == 2
    assert error in found.err


def test_virtual_tokens_are_refused_where_peft_has_no_such_heads() -> None:
    """gemma-7b: 16 heads of 256 in a network of 3,072."""
    found = run_line("memory gemma-7b --seq 64 --adapter prefix --virtual-tokens 20")
    assert found.status == 3
    assert "hidden size / heads" in found.err


def test_a_prefix_is_attended_to() -> None:
    """By each token and head: n more keys are 2·2·n·a·d FLOPs a token forward, twice that backward. p-tuning's three
    products of n rows run once for all sequences."""
    line = "flops llama3-8b --seq 128 --adapter"
    total = {
        (kind, n): run_line(f"{line} {kind} --virtual-tokens {n} --json").values["flops/total"]
        for kind, n in (("prefix", 20), ("prefix", 50), ("prompt", 20), ("p-tuning", 20))
    }
    assert total["prefix", 50] - total["prefix", 20] == 3 * 2 * 2 * 128 * 30 * 4096 * 32
    assert total["p-tuning", 20] - total["prompt", 20] == 3 * 3 * 2 * 20 * 4096 * 4096


def test_widths_divide_as_peft_divides_them() -> None:
    assert [near_square(width) for width in (256, 128, 127)] == [(16, 16), (8, 16), (1, 127)]
    # adjust_oft_parameters: of 24 and 32 next to 30 the one that is nearer, of two as near the smaller
    assert (nearest_divisor(96, 30), nearest_divisor(48, 14), nearest_divisor(8, 32)) == (32, 12, 8)


def test_flops_are_those_of_the_products_that_run() -> None:
    """One token through 4,096 × 4,096 queries of 32 layers: LoKr multiplies by a whole delta, whose gradient and that
    of its input are products as large; OFT by blocks of 32; IA3 by none."""
    line = "llama3-8b --seq 128 --lora-targets q_proj"
    total = {
        kind: run_line(f"flops {line} {more} --json").values["flops/total"]
        for kind, more in {
            "ia3": "--adapter ia3",
            "lokr": "--adapter lokr --lora-rank 8",
            "oft": "--adapter oft",
        }.items()
    }
    tokens, layers, width = 128, 32, 4096
    passes = 3 * layers - 1  # the first layer's input needs no gradient
    factors, powers = 2 * 64 * 8 * 64, 3 * (width // 32) * 2 * 32**3  # of weights: in all three passes
    assert total["lokr"] - total["ia3"] == 2 * tokens * width * width * passes + factors * 3 * layers
    assert total["oft"] - total["ia3"] == 2 * tokens * width * 32 * passes + powers * 3 * layers


def test_a_layer_holds_bofts_permutation_and_all_share_veras_matrices() -> None:
    """BOFT: 32 layers of 4,096² fp32; VeRA: rank 256 times 4,096 inputs and 4,096 outputs in fp32, once."""
    line = "memory llama3-8b --seq 128 --trainer hf-trainer --lora-targets q_proj"
    parameters = {
        kind: run_line(f"{line} {more} --json").values["memory/parameters"]
        for kind, more in {
            "ia3": "--adapter ia3",
            "boft": "--adapter boft",
            "vera": "--adapter vera --lora-rank 256",
        }.items()
    }
    vectors = 32 * 4096
    assert parameters["boft"] - parameters["ia3"] == 32 * 4096**2 * 4 + 4 * vectors * 4
    assert parameters["vera"] - parameters["ia3"] == 256 * 2 * 4096 * 4 + 32 * 256 * 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--adapter ia3 --lora-rank 3", "error: --lora-rank: --adapter ia3 has none\nhint: leave it out"),
        ("--adapter oft --lora-rank 3", "error: --lora-rank: --adapter oft has none\nhint: --adapter-block"),
        ("--adapter loha", "error: --adapter needs --lora-rank\nhint: for example --lora-rank 8"),
        (
            "--adapter loha --lora-rank 8 --quantized nf4",
            "error: --adapter loha: peft adds a delta of the weight's own",
        ),
        ("--adapter oft --tp 2 --gpus 2", "error: --tp: peft divides no adapter of the kind oft"),
        ("--lora-rank 8 --adapter-block 4", "error: --adapter-block: --adapter lora has none"),
    ],
)
def test_what_a_kind_does_not_take_is_refused(line: str, said: str) -> None:
    found = run_line(f"memory llama3-8b {line}")
    assert found.status in (2, 3)
    assert found.err.startswith(said)
