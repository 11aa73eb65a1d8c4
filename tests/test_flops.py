"""FLOPs: counts measured with torch's counter, closed forms, conventions, and the laws between them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.counting import conventions, flops
from napkin.counting.params import params
from napkin.operations.model import Model
from napkin.term import fold
from tests.conftest import Napkin, model, preset, run_line

# forward and full attention square (forward), as torch.utils.flop_counter counts them: model, batch, seq
MEASURED = [
    ("gpt2", 2, 256, 131_328_638_976, 4_831_838_208),
    ("pythia-160m", 4, 512, 544_789_757_952, 38_654_705_664),
    ("opt-1.3b", 2, 777, 4_311_724_720_128, 237_395_902_464),
    ("llama3-8b", 3, 1000, 46_600_814_592_000, 1_572_864_000_000),
    ("mistral-7b-v0.1", 1, 8192, 151_681_065_025_536, 35_184_372_088_832),
    ("gemma2-2b", 1, 8192, 57_123_065_036_800, 14_293_651_161_088),
    ("phi3-mini", 2, 2048, 33_792_265_814_016, 3_298_534_883_328),
    ("mixtral-8x7b", 2, 1024, 53_317_724_012_544, 1_099_511_627_776),
    ("qwen3-30b-a3b", 2, 1024, 14_107_893_825_536, 1_649_267_441_664),
    ("deepseek-v3", 1, 4096, 383_866_460_176_384, 83_837_761_617_920),
]
# forward FLOPs of the allowed pairs alone: causal, and windows of 4096 in all or every other layer
ALLOWED = [
    ("llama3-8b", 3, 1000, 787_218_432_000),
    ("mistral-7b-v0.1", 1, 8192, 13_195_213_275_136),
    ("gemma2-2b", 1, 8192, 6_254_126_694_400),
]


def tiny(**changes: Any) -> Model:
    fields = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "tie_word_embeddings": False,
    }
    return model(**{**fields, **changes})


def values(of: Model, batch: int, seq: int, **options: Any) -> dict[str, Any]:
    return {path: term.value for path, term in flops.step(of, flops.works(of, batch, seq, **options)).items()}


@pytest.mark.parametrize(("name", "batch", "seq", "forward", "square"), MEASURED)
def test_as_torch_counts(name: str, batch: int, seq: int, forward: int, square: int) -> None:
    found = values(preset(name), batch, seq)
    assert found["flops/forward"] == forward
    assert found["flops/backward"] == 2 * forward
    assert found["flops/total"] == 3 * forward
    assert found["flops/attention"] == 3 * square
    assert 2 * found["flops/attention/half"] == 3 * square
    assert found["flops/per_token"] * batch * seq == pytest.approx(3 * forward)


@pytest.mark.parametrize(("name", "batch", "seq", "allowed"), ALLOWED)
def test_only_the_allowed_pairs(name: str, batch: int, seq: int, allowed: int) -> None:
    assert values(preset(name), batch, seq)["flops/attention/exact"] == 3 * allowed


def test_pairs_choose_what_enters_the_totals() -> None:
    of = preset("llama3-8b")
    full, half, exact = (values(of, 1, 4096, pairs=pairs) for pairs in ("full", "half", "exact"))
    assert full["flops/total"] - half["flops/total"] == full["flops/attention/half"]
    assert full["flops/total"] - exact["flops/total"] == full["flops/attention"] - full["flops/attention/exact"]
    assert {run["flops/attention"] for run in (full, half, exact)} == {full["flops/attention"]}


@given(batch=st.integers(1, 5), seq=st.integers(1, 300), window=st.integers(1, 400))
def test_laws_of_pairs(batch: int, seq: int, window: int) -> None:
    of = tiny(model_type="mistral", sliding_window=window)
    terms = flops.step(of, flops.works(of, batch, seq, pairs="exact"))
    assert all(fold(term) == term.value for term in terms.values())
    found = {path: term.value for path, term in terms.items()}
    counted = sum(min(i + 1, window) for i in range(seq))  # keys that query i sees
    per_pair = 2 * 2 * 64 * 2 * 3  # FLOP × two products × a·d × layers × passes
    assert found["flops/attention/exact"] == per_pair * batch * counted
    assert found["flops/attention"] == per_pair * batch * seq * seq


@given(length=st.integers(1, 60), count=st.integers(1, 8), chunk=st.integers(1, 70))
def test_documents_and_chunks_attend_inside_themselves(length: int, count: int, chunk: int) -> None:
    of = tiny()
    packed = values(of, 1, length * count, documents=((length, count),))
    alone = values(of, count, length)
    for path in ("flops/total", "flops/attention", "flops/attention/exact"):
        assert packed[path] == alone[path]
    chunked = tiny(
        model_type="llama4_text",
        intermediate_size_mlp=96,
        moe_layers=[],
        no_rope_layers=[1, 1],
        attention_chunk_size=chunk,
        head_dim=16,
    )
    seq = length * count
    pieces = [chunk] * (seq // chunk) + ([seq % chunk] if seq % chunk else [])
    expected = sum(n * (n + 1) // 2 for n in pieces)
    assert values(chunked, 1, seq)["flops/attention/exact"] == 2 * 2 * 64 * 2 * 3 * expected


def test_conventions_by_hand() -> None:
    of = preset("llama3-8b")
    n, v_h, layers, h, s = 8_030_261_248, 128_256 * 4096, 32, 4096, 8192
    over = flops.works(of, 1, s)
    found = {name: term.value for name, term in conventions.all_conventions(of, over).items()}
    assert found["6nd"] == 6 * n
    assert found["6nd_non_embedding"] == 6 * (n - 2 * v_h)
    assert found["palm"] == 6 * (n - v_h) + 12 * layers * h * s
    assert found["causal"] == 6 * (n - v_h) + 6 * layers * h * s
    assert found["nanogpt"] == 6 * n + 12 * layers * h * s
    norms = 65 * h
    assert found["megatron"] == 6 * (n - v_h - norms) + 6 * layers * h * s
    assert found["torch"] == 6 * (n - v_h - norms) + 12 * layers * h * s


def test_conventions_with_a_tied_table_and_learned_positions() -> None:
    of = preset("gpt2")
    n, positions = 124_439_808, 1024 * 768
    found = {name: term.value for name, term in conventions.all_conventions(of, flops.works(of, 1, 1024)).items()}
    square = 12 * 12 * 768 * 1024
    assert found["nanogpt"] == 6 * (n - positions) + square
    assert found["palm"] == 6 * n + square  # the tied table works as the head
    assert found["6nd_non_embedding"] == 6 * (n - 50257 * 768)


def test_conventions_count_a_mixture_by_its_active_experts() -> None:
    of = preset("mixtral-8x7b")
    over = flops.works(of, 1, 4096)
    active = params(of)["params/active"].value
    assert conventions.per_token(of, over, "6nd").value == 6 * active
    counted = conventions.per_token(of, over, "torch").value
    assert conventions.per_token(of, over, "palm").value == pytest.approx(counted, rel=1e-4)


def test_prediction_modules_on_request() -> None:
    of = preset("deepseek-v3")
    over = flops.works(of, 1, 4096)
    layer = flops.layer_forward("layer", of.stacks[0].runs[-1][1], over["decoder"]).value
    head, joined = 2 * 4096 * 7168 * 129_280, 2 * 4096 * 2 * 7168 * 7168
    more = flops.forward(of, over, mtp=True).value - flops.forward(of, over).value
    assert more == layer + head + joined


def test_cost_does_not_grow_with_depth() -> None:
    def nodes(layers: int) -> int:
        of = tiny(num_hidden_layers=layers)
        return sum(1 for _ in flops.forward(of, flops.works(of, 1, 64)).walk())

    assert nodes(10_000) == nodes(10)


def test_command() -> None:
    found = run_line("flops llama3-8b --batch 3 --seq 1000 --json").values
    assert found["flops/forward"] == 46_600_814_592_000
    assert found["flops/ratio/torch"] == 1
    assert found["flops/ratio/6nd"] == pytest.approx(1.034, abs=1e-3)
    causal = run_line("flops llama3-8b --batch 3 --seq 1000 --causal --json").values
    assert causal["flops/total"] == found["flops/total"] - found["flops/attention/half"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("flops llama3-8b --causal --pairs exact", "cannot be combined"),
        ("flops llama3-8b --target-seq 100", "no second stack"),
        ("flops llama3-8b --seq 100 --document-lengths 60,60", "do not fill a sequence of 100"),
        ("flops llama3-8b --pairs triangle", "not one of full, half, exact"),
    ],
)
def test_bad_usage(line: str, says: str) -> None:
    outcome = run_line(line)
    assert outcome.status == 2
    assert says in outcome.errors[0]


def test_packed_documents_from_the_command_line() -> None:
    lengths = run_line("flops llama3-8b --document-lengths 3x1024,512,512 --json").values
    mean = run_line("flops llama3-8b --seq 4096 --mean-document-length 1024 --json").values
    alone = run_line("flops llama3-8b --seq 1024 --batch 4 --json").values
    assert mean["flops/total"] == alone["flops/total"]
    assert lengths["flops/attention"] < mean["flops/attention"]


DSA = {
    "model_type": "deepseek_v32",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 8,
    "vocab_size": 100,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "tie_word_embeddings": False,
}


def test_what_runs_without_gradient_counts_once() -> None:
    """torch.utils.flop_counter's totals of transformers 5.23.0's class, 2 sequences of 24 tokens: its indexer chooses
    keys under no_grad."""
    of = model(**DSA)
    found = values(of, 2, 24)
    assert (found["flops/forward"], found["flops/backward"]) == (7_219_200, 12_533_760)
    assert found["flops/total"] == 7_219_200 + 12_533_760
    over = flops.works(of, 2, 24)
    assert conventions.per_token(of, over, "torch").value == (7_219_200 + 12_533_760) / (2 * 24)


def test_an_indexer_s_loss_reaches_its_weights_and_both_factors_of_its_scores() -> None:
    """In each of 2 layers: queries 32→64, a key 64→16 and head weights 64→4 of 48 tokens, whose inputs are detached;
    scores of 4 heads of 16 and their weighed sum over 2·24² pairs."""
    weights = 2 * 2 * 48 * (32 * 64 + 64 * 16 + 64 * 4)
    scores = 2 * 2 * 2 * 24**2 * (4 * 16 + 4)
    found = values(model(**DSA), 2, 24, indexer_loss=True)
    assert found["flops/backward"] == 12_533_760 + weights + 2 * scores


def test_an_indexer_s_loss_needs_an_indexer() -> None:
    assert run_line("flops llama3-8b --indexer-loss").status == 2
    assert run_line("flops deepseek-v4-flash --indexer-loss --json").status == 0


def test_tokens_ask_for_the_flops_of_a_run(napkin: Napkin) -> None:
    """A run of 15T tokens is 15T times a token's FLOPs; the step's figures stay what they are."""
    line = "flops llama3-8b --seq 2048"
    step, run = napkin(f"{line} --json").data, napkin(f"{line} --tokens 15T --json").data
    assert run["run"] == {"tokens": 15 * 10**12, "flops": pytest.approx(15e12 * step["values"]["flops/per_token"])}
    assert run["values"] == step["values"]
    assert "for 15T tokens" in napkin(f"{line} --tokens 15T").out.splitlines()[1]
