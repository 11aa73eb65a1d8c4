"""Live bytes at the phases of a step, by hand: inputs, buffers, gradients through the passes, other models, saving.

The small decoders are those of test_states_by_hand.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.footprint.memory import least_states, parts_of, rank_of
from napkin.footprint.moments import Moments, pixel_bytes
from napkin.footprint.other_models import logits_of
from napkin.footprint.peaks import StageLayers, layer_peaks
from napkin.footprint.placeholders import buffers
from napkin.footprint.prepared import PreparedStep, flat, prepare, reach_of_step
from napkin.footprint.saving import saved
from napkin.footprint.through_passes import Gradients, References
from napkin.operations.frozen import Reach
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.planning.enlarge import with_layers
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.recomputation import OPERATIONS, Recompute
from napkin.training.setup import Setup
from napkin.training.tasks import ForwardPass
from tests.conftest import ROOT, model, model_of, preset
from tests.test_states_by_hand import (
    ATTENTION,
    DENSE,
    ENDS,
    EXPERTS,
    HEADS,
    KV,
    LAYER,
    LLAMA,
    OTHERS,
    SPARSE,
    TABLE,
    TENSORS,
    WHOLE,
    D,
    F,
    H,
    L,
    S,
    V,
    rank,
    setup_of,
    step_of,
)  # fmt: skip

TIED = model(**LLAMA, tie_word_embeddings=True)
DEBERTA = model(
    model_type="deberta-v2", hidden_size=H, num_hidden_layers=3, num_attention_heads=HEADS, intermediate_size=F,
    vocab_size=V, max_position_embeddings=64, conv_kernel_size=3, conv_act="gelu", relative_attention=True,
    pos_att_type=["c2p", "p2c"], position_buckets=16, max_relative_positions=-1, norm_rel_ebd="layer_norm",
    share_att_key=True, position_biased_input=False, type_vocab_size=0,
)  # fmt: skip
"""Three layers, with a convolution after the first."""

# --- what a step is given ---

LENGTH = 2048
"""Llama's max_position_embeddings if a config has none."""


@pytest.mark.parametrize(
    ("what", "first", "last"),
    [
        ("rotary", D, D),  # inverse frequencies of a half of the head's size, and the original ones
        ("each rotary", L / 2 * D, L / 2 * D),
        ("spare rotary", D, D),
        ("angles", L / 2 * LENGTH * D, L / 2 * LENGTH * D),
        ("masks", L / 2 * LENGTH**2, L / 2 * LENGTH**2),
        ("mask", LENGTH**2, LENGTH**2),
        ("ids", LENGTH, 0),
        ("sines", (LENGTH + 2) * H, 0),
        ("positions", LENGTH * H, 0),
        ("logits", 0, V),
        ("scale", 1, 0),
        ("factors", 2, 0),
        ("scalar", L / 2, L / 2),
        ("scalars", 2 * L / 2, 2 * L / 2),
    ],
)
def test_registered_buffers(what: str, first: float, last: float) -> None:
    """Elements of four bytes on the two stages of a pipeline, or of the weights' two."""
    for kind, width in (("fp32", 4), ("", 2), ("int64", 8)):
        step = step_of(DENSE, pp=2)
        implementation = replace(step.setup.implementation, buffers=((what, kind),))
        step = replace(step, setup=replace(step.setup, implementation=implementation))
        found = [buffers(step, rank_of(step, i).stage) for i in range(2)]
        assert found == [width * first, width * last]


def test_a_model_without_rotary_embeddings_has_no_angles() -> None:
    gpt2 = model(model_type="gpt2", n_embd=H, n_layer=2, n_head=HEADS, vocab_size=V)
    for what in ("rotary", "spare rotary", "each rotary", "angles"):
        step = step_of(gpt2)
        implementation = replace(step.setup.implementation, buffers=((what, "fp32"),))
        step = replace(step, setup=replace(step.setup, implementation=implementation))
        assert buffers(step, rank_of(step, 0).stage) == 0


def test_inputs_are_ids_and_labels() -> None:
    """Eight bytes each for every token of a micro-batch on the first stage; context parallelism divides them."""
    tables = 4 * D
    for changes, tokens in (({}, S), ({"micro": 3}, 3 * S), ({"cp": 2}, S / 2), ({"tp": 2}, S)):
        for moment in rank(DENSE, **changes).moments:
            assert moment.inputs == 2 * 8 * tokens + tables
    assert {one.inputs for one in rank(DENSE, pp=2, index=1).moments} == {tables}


def test_pixels_of_a_micro_batch() -> None:
    """Three sequences with two images of 16 patches of 3 × 7 × 7 fp32 pixels each."""
    configs = json.loads(Path(ROOT, "tests/data/vision_bytes.json").read_text(encoding="utf-8"))["configs"]
    llava = model_of(configs["llava"]["config"])
    assert pixel_bytes(llava, Layout(96, micro=3, images=2)) == 3 * 2 * 16 * 3 * 7 * 7 * 4
    assert pixel_bytes(llava, Layout(96)) == pixel_bytes(DENSE, Layout(96, images=2)) == 0
    assert llava.vision is not None
    steps = (step_of(llava, tower=llava.vision.implementation, seq=96, images=n) for n in (2, 0))
    whole, none = (rank_of(step, 0).moments[0].inputs for step in steps)
    assert whole - none == 2 * 16 * 3 * 7 * 7 * 4


# --- gradients ---


def gradients(*named: Any, index: int = 0, defers: bool = False, **changes: Any) -> Gradients:
    step = step_of(*(named or (DENSE,)), **changes)
    if defers:
        step = replace(step, setup=replace(step.setup, framework=replace(step.setup.framework, defers=True)))
    found = rank_of(step, index)
    return Gradients(step, found, parts_of(step, found.stage))


def test_gradients_of_one_micro_batch_come_one_after_the_other() -> None:
    """Nothing lives through the passes; the head's are there first; divided ones by rank."""
    found = gradients()
    assert (found.standing, found.added, found.first) == (0, 0, 2 * (TABLE + H))
    assert found.after(1001) == 1001
    for zero, size in ((1, 1001), (2, 251), (3, 251)):
        assert gradients(DENSE, dp=4, zero=zero).after(1001) == size
    assert gradients(DENSE, pp=2).first == 0
    assert gradients(DENSE, pp=2, index=1).first == 2 * (TABLE + H)
    assert gradients(DENSE, policy="fp32").first == 4 * (TABLE + H)


def test_gradients_of_several_micro_batches_stay() -> None:
    found = gradients(DENSE, micro_batches=2)
    assert (found.standing, found.added, found.after(1001)) == (2 * WHOLE, 0, 2 * WHOLE)
    divided = gradients(DENSE, micro_batches=2, dp=4, zero=2)
    assert (divided.standing, divided.after(1001)) == (2 * WHOLE / 4, 2 * WHOLE / 4)
    assert gradients(DENSE, micro_batches=2, in_backward=True).standing == 0
    assert gradients(DENSE, in_backward=True).after(1001) == 0
    assert gradients(DENSE, "megatron-core").standing == 4 * WHOLE


def test_gradients_that_are_reduced_in_the_last_micro_batch_alone() -> None:
    """torch's no_sync: all of them in 16 bits, as they are computed, and a block's new ones next to them."""
    found = gradients(DENSE, "fsdp", defers=True, dp=4, zero=3, micro_batches=2)
    assert (found.standing, found.added) == (2 * WHOLE, 2 * LAYER)
    assert gradients(DENSE, "fsdp", defers=True, dp=2, zero=3, micro_batches=2).added == 2 * LAYER
    for changes in ({"micro_batches": 1}, {"micro_batches": 2, "zero": 1}, {"micro_batches": 2, "dp": 1}):
        own = gradients(DENSE, "fsdp", defers=True, **{"dp": 4, "zero": 3, **changes})
        assert own.added == 0
        assert own.standing in (0, 4 * WHOLE, 4 * WHOLE / 4)


def test_one_checkpointed_layer_refers_to_its_mask_once() -> None:
    """A mask of S² pairs that all layers read is there once, of one layer as of several."""

    def held(layers: int) -> float:
        of = model(**{**LLAMA, "num_hidden_layers": layers})
        setup = replace(setup_of(of, recompute=Recompute("full")), attention="eager")
        step = prepare(of, setup)
        assert all(section.masks for _, section in step.run.layers)
        return float(References(step, rank_of(step, 0).stage).around)

    assert held(1) == held(3)


def test_litgpt_s_flat_gradients_stay_whole() -> None:
    """A layer's flat parameter has one gradient, which no rank shares before the last micro-batch; whole ones stand in
    place of the shards, which are made of them as the last backward pass goes."""
    found = gradients(DENSE, "litgpt", policy="bf16-pure", dp=2, zero=3, micro_batches=2)
    assert (found.standing, found.added) == (2 * WHOLE, 2 * LAYER)
    assert gradients(DENSE, "litgpt", policy="bf16-pure", dp=1, zero=3).added == 0
    assert gradients(DENSE, "litgpt", policy="bf16-pure", dp=2, zero=1, micro_batches=2).added == 0


def test_the_head_s_part_of_a_tied_gradient_waits_for_the_embedding_s() -> None:
    """Where it is freed at once it is counted apart, on a single stage; the head's first gradients have it."""
    waits = [dict(gradients(TIED, **one).parts_after(0))["of_a_tied_head"] for one in WAITING]
    assert waits == [0, 2 * TABLE, 0, 2 * TABLE]
    assert gradients(TIED).first == 2 * (TABLE + H)
    assert dict(gradients(DENSE, micro_batches=2).parts_after(0))["of_a_tied_head"] == 0


@pytest.mark.parametrize(
    ("framework", "changes", "root", "reduced"),
    [
        ("fsdp", {"dp": 4}, 2 * (TABLE + H), 2 * LAYER),
        ("fsdp", {"dp": 4, "micro_batches": 2}, 2 * (TABLE + H), 2 * LAYER),
        ("fsdp", {"dp": 4, "micro_batches": 2, "defers": True}, 0, 0),
        ("fsdp", {"dp": 4, "micro_batches": 1, "defers": True}, 2 * (TABLE + H), 2 * LAYER),
        ("fsdp", {"dp": 1}, 0, 0),
        ("torchtitan", {"dp": 4}, 0, 4 * LAYER),
        ("plain", {"dp": 4}, 0, 0),
    ],
)
def test_gradients_that_fsdp_has_not_divided_yet(
    framework: str, changes: dict[str, Any], root: float, reduced: float
) -> None:
    """Those of the root unit, the final norm's and the head's, until the backward pass is over, and the copy of the
    last block's that is being reduced: in bf16 as they were computed, or in torchtitan's fp32."""
    found = gradients(DENSE, framework, policy="amp-bf16", zero=3, **changes)
    assert (dict(found.parts_after(0))["of_the_root"], found.reduced) == (root, reduced)


def test_only_a_block_before_another_leaves_a_copy_to_reduce() -> None:
    one = model(**{**LLAMA, "num_hidden_layers": 1})
    assert gradients(one, "fsdp", policy="amp-bf16", dp=4, zero=3).reduced == 0


def test_the_copy_of_a_block_s_gradients_is_there_in_the_next_backward_pass() -> None:
    step = step_of(DENSE, "fsdp", policy="amp-bf16", dp=4, zero=3)
    found = rank_of(step, 0)
    moments = Moments(step, found, parts_of(step, found.stage))
    corner = next(iter(layer_peaks(step, found.stage, 4, moments.gradients.after)))
    assert dict(moments.backward(corner).made["temporaries"])["reduced_gradients"] == 2 * LAYER


WAITING: tuple[dict[str, Any], ...] = ({}, {"micro_batches": 2}, {"micro_batches": 2, "pp": 2}, {"in_backward": True})


@pytest.mark.parametrize(("pp", "size"), [(1, 2 * TABLE), (2, 0)])
def test_only_a_single_stage_adds_to_the_gradient_of_its_embedding(pp: int, size: float) -> None:
    """Two bytes an element; the first of two stages has no head whose gradient could be added to it."""
    step = step_of(TIED, pp=pp)
    found = rank_of(step, 0)
    assert Moments(step, found, parts_of(step, found.stage)).of_table == size


@pytest.mark.parametrize(("shape", "tables"), [(DENSE, 1), (TIED, 2)])
def test_a_gradient_of_the_embedding_is_added_to_a_tied_head_s_before_the_encoder_runs_back(
    shape: Model, tables: int
) -> None:
    """Next to the gradient of the encoder's output, of 100 bytes here: two bytes for each element of a table."""
    step = step_of(shape)
    found = rank_of(step, 0)
    moments = Moments(step, found, parts_of(step, found.stage))
    corner = next(iter(layer_peaks(step, found.stage, 2, moments.gradients.after)))
    without = moments.backward(replace(corner, needs=0))
    assert moments.at_seam(replace(corner, seam=100)).live - without.live == 100 + tables * 2 * TABLE


def test_copies_of_weights_that_a_layer_has_freed_are_gone_in_its_backward_pass() -> None:
    """A peak in which 100 bytes fewer of autocast's copies are left."""
    step = step_of(DENSE, policy="amp-bf16")
    found = rank_of(step, 0)
    moments = Moments(step, found, parts_of(step, found.stage))
    corner = next(iter(layer_peaks(step, found.stage, 4, moments.gradients.after)))
    before, after = (moments.backward(replace(corner, uncast=size)).weight_casts for size in (0, 100))
    assert before - after == 100


def test_states_of_the_fullest_stage_are_at_least_the_mean() -> None:
    """16 bytes per parameter and a counter for each tensor, over the stages; a tied embedding once."""
    assert least_states(DENSE, setup_of(pp=4)) == (16 * WHOLE + 4 * TENSORS) / 4
    assert least_states(TIED, setup_of(TIED, pp=4)) == pytest.approx(
        (16 * (WHOLE - TABLE) + 4 * (TENSORS - 1)) / 4, abs=2
    )
    assert least_states(DENSE, setup_of(in_backward=True)) == 14 * WHOLE + 4 * TENSORS
    assert least_states(SPARSE, setup_of(SPARSE, dp=8, ep=4)) >= 16 * (OTHERS + EXPERTS / 4)


@pytest.mark.parametrize("frozen", [0, 1, L - 1])
def test_states_of_frozen_layers_on_a_single_stage_are_all_there_are(frozen: int) -> None:
    """Two bytes for a frozen parameter, of the embedding and the first layers, and 16 for another."""
    setup = replace(setup_of(), frozen=frozen)
    held = rank_of(prepare(DENSE, setup), 0)
    assert least_states(DENSE, setup) == held.parameters + held.gradients + held.optimizer


def test_before_the_first_layer_there_is_what_the_embedding_keeps() -> None:
    """And what every moment has: no copies of weights yet."""
    step = prepare(DENSE, setup_of())
    held = rank_of(step, 0)
    first = Moments(step, held, parts_of(step, held.stage)).start()
    assert (first.activations, first.weight_casts) == (step.run.before.saved, 0)


# --- models that run forward only ---

OTHER = model(**{**LLAMA, "num_hidden_layers": 2, "intermediate_size": 3 * F}, tie_word_embeddings=False)
OTHER_WHOLE = 2 * (ATTENTION + 9 * H * F + 2 * H) + sum(ENDS)


@pytest.mark.parametrize(
    ("one", "changes", "size"),
    [
        (ForwardPass("reference", held=True), {}, 2 * WHOLE),
        (ForwardPass("reference", held=True), {"dp": 4, "zero": 1}, 2 * WHOLE),
        (ForwardPass("reference", held=True), {"dp": 4, "zero": 3}, 2 * WHOLE / 4),
        (ForwardPass("reference", held=True, dtype="fp32"), {}, 4 * WHOLE),
        (ForwardPass("reference", OTHER, held=True), {}, 2 * OTHER_WHOLE),
        (ForwardPass("reference", OTHER, held=True), {"dp": 4, "zero": 3}, 2 * OTHER_WHOLE / 4),
        # a critic: weights, gradients, and 12 bytes of states with a counter for each tensor
        (ForwardPass("critic", OTHER, held=True, trained=True), {}, 16 * OTHER_WHOLE + 4 * (2 * 9 + 3)),
    ],
)
def test_weights_of_models_that_run_forward_only(one: ForwardPass, changes: dict[str, Any], size: float) -> None:
    """Whole but under ZeRO-3 (trl/models/utils.py, prepare_deepspeed)."""
    found = rank(DENSE, forwards=(one,), loss="log-probs", **changes)
    assert found.others == ((one.name, size),)
    assert found.models == size
    for moment in found.moments:
        assert moment.models == size
        assert moment.live == moment.passing + found.parameters + size + found.optimizer + moment.gradients


def test_logits_of_a_micro_batch() -> None:
    setup = setup_of(micro=3, cp=2, tp=2)
    assert logits_of(V, setup) == 3 * S / 2 * V
    parallel = replace(setup, implementation=replace(setup.implementation, parallel_loss=True))
    assert logits_of(V, parallel) == 3 * S / 2 * V / 2


# --- saving ---


@pytest.mark.parametrize(
    ("framework", "unit", "states"),
    [
        ("plain", sum(ENDS), 12 * WHOLE + 4 * TENSORS),  # Adam's states, their counters, a master copy
        ("torchtune", LAYER, 12 * WHOLE + 4 * TENSORS),  # embedding and head apart
        ("deepspeed", sum(ENDS), 0),  # saves states as they are divided
    ],
)
def test_what_is_gathered_to_save_it(framework: str, unit: int, states: int) -> None:
    step = step_of(DENSE, framework, dp=4, zero=3, save="full")
    found = rank_of(step, 0)
    what = saved(step, found, parts_of(step, found.stage))
    assert (what.unit, what.weights, what.states) == (2 * unit, 2 * WHOLE, states)
    (moment,) = (one for one in found.moments if one.name == "save")
    assert moment.live == found.parameters + found.optimizer + 2 * unit
    everywhere = rank_of(step_of(DENSE, framework, dp=4, zero=3, save="full-on-gpu"), 0)
    (moment,) = (one for one in everywhere.moments if one.name == "save")
    assert moment.live == found.parameters + found.optimizer + 2 * (unit + WHOLE)


# --- layers of a stage ---

MATRICES = LAYER - 2 * H


def of_layers(**changes: Any) -> StageLayers:
    step = step_of(DENSE, policy="amp-bf16", **changes)
    return StageLayers(step, rank_of(step, 0).stage, 4)


def test_what_a_layer_s_backward_pass_makes_and_frees() -> None:
    """fp32 gradients, and autocast's 16-bit copies of matrices, which checkpointed layers do not keep; a frozen layer
    has neither."""
    plain = of_layers()
    assert (plain.weights, plain.copies, plain.cached) == ([4 * LAYER], [2 * MATRICES], [2 * MATRICES])
    assert (plain.reruns, plain.remade, plain.idle, plain.encoder) == ([0], [0], [False], 0)
    (section,) = plain.sections
    again = of_layers(recompute=Recompute("full"))
    assert (again.copies, again.cached, again.reruns) == ([0], [2 * MATRICES], [section.recomputed])
    frozen = of_layers(frozen=2)
    assert frozen.idle == [True, False, False]  # the first that is trained is a kind of its own
    for sizes, each in ((frozen.weights, 4 * LAYER), (frozen.copies, 2 * MATRICES), (frozen.cached, 2 * MATRICES)):
        assert sizes == [0, each, each]
    assert [frozen.burst(one) for one in (0, 2)] == [section.dropped, section.burst - section.saved]
    assert frozen.needed(0, (1, 0, 0), 0, (1, 1, 1)) == 0


def test_recomputation_by_operations_runs_the_others_again() -> None:
    """All that the layer computes, without the outputs that are kept."""
    chosen = of_layers(recompute=Recompute(OPERATIONS))
    (section,) = chosen.sections
    assert chosen.reruns == [section.recomputed - section.chosen]
    assert chosen.burst(0) == section.dropped - section.input - section.chosen
    full = of_layers(recompute=Recompute("full"))
    assert full.burst(0) == full.sections[0].dropped - full.sections[0].input


@pytest.mark.parametrize(("how", "first"), [(Recompute("none"), 2), (Recompute("full"), 5), (Recompute("every", 8), 5)])
def test_of_offloaded_activations_the_first_layers_are_still_there(how: Recompute, first: int) -> None:
    """Two layers in transit, or five checkpoints: they are looked at apart from the others."""
    step = step_of(with_layers(DENSE, 8), offload=("activations",), recompute=how)
    layers = StageLayers(step, rank_of(step, 0).stage, 2)
    assert {sum(upto) for _, _, upto, *_ in layers.corners()} >= {first, first + 1, 8}


def test_equal_layers_are_one_run() -> None:
    """A million layers cost what one does."""
    assert step_of().run.patterns == ((1, ((L, 0),)),)
    assert step_of(with_layers(DENSE, 10**6)).run.patterns == ((1, ((10**6, 0),)),)


def test_groups_recompute_what_is_above_their_checkpoint() -> None:
    """Eight layers in groups of three: the last layer of each, with all of its group, and as many checkpoints."""
    step = step_of(with_layers(DENSE, 8), recompute=Recompute("group", 3))
    layers = StageLayers(step, rank_of(step, 0).stage, 2)
    each = layers.sections[0].recomputed
    found = {(sum(upto), checkpoints, recomputed) for _, _, upto, checkpoints, recomputed in layers.corners()}
    assert found >= {(3, 1, 3 * each), (6, 2, 3 * each), (8, 3, 2 * each)}


@pytest.mark.parametrize(
    ("policy", "offload", "staged", "reduced"),
    [
        ("bf16-pure", (), 2, 0),  # the shard's copy; what is reduced is the gradient
        ("bf16-mixed", (), 2, 2),  # of an fp32 shard; what is reduced in 16 bits is cast
        ("bf16-mixed", ("parameters", "optimizer"), 2 + 4, 2 + 4),  # fp32 from the host, and to it
        ("bf16-pure", ("parameters", "optimizer"), 2, 2),
    ],
)
def test_what_fully_shard_s_streams_keep(policy: str, offload: tuple[str, ...], staged: int, reduced: int) -> None:
    """The buffers of embedding, norm and head and of a block, less that of a block at the peak, and what a rank of four
    stages of a block; what it reduces of the former, which is larger."""
    ends, ranks = sum(ENDS), 4
    assert ends > LAYER > ends / 4
    found = rank_of(step_of(DENSE, "fsdp", policy, dp=ranks, zero=3, offload=offload), 0)
    assert found.streams == 2 * ends + staged * LAYER / ranks + reduced * ends / ranks
    assert found.flow(setup_of(DENSE, "fsdp", dp=ranks, zero=3)).streams == found.streams
    packed = setup_of(DENSE, "fsdp", policy, dp=ranks, zero=3)
    packed = replace(packed, implementation=replace(packed.implementation, tuning=Tuning("lora", 4, 0.0, (), "nf4")))
    assert rank_of(prepare(DENSE, packed), 0).streams == 0
    for framework, layout in (
        ("fsdp", {"dp": ranks, "zero": 2}),
        ("fsdp", {"zero": 3}),
        ("plain", {"dp": 4, "zero": 3}),
    ):
        assert rank_of(step_of(DENSE, framework, policy, **layout), 0).streams == 0


def test_ends_that_are_much_larger_than_a_block_have_their_shard_next_to_them() -> None:
    """Eight times the vocabulary, two ranks: the root's buffer and its rank's half in 16 bits, less the block at the
    peak, are more than the root's buffer and a block's half."""
    wide = model(**LLAMA | {"vocab_size": 8 * V, "tie_word_embeddings": False})
    root = 2 * 8 * V * H + H
    assert (root - LAYER) / 2 > LAYER
    found = rank_of(step_of(wide, "fsdp", "bf16-pure", dp=2, zero=3), 0)
    assert found.streams == 2 * (root + root / 2 - LAYER)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_torch_s_context_parallelism_gathers_keys_and_merges_in_fp32(ranks: int) -> None:
    """Two bytes for each key and value of all ranks. Forward, four fp32 tensors as large as the result. Backward, of
    the queries' gradient one in fp32, its sum with that of half of them, and that half; of the keys' and values' three
    in fp32 and one; less what is passed on."""
    tokens = S // ranks
    queries, keys = tokens * HEADS * D, 2 * tokens * KV * D
    several = ranks > 1
    for framework in ("plain", "fsdp", "torchtitan"):
        (node,) = (
            one
            for one in step_of(DENSE, framework, "bf16-pure", cp=ranks).run.layers[0][1].nodes
            if one.name == "attention"
        )
        assert node.forward_scratch == several * (2 * ranks * keys + 16 * queries)
        assert node.scratch == several * (2 * ranks * keys + (8 + 1 - 2) * queries + (12 + 2 - 2) * keys)
    for framework, ulysses in (("megatron-core", False), ("fsdp", True)):
        nodes = step_of(DENSE, framework, "bf16-pure", cp=2, ulysses=ulysses).run.layers[0][1].nodes
        (node,) = (one for one in nodes if one.name == "attention")
        assert (node.forward_scratch, node.scratch) == (0, 0)


def test_states_of_experts_are_gathered_too() -> None:
    """Adam's two states and the master copy in fp32 of what a rank's stage holds: all that is dense, and its own E/2
    experts."""
    step = step_of(SPARSE, dp=4, ep=2, zero=3, save="full")
    found = rank_of(step, 0)
    states = saved(step, found, parts_of(step, found.stage)).states
    assert states == pytest.approx(12 * (OTHERS + EXPERTS / 2), abs=4 * (9 * L + 3))


def test_where_the_backward_pass_ends() -> None:
    """A flat parameter of a layer's frozen weights and its adapters has a gradient: it ends nowhere (LitGPT with
    FSDP)."""
    adapted = Tuning("lora", 4, 0.0)
    for ranks, flat_one in ((2, True), (1, False)):
        setup = setup_of(DENSE, "litgpt", dp=ranks)
        setup = replace(setup, implementation=replace(setup.implementation, tuning=adapted))
        assert flat(setup) is flat_one
        assert reach_of_step(DENSE, setup) == Reach(0, not flat_one)
    assert reach_of_step(DENSE, setup_of()) == Reach(0, False)


def test_a_convolution_after_the_first_layer_is_no_part_of_its_checkpoint() -> None:
    """DeBERTa v2 (ConvLayer): by channels, masked and added, T·h of 16 bits each, a boolean mask and one of 16 bits,
    and two statistics; h²·3 + h weights and two of a norm. The block itself is that of the other layers."""
    (one, first), (two, other) = step_of(DEBERTA, policy="bf16-pure", recompute=Recompute("full")).run.layers
    assert (one, two) == (1, 2)
    rest = 3 * 2 * S * H + S + 2 * S + 2 * 4 * S
    weights = 2 * (3 * H * H + H + 2 * H)
    assert (first.rest, first.rest_casts, other.rest) == (rest, 0, 0)
    assert (first.saved, first.recomputed) == (other.saved + rest, other.recomputed)
    assert (first.stashed, other.stashed) == (2 * S * H + rest, 2 * S * H)
    assert first.anew - other.anew == 2 * S * H + weights - rest
    assert (other.block, len(other.nodes), first.block) == (len(other.nodes), first.block, first.block)


def test_autocast_s_copies_are_there_in_a_pass_without_gradients() -> None:
    """Of each checkpointed layer and of the head: 2 bytes an element of a matrix, in autocast's cache."""
    one = ForwardPass("reference", held=True)
    found = rank(DENSE, policy="amp-bf16", forwards=(one,), loss="log-probs-fp32", recompute=Recompute("full"))
    casts = {moment.name: moment.weight_casts for moment in found.moments}
    assert casts["forward_only"] == 2 * (L * MATRICES + V * H)
    assert casts["step"] == 0


def test_gradients_in_backward_are_of_one_tensor() -> None:
    """The largest: the embedding, or the head."""
    assert rank(DENSE, in_backward=True).gradients == 2 * TABLE
    assert rank(DENSE, in_backward=True, policy="fp32").gradients == 4 * TABLE


def step_of_class(name: str, **changes: Any) -> PreparedStep:
    """A step of transformers' class of a preset: two sequences of 256 tokens, checkpointed, in pure bf16."""
    network = preset(name)
    code = replace(implementation_of("hf", network.family), **changes)
    layout = Layout(seq=256, micro=2, recompute=Recompute("full"))
    return prepare(network, Setup(code, layout, POLICIES["bf16-pure"], OPTIMIZERS["adamw"], "fused"))


@pytest.mark.parametrize(("name", "tensors"), [("granite3.3-2b", 1), ("llama3-8b", 0)])
def test_what_runs_backward_before_a_block_is_recomputed(name: str, tensors: int) -> None:
    """Granite adds its MLP's output times a constant: the gradient of that product, a tensor of the stream, is made
    before any saved tensor is needed. Llama's sum passes its gradient on as it is. A checkpoint that is recomputed at
    once (reentrant) has neither."""
    later, at_once = (step_of_class(name, late=late) for late in (True, False))
    stream = 2 * 2 * 256 * later.model.hidden
    assert later.run.layers[0][1].anew - at_once.run.layers[0][1].anew == tensors * stream


def test_layers_of_an_encoder() -> None:
    """T5's twelve blocks and its final norm, which runs as one more; a decoder alone has none."""
    for name, layers in (("t5-base", 12 + 1), ("llama3-8b", 0)):
        step = step_of_class(name)
        assert StageLayers(step, rank_of(step, 0).stage, 2).encoder == layers
