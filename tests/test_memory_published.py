"""Published memory: definitions by hand, facts of frameworks, and how far off the model may be."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from napkin._tables import memory_errors
from napkin.architectures import implementation_of
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.prose.memory import of_memory
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.rows import facts, setups
from napkin.evidence.rows.models import depth_from, described
from napkin.evidence.rows.row import RowFields
from napkin.evidence.validation import memory_check
from napkin.evidence.validation.compared import Compared
from napkin.footprint import memory
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Moment
from napkin.footprint.stages import shares, shares_by_cost
from napkin.formats import QUANTIZED
from napkin.inputs.load import Document
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training import optimizers
from napkin.training.framework import COST, EVEN, FRONT, SLOTS
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES
from napkin.training.recomputation import OPERATIONS, Recompute
from napkin.training.setup import Setup

LLAMA = {"name": "a", "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 2, "ffn": 1408, "vocab": 4096}


def row(**parts: Any) -> RowFields:
    fields = {
        "id": "one",
        "source": {"title": "somebody's page"},
        "hardware": {"chip": "A100 SXM 80GB", "count": 1},
        "model": {**LLAMA, "gated": True, "tied": False, "seq": 256},
        "memory": {"what": "allocated", "bytes": 10**9},
    } | parts
    return recognized(RowFields(Document("rows.yaml", None), 0, fields), of_memory)


def prepared(
    implementation: str, tuning: Tuning | None = None, seq: int = 256, micro: int = 2, **layout: Any
) -> PreparedStep:
    model = described(row())
    setup = Setup(
        replace(implementation_of(implementation, "llama"), tuning=tuning),
        Layout(seq=seq, micro=micro, **layout),
        POLICIES["bf16-pure"],
        optimizers.OPTIMIZERS["adamw"],
        "fused",
    )
    return prepare(model, setup)


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    return [memory_check.compared(one) for one in facts.memory()]


# --- definitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "h", "a", "p", "v", "b", "selective"),
    [
        (48, 6144, 64, 1, 1, 4, False),
        (96, 12288, 96, 8, 3, 1, False),
        (96, 12288, 96, 8, 3, 1, True),
        (105, 20480, 128, 35, 3, 1, True),
        (128, 25600, 160, 64, 1, 1, False),
    ],
)
def test_the_bars_of_korthikanti_s_first_figure(
    layers: int, h: int, a: int, p: int, v: int, b: int, selective: bool
) -> None:
    """18 bytes × 12Lh²/(t·p), and sbh(10 + 24/t + 5as/(ht)) a layer, sbh·34/t with sequence parallelism and selective
    recomputation; the first stage keeps L layers' worth, interleaved 1 + (p − 1)/(p·v) times that."""
    s, t = 2048, 8
    each = s * b * h * (34 / t if selective else 10 + 24 / t + 5 * a * s / (h * t))
    flight = 1 + (p - 1) / (p * v) if v > 1 else 1
    by_hand = 18 * 12 * layers * h * h / (t * p) + layers * each * flight
    found = memory_check.compared(
        row(
            source={"title": "Korthikanti et al. 2022, Reducing activation recomputation"},
            hardware={"chip": "A100 SXM 80GB", "count": t * p},
            model={"name": "GPT", "layers": layers, "hidden": h, "heads": a, "vocab": 51200, "seq": s, "gated": False},
            layout={
                "tp": t,
                "pp": p,
                "vp": v,
                "micro_batch": b,
                "recompute": "selective" if selective else "none",
                "recompute_kind": "selective" if selective else "none",
                "sp": selective,
                "policy": "fp16-mixed",
            },
            memory={"kind": "analytic bars of the figure (first pipeline stage)", "bytes": int(by_hand)},
        )
    )
    assert found.predicted == pytest.approx(by_hand, rel=1e-3)


def test_what_lora_keeps_of_a_frozen_block_in_litgpt() -> None:
    """27Th + 6Tf and what is small, by hand, where q, k and v are as wide as the stream: norms' fp32 inputs 8Th and 8T,
    the joined product 6Th, rotated query and key 4Th, the result 2Th with 4Ta and 24, LoRA's dropped input 3Th, what
    stands between its matrices 2·T·2r, its padded outputs 4Th; gate, its SiLU and up 6Tf."""
    model = {**LLAMA, "kv_heads": 8, "gated": True, "tied": False, "seq": 256}
    tuning = Tuning("lora", 8, 0.05, ("q", "v"))
    setup = Setup(
        replace(implementation_of("litgpt", "llama"), tuning=tuning),
        Layout(seq=256, micro=2),
        POLICIES["bf16-pure"],
        optimizers.OPTIMIZERS["adamw"],
        "fused",
        dropout=0.0,
    )
    step = prepare(described(row(model=model)), setup)
    tokens, h, f, a, r = 512, 512, 1408, 8, 8
    by_hand = 27 * tokens * h + 6 * tokens * f + 8 * tokens + 4 * tokens * a + 24 + 2 * tokens * 2 * r
    first, other = (section.saved for _, section in step.run.layers)
    assert other == by_hand
    assert first == by_hand - 5 * tokens * h - 4 * tokens  # the first norm's input, which no gradient reaches


def litgpt_block(tuning: Tuning) -> Number:
    """Return the bytes that a later block of LLAMA saves in LitGPT, 2 sequences of 256 tokens in bf16."""
    model = {**LLAMA, "kv_heads": 8, "gated": True, "tied": False, "seq": 256}
    setup = Setup(
        replace(implementation_of("litgpt", "llama"), tuning=tuning),
        Layout(seq=256, micro=2),
        POLICIES["bf16-pure"],
        optimizers.OPTIMIZERS["adamw"],
        "fused",
        dropout=0.0,
    )
    return prepare(described(row(model=model)), setup).run.layers[1][1].saved


def test_litgpt_pads_what_some_parts_of_the_fused_projection_make_only() -> None:
    """With adapters on all linear layers nothing is padded (4Th less); o, gate and up drop their inputs too (3Th each),
    down drops its own (3Tf), and r elements stand between each pair's matrices, 2 bytes each: k, o, gate, up, down."""
    tokens, h, f, r = 512, 512, 1408, 8
    some = litgpt_block(Tuning("lora", r, 0.05, ("q", "v")))
    everywhere = litgpt_block(Tuning("lora", r, 0.05, ("q", "k", "v", "o", "gate", "up", "down")))
    assert everywhere - some == 9 * tokens * h + 3 * tokens * f - 4 * tokens * h + 2 * tokens * 5 * r


def test_old_bitsandbytes_keeps_inputs_of_this_micro_batch_and_of_the_last() -> None:
    """Of the fused projection, o (a copy of what attention saves), gate with up, and down: 2 bytes an element, twice
    after the first micro-batch."""
    tokens, h, f = 512, 512, 1408
    plain = Tuning("lora", 8, 0.05, ("q", "v"))
    first = replace(plain, quantized="nf4", first=True)
    inputs = 2 * tokens * (h + h + h + f)
    assert litgpt_block(first) - litgpt_block(plain) == inputs
    assert litgpt_block(replace(first, first=False)) - litgpt_block(first) == inputs
    newer = replace(first, library="transformers", first=False)
    assert litgpt_block(newer) == litgpt_block(plain)


def test_a_frozen_network_stores_its_products_in_four_bits() -> None:
    """0.5 byte and an fp32 scale for 64 weights; the table and the norms stay as they are."""
    assert QUANTIZED["nf4"] == 0.5625
    step = prepared("litgpt", Tuning("lora", 8, 0.0, ("q", "v"), "nf4"))
    h, f, vocab, layers, kv = 512, 1408, 4096, 4, 128
    products = layers * (2 * h * h + 2 * h * kv + 3 * h * f) + vocab * h
    others = vocab * h + (2 * layers + 1) * h
    trained = layers * 8 * ((h + h) + (h + kv))
    rank = memory.rank_of(step, 0)
    assert rank.weights.all == trained
    assert rank.parameters == products * 0.5625 + 2 * others + 2 * trained


def test_recomputation_by_operations_keeps_every_second_product() -> None:
    """wq, wv, w1 and w2 of the seven, attention's result with its log-sum-exp, and the block's input."""
    step = prepared("torchtitan", recompute=Recompute(OPERATIONS))
    tokens, h, f, w, a, layers = 512, 512, 1408, 128, 8, 4
    chosen = 2 * tokens * (h + w + f + h) + 2 * tokens * h + 4 * tokens * a + 24
    assert step.run.layers[0][1].chosen == chosen
    rank = memory.rank_of(step, 0)
    assert rank.saved == layers * (chosen + 2 * tokens * h) + step.run.before.saved + step.run.after.saved


def test_a_compiled_block_keeps_no_output_that_nothing_needs() -> None:
    """w2's, which is only added to the stream. What wq, wv and w1 made is needed by attention and by the gate's kernel;
    the pieces that torch.compile fuses keep nothing that the policy does not save."""
    eager = prepared("torchtitan", recompute=Recompute(OPERATIONS))
    code = replace(eager.setup.implementation, prunes=True)
    compiled = prepare(eager.model, replace(eager.setup, implementation=code))
    tokens, h = 512, 512
    assert eager.run.layers[0][1].chosen - compiled.run.layers[0][1].chosen == 2 * tokens * h
    assert FRAMEWORKS["torchtitan"].implements(eager.setup.implementation, compiled=True, divided=False).prunes


@pytest.mark.parametrize(
    ("depth", "stages", "partition", "costs", "wanted"),
    [
        (78, 12, FRONT, None, [7] * 11 + [1]),
        (70, 12, SLOTS, None, [5] + [6] * 10 + [5]),
        (16, 2, COST, (67_108_864, 268_435_456), [11, 5]),
        (32, 4, COST, (243_269_632, 536_870_912), [9, 9, 8, 6]),
        (10, 4, EVEN, None, [3, 3, 2, 2]),
    ],
)
def test_layers_are_dealt_as_the_framework_deals_them(
    depth: int, stages: int, partition: str, costs: tuple[int, int] | None, wanted: list[int]
) -> None:
    ends = [
        shares_by_cost(depth, stages, index, *costs) if costs else shares(depth, stages, index, partition)
        for index in range(stages)
    ]
    assert [high - low for low, high in ends] == wanted
    assert all(ends[i][1] == ends[i + 1][0] for i in range(stages - 1))


def test_a_depth_that_nobody_states_follows_from_the_size() -> None:
    """183B of width 14400 with 250,000 words on 12 stages: (183e9 − 3.6e9)/(12·14400²) = 72.1, the multiple is 72."""
    model = {"name": "BLOOM sweep 183B", "hidden": 14400, "ffn": 57600, "vocab": 250000, "tied": True, "gated": False}
    assert depth_from(row(model=model), 12) == 72


def test_gradients_added_up_in_fp32_take_four_bytes_more_for_each_weight() -> None:
    plain = prepared("nanotron")
    setup = replace(plain.setup, framework=FRAMEWORKS["nanotron"])
    more = memory.rank_of(replace(plain, setup=setup), 0)
    less = memory.rank_of(plain, 0)
    assert more.gradients - less.gradients == 4 * less.weights.all


def test_a_head_that_runs_in_parts_makes_its_weight_s_gradient_twice() -> None:
    """torchtune's chunked loss: eight products of one weight, so while the second runs backwards its own gradient of
    the weight (2Vh) stands beside the sum (2Vh); 7/8 of the logits' gradient (2TV), and of the hidden state's (2Th)."""
    tokens, h, vocab = 512, 512, 32768
    model = described(row(model={**LLAMA, "vocab": vocab, "gated": True, "tied": False, "seq": 256}))
    setup = prepared("torchtune").setup
    setup = replace(setup, implementation=replace(setup.implementation, loss="chunked"))
    start = 2 * tokens * vocab  # the logits, which are kept
    at_once = 2 * 2 * vocab * h + 2 * 7 / 8 * tokens * vocab + 2 * tokens * h
    assert prepare(model, setup).after.peak == at_once - start
    frozen = replace(setup, implementation=replace(setup.implementation, tuning=Tuning("lora", 8, 0.0, ("q", "v"))))
    assert prepare(model, frozen).after.peak == 2 * tokens * vocab / 8, "one part's gradient, no weight's"


def test_a_loss_that_keeps_the_logits_themselves_holds_them_once() -> None:
    """In the forward pass of the head: its input, and 2TV of logits, which are what a chunked loss keeps."""
    tokens, h, vocab = 512, 512, 32768
    model = described(row(model={**LLAMA, "vocab": vocab, "gated": True, "tied": False, "seq": 256}))
    setup = prepared("torchtune").setup
    step = prepare(model, replace(setup, implementation=replace(setup.implementation, loss="chunked")))
    assert 2 * tokens * vocab < step.run.after.burst < 2 * tokens * vocab + 10 * tokens * h


def test_a_step_in_backward_frees_each_gradient() -> None:
    """Not one weight's gradient outlives its own product, but for a tied table's: its step waits for both parts."""

    def at(tied: bool, in_backward: bool) -> dict[str, Moment]:
        model = described(row(model={**LLAMA, "gated": True, "tied": tied, "seq": 256}))
        step = prepared("torchtune")
        setup = replace(step.setup, in_backward=in_backward)
        return {one.name: one for one in memory.rank_of(prepare(model, setup), 0).moments}

    assert at(False, True)["loss"].gradients == 0
    assert at(False, True)["backward"].gradients == 0
    assert at(True, True)["backward"].gradients == 2 * 4096 * 512
    assert at(False, True)["backward"].live < at(False, False)["backward"].live


def test_a_row_says_what_is_dropped_and_of_when_its_code_is() -> None:
    """Dropout is that of the row, and `versions` dates the framework's code."""
    layout = {
        "tp": 1,
        "dp": 1,
        "micro_batch": 1,
        "attention": "unfused",
        "framework": "torchtitan",
        "recompute": "none",
    }
    model = described(row())

    def read(**more: Any) -> Setup:
        return setups.setup_of(row(layout={**layout, **more}), model, FRAMEWORKS["megatron-core"])

    assert (read().dropout, read(dropout=0.1).dropout, read(dropout=0).dropout) == (0.0, 0.1, 0.0)
    assert read(etp=1).layout == read().layout
    dated = [of_memory(row(layout={**layout, "versions": one}))["layout"] for one in ("March 2025", "torch 2.6", "")]
    assert [one.get("framework_version") for one in dated] == [202503, None, None]


def test_a_row_without_a_month_may_run_a_framework_s_first_code_or_today_s() -> None:
    """Megatron-core kept no placeholders of gradients before TransformerEngine 2.3 of April 2025: a row that says no
    month is in the middle, and its interval has both; the fusion that makes them may be off."""
    layout = {"framework": "megatron-core", "tp": 1, "dp": 8, "micro_batch": 1, "recompute": "none"}
    hardware = {"chip": "A100 SXM 80GB", "count": 8}

    def read(**more: Any) -> Compared:
        return memory_check.compared(row(hardware=hardware, layout={**layout, **more}))

    old, new, open_ = (read(version=one) for one in ("March 2025", "2025-05", ""))
    off = read(version="2025-05", gradient_accumulation_fusion=False)
    assert old.predicted is not None
    assert new.predicted is not None
    assert off.predicted is not None
    assert old.predicted == off.predicted < new.predicted
    assert open_.predicted == pytest.approx(math.sqrt(old.predicted * new.predicted), rel=1e-6)
    assert (open_.low, open_.high) == (old.low, new.high)


def test_five_block_inputs_are_on_their_way_to_the_host() -> None:
    """torchtune's OffloadActivations keeps the last five tensors until their copies are done."""
    deep = described(row(model={**LLAMA, "layers": 12, "gated": True, "tied": False, "seq": 256}))
    setup = replace(prepared("torchtune", recompute=Recompute("full")).setup, offload=("activations",))
    step = prepare(deep, setup)
    assert memory.rank_of(step, 0).saved == 5 * 2 * 512 * 512 + step.run.before.saved + step.run.after.saved


def test_a_bucket_is_of_the_type_that_gradients_are_added_up_in() -> None:
    """DeepSpeed's buckets of 5e8 elements: 1 GB of 16-bit gradients, 2 GB of fp32 ones."""
    setup = replace(prepared("megatron").setup, framework=FRAMEWORKS["megatron-deepspeed"])
    assert setup.bucket(4096) == 10**9
    assert replace(setup, framework=replace(setup.framework, accumulator=4)).bucket(4096) == 2 * 10**9


# --- what is not modeled is said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ({"micro_batch": 1, "method": "lora", "quantization": "int3"}, "stores frozen weights as int3"),
        ({"micro_batch": 1, "method": "prefix"}, "trains by prefix"),
        ({"micro_batch": 1, "recompute": "every odd one", "recompute_kind": "other"}, "recomputes single operations"),
        ({"micro_batch": 1, "optimizer": "rowclip"}, "unknown optimizer"),
        ({"micro_batch": 1, "cpu_offload": True}, "offload"),
        ({"micro_batch": 1, "tp": 3, "dp": None}, "tp · pp · cp = 3 does not divide the 1 accelerators"),
        ({"micro_batch": 1, "tp": 4, "dp": 4}, "tp · pp · cp = 4 does not divide the 1 accelerators"),
        ({"micro_batch": 1, "tp": 1, "dp": 4}, "1 accelerators and tp·pp·cp·dp = 4: a contradiction"),
        ({"micro_batch": 1, "lora_rank": 8}, "not that it trains by LoRA"),
        ({"micro_batch": 1, "liger_kernels": True}, "layout.liger_kernels: not modeled"),
        ({"micro_batch": 1, "flash_attention": False}, "layout.flash_attention: not modeled"),
        ({"micro_batch": 1, "policy": "int4"}, "the policy int4 is not known"),
        ({"micro_batch": 1, "attention": "linear"}, "the attention kernel linear is not known"),
        ({"micro_batch": 1, "schedule": "dualpipe", "pp": 1}, "schedule dualpipe is not modeled"),
        ({"micro_batch": 1, "packed": False}, "how long they are is not stated"),
        ({"micro_batch": 1, "method": "qlora", "lora_targets": ["conv"]}, "LoRA on conv"),
        ({}, "the micro-batch is not stated"),
    ],
)
def test_a_setting_that_is_not_modelled_is_refused(layout: dict[str, Any], why: str) -> None:
    found = memory_check.compared(row(layout={"tp": 1, "dp": 1, **layout}))
    assert found.predicted is None
    assert why in found.why


def test_parameters_in_the_hosts_memory_leave_what_is_gathered_and_kept() -> None:
    """FSDP's CPUOffloadPolicy, by torchtune's name for it: neither parameters nor gradients nor states on the card, but
    for the gradients of the final norm and the head, which wait for the embedding's in 16 bits."""
    layout = {"dp": 8, "zero": 3, "micro_batch": 1, "recompute": "none", "recompute_kind": "none", "framework": "fsdp"}
    eight = {"hardware": {"chip": "A100 SXM 80GB", "count": 8}}
    model = described(row())
    setup, away = (
        setups.setup_of(row(layout={**layout, **more}, **eight), model, FRAMEWORKS["fsdp"])
        for more in ({}, {"fsdp_cpu_offload": True})
    )
    assert away.offload == ("optimizer", "parameters")
    here, there = (memory.rank_of(prepare(model, one), 0) for one in (setup, away))
    assert (there.parameters, there.gradients, there.optimizer) == (0, 0, 0)
    states = here.parameters + here.optimizer
    for before, after in zip(here.moments, there.moments, strict=True):
        root = 2 * (model.vocabulary + 1) * model.hidden * (after.name == "backward")
        assert after.gradients == root
        assert before.live - after.live == states + before.gradients - root
        assert (before.activations, before.temporaries) == (after.activations, after.temporaries)
    assert there.moments[3].live == there.moments[3].inputs + there.moments[3].temporaries
    alone = row(layout={**layout, "dp": 1, "cpu_offload": True})
    assert "offload" in memory_check.compared(alone).why


def test_what_a_row_does_not_say_widens_its_interval() -> None:
    """Recomputation: none and full are both read, and the interval holds both."""

    def found(**layout: Any) -> Compared:
        return memory_check.compared(row(layout={"tp": 1, "dp": 1, "micro_batch": 4, "policy": "bf16-pure", **layout}))

    none, full = (found(recompute=kind, recompute_kind=kind).predicted for kind in ("none", "full"))
    open_ = found()
    assert none is not None
    assert full is not None
    assert full < none
    assert open_.predicted == none, "a run that does not say what it saves saved nothing where its card has the room"
    assert open_.low is not None
    assert open_.high is not None
    assert open_.low < full
    assert open_.high > none


def test_eight_bit_states_and_states_on_the_host_are_counted() -> None:
    def predicted(name: str) -> float:
        layout = {"tp": 1, "dp": 1, "micro_batch": 1, "policy": "bf16-pure", "optimizer": name}
        value = memory_check.compared(row(layout=layout)).predicted
        assert value is not None
        return value

    assert predicted("PagedAdamW8bit") < predicted("AdamW8bit") < predicted("AdamW")


# --- accuracy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "median", "ninth"),
    [
        ("memory_allocated", 0.011, 0.06),
        ("memory_used", 0.035, 0.09),
        ("memory_reserved", 0.0205, 0.095),
        ("memory_unstated", 0.001, 0.002),
    ],
)
def test_errors_on_published_rows_stay_within_their_bounds(
    compared: list[Compared], quantity: str, median: float, ninth: float
) -> None:
    """Of frameworks whose code is known."""
    known = [row for row in facts.memory() if setups.framework_of(row)]
    ids = {row.text("id") for row in known}
    rows = [one for one in compared if one.id in ids and one.quantity == quantity and one.error is not None]
    errors = [abs(one.error or 0.0) for one in rows]
    assert len(errors) >= 6
    assert statistics.median(errors) <= median
    assert nearest_rank(errors, 0.9) <= ninth


def test_torchtitan_s_cache_may_have_segments_that_grow_where_a_row_does_not_say() -> None:
    """Its script turns them on, other means of starting it need not: the interval reaches to the bytes without gaps."""
    stated = next(one for one in facts.memory() if one.text("id") == "ao-pretraining-l3-8b-bf16-mem")
    grown, fixed, unsaid = (
        memory_check.guess(
            RowFields(stated.document, stated.index, {**stated.fields, "layout": {**stated.part("layout"), **flag}}),
            (FRAMEWORKS["torchtitan"],),
        )
        for flag in (
            {"expandable_segments": True},
            {"expandable_segments": False},
            {"expandable_segments": None},
        )
    )
    assert grown.value < 0.9 * fixed.value
    found = unsaid.value, unsaid.low, unsaid.high
    assert found == pytest.approx((fixed.value, grown.value, fixed.value))


def test_one_card_s_allocated_bytes_are_known_to_a_hundredth(compared: list[Compared]) -> None:
    errors = [abs(one.error) for one in compared if one.id.startswith("litgpt") and one.id.endswith("g1") and one.error]
    assert len(errors) >= 20
    assert statistics.median(errors) <= 0.0065  # 0.005 if LitGPT's first layer kept what no gradient reaches
    assert nearest_rank(errors, 0.9) <= 0.018


def test_no_run_that_ran_out_of_memory_is_predicted_to_fit(compared: list[Compared]) -> None:
    verdicts = [one.verdict for one in compared if one.verdict]
    assert len(verdicts) >= 8
    assert "fits" not in verdicts


def test_intervals_cover_nine_tenths(compared: list[Compared]) -> None:
    inside = [one.covered for one in compared if one.error is not None and one.quantity != "memory_unstated"]
    assert 0.86 <= sum(bool(one) for one in inside) / len(inside) <= 0.97


def logarithm_of(one: Compared) -> float:
    """The logarithm of predicted over measured."""
    assert one.error is not None
    return math.log1p(one.error)


def test_the_errors_that_intervals_come_from_are_those_of_the_code(compared: list[Compared]) -> None:
    found = {one.id: one for one in compared}
    for name, *_, error in memory_errors.ERRORS:
        assert logarithm_of(found[name]) == pytest.approx(error, abs=2e-4), f"{name}: run tools/memory_accuracy.py"


def test_whether_a_run_that_ran_fits_is_judged_by_its_accelerator() -> None:
    layout = {"tp": 1, "dp": 1, "micro_batch": 1, "policy": "bf16-pure", "recompute": "full", "recompute_kind": "full"}
    ran = row(layout=layout, memory={"oom": False})
    assert memory_check.compared(ran).verdict == "fits"
    assert memory_check.compared(ran).measured is None
    nowhere = row(layout=layout, memory={"oom": False}, hardware={"count": 1})
    assert memory_check.compared(nowhere).why == "states whether it fit, but not on which accelerator"
    weighed = row(layout=layout, memory={"oom": False, "what": "used", "bytes": 10**10})
    assert (memory_check.compared(weighed).verdict, memory_check.compared(weighed).measured) == ("", 10**10)


def test_what_a_row_leaves_out_of_its_shape_follows_from_its_parameters() -> None:
    """Llama 3 8B's shape under a name that no one knows, without its gate, its MLP's width or its tables."""
    shape = {"name": "b", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "vocab": 128256, "seq": 8192}
    model = described(row(model={**shape, "ffn": 14336, "params": 8030261248}))
    assert not model.tied
    assert described(row(model={**shape, "gated": True, "tied": False, "params": 8030261248})) == model
    with pytest.raises(NapkinError, match=r"makes .* parameters, not the 9,000,000,000"):
        described(row(model={**shape, "ffn": 14336, "gated": True, "tied": False, "params": 9000000000}))
    with pytest.raises(NapkinError, match="is not stated"):
        described(row(model={**shape, "ffn": 14336}))


@pytest.mark.parametrize(
    ("printed", "quantity", "size"),
    [
        ({"gib": 2, "what": "reserved"}, "memory_reserved", 2 * 2**30),
        ({"gb": 2, "what": "used"}, "memory_used", 2e9),
        ({"gb": 2, "kind": "driver", "unit": "GB as printed (GiB likely)"}, "memory_used", 2 * 2**30),
        ({"mib": 3, "kind": "peak active"}, "memory_allocated", 3 * 2**20),
        ({"gb": 2, "kind": "unstated (peak)"}, "memory_unstated", 2e9),
    ],
)
def test_units_and_kinds_of_a_printed_figure(printed: dict[str, Any], quantity: str, size: float) -> None:
    one = row(memory=printed)
    assert (memory_check.quantity_of(one), one.number("memory.bytes")) == (quantity, size)
