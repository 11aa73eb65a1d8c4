"""What is live at a peak, by hand: sums of gradients, arguments, recomputed passes, untrained weights, order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from napkin.architectures import implementation_of
from napkin.autograd.forward_peaks import forward_peaks
from napkin.autograd.live import replays
from napkin.autograd.tape import Tape
from napkin.counting.params import params
from napkin.footprint import memory
from napkin.footprint.optimizer_buffers import tensor_sizes
from napkin.footprint.peaks import StageLayers
from napkin.footprint.prepared import prepare
from napkin.footprint.stages import stage_of
from napkin.footprint.through_passes import References
from napkin.operations.attention.eager import batched
from napkin.operations.lowering import Lowering
from napkin.operations.maps import DynamicMask
from napkin.operations.pointwise import Scale
from napkin.operations.rotary_tables import by_halves
from napkin.operations.scopes import ScopeNames, Scopes
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup
from tests.conftest import model_of

TABLE, ROWS = 1000, 10


def lookups(names: tuple[str, ...]) -> Tape:
    """Lookups of `ROWS` bytes in tables of `TABLE` bytes, added up."""
    tape = Tape("fp32")
    made = None
    for name in names:
        ids = tape.new(1, "int64", "ids", no_grad=True)
        row = tape.record("embedding", (ids,), tape.new(ROWS, "fp32", "row"), (ids,), weight=TABLE)
        tape.nodes[-1].of = name
        made = row if made is None else tape.add(made, row)
    return tape


def test_gradients_of_a_table_that_is_read_twice_are_summed() -> None:
    """Two tables' gradients: both live. One table's: both and their sum, and then the sum."""
    ids = 8
    apart, _ = replays(lookups(("x", "y")).nodes, 0)
    twice, freed = replays(lookups(("x", "x")).nodes, 0)
    assert (apart.peak, apart.end) == (2 * TABLE - ids, 2 * TABLE - 2 * ids)
    assert (twice.peak, twice.end) == (3 * TABLE - 2 * ids, TABLE - 2 * ids)
    assert (freed.peak, freed.end) == (3 * TABLE - 2 * ids, -2 * ids)


def test_a_sum_waits_for_the_other_table() -> None:
    """x, y, x, y: the second reader of x waits while y's are added up, and the other way round."""
    found, _ = replays(lookups(("x", "y", "x", "y")).nodes, 0)
    # backward: y, x, y and its sum (4 tables), then x next to both sums (4)
    assert found.peak == 4 * TABLE - 3 * 8
    assert found.end == 2 * TABLE - 4 * 8


def test_a_recomputed_pass_holds_what_is_read_after_the_last_saved_tensor() -> None:
    tape = Tape("fp32")
    x = tape.given(ROWS, "fp32", "given")
    summand = tape.shift(x)
    saved = tape.tanh(x)
    tape.add(summand, saved)
    size = 4 * ROWS
    assert forward_peaks(tape.nodes, ()) == (3 * size, 3 * size, 2 * size)


def test_weights_that_the_loss_does_not_reach_have_neither_gradients_nor_states() -> None:
    """LayoutLM's masked head leaves the pooler of h·(h + 1) parameters unread."""
    h = 32
    fields = {"model_type": "layoutlm", "hidden_size": h, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = model_of({**fields, "intermediate_size": 72, "vocab_size": 97, "max_position_embeddings": 33})
    setup = Setup(
        implementation_of("hf", "layoutlm"), Layout(seq=33), POLICIES["fp32"], find("adamw")[0], "foreach", "flash"
    )
    step = prepare(model, setup)
    rank = memory.rank_of(step, 0)
    trained = int(params(model)["params/total"].value) - h * (h + 1)
    assert rank.gradients == 4 * trained
    assert rank.optimizer == 8 * trained + 4 * 46  # and a counter for each trained tensor
    pooler = [shape for _, shape, _ in tensor_sizes(step) if shape == (h, h)]
    assert len(pooler) == 2 * 4 + 1  # attention of two layers, the head's dense layer; not the pooler


def test_layers_that_share_a_matrix_add_to_one_gradient() -> None:
    """The last layer leaves its gradient; one before makes its own and the sum next to that, and leaves one."""
    tape = Tape("fp32")
    x = tape.given(8, "fp32", "given")
    tape.linear(x, 8, 8)
    (node,) = tape.nodes
    node.of, node.elsewhere = "shared", True
    matrix, row = 8 * 8 * 4, 8 * 4
    last, last_freed = replays(tape.nodes, row)
    assert (last.peak, last.end) == (matrix + row, matrix - row)
    assert last_freed == last  # it waits for the layers before
    earlier, _ = replays(tape.nodes, row, carried=True)
    assert (earlier.peak, earlier.end) == (3 * matrix - row, matrix - row)


def test_a_difference_passes_its_gradient_on_and_negates_a_copy_of_it() -> None:
    """x − y, whose gradient g came: the copy for y next to g, which is x's. x + y: g is that of both."""
    for operation, copies in (("subtract", 1), ("add", 0)):
        tape = Tape("fp32")
        x, y = (tape.given(ROWS, "fp32", name) for name in "xy")
        getattr(tape, operation)(x, y)
        found, _ = replays(tape.nodes, 4 * ROWS)
        assert (found.peak, found.end) == (copies * 4 * ROWS, copies * 4 * ROWS)


def test_rotating_the_halves_of_each_head_holds_one_half_at_a_time() -> None:
    """a·cos − b·sin stays while both products of the other half and their sum are there: four halves, not the three
    whole tensors of x·cos + rotate_half(x)·sin."""
    tape = Tape("fp32")
    cos, sin = (tape.given(5, "fp32", name, no_grad=True) for name in ("cos", "sin"))
    cos.storage.shared = sin.storage.shared = True
    by_halves(tape, tape.given(ROWS, "fp32", "x"), cos, sin)
    assert forward_peaks(tape.nodes, ())[1] == 2 * 4 * ROWS


def test_what_autocast_casts_for_a_product_lives_until_the_product_is_there() -> None:
    """matmul's arguments are the casts, next to the copy that folds the transposed one's batch and heads."""
    tape = Tape("fp32", "bf16")
    run = SimpleNamespace(tape=tape, b=2, implementation=SimpleNamespace(packed=False))
    q, k = (tape.given(ROWS, "fp32", name) for name in "qk")
    batched(cast(Lowering, run), q.view(rows_apart=True), k, 2, 4, "scores")
    casts, copy, scores = 2 * 2 * ROWS, 2 * ROWS, 2 * 4
    assert forward_peaks(tape.nodes, tape.holds)[1] == casts + copy + scores


def test_a_norm_that_both_branches_read_lives_until_both_are_added() -> None:
    """A variable of the layer refers to it past its last reader; what attention alone reads goes with attention."""
    for forked, last in ((frozenset({"norm"}), 4), (frozenset[str](), 1)):
        tape = Tape("fp32")
        x = tape.given(ROWS, "fp32", "x")
        none, additions = frozenset[str](), frozenset({"branches", "residual"})
        partial, norms, ends = (frozenset({name}) for name in ("branches", "norm", "o"))
        names = ScopeNames(none, none, additions, partial, norms, forked, ends, none)
        scopes = Scopes(tape, names, True, "layer", ())
        normed = tape.shift(x)
        scopes.leave("norm", normed)
        attended = tape.scale(normed)
        scopes.leave("o", attended)
        fed = tape.scale(normed)
        scopes.enter("branches", (x, attended))
        both = tape.add(x, attended)
        scopes.leave("branches", both)
        scopes.enter("residual", (both, fed))
        scopes.leave("residual", tape.add(both, fed))
        assert max(number for number, tensor in tape.holds if tensor is normed) == last


def sizes_in_order(fields: dict[str, object]) -> list[tuple[int, ...]]:
    """Shapes of the trained tensors of a layer, in the order in which the class registers them."""
    setup = Setup(
        implementation_of("hf", str(fields["model_type"])),
        Layout(seq=8),
        POLICIES["fp32"],
        find("adamw")[0],
        "forloop",
        "eager",
    )
    return [shape for _, shape, _ in tensor_sizes(prepare(model_of(dict(fields)), setup))]


def test_tensors_are_in_the_order_in_which_the_class_registers_them() -> None:
    """A for-loop optimizer still holds the buffers of the tensor before: Phi3Attention registers o_proj before
    qkv_proj, GptOssExperts each bias behind its matrix."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    phi = {"model_type": "phi3", **sizes, "intermediate_size": 24, "vocab_size": 11}
    assert sizes_in_order(phi)[1:5] == [(16, 16), (48, 16), (48, 16), (16, 24)]
    oss = {"model_type": "gpt_oss", **sizes, "head_dim": 8, "intermediate_size": 24, "vocab_size": 11}
    experts = [shape for shape in sizes_in_order({**oss, "num_local_experts": 4}) if shape[0] == 4 and shape != (4,)]
    assert experts[-4:] == [(4, 48, 16), (4, 48), (4, 16, 24), (4, 16)]
    moe = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 8, "q_lora_rank": 8}
    moe |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 0}
    groups = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "intermediate_size": 40, "vocab_size": 11}
    found = sizes_in_order({"model_type": "deepseek_v3", **sizes, **moe, **groups})
    behind = found.index((4, 48, 16))  # o_proj, experts, router
    assert found[behind - 1 : behind + 3] == [(16, 16), (4, 48, 16), (4, 16, 24), (4, 16)]


def held_by_forward(fields: dict[str, object], batch: int, length: int) -> list[int]:
    """Bytes of the tensors that layers share, in fp32, without dropout."""
    setup = Setup(
        implementation_of("hf", str(fields["model_type"])),
        Layout(seq=length, micro=batch),
        POLICIES["fp32"],
        find("adamw")[0],
        "foreach",
        "eager",
        0.0,
    )
    return sorted(int(storage.size) for storage in prepare(model_of(dict(fields)), setup).run.shared_tensors)


def test_what_the_layers_share_lives_until_the_last_has_run() -> None:
    """MPNetEncoder copies its position bias for each sequence; XLNetModel has a table of 2s distances, or of s + 1 and
    two masks of s × s, if it is causal."""
    batch, s, h, heads = 3, 24, 32, 4
    sizes = {"num_hidden_layers": 2, "intermediate_size": 72, "vocab_size": 97, "max_position_embeddings": 40}
    mpnet = {"model_type": "mpnet", "hidden_size": h, "num_attention_heads": heads, **sizes}
    assert held_by_forward(mpnet, batch, s) == [4 * batch * heads * s * s]
    xlnet = {"model_type": "xlnet", "d_model": h, "n_layer": 2, "n_head": heads, "d_inner": 72, "vocab_size": 97}
    assert held_by_forward({**xlnet, "attn_type": "bi"}, batch, s) == [4 * 2 * s * h]
    assert held_by_forward({**xlnet, "attn_type": "uni"}, batch, s) == [4 * (s + 1) * h, 4 * 2 * s * s]


def references(fields: dict[str, object], policy: str, kernel: str, sequences: int, recompute: Recompute) -> References:
    layout = Layout(seq=24, micro=sequences, recompute=recompute)
    code = implementation_of("hf", str(fields["model_type"]))
    setup = Setup(code, layout, POLICIES[policy], find("adamw")[0], "foreach", kernel)
    step = prepare(model_of(dict(fields)), setup)
    return References(step, stage_of(step, 0))


def test_the_forward_function_holds_sines_if_a_variable_refers_to_them() -> None:
    """CTRLModel has one row of them and M2M100Decoder one for each sequence; XGLMModel adds them where they are made.
    All have the scaled tokens in a variable."""
    batch, s, h = 3, 24, 32
    sizes = {"vocab_size": 97, "max_position_embeddings": 40}
    ctrl = {"model_type": "ctrl", "n_embd": h, "n_layer": 2, "n_head": 4, "dff": 72, **sizes}
    xglm = {"model_type": "xglm", "d_model": h, "num_layers": 2, "attention_heads": 4, "ffn_dim": 72, **sizes}
    m2m = {"model_type": "m2m_100", "d_model": h, "decoder_layers": 2, "encoder_layers": 2, **sizes}
    m2m |= {
        f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("attention_heads", 4), ("ffn_dim", 72))
    }
    for fields, rows in ((ctrl, batch + 1), (m2m, 2 * batch), (xglm, batch)):
        code = implementation_of("hf", str(fields["model_type"]))
        layout = Layout(seq=s, micro=batch)
        setup = Setup(code, layout, POLICIES["fp32"], find("adamw")[0], "foreach", "eager", 0.0)
        assert prepare(model_of(dict(fields)), setup).run.embedded == 4 * rows * s * h


T5 = {"model_type": "t5", "d_model": 32, "num_heads": 4, "d_kv": 8, "d_ff": 72, "vocab_size": 97, "num_layers": 2}


def test_zeros_in_place_of_position_biases_are_a_leaf_that_a_later_layer_holds() -> None:
    """T5Attention makes them require a gradient under recomputation. Checkpoints of later layers keep them, and so does
    the graph of a layer that is not checkpointed; the first layer makes its own again."""
    pairs, full = 4 * 24 * 24, Recompute("full")
    for layers, zeros in ((1, 0), (3, 4 * pairs)):
        held = references({**T5, "num_decoder_layers": layers}, "fp32", "flash", 2, full)
        assert (held.zeros, held.unsaved_leaf) == (zeros, 0)
    eager = references({**T5, "num_decoder_layers": 2}, "fp32", "eager", 2, Recompute("every", 2))
    assert (eager.zeros, eager.unsaved_leaf) == (4 * pairs, 4 * pairs)
    without = references({**T5, "num_decoder_layers": 2}, "fp32", "eager", 2, Recompute("none"))
    assert (without.zeros, without.in_decoder) == (0, 4 * pairs)


def test_an_encoders_output_is_held_until_the_loss_if_only_casts_of_it_are_saved() -> None:
    """Keys and values save bf16 copies under autocast, and the output itself otherwise."""
    output = 4 * 2 * 24 * 32
    bart = {"model_type": "m2m_100", "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 97}
    bart |= {"encoder_ffn_dim": 72, "decoder_ffn_dim": 72, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    for policy, recompute, held in (("amp-bf16", "none", output), ("fp32", "none", 0), ("amp-bf16", "full", 0)):
        found = references(bart, policy, "flash", 2, Recompute(recompute))
        assert (found.at_loss, found.in_decoder) == (held, held)


def test_mt5_does_not_scale_what_a_tied_head_reads() -> None:
    """T5ForConditionalGeneration does; MT5ForConditionalGeneration has no such line."""
    for model_type, scales in (("t5", True), ("mt5", False)):
        model = model_of({**T5, "model_type": model_type, "tie_word_embeddings": True})
        assert any(isinstance(op, Scale) for op in model.stacks[-1].after) is scales


def test_a_mask_of_chosen_keys_lives_next_to_what_chooses_them() -> None:
    """DogeAttention, b = 2, one head, s = 8, of which 3 are kept: 64 pairs of a sequence. At the second filling: the
    mask before and after, a one for each chosen pair, their places (int64), and the additive causal mask; and what is
    saved: both conditions, and three tensors of one value for each key."""
    b, s, keep = 2, 8, 3
    for kernel, longer in (("flash", True), ("eager", True), ("flash", False)):
        tape = Tape("fp32")
        run = SimpleNamespace(
            tape=tape, b=b, s=s, own=s, attention=kernel, split=SimpleNamespace(tensor=1),
            weight=lambda count, tape=tape: tape.given(count, "fp32", "weight", kind="weight"),
        )  # fmt: skip
        logits = tape.given(b * s, "fp32", "logits")
        run.read = lambda op, logits=logits: SimpleNamespace(tensor=logits)
        DynamicMask("mask", ("x",), 1, keep if longer else s, 1).lower(cast(Lowering, run))
        pairs = b * s * s
        additive = 4 * pairs * (kernel == "flash")
        saved = pairs + 3 * 4 * b * s  # a condition; what softplus reads and makes; what exp makes
        second = 3 * 4 * pairs + 8 * b * s * keep + pairs if longer else 2 * 4 * pairs
        assert forward_peaks(tape.nodes, tape.holds)[0] == saved + second + additive * longer


def test_a_layer_adds_to_the_gradient_of_a_shared_tensor_where_a_later_layer_made_it() -> None:
    """T5's layers read the first one's position bias of heads · s² scores, its decoder's layers the encoder's output
    too. The last reader makes their gradients; those before it add to them."""
    batch, s, h, heads = 2, 24, 32, 4
    setup = Setup(
        implementation_of("hf", "t5"),
        Layout(seq=s, micro=batch),
        POLICIES["fp32"],
        find("adamw")[0],
        "foreach",
        "eager",
    )
    step = prepare(model_of({**T5, "num_decoder_layers": 3}), setup)
    layers = StageLayers(step, stage_of(step, 0), grad=4)
    first, other, _, *decoder = range(len(layers.order.variants))  # the encoder's end reads neither
    bias, encoded = 4 * heads * s * s, 4 * batch * s * h

    def carried(variant: int, *done: int) -> float:
        return float(layers.carried(variant, tuple(done.count(one) for one in range(len(layers.order.variants)))))

    assert carried(decoder[-1]) == 0
    assert carried(decoder[-1], decoder[-1]) == carried(decoder[0], *decoder) == bias + encoded
    assert carried(other, *decoder) == 0, "the encoder has a position bias of its own"
    assert carried(first, *decoder, other) == bias


MPNET = {
    "model_type": "mpnet", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 72,
    "vocab_size": 97, "max_position_embeddings": 40,
}  # fmt: skip


def stage_layers(pp: int, stage: int) -> StageLayers:
    """Layers that share a position bias, in fp32 with eager attention, on a stage of a pipeline."""
    layout = Layout(seq=24, micro=3, pp=pp, micro_batches=pp)
    setup = Setup(implementation_of("hf", "mpnet"), layout, POLICIES["fp32"], find("adamw")[0], "foreach", "eager")
    step = prepare(model_of(dict(MPNET)), setup)
    return StageLayers(step, stage_of(step, stage), grad=4)


def test_the_sum_of_a_shared_gradient_is_next_to_what_a_layer_makes_of_it() -> None:
    """The last of three layers makes the bias's gradient of batch · heads · s² scores; one before it makes its own and
    the sum, next to which the gradient of the layers after it stays."""
    layers = stage_layers(1, 0)
    alone, added = layers.needed(0, (3,), 0, (0,)), layers.needed(0, (2,), 0, (1,))
    assert added - alone == 4 * 3 * 4 * 24 * 24


def test_a_peak_is_at_a_layer_of_the_stage() -> None:
    """A layer of each of three stages: the one before it, which adds to the same gradient, is on another."""
    for stage in range(3):
        assert [upto for valid, _, upto, *_ in stage_layers(3, stage).corners() if valid] == [(stage + 1,)]
