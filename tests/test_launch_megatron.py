"""Megatron-LM's launches and those of its forks: the models that their sizes mean, and what only a fork has."""

from __future__ import annotations

import json

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from napkin.inputs.megatron_shape import config_of
from tests.conftest import run_line

LLAMA = "swiglu normalization=RMSNorm position-embedding-type=rope disable-bias-linear"
UNTIED = "untie-embeddings-and-output-weights"
GPT = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --global-batch-size 64"


def parameters(words: str) -> int:
    """Return the parameters of a shape, written as options without their dashes."""
    shape = {name: value or "true" for word in words.split() for name, _, value in (word.partition("="),)}
    config = config_of(shape, 4096)
    return int(run_line(["params", json.dumps(config), "--json"]).values["params/total"])


def launch(options: str, before: str = "") -> Reading:
    return reading_of(source_of(f"{before}\ntorchrun pretrain_gpt.py {GPT} {options}\n", "train.sh"))


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (  # DeepSeek-V3, 671B
            f"num-layers=61 hidden-size=7168 ffn-hidden-size=18432 num-attention-heads=128 {LLAMA} {UNTIED} "
            "multi-latent-attention qk-layernorm q-lora-rank=1536 kv-lora-rank=512 qk-head-dim=128 v-head-dim=128 "
            "num-experts=256 moe-router-topk=8 moe-ffn-hidden-size=2048 moe-shared-expert-intermediate-size=2048 "
            "moe-layer-freq='([0]*3+[1]*58)' vocab-size=129280",
            671_026_404_352,
        ),
        (  # GLM-4.5-Air, 106B: one dense layer, one shared expert, biases of the queries, keys and values
            f"num-layers=46 hidden-size=4096 ffn-hidden-size=10944 num-attention-heads=96 kv-channels=128 {LLAMA} "
            f"{UNTIED} group-query-attention num-query-groups=8 add-qkv-bias num-experts=128 moe-router-topk=8 "
            "moe-ffn-hidden-size=1408 moe-shared-expert-intermediate-size=1408 moe-layer-freq=([0]+[1]*45) "
            "vocab-size=151552",
            106_852_245_504,
        ),
        (  # Qwen3-30B-A3B
            f"num-layers=48 hidden-size=2048 ffn-hidden-size=6144 num-attention-heads=32 kv-channels=128 {LLAMA} "
            f"{UNTIED} group-query-attention num-query-groups=4 qk-layernorm num-experts=128 moe-router-topk=8 "
            "moe-ffn-hidden-size=768 moe-layer-freq='([1]*48)' vocab-size=151936",
            30_532_122_624,
        ),
        (  # Qwen2.5-7B
            f"num-layers=28 hidden-size=3584 ffn-hidden-size=18944 num-attention-heads=28 {LLAMA} {UNTIED} "
            "group-query-attention num-query-groups=4 add-qkv-bias vocab-size=152064",
            7_615_616_512,
        ),
        (  # BLOOM-7B1
            "num-layers=30 hidden-size=4096 num-attention-heads=32 position-embedding-type=alibi embed-layernorm "
            "vocab-size=250880",
            7_069_016_064,
        ),
    ],
)
def test_sizes_of_published_models_have_their_parameters(words: str, published: int) -> None:
    assert parameters(words) == published


def test_a_gpt_with_rotary_positions_has_no_table_of_them() -> None:
    """12 H² + 13 H a layer with its biases and norms, the tied embedding, the last norm's weight and bias."""
    layers, hidden, vocab = 4, 256, 1000
    found = parameters(f"num-layers={layers} hidden-size={hidden} num-attention-heads=4 vocab-size={vocab} "
                       "position-embedding-type=rope")  # fmt: skip
    assert found == layers * (12 * hidden**2 + 13 * hidden) + vocab * hidden + 2 * hidden


def test_queries_that_share_one_key() -> None:
    """BigCode's fork: keys and values of one head in place of all."""
    shape = "num-layers=4 hidden-size=256 num-attention-heads=4 vocab-size=1000"
    spared = 2 * 4 * (256 * 192 + 192)  # keys and values of three heads of 64, with their biases
    assert parameters(shape) - parameters(f"{shape} attention-head-type=multiquery") == spared


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ("num-experts=8 moe-layer-freq=2", Refused, "among those with experts"),
        ("num-experts=8 moe-layer-freq=([0]*3+[1]*58)", NapkinError, "no list of 4 layers"),
        ("num-experts=8 moe-ffn-hidden-size=96 moe-shared-expert-intermediate-size=100", Refused, "not a multiple"),
        ("multi-latent-attention", Refused, "without --qk-layernorm"),
        ("qk-layernorm add-qkv-bias", Refused, "next to --add-qkv-bias"),
    ],
)
def test_shapes_that_no_model_has(words: str, kind: type[NapkinError], says: str) -> None:
    with pytest.raises(kind, match=says):
        parameters(f"num-layers=4 hidden-size=256 num-attention-heads=4 vocab-size=1000 {LLAMA} {words}")


def test_the_vocabulary_is_that_of_the_tokenizer_padded() -> None:
    """GPT-2's 50,257 tokens go to a multiple of 128 × tp; a repository's are those of the model that it names."""
    gpt = launch("--micro-batch-size 1 --tokenizer-type GPT2BPETokenizer --tensor-model-parallel-size 8")
    assert gpt.shape["vocab"] == 51200
    assert any("50,257" in one.why for one in gpt.not_modelled)
    named = launch(
        "--micro-batch-size 1 --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B"
    )
    assert named.shape["vocab"] == 128256
    unknown = launch("--micro-batch-size 1 --tokenizer-type SentencePieceTokenizer --tokenizer-model $DIR/a.model")
    assert "vocab" not in unknown.shape
    assert unknown.unbuilt is not None
    assert "tokenizer" in str(unknown.unbuilt)
    assert "napkin memory MODEL" in str(unknown.unbuilt.hint)


def test_megatron_deepspeed_has_experts_in_every_second_layer_and_sends_tokens_to_one() -> None:
    line = "--micro-batch-size 8 --num-experts 128 --moe-expert-parallel-size 64 --deepspeed --deepspeed_config ds.json"
    reading = launch(line + " --vocab-size 50304")
    assert (reading.value_of("ep"), reading.shape["top_k"]) == (64, 1)
    assert reading.value_of("framework") == "megatron-deepspeed"
    assert "zero" in reading.inputs  # its value is in the JSON
    assert reading.value_of("zero") is None
    llama = " --swiglu --normalization RMSNorm --position-embedding-type rope --vocab-size 32000"
    assert "among those with experts" in str(launch(line + llama).unbuilt)
    assert launch(line.replace("128", "1") + llama).unbuilt is None  # one is none


def test_megablocks_divides_experts_over_the_data_parallel_ranks() -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --moe-num-experts=64 --moe-top-k=1"
    reading = reading_of(source_of(f"#!/bin/bash\n{line} --moe-expert-model-parallelism --fp16\n", "train.sh"))
    assert (reading.shape["experts"], reading.shape["top_k"], reading.value_of("ep")) == (64, 1, 8)


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("--activations-checkpoint-method uniform", "full"),
        ("--activations-checkpoint-method uniform --activations-checkpoint-num-layers 4", "group:4"),
        ("--activations-checkpoint-method none", "none"),
    ],
)
def test_recomputation_before_it_had_a_granularity(words: str, means: str) -> None:
    assert launch(f"--micro-batch-size 1 {words}").value_of("recompute") == means


def test_the_older_switch_of_rotary_positions() -> None:
    reading = launch("--micro-batch-size 1 --use-rotary-position-embeddings --max-position-embeddings 1024")
    assert "positions" not in reading.shape


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity", 1.25),
        ("--moe-expert-capacity-factor 1.25", None),  # tokens beyond it are dropped, and slots are not padded
        ("--moe-pad-expert-input-to-capacity", None),
    ],
)
def test_padded_slots_of_experts_are_a_capacity(words: str, means: float | None) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --num-experts 8 --moe-router-topk 2"
    reading = reading_of(source_of(f"#!/bin/bash\n{line} --expert-model-parallel-size 8 --bf16 {words}\n", "train.sh"))
    assert reading.value_of("capacity-factor") == means
