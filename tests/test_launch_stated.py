"""What a file states is read, or left open: no default takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import Said
from napkin.inputs.launch.syntax import source_of
from napkin.inputs.launch.tables import Tables
from tests.conftest import Napkin

ACTOR = "actor_rollout_ref.actor"
VERL = f"""python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 {ACTOR}.ppo_mini_batch_size=32 actor_rollout_ref.rollout.n=8 {{}}
"""
MEGATRON = f"{ACTOR}.strategy=megatron {ACTOR}.megatron.tensor_model_parallel_size=4 "


def verl(more: str) -> Reading:
    return reading_of(source_of(VERL.format(more), "run.sh"))


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        (f"{MEGATRON}{ACTOR}.megatron.sequence_parallel=False", "sp", False),
        (MEGATRON, "sp", True),
        (f"{MEGATRON}{ACTOR}.megatron.use_distributed_optimizer=False", "zero", 0),
        (MEGATRON, "zero", 1),
        (f"{MEGATRON}{ACTOR}.megatron.dtype=float16", "precision", "fp16-mixed"),
        (f"{ACTOR}.fsdp_config.dtype=float16", "precision", "param=fp32,grad=fp32,compute=fp16,state=fp32"),
        (
            f"{ACTOR}.optim.optimizer=AdamW8bit {ACTOR}.optim.optimizer_impl=bitsandbytes.optim",
            "optimizer",
            "adamw-8bit",
        ),
        (f"{ACTOR}.optim.optimizer=SGD", "optimizer", "sgd"),
        ("", "optimizer", "adamw"),
    ],
)
def test_verls_actor(more: str, option: str, value: object) -> None:
    assert verl(more).value_of(option) == value


def test_verls_optimizer_on_the_cpu_is_not_called_irrelevant() -> None:
    key = f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"
    told = verl(f"{MEGATRON}+{key}=True {ACTOR}.optim.lr=1e-6")
    assert key in [one.key for one in told.not_modelled]
    assert f"{ACTOR}.optim.lr" in told.ignored


def test_verl_without_its_hybrid_engine_generates_on_gpus_of_their_own() -> None:
    """verl/experimental/{fully_async_policy,one_step_off_policy}: rollout's pool comes on top of trainer's."""
    apart = "actor_rollout_ref.hybrid_engine=False actor_rollout_ref.rollout.gpu_memory_utilization=0.8 {}"
    pool = "rollout.nnodes=3 rollout.n_gpus_per_node=8 async_training.require_batches=4 rollout.total_rollout_steps=512"
    read = verl(apart.format(pool))
    assert (read.value_of("rollout"), read.value_of("gpus")) == ("separate:24", 16 + 24)
    assert (read.value_of("updates"), read.value_of("samples"), read.value_of("off-policy-steps")) == (4, 512, 1)
    usual = verl(apart.format("rollout.nnodes=2"))  # of 8 GPUs each
    assert (usual.value_of("rollout"), usual.value_of("gpus")) == ("separate:16", 32)
    for unknown in ("", "rollout.nnodes=$NODES"):
        asked = verl(apart.format(unknown))
        assert asked.inputs["rollout"].value is None
        assert asked.inputs["gpus"].value is None
    assert verl("actor_rollout_ref.rollout.gpu_memory_utilization=0.8").value_of("rollout") == "colocated:0.8"


def test_a_default_does_not_replace_a_key_that_no_rule_has_read() -> None:
    source = source_of("dropout: 0.5\nwidth: 8\n", "own.yaml")
    reading = Reading(source, Tables("own", "own", "", {}, {}, frozenset()))
    reading.default("dropout", 0.1, "dropout")
    assert reading.inputs["dropout"].value is None
    source.get("width")  # a rule has looked at it
    reading.default("hidden", 16, "width")
    reading.default("layers", 2, "depth")
    assert (reading.value_of("hidden"), reading.value_of("layers")) == (16, 2)


ROLL = """adv_estimator: grpo
pretrain: Qwen/Qwen2.5-7B
actor_train:
  training_args: {optim: adamw_8bit}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
"""


def test_rolls_optimizer() -> None:
    assert reading_of(source_of(ROLL, "rlvr.yaml")).value_of("optimizer") == "adamw-8bit"
    usual = ROLL.replace("optim: adamw_8bit", "learning_rate: 1.0e-6")
    assert reading_of(source_of(usual, "rlvr.yaml")).value_of("optimizer") == "adamw"


def test_rolls_group_of_one_is_all_ranks() -> None:
    """fsdp2_strategy.py, create_device_mesh_with_ep: at most 1 shards over the whole world."""
    for size, shard in ((0, None), (1, None), (4, 4)):
        strategy = f"{{strategy_name: fsdp2_train, strategy_config: {{fsdp_size: {size}}}}}"
        text = ROLL.replace("{strategy_name: fsdp2_train}", strategy)
        assert reading_of(source_of(text, "rlvr.yaml")).value_of("dp-shard") == shard


LINGUA = """name: small
steps: 100
optim: {lr: 3e-3}
distributed: {fsdp_type: full_shard, compile: true, model_dtype: bf16}
{}model: {dim: 2048, n_layers: 25, n_heads: 16}
data: {batch_size: 4, seq_len: 4096}
"""


@pytest.mark.parametrize(("kind", "refused"), [("", []), ("model_type: minGRU\n", ["model_type"])])
def test_a_block_of_sizes_does_not_make_a_trainers_file_a_description_of_a_model(kind: str, refused: list[str]) -> None:
    found = reading_of(source_of(LINGUA.replace("{}", kind), "gru.yaml"))
    assert found.format.name == "lingua"
    assert [one.key for one in found.refused] == refused


def test_a_wrapped_block_has_the_same_format_inside_and_out() -> None:
    with pytest.raises(NapkinError, match="no format that napkin knows"):
        reading_of(source_of("model_type: own\nmodel: {dim: 64, n_layers: 2, n_heads: 4}\n", "own.yaml"))


def test_torchtitans_registry_sets_what_a_line_in_tokens_omits() -> None:
    line = "MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --parallelism.tensor_parallel_degree=2 --training.steps 20 {}"
    with pytest.raises(Refused, match="names a function that makes its configuration"):
        reading_of(source_of(line.format("--training.num_tokens_per_microbatch_per_dp_rank 8192"), "run.sh"))


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 8192
{}
[parallelism]
data_parallel_shard_degree = 8
"""
HF = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nfsdp: full_shard\nfsdp_config:\n  {}\n"
FOUNDRY = "device_train_microbatch_size: 2\nmax_seq_len: 64\nfsdp_config: {shardng_strategy: FULL}\n"
AXOLOTL = """base_model: meta-llama/Meta-Llama-3-8B
sequence_len: 4096
{}
"""


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        (TITAN.format("local_batchsize = 1"), "training.local_batchsize", "training.local_batch_size"),
        (TITAN.format("global_batch_sizes = 64"), "training.global_batch_sizes", "training.global_batch_size"),
        (AXOLOTL.format("micro_batchsize: 2"), "micro_batchsize", "micro_batch_size"),
        (AXOLOTL.format("Micro_Batch_Size: 2"), "Micro_Batch_Size", "micro_batch_size"),
        (AXOLOTL.format("gradient_checkpoint: true"), "gradient_checkpoint", "gradient_checkpointing"),
        (AXOLOTL.format("optimzer: adamw_torch"), "optimzer", "optimizer"),
        (AXOLOTL.format("bf61: true"), "bf61", "bf16"),
        (AXOLOTL.format("fp4: true"), "", ""),  # another number is no slip of fp8
        (AXOLOTL.format("use_magic_memory: true"), "", ""),
        (AXOLOTL.format("micro_batch_size: 2\nmicro_batchsize: 2"), "", ""),  # the key itself is there
    ],
)
def test_a_misspelled_key_of_a_file_of_settings_is_refused(text: str, key: str, near: str) -> None:
    told = reading_of(source_of(text, "train.cfg")).refused
    assert [(one.key, one.why.partition("did you mean ")[2]) for one in told] == ([(key, f"{near}?")] if key else [])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (AXOLOTL.format("micro_batch_size: 2\nfsdp_config:\n  fsdp_offload_parms: true"), "fsdp_offload_params"),
        (HF.format("activation_checkpoint: true"), "activation_checkpointing"),
        (FOUNDRY, "sharding_strategy"),
    ],
)
def test_a_misspelled_key_of_a_block_whose_other_keys_are_not_modeled(text: str, key: str) -> None:
    told = reading_of(source_of(text, "train.yaml")).refused
    assert [one.why.partition("did you mean ")[2] for one in told] == [f"fsdp_config.{key}?"]


def test_a_launch_line_of_a_program_may_have_options_like_a_frameworks() -> None:
    line = "torchrun --nproc_per_node 4 own.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 "
    own = reading_of(source_of(f"{line} --lora_target_module q_proj", "run.sh"))
    assert not own.refused
    assert "--lora_target_module" in [one.key for one in own.not_modelled]


def refusing(text: str, name: str = "train.yaml") -> str:
    with pytest.raises(NapkinError) as caught:
        reading_of(source_of(text, name))
    return caught.value.message


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {}
mixed_precision: {}
num_processes: 8
"""


def test_words_that_accelerate_does_not_have() -> None:
    assert "mixed_precision: 'bf8' is not one of" in refusing(ACCELERATE.format("FSDP", "bf8"))
    told = reading_of(source_of(ACCELERATE.format("FSDPP", "no"), "acc.yaml")).refused
    assert [(one.key, one.option) for one in told] == [("distributed_type", "framework")]
    for kind in ("FSDP", "DEEPSPEED", "MULTI_GPU", "'NO'"):
        assert not reading_of(source_of(ACCELERATE.format(kind, "no"), "acc.yaml")).refused


ZERO_RANKS = "pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --tensor-model-parallel-size 0"
RL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref."
DPO = "deepspeed --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen3-8B --max_len 512 "
NEOX = '{"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "seq_length": 64, "%s": 0}'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (TITAN.format("steps = 1") + "tensor_parallel_degree = 0\n", "train.toml"),
        (ZERO_RANKS, "run.sh"),
        (NEOX % "model_parallel_size", "a.yml"),
        (f"{RL}actor.ulysses_sequence_parallel_size=0", "run.sh"),
        (f"{RL}actor.fsdp_config.fsdp_size=0", "run.sh"),
        (f"{DPO}--ring_attn_size 0", "run.sh"),
        (ACCELERATE.format("FSDP", "no") + "parallelism_config:\n  parallelism_config_tp_size: 0\n", "a.yaml"),
        ("base_config: base.yml\nper_device_batch_size: 1\nici_tensor_parallelism: 0\n", "a.yml"),
        ('{"train_batch_size": 8, "sequence_parallel_size": 0}', "a.json"),
        (AXOLOTL.format("micro_batch_size: 1\nexpert_parallel_size: 0"), "a.yaml"),
        ("model: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 2\ntensor_parallel_dim: 0\n", "a.yaml"),
        ("swift sft --model Qwen/Qwen3-8B --per_device_train_batch_size 1 --sequence_parallel_size 0", "run.sh"),
    ],
)
def test_a_degree_of_zero_is_no_degree(text: str, name: str) -> None:
    """Their frameworks divide by it or assert that it is 1 or more."""
    assert "0 is not a whole number above 0" in refusing(text, name)


@pytest.mark.parametrize(
    ("text", "name", "option"),
    [
        (NEOX % "pipe_parallel_size", "a.yml", "pp"),  # neox_args.py: no PipelineModule
        ('{"train_batch_size": 8, "tensor_parallel": {"autotp_size": 0}}', "a.json", "tp"),  # deepspeed/__init__.py
        (AXOLOTL.format("micro_batch_size: 1\ncontext_parallel_size: 0"), "a.yaml", "cp"),  # schemas/validation.py
    ],
)
def test_a_degree_that_zero_turns_off(text: str, name: str, option: str) -> None:
    assert reading_of(source_of(text, name)).inputs[option].value == 1


def test_torchforge_states_its_processes() -> None:
    """apps/sft/llama3_8b.yaml: torchtitan's sections in YAML, and the processes that the trainer starts."""
    text = """model: {name: llama3, flavor: 8B}
processes: {procs: 8, with_gpus: true}
training: {local_batch_size: 1, seq_len: 2048, steps: 1000}
parallelism: {data_parallel_shard_degree: -1, tensor_parallel_degree: 2}
"""
    found = reading_of(source_of(text, "llama3_8b.yaml"))
    assert [found.value_of(option) for option in ("gpus", "tp", "model")] == [8, 2, "llama3.1-8b"]


def test_deepspeed_accumulates_bf16_gradients_in_fp32_where_told() -> None:
    """runtime/engine.py: the accumulation's format is the model's unless data_types.grad_accum_dtype names another."""
    wide = "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"
    for told, policy in (("fp32", wide), ("bf16", "bf16-mixed")):
        types = f'"bf16": {{"enabled": true}}, "data_types": {{"grad_accum_dtype": "{told}"}}'
        neox = f"{(NEOX % 'pipe_parallel_size')[:-1]}, {types}}}"
        for text, name in ((f'{{"train_batch_size": 8, {types}}}', "a.json"), (neox, "a.yml")):
            assert reading_of(source_of(text, name)).value_of("precision") == policy


def test_megatron_starts_with_one_16_bit_format() -> None:
    line = "pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --bf16 {}"
    told = reading_of(source_of(line.format("--fp16"), "run.sh")).refused
    assert [(one.key, one.option) for one in told] == [("--fp16", "precision")]
    assert not reading_of(source_of(line.format(""), "run.sh")).refused


PRIMUS = """work_group: amd
modules:
  pre_trainer:
    framework: {}
    model: llama3.1_8B.yaml
    overrides: {{flavor: llama31_8b, micro_batch_size: 2, seq_length: 8192, tensor_model_parallel_size: 2}}
"""


def test_primus_over_a_recipe_leaves_open_what_the_recipe_sets() -> None:
    bridge = reading_of(source_of(PRIMUS.format("megatron_bridge"), "own.yaml"))
    assert [bridge.value_of(one) for one in ("micro-batch", "seq", "tp")] == [2, 8192, 2]
    assert all(bridge.inputs[one].value is None for one in ("recompute", "zero", "precision", "pp"))
    assert reading_of(source_of(PRIMUS.format("megatron"), "own.yaml")).value_of("recompute") == "none"
    unknown = reading_of(source_of(PRIMUS.format("megatronn"), "own.yaml"))
    assert [one.key for one in unknown.refused] == ["modules.pre_trainer.framework"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\n{% if big %}\nb: 2\n{% endif %}\n", "train.yaml:2: is a template with statements"),
        ("a: 1\nb: 2\n<<<<<<< HEAD\nc: 1\n=======\nc: 2\n>>>>>>> other\n", "train.yaml:3: holds a merge conflict"),
    ],
)
def test_unfinished_files_are_named_as_such(text: str, says: str) -> None:
    assert says in refusing(text)


def test_backticks_are_command_substitutions_like_any() -> None:
    line = "N=`{}`; python pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --micro-batch-size $N"
    asked = reading_of(source_of(line.format("cat n"), "run.sh")).inputs["micro-batch"]
    assert (asked.value, asked.unknown) == (None, "the output of $(cat n)")
    assert reading_of(source_of(line.format("echo a b c | wc -w"), "run.sh")).value_of("micro-batch") == 3
    assert reading_of(source_of(line.format("(cat n; cat m)"), "run.sh")).value_of("micro-batch") is None


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("optimizer: own_optimizer", "--optimizer adamw"),
        ("rl: magic", "--task dpo"),
        ("adapter: llama-adapter", "--adapter lora --lora-rank 8"),
    ],
)
def test_the_command_line_wins_over_a_word_that_napkin_does_not_have(
    napkin: Napkin, tmp_path: Path, line: str, typed: str
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(AXOLOTL.format(f"micro_batch_size: 1\nbf16: true\n{line}"))
    assert napkin(f"memory --from {path} --hardware h100").status == 3
    assert napkin(f"memory --from {path} --hardware h100 {typed}").status == 0


def put(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_the_sweep_that_a_list_means_has_the_files(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "train.yaml", AXOLOTL.format("micro_batch_size: 1\nbf16: true"))
    told = napkin(f"memory --from {path} --hardware h100 --micro-batch 1,2")
    hint = told.err.partition("hint: napkin ")[2].splitlines()[0]
    assert f"--from {path} " in hint
    assert napkin(hint).status == 0


def test_lint_says_which_of_several_files_it_cannot_read(napkin: Napkin, tmp_path: Path) -> None:
    good = put(tmp_path, "train.yaml", AXOLOTL.format("micro_batch_size: 1\nbf16: true"))
    bad = put(tmp_path, "zero.json", '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}')
    told = napkin(f"lint {good} {bad}")
    assert told.status == 2
    assert f"error: {bad}: MODEL is missing" in told.err


def test_lint_marks_files_that_it_cannot_read_for_ci(napkin: Napkin, tmp_path: Path) -> None:
    bad = put(tmp_path, "train.yaml", AXOLOTL.format("micro_batch_size: 1\n\tbf16: true"))
    told = napkin(f"lint {bad} --annotations github")
    assert told.status == 2
    assert f"::error file={bad},line=4,title=cannot be checked::not YAML" in told.out
    assert "NO FINDINGS" not in told.out


def test_plan_divides_over_all_ranks_whatever_a_file_does(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "titan.toml", TITAN.format("local_batch_size = 1"))
    assert napkin(f"plan --from {path} --hardware h100 --global-batch 64").status == 0


def names(found: list[Said]) -> set[str]:
    return {one.key for one in found}


def test_settings_of_forks_that_change_what_a_step_generates_are_told() -> None:
    told = verl("trainer.rejection_sample=True algorithm.filter_groups.metric=acc trainer.save_freq=5 algorithm.lam=1")
    assert {"trainer.rejection_sample", "algorithm.filter_groups.metric"} <= names(told.not_modelled)
    assert {"trainer.save_freq", "algorithm.lam"} <= set(told.ignored)
    drawn = NEMO_RL.format("use_dynamic_sampling: true, batch_multiplier: 3, seed: 1")
    assert {"grpo.use_dynamic_sampling", "grpo.batch_multiplier"} <= names(
        reading_of(source_of(drawn, "g.yaml")).not_modelled
    )


NEMO_RL = """policy:
  model_name: Qwen/Qwen2.5-7B
  train_global_batch_size: 512
  train_micro_batch_size: 4
  max_total_sequence_length: 4096
  dtensor_cfg: {{enabled: false, tensor_parallel_size: 8}}
  megatron_cfg: {{enabled: true, tensor_model_parallel_size: 2, defer_fp32_logits: true}}
grpo: {{num_prompts_per_step: 32, num_generations_per_prompt: 16, {}}}
cluster: {{gpus_per_node: 8, num_nodes: 1}}
"""


def test_of_nemo_rls_two_backends_the_disabled_one_is_irrelevant() -> None:
    told = reading_of(source_of(NEMO_RL.format("seed: 1"), "grpo.yaml"))
    assert told.value_of("tp") == 2
    assert "policy.megatron_cfg.defer_fp32_logits" in names(told.not_modelled)
    assert not any(one.startswith("policy.dtensor_cfg") for one in names(told.not_modelled))


def test_deepspeeds_blocks_that_change_sizes_while_enabled() -> None:
    blocks = '"elasticity": {"enabled": ON}, "curriculum_learning": {"enabled": ON}'
    text = '{"train_micro_batch_size_per_gpu": 2, ' + blocks + "}"
    on, off = (reading_of(source_of(text.replace("ON", word), "ds.json")) for word in ("true", "false"))
    assert {"elasticity", "curriculum_learning"} <= {one.partition(".")[0] for one in names(on.not_modelled)}
    assert not names(off.not_modelled)


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("srun --nodes=4 --gres=gpu:8 --ntasks-per-node=8 python t.py {}", 32),
        ("srun --nodes 2 --ntasks-per-node 4 python t.py {}", 8),
        ("srun --nodes=4 --gres=gpu:8 --ntasks-per-node=1 python t.py {}", None),  # one process of 8 GPUs, or of one
        ("srun --nodes=4 --gres=gpu:8 torchrun --nproc_per_node 2 --nnodes 3 t.py {}", 6),
    ],
)
def test_srun_tells_the_gpus_of_what_it_starts(line: str, gpus: int | None) -> None:
    own = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --num_train_epochs 1"
    assert reading_of(source_of(line.format(own), "run.sh")).value_of("gpus") == gpus


def test_composers_algorithms_are_told_except_clipping() -> None:
    text = """max_seq_len: 2048
model: {name: hf_causal_lm, pretrained_model_name_or_path: meta-llama/Meta-Llama-3-8B}
device_train_microbatch_size: 1
algorithms: {gradient_clipping: {clipping_threshold: 1.0}, seq_length_warmup: {duration: 0.3}}
"""
    told = names(reading_of(source_of(text, "train.yaml")).not_modelled)
    assert {one.split(".")[1] for one in told if one.startswith("algorithms.")} == {"seq_length_warmup"}


@pytest.mark.parametrize(
    ("name", "preset", "origin"),
    [
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1", "from file"),
        ("unsloth/Llama-3.1-8B", "llama3.1-8b", "from file"),  # a copy
        ("Intel/neural-chat-7b-v3-1", "mistral-7b-v0.1", "assumed"),
        ("OpenRLHF/Llama-3-8b-sft-mixture", "llama3-8b", "assumed"),
    ],
)
def test_a_fine_tune_is_assumed_to_have_its_bases_shape(name: str, preset: str, origin: str) -> None:
    found = reading_of(source_of(AXOLOTL.replace("meta-llama/Meta-Llama-3-8B", name).format("lora_r: 8"), "own.yaml"))
    assert (found.value_of("model"), found.inputs["model"].origin) == (preset, origin)


NEMO = """python3 pretrain.py --config-path=conf --config-name=pretrain_small trainer.num_nodes=4 trainer.devices=8 \\
  trainer.max_steps=100 model.micro_batch_size=2 model.tensor_model_parallel_size=1
"""


def test_what_a_missing_settings_file_may_set_in_a_block_is_asked() -> None:
    told = reading_of(source_of(NEMO, "run.sh"))
    assert (told.value_of("gpus"), told.value_of("micro-batch")) == (32, 2)
    assert told.inputs["recompute"].value is None
    absent = [one.key for one in told.not_modelled if one.why.startswith("was not found")]
    assert len(absent) == 1


def test_megatrons_older_switch_of_whole_experts_is_where_its_recomputation_is_from() -> None:
    line = "pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --moe-layer-recompute"
    assert reading_of(source_of(line, "run.sh")).inputs["recompute"].where == "--moe-layer-recompute"


def test_sizes_of_a_file_that_make_no_model_are_told_with_the_file(napkin: Napkin, tmp_path: Path) -> None:
    sizes = "hidden_size: 64, intermediate_size: 128, num_attention_heads: 5, num_key_value_heads: 2, vocab_size: 100"
    text = f"""model:
  model_config: {{is_llama_config: true, {sizes}, num_hidden_layers: 2, max_position_embeddings: 64}}
tokens: {{micro_batch_size: 1, sequence_length: 64, batch_accumulation_per_replica: 1, train_steps: 10}}
parallelism: {{dp: 1, tp: 1, pp: 1}}
"""
    path = put(tmp_path, "nanotron.yaml", text)
    assert napkin(f"memory --from {path} --hardware h100").err.startswith(f"error: {path}: num_key_value_heads: 5")
