"""Settings of launch files whose effect depends on another: DeepSpeed's casts, limits of a run, frozen parameters."""

from __future__ import annotations

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

MEGATRON = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 \\
  --num-attention-heads 16 --seq-length 2048 --micro-batch-size 4 --global-batch-size 64"""
LORA = """deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --use_peft True --lora_r 8 \\
  --lora_target_modules q_proj v_proj --bf16 True --torch_dtype {dtype} --per_device_train_batch_size 1 \\
  --gradient_accumulation_steps 1 --max_seq_length 512 {more}"""
PROGRAM = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
args = TrainingArguments(output_dir="o", per_device_train_batch_size=1, bf16=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
{freezes}
Trainer(model=model, args=args).train()
"""


def read(text: str, name: str = "run.sh") -> Reading:
    return reading_of(source_of(text, name))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deepspeed_casts_adapters_and_frozen_weights(dtype: str) -> None:
    """runtime/engine.py casts the module to bf16 and keeps an fp32 copy of what it trains; without it nothing is."""
    cast = read(LORA.format(dtype=dtype, more="--deepspeed gone.json"))
    assert cast.value_of("precision") == "frozen=bf16,param=bf16,grad=bf16,compute=bf16,state=fp32,master=fp32"
    held = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    plain = read(LORA.format(dtype=dtype, more=""))
    assert plain.value_of("precision") == f"frozen={held},param=fp32,grad=fp32,compute=bf16,state=fp32"


@pytest.mark.parametrize(
    ("limits", "option", "amount"),
    [
        ("--train-samples 1000 --train-tokens 1024000", "tokens", 1_024_000),  # 500 samples
        ("--train-samples 500 --train-tokens 4096000", "samples", 500),  # 2,000 samples
        ("--train-tokens 4096000", "tokens", 4_096_000),
    ],
)
def test_the_smaller_limit_of_a_run_ends_it(limits: str, option: str, amount: int) -> None:
    reading = read(f"{MEGATRON} {limits}")
    amounts = {name: reading.value_of(name) for name in ("tokens", "samples", "steps") if reading.value_of(name)}
    assert amounts == {option: amount}


@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("/models/llama2/tokenizer.model", True),
        ("$DIR/tokenizer.model", True),
        ("$DIR/sp-100k.ver3.model", False),
        ("/models/own-64k.model", False),
    ],
)
def test_a_sentencepiece_file_of_another_name_has_another_vocabulary(file: str, known: bool) -> None:
    """Llama2Tokenizer reads any SentencePiece file; Llama 2's own has 32,000 tokens."""
    reading = read(f"{MEGATRON} --tokenizer-type Llama2Tokenizer --tokenizer-model {file}")
    assert ("vocab" in reading.shape) is known


def test_prompt_and_response_lengths_add_up() -> None:
    line = "python dpo_training.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 4 --bf16 True"
    reading = read(f"{line} --max_steps 100 --max_source_length 1024 --max_target_length 512")
    assert (reading.value_of("seq"), reading.value_of("task")) == (1536, "dpo")


def test_a_program_that_freezes_parameters_is_refused_without_adapters() -> None:
    for freezes in (
        "model.model.requires_grad_(False)",
        "for one in model.parameters():\n    one.requires_grad = False",
    ):
        (said,) = read(PROGRAM.format(freezes=freezes), "train.py").refused
        assert (said.key, said.option) == ("requires_grad", "freeze-layers")
    assert not read(PROGRAM.format(freezes="model.requires_grad_(True)"), "train.py").refused
    adapters = "model.requires_grad_(False)\nfrom peft import LoraConfig, get_peft_model\n"
    adapters += 'model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))'
    assert not read(PROGRAM.format(freezes=adapters), "train.py").refused


def test_programs_that_train_something_else_are_refused() -> None:
    prime = "python -m recipe.prime.main_prime actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B "
    prime += "algorithm.adv_estimator=rloo reward_model.model.update=before"
    reading = read(prime)
    assert [one.key for one in reading.refused] == ["reward_model.model.update"]
    assert any(one.key == "recipe.prime.main_prime" for one in reading.not_modelled)
    online = "accelerate launch dpo_online.py --model_name_or_path Qwen/Qwen2.5-0.5B --beta 0.1 --max_length 512 --bf16"
    assert [one.key for one in read(f"{online} --per_device_train_batch_size 1").refused] == ["dpo_online.py"]


def test_another_librarys_model_class_is_refused_in_llm_foundrys_yaml() -> None:
    text = "model: {name: NAME, d_model: 1024, n_heads: 8, n_layers: 24, vocab_size: 32000}\n"
    text += "max_seq_len: 4096\nglobal_train_batch_size: 32\ndevice_train_microbatch_size: 8\nmax_duration: 800ba\n"
    assert [one.key for one in read(text.replace("NAME", "mosaic_llama2_370m"), "a.yaml").refused] == ["model.name"]
    mpt = read(text.replace("NAME", "mpt_causal_lm"), "a.yaml")
    assert not mpt.refused
    assert mpt.shape["layers"] == 24
