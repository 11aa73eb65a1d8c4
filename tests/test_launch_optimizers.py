"""Optimizers of launch files: transformers' names, LLaMA-Factory's switches, and the frozen parts next to them."""

from __future__ import annotations

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

TRANSFORMERS = """
model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 1
max_length: 1024
num_train_epochs: 1
optim: %s
"""
FACTORY = """
model_name_or_path: %s
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
%s
"""
NAMES = """adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor adamw_anyprecision
    adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit lion_32bit
    paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit paged_lion_8bit rmsprop
    rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit galore_adafactor
    galore_adamw_layerwise galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw
    schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw apollo_adamw_layerwise stable_adamw"""
"""transformers 5.23, training_args.py, OptimizerNames."""


def reading(text: str) -> Reading:
    return reading_of(source_of(text, "file.yaml"))


def values(found: Reading, *options: str) -> list[object]:
    return [one.value if (one := found.inputs.get(option)) else None for option in options]


@pytest.mark.parametrize("name", NAMES.split())
def test_every_name_of_transformers_is_read_or_refused_with_a_reason(name: str) -> None:
    found = reading(TRANSFORMERS % name + ("optim_target_modules: [attn, mlp]\n" if "galore_adamw" in name else ""))
    if found.inputs["optimizer"].value is None:
        assert found.refused
        assert all(len(one.why.split()) > 4 for one in found.refused)
    else:
        assert found.refused == []


@pytest.mark.parametrize(
    ("name", "modules", "arguments", "read"),
    [
        ("galore_adamw", "[attn, mlp]", "rank=64, update_proj_gap=100", "galore-adamw:64"),
        ("galore_adamw_8bit", "[.*.attn.*, .*.mlp.*]", "", "galore-adamw-8bit:128"),
        ("apollo_adamw", "[self_attn, mlp]", "proj=random,rank=1", "apollo-adamw:1"),
        ("apollo_adamw", "[self_attn, mlp]", "proj=svd", None),  # the singular vectors, not random numbers
        ("galore_adamw", "all-linear", "", None),  # the head too, which napkin keeps with AdamW
        ("galore_adamw", "[mlp]", "", None),
    ],
)
def test_the_rank_and_the_modules_of_a_projection(name: str, modules: str, arguments: str, read: str | None) -> None:
    text = TRANSFORMERS % name + f"optim_target_modules: {modules}\noptim_args: '{arguments}'\n"
    found = reading(text)
    assert found.inputs["optimizer"].value == read
    assert bool(found.refused) == (read is None)


@pytest.mark.parametrize(
    ("name", "arguments", "read"),
    [
        ("sgd", "momentum=0.9", "sgd-momentum"),
        ("sgd", "momentum=0.9, nesterov=True", "sgd-nesterov"),
        ("sgd", "dampening=0", "sgd"),
        ("rmsprop", "momentum=0.5,centered=true", "rmsprop-momentum-centered"),
        ("rmsprop", "alpha=0.9", "rmsprop"),
        ("lion_32bit", "", "lion-32bit"),
        ("schedule_free_adamw", "", "schedule-free-adamw"),
        ("paged_ademamix_8bit", "", "paged-ademamix-8bit"),
    ],
)
def test_arguments_that_add_states(name: str, arguments: str, read: str) -> None:
    """transformers 5.24, trainer_optimizer.py, _get_sgd and _get_rmsprop."""
    found = reading(TRANSFORMERS % name + (f"optim_args: '{arguments}'\n" if arguments else ""))
    assert found.inputs["optimizer"].value == read


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ("", "galore-adamw:128"),
        ("--galore_rank 64 --optim adamw_bnb_8bit", "galore-adamw-8bit:64"),
        ("--optim adafactor", None),
        ("--galore_with_embedding true", None),
        ("--galore_quantization true", None),
        ("--galore_target_modules self_attn mlp", "galore-adamw:128"),
    ],
)
def test_ms_swifts_galore(options: str, read: str | None) -> None:
    """swift/optimizers/galore/utils.py: all linear layers of the blocks, rank 128."""
    line = f"swift sft --model Qwen/Qwen2.5-7B --train_type full --use_galore true {options}"
    found = reading_of(source_of(f"{line} --per_device_train_batch_size 1\n", "train.sh"))
    assert found.inputs["optimizer"].value == read
    assert bool(found.refused) == (read is None)


def test_llama_factorys_switches_go_before_optim() -> None:
    """Rank 16 by default; bitsandbytes' names choose the 8-bit one; layerwise steps within the backward pass."""
    llama = "meta-llama/Llama-3.1-8B"
    galore = reading(FACTORY % (llama, "use_galore: true\ngalore_layerwise: true\noptim: adamw_torch"))
    assert values(galore, "optimizer", "optimizer-in-backward") == ["galore-adamw:16", True]
    assert galore.inputs["optimizer"].origin == "assumed"
    for more, read in (
        ("use_galore: true\ngalore_rank: 128\noptim: adamw_8bit", "galore-adamw-8bit:128"),
        ("use_apollo: true\napollo_rank: 32", "apollo-adamw:32"),
        ("use_adam_mini: true", "adam-mini"),
        ("use_galore: false\noptim: adafactor", "adafactor"),
    ):
        found = reading(FACTORY % (llama, more))
        assert (values(found, "optimizer"), found.refused) == ([read], [])
    for more in (
        "use_galore: true\noptim: adafactor",
        "use_galore: true\ngalore_target: q_proj,v_proj",
        "use_apollo: true\napollo_proj: svd",
        "use_badam: true",
    ):
        found = reading(FACTORY % (llama, more))
        assert values(found, "optimizer") == [None]
        assert len(found.refused) == 1


def test_towers_are_frozen_unless_the_file_trains_them() -> None:
    """LLaMA-Factory freezes the tower and the projector by default, and gives them no adapters."""
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    usual = reading(FACTORY % (model, "bf16: true")).inputs["freeze"]
    assert (usual.value, usual.origin) == ("vision,projector", "default")
    for more, frozen, refused in (
        ("freeze_multi_modal_projector: false", "vision", 0),
        ("freeze_vision_tower: false\nfreeze_multi_modal_projector: false", None, 0),
        ("freeze_vision_tower: false", None, 1),  # a trained tower before a frozen projector
        ("freeze_language_model: true", None, 1),
    ):
        found = reading(FACTORY % (model, more))
        assert (values(found, "freeze"), len(found.refused)) == ([frozen], refused)
    lora = (FACTORY % (model, "freeze_vision_tower: %s")).replace("full", "lora")
    assert [len(reading(lora % on).refused) for on in ("true", "false")] == [0, 1]
    assert "freeze" not in reading(lora % "true").inputs
    assert "freeze" not in reading(FACTORY % ("meta-llama/Llama-3.1-8B", "bf16: true")).inputs


def test_ms_swifts_vit_and_aligner_are_the_tower_and_the_projector() -> None:
    line = "swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --tuner_type full --max_length 2048 %s\n"
    for more, frozen in (
        ("", "vision,projector"),
        ("--freeze_aligner false", "vision"),
        ("--freeze_vit true", "vision,projector"),
    ):
        assert values(reading_of(source_of(line % more, "train.sh")), "freeze") == [frozen]
    assert [one.key for one in reading_of(source_of(line % "--freeze_llm true", "train.sh")).refused] == [
        "--freeze_llm"
    ]


def test_experts_and_layers_are_counted_apart_in_what_a_layout_needs() -> None:
    """16 GPUs hold tp 2 × pp 2, but not pp 2 × ep 16: the layers' ranks are no factor of the experts'."""
    line = "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
    line += "--num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --num-experts 32 "
    line += "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --expert-model-parallel-size 16 "
    line += "--expert-tensor-parallel-size 1\n"
    (refused,) = reading_of(source_of(line, "train.sh")).refused
    assert refused.why == "16 GPUs, but pp 2 × ep 16 needs 32"


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        ("bf16: true", "frozen=bf16,param=fp32,grad=fp32,compute=bf16,state=fp32"),
        ("fp16: true", "frozen=fp16,param=fp32,grad=fp32,compute=fp16,state=fp32"),
        ("pure_bf16: true", "bf16-pure"),
    ],
)
def test_llama_factory_casts_what_it_trains_and_leaves_frozen_layers_as_loaded(arguments: str, policy: str) -> None:
    """Two of 32 layers by default, not the norm or the head (LLaMA-Factory src/llamafactory/model/adapter.py,
    _setup_freeze_tuning)."""
    frozen = FACTORY.replace("full", "freeze") % ("meta-llama/Llama-3.1-8B", arguments)
    assert values(reading(frozen), "freeze-layers", "freeze-head", "precision") == [30, True, policy]
