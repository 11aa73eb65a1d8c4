"""Published memory against the memory model, row by row: what a row says becomes a setup of its framework."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from napkin.elementwise import ceil_div
from napkin.errors import NapkinError
from napkin.evidence.compared import Compared
from napkin.formulas import allocator, memory, optimizers
from napkin.formulas.families import build
from napkin.formulas.frameworks import ENDS, FIRST, FRAMEWORKS, FRONT, PLAIN, SLOTS, Framework
from napkin.formulas.implementations import Code, Tuning, code_of
from napkin.formulas.layer import Model
from napkin.formulas.memory import Rank, Setup
from napkin.inputs import hardware
from napkin.inputs.load import Document
from napkin.inputs.model import config_from, load_config
from napkin.inputs.plan import OPERATIONS, POLICIES, Layout, Precision, Recompute
from napkin.inputs.presets import is_preset
from napkin.inputs.published import Row, Shape, StepRow, WrongRow, step_row
from napkin.record import record, replace
from napkin.term import TRUE, leaf

WORDS: tuple[tuple[str, str], ...] = (
    ("korthikanti", "megatron"),
    ("bigscience", "megatron-deepspeed"),
    ("bloom", "megatron-deepspeed"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron bridge", "megatron-core"),
    ("nemo", "megatron-core"),
    ("megatron", "megatron-core"),
    ("nanotron", "nanotron"),
    ("torchtitan", "torchtitan"),
    ("torchtune", "torchtune"),
    ("litgpt", "litgpt"),
    ("lit-gpt", "litgpt"),
    ("lightning", "litgpt"),
    ("deepspeed", "deepspeed"),
    ("fsdp", "fsdp"),
    ("foundry", "fsdp"),
)
"""Words of a source's title or place, and the framework that they name; the first that occurs holds."""
STACKS = {"fsdp-eager": "fsdp", "fsdp-compiled": "torchtitan", "lean": "plain"}
"""Names of `layout.stack` that stand for a framework called otherwise."""

COMPILED_LOSS_SINCE = 202501
"""torchtitan compiles the loss with the model from January 2025 on (torchtitan/components/loss.py)."""
TYPICAL = 0.5
"""A typical sample of an instruction set over the longest: where the peak is not in the first step, which takes the
longest sample (LitGPT finetune/lora.py), this share of it. 0.3 to 0.7."""
LITGPT_BATCH = 128
"""LitGPT finetune/*.py: sequences of one optimizer step."""
OFFLOADS = ("activation_offload", "optimizer_offload")
MANY = 4
"""Micro-batches for each stage of a pipeline whose batch is not stated: enough to fill it under every schedule."""
STATE_BYTES = 18
"""Bytes a parameter of Korthikanti et al. 2022, figure 1: fp16 weights, fp32 gradients, master copy and moments."""


# --- the model -------------------------------------------------------------------------------------------------------


def config_of(dims: Shape, seq: int) -> Mapping[str, Any]:
    """The published shape as the config.json of the kin that has its pieces: Llama's, GPT-2's or Mixtral's."""
    if dims.kv_rank or dims.window:
        raise NapkinError("its attention (latent or windowed) is not among the shapes that a table describes fully")
    if not dims.gated:
        return {
            "model_type": "gpt2",
            "n_embd": dims.hidden,
            "n_layer": dims.layers,
            "n_head": dims.heads,
            "n_inner": dims.ffn,
            "vocab_size": dims.vocab,
            "n_positions": seq,
            "tie_word_embeddings": dims.tied,
        }
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": dims.hidden,
        "intermediate_size": dims.ffn,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "head_dim": int(dims.head_dim),
        "vocab_size": dims.vocab,
        "max_position_embeddings": seq,
        "tie_word_embeddings": dims.tied,
    }
    if dims.experts:
        config |= {"model_type": "mixtral", "num_local_experts": dims.experts, "num_experts_per_tok": dims.top_k}
        config |= {"intermediate_size": dims.expert_ffn, "sliding_window": None}
    return config


def model_of(dims: Shape, seq: int) -> Model:
    return build(config_from(dims.name, Document(dims.name, None), dict(config_of(dims, seq))))


def nominal(row: Row) -> float | None:
    """Parameters as the row states them, or as its model's name says (`200B`)."""
    exact = row.number("model.params")
    if exact:
        return exact
    found = re.search(r"([\d.]+) ?B\b", f"{row.text('model.params_nominal')} {row.text('model.name')}")
    return float(found[1]) * 1e9 if found else None


def depth_from(row: Row, stages: int) -> int | None:
    """The number of layers where only width and size are stated: the multiple of the pipeline's stages nearest to
    (N − V·h)/12h², or 4h² + 3hf of a gated block."""
    params, hidden = nominal(row), row.count("model.hidden")
    if params is None or hidden is None or row.part("model").get("experts"):
        return None
    ffn = row.count("model.ffn") or 4 * hidden
    block = 4 * hidden * hidden + (3 if row.flag("model.gated") else 2) * hidden * ffn
    tables = (row.count("model.vocab") or 0) * hidden * (1 if row.flag("model.tied") else 2)
    return max(round((params - tables) / block / stages), 1) * stages


def described(row: Row) -> Model:
    """The row's model: the architecture of that name where napkin knows it, else the shape that the row states."""
    name = row.text("model.name")
    layers, hidden = row.count("model.layers"), row.count("model.hidden")
    if is_preset(name):
        preset = build(load_config(name))
        if (layers or preset.stacks[-1].depth) == preset.stacks[-1].depth and (
            hidden or preset.hidden
        ) == preset.hidden:
            return preset
    fields = dict(row.fields)
    if layers is None:
        depth = depth_from(row, row.count("layout.pp") or 1)
        if depth is None:
            raise NapkinError("the number of layers or the width is not stated")
        fields["model"] = {**row.part("model"), "layers": depth}
    step = step_row(Row(row.document, row.index, fields))
    if step.shape is None:
        raise NapkinError("the number of layers or the width is not stated")
    if not step.shape.vocab:
        raise NapkinError("the vocabulary is not stated")
    return model_of(step.shape, step.seq or row.count("model.longest_sample") or 2048)


# --- the setup -------------------------------------------------------------------------------------------------------


def framework_of(row: Row) -> Framework | None:
    """The framework that a row names (`layout.stack`), else that its source's words name."""
    stated = row.text("layout.stack").lower()
    if stated:
        return FRAMEWORKS.get(STACKS.get(stated, stated))
    words = f"{row.text('source.title')} {row.text('source.where')}".lower()
    return next((FRAMEWORKS[name] for word, name in WORDS if word in words), None)


def adapted(framework: Framework, row: Row) -> Framework:
    """A framework as the row's own words change it: fp32 accumulation, tables that count as layers."""
    words = row.text("layout.precision").lower()
    if "fp32 gradient accumulation" in words or "fp32 accumulation" in words:
        framework = replace(framework, accumulator=4)
    if framework.partition == FRONT and "embedding layers count" in row.text("layout.pp_partition"):
        framework = replace(framework, partition=SLOTS)
    if framework.name == "megatron-deepspeed" and not row.count("layout.zero", least=0):
        framework = replace(framework, step_bytes=framework.step_bytes + 4)
    return framework


def precision_of(row: Row, framework: Framework) -> Precision:
    """Number formats as the framework keeps them: FSDP shards fp32 parameters and casts them; the others keep 16-bit
    parameters with fp32 master copies. 8-bit products leave memory as it is."""
    policy = POLICIES.get(row.text("layout.policy"), POLICIES["bf16-mixed"])
    if policy.state in ("bf16", "fp16") or policy.autocast or policy.compute == "fp32":
        return policy
    compute = "fp16" if policy.compute == "fp16" else "bf16"
    return framework.formats(Precision("master", compute, compute, compute, "fp32", "fp32"))


def tuning_of(row: Row, framework: Framework) -> Tuning | None:
    method = row.text("layout.method") or "full"
    if method == "full":
        return None
    quantised = {"": "", "bnb.nf4": "nf4", "nf4": "nf4", "bnb.nf4-dq": "nf4-dq", "nf4-dq": "nf4-dq"}.get(
        row.text("layout.quantization")
    )
    if quantised is None:
        raise NapkinError(f"stores frozen weights as {row.text('layout.quantization')}: not modelled")
    if method == "qlora":
        method, quantised = "lora", quantised or "nf4-dq"
    if method not in ("lora", "adapter", "adapter_v2"):
        raise NapkinError(f"trains by {method}: not modelled")
    if framework.name == "torchtune":  # recipes/configs/llama3*/…lora_single_device.yaml; LoRA's of 2024-09: q and v
        narrow = row.text("layout.recompute") == "recipe default" and not quantised
        targets = ("q", "v") if narrow else ("q", "v", "o", "gate", "up", "down")
        return Tuning(method, 8, 0.0, targets, quantised, "torchao")
    return Tuning(method, 8, 0.05, ("q", "v"), quantised)


def recompute_of(row: Row, step: StepRow, framework: Framework) -> str:
    kind, words = step.recompute, step.recompute_words.lower()
    if kind == "none" and words not in ("", "none", "unstated", "recipe default"):
        kind = "other"
    if framework.name == "torchtitan" and ("selective" in words or words in ("", "unstated")):
        return OPERATIONS  # its recipes' default: activation_checkpoint.mode selective, selective_ac_option op
    if kind == "other" or (kind == "selective" and framework.code in ("hf", "torchtune", "litgpt")):
        raise NapkinError(f"recomputes single operations ({words[:60]}): not modelled")
    if framework.name == "litgpt" and kind == "none" and step.gpus > 1:
        return "full"  # finetune/*.py: FSDPStrategy(activation_checkpointing_policy={Block})
    if words == "recipe default":
        return "full"
    return kind


def code_for(row: Row, framework: Framework, model: Model) -> Code:
    code = code_of(framework.code, model.family)
    compiled = bool(row.flag("layout.compile"))
    if row.flag("layout.chunked_cross_entropy") or row.text("layout.recompute") == "recipe default":
        code = replace(code, loss="chunked" if row.flag("layout.compile") is not False else "chunked-eager")
    elif framework.name == "torchtitan":
        dated = re.search(r"20\d{4}", row.text("source.where"))
        split = (row.count("layout.tp") or 1) > 1
        if split:
            code = replace(code, loss="dtensor")
        elif compiled and dated and int(dated[0]) >= COMPILED_LOSS_SINCE:
            code = replace(code, loss="compiled")
    if compiled:  # elementwise chains run again in backward from what products and norms read
        code = replace(code, norms="fused", swiglu="fused")
    tuning = tuning_of(row, framework)
    return code if tuning is None else replace(code, tuning=tuning)


def setup_of(row: Row, model: Model) -> Setup:
    framework = adapted(framework_of(row) or PLAIN, row)
    step = step_row(row)
    words = f"{step.recompute_words} {row.text('layout.optimizer')}".lower()
    seq = step.seq or row.count("model.longest_sample") or 0
    if not seq:
        raise NapkinError("the sequence length is not stated")
    micro = int(step.micro_batch or 0)
    if not micro:
        raise NapkinError("the micro-batch is not stated")
    if row.count("hardware.count") is None and row.count("layout.dp") is None:
        raise NapkinError("the number of accelerators is not stated")
    heads = row.count("model.heads")
    if heads is not None and heads % step.tp:
        raise NapkinError(f"{heads} heads do not divide over {step.tp} tensor-parallel ranks")
    batches = max(1, int((step.global_batch or step.dp * micro) // (step.dp * micro)))
    if row.number("layout.global_batch") is None and step.pp > 1:
        batches = MANY * step.pp
    tuning = tuning_of(row, framework)
    if framework.name == "litgpt":
        batches = max(1, LITGPT_BATCH // (step.dp * micro))
        if step.gpus > 1:
            seq = int(seq * TYPICAL)
    for key, value in row.part("layout").items():
        if "offload" in key and value and key not in OFFLOADS:
            raise NapkinError(f"{key}: an offload that is not modelled")
    offload: tuple[str, ...] = ("optimizer",) if row.flag("layout.optimizer_offload") else ()
    if "offload" in words or row.flag("layout.activation_offload"):
        offload = (*offload, "activations")
    recipe = row.text("layout.recompute") == "recipe default"
    in_backward = bool(row.flag("layout.optimizer_in_backward")) or (recipe and tuning is None)
    name = row.text("layout.optimizer").lower() or "adamw"
    if recipe and tuning is None:
        name = "paged adamw 8bit"  # recipes/configs/llama3_1/8B_full_single_device.yaml
    if "paged" in name:
        offload, name = (*offload, "optimizer"), name.replace("paged", "").strip(" -_")
    optimizer, form = optimizers.find(re.sub(r"[ _]+", "-", name))
    layout = Layout(
        seq=seq,
        micro=micro,
        micro_batches=batches,
        tp=step.tp,
        pp=step.pp,
        dp=step.dp,
        cp=step.cp,
        ep=step.ep,
        vp=step.vp or 1,
        sp=1 if step.sp and step.tp > 1 else 0,
        zero=step.zero or 0,
        schedule="interleaved" if (step.vp or 1) > 1 else "1f1b",
        recompute=Recompute(recompute_of(row, step, framework)),
    )
    return Setup(
        code_for(row, framework, model),
        layout,
        precision_of(row, framework),
        optimizer,
        form or "fused",
        row.text("layout.attention") or framework.attention,
        framework.dropout,
        offload=offload,
        framework=framework,
        in_backward=in_backward,
    )


# --- the comparison --------------------------------------------------------------------------------------------------


def reported_rank(prepared: memory.Step) -> Rank:
    """The rank whose memory the framework's log prints."""
    setup = prepared.setup
    stages = int(setup.layout.pp)
    which = setup.framework.reported
    if which == FIRST:
        places: list[int] = [0]
    elif which == ENDS:
        places = [0, stages - 1]
    else:
        places = sorted({0, min(1, stages - 1), stages // 2, max(stages - 2, 0), stages - 1})
    ranks = [memory.rank_of(prepared, place) for place in places]
    return max(ranks, key=lambda rank: rank.live + rank.flow(setup).apart(rank.live))


def analytic(prepared: memory.Step) -> float:
    """A figure's bars by its paper's own definition: the first stage's block weights at 18 bytes and what its layers
    keep for all micro-batches on their way; tables, head and loss left out (Korthikanti et al. 2022, figure 1)."""
    rank = memory.rank_of(prepared, 0)
    weights = sum(
        n * memory.held(layer.operations, prepared.setup).all
        for n, (_, layer) in zip(rank.stage.layers, prepared.stack.runs, strict=True)
    )
    kept = sum(
        (n - again) * piece.saved + again * piece.input
        for n, again, (_, piece) in zip(rank.stage.layers, rank.stage.checkpointed, prepared.run.layers, strict=True)
    )
    return float(STATE_BYTES * weights + rank.stage.in_flight * kept)


@record
class Figures:
    """A reading of a row: the quantity that it prints, what is used, the least that must be there and the most that
    the constants' ranges allow."""

    value: float
    used: float
    least: float
    most: float


def figures(row: Row, setup: Setup, model: Model) -> Figures:
    prepared = memory.prepare(model, setup)
    if "analytic" in row.text("memory.kind"):
        value = analytic(prepared)
        return Figures(value, value, value, value)
    rank = reported_rank(prepared)
    old = setup.framework.name == "megatron-deepspeed"
    context = allocator.CONTEXT_EAGER if old else allocator.CONTEXT
    term = leaf("memory/live", ceil_div(rank.live, 1), "byte", TRUE)
    compiled = bool(row.flag("layout.compile"))
    found = allocator.reported(term, setup.layout.gpus, compiled, flow=rank.flow(setup), outside=context)
    wanted = row.text("memory.what") or "allocated"
    value = {"allocated": found.allocated, "reserved": found.reserved, "used": found.used}[wanted].value
    most = float(found.ends["memory/used"][1])
    return Figures(float(value), float(found.used.value), float(found.least), most)


KNOWN_RECOMPUTE = ("megatron", "megatron-deepspeed", "nanotron", "litgpt", "torchtitan")
"""Frameworks whose scripts say what is recomputed where a row does not."""


def readings(row: Row, setup: Setup, model: Model, capacity: float | None) -> list[Figures]:
    """The row as stated; where it does not state what is recomputed, none of the layers and all of them; where it names
    a recipe whose saving of activations it does not state, each saving that the card has room for, the fastest alone
    where even no saving has."""
    words = f"{row.text('layout.recompute')}{row.text('layout.recompute_kind')}"
    plain_setup = replace(setup, layout=replace(setup.layout, recompute=Recompute("none")))
    if words in ("", "unstated") and setup.framework.name not in KNOWN_RECOMPUTE:
        full = replace(setup, layout=replace(setup.layout, recompute=Recompute("full")))
        return [figures(row, one, model) for one in (plain_setup, full)]
    if row.text("layout.recompute") != "recipe default":
        return [figures(row, setup, model)]
    plain = figures(row, plain_setup, model)
    if capacity and plain.used <= capacity:
        return [plain]
    return [figures(row, one, model) for one in (setup, replace(setup, offload=(*setup.offload, "activations")))]


def compared(row: Row, level: float = 0.9) -> Compared:
    """Predicted bytes of the quantity that the row prints, and whether a run that did not fit was to be expected."""
    what = row.text("memory.what")
    if what not in ("", "allocated", "reserved", "used"):
        raise row.wrong("memory.what", "is none of allocated, reserved, used")
    quantity = f"memory_{what or 'unstated'}"
    measured = row.number("memory.bytes")
    if measured is None and row.number("memory.gib"):
        measured = (row.number("memory.gib") or 0.0) * 2**30
    source = row.text("source.title") or row.text("source")
    out = row.flag("memory.oom") or False
    suspect = row.text("suspect")

    def silent(why: str) -> Compared:
        return Compared(row.text("id"), quantity, None, None, None, measured, source, why, "", suspect, source)

    if measured is None and not out:
        return silent("prints a relative figure, not bytes")
    try:
        chip = row.text("hardware.chip") or row.text("hardware.accelerator")
        capacity = hardware.find(chip).capacity if chip else None
        model = described(row)
        setup = setup_of(row, model)
        found = readings(row, setup, model, capacity)
    except WrongRow:
        raise
    except NapkinError as problem:
        return silent(problem.message)
    value = math.exp(sum(math.log(one.value) for one in found) / len(found))
    below, above = margins(framework_of(row), setup.layout.gpus == 1, quantity, level, row.text("id"))
    low, high = (min(one.value for one in found) * below, max(one.value for one in found) * above)
    verdict = ""
    if out and capacity is not None:
        least, most = min(one.least for one in found), max(max(one.used * above, one.most) for one in found)
        verdict = "does not fit" if least > capacity else "fits" if most <= capacity else "close"
    return Compared(row.text("id"), quantity, value, low, high, measured, source, "", verdict, suspect, source)


# --- the interval ----------------------------------------------------------------------------------------------------

FEWEST = 5
"""So many rows of a framework tell its spread; below that, all frameworks' errors do."""
FLOOR = 0.002
"""No interval is narrower: printed figures have three digits."""
NEVER_SEEN = 0.25
"""Half the width, in logarithms, where nobody measured the framework: the first predictions of frameworks here were off
by 7 % in the median and 10 to 34 % in the ninth decile."""


def margins(
    framework: Framework | None, alone: bool, quantity: str, level: float = 0.9, without: str = ""
) -> tuple[float, float]:
    """Lower and upper end over the prediction: the level's quantile of the errors on rows of the same framework, one
    card or several, and kind of figure, the row itself left out."""
    from napkin._tables import memory_errors as table

    if framework is None:
        return math.exp(-NEVER_SEEN), math.exp(NEVER_SEEN)
    errors = [
        abs(error)
        for name, kind, single, what, error in table.ERRORS
        if kind == framework.name and single == alone and what == quantity and name != without
    ]
    half = quantile(errors, level) if len(errors) >= FEWEST else NEVER_SEEN
    return math.exp(-half), math.exp(half)


def quantile(errors: Sequence[float], level: float) -> float:
    """The smallest width that covers `level` of runs like these: their ⌈level·(n + 1)⌉-th error (split conformal)."""
    ranked = sorted(errors)
    place = min(math.ceil(level * (len(ranked) + 1)), len(ranked))
    return max(ranked[place - 1], FLOOR)
