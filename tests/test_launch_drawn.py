"""Launch files as public repositories have them: composed by paths, in blocks, for models of experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

NEMO_MIXTURE = """trainer: {devices: 8, num_nodes: 1, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 8
  encoder_seq_length: 32
  num_layers: 2
  hidden_size: 64
  ffn_hidden_size: 128
  num_attention_heads: 4
  num_query_groups: 2
  num_moe_experts: 4
  moe_router_topk: 2
  expert_model_parallel_size: 4
  position_embedding_type: rope
  normalization: rmsnorm
  activation: fast-swiglu
  bias: false
  share_embeddings_and_output_weights: false
  tokenizer: {type: GPT2BPETokenizer}
"""


def reading(text: str, name: str) -> Reading:
    return reading_of(source_of(text, name))


def test_nemo_rl_composes_files_that_it_names_by_paths(tmp_path: Path) -> None:
    """Their keys are the configuration's own, whatever folder they are in (nemo_rl/utils/config.py); `???` leaves what
    a base says, and a block with `_override_` replaces the base's."""
    recipes = tmp_path / "recipes" / "llm"
    recipes.mkdir(parents=True)
    (tmp_path / "grpo.yaml").write_text(
        "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\n"
        "cluster: {gpus_per_node: 8, num_nodes: 1}\n"
        "policy: {model_name: Qwen/Qwen2.5-1.5B, train_global_batch_size: 32, train_micro_batch_size: 2,\n"
        "  max_total_sequence_length: 512, precision: bfloat16, dtensor_cfg: {enabled: true},\n"
        "  generation: {vllm_cfg: {tensor_parallel_size: 2, gpu_memory_utilization: 0.5}}}\n"
    )
    run = recipes / "run.yaml"
    run.write_text(
        "defaults: ../../grpo.yaml\ncluster: {num_nodes: 4}\n"
        "policy: {train_micro_batch_size: '???', generation: {vllm_cfg: {_override_: true, tensor_parallel_size: 4}}}\n"
    )
    found = read_launch(str(run))
    wanted = {"model": "qwen2.5-1.5b", "gpus": 32, "micro-batch": 2, "global-batch": 8, "seq": 512, "rollout-tp": 4}
    assert {name: found.value_of(name) for name in wanted} == wanted
    assert found.value_of("rollout") == "colocated:0.6"  # vLLM's own share in NeMo RL, not the base's
    assert not [one for one in found.not_modelled if "grpo.yaml" in one.key or one.key.startswith(".")]


def test_the_model_of_nemos_experts_is_built(napkin: Napkin, tmp_path: Path) -> None:
    """Attention 2·64·64 + 2·64·32, 4 experts of 3·64·128, a router of 4·64 and 2 norms in each of 2 layers; no biases;
    50,257 tokens padded to a multiple of 128."""
    path = tmp_path / "mixture.yaml"
    path.write_text(NEMO_MIXTURE)
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 4 * 3 * 64 * 128 + 4 * 64 + 2 * 64
    answer = napkin(f"params --from {path} --json")
    assert answer.values["params/total"] == 2 * layer + 64 + 2 * 50304 * 64


def test_a_program_named_pretrain_with_trainers_arguments_is_no_megatron() -> None:
    line = "deepspeed --include localhost:0,2 pretrain_clm.py --model_name_or_path gpt2 --block_size 1024 \\\n"
    found = reading(f"{line}  --per_device_train_batch_size 32 --bf16 --deepspeed ./ds.json\n", "pretrain.sh")
    assert found.format.name == "hf-trainer"
    assert [found.value_of(name) for name in ("gpus", "micro-batch", "seq", "framework")] == [2, 32, 1024, "deepspeed"]
    assert found.value_of("zero") is None  # ds.json is not here


def test_a_block_of_training_arguments_is_enough() -> None:
    """ChatGLM3's and GLM-4's configurations: the program's line names the model."""
    text = "max_input_length: 512\nmax_output_length: 256\ntraining_args:\n  max_steps: 3000\n"
    found = reading(text + "  per_device_train_batch_size: 4\n", "sft.yaml")
    assert [found.value_of(name) for name in ("micro-batch", "steps", "seq", "model")] == [4, 3000, 768, None]


def test_a_programs_own_dtype_of_the_model_is_the_one_it_loads() -> None:
    line = "torchrun --nproc_per_node 4 -m train --model_name_or_path gpt2 --per_device_train_batch_size 2 --bf16"
    assert reading(f"{line}\n", "run.sh").value_of("precision") == "amp-bf16"
    assert reading(f"{line} --model_dtype bfloat16\n", "run.sh").value_of("precision") == "bf16-pure"


def test_a_teacher_asks_for_the_task() -> None:
    own = "model_name_or_path: gpt2\nper_device_train_batch_size: 1\nmax_seq_length: 64\npacking: true\n"
    assert reading(own, "run.yaml").inputs["task"].value == "sft"
    assert reading(own + "teacher: {path: gpt2-xl}\n", "run.yaml").inputs["task"].value is None


def test_primus_description_of_a_model_is_no_gpt_neox() -> None:
    text = "extends: [base.yaml]\nmodel_type: gpt\nnum_layers: 24\nhidden_size: 1024\nmodel_parallel_size: 1\n"
    assert reading(text, "language_model.yaml").format.name not in ("gpt-neox", "megatron-lm")


@pytest.mark.parametrize(
    ("stated", "option", "amount"),
    [
        ("3ep", "epochs", 3),
        ("4", "epochs", 4),
        ("1_000ba", "steps", 1000),
        ("2e9tok", "tokens", 2e9),
        ("9sp", "samples", 9),
    ],
)
def test_composers_durations(stated: str, option: str, amount: float) -> None:
    """composer/core/time.py; a bare number counts epochs (composer/trainer/trainer.py)."""
    assert reading(f"{FOUNDRY}max_duration: {stated}\n", "run.yaml").value_of(option) == amount


def test_a_time_by_the_clock_leaves_the_steps_open_and_an_unknown_unit_is_an_error() -> None:
    for stated in ("1h30m", "45m", "90sec"):
        found = reading(f"{FOUNDRY}max_duration: {stated}\n", "run.yaml").inputs["steps"]
        assert (found.value, found.where) == (None, "max_duration")
    for stated in ("10xyz", "banana", "0.5dur"):
        with pytest.raises(NapkinError, match=r"run.yaml:5: max_duration: .* is not a duration") as raised:
            reading(f"{FOUNDRY}max_duration: {stated}\n", "run.yaml")
        assert raised.value.hint == "a number and one of ba, iter, ep, tok, sp"


FOUNDRY = """model: {name: hf_causal_lm, pretrained_model_name_or_path: gpt2}
max_seq_len: 64
device_train_microbatch_size: 1
global_train_batch_size: 8
"""


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
steps = 100
[parallelism]
tensor_parallel_degree = {tp}
data_parallel_shard_degree = {shard}
"""


def test_torchtitan_accumulates_nothing_by_default(napkin: Napkin, tmp_path: Path) -> None:
    """The global batch is the local one times the data-parallel ranks (job_config.py): 2 × 8 / 2 sequences of 4096 in
    each of 100 steps, which `plan` and `mfu` need too."""
    path = tmp_path / "run.toml"
    path.write_text(TITAN.format(tp=2, shard=-1))
    assert read_launch(str(path)).value_of("grad-accum") == 1
    machine = f"--from {path} --gpus 8 --hardware h100"
    assert napkin(f"plan {machine} --json").data["inputs"]["tokens"]["value"] == 100 * 8 * 4096
    rate = napkin(f"mfu {machine} --step-time 2s --json").values["tokens_per_second_per_gpu"]
    assert rate == pytest.approx(8 * 4096 / 2 / 8)
    path.write_text(TITAN.format(tp=2, shard=-1).replace("steps", "global_batch_size = 64\nsteps"))
    assert read_launch(str(path)).value_of("global-batch") == 64
    assert "grad-accum" not in read_launch(str(path)).inputs


def test_two_launch_files_are_compared(napkin: Napkin, tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(TITAN.format(tp=1, shard=8))
    other.write_text(TITAN.format(tp=2, shard=8))
    answer = napkin(f"compare {one} {other} --json").data
    rows = {row["difference"]: (row["a"], row["b"]) for row in answer["rows"]}
    assert rows.keys() == {"tp, gpus"} or rows.keys() == {"tp", "gpus"}
    memory = [napkin(f"memory --from {file} --json").values["memory/total"] for file in (one, other)]
    assert [row["b"] - row["a"] for row in answer["quantities"] if row["path"] == "memory/total"] == [
        pytest.approx(memory[1] - memory[0])
    ]


def test_another_launch_file_is_a_difference(napkin: Napkin, tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(TITAN.format(tp=1, shard=-1))
    other.write_text(TITAN.format(tp=2, shard=-1))
    error = napkin(f"compare {one} {other}")
    assert error.status == 2
    assert "leaves --gpus open" in error.err
    assert f"napkin compare memory --from {one} … --against from=OTHER" in error.err
    answer = napkin(f"compare memory --from {one} --gpus 8 --against from={other} --json").data
    assert [(row["difference"], row["a"], row["b"]) for row in answer["rows"]] == [("tp", "1", "2")]
    text = napkin(f"compare memory --from {one} --gpus 8 --against from={other}").out
    assert f"napkin memory --from {other} --gpus 8" in text.replace("\\\n        ", "")
    assert napkin(f"compare memory --from {one} --gpus 8 --against from=").status == 2


def test_layers_that_are_frozen_have_an_option_of_their_own(napkin: Napkin) -> None:
    assert "--freeze-layers 16" in napkin("memory llama3-8b --seq 64 --freeze 16").err


def test_a_misspelled_key_in_a_block_that_changes_nothing_is_not_ignored() -> None:
    """verl's `data` and Hydra's blocks: the program would not start, or would take its default."""
    verl = (
        "actor_rollout_ref: {{model: {{path: Qwen/Qwen2.5-7B}}, rollout: {{n: 4}}}}\n"
        "trainer: {{n_gpus_per_node: 8, nnodes: 1, {epochs}: 3, save_freq: 20}}\n"
        "data: {{{length}: 1024, max_response_length: 512, train_files: a}}\n"
    )
    right = reading(verl.format(epochs="total_epochs", length="max_prompt_length"), "run.yaml")
    assert not right.refused
    wrong = reading(verl.format(epochs="total_epoch", length="max_prompt_lenght"), "run.yaml")
    assert {one.key: one.why.rpartition("; ")[2] for one in wrong.refused} == {
        "trainer.total_epoch": "did you mean trainer.total_epochs?",
        "data.max_prompt_lenght": "did you mean data.max_prompt_length?",
    }
    line = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 trainer.total_epoch=3 trainer.nnodes=1\n"
    told = {one.key: one.why for one in reading(line, "run.sh").not_modelled}
    assert told["trainer.total_epoch"].endswith("did you mean trainer.total_epochs?")


def test_no_distribution_starts_one_process() -> None:
    """accelerate's commands/launch.py: a file with distributed_type NO never starts several."""
    found = reading("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 8\n", "one.yaml")
    assert found.value_of("gpus") == 1
    assert [one.key for one in found.not_modelled] == ["num_processes"]
    several = reading("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\n", "ddp.yaml")
    assert several.value_of("gpus") == 8


def test_maxtexts_own_names_of_models() -> None:
    text = "base_config: base.yml\nmodel_name: {}\nper_device_batch_size: 1\nmax_target_length: 64\n"
    for name, meant in (("deepseek3-671b", "deepseek-v3"), ("llama4-17b-16e", "llama4-scout"), ("gpt3-52k", None)):
        assert reading(text.format(name), "run.yml").value_of("model") == meant


def test_nemos_prompt_learning_is_refused() -> None:
    own = NEMO_MIXTURE + "  virtual_prompt_style: p-tuning\n  data: {train_ds: [a.jsonl]}\n"
    found = reading(own, "squad.yaml")
    assert [one.key for one in found.refused] == ["model.virtual_prompt_style"]
    assert "model.data.train_ds" in {one.key for one in found.not_modelled}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("actors: {a: 1}\nservices: {b: 1}\ntrainer: {c: 1}\n", "torchforge"),
        ("settings: {a: 1}\nmodel_raw: {component_key: model}\n", "Modalities"),
        ("train_cfgs: {per_device_train_batch_size: 1}\nmodel_cfgs: {model_max_length: 512}\n", "align-anything"),
        ("runner: {task_type: embodied}\nactor: {a: 1}\ncluster: {num_nodes: 1}\n", "RLinf"),
    ],
)
def test_more_files_of_neighbors_are_named(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        reading(text, "run.yaml")


def test_processes_may_be_as_many_as_gpus() -> None:
    """`num_processes: gpu` is torchrun's word; the number of GPUs is asked."""
    found = reading("distributed_type: MULTI_GPU\nnum_processes: gpu\nmixed_precision: bf16\n", "accelerate.yaml")
    assert (found.inputs["gpus"].value, found.inputs["gpus"].where) == (None, "num_processes")


def test_a_model_without_a_name_is_not_mpt() -> None:
    """MosaicML's example that segments images has the trainer's keys, and a model of its own."""
    text = "max_duration: 128ep\ndevice_train_microbatch_size: auto\nmodel: {backbone_arch: resnet101}\n"
    assert [one.key for one in reading(text, "deeplab.yaml").refused] == ["model.backbone_arch"]
