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
    assert "MODEL --from FILE" in str(unknown.unbuilt.hint)


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


def test_selective_recomputation_of_other_modules_is_not_taken_for_that_of_attention() -> None:
    """Scores of attention that is not fused are most of what a layer keeps: 69 % of a test of Megatron-LM's own."""
    usual = "--micro-batch-size 1 --recompute-granularity selective"
    assert launch(usual).value_of("recompute") == "selective"
    both = launch(f"{usual} --recompute-modules core_attn moe_act")
    assert both.value_of("recompute") == "selective:core_attn+moe_act"
    assert launch(f"{usual} --moe-layer-recompute").value_of("recompute") == "selective:core_attn+moe"
    assert launch("--micro-batch-size 1 --moe-layer-recompute").value_of("recompute") == "selective:core_attn+moe"
    asks = launch(f"{usual} --recompute-modules layernorm gdn_norm_out")
    assert asks.value_of("recompute") is None
    assert "gdn_norm_out" in str(asks.refused)


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


@pytest.mark.parametrize(("words", "means"), [("--overlap-moe-expert-parallel-comm", True), ("", None)])
def test_an_exchange_beside_another_micro_batch(words: str, means: bool | None) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --num-experts 8 --moe-router-topk 2"
    reading = reading_of(source_of(f"#!/bin/bash\n{line} --expert-model-parallel-size 8 --bf16 {words}\n", "train.sh"))
    assert reading.value_of("async-ep") == means


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("--moe-token-dispatcher-type alltoall", "alltoall"),
        ("--moe-token-dispatcher-type flex", "deepep"),  # the backend's default
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "hybridep"),
        ("--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep", "alltoall"),
        ("--moe-token-dispatcher-type allgather", None),  # each rank gathers all tokens: not modeled
        ("", None),
    ],
)
def test_what_sends_tokens_to_their_experts(words: str, means: str | None) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --num-experts 8 --moe-router-topk 2"
    reading = reading_of(source_of(f"#!/bin/bash\n{line} --expert-model-parallel-size 8 --bf16 {words}\n", "train.sh"))
    assert reading.value_of("dispatcher") == means


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("", "none"),  # arguments.py: action='store_true' of both
        ("--overlap-grad-reduce", "gradients"),
        ("--overlap-grad-reduce --overlap-param-gather", "both"),
        ("--use-torch-fsdp2", None),  # FSDP gathers and scatters while it computes
    ],
)
def test_what_of_data_parallelism_overlaps(words: str, means: str | None) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --bf16 {words}"
    reading = reading_of(source_of(f"#!/bin/bash\n{line}\n", "train.sh"))
    assert reading.value_of("async-dp") == means


SWIFT = "megatron sft --model Qwen/Qwen3-8B --micro_batch_size 1 --global_batch_size 16 --max_length 4096"
SLIME = (
    "python train.py --actor-num-nodes 1 --hf-checkpoint Qwen/Qwen3-4B --rollout-batch-size 16 --num-rollout 9 "
    "--global-batch-size 64"
)
PRIMUS = (
    "work_group: g\nmodules:\n  pre_trainer:\n    framework: {}\n    model: llama3.1_8B.yaml\n    overrides: {{{}}}\n"
)
BRIDGE = "model: {{tensor_model_parallel_size: 2}}\ntrain: {{micro_batch_size: 1}}\ncheckpoint: {{}}\nddp: {{{}}}\n"
NEMO_RL = (
    "policy:\n  model_name: Qwen/Qwen3-8B\n  megatron_cfg:\n    enabled: true\n    "
    "distributed_data_parallel_config: {{{}}}\n"
)


@pytest.mark.parametrize(
    ("text", "name", "means"),
    [
        (SWIFT, "a.sh", "none"),  # false by default
        (f"{SWIFT} --overlap_grad_reduce true --overlap_param_gather true", "a.sh", "both"),
        (f"{SWIFT} --overlap_grad_reduce true --overlap_param_gather false", "a.sh", "gradients"),
        (SLIME, "a.sh", "none"),
        (f"{SLIME} --overlap-grad-reduce", "a.sh", "gradients"),
        (PRIMUS.format("megatron", "overlap_grad_reduce: true"), "a.yaml", "gradients"),
        (PRIMUS.format("megatron", "micro_batch_size: 2"), "a.yaml", "none"),  # trainer_base.yaml
        (PRIMUS.format("megatron", "use_torch_fsdp2: true"), "a.yaml", None),
        (BRIDGE.format("overlap_grad_reduce: true"), "a.yaml", None),  # as the recipe's other overlap
        (BRIDGE.format("overlap_grad_reduce: true, overlap_param_gather: true"), "a.yaml", "both"),
        (BRIDGE.format("overlap_grad_reduce: false"), "a.yaml", "none"),
        (NEMO_RL.format("overlap_grad_reduce: true, overlap_param_gather: false"), "a.yaml", "gradients"),
    ],
)
def test_what_of_data_parallelism_overlaps_elsewhere(text: str, name: str, means: str | None) -> None:
    text = f"#!/bin/bash\n{text}\n" if name == "a.sh" else text
    assert reading_of(source_of(text, name)).value_of("async-dp") == means


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("", None),
        ("--overlap-grad-reduce", "gradients"),
        ("--overlap-param-gather --overlap-grad-reduce", "both"),
    ],
)
def test_what_of_data_parallelism_overlaps_in_a_pasted_line(words: str, means: str | None) -> None:
    line = "step llama3-8b --hardware h100 --gpus 16 --tensor-model-parallel-size 2 --use-distributed-optimizer"
    found = run_line(f"{line} --seq-length 4096 --global-batch-size 16 {words} --json").data["inputs"]
    assert found.get("async-dp", {}).get("value") == means


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess", "parts"),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn", None),  # a mixture waits at its router
        ("--cuda-graph-scope attn moe_router", None),  # the implementation is "none" by default
        ("--cuda-graph-impl full_iteration", "whole"),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "whole"),
    ],
)
def test_what_cuda_graphs_capture(words: str, means: str | None) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --micro-batch-size 8 --num-experts 8 --moe-router-topk 2"
    reading = reading_of(source_of(f"#!/bin/bash\n{line} --expert-model-parallel-size 8 --bf16 {words}\n", "train.sh"))
    assert reading.value_of("graphs") == means


@pytest.mark.parametrize(
    ("words", "loss", "attention"),
    [
        ("", None, None),
        ("--cross-entropy-loss-fusion", "vocabulary", None),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "in-place", None),
        ("--cross-entropy-fusion-impl te", None, None),  # the implementation of a fusion that is off
        ("--transformer-impl transformer_engine", None, None),
        ("--transformer-impl local", None, "eager"),
        ("--transformer-impl local --use-flash-attn", None, "flash"),
        ("--transformer-impl local --attention-backend unfused", None, "eager"),
    ],
)
def test_the_fused_loss_and_the_layers_without_a_kernel(words: str, loss: str | None, attention: str | None) -> None:
    reading = launch(f"--micro-batch-size 4 --bf16 {words}")
    assert (reading.value_of("loss"), reading.value_of("attention")) == (loss, attention)


def test_a_fusion_that_megatron_does_not_have() -> None:
    with pytest.raises(NapkinError, match="not one of native, te"):
        launch("--micro-batch-size 4 --cross-entropy-loss-fusion --cross-entropy-fusion-impl liger")


def test_the_compiled_loss_holds_another_fp32_tensor_of_all_logits() -> None:
    """Its parts return new tensors: 16-bit logits, fp32 ones and their exponentials (2 + 4 + 4 bytes) where the loss
    that works in place has 2 + 4. Two functional tests of Megatron-LM at 93ebf8d7 differ by 391 MiB: 4 x 1,024 tokens,
    25,216 rows of the vocabulary on a rank, of which 4 bytes are 394 MiB."""
    line = "memory --from - --hardware h100 --json"
    words = f"{GPT.replace('--num-layers 24', '--num-layers 2')} --micro-batch-size 4 --bf16 --padded-vocab-size 50432"
    script = f"torchrun --nproc_per_node 8 pretrain_gpt.py {words} --tensor-model-parallel-size 2"
    plain, fused = (
        run_line(line.split(), stdin=f"{script} {more}\n").values["memory/live"]
        for more in ("", "--cross-entropy-loss-fusion")
    )
    assert fused - plain == 4 * 4 * 1024 * 25216


def test_ranks_that_divide_an_expert() -> None:
    """By default those that divide the other layers; a model without experts has none to divide."""
    line = "--micro-batch-size 4 --tensor-model-parallel-size 2"
    assert "etp" not in launch(f"{line} --expert-tensor-parallel-size 4").inputs
    assert launch(f"{line} --num-experts 8 --expert-tensor-parallel-size 4").value_of("etp") == 4
    assert launch(f"{line} --num-experts 8").value_of("etp") == 2


def test_instances_of_the_distributed_optimizer_are_sharding_groups() -> None:
    """2 instances on 8 GPUs with tp 2: each divides the states over 4 / 2 ranks."""

    def shard(gpus: str, words: str) -> Reading:
        line = f"torchrun {gpus} pretrain_gpt.py {GPT} --micro-batch-size 4 --tensor-model-parallel-size 2 {words}"
        return reading_of(source_of(line, "train.sh"))

    many = "--num-distributed-optimizer-instances 2"
    assert shard("--nproc_per_node 8", f"--use-distributed-optimizer {many}").value_of("dp-shard") == 2
    assert "dp-shard" not in shard("--nproc_per_node 8", many).inputs  # nothing is divided
    assert shard("", f"--use-distributed-optimizer {many}").inputs["dp-shard"].value is None
    odd = shard("--nproc_per_node 8", "--use-distributed-optimizer --num-distributed-optimizer-instances 3")
    assert any("do not divide 4" in one.why for one in odd.refused)


def test_decoders_that_no_class_of_transformers_is() -> None:
    """Sizes by hand: h 64, 4 layers, f 256, 100 tokens of h each, and where they are learned, 4,096 positions; of a
    layer 4·h² for attention, 2·h·f for the MLP, two norms; a last norm."""
    sizes = "num-layers=4 hidden-size=64 num-attention-heads=4 vocab-size=100"
    plain = "position-embedding-type=none normalization=RMSNorm squared-relu disable-bias-linear"
    layer = 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64
    assert parameters(f"{sizes} {plain}") == 6400 + 4 * layer + 64
    # Nemotron-4's layers: layer norms with biases, ReLU², grouped queries of 2 · 16 for keys and values each
    nemotron = f"{sizes} position-embedding-type=rope squared-relu disable-bias-linear {UNTIED}"
    few = "group-query-attention num-query-groups=2"
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 256 + 4 * 64
    assert parameters(f"{nemotron} {few}") == 2 * 6400 + 4 * layer + 2 * 64
    # GELU experts of GPT-2's layers, in every second one: 8 of 2·h·f, a router of 8·h, 2·h·128 for the shared one
    routed = "num-experts=8 moe-router-topk=2 moe-layer-freq=2 moe-shared-expert-intermediate-size=128"
    words = f"{sizes} disable-bias-linear {routed}"
    attended, mlp, experts = 4 * 64 * 64 + 4 * 64, 2 * 64 * 256, 8 * 2 * 64 * 256 + 8 * 64 + 2 * 64 * 128
    assert parameters(words) == 6400 + 4096 * 64 + 4 * attended + 2 * mlp + 2 * experts + 2 * 64


def test_squared_relu_and_swiglu_are_what_the_launch_says() -> None:
    words = "--micro-batch-size 4 --position-embedding-type rope --padded-vocab-size 50304"
    shapes = {more: launch(f"{words} {more}").config for more in ("--squared-relu --disable-bias-linear", "--swiglu")}
    assert [
        (config["model_type"], config["hidden_act"], config["gated"], config["mlp_bias"])
        for config in shapes.values()
        if config is not None
    ] == [("megatron", "relu2", False, False), ("megatron", "silu", True, True)]


@pytest.mark.parametrize(
    ("layout", "pp", "stages", "vp"),
    [
        ("Ettt|(tt|)*2L", 4, "3,2,2,0", 1),  # the last stage has the loss alone
        ("'Et*2|t*2|t*2|tL'", 2, "4,3", None),  # chunks of 2 and 2, and of 2 and 1
        ("Et|t|t|t|t|tmL", 3, "2,2,2", 2),  # chunks lie one round of stages behind the other
        ("E,(t*2|)*3,(tt|)*1,L", 5, "2,2,2,2,0", 1),
    ],
)
def test_layers_that_a_layout_assigns_to_stages(layout: str, pp: int, stages: str, vp: int | None) -> None:
    line = f"--micro-batch-size 4 --pipeline-model-parallel-size {pp} --pipeline-model-parallel-layout"
    reading = launch(f"{line} {layout if layout.startswith(chr(39)) else repr(layout)}")
    assert (reading.value_of("stage-layers"), reading.value_of("vp")) == (stages, vp)


@pytest.mark.parametrize("layout", ["Ex|tL", "(t|)*999999", "((t|)*99)*99", "E|L"])
def test_what_is_no_layout_of_the_stages(layout: str) -> None:
    reading = launch(
        f"--micro-batch-size 4 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout {layout!r}"
    )
    assert reading.inputs["stage-layers"].value is None
    assert [one.option for one in reading.refused] == ["stage-layers"]


def test_ends_that_count_as_a_layer() -> None:
    """14 layers, the embedding and the loss on 4 stages: 3, 4, 4, 3."""
    line = "torchrun --nproc_per_node 8 pretrain_gpt.py " + GPT.replace("--num-layers 24", "--num-layers 14")
    ends = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --padded-vocab-size 50432"
    words = f"{line} --micro-batch-size 4 --pipeline-model-parallel-size 4 --bf16 {ends}"
    found = run_line("memory --from - --hardware h100 --json", stdin=words).data["stages"]
    assert [one["layers"] for one in found] == [3, 4, 4, 3]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout $LAYOUT", "stage-layers"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl $IMPL", "loss"),
    ],
)
def test_what_a_variable_decides_is_asked_for(words: str, option: str) -> None:
    assert launch(f"--micro-batch-size 4 {words}").inputs[option].value is None


def test_the_batch_of_a_rank_under_its_older_name() -> None:
    """Megatron-LM 1 has no other batch: `--batch-size` is what --micro-batch-size is now (arguments.py)."""
    line = GPT.replace("--global-batch-size 64", "--batch-size 4 --model-parallel-size 2")
    found = reading_of(source_of(f"torchrun --nproc_per_node 8 pretrain_gpt2.py {line} --train-iters 10\n", "train.sh"))
    assert (found.inputs["micro-batch"].value, found.inputs["tp"].value) == (4, 2)


def test_ulysses_of_megatron_deepspeed_divides_the_ranks() -> None:
    """megatron/arguments.py: the data-parallel size is the world's over tp, pp and ds_sequence_parallel_size."""
    line = "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --ds-sequence-parallel-size {} "
    for size in (1, 4):
        text = f"torchrun --nproc_per_node 8 {line.format(size)}--deepspeed --zero-stage 1\n"
        assert reading_of(source_of(text, "run.sh")).inputs["cp"].value == size


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("--tensor-model-parallel-size 2", False),  # its user buffers are off
        ("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap", True),
        ("--tp-comm-overlap", None),  # nothing to overlap
    ],
)
def test_whether_tensor_parallel_collectives_overlap(said: str, means: bool | None) -> None:
    assert launch(said).value_of("async-tp") is means
