"""Steps of which the embedding and the first layers are not trained, tied and untied, against traced ones."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import build, implementation_of
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup

from .conftest import run_line


def ask_json(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").data


LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 97, "hidden_act": "linear", "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": True,
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "sliding_window": 16, "max_window_layers": 4, "attention_bias": False,
    "use_sliding_window": False,
}  # fmt: skip
WIDTHS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
)  # fmt: skip
STEPS = [
    (
        LLAMA, (96, 2, 4, 4, 24, 144), "amp-bf16", "eager", (2, 64), "full", 1,
        (1297032, 1609040, 1709836, 1930376, 2425360, 2024332),
    ),
    (
        LLAMA, (48, 4, 6, 1, 8, 144), "bf16-pure", "efficient", (2, 40), "none", 2,
        (430316, 800980, 535248, 855876, 862420, 640176),
    ),
    (
        LLAMA | {"hidden_act": "relu"}, (96, 4, 6, 6, 24, 104), "bf16-pure", "eager", (2, 33), "full", 2,
        (1387468, 1510368, 1754768, 1646320, 2088336, 2096720),
    ),
    (
        QWEN3 | {"hidden_act": "leaky_relu", "vocab_size": 97, "tie_word_embeddings": True}, (32, 4, 2, 2, 8, 104),
        "fp32", "eager", (2, 64), "none", 1, (499496, 1906992, 644972, 1974080, 2005296, 790444),
    ),
]  # fmt: skip
"""Live bytes before the step, after the forward and the backward pass, and the largest in each of them and in AdamW's
step: tools/traced_steps.py --freeze, torch 2.13.0, transformers 5.23.0."""


BERT: dict[str, Any] = {
    "model_type": "bert", "num_attention_heads": 4, "vocab_size": 11, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "pad_token_id": 1, "tie_word_embeddings": True, "is_decoder": False,
}  # fmt: skip
GPT_NEO: dict[str, Any] = {
    "model_type": "gpt_neo", "num_layers": 2, "num_heads": 2, "vocab_size": 4096, "resid_dropout": 0.0,
    "embed_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0, "window_size": 16, "bos_token_id": 1,
    "eos_token_id": 1, "tie_word_embeddings": True, "attention_types": [[["global", "local"], 1]],
}  # fmt: skip
POSITIONS: list[Any] = [
    (
        BERT | {"hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 104, "hidden_act": "gelu_fast"}, 40,
        "fp32", "eager", (2, 40), Recompute("full"), ("sgd", "foreach"), 1,
        (180204, 384692, 299708, 475244, 777152, 299708),
    ),
    (
        BERT | {"hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 72, "hidden_act": "linear"}, 128,
        "bf16-pure", "flash", (3, 32), Recompute("every", 2), ("adamw", "fused"), 3,
        (201014, 430320, 269950, 448750, 440624, 269950),
    ),
    (
        GPT_NEO | {"hidden_size": 16, "intermediate_size": 104, "activation_function": "gelu_accurate"}, 128,
        "bf16-pure", "eager", (3, 32), Recompute("full"), ("adadelta", "foreach"), 1,
        (206140, 1798980, 221456, 4162140, 4943940, 239792),
    ),
]  # fmt: skip
"""The same of networks with learned positions, in one to three micro-batches, the first layer frozen."""


STILL_HEADS: list[Any] = [
    (
        QWEN3 | {"vocab_size": 4096, "hidden_act": "relu6", "tie_word_embeddings": False},
        (144, 4, 6, 2, 128, 144), "fp32", (1, 32), Recompute("full"), ("adamw", "forloop"), 1,
        (19026884, 19676756, 23355720, 20219476, 24046052, 24387912),
    ),
    (
        LLAMA | {"vocab_size": 4096, "hidden_act": "relu", "tie_word_embeddings": False},
        (144, 4, 6, 1, 16, 144), "bf16-pure", (3, 33), Recompute("every", 2), ("rmsprop", "forloop"), 2,
        (3687868, 6718368, 4313408, 9237748, 9961608, 4396352),
    ),
]  # fmt: skip
"""The same of steps whose final norm and head are frozen too: tools/traced_steps.py --freeze 1 --freeze-head. The
largest tensor that AdamW updates is a layer's, not the embedding."""


def test_a_step_of_frozen_layers_is_equal_to_the_byte() -> None:
    """Where layers are checkpointed, transformers makes the embedding's output require a gradient: frozen layers are
    recomputed, and that output and its gradient live on, until the next micro-batch's loss takes the name of the last
    one. What else precedes the layers saves nothing."""
    for fixed, widths, policy, kernel, batch, recompute, frozen, seen in STEPS:
        fields = fixed | dict(zip(WIDTHS, widths, strict=True)) | {"max_position_embeddings": batch[1]}
        assert seen == live(fields, policy, kernel, batch, Recompute(recompute), ("adamw", "foreach"), 1, frozen)
    for fields, positions, policy, kernel, batch, recomputed, optimizer, many, seen in POSITIONS:
        fields = fields | {"max_position_embeddings": positions}
        assert seen == live(fields, policy, kernel, batch, recomputed, optimizer, many, 1)
    for fields, widths, policy, batch, recomputed, optimizer, many, seen in STILL_HEADS:
        fields = fields | dict(zip(WIDTHS, widths, strict=True)) | {"max_position_embeddings": 128}
        assert seen == live(fields, policy, "flash", batch, recomputed, optimizer, many, 1, head=True)


def test_a_frozen_head_has_no_gradient_no_state_and_no_matmul_for_either() -> None:
    """Llama 3 8B's head: 128,256 × 4,096 weights and the norm's 4,096."""
    line, still = "llama3-8b --seq 512", 128_256 * 4096 + 4096
    held = f"memory {line} --precision bf16-pure --freeze-layers 30"
    whole, less = (ask_json(f"{held}{more}")["values"] for more in ("", " --freeze-head"))
    assert whole["memory/gradients"] - less["memory/gradients"] == 2 * still
    whole, less = (ask_json(f"flops {line}{more}")["values"] for more in ("", " --freeze-head"))
    assert whole["flops/per_token"] - less["flops/per_token"] == pytest.approx(2 * (still - 4096), rel=1e-3)
    assert run_line("memory llama3.2-1b --freeze-head").status == 3  # its head is the embedding
    assert run_line(f"memory {line} --freeze-head --freeze-layers 32").status == 2
    assert run_line(f"memory {line} --freeze-head --lora-rank 8").status == 2


def live(
    fields: dict[str, Any],
    policy: str,
    kernel: str,
    batch: tuple[int, int],
    recompute: Recompute,
    optimizer: tuple[str, str],
    many: int,
    frozen: int,
    head: bool = False,
) -> tuple[Any, ...]:
    """Return live bytes in the order of STEPS."""
    model = build(config_from("config", Document("config", fields), fields))
    layout = Layout(seq=batch[1], micro=batch[0], micro_batches=many, recompute=recompute)
    found, form = find(optimizer[0])[0], optimizer[1]
    setup = Setup(
        implementation_of("hf", model.family), layout, POLICIES[policy], found, form, kernel,
        frozen=frozen, still_head=head,
    )  # fmt: skip
    rank = memory.rank_of(prepare(model, setup), 0)
    at = {moment.name: moment for moment in rank.moments}
    after = {moment.name: moment.live for moment in rank.between}
    return (
        rank.parameters + rank.optimizer + at["forward"].inputs,
        after["forward"],
        after["backward"],
        at["forward"].live,
        max(at["loss"].live, at["backward"].live),
        at["step"].live,
    )


def test_a_frozen_tied_embedding_is_a_frozen_head() -> None:
    """Llama 3.2 1B: 128,256 × 2,048 weights that are embedding and head, and 12 of 16 layers and the norm trained."""
    answer = ask_json("memory llama3.2-1b --freeze-layers 4 --precision bf16-pure --seq 512")
    layer = 2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048
    assert answer["values"]["memory/gradients"] == 2 * (12 * layer + 2048)
    assert any("so is the head" in note for note in answer["notes"])
    assert run_line("step llama3.2-1b --gpus 1 --hardware h100 --freeze-layers 4").status == 0


def test_a_pipelines_last_stage_holds_a_frozen_copy_of_the_embedding() -> None:
    line = "memory llama3.2-1b --pp 2 --precision bf16-pure --seq 512"
    frozen, whole = (ask_json(f"{line}{more}")["stages"] for more in (" --freeze-layers 4", ""))
    assert [row["parameters"] for row in frozen] == [row["parameters"] for row in whole]
    assert frozen[1]["optimizer"] < whole[1]["optimizer"] - 2 * 2 * 128256 * 2048 + 10**6


def test_a_pipeline_waits_for_a_stage_that_is_trained_as_a_whole() -> None:
    """32 layers on 4 stages, the first 16 frozen: the last two stages are as slow as they were, the first two have no
    backward pass, and the idle slots are shorter. On 8 chunks each stage has as many frozen layers as any other."""
    line = "step llama3-8b --hardware h100 --pp 4 --global-batch 32"
    whole, half = ask_json(line)["values"], ask_json(f"{line} --freeze-layers 16")["values"]
    assert half["step/compute"] == pytest.approx(whole["step/compute"])
    assert 0.5 * whole["step/bubble"] < half["step/bubble"] < 0.8 * whole["step/bubble"]
    chunks = [ask_json(f"{line} --vp 2{more}")["values"]["step/compute"] for more in ("", " --freeze-layers 16")]
    assert 0.5 * chunks[0] < chunks[1] < 0.8 * chunks[0]


PEAK = 989.4e12
"""Dense bf16 FLOP/s of an H100 SXM (datasheet)."""


def test_what_checkpoints_pass_on_counts_towards_hfu_alone() -> None:
    """Llama 3 8B, 16 of 32 layers frozen: model FLOPs are those of no recomputation. Checkpoints run all 32 layers
    again and pass gradients through the frozen ones: one product for each linear layer, and two for attention's."""
    line = "step llama3-8b --gpus 1 --hardware h100 --seq 4096 --freeze-layers 16 --recompute"
    none, full = (ask_json(f"{line} {kind}")["values"] for kind in ("none", "full"))
    assert full["mfu"] * full["step/time"] == pytest.approx(none["mfu"] * none["step/time"])
    tokens = 4096
    linear = 2 * tokens * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    attention = 2 * 2 * tokens * 4096 * 4096
    again = 32 * (linear + attention) + 16 * (linear + 2 * attention)
    share = (full["hfu"] - full["mfu"]) * full["step/time"] * PEAK
    assert share == pytest.approx(again, rel=1e-4)
    assert none["hfu"] == none["mfu"]


def test_recomputation_by_operations_takes_time_and_flops() -> None:
    """Half of the linear layers run again, one after the other, and no attention."""
    line = "step llama3-8b --gpus 1 --hardware h100 --seq 4096 --recompute"
    none, some = (ask_json(f"{line} {kind}")["values"] for kind in ("none", "operations"))
    linear = 32 * 2 * 4096 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    more = (some["hfu"] - some["mfu"]) * some["step/time"] * PEAK
    assert more == pytest.approx(linear / 2, rel=1e-4)
    assert some["step/compute/matmul"] > none["step/compute/matmul"] * 1.1


@pytest.mark.parametrize("adapters", ["--lora-rank 4", "--adapter ia3", "--adapter oft"])
@pytest.mark.parametrize("command", ["memory", "step", "flops"])
def test_adapters_freeze_every_layer(command: str, adapters: str) -> None:
    """With a rank or without one: --freeze-layers says nothing next to them."""
    machine = "--hardware h100" if command == "step" else ""
    found = run_line(f"{command} qwen3-0.6b --seq 64 {machine} {adapters} --freeze-layers 2")
    assert found.status == 2
    assert f"--freeze-layers and {adapters.split()[0]} cannot be combined" in found.err
