"""What a row of published memory says, as a model and a setup of its framework."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from napkin.architectures import build, implementation_of
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.evidence.rows import Row
from napkin.evidence.step_rows import Shape, StepRow, step_row
from napkin.footprint.setup import Setup
from napkin.inputs.load import Document
from napkin.inputs.model import config_from, load_config
from napkin.inputs.presets import is_preset
from napkin.operations.implementations import Implementation, Tuning
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training import optimizers
from napkin.training.frameworks import FRAMEWORKS, FRONT, SLOTS, Framework, unnamed
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES, Precision
from napkin.training.recomputation import OPERATIONS, Recompute

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
SHARDED = ("torchtitan", "torchtune", "litgpt", "fsdp")
"""Frameworks that shard parameters, gradients and states wherever there are several cards."""
CPU_OFFLOADS = ("cpu_offload", "fsdp_cpu_offload", "enable_cpu_offload", "param_offload")
"""Spellings of FSDP's CPUOffloadPolicy (torchtune: fsdp_cpu_offload; torchtitan: training.enable_cpu_offload)."""
READ = """tp pp dp cp ep vp sp zero fsdp fsdp_group fsdp_shards micro_batch global_batch batch_tokens grad_accum
schedule recompute recompute_kind policy precision attention optimizer method quantization lora_rank lora_targets
compile chunked_cross_entropy optimizer_in_backward packed pp_partition stack framework"""
"""Fields of a layout that decide memory here."""
IDLE = """activation_offload optimizer_offload async_tp local_batch trainable_params recipe replicas whole_run container
model_parallel_size fsdp_mixed_precision lora_alpha per_node nodes launcher dataset steps version"""
"""Fields of a layout that change no bytes beyond what others say."""
ON = ("flash", "master", "fused")
"""Parts of names of what is on unless a row says that it is not."""
SHAPE = """name params params_nominal layers hidden heads kv_heads ffn vocab gated tied seq longest_sample head_dim
experts mla attention position"""
"""Fields of a model that its description reads."""
MANY = 4
"""Micro-batches for each stage of a pipeline whose batch is not stated: enough to fill it under every schedule."""
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
    size, hidden = nominal(row), row.count("model.hidden")
    if size is None or hidden is None or row.part("model").get("experts"):
        return None
    ffn = row.count("model.ffn") or 4 * hidden
    block = 4 * hidden * hidden + (3 if row.flag("model.gated") else 2) * hidden * ffn
    tables = (row.count("model.vocab") or 0) * hidden * (1 if row.flag("model.tied") else 2)
    return max(round((size - tables) / block / stages), 1) * stages


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
    if layers is None:
        layers = depth_from(row, row.count("layout.pp") or 1)
    if layers is None or hidden is None:
        raise NapkinError("the number of layers or the width is not stated")
    if row.count("model.vocab") is None:
        raise NapkinError("the vocabulary is not stated")
    found = [_built(row, {"layers": layers, **fields}) for fields in _unsaid(row, layers, hidden)]
    stated = row.number("model.params")
    if not stated:
        if len(found) > 1:
            raise NapkinError("whether its MLP is gated and its tables are tied is not stated, nor its parameters")
        return found[0]
    counts = [float(params(one)["params/total"].value) for one in found]
    nearest = min(range(len(found)), key=lambda place: abs(counts[place] / stated - 1))
    if abs(counts[nearest] / stated - 1) > APART:
        raise NapkinError(f"its shape makes {counts[nearest]:,.0f} parameters, not the {stated:,.0f} that it states")
    return found[nearest]


APART = 0.02
"""How far the parameters of a row's shape may lie from those that it states: biases, positions, padded vocabularies."""


def _built(row: Row, fields: Mapping[str, Any]) -> Model:
    step = step_row(Row(row.document, row.index, {**row.fields, "model": {**row.part("model"), **fields}}))
    assert step.shape is not None
    return model_of(step.shape, step.seq or row.count("model.longest_sample") or 2048)


def _unsaid(row: Row, layers: int, hidden: int) -> list[dict[str, Any]]:
    """Each way to read what a row does not say of its shape: a gated MLP or none, tied tables or not; a gated MLP's
    width from the parameters. Without a gate it is GPT's: four times the model's, its tables tied."""
    gated, tied = row.flag("model.gated"), row.flag("model.tied")
    ways: list[dict[str, Any]] = []
    for gate in (False, True) if gated is None else (gated,):
        both = (False, True) if row.number("model.params") or gate else (True,)
        for same in both if tied is None else (tied,):
            fields: dict[str, Any] = {"gated": gate, "tied": same}
            if gate and row.count("model.ffn") is None and not row.part("model").get("experts"):
                fields["ffn"] = _width(row, layers, hidden, same)
            ways.append(fields)
    return ways


def _width(row: Row, layers: int, hidden: int, tied: bool) -> int:
    """A gated MLP's width from the parameters: (N − tables − h)/L − attention − 2h (two norms), over 3h."""
    stated, heads = row.number("model.params"), row.count("model.heads") or 1
    if not stated:
        raise NapkinError("the width of its MLP is not stated")
    size = row.count("model.head_dim") or hidden // heads
    attention = 2 * hidden * size * (heads + (row.count("model.kv_heads") or heads))
    tables = (row.count("model.vocab") or 0) * hidden * (1 if tied else 2)
    return max(round(((stated - tables - hidden) / layers - attention - 2 * hidden) / (3 * hidden)), 1)


# --- the framework ---------------------------------------------------------------------------------------------------


def framework_of(row: Row) -> Framework | None:
    """The framework that a row names (`layout.stack`, `layout.framework`), else that its source's words name."""
    stated = row.text("layout.stack").lower()
    if stated:
        return FRAMEWORKS.get(STACKS.get(stated, stated))
    words = " ".join(row.text(path) for path in ("layout.framework", "source.title", "source.where")).lower()
    return next((FRAMEWORKS[name] for word, name in WORDS if word in words), None)


def ends_of(row: Row) -> tuple[Framework, Framework]:
    """What code may do that nobody names, for a layout like the row's."""
    step = step_row(row)
    return unnamed(step.tp > 1, step.zero == 3, step.gpus == 1)


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


# --- what a row says of its layout -----------------------------------------------------------------------------------


def unread(row: Row) -> str:
    """A field that says something and that nothing here reads; "" where there is none."""
    for part, known in (("layout", f"{READ} {IDLE}"), ("model", SHAPE)):
        for key, value in row.part(part).items():
            is_off = value in (None, False, 0, "", "none", "None", "no") and not any(word in key for word in ON)
            if is_off or key in known.split() or (part == "layout" and key in CPU_OFFLOADS and value is True):
                continue
            return f"{key}: an offload that is not modelled" if "offload" in key else f"{part}.{key}: not modelled"
    return ""


def contradiction(row: Row, step: StepRow) -> str:
    """What a row says twice and not the same; "" where there is nothing of the kind."""
    ways = step.tp * step.pp * step.cp
    dp = row.count("layout.dp")
    if step.gpus % ways or (dp is not None and dp * ways != step.gpus):
        said = f"tp·pp·cp·dp = {ways * dp:,}" if dp is not None else f"tp·pp·cp = {ways:,}"
        return f"{step.gpus:,} accelerators and {said}: a contradiction"
    adapts = re.sub(r"[ -]+", "_", row.text("layout.method").strip().lower()) not in FULL
    trained, whole = row.number("layout.trainable_params"), row.number("model.params")
    if not adapts and (row.count("layout.lora_rank") or row.part("layout").get("lora_targets")):
        return "states what LoRA's matrices are, not that it trains by LoRA"
    if not adapts and trained and whole and trained < whole / 2:
        return f"trains {trained / whole:.2%} of its parameters by a method that it does not state"
    return ""


def precision_of(row: Row, framework: Framework) -> Precision:
    """Number formats as the framework keeps them: FSDP shards fp32 parameters and casts them; the others keep 16-bit
    parameters with fp32 master copies. 8-bit products leave memory as it is."""
    stated = row.text("layout.policy")
    if stated and stated not in POLICIES:
        raise NapkinError(f"the policy {stated[:40]} is not known")
    policy = POLICIES[stated or ("bf16-pure" if "pure" in row.text("layout.precision").lower() else "bf16-mixed")]
    if policy.state in ("bf16", "fp16") or policy.autocast or policy.compute == "fp32":
        return policy
    compute = "fp16" if policy.compute == "fp16" else "bf16"
    return framework.formats(Precision("master", compute, compute, compute, "fp32", "fp32"))


FULL = ("", "full", "sft", "pretrain", "pretraining", "full_finetune", "full_finetuning", "full_fine_tuning", "none")
QUANTISED = {
    "": "",
    "none": "",
    "nf4": "nf4",
    "bnb.nf4": "nf4",
    "bnb_nf4": "nf4",
    "nf4_dq": "nf4-dq",
    "bnb.nf4_dq": "nf4-dq",
    "bnb_nf4_dq": "nf4-dq",
}


def tuning_of(row: Row, framework: Framework) -> Tuning | None:
    """What is trained of a frozen network. Rank and targets are those of the framework's recipes where nobody says."""
    method = re.sub(r"[ -]+", "_", row.text("layout.method").strip().lower())
    stored = re.sub(r"[ -]+", "_", row.text("layout.quantization").strip().lower())
    if stored not in QUANTISED:
        raise NapkinError(f"stores frozen weights as {row.text('layout.quantization')}: not modelled")
    quantised = QUANTISED[stored]
    if method in FULL:
        if quantised:
            raise NapkinError(f"trains all weights, stored as {quantised}: a contradiction")
        return None
    if method == "qlora":
        method, quantised = "lora", quantised or "nf4-dq"
    if method not in ("lora", "adapter", "adapter_v2"):
        raise NapkinError(f"trains by {method}: not modelled")
    rank = row.count("layout.lora_rank") or 8
    targets = targets_of(row)
    if framework.name == "torchtune":  # recipes/configs/llama3*/…lora_single_device.yaml; LoRA's of 2024-09: q and v
        narrow = row.text("layout.recompute") == RECIPE and not quantised
        known = ("q", "v") if narrow else ("q", "v", "o", "gate", "up", "down")
        return Tuning(method, rank, 0.0, targets or known, quantised, "torchao")
    return Tuning(method, rank, 0.05, targets or ("q", "v"), quantised)


def targets_of(row: Row) -> tuple[str, ...]:
    """Products that LoRA stands beside, by their usual names (`q_proj`, `query`, `gate_proj`); () where nobody says."""
    value = row.part("layout").get("lora_targets")
    if value is None:
        return ()
    words = value if isinstance(value, list) else re.split(r"[\s,+]+", str(value))
    names = tuple(dict.fromkeys(TARGETS.get(str(word).strip().lower(), "") for word in words if str(word).strip()))
    if not names or "" in names:
        raise NapkinError(f"LoRA beside {', '.join(str(word) for word in words)[:60]}: not modelled")
    return names


TARGETS = {
    spelling: name
    for name, spellings in {
        "q": ("q", "q_proj", "query", "wq"),
        "k": ("k", "k_proj", "key", "wk"),
        "v": ("v", "v_proj", "value", "wv"),
        "o": ("o", "o_proj", "output_proj", "proj", "wo"),
        "gate": ("gate", "gate_proj", "w1"),
        "up": ("up", "up_proj", "w3"),
        "down": ("down", "down_proj", "w2"),
    }.items()
    for spelling in spellings
}
"""Spellings of the products' names."""
RECIPE = "recipe default"
"""What rows say of flags that are a recipe's, and which their source does not state."""
STATED = {
    "none": ("none", "no", "off", "false", "no recomputation"),
    "full": (
        "full",
        "yes",
        "on",
        "true",
        "all layers",
        "activation checkpointing",
        "gradient checkpointing",
    ),
    "selective": ("selective", "attention"),
}
"""Words for what is recomputed, where a row has no canonical one."""


def stated_recompute(row: Row) -> str:
    """none, selective, full or other; "" where the row does not say, or names a recipe alone."""
    kind, words = row.text("layout.recompute_kind").lower(), row.text("layout.recompute").strip().lower()
    if words in ("", "unstated", RECIPE) and kind in ("", "unstated"):
        return ""
    if kind:
        if kind not in ("none", "selective", "full", "other"):
            raise NapkinError(f"the recomputation {kind[:40]} is not known")
        return kind
    return next((name for name, spellings in STATED.items() if words in spellings), "other")


def recompute_of(row: Row, step: StepRow, framework: Framework) -> str:
    """What is recomputed, as the row says it, else as the framework's scripts do it."""
    kind, words = stated_recompute(row), row.text("layout.recompute").lower()
    if framework.name == "torchtitan" and ("selective" in words or (not kind and words != RECIPE)):
        return OPERATIONS  # its recipes' default: activation_checkpoint.mode selective, selective_ac_option op
    if "per-op" in words or "per op" in words:
        return OPERATIONS
    if kind == "other" or (kind == "selective" and framework.code in ("hf", "torchtune", "litgpt")):
        raise NapkinError(f"recomputes single operations ({words[:60] or kind}): not modelled")
    if framework.name == "litgpt" and kind in ("", "none") and step.gpus > 1:
        return "full"  # finetune/*.py: FSDPStrategy(activation_checkpointing_policy={Block})
    return kind or ("full" if words == RECIPE else "none")


def code_for(row: Row, framework: Framework, model: Model) -> Implementation:
    code = replace(implementation_of(framework.code, model.family), **dict(framework.differs))
    compiled = bool(row.flag("layout.compile"))
    recipe = framework.name == "torchtune" and row.text("layout.recompute") == RECIPE
    if row.flag("layout.chunked_cross_entropy") or recipe:
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


KERNELS = {
    spelling: name
    for name, spellings in {
        "flash": (
            "flash",
            "flash1",
            "flash2",
            "flash3",
            "fa2",
            "fa3",
            "flash_attention_2",
            "flash_attention_3",
            "sdpa",
        ),
        "efficient": ("efficient", "xformers", "mem_efficient"),
        "cudnn": ("cudnn", "te", "transformer engine"),
        "eager": ("eager", "math", "unfused"),
    }.items()
    for spelling in spellings
}
"""Spellings of the attention kernels."""


def kernel_of(row: Row, framework: Framework) -> str:
    words = row.text("layout.attention").strip().lower()
    if words and words not in KERNELS:
        raise NapkinError(f"the attention kernel {words[:40]} is not known")
    return KERNELS.get(words, framework.attention)


SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved", "interleaved 1f1b": "interleaved", "gpipe": "gpipe"}
SCHEDULES |= {"afab": "gpipe", "zero-bubble": "zero-bubble", "zb1p": "zero-bubble", "zbv": "zero-bubble"}


def schedule_of(row: Row, chunks: int) -> str:
    """The pipeline's order, as the row says it; interleaved where its stages hold several chunks."""
    words = row.text("layout.schedule").strip().lower()
    if words and words not in SCHEDULES:
        raise NapkinError(f"the pipeline's schedule {words[:40]} is not modelled")
    named = SCHEDULES.get(words, "interleaved" if chunks > 1 else "1f1b")
    if named == "interleaved" and chunks < 2:
        raise NapkinError("the chunks of an interleaved pipeline (vp) are not stated")
    return named


def sequence_of(row: Row, step: StepRow, framework: Framework) -> int:
    """Tokens of a sequence where memory is largest."""
    seq = step.seq or row.count("model.longest_sample") or 0
    if not seq:
        raise NapkinError("the sequence length is not stated")
    if row.flag("layout.packed") is False and not row.count("model.longest_sample"):
        raise NapkinError("samples are not packed, and how long they are is not stated")
    return int(seq * TYPICAL) if framework.name == "litgpt" and step.gpus > 1 else seq


def setup_of(row: Row, model: Model, framework: Framework) -> Setup:
    """The row's run by that framework. Refused where something is missing or not modelled that memory depends on."""
    framework = adapted(framework, row)
    step = step_row(row)
    why = unread(row) or contradiction(row, step)
    if why:
        raise NapkinError(why)
    seq = sequence_of(row, step, framework)
    sums = row.count("layout.grad_accum")
    micro = int(step.micro_batch or 0)
    if not micro and sums and step.global_batch and row.number("layout.global_batch"):
        micro = int(step.global_batch // (step.dp * sums))
    if not micro:
        raise NapkinError("the micro-batch is not stated")
    if row.count("hardware.count") is None and row.count("layout.dp") is None:
        raise NapkinError("the number of accelerators is not stated")
    ways = ("tp", "pp", "dp", "cp", "ep", "zero", "fsdp", "fsdp_group")
    if step.gpus > 1 and all(row.part("layout").get(name) is None for name in ways):
        raise NapkinError("the layout is not stated")
    for name, words in (("heads", "heads"), ("hidden", "columns"), ("ffn", "columns of the MLP")):
        size = row.count(f"model.{name}")
        if size is not None and size % step.tp:
            raise NapkinError(f"{size} {words} do not divide over {step.tp} tensor-parallel ranks")
    if (step.zero or 0) > 3:
        raise NapkinError(f"ZeRO stage {step.zero} does not exist")
    batches = int(sums or (step.global_batch or step.dp * micro) // (step.dp * micro))
    if row.number("layout.global_batch") is None and sums is None and step.pp > 1:
        batches = MANY * step.pp
    if framework.name == "litgpt":
        batches = LITGPT_BATCH // (step.dp * micro)
    tuning = tuning_of(row, framework)
    recipe = framework.name == "torchtune" and row.text("layout.recompute") == RECIPE and tuning is None
    offload: tuple[str, ...] = ("optimizer",) if row.flag("layout.optimizer_offload") else ()
    words = f"{step.recompute_words} {row.text('layout.optimizer')}".lower()
    if "offload" in words or row.flag("layout.activation_offload"):
        offload = (*offload, "activations")
    if any(row.flag(f"layout.{one}") for one in CPU_OFFLOADS):
        if step.gpus == 1 or not (step.zero == 3 or (step.zero is None and framework.name in SHARDED)):
            raise NapkinError("cpu_offload: an offload that is not modelled but under fully sharded data parallelism")
        offload = (*dict.fromkeys((*offload, "optimizer")), "parameters")
    name = row.text("layout.optimizer").lower() or "adamw"
    if recipe:
        name = "paged adamw 8bit"  # recipes/configs/llama3_1/8B_full_single_device.yaml
    if "paged" in name:
        offload, name = (*offload, "optimizer"), name.replace("paged", "").strip(" -_")
    optimizer, form = optimizers.find(re.sub(r"[ _()]+", "-", name).strip("-"))
    chunks = step.vp or 1
    layout = Layout(
        seq=seq,
        micro=micro,
        micro_batches=max(1, batches),
        tp=step.tp,
        pp=step.pp,
        dp=step.dp,
        cp=step.cp,
        ep=step.ep,
        vp=chunks,
        sp=1 if step.sp and step.tp > 1 else 0,
        zero=step.zero or 0,
        schedule=schedule_of(row, chunks),
        recompute=Recompute(recompute_of(row, step, framework)),
    )
    return Setup(
        code_for(row, framework, model),
        layout,
        precision_of(row, framework),
        optimizer,
        form or ("fused" if "fused" in optimizer.forms else optimizer.forms[0]),
        kernel_of(row, framework),
        framework.dropout,
        shard=step.shards or 0,
        offload=offload,
        framework=framework,
        in_backward=bool(row.flag("layout.optimizer_in_backward")) or recipe,
    )
