"""Recipes of NeMo AutoModel and ROLL: what their keys mean, by their own code."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.test_launch import read

AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {{global_batch_size: 64, local_batch_size: 4, max_steps: 100, num_epochs: 2}}
model: {{_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained,
  pretrained_model_name_or_path: Qwen/Qwen3-8B, torch_dtype: {dtype}}}
distributed: {{strategy: fsdp2, dp_size: {dp}, tp_size: 2, pp_size: {pp}{more}}}
packed_sequence: {{packed_sequence_size: {pack}}}
dataset: {{_target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset, seq_length: 512}}
optimizer: {{_target_: torch.optim.Adam}}
loss_fn: {{_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}}
{tail}
"""


def recipe(dtype: str = "bf16", dp: Any = 4, pp: int = 1, more: str = "", pack: Any = 0, tail: str = "") -> str:
    return AUTOMODEL.format(dtype=dtype, dp=dp, pp=pp, more=more, pack=pack, tail=tail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 4 × tp 2 GPUs; weights stay in the format that they are loaded in, computed in bf16; the data set's length
        (
            recipe(),
            {"gpus": 8, "zero": 3, "precision": "bf16-pure", "seq": 512, "steps": 100, "epochs": None, "task": "sft"},
        ),
        (recipe(dtype="float32", pack=4096), {"precision": "amp-bf16", "seq": 4096, "packing": True}),
        # 36 layers over 2 stages in parts of 6 are 3 parts each; layers of stages stay gathered
        (
            recipe(pp=2, more=", pipeline: {pp_microbatch_size: 2, layers_per_stage: 6}"),
            {"gpus": 16, "micro-batch": 2, "vp": 3, "zero": 2},
        ),
        (recipe(dp="none"), {"gpus": None, "tp": 2, "global-batch": 64, "micro-batch": 4}),
        (
            recipe(more=", reshard_after_forward: false, activation_checkpointing: full"),
            {"zero": 2, "recompute": "full"},
        ),
        # adapters have the format of the weights next to which they are; *_proj is every linear of a layer
        (
            recipe(tail="peft: {dim: 16, target_modules: '*_proj'}"),
            {
                "adapter": "lora",
                "lora-rank": 16,
                "lora-targets": "all",
                "precision": "frozen=bf16,param=bf16,grad=bf16,compute=bf16,state=bf16",
            },
        ),
        (
            recipe(
                tail="peft: {target_modules: ['*.q_proj', '*.v_proj']}\nquantization: {load_in_4bit: true, "
                "bnb_4bit_quant_type: nf4, bnb_4bit_use_double_quant: true}"
            ),
            {"lora-rank": 8, "lora-targets": "q,v", "quantized": "nf4-dq"},
        ),
        (recipe(tail="peft: null"), {"adapter": None, "precision": "bf16-pure"}),
    ],
)
def test_automodel(text: str, expected: dict[str, Any]) -> None:
    options, reading = read(text)
    assert reading.format.name == "nemo-automodel"
    assert {option: options.get(option) for option in expected} == expected
    assert not [one for one in reading.not_modelled if "does not know" in one.why]


def test_automodels_sizes_next_to_a_name_are_another_model() -> None:
    text = recipe().replace("Qwen/Qwen3-8B", "Qwen/Qwen3-8B, num_hidden_layers: 4")
    assert [one.key for one in read(text)[1].refused] == ["model.num_hidden_layers"]


def test_automodels_master_weights_ask_for_the_precision() -> None:
    """TransformerEngine's FusedAdam keeps moments and a copy in formats of its own."""
    text = recipe().replace("torch.optim.Adam", "te.FusedAdam, master_weights: true, exp_avg_dtype: torch.float32")
    options, _ = read(text)
    assert (options["precision"], options["optimizer"]) == (None, "adamw")


ROLL = """
pretrain: Qwen/Qwen2.5-7B
adv_estimator: {estimator}
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 512
response_length: 1024
max_steps: 500
init_kl_coef: 0.0
reward_pretrain: Qwen/Qwen2.5-7B
actor_train:
  model_args: {{dtype: bf16, flash_attn: fa2, disable_gradient_checkpointing: false}}
  training_args: {{per_device_train_batch_size: 1, gradient_accumulation_steps: 32}}
  strategy_args:
    strategy_name: {strategy}
  device_mapping: {trainers}
actor_infer:
  generating_args: {{num_return_sequences: "${{num_return_sequences_in_group}}"}}
  strategy_args: {{strategy_name: vllm, strategy_config: {{gpu_memory_utilization: 0.6, tensor_parallel_size: 2}}}}
  device_mapping: {engines}
"""
MEGATRON_8 = """megatron_train
    strategy_config:
      tensor_model_parallel_size: 2
      use_distributed_optimizer: true
      recompute_granularity: full"""
FSDP2 = """fsdp2_train
    strategy_config: {param_dtype: bf16, reshard_after_forward: true, fsdp_size: 8}"""


@pytest.mark.parametrize(
    ("strategy", "estimator", "engines", "expected"),
    [
        # an optimizer step trains 1 × 32 × (8 GPUs / tp 2) = 128 of 64 × 8 = 512 answers: 16 prompts, 4 updates
        (
            MEGATRON_8,
            "grpo",
            "list(range(0,8))",
            {
                "gpus": 8,
                "tp": 2,
                "zero": 1,
                "global-batch": 16,
                "updates": 4,
                "samples-per-prompt": 8,
                "seq": 1536,
                "rollout": "colocated:0.6",
                "rollout-tp": 2,
                "reference": "none",
                "recompute": "full",
                "precision": "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32",
            },
        ),
        # 8 ranks train 256 answers at a time; the engine has 4 GPUs of its own
        (
            FSDP2,
            "gae",
            "list(range(8,10)) + list(range(10,12))",
            {
                "task": "ppo",
                "critic": "qwen2.5-7b",
                "gpus": 12,
                "rollout": "separate:4",
                "updates": 2,
                "zero": 3,
                "precision": "bf16-pure",
                "global-batch": 32,
            },
        ),
        (MEGATRON_8, "grpo", "list(range(0,4))", {"rollout": None}),
        (MEGATRON_8, "grpo", "my_devices()", {"rollout": None}),
    ],
)
def test_roll(strategy: str, estimator: str, engines: str, expected: dict[str, Any]) -> None:
    text = ROLL.format(strategy=strategy, estimator=estimator, trainers="list(range(0,8))", engines=engines)
    options, reading = read(text)
    assert reading.format.name == "roll"
    assert {option: options.get(option) for option in expected} == expected


TORCHTUNE = """
model: {_component_: torchtune.models.qwen2_5.lora_qwen2_5_7b, lora_attn_modules: [q_proj], lora_rank: 8}
batch_size: 2
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
"""


def test_torchtune_teacher_with_adapters_and_quantization_aware_training() -> None:
    teacher = "teacher_model: {_component_: torchtune.models.qwen2_5.lora_qwen2_5_14b_instruct}\n"
    found = reading_of(source_of(TORCHTUNE + teacher, "kd.yaml"))
    assert (found.value_of("task"), found.value_of("reference")) == ("distill", "qwen2.5-14b")
    aware = "quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer}\n"
    found = reading_of(source_of(TORCHTUNE + aware, "qat.yaml"))
    assert [one.key for one in found.refused] == ["quantizer._component_"]


def test_a_merge_with_a_finetuning_type_is_no_training() -> None:
    text = "model_name_or_path: meta-llama/Meta-Llama-3-8B\nfinetuning_type: lora\ntemplate: llama3\nexport_dir: out\n"
    with pytest.raises(Refused, match="merges or exports"):
        reading_of(source_of(text, "merge.yaml"))
