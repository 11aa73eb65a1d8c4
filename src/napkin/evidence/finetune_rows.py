"""What a row of measured fine-tuning (schema finetune/1) states, as the setup of a step. What is stated and not
understood, or missing and needed, is refused with the reason."""

from __future__ import annotations

import math

from napkin.architectures import build, implementation_of
from napkin.errors import NapkinError
from napkin.evidence.finetune_software import (
    OLD_TRANSFORMERS,
    attention_of,
    experts_of,
    framework_of,
    offload_of,
    optimizer_of,
    precision_of,
    targets_of,
    trainer_of,
    tuning_of,
    with_kernels,
)
from napkin.evidence.margins import widths_of
from napkin.evidence.published import run_kind_of
from napkin.evidence.rows import RowFields
from napkin.inputs import hardware
from napkin.inputs.hardware import Hardware
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import is_preset
from napkin.operations.lora_targets import found_targets, resolved
from napkin.operations.model import Model
from napkin.operations.trained import with_score
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup, keeps_adapters
from napkin.training.tasks import ADAPTERS_OFF, NONE, SAME, TASKS, Task, forward_passes, loss_of

PREFERENCES = ("dpo", "orpo", "simpo", "kto", "rm")
REFERENCES = {"second copy": SAME, "adapters switched off": ADAPTERS_OFF, "none": NONE}
"""What rows call where a reference's log-probabilities come from."""
KINDS = ("full", "lora", "dora")


@record
class FineTuning:
    """A row as a question.

    hardware  None where it is not stated     software  the stack whose steps are most like its own
    steps     of the whole run, 0 where it does not say
    untimed   why its speed is not predicted, ""      oom  the run was out of memory
    joined    a sequence is several samples of unknown length, each of which attends to itself alone
    run_kind  of the whole run: a benchmark's time to its target has evaluations in it
    longer    the longest micro-batch over one of `seq`, where that is a mean of lengths, or their limit; 1: as long
    others    what else the setup can be, and what is not stated that would tell: memory is predicted where it agrees
    """

    model: Model
    setup: Setup
    hardware: Hardware | None
    implementation: str
    software: str
    steps: float
    untimed: str
    oom: bool
    longer: float
    joined: bool
    run_kind: str
    others: tuple[tuple[Setup, str], ...] = ()


READ = {
    "model": "name preset params_nominal params shape",
    "hardware": "chip accelerator count per_node nodes",
    "method": """kind lora_rank lora_alpha lora_dropout lora_targets lora_targets_canonical lora_target_parameters
        quantised quantized quantize_moe_experts experts_targeted base_dtype adapter_dtype trainable_params
        modules_to_save load""",
    "layout": """framework trainer stack versions micro_batch grad_accum global_batch local_batch batch seq seq_max
        seq_stated packed padded padding_free tokens_per_micro_batch tokens_per_step precision autocast recompute
        recompute_detail optimizer optimizer_form attention loss kernels lora_kernels compile offload zero tp pp dp cp
        ep vp sp distributed_optimizer""",
}
"""Fields of a row that are read here, or that neither memory nor time depends on."""


def check_understood(row: RowFields) -> None:
    """Refuse a row that states what is not read, but for an explicit no."""
    for part, names in READ.items():
        for name, value in row.part(part).items():
            if name not in names.split() and value not in (None, False, 1):
                raise NapkinError(f"states {part}.{name}: not modeled")


def fine_tuning(row: RowFields) -> FineTuning:
    """Return a row as a question. Refused where something is missing, or stated and not understood."""
    check_understood(row)
    task, kind = row.text("task"), row.text("method.kind")
    if task not in ("sft", *PREFERENCES):
        raise NapkinError(f"the task {task[:40]} is not predicted")
    asked = TASKS[task]
    if kind not in KINDS:
        raise NapkinError(f"trains by {kind[:40]}: not modeled" if kind else "what is trained is not stated")
    model, trainer = model_of(row), trainer_of(row)
    stack = row.text("layout.stack").lower()
    framework = framework_of(row, stack, trainer)
    if framework.name == "fsdp" and kind != "full" and OLD_TRANSFORMERS.search(row.text("layout.versions")):
        framework = replace(framework, retains=True)
    name = framework.implementation if framework.implementation != "hf" else trainer.implementation
    precision = framework.formats(precision_of(row, trainer, framework, kind))
    layout, untimed = layout_of(row, model)
    layout = layout.replaced(rows=asked.rows)
    model = with_score(model) if asked.scalar else model
    implementation = with_kernels(row, model, implementation_of(name, model.family), framework)
    implementation = replace(implementation, loss=loss_of(asked, implementation.loss, precision))
    if kind != "full":
        tuning = replace(tuning_of(row), magnitude=kind == "dora")
        targets = targets_of(row)
        if row.text("method.experts_targeted"):  # apart from linear layers, before peft converted names
            apart = (*found_targets(targets, model, implementation), *experts_of(row, model, implementation))
            tuning = resolved(tuning, apart, model, implementation, converts=False)
        else:
            tuning = resolved(tuning, targets, model, implementation)
        implementation = keeps_adapters(replace(implementation, tuning=tuning), precision)
    optimizer, form = optimizer_of(row)
    setup = Setup(
        implementation,
        layout,
        precision,
        optimizer,
        form,
        attention_of(row),
        framework=framework,
        offload=offload_of(row, trainer, layout.recompute),
        task=asked,
        forwards=forward_passes(asked, reference_of(row, asked), None, framework.reference_first),
        widths=widths_of(framework.name),
    )
    card = card_of(row)
    software = "megatron-core" if framework.name == "megatron-core" else trainer.software
    steps = steps_of(row, layout)
    stated = row.count("layout.seq") is not None or row.number("measured.mean_tokens_per_sample") is not None
    joined = bool(row.flag("layout.packed")) and not stated
    oom = bool(row.flag("measured.oom"))
    return FineTuning(
        model,
        setup,
        card,
        name,
        software,
        steps,
        untimed,
        oom,
        _longer(row, layout),
        joined,
        run_kind_of(row),
        _others(row, setup),
    )


def reference_of(row: RowFields, task: Task) -> str:
    """Return where the log-probabilities of a reference come from."""
    said = row.text("rl.reference").partition(" (")[0]
    if task.reference and said not in REFERENCES:
        raise NapkinError(f"where the reference is: {said[:60]}" if said else "where the reference is is not stated")
    return REFERENCES.get(said, NONE)


def _others(row: RowFields, setup: Setup) -> tuple[tuple[Setup, str], ...]:
    """Return what else a row's setup can be, each with what the row does not state."""
    layout, longer = setup.layout, _longer(row, setup.layout)
    found = []
    if longer > 1:
        other = layout.replaced(seq=round(longer * float(layout.seq)))
        found.append((replace(setup, layout=other), "how long its longest sequences are is not stated"))
    stated = row.count("layout.grad_accum") or row.count("layout.global_batch")
    if setup.framework.defers and not stated:
        other = layout.replaced(micro_batches=2)
        found.append((replace(setup, layout=other), "whether gradients of several micro-batches add up is not stated"))
    return tuple(found)


LONGER = 4
"""The longest sequence of a data set over its mean one."""


def _longer(row: RowFields, layout: Layout) -> float:
    """Return the longest micro-batch over the usual one: as the longest sequence where all are padded to it; where they
    are joined without padding, the excess falls with the root of their number."""
    if row.count("layout.seq") is not None:
        return 1.0
    if row.flag("layout.packed") is False or _is_cut_only(row):
        return LONGER
    joined = row.number("measured.mean_tokens_per_sample") is not None
    return 1.0 + (LONGER - 1.0) / math.sqrt(float(layout.micro)) if joined else 1.0


def _is_cut_only(row: RowFields) -> bool:
    """Return whether samples are batched each by itself, and only the length at which they are cut is stated."""
    mean = row.number("measured.mean_tokens_per_sample")
    return mean is None and row.flag("layout.padding_free") is not None and not row.flag("layout.packed")


def model_of(row: RowFields) -> Model:
    """Return the preset that a row names."""
    for name in (row.text("model.preset"), row.text("model.name").rpartition("/")[2]):
        if name and is_preset(name):
            return build(load_config(name))
    raise NapkinError(f"no preset has the shape of {row.text('model.name')[:60] or 'its model'}")


def card_of(row: RowFields) -> Hardware | None:
    """Return the accelerator; None where it is not stated."""
    text = row.text("hardware.chip") or row.text("hardware.accelerator")
    if not text or text[0].isdigit():  # a size alone, or nothing
        return None
    return hardware.find(text.partition(" (")[0].strip())


def layout_of(row: RowFields, model: Model) -> tuple[Layout, str]:
    """Return the layout, and why its speed is not predicted: "" where it is."""
    gpus = row.count("hardware.count")
    if gpus is None:
        gpus = 1
    tp, pp, cp, ep = (row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "cp", "ep"))
    dp = row.count("layout.dp") or gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus:
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    seq, untimed = row.count("layout.seq"), ""
    mean = row.number("measured.mean_tokens_per_sample")
    if seq is None and mean is not None:  # of padded rows with their padding
        seq = round(mean)
    if seq is None:
        seq = row.count("layout.seq_max")
        untimed = "how long its sequences are is not stated" if not row.flag("layout.packed") else ""
    if seq is None:
        raise NapkinError("how long its sequences are is not stated")
    batch, sums = row.count("layout.global_batch"), row.count("layout.grad_accum")
    micro = row.count("layout.micro_batch")
    if micro is None and batch is not None and batch % (dp * (sums or 1)) == 0:
        micro = batch // (dp * (sums or 1)) if sums else 1
    if micro is None:
        raise NapkinError("the micro-batch is not stated")
    if batch is not None and batch < dp * micro:
        raise NapkinError(f"how its {gpus} GPUs divide a batch of {batch} is not stated")
    repeats = sums or (max(1, batch // (dp * micro)) if batch else 1)
    stack = row.text("layout.stack").lower()
    zero = row.count("layout.zero", least=0)
    zero = (
        3
        if zero is None and stack == "fsdp"
        else 1
        if zero is None and row.text("layout.distributed_optimizer")
        else zero
    )
    usual = "full" if trainer_of(row).recomputes(row.text("layout.versions")) else "none"
    kind = (row.text("layout.recompute") or usual).split(" ")[0]
    again = recompute(kind, "recompute")
    chunks = row.count("layout.vp") or 1
    return (
        Layout(
            seq=seq,
            micro=micro,
            micro_batches=repeats,
            tp=tp,
            pp=pp,
            dp=dp,
            cp=cp,
            ep=ep,
            vp=chunks,
            sp=1 if tp > 1 and row.flag("layout.sp") is not False else 0,
            zero=(zero or 0) if dp * cp > 1 or stack == "deepspeed" else 0,
            schedule="interleaved" if chunks > 1 else "1f1b",
            recompute=again,
        ),
        untimed,
    )


def steps_of(row: RowFields, layout: Layout) -> float:
    """Return the steps of the whole run: as stated, or by the samples or the tokens that it trained on; 0 where the row
    does not say. A rate times a time is what is predicted, and never read."""
    stated, samples = row.number("measured.steps"), row.number("measured.samples")
    tokens = None if "tokens" in row.part("measured").get("derived", ()) else row.number("measured.tokens")
    batch = float(layout.global_batch)
    return stated or (samples / batch if samples else (tokens or 0.0) / (batch * float(layout.seq)))
