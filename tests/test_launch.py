"""Launch files of other frameworks: what they mean in napkin's options, and what hostile ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.inputs.launch.read import formats, reading_of
from napkin.inputs.launch.syntax import source_of
from napkin.inputs.launch.written import written
from tests.conftest import Napkin, Outcome

AXOLOTL = """
base_model: Qwen/Qwen3-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 100
num_epochs: 3
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
attn_implementation: flash_attention_2
wandb_project: mine
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
steps = 1_000
[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
[quantize.linear.float8]
filter_fqns = ["output"]
"""
MEGATRON = r"""#!/bin/bash
#SBATCH --nodes=2
GPUS=8
TP=${TP:-2}
LAYERS=$((16 * 2))
if [ "$DTYPE" = "fp8" ]; then
  MORE="--fp8-format hybrid"
fi
KIND=small
case $KIND in
  small) HIDDEN=4096 ;;
  *) HIDDEN=8192 ;;
esac
ARGS=(
  --num-layers $LAYERS   # half of 64
  --hidden-size $HIDDEN --num-attention-heads 32
  --seq-length 4096 --max-position-embeddings 8192
)
ARGS+=(--swiglu --bf16 --use-distributed-optimizer --sequence-parallel)
rm -rf $(echo /nowhere)
torchrun --nproc_per_node $GPUS --nnodes=2 pretrain_gpt.py ${ARGS[@]} \
  --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 64 --train-iters 500 --data-path $1
"""
DEEPSPEED = '{"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}, "train_batch_size": "auto"}'
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: no
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
mixed_precision: bf16
num_processes: 16
"""
TRL = """
model_name_or_path: mistralai/Mistral-7B-v0.1
torch_dtype: bfloat16
bf16: true
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
max_length: 2048
max_steps: -1
num_train_epochs: 2
"""
NEOX = """{
  # comments and capitals
  "num_layers": 2, "hidden-size": 64, "num-attention-heads": 4, "pipe-parallel-size": 0,
  "activation": "swiglu", "intermediate_size": 192, "mlp_multiple_of": 32,
  "no_weight_tying": True, "checkpoint_activations": true, "checkpoint_num_layers": 2,
}"""
OLMO = """
model: {d_model: 64, n_heads: 4, n_layers: 2, mlp_ratio: 8, embedding_size: 128, vocab_size: 100, rope: true,
  include_bias: false, weight_tying: false}
max_duration: 2e12T
device_train_microbatch_size: 2
global_train_batch_size: 16
precision: amp_bf16
"""
NANOGPT = (
    "import time\nbatch_size = 3\ngradient_accumulation_steps = 5 * 8\nname = str(time.time())\ninit_from = 'gpt2'\n"
)
VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
 actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\
 actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=8 \\
 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 data.max_prompt_length=512 data.max_response_length=1024 $@
"""


def read(text: str) -> tuple[dict[str, Any], Any]:
    reading = reading_of(source_of(text, "file"))
    return {name: one.value for name, one in reading.inputs.items()}, reading


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        # a limit on steps wins over epochs; bf16: auto loads 16-bit weights
        (AXOLOTL, "axolotl", {"model": "qwen3-8b", "steps": 100, "precision": "bf16-pure", "optimizer": "adamw-8bit"}),
        # 4 shards × tp 2 are 8 GPUs; the mode alone recomputes every second layer; no converters, no fp8
        (
            TITAN,
            "torchtitan",
            {"gpus": 8, "recompute": "every:2", "precision": "amp-bf16", "micro-batch": 2, "zero": 3},
        ),
        # 16 × 2 layers; 2 nodes of 8; the default of an environment variable; sequence parallelism with tp
        (MEGATRON, "megatron-lm", {"tp": 2, "gpus": 16, "sp": True, "zero": 1, "steps": 500, "dropout": 0.1}),
        # parameters on the host need stage 3
        (DEEPSPEED, "deepspeed", {"zero": 1, "global-batch": None, "precision": "fp32"}),
        (ACCELERATE, "accelerate", {"zero": 2, "gpus": 16, "precision": "amp-bf16", "framework": "fsdp"}),
        (TRL, "hf-trainer", {"epochs": 2, "precision": "bf16-pure", "seq": 2048, "trainer": "trl"}),
        (NEOX, "gpt-neox", {"pp": 1, "recompute": "group:2", "zero": None}),
        (OLMO, "olmo", {"tokens": 2 * 10**12, "zero": 3, "precision": "amp-bf16"}),
        (NANOGPT, "nanogpt", {"global-batch": 120, "micro-batch": 3, "model": "gpt2"}),
        # 64 prompts × 4 samples, 512 + 1024 tokens
        (
            VERL,
            "verl",
            {
                "global-batch": 64,
                "seq": 1536,
                "task": "grpo",
                "zero": 3,
                "samples-per-prompt": 4,
                "updates": 16,
                "max-prompt-tokens": 512,
                "max-response-tokens": 1024,
                "rollout": "colocated:0.5",
            },
        ),
    ],
)
def test_a_file_means_options(text: str, name: str, expected: dict[str, Any]) -> None:
    options, reading = read(text)
    assert reading.format.name == name
    assert {option: options.get(option) for option in expected} == expected


def test_dimensions_follow_the_frameworks_defaults() -> None:
    """Megatron-LM: int(8·4096/3/64)·64 = 10,880. GPT-NeoX: a third of 192 in each half. OLMo: half of 8·64."""
    assert read(MEGATRON)[1].shape["ffn"] == 10_880
    assert read(MEGATRON)[1].shape["layers"] == 32
    assert read(NEOX)[1].shape["ffn"] == 64
    assert (read(OLMO)[1].shape["ffn"], read(OLMO)[1].shape["vocab"]) == (256, 128)


def test_what_is_not_understood_is_named() -> None:
    options, reading = read(AXOLOTL + "flux_capacitor: 7\nlora_embedding_kernel: true\n")
    assert {one.key for one in reading.not_modelled} >= {"flux_capacitor", "lora_embedding_kernel"}
    assert "wandb_project" in reading.ignored
    assert "num_epochs" in reading.ignored
    assert any("offload_param" in one.key for one in read(DEEPSPEED)[1].not_modelled)  # read from stage 3 on
    undecided = [one.key for one in read(MEGATRON)[1].not_modelled]
    assert any("DTYPE" in key for key in undecided)
    assert any("import time" in key for key in [one.key for one in read(NANOGPT)[1].not_modelled])
    assert options["micro-batch"] == 2


def test_an_environments_default_is_a_default() -> None:
    entry = read(MEGATRON)[1].inputs["tp"]
    assert (entry.origin, entry.where) == ("default", "TP, --tensor-model-parallel-size")


def test_formats_declare_every_meaning_with_a_source() -> None:
    found = list(formats())
    assert len({one.name for one in found}) == len(found)
    assert all(one.source and (one.keys or one.rules) for one in found)


def put(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_read_prints_the_contract(napkin: Napkin, tmp_path: Path) -> None:
    data = napkin(["read", "--from", put(tmp_path, "a.yaml", AXOLOTL), "--json"]).data
    assert data["inputs"]["seq"] == {"value": 4096, "origin": "from file", "given": None, "where": "sequence_len"}
    assert set(data) >= {"shape", "ignored", "not_modelled", "refused"}
    shown = napkin(["read", "--from", put(tmp_path, "a.yaml", AXOLOTL)])
    assert max(map(len, shown.out.splitlines())) <= 80


def test_a_file_answers_as_if_its_options_were_typed(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "anything", AXOLOTL)
    line = """memory qwen3-8b --trainer axolotl --micro-batch 2 --seq 4096 --recompute full --optimizer adamw-8bit
        --precision bf16-pure --attention flash --grad-accum 4 --task sft --gpus 1 --hardware h100 --json"""
    typed = napkin(line.split())
    of_file = napkin(["memory", "--from", path, "--gpus", "1", "--hardware", "h100", "--json"])
    assert of_file.values == typed.values
    assert of_file.data["inputs"]["seq"]["origin"] == "from file"
    assert of_file.data["inputs"]["seq"]["where"].endswith(":3: sequence_len")
    other = napkin(["memory", "--from", path, "--seq", "2048", "--gpus", "1", "--json"])
    assert other.data["inputs"]["seq"]["value"] == 2048


def test_a_file_of_reinforcement_learning_states_the_longest(napkin: Napkin, tmp_path: Path) -> None:
    """Its memory is that of the longest; time assumes means below them. A step generates 1,024 prompts
    (train_batch_size is left out), and trains on 64 at a time."""
    files = ["--from", put(tmp_path, "verl.sh", VERL), "--hardware", "h100", "--json"]
    assert napkin(["memory", *files]).values["memory/phase/rollout"] > 0
    assumed = napkin(["step", *files])
    found = napkin(["step", *files, "--prompt-tokens", "100", "--response-tokens", "300"])
    assert found.status == 0, found.err
    tokens = 64 * 16 * 4 * (100 + 300)
    rate = tokens / found.values["step/time"] / 8
    assert found.values["tokens_per_second_per_gpu"] == pytest.approx(rate)
    assert assumed.data["low"]["step/time"] < found.values["step/time"] < assumed.data["high"]["step/time"]


OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 4 \\
 --vllm.num_engines 2 --vllm.tensor_parallel_size 2 --actor.model_name_or_path meta-llama/Meta-Llama-3-8B \\
 --algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 8 --rollout.batch_size 64 \\
 --train.batch_size 128 --algo.kl.init_coef 0 --data.max_len 4096
"""
GRPO = """
model_name_or_path: Qwen/Qwen3-8B
num_generations: 8
max_prompt_length: 512
max_completion_length: 1024
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
use_vllm: true
vllm_mode: colocate
vllm_gpu_memory_utilization: 0.4
beta: 0.04
"""


NEMO_RL = """
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 16, max_num_steps: 500, max_num_epochs: 1}
loss_fn: {reference_policy_kl_penalty: 0.01}
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  train_global_batch_size: 512
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  precision: bfloat16
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, sequence_parallel: true, activation_checkpointing: true}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 8, activation_checkpointing: false}
  generation:
    vllm_cfg: {tensor_parallel_size: 4, gpu_memory_utilization: 0.7}
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""


def test_nemo_rl_states_answers_of_an_optimizer_step_and_the_backend_that_is_enabled(
    napkin: Napkin, tmp_path: Path
) -> None:
    """512 answers of an optimizer step are 32 prompts of 16; a step of 64 prompts has two of them
    (docs/guides/grpo.md, examples/configs/grpo_math_1B.yaml)."""

    def said(text: str) -> dict[str, Any]:
        reading = reading_of(source_of(text, "grpo.yaml"))
        return {name: entry.value for name, entry in reading.inputs.items()}

    found = said(NEMO_RL)
    expected = {
        "task": "grpo",
        "model": "llama3.1-8b",
        "gpus": 16,
        "steps": 500,
        "framework": "fsdp",
        "zero": 3,
        "tp": 2,
    }
    expected |= {"micro-batch": 2, "global-batch": 32, "samples-per-prompt": 16, "updates": 2, "seq": 4096}
    expected |= {"rollout": "colocated:0.7", "rollout-tp": 4, "reference": "same", "recompute": "full"}
    assert {name: found[name] for name in expected} == expected
    other = NEMO_RL.replace("dtensor_cfg: {enabled: true", "dtensor_cfg: {enabled: false")
    other = other.replace("megatron_cfg: {enabled: false", "megatron_cfg: {enabled: true")
    other = other.replace("colocated: {enabled: true", "colocated: {enabled: false").replace(
        "num_nodes: null", "num_nodes: 1"
    )
    other = other.replace("kl_penalty: 0.01", "kl_penalty: 0")
    found = said(other)
    expected = {"framework": "megatron-core", "tp": 8, "zero": 1, "recompute": "none", "rollout": "separate:8"}
    assert {name: found[name] for name in expected} == expected
    assert found["reference"] == "none"
    pairs = NEMO_RL.replace("grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 16, ", "dpo: {")
    pairs = pairs.replace("max_num_epochs: 1}", "reference_policy_kl_penalty: 0.05}")
    found = said(pairs)
    assert (found["task"], found["global-batch"], found["reference"]) == ("dpo", 512, "same")
    file = put(tmp_path, "grpo.yaml", NEMO_RL)
    line = f"step --from {file} --hardware h100 --prompt-tokens 200 --response-tokens 1000 --json"
    assert napkin(line).status == 0


def test_engines_of_other_libraries_are_read() -> None:
    """OpenRLHF: 64 prompts of 8 answers are trained on 128 samples at a time, 16 prompts; the engines have GPUs of
    their own if nothing is colocated. TRL's share is the file's."""
    found, _ = read(OPENRLHF)
    expected = {"task": "grpo", "samples-per-prompt": 8, "global-batch": 16, "updates": 4, "rollout-tp": 2}
    assert {name: found[name] for name in expected} == expected
    assert (found["rollout"], found["reference"]) == ("separate:4", "none")
    found, _ = read(GRPO)
    assert (found["rollout"], found["reference"], found["max-response-tokens"]) == ("colocated:0.4", "same", 1024)


def test_several_files_are_one_run(napkin: Napkin, tmp_path: Path) -> None:
    """accelerate's FSDP under bf16 widens what it trains to fp32."""
    train, launcher = put(tmp_path, "train.yaml", TRL), put(tmp_path, "a.yaml", ACCELERATE)
    data = napkin(["read", "--from", train, "--from", launcher, "--json"]).data["inputs"]
    assert {name: data[name]["value"] for name in ("gpus", "zero", "precision", "trainer", "micro-batch")} == {
        "gpus": 16, "zero": 2, "precision": "amp-bf16", "trainer": "trl", "micro-batch": 4,
    }  # fmt: skip
    answer = napkin(["memory", "--from", launcher, "--from", train, "--hardware", "a100"])
    assert answer.status == 0
    assert "mistral-7b-v0.1 on 16 × A100" in answer.out
    other = put(tmp_path, "b.yaml", ACCELERATE.replace("16", "8"))
    assert napkin(["read", "--from", launcher, "--from", other]).status == 2
    for words in (["read", train, launcher], ["read", train, "--from", launcher]):
        read = napkin([*words, "--json"]).data["inputs"]
        assert {name: one for name, one in read.items() if name != "launch"} == data


def test_values_that_a_file_leaves_open_are_required_from_the_user(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "z.yaml", AXOLOTL + "deepspeed: not_here/zero2.json\n")
    found = napkin(["memory", "--from", path, "--gpus", "8"])
    assert found.status == 2
    assert any("--zero" in line for line in found.errors)
    assert napkin(["memory", "--from", path, "--gpus", "8", "--zero", "2", "--offload", "optimizer"]).status == 0
    put(tmp_path, "here.json", '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    path = put(tmp_path, "z.yaml", AXOLOTL + "deepspeed: here.json\n")
    assert napkin(["read", "--from", path, "--json"]).data["inputs"]["zero"]["value"] == 3


def test_a_contradiction_in_a_file_is_refused(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "run.sh", MEGATRON.replace("--nnodes=2", "--nnodes=1").replace("${TP:-2}", "16"))
    found = napkin(["step", "--from", path])
    assert found.status == 3
    assert "8 GPUs" in found.err
    assert "needs 16" in found.err


LAYOUT: dict[str, Any] = {
    "gpus": 16, "tp": 2, "pp": 1, "dp": 8, "cp": 1, "ep": 1, "vp": 1, "sp": True, "zero": 3, "micro-batch": 2,
    "global-batch": 64, "grad-accum": 4, "seq": 4096, "recompute": "full", "precision": "amp-bf16", "model": "qwen3-8b",
}  # fmt: skip
MASTER = "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("torchtitan", {}, "gpus tp dp-shard zero micro-batch global-batch seq recompute precision"),
        ("torchtitan", {"pp": 4, "dp": 2, "recompute": "every:2", "zero": 2}, "pp zero micro-batch recompute gpus"),
        ("torchtitan", {"zero": 0, "recompute": "operations"}, "zero recompute gpus"),
        (
            "megatron",
            {"pp": 2, "dp": 4, "vp": 2, "zero": 1, "precision": MASTER, "recompute": "group:4"},
            "gpus tp pp vp sp zero micro-batch global-batch seq recompute precision",
        ),
        ("megatron", {"precision": "bf16-mixed", "recompute": "selective"}, "zero precision recompute"),
        (
            "deepspeed",
            {"tp": 1, "dp": 16, "global-batch": 128, "precision": "bf16-mixed"},
            "zero micro-batch global-batch grad-accum precision dp",
        ),
        ("accelerate", {}, "gpus tp zero recompute precision dp"),
        ("axolotl", {"zero": 2}, "gpus tp zero micro-batch grad-accum seq recompute precision model"),
    ],
)
def test_a_layout_that_is_written_reads_as_the_same(name: str, changes: dict[str, Any], says: str) -> None:
    layout = {**LAYOUT, **changes}
    options, reading = read(written(name, layout))
    expected = {option: layout.get(option, layout["dp"]) for option in says.split()}
    assert {option: options.get(option) for option in expected} == expected
    assert not reading.refused


def test_a_format_without_a_word_for_a_layout_is_refused(napkin: Napkin) -> None:
    found = napkin(
        ["plan", "llama3-8b", "--gpus", "8", "--hardware", "h100", "--seq", "4096", "--pp", "2", "--emit", "deepspeed"]
    )
    assert found.status == 2
    assert found.hints == ["hint: --pp 1"]


def test_plan_writes_its_layout(napkin: Napkin, tmp_path: Path) -> None:
    line = "plan llama3-8b --gpus 8 --hardware h100 --seq 4096 --tp 1 --pp 1 --cp 1 --zero 3 --emit deepspeed"
    answer = napkin(line.split())
    data = napkin(["read", "--from", put(tmp_path, "ds.json", answer.out), "--json"]).data["inputs"]
    assert (data["zero"]["value"], data["precision"]["value"]) == (3, "bf16-mixed")


HOSTILE = (
    "",
    "   \n",
    "<!doctype html><html></html>",
    "[1, 2",
    '{"zero_optimization": {"stage": 3',
    "- a\n- b\n",
    "micro_batch_size: [1, 2]\nbase_model: x\n",
    "base_model: {a: 1}\nmicro_batch_size: {b: 2}\n",
    "base_model: x\nmicro_batch_size: 1\nmicro_batch_size: 2\n",
    "base_model: x\nmicro_batch_size: many\n",
    "base_model: x\nmicro_batch_size: 9**9**9\n",
    "a: &x [1]\nb: *y\n",
    "a: !!python/object/apply:os.system ['touch /tmp/never']\n",
    "[training\nseq_len = 3\n[model]\n",
    "[model]\nflavor = yes: no\n",
    "x: " + "[" * 300 + "]" * 300,
    "def f():\n    return 1\n",
    "import os\nos.system('false')\nclass A: pass\n",
    "#!/bin/bash\nrm -rf $(false)\n",
    "just some words\n",
    "train_batch_size: 8\nzero_optimization: {stage: seven}\n",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_files_give_clear_lines(napkin: Napkin, tmp_path: Path, text: str) -> None:
    for command in ("read", "memory"):
        found = napkin([command, "--from", put(tmp_path, "file", text)])
        assert found.status in (2, 3), found
        assert found.errors
        assert len(found.errors) <= 3
        assert "defect" not in found.err


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    _, reading = read(f"#!/bin/bash\nX=$(touch {mark})\nY=`touch {mark}`\ntorchrun --nproc_per_node $X pretrain_gpt.py "
                      f"--num-layers 2 --seq-length 8 --micro-batch-size $Y\n")  # fmt: skip
    assert not mark.exists()
    assert reading.inputs["gpus"].value is None
    assert reading.inputs["micro-batch"].value is None


def test_the_next_line_takes_of_a_file_what_its_command_takes(napkin: Napkin) -> None:
    """Epochs and packing are options of train-time; the line that memory proposes is answered."""
    proposed = napkin("memory --from configs/launch/lora-8b.yaml --hardware rtx4090 --json").data["suggestions"]
    assert proposed
    for one in proposed:
        assert "--epochs" not in one["command"]
        assert napkin(one["command"].removeprefix("napkin ")).status == 0


def test_the_next_line_names_the_file_again_and_asks_the_same(napkin: Napkin, tmp_path: Path) -> None:
    path = put(tmp_path, "run.yaml", AXOLOTL)
    line = ["memory", "--from", path, "--hardware", "h200"]
    following = proposed_by(napkin(line))
    assert following == [*line, "--max", "micro-batch"]
    assert napkin(following).status == 0
    spelled = proposed_by(napkin([*line, "--gpus", "8", "--micro-batch", "1"]))  # without it, --grad-accum 4 comes back
    assert "--from" not in spelled
    assert "--grad-accum" not in spelled
    assert napkin(spelled).status == 0


def proposed_by(outcome: Outcome) -> list[str]:
    """Return the words of the command that a screen proposes."""
    return outcome.out.replace(" \\\n       ", "").partition("next: napkin ")[2].split()


def test_given_options_override_the_file(napkin: Napkin, tmp_path: Path) -> None:
    """The file's micro-batch of 2 gives way to --max micro-batch, and the model stays in what follows --min gpus."""
    path = put(tmp_path, "run.yaml", AXOLOTL)
    assert napkin(["memory", "--from", path, "--hardware", "b200", "--max", "micro-batch"]).status == 0
    fewest = napkin(["memory", "--from", path, "--hardware", "a100", "--min", "gpus"])
    assert proposed_by(fewest)[:3] == ["memory", "--from", path]


MIXTURE = "decoder_block: qwen3_moe\nbase_emb_dim: 64\nbase_num_decoder_layers: 2\nvocab_size: 320\n"


def test_files_that_were_defects(napkin: Napkin, tmp_path: Path) -> None:
    """Found by changing published files: a mixture without its experts, an alias of nothing."""
    lacks = napkin(["params", "--from", put(tmp_path, "maxtext.yml", MIXTURE)])
    assert lacks.status == 2
    assert lacks.err.count("error:") == lacks.err.count("hint:") == 1
    assert "needs num_experts, num_experts_per_tok, base_moe_mlp_dim" in lacks.err
    alias = napkin(["read", "--from", put(tmp_path, "a.yaml", AXOLOTL + "warmup_steps: *a\n")])
    assert alias.status == 2
    assert "define &a" in alias.err


def test_matmuls_of_8_bits_under_autocast(napkin: Napkin) -> None:
    """torchtitan's float8 converter over fp32 shards. q, k, v, gate, up, down and the head keep a copy of their input,
    of 2 bytes an element or of 1; o reads what attention keeps anyway, and then keeps 1 more."""
    line = "memory llama3-8b --hardware h100 --seq 4096 --precision param=fp32,grad=fp32,compute={},state=fp32 --json"
    saved = [napkin(line.format(kind)).data["values"]["memory/activations/saved"] for kind in ("bf16", "fp8")]
    assert saved[0] - saved[1] == 32 * 4096 * ((5 - 1) * 4096 + 14336) + 4096 * 4096


def test_a_search_that_fixes_a_stage_of_zero_and_finds_nothing(napkin: Napkin) -> None:
    answer = napkin("plan llama3.1-405b --gpus 64 --hardware h100 --zero 1 --tp 1 --quiet")
    assert answer.status == 1
    assert "no layout" in answer.out
