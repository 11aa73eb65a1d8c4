"""What a row of measured fine-tuning (schema finetune/1) states, as the setup of a step. What is stated and not
understood, or missing and needed, is refused with the reason."""

from __future__ import annotations

import re

from napkin.architectures import build, implementation_of
from napkin.errors import NapkinError
from napkin.evidence.margins import widths_of
from napkin.evidence.published import run_kind_of
from napkin.evidence.rows import RowFields
from napkin.inputs import hardware
from napkin.inputs.hardware import Hardware
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import is_preset
from napkin.operations.implementations import Implementation
from napkin.operations.lora_targets import ALL_LINEAR, resolved
from napkin.operations.model import Model
from napkin.operations.trained import with_score
from napkin.operations.tuning import Tuning
from napkin.options.training import FROZEN_FORMATS
from napkin.record import record, replace
from napkin.training import optimizers
from napkin.training.frameworks import FRAMEWORKS, PLAIN, Framework
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES, Precision
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup, keeps_adapters
from napkin.training.tasks import ADAPTERS_OFF, NONE, SAME, TASKS, Task, forward_passes, loss_of
from napkin.training.trainers import LOOP, TRAINERS, Trainer

PREFERENCES = ("dpo", "orpo", "simpo", "kto", "rm")
REFERENCES = {"second copy": SAME, "adapters switched off": ADAPTERS_OFF, "none": NONE}
"""What rows call where a reference's log-probabilities come from."""
KINDS = ("full", "lora", "dora")
STORED = {
    **{name: name for name in ("", *FROZEN_FORMATS)},
    **dict.fromkeys(("gptq-int4", "awq-int4"), "int4"),
    "4 bit": "nf4",
}
"""What rows call formats of frozen weights."""


@record
class FineTuning:
    """A row as a question.

    hardware  None where it is not stated     software  the stack whose steps are most like its own
    steps     of the whole run, 0 where it does not say
    untimed   why its speed is not predicted, ""      oom  the run was out of memory
    run_kind  of the whole run: a benchmark's time to its target has evaluations in it
    uneven    sequences have no length in common: `seq` is their mean
    """

    model: Model
    setup: Setup
    hardware: Hardware | None
    implementation: str
    software: str
    steps: float
    untimed: str
    oom: bool
    uneven: bool
    run_kind: str


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
    if row.text("method.experts_targeted") == "targeted" and not row.text("method.lora_target_parameters"):
        raise NapkinError("which tensors of the experts have adapters is not stated")


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
        offload=offload_of(row),
        task=asked,
        forwards=forward_passes(asked, reference_of(row, asked), None, framework.reference_first),
        widths=widths_of(framework.name),
    )
    card = card_of(row)
    software = "megatron-core" if framework.name == "megatron-core" else trainer.software
    steps = steps_of(row, layout)
    apart = row.flag("layout.packed") is False or _is_cut_only(row)
    uneven = row.count("layout.seq") is None and apart
    oom = bool(row.flag("measured.oom"))
    return FineTuning(model, setup, card, name, software, steps, untimed, oom, uneven, run_kind_of(row))


def reference_of(row: RowFields, task: Task) -> str:
    """Return where the log-probabilities of a reference come from."""
    said = row.text("rl.reference").partition(" (")[0]
    if task.reference and said not in REFERENCES:
        raise NapkinError(f"where the reference is: {said[:60]}" if said else "where the reference is is not stated")
    return REFERENCES.get(said, NONE)


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


def trainer_of(row: RowFields) -> Trainer:
    """Return the library that trained; a plain loop where none is named."""
    return TRAINERS.get(row.text("layout.trainer").lower(), LOOP)


def framework_of(row: RowFields, stack: str, trainer: Trainer) -> Framework:
    """Return the framework that divided the states; that of the trainer's own layers on one GPU."""
    if trainer.implementation in FRAMEWORKS and stack in ("", "none"):
        return FRAMEWORKS[trainer.implementation]
    if not stack and row.count("layout.zero", least=0):
        return FRAMEWORKS["deepspeed"]
    if stack in ("", "none", "ddp"):  # torch's own data parallelism, where nothing else is named
        return PLAIN
    if stack not in FRAMEWORKS:
        raise NapkinError(f"the framework {stack[:40]} is not modeled")
    return FRAMEWORKS[stack]


def precision_of(row: RowFields, trainer: Trainer, framework: Framework, kind: str) -> Precision:
    """Return which type each kind of tensor has: as the row says it, else by the trainer's code."""
    text = row.text("layout.precision").lower()
    word = text.split(" ")[0].strip("(),")
    narrow = "fp16" if "fp16" in text else "bf16"
    autocast = row.flag("layout.autocast")
    if word == "fp32" or (kind == "full" and word in POLICIES and not word.startswith("amp-")):
        return POLICIES[word]
    if "over" in text or "weights" in text:  # of 16 bits, which the row says
        trainer = replace(trainer, full=LOOP.full)
    if kind == "full":
        return trainer.policy_of_all(framework, narrow, autocast)
    if "accelerated-peft" in row.text("layout.kernels"):  # its loader casts nothing
        trainer = replace(trainer, widens=False)
    stated = row.text("method.adapter_dtype")[:4]
    kept = stated if stated in ("fp32", "bf16", "fp16") else ""
    quantized = bool(row.text("method.quantized") or row.text("method.quantised"))
    found = trainer.policy_of_adapters(framework, quantized, narrow, autocast, kept)
    compute = word.removesuffix("-mixed")
    low = framework.name == "megatron-core" and f"{compute}-mixed" in POLICIES
    return replace(found, compute=compute) if low else found


def tuning_of(row: RowFields) -> Tuning:
    """Return the adapters, and how what is frozen is stored."""
    said = row.text("method.quantized") or row.text("method.quantised")
    stored = STORED.get(said, STORED.get(said.partition(" (")[0]))
    if not stored and row.text("method.base_dtype").startswith("fp8"):
        stored = "fp8"
    if stored is None:
        raise NapkinError(f"stores frozen weights as {said[:40]}: not modeled")
    if row.text("method.modules_to_save"):
        raise NapkinError("modules that are trained in full next to adapters are not modeled")
    rank = row.count("method.lora_rank")
    if rank is None:
        raise NapkinError("the rank of LoRA is not stated")
    dropout = row.number("method.lora_dropout") or 0.0
    experts = bool(row.flag("method.quantize_moe_experts"))
    return Tuning("lora", rank, dropout, (), stored, "transformers", experts)


def targets_of(row: RowFields) -> tuple[str, ...]:
    """Return the names of the modules with adapters."""
    text = row.text("method.lora_targets_canonical") or row.text("method.lora_targets")
    if text in ("*_proj", ALL_LINEAR) or text.startswith("all"):
        return (ALL_LINEAR,)
    parameters = row.text("method.lora_target_parameters")
    names = tuple(name.strip() for name in ",".join(filter(None, (text, parameters))).split(","))
    if not text or any(not name or not name.replace("_", "").replace(".", "").isalnum() for name in names):
        raise NapkinError(
            f"which modules have adapters is not understood: {text[:60]}"
            if text
            else "which modules have adapters is not stated"
        )
    return names


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


OLD_TRANSFORMERS = re.compile(r"transformers[ =]*4\.")
"""A version whose experts are modules with linear layers of their own, and whose Trainer takes torch's AdamW as it is:
foreach on a GPU (training_args.py, optim; fused from 5 on). Its checkpoints are reentrant (modeling_utils.py,
gradient_checkpointing_enable)."""
FUSED_NORMS = ("foak", "unsloth", "liger")
"""Words of kernels that run a norm at once."""
FUSED_LOSSES = ("liger", "cut cross entropy", "fused")
"""Words of losses that materialize no logits."""


def with_kernels(row: RowFields, model: Model, implementation: Implementation, framework: Framework) -> Implementation:
    """Return the implementation with the kernels that a row names."""
    implementation = framework.implements(
        implementation, bool(row.flag("layout.compile")), (row.count("layout.tp") or 1) > 1
    )
    words = f"{row.text('layout.loss')} {row.text('layout.kernels')}".lower()
    old = model.experts and OLD_TRANSFORMERS.search(row.text("layout.versions")) and "scattermoe" not in words
    if old and implementation.looped == "":
        implementation = replace(implementation, looped="modules")
    if any(word in words for word in FUSED_NORMS):
        implementation = replace(implementation, norms="fused")
    if "foak" in words or "unsloth" in words:
        return replace(implementation, loss="in-place")
    if any(word in words for word in FUSED_LOSSES) and "logits kept" not in words:
        return replace(implementation, loss="fused")
    return implementation


def optimizer_of(row: RowFields) -> tuple[optimizers.Optimizer, str]:
    """Return the optimizer and its form."""
    text = (row.text("layout.optimizer") or "adamw").split(" ")[0].replace("_torch", "").replace("_", "-")
    optimizer, form = optimizers.find(text)
    usual = "fused" if "fused" in optimizer.forms else optimizer.forms[0]
    if OLD_TRANSFORMERS.search(row.text("layout.versions")) and "foreach" in optimizer.forms:
        usual = "foreach"
    return optimizer, row.text("layout.optimizer_form") or form or usual


def attention_of(row: RowFields) -> str:
    """Return the attention kernel; torch's choice without a mask is flash."""
    text = row.text("layout.attention").lower()
    return "eager" if text.startswith("eager") else "flash"


def offload_of(row: RowFields) -> tuple[str, ...]:
    """Return what is kept in the host's memory."""
    text = row.text("layout.offload")
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if any(name not in ("activations", "optimizer", "parameters") for name in names):
        raise NapkinError(f"the offload {text[:40]} is not modeled")
    return names
