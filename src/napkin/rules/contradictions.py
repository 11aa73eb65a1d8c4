"""N4: contradictions, which no run can have."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.architectures import implementation_of
from napkin.inputs.peaks import peak_name
from napkin.operations.frameworks import IMPLEMENTATIONS
from napkin.operations.implementations import FLASH, FLASH_2, HUGGING_FACE, Implementation
from napkin.operations.queries import learned_positions, undivided
from napkin.rules.case import Options, Stated
from napkin.rules.numbers import divisors, nearest
from napkin.rules.rule import ERROR, BrokenRule, Contradiction, Gain, Hit
from napkin.training.precision import precision

BEFORE_AMPERE = ("pascal", "volta", "turing")
"""GPU generations that FlashAttention-2 does not support."""


def _leaves_replicas(stated: Stated, **degrees: int) -> bool:
    """Return whether the stated GPUs, if any, are a multiple of a replica's ranks with these degrees."""
    together = math.prod(degrees.get(name, stated.number(name)) or 1 for name in ("tp", "pp", "cp"))
    return not stated.number("gpus") or stated.number("gpus") % together == 0


def _ranks(stated: Stated) -> Iterator[Hit]:
    gpus, degrees = stated.number("gpus"), {name: stated.number(name) for name in ("tp", "pp", "cp")}
    together = math.prod(degrees.values())
    if gpus and together and gpus % together:
        more = -(-gpus // together) * together
        fewer: list[Options] = [
            {name: str(n)}
            for name, degree in degrees.items()
            for n in nearest(degree, [n for n in divisors(gpus) if n > 1 and _runs(stated, **{name: n})])
            if degree > 1
        ]
        idle = gpus % together / gpus if gpus > together else None
        ways = " · ".join(f"{name} {n}" for name, n in degrees.items() if n > 1)
        yield Hit(f"{gpus:,} GPUs are not a multiple of {ways}", "gpus", (*fewer, {"gpus": str(more)}), Gain(time=idle))


def _replicas(stated: Stated) -> Iterator[Hit]:
    gpus, dp = stated.number("gpus"), stated.number("dp")
    together = math.prod(stated.number(name) or 1 for name in ("tp", "pp", "cp"))
    if "dp" in stated.texts and "gpus" in stated.texts and gpus != dp * together and not gpus % together:
        yield Hit(
            f"dp {dp:,} · {together:,} ranks of a replica are not {gpus:,} GPUs",
            "dp",
            ({"dp": str(gpus // together)},),
        )


def _heads(stated: Stated) -> Iterator[Hit]:
    tp = stated.number("tp")
    what = undivided(stated.model, _implementation(stated), tp) if tp > 1 else ""
    if what:
        near = nearest(tp, [n for n in divisors(stated.model.heads) if _runs(stated, tp=n)])
        yield Hit(f"tp {tp} does not divide {what}", "tp", tuple({"tp": str(n)} for n in near))


def _implementation(stated: Stated) -> Implementation:
    """Return the implementation that runs the model: the framework's, if one is named."""
    word = stated.word("implementation")
    framework = stated.framework
    if framework is not None and "implementation" not in stated.texts:
        word = framework.implementation
    return implementation_of(word if word in IMPLEMENTATIONS else HUGGING_FACE, stated.model.family)


def _runs(stated: Stated, **degrees: int) -> bool:
    """Return whether these degrees leave complete replicas and divide the model over tensor-parallel ranks."""
    tp = degrees.get("tp", stated.number("tp"))
    return not undivided(stated.model, _implementation(stated), tp) and _leaves_replicas(stated, **degrees)


def _layers(stated: Stated) -> Iterator[Hit]:
    pp, vp, depth = stated.number("pp"), stated.number("vp"), stated.model.stacks[-1].depth
    if pp * vp > depth:
        near = nearest(vp, divisors(depth // pp)) if pp <= depth else []
        stages = [{"pp": str(n)} for n in nearest(pp, divisors(depth)) if _leaves_replicas(stated, pp=n)]
        chunks = [{"vp": str(n)} for n in near]
        yield Hit(f"pp {pp} × vp {vp} is more than {depth} layers", "pp", tuple(chunks or stages))
    elif vp > 1 and depth % pp == 0 and (depth // pp) % vp:
        near = nearest(vp, divisors(depth // pp))
        chunks = [{"vp": str(n)} for n in near if n > 1] + [{"vp": "1"}]
        yield Hit(f"vp {vp} does not divide the {depth // pp} layers of a stage", "vp", tuple(chunks))


def _batch(stated: Stated) -> Iterator[Hit]:
    batch, micro, ranks = stated.number("global-batch"), stated.number("micro-batch"), _data_parallel(stated)
    if not batch or not ranks or "global-batch" not in stated.texts:
        return
    together = micro * ranks
    accumulated = stated.number("grad-accum") if "grad-accum" in stated.texts else 0
    if accumulated and batch != together * accumulated:
        yield Hit(
            f"global batch {batch:,} is not micro-batch {micro} · dp {ranks} · accumulation {accumulated}",
            "global-batch",
            ({"global-batch": str(together * accumulated)},),
        )
    elif batch % together:
        rounds = -(-batch // together)
        more, fewer = rounds * together, max(rounds - 1, 1) * together
        idle = 1 - batch / more
        near = [more, fewer] if more - batch <= batch - fewer else [fewer, more]
        yield Hit(
            f"global batch {batch:,} leaves ranks idle: micro-batch {micro} · dp {ranks} = {together:,}",
            "global-batch",
            tuple({"global-batch": str(n)} for n in near),
            Gain(time=idle),
        )


def _data_parallel(stated: Stated) -> int:
    """Return the data-parallel ranks that the configuration states, 0 if its degrees do not determine them."""
    together = math.prod(stated.number(name) or 1 for name in ("tp", "pp", "cp"))
    gpus, dp = stated.number("gpus"), stated.number("dp")
    return dp or (gpus // together if gpus and not gpus % together else 1 if not gpus else 0)


def _experts(stated: Stated) -> Iterator[Hit]:
    ep, counts = stated.number("ep"), sorted(stated.model.experts)
    degrees = math.prod(stated.number(name) or 1 for name in ("tp", "cp"))
    ranks = degrees * _data_parallel(stated) // (stated.number("etp") or 1)
    if ep <= 1:
        return
    if not counts:
        yield Hit(f"ep {ep}: {stated.model.name} has no experts", "ep", ({"ep": "1"},))
        return
    whole = math.gcd(*counts)
    fits = divisors(math.gcd(whole, ranks) if ranks else whole)
    if whole % ep:
        yield Hit(
            f"ep {ep} does not divide {', '.join(str(n) for n in counts)} experts",
            "ep",
            tuple({"ep": str(n)} for n in nearest(ep, fits)),
        )
    elif ranks and ranks % ep:
        yield Hit(
            f"ep {ep} does not divide the {ranks} ranks of a stage that hold its experts",
            "ep",
            tuple({"ep": str(n)} for n in nearest(ep, fits)),
        )


def _sequence(stated: Stated) -> Iterator[Hit]:
    seq, cp, tp = stated.number("seq"), stated.number("cp"), stated.number("tp")
    if not seq or "seq" not in stated.texts:
        return
    if cp > 1 and seq % cp:
        near = nearest(cp, [n for n in divisors(seq) if _leaves_replicas(stated, cp=n)])
        yield Hit(f"cp {cp} does not divide {seq:,} tokens", "cp", tuple({"cp": str(n)} for n in near))
    elif tp > 1 and stated.options.get("sp") is not False and (seq // cp) % tp:
        up = -(-seq // (cp * tp)) * cp * tp
        yield Hit(f"{seq // cp:,} tokens are not divided over tp {tp}", "seq", ({"seq": str(up)}, {"sp": False}))


def _old_flash(stated: Stated) -> Iterator[Hit]:
    hardware, flash = stated.hardware, stated.texts.get("attention") in (FLASH, FLASH_2)
    if hardware is not None and hardware.generation in BEFORE_AMPERE and flash:
        yield Hit(f"flash attention does not run on {hardware.name}", "attention", ({"attention": "efficient"},))


def _pipelined(stated: Stated) -> Iterator[Hit]:
    framework, zero, pp = stated.framework, stated.word("zero"), stated.number("pp")
    if framework is not None and pp > 1 and zero.isdecimal() and int(zero) > framework.pipelined:
        most = {"zero": str(framework.pipelined)}
        yield Hit(f"DeepSpeed's pipeline of {pp} stages refuses ZeRO-{zero}", "zero", (most,))


def _positions(stated: Stated) -> Iterator[Hit]:
    rows, seq = learned_positions(stated.model), stated.number("seq")
    if rows and "seq" in stated.texts and seq > min(rows):
        yield Hit(f"{seq:,} tokens on {min(rows):,} learned positions", "seq", ({"seq": str(min(rows))},))


def _format(stated: Stated) -> Iterator[Hit]:
    hardware, text = stated.hardware, stated.word("precision")
    if hardware is None or "precision" not in stated.texts:
        return
    name = peak_name(precision(text).compute)
    if name not in hardware.peaks:
        other = "bf16-mixed" if "bf16" in hardware.peaks else "fp16-mixed"
        yield Hit(f"{hardware.name} has no matrix units for {name}", "precision", ({"precision": other},))


RULES = (
    Contradiction(
        "N401",
        "gpus-not-a-multiple",
        "The GPUs are not a multiple of the ranks of one replica",
        "A replica takes tp · pp · cp GPUs; leftover GPUs cannot be used.",
        "llama3-8b --gpus 12 --tp 8",
        _ranks,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args: world_size % total_model_size",),
    ),
    Contradiction(
        "N402",
        "ranks-and-gpus-disagree",
        "The stated data-parallel ranks and GPUs do not agree",
        "gpus = tp · pp · cp · dp.",
        "llama3-8b --gpus 16 --tp 2 --dp 4",
        _replicas,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args: data_parallel_size",),
    ),
    Contradiction(
        "N403",
        "heads-not-divisible",
        "Tensor-parallel ranks do not divide the heads or widths",
        "Each rank computes whole heads, and an equal number of columns of each matrix.",
        "llama3-8b --gpus 24 --tp 3",
        _heads,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py, __post_init__",),
    ),
    Contradiction(
        "N404",
        "layers-not-divisible",
        "Stages and model chunks do not divide the layers",
        "A stage holds whole layers, and its chunks hold equal numbers of them.",
        "llama3-8b --gpus 8 --pp 8 --vp 3",
        _layers,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py, __post_init__",),
    ),
    Contradiction(
        "N405",
        "batch-leaves-ranks-idle",
        "The global batch is not a multiple of micro-batch · dp",
        "Every rank runs whole micro-batches. The price is the share of the ranks' time that is idle in a "
        "step with one more round, in which some have no sequences.",
        "llama3-8b --gpus 64 --zero 3 --micro-batch 1 --global-batch 96",
        _batch,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py",),
    ),
    Contradiction(
        "N406",
        "experts-not-divisible",
        "Expert-parallel ranks do not divide the experts or the ranks of a stage",
        "All ranks hold the same number of experts: ep · etp divides tp · cp · dp.",
        "mixtral-8x7b --gpus 64 --ep 16 --zero 1",
        _experts,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/core/transformer/moe/moe_layer.py, BaseMoELayer",),
    ),
    Contradiction(
        "N407",
        "sequence-not-divisible",
        "Context-parallel or sequence-parallel ranks do not divide the sequence",
        "All ranks hold the same number of tokens.",
        "llama3-8b --gpus 8 --cp 8 --seq 8100",
        _sequence,
        severity=ERROR,
        sources=("NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args",),
    ),
    Contradiction(
        "N408",
        "flash-before-ampere",
        "Flash attention is requested on a GPU that does not support it",
        "FlashAttention-2 needs Ampere or newer; torch's memory-efficient kernel runs on older GPUs.",
        "gpt2 --gpus 8 --hardware v100 --precision fp16-mixed --attention flash --seq 1024",
        find=_old_flash,
        severity=ERROR,
        sources=("Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp: only supports Ampere GPUs or newer",),
    ),
    Contradiction(
        "N409",
        "pipeline-with-zero2",
        "DeepSpeed's pipeline is combined with ZeRO-2 or ZeRO-3",
        "A pipeline adds up gradients over micro-batches, which stages 2 and 3 would have to gather each time.",
        "llama3-8b --gpus 16 --pp 4 --zero 2 --framework deepspeed",
        find=_pipelined,
        severity=ERROR,
        sources=("deepspeedai/DeepSpeed deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__",),
    ),
    Contradiction(
        "N410",
        "sequence-beyond-learned-positions",
        "Sequences are longer than the learned position embedding",
        "A position beyond the embedding has no row: the lookup fails.",
        "gpt2 --gpus 8 --seq 2048",
        find=_positions,
        severity=ERROR,
        sources=("huggingface/transformers models/gpt2/modeling_gpt2.py, GPT2Model.wpe",),
    ),
    Contradiction(
        "N411",
        "format-without-matrix-units",
        "Matmuls in a format that the accelerator does not support",
        "A format that the matrix units do not support is emulated or fails.",
        "llama3-8b --gpus 8 --hardware a100 --zero 3 --precision fp8-mixed",
        find=_format,
        severity=ERROR,
        sources=("datasheets, in hardware_specs.yaml with a citation for each",),
    ),
    Contradiction(
        "N497",
        "key-without-effect",
        "A key has no effect, because of another key of its file",
        "The program reads the key and does not use it: DeepSpeed's offload_param below stage 3, for example.",
        "",
        find=lambda _: (),
        sources=("the file's format: docs/launch-files.md",),
    ),
    Contradiction(
        "N498",
        "file-contradicts-itself",
        "Keys of a file contradict each other",
        "A file states values that cannot all hold.",
        "",
        find=lambda _: (),
        severity=ERROR,
        sources=("the file's format: docs/launch-files.md",),
    ),
    Contradiction(
        "N499",
        "refused-together",
        "Options that cannot be combined",
        "Each option is valid, but napkin refuses their combination, for the reason that it gives.",
        "llama3-8b --gpus 8 --zero 1 --offload parameters",
        find=lambda _: (),
        severity=ERROR,
        sources=("the refusal itself, which `napkin memory` with the same options prints",),
    ),
)


def idle(message: str, option: str, where: str) -> BrokenRule:
    """Return the finding on a key that another key of its file disables. where: file, line and key."""
    return BrokenRule(RULES[-3], Hit(message, option, where=where), {}, Gain())


def clash(message: str, option: str, where: str) -> BrokenRule:
    """Return the finding on a key that others of its file contradict. where: file, line and key."""
    return BrokenRule(RULES[-2], Hit(message, option, where=where), {}, Gain())


def refused(message: str, hint: str | None) -> BrokenRule:
    """Return the finding on options that cannot be combined."""
    return BrokenRule(RULES[-1], Hit(message, "", edit=hint or ""), {}, Gain())
