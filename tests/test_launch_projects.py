"""Launch files of projects that use a framework in their own way: wrappers, lists of options, templates, manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 8\nseq_len = 4096\n%s\n'
MAXTEXT = "python3 -m MaxText.train MaxText/configs/base.yml steps=20 max_target_length=2048 {}\n"
MEGATRON = """ARGS="--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \\
  --micro-batch-size 8 --global-batch-size 512 --max-position-embeddings 2048 %s"
torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS
"""
LLAMA_FACTORY = """backend: llamafactory
slurm: {num_nodes: 2}
settings:
  model_name_or_path: Qwen/Qwen3-8B
  stage: sft
  finetuning_type: lora
  per_device_train_batch_size: 2
  cutoff_len: 16384
"""


def reading(text: str) -> Reading:
    return reading_of(source_of(text, "file"))


def values(text: str) -> dict[str, Any]:
    return {name: one.value for name, one in reading(text).inputs.items()}


def test_a_key_that_sizes_the_model_in_a_fork_leaves_it_open(napkin: Napkin, tmp_path: Path) -> None:
    """A fork of torchtitan sets the vocabulary next to the flavor: 256 rows in place of Llama's 128,256."""
    assert values(TITAN % "")["model"] == "llama3.1-8b"
    found = reading(TITAN % "vocab_size = 256")
    assert found.inputs["model"].value is None
    assert [one.key for one in found.refused] == ["training.vocab_size"]
    path = tmp_path / "run.toml"
    path.write_text(TITAN % "vocab_size = 256")
    assert napkin(f"memory --from {path} --gpus 8").status == 3
    assert napkin(f"memory llama3-8b --from {path} --gpus 8").status == 0  # the model given moots the key


def test_sizes_of_other_models_and_of_data_leave_the_model_alone() -> None:
    for block in ("[tokenizer]\nvocab_size = 256", "[rollout]\ntop_k = 20", "[teacher]\nnum_layers = 4"):
        assert values(TITAN % block)["model"] == "llama3.1-8b"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("per_device_batch_size=2 ici_tensor_parallelism=16 ici_fsdp_parallelism=-1", {"micro-batch": 32, "tp": 16}),
        ("per_device_batch_size=0.0078125 ici_tensor_parallelism=8 ici_sequence_parallelism=16", {"micro-batch": 1}),
        ("per_device_batch_size=4 ici_expert_parallelism=8", {"micro-batch": 4, "ep": 8}),
        ("per_device_batch_size=2 ici_pipeline_parallelism=4", {"micro-batch": 2, "grad-accum": 4}),
        (
            "per_device_batch_size=2 ici_pipeline_parallelism=4 num_pipeline_microbatches=8",
            {"micro-batch": 1, "grad-accum": 8},
        ),
        ("per_device_batch_size=1 ici_tensor_parallelism=-1", {"micro-batch": None}),
        ("per_device_batch_size=0.5", {"micro-batch": None}),
        ("ici_tensor_parallelism=4", {"micro-batch": 48}),
    ],
)
def test_maxtext_counts_the_batch_of_every_device(options: str, expected: dict[str, Any]) -> None:
    """The global batch is per_device_batch_size × all devices: ranks that share sequences have theirs together."""
    found = values(MAXTEXT.format(options))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ("sparse_matmul=False capacity_factor=1.25", 1.25),
        ("capacity_factor=1.25", None),  # configs/base.yml: sparse_matmul: true, which has no slots
        ("sparse_matmul=False capacity_factor=-1", None),  # every expert runs every token
    ],
)
def test_maxtexts_experts_have_slots_without_sparse_matmul(options: str, slots: float | None) -> None:
    """MaxText layers/moe.py: sparse_matmul drops nothing; dense_matmul has slots if capacity_factor > 0."""
    found = reading(MAXTEXT.format(f"model_name=mixtral-8x7b per_device_batch_size=2 {options}"))
    assert found.value_of("capacity-factor") == slots


def test_maxtext_states_no_dense_layers_as_0() -> None:
    """MaxText configs/base.yml: first_num_dense_layers: 0."""
    found = reading(MAXTEXT.format("per_device_batch_size=2 base_emb_dim=1024 first_num_dense_layers=0"))
    assert found.shape["dense_layers"] == 0
    assert found.value_of("model")


def test_a_layer_of_maxtexts_gemma_2_is_a_pair() -> None:
    """One layer holds a local and a global attention, each with its MLP (models/gemma2.py); Gemma 2 9B has 42."""
    text = (
        "base_emb_dim: 3584\nbase_num_query_heads: 16\nbase_num_kv_heads: 8\nbase_mlp_dim: 14336\nhead_dim: 256\n"
        "base_num_decoder_layers: 21\nvocab_size: 256000\ndecoder_block: gemma2\nlogits_via_embedding: true\n"
    )
    found = reading_of(source_of(text, "gemma2-9b.yml"))
    assert (found.shape["layers"], found.value_of("model")) == (42, "gemma2-9b")


def test_maxtext_scales_the_sizes_of_a_model_without_a_name() -> None:
    """512 = 2^9: three doublings each of heads and MLP, of the width, and of the layers; base.yml has 16 layers of
    2,048 with 16 heads of 128 and an MLP of 7,168. 16 = 2^4: heads and MLP double first."""
    shape = reading(MAXTEXT.format("per_device_batch_size=2 global_parameter_scale=512")).shape
    assert [shape[name] for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "head_dim", "vocab")] == [
        128, 16_384, 128, 128, 57_344, 128, 32_000
    ]  # fmt: skip
    shape = reading(MAXTEXT.format("per_device_batch_size=2 global_parameter_scale=16 base_emb_dim=1024")).shape
    assert [shape[name] for name in ("layers", "hidden", "heads", "ffn")] == [32, 2048, 64, 28_672]
    with pytest.raises(NapkinError, match="power of two"):
        reading(MAXTEXT.format("per_device_batch_size=2 global_parameter_scale=12"))


def test_megatron_deepspeed_ends_at_the_first_limit() -> None:
    """A step has 512 × 2,048 = 1,048,576 tokens: 300 billion tokens end before 858,306 steps, and after 1,000."""
    limits = "--train-tokens 300000000000 --train-iters %d --deepspeed --zero-stage 1"
    found = values(MEGATRON % (limits % 858_306))
    assert ("steps" in found, found["tokens"]) == (False, 300_000_000_000)
    found = values(MEGATRON % (limits % 1000))
    assert (found["steps"], "tokens" in found) == (1000, False)


def test_megatron_deepspeeds_own_sizes() -> None:
    found = reading(MEGATRON % "--num-key-value-heads 4 --num-experts-switch 8 --use-flash-attn-v2 --deepspeed")
    assert (found.shape["kv_heads"], found.shape["experts"], found.shape["top_k"]) == (4, 8, 1)
    assert found.inputs["attention"].value == "flash"
    assert found.inputs["attention"].where == "--use-flash-attn-v2"
    residual = reading(MEGATRON % "--num-experts 64 --mlp-type residual --deepspeed")
    assert [one.key for one in residual.refused] == ["--mlp-type"]


def test_a_list_of_options_without_a_command(napkin: Napkin, tmp_path: Path) -> None:
    """Scripts keep a model's options in arrays for others to source; of options given twice the last holds."""
    path = tmp_path / "params.sh"
    path.write_text(
        "ARGS=(\n  --num-layers 64\n  --hidden-size 5120\n  --num-attention-heads 40\n  --seq-length 4096\n)\n"
        "ARGS+=(\n  --micro-batch-size 2\n  --train-iters 12000\n  --bf16\n)\nARGS+=(--train-iters 2000)\n"
    )
    found = read_launch(str(path))
    assert (found.shape["layers"], found.inputs["micro-batch"].value, found.inputs["steps"].value) == (64, 2, 2000)
    path.write_text("NAMES=(--a --b)\necho done\n")  # too few to be a program's
    assert napkin(f"read --from {path}").status == 2


def test_a_block_of_a_projects_own_file() -> None:
    found = reading(LLAMA_FACTORY)
    assert (found.inputs["model"].value, found.inputs["seq"].value, found.inputs["adapter"].value) == (
        "qwen3-8b", 16_384, "lora"
    )  # fmt: skip
    assert found.inputs["seq"].where == "settings.cutoff_len"
    assert {"backend", "slurm.num_nodes"} <= {one.key for one in found.not_modelled}
    with pytest.raises(NapkinError, match="no format"):  # two: which of them is meant is not known
        reading(LLAMA_FACTORY + LLAMA_FACTORY.partition("settings")[2].join(["other", ""]))


def test_a_template_leaves_what_fills_it_open() -> None:
    text = (
        "base_model: {{ model_dir }}/weights\nmicro_batch_size: {{ batch | default(4) }}\n"
        "sequence_len: {{length}}\nadapter: lora\nlora_r: 8\n"
    )
    found = reading(text).inputs
    assert [found[name].value for name in ("model", "micro-batch", "seq", "lora-rank")] == [None, 4, None, 8]
    assert found["micro-batch"].origin == "default"


def test_a_kubernetes_manifest_is_the_script_of_its_containers() -> None:
    """Containers that run the same script are one run; a command without a shell is a line."""
    container = """
              - name: worker-%d
                env: [{name: BATCH, value: "4"}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
                command: ["bash", "-c", "(cd /app && torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 \\
                  --per_device_train_batch_size $BATCH --max_steps 10 | tee log) & wait"]"""
    job = "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n            containers:"
    found = values(job + container % 1 + container % 2)
    assert (found["model"], found["micro-batch"], found["steps"], found["gpus"]) == ("gpt2", 4, 10, 8)
    line = '\n              - {name: x, command: [torchrun], args: ["train.py", "--model_name_or_path=gpt2", '
    found = values(job + line + '"--per_device_train_batch_size=2"]}')
    assert (found["model"], found["micro-batch"]) == ("gpt2", 2)


def test_nemo_rls_defaults_that_are_not_here_leave_options_open(tmp_path: Path) -> None:
    own = "defaults: base.yaml\ngrpo: {num_generations_per_prompt: 32}\n"
    own += "policy: {model_name: Qwen/Qwen2.5-1.5B, train_global_batch_size: 1024}\n"
    path = tmp_path / "own.yaml"
    path.write_text(own)
    alone = read_launch(str(path))
    assert [alone.inputs[name].value for name in ("precision", "framework", "rollout")] == [None, None, None]
    assert "defaults" in {one.key for one in alone.not_modelled}
    (tmp_path / "base.yaml").write_text(
        "policy: {precision: bfloat16, train_micro_batch_size: 4, max_total_sequence_length: 512,\n"
        "  dtensor_cfg: {enabled: true}}\n"
    )
    both = read_launch(str(path))
    assert [both.inputs[name].value for name in ("precision", "framework", "micro-batch", "seq")] == [
        "amp-bf16", "fsdp", 4, 512
    ]  # fmt: skip


def test_a_program_named_like_trls_is_assumed_to_be_trls() -> None:
    line = "torchrun --nproc_per_node 8 %s --model_name_or_path gpt2 --per_device_train_batch_size 4 --max_steps 9\n"
    own, trls = reading(line % "src/sft_weighted.py").inputs, reading(line % "trl/scripts/sft.py").inputs
    assert (own["trainer"].origin, own["task"].origin) == ("assumed", "assumed")
    assert (trls["trainer"].origin, trls["task"].origin) == ("derived", "derived")


def test_keys_that_cost_memory_are_not_ignored() -> None:
    """Label smoothing keeps log-probabilities of the whole vocabulary; OLMo with ALiBi cannot be built."""
    line = "torchrun train.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --label_smoothing_factor %s\n"
    assert "--label_smoothing_factor" in {one.key for one in reading(line % 0.1).not_modelled}
    assert "--label_smoothing_factor" in reading(line % 0).ignored
    olmo = "model: {d_model: 64, n_layers: 2, n_heads: 4, alibi: %s}\nmax_duration: 10\nglobal_train_batch_size: 8\n"
    assert "model.alibi" in reading(olmo % "true").inputs["model"].where
    assert "model.alibi" in reading(olmo % "false").ignored


def test_a_configuration_with_as_many_names_of_a_forks_own() -> None:
    """teaching_arithmetic's configurations add a dozen names to nanoGPT's."""
    own = "\n".join(f"{name} = 1" for name in "abcdefghijkl")
    text = f"""out_dir = 'out'\neval_interval = 9\neval_iters = 2\nlog_interval = 1\nwandb_log = False\ndataset = 'bal'
batch_size = 16\nblock_size = 1024\nn_layer = 6\nn_head = 6\nn_embd = 384\ndropout = 0.2\nmax_iters = 9\n{own}\n"""
    found = reading(text)
    assert (found.shape["layers"], found.inputs["micro-batch"].value) == (6, 16)
    with pytest.raises(NapkinError):
        reading("batch_size = 4\nblock_size = 8\nmax_iters = 3\n" + own + "\n")


def test_the_old_form_of_shell_arithmetic() -> None:
    text = (
        "TOTAL=32\nMICRO=2\nSTEPS=$[$TOTAL/$MICRO/4]\ntorchrun --nproc_per_node 4 train.py --model_name_or_path gpt2 "
    )
    found = values(text + "--per_device_train_batch_size $MICRO --gradient_accumulation_steps $STEPS\n")
    assert found["grad-accum"] == 4


def test_the_program_that_trains_is_read_and_not_the_one_that_decodes() -> None:
    text = """SIZES="base_emb_dim=384 base_num_decoder_layers=8"
python3 -m MaxText.train MaxText/configs/base.yml steps=5 $SIZES
python3 -m MaxText.decode MaxText/configs/base.yml steps=50 max_target_length=128 per_device_batch_size=1 attention=dot_product $SIZES
"""  # fmt: skip  # noqa: E501
    found = values(text)
    assert (found["steps"], found["seq"], found["micro-batch"]) == (5, 2048, 12)
    assert values(text.replace("MaxText.train", "MaxText.evaluate"))["seq"] == 128  # none of both trains


def test_a_forks_own_blocks_in_nanotron_are_no_llama() -> None:
    """CoLA's and tensor-train's forks mark their configurations with a name of their own."""
    text = """parallelism: {dp: 2, tp: 1, pp: 1}\ntokens: {micro_batch_size: 2, sequence_length: 256, train_steps: 9}
model:
  model_config: {is_%s_config: true, attn_rank: 16, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
    num_key_value_heads: 4, intermediate_size: 64, vocab_size: 256}\n"""
    assert reading(text % "llama").shape["layers"] == 2
    own = reading(text % "cola_llama")
    assert (own.inputs["model"].value, own.shape) == (None, {})
    assert [one.key for one in own.refused] == ["model.model_config.is_cola_llama_config"]


def test_parts_of_a_vision_language_model_in_torchtune() -> None:
    text = """model:\n  _component_: torchtune.models.llama3_2_vision.qlora_llama3_2_vision_11b
  decoder_trainable: frozen\n  encoder_trainable: lora\nbatch_size: 2\nepochs: 1\ntokenizer: {max_seq_len: 8192}\n"""
    assert {one.key for one in reading(text).refused} == {"model.decoder_trainable", "model.encoder_trainable"}


def test_a_config_json_states_the_width_of_an_expert() -> None:
    text = """{"model_type": "qwen3_moe", "hidden_size": 2560, "num_hidden_layers": 32, "intermediate_size": 7680,
  "moe_intermediate_size": 960, "num_experts": 128, "num_experts_per_tok": 8}"""
    assert reading(text).shape["expert_ffn"] == 960


def test_overrides_that_a_comment_cuts_off() -> None:
    """bash ends a command at a comment between its lines; what follows are commands of their own."""
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n  # tiers\n  trainer.nnodes=4 \\\n  x.y=2\n"
    )
    with pytest.raises(NapkinError, match="begins a new command"):
        reading(text)


def test_a_projects_word_for_the_method_and_its_block() -> None:
    text = """method: dpo\nmodel: {name_or_path: gpt2}\ndpo: {beta: 5.0, max_length: 2048}
training: {per_device_train_batch_size: 1, max_steps: 10, bf16: true}\n"""
    found = values(text)
    assert (found["task"], found["seq"], found["steps"]) == ("dpo", 2048, 10)


def test_a_run_that_predicts_trains_nothing() -> None:
    for line in (
        "llamafactory-cli train --stage sft --finetuning_type lora --model_name_or_path gpt2 --do_predict {}\n",
        "torchrun run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --do_predict {}\n",
    ):
        assert [one.key for one in reading(line.format("")).refused] == ["--do_predict"]
        assert reading(line.format("--do_train")).refused == []


def test_megatron_deepspeeds_optimizer_on_the_host() -> None:
    assert values(MEGATRON % "--cpu-optimizer --deepspeed --zero-stage 2")["offload"] == "optimizer"
    assert "offload" not in values(MEGATRON % "--deepspeed --zero-stage 2")


def test_switches_beside_the_named_optimizer_batch_and_loss() -> None:
    neox = """{"pipe_parallel_size": 1, "model_parallel_size": 1, "num_layers": 2, "hidden_size": 64, "seq_length": 64,
  "num_attention_heads": 4, "train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam"},
  "use_bnb_optimizer": %s}"""
    assert [values(neox % one)["optimizer"] for one in ("true", "false")] == ["adamw-8bit", "adamw"]
    assert values(TITAN % "gradient_accumulation_steps = 8")["grad-accum"] == 8
    tune = "model: {_component_: torchtune.models.llama2.lora_llama2_7b}\nbatch_size: 4\nepochs: 1\n"
    tune += "tokenizer: {max_seq_len: 512}\nloss: {_component_: torchtune.modules.loss.%s}\n"
    assert [values(tune % one)["task"] for one in ("ORPOLoss", "DPOLoss")] == ["orpo", "dpo"]


def test_alpaca_lora() -> None:
    """tloen/alpaca-lora finetune.py: gradient_accumulation_steps = batch_size // micro_batch_size // world_size; the
    weights are int8, the rest of the precision fp16; prepare_model_for_int8_training recomputes."""
    line = (
        "torchrun --nproc_per_node=4 finetune.py --base_model 'decapoda-research/llama-7b-hf' --data_path d.json "
        "--micro_batch_size 2 --cutoff_len 512 {}\n"
    )

    def read(more: str = "") -> Reading:
        return reading_of(source_of(line.format(more), "run.sh"))

    plain = {name: (one.value, one.origin) for name, one in read("--batch_size 64 --lora_r 16").inputs.items()}
    expected = {
        "model": ("llama-7b", "from file"),
        "micro-batch": (2, "from file"),
        "global-batch": (64, "from file"),
        "seq": (512, "from file"),
        "gpus": (4, "derived"),
        "epochs": (3, "default"),
        "lora-rank": (16, "from file"),
        "lora-targets": ("q,v", "default"),
        "quantized": ("int8", "assumed"),
        "recompute": ("full", "assumed"),
    }
    assert {name: plain.get(name) for name in expected} == expected
    assert read().inputs["adapter"].origin == "assumed"
    assert read("--lora_target_modules '[q_proj,k_proj]'").value_of("lora-targets") == "q,k"
    assert read("--load_in_4bit True").inputs["quantized"].value is None
    assert read("--adapter_name bottleneck").inputs["adapter"].value is None
    assert read("--adapter_name lora").value_of("recompute") == "none"  # LLM-Adapters' default
    assert read("--use_gradient_checkpointing False").value_of("recompute") == "none"
    assert [one.key for one in read("--mystery 3").not_modelled] == ["--mystery"]
    alone = line.replace("torchrun --nproc_per_node=4", "python").format("")
    assert reading_of(source_of(alone, "run.sh")).inputs["gpus"].value is None
    assert read("--per_device_train_batch_size 8 --bf16").value_of("micro-batch") == 8  # TrainingArguments
