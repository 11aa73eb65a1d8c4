"""Launch files of different versions: what an empty key, an older name or a default of a time means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin


def read(text: str) -> dict[str, Any]:
    return {name: one.value for name, one in reading_of(source_of(text, "file")).inputs.items()}


AXOLOTL = """base_model: mistralai/Mistral-7B-v0.1
micro_batch_size: 2
sequence_len: 4096
bf16: auto
"""
TRL = """model_name_or_path: mistralai/Mistral-7B-v0.1
dataset_name: HuggingFaceH4/ultrachat_200k
max_length: 2048
per_device_train_batch_size: 2
bf16: true
"""
SWIFT = """#!/bin/bash
NPROC_PER_NODE=4 \\
CUDA_VISIBLE_DEVICES=0,1,2,3 \\
swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type {tuner} --max_length 2048 --learning_rate 1e-4 \\
  --torch_dtype bfloat16 --model_author swift --model_name robot {more}
"""


def test_axolotls_empty_blocks_state_nothing() -> None:
    """Its examples end with `fsdp:` and `fsdp_config:`, which divide nothing: the weights are trained in bf16 alone."""
    empty = read(AXOLOTL + "deepspeed:\nfsdp:\nfsdp_config:\nspecial_tokens:\n")
    assert ("framework" in empty, "zero" in empty, empty["precision"]) == (False, False, "bf16-pure")
    divided = read(AXOLOTL + "fsdp_config:\n  fsdp_offload_params: true\n")
    assert (divided["framework"], divided["zero"], divided["precision"]) == ("fsdp", 3, "amp-bf16")


def test_accelerates_empty_blocks_state_nothing() -> None:
    """Its first default_config.yaml held both blocks, empty, whatever distributes the model."""
    text = "compute_environment: LOCAL_MACHINE\ndeepspeed_config: {}\nfsdp_config: {}\nnum_processes: 4\n"
    copies = read(text + "distributed_type: MULTI_GPU\n")
    assert (copies["zero"], copies["gpus"], "framework" in copies) == (0, 4, False)


def test_a_step_in_backward_is_an_option() -> None:
    """torchtune's single-device recipes step each weight when it has its gradient."""
    text = "model: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 2\nepochs: 1\noptimizer_in_bwd: true\n"
    assert read(text)["optimizer-in-backward"] is True


def test_one_gpu_divides_nothing(napkin: Napkin, tmp_path: Path) -> None:
    """torchtune's distributed recipes are ZeRO-3, which its single-device recipes are not: the file is of both."""
    file = tmp_path / "lora.yaml"
    file.write_text(
        "model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_rank: 8, lora_attn_modules: [q_proj]}\n"
        "batch_size: 2\ntokenizer: {max_seq_len: 512}\noptimizer: {_component_: torch.optim.AdamW}\n"
    )
    for gpus, zero in (("1", "0"), ("8", "3")):
        inputs = napkin(f"memory --from {file} --gpus {gpus} --hardware h100 --json").data["inputs"]
        assert str(inputs["zero"]["value"]) == zero


def test_options_that_a_branch_decides_are_required_from_the_user() -> None:
    """A degree that a variable sets elsewhere is not the default; Hydra's `model=hf_model` chooses a file."""
    text = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.strategy=megatron \\
      model=hf_model actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.n_gpus_per_node=8 \\
      actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=8 \\
      actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=$1 \\
      actor_rollout_ref.rollout.gpu_memory_utilization=$2
    """
    found = read(text)
    assert (found["tp"], found["pp"], found["rollout"], "dp" in found) == (2, None, None, False)


def test_verls_trainer_of_fine_tuning() -> None:
    """sft_trainer_engine.yaml: rows of 1,024 tokens, 256 a step, batches by tokens; another engine is refused."""
    line = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B engine={engine} {more}"
    found = read(line.format(engine="fsdp", more="engine.ulysses_sequence_parallel_size=2 model=hf_model"))
    assert {name: found[name] for name in ("seq", "global-batch", "micro-batch", "cp", "task")} == {
        "seq": 1024,
        "global-batch": 256,
        "micro-batch": None,
        "cp": 2,
        "task": "sft",
    }
    assert read(line.format(engine="fsdp", more="data.use_dynamic_bsz=False"))["micro-batch"] == 4
    other = reading_of(source_of(line.format(engine="veomni", more=""), "file"))
    assert [one.key for one in other.refused] == ["engine"]


def test_a_switch_of_fp8_runs_the_linears_in_it() -> None:
    assert read(AXOLOTL + "fp8: true\n")["precision"] == "param=bf16,grad=bf16,compute=fp8,state=bf16"
    assert read(AXOLOTL + "fp8: true\nfsdp_config: {offload_params: false, version: 2}\n")["precision"] == (
        "param=fp32,grad=fp32,compute=fp8,state=fp32"
    )
    assert read(AXOLOTL + "fp8: false\n")["precision"] == "bf16-pure"


def test_tokens_of_the_line_replace_the_files_samples(napkin: Napkin, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(AXOLOTL + "sample_packing: true\nnum_epochs: 1\n")
    assert napkin(f"train-time --from {file} --gpus 8 --hardware h100 --tokens 1B --mfu 0.4").status == 0


def test_axolotls_batch_size_is_that_of_a_step() -> None:
    """batch_size 12 in micro-batches of 2 are 6 (utils/config: batch_size // micro_batch_size)."""
    assert read(AXOLOTL + "batch_size: 12\n")["grad-accum"] == 6
    assert read(AXOLOTL + "batch_size: 12\ngradient_accumulation_steps: 3\n")["grad-accum"] == 3


def test_activations_on_the_host_are_next_to_what_is_there() -> None:
    text = AXOLOTL + "fsdp_config: {offload_params: true}\ngradient_checkpointing: true\nactivation_offloading: true\n"
    assert read(text)["offload"] == "optimizer,parameters,activations"


@pytest.mark.parametrize(
    ("written", "targets"),
    [
        (r"model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj", "up,down,gate,q,k,v,o"),
        (r".*\.(q_proj|v_proj)$", "q,v"),
        (r"model.layers.[0-3].self_attn.(q|v)_proj", None),  # four layers alone: no word of napkin's
        ("q_proj,v_proj", "q,v"),
    ],
)
def test_targets_may_be_a_regular_expression(written: str, targets: str | None) -> None:
    assert read(AXOLOTL + f"adapter: lora\nlora_r: 8\nlora_target_modules: '{written}'\n")["lora-targets"] == targets


def test_parameters_that_alone_are_trained_are_refused() -> None:
    reading = reading_of(source_of(AXOLOTL + "unfrozen_parameters: [lm_head.weight]\n", "file"))
    assert [one.key for one in reading.refused] == ["unfrozen_parameters"]


def test_a_name_may_say_that_its_weights_are_quantized() -> None:
    """LoRA next to AWQ's weights of 4 bits is not LoRA next to bf16; nothing but adapters is trained next to them."""
    names = {"TechxGenus/Meta-Llama-3-8B-Instruct-AWQ": "int4", "unsloth/Qwen3-8B-bnb-4bit": "nf4-dq"}
    for name, held in names.items():
        text = AXOLOTL.replace("mistralai/Mistral-7B-v0.1", name)
        found = read(text + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n")
        assert (found["quantized"], found["precision"].split(",")[0]) == (held, f"frozen={held.split('-')[0]}")
        whole = reading_of(source_of(text, "file"))
        assert ("quantized" in whole.inputs, [one.key for one in whole.refused]) == (False, ["base_model"])


def test_deepspeed_files_of_a_framework_are_assumed_and_named() -> None:
    """axolotl's zero2.json puts the optimizer on the host; a file of one's own is asked for."""
    shipped = reading_of(source_of(AXOLOTL + "deepspeed: deepspeed_configs/zero2.json\n", "file"))
    stated = {name: (one.value, one.origin) for name, one in shipped.inputs.items() if name in ("zero", "offload")}
    assert stated == {"zero": (2, "assumed"), "offload": ("optimizer", "assumed")}
    assert "deepspeed" in [one.key for one in shipped.not_modelled]
    assert read(AXOLOTL + "deepspeed: mine/zero2.json\n")["zero"] is None


def test_defaults_of_trl_are_those_of_its_time() -> None:
    """TRL recomputes and runs bf16 by default since 2025; it took max_seq_length until July 2025."""
    now = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n"
    today, before = read(now + "max_length: 2048\n"), read(now + "max_seq_length: 2048\n")
    assert (today["recompute"], today["precision"]) == ("full", "amp-bf16")
    assert (before["recompute"], before["precision"]) == ("none", "fp32")


def test_trls_loss_is_that_of_its_time() -> None:
    """chunked_nll since 1.7, which files of today leave out; nll where a key has gone since, or where they say so."""
    sft = TRL + "gradient_accumulation_steps: 4\nuse_peft: true\nlora_r: 16\ndataset_text_field: text\n"
    assert "loss" not in read(sft)
    assert read(sft.replace("max_length", "max_seq_length"))["loss"] == "torch"
    stated = {one: read(f"{sft}loss_type: {one}\n")["loss"] for one in ("nll", "dft", "chunked_nll")}
    assert stated == {"nll": "torch", "dft": "torch", "chunked_nll": "chunked-recomputed"}
    liger = read(sft + "use_liger_kernel: true\n")
    assert (liger["loss"], liger["kernels"]) == ("fused", "liger")


def test_axolotls_liger_is_its_loss_its_kernels_or_both() -> None:
    kernels = "liger_rms_norm: true\nliger_rope: true\nliger_glu_activation: true\n"
    fused = "liger_fused_linear_cross_entropy: true\n"
    found = [
        read(AXOLOTL + more) for more in (fused, kernels, fused + kernels, kernels.replace("rope: true", "rope: false"))
    ]
    assert [(one.get("loss"), one.get("kernels")) for one in found] == [
        ("fused", None),
        ("torch", "liger"),
        ("fused", "liger"),
        (None, None),
    ]
    assert read(AXOLOTL + kernels + "liger_cross_entropy: true\n")["loss"] == "in-place"


def test_axolotls_functions_of_adapters_are_its_kernels() -> None:
    """By default, so nothing is said of them; all three, or not all of them, where one is."""
    lora = AXOLOTL + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    three = [f"lora_{name}_kernel: true\n" for name in ("mlp", "qkv", "o")]
    nothing = ["lora_mlp_kernel:\n"]
    found = [read(lora + "".join(some)).get("kernels") for some in ([], nothing, three, three[:2])]
    assert found == [None, None, "axolotl", "none"]


def test_axolotls_functions_of_adapters_run_next_to_ligers_kernels() -> None:
    """They are on by default for LoRA, and Liger's plugin does not turn them off; not for DPO, not for code of a
    model's own, and not where a file says no (axolotl utils/schemas/config.py, check_auto_enable_lora_kernels)."""
    lora = AXOLOTL + "liger_rms_norm: true\nliger_rope: true\nliger_glu_activation: true\n"
    lora += "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    three = "".join(f"lora_{name}_kernel: true\n" for name in ("mlp", "qkv", "o"))
    said = ["", three, three.replace("true", "false"), "trust_remote_code: true\n", "rl: dpo\n", f"rl: dpo\n{three}"]
    both, liger = "axolotl-liger", "liger"
    assert [read(lora + more)["kernels"] for more in said] == [both, both, liger, liger, liger, both]


def test_transformers_own_examples_are_not_trls() -> None:
    """run_clm.py takes a dataset_name too; TrainingArguments neither recompute nor run bf16 unless told so."""
    line = "torchrun --nproc_per_node 8 {program} --model_name_or_path gpt2-xl --dataset_name wikitext {more}"
    found = read(line.format(program="examples/run_clm.py", more="--per_device_train_batch_size 4 --block_size 512"))
    assert (found["trainer"], found["recompute"], found["precision"]) == ("hf-trainer", "none", "fp32")
    assert (found["seq"], found["gpus"], "task" in found) == (512, 8, False)
    dpo = read(line.format(program="trl/scripts/dpo.py", more="--per_device_train_batch_size 4 --learning_rate 1e-6"))
    assert (dpo["trainer"], dpo["task"], dpo["recompute"]) == ("trl", "dpo", "full")
    other = reading_of(source_of(line.format(program="run_glue.py", more="--learning_rate 1 --bf16"), "file"))
    assert [one.key for one in other.refused] == ["run_glue.py"]


def test_modules_that_are_trained_next_to_adapters_are_read() -> None:
    """Chinese-LLaMA's run_pt.sh: embedding and head are trained in full next to LoRA on `--trainable`."""
    found = read(
        "torchrun --nproc_per_node 1 run_clm_pt_with_peft.py --model_name_or_path llama2-7b --bf16 --block_size 9 "
        "--per_device_train_batch_size 1 --lora_rank 64 --trainable q_proj,v_proj "
        "--modules_to_save embed_tokens,lm_head"
    )
    assert (found["lora-targets"], found["modules-to-save"]) == ("q,v", "embed_tokens,lm_head")


def test_megatrons_arguments_in_yaml() -> None:
    """Its functional tests and the MoE model zoo keep the arguments in a block, next to variables."""
    found = read(
        "ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n"
        "  --num-attention-heads: 8\n  --micro-batch-size: 4\n  --global-batch-size: 32\n  --seq-length: 1024\n"
        "  --tensor-model-parallel-size: 2\n  --sequence-parallel: true\n  --bf16: true\n  --train-iters: 50\n"
    )
    expected = {"tp": 2, "sp": True, "micro-batch": 4, "global-batch": 32, "seq": 1024, "steps": 50}
    assert {name: found[name] for name in expected} == expected
    assert found["framework"] == "megatron-core"


NEMO = """
name: {name}
trainer: {{devices: 8, num_nodes: 1, precision: bf16, max_steps: 50}}
model:
  micro_batch_size: 4
  global_batch_size: 64
  restore_from_path: ???
  peft: {{peft_scheme: lora, lora_tuning: {{adapter_dim: 32, target_modules: [attention_qkv, attention_dense]}}}}
  data: {{train_ds: {{max_seq_length: 2048}}}}
  optim: {{name: fused_adam}}
"""


def test_nemos_adapters_and_its_other_models() -> None:
    """attention_qkv is q, k and v in one linear; a vision tower or Griffin has a decoder's sizes and is none."""
    found = read(NEMO.format(name="llama_lora"))
    assert (found["lora-targets"], found["seq"], found["lora-rank"]) == ("q,k,v,o", 2048, 32)
    longer = NEMO.format(name="llama").replace("restore", "encoder_seq_length: 1024\n  restore")
    assert read(longer)["seq"] == 2048  # the data set's pads and truncates, in gpt_sft_dataset.py
    for text in (NEMO.format(name="griffin_sft"), NEMO.format(name="a") + "  mm_cfg: {llm: {freeze: true}}\n"):
        assert len(reading_of(source_of(text, "file")).refused) == 1


def test_neox_formats_of_its_versions() -> None:
    """Pythia 1B: bf16 was written as a type of fp16 until 2023; without either block it is fp32."""
    text = '{"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "train_micro_batch_size_per_gpu": 4'
    assert read(text + ', "fp16": {"enabled": true, "type": "bfloat16"}}')["precision"] == "bf16-mixed"
    assert read(text + ', "fp16": {"enabled": true}}')["precision"] == "fp16-mixed"
    assert read(text + "}")["precision"] == "fp32"


def test_swifts_launch_lines() -> None:
    """LoRA of rank 8 on all linears; accumulation left out makes 16 samples: ⌈16 / (1 × 4)⌉ = 4; model_name is no
    model; zero3_offload is its own file."""
    plain = read(SWIFT.format(tuner="lora", more="--deepspeed zero3_offload"))
    expected = {"model": "qwen2.5-7b", "gpus": 4, "micro-batch": 1, "grad-accum": 4, "lora-rank": 8, "zero": 3}
    assert {name: plain[name] for name in expected} == expected
    assert (plain["offload"], plain["lora-targets"], plain["recompute"]) == ("optimizer,parameters", "all", "full")
    older = read(SWIFT.format(tuner="full", more="").replace("--tuner_type", "--train_type"))
    assert ("adapter" in older, older["precision"]) == (False, "bf16-pure")


def test_megatron_of_swift() -> None:
    """Megatron's defaults there: micro-batch 1, global batch 16, selective recomputation, distributed optimizer."""
    text = SWIFT.format(tuner="full", more="--tensor_model_parallel_size 2 --sequence_parallel true")
    found = read(text.replace("swift sft", "megatron sft"))
    expected = {"tp": 2, "sp": True, "micro-batch": 1, "global-batch": 16, "zero": 1, "recompute": "selective"}
    assert {name: found[name] for name in expected} == expected
    assert found["framework"] == "megatron-core"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from xtuner.model import SupervisedFinetune\nbatch_size = 1\nmax_length = 2048\n", "xtuner"),
        ("experiment_name: a\ntrial_name: b\ncluster: {n_nodes: 1}\nrollout: {backend: 'vllm:d1'}\n", "AReaL"),
        ("step_scheduler: {max_steps: 8}\nmodel: {_target_: a.b}\n", "NeMo AutoModel"),
        (
            "python tools/generate_samples_gpt.py --tensor-model-parallel-size 1 --num-layers 24 --hidden-size 2048 "
            "--num-attention-heads 32 --micro-batch-size 400 --seq-length 2048\n",
            "generation",
        ),
        (
            "torchrun tools/retro/main.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16\n",
            "tasks or tools",
        ),
        ("python tools/create_doc_index.py --num-layers 12 --hidden-size 768 --num-attention-heads 12\n", "generation"),
        ("torchrun -m torchtitan.train --module llama3 --config llama3_8b\n", "torchtitan"),
        ("model: {class_path: mine.DPO}\ntrainer: {max_epochs: 3}\n", "LightningCLI"),
        ("model: {_component_: torchtune.models.llama3.llama3_8b}\nmax_new_tokens: 300\ntop_k: 3\n", "generation"),
        ("model_name_or_path: a\nadapter_name_or_path: b\nexport_dir: c\n", "merging"),
    ],
)
def test_files_of_neighbors_are_named(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        read(text)


@pytest.mark.parametrize(
    ("text", "dropout"),
    [
        (AXOLOTL + "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_dropout: 0.1\n", 0.1),
        (AXOLOTL + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n", None),
        (TRL + "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj]\n", 0.05),
        (TRL + "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj]\nlora_dropout: 0.0\n", 0.0),
    ],
)
def test_dropout_of_adapters_is_the_files_or_the_librarys(text: str, dropout: float | None) -> None:
    """TRL's ModelConfig drops 0.05, peft's LoraConfig, which axolotl fills, nothing."""
    assert read(text).get("lora-dropout") == dropout
