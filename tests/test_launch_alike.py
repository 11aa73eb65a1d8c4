"""Options that look like another program's: names two programs share, defaults that rest on others, noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

OWN = "torchrun --nproc_per_node 4 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 {}"
SWIFT = "CUDA_VISIBLE_DEVICES={} swift {} --model Qwen/Qwen2.5-7B-Instruct --max_length 2048 {}"
SIZES = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --seq-length 2048 --micro-batch-size 1 --bf16 {}"""
LATENT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 \\
  --ffn-hidden-size 512 --seq-length 128 --micro-batch-size 1 --bf16 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --qk-layernorm \\
  --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32 \\
  --padded-vocab-size 1000 {}
"""


def read(text: str) -> Reading:
    return reading_of(source_of(text, "run.sh"))


def test_finetuning_type_alone_does_not_make_a_program_llama_factorys() -> None:
    own = read(OWN.format("--finetuning_type lora --lora_r 128"))
    assert own.value_of("trainer") != "llama-factory"
    assert (own.value_of("adapter"), own.value_of("lora-rank")) == ("lora", 128)
    for more in ("--stage sft", "--template qwen", "--cutoff_len 512"):
        assert read(OWN.format(f"--finetuning_type lora {more}")).value_of("trainer") == "llama-factory"
    assert read(OWN.format("--stage 2")).value_of("trainer") == "hf-trainer"  # no stage of LLaMA-Factory's


@pytest.mark.parametrize("key", ["finetuning_type", "train_mode"])
def test_a_way_of_training_that_napkin_does_not_know_leaves_the_adapter_open(key: str) -> None:
    sparse = read(OWN.format(f"--{key} sift"))
    assert sparse.inputs["adapter"].value is None
    assert f"--{key}" in [one.key for one in sparse.not_modelled]
    for word in ("full", "sft"):  # all weights, and a task
        assert "adapter" not in read(OWN.format(f"--{key} {word}")).inputs


def test_a_prompt_and_its_response_make_a_sequence_whatever_the_block_size_of_other_data() -> None:
    own = read(OWN.format("--block_size 256 --max_prompt_length 384 --max_response_length 128"))
    assert own.value_of("seq") == 512
    assert "--block_size" in [one.key for one in own.not_modelled]
    assert read(OWN.format("--max_prompt_length 384 --max_response_length $LONG")).value_of("seq") is None


def test_ms_swifts_reference_is_the_model_without_its_adapters() -> None:
    """swift/arguments/rlhf_args.py: only full training loads a reference of its own."""
    grpo = "--rlhf_type grpo --beta 0.04 --max_completion_length 1024"
    assert read(SWIFT.format("0", "rlhf", grpo)).value_of("reference") == "adapters-off"
    assert read(SWIFT.format("0", "rlhf", f"{grpo} --tuner_type full")).value_of("reference") == "same"
    assert read(SWIFT.format("0", "rlhf", f"{grpo} --beta 0")).value_of("reference") == "none"
    assert read(SWIFT.format("0", "rlhf", grpo)).value_of("seq") == 3072


def test_one_process_of_ms_swift_spreads_the_layers_over_the_visible_gpus() -> None:
    two = read(SWIFT.format("1,2", "sft", ""))
    assert two.inputs["gpus"].value is None
    assert any("spreads the layers" in one.why for one in two.not_modelled)
    assert read(SWIFT.format("1", "sft", "")).value_of("gpus") == 1
    assert read("NPROC_PER_NODE=2 " + SWIFT.format("1,2", "sft", "")).value_of("gpus") == 2


def test_the_first_megatrons_name_of_tensor_parallelism() -> None:
    assert read(SIZES.format("--model-parallel-size 4")).value_of("tp") == 4
    assert read(SIZES.format("--model-parallel-size $MP")).inputs["tp"].value is None


@pytest.mark.parametrize(("layers", "recompute"), [(0, "none"), (32, "full")])
def test_a_block_of_no_layers_is_recomputed_nowhere(layers: int, recompute: str) -> None:
    line = f"--recompute-granularity full --recompute-method block --recompute-num-layers {layers}"
    assert read(SIZES.format(line)).value_of("recompute") == recompute


def test_queries_have_a_low_rank_only_where_a_launch_states_it(napkin: Napkin, tmp_path: Path) -> None:
    """arguments.py: --q-lora-rank defaults to None. 256 × 4 × (32 + 16) weights of queries in each of 2 layers; with
    a rank of 96: 256 × 96, a norm of 96, and 96 × 192."""
    counts = []
    for more in ("", "--q-lora-rank 96"):
        path = tmp_path / "run.sh"
        path.write_text(LATENT.format(more))
        counts.append(napkin(f"params --from {path} --json").values["params/total"])
    assert counts[1] - counts[0] == 2 * (256 * 96 + 96 + 96 * 192 - 256 * 192)


def test_slurms_lines_say_nothing_where_the_launcher_states_the_gpus() -> None:
    slurm = "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
    stated = read(slurm + OWN.format(""))
    assert stated.value_of("gpus") == 4
    assert not [one.key for one in stated.not_modelled if "SBATCH" in one.key]


RUN_CLM = "torchrun --nproc_per_node 8 run_clm.py --per_device_train_batch_size 2 --block_size 1024 --bf16 {}"


def test_a_model_of_a_config_is_trained_from_scratch_in_a_dtype_that_depends_on_the_release() -> None:
    """transformers' run_clm.py: without weights to load, from_config(config) makes the model."""
    fresh = read(RUN_CLM.format("--config_name meta-llama/Llama-2-7b-hf"))
    assert (fresh.value_of("model"), fresh.value_of("task")) == ("llama2-7b", "pretrain")
    assert [fresh.inputs[name].origin for name in ("task", "precision")] == ["assumed", "assumed"]
    loaded = read(RUN_CLM.format("--config_name meta-llama/Llama-2-7b-hf --model_name_or_path gpt2"))
    assert (loaded.value_of("model"), loaded.inputs["precision"].origin) == ("gpt2", "derived")


def test_the_file_of_an_adapter_that_a_line_names(tmp_path: Path) -> None:
    settings = tmp_path / "lora.json"
    settings.write_text('{"r": 32, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1, "bias": "none"}')
    script = tmp_path / "run.sh"
    script.write_text(OWN.format("--use_lora True --lora_config lora.json"))
    found = read_launch(str(script))
    options = ("adapter", "lora-rank", "lora-targets", "lora-dropout")
    assert [found.value_of(name) for name in options] == ["lora", 32, "q,v", 0.1]
    script.write_text(OWN.format("--use_lora True --lora_r 8 --lora_config lora.json"))
    assert read_launch(str(script)).value_of("lora-rank") == 8  # the line wins
    settings.unlink()
    gone = read_launch(str(script))
    assert [gone.value_of(name) for name in options] == ["lora", 8, None, None]
    assert any("was not found" in one.why for one in gone.not_modelled)
    script.write_text(OWN.format("--lora_config lora.json"))
    assert read_launch(str(script)).inputs["adapter"].value is None


def test_a_penalty_of_zero_needs_no_reference_in_newer_releases_of_openrlhf() -> None:
    """openrlhf/cli/train_ppo_ray.py makes none; v0.4.1 and its forks load one all the same."""
    line = "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-8B --train_batch_size 64 {}"
    older = read(line.format("--init_kl_coef 0")).inputs["reference"]
    assert (older.value, older.origin) == ("none", "assumed")
    newer = read(line.format("--algo.kl.init_coef 0")).inputs["reference"]
    assert (newer.value, newer.origin) == ("none", "derived")
    assert read(line.format("--init_kl_coef 0.01")).inputs["reference"].origin == "derived"


ROLL = """pretrain: Qwen/Qwen3-30B-A3B
adv_estimator: grpo
rollout_batch_size: 256
actor_train:
  training_args: {per_device_train_batch_size: 1}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {recompute_granularity: selective, recompute_modules: "%s"}
  device_mapping: list(range(0,16))
actor_infer: {device_mapping: "list(range(0,16))"}
"""


@pytest.mark.parametrize(
    ("modules", "recompute"), [("core_attn,moe", "selective:core_attn+moe"), ("moe,gdp_qkv", None)]
)
def test_roll_recomputes_the_modules_that_it_names(modules: str, recompute: str | None) -> None:
    found = reading_of(source_of(ROLL % modules, "roll.yaml"))
    assert found.inputs["recompute"].value == recompute
    assert bool(found.refused) == (recompute is None)


def test_a_line_that_ends_too_early_before_an_array_is_told() -> None:
    """bash runs the words of ${ARGS[@]} as a command of their own."""
    broken = "torchrun train.py --model_name_or_path a --bf16 True\n ${ARGS[@]} \\\n --learning_rate 1e-5\n"
    with pytest.raises(NapkinError, match="begins a new command"):
        read(broken)
    read('"${LAUNCH[@]}" train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --bf16 True\n')


def test_a_script_without_the_file_that_holds_its_command_names_that_file() -> None:
    with pytest.raises(NapkinError, match=r"sources \./train_ppo\.sh, which was not found"):
        read("source ./train_ppo.sh slurm\nsrun bash -c 'torchrun --nproc_per_node 8 -m ${commands}'\n")
    with pytest.raises(NapkinError, match=r"sources CONFIG\.sh, which was not found"):  # Megatron-LM's sc21 scripts
        read("TP=8\nMBS=1\n. `pwd`/CONFIG.sh\n. `pwd`/SBATCH.sh\nexit 0\n")


def yaml(text: str) -> Reading:
    return reading_of(source_of(text, "run.yaml"))


def test_a_programs_own_blocks_are_not_megatron_bridges() -> None:
    own = "optim: {grad_clip: 1.0}\ntrain: {micro_batch_size: 4}\nmodel: {n_layers: 2, dim: 64, n_heads: 4}\n"
    assert "framework" not in yaml(own).inputs
    bridge = yaml("optimizer: {lr: 1e-4}\ntrain: {micro_batch_size: 4}\nmodel: {seq_length: 64}\n")
    assert bridge.value_of("framework") == "megatron-core"


def test_verls_sft_leaves_the_gpus_to_torchrun() -> None:
    text = (
        "data: {micro_batch_size: 16, train_files: a, max_length: 1024}\nmodel: {partial_pretrain: google/gemma-7b%s}\n"
    )
    found = yaml(text % "")
    assert [found.inputs[one].value for one in ("gpus", "micro-batch")] == [None, None]
    away = yaml(text % ", fsdp_config: {cpu_offload: true, offload_params: true}")
    assert away.value_of("offload") == "optimizer,parameters"
    line = (
        "torchrun --nproc_per_node 4 -m verl.trainer.sft_trainer model.path=a engine.strategy=fsdp2 data.train_files=b"
    )
    assert [read(line).value_of(one) for one in ("gpus", "fsdp-version")] == [4, "2"]


def test_megatrons_yaml_is_read_in_its_blocks() -> None:
    """megatron/training/yaml_arguments.py"""
    found = yaml(
        "language_model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, num_moe_experts: 8}\n"
        "model_parallel: {tensor_model_parallel_size: 2, bf16: true}\nmicro_batch_size: 2\nseq_length: 128\n"
    )
    assert found.value_of("tp") == 2
    assert "param=bf16" in str(found.value_of("precision"))
    assert found.shape["experts"] == 8


@pytest.mark.parametrize("more", ["--hybrid-layer-pattern M*E", "--num-layers 2 --audio-encoder-model whisper-base"])
def test_megatrons_models_of_other_parts_are_refused(more: str) -> None:
    line = f"torchrun train.py --micro-batch-size 1 --seq-length 128 --hidden-size 64 --num-attention-heads 4 {more}"
    assert read(line).refused


@pytest.mark.parametrize(
    "line",
    [
        "python hf2mcore_qwen.py --num-layers 4 --hidden-size 64 --seq-length 1 --micro-batch-size 1",
        "torchrun tools.py --num-layers 4 --seq-length 1 --target-tensor-model-parallel-size 2",
    ],
)
def test_a_line_that_converts_a_checkpoint_does_not_train(line: str) -> None:
    with pytest.raises(NapkinError, match="converts a checkpoint"):
        read(line)


def test_maxtexts_reinforcement_learning_is_refused() -> None:
    found = read("python3 -m maxtext.trainers.post_train.rl.train_rl max_target_length=4096 rl.num_generations=8")
    assert (found.value_of("task"), [one.key for one in found.refused]) == ("grpo", ["rl"])


def test_an_unknown_file_of_a_framework_is_not_sent_to_where_it_was_given() -> None:
    with pytest.raises(NapkinError) as error:
        yaml("exp_name: a\nbase_model: meta-llama/Llama-3.1-8B\n")
    assert "--from" not in str(error.value.hint).split("formats")[0].replace("--from FILE", "")


def test_the_default_length_of_trl_is_not_taken_for_a_program_that_is_only_assumed_to_be_trls() -> None:
    assert read(OWN.format("--use_liger True")).inputs["seq"].value is None
    assert read(OWN.format("--use_peft True --lora_r 8")).value_of("seq") == 1024


@pytest.mark.parametrize("start", ["swift rlhf", "megatron rlhf"])
def test_ms_swifts_grpo_has_a_reference_unless_beta_is_zero(start: str) -> None:
    """swift/arguments/rlhf_args.py and swift/megatron/arguments/megatron_args.py: beta is 0.04."""
    line = f"NPROC_PER_NODE=2 {start} --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 512 --tuner_type full {{}}"
    assert read(line.format("")).value_of("reference") == "same"
    assert read(line.format("--beta 0")).value_of("reference") == "none"


VERL = """algorithm: {adv_estimator: gae, kl_ctrl: {kl_coef: 0.001}%s}
actor_rollout_ref: {model: {path: Qwen/Qwen2.5-7B}, actor: {ppo_micro_batch_size_per_gpu: 4}}
"""


def test_verl_before_the_switch_of_the_rewards_penalty_always_had_a_reference() -> None:
    older = yaml(VERL % "").inputs["reference"]
    assert (older.value, older.origin) == ("same", "assumed")
    assert yaml(VERL % ", use_kl_in_reward: false").value_of("reference") == "none"
    line = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a algorithm.kl_ctrl.kl_coef=0.001 {}"
    assert read(line.format("")).inputs["reference"].value is None
    assert read(line.format("algorithm.use_kl_in_reward=False")).value_of("reference") == "none"


def test_a_run_named_qlora_that_states_no_format_of_its_weights_leaves_it_open() -> None:
    text = (
        "model_name_or_path: bigscience/bloom-7b1\nlora_rank: 64\nper_device_train_batch_size: 1\nmax_seq_length: 512\n"
    )
    assert yaml(text + "output_dir: out/bloom-qlora\n").inputs["quantized"].value is None
    assert "quantized" not in yaml(text + "output_dir: out/bloom\n").inputs
    assert yaml(text + "output_dir: out/bloom-qlora\nload_in_4bit: true\n").value_of("quantized") == "nf4"


def test_layers_of_another_attention_are_refused() -> None:
    assert read(SIZES.format("--linear-attention-type gated_delta_net --linear-attention-freq 4")).refused


def test_automodels_function_that_collates_is_no_block() -> None:
    found = yaml(
        "step_scheduler: {global_batch_size: 8, local_batch_size: 1}\n"
        "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, "
        "pretrained_model_name_or_path: Qwen/Qwen3-8B}\n"
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\ndistributed: {strategy: fsdp2, tp_size: 1}\n"
        "dataloader: {collate_fn: nemo_automodel.components.datasets.utils.default_collater}\n"
    )
    assert found.value_of("micro-batch") == 1


def test_layers_of_transformer_engine_leave_gpt_neoxs_precision_open() -> None:
    text = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\npipe_parallel_size: 1\nfp16: {enabled: true}\n"
    assert yaml(text + "te_fp8_format: hybrid\nte_mha: true\n").inputs["precision"].value is None
    assert yaml(text + "te_fp8_format: hybrid\nte_mha: false\n").value_of("precision") == "fp16-mixed"


def test_maxtexts_images_are_refused() -> None:
    text = "base_config: base.yml\nmodel_name: gemma3-4b\nper_device_batch_size: 1\nuse_multimodal: {}\n"
    assert [bool(yaml(text.format(one)).refused) for one in ("true", "false")] == [True, False]


def test_prefix_tuning_trains_no_weights() -> None:
    assert [one.key for one in read(OWN.format("--pre_seq_len 128")).refused] == ["--pre_seq_len"]
    assert not read(OWN.format("--use_lora True --lora_r 8 --num_virtual_tokens 0")).refused


def test_verls_other_models_are_read_in_folders_that_a_variable_names() -> None:
    line = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae actor_rollout_ref.model.path=$HOME/Qwen2.5-3B {} "
        "critic.model.path=$HOME/models/Qwen2.5-3B-Instruct"
    )
    critic = read(line.format("")).inputs["critic"]
    assert (critic.value, critic.origin) == ("qwen2.5-3b", "assumed")
    assert read(line.format("reward_model.prime_model.update=before")).refused


def test_an_attention_that_a_notebook_of_unsloth_names_is_taken() -> None:
    text = (
        "from unsloth import FastVisionModel\nfrom trl import SFTTrainer, SFTConfig\n"
        "model, t = FastVisionModel.from_pretrained('unsloth/Qwen2.5-7B', attn_implementation='eager')\n"
        "model = FastVisionModel.get_peft_model(model, r=8, target_modules=['q_proj'])\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2))\n"
    )
    assert reading_of(source_of(text, "run.py")).value_of("attention") == "eager"


def test_a_command_that_undecided_branches_put_together_is_not_called_broken() -> None:
    text = """ARGS="--model_name_or_path gpt2 --per_device_train_batch_size 2"
if [[ "$BACKEND" == "mpirun" ]]; then APP="python3 train.py --rank 0 $ARGS"; else APP="torchrun train.py $ARGS"; fi
if [[ "$BACKEND" == "mpirun" ]]; then
    ${BIND} ${APP}
else
    ${APP}
fi
"""
    with pytest.raises(NapkinError, match=r"is put together from \$APP, set in an undecided branch"):
        read(text)


@pytest.mark.parametrize(("other", "told"), [("4096", True), ("2048", False), ("null", False)])
def test_another_name_of_an_option_with_another_value_is_told(other: str, told: bool) -> None:
    """TRL's newer name of a length wins over the older one, which a file may still have."""
    own = "model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nper_device_train_batch_size: 2\n"
    file = f"{own}max_seq_length: {other}\nmax_length: 2048\n"
    found = reading_of(source_of(file, "train.yaml"))
    assert found.value_of("seq") == 2048
    assert ("max_seq_length" in [said.key for said in found.not_modelled]) == told
