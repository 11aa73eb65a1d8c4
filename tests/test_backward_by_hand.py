"""What is live while the layers of a stage run backward, and in passes next to it, by hand.

The small decoders are those of test_states_by_hand.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.autograd.live import Replay
from napkin.footprint.memory import parts_of, rank_of
from napkin.footprint.moments import Moments
from napkin.footprint.other_models import pass_peak
from napkin.footprint.peaks import StageLayers, layer_peaks
from napkin.footprint.prepared import prepare, table_gradient
from napkin.operations.model import Model
from napkin.planning.enlarge import with_layers
from napkin.record import replace
from napkin.training.recomputation import Recompute
from napkin.training.tasks import ForwardPass
from tests.conftest import ROOT, model, model_of
from tests.test_moments_by_hand import DEBERTA, TIED
from tests.test_pipeline_by_hand import windowed
from tests.test_states_by_hand import DENSE, HEADS, TABLE, D, F, H, L, S, V, setup_of, step_of


@pytest.mark.parametrize("policy", ["bf16-pure", "fp32"])
def test_a_mask_that_only_later_layers_read_is_free_again(policy: str) -> None:
    """A layer with a window, then one without, both checkpointed: S² elements of a mask each. While the first runs
    backward its own is left."""
    setup = setup_of(windowed("wf"), policy=policy, recompute=Recompute("full"))
    implementation = replace(setup.implementation, closure=("masks",))
    step = prepare(windowed("wf"), replace(setup, attention="eager", implementation=implementation))
    found = rank_of(step, 0)
    moments = Moments(step, found, parts_of(step, found.stage))
    later, first = layer_peaks(step, found.stage, moments.gradients.width, moments.gradients.after)
    mask = {"bf16-pure": 2, "fp32": 4}[policy] * S * S
    held = [dict(moments.backward(one).made["temporaries"])["referred_to"] for one in (later, first)]
    assert held[0] - held[1] == mask
    assert moments.references.masks == 2 * mask


@pytest.mark.parametrize(
    ("of", "changes", "size"),
    [(TIED, {}, 2 * TABLE), (TIED, {"policy": "fp32"}, 4 * TABLE), (TIED, {"frozen": 0}, 0), (DENSE, {}, 0)],
)
def test_the_gradient_that_a_tied_head_shares(of: Model, changes: dict[str, Any], size: int) -> None:
    """Of the embedding, in the gradients' format; none if it is frozen, or the head has a matrix of its own."""
    step = step_of(of, **changes)
    assert step.replays.table == table_gradient(of, step.setup, step.weights) == size


@pytest.mark.parametrize("pp", [1, 2])
def test_weights_that_all_layers_share_have_their_gradient_when_the_layers_are_done(pp: int) -> None:
    """ALBERT's twelve layers are one, which both stages have: only the embeddings' gradients are still to come, on a
    single stage without that of the 30,000 rows of 128 that the head shares."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    step = step_of(model_of({**dict(rows)["albert"], "model_type": "albert"}), policy="fp32", pp=pp)
    for index in range(pp):
        found = rank_of(step, index)
        parts = parts_of(step, found.stage)
        (stages, embeddings), *_ = parts
        made = Moments(step, found, parts).end_of_backward().gradients
        assert found.gradients - made == 4 * stages * (embeddings.all - (pp == 1) * 30000 * 128)


def test_weight_gradients_of_the_embeddings_are_delayed_too() -> None:
    """ALBERT's projection of 128 elements of an embedding to 4,096: its input and the gradient of its output in fp32,
    on the first of three stages of four layers each."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    step = step_of(model_of({**dict(rows)["albert"], "model_type": "albert"}), policy="fp32", pp=3)
    first, second = (rank_of(step, index).delayed for index in (0, 1))
    assert first - second == 4 * S * (128 + 4096)


@pytest.mark.parametrize(("tied", "pp", "tables"), [(True, 1, 2), (False, 1, 1), (True, 5, 0)])
def test_between_a_decoder_and_its_encoder(tied: bool, pp: int, tables: int) -> None:
    """T5, two layers and a norm, and three: the gradient of the encoder's result, S·h of 2 bytes, and on a single stage
    the embedding's from the decoder, with a third that both are added into if the head shares it."""
    of = model(
        model_type="t5", d_model=H, num_heads=HEADS, d_kv=D, d_ff=F, num_layers=2, num_decoder_layers=3, vocab_size=V,
        feed_forward_proj="relu", tie_word_embeddings=tied,
    )  # fmt: skip
    step = step_of(of, policy="bf16-pure", pp=pp)
    found = []
    for index in range(pp):
        rank = rank_of(step, index)
        moments = Moments(step, rank, parts_of(step, rank.stage))
        peaks = layer_peaks(step, rank.stage, moments.gradients.width, moments.gradients.after)
        found += [dict(moments.at_seam(one).made["temporaries"])["layer"] for one in peaks if one.seam]
    assert found == [2 * S * H + tables * 2 * TABLE]


def test_copies_that_autocast_s_cache_holds_of_checkpointed_layers() -> None:
    """DeBERTa's three layers: 2 bytes an element of four H², of H·F twice and of their biases. Those of the convolution
    after the first block, 3·H², autograd keeps, so that they do not count here."""
    step = step_of(DEBERTA, policy="amp-bf16", recompute=Recompute("full"))
    found = rank_of(step, 0)
    cached = Moments(step, found, parts_of(step, found.stage)).cached
    assert cached == 3 * 2 * ((4 * H * H + 2 * H * F) + (4 * H + F + H))
    assert step.run.layers[0][1].rest_casts == 2 * 3 * H * H


def test_a_model_that_runs_before_the_forward_pass_is_no_pass_next_to_it() -> None:
    """Its activations are gone by then."""
    before, after = (ForwardPass("reference", held=True, first=first) for first in (True, False))
    for one, there in ((before, False), (after, True)):
        step = step_of(DENSE, forwards=(one,), loss="log-probs")
        found = rank_of(step, 0)
        assert (pass_peak(step, found.stage) > 0) == there
        assert ("forward_only" in [moment.name for moment in found.moments]) == there


def test_groups_of_a_later_stage_begin_with_its_first_layer() -> None:
    """Sixteen layers on two stages, of the second one in groups of three: 8 to 10, 11 to 13, 14 and 15."""
    step = step_of(with_layers(DENSE, 16), pp=2, recompute=Recompute("group", 3))
    layers = StageLayers(step, rank_of(step, 1).stage, 2)
    each = layers.sections[0].recomputed
    found = {(sum(upto), checkpoints, recomputed) for _, _, upto, checkpoints, recomputed in layers.corners()}
    assert found >= {(11, 1, 3 * each), (14, 2, 3 * each), (16, 3, 2 * each)}


def test_only_the_first_layer_of_the_first_stage_frees_what_layers_share() -> None:
    """Its backward pass has a peak of its own, here of a gigabyte."""
    step = replace(step_of(DENSE, pp=2), first=Replay(10**9, 0))
    first, second = (StageLayers(step, rank_of(step, index).stage, 2) for index in (0, 1))
    usual = first.needed(0, (2,), 0, (L // 2 - 2,))
    assert first.needed(0, (1,), 0, (L // 2 - 1,)) == 10**9 + 2 * S * H
    assert usual == second.needed(0, (1,), 0, (L // 2 - 1,)) < 10**6
