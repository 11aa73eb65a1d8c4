"""Launch files of fine-tuning, reinforcement learning and pre-training as public repositories have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin


def of(text: str, name: str = "run.yaml") -> Reading:
    return reading_of(source_of(text, name))


def values(found: Reading, *names: str) -> list[Any]:
    return [found.value_of(name) for name in names]


def test_all_linear_layers_of_ms_swift_and_what_is_named_next_to_them(napkin: Napkin) -> None:
    """swift/pipelines/train/tuner.py, get_target_modules: all-linear is replaced in the list, the rest stays."""
    line = "swift sft --model Qwen/Qwen2.5-1.5B --tuner_type lora --target_modules all-linear embed_tokens lm_head"
    assert of(line, "run.sh").value_of("lora-targets") == "all,embed_tokens,lm_head"
    trained = [
        napkin(f"params qwen2.5-1.5b --adapter lora --lora-rank 8 --lora-targets {one} --json").values["params/trained"]
        for one in ("all", "all,lm_head", "all,q")
    ]
    # lm_head of 1,536 × 151,936 gets two factors of rank 8
    assert trained[1] - trained[0] == 8 * (1536 + 151936)
    assert trained[2] == trained[0]


@pytest.mark.parametrize(
    ("plugin", "why"),
    [("hatchery.HatcheryPlugin", "remote"), ("spectrum.SpectrumPlugin", "selects"), ("mora.MoraPlugin", "MoRA")],
)
def test_axolotls_plugins_that_change_what_is_trained_are_refused(plugin: str, why: str) -> None:
    text = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\nsequence_len: 2048\n"
    text += f"plugins: [axolotl.integrations.{plugin}]\n"
    refused = of(text).refused
    assert [one.key for one in refused] == ["plugins"]
    assert why in refused[0].why
    kernels = of(text.replace(plugin, "liger.LigerPlugin"))
    assert kernels.refused == []
    assert "plugins" in [one.key for one in kernels.not_modelled]


AREAL = """
experiment_name: a
trial_name: b
cluster: {{n_nodes: 1}}
actor: {{path: Qwen/Qwen3-8B, backend: 'archon:{trainer}', gradient_checkpointing: true, archon: {{ac_mode: {mode}}}}}
rollout: {{backend: 'sglang:d4', {agent}}}
gconfig: {{n_samples: 8, max_new_tokens: 8192, max_tokens: {limit}}}
train_dataset: {{batch_size: 32, max_length: 1024}}
"""


def areal(trainer: str = "d4", mode: str = "selective", agent: str = "", limit: int = 32767) -> Reading:
    return of(AREAL.format(trainer=trainer, mode=mode, agent=agent, limit=limit))


def test_areal_conversations_of_several_turns_are_as_long_as_their_limit() -> None:
    """cli_args.py: max_tokens is the most tokens of prompt and answers; one turn has max_new_tokens at most."""
    assert areal().value_of("seq") == 1024 + 8192
    assert areal(limit=4096).value_of("seq") == 4096
    agent = areal(agent="agent: {mode: inline}")
    assert values(agent, "seq", "max-response-tokens") == [32767, 32767 - 1024]
    assert (
        of(AREAL.format(trainer="d4", mode="full", agent="", limit="null") + "max_turns: 3\n").inputs["seq"].value
        is None
    )


def test_areals_own_engine_divides_and_recomputes_as_torchtitan_does() -> None:
    """archon_engine.py and ArchonEngineConfig: FSDP2; with pipeline stages, layers stay gathered."""
    assert values(areal(), "framework", "zero", "recompute") == ["fsdp", 3, "operations"]
    assert values(areal(mode="full"), "recompute") == ["full"]
    staged = areal("d2p2")
    assert values(staged, "zero", "pp") == [2, 2]
    assert staged.inputs["vp"].value is None


POST = """
work_group: mine
modules:
  post_trainer:
    framework: megatron
    model: llama2_70B.yaml
    overrides: {{micro_batch_size: 1, global_batch_size: 16, seq_length: 4096, tensor_model_parallel_size: 2,
      enable_packed_sequences: true, lora: {{enabled: {lora}, dim: 16, target_modules: [linear_qkv, linear_proj]}}}}
"""


def test_primus_fine_tunes_in_a_block_of_its_own() -> None:
    """primus/configs/modules/megatron/sft_trainer.yaml."""
    found = of(POST.format(lora="true"))
    names = ("model", "task", "framework", "tp", "zero", "packing", "adapter", "lora-rank", "lora-targets")
    wanted = ["llama2-70b", "sft", "megatron-core", 2, 1, True, "lora", 16, "q,k,v,o"]
    assert values(found, *names) == wanted
    assert values(of(POST.format(lora="false")), "task", "adapter") == ["sft", None]


def test_fp8_of_a_verl_actor_on_megatron() -> None:
    key = "+actor_rollout_ref.actor.megatron.override_transformer_config.fp8"
    line = (
        f"python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer {key}=hybrid algorithm.adv_estimator=grpo"
    )
    assert "compute=fp8" in of(line, "run.sh").value_of("precision")
    assert "compute=bf16" in of(line.replace("hybrid", "null"), "run.sh").value_of("precision")


def test_nemos_fine_tuning_is_told_by_its_data() -> None:
    text = (
        "trainer: {devices: 8, num_nodes: 1}\nmodel: {micro_batch_size: 1, data: {train_ds: {max_seq_length: 2048}}}\n"
    )
    assert values(of(text), "task", "seq") == ["sft", 2048]


def test_a_script_finds_its_settings_by_its_own_path(tmp_path: Path) -> None:
    """NeMo RL's test suites: the settings of tests/NAME.sh are configs/NAME.yaml; ROLL's are in the script's folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "configs").mkdir()
    (tmp_path / "tests" / "common.env").write_text(
        'HERE=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)\nNAME=$(basename $0 .sh)\n'
        "CONFIG=$(echo $HERE/$NAME.yaml | sed 's#/tests/#/configs/#')\n"
    )
    script = tmp_path / "tests" / "small.sh"
    script.write_text(
        "source $(dirname $0)/common.env\nuv run examples/run_sft.py --config $CONFIG sft.max_num_steps=7\n"
    )
    (tmp_path / "configs" / "small.yaml").write_text(
        "policy: {model_name: Qwen/Qwen2.5-1.5B, train_micro_batch_size: 2, train_global_batch_size: 64}\n"
        "sft: {max_num_steps: 60}\ncluster: {gpus_per_node: 8, num_nodes: 1}\n"
    )
    assert values(read_launch(str(script)), "micro-batch", "steps", "gpus") == [2, 7, 8]
    own = tmp_path / "tests" / "run.sh"
    own.write_text("python start_rlvr_pipeline.py --config_path $(basename $(dirname $0)) --config_name own\n")
    (tmp_path / "tests" / "own.yaml").write_text((tmp_path / "configs" / "small.yaml").read_text())
    assert values(read_launch(str(own)), "micro-batch", "steps") == [2, 60]


def test_a_script_sources_nothing_of_the_machine(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "source /etc/profile\npython pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2\n"
    )
    assert "source profile" not in read_launch(str(script)).source.unread


SKYRL = """
python -m skyrl.train.main_sft strategy={strategy} model.path=Qwen/Qwen2.5-0.5B-Instruct \\
  batch_size=24 max_length=4096 num_steps=100 placement.num_gpus_per_node=8 {more}
"""


def test_skyrls_fine_tuning_has_defaults_of_its_own() -> None:
    """skyrl/train/config/sft_config.py: SFTConfig."""
    found = of(SKYRL.format(strategy="fsdp", more="model.lora.rank=32 remove_microbatch_padding=true"), "run.sh")
    names = ("task", "global-batch", "micro-batch", "seq", "steps", "gpus", "zero", "lora-rank", "padding", "recompute")
    assert values(found, *names) == ["sft", 24, 2, 4096, 100, 8, 3, 32, False, "full"]
    staged = of(SKYRL.format(strategy="megatron", more="use_sequence_packing=true"), "run.sh")
    assert values(staged, "framework", "tp", "pp", "zero", "packing") == ["megatron-core", 2, 2, 1, True]
    packed = of(SKYRL.format(strategy="megatron", more="max_tokens_per_microbatch=8192"), "run.sh")
    assert packed.inputs["micro-batch"].value is None


def test_axolotl_quantizes_experts_and_once_where_it_says_so() -> None:
    """loaders/model.py: bnb_config_kwargs replace the keys of the configuration, whose scales are quantized too."""
    text = "base_model: Qwen/Qwen3-30B-A3B\nmicro_batch_size: 1\nsequence_len: 2048\nadapter: qlora\nlora_r: 8\n"
    assert values(of(text), "quantized", "quantize-experts") == ["nf4-dq", None]
    more = "quantize_moe_experts: true\nbnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n"
    assert values(of(text + more), "quantized", "quantize-experts") == ["nf4", True]


def test_megatrons_fsdp_divides_a_verl_actor() -> None:
    key = "actor_rollout_ref.actor.megatron.use_megatron_fsdp"
    line = (
        f"python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer {key}=True algorithm.adv_estimator=grpo"
    )
    assert of(line, "run.sh").value_of("zero") == 3
    assert of(line.replace("True", "False"), "run.sh").value_of("zero") == 1


LINGUA = """
steps: 1000
distributed: {{fsdp_type: full_shard, compile: true, selective_activation_checkpointing: {again}{more}}}
model: {{dim: 4096, n_layers: 32, n_heads: 32, vocab_size: 128256{model}}}
data: {{batch_size: 2, seq_len: 4096}}
"""


def test_linguas_model_is_metas_and_its_layers_stay_gathered() -> None:
    """lingua/transformer.py, FeedForward: two thirds of 4 × dim, rounded up to 256; apps/main/transformer.py,
    build_fsdp_grouping_plan: layers are not resharded after forward."""
    found = of(LINGUA.format(again="true", more=", dp_shard: 8, dp_replicate: 2", model=""))
    names = ("micro-batch", "seq", "gpus", "dp-shard", "zero", "recompute", "compile", "precision", "optimizer-form")
    assert values(found, *names) == [2, 4096, 16, 8, 2, "operations", True, "amp-bf16", "fused"]
    wanted = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 128256}
    assert {name: found.shape[name] for name in wanted} == wanted
    asked = of(LINGUA.format(again="false", more="", model=""))
    assert asked.inputs["gpus"].value is None
    assert [one.key for one in of(LINGUA.format(again="false", more="", model=", n_future_head: 3")).refused] == [
        "model.n_future_head"
    ]


def test_ranks_that_exchange_heads_are_told_from_those_that_pass_keys(napkin: Napkin, tmp_path: Path) -> None:
    """verl/utils/ulysses.py; a trainer on FSDP has no ring, so a run with one of the two words only is answered."""
    line = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen3-8B "
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 data.max_prompt_length=1024 "
        "data.max_response_length=3072 actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    assert values(of(line, "run.sh"), "cp", "ulysses") == [4, 4]
    script = tmp_path / "run.sh"
    script.write_text(line)
    outcome = napkin(f"memory --from {script} --hardware h200")
    assert outcome.status == 0
    assert "Ulysses 4" in outcome.out


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ("param_offload=True optimizer_offload=False", [None, "parameters"]),
        ("param_offload=True optimizer_offload=True", ["optimizer,parameters", None]),
        ("param_offload=False optimizer_offload=True", ["optimizer", None]),
    ],
)
def test_verls_optimizer_stays_where_only_parameters_leave(switches: str, expected: list[Any]) -> None:
    block = "actor_rollout_ref.actor.fsdp_config"
    keys = " ".join(f"{block}.{one}" for one in switches.split())
    found = of(f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo {keys}", "run.sh")
    assert values(found, "offload", "rollout-offload") == expected


def test_generation_with_megatrons_options_is_no_training() -> None:
    text = "MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 64\n  --num-attention-heads: 4\n  --bf16: true\n"
    text += "  --micro-batch-size: 1\n  --seq-length: 64\n"
    assert of(text).format.name == "megatron-lm"
    with pytest.raises(Refused, match="generation, not of training"):
        of(text + "  --num-tokens-to-generate: 30\n")
