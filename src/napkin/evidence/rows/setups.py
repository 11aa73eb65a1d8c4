"""Turn a row of published memory into the setup of its framework, from the row's fields, which
prose/memory.py fills."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.errors import NapkinError
from napkin.evidence.rows.fields import ALL_WEIGHTS, CPU_OFFLOADS, generation_of, leaves_method_open, unread_memory
from napkin.evidence.rows.optimizers import optimizer_of
from napkin.evidence.rows.recomputation import is_of_parts
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.evidence.rows.words import KERNELS, LIGER_WORD, LORA_TARGETS, MEMORY_STACKS, SCHEDULES, schedule_named
from napkin.evidence.software.scripts import scripts_of
from napkin.formats.table import NORMAL_FLOATS
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.framework import FRONT, SLOTS, Framework
from napkin.training.frameworks import FRAMEWORKS, unnamed
from napkin.training.kernels import LIGER
from napkin.training.layout import Layout
from napkin.training.precision import Precision, precision
from napkin.training.recomputation import OPERATIONS, recompute
from napkin.training.setup import Setup

MANY = 4
"""Micro-batches for each stage of a pipeline whose batch is not stated: enough to fill it under every schedule."""

# --- the framework ---------------------------------------------------------------------------------------------------


def framework_of(row: RowFields) -> Framework | None:
    """Return the framework that a row names by its stack or framework, None if it names none that is modeled. A stack
    that is known by its layers alone (`fsdp-eager`) says less than the framework that has them."""
    stack, named = row.text("layout.stack").lower(), FRAMEWORKS.get(row.text("layout.framework"))
    if stack in MEMORY_STACKS and named is not None and named.program:
        return named
    return FRAMEWORKS.get(MEMORY_STACKS.get(stack, stack) if stack else row.text("layout.framework"))


def ends_of(row: RowFields) -> tuple[Framework, Framework]:
    """Return frameworks that bound the memory of an unnamed one, for a layout like the row's."""
    step = step_row(row)
    return unnamed(step.tp > 1, step.zero == 3, step.gpus == 1)


FIRST_CODE = 1
"""A year and month before any framework's."""


def dated(row: RowFields, framework: Framework) -> tuple[RowFields, ...]:
    """Return the row with each month that its framework's code may be of, if it does not say which: before all its
    changes, and today's."""
    if row.count("layout.framework_version") or not (framework.editions or framework.earlier):
        return (row,)
    layout = {**row.part("layout"), "framework_version": FIRST_CODE}
    return (row.replaced({**row.fields, "layout": layout}), row)


def adapted(framework: Framework, row: RowFields) -> Framework:
    """Return a framework with the row's changes: its date, fp32 accumulation, embeddings that count as layers."""
    framework = framework.as_of(row.count("layout.framework_version"))
    if row.text("layout.accumulation") == "fp32":
        framework = replace(framework, accumulator=4)
    if framework.partition == FRONT and row.text("layout.pp_partition") == SLOTS:
        framework = replace(framework, partition=SLOTS)
    more = 0 if row.count("layout.zero", least=0) else scripts_of(framework).step_bytes
    return replace(framework, step_bytes=framework.step_bytes + more)


# --- what a row says of its layout -----------------------------------------------------------------------------------


def precision_of(row: RowFields, framework: Framework) -> Precision:
    """Return the number formats that a row states part by part, else those of the framework: FSDP shards fp32
    parameters and casts them; the others have 16-bit parameters with fp32 master copies. 8-bit matmuls do not change
    memory. Refused for a policy that is not known."""
    stated = row.text("layout.policy") or "bf16-mixed"
    try:
        policy = precision(stated, "layout.policy")
    except NapkinError:
        raise NapkinError(f"the policy {stated[:40]} is not known") from None
    if "=" in stated or policy.state in ("bf16", "fp16") or policy.autocast or policy.compute == "fp32":
        return policy
    compute = "fp16" if policy.compute == "fp16" else "bf16"
    return framework.formats(Precision("master", compute, compute, compute, "fp32", "fp32"))


def tuning_of(row: RowFields, framework: Framework) -> Tuning | None:
    """Return the adapters of a frozen network. Rank and targets are those of the framework's recipes where the row does
    not say. Refused for a method or a format that is not modeled."""
    method, stored = row.text("layout.method"), row.text("layout.quantization")
    if stored not in ("", "none", *NORMAL_FLOATS):
        raise NapkinError(f"stores frozen weights as {stored}: not modeled")
    quantized = "" if stored == "none" else stored
    if method in ALL_WEIGHTS:
        if quantized:
            raise NapkinError(f"trains all weights, stored as {quantized}: a contradiction")
        return None
    if method == "qlora":
        method, quantized = "lora", quantized or "nf4-dq"
    if method not in ("lora", "adapter", "adapter_v2"):
        raise NapkinError(f"trains by {method}: not modeled")
    scripts = scripts_of(framework)
    rank = row.count("layout.lora_rank") or scripts.lora_rank
    of_recipe = row.flag("layout.recipe_defaults") and not quantized
    targets = targets_of(row) or (scripts.recipe_targets if of_recipe else scripts.targets)
    first = bool(row.count("model.longest_sample"))
    return Tuning(method, rank, scripts.lora_dropout, targets, quantized, scripts.quantizer, first=first)


def targets_of(row: RowFields) -> tuple[str, ...]:
    """Return the LoRA target modules; () if the row does not say. Refused for names that are not known."""
    if row.part("layout").get("lora_targets") is None:
        return ()
    names = row.names("layout.lora_targets")
    if not names or any(name not in LORA_TARGETS.values() for name in names):
        raise NapkinError(f"LoRA on {', '.join(names)[:60]}: not modeled")
    return names


RECOMPUTATIONS = ("", "none", "selective", "full", OPERATIONS, "other")


def stated_recompute(row: RowFields) -> str:
    """Return none, selective, with or without parts of layers, full, operations or other; "" if the row does not say,
    or names a recipe alone. Refused for other words."""
    kind = row.text("layout.recompute_kind")
    if kind not in RECOMPUTATIONS and not is_of_parts(kind):
        raise NapkinError(f"the recomputation {kind[:40]} is not known")
    return kind


def recompute_of(row: RowFields, step: StepRow, framework: Framework) -> str:
    """Return what is recomputed, as the row says it, else as the framework's scripts do it."""
    kind, scripts = stated_recompute(row), scripts_of(framework)
    of_layers = not scripts.selective or framework.of_transformers
    if kind == "other" or (kind == "selective" and of_layers):
        words = row.text("layout.recompute").lower()
        raise NapkinError(f"recomputes single operations ({words[:60] or kind}): not modeled")
    if is_of_parts(kind) and set(recompute(kind).apart) - {*framework.recomputes}:
        raise NapkinError(f"recomputes parts of layers ({kind[:60]}): not modeled in {framework.name}")
    if kind == "selective":
        return scripts.selective
    if scripts.sharded_recompute and not kind and step.gpus > 1:
        return scripts.sharded_recompute
    return kind or ("full" if row.flag("layout.recipe_defaults") else scripts.recompute or "none")


def code_for(row: RowFields, framework: Framework, model: Model) -> Implementation:
    """Return the framework's implementation of the model, with the choices that the row states."""
    base = implementation_of(framework.implementation, model.family)
    compiled, divided = bool(row.flag("layout.compile")), (row.count("layout.tp") or 1) > 1
    implementation = framework.implements(base, compiled, divided, row.count("layout.framework_version"))
    implementation = replace(implementation, loss=row.text("layout.loss_form") or implementation.loss)
    if row.flag("layout.gradient_accumulation_fusion") is False:
        implementation = replace(implementation, fuses_gradients=False)
    recipe = row.flag("layout.recipe_defaults") and scripts_of(framework).recipe_chunks
    if row.flag("layout.chunked_cross_entropy") is False and framework.editions:
        implementation = replace(implementation, loss=framework.implements(base, compiled, divided, FIRST_CODE).loss)
    elif row.flag("layout.chunked_cross_entropy") or recipe:
        implementation = replace(implementation, loss=chunked_loss(row, framework) or implementation.loss)
    if row.text("layout.layer_kernels") == LIGER_WORD and framework.of_transformers:
        implementation = LIGER.on(implementation)
    tuning = tuning_of(row, framework)
    return implementation if tuning is None else replace(implementation, tuning=tuning)


def chunked_loss(row: RowFields, framework: Framework) -> str:
    """Return the form of a loss that never holds all logits in fp32: the framework's own, or Liger's around a Hugging
    Face model. "" if none is known, as for a vocabulary that Megatron-core divides."""
    own = scripts_of(framework).chunked
    if not own:
        return "fused" if framework.of_transformers else ""
    return own if row.flag("layout.compile") is not False else f"{own}-eager"


def kernel_of(row: RowFields, framework: Framework) -> str:
    """Return the attention kernel, as the row says it, else the framework's. Refused for a name that is not known."""
    named = row.text("layout.attention")
    if named and named not in KERNELS.values():
        raise NapkinError(f"the attention kernel {named[:40]} is not known")
    return named or framework.attention


def schedule_of(row: RowFields, chunks: int) -> str:
    """Return the pipeline schedule, as the row says it; interleaved where its stages hold several chunks. Refused for
    one that is not modeled, or without its chunks."""
    stated = schedule_named(row.text("layout.schedule"))
    if stated and stated not in SCHEDULES.values():
        raise NapkinError(f"the pipeline's schedule {stated[:40]} is not modeled")
    named = stated or ("interleaved" if chunks > 1 else "1f1b")
    if named == "interleaved" and chunks < 2:
        raise NapkinError("the chunks of an interleaved pipeline (vp) are not stated")
    return named


def sequence_of(row: RowFields, step: StepRow, framework: Framework) -> int:
    """Return the tokens of a sequence where memory is largest. Refused if it is not stated."""
    seq = step.seq or row.count("model.longest_sample") or 0
    if not seq:
        raise NapkinError("the sequence length is not stated")
    if row.flag("layout.packed") is False and not row.count("model.longest_sample"):
        raise NapkinError("samples are not packed, and how long they are is not stated")
    return int(seq * scripts_of(framework).typical) if step.gpus > 1 else seq


def micro_of(row: RowFields, step: StepRow) -> int:
    """Return the sequences of a micro-batch, from the global batch if only that is stated. Refused if neither is."""
    sums = row.count("layout.grad_accum")
    micro = int(step.micro_batch or 0)
    if not micro and sums and step.global_batch and row.number("layout.global_batch"):
        micro = int(step.global_batch // (step.dp * sums))
    if not micro:
        raise NapkinError("the micro-batch is not stated")
    return micro


def micro_batches_of(row: RowFields, step: StepRow, framework: Framework, micro: int) -> int:
    """Return the micro-batches of a step."""
    if batch := scripts_of(framework).global_batch:
        return max(1, batch // (step.dp * micro))
    sums = row.count("layout.grad_accum")
    if row.number("layout.global_batch") is None and sums is None and step.pp > 1:
        return MANY * step.pp
    return max(1, int(sums or (step.global_batch or step.dp * micro) // (step.dp * micro)))


def refuse_layout(row: RowFields, step: StepRow) -> None:
    """Refuse a row whose layout is not stated or cannot run."""
    if row.count("hardware.count") is None and row.count("layout.dp") is None:
        raise NapkinError("the number of accelerators is not stated")
    ways = ("tp", "pp", "dp", "cp", "ep", "zero", "fsdp", "fsdp_group")
    if step.gpus > 1 and all(row.part("layout").get(name) is None for name in ways):
        raise NapkinError("the layout is not stated")
    for name, words in (("heads", "heads"), ("hidden", "columns"), ("ffn", "columns of the MLP")):
        size = row.count(f"model.{name}")
        if size is not None and size % step.tp:
            raise NapkinError(f"{size} {words} do not divide over {step.tp} tensor-parallel ranks")


def offload_of(row: RowFields, step: StepRow, framework: Framework) -> tuple[str, ...]:
    """Return what is offloaded to the host: optimizer, activations, parameters. Refused for what is not modeled."""
    offload: tuple[str, ...] = ("optimizer",) if row.flag("layout.optimizer_offload") else ()
    if row.flag("layout.activation_offload"):
        offload = (*offload, "activations")
    if any(row.flag(f"layout.{one}") for one in CPU_OFFLOADS):
        if step.gpus == 1 or not (step.zero == 3 or (step.zero is None and framework.zero == 3)):
            raise NapkinError("cpu_offload: an offload that is not modeled but under fully sharded data parallelism")
        offload = (*dict.fromkeys((*offload, "optimizer")), "parameters")
    return offload


def contradiction(row: RowFields, step: StepRow) -> str:
    """Return a contradiction between a row's fields; "" if there is none."""
    ways = step.tp * step.pp * step.cp
    dp = row.count("layout.dp")
    if step.gpus % ways or (dp is not None and dp * ways != step.gpus):
        said = f"tp·pp·cp·dp = {ways * dp:,}" if dp is not None else f"tp·pp·cp = {ways:,}"
        return f"{step.gpus:,} accelerators and {said}: a contradiction"
    adapts = row.text("layout.method") not in ALL_WEIGHTS
    trained, whole = row.number("layout.trainable_params"), row.number("model.params")
    if open_ := leaves_method_open(row):
        return open_
    if not adapts and trained and whole and trained < whole / 2:
        return f"trains {trained / whole:.2%} of its parameters by a method that it does not state"
    return ""


def setup_of(row: RowFields, model: Model, framework: Framework) -> Setup:
    """Return the row's run by that framework. Refused if something is missing or not modeled that memory depends
    on."""
    framework = adapted(framework, row)
    step = step_row(row)
    why = unread_memory(row) or contradiction(row, step)
    if why:
        raise NapkinError(why)
    seq, micro = sequence_of(row, step, framework), micro_of(row, step)
    refuse_layout(row, step)
    recipe = row.flag("layout.recipe_defaults") and tuning_of(row, framework) is None
    usual = scripts_of(framework).recipe_optimizer if recipe else "adamw"
    optimizer, form, in_backward = optimizer_of(row, usual)
    chunks, dropout = step.vp or 1, row.number("layout.dropout", most=1)
    layout = Layout(
        seq=seq,
        micro=micro,
        micro_batches=micro_batches_of(row, step, framework, micro),
        tp=step.tp,
        pp=step.pp,
        dp=step.dp,
        cp=step.cp,
        ep=step.ep,
        etp=step.etp,
        vp=chunks,
        ulysses=step.exchanges,
        capacity=step.capacity,
        imbalance=step.imbalance,
        sp=1 if step.sp and step.tp > 1 else 0,
        zero=step.zero or 0,
        schedule=schedule_of(row, chunks),
        recompute=recompute(recompute_of(row, step, framework)),
    )
    return Setup(
        code_for(row, framework, model),
        layout,
        precision_of(row, framework),
        optimizer,
        form,
        kernel_of(row, framework),
        framework.dropout if dropout is None else dropout,
        shard=step.shards or 0,
        offload=offload_of(row, step, framework),
        framework=framework,
        in_backward=in_backward,
        generation=generation_of(row),
    )
