"""Adapters: every family is a sound dataflow, what is not understood is refused, and nothing hostile gets through."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin._tables.class_defaults import CLASS_DEFAULTS
from napkin.architectures import MODULES, architecture_of
from napkin.counting import conventions, flops
from napkin.counting.params import params
from napkin.errors import REFUSED, USAGE, NapkinError
from napkin.footprint import kv_cache
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.inputs.presets import presets
from napkin.inputs.unread import settle
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.roles import SHARED_TENSOR
from napkin.operations.rotary import Rotary
from napkin.operations.views import Share
from napkin.operations.work import Work
from napkin.planning.enlarge import with_layers
from tests.conftest import ROOT, model_of, preset, run_line

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}
MIXTURE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
OWN_CODE = {**LLAMA, "model_type": "internlm2", "bias": False, "hidden_act": "silu", "max_position_embeddings": 64}
DEEPSEEK = {**LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": 8, "first_k_dense_replace": 1}
HOSTILE: list[Any] = [None, -1, 0, 3.5, 10**30, 1e300, "64", "", [], [1], {}, {"a": 1}, True, False, [[]]]


def count(fields: dict[str, Any]) -> int:
    total = params(model_of(fields))["params/total"].value
    assert isinstance(total, int)
    return total


def refusal(fields: dict[str, Any]) -> NapkinError:
    with pytest.raises(NapkinError) as caught:
        model_of(fields)
    return caught.value


# --- every family ----------------------------------------------------------------------------------------------------


def check_dataflow(operations: tuple[Operation, ...], known: set[str]) -> set[str]:
    """Each operation reads what was made before it, and no two make the same. What is shared with later layers."""
    for operation in operations:
        assert set(operation.reads) <= known, (operation.name, operation.reads)
        assert operation.name not in known, operation.name
        known.add(operation.name)
    return {SHARED_TENSOR + operation.name for operation in operations if isinstance(operation, Share)}


@pytest.mark.parametrize("name", [one.name for one in presets()])
def test_operations_are_a_dataflow_program(name: str) -> None:
    of = preset(name)
    for stack in of.stacks:
        known = {"x", "memory"}
        known |= check_dataflow(stack.before, set(known))
        known |= {op.name for op in stack.before if isinstance(op, Embedding) and op.role == "distance"}
        for _, _, layer in stack.kinds():
            known |= check_dataflow(layer.operations, set(known))
        check_dataflow(stack.after, {"x", "memory"})
    for layer in of.extra[:1]:
        check_dataflow(layer.operations, {"x"})


@pytest.mark.parametrize("model_type", sorted(set(MODULES) & set(CLASS_DEFAULTS)))
def test_width_and_depth_are_never_defaults(model_type: str) -> None:
    problem = refusal({"model_type": model_type})
    assert problem.status == REFUSED
    assert "is missing" in problem.message


@pytest.mark.parametrize("model_type", sorted(MODULES))
def test_every_model_type_has_a_record(model_type: str) -> None:
    config = config_from("a test", Document("a test", {}), {"model_type": model_type})
    assert architecture_of(config).model_type == model_type


# --- reading ---------------------------------------------------------------------------------------------------------


def test_an_omitted_field_takes_the_class_default_and_says_so() -> None:
    short = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "tie_word_embeddings")}
    assert count(short) == count({**LLAMA, "num_key_value_heads": 8})
    path = ["params", "-", "--json"]
    shown = run_line(path, stdin=json.dumps(short)).data["inputs"]
    assert (shown["hidden-act"]["value"], shown["hidden-act"]["origin"]) == ("silu", "class default")


def test_head_size_independent_of_width() -> None:
    wide = {**LLAMA, "head_dim": 32}
    more = 4 * (64 * 8 * 24 + 2 * 64 * 2 * 24 + 8 * 24 * 64)  # 24 more in each head of q, k, v and the output
    assert count(wide) - count(LLAMA) == more


def test_fields_under_two_names_pass_when_they_agree() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    assert count(gpt2) == count({k: v for k, v in gpt2.items() if k != "hidden_size"})
    problem = refusal({**gpt2, "hidden_size": 128})
    assert problem.status == USAGE
    assert "contradicts" in problem.message


def test_a_mixture_where_the_class_puts_it() -> None:
    kinds = {name: n for name, n, _ in model_of({**DEEPSEEK, "num_hidden_layers": 9}).stacks[0].kinds()}
    assert kinds == {"dense": 1, "moe": 8}
    stepped = model_of({**MIXTURE, "decoder_sparse_step": 2, "mlp_only_layers": [1]})
    assert [(n, layer.kind) for n, layer in stepped.stacks[0].runs] == [(3, "dense"), (1, "moe")]


def test_windows_follow_the_class_or_the_list() -> None:
    gemma = {**LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 8, "head_dim": 8}
    runs = model_of(gemma).stacks[0].runs
    assert [(n, layer.kind) for n, layer in runs] == [(5, "sliding"), (1, "full"), (2, "sliding")]
    listed = model_of({**gemma, "layer_types": ["full_attention"] * 7 + ["sliding_attention"]}).stacks[0].runs
    assert [n for n, _ in listed] == [7, 1]


def test_a_vision_model_is_its_language_model_with_a_note() -> None:
    outer = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 12}, "image_token_index": 7}
    assert count(outer) == count(LLAMA)
    assert any("language model" in note for note in model_of(outer).notes)


def test_a_vision_tower_that_no_class_builds_is_an_error() -> None:
    """Twelve heads do not divide a width of 9, in the tower as in a language model; what napkin does not know of a
    tower leaves the tower out."""
    outer = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 9}}
    problem = refusal(outer)
    assert problem.status == USAGE
    assert "vision_config.num_attention_heads" in problem.message
    unknown = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "unheard_of"}}
    assert count(unknown) == count(LLAMA)
    assert model_of(unknown).vision is None


def test_the_tie_of_a_vision_model_must_be_certain() -> None:
    text = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
    for outer_tie in (True, False):
        outer = {"model_type": "llava", "text_config": text, "tie_word_embeddings": outer_tie}
        assert count(outer) == count({**LLAMA, "tie_word_embeddings": outer_tie})


def test_quantised_checkpoints_count_their_logical_parameters() -> None:
    stored = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert count(stored) == count(LLAMA)
    assert any("quantized" in note for note in model_of(stored).notes)


def test_a_class_without_a_head_has_none() -> None:
    bare = params(model_of({**LLAMA, "architectures": ["LlamaModel"]}))
    assert bare["params/lm_head"].value == 0
    assert refusal({**LLAMA, "architectures": ["LlamaForAnything"]}).status == REFUSED


# --- fail closed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({**LLAMA, "model_type": "lama"}, "model_type"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "hidden_size"),
        ({**LLAMA, "hidden_act": "snake"}, "hidden_act"),
        ({**LLAMA, "model_type": "gemma2", "layer_types": ["spiral"] * 4}, "layer_types"),
        ({**OWN_CODE, "num_memory_slots": 4}, "num_memory_slots"),  # no class of transformers shows what it reads
    ],
)
def test_what_is_not_understood_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    problem = refusal(fields)
    assert problem.status == REFUSED
    assert named in problem.message


def test_the_user_may_vouch_for_a_field() -> None:
    fields = {**LLAMA, "num_memory_slots": 4}
    assert params(model_of(fields, "num_memory_slots"))["params/total"].value == count(LLAMA)
    outcome = run_line(["params", "-", "--assume-ignorable", "num_memory_slots", "--json"], stdin=json.dumps(fields))
    assert outcome.status == 0
    assert any("num_memory_slots" in note for note in outcome.data["notes"])
    assert run_line(["params", "-", "--strict-config"], stdin=json.dumps(fields)).status == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_attention_heads": 6}, "not divisible by 6"),
        ({"num_key_value_heads": 3}, "not a multiple of 3"),
        ({"num_hidden_layers": 10**7}, "more than 1,000,000"),
        ({"hidden_size": -64}, "not between"),
        ({"hidden_size": 64.5}, "not a whole number"),
        ({"vocab_size": [128]}, "not a whole number"),
        ({"tie_word_embeddings": "no"}, "neither true nor false"),
    ],
)
def test_wrong_values_are_wrong_not_refused(changes: dict[str, Any], says: str) -> None:
    problem = refusal({**LLAMA, **changes})
    assert problem.status == USAGE
    assert says in problem.message


def test_a_field_without_value_hides_no_other_and_is_named_once() -> None:
    fields = {**LLAMA, "model_type": "internlm2", "num_hidden_layers": None, "tie_word_embeddings": None}
    with pytest.raises(NapkinError) as caught:
        model_of(fields)
    text = str(caught.value)
    assert "num_hidden_layers: is missing: it is null" in text
    assert text.count("tie_word_embeddings: ") == 1
    assert "neither true nor false" not in text


def test_nan_and_junk_are_one_line() -> None:
    for text in (
        '{"model_type": "llama", "hidden_size": NaN}',
        '{"model_type": "llama", ' * 3,
        "[" * 100_000,
        "\x00" * 99,
    ):
        outcome = run_line(["params", "-"], stdin=text)
        assert outcome.status == 2
        assert len(outcome.errors) == 1


@given(data=st.data())
def test_hostile_fields_never_raise_anything_else(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([LLAMA, MIXTURE, DEEPSEEK, {**LLAMA, "model_type": "gemma3_text"}]))
    changes = data.draw(
        st.dictionaries(st.sampled_from(sorted(base)), st.sampled_from(HOSTILE), min_size=1, max_size=3)
    )
    problem: NapkinError | None = None
    try:
        of = model_of({**base, **changes})
    except NapkinError as raised:
        problem = raised
    if problem is not None:
        assert problem.status in (USAGE, REFUSED)
        assert "\n" not in problem.message
        return
    assert params(of)["params/total"].value > 0
    assert flops.forward(of, flops.works(of, 1, 16)).value > 0


# --- a new architecture ----------------------------------------------------------------------------------------------


def documented() -> list[str]:
    """Return the worked examples of docs/adding-an-architecture.md."""
    with open(os.path.join(ROOT, "docs", "adding-an-architecture.md"), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)


def test_the_documented_relative_is_the_real_one() -> None:
    folder = os.path.join(ROOT, "src", "napkin", "architectures", "families", "decoders")
    with open(os.path.join(folder, "olmo.py"), encoding="utf-8") as file:
        assert documented()[0] in file.read()


def test_the_documented_example_builds_what_does_not_exist() -> None:
    code = documented()[1]
    assert len(code.splitlines()) < 40
    scope: dict[str, Any] = {}
    exec(code, scope)
    h, f, kv, d, layers, rows, window = 64, 96, 2, 8, 10, 128, 8
    fields = {**LLAMA, "model_type": "twig", "num_hidden_layers": layers, "sliding_window": window}
    config = config_from("twig", Document("twig", fields), fields)
    of = scope["twig"](config)
    settle(config)
    layer = 2 * h * h + 2 * h * kv * d + (h * f + f) + (f * h + h) + h
    assert params(of)["params/total"].value == layers * layer + 2 * rows * h + h
    assert [(n, one.kind) for n, one in of.stacks[0].runs] == [(3, "sliding"), (1, "full")] * 2 + [(2, "sliding")]
    matrices = layers * (2 * h * h + 2 * h * kv * d + 2 * h * f) + rows * h
    square = 32 * 32
    assert flops.forward(of, flops.works(of, 1, 32)).value == 2 * 32 * matrices + layers * 4 * h * square


def test_a_message_names_the_line(tmp_path: Any) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        '{\n "model_type": "llama",\n "other": {"hidden_size": 3},\n "hidden_size": 64.5,\n "num_hidden_layers": 2}'
    )
    assert f"{path}:4: hidden_size: 64.5 is not a whole number" in run_line(["params", str(path)]).errors[0]
    path = tmp_path / "c.yaml"
    path.write_text("name: mine\nconfig:\n  model_type: llama\n  hidden_size: x\n")
    assert f"{path}:4: config.hidden_size: 'x' is not a whole number" in run_line(["params", str(path)]).errors[0]


def test_experts_in_attention_and_attention_twice_a_layer_count_as_their_classes_do() -> None:
    """Parameters that the classes of transformers 5.23.0 have for these sizes."""
    both = {"vocab_size": 97, "hidden_size": 48, "max_position_embeddings": 128, "tie_word_embeddings": False}
    jetmoe = {
        "model_type": "jetmoe",
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "kv_channels": 16,
        "intermediate_size": 40,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
    }
    assert count(both | jetmoe) == 153_072
    longcat = {
        "model_type": "longcat_flash",
        "num_layers": 1,
        "num_attention_heads": 4,
        "ffn_hidden_size": 56,
        "expert_ffn_hidden_size": 24,
        "q_lora_rank": 28,
        "kv_lora_rank": 20,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "moe_topk": 2,
        "n_routed_experts": 3,
        "zero_expert_num": 0,
        "attention_bias": True,
    }
    assert count(both | longcat) == 58_512
    # experts without weights add rows to the router alone
    assert count(both | longcat | {"zero_expert_num": 3}) == 58_512 + 3 * 48


def test_two_maps_of_the_same_keys_are_two_products_and_one_cache() -> None:
    """Differential attention: four learned vectors a layer, twice the map, a cache as large as without."""
    maps = {**LLAMA, "model_type": "diffllama"}
    assert count(maps) - count(LLAMA) == 4 * 4 * 8
    seconds = []
    for fields in (LLAMA, maps):
        of = model_of(fields)
        assert kv_cache.cached_numbers(of.stacks[0].layers[0], 100) == (100 * 2 * 2 * 8, 0)
        seconds.append(flops.forward(of, flops.works(of, 1, 100)).value)
    assert seconds[1] - seconds[0] == 4 * 4 * 100 * 100 * 64
    with pytest.raises(NapkinError, match="is not even"):
        count({**maps, "num_key_value_heads": 1})


def test_a_mask_that_values_make_is_a_product_and_a_vector() -> None:
    """Doge: a product of all values, one number a key/value head beside it, two vectors, norms of queries and keys."""
    fields = {**LLAMA, "model_type": "doge"}
    assert count(fields) - count(LLAMA) == 4 * (2 * (2 * 8) + 2 + 2 * 64 + 2 * 8)


def test_experts_that_product_keys_choose_are_rows_of_two_tables() -> None:
    """Doge: ⌊√E⌋ first and as many second halves of keys, two rows of h an expert, of which k are active."""
    fields = {**LLAMA, "model_type": "doge"}
    mixture = {**fields, "is_moe": True, "num_experts": 30, "num_experts_per_tok": 4}
    assert count(mixture) - count(fields) == 4 * (2 * 5 * 64 + 2 * 30 * 64)
    assert count(mixture) - params(model_of(mixture))["params/active"].value == 4 * 2 * (30 - 4) * 64
    work = [flops.forward(of, flops.works(of, 2, 50)).value for of in map(model_of, (mixture, fields))]
    assert work[0] - work[1] == 4 * 2 * 100 * 64 * (2 * 5 + 2 * 4)
    with pytest.raises(NapkinError, match="26 of 25 experts that have keys"):
        count({**mixture, "num_experts_per_tok": 26})


def test_only_the_last_layer_has_a_bias_where_its_class_says_so() -> None:
    japanese = {
        "model_type": "gpt_neox_japanese",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    assert count(japanese) == 100 * 64 + 3 * (12 * 64 * 64 + 4 * 64) + 64 + 2 * 64
    assert [n for n, _ in model_of(japanese).stacks[0].runs] == [2, 1]


def test_each_rotary_base_has_a_table_of_its_own() -> None:
    """Granite SWA: windows but in each fourth layer from the first; a base of 0 is none."""
    granite = {**LLAMA, "model_type": "granite_swa", "tie_word_embeddings": True}
    assert [n for n, _ in model_of(granite).stacks[0].runs] == [1, 3]
    listed = model_of({**granite, "layer_rope_theta": [1e4, 1e4, 0, 5e5]})
    tables = [{op.table for op in layer.operations if isinstance(op, Rotary)} for _, layer in listed.stacks[0].runs]
    assert tables == [{1}, {1}, set(), {2}]
    assert refusal({**granite, "layer_rope_theta": [1e4, 1e4, -1, 5e5]}).status == USAGE


def test_sparsemixer_chooses_two_experts() -> None:
    """Its code chooses one expert, then another, whatever the config says."""
    fields = {**LLAMA, "model_type": "phimoe", "num_local_experts": 4, "num_experts_per_tok": 2}
    assert count(fields) > 0
    with pytest.raises(NapkinError, match="SparseMixer chooses 2"):
        count({**fields, "num_experts_per_tok": 1})


# --- layers that lend ------------------------------------------------------------------------------------------------

BOTH = ["sliding_attention", "full_attention"]
GEMMA3N = {
    "model_type": "gemma3n_text",
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 97,
    "vocab_size_per_layer_input": 80,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 96,
    "laurel_rank": 12,
    "num_kv_shared_layers": 2,
    "layer_types": [*BOTH, "sliding_attention", *BOTH],
    "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0, 0.0],
}
GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 72,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "intermediate_size": 104,
    "use_double_wide_mlp": True,
    "vocab_size": 160,
    "vocab_size_per_layer_input": 80,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 2,
    "layer_types": [*BOTH, "sliding_attention", *BOTH],
}
EXPERTS4 = {"enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 40}


def test_layers_that_lend_count_as_their_classes_do() -> None:
    """Parameters that the classes of transformers 5.23.0 have for these sizes."""
    assert count(GEMMA3N) == 199_192
    assert count(GEMMA4) == 290_952
    assert count(GEMMA4 | EXPERTS4) == 510_217
    unified = {k: v for k, v in GEMMA4.items() if not k.endswith("per_layer_input")}
    assert count(unified | {"model_type": "gemma4_unified_text"}) == 278_744


def test_a_layer_that_borrows_has_no_keys_of_its_own() -> None:
    """2·64·32 weights of products and 16 of a norm less, in each of two layers."""
    alone = {**GEMMA3N, "num_kv_shared_layers": 0}
    assert count(alone) - count(GEMMA3N) == 2 * (2 * 64 * 32 + 16)
    kinds = {name: n for name, n, _ in model_of(GEMMA3N).stacks[0].kinds()}
    assert kinds == {
        "sliding_sparse": 1,
        "full_lending": 1,
        "sliding_lending": 1,
        "sliding_borrowing": 1,
        "full_borrowing": 1,
    }


def test_full_layers_by_a_list_or_by_fields_of_their_own() -> None:
    fields = {k: v for k, v in GEMMA4.items() if not k.startswith(("global", "num_global"))}
    own = {"head_dim": 32, "num_key_value_heads": 1}
    assert count(fields | {"per_layer_config": {"01": own, "4": own}}) == count(GEMMA4)


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (GEMMA3N, {"num_kv_shared_layers": 5}, "leave no layer of each type"),
        (GEMMA3N, {"num_kv_shared_layers": 4}, "leave no layer of each type"),
        (GEMMA3N, {"altup_active_idx": 4}, "is not one of 4 streams"),
        (GEMMA3N, {"altup_num_inputs": 1}, "is not between 2"),
        (GEMMA3N, {"altup_correct_scale": False}, "does not know what False changes"),
        (GEMMA3N, {"intermediate_size": [96]}, "a list of 5"),
        (GEMMA3N, {"activation_sparsity_pattern": [0.95]}, "has 1 entries for 5 layers"),
        (GEMMA3N, {"activation_sparsity_pattern": [1.0] * 5}, "is not a share"),
        (GEMMA3N, {"layer_types": ["chunked_attention"] * 5}, "does not know chunks"),
        (GEMMA4, EXPERTS4 | {"top_k_experts": 6}, "chooses 6 of 5"),
        (GEMMA4, {"use_bidirectional_attention": "all"}, "does not know what 'all' changes"),
        (GEMMA4, {"num_global_key_value_heads": 4}, "are not a multiple of 4"),
        (GEMMA4, {"per_layer_config": {"9": {"head_dim": 32}}}, "is not a layer"),
        (GEMMA4, {"per_layer_config": {"1": {"hidden_size": 32}}}, "does not know what 'hidden_size'"),
        (GEMMA4, {"per_layer_config": {"1": {"head_dim": 0}}}, "is not a whole number"),
        (GEMMA4, {"per_layer_config": {"1": {"head_dim": 32}}}, "layers of full_attention differ"),
        (GEMMA4, {"per_layer_config": {"0": {"num_key_value_heads": 4}, "2": 3}}, "is not a layer"),
    ],
)
def test_what_contradicts_itself_among_lenders_is_wrong(
    base: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    assert says in refusal({**base, **changes}).message


def test_two_sides_of_gemma_count_as_published() -> None:
    """Parameters of the published safetensors: two tables, of which the head shares the decoder's."""
    nine = {"hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42}
    nine |= {"num_attention_heads": 16, "num_key_value_heads": 8}
    two = {"hidden_size": 2304, "num_hidden_layers": 26}
    both = {"model_type": "t5gemma", "encoder": nine}
    assert count(both | {"decoder": nine}) == 20_333_401_088
    assert count(both | {"decoder": two}) == 12_292_375_296
    found = params(model_of(both | {"decoder": two}))
    assert found["params/lookup_embedding"].value == 256_000 * 3584
    assert found["params/embedding"].value == 256_000 * (3584 + 2304)
    assert "has no head" in model_of(both | {"decoder": two, "architectures": ["T5GemmaModel"]}).notes[0]


def test_each_side_of_gemma_is_read_by_itself() -> None:
    side = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    side |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97}
    model = model_of({"model_type": "t5gemma", "encoder": side, "decoder": side | {"hidden_size": 48}})
    cross = next(op for op in model.stacks[1].layers[0].operations if op.name == "cross_k")
    assert (cross.reads, cross.weights()[0].shape) == (("memory",), (32, 64))
    windows = [op.window for op in model.stacks[0].layers[0].operations if isinstance(op, AttentionCore)]
    assert windows == [4096 + 1]  # this many to each side
    problem = refusal({"model_type": "t5gemma", "encoder": side, "decoder": {**side, "num_hidden_layers": None}})
    assert "decoder.num_hidden_layers: is missing" in problem.message
    problem = refusal({"model_type": "t5gemma", "encoder": side, "decoder": side, "is_encoder_decoder": False})
    assert "is_encoder_decoder" in problem.message


SIDE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
SIDE |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "sliding_window": 16}
SIDE |= {"layer_types": ["sliding_attention", "full_attention"]}
T5GEMMA2 = {"model_type": "t5gemma2", "encoder": {"text_config": SIDE}, "decoder": SIDE}


def test_one_table_and_one_attention_over_both_sides() -> None:
    """Parameters that the class of transformers 5.23.0 has for these sizes; untied, both sides and the head have a
    matrix each, and both sides a vector for the token that ends an image."""
    assert count(T5GEMMA2) == 130_432
    assert count(T5GEMMA2 | {"tie_word_embeddings": False}) == 130_432 + 2 * 97 * 64 + 64
    decoder = model_of(T5GEMMA2).stacks[1].layers[0]
    assert not [op.name for op in decoder.operations if op.name.startswith("cross") and op.weights()]


@pytest.mark.parametrize(
    ("pairs", "own"), [("full", 32 * 32), ("half", 32 * 32 // 2), ("exact", 16 * 17 // 2 + 16 * 16)]
)
def test_merged_attention_counts_the_other_sides_keys_whole(pairs: str, own: int) -> None:
    """A window of 16 over 32 tokens, and 24 of the encoder's."""
    core = next(op for op in model_of(T5GEMMA2).stacks[1].layers[0].operations if isinstance(op, AttentionCore))
    work = Work(3, 32, pairs, (), 24)
    assert core.pairs(work) == 3 * (own + 32 * 24)
    assert sum(p.flops for p in core.gemms(work)) == 2 * 2 * 4 * 16 * 3 * (own + 32 * 24)


@pytest.mark.parametrize(("window", "pairs"), [(5, 3 + 4 + 5 * 4 + 4 + 3), (4, 3 + 5 * 4 + 3 + 2)])
def test_a_bidirectional_window_is_centered_on_the_query(window: int, pairs: int) -> None:
    """8 tokens: of 5, two before and two behind; of 4, one before and two behind."""
    sides = {"encoder": {"text_config": SIDE | {"sliding_window": window}}, "decoder": SIDE}
    core = next(op for op in model_of(T5GEMMA2 | sides).stacks[0].layers[0].operations if isinstance(op, AttentionCore))
    assert core.pairs(Work(1, 8, "exact")) == pairs


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"decoder": SIDE | {"hidden_size": 48}}, "is not the encoder's 64"),
        ({"decoder": SIDE | {"vocab_size": 98}}, "is not the encoder's 97"),
        ({"decoder": SIDE | {"sliding_window": None}}, "does not run with"),
        ({"decoder": SIDE | {"use_bidirectional_attention": True}}, "does not know what True changes"),
        ({"architectures": ["T5GemmaEncoderModel"]}, "encoder of this family by itself"),
    ],
)
def test_sides_that_do_not_fit_are_one_line(changes: dict[str, Any], says: str) -> None:
    assert says in refusal({**T5GEMMA2, **changes}).message


def test_lent_keys_are_cached_once_and_merged_ones_for_both_sides() -> None:
    """2 heads of 16 numbers, keys and values: 64 numbers a token. AltUp's coefficients are no latent."""
    layers = model_of(GEMMA3N | {"sliding_window": 8}).stacks[0].layers
    kept = {layer.kind: kv_cache.cached_numbers(layer, 100) for layer in layers}
    assert kept["full_lending"] == (100 * 64, 0)
    assert kept["sliding_lending"] == kept["sliding_sparse"] == (8 * 64, 0)
    assert kept["full_borrowing"] == kept["sliding_borrowing"] == (0, 0)
    sliding, full = model_of(T5GEMMA2).stacks[1].layers
    assert kv_cache.cached_numbers(sliding, 100, source=40) == ((16 + 40) * 64, 0)
    assert kv_cache.cached_numbers(full, 100, source=40) == ((100 + 40) * 64, 0)
    assert kv_cache.cached_numbers(full, 100) == ((100 + 100) * 64, 0)  # as many tokens of the other stack


def test_layers_that_lend_are_one_pipeline_stage() -> None:
    model = model_of(GEMMA3N)
    assert model.shares_tensors
    assert not model_of(GEMMA4 | {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}).shares_tensors
    problem = run_line(["memory", "gemma3n-e2b", "--gpus", "8", "--pp", "2", "--hardware", "h100"]).errors[0]
    assert "layers of gemma3n-e2b read what layers of other stages compute" in problem
    with pytest.raises(NapkinError, match="some use tensors that others compute"):
        with_layers(model, 7)


def test_palm_counts_no_table_that_is_looked_up_alone() -> None:
    """6·(N − the table of layers' own inputs) + 12·Σ heads·size·length."""
    model = model_of(GEMMA3N)
    found = conventions.per_token(model, flops.works(model, 1, 32), "palm").value
    assert found == 6 * (199_192 - 80 * 5 * 8) + 12 * 5 * 4 * 16 * 32


@pytest.mark.parametrize("model_type", ["gemma4_assistant", "gemma4_unified_assistant"])
def test_what_reads_another_model_is_refused(model_type: str) -> None:
    problem = refusal({"model_type": model_type, "text_config": {**GEMMA4, "num_kv_shared_layers": 5}})
    assert (problem.status, "no training step of its own" in problem.message) == (REFUSED, True)
