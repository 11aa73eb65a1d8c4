"""Live bytes of logits and of the forms of cross entropy, by hand, for the decoders of test_states_by_hand.py."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.footprint.loss_tape import body_output, of_each
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.operations.losses import LOSSES
from napkin.operations.model import Stack
from napkin.operations.tuning import Tuning
from napkin.record import replace
from tests.conftest import model
from tests.test_states_by_hand import (
    DENSE,
    HEADS,
    F,
    H,
    S,
    V,
    setup_of,
    step_of,
)  # fmt: skip

# --- the loss ---


def test_logits_of_each_have_quarters_of_bytes() -> None:
    assert [of_each(size, 10) for size in (2, 2.25, 1.75, 0.25, 0)] == [20, 23, 18, 3, 0]


@pytest.mark.parametrize(
    ("loss", "kept", "chunks"),
    [("compiled", 2, 1), ("in-place", 2, 1), ("chunked", 2, 8), ("vocabulary", 4, 1), ("dtensor", 4, 1)],
)
def test_what_a_loss_keeps_of_each_logit(loss: str, kept: float, chunks: int) -> None:
    """Next to what the last norm keeps (its input in fp32, a reciprocal root of each token, the result in 16 bits) and
    the head's input. The parts of one of eight are gradients of the weight, a part's next to their sum."""
    after = step_of(DENSE, loss=loss).run.after
    assert after.saved == kept * S * V + (4 + 2 + 2) * S * H + 4 * S
    (head,) = (node for node in after.nodes if node.name == "linear")
    assert head.scratch == (2 * V * H if chunks > 1 else 0)


@pytest.mark.parametrize("micro", [1, 3])
def test_a_loss_that_is_fused_with_its_head_keeps_gradients(micro: int) -> None:
    """Liger: the hidden state, its gradient and that of the head's weight; forward also the logits of one part of
    2^⌈log2⌈T/⌈V/h⌉⌉⌉ tokens, that gradient again, and a loss for each token. torchtitan's eight equal parts: an fp32
    gradient of the hidden state."""
    tokens = micro * S
    fused = step_of(DENSE, loss="fused", micro=micro).run.after
    node = next(one for one in fused.nodes if one.name == "fused_loss")
    gradients = 2 * tokens * H, 2 * V * H
    assert [storage.size for _, storage in node.kept] == list(gradients)
    part = -(-tokens // -(-V // H))
    rows = min(1 << (part - 1).bit_length(), tokens)
    assert node.forward_scratch == 2 * rows * V + gradients[1] + 4 * tokens
    assert (node.scratch, node.weight) == (-sum(gradients), gradients[1])
    parts = step_of(DENSE, loss="chunked-backward", micro=micro).run.after
    node = next(one for one in parts.nodes if one.name == "fused_loss")
    assert [storage.size for _, storage in node.kept] == [4 * tokens * H]
    assert node.forward_scratch == 4 * -(-tokens // 8) * V + gradients[1] + 4 * tokens
    assert node.scratch == 0


@pytest.mark.parametrize(("policy", "stored", "narrow"), [("bf16-pure", 2, 2), ("amp-bf16", 4, 2), ("fp32", 4, 4)])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("seq", [S, 8, 4096])
def test_a_loss_in_recomputed_parts_of_256_tokens(
    policy: str, stored: int, narrow: int, trained: bool, seq: int
) -> None:
    """TRL: a copy of the hidden state is kept, with labels and their order. Forward, the weight is copied to fp32
    if it has 16 bits, and to autocast's 16 bits, while a part has its first logits; then the logits have three fp32
    tensors. Backward the 16-bit copy stays, next to the sum of the gradients; a part's gradient is in the matmul's
    format, then in fp32 and in the weight's. Of 2 · 8 tokens the copies of the weight are more than the logits;
    of 2 · 4,096 two hidden states are the most, the sum of their gradients and a slice's."""
    micro = 2
    setup = setup_of(DENSE, loss="chunked-recomputed", micro=micro, policy=policy, seq=seq)
    tuning = None if trained else Tuning("lora", 4, 0.0)
    step = prepare(DENSE, replace(setup, implementation=replace(setup.implementation, tuning=tuning)))
    node = next(one for one in step.run.after.nodes if one.name == "recomputed_loss")
    tokens, weight, logits = micro * seq, V * H, min(256, micro * seq) * V
    assert [storage.size for _, storage in node.kept] == [stored * tokens * H, 16 * tokens]
    wide = (4 if stored == 2 else 0) * weight
    low = (2 if narrow == 2 else 0) * weight
    first, then = wide + low + narrow * logits, (12 + narrow) * logits
    assert node.forward_scratch == max(first, then)
    own = (narrow * weight + low, (narrow + 4) * weight * (stored == 2)) if trained else (low, 0)
    summed = stored * weight if trained else 0
    assert (node.weight, node.output.size) == (summed, 4)
    assert node.scratch == max(first, low + then, max(own) + narrow * logits, 2 * summed, 2 * stored * tokens * H)


def test_parts_of_a_loss() -> None:
    """2^⌈log2⌈T/⌈V/h⌉⌉⌉ tokens; an eighth; 256; and fp32 logits of at most 4 GiB, in one part or 4, 8, …: 16,384 ·
    128,256 of them are 7.8 GiB, 65,536 · 128,256 31.3."""
    of = {name: LOSSES[name].parts for name in ("fused", "chunked-backward", "chunked-recomputed", "fused-compiled")}
    rows = {
        name: [parts(tokens, 128256, 4096) for tokens in (100, 16384, 65536)] for name, parts in of.items() if parts
    }
    assert rows == {
        "fused": [4, 512, 2048],
        "chunked-backward": [13, 2048, 8192],
        "chunked-recomputed": [100, 256, 256],
        "fused-compiled": [100, 4096, 8192],
    }


def test_what_the_class_without_its_head_returns() -> None:
    """Llama's last norm; the module that the embedding is in names the body."""
    assert body_output(step_of().stack) == "final_norm"
    fields = {"hidden_size": H, "ffn_dim": F, "num_hidden_layers": 2, "num_attention_heads": HEADS, "vocab_size": V}
    opt = model(model_type="opt", **fields, word_embed_proj_dim=H // 2, do_layer_norm_before=False)
    (name,) = (op.name for op in opt.stacks[-1].after if op.module.endswith("project_out"))
    assert body_output(opt.stacks[-1]) == name
    assert body_output(Stack("decoder", (), (), ())) == "x"


@pytest.mark.parametrize("micro", [1, 3])
def test_labels_and_logits_of_torch_s_cross_entropy(micro: int) -> None:
    """Shifted by padding: a view of one sequence's, one longer, else a copy. Cut: logits and labels without the last
    token of each sequence, views of one sequence's."""
    tokens, several = micro * S, micro > 1

    def loss(**changes: str | bool) -> tuple[dict[str, Any], Any]:
        setup = setup_of(DENSE, micro=micro)
        after = prepare(DENSE, replace(setup, implementation=replace(setup.implementation, **changes))).run.after
        last = after.nodes[-1]
        assert last.name == "nll_loss"
        return {node.name: node for node in after.nodes}, {one.label: one.size for _, one in last.kept}

    nodes, kept = loss()
    assert nodes["pad"].output.storage.size == 8 * micro * (S + 1) * several
    assert kept == {"loss/labels": 8 * tokens if several else 8 * (S + 1), "loss/weight of all tokens": 4}
    for cuts, width in (("given", 2), ("fp32", 4), ("function", 4)):  # before or after their cast to fp32
        nodes, kept = loss(cuts=cuts, shifted=False)
        assert nodes["cut"].output.count == (tokens - micro) * V
        assert nodes["cut"].output.storage.size == width * (tokens - micro) * V * several
    assert kept == {"loss/labels": 8 * (tokens - micro) * several, "loss/weight of all tokens": 4}
    assert list(loss(shifted=False)[1]) == ["loss/weight of all tokens"]  # labels as they are given


def test_a_function_casts_logits_next_to_those_that_its_caller_holds() -> None:
    """At the loss: 2 bytes of each logit more than where the class casts them in their place."""
    setup = setup_of(DENSE, micro=2)

    def at_loss(cuts: str) -> float:
        implementation = replace(setup.implementation, cuts=cuts, shifted=False)
        step = prepare(DENSE, replace(setup, implementation=implementation))
        (moment,) = (one for one in rank_of(step, 0).moments if one.name == "forward")
        return float(dict(moment.made["temporaries"])["head"])

    assert at_loss("function") - at_loss("fp32") == 2 * 2 * S * V


@pytest.mark.parametrize(("cuts", "width"), [("", 2), ("given", 2), ("fp32", 4), ("function", 2)])
def test_a_loop_of_one_s_own_holds_the_logits_through_the_backward_pass(cuts: str, width: int) -> None:
    """As the model returns them: in the head's dtype, or in fp32 where its class casts them before it cuts them."""
    setup = setup_of(DENSE, micro=2)
    plain = replace(setup.implementation, cuts=cuts, shifted=not cuts)
    steps = [prepare(DENSE, replace(setup, implementation=replace(plain, holds_logits=held))) for held in (False, True)]
    logits = width * 2 * S * V
    assert [step.run.held_logits for step in steps] == [0, logits]
    freed, held = ({one.name: one for one in rank_of(step, 0).moments} for step in steps)
    more = {name: held[name].live - freed[name].live for name in freed}
    assert more == {"forward": 0, "loss": logits, "backward": logits, "step": 0}
