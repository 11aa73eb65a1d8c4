"""`napkin memory`: states by policy and layout worked out by hand, moments that add up, verdicts, solving, refusals."""

from __future__ import annotations

import itertools
import json
import pathlib

import pytest

from napkin.elementwise import next_power
from napkin.record import replace
from napkin.training.precision import Precision, precision
from napkin.training.recomputation import Recompute

from .conftest import Outcome, run_line

P = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 2 * 128256 * 4096 + 4096  # Llama 3 8B
BUCKETS = ("parameters", "gradients", "optimizer", "activations", "weight_casts", "inputs", "temporaries")


def memory(line: str, model: str = "llama3-8b") -> Outcome:
    return run_line(f"memory {model} {line} --json")


@pytest.mark.parametrize(
    ("policy", "parameters", "gradients", "optimizer"),
    [
        ("bf16-mixed", 2 * P, 2 * P, 12 * P),
        ("bf16-fp32state", 2 * P, 2 * P, 8 * P),
        ("bf16-pure", 2 * P, 2 * P, 4 * P),
        ("fp32", 4 * P, 4 * P, 8 * P),
        ("amp-bf16", 4 * P, 4 * P, 8 * P),
        ("param=bf16,grad=fp32,state=fp32,master=fp32", 2 * P, 4 * P, 12 * P),
    ],
)
def test_states_by_policy(policy: str, parameters: int, gradients: int, optimizer: int) -> None:
    values = memory(f"--seq 128 --precision {policy}").values
    tensors = 32 * 9 + 3
    assert values["memory/parameters"] == parameters
    assert values["memory/gradients"] == gradients
    assert values["memory/optimizer"] == optimizer + 4 * tensors  # a step counter for each tensor


@pytest.mark.parametrize("param", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("compute", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("frozen", ["", "bf16", "fp32"])
def test_a_policy_is_typed_by_the_parts_that_do_not_follow(param: str, compute: str, frozen: str) -> None:
    """Omitted, grad, compute and frozen are as param, and states are fp32."""
    for grad, state, master in itertools.product(("fp32", "bf16"), ("fp32", "bf16"), (None, "fp32")):
        policy = Precision("own", param, grad, compute, state, master, frozen)
        read = precision(policy.stated)
        assert replace(read, name="own", frozen=read.frozen or param) == replace(policy, frozen=frozen or param)
    shortest = Precision("own", "fp32", "fp32", "bf16", "fp32", frozen="bf16")
    assert shortest.stated == "param=fp32,compute=bf16,frozen=bf16"


@pytest.mark.parametrize(
    ("zero", "parameters", "gradients", "optimizer"),
    [(0, 2 * P, 2 * P, 12 * P), (1, 2 * P, 2 * P, 1.5 * P), (2, 2 * P, P / 4, 1.5 * P), (3, P / 4, P / 4, 1.5 * P)],
)
def test_zero_divides_states_over_eight_ranks(zero: int, parameters: float, gradients: float, optimizer: float) -> None:
    values = memory(f"--gpus 8 --seq 128 --zero {zero}").values
    assert values["memory/parameters"] == parameters
    assert values["memory/gradients"] == gradients
    assert values["memory/optimizer"] == pytest.approx(optimizer, rel=1e-6)


def test_hybrid_sharding_divides_over_its_own_group() -> None:
    values = memory("--gpus 8 --seq 128 --zero 3 --dp-shard 2").values
    assert values["memory/parameters"] == P


def test_tensor_parallelism_divides_matrices_and_not_norms() -> None:
    norms = 65 * 4096
    assert memory("--gpus 4 --tp 4 --seq 128").values["memory/parameters"] == 2 * ((P - norms) // 4 + norms)


@pytest.mark.parametrize(
    "line", ["--seq 512", "--gpus 8 --tp 2 --pp 2 --zero 1 --seq 512 --recompute full", "--gpus 4 --zero 3"]
)
def test_the_buckets_of_a_moment_add_up_and_live_is_the_largest(line: str) -> None:
    values = memory(line).values
    moments = [values[f"memory/at/{moment}"] for moment in ("forward", "loss", "backward", "step")]
    for moment, total in zip(("forward", "loss", "backward", "step"), moments, strict=True):
        assert sum(values[f"memory/at/{moment}/{bucket}"] for bucket in BUCKETS) == total
    assert values["memory/live"] == max(moments)
    assert values["memory/live"] <= values["memory/allocated"] <= values["memory/reserved"] <= values["memory/used"]
    assert values["memory/total"] == values["memory/used"]
    assert values["memory/low"] < values["memory/total"] < values["memory/high"]


def test_the_activation_budget_is_what_states_and_overhead_leave() -> None:
    values = memory("--gpus 8 --zero 3 --hardware h100-sxm-80gb --seq 2048").values
    taken = sum(values[f"memory/{name}"] for name in ("parameters", "gradients", "optimizer", "overhead"))
    assert values["memory/activation_budget"] == pytest.approx(values["memory/capacity"] - taken)


@pytest.mark.parametrize(
    ("line", "verdict", "status"),
    [
        ("--gpus 8 --zero 3 --recompute full", "fits", 0),
        ("--seq 1024", "does not fit", 1),
        ("--gpus 8 --zero 3 --recompute full --micro-batch 7", "too close to call", 4),
    ],
)
def test_verdicts_and_their_exit_status(line: str, verdict: str, status: int) -> None:
    outcome = memory(f"--hardware h100-sxm-80gb {line} --must-fit")
    assert outcome.data["verdict"] == verdict
    assert outcome.status == status
    assert memory(f"--hardware h100-sxm-80gb {line}").status == 0


@pytest.mark.parametrize("capacity", [18, 20, 22, 24, 26, 28, 30, 36, 42])
def test_the_verdict_follows_from_the_interval_and_the_capacity(capacity: int) -> None:
    answer = run_line(f"memory gpt2-xl --gpus 4 --hardware a10 --hbm {capacity}GiB --json").data
    low, high = answer["low"]["memory/used"], answer["high"]["memory/used"]
    room = answer["values"]["memory/capacity"]
    expected = "does not fit" if low > room else "fits" if high <= room else "too close to call"
    assert answer["verdict"] == expected


@pytest.mark.parametrize("what", ["micro-batch", "seq", "layers"])
def test_the_largest_fits_and_one_more_does_not(what: str) -> None:
    base = "--hardware h100-sxm-80gb --gpus 8 --zero 3 --recompute full"
    solved = memory(f"{base} --max {what}").values
    capacity = solved["memory/capacity"]
    assert solved["memory/used"] <= capacity
    if what == "layers":
        return
    best = solved["max/" + what.replace("-", "_")]
    assert memory(f"{base} --{what} {best}").values["memory/used"] == solved["memory/used"]
    assert memory(f"{base} --{what} {best + 1}").values["memory/used"] > capacity


def test_the_largest_model_is_printed_with_the_ceiling() -> None:
    """Bf16-mixed keeps 16 bytes per parameter; sharded over eight cards with nothing else, that is the ceiling."""
    values = memory("--hardware h100-sxm-80gb --gpus 8 --zero 3 --recompute full --max params").values
    assert values["params/ceiling"] == 8 * values["memory/capacity"] // 16
    assert values["params/max"] < values["params/ceiling"]
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert values["params/max"] == values["max/layers"] * layer + 2 * 128256 * 4096 + 4096


def test_what_is_suggested_fits_by_its_own_evaluation() -> None:
    base = "--hardware h100-sxm-80gb --gpus 8 --seq 8192 --micro-batch 2"
    answer = memory(base).data
    assert answer["verdict"] == "does not fit"
    assert answer["suggestions"]
    for row in answer["suggestions"]:
        changed = memory(f"{base} {row['change']}").data
        assert changed["verdict"] == "fits"
        assert changed["values"]["memory/used"] == pytest.approx(row["used"])


def test_offloading_and_a_mean_change_the_states() -> None:
    plain = memory("--seq 128").values["memory/optimizer"]
    states = memory("--seq 128 --offload optimizer").values
    assert states["memory/optimizer"] == 0
    assert states["offload/bytes"] == (2 + 2) * P  # gradients down, weights up
    assert memory("--seq 128 --ema").values["memory/optimizer"] == plain + 4 * P
    away = memory("--seq 128 --gpus 4 --zero 3 --offload parameters").values
    assert away["memory/parameters"] == away["memory/gradients"] == away["memory/optimizer"] == 0
    assert away["memory/host/parameters"] == away["memory/host/gradients"] == 2 * P // 4
    assert away["offload/bytes"] == 3 * 2 * P // 4  # up in both passes, gradients down; one micro-batch
    assert memory("--seq 128 --offload parameters").status == 2
    kept = memory("--seq 1024 --offload activations").values["memory/activations/saved"]
    assert kept < memory("--seq 1024").values["memory/activations/saved"] / 4


def test_serving_keeps_weights_and_keys_and_values() -> None:
    values = memory("--inference --seq 8192 --batch 4 --hardware h100-sxm-80gb").values
    assert values["memory/parameters"] == 2 * P
    assert values["memory/kv_cache"] == 4 * 8192 * 32 * 2 * 8 * 128 * 2
    batch = values["max/batch"]
    room = values["memory/cache_budget"]
    assert batch * 8192 * 131072 <= room < (batch + 1) * 8192 * 131072
    assert memory("--inference --seq 8192 --dtype fp8").values["memory/parameters"] == P


def test_a_snapshot_is_printed_with_the_prediction(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text(json.dumps({"max_memory_allocated": 150_000_000_000}))
    answer = memory(f"--snapshot {path}").data
    row = answer["seen"][0]
    assert row["seen"] == 150_000_000_000
    assert row["predicted"] == pytest.approx(answer["values"]["memory/allocated"])
    assert row["unexplained"] == pytest.approx(row["seen"] - row["predicted"])


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("--tp 3", "--tp 3 does not divide the attention heads (32)", "--tp 2 does"),
        ("--gpus 6 --tp 4", "--gpus 6 is not a multiple of tp · pp · cp (4)", "--gpus 8"),
        ("--gpus 8 --ep 2", "--ep 2: llama3-8b has no experts", "leave it out"),
        ("--pp 33", "--pp 33 × --vp 1 is more than the 32 layers", "at most 32"),
        ("--gpus 8 --dp 2", "a contradiction: --gpus 8 and tp · pp · cp · dp = 2", "leave out --dp"),
        ("--global-batch 3 --gpus 2", "--global-batch 3 is not a multiple of micro-batch · dp (2)", "4 is"),
        ("--vp 2 --pp 2 --schedule 1f1b", "--vp 2 needs an interleaved schedule", "--schedule interleaved"),
        ("--implementation hff", "--implementation: 'hff' is not known", "hf"),
        ("--quantized nf4", "--quantized needs --lora-rank", "--lora-rank 8"),
        ("--lora-rank 8 --lora-targets w", "llama3-8b has no linear layer 'w'", "one of down"),
        ("--framework fsdpp", "--framework: 'fsdpp' is not known", "fsdp"),
        ("--snapshot-device x --snapshot y", "--snapshot-device: 'x'", ""),
        ("--momentum 0.9", "--momentum changes nothing in adamw", "leave it out"),
    ],
)
def test_what_does_not_divide_or_agree_is_refused(line: str, says: str, hint: str) -> None:
    outcome = memory(line)
    assert outcome.status == 2
    assert says in outcome.err
    assert hint in outcome.err


def test_sgd_has_no_momentum_by_default() -> None:
    """torch's SGD keeps nothing without momentum, one number a parameter with it."""
    for words, each in (
        ("--optimizer sgd", 0),
        ("--optimizer sgd --momentum 0", 0),
        ("--optimizer sgd --momentum 0.9", 4),
        ("--optimizer sgd-momentum", 4),
        ("--optimizer sgd-momentum --momentum 0.95", 4),
        ("--optimizer sgd-nesterov --momentum 0.9", 4),
    ):
        assert memory(f"--seq 128 {words} --precision fp32").values["memory/optimizer"] == each * P
        assert (
            run_line(f"max-params --gpus 8 --hardware h100 {words} --precision fp32 --json").values["bytes_per_param"]
            == 8 + each
        )
    assert run_line("memory gpt2 --optimizer sgd-momentum --momentum 0").status == 2
    rmsprop, with_momentum = (
        memory(f"--seq 128 --optimizer rmsprop {words} --precision fp32").values["memory/optimizer"]
        for words in ("", "--momentum 0.9")
    )
    assert with_momentum - rmsprop == 4 * P  # torch's RMSprop too keeps a buffer with momentum only


def test_muon_keeps_one_state_for_matrices_and_two_for_the_rest() -> None:
    rest = 2 * 128256 * 4096 + 65 * 4096  # table, head, norms: AdamW
    optimizer = memory("--seq 128 --optimizer muon --precision bf16-fp32state").values["memory/optimizer"]
    counters = 4 * (2 + 65)
    assert optimizer == 4 * (P - rest) + 8 * rest + counters


def test_lora_trains_low_rank_matrices_and_freezes_weights() -> None:
    """Rank r beside q (4096 → 4096) and v (4096 → 1024) of 32 layers; NF4 takes half a byte and a scale for 64, of the
    layers' products: transformers leaves the head as it is."""
    plain = memory("--seq 512").values
    values = memory("--seq 512 --lora-rank 16 --lora-targets q,v").values
    trained = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    assert values["memory/parameters"] == 2 * (P + trained)
    assert values["memory/gradients"] == 2 * trained
    assert values["memory/optimizer"] == pytest.approx(12 * trained, rel=1e-4)
    assert values["memory/activations/saved"] < plain["memory/activations/saved"]
    products = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    quantised = memory("--seq 512 --lora-rank 16 --lora-targets q,v --quantized nf4").values
    assert quantised["memory/parameters"] == 2 * (P - products + trained) + products * (1 / 2 + 4 / 64)


def test_every_kept_tensor_can_be_listed() -> None:
    answer = memory("--seq 256 --tensors").data
    listed = sum(row["bytes"] * row["times"] for row in answer["tensors"])
    assert listed == answer["values"]["memory/activations/saved"]
    assert {"operation": "attention", "tensor": "log-sum-exp"}.items() <= next(
        row for row in answer["tensors"] if row["tensor"] == "log-sum-exp"
    ).items()


def test_a_million_gpus_answer_like_a_few() -> None:
    values = memory("--gpus 1048576 --tp 8 --pp 32 --zero 1 --recompute full").values
    assert values["memory/optimizer"] < 1e9


@pytest.mark.parametrize(
    ("model", "more", "exact"),
    [
        ("llama3-8b", "--precision amp-bf16", True),
        ("gpt-j-6b", "--precision bf16-pure --attention eager", True),
        ("gpt-j-6b", "--precision amp-bf16 --attention eager", True),
        ("gpt-j-6b", "--precision bf16-pure --attention flash", False),
        ("mpt-7b", "--dropout 0.1", False),
        ("mixtral-8x7b", "--precision fp32 --attention eager", True),
        ("deepseek-v3", "--precision amp-bf16", True),
        ("mixtral-8x7b", "", True),
    ],
)
def test_only_counts_checked_against_code_are_called_exact(model: str, more: str, exact: bool) -> None:
    notes = " ".join(run_line(f"memory {model} --gpus 8 --hardware h100 --seq 1024 {more} --json").data["notes"])
    assert ("are exact for transformers" in notes) is exact
    assert ("saved activations are derived" in notes) is not exact


HEADS = "qwen3-30b-a3b"  # 32 query heads, 4 key/value heads of 128, width 2048, 48 layers


def test_more_ranks_than_key_heads_are_refused_by_codes_that_cannot_and_gathered_by_those_that_can() -> None:
    """The gathered result of the joined product, (32 + 2·4)·128 numbers a token, stays for the value that is cut from
    it; the key is rotated whole: 128 numbers in place of 64."""
    refused = memory("--gpus 8 --tp 8 --seq 1024", HEADS)
    assert refused.status == 2
    assert "--tp 8 does not divide the key/value heads (4) of the hf implementation" in refused.err
    assert "--tp 4 does, or --implementation megatron" in refused.err
    assert memory("--gpus 8 --tp 8 --seq 1024 --implementation nanotron", HEADS).status == 2
    line = "--gpus 8 --tp 8 --seq 1024 --implementation megatron --no-sp --recompute none"
    answer = memory(f"{line} --tensors", HEADS).data
    rows = {(row["operation"], row["tensor"]): row["bytes"] for row in answer["tensors"] if row["piece"] != "outside"}
    assert rows["attention", "gathered query, key and value"] == 1024 * (32 + 2 * 4) * 128 * 2
    assert rows["attention", "whole key"] == 1024 * 128 * 2


def test_ranks_divide_every_divided_width(tmp_path: pathlib.Path) -> None:
    """4 heads divide by 4, the MLP's width of 6 does not: 2 ranks are the most, for the layout search too."""
    fields = {"num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 6, "vocab_size": 1000}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "max_position_embeddings": 512, **fields}))
    refused = memory("--gpus 4 --tp 4", str(file))
    assert refused.status == 2
    assert "--tp 4 does not divide the width of gate (6) of the hf implementation\nhint: --tp 2 does\n" in refused.err
    assert memory("--inference --tp 4", str(file)).status == 2
    rows = run_line(f"plan {file} --gpus 4 --hardware h100 --json").data["rows"]
    assert {row["tp"] for row in rows} <= {1, 2}
    assert memory("--gpus 4 --hardware l4 --micro-batch 65536 --must-fit", str(file)).status == 1


def test_served_ranks_hold_whole_key_heads() -> None:
    """Twice as many ranks as key/value heads: every rank holds one head's rows of both products."""
    two, four = (memory(f"--inference --tp {ranks} --seq 1024", "gemma2-2b").values for ranks in (4, 8))
    assert four["memory/kv_cache"] == two["memory/kv_cache"]
    norms = 4 * 26 * 2304 + 2304
    keys = 26 * 2 * 4 * 256 * 2304
    whole = 256000 * 2304 + 26 * (2 * 8 * 256 * 2304 + 2 * 4 * 256 * 2304 + 3 * 2304 * 9216)
    assert two["memory/parameters"] == 2 * (whole // 4 + norms)
    assert four["memory/parameters"] == 2 * ((whole + keys) // 8 + norms)
    uneven = memory("--inference --tp 8 --seq 1024", "qwen2.5-1.5b")
    assert uneven.status == 2


def test_experts_without_weights_are_never_called_exact(tmp_path: pathlib.Path) -> None:
    """How many tokens they take is known in the step alone."""
    config = tmp_path / "config.json"
    fields = {"model_type": "longcat_flash", "hidden_size": 64, "num_layers": 2, "num_attention_heads": 4}
    fields |= {"ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "q_lora_rank": 32, "kv_lora_rank": 16}
    fields |= {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 128}
    fields |= {"moe_topk": 2, "n_routed_experts": 4, "max_position_embeddings": 128}
    for idle, exact in ((0, True), (4, False)):
        config.write_text(json.dumps(fields | {"zero_expert_num": idle}))
        asked = f"memory {config} --gpus 1 --seq 64 --precision bf16-pure --attention eager --json"
        notes = run_line(asked).data["notes"]
        assert any("are exact for transformers" in note for note in notes) is exact


def test_experts_that_torch_refuses_are_reported(tmp_path: pathlib.Path) -> None:
    """Rows of 44 numbers of 2 bytes are not a multiple of 16 bytes; of 4 bytes they are."""
    config = tmp_path / "config.json"
    fields = {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 44, "num_hidden_layers": 2}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "num_local_experts": 4}
    config.write_text(json.dumps(fields | {"num_experts_per_tok": 2, "max_position_embeddings": 128}))
    for policy, refused in (("bf16-pure", True), ("fp32", False)):
        notes = run_line(f"memory {config} --gpus 1 --seq 64 --precision {policy} --json").data["notes"]
        assert any("not a multiple of 16 bytes" in note for note in notes) is refused


def test_forms_of_the_loss_keep_what_each_makes() -> None:
    """T tokens, V ids, width h. torch: fp32 log-softmax, shifted labels (T + 1 of 8 bytes), a weight. Fused with the
    head's product: no logits, but the gradients of the head's weight and of the hidden state, which the head then keeps
    no input for; its forward holds one part's logits (2^⌈log2⌈T/⌈V/h⌉⌉⌉ tokens) and one more gradient of the weight."""
    tokens, ids, width = 4096, 128256, 4096
    line = "--seq 4096 --precision bf16-pure"
    by_torch, fused, again = (memory(f"{line} {loss}").values for loss in ("--loss torch", "--loss fused", ""))
    assert by_torch == again
    saved = "memory/activations/saved"
    assert by_torch[saved] - fused[saved] == 4 * tokens * ids + 8 * (tokens + 1) + 4 - 2 * ids * width
    part = 128  # ⌈4096 / ⌈128256 / 4096⌉⌉ = 128 = 2^7
    assert fused["memory/at/forward/temporaries"] >= 2 * part * ids + 2 * ids * width
    assert fused["memory/at/loss"] < by_torch["memory/at/loss"]
    # the gradient that is kept is the gradient that stays: nothing is made twice
    assert fused["memory/at/step"] == by_torch["memory/at/step"]
    assert memory("--loss fuse").status == 2


@pytest.mark.parametrize(
    ("model", "more", "note"),
    [
        ("mistral-7b", "--seq 8192", "gets windows as a mask"),
        ("mistral-7b", "--seq 2048", ""),
        ("mistral-7b", "--seq 8192 --attention eager", ""),
        ("falcon-7b", "--seq 2048", "elementary operations where one key serves several heads"),
        ("llama3-8b", "--seq 8192", ""),
    ],
)
def test_a_kernel_that_takes_no_mask_is_not_reported_to_run(model: str, more: str, note: str) -> None:
    notes = " ".join(run_line(f"memory {model} --gpus 8 --hardware h100 {more} --json").data["notes"])
    assert note in notes
    assert bool(note) is ("efficient kernel runs" in notes)


def test_experts_in_one_tensor_are_quantized_only_on_request() -> None:
    """Mixtral's experts, 32 layers of 8 with 3 matrices of 4096 × 14336: 2 bytes, or nf4's 4 bits and a block of 64's
    fp32 maximum."""
    line = "--gpus 1 --lora-rank 16 --lora-targets q,v --quantized nf4 --seq 128"
    bare, asked = memory(line, "mixtral-8x7b"), memory(f"{line} --quantize-experts", "mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    saved = bare.values["memory/parameters"] - asked.values["memory/parameters"]
    assert saved == experts * (2 - 0.5 - 4 / 64)
    assert any("transformers 4" in note for note in bare.data["notes"])
    # Unsloth quantizes them by itself, to 4 bits alone
    own = memory(f"{line} --trainer unsloth", "mixtral-8x7b")
    assert (
        own.values["memory/parameters"]
        == memory(f"{line} --trainer unsloth --quantize-experts", "mixtral-8x7b").values["memory/parameters"]
    )
    assert any("unsloth quantizes experts" in note for note in own.data["notes"])
    eight = memory(f"{line.replace('nf4', 'int8')} --trainer unsloth", "mixtral-8x7b")
    assert eight.values["memory/parameters"] > 2 * experts
    assert memory(f"{line} --quantize-experts").status == 2
    assert memory("--lora-rank 8 --quantize-experts", "mixtral-8x7b").status == 2


@pytest.mark.parametrize(("layers", "size"), [(1, 1), (2, 2), (4, 2), (5, 3), (16, 4), (17, 5), (80, 9), (81, 9)])
def test_the_square_root_of_the_layers_share_a_checkpoint(layers: int, size: int) -> None:
    """⌈√L⌉ blocks (Chen et al. 2016, arXiv:1604.06174); a given size as it is; one without groups."""
    assert Recompute("group", 0).group(layers) == size
    assert Recompute("group", 7).group(layers) == 7
    assert Recompute("full").group(layers) == 1


@pytest.mark.parametrize(("n", "power"), [(1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048), (2**39 + 1, 2**40)])
def test_the_next_power_of_two(n: int, power: int) -> None:
    assert next_power(n) == power


def test_nanogpt_crops_its_positions_to_the_sequence(tmp_path: pathlib.Path) -> None:
    """crop_block_size: 128 rows of positions are held, not the config's 1,024. The peak was measured with torch."""
    config = tmp_path / "nano.json"
    fields = {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_inner": 512, "vocab_size": 2048, "n_positions": 1024}
    config.write_text(json.dumps({"model_type": "gpt2", "tie_word_embeddings": True, **fields}), encoding="utf-8")
    line = (
        f"memory {config} --hardware h100 --gpus 1 --seq 128 --micro-batch 8 --implementation nanogpt --attention flash"
    )
    rest = "--dropout 0 --precision amp-bf16 --recompute none --optimizer adamw --optimizer-form fused --json"
    found = run_line(f"{line} {rest}").data["values"]
    assert found["memory/parameters"] == 4 * (2048 * 128 + 128 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128)
    assert abs(found["memory/live"] / 59_943_224 - 1) < 1e-3


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tensor_parallel_ranks_hold_their_part_of_the_logits(tp: int) -> None:
    """Megatron's loss: fp32 logits of 4,096 tokens over 128,256/tp entries, and the loss in bf16."""
    line = f"memory llama3-8b --implementation megatron --tp {tp} --gpus {tp} --hardware h100 --seq 4096 --json"
    values = run_line(line).values
    assert values["memory/at/loss/temporaries"] == 4096 * (128256 // tp) * 4 + 2


def test_an_encoder_caches_nothing_and_has_no_pace() -> None:
    """BERT makes no tokens one after the other: no largest batch of a cache that it does not have."""
    outcome = run_line("memory bert-base-uncased --inference --hardware h100 --json")
    assert outcome.values["memory/kv_cache"] == 0
    assert not {"max/batch", "max/seq", "time/per_token", "tokens_per_second"} & set(outcome.values)
    assert all(set(row) == {"dtype", "weights"} for row in outcome.data["dtypes"])
