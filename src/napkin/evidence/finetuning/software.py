"""The software of a row of measured fine-tuning: library, framework, formats, adapters, kernels."""

from __future__ import annotations

import re

from napkin.errors import NapkinError
from napkin.evidence.prose.recognize import date_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import IN_PLACE, OFFLOADED, fused_loss, fuses_loss, program_of
from napkin.evidence.software.plugins import PLUGINS, Plugin, plugins_in
from napkin.evidence.software.scripts import library_named, scripts_of, scripts_of_library
from napkin.formats.table import NORMAL_FLOATS
from napkin.operations.implementations import CUT_IN_FP32, CUT_IN_FUNCTION, Implementation
from napkin.operations.model import Model
from napkin.operations.roles import LM_HEAD, TOKEN
from napkin.operations.tuning import Tuning
from napkin.options.training import FROZEN_FORMATS
from napkin.record import replace
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS, PLAIN, first_version
from napkin.training.kernels import KERNELS, Kernels, together
from napkin.training.precision import POLICIES, Precision
from napkin.training.recomputation import Recompute
from napkin.training.trainer import Trainer
from napkin.training.trainers import LOOP, TRAINERS
from napkin.training.versions import TRANSFORMERS_5, is_before, is_since, version_of

STORED = {
    **{name: name for name in ("", *FROZEN_FORMATS)},
    **dict.fromkeys(("gptq-int4", "awq-int4"), "int4"),
    **dict.fromkeys(("4 bit", "hqq-4", "nvfp4", "nvfp4 experts"), "nf4"),
    "eetq": "int8",
}
"""What rows call formats of frozen weights. As many bits as nf4, 4.5 a weight: HQQ's groups of 64 with a 16-bit scale
and zero (mobiusml/hqq, BaseQuantizeConfig), NVFP4's of 16 with an 8-bit scale; EETQ's 8 bits have scales of rows."""


UNDIVIDED = ("", "none", "ddp")
"""What rows call a stack without a framework: torch's own data parallelism."""


def trainer_of(row: RowFields) -> Trainer:
    """Return the library that trained; a plain loop if none is named."""
    return TRAINERS.get(row.text("layout.trainer").lower(), LOOP)


def framework_of(row: RowFields, stack: str, trainer: Trainer) -> Framework:
    """Return the framework that divided the states; that of the trainer's own layers on one GPU. Refused for one that
    is not modeled."""
    named = FRAMEWORKS.get(program_of(row.text("layout.framework")))
    if trainer is LOOP and named is not None and (stack in UNDIVIDED or _shards_alike(stack, named)):
        return named
    own = FRAMEWORKS.get(trainer.implementation)
    if own is not None and (stack in ("", "none") or _shards_alike(stack, own)):
        return own
    implied = "" if stack else trainer.implied(row.count("layout.zero", least=0) or 0)
    if not implied and stack in UNDIVIDED:
        return trainer.logged(PLAIN)
    if (implied or stack) not in FRAMEWORKS:
        raise NapkinError(f"the framework {stack[:40]} is not modeled")
    framework = FRAMEWORKS[implied or stack]
    if row.count("layout.fsdp_version") not in ((None, 1, 2) if framework.versioned else (None,)):
        raise NapkinError(f"version {row.count('layout.fsdp_version')} of FSDP is not one of {framework.name}")
    plugins = plugins_of(row)
    if any(one.grouped for one in plugins):
        framework = replace(framework, experts_apart=True)
    older = framework.versioned and not _is_fsdp2(row)
    found = trainer.on(first_version(framework) if older else framework)
    if any(one.unsharded for one in plugins) and row.text("method.quantized"):
        found = replace(found, unit_of_adapter=False)
    return replace(found, defers=framework.defers) if _is_fsdp2(row) and not _defers_fsdp2(row) else found


def _shards_alike(stack: str, program: Framework) -> bool:
    """Return whether a row's stack is the FSDP that a training program has."""
    return bool(program.fsdp and FRAMEWORKS.get(stack, PLAIN).fsdp)


def plugins_of(row: RowFields) -> tuple[Plugin, ...]:
    """Return the plugins that a row names; the words of one may have blanks or underscores between them."""
    kernels = re.sub("[_ ]+", "-", row.text("layout.kernels"))
    return plugins_in(f"{row.text('layout.loss')} {kernels} {row.text('layout.framework')}".lower())


def _is_fsdp2(row: RowFields) -> bool:
    stated = row.count("layout.fsdp_version")
    return stated == 2 if stated else "fsdp2" in row.text("layout.framework").lower()


def _defers_fsdp2(row: RowFields) -> bool:
    """Return whether accelerate's no_sync does anything under FSDP2: from 1.11 on (ec92b1af of September 2025). Figures
    of FSDP2 that state no version are older."""
    found = re.search(r"accelerate[ =]*(\d{1,9})\.(\d{1,9})", row.text("layout.versions"))
    return found is not None and (int(found[1]), int(found[2])) >= (1, 11)


LOW = ("fp8", "mxfp8", "nvfp4")
"""Formats of products, by which rows call the policy around them."""
NARROW = ((r"fp16|(?<!b)float16|\bhalf\b", "fp16"), (r"bf16|bfloat16", "bf16"))
"""Words of a precision, and the 16-bit format that they name; the first that occurs holds."""


def precision_of(row: RowFields, trainer: Trainer, framework: Framework, kind: str, usual: str = "bf16") -> Precision:
    """Return the precision policy: as stated, else by the trainer's code. usual: the 16-bit format if the row does not
    say. Refused for tf32."""
    text = row.text("layout.precision").lower()
    word = text.split(" ")[0].strip("(),")
    narrow = next((name for spelling, name in NARROW if re.search(spelling, text)), usual)
    if word == "tf32":
        raise NapkinError("the rate of tf32 is not modeled")
    autocast, stored = row.flag("layout.autocast"), row.text("method.base_dtype")[:4]
    narrow_weights = "over" in text or "weights" in text or stored in ("bf16", "fp16")  # which the row says
    if word == "fp32" and any(re.search(spelling, text) for spelling, _ in NARROW):  # weights; products in 16 bits
        return replace(POLICIES["amp-bf16"], name=f"amp-{narrow}", compute=narrow)
    if word == "fp32" or (kind == "full" and word in POLICIES and not (word.startswith("amp-") and narrow_weights)):
        return POLICIES[word]
    if narrow_weights:
        trainer = replace(trainer, full=LOOP.full)
    if kind == "full" and framework.engine and word in LOW:
        return POLICIES[f"{word}-mixed"]
    if kind == "full":
        return trainer.policy_of_all(framework, narrow, autocast)
    if autocast is None and word in POLICIES and word.startswith("amp-"):
        autocast = True
    if framework.program and word.endswith("-mixed"):  # Lightning's: autocast over fp32 weights
        return replace(POLICIES["amp-bf16"], name=f"amp-{narrow}", compute=narrow)
    if framework.program:  # all in the dtype of its recipe
        trainer = replace(trainer, adapters=narrow, beside_quantized=narrow, autocast=False)
    if "prepare_model_for_kbit_training" in row.text("method.base_dtype"):  # which a script calls itself
        trainer = replace(trainer, widens=True)
    if any(one.uncast for one in plugins_of(row)):
        trainer = replace(trainer, widens=False)
    stated = row.text("method.adapter_dtype")[:4]
    kept = stated if stated in ("fp32", "bf16", "fp16") else ""
    said = row.text("method.quantized") or row.text("method.quantised")
    quantized = STORED.get(said, said)
    if re.search(r"\bc=(?:bf|f16|float16|half)", word):  # jmp's policy: JAX casts the whole model for its passes
        kept = kept or narrow
    if not autocast and any(one.narrow for one in plugins_of(row)):
        kept = kept or narrow
    kept = kept or trainer.adapters_in(row.text("layout.versions"), quantized, narrow)
    found = trainer.policy_of_adapters(framework, quantized, narrow, autocast, kept)
    compute = word.removesuffix("-mixed")
    if framework.engine and f"{compute}-mixed" in POLICIES:  # its linear layers multiply in 8 or 4 bits
        return replace(found, compute=compute)
    wide = stored == "fp32" or (word in POLICIES and word.startswith("amp-") and not narrow_weights)
    return replace(found, frozen="") if wide and not quantized and found.param == "fp32" else found


def precisions_of(row: RowFields, trainer: Trainer, framework: Framework, kind: str) -> tuple[Precision, ...]:
    """Return the precision policy, the likely one first, where a row leaves open in which dtype its script loads."""
    found = precision_of(row, trainer, framework, kind)
    words = row.text("layout.precision").lower()
    stated = words in POLICIES or "over" in words or "weights" in words
    if kind != "full" or not scripts_of_library(trainer).loads_fp32 or stated or found.param not in ("bf16", "fp16"):
        return (found,)
    if found.master is not None or row.flag("layout.autocast") is False:
        return (found,)
    wide = replace(trainer, full="amp-bf16").policy_of_all(framework, found.param)
    versions = row.text("layout.versions")
    if is_before("transformers", versions, TRANSFORMERS_5):
        return (wide,)
    return (found,) if "transformers" in versions else (found, wide)


EXPERTS_STORED = ("experts", "linearized")
"""Words of formats, and of checkpoints, whose experts are quantized: as linear layers, if they are named so."""


def tuning_of(row: RowFields, rank: int) -> Tuning:
    """Return adapters of that rank, and the format of frozen weights. Refused for a format that is not modeled."""
    said = row.text("method.quantized") or row.text("method.quantised")
    stored = STORED.get(said, STORED.get(said.partition(" (")[0]))
    if not stored and row.text("method.base_dtype").startswith("fp8"):
        stored = "fp8"
    if stored is None:
        raise NapkinError(f"stores frozen weights as {said[:40]}: not modeled")
    if stored == "nf4" and nests_scales(row):
        stored = "nf4-dq"
    stated = row.number("method.lora_dropout")
    dropout = trainer_of(row).dropout if stated is None else stated
    named = f"{row.text('method.quantised')} {row.text('model.name')}".lower()
    trainer = trainer_of(row)
    experts = bool(row.flag("method.quantize_moe_experts")) or any(word in named for word in EXPERTS_STORED)
    experts = experts or (trainer.experts and stored in NORMAL_FLOATS)
    library = framework_of(row, row.text("layout.stack").lower(), trainer).quantizer
    return Tuning("lora", rank, dropout, (), stored, library, experts, saved=saved_of(row))


def nests_scales(row: RowFields) -> bool:
    """Return whether a row's software quantizes the scales of 4-bit weights unless it is told otherwise."""
    return trainer_of(row).nested or any(one.nested for one in plugins_of(row))


SAVED = {
    **dict.fromkeys(("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "all-embedding"), TOKEN),
    **dict.fromkeys(("lm_head", "output_layer", "embed_out", "output"), LM_HEAD),
}
"""What classes call the embedding and the head, which their published forms may name otherwise than napkin's."""


def saved_of(row: RowFields) -> tuple[str, ...]:
    """Return the roles of the modules that are trained in full next to adapters. Refused for modules that are not
    known."""
    words = row.text("method.modules_to_save").partition(" (")[0]
    names = words.replace(",", " ").split()
    if any(name not in SAVED for name in names):
        raise NapkinError(f"trains {words[:60]} in full: not modeled")
    return tuple(dict.fromkeys(SAVED[name] for name in names))


def is_reentrant(row: RowFields, trainer: Trainer) -> bool:
    """Return whether checkpoints are reentrant: those of transformers 4, which a library around its classes has in a
    run of FSDP's first version that states no version."""
    versions = row.text("layout.versions")
    if "transformers" in versions:
        return is_before("transformers", versions, TRANSFORMERS_5)
    return scripts_of_library(trainer).reentrant and trainer.of_transformers and not _is_fsdp2(row)


KERNEL_WORDS = re.compile(
    "|".join((*KERNELS, *(re.sub("[-_]", "|", one.word) for one in PLUGINS)))
    + r"|none|default|true|kernels?|fast|fused|triton|te|transformer|engine"
    + r"|baseline|aadp|moe|granite|ep\d+|padding|free|fsdp2|prefetch"
    + r"|torch|compile|flash|attention|attn|fa[23]|sdpa|cut|cross|entropy|c?ce|rms|norms?|rope|swiglu|mlp|qkv|lora|o"
)
"""Words of `layout.kernels` that are read here or elsewhere, or that say no more than another field."""


def check_kernels(row: RowFields) -> None:
    """Reject a row with a library of kernels that is not known."""
    said = row.text("layout.kernels")
    words = re.split(r"[^a-z0-9]+", said.lower().replace("plugin", " "))
    if not all(KERNEL_WORDS.fullmatch(one) for one in words if one):
        raise NapkinError(f"states layout.kernels: {said[:60]}: not modeled")


def kernels_of(row: RowFields) -> Kernels | None:
    """Return the library of kernels that a row names, or its trainer has."""
    words = f"{row.text('layout.loss')} {row.text('layout.kernels')}".lower()
    check_kernels(row)
    if any(one.norms for one in plugins_of(row)):
        return None
    named = next((one for name, one in KERNELS.items() if name in words), None)
    usual, stated = KERNELS.get(trainer_of(row).kernels), row.flag("layout.lora_kernels")
    if usual is not None and not stated:
        old = usual.since != (0, 0) and not is_since(usual.name, row.text("layout.versions"), usual.since)
        usual = None if old or stated is False else usual
    return usual if named is None else together(named, usual)


def reads_no_mask(row: RowFields) -> bool:
    """Return whether the row's kernels drop the mask of padding."""
    kernels = kernels_of(row)
    return kernels is not None and kernels.unmasked


def with_kernels(row: RowFields, implementation: Implementation) -> Implementation:
    """Return an implementation that runs the library of kernels that a row names, or its trainer has."""
    kernels = kernels_of(row)
    return implementation if kernels is None else kernels.on(implementation)


def holds_logits(row: RowFields) -> bool:
    """Return whether the training loop that a row names holds the logits until the backward pass is over, unless the
    row says that it drops them."""
    dropped = "logits dropped" in row.text("layout.loss").lower()
    return library_named(row.text("layout.trainer").lower()).holds_logits and not dropped


def with_loss(
    row: RowFields, model: Model, implementation: Implementation, framework: Framework, divided: bool = False
) -> Implementation:
    """Return the implementation with the loss that a row names, and what follows from versions that it states. divided:
    tensor-parallel ranks divide the vocabulary."""
    implementation = framework.implements(implementation, bool(row.flag("layout.compile")), divided, date_of(row))
    words, plugins = f"{row.text('layout.loss')} {row.text('layout.kernels')}".lower(), plugins_of(row)
    old = model.experts and is_before("transformers", row.text("layout.versions"), TRANSFORMERS_5)
    if old and not any(one.grouped for one in plugins) and implementation.looped == "":
        implementation = replace(implementation, looped=implementation.looped_in_4)
    if is_before("bitsandbytes", row.text("layout.versions"), TABLE_OF_VALUES):
        implementation = replace(implementation, branched=True)
    if implementation.shifted and _copies_logits(row):
        apart = is_since("transformers", row.text("layout.versions"), HAS_LOSSES)
        implementation = replace(implementation, shifted=False, cuts=CUT_IN_FUNCTION if apart else CUT_IN_FP32)
    fusing = next((one for one in plugins if one.norms), None)
    if fusing is not None:
        loss = implementation.loss if fusing.spares(model.family, row.text("layout.versions")) else fusing.loss
        return replace(implementation, norms=fusing.norms, loss=loss)
    own = fused_loss(row.text("layout.loss"), dict(scripts_of(framework).fused_losses))
    if own:
        return replace(implementation, loss=own)
    if IN_PLACE.search(row.text("layout.loss").lower()):
        return replace(implementation, loss="in-place")
    if fuses_loss(words) and "logits kept" not in words:
        return replace(implementation, loss="fused")
    kernels, versions = kernels_of(row), row.text("layout.versions")
    if kernels is not None and kernels.before:
        newer = is_since(kernels.name, versions, kernels.loss_since)
        return replace(implementation, loss=kernels.loss if newer else kernels.before)
    return replace(implementation, loss=trainer_of(row).loss_in(versions) or implementation.loss)


def may_fuse_loss(row: RowFields, loss: str) -> str:
    """Return the loss of today's release of the kernels that a row names without a version, if `loss` is that of their
    older ones; else ""."""
    kernels = kernels_of(row)
    if kernels is None or not kernels.before or loss != kernels.before:
        return ""
    return "" if version_of(kernels.name, row.text("layout.versions")) else kernels.loss


TABLE_OF_VALUES = (0, 48)
"""The version of bitsandbytes from which on its kernel looks NF4 values up (pull request 1746)."""
HAS_LOSSES = (4, 46)
"""The version of transformers from which on the cast of logits to fp32 is that of a function, ForCausalLMLoss, whose
caller holds them in 16 bits (pull request 34191); before, it took their place."""
SHIFTS_LABELS = (4, 49)
"""The version of transformers from which on labels are shifted and logits stay as they are; before, those of all but
the last token were copied (huggingface/transformers src/transformers/loss/loss_utils.py, pull request 35646)."""


def _copies_logits(row: RowFields) -> bool:
    """Return whether a row states a version of transformers whose loss copies the logits."""
    return is_before("transformers", row.text("layout.versions"), SHIFTS_LABELS)


def offload_of(row: RowFields, trainer: Trainer, recomputed: Recompute) -> tuple[str, ...]:
    """Return what is kept in host memory. Refused for words that are not understood."""
    text = row.text("layout.offload").replace(" (fraction 1)", "")
    said = (name.strip() for name in text.split(",")) if text else ()
    names = tuple(OFFLOADED.get(name, name) for name in said)
    if any(name not in ("activations", "optimizer", "parameters") for name in names):
        raise NapkinError(f"the offload {text[:40]} is not modeled")
    checkpoints = row.text("layout.recompute").lower()
    if "offload" in checkpoints:
        names = tuple(dict.fromkeys((*names, "activations")))
    words = f"{row.text('layout.kernels')} {checkpoints}".lower()  # LLaMA-Factory and ms-swift take another library's
    named = next((one for one in TRAINERS.values() if one.offloads and one.name in words), trainer)
    return named.moves(recomputed, names)
