"""Parameters that LoRA trains, against peft's own counts (tests/data/lora_counts.json, tools/lora_counts.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin._tables.adapter_targets import DIFFERS
from napkin.architectures import implementation_of
from napkin.errors import NapkinError
from napkin.footprint.local_weights import LocalWeights, sum_weights
from napkin.footprint.prepared import stack_of_step
from napkin.footprint.rank_weights import weights_on_a_rank
from napkin.formats import stored_bytes
from napkin.operations.adapters.as_operations import BiasAdapter
from napkin.operations.adapters.checks import DETAIL, compared, difference
from napkin.operations.adapters.targets import all_operations, resolved
from napkin.operations.facts import POSITION_BIASES
from napkin.operations.implementations import HF
from napkin.operations.tuning import Tuning
from napkin.operations.work import Work
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import answered, model_of, run_line
from tests.test_memory import memory
from tests.test_vision import CROSSED

RANK = 4
ROWS = json.loads((Path(__file__).parent / "data" / "lora_counts.json").read_text(encoding="utf-8"))["rows"]


def adapted(fields: dict[str, Any], *targets: str, quantized: str = "", sees: bool = False) -> LocalWeights:
    """Return what a rank holds with LoRA at rank 4; of the language model, or with its vision tower."""
    whole = model_of(fields)
    model = whole if sees else replace(whole, vision=None)
    implementation = implementation_of("hf", model.family)
    tuning = Tuning("lora", RANK, 0.0, quantized=quantized, library="transformers")
    tuning = resolved(tuning, targets, model, implementation)
    setup = Setup(
        replace(implementation, tuning=tuning),
        Layout(seq=8),
        POLICIES["bf16-pure"],
        find("adamw")[0],
        "foreach",
        "eager",
        tower=replace(HF if model.vision is None else model.vision.implementation, tuning=tuning),
    )
    stack = stack_of_step(model, setup)
    counts, layers = zip(*((n, layer) for _, n, layer in stack.kinds()), strict=True)
    held = weights_on_a_rank(model, stack, setup, layers)
    ends = [(1, one) for one in (held.before, held.after, held.shared) if one is not None]
    return sum_weights([*zip(counts, held.layers, strict=True), *ends])


def trained(fields: dict[str, Any], *targets: str, sees: bool = False) -> int:
    """Return the elements of LoRA's matrices at rank 4."""
    found = adapted(fields, *targets, sees=sees)
    return int(found.all + found.idle)


@pytest.mark.parametrize(("model_type", "counts", "fields"), ROWS, ids=[row[0] for row in ROWS])
def test_targets_train_what_peft_trains(model_type: str, counts: dict[str, int], fields: dict[str, Any]) -> None:
    assert {choice: trained(fields, *choice.lower().split(",")) for choice in counts} == counts


@pytest.mark.parametrize(("model_type", "excluded"), [("llama", "o_proj"), ("gpt2", "c_fc"), ("bert", "query")])
def test_an_excluded_module_has_no_adapter(model_type: str, excluded: str) -> None:
    """What is left of peft's count of every linear layer without its count of the excluded one."""
    counts, fields = next((counts, fields) for name, counts, fields in ROWS if name == model_type)
    left = counts["all-linear"] - counts[excluded]
    assert trained(fields, "all-linear", f"-{excluded}") == trained(fields, f"-{excluded}") == left


def test_a_target_of_which_some_modules_are_excluded_keeps_the_others() -> None:
    counts, fields = next((counts, fields) for name, counts, fields in ROWS if name == "bart")
    pairs = fields["decoder_layers"] * RANK * 2 * fields["d_model"]
    assert trained(fields, "out_proj", "-encoder_attn.out_proj") == counts["out_proj"] - pairs


@pytest.mark.parametrize(
    ("targets", "says"), [(("all-linear", "-o_prj"), "o_proj"), (("o_proj", "-o_proj"), "every target is left out")]
)
def test_an_exclusion_that_leaves_nothing_or_names_nothing_is_one_error(targets: tuple[str, ...], says: str) -> None:
    fields = next(fields for name, _, fields in ROWS if name == "llama")
    with pytest.raises(NapkinError) as caught:
        trained(fields, *targets)
    assert says in f"{caught.value.message} {caught.value.hint}"


SEEN = json.loads((Path(__file__).parent / "data" / "vision_bytes.json").read_text(encoding="utf-8"))["configs"]


@pytest.mark.parametrize(
    ("name", "everything", "queries_and_values"),
    [
        ("llava", 22_336, 5_760),
        ("gemma3", 21_376, 5_760),
        ("paligemma", 29_760, 5_760),
        ("internvl", 22_912, 5_760),
        ("qwen2_vl", 22_912, 2_688),
        ("qwen2_5_vl", 24_448, 2_688),
        ("mllama", 42_880, 11_648),
        ("idefics", 23_296, 6_272),
    ],
)
def test_a_tower_has_the_adapters_that_peft_gives_it(name: str, everything: int, queries_and_values: int) -> None:
    """peft 0.21.2 on the whole class: neither a convolution over patches nor a projector's own parameter is a linear
    layer; LLaVA's last layer, which nothing reads, has adapters too."""
    fields = SEEN[name]["config"] if name in SEEN else CROSSED[name]
    assert trained(fields, "all-linear", sees=True) == everything
    assert trained(fields, "q_proj", "v_proj", sees=True) == queries_and_values


def test_adapters_of_what_does_not_run_have_no_gradient_and_no_states() -> None:
    """Longformer's 2 layers hold three projections of 32 × 32 for tokens that attend to all, of which text has none."""
    fields = {
        "model_type": "longformer", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 48, "vocab_size": 96, "max_position_embeddings": 64, "attention_window": 16,
    }  # fmt: skip
    asleep = 2 * 3 * RANK * (32 + 32)
    alone, both = adapted(fields, "query_global", "key_global", "value_global"), adapted(fields, "all-linear")
    assert (alone.all, alone.idle, alone.states) == (0, asleep, ())
    assert both.idle == asleep
    running = 2 * (2 * 6 + 1)  # A and B of six linear layers in each layer and of the head's
    assert both.states == (("step", running * 4, 0), ("exp_avg", both.all * 2, 0), ("exp_avg_sq", both.all * 2, 0))
    plain, frozen = adapted(fields, "query"), adapted(fields, "all-linear")
    assert frozen.frozen - plain.frozen == asleep * 2
    # of nf4, linear layers alone: 6 of 32 × 32 in each layer, the three that do not run among them, and the MLP's two
    narrow = adapted(fields, "query", quantized="nf4")
    matrices = 2 * (4 * 32 * 32 + 3 * 32 * 32 + 2 * 32 * 48) + 32 * 32
    assert plain.frozen - narrow.frozen == round(matrices * (2 - stored_bytes("nf4")))


QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "intermediate_size": 96,
    "vocab_size": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def test_names_of_transformers_4_stand_for_experts_in_one_tensor() -> None:
    """Two layers of 8 experts: down has r·(f + h) each, the fused gate and up twice the rank, 2r·(h + 2f)."""
    down, fused = 8 * RANK * (32 + 64), 8 * 2 * RANK * (64 + 2 * 32)
    assert trained(QWEN3_MOE, "down_proj") == 2 * down
    assert trained(QWEN3_MOE, "experts.gate_up_proj") == fused  # the parameter by its own name, at the rank given
    assert trained(QWEN3_MOE, "gate_proj", "up_proj", "down_proj") == 2 * (down + fused)
    assert trained(QWEN3_MOE, "gate") == 2 * RANK * (8 + 64)
    with pytest.raises(NapkinError, match="gate_up_proj holds gate_proj and up_proj"):
        trained(QWEN3_MOE, "gate_proj")


def test_the_default_is_peft_s() -> None:
    assert trained(QWEN3_MOE | {"model_type": "mixtral", "num_local_experts": 8}, "default") == 2 * RANK * (
        64 + 64 + 64 + 32
    )
    with pytest.raises(NapkinError, match="peft has none for qwen3_moe"):
        trained(QWEN3_MOE, "default")


def test_a_name_that_a_path_has_is_no_short_name() -> None:
    """Gemma 3n has per_layer_projection in each layer, and once per_layer_model_projection, called so for short."""
    values = memory("--seq 64 --lora-rank 4 --lora-targets per_layer_projection", "gemma3n-e2b").values
    assert values["memory/gradients"] == 2 * 30 * 4 * (256 + 2048)


def test_frozen_experts_keep_no_inputs() -> None:
    """Next to LoRA on q alone, experts in one tensor keep nothing of what grouped matmuls read (torch saves it for the
    gradient of the weight only); LoRA on them keeps that and the weight that it has been added to."""
    line = "--seq 128 --lora-rank 4 --lora-targets"
    alone = memory(f"{line} q_proj", "mixtral-8x7b").values["memory/activations/saved"]
    both = memory(f"{line} q_proj,experts.down_proj", "mixtral-8x7b").values["memory/activations/saved"]
    hidden, merged = 2 * 128 * 14336 * 2, 8 * 14336 * 4096 * 2
    assert both - alone == 32 * (hidden + merged)


def test_no_targets_and_all_are_every_linear_layer_as_peft_takes_them() -> None:
    """Mixtral's experts are tensors that peft adapts under all-linear too: 2 layers of 8 experts, and the router."""
    config = QWEN3_MOE | {"model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 32}
    attention = RANK * ((64 + 64) + 2 * (64 + 32) + (64 + 64))
    experts = 8 * (2 * RANK * (64 + 2 * 32) + RANK * (32 + 64)) + RANK * (8 + 64)
    assert trained(config) == trained(config, "all") == trained(config, "all-linear") == 2 * (attention + experts)


ALBERT = {
    "model_type": "albert",
    "architectures": ["AlbertForMaskedLM"],
    "vocab_size": 96,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}


@pytest.mark.parametrize("layers", [1, 6])
def test_a_module_has_its_adapters_once_however_often_it_runs(layers: int) -> None:
    """One group of layers has one query, r·(h + h), and one ffn, r·(h + f), in any number of layers."""
    config = ALBERT | {"num_hidden_layers": layers}
    assert trained(config, "query") == RANK * (32 + 32)
    assert trained(config, "ffn") == RANK * (32 + 64)


def test_each_run_of_a_module_runs_its_adapters(tmp_path: Path) -> None:
    """Six runs of one query make 6·2·T·r·(h + h) FLOP with its adapter, and the loss's gradient passes through them: at
    least the products behind the first adapter's layer have gradients of their inputs."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(ALBERT | {"num_hidden_layers": 6}), encoding="utf-8")
    made = run_line(f"flops {file} --seq 16 --lora-rank 4 --lora-targets query --json")
    values = json.loads(made.out)["values"]
    assert values["flops/operation/q/lora"] == 6 * 2 * 16 * 4 * (32 + 32)
    layer = 2 * 16 * (4 * 32 * 32 + 2 * 32 * 64)
    assert values["flops/backward"] > 5 * layer


def test_what_is_no_linear_layer_has_no_adapter() -> None:
    """XLNet's attention holds its matrices as parameters of its own: only the MLP's two layers are adapted."""
    config = {"model_type": "xlnet", "d_model": 24, "n_layer": 4, "n_head": 2, "vocab_size": 97, "d_inner": 104}
    assert trained(config) == 4 * 2 * RANK * (24 + 104)
    with pytest.raises(NapkinError, match="no linear layer 'q'"):
        trained(config, "q")


@pytest.mark.parametrize("targets", ["", "--lora-targets o_a_proj", "--lora-targets q_a_proj,o_a_proj"])
def test_adapters_that_peft_makes_and_cannot_run_are_refused(targets: str) -> None:
    """DeepSeek-V4's output is one linear layer for each group of heads; peft 0.21 adds (…, groups, groups · rank) to
    (…, groups, rank)."""
    refused = run_line(f"memory deepseek-v4-flash --seq 64 --lora-rank 8 {targets}")
    assert refused.status == 3
    assert len(refused.errors) == len(refused.hints) == 1
    assert "o_a_proj" in refused.errors[0]
    assert "q_a_proj" in refused.hints[0]
    assert "o_a_proj" not in refused.hints[0]
    assert run_line("memory deepseek-v4-flash --seq 64 --lora-rank 8 --lora-targets q_a_proj").status == 0


def test_each_module_of_a_shared_block_holds_the_adapters_of_all_uses() -> None:
    """Zamba2: one block, used by two layers of three; the class has it twice, each with low-rank layers for both uses,
    of which each module runs its own: 2 · 2 pairs of r·(h + a) and r·(a + 2f), half of which have no gradient."""
    config = {
        "model_type": "zamba2", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
        "intermediate_size": 48, "vocab_size": 96, "adapter_rank": 8, "n_mamba_heads": 4, "mamba_d_state": 16,
        "layers_block_type": ["hybrid", "mamba", "hybrid"],
    }  # fmt: skip
    found = adapted(config, *(f"gate_up_proj_adapter_list.{use}.{half}" for use in (0, 1) for half in (0, 1)))
    assert found.all == found.idle == 2 * RANK * ((32 + 8) + (8 + 2 * 48))


def test_an_adapter_in_a_single_layer_is_refused() -> None:
    refused = run_line("memory llama3.1-8b --lora-rank 8 --lora-targets 0.self_attn.q_proj")
    assert refused.status == 3
    assert "hint: self_attn.q_proj" in refused.hints[0]


def test_an_adapter_in_a_single_expert_is_refused() -> None:
    config = next(fields for name, _, fields in ROWS if name == "nllb-moe")
    with pytest.raises(NapkinError, match="single experts are not modeled"):
        adapted(config, "experts.expert_0.fc1")


def test_what_is_trained_in_full_has_no_adapter_too() -> None:
    """peft 0.21 leaves modules_to_save out of the targets (tuners/tuners_utils.py)."""
    line = "flops llama3.1-8b --seq 512 --lora-rank 8 --modules-to-save lm_head --lora-targets"
    assert values(f"{line} q_proj,lm_head")["flops/total"] == values(f"{line} q_proj")["flops/total"]
    line = line.replace("flops", "memory").replace("lm_head", "embed_tokens")
    both, alone = values(f"{line} q_proj,embed_tokens"), values(f"{line} q_proj")
    assert both["memory/gradients"] == alone["memory/gradients"]


@pytest.mark.parametrize(("share", "status"), [(0.2, 3), (0.0088, 0)])
def test_a_known_difference_from_peft_is_refused_or_noted(
    monkeypatch: pytest.MonkeyPatch, share: float, status: int
) -> None:
    monkeypatch.setitem(DIFFERS, "esm", {"all-linear": share, "query": 0.0})
    assert (share > DETAIL) == (status == 3)
    assert difference("esm", ("all-linear",)) == share
    assert difference("esm", ("query",)) == 0
    answer = run_line("memory esm2-650m --seq 64 --lora-rank 8 --json")
    assert answer.status == status
    if status:
        assert "query" in answer.hints[0]
    else:
        notes = json.loads(answer.out)["notes"]
        assert any(note.startswith("LoRA on esm: the adapters' parameters differed by up to 0.9%") for note in notes)
    assert run_line("memory esm2-650m --seq 64 --lora-rank 8 --lora-targets query").status == 0


def test_a_type_that_was_never_compared_is_named_as_such() -> None:
    assert not compared("grok-1")
    answer = answered("memory grok-1 --seq 64 --lora-rank 8")
    assert "adapters not compared with peft" in answer.assumed
    assert any(note.startswith("LoRA on grok-1: adapters follow") for note in answer.notes)
    assert "adapters not compared with peft" not in answered("memory t5-base --seq 64 --lora-rank 8").assumed


def test_every_row_of_these_counts_was_compared() -> None:
    assert all(compared(model_type) for model_type, _, _ in ROWS)


def values(line: str) -> dict[str, float]:
    """Return an answer's numbers."""
    found: dict[str, float] = json.loads(run_line(f"{line} --json").out)["values"]
    return found


SAVED = 128_256 * 4_096
"""Elements of the embedding of Llama 3.1 8B, and of its head."""


@pytest.mark.parametrize(("modules", "copies"), [("embed_tokens", 1), ("lm_head", 1), ("embed_tokens,lm_head", 2)])
def test_modules_to_save_are_copies_in_the_frozen_type(modules: str, copies: int) -> None:
    """peft keeps the frozen module next to a copy that is trained (utils/other.py, ModulesToSaveWrapper), which
    autocast_adapter_dtype does not cast: weight, gradient and two states of 2 bytes, where adapters have 4."""
    line = "memory llama3.1-8b --lora-rank 8 --trainer hf-trainer --seq 512 --recompute full --hardware h100"
    plain, saved = values(line), values(f"{line} --modules-to-save {modules}")
    for bucket, each in (("parameters", 2), ("gradients", 2), ("optimizer", 4)):
        path = f"memory/{bucket}"
        steps = 4 * copies * (bucket == "optimizer")  # the count of steps of each tensor
        assert saved[path] - plain[path] == each * copies * SAVED + steps, bucket


def test_modules_to_save_have_a_gradient_of_their_own() -> None:
    """A trained head adds its weight's gradient, 2 FLOP an element and token; a lookup has no matmul."""
    line = "flops llama3.1-8b --seq 512 --lora-rank 8"
    plain = values(line)["flops/total"]
    assert values(f"{line} --modules-to-save lm_head")["flops/total"] - plain == 2 * SAVED * 512


@pytest.mark.parametrize(
    ("modules", "status", "says"),
    [
        ("wte", 2, "has no linear layer or embedding in 'wte'"),
        ("lm_hed", 2, "lm_head"),
    ],
)
def test_modules_that_are_not_saved(modules: str, status: int, says: str) -> None:
    found = run_line(f"memory llama3.1-8b --lora-rank 8 --hardware h100 --modules-to-save {modules}")
    assert found.status == status
    assert says in found.err


def test_experts_are_not_saved_and_a_linear_layer_is() -> None:
    found = run_line("memory mixtral-8x7b --lora-rank 8 --hardware h100 --modules-to-save experts")
    assert (found.status, "not modeled" in found.err) == (3, True)
    line = "memory llama3.1-8b --lora-rank 8 --precision fp32 --optimizer sgd-momentum --lora-targets v_proj"
    more = values(f"{line} --modules-to-save q_proj")["memory/optimizer"] - values(line)["memory/optimizer"]
    assert more == 4 * 32 * 4096 * 4096


@pytest.mark.parametrize("dropout", ["0", "0.05"])
@pytest.mark.parametrize("targets", ["all-linear", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"])
def test_experts_of_megatron_are_linear_layers_and_its_router_is_none(targets: str, dropout: str) -> None:
    """One pair of matrices next to linear_fc1, gate and up in one, and one next to linear_fc2, for each of 128 experts;
    gradients in fp32 (modelscope/mcore-bridge src/mcore_bridge/tuners/lora.py; ms-swift swift/megatron/utils/utils.py,
    find_all_linears, has no TopKRouter)."""
    line = "memory qwen3-30b-a3b --framework megatron-core --lora-rank 8 --seq 64 --json"
    found = run_line(f"{line} --lora-targets {targets} --lora-dropout {dropout}").values["memory/gradients"]
    attention = (2048 + 4096) + 2 * (2048 + 512) + (4096 + 2048)
    experts = 128 * ((2048 + 2 * 768) + (768 + 2048))
    assert found == 4 * 48 * 8 * (attention + experts)


@pytest.mark.parametrize("kind", ["t5", "mpnet"])
def test_a_bias_of_distances_is_adapted_once_for_each_pair_of_tokens(kind: str) -> None:
    """B of an adapter on the embedding of distances multiplies the rows that A gives: 2·s²·rank·heads FLOP forward and
    twice as many backward, whatever the number of sequences."""
    fields = next(row[2] for row in ROWS if row[0] == kind)
    model = model_of(fields)
    (bias, *_) = [op for op in all_operations(model) if op.pattern() in POSITION_BIASES]
    ((rows, heads),) = (weight.shape for weight in bias.tables())
    adapter = BiasAdapter("lora", (), rows, RANK, heads)
    assert sum(weight.count for weight in adapter.weights()) == RANK * (rows + heads)
    for sequences in (1, 3):
        work = Work(sequences, 16)
        assert sum(one.flops for one in adapter.gemms(work)) == 2 * 16 * 16 * RANK * heads
        assert sum(one.flops * one.backward for one in adapter.products(work)) == 4 * 16 * 16 * RANK * heads
        assert adapter.scores(work) == 16 * 16 * heads
