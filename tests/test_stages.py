"""Layers assigned to stages by hand, padded vocabularies, schedules that delay weights' gradients, experts divided over
tensor-parallel ranks: what adds up, what only grows, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.architectures import build, implementation_of
from napkin.architectures.vocabulary import padded
from napkin.counting import flops
from napkin.counting.params import params
from napkin.evidence.predictions import one_run
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.footprint.stages import bounds, in_flight, places
from napkin.inputs.hardware import find
from napkin.inputs.model_file import load_config
from napkin.operations.model import Model
from napkin.planning.enlarge import with_layers
from napkin.training import optimizer_names
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout, held_by, joined
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model_of, preset, run_line

GPT2 = build(load_config("gpt2"))
MIXTRAL = build(load_config("mixtral-8x7b"))


def setup_of(model: Model, implementation: str = "hf", **fields: Any) -> Setup:
    optimizer, _ = optimizer_names.find("adamw")
    laid = Layout(**{"seq": 128, **fields})
    return Setup(implementation_of(implementation, model.family), laid, POLICIES["bf16-mixed"], optimizer, "fused")


def values(line: str) -> dict[str, Any]:
    answer = run_line(f"{line} --json")
    assert answer.status == 0, answer.err
    return answer.values


# --- layers of stages ---


def test_runs_of_stages_are_joined() -> None:
    stages = joined(((1, 9), (2, 10), (0, 4), (1, 10), (1, 0)))
    assert stages == ((1, 9), (3, 10), (1, 0))
    assert [held_by(stages, i) for i in range(5)] == [(0, 9), (9, 19), (19, 29), (29, 39), (39, 39)]


def test_a_vision_tower_is_on_the_first_stage_only() -> None:
    """LLaVA's 32 layers are 16 on each of two stages; what runs before them is on the first too."""
    model = preset("llava-1.5-7b")
    step = prepare(model, setup_of(model, pp=2, seq=1024, images=1))
    first, second = bounds(step, 0), bounds(step, 1)
    assert (first[0], second[1] - second[0]) == (0, 16)
    assert first[1] == second[0] == step.order.depth - 16 > 16


def test_stages_that_delay_gradients_of_weights_are_looked_at_from_both_ends() -> None:
    """Of eight stages of four equal layers: the first, with the embedding, and the one after it, which have the most
    micro-batches in flight; the last, with the head, and the one before it, which have the most delayed gradients."""
    model = with_layers(GPT2, 32)
    step = prepare(model, setup_of(model, pp=8, micro=1, micro_batches=16, schedule="zero-bubble"))
    assert set(places(step)) == {0, 1, 6, 7}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from(["1f1b", "gpipe", "zero-bubble"]))
def test_stages_add_up_to_the_whole_and_the_worst_is_among_those_looked_at(layers: list[int], schedule: str) -> None:
    model = with_layers(GPT2, sum(layers))
    p = len(layers)
    stages = joined(tuple((1, n) for n in layers))
    step = prepare(model, setup_of(model, pp=p, micro_batches=p, stages=stages, schedule=schedule))
    ranks = [rank_of(step, i) for i in range(p)]
    assert [sum(rank.stage.layers) for rank in ranks] == layers
    table = GPT2.vocabulary * GPT2.hidden
    extra = table if p > 1 else 0  # a tied table stands on both ends
    assert sum(rank.weights.all for rank in ranks) == params(model)["params/total"].value + extra
    assert max(ranks[int(place)].live for place in places(step)) == max(rank.live for rank in ranks)


def test_a_list_that_deals_evenly_changes_nothing() -> None:
    even = values("memory llama3-8b --pp 4 --gpus 8 --seq 1024")
    listed = values("memory llama3-8b --stage-layers 4x8 --gpus 8 --seq 1024")
    assert listed == even
    step = "step llama3-8b --gpus 8 --seq 1024 --hardware h100-sxm-80gb"
    assert values(f"{step} --stage-layers 4x8") == values(f"{step} --pp 4")


MEGATRON = {
    "--pp 4 --decoder-first-pipeline-num-layers 5": [5, 9, 9, 9],
    "--pp 4 --decoder-last-pipeline-num-layers 2": [10, 10, 10, 2],
    "--pp 4 --first-stage-layers 7 --last-stage-layers 5": [7, 10, 10, 5],
    "--pp 2 --first-stage-layers 20 --last-stage-layers 12": [20, 12],
    "--pp 3 --account-for-loss-in-pipeline-split": [11, 11, 10],
    "--pp 11 --account-for-embedding-in-pipeline-split": [2, *[3] * 10],
    "--pp 2 --embedding-as-layer --loss-as-layer": [16, 16],
    "--pp 17 --embedding-as-layer --loss-as-layer": [1, *[2] * 15, 1],
    "--stage-layers 9,2x10,3": [9, 10, 10, 3],
    "--stage-layers 0,16,16,0": [0, 16, 16, 0],
}


@pytest.mark.parametrize("options", MEGATRON)
def test_options_of_uneven_pipelines_deal_layers_as_megatron_does(options: str) -> None:
    rows = run_line(f"memory llama3-8b --seq 512 {options} --json").data["stages"]
    assert [row["layers"] for row in rows] == MEGATRON[options]


def test_a_fuller_stage_takes_longer_and_a_shorter_last_one_less() -> None:
    step = "step llama3-8b --gpus 4 --seq 2048 --hardware h100-sxm-80gb --global-batch 32"
    even = values(f"{step} --pp 4")["step/time"]
    assert values(f"{step} --stage-layers 7,9,9,7")["step/time"] < even  # the head has the last stage's place
    assert values(f"{step} --stage-layers 7,12,7,6")["step/time"] > even


def test_megatrons_names_of_chunks_and_of_zero_are_read() -> None:
    chunked = run_line("memory llama3-8b --pp 4 --num-layers-per-virtual-pipeline-stage 2 --seq 512 --json").data
    assert chunked["inputs"]["vp"]["value"] == 4
    assert chunked["inputs"]["vp"]["origin"] == "solved"
    plain = values("memory llama3-8b --gpus 8 --seq 512 --zero 1")
    assert values("memory llama3-8b --gpus 8 --seq 512 --use-distributed-optimizer") == plain


BAD = {
    "--stage-layers 9,9,9,9": "36 layers in total, the model has 32",
    "--stage-layers 16,16 --pp 4": "names 2 stages, --pp 4",
    "--stage-layers 16,0,16": "a stage between the ends has no layer",
    "--stage-layers 16,,16": "a number is missing",
    "--stage-layers 16,-16,32": "",
    "--stage-layers 2x": "a number is missing",
    "--stage-layers 99999999x1": "",
    "--stage-layers 16,16 --first-stage-layers 16": "cannot be combined",
    "--pp 4 --first-stage-layers 5 --loss-as-layer": "cannot be combined",
    "--pp 4 --first-stage-layers 4": "28 layers are left for 3 stages",
    "--pp 2 --first-stage-layers 32": "0 layers are left for 1 stages",
    "--pp 2 --first-stage-layers 33": "more than the model's 32",
    "--first-stage-layers 4": "needs a pipeline",
    "--pp 4 --loss-as-layer": "4 stages do not divide 32 + 1 layers",
    "--pp 4 --chunk-layers 3": "do not divide the 32 layers",
    "--pp 4 --chunk-layers 2 --vp 4": "cannot be combined",
    "--stage-layers 15,17 --vp 2": "does not divide a stage of 15 layers",
    "--use-distributed-optimizer --zero 3": "a contradiction",
    "--etp 2": "has no experts",
    "--vocab-multiple 0": "",
}


@pytest.mark.parametrize("options", BAD)
def test_what_does_not_add_up_is_refused_with_one_line_and_a_hint(options: str) -> None:
    answer = run_line(f"memory llama3-8b --seq 512 {options}")
    assert answer.status == 2
    assert len(answer.errors) == 1
    assert len(answer.hints) == 1
    assert BAD[options] in answer.errors[0]
    assert answer.out == ""


def test_what_is_not_modelled_of_pipelines_is_refused() -> None:
    assert run_line("memory llama3-8b --pp 4 --vp 2 --schedule zero-bubble --seq 512").status == 3
    assert run_line("memory t5-small --pp 2 --stage-layers 3,3").status == 3
    hardware = "--hardware h100-sxm-80gb --seq 512"
    assert run_line(f"memory llama3-8b --stage-layers 20,12 --max layers {hardware}").status == 2


def test_lists_are_repeated_as_they_were_typed() -> None:
    line = "step llama3-8b --stage-layers 7,2x9,7 --hardware h100-sxm-80gb --seq 512"
    assert run_line(f"sensitivity {line}").status == 0
    swept = run_line(f"sweep {line} --over micro-batch=1,2 --json")
    assert swept.status == 0, swept.err
    assert run_line("sensitivity memory llama3-8b --lora-rank 8 --lora-targets q,v --seq 512").status == 0


# --- a padded vocabulary ---


@given(st.integers(1, 3000))
def test_padding_only_adds_rows_and_columns_of_ids_that_nobody_uses(multiple: int) -> None:
    wider = padded(GPT2, multiple)
    more = wider.vocabulary - GPT2.vocabulary
    assert 0 <= more < multiple
    assert wider.vocabulary % multiple == 0
    both = [params(model)["params/total"].value for model in (GPT2, wider)]
    assert both[1] - both[0] == more * GPT2.hidden  # tied: one table
    work = [flops.forward(model, flops.works(model, 1, 16)).value for model in (GPT2, wider)]
    assert work[1] - work[0] == 2 * 16 * GPT2.hidden * more
    live = [rank_of(prepare(model, setup_of(model)), 0).live for model in (GPT2, wider)]
    assert (live[1] > live[0]) == (more > 0)


def test_a_head_that_is_put_together_is_padded_as_its_table_is() -> None:
    """MobileBERT, 30,522 ids in multiples of 1,000: 478 rows of 128 of the table and 384 others, and a bias."""
    names = ("hidden_size", "intermediate_size", "max_position_embeddings")
    fields = {"model_type": "mobilebert", "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 30522}
    model = model_of({**fields, **dict.fromkeys(names, 512), "embedding_size": 128, "intra_bottleneck_size": 128})
    both = [params(one)["params/total"].value for one in (model, padded(model, 1000))]
    assert both[1] - both[0] == 478 * (128 + 384 + 1)


def test_a_vocabulary_is_padded_to_a_multiple_of_its_ranks_everywhere() -> None:
    # 128,256 ids in multiples of 128 · 8: 126 · 1,024 = 129,024; two tables of 768 rows more
    more = 768 * 4096
    assert values("params llama3-8b --vocab-multiple 128 --tp 8")["params/total"] == 8_030_261_248 + 2 * more
    ahead = values("flops llama3-8b --seq 64")["flops/forward"]
    assert values("flops llama3-8b --seq 64 --vocab-multiple 128 --tp 8")["flops/forward"] == ahead + 2 * 64 * more
    tables = "memory llama3-8b --gpus 8 --tp 8 --seq 512"
    plain, wider = values(tables), values(f"{tables} --make-vocab-size-divisible-by 128")
    assert wider["memory/parameters"] - plain["memory/parameters"] == 2 * 2 * more // 8
    step = "step llama3-8b --gpus 8 --tp 8 --seq 512 --hardware h100-sxm-80gb"
    assert values(f"{step} --vocab-multiple 4096")["step/time"] > values(step)["step/time"]


def test_soft_caps_and_reused_tables_are_padded_too() -> None:
    for name in ("gemma2-2b", "bart-large", "command-r-35b"):
        model = build(load_config(name))
        wider = padded(model, 3 * 1024)
        sizes = [
            getattr(op, field)
            for stack in wider.stacks
            for op in (*stack.before, *stack.after)
            for field in ("rows", "width", "d_out")
            if getattr(op, field, 0) == model.vocabulary
        ]
        assert not sizes
        assert rank_of(prepare(wider, setup_of(wider)), 0).live > rank_of(prepare(model, setup_of(model)), 0).live


def test_a_whole_models_counts_take_no_ranks_but_for_padding() -> None:
    assert run_line("params gpt2 --tp 8").status == 2
    assert run_line("flops gpt2 --tp 8 --seq 8").status == 2


# --- schedules ---


def test_zero_bubble_delays_what_the_weights_gradients_need() -> None:
    """32·T·h bytes of a GPT layer (Qi et al. 2023, table 1): inputs 2 + 2 + 2 + 8, outputs 6 + 2 + 8 + 2."""
    step = prepare(GPT2, setup_of(GPT2, "megatron", pp=4, micro_batches=8, schedule="zero-bubble"))
    assert step.run.layers[0][1].delayed == 32 * 128 * GPT2.hidden
    head = 2 * 128 * (GPT2.hidden + GPT2.vocabulary)
    last = rank_of(step, 3)
    assert (last.stage.in_flight, last.stage.delayed) == (1, 3)
    assert last.waiting == 3 * (3 * 32 * 128 * GPT2.hidden + head)
    first = rank_of(step, 0)
    assert (first.stage.in_flight, first.stage.delayed) == (4, 0)
    assert first.waiting == 3 * first.saved


@given(st.integers(1, 9), st.integers(1, 20))
def test_all_stages_of_a_zero_bubble_pipeline_have_as_many_micro_batches_on_their_way(p: int, m: int) -> None:
    layout = Layout(seq=8, pp=p, micro_batches=m, schedule="zero-bubble")
    assert [sum(in_flight(layout, i)[::2]) for i in range(p)] == [min(p, m)] * p


def test_the_head_keeps_one_micro_batch_where_chunks_interleave() -> None:
    step = prepare(GPT2, setup_of(GPT2, pp=3, vp=2, micro_batches=6, schedule="interleaved"))
    last = rank_of(step, 2)
    assert last.stage.chunks == 2 * 0 + 1 * 3 + 1
    assert last.each == last.saved - step.run.after.saved
    assert last.waiting == last.each  # two chunks of another micro-batch
    everything = prepare(GPT2, setup_of(GPT2, pp=3, micro_batches=6, schedule="gpipe"))
    assert rank_of(everything, 2).waiting == 5 * rank_of(everything, 2).saved


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "gpipe", "zero-bubble"])
def test_bytes_of_micro_batches_are_whole_numbers(schedule: str) -> None:
    chunks = "--vp 3" if schedule == "interleaved" else ""
    answer = run_line(
        f"memory gpt2 --pp 4 --schedule {schedule} {chunks} --seq 77 --micro-batch 3 --explain --json"
    ).data
    for path, value in answer["values"].items():
        assert answer["units"][path] != "byte" or isinstance(value, int), path


# --- experts ---


def test_ranks_that_divide_experts_hold_a_part_of_each_and_gather_their_tokens() -> None:
    """Mixtral on 4 tensor-parallel ranks with sequence parallelism: T/4 tokens a rank, 2 experts each."""
    tokens, wide = 128, 2
    for etp in (1, 2, 4):
        rank = prepare(MIXTRAL, setup_of(MIXTRAL, "megatron", tp=4, etp=etp, sp=1))
        whole = 32 * 8 * 3 * 4096 * 14336
        assert rank_of(rank, 0).weights.expert == whole // etp
        kept = {s.label: s.size for s in rank.run.layers[0][1].kept}
        assert kept["experts/sent"] == tokens // 4 * etp * 2 * 4096 * wide
        assert kept["experts/up"] == tokens // 4 * etp * 2 * 2 * 14336 // etp * wide


def test_experts_states_are_divided_over_all_ranks_that_hold_the_same_experts() -> None:
    """Megatron-core: t·d/(e·etp) of them."""
    for etp, copies in ((1, 8), (4, 2)):
        ranks = rank_of(prepare(MIXTRAL, setup_of(MIXTRAL, tp=4, dp=4, ep=2, etp=etp, zero=1)), 0)
        dense, expert = ranks.weights.dense, ranks.weights.expert
        master = dict(ranks.states)["master"]
        assert master == 4 * dense // 4 + -(-4 * expert // copies)


@pytest.mark.parametrize(("tp", "copies"), [(1, 1), (2, 2)])
def test_experts_that_no_other_rank_holds_are_not_added_up(tp: int, copies: int) -> None:
    """8 experts on 8 data-parallel ranks: each is on one rank, or on both of two tensor-parallel ranks; dense gradients
    are reduced over all 8, (n−1)/n of them."""
    setup = setup_of(MIXTRAL, tp=tp, dp=8, ep=8)
    assert setup.layout.with_experts(8) == copies
    found = one_run.asked(MIXTRAL, setup, find("h100-sxm-80gb"), "megatron-core").step()
    terms = {term.name: term.value for term in found.time.walk()}
    assert terms["data/dense"] == pytest.approx(7 / 8 * terms["weights/dense"])
    assert terms["data/experts"] == pytest.approx((copies - 1) / copies * terms["weights/experts"])


def test_a_mean_of_the_parameters_stays_when_the_optimizer_goes_to_the_host() -> None:
    both = values("memory gpt2 --seq 128 --ema --offload optimizer")
    assert both["memory/optimizer/ema"] == 4 * 124_439_808
    assert both["memory/optimizer"] == both["memory/optimizer/ema"]


def test_megatrons_padding_is_named_where_its_framework_is() -> None:
    said = run_line("memory llama3-8b --gpus 8 --tp 8 --framework megatron-core --seq 512 -v").out.replace(
        "\n      ", " "
    )
    assert "--vocab-multiple 128" in said
    assert FRAMEWORKS["megatron-core"].pads == 128


# --- an encoder-decoder's two lengths ---


def test_a_steps_decoder_runs_over_its_own_sequence() -> None:
    line = "step t5-base --hardware h100-sxm-80gb --seq 2048 --global-batch 8 --micro-batch 8"
    same, shorter = values(line), values(f"{line} --target-seq 256")
    assert values(f"{line} --target-seq 2048") == same
    assert shorter["step/compute"] < same["step/compute"]
    counted = values("flops t5-base --seq 2048 --target-seq 256 --batch 8")
    possible = shorter["mfu"] * shorter["step/time"]
    whole = values("flops t5-base --seq 2048 --batch 8")["flops/total"]
    assert possible / (same["mfu"] * same["step/time"]) == pytest.approx(counted["flops/total"] / whole)
    assert shorter["memory/total"] < same["memory/total"]


def test_a_decoder_caches_its_own_keys_and_those_of_what_it_read() -> None:
    # t5-base: 12 decoder layers, 12 heads of 64; keys and values of 100 tokens of its own and 700 that it read
    both = 12 * 2 * 12 * 64 * 2
    line = "memory t5-base --inference --seq 700"
    assert values(f"{line} --target-seq 100")["memory/kv_cache"] == (100 + 700) * both
    assert values(line)["memory/kv_cache"] == 2 * 700 * both
    assert values(f"{line} --target-seq 700 --batch 3")["memory/kv_cache"] == 3 * 2 * 700 * both
    assert run_line("memory gpt2 --inference --seq 700 --target-seq 100").status == 2
